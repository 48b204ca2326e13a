/* Import and export. hf.json of a checkpoint: {"files": [{"name", "text"} or {"name", "head"}]}, texts of
 * small files and headers of tensor files, so that what is written has the bytes of what was read. */
#include "exec/hf.h"
#include "models/base/whole_file.h"
#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct hf_source { struct safetensors *file; int n; json_t *files; };

static int hf_is_shard(const struct dirent *e)
{
    const size_t n = strlen(e->d_name);
    return n > 12 && strcmp(e->d_name + n - 12, ".safetensors") == 0;
}

/* A text file; NULL when there is none. */
static enum err hf_text(char **text, struct arena *a, const char *path, struct diag *d)
{
    enum { MOST_B = 1 << 28 };
    size_t n;
    *text = NULL;
    if (access(path, F_OK) != 0) return OK;
    TRY(whole_file_read(text, &n, a, path, MOST_B, d));
    return n <= MOST_B ? OK : fail(d, ERR_LIMIT, "%.300s: has more than %d bytes", path, MOST_B);
}

static enum err hf_open(struct hf_source *s, struct arena *a, const char *dir, struct diag *d)
{
    static const char *const texts[] = { "config.json", "model.safetensors.index.json" };
    struct dirent **all;
    const int n = scandir(dir, &all, hf_is_shard, alphasort);
    if (n < 0) return fail(d, ERR_IO, "%.300s: %s", dir, strerror(errno));
    enum err e = n ? OK : fail(d, ERR_IO, "%.300s: holds no *.safetensors", dir);
    s->file = arena_alloc(a, (size_t)(n + 1) * sizeof *s->file);
    s->files = json_array();
    for (int i = 0; i < LEN(texts) && e == OK; i++) {
        char *text;
        e = hf_text(&text, a, arena_printf(a, "%s/%s", dir, texts[i]), d);
        if (text) json_array_append_new(s->files, json_pack("{s:s,s:s}", "name", texts[i], "text", text));
    }
    for (int i = 0; i < n; i++) {
        if (e == OK) e = safetensors_open(&s->file[i], a, arena_printf(a, "%s/%s", dir, all[i]->d_name), d);
        if (e == OK) {
            s->n = i + 1;
            json_array_append_new(s->files, json_pack("{s:s,s:s#}", "name", all[i]->d_name, "head",
                                                      s->file[i].head + 8, (int)s->file[i].head_B - 8));
        }
        free(all[i]);
    }
    free(all);
    return e;
}

static void hf_close(struct hf_source *s)
{
    for (int i = 0; i < s->n; i++) safetensors_close(&s->file[i]);
    json_decref(s->files);
}

static const struct safetensors_tensor *hf_find(const struct safetensors **file, const struct hf_source *s,
                                                const char *name)
{
    for (int i = 0; i < s->n; i++) {
        const struct safetensors_tensor *t = safetensors_find(&s->file[i], name);
        if (!t) continue;
        *file = &s->file[i];
        return t;
    }
    return NULL;
}

static int hf_has_mtp(const struct hf_source *s, int layers)
{
    char prefix[48];
    snprintf(prefix, sizeof prefix, "model.layers.%d.", layers);
    for (int i = 0; i < s->n; i++)
        for (int k = 0; k < s->file[i].n; k++)
            if (strncmp(s->file[i].tensor[k].name, prefix, strlen(prefix)) == 0) return 1;
    return 0;
}

static float *hf_place(const struct hf_model *h, const struct hf_tensor *t)
{
    const struct param *q = &h->pr.param[t->param];
    return state_at(&h->state, 0, q->w) + ((int64_t)t->expert * q->rows + t->row) * q->cols;
}

