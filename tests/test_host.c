/* The host: what stacks named after Megatron-Core launch, and what CUDA graphs take from it. Counts reach the
 * prices; captured ops launch nothing and their memory is a line; a capture that would hold the host's read of
 * routed row counts is refused (case E06); a slower host never makes a faster step. */
#include "models/unroll.h"
#include "sim/search.h"
#include "tests/test.h"
#include <math.h>

#define EAGER "model qwen3-30b-a3b layers 4 system h100-sxm gpus 8 ep 8 gbs 32 seq 4096 stack mcore-2510 "
#define SCOPES "cuda-graph attn+moe_router+moe_preprocess "

struct made { struct arena a; struct job j; struct program pr; struct cost c; };

/* Prices of its own, so that a calibration of the files changes nothing here. */
static void make(struct made *m, const char *flags)
{
    memset(m, 0, sizeof *m);
    test_job(&m->j, &m->a, flags);
    m->j.system.issue_s = 5e-6;
    m->j.system.call_s = 12e-6;
    m->j.system.graph_s = 10e-6;
    m->j.stack.step_s = 0;
    program_build(&m->pr, &m->a, &m->j);
    cost_init(&m->c, &m->pr, &m->j);
}

static int op_of(const struct program *pr, enum op_kind kind)
{
    for (int i = 1; i < pr->n_op; i++)
        if (pr->op[i].kind == kind) return i;
    ck_abort_msg("no %s", op_name(kind));
    return 0;
}

static double step_s(const struct job *j)
{
    struct arena a = { 0 };
    struct predict r;
    predict_job(&r, NULL, &a, j);
    const double s = r.step_s;
    arena_free(&a);
    return s;
}

/* ---- counts ---- */

/* By hand: 8 launches of 5 us and 12 calls of 12 us; 1 + 16 and 6 + 16 x 0.2. */
START_TEST(counts_reach_the_host)
{
    struct made m;
    make(&m, EAGER);
    ck_assert_double_eq_tol(cost_issue_s(&m.c, op_of(&m.pr, OP_ROUTE)), 8 * 5e-6 + 12 * 12e-6, 1e-12);
    ck_assert_double_eq_tol(cost_issue_s(&m.c, op_of(&m.pr, OP_GROUPED_GEMM)), 17 * 5e-6 + 9.2 * 12e-6, 1e-12);
    ck_assert_double_eq(cost_kernels(&m.c, op_of(&m.pr, OP_SIZES)), 10);
    m.j.stack.launch[OP_ROUTE].kernels = 0;         /* not counted: the stack's units */
    ck_assert_double_eq_tol(cost_issue_s(&m.c, op_of(&m.pr, OP_ROUTE)), 2 * 5e-6, 1e-12);
    m.j.system.call_s = 0;                          /* a call like a launch */
    ck_assert_double_eq_tol(cost_issue_s(&m.c, op_of(&m.pr, OP_ADD)), 3 * 5e-6, 1e-12);
    arena_free(&m.a);
}
END_TEST

/* An op that is many kernels takes the floor of each; a grouped product has its experts' floors already. */
START_TEST(kernels_have_floors)
{
    struct made m;
    make(&m, EAGER);
    const int route = op_of(&m.pr, OP_ROUTE), sizes = op_of(&m.pr, OP_SIZES), grouped = op_of(&m.pr, OP_GROUPED_GEMM);
    const double was_s = cost_op_s(&m.c, route, m.pr.even), grouped_s = cost_op_s(&m.c, grouped, m.pr.even);
    ck_assert(was_s >= 8 * m.j.system.kernel_s);
    ck_assert(cost_op_s(&m.c, sizes, m.pr.even) >= 10 * m.j.system.kernel_s);
    m.j.stack.launch[OP_ROUTE].kernels = 30;
    m.j.stack.launch[OP_GROUPED_GEMM].kernels = 30;
    ck_assert_double_eq_tol(cost_op_s(&m.c, route, m.pr.even) - was_s, 22 * m.j.system.kernel_s, 1e-12);
    ck_assert_double_eq(cost_op_s(&m.c, grouped, m.pr.even), grouped_s);
    arena_free(&m.a);
}
END_TEST

