/* One description of a rank's slice (struct exec_param_slice) serves initial values and gathering, so the two
 * cannot disagree. */
#include "exec/exec_param.h"
#include <math.h>
#include <string.h>

/* ---- initial values ---- */

/* splitmix64 (Steele, Lea, Flood 2014): a bijection that scatters consecutive counters. */
static uint64_t exec_param_hash(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* The sum of four uniforms of 16 bits: bell-shaped, mean 0, deviation 1, and in integers until the end, so
 * that every machine and library agrees. Variance of the sum: 4 (2^32 - 1) / 12. */
static double exec_param_bell(uint64_t h)
{
    const int64_t sum =
        (int64_t)((h & 65535) + (h >> 16 & 65535) + (h >> 32 & 65535) + (h >> 48)) - 2 * 65535;
    return (double)sum / sqrt(4294967295.0 / 3);
}

float exec_param_value(const struct job *j, const struct param *q, int64_t index)
{
    switch (q->name) {
    case PARAM_FINAL_NORM: case PARAM_ATTN_NORM: case PARAM_Q_NORM: case PARAM_K_NORM: case PARAM_Q_A_NORM:
    case PARAM_KV_A_NORM:
    case PARAM_MLP_NORM:
    case PARAM_MTP_ENORM:
    case PARAM_MTP_HNORM:
    case PARAM_MTP_NORM: return 1;
    case PARAM_ROUTER_BIAS: case PARAM_Q_BIAS: case PARAM_K_BIAS: case PARAM_V_BIAS: case PARAM_O_BIAS:
    case PARAM_FC1_BIAS: case PARAM_FC2_BIAS: case PARAM_ROUTER_SHIFT: case PARAM_EXPERT_FC1_BIAS:
    case PARAM_EXPERT_FC2_BIAS: case PARAM_SHARED_FC1_BIAS: case PARAM_SHARED_FC2_BIAS:
        return 0;
    default: {
        const uint64_t who =
            (uint64_t)(uint32_t)j->plan.seed << 32 | (uint64_t)q->name << 24 | (uint64_t)(uint16_t)q->layer;
        return (float)(j->model.init_std *
                       exec_param_bell(exec_param_hash(exec_param_hash(who) + (uint64_t)index)));
    }
    }
}

/* ---- slices ---- */

struct exec_param_slice exec_param_slice(const struct program *pr, const struct job *j, const struct param *q,
                                         struct coord at)
{
    const struct buf *b = &pr->buf[q->w];
    const int64_t members = q->batch ? j->plan.etp : j->plan.tp, me = q->batch ? at.etp : at.tp;
    const int64_t batch = q->batch ? q->batch / j->plan.ep : 1;
    struct exec_param_slice s = { .batch = batch,
                                  .rows = b->rows / batch,
                                  .cols = b->cols,
                                  .expert = q->batch ? at.ep * batch : 0,
                                  .q = q };
    const int64_t parts =
        q->shard == SHARD_COLS ? q->cols / s.cols : q->rows / s.rows; /* fewer than members: shared */
    s.part = me * parts / members;
    s.copy = me - (s.part * members + parts - 1) / parts;
    return s;
}

static int64_t exec_param_row(const struct exec_param_slice *s, int64_t row)
{
    const int64_t half = s->rows / 2;
    switch (s->q->shard) {
    case SHARD_ROWS: case SHARD_KV: return s->part * s->rows + row;
    case SHARD_ROWS_PAIR:
        return row < half ? s->part * half + row : s->q->rows / 2 + s->part * half + row - half;
    default: return row;
    }
}

int64_t exec_param_place(const struct exec_param_slice *s, int64_t expert, int64_t row)
{
    const int64_t col = s->q->shard == SHARD_COLS ? s->part * s->cols : 0;
    return ((s->expert + expert) * s->q->rows + exec_param_row(s, row)) * s->q->cols + col;
}

/* A root buffer for ever. */
static struct numbers exec_param_at(const struct program *pr, const struct unroll *u, char *arena, int id)
{
    const struct item once = { .micro = -1 };
    return (struct numbers){ .p = arena + unroll_life(u, pr, &once, id)->offset, .type = (enum dtype)pr->buf[id].dtype };
}

const struct bucket *exec_param_bucket(const struct program *pr, const struct param *q)
{
    const int root = program_root(pr, q->g);
    const struct bucket *k = pr->bucket;
    while (k->g != root && k->whole_g != root) k++;
    return k;
}

struct exec_param_owned exec_param_owned(const struct program *pr, const struct job *j, const struct param *q,
                                         int rank)
{
    const struct bucket *k = exec_param_bucket(pr, q);
    const struct buf *b = &pr->buf[k->whole_g ? k->whole_g : k->g];
    const int64_t part = b->rows * b->cols / fold_size(j, (enum group)k->share_group);
    const int64_t me = fold_members(j, (enum group)k->share_group, rank, NULL);
    return (struct exec_param_owned){ me * part, (me + 1) * part };
}

struct exec_param_home exec_param_home(const struct program *pr, const struct job *j, const struct param *q, int grad,
                                       int rank)
{
    const int id = grad ? q->g : q->w;
    const struct bucket *k = q->g ? exec_param_bucket(pr, q) : NULL;
    if (k && k->whole)
        return (struct exec_param_home){ grad ? k->g : k->w, exec_param_owned(pr, j, q, rank), pr->buf[id].view_at };
    return (struct exec_param_home){ program_root(pr, id), { 0, INT64_MAX }, pr->buf[id].view_at };
}

struct numbers exec_param_master(struct numbers own, struct numbers weights, const struct exec_param_home *home,
                                 struct exec_param_owned mine)
{
    if (own.type == DT_I16) own.high = (bf16 *)weights.p + mine.first - home->held.first;
    return own;
}

/* Values go to the weights and, not rounded, to the master weights, as much of both as the rank holds. */
static void exec_param_fill(const struct program *pr, const struct unroll *u, const struct job *j,
                            const struct exec_param_slice *s, char *arena, int rank)
{
    const struct bucket *k = s->q->g ? exec_param_bucket(pr, s->q) : NULL;
    const struct exec_param_home home = exec_param_home(pr, j, s->q, 0, rank);
    struct numbers to = exec_param_at(pr, u, arena, home.buf), all = { 0 }, host = { 0 };
    struct exec_param_owned own = { 0 };
    if (k && k->master) {
        own = exec_param_owned(pr, j, s->q, rank);
        all = exec_param_master(exec_param_at(pr, u, arena, k->master), to, &home, own);
        to.up = all.type == DT_I16;
        if (k->host_master) host = exec_param_at(pr, u, arena, k->host_master);
    }
    int64_t in_bucket = home.at;
    for (int64_t e = 0; e < s->batch; e++)
        for (int64_t r = 0; r < s->rows; r++) {
            const int64_t at = exec_param_place(s, e, r);
            for (int64_t c = 0; c < s->cols; c++, in_bucket++) {
                const float value = exec_param_value(j, s->q, at + c);
                if (in_bucket >= home.held.first && in_bucket < home.held.end)
                    numbers_set(to, in_bucket - home.held.first, &value, 1);
                if (in_bucket < own.first || in_bucket >= own.end) continue;
                numbers_set(all, in_bucket - own.first, &value, 1);
                if (host.p) numbers_set(host, in_bucket - own.first, &value, 1);
            }
        }
}

void exec_param_init(const struct program *pr, const struct unroll *stage, const struct job *j, int rank,
                     char *arena)
{
    const struct coord at = fold_coord(&j->plan, rank);
    for (int i = 0; i < pr->n_param; i++) {
        if (pr->param[i].stage != at.pp) continue;
        const struct exec_param_slice s = exec_param_slice(pr, j, &pr->param[i], at);
        exec_param_fill(pr, stage, j, &s, arena, rank);
    }
}

/* ---- gathering ---- */

int64_t exec_param_elements(const struct param *q)
{
    return (int64_t)(q->batch ? q->batch : 1) * q->rows * q->cols;
}

/* Of a slice's elements those that are in `from` and are the rank's to give. */
static void exec_param_take(float *whole, const struct exec_param_slice *s, struct numbers from,
                            const struct exec_param_home *home, struct exec_param_owned own)
{
    int64_t at = home->at;
    for (int64_t e = 0; e < s->batch; e++)
        for (int64_t r = 0; r < s->rows; r++) {
            float *to = whole + exec_param_place(s, e, r);
            for (int64_t c = 0; c < s->cols; c++, at++)
                if (at >= own.first && at < own.end) numbers_get(to + c, from, at - home->held.first, 1);
        }
}

void exec_param_gather(float *whole, const struct program *pr, const struct unroll *u, const struct job *j,
                       int param, int grad, char *const *arenas)
{
    const struct param *q = &pr->param[param];
    memset(whole, 0, (size_t)exec_param_elements(q) * sizeof *whole);
    if (grad && !q->g) return;
    for (int rank = 0; rank < j->plan.gpus; rank++) {
        const struct coord at = fold_coord(&j->plan, rank);
        if (at.pp != q->stage) continue;
        const struct exec_param_slice s = exec_param_slice(pr, j, q, at);
        const struct exec_param_home home = exec_param_home(pr, j, q, grad, rank);
        exec_param_take(whole, &s, exec_param_at(pr, &u[q->stage], arenas[rank], home.buf), &home,
                        grad ? exec_param_owned(pr, j, q, rank) : home.held);
    }
}
