/* Synthetic loads against figures worked by hand, the worst case and each other; what they do to rows,
 * targets, FLOP and memory; token dropping with and without padding; and the step by formula against the
 * sweep over ranks that hold the rows of that formula. */
#include "sim/predict.h"
#include "tests/test.h"
#include <math.h>
#include <stdio.h>

#define MCORE "system gb200-nvl72 stack mcore-2510 "
#define SMALL "model qwen3-30b-a3b layers 4 " MCORE "gpus 8 gbs 32 seq 1024 "
#define GRID "model qwen3-30b-a3b layers 4 " MCORE "gpus 8 gbs 32 seq 16384 "

/* ---- text ---- */

static const struct { const char *text, *full; } spelled[] = {
    { "balanced", "dropless:balanced" },
    { "dropless", "dropless:balanced" },
    { "dropless:balanced", "dropless:balanced" },
    { "zipf:1.2", "dropless:zipf:1.2" },
    { "dropless:dirichlet:0.5", "dropless:dirichlet:0.5" },
    { "worst", "dropless:worst" },
    { "drop", "drop:cf1" },
    { "drop:cf1", "drop:cf1" },
    { "padded:cf1", "padded:cf1" },
    { "padded:cf1.25:zipf:1", "padded:cf1.25:zipf:1" },
    { "drop:worst", "drop:cf1:worst" },
    { "padded:balanced", "padded:cf1" },
    { "drop:position", "drop:cf1:position" },
    { "padded:cf1.25:position:zipf:1", "padded:cf1.25:position:zipf:1" },
};

START_TEST(loads_are_spelled_as_in_published_runs)
{
    struct arena a = { 0 };
    struct diag d;
    struct routing r, again;
    ck_assert_int_eq(routing_parse(&r, spelled[_i].text, &d), OK);
    char *full = routing_text(&a, &r);
    ck_assert_str_eq(full, spelled[_i].full);
    ck_assert_int_eq(routing_parse(&again, full, &d), OK);
    ck_assert(again.policy == r.policy && again.kind == r.kind && again.by_position == r.by_position);
    ck_assert(again.capacity == r.capacity && again.skew == r.skew);
    arena_free(&a);
}
END_TEST

static const char *const refused[] = {
    "", ":", "zipf", "zipf:", "zipf:x", "zipf:-1", "zipf:9", "zipf:nan", "zipf:inf", "zipf:1:", "zipf:1:2",
    "dirichlet:0", "dropless:cf1", "drop:cf", "drop:cf0", "drop:cf1e9", "drop:cf1:", "padded:cf1x", "even",
    "balanced:1", "recorded", "recorded:", "drop:recorded", "worst:worst", "dropless:", "dropless:position", "zipf:0x1", "zipf: 1",
};

START_TEST(other_loads_are_refused)
{
    struct routing r = { .skew = 7 };
    struct diag d = { 0 };
    ck_assert_msg(routing_parse(&r, refused[_i], &d) == ERR_CONFIG, "%s", refused[_i]);
    ck_assert_double_eq(r.skew, 7);
    ck_assert_msg(strstr(d.text, "load"), "%s", d.text);
}
END_TEST

START_TEST(loads_need_what_they_are_for)
{
    static const char *const row[][2] = {
        { "model llama3-8b system h100-sxm gpus 8 gbs 8 seq 1024 load zipf:1", "needs experts" },
        { "model llama3-8b system h100-sxm gpus 8 gbs 8 seq 1024 load drop", "needs experts" },
        { "model tiny-moe system host stack moefold gpus 2 ep 2 dispatcher allgather load drop:cf1", "knows no capacity" },
        { SMALL "ep 8 dispatcher deepep load drop:cf1", "knows no capacity" },
    };
    for (int i = 0; i < LEN(row); i++) {
        struct arena a = { 0 };
        struct job j;
        struct diag d = { 0 };
        ck_assert_msg(test_job_try(&j, &a, row[i][0], &d) != OK && strstr(d.text, row[i][1]), "%s: %s", row[i][0],
                      d.text);
        arena_free(&a);
    }
}
END_TEST

/* ---- shares ---- */

