/* Reads checkpoints into the state of any plan: rectangles of whole parameters are cut to what each rank
 * holds, and what arrives is counted. */
#include "exec/checkpoint.h"
#include "exec/exec_param.h"
#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- names ---- */

/* A whole number followed by `end`. */
static int checkpoint_number(int64_t *v, const char **text, char end)
{
    const char *p = *text;
    int64_t n = 0;
    const size_t digits = strspn(p, "0123456789");
    if (digits == 0 || digits > 15) return 0;
    for (size_t i = 0; i < digits; i++) n = 10 * n + *p++ - '0';
    if (*p != end) return 0;
    *v = n;
    *text = p + 1;
    return 1;
}

enum err checkpoint_parse(struct checkpoint_piece *p, int *key_n, const char *name)
{
    const char *open = strchr(name, '[');
    struct checkpoint_piece q;
    if (!open || open - name < 3 || open[-2] != '.' || !strchr("wmv", open[-1]) || open - name > 128)
        return ERR_CONFIG;
    const char *text = open + 1;
    q.kind = open[-1];
    if (!checkpoint_number(&q.expert, &text, ',') || !checkpoint_number(&q.row, &text, ':') ||
        !checkpoint_number(&q.row_end, &text, ',') || !checkpoint_number(&q.col, &text, ':') ||
        !checkpoint_number(&q.col_end, &text, ']') || *text || q.row_end <= q.row || q.col_end <= q.col)
        return ERR_CONFIG;
    *p = q;
    *key_n = (int)(open - 2 - name);
    return OK;
}

/* ---- directories ---- */

static const char *checkpoint_newest_in(struct arena *a, const char *root)
{
    struct dirent **all;
    const char *found = NULL;
    const int n = scandir(root, &all, checkpoint_is_named, versionsort);
    for (int i = 0; i < n; i++) {
        const char *dir = arena_printf(a, "%s/%s", root, all[i]->d_name);
        if (access(arena_printf(a, "%s/manifest.json", dir), F_OK) == 0) found = dir;
        free(all[i]);
    }
    if (n >= 0) free(all);
    return found;
}

enum err checkpoint_find(const char **dir, struct arena *a, const char *path, struct diag *d)
{
    const char *found =
        access(arena_printf(a, "%s/manifest.json", path), F_OK) == 0 ? path : checkpoint_newest_in(a, path);
    if (!found) found = checkpoint_newest_in(a, arena_printf(a, "%s/checkpoints", path));
    if (!found)
        return fail(d, ERR_IO,
                    "%.300s: holds no checkpoint (a manifest.json, or step-* in it or in its checkpoints/)",
                    path);
    *dir = arena_strdup(a, found);
    return OK;
}

/* ---- the manifest ---- */

static enum err checkpoint_broken(const char *dir, const char *what, struct diag *d)
{
    return fail(d, ERR_CONFIG, "%.300s/manifest.json: %s: it is no manifest of this version, or was changed",
                dir, what);
}

static enum err checkpoint_head_read(struct checkpoint_head *h, const json_t *doc, const char *dir,
                                     struct diag *d)
{
    const char *format = json_string_value(json_object_get(doc, "format")),
               *optimizer = json_string_value(json_object_get(doc, "optimizer"));
    const json_t *step = json_object_get(doc, "step"), *seqs = json_object_get(doc, "sequences");
    if (!format || strcmp(format, "moefold checkpoint") != 0 ||
        json_integer_value(json_object_get(doc, "version")) != 1)
        return checkpoint_broken(dir, "format is not 'moefold checkpoint', version 1", d);
    h->step = json_integer_value(step);
    h->sequences = json_integer_value(seqs);
    if (!json_is_integer(step) || h->step < 0 || h->step > INT32_MAX || !json_is_integer(seqs) ||
        h->sequences < 0)
        return checkpoint_broken(dir, "step or sequences is no count", d);
    const int64_t seq = json_integer_value(json_object_get(doc, "seq"));
    if (seq < 0 || seq > 1 << 24 || h->sequences > INT64_MAX >> 25 || (h->sequences && !seq))
        return checkpoint_broken(dir, "sequences or their tokens (seq) cannot be", d);
    h->seq = (int32_t)seq;
    const char *data = json_string_value(json_object_get(doc, "data"));
    h->eval_split = json_number_value(json_object_get(doc, "eval_split"));
    if (!data || strlen(data) >= sizeof h->data || !(h->eval_split >= 0 && h->eval_split < 1))
        return checkpoint_broken(dir, "data or eval_split is missing, or cannot be", d);
    strcpy(h->data, data);
    if (!optimizer) return checkpoint_broken(dir, "optimizer is missing", d);
    h->optimizer = strcmp(optimizer, "adamw") == 0 ? OPTIMIZER_ADAMW
                   : strcmp(optimizer, "sgd") == 0 ? OPTIMIZER_SGD
                                                   : -1;
    return OK;
}

