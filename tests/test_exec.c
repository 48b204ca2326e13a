/* A folded plan is right when it computes what one rank computes: for every fold, schedule and recompute choice
 * all gathered parameter gradients of the first step and the losses of 20 steps equal the one-rank run's, with
 * SGD (which shows a gradient's scale) and with AdamW. Beside it: what the executor counts while it runs (live
 * bytes, touched arena, items) equals what unroll predicted, and a run repeats bit for bit. Every run poisons
 * unborn and dead buffers. */
#include "models/load.h"
#include "sim/sim.h"
#include "tests/folds.h"
#include "tests/parity.h"

/* What a set of folds must hold to be believed: enough of them, 16 ranks at most, a third with top-k = experts (where no
 * rounding flips a choice), every axis, schedule and kind of recompute. */
START_TEST(the_folds_are_many_and_unlike)
{
    int all = 0, recompute = 0, most[8] = { 0 };
    for (int i = 0; i < LEN(folds); i++) {
        const struct fold *f = &folds[i];
        const int has[] = { f->tp, f->cp, f->dp, f->pp, f->ep, f->etp, f->vpp, 0 };
        for (int k = 0; k < LEN(has); k++) most[k] = has[k] > most[k] ? has[k] : most[k];
        most[7] |= 1 << (2 * f->split + f->woven);
        recompute |= f->recompute;
        all += f->family == GQA_ALL || f->family == MLA_ALL || f->family == V2_ALL || f->family == OSS_ALL ||
               f->family == LATENT_ALL;
        ck_assert_int_le((f->tp ? f->tp : 1) * (f->cp ? f->cp : 1) * (f->dp ? f->dp : 1) * (f->pp ? f->pp : 1), 16);
    }
    for (int k = 0; k < 7; k++) ck_assert_int_ge(most[k], 2);
    ck_assert_int_eq(most[7], 15);                          /* split or not, woven or not */
    ck_assert_int_eq(recompute, (2 << RECOMPUTE_FULL) - 1);
    ck_assert_int_ge(LEN(folds), 60);
    ck_assert_int_ge(3 * all, LEN(folds));
}
END_TEST

/* One-rank runs, made once before the tests fork. */
static struct parity reference[FAMILY_TEST_COUNT][2];

static void make_references(void)
{
    for (int f = 0; f < FAMILY_TEST_COUNT; f++)
        for (int o = 0; o < 2; o++) {
            const struct fold one = { .name = "one rank", .family = (enum family)f };
            struct parity *p = &reference[f][o];
            parity_open(p, &one, seeds[f], (enum optimizer)o);
            ck_assert_msg(parity_run(p) == OK, "family %d: %s", f, p->d.text);
        }
}

static void free_references(void)
{
    for (int f = 0; f < FAMILY_TEST_COUNT; f++)
        for (int o = 0; o < 2; o++) parity_close(&reference[f][o]);
}

static void none(const char *difference, const char *fold)
{
    ck_assert_msg(difference == NULL, "%s: %s", fold, difference ? difference : "");
}

/* Every predicted span joins the measured one of the same rank, step and op, and none is left over. */
static const char *spans_differ(struct parity *p)
{
    struct cost cost;
    struct trace t;
    cost_init(&cost, &p->pr, &p->j);
    sim_sweep(&t, &p->a, &cost, p->u, NULL, 1);
    if (t.n != p->r.trace.n) return "the measured trace has another number of spans than the predicted one";
    for (int64_t k = 0; k < t.n; k++) {
        const struct span *x = &t.span[k], *y = &p->r.trace.span[k];
        if (x->iter == y->iter && x->rank == y->rank && x->step == y->step && x->op == y->op) continue;
        snprintf(p->d.text, sizeof p->d.text, "predicted span of rank %d, step %d, op %d has no partner", x->rank,
                 x->step, x->op);
        return p->d.text;
    }
    return NULL;
}

START_TEST(fold_equals_one_rank)
{
    const struct fold *f = &folds[_i / 2 * PARITY_STRIDE];
    struct parity p, *one = &reference[f->family][_i % 2];
    parity_open(&p, f, seeds[f->family], (enum optimizer)(_i % 2));
    ck_assert_msg(parity_run(&p) == OK, "%s: %s", f->name, p.d.text);
    none(parity_gradients_differ(&p, one), f->name);
    none(parity_loss_differs(&p, one), f->name);
    none(parity_counts_differ(&p), f->name);
    none(spans_differ(&p), f->name);
    parity_close(&p);
}
END_TEST

