/* Prices: the roofline and the links by hand-computed figures, published transfers within 5 %, and the contract
 * that more work, bytes or rows never cost less, on every op of real programs. */
#include "tests/test.h"
#include "sim/cost.h"
#include <math.h>

/* A round machine: 100 TFLOP/s at 0.5, 1 TB/s at 0.5, NVLink 100 GB/s at 0.5, NIC 10 GB/s at 0.5. */
static struct job round_job(void)
{
    struct job j = { .plan = { .gpus = 64, .domain_gpus = 8 } };
    struct system *s = &j.system;
    s->peak_flop_per_s[DT_F32] = s->peak_flop_per_s[DT_BF16] = 100e12;
    s->eff_gemm[DT_BF16] = 0.5;
    s->eff_grouped[DT_BF16] = 0.25;
    s->eff_attention_fwd = 0.5;
    s->eff_attention_bwd = 0.25;
    s->hbm_B_per_s = 1e12;
    s->eff_memory = 0.5;
    s->kernel_s = 1e-6;
    s->nvlink_B_per_s = 100e9;
    s->eff_nvlink = s->eff_nvlink_alltoall = 0.5;
    s->nic_B_per_s = 10e9;
    s->eff_nic = s->eff_nic_alltoall = 0.5;
    s->nvlink_latency_s = 1e-6;
    s->nic_latency_s = 5e-6;
    s->rail_hop_s = 2e-6;
    return j;
}

static void assert_s(double got_s, double want_s)
{
    ck_assert_msg(fabs(got_s - want_s) <= 1e-12 * fabs(want_s), "got %.15g s, want %.15g s", got_s, want_s);
}

START_TEST(roofline_takes_the_slower_side)
{
    const struct job j = round_job();
    const struct cost c = { .job = &j };
    const struct work math = { .flop = 50e9, .read_B = 1e6, .write_B = 1e6, .dtype = DT_BF16 };
    const struct work bytes = { .flop = 1e6, .read_B = 300e6, .write_B = 200e6, .dtype = DT_BF16 };
    assert_s(cost_gemm_s(&c, OP_GEMM, &math), 1e-3 + 1e-6);
    assert_s(cost_gemm_s(&c, OP_GROUPED_GEMM, &math), 2e-3 + 1e-6);
    assert_s(cost_gemm_s(&c, OP_GEMM, &bytes), 1e-3 + 1e-6);
    assert_s(cost_attention_s(&c, &math, 0), 1e-3 + 1e-6);
    assert_s(cost_attention_s(&c, &math, 1), 2e-3 + 1e-6);
    assert_s(cost_memory_s(&c, OP_NORM, &bytes), 1e-3 + 1e-6);
}
END_TEST

static double comm_s(const struct job *j, enum op_kind kind, struct place p, double wire_B)
{
    struct cost c = { .job = j };
    c.place[GROUP_EP] = p;
    const struct op o = { .kind = (uint8_t)kind, .group = GROUP_EP };
    const struct work w = { .wire_B = wire_B };
    return cost_comm_s(&c, &o, &w);
}

START_TEST(links_by_hand)
{
    const struct job j = round_job();
    const struct place inside = { .size = 8, .link = LINK_NVLINK, .domains = 1, .in_domain = 8, .same_rail = 1 };
    const struct place across = { .size = 64, .link = LINK_NIC, .domains = 8, .in_domain = 8, .same_rail = 1 };
    const struct place single = { .size = 8, .link = LINK_NIC, .domains = 8, .in_domain = 1, .same_rail = 0 };
    assert_s(comm_s(&j, OP_GATHER, inside, 50e6), 1e-3 + 6e-6 + 1e-6);          /* 6 hops, a kernel */
    assert_s(comm_s(&j, OP_ALL_REDUCE, inside, 50e6), 1e-3 + 12e-6 + 1e-6);
    assert_s(comm_s(&j, OP_GATHER, across, 40e6), 1e-3 + 6e-6 + 6 * 5e-6 + 1e-6);  /* 8 NICs of 5 GB/s */
    assert_s(comm_s(&j, OP_GATHER, single, 5e6), 1e-3 + 6 * 7e-6 + 1e-6);       /* one NIC, rails differ */
    assert_s(comm_s(&j, OP_DISPATCH, inside, 50e6), 1e-3 + 7e-6 + 1e-6);
    assert_s(comm_s(&j, OP_DISPATCH, across, 63e6), 56e6 / 5e9 + 63e-6 + 5e-6 + 1e-6);
    assert_s(comm_s(&j, OP_SEND, across, 5e6), 1e-3 + 5e-6 + 1e-6);
    assert_s(comm_s(&j, OP_RECV, inside, 50e6), 1e-3 + 1e-6 + 1e-6);
}
END_TEST

