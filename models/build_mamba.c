/* A Mamba-2 mixer (arXiv 2405.21060; Megatron-LM core/ssm/mamba_mixer.py): one projection in, then
 * convolution, chunked scan and gated norm as one op, one projection out. Heads and groups are cut over tp;
 * over cp a swap turns slices of the sequence into slices of the heads, since a scan needs all tokens before
 * its own. Of the scan only its input and its output before the norm are kept: states are computed again in
 * backward, as the fused kernels do. */
#include "models/build.h"

struct mamba_w build_mamba_weights(struct build *b)
{
    const struct model *m = &b->j->model;
    const int h = m->hidden, in = model_mamba_in(m), dim = model_mamba_dim(m),
              conv = in - dim - m->mamba_heads;
    const int scan =
        conv * (m->mamba_conv + 1) + 3 * m->mamba_heads + dim; /* taps and shift; of a head; the norm */
    struct mamba_w w;
    w.norm = build_weight(b, build_param(b, PARAM_ATTN_NORM, model_norm_rows(m), h, SHARD_NONE, 0));
    w.in = build_weight(b, build_param(b, PARAM_MAMBA_IN, in, h, SHARD_ROWS, 0));
    w.scan = build_weight(b, build_param(b, PARAM_MAMBA_SCAN, scan, 1, SHARD_ROWS, 0));
    w.out = build_weight(b, build_param(b, PARAM_MAMBA_OUT, h, dim, SHARD_COLS, 0));
    return w;
}

/* One state of every head and column a chunk of tokens. */
static int states(struct build *b, int x)
{
    const struct model *m = &b->j->model;
    const struct plan *p = &b->j->plan;
    const int64_t chunks = (b->pr->buf[x].rows + m->mamba_chunk - 1) / m->mamba_chunk;
    return emit_buf(b, chunks, model_mamba_dim(m) / (p->tp * p->cp) * m->mamba_state, DT_F32);
}

int build_mamba_fwd(struct build *b, const struct mamba_w *w, int x, struct mamba_kept *k)
{
    const struct plan *p = &b->j->plan;
    const int cols = model_mamba_dim(&b->j->model) / (p->tp * p->cp);
    k->x = x;
    k->n = emit_norm(b, x, w->norm);
    k->in = emit_swap(b, emit_gemm(b, emit_gather_input(b, k->n), w->in), 0);
    k->raw = emit_like(b, k->in, cols);
    const int y = emit_like(b, k->in, cols), state = states(b, k->in);
    emit(b, OP_SCAN, STREAM_COMPUTE, GROUP_NONE,
         (struct io){ .write = { y, k->raw, state }, .read = { k->in, w->scan.w } });
    k->y = emit_swap(b, y, 1);
    const int out = emit_scatter(b, GROUP_TP, emit_gemm(b, k->y, w->out));
    return emit_add(b, x, out);
}

int build_mamba_bwd(struct build *b, const struct mamba_w *w, int dy, const struct mamba_kept *k)
{
    const int dy_full = emit_gather_input(b, dy);
    const int d_raw = emit_swap(b, emit_dgrad(b, dy_full, w->out), 0);
    emit_wgrad(b, k->y, dy_full, w->out);
    const int din = emit_like(b, k->in, b->pr->buf[k->in].cols), state = states(b, k->in);
    emit(b, OP_SCAN_BWD, STREAM_COMPUTE, GROUP_NONE,
         (struct io){
             .write = { din, state }, .add = { w->scan.g }, .read = { k->in, k->raw, d_raw, w->scan.w } });
    const int din_sp = emit_swap(b, din, 1);
    const int early = b->j->stack.async_tp ? build_norm_again(b, k->x, w->norm, k->n, 1) : 0;
    int n_full = early ? emit_gather_ahead(b, early) : 0;
    const int dn = emit_scatter(b, GROUP_TP, emit_dgrad(b, din_sp, w->in));
    const int n = early ? early : build_norm_again(b, k->x, w->norm, k->n, 1);
    if (!n_full) n_full = emit_gather_input(b, n);
    emit_wgrad(b, n_full, din_sp, w->in);
    if (early) emit_hold_gathered(b, early);
    return emit_norm_bwd(b, k->x, w->norm, dn, dy);
}
