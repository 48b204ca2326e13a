/* The event heap: with room for all it is the sweep, item by item; with links shared, times by hand, and the
 * contract that nothing ends earlier for it. */
#include "tests/test.h"
#include "tests/toy.h"
#include "sim/sim.h"
#include "sim/sim_heap.h"
#include <math.h>

struct heaped {
    struct program pr; struct job j; struct cost c; struct unroll *u;
    struct sim_heap h;
};

static void unroll_both(struct heaped *b, struct arena *a)
{
    struct diag d = { 0 };
    b->u = arena_alloc(a, (size_t)b->pr.n_stage * sizeof *b->u);
    ck_assert_msg(unroll_all(b->u, a, &b->pr, &d) == OK, "%s", d.text);
}

static void open_plan(struct heaped *b, struct arena *a, const char *plan, int gbs)
{
    struct diag d = { 0 };
    const char *const flag[1][2] = { { "gbs", arena_printf(a, "%d", gbs) } };
    ck_assert_msg(plan_read_job(&b->j, a, plan, gbs > 0, flag, 0, &d) == OK, "%s", d.text);
    program_build(&b->pr, a, &b->j);
    cost_init(&b->c, &b->pr, &b->j);
    unroll_both(b, a);
}

static void open_flags(struct heaped *b, struct arena *a, const char *flags)
{
    test_job(&b->j, a, flags);
    program_build(&b->pr, a, &b->j);
    cost_init(&b->c, &b->pr, &b->j);
    unroll_both(b, a);
}

/* Every item begins and ends to the nanosecond as it was swept. */
static void assert_swept(const struct heaped *b, struct arena *a, const char *what)
{
    struct trace t;
    int64_t seen = 0;
    sim_sweep(&t, a, &b->c, b->u, NULL, 0);
    for (int s = 0; s < b->pr.n_stage; seen += b->u[s++].n_item)
        for (int i = 0; i < b->u[s].n_item; i++) {
            const struct item *it = &b->u[s].item[i];
            const struct span *p = trace_find(&t, 0, fold_rank(&b->j.plan, (struct coord){ .pp = s }), it->step, it->op);
            const double t0_s = b->h.stage[s].t0_s[i], t1_s = b->h.stage[s].t1_s[i];
            ck_assert_msg(p && p->t0_ns == trace_ns(t0_s) && p->t1_ns == trace_ns(t1_s),
                          "%s: stage %d item %d %s: %.12g to %.12g s by events", what, s, i,
                          op_name((enum op_kind)b->pr.op[it->op].kind), t0_s, t1_s);
        }
    ck_assert_int_eq(t.n, seen);
}

/* ---- the sweep, where nothing is shared ---- */

static const struct { const char *plan; int gbs; } plans[] = {
    { "tiny-moe-1", 0 }, { "tiny-moe-8", 0 }, { "deepseek-v3-256-gb200", 512 }, { "qwen3-235b-256-gb200", 512 },
    { "deepseek-v3-1024-h100", 1024 },
};

/* Batches cut, so that a test is short: a step of 16 micro-batches and more. */
START_TEST(embedded_plans)
{
    struct arena a = { 0 };
    struct heaped b;
    open_plan(&b, &a, plans[_i].plan, plans[_i].gbs);
    sim_heap(&b.h, &a, &b.c, b.u, 0);
    assert_swept(&b, &a, plans[_i].plan);
    const double alone_s = b.h.step_s;
    sim_heap(&b.h, &a, &b.c, b.u, 1);
    ck_assert_msg(b.h.step_s >= alone_s && b.h.step_s < 1.5 * alone_s, "%s: %.9g s shared, %.9g s alone", plans[_i].plan,
                  b.h.step_s, alone_s);
    arena_free(&a);
}
END_TEST

static uint64_t state = 5;

