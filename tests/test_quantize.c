/* What is low in a program of low precision and what stays high: operands of products, who quantises, what is
 * kept for backward, what tp's gathers send; both simulators and the search take it. */
#include "sim/search.h"
#include "tests/low.h"

#define DSV3 "model deepseek-v3 gpus 64 ep 64 pp 1 gbs 64 seq 4096 mtp 0 layout auto "

static int is_product(const struct op *o)
{
    const enum op_family f = op_family((enum op_kind)o->kind);
    return f == FAMILY_GEMM || f == FAMILY_GROUPED;
}

/* ---- what is low, what is not ---- */

static const char *const lows[] = {
    QWEN HOPPER "fp8-cs", QWEN HOPPER "fp8-block tp 2 etp 2 ep 4", QWEN BLACKWELL "mxfp8 tp 4 recompute layernorm",
    QWEN BLACKWELL "nvfp4 recompute selective:moe_act+layernorm", QWEN HOPPER "fp8-cs fp8-param-gather 1 tp 2",
    QWEN BLACKWELL "mxfp8 fp8-param-gather 1 moments bf16 grads bf16", DSV3 BLACKWELL "mxfp8 recompute mla_up_proj",
    DSV3 HOPPER "fp8-block split-wgrad 1", QWEN BLACKWELL "fp8-ds recompute full",
    "model llama3-8b gpus 16 pp 2 tp 4 gbs 32 seq 4096 " BLACKWELL "nvfp4",
};

static double model_flop(const struct program *pr)
{
    double flop = 0;
    for (int o = 1; o < pr->n_op; o++) flop += op_work(pr, &pr->op[o], pr->even).model_flop;
    return flop;
}

START_TEST(model_flop_is_that_of_bf16)
{
    struct made low, high;
    sound_make(&low, lows[_i]);
    sound_make(&high, arena_printf(&low.arena, "%s precision bf16 fp8-param-gather 0", lows[_i]));
    ck_assert_double_eq_tol(model_flop(&low.pr) / model_flop(&high.pr), 1, 1e-12);
    arena_free(&low.arena);
    arena_free(&high.arena);
}
END_TEST

/* Every product takes both operands in low precision or none; none: the router's and the head's. Attention
 * takes none. */
START_TEST(products_read_copies)
{
    struct made m;
    sound_make(&m, lows[_i]);
    int low = 0, high = 0;
    for (int o = 1; o < m.pr.n_op; o++) {
        const struct op *op = &m.pr.op[o];
        if (op_family((enum op_kind)op->kind) == FAMILY_ATTENTION) ck_assert(!low_buf(&m.pr, op->io.read[0]));
        if (!is_product(op)) continue;
        ck_assert_int_eq(low_buf(&m.pr, op->io.read[0]), low_buf(&m.pr, op->io.read[1]));
        if (low_buf(&m.pr, op->io.read[0])) low++;
        else high += !(op->flags & OP_ROUTER);
        const struct work w = op_work(&m.pr, op, m.pr.even);
        ck_assert_int_eq(dtype_formats[w.dtype].bits <= 8, low_buf(&m.pr, op->io.read[0]));
    }
    ck_assert_int_eq(high, 3);
    ck_assert_int_ge(low, 32 * 12);
    arena_free(&m.arena);
}
END_TEST

