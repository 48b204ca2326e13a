/* Ranks as processes are ranks as threads: the same losses, arenas, counts and spans, bit for bit, for folds of every
 * kind; and when one of them is killed, wherever it is, the run ends soon with its name. `test_exec_fork all` takes
 * every fold of folds.h. */
#include "tests/folds.h"
#include "tests/parity.h"
#include <signal.h>
#include <time.h>

static int stride = 8;              /* of the folds; those of 16 ranks and two hops are among them */

static void open_as(struct parity *p, const struct fold *f, int processes)
{
    *p = (struct parity){ .a = { .shared = processes }, .j = parity_job(f, seeds[f->family], OPTIMIZER_ADAMW) };
    parity_make(p, f);
    p->ask.processes = processes;
    p->ask.steps = p->ask.iters_traced = 3;
}

static void same_spans(const struct trace *x, const struct trace *y, const char *fold)
{
    ck_assert_msg(x->n == y->n, "%s: %lld spans, of threads %lld", fold, (long long)x->n, (long long)y->n);
    for (int64_t i = 0; i < x->n; i++) {
        const struct span *s = &x->span[i], *t = &y->span[i];
        ck_assert_msg(s->iter == t->iter && s->rank == t->rank && s->step == t->step && s->op == t->op &&
                          s->rows[0] == t->rows[0] && s->rows[1] == t->rows[1] && s->t0_ns > 0 && s->t1_ns >= s->t0_ns,
                      "%s: span %lld", fold, (long long)i);
    }
}

static void same(const struct parity *x, const struct parity *y, const char *fold)
{
    for (int s = 0; s < x->r.n_step; s++)
        ck_assert_msg(x->r.step[s].loss == y->r.step[s].loss && x->r.step[s].mtp_loss == y->r.step[s].mtp_loss &&
                          x->r.step[s].grad_norm == y->r.step[s].grad_norm && x->r.step[s].step_s > 0,
                      "%s: step %d", fold, s);
    for (int i = 0; i < x->j.plan.gpus; i++) {
        const struct unroll *u = &x->u[fold_coord(&x->j.plan, i).pp];
        ck_assert_msg(x->r.live_B[i] == y->r.live_B[i] && x->r.touched_B[i] == y->r.touched_B[i], "%s: bytes of rank %d", fold, i);
        ck_assert_msg(memcmp(x->arena[i], y->arena[i], (size_t)u->arena_B) == 0, "%s: arena of rank %d", fold, i);
    }
    ck_assert(x->r.score_gap == y->r.score_gap);
    same_spans(&x->r.trace, &y->r.trace, fold);
}

static void runs_the_same(const struct fold *f)
{
    struct parity p[2];
    for (int i = 0; i < 2; i++) {
        open_as(&p[i], f, i);
        ck_assert_msg(parity_run(&p[i]) == OK, "%s: %s", f->name, p[i].d.text);
    }
    same(&p[1], &p[0], f->name);
    for (int i = 0; i < 2; i++) parity_close(&p[i]);
}

START_TEST(processes_are_threads)
{
    runs_the_same(&folds[_i * stride]);
}
END_TEST

/* What launchers send from scratch of their own: heads for tokens, tokens in two hops, in bf16 too. */
static const struct fold from_scratch[] = {
    { .name = "heads for tokens", .family = GQA_ALL, .cp = 2, .dp = 2, .ep = 2, .a2a = 1 },
    { .name = "two hops", .family = GQA, .dp = 4, .ep = 4, .dispatcher = DISPATCHER_HYBRIDEP, .domain = 2 },
    { .name = "two hops bf16", .family = GQA, .dp = 4, .ep = 4, .dispatcher = DISPATCHER_HYBRIDEP, .domain = 2, .bf16 = 1 },
    { .name = "allgather bf16", .family = GQA, .tp = 2, .dp = 2, .ep = 2, .dispatcher = DISPATCHER_ALLGATHER, .bf16 = 1 },
};

