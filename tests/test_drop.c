/* Experts with a capacity (plan key load: drop, padded): what a full expert drops is a matter of one rank's tokens of one
 * micro-batch, so folds that cut tokens alike compute the same, with what was dropped; those that do not, when nothing is.
 * Capacities by case D15 (what stays: test_route.c); counts of memory, and rows that predicted and measured traces share; routes that are recorded whole. */
#include "models/load.h"
#include "sim/sim.h"
#include "tests/folds.h"
#include "tests/parity.h"
#include "tests/test.h"

START_TEST(capacities_by_hand)
{
    static const struct { int seq, experts, topk; const char *load; int64_t rows; } row[] = {
        { 8, 2, 2, "drop:cf2", 8 },         /* case D15: ceil(8 / 2 x 2 x 2) = 16 is more than there are tokens */
        { 16, 4, 1, "drop:cf0.5", 2 },
        { 16, 4, 2, "padded:cf1.25", 10 },
        { 100, 8, 2, "drop:cf0.1", 3 },     /* 2.5 */
    };
    for (int i = 0; i < LEN(row); i++) {
        const struct fold f = { .name = row[i].load, .family = GQA, .load = row[i].load };
        struct job j = parity_job(&f, 1, OPTIMIZER_SGD);
        j.plan.seq = row[i].seq;
        j.model.experts = row[i].experts;
        j.model.topk = row[i].topk;
        ck_assert_int_eq(plan_expert_rows(&j), row[i].rows);
    }
}
END_TEST

/* No rank ever gets more than every expert's capacity of each source, whatever the factor on buffers. */
START_TEST(buffers_hold_what_may_come)
{
    const struct fold f = { .name = "drop", .family = GQA, .dp = 4, .ep = 4, .load = "drop:cf1" };
    struct job j = parity_job(&f, 1, OPTIMIZER_SGD);
    j.plan.capacity = PLAN_CAPACITY_WORST;
    ck_assert_int_eq(plan_capacity_rows(&j, 0), 4 * 8);     /* 16 tokens x 2 of 8 experts: 4 rows an expert and source */
    ck_assert_int_eq(plan_even_rows(&j, 0), 32);
}
END_TEST

/* ---- folds ---- */

static int64_t rows_sent(const struct parity *p)
{
    int64_t n = 0;
    for (int64_t k = 0; k < p->r.trace.n; k++)
        if (p->pr.op[p->r.trace.span[k].op].kind == OP_SIZES) n += p->r.trace.span[k].rows[0];
    return n;
}

/* No byte twice in a sequence: of two that begin one, attention makes the same, and weights of tokens would be tied. */
static const uint8_t *text(void)
{
    static uint8_t all[251];
    for (int i = 0; i < LEN(all); i++) all[i] = (uint8_t)(i * 97 % 251);
    return all;
}

static void run(struct parity *p, const struct fold *f, enum optimizer o)
{
    parity_open(p, f, seeds[f->family], o);
    p->ask.text = text();
    p->ask.text_n = 251;
    ck_assert_msg(parity_run(p) == OK, "%s: %s", f->name, p->d.text);
    const char *off = parity_counts_differ(p);
    ck_assert_msg(!off, "%s: %s", f->name, off);
}

static void same(const struct fold *f, const struct fold *alone)
{
    struct parity p, one;
    run(&one, alone, OPTIMIZER_SGD);
    run(&p, f, OPTIMIZER_SGD);
    const char *gradients = parity_gradients_differ(&p, &one), *losses = parity_loss_differs(&p, &one);
    ck_assert_msg(!gradients && !losses, "%s: %s %s", f->name, gradients ? gradients : "", losses ? losses : "");
    parity_close(&p);
    parity_close(&one);
}

static const struct fold cut_alike[] = {
    { .name = "dp2 ep2", .family = GQA, .dp = 2, .ep = 2 },
    { .name = "dp4 ep4", .family = MLA, .dp = 4, .ep = 4 },
    { .name = "dp4 / ep2 etp2", .family = V2, .dp = 4, .ep = 2, .etp = 2 },
    { .name = "dp2 / etp2", .family = MLA, .dp = 2, .etp = 2 },
    { .name = "dp4 / ep4, biases", .family = OSS, .dp = 4, .ep = 4 },
    { .name = "pp2 dp2 ep2, recomputed", .family = TIED_MTP, .pp = 2, .dp = 2, .ep = 2, .recompute = 1 << RECOMPUTE_FULL },
    { .name = "woven pp2 vpp2 dp2 ep2", .family = GQA, .pp = 2, .vpp = 2, .dp = 2, .ep = 2, .woven = 1 },
    { .name = "dp4 ep2, moe again", .family = MLA, .dp = 4, .ep = 2, .recompute = 1 << RECOMPUTE_MOE },
};
static const char *const loads[] = { "drop:cf0.5", "drop:cf1:position", "padded:cf0.75", "padded:cf1.5" };

START_TEST(folds_that_cut_tokens_alike)
{
    struct fold f = cut_alike[_i / LEN(loads)];
    f.load = loads[_i % LEN(loads)];
    const struct fold one = { .name = "one rank", .family = f.family, .load = f.load };
    same(&f, &one);
}
END_TEST

