/* Low precision in the program: what weights, their copies and states weigh, what gathers of weights send, what
 * padding costs and what it must not change. Products and activations: test_quantize. */
#include "tests/low.h"

#define SHARED "model qwen3-30b-a3b system gb200-nvl72 gpus 16 ep 8 gbs 64 seq 4096 "

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
    sound_make(&m, weights[_i].flags);
    ck_assert_double_eq_tol(weight_B(&m.pr, PARAM_EXPERT_FC1), weights[_i].bytes, 1e-12);
    ck_assert_double_eq_tol(weight_B(&m.pr, PARAM_O), weights[_i].bytes, 1e-12);
    ck_assert_double_eq(weight_B(&m.pr, PARAM_HEAD), 2);
    ck_assert_double_eq(weight_B(&m.pr, PARAM_EMBEDDING), 2);
    ck_assert_double_eq(weight_B(&m.pr, PARAM_ROUTER), 2);
    arena_free(&m.arena);
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
    sound_make(&m, arena_printf(&a, SHARED "%s", states[_i].options));
    const struct bucket *k = expert_bucket(&m.pr);
    const double n = (double)m.pr.buf[k->g].rows;
    ck_assert_double_eq_tol((root_B(&m.pr, k->w) + root_B(&m.pr, k->g)) / n, states[_i].own, 1e-6);
    const double state_B = root_B(&m.pr, k->master) + root_B(&m.pr, k->m) + root_B(&m.pr, k->v);
    ck_assert_double_eq_tol(state_B / n, states[_i].shared / 2, 1e-6);
    arena_free(&m.arena);
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
    sound_make(&m, arena_printf(&a, SHARED "precision %s", row[_i].precision));
    const struct bucket *k = expert_bucket(&m.pr);
    int seen = 0;
    for (int o = 1; o < m.pr.n_op; o++) {
        const struct op *op = &m.pr.op[o];
        if (op->kind != OP_PARAM_GATHER || op->io.add[0] != k->w) continue;
        ck_assert_double_eq(op_work(&m.pr, op, m.pr.even).wire_B, (double)m.pr.buf[k->w].rows * row[_i].bytes / 2);
        seen++;
    }
    ck_assert_int_eq(seen, 1);
    arena_free(&m.arena);
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
    sound_make(&m, paddings[_i].flags);
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
    arena_free(&m.arena);
}
END_TEST

int main(void)
{
    const struct test_loop tests[] = {
        { weights_and_their_copies, LEN(weights) },
        { states_by_option, LEN(states) },
        { gathers_of_primary_weights, 4 },
        { counts_are_padded_by_expert, 0 },
        { padding_costs_memory_and_flop, LEN(paddings) },
    };
    return test_main_loops("precision", NULL, tests, LEN(tests), 120);
}
