/* Parameters and gradients cut over their replicas (plan.fsdp): bytes by hand, memory with and without,
 * units and their turns, what a plan may not ask; and that both clocks and both counts of memory agree on
 * such programs. */
#include "tests/sound.h"

/* Wire bytes of all ops of a kind and group, and how many there are. */
static double wire_of(const struct program *pr, enum op_kind kind, enum group g, int *n)
{
    double wire_B = 0;
    *n = 0;
    for (int i = 1; i < pr->n_op; i++) {
        if (pr->op[i].kind != kind || pr->op[i].group != g) continue;
        wire_B += op_work(pr, &pr->op[i], pr->even).wire_B;
        ++*n;
    }
    return wire_B;
}

#define DENSE "model llama3-70b layers 3 system h100-sxm stack mcore-2510 gpus 8 gbs 16 seq 4096 "
/* h (64 + 16) 128 + h h + 3 h 28672 + 2 h, h = 8192; 128384 rows of vocabulary at tp 1, twice, and a norm. */
static const double LAYER = 855654400, TABLE = 128256.0 * 8192, HEAD = 128256.0 * 8192 + 8192;

/* A micro-batch gathers a layer before forward and before backward, the table and the head once;
 * everything is reduced once, in fp32. 7 of 8 parts of a buffer pass a rank. */
START_TEST(bytes_of_a_dense_model)
{
    struct made m;
    int gathers, scatters, none;
    sound_make(&m, DENSE "fsdp 1");
    const double gathered_B = wire_of(&m.pr, OP_GATHER, GROUP_DPCP, &gathers);
    const double reduced_B = wire_of(&m.pr, OP_SCATTER_ADD, GROUP_DPCP, &scatters);
    ck_assert_int_eq(gathers, 3 + 3 + 2);
    ck_assert_int_eq(scatters, 3 + 2);
    ck_assert_double_eq_tol(gathered_B, (6 * LAYER + TABLE + HEAD) * 2 * 7 / 8, 1);
    ck_assert_double_eq_tol(reduced_B, (3 * LAYER + TABLE + HEAD) * 4 * 7 / 8, 1);
    wire_of(&m.pr, OP_PARAM_GATHER, GROUP_DPCP, &none);
    ck_assert_int_eq(none, 0);
    wire_of(&m.pr, OP_GRAD_SCATTER, GROUP_DPCP, &none);
    ck_assert_int_eq(none, 0);
    /* gbs 16 on 8 ranks: two micro-batches */
    ck_assert_double_eq_tol(m.r.lines.group_B[GROUP_DPCP], 2 * (gathered_B + reduced_B), 4);
    arena_free(&m.arena);
}
END_TEST

static double kept_B(const struct program *pr, enum keep keep)
{
    double sum_B = 0;
    for (int i = 1; i < pr->n_buf; i++)
        if (pr->buf[i].keep == keep && !pr->buf[i].view) sum_B += (double)buf_B(&pr->buf[i]);
    return sum_B;
}

/* For ever: 2 + 4 + 12 bytes of an eighth of the parameters. While layers run, on top of their
 * activations: two layers gathered, the gradients of two, and table or head. */
START_TEST(memory_of_a_dense_model)
{
    struct made with, without;
    const double all = 3 * LAYER + TABLE + HEAD;
    sound_make(&with, DENSE "fsdp 1");
    sound_make(&without, DENSE);
    ck_assert_double_eq_tol(kept_B(&with.pr, KEEP_WEIGHT), all / 8 * 2, 64);
    ck_assert_double_eq_tol(kept_B(&with.pr, KEEP_GRADIENT), all / 8 * 4, 64);
    ck_assert_double_eq_tol(kept_B(&with.pr, KEEP_OPTIMIZER), all / 8 * 12, 256);
    ck_assert_double_eq_tol(kept_B(&without.pr, KEEP_WEIGHT), all * 2, 64);
    ck_assert_double_eq_tol(kept_B(&without.pr, KEEP_GRADIENT), all * 4, 64);
    ck_assert_double_eq_tol(kept_B(&without.pr, KEEP_OPTIMIZER), all / 8 * 12, 256);
    const double saved_B = all * 6 * 7 / 8;
    ck_assert_double_lt(with.r.live_B, without.r.live_B - saved_B + 2 * LAYER * 6 + (TABLE + HEAD) * 6 + 1);
    ck_assert_double_gt(with.r.live_B, without.r.live_B - saved_B);
    arena_free(&with.arena);
    arena_free(&without.arena);
}
END_TEST

