#include "tools/record.h"
#include "tools/save.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_CHOICES = 1 << 28 };    /* a GiB of them */

enum err record_open(struct routes *r, struct arena *a, const struct job *j, int first, int steps, const char *flag,
                     const char *path, struct diag *d)
{
    const double choices = (double)steps * (j->model.layers + j->model.mtp) * j->plan.gbs * j->plan.seq * j->model.topk;
    if (j->model.experts == 0)
        return fail(d, ERR_CONFIG, "--%s: model %s has no experts: leave it out", flag, j->model.name);
    if (choices > MOST_CHOICES)
        return fail(d, ERR_CONFIG, "--%s: %d steps make %.3g choices of experts, at most %d are held: give fewer --steps",
                    flag, steps, choices, MOST_CHOICES);
    TRY(save_try(path, d));
    if (r->pick) return OK;                     /* both files are of the same choices */
    routes_make(r, a, j, steps);
    r->first_step = first;
    return OK;
}

enum err record_replay(struct routes *r, int32_t *from, struct arena *a, const struct job *j, int first, int steps, const char *path,
                       struct diag *d)
{
    struct diag why;
    if (j->model.experts == 0)
        return fail(d, ERR_CONFIG, "--replay-routes: model %s has no experts: leave it out", j->model.name);
    TRY(routes_read(r, a, path, d));
    if (first < r->first_step || first - r->first_step + steps > r->steps)
        return fail(d, ERR_CONFIG, "%s: holds steps %d to %d, this run takes %d to %d: record it for them, or give other --steps",
                    path, r->first_step, r->first_step + r->steps - 1, first, first + steps - 1);
    const enum err e = routes_check(r, j, steps, &why);
    if (e != OK) return fail(d, e, "%s: %s", path, why.text);
    *from = first - r->first_step;
    return OK;
}

enum err record_routes(const struct routes *r, const char *path, struct diag *d)
{
    struct arena a = { 0 };
    size_t size_B;
    const char *bytes = routes_bytes(&size_B, &a, r);
    const enum err e = save_text(path, bytes, size_B, d);
    arena_free(&a);
    return e;
}

static int64_t count(int64_t *tokens, const struct routes *r, int layer, int experts)
{
    int64_t all = 0;
    memset(tokens, 0, (size_t)experts * sizeof *tokens);
    for (int step = 0; step < r->steps; step++) {
        const int32_t *pick = routes_at(r, step, layer, 0, 0);
        for (int64_t i = 0; i < (int64_t)r->gbs * r->seq * r->topk; i++)
            if (pick[i] >= 0 && pick[i] < experts) tokens[pick[i]]++, all++;
    }
    return all;
}

enum err record_save(const struct routes *r, const struct model *m, const char *path, struct diag *d)
{
    char *text = NULL;
    size_t text_B = 0;
    struct arena a = { 0 };
    int64_t *tokens = arena_alloc(&a, (size_t)m->experts * sizeof *tokens);
    FILE *out = open_memstream(&text, &text_B);
    if (!out) return fail(d, ERR_IO, "%s: no memory for the counts", path);
    fprintf(out, "# %s: tokens that chose each expert, a list for each MoE layer, over %d steps.\ntokens:\n", m->name, r->steps);
    for (int l = 0; l < r->layers; l++) {
        if (count(tokens, r, l, m->experts) == 0) continue;
        for (int e = 0; e < m->experts; e++) fprintf(out, "%s%" PRId64, e ? ", " : "  - [", tokens[e]);
        fprintf(out, "]\n");
    }
    fclose(out);
    const enum err e = save_text(path, text, text_B, d);
    free(text);
    arena_free(&a);
    return e;
}