START_TEST(scratch_is_seen)
{
    runs_the_same(&from_scratch[_i]);
}
END_TEST

/* ---- killed ---- */

static int32_t victim, at_iter, at_op;      /* of the launch that its process does not survive */

static enum err kills(const struct call *c)
{
    if (c->rank == victim && c->iter == at_iter && c->op - c->pr->op >= at_op) raise(SIGKILL);
    return backend_cpu_launch[c->op->kind](c);
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void rank_dies(int i)
{
    const struct fold f = { .name = "mixed", .family = GQA_ALL, .pp = 2, .tp = 2, .dp = 2, .ep = 4 };
    struct parity p;
    launch *table[OP_KIND_COUNT];
    char name[32];
    for (int k = 0; k < OP_KIND_COUNT; k++) table[k] = kills;
    open_as(&p, &f, 1);
    p.ask.backend = table;
    p.ask.timeout_s = 0;                    /* nothing but the death may end it */
    victim = i * 5 % p.j.plan.gpus;
    at_iter = i % 3;
    at_op = i * 37 % 60;
    const double start_s = now_s();
    ck_assert_int_eq(parity_run(&p), ERR_COMM);
    ck_assert_msg(now_s() - start_s < 10, "it took %g s", now_s() - start_s);
    snprintf(name, sizeof name, "rank %d died", victim);
    ck_assert_msg(strncmp(p.d.text, name, strlen(name)) == 0 && strstr(p.d.text, "Killed"), "%s: %s", name, p.d.text);
    parity_close(&p);
}

START_TEST(a_killed_rank_is_named)
{
    rank_dies(_i);
}
END_TEST

static enum err fails_on_rank_5(const struct call *c)
{
    if (c->rank == 5 && c->iter == 1) return (fail)(c->d, ERR_LIMIT, "planted: no memory on rank 5");
    return backend_cpu_launch[c->op->kind](c);
}

START_TEST(a_failing_process_speaks_for_all)
{
    const struct fold f = { .name = "mixed", .family = GQA_ALL, .pp = 2, .tp = 2, .dp = 2, .ep = 4 };
    struct parity p;
    launch *table[OP_KIND_COUNT];
    memcpy(table, backend_cpu_launch, sizeof table);
    table[OP_COMBINE] = fails_on_rank_5;
    open_as(&p, &f, 1);
    p.ask.backend = table;
    p.ask.timeout_s = 0;
    ck_assert_int_eq(parity_run(&p), ERR_LIMIT);
    ck_assert_str_eq(p.d.text, "planted: no memory on rank 5");
    parity_close(&p);
}
END_TEST

/* The caller's process hears of every step, in order. */
static int heard;

static void hears(void *user, int step, const struct exec_step *s)
{
    (void)user;
    ck_assert_int_eq(step, heard++);
    ck_assert(s->loss > 0);
}

START_TEST(steps_are_reported_to_the_caller)
{
    const struct fold f = { .name = "dp2", .family = GQA, .dp = 2 };
    struct parity p;
    open_as(&p, &f, 1);
    p.ask.report = hears;
    ck_assert_msg(parity_run(&p) == OK, "%s", p.d.text);
    ck_assert_int_eq(heard, 3);
    parity_close(&p);
}
END_TEST

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "all") == 0) stride = 1;
    Suite *s = suite_create("exec_fork");
    TCase *t = tcase_create("fork");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, processes_are_threads, 0, (LEN(folds) - 1) / stride / PARITY_STRIDE + 1);
    tcase_add_loop_test(t, scratch_is_seen, 0, LEN(from_scratch));
    tcase_add_loop_test(t, a_killed_rank_is_named, 0, 10);
    tcase_add_test(t, a_failing_process_speaks_for_all);
    tcase_add_test(t, steps_are_reported_to_the_caller);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    const int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
