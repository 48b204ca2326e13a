/* The two simulators against each other, over every toy schedule with random durations and over real plans;
 * against closed forms; and the contracts: lines sum to the step, more time never makes a step shorter, spans
 * of a stream never overlap. */
#include "tests/test.h"
#include "tests/toy.h"
#include "sim/sim.h"
#include <math.h>

/* One program priced and simulated both ways. */
struct both {
    struct program pr; struct job j; struct cost c;
    double *op_s; struct pass_price *price; struct sim_result step;
    struct unroll *u; struct trace t;
};

static void step_both(struct both *b, struct arena *a)
{
    b->price = pass_price_all(&b->c, b->op_s, a);
    sim_step(&b->step, a, &b->c, b->op_s, b->price);
}

static void sweep_both(struct both *b, struct arena *a, int all_ranks)
{
    struct diag d = { 0 };
    b->u = arena_alloc(a, (size_t)b->pr.n_stage * sizeof *b->u);
    ck_assert_msg(unroll_all(b->u, a, &b->pr, &d) == OK, "%s", d.text);
    sim_sweep(&b->t, a, &b->c, b->u, NULL, all_ranks);
}

static double last_s(const struct trace *t, const struct job *j, int stage)
{
    int64_t last_ns = 0;
    for (int64_t i = 0; i < t->n; i++)
        if (fold_coord(&j->plan, t->span[i].rank).pp == stage && t->span[i].t1_ns > last_ns)
            last_ns = t->span[i].t1_ns;
    return 1e-9 * (double)last_ns;
}

/* Stage by stage, to the rounding of a span. */
static void assert_agree(const struct both *b, const char *what)
{
    for (int s = 0; s < b->pr.n_stage; s++) {
        const double swept_s = last_s(&b->t, &b->j, s), stepped_s = b->step.stage_s[s];
        ck_assert_msg(fabs(swept_s - stepped_s) <= 0.51e-9 + 1e-12 * stepped_s,
                      "%s: stage %d ends at %.12g s swept, %.12g s by max-plus", what, s, swept_s, stepped_s);
        ck_assert_double_eq(b->step.live_B[s], (double)b->u[s].live_B);
    }
}

/* ---- toys: every schedule, random durations ---- */

static uint64_t state = 11;

/* Longer over a boundary of more rows. */
static double transfer_s(const struct program *pr, const struct op *o)
{
    return 3e-6 + 1e-7 * (double)(pr->buf[o->io.read[0] + o->io.write[0]].rows % 1021);
}

/* Durations over two decades; some ops of no time, some schedules without host time. */
static void random_prices(struct both *b, struct arena *a)
{
    double *issue_s = arena_alloc(a, (size_t)b->pr.n_op * sizeof *issue_s);
    const int host = test_random(&state, 3);
    b->op_s = arena_alloc(a, (size_t)b->pr.n_op * sizeof *b->op_s);
    for (int i = 1; i < b->pr.n_op; i++) {
        b->op_s[i] = test_random(&state, 8) ? 1e-6 * (1 + test_random(&state, 100)) : 0;
        issue_s[i] = host == 0 ? 0 : 1e-6 * test_random(&state, host == 1 ? 4 : 60);
    }
    for (int i = 1; i < b->pr.n_op; i++)        /* what meets takes as long at every end */
        if (op_family((enum op_kind)b->pr.op[i].kind) == FAMILY_P2P) b->op_s[i] = transfer_s(&b->pr, &b->pr.op[i]);
        else if (b->pr.op[i].group == GROUP_WORLD || b->pr.op[i].group == GROUP_EMBED) b->op_s[i] = 9e-6;
    b->c.given_s = b->op_s;
    b->c.given_issue_s = issue_s;
}

static void toy_both(struct both *b, struct arena *a, const struct toy *t)
{
    toy_build(&b->pr, a, &b->j, t);
    b->j.plan.domain_gpus = b->j.plan.gpus;
    cost_init(&b->c, &b->pr, &b->j);
    random_prices(b, a);
}

static void toy_agrees(const struct toy *t)
{
    struct arena a = { 0 };
    struct both b;
    toy_both(&b, &a, t);
    step_both(&b, &a);
    sweep_both(&b, &a, 0);
    assert_agree(&b, arena_printf(&a, "pp %d vpp %d micro %d group %d schedule %d split %d", t->pp, t->vpp,
                                  t->n_micro, t->group, t->schedule, t->split));
    arena_free(&a);
}

START_TEST(every_toy_schedule)
{
    toy_each(toy_agrees);
}
END_TEST