static void make_model(struct job *j, int experts, int topk, int ep, int tokens, const char *load)
{
    struct diag d;
    *j = (struct job){ .model = { .experts = experts, .topk = topk, .groups = 1, .groups_kept = 1 },
                       .plan = { .ep = ep, .etp = 1, .tp = 1, .cp = 1, .mbs = 1, .seq = tokens } };
    ck_assert_msg(routing_parse(&j->plan.routing, load, &d) == OK, "%s", d.text);
}

/* Weights 1, 1/2, 1/3, 1/4 over 25/12, dealt to two ranks in turn. */
START_TEST(zipf_by_hand)
{
    struct job j;
    double pick[4];
    int64_t rows[2];
    make_model(&j, 4, 1, 2, 100, "zipf:1");
    share_picks(pick, &j);
    const double want[] = { 0.48, 0.16, 0.24, 0.12 };
    for (int e = 0; e < 4; e++) ck_assert_double_eq_tol(pick[e], want[e], 1e-12);
    load_members(rows, NULL, &j, 1, 1);
    ck_assert_int_eq(rows[0], 128);
    ck_assert_int_eq(rows[1], 72);
    const struct load_spread s = load_spread(&j);
    ck_assert_double_eq_tol(s.most / s.mean, 1.28, 1e-12);
    ck_assert_int_eq(s.busiest, 0);
}
END_TEST

/* Two picks, weights 1, 1/4, 1/9, 1/16: twice the first's share is above one, so all tokens pick it and one
 * other. */
START_TEST(no_token_picks_an_expert_twice)
{
    struct job j;
    double pick[4], rest = 1.0 / 4 + 1.0 / 9 + 1.0 / 16;
    make_model(&j, 4, 2, 1, 100, "zipf:2");
    share_picks(pick, &j);
    const double want[] = { 1, 0.25 / rest, 1 / 9.0 / rest, 1 / 16.0 / rest };
    for (int e = 0; e < 4; e++) ck_assert_double_eq_tol(pick[e], want[e], 1e-12);
}
END_TEST

/* Shape 1 is the exponential; shape 2 has 1 - (1 + x) exp(-x); a large one is centred below itself by a
 * third. */
START_TEST(gamma_quantiles)
{
    for (double p = 0.001; p < 1; p += 0.0499) {
        const double x = share_gamma_quantile(2, p);
        ck_assert_double_eq_tol(share_gamma_quantile(1, p), -log1p(-p), 1e-11);
        ck_assert_double_eq_tol(1 - (1 + x) * exp(-x), p, 1e-11);
    }
    ck_assert_double_eq_tol(share_gamma_quantile(1000, 0.5), 1000 - 1.0 / 3, 1e-3);
    ck_assert(share_gamma_quantile(0.05, 0.001) > 0);
}
END_TEST

static const struct { int experts, topk, ep, tokens; } shapes[] = {
    { 256, 8, 64, 4096 }, { 256, 8, 1, 4096 }, { 128, 8, 16, 1000 }, { 160, 6, 5, 77 }, { 8, 2, 8, 8192 },
    { 60, 4, 6, 1 }, { 8, 8, 4, 64 }, { 64, 1, 32, 3 },
};
static const char *const skews[] = {
    "zipf:0", "zipf:0.1", "zipf:0.3", "zipf:1", "zipf:3", "zipf:8", "dirichlet:1000", "dirichlet:3",
    "dirichlet:0.5", "dirichlet:0.05", "worst",
};

/* Shares sum to topk and none exceeds one; rows are conserved, and none exceeds the design's worst case. */
START_TEST(rows_are_conserved)
{
    const int E = shapes[_i].experts, K = shapes[_i].topk, ep = shapes[_i].ep, here = E / ep;
    const double even = (double)shapes[_i].tokens * K, worst = (double)ep * (K < here ? K : here) / K;
    for (int s = 0; s < LEN(skews); s++) {
        struct job j;
        double pick[256], sum = 0;
        int64_t rows[64], all = 0;
        make_model(&j, E, K, ep, shapes[_i].tokens, skews[s]);
        share_picks(pick, &j);
        for (int e = 0; e < E; e++) {
            ck_assert_msg(pick[e] >= 0 && pick[e] <= 1, "%s", skews[s]);
            sum += pick[e];
        }
        ck_assert_double_eq_tol(sum, K, 1e-9);
        load_members(rows, NULL, &j, 1, 1);
        for (int m = 0; m < ep; m++) {
            all += rows[m];
            ck_assert_msg((double)rows[m] <= worst * even + 1, "%s: %lld", skews[s], (long long)rows[m]);
            if (s == 0) ck_assert_int_eq(rows[m], (int64_t)even);
        }
        ck_assert_int_eq(all, (int64_t)even * ep);
        if (s == LEN(skews) - 1) ck_assert_double_eq_tol(load_spread(&j).most, worst * even, 1e-6);
    }
}
END_TEST