static enum err checkpoint_shard_open(struct safetensors *s, struct arena *a, const json_t *v,
                                      const char *dir, struct diag *d)
{
    const char *file = json_string_value(json_object_get(v, "file")),
               *hash = json_string_value(json_object_get(v, "hash"));
    const int64_t bytes = json_integer_value(json_object_get(v, "bytes"));
    if (!file || !hash || strchr(file, '/') || bytes < 1)
        return checkpoint_broken(dir, "a shard has no file, hash and bytes", d);
    TRY(safetensors_open(s, a, arena_printf(a, "%s/%s", dir, file), d));
    if (s->map_B != bytes)
        return fail(
            d, ERR_CONFIG,
            "%.300s has %lld bytes, the manifest says %lld: it is cut short or another's; copy it again",
            s->name, (long long)s->map_B, (long long)bytes);
    const uint64_t is = checkpoint_hash(CHECKPOINT_HASH, s->map, s->map_B), want = strtoull(hash, NULL, 16);
    if (is == want) return OK;
    return fail(d, ERR_CONFIG,
                "%.300s was changed: its hash is %016llx, the manifest says %016llx; copy it again", s->name,
                (unsigned long long)is, (unsigned long long)want);
}

enum err checkpoint_open(struct checkpoint_file *c, struct arena *a, const char *dir, struct diag *d)
{
    json_error_t why;
    json_t *doc = json_load_file(arena_printf(a, "%s/manifest.json", dir), JSON_REJECT_DUPLICATES, &why);
    struct checkpoint_file read = { .dir = dir };
    if (!doc)
        return fail(d, ERR_CONFIG, "%.300s/manifest.json: line %d: cannot be read as JSON", dir, why.line);
    const json_t *shards = json_object_get(doc, "shards");
    const size_t n = json_array_size(shards);
    read.shard = arena_alloc(a, (n + 1) * sizeof *read.shard);
    enum err e = checkpoint_head_read(&read.head, doc, dir, d);
    if (e == OK && (n < 1 || n > 1 << 20)) e = checkpoint_broken(dir, "it has no shards", d);
    for (size_t i = 0; i < n && e == OK; i++) {
        read.n_shard = (int32_t)i + 1;
        e = checkpoint_shard_open(&read.shard[i], a, json_array_get(shards, i), dir, d);
    }
    json_decref(doc);
    if (e == OK) *c = read;
    else checkpoint_close(&read);
    return e;
}

void checkpoint_close(struct checkpoint_file *c)
{
    for (int i = 0; i < c->n_shard; i++) safetensors_close(&c->shard[i]);
    c->n_shard = 0;
}

enum err checkpoint_check_model(const struct checkpoint_file *c, struct arena *a, const struct model *m,
                                struct diag *d)
{
    struct model of;
    TRY(model_read(&of, a, arena_printf(a, "%s/model.yaml", c->dir), d));
    for (int i = 0; i < model_n_opt; i++) {
        char is[512], want[512];
        if (strcmp(model_opts[i].key, "name") == 0) continue;
        cfg_echo(is, sizeof is, &of, &model_opts[i]);
        cfg_echo(want, sizeof want, m, &model_opts[i]);
        if (strcmp(is, want) != 0)
            return fail(d, ERR_CONFIG, "%.300s is of another model: its %s is %s, the plan's model %s has %s",
                        c->dir, model_opts[i].key, is, m->name, want);
    }
    return OK;
}

/* ---- loading ---- */

struct entry { struct checkpoint_piece p; int32_t shard, tensor, next; };
struct load {
    const struct checkpoint_file *c;
    struct state *s; const struct job *j;
    struct entry *entry; int32_t n_entry;
    int32_t *first;                     /* [parameter]: its first entry, -1 */
    struct diag *d;
};