/* 4096 tokens of 7168 bf16 to 8 of the experts: arXiv 2603.07685 table 7, all-to-all in one NVLink domain. */
START_TEST(published_alltoall)
{
    static const struct { const char *system; int ranks; double us; } row[] = {
        { "gb200-nvl72", 8, 735 }, { "gb200-nvl72", 64, 930 },
    };
    struct arena a = { 0 };
    for (int i = 0; i < LEN(row); i++) {
        struct job j;
        const char *const form = "model deepseek-v3 system %s gpus 64 ep %d gbs 64 seq 4096";
        struct diag d = { "" };
        test_job(&j, &a, arena_printf(&a, form, row[i].system, row[i].ranks));
        ck_assert_int_eq(system_read(&j.system, &a, row[i].system, &d), OK);    /* bare, as it was measured, not in a step */
        const struct place p = place_of(&j, GROUP_EP);
        const double sent_B = 4096.0 * 8 * 7168 * 2, n = row[i].ranks;
        const double got_us = 1e6 * comm_s(&j, OP_DISPATCH, p, sent_B * (n - 1) / n);
        ck_assert_msg(fabs(got_us / row[i].us - 1) < 0.05, "%s %d ranks: %.0f us, published %.0f us",
                      row[i].system, row[i].ranks, got_us, row[i].us);
    }
    arena_free(&a);
}
END_TEST

/* What measured figures add, each by hand: 50 GFLOP are 1 ms, 500 MB are 1 ms. */
START_TEST(measured_figures_by_hand)
{
    struct job j = round_job();
    const struct cost c = { .job = &j };
    struct system *s = &j.system;
    const struct work w = { .flop = 50e9, .read_B = 150e6, .write_B = 100e6, .dtype = DT_BF16, .rows = 800,
                            .cols = 400, .inner = 200, .experts = 4 };
    s->ramp_gemm[DT_BF16] = 100;
    assert_s(cost_gemm_s(&c, OP_GEMM, &w), 1e-3 * 1.5 + 1e-6);
    assert_s(cost_gemm_s(&c, OP_DGRAD, &w), 1e-3 * 1.25 + 1e-6);
    assert_s(cost_gemm_s(&c, OP_WGRAD, &w), 1e-3 * 1.125 + 1e-6);
    assert_s(cost_gemm_s(&c, OP_GROUPED_WGRAD, &w), 2e-3 * 1.5 + 1e-6);         /* 200 rows an expert */
    s->ramp_gemm[DT_BF16] = 0;
    s->exposed_gemm = 0.5;
    assert_s(cost_gemm_s(&c, OP_GEMM, &w), 1e-3 + 0.25e-3 + 1e-6);
    s->eff_gemm_bytes = 1;
    assert_s(cost_gemm_s(&c, OP_GEMM, &w), 1e-3 + 0.125e-3 + 1e-6);
    s->expert_s = 5e-6;
    assert_s(cost_gemm_s(&c, OP_GROUPED_GEMM, &w), 2e-3 + 20e-6 + 1e-6);
    s->eff_permute = 0.25;
    assert_s(cost_memory_s(&c, OP_PERMUTE, &w), 1e-3 + 1e-6);
    assert_s(cost_memory_s(&c, OP_NORM, &w), 0.5e-3 + 1e-6);
}
END_TEST