/* More skew, a busier rank, as long as not all tokens pick the hottest expert; popular experts are dealt to
 * ranks apart, so a token meets no fewer of them. */
START_TEST(skew_is_monotone)
{
    struct job j;
    double before = 0, hits = 0;
    for (int s = 0; s <= 16; s++) {
        char load[32];
        double pick[256], busiest;
        snprintf(load, sizeof load, "zipf:%g", s * 0.05);
        make_model(&j, 256, 8, 64, 4096, load);
        share_picks(pick, &j);
        ck_assert(pick[0] < 1);
        const double most = load_spread(&j).most, hit = share_targets(&j, pick, 64, &busiest);
        ck_assert_msg(most >= before && hit >= hits && hit <= 8, "%s: %g after %g, %g targets", load, most,
                      before, hit);
        if (s == 0) {
            ck_assert_double_eq_tol(hit, 7.68, 0.005);          /* deepseek-ai/DeepEP, get_expected_topk */
            ck_assert_double_eq_tol(busiest, hit, 1e-9);
        } else {
            ck_assert(busiest > hit);
        }
        before = most;
        hits = hit;
    }
    double pick[8], busiest;
    make_model(&j, 8, 2, 4, 64, "worst");           /* all tokens go to one rank, which four ranks ask */
    share_picks(pick, &j);
    ck_assert_double_eq_tol(share_targets(&j, pick, 4, &busiest), 1, 1e-9);
    ck_assert_double_eq_tol(busiest, 4, 1e-9);
}
END_TEST

/* ---- programs ---- */

struct made { struct arena a; struct job j; struct program pr; };

static void make(struct made *m, const char *flags, int loaded)
{
    *m = (struct made){ 0 };
    test_job(&m->j, &m->a, flags);
    program_build(&m->pr, &m->a, &m->j);
    if (loaded) load_apply(&m->pr, &m->j);
}

static const char *const even_loads[] = { "balanced", "zipf:0", "padded:cf1:zipf:2" };

/* Without skew, or where rows are static, a load changes nothing. */
START_TEST(even_loads_change_nothing)
{
    char flags[256];
    struct made m, n;
    snprintf(flags, sizeof flags, SMALL "ep 8 precision mxfp8 load %s", even_loads[_i]);
    make(&m, flags, 0);
    make(&n, flags, 1);
    ck_assert_uint_eq(program_hash(&m.pr), program_hash(&n.pr));
    for (int i = 1; i < m.pr.n_buf; i++) ck_assert_int_eq(program_B(&m.pr, i), program_B(&n.pr, i));
    arena_free(&m.a);
    arena_free(&n.a);
}
END_TEST

/* Case D02 under a load: experts are padded by their own counts, those without rows not at all; bf16 pays
 * nothing. */
START_TEST(uneven_experts_are_padded_each)
{
    struct job j;
    int64_t rows[1], padded[1];
    make_model(&j, 8, 2, 1, 64, "zipf:8");      /* 64 rows, then 63.7 x 1, 3^-8 / 2^-8 = .039, ... */
    load_members(rows, padded, &j, 32, 1);
    ck_assert_int_eq(rows[0], 128);
    ck_assert_int_eq(padded[0], 64 + 64 + 32);  /* 64, 61, 3, then nobody */
    load_members(rows, padded, &j, 1, 1);
    ck_assert_int_eq(padded[0], 128);
    struct made m;
    make(&m, SMALL "ep 8 precision mxfp8 load zipf:1", 1);
    ck_assert(m.pr.busy.padded[0] > m.pr.even[0]);
    for (int i = 1; i < m.pr.n_buf; i++)
        if (m.pr.buf[i].pad) ck_assert_int_eq(m.pr.buf[i].rows, m.pr.busy.padded[m.pr.buf[i].size_at]);
    arena_free(&m.a);
    make(&m, SMALL "ep 8 load zipf:1", 1);
    ck_assert_int_eq(m.pr.busy.padded[0], 0);
    arena_free(&m.a);
}
END_TEST