/* The first parameter of this key, or -1: copies of a table share its entries. */
static int load_param(const struct program *pr, const char *key, int key_n)
{
    char own[64];
    for (int i = 0; i < pr->n_param; i++)
        if ((int)strlen(checkpoint_key(own, sizeof own, &pr->param[i])) == key_n &&
            strncmp(own, key, (size_t)key_n) == 0)
            return i;
    return -1;
}

static enum err load_index_one(struct load *l, int shard, int tensor)
{
    const struct safetensors *file = &l->c->shard[shard];
    const struct safetensors_tensor *t = &file->tensor[tensor];
    struct entry *e = &l->entry[l->n_entry];
    int key_n;
    if (checkpoint_parse(&e->p, &key_n, t->name) != OK || t->n_dim != 2 ||
        t->dim[0] != e->p.row_end - e->p.row || t->dim[1] != e->p.col_end - e->p.col)
        return fail(l->d, ERR_CONFIG,
                    "%.200s: tensor %.100s names no piece of a parameter, or not its own shape", file->name,
                    t->name);
    const int i = load_param(l->s->pr, t->name, key_n);
    if (i < 0) return OK;                           /* of a part that this plan leaves out, such as MTP */
    const struct param *q = &l->s->pr->param[i];
    if (e->p.expert >= (q->batch ? q->batch : 1) || e->p.row_end > checkpoint_rows(q, &l->j->model) ||
        e->p.col_end > q->cols)
        return fail(l->d, ERR_CONFIG, "%.200s: tensor %.100s reaches beyond the parameter's %d x %d x %lld",
                    file->name, t->name, q->batch ? q->batch : 1, q->rows, (long long)q->cols);
    e->shard = shard;
    e->tensor = tensor;
    e->next = l->first[i];
    l->first[i] = l->n_entry++;
    return OK;
}

static enum err load_index(struct load *l, struct arena *a)
{
    size_t n = 0;
    for (int k = 0; k < l->c->n_shard; k++) n += (size_t)l->c->shard[k].n;
    l->entry = arena_alloc(a, (n + 1) * sizeof *l->entry);
    l->first = arena_alloc(a, (size_t)l->s->pr->n_param * sizeof *l->first);
    for (int i = 0; i < l->s->pr->n_param; i++) l->first[i] = -1;
    for (int k = 0; k < l->c->n_shard; k++)
        for (int t = 0; t < l->c->shard[k].n; t++) TRY(load_index_one(l, k, t));
    return OK;
}

/* The local row of a whole one, or -1: what exec_param_place does, backwards. */
static int64_t load_row(const struct exec_param_slice *s, int64_t row)
{
    int64_t n = s->rows, base = 0;
    switch (s->q->shard) {
    case SHARD_ROWS: case SHARD_KV: row -= s->part * n; break;
    case SHARD_ROWS_PAIR:
        n /= 2;
        if (row >= s->q->rows / 2) base = n, row -= s->q->rows / 2;
        row -= s->part * n;
        break;
    default: break;
    }
    return row >= 0 && row < n ? base + row : -1;
}

/* Where local elements [first, end) of a slice go: to element at + (element - first). */
struct target { const struct exec_param_slice *s; int64_t first, end; struct numbers to; int64_t at; };

static enum err load_row_part(const struct target *t, int64_t element, const struct safetensors *file,
                              const struct safetensors_tensor *from, int64_t at, int64_t n, struct diag *d)
{
    float some[1024];
    for (int64_t i = 0; i < n; i += LEN(some)) {
        const int64_t k = n - i < LEN(some) ? n - i : LEN(some);
        TRY(safetensors_floats(some, file, from, at + i, k, d));
        numbers_set(t->to, t->at + element - t->first + i, some, k);
    }
    return OK;
}

static enum err load_entry(int64_t *got, const struct load *l, const struct entry *e, const struct target *t)
{
    const struct exec_param_slice *s = t->s;
    const struct safetensors *file = &l->c->shard[e->shard];
    const int64_t base = s->q->shard == SHARD_COLS ? s->part * s->cols : 0, width = e->p.col_end - e->p.col;
    if (e->p.expert < s->expert || e->p.expert >= s->expert + s->batch) return OK;
    for (int64_t row = e->p.row; row < e->p.row_end; row++) {
        const int64_t here = load_row(s, row);
        if (here < 0) continue;
        const int64_t line = ((e->p.expert - s->expert) * s->rows + here) * s->cols;
        int64_t lo = e->p.col - base, hi = e->p.col_end - base;
        if (lo < 0) lo = 0;
        if (hi > s->cols) hi = s->cols;
        if (lo + line < t->first) lo = t->first - line;
        if (hi + line > t->end) hi = t->end - line;
        if (lo >= hi) continue;
        TRY(load_row_part(t, line + lo, file, &file->tensor[e->tensor],
                          (row - e->p.row) * width + lo + base - e->p.col, hi - lo, l->d));
        *got += hi - lo;
    }
    return OK;
}