/* Every kind that the builder emits for these stacks is counted. */
START_TEST(every_kind_is_counted)
{
    static const char *const plan[] = {
        EAGER "tp 2 dispatcher hybridep", EAGER "dispatcher allgather",
        "model deepseek-v3 layers 4 system gb200-nvl72 gpus 16 pp 2 ep 8 gbs 32 seq 4096 precision mxfp8 "
        "stack mcore-2608",
        "model nemotron3-nano-30b-a3b system b200 gpus 8 ep 8 gbs 8 seq 4096",
        "model gpt3-175b layers 4 system a100-sxm gpus 16 tp 4 pp 2 cp 2 cp-comm a2a gbs 16 seq 2048" };
    for (int p = 0; p < LEN(plan); p++) {
        struct made m;
        make(&m, plan[p]);
        for (int i = 1; i < m.pr.n_op; i++) {
            const enum op_kind kind = (enum op_kind)m.pr.op[i].kind;
            ck_assert_msg(kind == OP_HOLD || m.j.stack.launch[kind].kernels > 0, "%s: %s", plan[p], op_name(kind));
        }
        arena_free(&m.a);
    }
}
END_TEST

/* ---- who waits for row counts ---- */

static int reads(const char *flags)
{
    struct made m;
    int n = 0;
    make(&m, flags);
    for (int i = 1; i < m.pr.n_op; i++) n += (m.pr.op[i].flags & OP_HOST_READS) != 0;
    arena_free(&m.a);
    return n;
}

/* Once a layer, forward; not where rows are static or have a budget on the device. */
START_TEST(the_host_reads_counts)
{
    ck_assert_int_eq(reads(EAGER), 4);
    ck_assert_int_eq(reads(EAGER "dispatcher deepep"), 4);
    ck_assert_int_eq(reads(EAGER "dispatcher hybridep"), 4);
    ck_assert_int_eq(reads(EAGER "recompute selective:moe"), 8);
    ck_assert_int_eq(reads(EAGER "ep 1"), 4);
    ck_assert_int_eq(reads(EAGER "load padded:cf1"), 0);
    ck_assert_int_eq(reads(EAGER "ep 1 load padded:cf1"), 0);
    ck_assert_int_eq(reads(EAGER "dispatcher hybridep capacity 1.5"), 0);
    ck_assert_int_eq(reads(EAGER "capacity 1.5"), 4);
    ck_assert_int_eq(reads(EAGER SCOPES), 4);
    ck_assert_int_eq(reads("model llama3-8b system b200 gpus 8 gbs 8 seq 4096 cuda-graph full"), 0);
    ck_assert_int_eq(reads("model tiny-moe system host stack moefold gpus 2 gbs 4 seq 64"), 0);
}
END_TEST

/* ---- graphs ---- */

static double issue_s(const struct made *m, int graph)
{
    double s = 0;
    for (int i = 1; i < m->pr.n_op; i++)
        if (graph < 0 || m->pr.op[i].graph == graph) s += cost_issue_s(&m->c, i);
    return s;
}

static int count(const struct made *m, enum op_graph graph, enum half half)
{
    int n = 0;
    for (int i = 1; i < m->pr.n_op; i++) n += m->pr.op[i].graph == graph && m->pr.op[i].half == half;
    return n;
}