/* ---- real plans ---- */

static const char *const jobs[] = {
    "model tiny-moe system host stack moefold gpus 8 pp 2 tp 2 cp 2 ep 4 gbs 8 seq 64",
    "model tiny-moe system host stack moefold gpus 8 pp 2 vpp 2 ep 4 gbs 32 seq 64 split-wgrad 1",
    "model tiny-moe system h100-sxm gpus 8 pp 2 vpp 2 ep 4 gbs 64 seq 64 split-wgrad 1 ep-overlap 1 "
    "recompute moe_act",
    "model tiny-moe system h100-sxm gpus 8 tp 8 ep 8 gbs 64 seq 64 split-wgrad 1 ep-overlap 1",
    "model tiny-moe system h100-sxm gpus 16 pp 4 cp 2 ep 2 etp 2 gbs 16 seq 64 recompute full",
    "model tiny-moe system h100-sxm gpus 4 tp 4 etp 2 ep 2 gbs 16 seq 64 mbs 2 recompute layernorm",
    "model qwen3-30b-a3b system h100-sxm gpus 32 pp 2 vpp 2 tp 2 ep 8 gbs 64 seq 4096",
    "model deepseek-v3 system gb200-nvl72 gpus 32 pp 4 ep 8 gbs 64 seq 4096 recompute mla_up_proj",
    "model deepseek-v3 system h100-sxm gpus 64 pp 8 vpp 2 ep 8 gbs 128 seq 4096 ep-overlap 1",
    "model llama3-8b system h100-sxm gpus 16 pp 2 tp 4 gbs 32 seq 4096",
    "model tiny-moe system h100-sxm gpus 16 pp 2 tp 2 etp 2 ep 4 gbs 32 seq 64 dispatcher deepep",
    "model deepseek-v3 system h100-sxm gpus 64 pp 4 vpp 2 ep 16 gbs 64 seq 4096 ep-overlap 1 dispatcher hybridep",
    "model deepseek-v3 system h100-sxm gpus 64 pp 8 vpp 4 ep 8 gbs 128 seq 4096 layout Et*3|(tt|)*29m|L",
    "model deepseek-v3 layers 4 system h100-sxm gpus 16 tp 2 pp 2 vpp 2 ep 4 gbs 64 seq 4096 layout Et|tt|tm|L "
    "ep-overlap 1 split-wgrad 1",
    "model deepseek-v3 layers 4 system h100-sxm gpus 16 pp 4 ep 4 gbs 64 seq 4096 mtp 2 layout Et|tt|tm*2|L",
};

static void job_both(struct both *b, struct arena *a, const char *flags)
{
    test_job(&b->j, a, flags);
    program_build(&b->pr, a, &b->j);
    cost_init(&b->c, &b->pr, &b->j);
    b->op_s = cost_all_s(&b->c, a);
}

START_TEST(real_plans)
{
    struct arena a = { 0 };
    struct both b;
    job_both(&b, &a, jobs[_i]);
    step_both(&b, &a);
    sweep_both(&b, &a, 0);
    assert_agree(&b, jobs[_i]);
    arena_free(&a);
}
END_TEST

/* The same programs when durations make no sense: what a pass forgets must be implied by order, never by luck. */
START_TEST(real_plans_random_durations)
{
    for (int n = 0; n < 20; n++) {
        struct arena a = { 0 };
        struct both b;
        job_both(&b, &a, jobs[_i]);
        random_prices(&b, &a);
        step_both(&b, &a);
        sweep_both(&b, &a, 0);
        assert_agree(&b, jobs[_i]);
        arena_free(&a);
    }
}
END_TEST

/* At even load every rank is its class, whether ranks meet in their groups or stand for them: the same spans,
 * rank by rank. */
START_TEST(every_rank_is_its_class)
{
    struct arena a = { 0 };
    struct both b;
    job_both(&b, &a, jobs[_i]);
    step_both(&b, &a);
    sweep_both(&b, &a, 0);
    const struct trace classes = b.t;
    sim_sweep(&b.t, &a, &b.c, b.u, NULL, 1);
    assert_agree(&b, jobs[_i]);
    int64_t at[LAYOUT_CHUNKS], n = 0;
    for (int s = 0; s < b.pr.n_stage; n += b.u[s++].n_item) at[s] = n;
    for (int64_t i = 0, k = 0; i < b.t.n; i++, k++) {
        const struct span *s = &b.t.span[i];
        if (i == 0 || s->rank != s[-1].rank) k = at[fold_coord(&b.j.plan, s->rank).pp];
        const struct span *as = &classes.span[k];
        ck_assert(s->step == as->step && s->op == as->op && s->rows[0] == as->rows[0] && s->rows[1] == as->rows[1]);
        ck_assert(llabs(s->t0_ns - as->t0_ns) <= 1 && llabs(s->t1_ns - as->t1_ns) <= 1);
    }
    arena_free(&a);
}
END_TEST