/* Elements of a target that a checkpoint holds: those that pad the vocabulary apart. */
static int64_t load_wanted(const struct load *l, const struct target *t)
{
    const struct exec_param_slice *s = t->s;
    const int64_t true_rows = checkpoint_rows(s->q, &l->j->model);
    int64_t n = 0;
    for (int64_t r = 0; r < s->batch * s->rows; r++) {
        const int64_t lo = t->first > r * s->cols ? t->first - r * s->cols : 0, rest = t->end - r * s->cols,
                      hi = rest < s->cols ? rest : s->cols;
        if (lo < hi && exec_param_place(s, r / s->rows, r % s->rows) / s->q->cols % s->q->rows < true_rows)
            n += hi - lo;
    }
    return n;
}

static enum err load_target(const struct load *l, int first_entry, char kind, const struct target *t)
{
    char key[64];
    int64_t got = 0;
    for (int e = first_entry; e >= 0; e = l->entry[e].next)
        if (l->entry[e].p.kind == kind) TRY(load_entry(&got, l, &l->entry[e], t));
    const int64_t want = load_wanted(l, t);
    if (got == want) return OK;
    return fail(l->d, ERR_CONFIG,
                "%.300s holds %lld of the %lld elements of %s.%c that a rank needs: a shard is missing",
                l->c->dir, (long long)got, (long long)want, checkpoint_key(key, sizeof key, t->s->q), kind);
}

/* Elements of a slice, which begins at `at` of its bucket, that `to` holds: those in [held.first, held.end). */
static enum err load_part(const struct load *l, int entry, char kind, const struct exec_param_slice *s, int64_t at,
                          struct exec_param_owned held, struct numbers to)
{
    const int64_t n = s->batch * s->rows * s->cols;
    const int64_t first = held.first > at ? held.first - at : 0, end = held.end - at < n ? held.end - at : n;
    if (first >= end) return OK;
    return load_target(l, entry, kind, &(struct target){ s, first, end, to, at + first - held.first });
}

static enum err load_rank_param(const struct load *l, int rank, int param)
{
    const struct program *pr = l->s->pr;
    const struct param *q = &pr->param[param];
    char key[64];
    checkpoint_key(key, sizeof key, q);
    const int entry = l->first[load_param(pr, key, (int)strlen(key))];
    const struct exec_param_slice s = exec_param_slice(pr, l->j, q, fold_coord(&l->j->plan, rank));
    const struct bucket *k = q->g ? exec_param_bucket(pr, q) : NULL;
    const struct exec_param_home home = exec_param_home(pr, l->j, q, 0, rank);
    struct numbers weights = state_numbers(l->s, rank, home.buf);
    weights.up = k && k->master && pr->buf[k->master].dtype == DT_I16;
    TRY(load_part(l, entry, 'w', &s, home.at, home.held, weights));
    if (!k) return OK;
    const struct exec_param_owned own = exec_param_owned(pr, l->j, q, rank);
    const int32_t id[] = { k->master, k->host_master, k->m, k->v };
    for (int i = 0; i < LEN(id); i++) {
        if (!id[i] || (i > 1 && l->c->head.optimizer != OPTIMIZER_ADAMW)) continue;
        const struct numbers to = exec_param_master(state_numbers(l->s, rank, id[i]), weights, &home, own);
        TRY(load_part(l, entry, "wwmv" [i], &s, home.at, own, to));
    }
    return OK;
}

enum err checkpoint_load(const struct checkpoint_file *c, struct state *s, const struct job *j,
                         struct diag *d)
{
    struct arena a = { 0 };
    struct load l = { .c = c, .s = s, .j = j, .d = d };
    enum err e = load_index(&l, &a);
    for (int r = 0; r < j->plan.gpus && e == OK; r++)
        for (int i = 0; i < s->pr->n_param && e == OK; i++)
            if (s->pr->param[i].stage == fold_coord(&j->plan, r).pp) e = load_rank_param(&l, r, i);
    arena_free(&a);
    return e;
}