static enum err hf_check_shape(const struct hf_tensor *t, const struct safetensors_tensor *x,
                               const char *file, struct diag *d)
{
    const int64_t rows = x->n_dim == 2 ? x->dim[0] : 1, cols = x->n_dim ? x->dim[x->n_dim - 1] : 1;
    if (x->n_dim == t->n_dim && rows == t->rows && cols == t->cols) return OK;
    return fail(d, ERR_CONFIG,
                "%.200s: tensor %.100s is %lld x %lld (%d dimensions), the config's model needs %d x %d (%d)",
                file, x->name, (long long)rows, (long long)cols, x->n_dim, t->rows, t->cols, t->n_dim);
}

static enum err hf_take(struct hf_model *h, const struct hf_source *s, const struct hf_tensor *t,
                        const char *dir, struct diag *d)
{
    const struct safetensors *file = NULL;
    const struct safetensors_tensor *x = hf_find(&file, s, t->name);
    const int64_t n = (int64_t)t->rows * t->cols;
    if (!x) return fail(d, ERR_CONFIG, "%.300s: tensor %s is missing", dir, t->name);
    TRY(hf_check_shape(t, x, file->name, d));
    struct arena a = { 0 };
    float *theirs = arena_alloc(&a, (size_t)n * sizeof *theirs);
    enum err e = safetensors_floats(theirs, file, x, 0, n, d);
    if (e == OK && t->copy && memcmp(hf_place(h, t), theirs, (size_t)n * sizeof *theirs) != 0)
        e = fail(
            d, ERR_LIMIT,
            "%.200s: tensor %s is not the table it should be a copy of: MTP has no tables of its own here",
            file->name, t->name);
    if (e == OK) hf_turn(hf_place(h, t), theirs, t, 0);
    arena_free(&a);
    return e;
}

/* Every tensor of theirs has a place: none would be lost on the way back. */
static enum err hf_check_all_named(const struct hf_source *s, const struct hf_tensor *all, int n,
                                   struct diag *d)
{
    for (int i = 0; i < s->n; i++)
        for (int k = 0; k < s->file[i].n; k++) {
            int found = 0;
            for (int j = 0; j < n && !found; j++) found = strcmp(all[j].name, s->file[i].tensor[k].name) == 0;
            if (!found)
                return fail(d, ERR_CONFIG,
                            "%.200s: tensor %.100s has no place in the model that config.json describes",
                            s->file[i].name, s->file[i].tensor[k].name);
        }
    return OK;
}

/* Of config.json's text; "" when there is none. */
static const char *hf_type(struct arena *a, const char *config)
{
    json_t *doc = json_loads(config ? config : "", 0, NULL);
    const char *type = json_string_value(json_object_get(doc, "model_type"));
    const char *copy = arena_strdup(a, type ? type : "");
    json_decref(doc);
    return copy;
}

static enum err hf_read(struct hf_model *h, struct arena *a, const struct hf_source *s, const char *dir,
                        struct diag *d)
{
    const char *config = arena_printf(a, "%s/config.json", dir);
    struct hf_tensor *all;
    struct model m;
    TRY(model_read(&m, a, config, d));
    TRY(hf_model_open(h, a, config, hf_has_mtp(s, m.layers), d));
    char *text;
    TRY(hf_text(&text, a, config, d));
    const int n = hf_tensors(&all, a, &h->pr, &h->job.model, hf_type(a, text));
    for (int i = 0; i < n; i++) TRY(hf_take(h, s, &all[i], dir, d));
    return hf_check_all_named(s, all, n, d);
}

static enum err hf_save(struct hf_model *h, struct arena *a, const struct hf_source *s, const char *root,
                        struct diag *d)
{
    const struct checkpoint_head head = { .optimizer = -1 };
    struct checkpoint c;
    TRY(checkpoint_begin(&c, a, root, &h->pr, &h->job, &head, d));
    json_t *doc = json_pack("{s:O}", "files", s->files);
    enum err e = checkpoint_shard(&c, &h->state, 0, d);
    if (e == OK && json_dump_file(doc, arena_printf(a, "%s/hf.json", c.part), JSON_COMPACT) != 0)
        e = fail(d, ERR_IO, "%.300s/hf.json: cannot be written: %s", c.part, strerror(errno));
    json_decref(doc);
    if (e == OK) e = checkpoint_commit(&c, d);
    if (e != OK) checkpoint_abandon(&c);
    return e;
}