/* First and last layers read no copies and pad nothing; layers between them and MTP do. */
START_TEST(layers_at_the_ends_stay_high)
{
    struct made m;
    sound_make(&m, "model deepseek-v3 gpus 64 ep 64 pp 1 gbs 64 seq 1000 layers 6 mtp 1 high-first 1 high-last 2 "
             "fp8-param-gather 1 " BLACKWELL "mxfp8");
    int low[8] = { 0 }, high[8] = { 0 };
    for (int o = 1; o < m.pr.n_op; o++) {
        const struct op *op = &m.pr.op[o];
        if (!is_product(op) || op->layer < 0 || op->flags & OP_ROUTER) continue;
        (low_buf(&m.pr, op->io.read[0]) ? low : high)[op->layer]++;
        if (op->layer == 4 || op->layer == 5) ck_assert_int_eq(m.pr.buf[op->io.read[0]].pad, 0);
    }
    for (int layer = 0; layer <= 6; layer++) {
        const int ends = layer == 0 || layer == 4 || layer == 5;
        ck_assert_int_eq(low[layer] > 0, !ends);
        ck_assert_int_eq(high[layer] > 0, ends || layer == 6);      /* the MTP layer's number is on its head too */
    }
    arena_free(&m.arena);
}
END_TEST

/* One QUANTIZE a tensor and half, and nothing is made that nobody reads. */
START_TEST(copies_are_made_once_and_read)
{
    struct made m;
    sound_make(&m, lows[_i]);
    char *made = arena_alloc(&m.arena, (size_t)m.pr.n_buf * 4), *read = arena_alloc(&m.arena, (size_t)m.pr.n_buf);
    for (int o = 1; o < m.pr.n_op; o++) {
        const struct op *op = &m.pr.op[o];
        for (int k = 0; k < OP_READS; k++) read[op->io.read[k]] = 1;
        if (op->kind == OP_QUANTIZE) ck_assert_int_eq(made[4 * op->io.read[0] + op->half]++, 0);
    }
    for (int o = 1; o < m.pr.n_op; o++)
        for (int k = 0; k < OP_WRITES && m.pr.op[o].kind == OP_QUANTIZE; k++)
            if (m.pr.op[o].io.write[k]) ck_assert(read[m.pr.op[o].io.write[k]]);
    arena_free(&m.arena);
}
END_TEST

/* ---- fusion ---- */

/* Bytes that a micro-batch carries from forward to backward, of all products: what weight gradients read from
 * forward, once each. */
static double kept_B(const struct program *pr, int dense)
{
    char *forward = calloc((size_t)pr->n_buf, 1);
    double bytes = 0;
    for (int o = 1; o < pr->n_op; o++)
        for (int k = 0; k < OP_WRITES && pr->op[o].half == HALF_FWD; k++) forward[pr->op[o].io.write[k]] = 1;
    for (int o = 1; o < pr->n_op; o++) {
        const int x = pr->op[o].io.read[0], kind = pr->op[o].kind;
        const int wgrad = kind == OP_GROUPED_WGRAD || (dense && kind == OP_WGRAD);
        if (wgrad && forward[x]) bytes += (double)buf_B(&pr->buf[x]);
    }
    free(forward);
    return bytes;
}

static int count(const struct program *pr, enum op_kind k)
{
    int n = 0;
    for (int o = 1; o < pr->n_op; o++) n += pr->op[o].kind == k;
    return n;
}

static double memory_bound_B(const struct program *pr)
{
    double bytes = 0;
    for (int o = 1; o < pr->n_op; o++) {
        const struct work w = op_work(pr, &pr->op[o], pr->even);
        if (op_family((enum op_kind)pr->op[o].kind) == FAMILY_MEMORY) bytes += w.read_B + w.write_B;
    }
    return bytes;
}

/* Everything read inside a micro-batch was written before. */
static void assert_written(const struct program *pr)
{
    char *written = calloc((size_t)pr->n_buf, 1);
    for (int o = pr->chunk[0].fwd; o < pr->chunk[0].reduce; o++) {
        for (int k = 0; k < OP_READS; k++) {
            const int id = pr->op[o].io.read[k];
            if (!id || pr->buf[id].keep != KEEP_MICRO) continue;
            ck_assert_msg(written[program_root(pr, id)], "op %d %s", o, op_name((enum op_kind)pr->op[o].kind));
        }
        for (int k = 0; k < OP_WRITES; k++) written[program_root(pr, pr->op[o].io.write[k])] = 1;
    }
    free(written);
}