static void toy_swept(const struct toy *t)
{
    struct arena a = { 0 };
    struct heaped b;
    toy_build(&b.pr, &a, &b.j, t);
    b.j.plan.domain_gpus = b.j.plan.gpus;
    cost_init(&b.c, &b.pr, &b.j);
    double *op_s = arena_alloc(&a, (size_t)b.pr.n_op * sizeof *op_s), *issue_s = arena_alloc(&a, (size_t)b.pr.n_op * sizeof *op_s);
    for (int i = 1; i < b.pr.n_op; i++) {
        const struct op *o = &b.pr.op[i];
        const int met = op_family((enum op_kind)o->kind) == FAMILY_P2P || o->group == GROUP_WORLD || o->group == GROUP_EMBED;
        op_s[i] = met ? 9e-6 : 1e-6 * test_random(&state, 100);
        issue_s[i] = 1e-6 * test_random(&state, 20);
    }
    b.c.given_s = op_s;
    b.c.given_issue_s = issue_s;
    unroll_both(&b, &a);
    sim_heap(&b.h, &a, &b.c, b.u, 0);
    assert_swept(&b, &a, "toy");
    arena_free(&a);
}

START_TEST(every_toy_schedule)
{
    toy_each(toy_swept);
}
END_TEST

/* One stream uses links at a time: sharing changes nothing, to the bit. */
START_TEST(alone_on_its_links)
{
    static const char *const flags[] = {
        "model tiny-moe system h100-sxm gpus 8 ep 8 gbs 8 seq 64 ",
        "model llama3-8b system h100-sxm gpus 8 tp 8 gbs 4 seq 4096",
        "model llama3-8b system h100-sxm gpus 4 pp 4 gbs 16 seq 4096",
    };
    struct arena a = { 0 };
    struct heaped b;
    open_flags(&b, &a, flags[_i]);
    sim_heap(&b.h, &a, &b.c, b.u, 1);
    assert_swept(&b, &a, flags[_i]);
    arena_free(&a);
}
END_TEST

/* ---- sharing, by hand ---- */

/* Collectives that begin at 0, each on a stream of its own: `rows` bytes on NVLink, or with `nic` on NICs, or with both
 * on both alike, in `s` seconds alone; a link carries a row a second. */
struct hand { int rows, nvlink, nic; double s, end_s; };
enum { HANDS = 3 };
static const struct hand hands[][HANDS] = {
    { { 10, 1, 0, 10, 14 }, { 4, 1, 0, 4, 8 } },                    /* half each until the short one is done */
    { { 8, 1, 0, 10, 11.2 }, { 2, 1, 0, 4, 5.2 } },                 /* 0.8 and 0.5 of a link: 1 / 1.3 of the speed */
    { { 10, 1, 0, 10, 10 }, { 4, 0, 1, 4, 4 } },                    /* two links */
    { { 4, 1, 0, 10, 10 }, { 2, 1, 0, 4, 4 }, { 1, 1, 0, 10, 10 } },        /* 0.4, 0.5, 0.1: room for all */
    { { 9, 1, 0, 9, 27 }, { 9, 1, 0, 9, 27 }, { 9, 1, 0, 9, 27 } },         /* a third each */
    { { 10, 1, 1, 10, 14 }, { 4, 0, 1, 4, 8 }, { 2, 1, 0, 4, 4 } },         /* the first is slow on the NIC: NVLink
                                                                               has room for the third at full speed */
};
static const struct { enum stream stream; enum group group; } at[HANDS] = {
    { STREAM_TP, GROUP_TP }, { STREAM_EP, GROUP_EP }, { STREAM_DP, GROUP_DPCP },
};

/* A ring of 2 in one domain takes NVLink, one in two domains with one member in each its NIC, of 2 x 2 both. */
static void hand_place(struct heaped *b, int k, const struct hand *x)
{
    b->c.place[at[k].group] = (struct place){ .size = x->nvlink && x->nic ? 4 : 2, .domains = x->nic ? 2 : 1,
                                              .in_domain = x->nvlink ? 2 : 1, .link = x->nic ? LINK_NIC : LINK_NVLINK };
}