START_TEST(attention_by_hand)
{
    struct job j = round_job();
    const struct cost c = { .job = &j };
    struct system *s = &j.system;
    struct work w = { .flop = 50e9, .read_B = 60e6, .write_B = 40e6, .dtype = DT_BF16, .rows = 1024, .cols = 512,
                      .experts = 4 };
    s->sms = 8;
    s->attention_rows.fwd = 128;        /* 32 blocks in all, the last twice the mean: 8 SMs * 2 / 32 of the whole */
    assert_s(cost_attention_s(&c, &w, 0), 1e-3 * sqrt(1 + 0.5 * 0.5) + 1e-6);
    assert_s(cost_attention_s(&c, &w, 1), 2e-3 + 1e-6);
    s->attention_rows.fwd = 0;
    s->attention_bytes.fwd = 0.5;
    assert_s(cost_attention_s(&c, &w, 0), 1e-3 + 0.5 * 0.2e-3 + 1e-6);
    s->attention_bytes.fwd = 0;
    s->attention_wide.fwd = 1;
    s->attention_narrow = 0.5;
    w.cols = 4 * 256;
    assert_s(cost_attention_s(&c, &w, 0), 2e-3 + 1e-6);
    w.cols = 4 * 32;
    assert_s(cost_attention_s(&c, &w, 0), 2e-3 + 1e-6);
}
END_TEST

START_TEST(allreduce_takes_the_faster_way)
{
    struct job j = round_job();
    struct system *s = &j.system;
    struct place p = { .size = 8, .link = LINK_NVLINK, .domains = 1, .in_domain = 8, .same_rail = 1 };
    s->eff_nvls = 0.5;                  /* 9 / 14 of a ring's bytes at the same rate */
    assert_s(comm_s(&j, OP_ALL_REDUCE, p, 50e6), 1e-3 * 9 / 14 + 12e-6 + 1e-6);
    s->nvls_fill_B = 50e6 * 9 / 14 / 8; /* a pipe of as many bytes as go: half of it is lost */
    assert_s(comm_s(&j, OP_ALL_REDUCE, p, 50e6), 1.5e-3 * 9 / 14 + 12e-6 + 1e-6);
    s->nvls_fill_B = 0;
    s->eff_nvls = 0.25;
    assert_s(comm_s(&j, OP_ALL_REDUCE, p, 50e6), 1e-3 + 12e-6 + 1e-6);
    s->nvlink_call_s = 3e-6;
    s->ramp_s = 10e-6;                  /* of each of 6 hops, half of it at 50 MB */
    s->ramp_B = 50e6;
    assert_s(comm_s(&j, OP_GATHER, p, 50e6), 1e-3 + 6e-6 + 3e-6 + 30e-6 + 1e-6);
    assert_s(comm_s(&j, OP_ALL_REDUCE, p, 50e6), 1e-3 + 12e-6 + 3e-6 + 60e-6 + 1e-6);
}
END_TEST

START_TEST(exchange_by_hand)
{
    struct job j = round_job();
    struct system_exchange *e = &j.system.exchange;
    struct exchange x = { .target_B = 80e6, .nvlink_B = 50e6, .peers = 7, .sms = 4 };
    assert_s(cost_exchange_s(&j.system, &x), 1e-3 + 7e-6 + 1e-6);               /* as alltoall, no SM bound */
    e->dispatch_B_per_s = 10e9;
    e->deepep.dispatch = 0.5;
    assert_s(cost_exchange_s(&j.system, &x), 2e-3 + 7e-6 + 1e-6);
    x.kernel = EXCHANGE_DEEPEP;
    assert_s(cost_exchange_s(&j.system, &x), 4e-3 + 7e-6 + 1e-6);
    x.nic_B = 15e6;                                                             /* 3 ms beside 4 */
    e->call_s.dispatch = 1e-4;
    x.called = 1;
    assert_s(cost_exchange_s(&j.system, &x), 5e-3 + 1e-4 + 7e-6 + 1e-6);
}
END_TEST