/* transformers keeps the selection bias in float32 whatever the rest is (modeling_deepseek_v3.py,
 * _keep_in_fp32_modules_strict): scores that are near each other are told apart by its last digits. */
static const char *hf_coarse_bias(const struct hf_source *s, struct arena *a)
{
    const char *first = NULL;
    int n = 0;
    for (int i = 0; i < s->n; i++)
        for (int k = 0; k < s->file[i].n; k++) {
            const struct safetensors_tensor *x = &s->file[i].tensor[k];
            if (x->type == SAFETENSORS_F32 || !strstr(x->name, "e_score_correction_bias")) continue;
            if (!n++) first = x->name;
        }
    if (!n) return NULL;
    return arena_printf(a, "%s is not F32 (%d such): a selection bias of fewer digits may choose other experts than the run that "
                           "trained it; take a checkpoint that keeps it in F32", first, n);
}

enum err hf_import(struct arena *a, const char *dir, const char *root, const char **note, struct diag *d)
{
    struct hf_source s = { 0 };
    struct hf_model h;
    enum err e = hf_open(&s, a, dir, d);
    *note = e == OK ? hf_coarse_bias(&s, a) : NULL;
    if (e == OK) e = hf_read(&h, a, &s, dir, d);
    if (e == OK) e = hf_save(&h, a, &s, root, d);
    hf_close(&s);
    return e;
}

/* ---- export ---- */

struct hf_target { struct hf_model h; struct hf_tensor *all; int n; const char *to; };

static enum err hf_write(const char *path, const void *bytes, size_t n, struct diag *d)
{
    FILE *f = fopen(path, "wb");
    const int sound = f && fwrite(bytes, 1, n, f) == n;
    if (!f || fclose(f) != 0 || !sound)
        return fail(d, ERR_IO, "%.300s: cannot be written: %s", path, strerror(errno));
    return OK;
}

static enum err hf_fill(uint8_t *data, const struct hf_target *t, const struct safetensors *file,
                        struct diag *d)
{
    for (int i = 0; i < file->n; i++) {
        const struct safetensors_tensor *x = &file->tensor[i];
        int k = 0;
        while (k < t->n && strcmp(t->all[k].name, x->name) != 0) k++;
        if (k == t->n)
            return fail(d, ERR_CONFIG, "hf.json: tensor %.100s has no place in the checkpoint's model",
                        x->name);
        TRY(hf_check_shape(&t->all[k], x, "hf.json", d));
        if (x->type > SAFETENSORS_F16)
            return fail(d, ERR_LIMIT, "hf.json: tensor %.100s is not F32, BF16 or F16", x->name);
        struct arena a = { 0 };
        const int64_t n = safetensors_elements(x);
        float *theirs = arena_alloc(&a, (size_t)(n + 1) * sizeof *theirs);
        hf_turn(theirs, hf_place(&t->h, &t->all[k]), &t->all[k], 1);
        safetensors_bytes(data + x->at_B, theirs, n, (enum safetensors_type)x->type);
        arena_free(&a);
    }
    return OK;
}

/* Where the tensors of a header end. */
static int64_t hf_data_B(const json_t *head)
{
    const char *name;
    json_t *v;
    int64_t end_B = 0;
    json_object_foreach((json_t *)(uintptr_t)head, name, v) {
        const int64_t end = json_integer_value(json_array_get(json_object_get(v, "data_offsets"), 1));
        if (end > end_B) end_B = end;
    }
    return end_B;
}

