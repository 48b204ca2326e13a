/* Low precision in the program: which copies exist and what they weigh, what stays in high precision, what
 * padding costs and what it must not change, and that both simulators and the search take it. */
#include "models/build.h"
#include "models/unroll.h"
#include "sim/search.h"
#include "tests/test.h"
#include <math.h>

#define QWEN  "model qwen3-30b-a3b gpus 8 ep 8 gbs 64 seq 4096 "
#define DSV3  "model deepseek-v3 gpus 64 ep 64 pp 1 gbs 64 seq 4096 mtp 0 layout auto "
#define SHARED "model qwen3-30b-a3b system gb200-nvl72 gpus 16 ep 8 gbs 64 seq 4096 "
#define HOPPER    "system h100-sxm precision "
#define BLACKWELL "system gb200-nvl72 precision "

struct made { struct arena a; struct program pr; struct job j; };

static void make(struct made *m, const char *flags)
{
    *m = (struct made){ 0 };
    test_job(&m->j, &m->a, flags);
    program_build(&m->pr, &m->a, &m->j);
}

static int is_low_buf(const struct program *pr, int id)
{
    return id && dtype_formats[pr->buf[id].dtype].bits <= 8;
}

static int is_product(const struct op *o)
{
    const enum op_family f = op_family((enum op_kind)o->kind);
    return f == FAMILY_GEMM || f == FAMILY_GROUPED;
}

/* ---- weights ---- */

/* Case A09; one scale of 1 byte for 32. */
static const struct { const char *flags; double bytes; } weights[] = {
    { QWEN BLACKWELL "bf16", 2 },
    { QWEN HOPPER "fp8-cs", 2 + 1 + 1 },                        /* rows, and columns because operands are K-major */
    { QWEN HOPPER "fp8-ds", 4 },
    { QWEN HOPPER "fp8-block", 4 },
    { QWEN BLACKWELL "fp8-cs", 3 },                             /* one copy serves both */
    { QWEN BLACKWELL "mxfp8", 2 + 2 * (1 + 1. / 32) },
    { QWEN BLACKWELL "nvfp4", 2 + 2 * (0.5 + 1. / 16) },
    { QWEN BLACKWELL "mxfp8 fp8-param-gather 1", 2 * (1 + 1. / 32) },
    { QWEN HOPPER "fp8-block fp8-param-gather 1", 2 },
    { QWEN BLACKWELL "fp8-cs fp8-param-gather 1", 1 },
};

/* Bytes of one element of a parameter, with the copies that a QUANTIZE makes of it. */
static double weight_B(const struct program *pr, enum param_name name)
{
    for (int i = 0; i < pr->n_param; i++) {
        if (pr->param[i].name != name) continue;
        const int w = pr->param[i].w;
        double bytes = pr->buf[w].keep == KEEP_WEIGHT ? (double)buf_B(&pr->buf[w]) : 0;
        for (int o = 1; o < pr->n_op; o++)
            if (pr->op[o].kind == OP_QUANTIZE && pr->op[o].io.read[0] == w)
                for (int k = 0; k < OP_WRITES; k++)
                    if (pr->op[o].io.write[k]) bytes += (double)buf_B(&pr->buf[pr->op[o].io.write[k]]);
        return bytes / (double)(pr->buf[w].rows * pr->buf[w].cols);
    }
    return NAN;
}

START_TEST(weights_and_their_copies)
{
    struct made m;
    make(&m, weights[_i].flags);
    ck_assert_double_eq_tol(weight_B(&m.pr, PARAM_EXPERT_FC1), weights[_i].bytes, 1e-12);
    ck_assert_double_eq_tol(weight_B(&m.pr, PARAM_O), weights[_i].bytes, 1e-12);
    ck_assert_double_eq(weight_B(&m.pr, PARAM_HEAD), 2);
    ck_assert_double_eq(weight_B(&m.pr, PARAM_EMBEDDING), 2);
    ck_assert_double_eq(weight_B(&m.pr, PARAM_ROUTER), 2);
    arena_free(&m.a);
}
END_TEST

