/* What a framework keeps for ever beside parameters: workspaces, caches, the last tensors of a pipeline. Each
 * is a setting of the stack, each a buffer of the stage, so that whoever counts live bytes counts them too.
 * Read in TransformerEngine 2.11 (module/base.py: get_dummy_wgrad, get_workspace; cpp_extensions/gemm.py:
 * get_multi_stream_cublas_workspace) and Megatron-LM 23e00ed (core/tensor_parallel/layers.py,
 * core/pipeline_parallel/schedules.py). */
#include "models/build.h"
#include "models/place.h"

static int keep(struct build *b, int64_t rows, int cols, enum dtype t)
{
    const int id = emit_buf(b, rows, cols, t);
    b->pr->buf[id].keep = KEEP_CACHE;
    b->pr->buf[id].stage = (int16_t)b->stage;
    return id;
}

static void keep_bytes(struct build *b, double bytes)
{
    if (bytes > 0) keep(b, (int64_t)(bytes / dtype_B(DT_I32)), 1, DT_I32);
}

int build_keep_gather(struct build *b, int cols)
{
    if (!b->gathered[b->stage]) b->gathered[b->stage] = keep(b, b->tok, cols, b->act);
    return b->gathered[b->stage];
}

/* ---- rotary tables ---- */

void build_keep_rope(struct build *b)
{
    const struct model *m = &b->j->model;
    if (!b->j->stack.rope_cache) return;
    if (m->attention ==
        ATTENTION_MLA) { /* YaRN: angles in fp32, cosines and sines in bf16; every layer has its own */
        keep(b, b->j->plan.seq, m->qk_rope, DT_F32);
        keep(b, b->j->plan.seq, 2 * m->qk_rope, DT_BF16);
    } else if (!b->roped[b->stage]) {
        b->roped[b->stage] = keep(b, b->j->plan.seq / b->j->plan.cp, m->head_dim, DT_F32);
    }
}

/* The stage whose weights an op adds to; of cut ones, of the chunk that does. */
static int stage_of(const struct build *b, int buf)
{
    const struct buf *x = &b->pr->buf[buf];
    return x->keep == KEEP_MICRO ? layout_stage(x->chunk, b->j->plan.pp) : x->stage;
}

/* ---- weight gradients for autograd ---- */

/* With gradient accumulation fused into the weight GEMM, autograd is given a tensor of the weight's shape
 * that nobody reads: one for every shape that a linear of the stage has, of one expert where it is grouped.
 */
struct shape {
    int64_t rows;
    int32_t cols;
};

static int is_new(struct shape *seen, int *n, struct shape s)
{
    for (int i = 0; i < *n; i++)
        if (seen[i].rows == s.rows && seen[i].cols == s.cols) return 0;
    seen[(*n)++] = s;
    return 1;
}

static void keep_dummies(struct build *b)
{
    const struct program *pr = b->pr;
    struct shape *seen = arena_alloc(b->arena, (size_t)pr->n_op * sizeof *seen);
    const int experts = b->j->model.experts ? b->j->model.experts / b->j->plan.ep : 1, n_op = pr->n_op;
    int n = 0;
    for (int i = 1; i < n_op; i++) {
        const struct op *o = &pr->op[i];
        const int grouped = o->kind == OP_GROUPED_WGRAD;
        if ((o->kind != OP_WGRAD && !grouped) || o->flags & OP_ROUTER) continue;
        const struct buf w = pr->buf[o->io.add[0]];
        const struct shape s = {w.rows / (grouped ? experts : 1), w.cols};
        if (stage_of(b, o->io.add[0]) == b->stage && is_new(seen, &n, s)) keep(b, s.rows, s.cols, b->act);
    }
}

/* ---- workspaces ---- */