/* One graph a layer and half for modules that follow each other; inside only the copy of the counts is left. */
START_TEST(scopes_take_launches)
{
    struct made eager, m;
    make(&eager, EAGER);
    make(&m, EAGER SCOPES);
    const double one_s = 10e-6 + 2 * 5e-6 + 3 * 12e-6;
    ck_assert_int_eq(count(&m, OP_GRAPH_FIRST, HALF_FWD), 4);
    ck_assert_int_eq(count(&m, OP_GRAPH_FIRST, HALF_BWD), 4);
    ck_assert_int_eq(count(&m, OP_GRAPH_INPUT, HALF_FWD), 4);
    ck_assert_double_eq_tol(issue_s(&m, OP_GRAPH_FIRST), 8 * one_s, 1e-12);
    ck_assert_double_eq_tol(issue_s(&m, OP_GRAPH_INSIDE), 4 * 17e-6, 1e-12);
    ck_assert_msg(issue_s(&m, -1) < 0.7 * issue_s(&eager, -1), "%g of %g", issue_s(&m, -1), issue_s(&eager, -1));
    for (int i = 1; i < m.pr.n_op; i++) {
        const struct op *o = &m.pr.op[i];
        const int experts = op_family((enum op_kind)o->kind) == FAMILY_GROUPED || o->stream == STREAM_EP;
        ck_assert_msg(o->kind == OP_GATHER || !experts || !o->graph, "%s", op_name((enum op_kind)o->kind));
        ck_assert(op_family((enum op_kind)o->kind) != FAMILY_ATTENTION || o->graph);
    }
    arena_free(&eager.a);
    arena_free(&m.a);
}
END_TEST

/* Of the whole step, only what comes once a step is launched. */
START_TEST(full_launches_nothing)
{
    struct made m;
    make(&m, EAGER "dispatcher hybridep capacity 1.5 cuda-graph full");
    for (int i = 1; i < m.pr.n_op; i++)
        if (m.pr.op[i].half != HALF_STEP && !(m.pr.op[i].flags & OP_REDUCE))
            ck_assert_double_eq(cost_issue_s(&m.c, i), 0);
    ck_assert(issue_s(&m, OP_GRAPH_NONE) > 0);
    arena_free(&m.a);
}
END_TEST

/* The parts of the answer: exposed host time; a place for each input in flight, in the overhead. */
START_TEST(lines_of_the_answer)
{
    struct made m;
    struct predict r, s;
    make(&m, EAGER "mbs 1");
    m.j.system.call_s = 100e-6;
    predict_job(&r, NULL, &m.a, &m.j);
    ck_assert(r.lines.host_s > 0.2 * r.step_s);
    ck_assert_double_eq(r.stage[0].graphs_B, 0);
    test_job(&m.j, &m.a, EAGER SCOPES "mbs 1");
    m.j.system.call_s = 100e-6;
    predict_job(&s, NULL, &m.a, &m.j);
    ck_assert(s.step_s < r.step_s && s.lines.host_s < r.lines.host_s);
    ck_assert_double_eq(s.stage[0].graphs_B, 4 * 4096.0 * 2048 * 2);
    const struct predict_stage *p = &s.stage[0];
    const double program_B = p->params_B + p->grads_B + p->optimizer_B + p->activations_B + p->buffers_B;
    ck_assert_double_eq_tol(program_B + p->overhead_B, p->peak_B, 1);
    ck_assert_double_eq_tol(s.live_B - r.live_B, p->graphs_B, 1);
    arena_free(&m.a);
}
END_TEST

static const char *const plans[] = {
    EAGER, EAGER SCOPES "recompute selective:moe_act", EAGER SCOPES "ep-overlap 1", EAGER "dispatcher deepep",
    "model deepseek-v3 layers 8 system gb200-nvl72 gpus 16 pp 2 vpp 2 ep 8 gbs 32 seq 4096 " SCOPES,
    "model deepseek-v3 layers 8 system gb200-nvl72 gpus 16 pp 2 ep 8 gbs 32 seq 4096 split-wgrad 1 " SCOPES,
    "model deepseek-v3 layers 8 system gb200-nvl72 gpus 16 pp 4 ep 4 gbs 32 seq 4096 "
    "load padded:cf1 cuda-graph full",
    "model nemotron3-nano-30b-a3b system b200 gpus 8 ep 8 gbs 8 seq 4096 cuda-graph attn+mamba+moe_router",
    "model llama3-8b system b200 gpus 8 tp 2 gbs 8 seq 4096 recompute full cuda-graph full-layer",
    EAGER "ep 1", EAGER SCOPES "dispatcher allgather",
};