/* ---- states ---- */

/* Bytes a parameter (Megatron-LM docs/source/api-guide/dist_optimizer.md; optimizer_config.py for the low ones). */
static const struct { const char *options; double own, shared; } states[] = {
    { "precision bf16", 6, 12 },
    { "precision bf16 moments bf16", 6, 8 },
    { "precision bf16 moments fp8", 6, 6 },
    { "precision bf16 moments bf16 master remainder", 6, 6 },
    { "precision bf16 grads bf16", 4, 12 },
    { "precision fp16", 6, 12 },
    { "precision fp32", 8, 8 },
    { "precision fp8-cs fp8-param-gather 1", 5, 12 },
    { "precision mxfp8 fp8-param-gather 1 moments bf16 grads bf16", 2, 8 },
};

static const struct bucket *expert_bucket(const struct program *pr)
{
    for (int i = 0; i < pr->n_param; i++)
        for (int k = 0; k < pr->n_bucket && pr->param[i].name == PARAM_EXPERT_FC1; k++)
            if (program_root(pr, pr->bucket[k].w) == program_root(pr, pr->param[i].w)) return &pr->bucket[k];
    return NULL;
}

static double root_B(const struct program *pr, int id)
{
    return id && !pr->buf[id].view ? (double)buf_B(&pr->buf[id]) : 0;
}

/* Own bytes of every replica, and the optimizer's, shared by two. */
START_TEST(states_by_option)
{
    struct made m;
    struct arena a = { 0 };
    make(&m, arena_printf(&a, SHARED "%s", states[_i].options));
    const struct bucket *k = expert_bucket(&m.pr);
    const double n = (double)m.pr.buf[k->g].rows;
    ck_assert_double_eq_tol((root_B(&m.pr, k->w) + root_B(&m.pr, k->g)) / n, states[_i].own, 1e-6);
    const double state_B = root_B(&m.pr, k->master) + root_B(&m.pr, k->m) + root_B(&m.pr, k->v);
    ck_assert_double_eq_tol(state_B / n, states[_i].shared / 2, 1e-6);
    arena_free(&m.a);
    arena_free(&a);
}
END_TEST

/* Bytes that a rank sends of each weight when two gather them: fp8 as it is, MXFP8 as bf16 (Megatron-Core MoE
 * report 5.2.2). */
START_TEST(gathers_of_primary_weights)
{
    static const struct { const char *precision; double bytes; } row[] = {
        { "bf16", 2 }, { "fp8-block", 2 }, { "fp8-block fp8-param-gather 1", 1 }, { "mxfp8 fp8-param-gather 1", 2 },
    };
    struct made m;
    struct arena a = { 0 };
    make(&m, arena_printf(&a, SHARED "precision %s", row[_i].precision));
    const struct bucket *k = expert_bucket(&m.pr);
    int seen = 0;
    for (int o = 1; o < m.pr.n_op; o++) {
        const struct op *op = &m.pr.op[o];
        if (op->kind != OP_PARAM_GATHER || op->io.add[0] != k->w) continue;
        ck_assert_double_eq(op_work(&m.pr, op, m.pr.even).wire_B, (double)m.pr.buf[k->w].rows * row[_i].bytes / 2);
        seen++;
    }
    ck_assert_int_eq(seen, 1);
    arena_free(&m.a);
    arena_free(&a);
}
END_TEST

/* ---- padding ---- */

static int64_t padded(const int64_t *count, int n, int16_t pad)
{
    int64_t sum = 0;
    for (int i = 0; i < n; i++) sum += buf_padded(count[i], 1, pad);
    return sum;
}