/* Tokens cut by tp, cp and micro-batches: with room for every token nothing is dropped, and it is the dropless run. */
static const struct fold cut_otherwise[] = {
    { .name = "tp2 cp2 / ep2 etp2", .family = GQA, .tp = 2, .cp = 2, .ep = 2, .etp = 2, .load = "drop:cf4" },
    { .name = "mbs 2 tp2 ep4", .family = MLA, .tp = 2, .dp = 2, .ep = 4, .mbs = 2, .load = "padded:cf4" },
    { .name = "tp2", .family = OSS, .tp = 2, .load = "padded:cf8" },
};

START_TEST(room_for_all_is_dropless)
{
    const struct fold one = { .name = "one rank", .family = cut_otherwise[_i].family };
    same(&cut_otherwise[_i], &one);
}
END_TEST

/* It drops: fewer rows arrive, no expert of any source has more than its capacity, the loss is another. */
START_TEST(something_is_dropped)
{
    const struct fold all = { .name = "all", .family = GQA, .dp = 2, .ep = 2 };
    struct fold held = all;
    struct parity p, q;
    held.load = "drop:cf0.5";
    run(&p, &all, OPTIMIZER_SGD);
    run(&q, &held, OPTIMIZER_SGD);
    const int64_t kept = rows_sent(&q), most = rows_sent(&p) / 2;
    ck_assert_int_gt(kept, 0);
    ck_assert_int_le(kept, most);
    ck_assert(p.r.step[0].loss != q.r.step[0].loss);
    parity_close(&p);
    parity_close(&q);
}
END_TEST

/* bf16: all folds of one cut are near each other as dropless ones are; here, that they run, and count the same bytes. */
START_TEST(stored_as_bf16)
{
    for (int i = 0; i < 2; i++) {
        const struct fold f = { .name = "bf16", .family = MLA, .dp = 2, .ep = 2, .bf16 = 1, .load = i ? "padded:cf1" : "drop:cf0.5" };
        struct parity p;
        run(&p, &f, OPTIMIZER_ADAMW);
        ck_assert(isfinite(p.r.step[p.r.n_step - 1].loss));
        parity_close(&p);
    }
}
END_TEST

/* ---- predictions ---- */

static const struct fold predicted[] = {
    { .name = "drop", .family = GQA, .pp = 2, .dp = 4, .ep = 4, .load = "drop:cf0.75" },
    { .name = "padded", .family = MLA, .pp = 2, .dp = 4, .ep = 2, .etp = 2, .load = "padded:cf0.75" },
};

START_TEST(predicted_rows_are_measured_ones)
{
    struct parity p;
    struct cost cost;
    struct load load;
    struct trace t;
    run(&p, &predicted[_i], OPTIMIZER_SGD);
    cost_init(&cost, &p.pr, &p.j);
    ck_assert_msg(load_from_trace(&load, &p.a, &p.pr, &p.j, &p.r.trace, &p.d) == OK, "%s", p.d.text);
    sim_sweep(&t, &p.a, &cost, p.u, &load, 1);
    ck_assert_int_eq(t.n, p.r.trace.n);
    for (int64_t k = 0; k < t.n; k++) {
        const struct span *x = &t.span[k], *y = &p.r.trace.span[k];
        ck_assert(x->iter == y->iter && x->rank == y->rank && x->step == y->step && x->op == y->op);
        ck_assert_msg(x->rows[0] == y->rows[0] && x->rows[1] == y->rows[1], "%s: %s of rank %d: predicted %d %d, measured %d %d",
                      predicted[_i].name, op_name((enum op_kind)p.pr.op[x->op].kind), x->rank, x->rows[0], x->rows[1], y->rows[0],
                      y->rows[1]);
        if (p.j.plan.routing.policy == ROUTING_PADDED) ck_assert_int_ne(p.pr.op[x->op].kind, OP_SIZES);
    }
    parity_close(&p);
}
END_TEST

/* ---- recorded ---- */

/* What tokens chose is recorded, not what experts kept: replayed, the same is dropped again. */
START_TEST(choices_are_recorded_whole)
{
    const struct fold f = { .name = "record", .family = MLA, .dp = 2, .ep = 2, .load = "drop:cf0.5" };
    struct routes routes;
    struct parity p[2];
    for (int i = 0; i < 2; i++) {
        parity_open(&p[i], &f, 7, OPTIMIZER_SGD);
        if (i == 0) routes_make(&routes, &p[0].a, &p[0].j, PARITY_STEPS);
        p[i].ask.routes = &routes;
        p[i].ask.replay = i;
        ck_assert_msg(parity_run(&p[i]) == OK, "%s", p[i].d.text);
    }
    for (int layer = 1; layer < 4; layer++)
        for (int at = 0; at < PARITY_SEQ; at++) {
            const int32_t *pick = routes_at(&routes, 0, layer, 3, at);
            ck_assert(pick[0] >= 0 && pick[1] >= 0 && pick[0] != pick[1]);
        }
    const char *off = parity_loss_differs(&p[1], &p[0]);
    ck_assert_msg(!off, "%s", off);
    for (int i = 0; i < 2; i++) parity_close(&p[i]);
}
END_TEST

int main(void)
{
    const struct test_loop tests[] = {
        { capacities_by_hand, 0 },
        { buffers_hold_what_may_come, 0 },
        { folds_that_cut_tokens_alike, LEN(cut_alike) * LEN(loads) },
        { room_for_all_is_dropless, LEN(cut_otherwise) },
        { something_is_dropped, 0 },
        { stored_as_bf16, 0 },
        { predicted_rows_are_measured_ones, LEN(predicted) },
        { choices_are_recorded_whole, 0 },
    };
    return test_main_loops("drop", NULL, tests, LEN(tests), 240);
}