/* A host that is slower anywhere never makes the step shorter. */
START_TEST(a_slower_host_is_never_faster)
{
    struct made m;
    make(&m, plans[_i]);
    double *const time[] = { &m.j.system.issue_s, &m.j.system.call_s, &m.j.system.graph_s,
                             &m.j.stack.launch[OP_ROUTE].calls, &m.j.stack.launch[OP_SIZES].kernels,
                             &m.j.stack.launch[OP_GROUPED_WGRAD].each, &m.j.stack.launch[OP_NORM].each_call, &m.j.stack.replay.calls };
    double before_s = step_s(&m.j);
    for (int i = 0; i < LEN(time); i++) {
        *time[i] = 4 * *time[i] + 1e-6;
        const double now_s = step_s(&m.j);
        ck_assert_msg(now_s >= before_s * (1 - 1e-12), "%s: %d: %.9g after %.9g", plans[_i], i, now_s, before_s);
        before_s = now_s;
    }
    arena_free(&m.a);
}
END_TEST

START_TEST(programs_are_sound)
{
    struct made m;
    struct diag d = { "" };
    make(&m, plans[_i]);
    struct unroll *u = arena_alloc(&m.a, (size_t)m.pr.n_stage * sizeof *u);
    const int sound = unroll_all(u, &m.a, &m.pr, &d) == OK && unroll_check(u, &m.pr, 0, &d) == OK;
    ck_assert_msg(sound, "%s: %s", plans[_i], d.text);
    struct trace t;
    struct sim_result r;
    const double *op_s = cost_all_s(&m.c, &m.a);
    sim_sweep(&t, &m.a, &m.c, u, NULL, 0);
    sim_step(&r, &m.a, &m.c, op_s, pass_price_all(&m.c, op_s, &m.a));
    int64_t last_ns = 0;
    for (int64_t i = 0; i < t.n; i++) last_ns = t.span[i].t1_ns > last_ns ? t.span[i].t1_ns : last_ns;
    ck_assert_int_le(llabs(last_ns - trace_ns(r.step_s)), 2);
    arena_free(&m.a);
}
END_TEST

/* ---- what is refused ---- */

/* said NULL: accepted; else refused in those words. */
static void judge(const char *flags, const char *const said[])
{
    struct arena a = { 0 };
    struct job j;
    struct diag d = { 0 };
    const enum err e = test_job_try(&j, &a, flags, &d);
    ck_assert_msg((e == OK) == !said, "%s: %d %s", flags, e, d.text);
    if (said) ck_assert_msg(e == ERR_CONFIG && test_has(d.text, said), "%s: %s", flags, d.text);
    arena_free(&a);
}

/* Case E06. A budget that a rank overflows is the run's to detect (capacity: README of exec). */
START_TEST(captures_of_routed_shapes)
{
    static const char *const host[] = { "--cuda-graph", "host's read of routed row counts", "alltoall",
                                        "load dropless:balanced", "attn+moe_router+moe_preprocess",
                                        "hybridep with a capacity", NULL };
    static const char *const budget[] = { "cuda-graph full", "capacity 0", NULL };
    static const char *const deepep[] = { "cuda-graph full", "deepep", NULL };
    static const char *const layer[] = { "cuda-graph full-layer", NULL }, *const moe[] = { "cuda-graph moe ", NULL };
    judge(EAGER "cuda-graph full", host);
    judge(EAGER "cuda-graph full-layer", layer);
    judge(EAGER "cuda-graph attn+moe", moe);
    judge(EAGER "cuda-graph attn", NULL);
    judge(EAGER SCOPES, NULL);
    judge(EAGER "load padded:cf1 cuda-graph full", NULL);
    judge(EAGER "load padded:cf1 cuda-graph attn+moe", NULL);
    judge(EAGER "dispatcher hybridep capacity 1.5 cuda-graph full", NULL);
    judge(EAGER "dispatcher hybridep cuda-graph full", budget);
    judge(EAGER "dispatcher deepep capacity 1.5 cuda-graph full", deepep);
    judge("model llama3-8b system b200 gpus 8 gbs 8 seq 4096 cuda-graph full", NULL);
}
END_TEST

