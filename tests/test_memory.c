/* What stack mcore-2510 keeps, against published measurements: closed counts of single parts, worked by hand
 * from the sizes of models, counted from buffers and holds of the program. Whole steps: test_peak. */
#include "sim/predict.h"
#include "tests/test.h"

#define MCORE "system b200 stack mcore-2510 vocab-extra 1 "

/* ---- single parts ---- */

/* A block by itself, and which of its buffers backward reads from forward. */
struct part {
    struct arena arena;
    struct job j;
    struct program pr;
    struct flow flow;
};

static void part_open(struct part *p, const char *flags, enum block block)
{
    *p = (struct part){0};
    test_job(&p->j, &p->arena, flags);
    if (block == BLOCK_DENSE && p->j.model.dense_layers > 1) p->j.model.dense_layers = 1;
    program_build_block(&p->pr, &p->arena, &p->j, block);
    flow_init(&p->flow, &p->arena, &p->pr);
}

static int is_kept(const struct part *p, int buf)
{
    const int used = p->flow.used[buf];
    return p->pr.buf[buf].keep == KEEP_MICRO && used & FLOW_FWD && used & (FLOW_BWD_INPUT | FLOW_BWD_WEIGHT);
}

/* Kept bytes that ops of the kinds in `kinds` (0-ended) first write, in ops [from, to). */
static int64_t kept_B(const struct part *p, int from, int to, const enum op_kind *kinds)
{
    int64_t sum = 0;
    for (int i = from; i < to; i++) {
        int wanted = !kinds;
        for (int k = 0; kinds && kinds[k]; k++) wanted |= p->pr.op[i].kind == kinds[k];
        for (int w = 0; w < OP_WRITES && wanted; w++) {
            const int y = p->pr.op[i].io.write[w];
            if (y && is_kept(p, y)) sum += program_B(&p->pr, y);
        }
    }
    return sum;
}

/* The op that norms what goes into the MLP. */
static int second_norm(const struct part *p)
{
    int w = 0;
    for (int i = 0; i < p->pr.n_param; i++)
        if (p->pr.param[i].name == PARAM_MLP_NORM) w = p->pr.param[i].w;
    for (int i = p->pr.chunk[0].fwd; i < p->pr.chunk[0].bwd; i++)
        if (p->pr.op[i].kind == OP_NORM && p->pr.op[i].io.read[1] == w) return i;
    ck_abort_msg("no norm before the MLP");
    return 0;
}

/* The layer's input is attention's, its middle the MLP's; its output belongs to the next one. */
static int64_t attention_B(const struct part *p)
{
    const int norm = second_norm(p), middle = p->pr.op[norm].io.read[0];
    return program_B(&p->pr, p->pr.chunk[0].x_in) + kept_B(p, p->pr.chunk[0].fwd, norm, NULL) -
           program_B(&p->pr, middle);
}

static int64_t mlp_B(const struct part *p)
{
    const int norm = second_norm(p), middle = p->pr.op[norm].io.read[0];
    return program_B(&p->pr, middle) + kept_B(p, norm, p->pr.chunk[0].bwd, NULL);
}

static int64_t layer_B(const char *flags, enum block block)
{
    struct part p;
    part_open(&p, flags, block);
    const int64_t bytes = attention_B(&p) + mlp_B(&p);
    arena_free(&p.arena);
    return bytes;
}

/* What the router leaves: scores, permutation, lists; not the counts of every expert, which are the
 * exchange's. */
static int64_t router_B(const struct part *p)
{
    int64_t sum = 0;
    for (int i = p->pr.chunk[0].fwd; i < p->pr.chunk[0].bwd; i++) {
        const struct op *o = &p->pr.op[i];
        if (o->kind == OP_ROUTE) sum += program_B(&p->pr, o->io.write[0]) + program_B(&p->pr, o->io.write[1]);
        if (o->kind == OP_HOLD && o->io.write[0] && is_kept(p, o->io.write[0]))
            sum += program_B(&p->pr, o->io.write[0]);
    }
    return sum;
}

#define LLAMA MCORE "model llama3-70b gpus 8 gbs 16 seq 4096 "
#define V3 MCORE "model deepseek-v3 mtp 0 gpus 8 ep 8 gbs 8 seq 4096 load padded:cf1 "
#define V2 MCORE "model deepseek-v2 mtp 0 gpus 8 ep 8 gbs 8 seq 4096 load padded:cf1 "

START_TEST(vocabulary)
{
    struct arena a = {0};
    struct job j;
    test_job(&j, &a, LLAMA);
    ck_assert_int_eq(j.plan.vocab_padded, 128384);
    test_job(&j, &a, LLAMA "tp 8");
    ck_assert_int_eq(j.plan.vocab_padded, 129024);
    arena_free(&a);
}
END_TEST