/* A dense layer: both norms, the activation and its gradient quantise; the output of attention and five
 * gradients (of o, fc2, qkv outputs) do not. What is saved is one read and one write of each in bf16 at least. */
START_TEST(norms_and_activations_may_quantize)
{
    struct made apart, fused;
    sound_make(&apart, "model llama3-8b gpus 8 gbs 8 seq 4096 " BLACKWELL "mxfp8");
    sound_make(&fused, "model llama3-8b gpus 8 gbs 8 seq 4096 " BLACKWELL "mxfp8");
    fused.j.stack.quantize_norm = fused.j.stack.quantize_act = 1;
    program_build(&fused.pr, &fused.arena, &fused.j);
    ck_assert_int_eq(count(&apart.pr, OP_QUANTIZE) - count(&fused.pr, OP_QUANTIZE), 32 * 4);
    const double tokens = 4096, saved = 32 * tokens * 2 * 2 * (2 * 4096. + 14336 + 2 * 14336);
    ck_assert_double_eq_tol(memory_bound_B(&apart.pr) - memory_bound_B(&fused.pr), saved, 1);
    ck_assert_double_eq_tol(kept_B(&apart.pr, 1), kept_B(&fused.pr, 1), 1e-9);
    assert_written(&apart.pr);
    assert_written(&fused.pr);
    arena_free(&apart.arena);
    arena_free(&fused.arena);
}
END_TEST

START_TEST(what_is_read_was_written)
{
    struct made m;
    sound_make(&m, lows[_i]);
    m.j.stack.quantize_norm = m.j.stack.quantize_act = 1;
    program_build(&m.pr, &m.arena, &m.j);
    assert_written(&m.pr);
    arena_free(&m.arena);
}
END_TEST

/* ---- activations ---- */

/* Whether any expert input of forward is read in backward in high precision. */
static int keeps_original(const struct program *pr)
{
    for (int o = 1; o < pr->n_op; o++) {
        const int y = pr->op[o].io.write[0];
        if (pr->op[o].kind != OP_SORT || pr->op[o].half != HALF_FWD || pr->buf[y].cols == 1) continue;
        for (int r = 1; r < pr->n_op; r++)
            for (int k = 0; k < OP_READS && pr->op[r].half == HALF_BWD; k++)
                if (pr->op[r].io.read[k] == y) return 1;
    }
    return 0;
}

START_TEST(expert_inputs_are_kept_in_low_precision)
{
    static const struct { const char *flags; double ratio; } row[] = {
        { QWEN HOPPER "fp8-cs", 0.5 }, { QWEN HOPPER "fp8-block", 0.5 * (1 + 4. / 128) },
        { QWEN BLACKWELL "mxfp8", 0.5 * (1 + 1. / 32) }, { QWEN BLACKWELL "nvfp4", 0.25 * (1 + 2. / 16) },
    };
    struct made bf16, low;
    sound_make(&bf16, QWEN BLACKWELL "bf16");
    sound_make(&low, row[_i].flags);
    ck_assert_double_eq_tol(kept_B(&low.pr, 0) / kept_B(&bf16.pr, 0), row[_i].ratio, 1e-12);
    ck_assert_int_eq(keeps_original(&bf16.pr), 1);
    ck_assert_int_eq(keeps_original(&low.pr), 0);
    arena_free(&bf16.arena);
    arena_free(&low.arena);
}
END_TEST

static double tp_wire_B(const struct program *pr, int kind)
{
    double bytes = 0;
    for (int o = 1; o < pr->n_op; o++)
        if (pr->op[o].kind == kind && pr->op[o].group == GROUP_TP)
            bytes += op_work(pr, &pr->op[o], pr->even).wire_B;
    return bytes;
}

