#include "tools/record.h"
#include "tools/save.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_CHOICES = 1 << 28 };    /* a GiB of them */

enum err record_open(struct routes *r, struct arena *a, const struct job *j, int steps, const char *path, struct diag *d)
{
    const double choices = (double)steps * (j->model.layers + j->model.mtp) * j->plan.gbs * j->plan.seq * j->model.topk;
    if (j->model.experts == 0)
        return fail(d, ERR_CONFIG, "--record-load: model %s has no experts: leave it out", j->model.name);
    if (choices > MOST_CHOICES)
        return fail(d, ERR_CONFIG, "--record-load: %d steps make %.3g choices of experts, at most %d are held: give fewer --steps",
                    steps, choices, MOST_CHOICES);
    TRY(save_try(path, d));
    routes_make(r, a, j, steps);
    return OK;
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