/* ---- closed forms ---- */

static double kind_s(const struct both *b, enum pass_kind kind)
{
    for (int i = 0; i < b->pr.n_pass; i++)
        if (b->pr.pass[i].kind == kind) return b->price[i].m[STREAM_COMPUTE][STREAM_COMPUTE];
    return 0;
}

/* 1F1B, every stage F and B, transfers and host free: (m + p - 1)(F + B) between the start and the optimizer. */
START_TEST(bubble_of_1f1b)
{
    for (int pp = 1; pp <= 8; pp++)
        for (int m = pp; m <= 24; m += 5) {
            struct arena a = { 0 };
            struct both b = { .op_s = NULL };
            toy_build(&b.pr, &a, &b.j, &(struct toy){ .pp = pp, .vpp = 1, .n_micro = m, .layers = 2 });
            b.j.plan.domain_gpus = pp;
            cost_init(&b.c, &b.pr, &b.j);
            b.op_s = arena_alloc(&a, (size_t)b.pr.n_op * sizeof *b.op_s);
            for (int i = 1; i < b.pr.n_op; i++)     /* what all stages have alike */
                if (b.pr.op[i].kind == OP_SWIGLU) b.op_s[i] = 3e-3;
                else if (b.pr.op[i].kind == OP_SWIGLU_BWD) b.op_s[i] = 5e-3;
            b.c.given_s = b.op_s;
            b.c.given_issue_s = arena_alloc(&a, (size_t)b.pr.n_op * sizeof(double));
            step_both(&b, &a);
            const double f_s = 2 * 3e-3, b_s = 2 * 5e-3;
            ck_assert_double_eq_tol(kind_s(&b, PASS_FWD), f_s, 1e-12);
            ck_assert_double_eq_tol(b.step.step_s, (m + pp - 1) * (f_s + b_s), 1e-12);
            arena_free(&a);
        }
}
END_TEST

/* ---- contracts ---- */

static double sum_of(const struct sim_lines *l)
{
    double sum = l->optimizer_s + l->compute_s + l->host_s + l->bubble_s + l->unaccounted_s;
    for (int g = 0; g < GROUP_COUNT; g++) sum += l->exposed_s[g];
    return sum;
}

static void assert_lines(const struct sim_lines *l, double step_s, double off_s)
{
    ck_assert_double_eq_tol(l->step_s, step_s, off_s);
    ck_assert_double_eq_tol(sum_of(l), l->step_s, 1e-12 * l->step_s);
    ck_assert_double_eq_tol(l->unaccounted_s, 0, off_s);
    ck_assert(l->optimizer_s > 0 && l->compute_s > 0 && l->host_s >= 0 && l->bubble_s >= 0);
    for (int g = 0; g < GROUP_COUNT; g++)
        ck_assert(l->exposed_s[g] >= 0 && l->exposed_s[g] <= l->group_total_s[g] + off_s);
}

static void replayed_lines(struct sim_lines *l, const struct both *b, struct arena *a, int stage)
{
    struct play p;
    ck_assert(play_run(&p, a, &b->c, b->op_s, b->price));
    sim_account_replay(l, &p, stage);
}

/* The lines of a step sum to it, leave nothing over, and are the same from a replay as from a trace. */
START_TEST(lines_sum_to_the_step)
{
    struct arena a = { 0 };
    struct both b;
    job_both(&b, &a, jobs[_i]);
    step_both(&b, &a);
    sweep_both(&b, &a, 0);
    for (int s = 0; s < b.pr.n_stage; s++) {
        struct sim_lines replay, trace;
        const double off_s = 1e-9 * (double)b.u[s].n_item;      /* spans are rounded, one by one */
        replayed_lines(&replay, &b, &a, s);
        sim_account(&trace, &b.c, b.u, &b.t, s);
        assert_lines(&replay, b.step.stage_s[s], 1e-12);
        assert_lines(&trace, b.step.stage_s[s], off_s);
        ck_assert_double_eq_tol(replay.compute_s, trace.compute_s, off_s);
        ck_assert_double_eq_tol(replay.host_s, trace.host_s, off_s);
        ck_assert_double_eq_tol(replay.bubble_s, trace.bubble_s, off_s);
        for (int g = 0; g < GROUP_COUNT; g++) ck_assert_double_eq_tol(replay.exposed_s[g], trace.exposed_s[g], off_s);
        for (int k = 0; k < OP_KIND_COUNT; k++) ck_assert_int_eq(replay.kind_n[k], trace.kind_n[k]);
    }
    arena_free(&a);
}
END_TEST