/* Case D02. */
START_TEST(counts_are_padded_by_expert)
{
    const int64_t count[] = { 44, 0, 32, 1, 95 };
    ck_assert_int_eq(padded(count, 5, recipe_of(PRECISION_MXFP8)->pad), 224);
    ck_assert_int_eq(padded(count, 5, recipe_of(PRECISION_FP8_BLOCK)->pad), 512);
    ck_assert_int_eq(padded(count, 5, recipe_of(PRECISION_BF16)->pad), 172);
    ck_assert_int_eq(buf_padded(0, 4, 32), 0);
}
END_TEST

/* 1040 tokens, 8 experts each, 16 experts here: 520 rows an expert. */
#define PADDED "model qwen3-30b-a3b gpus 8 gbs 64 seq 1040 "
static const struct { const char *flags; int64_t rows; } paddings[] = {
    { PADDED "ep 8 " BLACKWELL "bf16", 520 * 16 },   { PADDED "ep 8 " HOPPER "fp8-cs", 528 * 16 },
    { PADDED "ep 8 " BLACKWELL "mxfp8", 544 * 16 },  { PADDED "ep 8 " HOPPER "fp8-block", 640 * 16 },
    { PADDED "ep 8 " BLACKWELL "nvfp4", 640 * 16 },  { PADDED "ep 1 " BLACKWELL "mxfp8", 96 * 128 },
};

/* In memory, in FLOP and in bytes; not in model FLOP, nor in what comes back to the tokens. */
START_TEST(padding_costs_memory_and_flop)
{
    struct made m;
    make(&m, paddings[_i].flags);
    const int64_t bare = 1040 * 8;
    int seen = 0;
    for (int o = 1; o < m.pr.n_op; o++) {
        const struct op *op = &m.pr.op[o];
        if (op->kind == OP_COMBINE) ck_assert_int_eq(m.pr.buf[op->io.read[0]].rows, bare);
        if (op_family((enum op_kind)op->kind) != FAMILY_GROUPED) continue;
        const struct work w = op_work(&m.pr, op, m.pr.even);
        ck_assert_int_eq(m.pr.buf[op->io.read[0]].rows, paddings[_i].rows);
        ck_assert_int_eq(w.rows, paddings[_i].rows);
        ck_assert_double_eq_tol(w.flop / w.model_flop, (double)paddings[_i].rows / (double)bare, 1e-12);
        seen++;
    }
    ck_assert_int_ge(seen, 6 * 48);
    arena_free(&m.a);
}
END_TEST

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
    make(&low, lows[_i]);
    make(&high, arena_printf(&low.a, "%s precision bf16 fp8-param-gather 0", lows[_i]));
    ck_assert_double_eq_tol(model_flop(&low.pr) / model_flop(&high.pr), 1, 1e-12);
    arena_free(&low.a);
    arena_free(&high.a);
}
END_TEST

/* Every product takes both operands in low precision or none; none: the router's and the head's. Attention
 * takes none. */
START_TEST(products_read_copies)
{
    struct made m;
    make(&m, lows[_i]);
    int low = 0, high = 0;
    for (int o = 1; o < m.pr.n_op; o++) {
        const struct op *op = &m.pr.op[o];
        if (op_family((enum op_kind)op->kind) == FAMILY_ATTENTION) ck_assert(!is_low_buf(&m.pr, op->io.read[0]));
        if (!is_product(op)) continue;
        ck_assert_int_eq(is_low_buf(&m.pr, op->io.read[0]), is_low_buf(&m.pr, op->io.read[1]));
        if (is_low_buf(&m.pr, op->io.read[0])) low++;
        else high += !(op->flags & OP_ROUTER);
        const struct work w = op_work(&m.pr, op, m.pr.even);
        ck_assert_int_eq(dtype_formats[w.dtype].bits <= 8, is_low_buf(&m.pr, op->io.read[0]));
    }
    ck_assert_int_eq(high, 3);
    ck_assert_int_ge(low, 32 * 12);
    arena_free(&m.a);
}
END_TEST

