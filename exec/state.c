#include "exec/state.h"
#include <assert.h>
#include <string.h>

static int state_keeps(const struct buf *b)
{
    return (b->keep == KEEP_WEIGHT || b->keep == KEEP_OPTIMIZER) && !b->view;
}

void state_make(struct state *s, struct arena *a, const struct program *pr, const struct job *j)
{
    *s = (struct state){ .pr = pr, .n_rank = j->plan.gpus };
    s->at = arena_alloc(a, (size_t)pr->n_buf * sizeof *s->at);
    s->bytes = arena_alloc(a, (size_t)pr->n_stage * sizeof *s->bytes);
    s->rank = arena_alloc(a, (size_t)s->n_rank * sizeof *s->rank);
    for (int id = 0; id < pr->n_buf; id++) {
        const struct buf *b = &pr->buf[id];
        s->at[id] = -1;
        if (!id || !state_keeps(b)) continue;
        s->at[id] = s->bytes[b->stage];
        s->bytes[b->stage] += (buf_B(b) + 15) / 16 * 16;
    }
    for (int r = 0; r < s->n_rank; r++)
        s->rank[r] = arena_alloc(a, (size_t)s->bytes[fold_coord(&j->plan, r).pp] + 1);
}

double state_B(const struct program *pr, const struct job *j)
{
    double bytes = 0;
    for (int id = 1; id < pr->n_buf; id++)
        if (state_keeps(&pr->buf[id])) bytes += (double)((buf_B(&pr->buf[id]) + 15) / 16 * 16);
    return bytes * (j->plan.gpus / pr->n_stage);        /* every rank of a stage has its buffers */
}

static char *state_home(const struct program *pr, const struct unroll *u, char *arena, int id)
{
    const struct item once = { .micro = -1 };
    return arena + unroll_life(u, pr, &once, id)->offset;
}

void state_take(struct state *s, int rank, const struct unroll *u, const char *arena)
{
    for (int id = 1; id < s->pr->n_buf; id++)
        if (s->at[id] >= 0 && s->pr->buf[id].stage == u->stage)
            memcpy(s->rank[rank] + s->at[id], state_home(s->pr, u, (char *)(uintptr_t)arena, id),
                   (size_t)buf_B(&s->pr->buf[id]));
}

void state_put(const struct state *s, int rank, const struct unroll *u, char *arena)
{
    for (int id = 1; id < s->pr->n_buf; id++)
        if (s->at[id] >= 0 && s->pr->buf[id].stage == u->stage)
            memcpy(state_home(s->pr, u, arena, id), s->rank[rank] + s->at[id],
                   (size_t)buf_B(&s->pr->buf[id]));
}

static void state_put_one(const struct state *s, int from, int rank, const struct program *pr,
                          const struct unroll *u, char *arena, int to)
{
    assert(buf_B(&s->pr->buf[from]) == buf_B(&pr->buf[to]));
    memcpy(state_home(pr, u, arena, to), s->rank[rank] + s->at[from], (size_t)buf_B(&pr->buf[to]));
}

void state_put_weights(const struct state *s, int rank, const struct program *pr, const struct unroll *u,
                       char *arena)
{
    assert(pr->n_bucket == s->pr->n_bucket && pr->n_param == s->pr->n_param);
    for (int i = 0; i < pr->n_bucket; i++)
        if (pr->bucket[i].stage == u->stage)
            state_put_one(s, s->pr->bucket[i].w, rank, pr, u, arena, pr->bucket[i].w);
    for (int i = 0; i < pr->n_param; i++)           /* those of no bucket */
        if (pr->param[i].stage == u->stage && !pr->param[i].g)
            state_put_one(s, s->pr->param[i].w, rank, pr, u, arena, pr->param[i].w);
}

void *state_bytes_at(const struct state *s, int rank, int id)
{
    const struct buf *b = &s->pr->buf[id];
    return s->rank[rank] + s->at[program_root(s->pr, id)] + b->view_at * dtype_B((enum dtype)b->dtype);
}

struct numbers state_numbers(const struct state *s, int rank, int id)
{
    return (struct numbers){ .p = state_bytes_at(s, rank, id), .type = (enum dtype)s->pr->buf[id].dtype };
}

float *state_at(const struct state *s, int rank, int id)
{
    assert(s->pr->buf[id].dtype == DT_F32);
    return state_bytes_at(s, rank, id);
}
