#include "exec/routes.h"
#include <string.h>

static int32_t routes_layers(const struct model *m) { return m->layers + m->mtp * model_mtp_layers(m); }

void routes_make(struct routes *r, struct arena *a, const struct job *j, int steps)
{
    *r = (struct routes){ .steps = steps, .layers = routes_layers(&j->model), .gbs = j->plan.gbs, .seq = j->plan.seq,
                          .topk = j->model.topk };
    const size_t n = (size_t)steps * (size_t)r->layers * (size_t)r->gbs * (size_t)r->seq * (size_t)r->topk;
    r->pick = arena_alloc(a, (n + 1) * sizeof *r->pick);
    memset(r->pick, 0xff, n * sizeof *r->pick);
}

int32_t *routes_at(const struct routes *r, int step, int layer, int64_t sequence, int position)
{
    return r->pick + ((((int64_t)step * r->layers + layer) * r->gbs + sequence) * r->seq + position) * r->topk;
}

enum err routes_check(const struct routes *r, const struct job *j, int steps, struct diag *d)
{
    const struct { const char *what; int32_t has, wants; } row[] = {
        { "steps", r->steps, steps }, { "layers", r->layers, routes_layers(&j->model) }, { "gbs", r->gbs, j->plan.gbs },
        { "seq", r->seq, j->plan.seq }, { "topk", r->topk, j->model.topk },
    };
    for (int i = 0; i < LEN(row); i++)
        if (i == 0 ? row[i].has < row[i].wants : row[i].has != row[i].wants)
            return fail(d, ERR_CONFIG, "the recorded routing has %s %d, this run %d: record it with the same model and batch",
                        row[i].what, row[i].has, row[i].wants);
    return OK;
}