static int chosen;

static void longer_is_no_shorter(const struct toy *t)
{
    struct arena a = { 0 };
    struct both b;
    if (chosen++ % 13) return;
    toy_both(&b, &a, t);
    step_both(&b, &a);
    for (int n = 0; n < 8; n++) {
        const int op = 1 + test_random(&state, b.pr.n_op - 1);
        const double before_s = b.step.step_s, was_s = b.op_s[op];
        b.op_s[op] += 1e-6 * (1 + test_random(&state, 300));
        step_both(&b, &a);
        ck_assert_msg(b.step.step_s >= before_s, "op %d (%s) from %.3g to %.3g s: step from %.12g to %.12g", op,
                      op_name((enum op_kind)b.pr.op[op].kind), was_s, b.op_s[op], before_s, b.step.step_s);
    }
    arena_free(&a);
}

START_TEST(longer_ops_never_shorten_a_step)
{
    toy_each(longer_is_no_shorter);
}
END_TEST

/* ---- a recorded load ---- */

/* A load as a run would record it: up to half more or less rows than even, rank by rank. */
static void skewed_load(struct load *l, const struct both *b, struct arena *a)
{
    struct diag d = { 0 };
    ck_assert_msg(load_from_trace(l, a, &b->pr, &b->j, &b->t, &d) == OK, "%s", d.text);
    for (int i = 0; i < l->n_rank * l->n_layer * l->n_micro; i++)
        for (int at = 0; at < 2; at++) {
            int32_t *rows = &l->rows[2 * i + at];
            if (*rows >= 0) *rows = (int32_t)(b->pr.even[at] / 2 + test_random(&state, (int)b->pr.even[at]));
        }
}

static double step_of(const struct trace *t)
{
    int64_t last_ns = 0;
    for (int64_t i = 0; i < t->n; i++) last_ns = t->span[i].t1_ns > last_ns ? t->span[i].t1_ns : last_ns;
    return 1e-9 * (double)last_ns;
}

static const char *const load_jobs[] = {
    "model tiny-moe system host stack moefold gpus 4 ep 4 gbs 8 seq 64",
    "model tiny-moe system host stack moefold gpus 8 ep 4 etp 2 cp 2 gbs 8 seq 64",
    "model tiny-moe system host stack moefold gpus 8 pp 2 tp 2 ep 4 gbs 8 seq 64",
    "model tiny-moe system h100-sxm gpus 8 pp 2 vpp 2 ep 4 gbs 64 seq 64 split-wgrad 1 ep-overlap 1",
    "model tiny-moe system h100-sxm gpus 16 pp 4 cp 2 ep 2 etp 2 gbs 16 seq 64 recompute full",
};

/* Ranks under a load: its rows come back from the spans, a class at its busiest rank is never faster than the ranks
 * themselves, all lines still sum, and waiting for busier ranks is no slow link. */
START_TEST(ranks_under_a_load)
{
    struct arena a = { 0 };
    struct both b;
    struct load load, again;
    struct diag d = { 0 };
    struct sim_lines even, skewed;
    job_both(&b, &a, load_jobs[_i]);
    sweep_both(&b, &a, 1);
    sim_account(&even, &b.c, b.u, &b.t, 0);
    skewed_load(&load, &b, &a);
    struct trace ranks, classes;
    sim_sweep(&ranks, &a, &b.c, b.u, &load, 1);
    sim_sweep(&classes, &a, &b.c, b.u, &load, 0);
    ck_assert(load_from_trace(&again, &a, &b.pr, &b.j, &ranks, &d) == OK);
    const size_t n = (size_t)load.n_rank * (size_t)load.n_layer * (size_t)load.n_micro * 2;
    ck_assert_mem_eq(again.rows, load.rows, n * sizeof *load.rows);
    ck_assert_int_eq(ranks.n, b.t.n);
    ck_assert(step_of(&ranks) <= step_of(&classes) + 1e-9);
    ck_assert(step_of(&ranks) >= 0.5 * step_of(&b.t));
    for (int s = 0; s < b.pr.n_stage; s++) {
        sim_account(&skewed, &b.c, b.u, &ranks, s);
        assert_lines(&skewed, last_s(&ranks, &b.j, s), 1e-9 * (double)b.u[s].n_item);
    }
    sim_account(&skewed, &b.c, b.u, &ranks, 0);
    ck_assert(b.pr.n_stage > 1 || (even.bubble_s == 0 && skewed.bubble_s > 0));
    arena_free(&a);
}
END_TEST