/* 4096 tokens: 2 h (input, norm, middle, norm) + 8 + 2 (nq + 2 nkv) d + 2 nq d + 4 nq + 6 F bytes each, of
 * 70B 274,696. */
START_TEST(dense_layer)
{
    ck_assert_int_eq(layer_B(LLAMA, BLOCK_DENSE), 1125154816);
    ck_assert_int_eq(layer_B(LLAMA "tp 2", BLOCK_DENSE), 562577408);
    ck_assert_int_eq(layer_B(LLAMA "tp 8", BLOCK_DENSE), 140644352);
    /* swapped over cp: attention's output before it goes back too, 16,384 bytes a token */
    ck_assert_int_eq(layer_B(LLAMA "tp 2 cp 4 seq 131072 cp-comm a2a", BLOCK_DENSE), 4769054720);
}
END_TEST

START_TEST(dense_layer_of_405b)
{
    struct part p = {0};
    test_job(&p.j, &p.arena, MCORE "model llama3.1-405b gpus 8 gbs 16 seq 4096");
    p.j.model.kv_heads = 16;
    program_build_block(&p.pr, &p.arena, &p.j, BLOCK_DENSE);
    flow_init(&p.flow, &p.arena, &p.pr);
    ck_assert_int_eq(attention_B(&p) + mlp_B(&p), 2149613568); /* 4096 x 524,808 */
    arena_free(&p.arena);
}
END_TEST

static const struct {
    const char *flags;
    int64_t attention_B, dense_B, rows, moe_B, router_B;
} moe_row[] = {
    /* attention 4096 x 201,356; dense 4096 x (4 x 7168 + 4 + 6 x 18432); rows ceil(4096 x 8 / 256) x 256;
     * experts 4096 x (4 x 7168 + 4 + 6 x 2048) + 32768 x (2 x 7168 + 6 x 2048 + 4);
     * router 4096 x (12 x 256 + 8 x 8 x 2 + 8 x 8 + 4 x 513) + 8 x 32768 */
    {V3, 824754176, 570441728, 32768, 1040334848, 22036480},
    /* 4096 x 193,164; rows ceil(4096 x 6 / 160) x 160; 4096 x (4 x 5120 + 4 + 6 x 3072) + 24640 x (2 x 5120 +
     * 6 x 1536 + 4); 4096 x (12 x 160 + 8 x 8 x 2 + 8 x 6 + 4 x 321) + 8 x 24640 */
    {V2, 791199744, 4096 * (4 * 5120 + 4 + 6 * 12288L), 24640, 638894336, 14041600},
};

START_TEST(latent_attention_and_experts)
{
    struct part p;
    part_open(&p, moe_row[_i].flags, BLOCK_DENSE);
    ck_assert_int_eq(attention_B(&p), moe_row[_i].attention_B);
    ck_assert_int_eq(mlp_B(&p), moe_row[_i].dense_B);
    arena_free(&p.arena);
    part_open(&p, moe_row[_i].flags, BLOCK_MOE);
    ck_assert_int_eq(plan_even_rows(&p.j, 0), moe_row[_i].rows);
    ck_assert_int_eq(attention_B(&p), moe_row[_i].attention_B);
    ck_assert_int_eq(router_B(&p), moe_row[_i].router_B);
    /* beside the table's: counts of the experts, 4 E, and a row's fp32 in whole 512 B */
    const int64_t counts_B = (4 * p.j.model.experts + 511) / 512 * 512, odd_B = moe_row[_i].rows * 4 % 512;
    ck_assert_int_eq(mlp_B(&p),
                     moe_row[_i].moe_B + moe_row[_i].router_B + counts_B + (odd_B ? 512 - odd_B : 0));
    arena_free(&p.arena);
}
END_TEST

/* Per layer of DeepSeek-V3; with a norm goes its one fp32 a row. */
START_TEST(computed_again_or_kept)
{
    const int64_t none = layer_B(V3, BLOCK_MOE), stat = 4096 * 4;
    ck_assert_int_eq(none - layer_B(V3 "recompute mla_up_proj", BLOCK_MOE), 553648128 + 2 * stat);
    ck_assert_int_eq(none - layer_B(V3 "recompute moe_act", BLOCK_MOE), 134217728);
    ck_assert_int_eq(none - layer_B(V3 "recompute layernorm", BLOCK_MOE), 117440512 + 2 * stat);
    ck_assert_int_eq(none - layer_B(V3 "recompute shared_experts", BLOCK_MOE), 4096 * 6 * 2048);
    ck_assert_int_eq(none - layer_B(V3 "recompute core_attn", BLOCK_MOE),
                     4096 * 4 * 128); /* log-sums alone */
    /* all but two of the four 2 h: input and norm */
    ck_assert_int_eq(none - layer_B(V3 "recompute moe", BLOCK_MOE),
                     1040334848 + 22036480 + 1024 - 4096 * (4 * 7168 + 4));
    const int64_t dense = layer_B(LLAMA, BLOCK_DENSE);
    ck_assert_int_eq(layer_B(LLAMA "recompute layernorm", BLOCK_DENSE), dense); /* fused there */
    ck_assert_int_eq(dense - layer_B(LLAMA "recompute mlp", BLOCK_DENSE), 4096 * (2 * 8192 + 4 + 6 * 28672L));
    struct part p;
    part_open(&p, V3, BLOCK_MOE);
    p.j.stack.keep_fc2 = 1;
    program_build_block(&p.pr, &p.arena, &p.j, BLOCK_MOE);
    flow_init(&p.flow, &p.arena, &p.pr);
    ck_assert_int_eq(attention_B(&p) + mlp_B(&p) - none, 469762048);
    arena_free(&p.arena);
}
END_TEST