/* Case D02, whole: Mixtral on 8 GPUs, ep 2, 8 x 8192 tokens a rank. Under even routing experts' counts are
 * multiples of 32, under a load they are not, and the plan pays for it in memory and FLOP. */
START_TEST(padding_of_a_whole_plan)
{
    static const char *const load[] = { "balanced", "zipf:0.5" };
    for (int i = 0; i < 2; i++) {
        char flags[256];
        struct made m;
        snprintf(flags, sizeof flags,
                 "model mixtral-8x7b system b200 gpus 8 ep 2 mbs 8 gbs 64 seq 8192 precision mxfp8 load %s", load[i]);
        make(&m, flags, 1);
        int seen = 0;
        for (int o = 1; o < m.pr.n_op; o++) {
            if (m.pr.op[o].kind != OP_GROUPED_GEMM) continue;
            const struct work w = op_work(&m.pr, &m.pr.op[o], m.pr.even);
            const int64_t extra = w.rows - m.pr.even[0];
            ck_assert_msg(i ? extra > 0 && extra < 4 * 32 : extra == 0, "%s: %lld", load[i], (long long)extra);
            ck_assert_double_eq(w.flop * (double)m.pr.even[0], w.model_flop * (double)w.rows);
            ck_assert_int_eq(m.pr.buf[m.pr.op[o].io.read[0]].rows, w.rows);
            seen++;
        }
        ck_assert_int_gt(seen, 0);
        arena_free(&m.a);
    }
}
END_TEST

/* ---- dropping ---- */

/* 100 tokens, capacity 25: 48, 24, 16 and 12 picks keep 25, 24, 16 and 12 of each of two ranks. */
START_TEST(full_experts_drop)
{
    struct job j;
    int64_t rows[2];
    make_model(&j, 4, 1, 2, 100, "drop:cf1:zipf:1");
    load_members(rows, NULL, &j, 1, 1);
    ck_assert_int_eq(rows[0], 2 * (25 + 16));
    ck_assert_int_eq(rows[1], 2 * (24 + 12));
    ck_assert_double_eq_tol(load_spread(&j).dropped, 0.23, 1e-12);
    make_model(&j, 4, 1, 2, 100, "padded:cf1:zipf:1");
    load_members(rows, NULL, &j, 1, 1);
    ck_assert_int_eq(rows[0], 100);
    ck_assert_int_eq(rows[1], 100);
    ck_assert_double_eq_tol(load_spread(&j).dropped, 0.23, 1e-12);
}
END_TEST

static int host_reads(const struct program *pr)
{
    int n = 0;
    for (int o = 1; o < pr->n_op; o++) n += (pr->op[o].flags & OP_HOST_READS) != 0;
    return n;
}

static double flop_of(const struct program *pr, int model)
{
    double sum = 0;
    for (int o = 1; o < pr->n_op; o++) {
        if (op_family((enum op_kind)pr->op[o].kind) != FAMILY_GROUPED) continue;
        const struct work w = op_work(pr, &pr->op[o], pr->even);
        sum += model ? w.model_flop : w.flop;
    }
    return sum;
}

/* Padding to capacity makes rows static, so the host reads nothing; it is FLOP, but not model FLOP. Dropping
 * alone has rows that the host must read. */
START_TEST(capacity_in_programs)
{
    struct made even, drop, pad, skew;
    make(&even, SMALL "ep 8", 1);
    make(&drop, SMALL "ep 8 load drop:cf1.25", 1);
    make(&pad, SMALL "ep 8 load padded:cf1.25", 1);
    make(&skew, SMALL "ep 8 load drop:cf1:zipf:1", 1);
    ck_assert_int_eq(host_reads(&drop.pr), host_reads(&even.pr));
    ck_assert_int_gt(host_reads(&even.pr), 0);
    ck_assert_int_eq(host_reads(&pad.pr), 0);
    ck_assert_int_eq(drop.pr.even[0], 8192);                            /* even routing fills no expert */
    ck_assert_int_eq(pad.pr.even[0], 10240);
    ck_assert_int_lt(skew.pr.even[0], 8 * 16 * 64 + 1);                 /* 16 experts of 64 rows from 8 ranks */
    ck_assert_double_eq_tol(flop_of(&pad.pr, 0) / flop_of(&even.pr, 0), 1.25, 1e-12);
    ck_assert_double_eq_tol(flop_of(&pad.pr, 1) / flop_of(&even.pr, 1), 1, 1e-12);
    ck_assert_double_eq(flop_of(&pad.pr, 1), flop_of(&even.pr, 0));
    arena_free(&even.a);
    arena_free(&drop.a);
    arena_free(&pad.a);
    arena_free(&skew.a);
}
END_TEST

