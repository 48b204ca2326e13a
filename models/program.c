#include "models/program.h"
#include <string.h>

const char *program_pass_name(enum pass_kind k)
{
    static const char *const name[] = { "START", "FWD", "BWD", "BWD_INPUT", "BWD_WEIGHT", "BWD_LAST", "FWD_BWD", "OPTIM" };
    return name[k];
}

const char *program_param_name(enum param_name n)
{
    static const char *const name[] = {
#define X(id, text) text,
        PARAM_LIST(X)
#undef X
    };
    return name[n];
}

int program_param_is_vector(enum param_name n)
{
    switch (n) {
    case PARAM_FINAL_NORM: case PARAM_ATTN_NORM: case PARAM_Q_NORM: case PARAM_K_NORM: case PARAM_Q_A_NORM:
    case PARAM_KV_A_NORM: case PARAM_MLP_NORM: case PARAM_MTP_ENORM: case PARAM_MTP_HNORM: case PARAM_MTP_NORM:
    case PARAM_ROUTER_BIAS: case PARAM_SINK: case PARAM_Q_BIAS: case PARAM_K_BIAS: case PARAM_V_BIAS: case PARAM_O_BIAS:
    case PARAM_FC1_BIAS: case PARAM_FC2_BIAS: case PARAM_ROUTER_SHIFT: case PARAM_EXPERT_FC1_BIAS:
    case PARAM_EXPERT_FC2_BIAS: case PARAM_SHARED_FC1_BIAS: case PARAM_SHARED_FC2_BIAS: return 1;
    default: return 0;
    }
}

/* FNV-1a, a value at a time and folded so that high bits reach low ones; field by field: padding bytes of structs never
 * count. */
static void mix(uint64_t *h, int64_t value)
{
    *h = (*h ^ (uint64_t)value) * 1099511628211u;
    *h ^= *h >> 32;
}

static void mix_buf(uint64_t *h, const struct buf *b)
{
    const int64_t v[] = { b->rows, b->cols, b->size, b->size_at, b->view, b->view_at, b->chunk, b->dtype, b->keep, b->place,
                          b->stage, b->groups, b->pad };
    for (int i = 0; i < LEN(v); i++) mix(h, v[i]);
}

static void mix_op(uint64_t *h, const struct op *o)
{
    const int64_t v[] = { o->kind, o->stream, o->group, o->half, o->flags | o->graph << 8, o->layer, o->part, o->copies,
                          o->window, o->beside };
    for (int i = 0; i < LEN(v); i++) mix(h, v[i]);
    if (o->ring) mix(h, o->ring);
    for (int i = 0; i < OP_WRITES; i++) mix(h, o->io.write[i]);
    for (int i = 0; i < OP_ADDS; i++) mix(h, o->io.add[i]);
    for (int i = 0; i < OP_READS; i++)
        if (i < 6 || o->io.read[i]) mix(h, o->io.read[i]);  /* the seventh came later: older hashes hold */
}

uint64_t program_hash(const struct program *pr)
{
    uint64_t h = 1469598103934665603u;
    for (int i = 0; i < pr->n_buf; i++) mix_buf(&h, &pr->buf[i]);
    for (int i = 0; i < pr->n_op; i++) mix_op(&h, &pr->op[i]);
    for (int i = 0; i < pr->n_pass; i++) {
        mix(&h, pr->pass[i].kind);
        mix(&h, pr->pass[i].first);
        mix(&h, pr->pass[i].n);
    }
    for (int i = 0; i < pr->n_order; i++) mix(&h, pr->order[i]);
    for (int s = 0; s < pr->n_stage; s++)
        for (int i = 0; i < pr->n_step[s]; i++) {
            mix(&h, pr->step[s][i].pass);
            mix(&h, pr->step[s][i].micro[0]);
            mix(&h, pr->step[s][i].micro[1]);
        }
    for (int g = 0; g < GROUP_COUNT; g++) mix(&h, pr->group_size[g]);
    mix(&h, pr->seq);
    if (pr->document) mix(&h, pr->document);
    mix(&h, pr->topk);
    mix(&h, pr->lead);
    int64_t targets;
    memcpy(&targets, &pr->targets, sizeof targets);
    mix(&h, targets);
    for (int at = 0; at < LEN(pr->even); at++) mix(&h, pr->even[at]);
    return h;
}