/* Of buffers that some op writes and that live within a micro-batch: those as large as a layer's
 * parameters. */
static int buffers_of(const struct program *pr, double elements, enum dtype t)
{
    char *used = calloc((size_t)pr->n_buf, 1);
    int n = 0;
    for (int i = 1; i < pr->n_op; i++)
        for (int w = 0; w < OP_WRITES; w++)
            if (pr->op[i].io.write[w]) used[program_root(pr, pr->op[i].io.write[w])] = 1;
    for (int i = 1; i < pr->n_buf; i++)
        n += used[i] && pr->buf[i].keep == KEEP_MICRO && pr->buf[i].cols == 1 && pr->buf[i].dtype == t &&
             fabs((double)pr->buf[i].rows - elements) < 8;
    free(used);
    return n;
}

/* Two buffers a half for weights, two for gradients, however many layers there are. */
START_TEST(units_take_turns)
{
    struct made m;
    sound_make(&m, "model llama3-70b layers 7 system h100-sxm stack mcore-2510 gpus 8 gbs 8 seq 4096 fsdp 1");
    ck_assert_int_eq(buffers_of(&m.pr, LAYER, DT_BF16), 4);
    ck_assert_int_eq(buffers_of(&m.pr, LAYER, DT_F32), 2);
    arena_free(&m.arena);
}
END_TEST

#define EXPERTS "model qwen3-30b-a3b layers 2 system h100-sxm stack mcore-2510 gbs 16 seq 4096 fsdp 1 "
/* Experts are cut over edp, the rest over dp x cp; a group of one cuts nothing. tp parts what is gathered. */
START_TEST(experts_over_their_own_replicas)
{
    const double expert = 3.0 * 2048 * 768, experts = 128 / 4 * expert;         /* of a layer, ep 4 */
    struct made m;
    int gathers, scatters;
    sound_make(&m, EXPERTS "gpus 16 tp 2 ep 4");
    ck_assert_double_eq_tol(wire_of(&m.pr, OP_GATHER, GROUP_EDP, &gathers), 4 * experts * 2 * 3 / 4, 1);
    ck_assert_double_eq_tol(wire_of(&m.pr, OP_SCATTER_ADD, GROUP_EDP, &scatters), 2 * experts * 4 * 3 / 4, 1);
    ck_assert_int_eq(gathers, 4);
    ck_assert_int_eq(scatters, 2);
    arena_free(&m.arena);
    sound_make(&m, EXPERTS "gpus 8 ep 8");
    wire_of(&m.pr, OP_GATHER, GROUP_EDP, &gathers);
    ck_assert_int_eq(gathers, 0);
    wire_of(&m.pr, OP_GATHER, GROUP_DPCP, &gathers);
    ck_assert_int_eq(gathers, 4 + 2);
    arena_free(&m.arena);
}
END_TEST

/* fp8 weights are gathered as they are, at a byte; those that are sent as bf16 at two. */
START_TEST(low_precision)
{
    static const struct { const char *precision; double low_B; } row[] = {
        { "fp8-cs", 1 }, { "mxfp8", 2 }, { "bf16", 2 },
    };
    for (int i = 0; i < LEN(row); i++) {
        struct arena text = { 0 };
        struct made m;
        int n;
        sound_make(&m, arena_printf(&text, "model llama3-70b layers 3 system gb200-nvl72 gpus 8 gbs 8 seq 4096 "
                                           "fsdp 1 precision %s fp8-param-gather %d", row[i].precision, i < 2));
        const double norms = 2 * 8192, low = LAYER - norms;
        ck_assert_double_eq_tol(wire_of(&m.pr, OP_GATHER, GROUP_DPCP, &n),
                                (6 * low * row[i].low_B + (6 * norms + TABLE + HEAD) * 2) * 7 / 8, 1);
        arena_free(&m.arena);
        arena_free(&text);
    }
}
END_TEST

/* ---- soundness ---- */