/* ---- what is kept for ever ---- */

/* Parameters of a stage, by way of sharing. */
static void params_of(int64_t *dense, int64_t *expert, const struct program *pr, int stage)
{
    *dense = *expert = 0;
    for (int i = 0; i < pr->n_param; i++) {
        const struct param *p = &pr->param[i];
        if (p->stage == stage && p->g)
            *(p->batch ? expert : dense) += pr->buf[p->w].rows * pr->buf[p->w].cols;
    }
}

static int64_t forever_B(const struct program *pr, int stage, enum keep keep, enum dtype t)
{
    int64_t sum = 0;
    for (int i = 1; i < pr->n_buf; i++) {
        const struct buf *b = &pr->buf[i];
        if (b->keep == keep && b->stage == stage && !b->view && b->dtype == t) sum += buf_B(b);
    }
    return sum;
}

static int64_t states_B(const struct program *pr, int stage)
{
    return forever_B(pr, stage, KEEP_WEIGHT, DT_BF16) + forever_B(pr, stage, KEEP_GRADIENT, DT_F32) +
           forever_B(pr, stage, KEEP_OPTIMIZER, DT_F32);
}

/* 70B, 6 layers of 855,654,400 and a table of 128,384 x 8192; 9 bytes each at dp 4. DeepSeek-V3, 4 layers of
 * which one is dense, 32 experts of 3 x 7168 x 2048 in each of three: 7.5 bytes shared by 8, 18 of one rank's
 * own. */
START_TEST(states)
{
    struct arena a = {0};
    struct job j;
    struct program pr;
    int64_t dense, expert;
    test_job_cut(&j, &a, LLAMA "pp 2", 12, -1);
    program_build(&pr, &a, &j);
    params_of(&dense, &expert, &pr, 0);
    ck_assert_int_eq(dense, 6 * 855654400L + 128384 * 8192L);
    ck_assert_int_eq(dense, 6185648128);
    ck_assert_int_eq(states_B(&pr, 0), 55670833152);
    test_job_cut(&j, &a, V3, 4, 1);
    program_build(&pr, &a, &j);
    params_of(&dense, &expert, &pr, 0);
    ck_assert_int_eq(dense, 3137674240);
    ck_assert_int_eq(expert, 4227858432);
    ck_assert_int_eq(states_B(&pr, 0), 99634008576);
    arena_free(&a);
}
END_TEST

/* Of bf16: dummy weight gradients, one a shape; of int32: workspaces. */
static void caches(int64_t *dummy_B, int64_t *workspace_B, const char *flags, int layers, int dense,
                   int stage)
{
    struct arena a = {0};
    struct job j;
    struct program pr;
    test_job_cut(&j, &a, flags, layers, dense);
    j.stack.rope_cache = j.stack.hold_pipeline = j.stack.output_gather = 0;
    program_build(&pr, &a, &j);
    *dummy_B = forever_B(&pr, stage, KEEP_CACHE, DT_BF16);
    *workspace_B = forever_B(&pr, stage, KEEP_CACHE, DT_I32);
    arena_free(&a);
}

START_TEST(dummy_gradients_and_workspaces)
{
    const int64_t own = 33555456, framework = 2 * 8519680;
    int64_t dummy_B, workspace_B;
    caches(&dummy_B, &workspace_B, LLAMA "pp 2", 12, -1, 0);
    ck_assert_int_eq(dummy_B, 1711276032); /* 2 x 8192 x (10240 + 8192 + 57344 + 28672) */
    ck_assert_int_eq(workspace_B, own);
    caches(&dummy_B, &workspace_B, LLAMA "pp 2", 12, -1, 1);
    ck_assert_int_eq(dummy_B, 3814719488); /* and 2 x 128384 x 8192 */
    ck_assert_int_eq(workspace_B, own + framework);
    caches(&dummy_B, &workspace_B, LLAMA "tp 8", 12, -1, 0);
    ck_assert_int_eq(dummy_B, 478150656);
    caches(&dummy_B, &workspace_B, V3, 4, 1, 0);
    ck_assert_int_eq(dummy_B, 3110207488); /* shared and routed experts have the same shapes */
    ck_assert_int_eq(workspace_B, 5 * own + framework);
}
END_TEST