static void hand_build(struct heaped *b, struct arena *a, const struct hand hand[HANDS], double *op_s)
{
    struct program *pr = &b->pr;
    static struct pass pass = { .kind = PASS_FWD, .n = HANDS };
    static struct step step = { 0, { 0, -1 } }, *steps = &step;
    static int32_t order[HANDS] = { 1, 2, 3 }, n_step = 1;
    *pr = (struct program){ .pass = &pass, .n_pass = 1, .order = order, .n_order = HANDS, .step = &steps, .n_step = &n_step,
                            .n_stage = 1, .n_micro = 1, .lead = 1, .n_op = HANDS + 1, .n_buf = HANDS + 1, .arena = a };
    pr->op = arena_alloc(a, (HANDS + 1) * sizeof *pr->op);
    pr->buf = arena_alloc(a, (HANDS + 1) * sizeof *pr->buf);
    test_job(&b->j, a, "model tiny-moe system h100-sxm gpus 4 gbs 4 seq 64");
    b->j.system.eff_nvlink = b->j.system.eff_nic = 1;
    for (int k = 0; k < HANDS; k++) {
        pr->buf[k + 1] = (struct buf){ .rows = 2 * hand[k].rows, .cols = 3, .dtype = DT_F32 };   /* half of them leave */
        pr->group_size[at[k].group] = 2;
        pr->op[k + 1] = (struct op){ .kind = OP_GATHER, .stream = (uint8_t)at[k].stream, .group = (uint8_t)at[k].group,
                                     .io = { .write = { k + 1 } } };
        op_s[k + 1] = hand[k].s;
    }
    /* what a row sends, a second; the rings of 2 x 2 leave by one NIC (stack.rings), as fast as NVLink */
    b->j.stack.rings = 1;
    b->j.system.nvlink_B_per_s = b->j.system.nic_B_per_s = 12;
    cost_init(&b->c, pr, &b->j);
    for (int k = 0; k < HANDS; k++) hand_place(b, k, &hand[k]);
}

START_TEST(shares_by_hand)
{
    struct arena a = { 0 };
    struct heaped b;
    double op_s[HANDS + 1] = { 0 }, issue_s[HANDS + 1] = { 0 };
    hand_build(&b, &a, hands[_i], op_s);
    b.c.given_s = op_s;
    b.c.given_issue_s = issue_s;
    b.u = arena_alloc(&a, sizeof *b.u);
    unroll_stage(b.u, &a, &b.pr, 0);
    sim_heap(&b.h, &a, &b.c, b.u, 1);
    for (int k = 0; k < HANDS; k++) {
        ck_assert_msg(fabs(b.h.stage[0].t1_s[k] - hands[_i][k].end_s) < 1e-9, "%d: op %d ends at %.12g s, by hand %.12g", _i, k,
                      b.h.stage[0].t1_s[k], hands[_i][k].end_s);
        ck_assert_double_eq_tol(b.h.stage[0].alone_s[at[k].group], hands[_i][k].s, 1e-12);
        ck_assert_double_eq_tol(b.h.stage[0].shared_s[at[k].group], hands[_i][k].end_s, 1e-9);
    }
    arena_free(&a);
}
END_TEST

/* Two stages; a message forward and one back of 5 s each, at once: the way out and the way in are two. With a gather of 10 s on
 * the first stage, which takes both, all go half as fast until the messages are over. */