/* ---- predictions ---- */

static const char *const grids[] = {
    GRID "ep 4 load zipf:1", GRID "ep 8 load dirichlet:0.5", GRID "ep 2 pp 2 load worst",
    GRID "tp 2 ep 2 etp 2 load zipf:0.7", GRID "ep 4 pp 2 vpp 2 load drop:cf1:zipf:1",
};

/* Rows as a run that routes by the formula would record them. */
static struct load recorded(struct arena *a, const struct made *m)
{
    const struct plan *p = &m->j.plan;
    struct load l = { .n_rank = p->gpus, .n_layer = m->j.model.layers, .n_micro = m->pr.n_micro };
    int32_t member[64];
    int64_t rows[64];
    l.rows = arena_alloc(a, (size_t)l.n_rank * (size_t)l.n_layer * (size_t)l.n_micro * 2 * sizeof *l.rows);
    load_members(rows, NULL, &m->j, 1, 1);
    for (int rank = 0; rank < l.n_rank; rank++) {
        fold_members(&m->j, GROUP_EP, rank, member);
        int me = 0;
        while (member[me] != rank) me++;
        int32_t *to = &l.rows[(int64_t)rank * l.n_layer * l.n_micro * 2];
        for (int i = 0; i < l.n_layer * l.n_micro; i++)
            for (int at = 0; at < 2; at++) to[2 * i + at] = (int32_t)rows[me] * (at ? p->etp : 1);
    }
    return l;
}

static double swept_s(struct made *m, const struct load *l, int all_ranks)
{
    struct unroll *u = arena_alloc(&m->a, (size_t)m->pr.n_stage * sizeof *u);
    struct diag d = { 0 };
    struct cost c;
    struct trace t;
    int64_t last_ns = 0;
    ck_assert_msg(unroll_all(u, &m->a, &m->pr, &d) == OK, "%s", d.text);
    cost_init(&c, &m->pr, &m->j);
    sim_sweep(&t, &m->a, &c, u, l, all_ranks);
    for (int64_t i = 0; i < t.n; i++) last_ns = t.span[i].t1_ns > last_ns ? t.span[i].t1_ns : last_ns;
    return 1e-9 * (double)last_ns;
}

/* The formula's step is that of a sweep in which each stage is its busiest rank, and no shorter than that of
 * a sweep over all ranks, which wait for each other in every exchange. */
START_TEST(formula_and_sweep_agree)
{
    struct made m;
    struct predict r;
    make(&m, grids[_i], 0);
    predict_job(&r, NULL, &m.a, &m.j);
    const struct load l = recorded(&m.a, &m);
    const double class_s = swept_s(&m, &l, 0), ranks_s = swept_s(&m, &l, 1), even_s = swept_s(&m, NULL, 0);
    ck_assert_msg(fabs(r.step_s - class_s) < 1e-6 * class_s, "%s: %.9f %.9f", grids[_i], r.step_s, class_s);
    ck_assert_msg(ranks_s <= class_s + 1e-6, "%s: %.9f %.9f", grids[_i], ranks_s, class_s);
    ck_assert_msg(ranks_s > even_s || m.j.plan.routing.policy, "%s: %.9f %.9f", grids[_i], ranks_s, even_s);
    arena_free(&m.a);
}
END_TEST

static struct predict predicted(struct arena *a, const char *flags)
{
    struct job *j = arena_alloc(a, sizeof *j);
    struct predict r;
    test_job(j, a, flags);
    predict_job(&r, NULL, a, j);
    return r;
}

/* With every dispatcher more skew is slower and larger, up to where all tokens pick the hottest expert; the
 * worst case is worse than all. */