START_TEST(routing_is_far_from_ties)
{
    for (int o = 0; o < 2; o++) {
        const float gap = reference[_i][o].r.score_gap;
        printf("family %d, %s: smallest gap between the k-th and the next score %.3g\n", _i,
               o ? "sgd" : "adamw", gap);
        ck_assert_msg(gap > 1e-5, "family %d: gap %g: choose another seed", _i, gap);
    }
}
END_TEST

/* ---- traces ---- */

/* The measured trace has one span for every unrolled item of every rank, no other, in order, with whole times.
 */
START_TEST(every_item_has_its_span)
{
    const struct fold f = { .name = "spans", .family = MLA, .pp = 2, .vpp = 2, .dp = 2, .ep = 2, .woven = 1 };
    struct parity p;
    parity_open(&p, &f, 1, OPTIMIZER_ADAMW);
    p.ask.steps = 2;
    p.ask.iters_traced = 0;
    ck_assert_msg(parity_run(&p) == OK, "%s", p.d.text);
    int64_t k = 0;
    for (int iter = 0; iter < 2; iter++)
        for (int r = 0; r < p.j.plan.gpus; r++) {
            const struct unroll *u = &p.u[fold_coord(&p.j.plan, r).pp];
            for (int i = 0; i < u->n_item; i++, k++) {
                const struct span *s = &p.r.trace.span[k];
                ck_assert(k < p.r.trace.n && s->iter == iter && s->rank == r);
                ck_assert(s->t0_ns > 0 && s->t1_ns >= s->t0_ns);
                ck_assert(i == 0 || s->step > s[-1].step || (s->step == s[-1].step && s->op > s[-1].op));
            }
        }
    ck_assert_int_eq(k, p.r.trace.n);
    parity_close(&p);
}
END_TEST

static const struct fold joined[] = {
    { .name = "tp2 pp2 dp2 / ep2 etp2", .family = MLA, .tp = 2, .pp = 2, .dp = 2, .ep = 2, .etp = 2 },
    { .name = "woven pp2 vpp2 / ep4", .family = GQA, .pp = 2, .vpp = 2, .dp = 4, .ep = 4, .woven = 1 },
    { .name = "split pp4 / ep2", .family = TIED_MTP, .pp = 4, .tp = 2, .ep = 2, .split = 1, .recompute = ACT },
};

/* Every predicted span joins one measured span by its four integers, and at the measured load their rows agree.
 */
START_TEST(predicted_spans_join_measured_ones)
{
    struct parity p;
    struct cost cost;
    struct load load;
    struct trace even, loaded;
    parity_open(&p, &joined[_i], 1, OPTIMIZER_ADAMW);
    p.ask.steps = 2;
    ck_assert_msg(parity_run(&p) == OK, "%s", p.d.text);
    cost_init(&cost, &p.pr, &p.j);
    ck_assert_msg(load_from_trace(&load, &p.a, &p.pr, &p.j, &p.r.trace, &p.d) == OK, "%s", p.d.text);
    sim_sweep(&even, &p.a, &cost, p.u, NULL, 1);
    sim_sweep(&loaded, &p.a, &cost, p.u, &load, 1);
    ck_assert_int_eq(even.n, p.r.trace.n);
    ck_assert_int_eq(loaded.n, p.r.trace.n);
    for (int64_t k = 0; k < even.n; k++) {
        const struct span *x = &p.r.trace.span[k], *y = &loaded.span[k], *z = &even.span[k];
        ck_assert_msg(x->iter == y->iter && x->rank == y->rank && x->step == y->step && x->op == y->op,
                      "%s: span %lld has no partner", joined[_i].name, (long long)k);
        ck_assert(x->rank == z->rank && x->step == z->step && x->op == z->op);
        ck_assert_msg(x->rows[0] == y->rows[0] && x->rows[1] == y->rows[1],
                      "%s: rank %d, step %d, %s: measured rows %d %d, predicted %d %d", joined[_i].name,
                      x->rank, x->step, op_name((enum op_kind)p.pr.op[x->op].kind), x->rows[0], x->rows[1],
                      y->rows[0], y->rows[1]);
    }
    parity_close(&p);
}
END_TEST