START_TEST(messages_by_hand)
{
    struct arena a = { 0 };
    struct heaped b;
    struct program *pr = &b.pr;
    static const struct { enum op_kind kind; enum stream stream; enum group group; enum half half; } row[] = {
        { OP_SEND, STREAM_SEND_F, GROUP_NEXT, HALF_FWD }, { OP_RECV, STREAM_RECV_B, GROUP_NEXT, HALF_BWD },
        { OP_GATHER, STREAM_TP, GROUP_TP, HALF_FWD },     { OP_RECV, STREAM_RECV_F, GROUP_PREV, HALF_FWD },
        { OP_SEND, STREAM_SEND_B, GROUP_PREV, HALF_BWD },
    };
    struct pass pass[2] = { { .kind = PASS_FWD_BWD, .n = 2 + _i }, { .kind = PASS_FWD_BWD, .chunk = { 1, 1 }, .first = 3, .n = 2 } };
    struct step step[2] = { { 0, { 0, 0 } }, { 1, { 0, 0 } } }, *steps[2] = { &step[0], &step[1] };
    int32_t order[] = { 1, 2, 3, 4, 5 }, n_step[2] = { 1, 1 };
    double op_s[6] = { 0, 5, 5, 10, 5, 5 }, issue_s[6] = { 0 };
    struct buf buf[6] = { { 0 } };
    struct op op[6] = { { 0 } };
    *pr = (struct program){ .pass = pass, .n_pass = 2, .order = order, .n_order = 5, .step = steps, .n_step = n_step, .n_stage = 2,
                            .n_micro = 1, .lead = 1, .n_op = 6, .n_buf = 6, .op = op, .buf = buf, .arena = &a };
    for (int k = 0; k < LEN(row); k++) {
        const int sends = row[k].kind == OP_SEND, gathers = row[k].kind == OP_GATHER;
        buf[k + 1] = (struct buf){ .rows = gathers ? 20 : 5, .cols = 3, .dtype = DT_F32, .stage = -1 };
        op[k + 1] = (struct op){ .kind = (uint8_t)row[k].kind, .stream = (uint8_t)row[k].stream, .group = (uint8_t)row[k].group,
                                 .half = (uint8_t)row[k].half };
        *(sends ? op[k + 1].io.read : op[k + 1].io.write) = k + 1;
        pr->group_size[row[k].group] = 2;
    }
    test_job(&b.j, &a, "model tiny-moe system h100-sxm gpus 4 gbs 4 seq 64");
    b.j.system.eff_nvlink = 1;
    b.j.system.nvlink_B_per_s = 12;
    cost_init(&b.c, pr, &b.j);
    for (int k = 0; k < LEN(row); k++)
        b.c.place[row[k].group] = (struct place){ .size = 2, .domains = 1, .in_domain = 2, .link = LINK_NVLINK };
    b.c.given_s = op_s;
    b.c.given_issue_s = issue_s;
    unroll_both(&b, &a);
    sim_heap(&b.h, &a, &b.c, b.u, 1);
    for (int s = 0; s < 2; s++)
        for (int k = 0; k < 2; k++) ck_assert_double_eq_tol(b.h.stage[s].t1_s[k], _i ? 10 : 5, 1e-9);
    if (_i) ck_assert_double_eq_tol(b.h.stage[0].t1_s[2], 15, 1e-9);
    ck_assert_double_eq_tol(b.h.step_s, _i ? 15 : 5, 1e-9);
    arena_free(&a);
}
END_TEST

/* No item ends earlier for sharing, and some of these end later. */
START_TEST(never_earlier)
{
    static const char *const flags[] = {
        "model deepseek-v3 system h100-sxm gpus 256 pp 4 ep 64 gbs 512 seq 4096",
        "model deepseek-v3 system gb200-nvl72 gpus 64 pp 4 vpp 2 ep 16 gbs 64 seq 4096 ep-overlap 1 dispatcher hybridep",
        "model qwen3-30b-a3b system h100-sxm gpus 64 pp 2 tp 2 cp 2 ep 16 gbs 64 seq 4096",
    };
    struct arena a = { 0 };
    struct heaped b;
    struct sim_heap alone;
    open_flags(&b, &a, flags[_i]);
    sim_heap(&alone, &a, &b.c, b.u, 0);
    assert_swept(&(struct heaped){ b.pr, b.j, b.c, b.u, alone }, &a, flags[_i]);
    sim_heap(&b.h, &a, &b.c, b.u, 1);
    int slower = 0;
    for (int s = 0; s < b.pr.n_stage; s++)
        for (int i = 0; i < b.u[s].n_item; i++) {
            ck_assert(b.h.stage[s].t1_s[i] >= alone.stage[s].t1_s[i] * (1 - 1e-12));
            slower += b.h.stage[s].t1_s[i] > alone.stage[s].t1_s[i];
        }
    ck_assert_msg(slower > 0, "%s shares no link", flags[_i]);
    arena_free(&a);
}
END_TEST

int main(void)
{
    const struct test_loop tests[] = {
        { embedded_plans, LEN(plans) },
        { every_toy_schedule, 0 },
        { alone_on_its_links, 3 },
        { shares_by_hand, LEN(hands) },
        { messages_by_hand, 2 },
        { never_earlier, 3 },
    };
    return test_main_loops("sim_heap", NULL, tests, LEN(tests), 60);
}