START_TEST(skew_costs_time_and_memory)
{
    static const char *const dispatcher[] = { "alltoall", "deepep", "hybridep" };
    static const char *const load[] = { "balanced", "zipf:0.2", "zipf:0.5", "zipf:0.8", "worst" };
    double step_s = 0, peak_B = 0;
    for (int i = 0; i < LEN(load); i++) {
        struct arena a = { 0 };
        char flags[256];
        snprintf(flags, sizeof flags,
                 "model deepseek-v3 layers 8 system h100-sxm gpus 64 ep 32 pp 2 gbs 64 seq 4096 dispatcher %s load %s",
                 dispatcher[_i], load[i]);
        const struct predict r = predicted(&a, flags);
        ck_assert_msg(r.step_s > step_s && r.peak_B > peak_B, "%s", flags);
        step_s = r.step_s;
        peak_B = r.peak_B;
        arena_free(&a);
    }
}
END_TEST

/* A stack whose buffers have a capacity says what would overflow, and what capacity would not. */
START_TEST(capacity_that_overflows)
{
    struct arena a = { 0 };
    const char *flags = "model tiny-moe system h100-sxm stack moefold gpus 4 ep 4 gbs 4 seq 64 capacity 1.5 load ";
    const struct predict r = predicted(&a, arena_printf(&a, "%szipf:1", flags));
    ck_assert(!r.feasible);
    ck_assert_msg(test_has(r.reason, (const char *const[]){ "capacity 1.5", "use capacity", NULL }), "%s", r.reason);
    ck_assert(predicted(&a, arena_printf(&a, "%sbalanced", flags)).feasible);
    const double use = strtod(strstr(r.reason, "use capacity") + 13, NULL);
    flags = "model tiny-moe system h100-sxm stack moefold gpus 4 ep 4 gbs 4 seq 64 ";
    ck_assert(predicted(&a, arena_printf(&a, "%scapacity %g load zipf:1", flags, use)).feasible);
    arena_free(&a);
}
END_TEST

/* Case E06: a graph of the whole step takes a budget of 1.5 times the rows; a rank that gets 1.6 times is told, with the
 * budget it needs, and nothing is truncated. */
START_TEST(a_budget_that_a_captured_step_overflows)
{
    static const char *const path = BUILD_DIR "/recorded_budget.yaml";
    struct arena a = { 0 };
    FILE *f = fopen(path, "w");
    fprintf(f, "tokens: [");
    for (int e = 0; e < 128; e++) fprintf(f, "%s%g", e ? ", " : "", e / 16 == 3 ? 1.6 : (8 - 1.6) / 7);
    fprintf(f, "]\n");
    fclose(f);
    const char *flags = SMALL "ep 8 dispatcher hybridep cuda-graph full load";
    const struct predict r = predicted(&a, arena_printf(&a, "%s recorded:%s capacity 1.5", flags, path));
    ck_assert(!r.feasible);
    ck_assert_msg(test_has(r.reason, (const char *const[]){ "capacity 1.5 holds", "would stop", "use capacity 1.6", NULL }), "%s",
                  r.reason);
    ck_assert(predicted(&a, arena_printf(&a, "%s recorded:%s capacity 1.601", flags, path)).feasible);
    ck_assert(predicted(&a, arena_printf(&a, "%s balanced capacity 1.5", flags)).feasible);
    arena_free(&a);
}
END_TEST

int main(void)
{
    const struct test_loop tests[] = {
        { loads_are_spelled_as_in_published_runs, LEN(spelled) },
        { other_loads_are_refused, LEN(refused) },
        { loads_need_what_they_are_for, 0 },
        { zipf_by_hand, 0 },
        { no_token_picks_an_expert_twice, 0 },
        { gamma_quantiles, 0 },
        { rows_are_conserved, LEN(shapes) },
        { skew_is_monotone, 0 },
        { even_loads_change_nothing, LEN(even_loads) },
        { uneven_experts_are_padded_each, 0 },
        { padding_of_a_whole_plan, 0 },
        { full_experts_drop, 0 },
        { capacity_in_programs, 0 },
        { formula_and_sweep_agree, LEN(grids) },
        { skew_costs_time_and_memory, 3 },
        { capacity_that_overflows, 0 },
        { a_budget_that_a_captured_step_overflows, 0 },
    };
    return test_main_loops("load", NULL, tests, LEN(tests), 120);
}