/* Whether the stage runs an op of this kind that adds to something of its own. */
static int runs(const struct build *b, enum op_kind kind, int flags)
{
    for (int i = 1; i < b->pr->n_op; i++) {
        const struct op *o = &b->pr->op[i];
        if (o->kind == kind && (o->flags & flags) == flags && stage_of(b, o->io.add[0]) == b->stage) return 1;
    }
    return 0;
}

static void keep_workspaces(struct build *b)
{
    const struct stack *s = &b->j->stack;
    const int experts = runs(b, OP_GROUPED_WGRAD, 0);
    for (int i = 0; i < 1 + (experts ? s->grouped_workspaces : 0); i++) keep_bytes(b, s->workspace_B);
    /* The framework's own GEMMs: the output layer, the router. One handle for the forward thread, one for
     * autograd's. */
    const int own = runs(b, OP_XENT, 0) || runs(b, OP_WGRAD, OP_ROUTER);
    for (int i = 0; i < 2 && own; i++) keep_bytes(b, s->blas_workspace_B);
}

/* ---- dispatchers ---- */

/* DeepEP: rings of 20 multiprocessors, two a channel, for each rank of a host and each host (csrc/legacy/config.hpp
 * get_nvl_buffer_size_hint, get_rdma_buffer_size_hint): what a token is, its source, 128 picks and scales. */
static double deepep_B(const struct place *at, double token_B)
{
    enum { CHANNELS = 10, PEERS = 8, RECV = 256, RECV_FAR = 288, RECV_RDMA = 128 };
    const int peers = at->size < PEERS ? at->size : PEERS, hosts = (at->size + PEERS - 1) / PEERS;
    const double slot_B = token_B + 8 + 128 * (8 + 4) + 128 * 4;
    const double far = hosts > 1 ? 2.0 * hosts * RECV_RDMA : 0;
    return CHANNELS * slot_B * (peers * (hosts > 1 ? RECV_FAR : RECV) + far);
}

/* HybridEP: room for all tokens of all ranks, with weights for the domain's experts, and for those that come from
 * each other domain: 3.5 GiB and 256 MiB of DeepSeek-V3 on 64 ranks of one domain, 392 MB more over eight (its
 * implementation guide, section 4). One buffer serves both ways and all layers. */
static double hybridep_B(const struct build *b, const struct place *at, double token_B)
{
    const double tok = (double)b->tok_sp, experts = (double)b->j->model.experts / at->domains;
    return tok * at->size * (token_B + experts * dtype_B(DT_F32)) + tok * (at->domains - 1) * token_B;
}

/* Registered with peers once, and for ever: outside what a framework allocates. */
static void keep_exchange(struct build *b)
{
    const int kind = b->j->plan.dispatcher;
    const struct place at = place_of(b->j, GROUP_TPEP);
    const double token_B = model_expert_in(&b->j->model) * dtype_B(b->act);
    if (at.size == 1 || (kind != DISPATCHER_DEEPEP && kind != DISPATCHER_HYBRIDEP) || !runs(b, OP_GROUPED_WGRAD, 0))
        return;
    keep_bytes(b, kind == DISPATCHER_DEEPEP ? deepep_B(&at, token_B) : hybridep_B(b, &at, token_B));
    b->pr->buf[b->pr->n_buf - 1].place = PLACE_PEER;
}

/* ---- pipeline ---- */

int build_keep_holds_pipeline(const struct build *b)
{
    const struct plan *p = &b->j->plan;
    return b->j->stack.hold_pipeline && p->pp > 1 && p->vpp == 1 && p->n_micro > p->pp - b->stage;
}

void build_keep_stage(struct build *b)
{
    b->chunk = -1;
    if (b->j->stack.dummy_wgrad) keep_dummies(b);
    keep_workspaces(b);
    keep_exchange(b);
    /* The variable with the input's gradient keeps the last one until the next backward has returned. */
    if (build_keep_holds_pipeline(b) && b->stage > 0)
        keep(b, b->tok_sp * layout_states(&b->j->plan.split, b->stage), b->j->model.hidden, b->act);
}
