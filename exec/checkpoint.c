/* Writes checkpoints. Every rank writes what it owns: of a bucket the part whose optimizer state it holds, of
 * weights that no bucket has everything, and of copies only the first. So the shards together hold every
 * element once. */
#include "exec/checkpoint.h"
#include "exec/exec_param.h"
#include "models/base/whole_file.h"
#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

char *checkpoint_key(char *to, size_t to_B, const struct param *q)
{
    const char *name = program_param_name((enum param_name)q->name);
    if (q->layer < 0) snprintf(to, to_B, "%s", name);
    else snprintf(to, to_B, "layers.%d.%s", q->layer, name);
    return to;
}

int64_t checkpoint_rows(const struct param *q, const struct model *m)
{
    return q->name == PARAM_EMBEDDING || q->name == PARAM_HEAD ? m->vocab : q->rows;
}

uint64_t checkpoint_hash(uint64_t h, const void *bytes, int64_t n)
{
    const unsigned char *p = bytes;
    for (int64_t i = 0; i < n; i++) h = (h ^ p[i]) * 0x100000001b3u;
    return h;
}

/* ---- what a rank writes ---- */

struct piece { int64_t rows, cols, stride; struct numbers from; int64_t at; };   /* at: its first element */

/* Pieces of one rank, counted first (piece NULL) and then filled. */
struct pieces {
    struct arena *a;
    const struct checkpoint *c;
    struct safetensors_tensor *tensor; struct piece *piece; int n;
};

static void pieces_add(struct pieces *all, const struct param *q, char kind, struct checkpoint_piece p,
                       struct numbers from, int64_t at, int64_t stride)
{
    if (all->piece) {
        char key[64];
        struct safetensors_tensor *t = &all->tensor[all->n];
        t->name = arena_printf(all->a, "%s.%c[%lld,%lld:%lld,%lld:%lld]", checkpoint_key(key, sizeof key, q),
                               kind, (long long)p.expert, (long long)p.row, (long long)p.row_end,
                               (long long)p.col, (long long)p.col_end);
        t->type = SAFETENSORS_F32;
        t->n_dim = 2;
        t->dim[0] = p.row_end - p.row;
        t->dim[1] = p.col_end - p.col;
        all->piece[all->n] = (struct piece){ t->dim[0], t->dim[1], stride, from, at };
    }
    all->n++;
}

/* Rectangles of the local elements [first, end) of a parameter, of which element 0 is `zero` of `from`. */
static void pieces_of(struct pieces *all, const struct exec_param_slice *s, char kind, int64_t first,
                      int64_t end, struct numbers from, int64_t zero)
{
    const int64_t rows = checkpoint_rows(s->q, &all->c->j->model);
    for (int64_t e = 0; e < s->batch; e++) {
        struct checkpoint_piece open = { 0 };
        int64_t open_at = 0;
        for (int64_t r = 0; r <= s->rows; r++) {
            struct checkpoint_piece p = { 0 };
            const int64_t at = (e * s->rows + r) * s->cols;
            const int64_t lo = first > at ? first - at : 0, hi = end - at < s->cols ? end - at : s->cols;
            if (r < s->rows && lo < hi) {
                const int64_t place = exec_param_place(s, e, r), row = place / s->q->cols % s->q->rows,
                              col = place % s->q->cols;
                if (row < rows)
                    p = (struct checkpoint_piece){ kind, s->expert + e, row, row + 1, col + lo, col + hi };
            }
            if (open.row_end && p.row_end && p.row == open.row_end && p.col == open.col &&
                p.col_end == open.col_end) {
                open.row_end++;
                continue;
            }
            if (open.row_end) pieces_add(all, s->q, kind, open, from, open_at, s->cols);
            open = p;
            open_at = zero + at + lo;
        }
    }
}