/* A search captures all modules that it may, unless it is told what. */
START_TEST(a_search_captures_modules)
{
    static const struct { const char *flags; int graph; } ask[] = {
        { EAGER, 1 << GRAPH_ATTN | 1 << GRAPH_MLP | 1 << GRAPH_MOE_ROUTER | 1 << GRAPH_MOE_PREPROCESS },
        { EAGER "cuda-graph none", 0 },
        { EAGER "cuda-graph attn", 1 << GRAPH_ATTN },
        { "model llama3-8b system b200 gpus 8 gbs 8 seq 4096", 1 << GRAPH_ATTN | 1 << GRAPH_MLP },
        { "model tiny-moe system host stack moefold gpus 2 gbs 4 seq 64", 0 },
    };
    for (int i = 0; i < LEN(ask); i++) {
        struct arena a = { 0 };
        struct search_result r;
        struct search_ask asked = { .top = 1, .simulate = 5 };
        struct job *j = arena_alloc(&a, sizeof *j);
        struct diag d = { "" };
        test_job_open(j, &a, asked.fixed, ask[i].flags);
        ck_assert_msg(search_run(&r, &a, j, &asked, &d) == OK, "%s: %s", ask[i].flags, d.text);
        ck_assert_int_eq(r.hit[0].plan.graph, ask[i].graph);
        arena_free(&a);
    }
}
END_TEST

START_TEST(scopes_fit_model_and_stack)
{
    static const char *const alone[] = { "full holds every other scope", NULL };
    static const char *const none[] = { "has none", "llama3-8b", NULL };
    static const char *const mamba[] = { "mamba", "no such layers", NULL };
    static const char *const router[] = { "add moe_router", NULL }, *const twice[] = { "give either", NULL };
    static const char *const offer[] = { "not offered by stack moefold", NULL };
    judge("model llama3-8b system b200 gpus 8 gbs 8 seq 4096 cuda-graph attn+full", alone);
    judge("model llama3-8b system b200 gpus 8 gbs 8 seq 4096 cuda-graph moe_router", none);
    judge(EAGER "cuda-graph attn+mamba", mamba);
    judge(EAGER "cuda-graph attn+moe_preprocess", router);
    judge(EAGER "load padded:cf1 cuda-graph moe+moe_router", twice);
    judge(EAGER "stack moefold cuda-graph attn", offer);
    judge(EAGER "cuda-graph none", NULL);
}
END_TEST

int main(void)
{
    TCase *loops = tcase_create("loops");
    Suite *suite = suite_create("host");
    SRunner *runner = srunner_create(suite);
    const TTest *const tests[] = { counts_reach_the_host, kernels_have_floors, every_kind_is_counted,
                                   the_host_reads_counts, scopes_take_launches, full_launches_nothing,
                                   lines_of_the_answer, captures_of_routed_shapes, scopes_fit_model_and_stack,
                                   a_search_captures_modules };
    for (int i = 0; i < LEN(tests); i++) tcase_add_test(loops, tests[i]);
    tcase_add_loop_test(loops, a_slower_host_is_never_faster, 0, LEN(plans));
    tcase_add_loop_test(loops, programs_are_sound, 0, LEN(plans));
    tcase_set_timeout(loops, 60);
    suite_add_tcase(suite, loops);
    srunner_run_all(runner, CK_NORMAL);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed > 0;
}