static int by_key(const void *a, const void *b)
{
    const struct span *x = a, *y = b;
    return x->rank != y->rank ? x->rank - y->rank : x->step != y->step ? x->step - y->step : x->op - y->op;
}

/* In issue order a stream's spans follow each other; every item has one. */
START_TEST(spans_of_a_stream_do_not_overlap)
{
    struct arena a = { 0 };
    struct both b;
    job_both(&b, &a, jobs[_i]);
    sweep_both(&b, &a, 0);
    int64_t items = 0;
    for (int s = 0; s < b.pr.n_stage; items += b.u[s++].n_item) {
        int64_t free_ns[STREAM_COUNT] = { 0 };
        for (int i = 0; i < b.u[s].n_item; i++) {
            const struct item *it = &b.u[s].item[i];
            const int rank = fold_rank(&b.j.plan, (struct coord){ .pp = s });
            const struct span key = { .rank = rank, .step = it->step, .op = it->op };
            const struct span *p = bsearch(&key, b.t.span, (size_t)b.t.n, sizeof key, by_key);
            int64_t *free = &free_ns[b.pr.op[it->op].stream];
            ck_assert(p && p->t0_ns >= *free && p->t1_ns >= p->t0_ns);
            *free = p->t1_ns;
        }
    }
    ck_assert_int_eq(b.t.n, items);
    arena_free(&a);
}
END_TEST

/* What the model's counter books and ops do not, per token: one multiply-add, three times, per weight of the
 * latent and MTP norms. */
static double norm_flop(const struct model *m)
{
    const double latent = m->attention == ATTENTION_MLA ? m->q_lora + m->kv_lora : 0;
    return 6 * ((m->layers + m->mtp) * latent + m->mtp * 3.0 * m->hidden);
}

/* K and V heads that several tp ranks hold are computed, and booked, by each. */
static double replicated_flop(const struct model *m, int copies)
{
    return 6.0 * m->layers * m->hidden * 2 * m->kv_heads * m->head_dim * (copies - 1);
}

/* Model FLOP of all ops of a step, all ranks: the counter's figure for its tokens. */
START_TEST(ops_count_the_models_flop)
{
    struct arena a = { 0 };
    struct both b;
    job_both(&b, &a, jobs[_i]);
    double flop = 0;
    for (int s = 0; s < b.pr.n_stage; s++)
        for (int k = 0; k < b.pr.n_step[s]; k++) {
            const struct pass *p = &b.pr.pass[b.pr.step[s][k].pass];
            for (int i = 0; i < p->n; i++)
                flop += op_work(&b.pr, &b.pr.op[b.pr.order[p->first + i]], b.pr.even).model_flop;
        }
    const double got = flop * b.j.plan.gpus / b.j.plan.pp / ((double)b.j.plan.gbs * b.j.plan.seq);
    const double counter = model_flop_per_token(&b.j.model, b.j.plan.seq, b.j.plan.vocab_padded);
    const double want = counter - norm_flop(&b.j.model) + replicated_flop(&b.j.model, fold_size(&b.j, GROUP_KV));
    ck_assert_msg(fabs(got / want - 1) < 1e-9, "%s: ops count %.9g GFLOP a token, the model %.9g", jobs[_i],
                  got / 1e9, want / 1e9);
    arena_free(&a);
}
END_TEST

int main(void)
{
    const struct test_loop tests[] = {
        { every_toy_schedule, 0 },
        { bubble_of_1f1b, 0 },
        { longer_ops_never_shorten_a_step, 0 },
        { real_plans, LEN(jobs) },
        { real_plans_random_durations, LEN(jobs) },
        { every_rank_is_its_class, 6 },
        { ranks_under_a_load, LEN(load_jobs) },
        { lines_sum_to_the_step, LEN(jobs) },
        { spans_of_a_stream_do_not_overlap, LEN(jobs) },
        { ops_count_the_models_flop, LEN(jobs) },
    };
    return test_main_loops("sim", NULL, tests, LEN(tests), 600);
}