static int is_first_of_its_name(const struct program *pr, int param)
{
    for (int i = 0; i < param; i++)
        if (pr->param[i].name == pr->param[param].name && pr->param[i].layer == pr->param[param].layer)
            return 0;
    return 1;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static void pieces_param(struct pieces *all, const struct state *s, int param, int rank)
{
    const struct program *pr = all->c->pr;
    const struct job *j = all->c->j;
    const struct param *q = &pr->param[param];
    const struct coord at = fold_coord(&j->plan, rank);
    if (q->stage != at.pp || !is_first_of_its_name(pr, param)) return;
    const struct exec_param_slice slice = exec_param_slice(pr, j, q, at);
    const int64_t n = slice.batch * slice.rows * slice.cols;
    if (slice.copy) return;
    if (!q->g) {
        if (at.cp == 0 && at.dp == 0) pieces_of(all, &slice, 'w', 0, n, state_numbers(s, rank, q->w), 0);
        return;
    }
    const struct bucket *k = exec_param_bucket(pr, q);
    const struct exec_param_owned own = exec_param_owned(pr, j, q, rank);
    const struct exec_param_home home = exec_param_home(pr, j, q, 0, rank);
    const struct numbers weights = state_numbers(s, rank, home.buf);
    const int64_t base = home.at, first = larger(own.first - base, 0);
    const int64_t end = own.end - base < n ? own.end - base : n;
    if (first >= end) return;
    if (k->master)
        pieces_of(all, &slice, 'w', first, end,
                  exec_param_master(state_numbers(s, rank, k->master), weights, &home, own), base - own.first);
    else pieces_of(all, &slice, 'w', first, end, weights, base - home.held.first);
    if (!k->m || all->c->head.optimizer != OPTIMIZER_ADAMW) return;
    pieces_of(all, &slice, 'm', first, end, state_numbers(s, rank, k->m), base - own.first);
    pieces_of(all, &slice, 'v', first, end, state_numbers(s, rank, k->v), base - own.first);
}

static void pieces_all(struct pieces *all, const struct state *s, int rank)
{
    all->n = 0;
    for (int i = 0; i < all->c->pr->n_param; i++) pieces_param(all, s, i, rank);
}

/* ---- files ---- */

struct out { FILE *f; uint64_t hash; int64_t bytes; };

static int out_write(struct out *o, const void *bytes, int64_t n)
{
    o->hash = checkpoint_hash(o->hash, bytes, n);
    o->bytes += n;
    return fwrite(bytes, 1, (size_t)n, o->f) == (size_t)n;
}

static int out_row(struct out *o, const struct piece *p, int64_t row)
{
    float some[1024];
    for (int64_t c = 0; c < p->cols; c += LEN(some)) {
        const int64_t n = p->cols - c < LEN(some) ? p->cols - c : LEN(some);
        numbers_get(some, p->from, p->at + row * p->stride + c, n);
        if (!out_write(o, some, n * (int64_t)sizeof *some)) return 0;
    }
    return 1;
}

static int out_pieces(struct out *o, const struct pieces *all)
{
    int64_t head_B;
    const char *head = safetensors_head(all->a, all->tensor, all->n, &head_B);
    int sound = out_write(o, head, head_B);
    for (int i = 0; i < all->n && sound; i++)
        for (int64_t r = 0; r < all->piece[i].rows && sound; r++) sound = out_row(o, &all->piece[i], r);
    return sound;
}

static enum err lost(const char *path, struct diag *d)
{
    return fail(d, ERR_IO, "%.300s: cannot be written: %s; the checkpoint before it is whole", path,
                strerror(errno));
}

enum err checkpoint_shard(struct checkpoint *c, const struct state *s, int rank, struct diag *d)
{
    struct arena a = { 0 };
    struct pieces all = { .a = &a, .c = c };
    pieces_all(&all, s, rank);
    all.tensor = arena_alloc(&a, (size_t)(all.n + 1) * sizeof *all.tensor);
    all.piece = arena_alloc(&a, (size_t)(all.n + 1) * sizeof *all.piece);
    pieces_all(&all, s, rank);
    const char *path = arena_printf(&a, "%s/rank-%05d.safetensors", c->part, rank);
    struct out o = { fopen(path, "wb"), CHECKPOINT_HASH, 0 };
    enum err e = OK;
    if (!o.f) e = lost(path, d);
    else {
        const int sound = out_pieces(&o, &all);
        if (fclose(o.f) != 0 || !sound) e = lost(path, d);
    }
    c->shard[rank] = (struct checkpoint_shard){ o.bytes, o.hash };
    arena_free(&a);
    return e;
}

static enum err write_text(const struct checkpoint *c, const char *name, const char *text, size_t n,
                           struct diag *d)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", c->part, name);
    FILE *f = fopen(path, "wb");
    if (!f) return lost(path, d);
    const int sound = fwrite(text, 1, n, f) == n;
    return fclose(f) == 0 && sound ? OK : lost(path, d);
}

static void remove_directory(const char *path)
{
    char file[4400];
    DIR *dir = opendir(path);
    if (!dir) return;
    for (const struct dirent *e; (e = readdir(dir)) != NULL;) {
        snprintf(file, sizeof file, "%s/%s", path, e->d_name);
        unlink(file);
    }
    closedir(dir);
    rmdir(path);
}

enum err checkpoint_join(struct checkpoint *c, struct arena *a, const char *root, const struct program *pr,
                         const struct job *j, const struct checkpoint_head *head, struct diag *d)
{
    *c = (struct checkpoint){ .pr = pr, .j = j, .head = *head, .n_shard = j->plan.gpus };
    if (strlen(root) + 32 > sizeof c->dir) return fail(d, ERR_IO, "%.100s...: the path is too long", root);
    snprintf(c->dir, sizeof c->dir, "%s/step-%08lld", root, (long long)head->step);
    snprintf(c->part, sizeof c->part, "%s.part", c->dir);
    c->shard = arena_alloc(a, (size_t)c->n_shard * sizeof *c->shard);
    return OK;
}