/* A product larger than any measured on B200, and all of a machine on which none was measured. */
START_TEST(prices_off_the_grid_are_told)
{
    struct arena a = { 0 };
    struct job j;
    struct program pr;
    struct cost c;
    test_job(&j, &a, "model deepseek-v3 system b200 gpus 256 pp 4 ep 64 gbs 256 seq 4096");
    program_build(&pr, &a, &j);
    cost_init(&c, &pr, &j);
    int n = 0, off = 0, none = 0;
    for (int o = 1; o < pr.n_op; o++) {
        const enum op_family f = op_family((enum op_kind)pr.op[o].kind);
        const int priced = f == FAMILY_GEMM || f == FAMILY_GROUPED || f == FAMILY_ATTENTION;
        const double flop = op_work(&pr, &pr.op[o], pr.even).flop;
        j.system.gemm_flop.to = f == FAMILY_GEMM ? flop : j.system.gemm_flop.to;
        j.system.gemm_flop.from = 0;
        n += priced;
        off += f == FAMILY_GEMM && cost_off_grid(&c, o);
        j.system.gemm_flop.to = f == FAMILY_GEMM ? flop * 0.99 : j.system.gemm_flop.to;
        none += f == FAMILY_GEMM ? !cost_off_grid(&c, o) : !priced && cost_off_grid(&c, o);
    }
    ck_assert_int_gt(n, 0);
    ck_assert_int_eq(off, 0);
    ck_assert_int_eq(none, 0);
    arena_free(&a);
}
END_TEST

static double priced_s(const struct cost *c, const struct op *o, const struct work *w)
{
    if (cost_is_measured(c, (enum op_kind)o->kind)) return cost_measured_s(c, o, w);
    switch (op_family((enum op_kind)o->kind)) {
    case FAMILY_GEMM: case FAMILY_GROUPED: return cost_gemm_s(c, (enum op_kind)o->kind, w);
    case FAMILY_ATTENTION: return cost_attention_s(c, w, o->kind == OP_ATTN_BWD);
    case FAMILY_COMM: case FAMILY_P2P: return cost_comm_s(c, o, w);
    default: return cost_memory_s(c, (enum op_kind)o->kind, w);
    }
}

static const char *const jobs[] = {
    "model tiny-moe system host stack moefold gpus 4 pp 2 ep 2 gbs 8 seq 64",
    "model deepseek-v3 system gb200-nvl72 gpus 256 pp 4 ep 64 gbs 256 seq 4096",
    "model qwen3-235b-a22b system h100-sxm gpus 128 tp 4 pp 2 ep 16 gbs 128 seq 4096",
    "model qwen3-235b-a22b system h100-sxm gpus 128 tp 4 pp 2 ep 16 gbs 128 seq 4096 dispatcher hybridep",
};

START_TEST(more_work_never_costs_less)
{
    struct arena a = { 0 };
    for (int i = 0; i < LEN(jobs); i++) {
        struct job j;
        struct program pr;
        struct cost c;
        test_job(&j, &a, jobs[i]);
        program_build(&pr, &a, &j);
        cost_init(&c, &pr, &j);
        for (int o = 1; o < pr.n_op; o++) {
            const struct work w = op_work(&pr, &pr.op[o], pr.even);
            const int comm = op_family((enum op_kind)pr.op[o].kind) == FAMILY_COMM;
            if (pr.op[o].kind == OP_HOLD || (comm && w.wire_B == 0)) continue;
            const double at_s = priced_s(&c, &pr.op[o], &w);
            for (int k = 0; k < 4; k++) {
                struct work more = w;
                double *const field[] = { &more.flop, &more.read_B, &more.write_B, &more.wire_B };
                *field[k] = *field[k] * 1.5 + 1;
                ck_assert_msg(priced_s(&c, &pr.op[o], &more) >= at_s, "%s: more of field %d costs less",
                              op_name((enum op_kind)pr.op[o].kind), k);
            }
            ck_assert(isfinite(at_s) && at_s > 0);
        }
    }
    arena_free(&a);
}
END_TEST

START_TEST(more_rows_never_cost_less)
{
    struct arena a = { 0 };
    for (int i = 0; i < LEN(jobs); i++) {
        struct job j;
        struct program pr;
        struct cost c;
        test_job(&j, &a, jobs[i]);
        program_build(&pr, &a, &j);
        cost_init(&c, &pr, &j);
        for (int o = 1; o < pr.n_op; o++)
            for (int64_t rows = 0, last = -1; rows < 200000; last = rows, rows = 2 * rows + 1) {
                if (last < 0) continue;
                const double more_s = cost_op_s(&c, o, (int64_t[]){ rows, rows });
                const double less_s = cost_op_s(&c, o, (int64_t[]){ last, last });
                ck_assert_msg(more_s >= less_s && isfinite(more_s), "%s: %lld rows %.9g s, %lld rows %.9g s",
                              op_name((enum op_kind)pr.op[o].kind), (long long)rows, more_s, (long long)last, less_s);
            }
    }
    arena_free(&a);
}
END_TEST