static int64_t cache_of(const char *flags, int layers, enum dtype t, int64_t rows, int cols)
{
    struct arena a = {0};
    struct job j;
    struct program pr;
    int64_t bytes = 0;
    test_job_cut(&j, &a, flags, layers, -1);
    program_build(&pr, &a, &j);
    for (int i = 1; i < pr.n_buf; i++) {
        const struct buf *b = &pr.buf[i];
        if (b->keep == KEEP_CACHE && b->dtype == t && b->rows == rows && b->cols == cols) bytes += buf_B(b);
    }
    arena_free(&a);
    return bytes;
}

START_TEST(tables_and_gathered_input)
{
    ck_assert_int_eq(cache_of(LLAMA "tp 2", 2, DT_BF16, 4096, 8192), 67108864); /* for the output layer */
    ck_assert_int_eq(cache_of(LLAMA "cp 4 seq 131072", 2, DT_F32, 32768, 128),
                     16777216); /* one for all layers */
    ck_assert_int_eq(cache_of(V3, 1, DT_F32, 4096, 64) + cache_of(V3, 1, DT_BF16, 4096, 128), 2097152);
    ck_assert_int_eq(cache_of(V3, 2, DT_F32, 4096, 64) + cache_of(V3, 2, DT_BF16, 4096, 128), 2 * 2097152);
}
END_TEST

/* Logits of 70B, 2 x 128384 x 4096; an fp32 gradient beside them from TransformerEngine 2.18 on. */
START_TEST(cross_entropy)
{
    struct part p = {0};
    test_job(&p.j, &p.arena, LLAMA);
    for (int how = CROSS_ENTROPY_SPLIT; how <= CROSS_ENTROPY_FP32_GRAD; how++) {
        p.j.stack.cross_entropy = how;
        program_build_block(&p.pr, &p.arena, &p.j, BLOCK_LOSS);
        flow_init(&p.flow, &p.arena, &p.pr);
        const int from = p.pr.chunk[0].fwd, to = p.pr.chunk[0].bwd;
        ck_assert_int_eq(kept_B(&p, from, to, (enum op_kind[]){OP_GEMM, 0}), 1051721728);
        const int64_t wide_B = how == CROSS_ENTROPY_FP32_GRAD ? 2103443456 : 0,
                      loss_B = how == CROSS_ENTROPY_SPLIT ? 0 : 4 * 4096;
        ck_assert_int_eq(kept_B(&p, from, to, (enum op_kind[]){OP_HOLD, 0}), wide_B + loss_B);
    }
    arena_free(&p.arena);
}
END_TEST

/* ---- in flight ---- */

static int most_in_flight(const struct program *pr, int stage)
{
    int now = 0, most = 0;
    for (int k = 0; k < pr->n_step[stage]; k++) {
        const int kind = pr->pass[pr->step[stage][k].pass].kind;
        now += (kind == PASS_FWD) - (kind == PASS_BWD || kind == PASS_BWD_LAST);
        most = now > most ? now : most;
    }
    return most;
}

START_TEST(micro_batches_in_flight)
{
    static const struct {
        const char *flags;
        int n[4];
    } row[] = {
        {"system b200 stack mcore-2510 model llama3-8b gpus 4 pp 4 gbs 8 seq 4096", {4, 3, 2, 1}},
        {"system b200 stack mcore-2510 model llama3-8b gpus 4 pp 4 vpp 4 gbs 16 seq 4096", {19, 17, 15, 13}},
    };
    for (int i = 0; i < LEN(row); i++) {
        struct arena a = {0};
        struct job j;
        struct program pr;
        test_job(&j, &a, row[i].flags);
        program_build(&pr, &a, &j);
        for (int s = 0; s < 4; s++) ck_assert_int_eq(most_in_flight(&pr, s), row[i].n[s]);
        arena_free(&a);
    }
}
END_TEST

int main(void)
{
    const struct test_loop tests[] = {
        { vocabulary, 0 },
        { dense_layer, 0 },
        { dense_layer_of_405b, 0 },
        { latent_attention_and_experts, LEN(moe_row) },
        { computed_again_or_kept, 0 },
        { states, 0 },
        { dummy_gradients_and_workspaces, 0 },
        { tables_and_gathered_input, 0 },
        { cross_entropy, 0 },
        { micro_batches_in_flight, 0 },
    };
    return test_main_loops("memory", NULL, tests, LEN(tests), 120);
}