enum err checkpoint_begin(struct checkpoint *c, struct arena *a, const char *root, const struct program *pr,
                          const struct job *j, const struct checkpoint_head *head, struct diag *d)
{
    TRY(checkpoint_join(c, a, root, pr, j, head, d));
    if (mkdir(root, 0777) != 0 && errno != EEXIST) return lost(root, d);
    remove_directory(c->part);
    return mkdir(c->part, 0777) == 0 ? OK : lost(c->part, d);
}

enum err checkpoint_carry(struct checkpoint *c, const char *from, const char *name, struct diag *d)
{
    enum { CARRY_B = 1 << 30 };
    char path[4400];
    snprintf(path, sizeof path, "%s/%s", from, name);
    struct arena a = { 0 };
    char *text = NULL;
    size_t n = 0;
    if (access(path, F_OK) != 0) return OK;
    enum err e = whole_file_read(&text, &n, &a, path, CARRY_B, d);
    if (e == OK && n > CARRY_B) e = fail(d, ERR_LIMIT, "%.300s: has more than %d bytes", path, CARRY_B);
    if (e == OK) e = write_text(c, name, text, n, d);
    arena_free(&a);
    return e;
}

static char *manifest(const struct checkpoint *c)
{
    const int32_t o = c->head.optimizer;
    json_t *shards = json_array();
    for (int i = 0; i < c->n_shard; i++) {
        char file[32], hash[32];
        snprintf(file, sizeof file, "rank-%05d.safetensors", i);
        snprintf(hash, sizeof hash, "%016llx", (unsigned long long)c->shard[i].hash);
        json_array_append_new(shards, json_pack("{s:s,s:I,s:s}", "file", file, "bytes",
                                                (json_int_t)c->shard[i].bytes, "hash", hash));
    }
    json_t *doc =
        json_pack("{s:s,s:i,s:I,s:I,s:i,s:s,s:f,s:s,s:o}", "format", "moefold checkpoint", "version", 1,
                  "step", (json_int_t)c->head.step, "sequences", (json_int_t)c->head.sequences, "seq",
                  c->head.seq, "data", c->head.data, "eval_split", c->head.eval_split, "optimizer",
                  o < 0                  ? "none"
                  : o == OPTIMIZER_ADAMW ? "adamw"
                                         : "sgd",
                  "shards", shards);
    char *text = json_dumps(doc, JSON_INDENT(1));
    json_decref(doc);
    return text;
}

/* Whatever stood under the name goes after the new one stands there. */
static enum err swap_in(const struct checkpoint *c, struct diag *d)
{
    char old[4000];
    snprintf(old, sizeof old, "%s.old.part", c->dir);
    remove_directory(old);
    const int replaces = rename(c->dir, old) == 0;
    if (rename(c->part, c->dir) != 0) {
        const enum err e = lost(c->dir, d);
        if (replaces && rename(old, c->dir) != 0) return e;
        return e;
    }
    if (replaces) remove_directory(old);
    return OK;
}

enum err checkpoint_commit(struct checkpoint *c, struct diag *d)
{
    struct arena a = { 0 };
    const char *model = model_text(&a, &c->j->model), *plan = plan_text(&a, &c->j->plan);
    char *text = manifest(c);
    enum err e = text ? OK : fail(d, ERR_LIMIT, "%s: no memory for its manifest", c->dir);
    if (e == OK) e = write_text(c, "model.yaml", model, strlen(model), d);
    if (e == OK) e = write_text(c, "plan.yaml", plan, strlen(plan), d);
    if (e == OK) e = write_text(c, "manifest.json", text, strlen(text), d);
    free(text);
    arena_free(&a);
    return e == OK ? swap_in(c, d) : e;
}

void checkpoint_abandon(struct checkpoint *c)
{
    remove_directory(c->part);
}

int checkpoint_is_named(const struct dirent *e)
{
    const size_t digits = strncmp(e->d_name, "step-", 5) == 0 ? strspn(e->d_name + 5, "0123456789") : 0;
    return digits >= 8 && e->d_name[5 + digits] == '\0';
}

void checkpoint_prune(const char *root, int keep)
{
    struct dirent **all;
    const int n = scandir(root, &all, checkpoint_is_named, versionsort);
    for (int i = 0; i < n; i++) {
        char path[4400];
        snprintf(path, sizeof path, "%s/%s", root, all[i]->d_name);
        if (i < n - keep) remove_directory(path);
        free(all[i]);
    }
    if (n >= 0) free(all);
}