START_TEST(few_rows_an_expert_are_slow)
{
    struct arena a = { 0 };
    struct job j;
    struct program pr;
    struct cost c;
    test_job(&j, &a, "model deepseek-v3 system b200 gpus 256 pp 4 ep 64 gbs 256 seq 4096");
    program_build(&pr, &a, &j);
    cost_init(&c, &pr, &j);
    int seen = 0;
    for (int o = 1; o < pr.n_op; o++) {
        if (pr.op[o].kind != OP_GROUPED_GEMM) continue;
        const int64_t few[2] = { 4 * 16, 4 * 16 }, many[2] = { 4 * 4096, 4 * 4096 };    /* 4 local experts */
        const double few_rate = op_work(&pr, &pr.op[o], few).flop / cost_op_s(&c, o, few);
        const double many_rate = op_work(&pr, &pr.op[o], many).flop / cost_op_s(&c, o, many);
        ck_assert_msg(few_rate < 0.3 * many_rate, "16 rows an expert at %.3g FLOP/s, 4096 at %.3g", few_rate,
                      many_rate);
        seen++;
    }
    ck_assert_int_gt(seen, 0);
    arena_free(&a);
}
END_TEST

START_TEST(nothing_launched_costs_nothing)
{
    struct arena a = { 0 };
    struct job j;
    struct program pr;
    struct cost c;
    test_job(&j, &a, "model tiny-moe system host stack moefold gpus 2 pp 2 gbs 4 seq 64");
    program_build(&pr, &a, &j);
    pr.op[1].kind = OP_HOLD;
    pr.op[2] = (struct op){ .kind = OP_ALL_REDUCE, .group = GROUP_TP, .io.add = { 1 } };
    cost_init(&c, &pr, &j);
    for (int o = 1; o <= 2; o++) {
        ck_assert_double_eq(cost_op_s(&c, o, pr.even), 0);
        ck_assert_double_eq(cost_issue_s(&c, o), 0);
    }
    ck_assert_double_eq(cost_issue_s(&c, 3), j.system.issue_s * j.stack.issue);
    arena_free(&a);
}
END_TEST

/* A kind that was measured costs its floor and, on top, bytes, FLOP and units; another kind what the formulas say. */
START_TEST(measured_kinds_by_hand)
{
    struct arena a = { 0 };
    struct job j;
    struct program pr;
    struct cost c;
    test_job(&j, &a, "model tiny-moe system host stack moefold gpus 2 ep 2 gbs 4 seq 64");
    memset(j.system.op, 0, sizeof j.system.op);
    j.system.next_s = j.system.wake_s = 0;
    j.system.op[OP_GROUPED_GEMM] = (struct system_op){ 1e-6, 1e9, 1e10, 1e-7 };
    j.system.op[OP_DISPATCH] = (struct system_op){ 1e-5, 1e9, 0, 0 };
    program_build(&pr, &a, &j);
    cost_init(&c, &pr, &j);
    int seen = 0;
    for (int i = 1; i < pr.n_op; i++) {
        const struct op *o = &pr.op[i];
        const struct work w = op_work(&pr, o, pr.even);
        const double s = cost_op_s(&c, i, pr.even);
        if (o->kind == OP_GROUPED_GEMM)     /* 4 experts here */
            ck_assert_double_eq_tol(s, 1e-6 + (w.read_B + w.write_B) / 1e9 + w.flop / 1e10 + 4e-7, 1e-15);
        if (o->kind == OP_DISPATCH) ck_assert_double_eq_tol(s, 1e-5 + w.wire_B / 1e9, 1e-15);
        if (o->kind == OP_GEMM) ck_assert_double_eq(s, cost_gemm_s(&c, OP_GEMM, &w));
        seen |= o->kind == OP_GROUPED_GEMM ? 1 : o->kind == OP_DISPATCH ? 2 : o->kind == OP_GEMM ? 4 : 0;
    }
    ck_assert_int_eq(seen, 7);
    arena_free(&a);
}
END_TEST