/* Gathers over tp send copies; sums do not. The head's gather and the embedding's gradient stay. */
START_TEST(gathers_over_tp_send_copies)
{
    struct made bf16, low;
    sound_make(&bf16, "model llama3-8b gpus 8 tp 8 gbs 8 seq 4096 " BLACKWELL "bf16");
    sound_make(&low, "model llama3-8b gpus 8 tp 8 gbs 8 seq 4096 " BLACKWELL "fp8-cs");
    const double stay_B = 3 * 4096. * 4096 * 2 * 7 / 8, ratio = (tp_wire_B(&low.pr, OP_GATHER) - stay_B) /
                                                               (tp_wire_B(&bf16.pr, OP_GATHER) - stay_B);
    ck_assert_double_eq_tol(ratio, 0.5, 1e-12);
    ck_assert_double_eq(tp_wire_B(&low.pr, OP_SCATTER), tp_wire_B(&bf16.pr, OP_SCATTER));
    arena_free(&bf16.arena);
    arena_free(&low.arena);
}
END_TEST

/* ---- simulators and search ---- */

/* Not unroll_check: primary weights of MXFP8 are gathered into the buffer of their gradients, where it misses a writer. */
START_TEST(sweep_equals_max_plus)
{
    struct made m;
    sound_make(&m, lows[_i]);
    sound_clocks(&m, lows[_i]);
    arena_free(&m.arena);
}
END_TEST

/* Precision is asked for, never searched; its best plan is predicted as found. */
START_TEST(search_keeps_the_precision)
{
    struct arena a = { 0 };
    struct diag d = { 0 };
    struct job j;
    struct search_result r;
    struct search_ask ask = { .top = 3 };
    struct predict p;
    const char *const flag[][2] = { { "model", "qwen3-30b-a3b" }, { "system", "gb200-nvl72" }, { "gpus", "16" },
                                    { "gbs", "128" }, { "seq", "4096" }, { "precision", "mxfp8" } };
    ck_assert_int_eq(plan_read_open(&j, &a, LEN(flag), flag, &d), OK);
    ck_assert_msg(search_run(&r, &a, &j, &ask, &d) == OK, "%s", d.text);
    ck_assert_int_eq(r.hit[0].plan.precision, PRECISION_MXFP8);
    j.plan = r.hit[0].plan;
    predict_job(&p, NULL, &a, &j);
    ck_assert_double_eq_tol(p.step_s / r.hit[0].step_s, 1, 1e-9);
    ck_assert_int_eq(p.peak_dtype, DT_FP8);
    arena_free(&a);
}
END_TEST

/* Blocks are priced by kind, and these would be two kinds of one. */
START_TEST(search_refuses_high_layers)
{
    struct arena a = { 0 };
    struct diag d = { 0 };
    struct job j;
    struct search_result r;
    struct search_ask ask = { .top = 1 };
    const char *const flag[][2] = { { "model", "tiny-moe" }, { "system", "h100-sxm" }, { "gpus", "8" },
                                    { "gbs", "8" },          { "seq", "64" },          { "precision", "fp8-cs" },
                                    { "high-last", "1" } };
    ck_assert_int_eq(plan_read_open(&j, &a, LEN(flag), flag, &d), OK);
    ck_assert_int_eq(search_run(&r, &a, &j, &ask, &d), ERR_NO);
    ck_assert_int_eq(r.plans, 0);
    arena_free(&a);
}
END_TEST

int main(void)
{
    const struct test_loop tests[] = {
        { model_flop_is_that_of_bf16, LEN(lows) },
        { products_read_copies, LEN(lows) },
        { layers_at_the_ends_stay_high, 0 },
        { copies_are_made_once_and_read, LEN(lows) },
        { norms_and_activations_may_quantize, 0 },
        { what_is_read_was_written, LEN(lows) },
        { expert_inputs_are_kept_in_low_precision, 4 },
        { gathers_over_tp_send_copies, 0 },
        { sweep_equals_max_plus, LEN(lows) },
        { search_keeps_the_precision, 0 },
        { search_refuses_high_layers, 0 },
    };
    return test_main_loops("quantize", NULL, tests, LEN(tests), 120);
}
