/* The CUDA backend (of the emulation, or of a GPU: tests/device.h) in the executor: every op of several models is compared with the CPU's on the same inputs, on one
 * rank and on folded ones; whole runs then give the CPU's losses. */
#include "exec/verify.h"
#include "tests/device.h"
#include "tests/parity.h"
#include "tests/test.h"
#include <stdatomic.h>

extern const struct backend backend_module;     /* exec/backend_cuda.c */
static struct verify v;

static const struct fold folds[] = {
    { .name = "gqa folded", .family = GQA, .tp = 2, .ep = 2, .etp = 1, .dp = 1 },
    { .name = "mla folded", .family = MLA, .cp = 2, .ep = 2 },
    { .name = "windows, sinks, biases", .family = OSS },
    { .name = "gqa bf16", .family = GQA, .bf16 = 1 },
    { .name = "eight ranks folded", .family = GQA_ALL, .tp = 2, .cp = 2, .dp = 2, .etp = 2, .ep = 4 },
    { .name = "balanced by sequence", .family = MLA, .dp = 2, .balance = BALANCE_SEQ_AUX },
};

static void open_fold(struct parity *p, const struct fold *f, int steps)
{
    parity_open(p, f, 1, OPTIMIZER_ADAMW);
    p->ask.steps = steps;
    p->ask.before = NULL;
    p->ask.after_step = NULL;
}

START_TEST(every_op_agrees_with_the_cpu)
{
    struct parity p;
    const struct fold *f = &folds[_i];
    ck_assert_msg(backend_module.open(&p.d) == OK, "%s", p.d.text);
    device_order(_i % device_orders());
    open_fold(&p, f, 1);
    v.a = (struct verify_side){ backend_cpu_table(&p.j.plan), &kernels_ref, NULL };
    v.b = (struct verify_side){ backend_module.launch, &kernels_ref, &backend_module };
    ck_assert_msg(verify_run(&v, &p.a, &p.pr, p.u, &p.j, &p.ask, &p.d) == OK, "%s: %s %s", f->name, p.d.text, device_fault());
    for (int i = 0; i < OP_KIND_COUNT; i++) {
        const double limit = verify_limit((enum dtype)v.kind[i].dtype);
        ck_assert_msg(v.kind[i].off <= limit, "%s: %s is off by %g: %g, %g", f->name, op_name((enum op_kind)i), v.kind[i].off,
                      v.kind[i].a, v.kind[i].b);
    }
    parity_close(&p);
}
END_TEST

START_TEST(runs_lose_as_the_cpu_does)
{
    enum { STEPS = 1 };
    double loss[2][STEPS];
    for (int side = 0; side < 2; side++) {
        struct parity p;
        struct exec_result r;
        open_fold(&p, &folds[_i], STEPS);
        p.ask.on = side ? &backend_module : NULL;
        p.ask.kernels = &kernels_ref;
        ck_assert_msg(exec_run(&r, &p.a, &p.pr, p.u, &p.j, &p.ask, &p.d) == OK, "%s: %s", folds[_i].name, p.d.text);
        for (int s = 0; s < STEPS; s++) loss[side][s] = r.step[s].loss;
        parity_close(&p);
    }
    for (int s = 0; s < STEPS; s++)
        ck_assert_msg(fabs(loss[1][s] - loss[0][s]) < (folds[_i].bf16 ? 2e-3 : 2e-5), "%s: %.9g, the CPU's %.9g", folds[_i].name,
                      loss[1][s], loss[0][s]);
}
END_TEST

static const struct span *span_of(const struct trace *t, int rank, const struct item *it)
{
    for (int64_t i = 0; i < t->n; i++)
        if (t->span[i].iter == 0 && t->span[i].rank == rank && t->span[i].step == it->step && t->span[i].op == it->op) return &t->span[i];
    ck_abort_msg("no span of step %d, op %d", it->step, it->op);
    return NULL;
}