/* What is met once a step is cold when weights, gradients and states of all ranks are twice the cache, and hot when they fit. */
START_TEST(cold_bytes)
{
    static const struct { double cache_B, cold; } row[] = { { 0, 0 }, { 1e12, 0 }, { 1e3, 1 } };
    struct arena a = { 0 };
    struct job j;
    struct program pr;
    test_job(&j, &a, "model tiny-moe system host stack moefold gpus 2 gbs 4 seq 64");
    program_build(&pr, &a, &j);
    for (int r = 0; r < LEN(row); r++) {
        int seen = 0;
        j.system.cache_B = row[r].cache_B;
        for (int i = 1; i < pr.n_op; i++) {
            const struct work w = op_work(&pr, &pr.op[i], pr.even);
            if (pr.op[i].kind != OP_ADAMW && pr.op[i].kind != OP_GRAD_SCATTER) continue;
            const double bytes = w.wire_B > 0 ? w.wire_B : w.read_B + w.write_B;
            ck_assert_double_eq(cost_units(&pr, &pr.op[i], &w, &j), row[r].cold * bytes);
            seen++;
        }
        ck_assert_int_gt(seen, 1);
    }
    arena_free(&a);
}
END_TEST

/* Who waits for another stream is woken, once for what it knows of; others follow what is before them. */
START_TEST(who_is_woken)
{
    struct arena a = { 0 };
    struct job j;
    struct program pr;
    struct cost c;
    test_job(&j, &a, "model tiny-moe system host stack moefold gpus 2 ep 2 gbs 4 seq 64");
    j.system.wake_s = 1e-5;
    j.system.next_s = 1e-7;
    program_build(&pr, &a, &j);
    cost_init(&c, &pr, &j);
    int first = 0, woken = 0;
    for (int i = 1; i < pr.n_op; i++) {
        const struct op *o = &pr.op[i];
        const double s = cost_wake_s(&c, i);
        if (o->kind == OP_DISPATCH && !first) first = i;
        if (o->kind == OP_DISPATCH && i == first) ck_assert_double_eq(s, 1e-5);            /* for the permute */
        if (o->kind == OP_SORT && !woken++) ck_assert_double_eq(s, 1e-5);              /* for the dispatch */
        if (o->kind == OP_GEMM || o->kind == OP_WGRAD || o->kind == OP_ATTN_BWD) ck_assert_double_eq(s, 1e-7);
        if (pr.op[i - 1].flags & OP_HOST_READS) ck_assert_double_eq(s, 1e-5);
    }
    ck_assert(first && woken);
    ck_assert_double_eq(cost_read_s(&c), 1e-5);
    arena_free(&a);
}
END_TEST

/* A stack whose collectives make one ring leaves each host by one NIC, not by eight. */
START_TEST(rings_take_nics)
{
    struct arena a = { 0 };
    struct job j;
    struct program pr;
    double gather_s[2] = { 0 };
    test_job(&j, &a, "model llama3-8b system h100-sxm gpus 16 seq 4096 gbs 16 fsdp 1");
    for (int one = 0; one < 2; one++) {
        struct cost c;
        j.stack.rings = one;
        program_build(&pr, &a, &j);
        cost_init(&c, &pr, &j);
        for (int o = 1; o < pr.n_op; o++)
            if (pr.op[o].kind == OP_PARAM_GATHER || pr.op[o].kind == OP_GATHER)
                gather_s[one] = fmax(gather_s[one], cost_op_s(&c, o, pr.even));
    }
    const double ratio = gather_s[1] / gather_s[0];
    ck_assert_msg(ratio > 6 && ratio <= 8, "one NIC of eight: %g times as long", ratio);
    arena_free(&a);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = { rings_take_nics, roofline_takes_the_slower_side, measured_figures_by_hand, attention_by_hand,
                                   links_by_hand, allreduce_takes_the_faster_way, exchange_by_hand, published_alltoall,
                                   prices_off_the_grid_are_told,
                                   more_work_never_costs_less, more_rows_never_cost_less,
                                   few_rows_an_expert_are_slow, nothing_launched_costs_nothing,
                                   measured_kinds_by_hand, cold_bytes, who_is_woken };
    return test_main("cost", tests, LEN(tests), 60);
}