/* First and last layers read no copies and pad nothing; layers between them and MTP do. */
START_TEST(layers_at_the_ends_stay_high)
{
    struct made m;
    make(&m, "model deepseek-v3 gpus 64 ep 64 pp 1 gbs 64 seq 1000 layers 6 mtp 1 high-first 1 high-last 2 "
             "fp8-param-gather 1 " BLACKWELL "mxfp8");
    int low[8] = { 0 }, high[8] = { 0 };
    for (int o = 1; o < m.pr.n_op; o++) {
        const struct op *op = &m.pr.op[o];
        if (!is_product(op) || op->layer < 0 || op->flags & OP_ROUTER) continue;
        (is_low_buf(&m.pr, op->io.read[0]) ? low : high)[op->layer]++;
        if (op->layer == 4 || op->layer == 5) ck_assert_int_eq(m.pr.buf[op->io.read[0]].pad, 0);
    }
    for (int layer = 0; layer <= 6; layer++) {
        const int ends = layer == 0 || layer == 4 || layer == 5;
        ck_assert_int_eq(low[layer] > 0, !ends);
        ck_assert_int_eq(high[layer] > 0, ends || layer == 6);      /* the MTP layer's number is on its head too */
    }
    arena_free(&m.a);
}
END_TEST

/* One QUANTIZE a tensor and half, and nothing is made that nobody reads. */
START_TEST(copies_are_made_once_and_read)
{
    struct made m;
    make(&m, lows[_i]);
    char *made = arena_alloc(&m.a, (size_t)m.pr.n_buf * 4), *read = arena_alloc(&m.a, (size_t)m.pr.n_buf);
    for (int o = 1; o < m.pr.n_op; o++) {
        const struct op *op = &m.pr.op[o];
        for (int k = 0; k < OP_READS; k++) read[op->io.read[k]] = 1;
        if (op->kind == OP_QUANTIZE) ck_assert_int_eq(made[4 * op->io.read[0] + op->half]++, 0);
    }
    for (int o = 1; o < m.pr.n_op; o++)
        for (int k = 0; k < OP_WRITES && m.pr.op[o].kind == OP_QUANTIZE; k++)
            if (m.pr.op[o].io.write[k]) ck_assert(read[m.pr.op[o].io.write[k]]);
    arena_free(&m.a);
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
    make(&apart, "model llama3-8b gpus 8 gbs 8 seq 4096 " BLACKWELL "mxfp8");
    make(&fused, "model llama3-8b gpus 8 gbs 8 seq 4096 " BLACKWELL "mxfp8");
    fused.j.stack.quantize_norm = fused.j.stack.quantize_act = 1;
    program_build(&fused.pr, &fused.a, &fused.j);
    ck_assert_int_eq(count(&apart.pr, OP_QUANTIZE) - count(&fused.pr, OP_QUANTIZE), 32 * 4);
    const double tokens = 4096, saved = 32 * tokens * 2 * 2 * (2 * 4096. + 14336 + 2 * 14336);
    ck_assert_double_eq_tol(memory_bound_B(&apart.pr) - memory_bound_B(&fused.pr), saved, 1);
    ck_assert_double_eq_tol(kept_B(&apart.pr, 1), kept_B(&fused.pr, 1), 1e-9);
    assert_written(&apart.pr);
    assert_written(&fused.pr);
    arena_free(&apart.a);
    arena_free(&fused.a);
}
END_TEST