/* Spans are by the device's clock, from marks: no item began before what it depends on had ended, whichever stream it was in. */
START_TEST(spans_follow_their_deps)
{
    enum { CLOCK_NS = 2000 };       /* as fine as events are */
    struct parity p;
    struct exec_result r;
    open_fold(&p, &folds[0], 1);
    p.ask.on = &backend_module;
    p.ask.kernels = &kernels_ref;
    ck_assert_msg(exec_run(&r, &p.a, &p.pr, p.u, &p.j, &p.ask, &p.d) == OK, "%s", p.d.text);
    int crossing = 0;
    for (int i = 0; i < p.u[0].n_item; i++) {
        const struct item *it = &p.u[0].item[i];
        const struct span *s = span_of(&r.trace, 0, it);
        ck_assert(s->t1_ns >= s->t0_ns);
        for (int k = 0; k < it->n_dep; k++) {
            const struct item *dep = &p.u[0].item[p.u[0].dep[it->dep + k]];
            const struct span *before = span_of(&r.trace, 0, dep);
            crossing += p.pr.op[it->op].stream != p.pr.op[dep->op].stream;
            ck_assert_msg(s->t0_ns >= before->t1_ns - CLOCK_NS, "%s began %lld ns before %s had ended",
                          op_name((enum op_kind)p.pr.op[it->op].kind), (long long)(before->t1_ns - s->t0_ns),
                          op_name((enum op_kind)p.pr.op[dep->op].kind));
        }
    }
    ck_assert_int_gt(crossing, 10);
    parity_close(&p);
}
END_TEST

/* ---- a device that says no, on the way: the run ends with one line that names rank and op ---- */

static _Atomic int calls_left;
static const char *until_none_left(void)
{
    return atomic_fetch_sub(&calls_left, 1) <= 0 ? "planted" : NULL;
}
static const char *bad_mark(void *m) { const char *no = until_none_left(); return no ? no : backend_module.mark(m); }
static const char *bad_after(void *m) { const char *no = until_none_left(); return no ? no : backend_module.after(m); }
static const char *bad_reached(void *m) { const char *no = until_none_left(); return no ? no : backend_module.reached(m); }
static const char *bad_copy(void *to, const void *from, int64_t bytes)
{
    const char *no = until_none_left();
    return no ? no : backend_module.mover->copy(to, from, bytes);
}

START_TEST(what_a_device_says_is_the_runs_answer)
{
    struct comm_mover mover = *backend_module.mover;
    struct backend bad = backend_module;
    const char *want[] = { "at or before", "at or before", "at or before", "group" };
    struct parity p;
    struct exec_result r;
    if (_i == 0) bad.mark = bad_mark;
    if (_i == 1) bad.after = bad_after;
    if (_i == 2) bad.reached = bad_reached;
    if (_i == 3) mover.copy = bad_copy, bad.mover = &mover;
    open_fold(&p, &folds[0], 1);
    p.ask.on = &bad;
    atomic_store(&calls_left, 2);
    const enum err e = exec_run(&r, &p.a, &p.pr, p.u, &p.j, &p.ask, &p.d);
    ck_assert_int_eq(e, _i == 3 ? ERR_COMM : ERR_DEVICE);
    ck_assert_msg(strstr(p.d.text, "rank ") && strstr(p.d.text, want[_i]) && strstr(p.d.text, "the device says: planted"), "%s", p.d.text);
    ck_assert_ptr_null(strchr(p.d.text, '\n'));
    parity_close(&p);
}
END_TEST

static void *no_room(int64_t bytes)
{
    (void)bytes;
    return NULL;
}

START_TEST(an_arena_that_does_not_fit_is_refused)
{
    struct backend full = backend_module;
    struct parity p;
    struct exec_result r;
    full.arena_new = no_room;
    open_fold(&p, &folds[0], 1);
    p.ask.on = &full;
    ck_assert_int_eq(exec_run(&r, &p.a, &p.pr, p.u, &p.j, &p.ask, &p.d), ERR_LIMIT);
    ck_assert_msg(strstr(p.d.text, "rank 0: no cuda memory for its arena of "), "%s", p.d.text);
    parity_close(&p);
}
END_TEST

int main(void)
{
    const struct test_loop tests[] = {
        { every_op_agrees_with_the_cpu, (int)(sizeof folds / sizeof folds[0]) },
        { runs_lose_as_the_cpu_does, LEN(folds) }, { spans_follow_their_deps, 1 },
        { what_a_device_says_is_the_runs_answer, 4 }, { an_arena_that_does_not_fit_is_refused, 1 },
    };
    return test_main_loops("cu_backend", NULL, tests, LEN(tests), 300);
}