static const struct span *span_of(const struct parity *p, int rank, const struct item *it)
{
    for (int64_t k = 0; k < p->r.trace.n; k++) {
        const struct span *s = &p->r.trace.span[k];
        if (s->rank == rank && s->step == it->step && s->op == it->op) return s;
    }
    return NULL;
}

/* Streams run in list order, deps are over before t0, and no two lives that share bytes overlap in time. */
START_TEST(spans_obey_order_deps_and_lives)
{
    const struct fold f = { .name = "order", .family = GQA, .pp = 2, .tp = 2, .dp = 2, .ep = 4, .split = 1 };
    struct parity p;
    parity_open(&p, &f, 1, OPTIMIZER_ADAMW);
    p.ask.steps = 1;
    ck_assert_msg(parity_run(&p) == OK, "%s", p.d.text);
    const struct unroll *u = &p.u[0];
    const struct span **span = arena_alloc(&p.a, (size_t)u->n_item * sizeof *span);
    const struct span *last[STREAM_COUNT] = { 0 };
    for (int i = 0; i < u->n_item; i++) {
        const struct span **before = &last[p.pr.op[u->item[i].op].stream];
        span[i] = span_of(&p, 0, &u->item[i]);
        ck_assert_ptr_nonnull(span[i]);
        ck_assert(!*before || (*before)->t1_ns <= span[i]->t0_ns);
        for (int k = 0; k < u->item[i].n_dep; k++)
            ck_assert(span[u->dep[u->item[i].dep + k]]->t1_ns <= span[i]->t0_ns);
        *before = span[i];
    }
    for (int x = 0; x < u->n_life; x++)
        for (int y = 0; y < u->n_life; y++) {
            const struct life *a = &u->life[x], *b = &u->life[y];
            if (x == y || a->first < 0 || b->first < 0 || a->first > b->first) continue;
            if (a->offset >= b->offset + b->bytes || b->offset >= a->offset + a->bytes) continue;
            for (int s = 0; s < STREAM_COUNT; s++)
                if (a->last[s] >= 0) ck_assert(span[a->last[s]]->t1_ns <= span[b->first]->t0_ns);
        }
    parity_close(&p);
}
END_TEST

START_TEST(two_runs_are_the_same_bits)
{
    const struct fold f = { .name = "again", .family = MLA, .tp = 2, .pp = 2, .dp = 2, .ep = 2, .etp = 2 };
    struct parity p[2];
    for (int i = 0; i < 2; i++) {
        parity_open(&p[i], &f, 1, OPTIMIZER_ADAMW);
        ck_assert_msg(parity_run(&p[i]) == OK, "%s", p[i].d.text);
    }
    for (int s = 0; s < p[0].r.n_step; s++) {
        ck_assert(p[0].r.step[s].loss == p[1].r.step[s].loss);
        ck_assert(p[0].r.step[s].grad_norm == p[1].r.step[s].grad_norm);
    }
    for (int i = 0; i < p[0].pr.n_param; i++)
        for (int grad = 0; grad < 2; grad++)
            ck_assert_mem_eq(parity_whole(&p[0], i, grad), parity_whole(&p[1], i, grad),
                             (size_t)exec_param_elements(&p[0].pr.param[i]) * sizeof(float));
    for (int i = 0; i < 2; i++) parity_close(&p[i]);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("exec");
    TCase *t = tcase_create("parity"), *run = tcase_create("run");
    tcase_add_unchecked_fixture(t, make_references, free_references);
    tcase_set_timeout(t, 240);
    tcase_set_timeout(run, 240);
    tcase_add_test(run, the_folds_are_many_and_unlike);
    tcase_add_loop_test(t, routing_is_far_from_ties, 0, FAMILY_TEST_COUNT);
    tcase_add_loop_test(t, fold_equals_one_rank, 0, 2 * ((LEN(folds) - 1) / PARITY_STRIDE + 1));
    tcase_add_test(run, every_item_has_its_span);
    tcase_add_loop_test(run, predicted_spans_join_measured_ones, 0, LEN(joined));
    tcase_add_test(run, spans_obey_order_deps_and_lives);
    tcase_add_test(run, two_runs_are_the_same_bits);
    suite_add_tcase(s, t);
    suite_add_tcase(s, run);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    const int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