START_TEST(what_is_read_was_written)
{
    struct made m;
    make(&m, lows[_i]);
    m.j.stack.quantize_norm = m.j.stack.quantize_act = 1;
    program_build(&m.pr, &m.a, &m.j);
    assert_written(&m.pr);
    arena_free(&m.a);
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
    make(&bf16, QWEN BLACKWELL "bf16");
    make(&low, row[_i].flags);
    ck_assert_double_eq_tol(kept_B(&low.pr, 0) / kept_B(&bf16.pr, 0), row[_i].ratio, 1e-12);
    ck_assert_int_eq(keeps_original(&bf16.pr), 1);
    ck_assert_int_eq(keeps_original(&low.pr), 0);
    arena_free(&bf16.a);
    arena_free(&low.a);
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
    make(&bf16, "model llama3-8b gpus 8 tp 8 gbs 8 seq 4096 " BLACKWELL "bf16");
    make(&low, "model llama3-8b gpus 8 tp 8 gbs 8 seq 4096 " BLACKWELL "fp8-cs");
    const double stay_B = 3 * 4096. * 4096 * 2 * 7 / 8, ratio = (tp_wire_B(&low.pr, OP_GATHER) - stay_B) /
                                                               (tp_wire_B(&bf16.pr, OP_GATHER) - stay_B);
    ck_assert_double_eq_tol(ratio, 0.5, 1e-12);
    ck_assert_double_eq(tp_wire_B(&low.pr, OP_SCATTER), tp_wire_B(&bf16.pr, OP_SCATTER));
    arena_free(&bf16.a);
    arena_free(&low.a);
}
END_TEST

/* ---- simulators and search ---- */

START_TEST(sweep_equals_max_plus)
{
    struct made m;
    struct cost c;
    struct sim_result step;
    struct trace t;
    struct diag d = { 0 };
    make(&m, lows[_i]);
    cost_init(&c, &m.pr, &m.j);
    const double *op_s = cost_all_s(&c, &m.a);
    sim_step(&step, &m.a, &c, op_s, pass_price_all(&c, op_s, &m.a));
    struct unroll *u = arena_alloc(&m.a, (size_t)m.pr.n_stage * sizeof *u);
    ck_assert_msg(unroll_all(u, &m.a, &m.pr, &d) == OK, "%s", d.text);
    sim_sweep(&t, &m.a, &c, u, NULL, 0);
    int64_t last_ns = 0;
    for (int64_t i = 0; i < t.n; i++) last_ns = t.span[i].t1_ns > last_ns ? t.span[i].t1_ns : last_ns;
    ck_assert_double_eq_tol(1e-9 * (double)last_ns, step.step_s, 1e-9);
    for (int s = 0; s < m.pr.n_stage; s++) ck_assert_double_eq(step.live_B[s], (double)u[s].live_B);
    arena_free(&m.a);
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
    Suite *s = suite_create("precision");
    TCase *c = tcase_create("precision");
    tcase_set_timeout(c, 120);
    tcase_add_loop_test(c, weights_and_their_copies, 0, LEN(weights));
    tcase_add_loop_test(c, states_by_option, 0, LEN(states));
    tcase_add_loop_test(c, gathers_of_primary_weights, 0, 4);
    tcase_add_test(c, counts_are_padded_by_expert);
    tcase_add_loop_test(c, padding_costs_memory_and_flop, 0, LEN(paddings));
    tcase_add_loop_test(c, model_flop_is_that_of_bf16, 0, LEN(lows));
    tcase_add_loop_test(c, products_read_copies, 0, LEN(lows));
    tcase_add_test(c, layers_at_the_ends_stay_high);
    tcase_add_loop_test(c, copies_are_made_once_and_read, 0, LEN(lows));
    tcase_add_test(c, norms_and_activations_may_quantize);
    tcase_add_loop_test(c, what_is_read_was_written, 0, LEN(lows));
    tcase_add_loop_test(c, expert_inputs_are_kept_in_low_precision, 0, 4);
    tcase_add_test(c, gathers_over_tp_send_copies);
    tcase_add_loop_test(c, sweep_equals_max_plus, 0, LEN(lows));
    tcase_add_test(c, search_keeps_the_precision);
    tcase_add_test(c, search_refuses_high_layers);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    const int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed > 0;
}