static const char *const sound[] = {
    "model tiny-moe gpus 8 gbs 16",
    "model tiny-moe gpus 8 ep 4 gbs 16 recompute full",
    "model tiny-moe gpus 16 tp 2 pp 2 ep 2 gbs 32",
    "model tiny-moe gpus 16 tp 2 etp 2 ep 2 cp 2 gbs 16 recompute moe_act+layernorm",
    "model tiny-moe gpus 8 pp 2 vpp 2 ep 2 gbs 32",
    "model tiny-moe gpus 8 pp 2 vpp 2 ep 2 gbs 32 ep-overlap 1",
    "model tiny-moe gpus 8 ep 4 gbs 32 ep-overlap 1 dispatcher deepep",
    "model llama3-8b layers 5 gpus 8 tp 2 gbs 8 precision fp8-cs fp8-param-gather 1",
    "model llama3-8b layers 4 gpus 8 gbs 8 precision fp8-block",
    "model deepseek-v3 layers 5 gpus 16 ep 8 gbs 32 precision fp8-cs",
    "model deepseek-v3 layers 5 gpus 32 pp 2 ep 8 gbs 64",
    "model gpt-oss-20b layers 4 gpus 8 ep 2 gbs 8 optimizer sgd",
    "model nemotron3-nano-30b-a3b gpus 8 ep 4 gbs 8",
};

START_TEST(programs_are_sound)
{
    struct arena text = { 0 };
    struct made m;
    sound_make(&m, arena_printf(&text, "system h100-sxm stack %s seq 256 fsdp 1 %s",
                                _i % 2 ? "mcore-2510" : "mcore-2608", sound[_i]));
    sound_check(&m, sound[_i]);
    arena_free(&m.arena);
    arena_free(&text);
}
END_TEST

/* Also where passes are far from the step's end, and links are what everything waits for. */
START_TEST(slow_links_are_sound)
{
    static const char *const flags[] = {
        "model llama3-8b layers 5 system h100-sxm gpus 8 gbs 96 seq 512 fsdp 1",
        "model tiny-moe system h100-sxm gpus 16 pp 2 ep 4 gbs 192 seq 256 fsdp 1",
    };
    for (int i = 0; i < LEN(flags); i++)
        for (int slow = 1; slow <= 100; slow *= 10) {
            struct made m;
            sound_make(&m, flags[i]);
            m.j.system.nvlink_B_per_s /= slow;
            m.j.system.nic_B_per_s /= slow;
            predict_job(&m.r, &m.pr, &m.arena, &m.j);
            sound_check(&m, flags[i]);
            arena_free(&m.arena);
        }
}
END_TEST

START_TEST(slower_ops_never_help)
{
    struct made m;
    sound_make(&m, "model tiny-moe system h100-sxm gpus 16 tp 2 pp 2 ep 2 gbs 32 seq 256 fsdp 1");
    sound_monotone(&m);
    arena_free(&m.arena);
}
END_TEST

/* ---- what is refused ---- */

START_TEST(refusals)
{
    static const char *const split[] = { "fsdp 1", "split-wgrad 1", "set one", NULL };
    struct arena a = { 0 };
    struct job j;
    struct diag d;
    test_job(&j, &a, "model tiny-moe system h100-sxm gpus 8 gbs 8 seq 64 fsdp 1");
    j.stack.fsdp = 0;
    ck_assert_int_eq(plan_check(&j, &d), ERR_CONFIG);
    ck_assert_msg(strstr(d.text, "fsdp 1 is not offered by stack mcore-2510") != NULL, "%s", d.text);
    arena_free(&a);
    sound_refused("model tiny-moe system h100-sxm gpus 8 gbs 8 seq 64 fsdp 1 split-wgrad 1", split);
}
END_TEST

int main(void)
{
    const struct test_loop tests[] = {
        { bytes_of_a_dense_model, 0 },
        { memory_of_a_dense_model, 0 },
        { units_take_turns, 0 },
        { experts_over_their_own_replicas, 0 },
        { low_precision, 0 },
        { programs_are_sound, LEN(sound) },
        { slow_links_are_sound, 0 },
        { slower_ops_never_help, 0 },
        { refusals, 0 },
    };
    return test_main_loops("shard", NULL, tests, LEN(tests), 120);
}