static enum err hf_write_tensors(const struct hf_target *t, struct arena *a, const char *name,
                                 const char *head, size_t head_B, struct diag *d)
{
    json_t *doc = json_loadb(head, head_B, 0, NULL);
    const int64_t data_B = hf_data_B(doc);
    struct safetensors file;
    json_decref(doc);
    uint8_t *bytes = data_B >= 0 && data_B < INT64_MAX / 4 ? calloc(1, 8 + head_B + (size_t)data_B) : NULL;
    if (!bytes) return fail(d, ERR_LIMIT, "%s: no memory for its %lld bytes", name, (long long)data_B);
    for (int i = 0; i < 8; i++) bytes[i] = (uint8_t)((uint64_t)head_B >> 8 * i);
    memcpy(bytes + 8, head, head_B);
    enum err e = safetensors_read(&file, a, name, bytes, (int64_t)(8 + head_B) + data_B, d);
    if (e == OK) e = hf_fill(bytes + 8 + head_B, t, &file, d);
    if (e == OK) e = hf_write(arena_printf(a, "%s/%s", t->to, name), bytes, 8 + head_B + (size_t)data_B, d);
    free(bytes);
    return e;
}

static enum err hf_write_all(struct hf_target *t, struct arena *a, const json_t *files, struct diag *d)
{
    for (size_t i = 0; i < json_array_size(files); i++) {
        const json_t *f = json_array_get(files, i), *text = json_object_get(f, "text"),
                     *head = json_object_get(f, "head");
        const char *name = json_string_value(json_object_get(f, "name"));
        if (!name || strchr(name, '/') || (!text && !head))
            return fail(d, ERR_CONFIG, "hf.json: a file has no name, or nothing in it");
        if (text)
            TRY(hf_write(arena_printf(a, "%s/%s", t->to, name), json_string_value(text),
                         json_string_length(text), d));
        else TRY(hf_write_tensors(t, a, name, json_string_value(head), json_string_length(head), d));
    }
    return OK;
}

static const char *hf_config_of(const json_t *files)
{
    for (size_t i = 0; i < json_array_size(files); i++) {
        const json_t *f = json_array_get(files, i);
        const char *name = json_string_value(json_object_get(f, "name"));
        if (name && strcmp(name, "config.json") == 0) return json_string_value(json_object_get(f, "text"));
    }
    return NULL;
}

/* files NULL: the checkpoint was not imported. */
static enum err hf_export_files(struct arena *a, const struct checkpoint_file *c, json_t *files,
                                const char *to, struct diag *d)
{
    struct hf_target t = { .to = to };
    TRY(hf_model_open(&t.h, a, arena_printf(a, "%s/model.yaml", c->dir), 1, d));
    TRY(checkpoint_load(c, &t.h.state, &t.h.job, d));
    if (files) json_incref(files);
    else TRY(hf_config_make(&files, a, &t.h.pr, &t.h.job.model, d));
    t.n = hf_tensors(&t.all, a, &t.h.pr, &t.h.job.model, hf_type(a, hf_config_of(files)));
    enum err e = mkdir(to, 0777) == 0 || errno == EEXIST
                     ? OK
                     : fail(d, ERR_IO, "%.300s: cannot be made: %s", to, strerror(errno));
    if (e == OK) e = hf_write_all(&t, a, files, d);
    json_decref(files);
    return e;
}

enum err hf_export(struct arena *a, const char *dir, const char *to, struct diag *d)
{
    const char *layout = arena_printf(a, "%s/hf.json", dir);
    struct checkpoint_file c;
    json_t *doc = json_load_file(layout, 0, NULL);
    if (!doc && access(layout, F_OK) == 0)
        return fail(d, ERR_CONFIG, "%.300s: cannot be read as JSON", layout);
    enum err e = checkpoint_open(&c, a, dir, d);
    if (e == OK) {
        e = hf_export_files(a, &c, json_object_get(doc, "files"), to, d);
        checkpoint_close(&c);
    }
    json_decref(doc);
    return e;
}
