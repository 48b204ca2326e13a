/* calibrate: prices that made the samples are found again, also when some of them are disturbed; probes time
 * every kind of op that their plans hold, and what they give is a system that reads back as it was written. */
#include "tests/test.h"
#include "models/op.h"
#include "tools/calibrate.h"
#include <math.h>

static void sample(struct calibrate_run *r, enum op_kind kind, int members, double bytes, double flop, double units,
                   const struct system_op *p, double disturbed)
{
    const double s = p->floor_s * (members > 1 ? members - 1 : 1) + (p->B_per_s > 0 ? bytes / p->B_per_s : 0) +
                     (p->flop_per_s > 0 ? flop / p->flop_per_s : 0) + p->each_s * units;
    r->sample[r->n++] = (struct calibrate_sample){ .kind = (uint8_t)kind, .members = members, .flop = flop,
                                                   .bytes = bytes, .units = units, .s = s * disturbed, .spread = 0.01, .n = 9 };
}

static const struct { enum op_kind kind; int members; struct system_op p; } truth[] = {
    { OP_GEMM, 1, { 3e-7, 60e9, 240e9, 0 } },
    { OP_GROUPED_GEMM, 1, { 0, 30e9, 200e9, 4e-7 } },
    { OP_ATTN, 1, { 1e-5, 8e9, 700e9, 3e-10 } },
    { OP_NORM, 1, { 5e-8, 45e9, 0, 4e-9 } },
    { OP_GATHER, 2, { 2e-5, 9e9, 0, 0 } },
    { OP_SEND, 1, { 8e-6, 10e9, 0, 0 } },
};

static void close_to(double found, double want, const char *kind, const char *what)
{
    ck_assert_msg(fabs(found - want) <= 0.02 * want, "%s: %s is %g, found %g", kind, what, want, found);
}

/* Every eighth sample took twice as long. */
START_TEST(prices_are_found)
{
    struct arena a = { 0 };
    struct calibrate_run r = { .a = &a };
    struct calibrate_fit fit[OP_KIND_COUNT];
    struct system s = { 0 };
    struct diag d;
    uint64_t state = 7;
    ck_assert_int_eq(system_read(&s, &a, "host", &d), OK);
    r.sample = arena_alloc(&a, 1024 * sizeof *r.sample);
    for (int i = 0; i < LEN(truth); i++)
        for (int k = 0; k < 64; k++) {
            const double rows = 1 + test_random(&state, 512);
            const double cols = 8 << test_random(&state, 5), in = 8 << test_random(&state, 5);
            const int members = truth[i].members > 1 ? 2 + test_random(&state, 3) : 1;
            sample(&r, truth[i].kind, members, 4 * (rows * cols + cols * in + rows * in), 2 * rows * cols * in,
                   1 + test_random(&state, 64) * rows, &truth[i].p, k % 8 == 3 ? 2 : 1);
        }
    ck_assert_int_eq(calibrate_fits(fit, &s, &r), LEN(truth));
    for (int i = 0; i < LEN(truth); i++) {
        const struct system_op *got = &s.op[truth[i].kind], *want = &truth[i].p;
        const char *name = op_name(truth[i].kind);
        if (want->floor_s > 0) close_to(got->floor_s, want->floor_s, name, "floor");
        close_to(got->B_per_s, want->B_per_s, name, "rate");
        if (want->flop_per_s > 0) close_to(got->flop_per_s, want->flop_per_s, name, "flops");
        if (want->each_s > 0) close_to(got->each_s, want->each_s, name, "each");
    }
    ck_assert(s.op[OP_WGRAD].floor_s == 0 && s.op[OP_WGRAD].B_per_s == 0);  /* not measured: the formulas' */
    arena_free(&a);
}
END_TEST

static const struct calibrate_probe probes[] = {
    { "layers 2", "gpus 1 gbs 2 seq 32" }, { "layers 2", "gpus 2 ep 2 gbs 4 seq 32 capacity worst" },
};

static const enum op_kind kinds[] = { OP_GEMM, OP_WGRAD, OP_GROUPED_GEMM, OP_ATTN_BWD, OP_SWIGLU, OP_ROUTE, OP_ADAMW,
                                      OP_DATA, OP_DISPATCH, OP_COMBINE, OP_GRAD_SCATTER, OP_PARAM_GATHER, OP_ALL_REDUCE };

START_TEST(probes_become_a_system)
{
    struct arena a = { 0 };
    struct calibrate_run r = { .a = &a };
    struct calibrate_fit fit[OP_KIND_COUNT];
    struct system s, back;
    struct cfg c;
    struct diag d = { 0 };
    ck_assert_int_eq(system_read(&s, &a, "host", &d), OK);
    for (int i = 0; i < LEN(probes); i++)
        ck_assert_msg(calibrate_probe(&r, &probes[i], i, 3, &d) == OK, "%s", d.text);
    for (int i = 0; i < r.n; i++) ck_assert(r.sample[i].s >= 0 && r.sample[i].n > 0 && r.sample[i].bytes >= 0);
    for (int g = 0; g < CALIBRATE_GAPS; g++) ck_assert_int_gt(r.n_gap[g], 0);
    calibrate_fits(fit, &s, &r);
    ck_assert(s.wake_s > 0 && s.next_s > 0);
    for (int i = 0; i < LEN(kinds); i++) {
        const struct system_op *p = &s.op[kinds[i]];
        ck_assert_msg(p->floor_s + p->B_per_s + p->flop_per_s + p->each_s > 0, "%s has no price", op_name(kinds[i]));
        ck_assert(p->floor_s >= 0 && p->B_per_s >= 0 && p->flop_per_s >= 0 && p->each_s >= 0);
    }
    const char *text = system_text(&a, &s);
    ck_assert_msg(cfg_read_text(&c, &a, "host.yaml", text, strlen(text), &d) == OK, "%s", d.text);
    ck_assert_msg(system_fill(&back, &c, &d) == OK, "%s", d.text);
    for (int i = 0; i < system_n_opt; i++) {
        const struct opt *o = &system_opts[i];
        if (o->type == OPT_NUMBER)
            ck_assert_msg(memcmp((char *)&s + o->at, (char *)&back + o->at, o->size) == 0, "%s does not read back",
                          o->key);
    }
    arena_free(&a);
}
END_TEST

/* A wake costs what brings the steps of probes right: the gap at least, five of it at most, and what lies
 * between. */
START_TEST(a_wake_is_what_steps_took)
{
    struct arena a = { 0 };
    struct calibrate_run r = { .a = &a };
    struct system s;
    struct diag d = { 0 };
    ck_assert_int_eq(system_read(&s, &a, "host", &d), OK);
    ck_assert_msg(calibrate_probe(&r, &probes[1], 0, 2, &d) == OK, "%s", d.text);
    ck_assert_int_eq(r.n_step, 1);
    const struct { double measured_s, low_s, high_s; } row[] = { { 1e-9, 1e-5, 1e-5 }, { 1, 5e-5, 5e-5 } };
    for (int i = 0; i < LEN(row); i++) {
        s.wake_s = 1e-5;
        r.step[0].measured_s = row[i].measured_s;
        calibrate_wake(&s, &r);
        ck_assert_double_ge(s.wake_s, row[i].low_s * (1 - 1e-9));
        ck_assert_double_le(s.wake_s, row[i].high_s * (1 + 1e-9));
    }
    double between_s = 2e-4;            /* a step that neither end of the range explains: found between them */
    for (double low = 1e-9, high = 1; high / low > 1.01;) {
        r.step[0].measured_s = between_s = sqrt(low * high);
        s.wake_s = 1e-5;
        calibrate_wake(&s, &r);
        if (s.wake_s < 3e-5) low = between_s;
        else high = between_s;
    }
    s.wake_s = 1e-5;
    calibrate_wake(&s, &r);
    ck_assert_double_eq_tol(s.wake_s, 3e-5, 3e-6);
    arena_free(&a);
}
END_TEST

#ifdef TEST_DEVICE
extern const struct backend backend_module;     /* of the emulation */

/* Every op of a GPU is timed by its own clock, those that take no time too. */
START_TEST(probes_run_on_a_device)
{
    struct arena a = { 0 };
    struct calibrate_run r = { .a = &a, .on = &backend_module };
    struct calibrate_fit fit[OP_KIND_COUNT];
    struct system s;
    struct diag d;
    const struct calibrate_probe p = { "layers 2", "precision bf16 gpus 1 gbs 2 seq 32" };
    ck_assert_int_eq(system_read(&s, &a, "host", &d), OK);
    ck_assert_msg(calibrate_probe(&r, &p, 0, 3, &d) == OK, "%s", d.text);
    ck_assert_int_gt(r.n, 40);
    for (int i = 0; i < r.n; i++) {
        const struct calibrate_sample *x = &r.sample[i];
        ck_assert_msg(x->s > 0 && isfinite(x->spread), "%s: %g s, spread %g", op_name(x->kind), x->s, x->spread);
    }
    ck_assert_int_gt(calibrate_fits(fit, &s, &r), 20);
    ck_assert_msg(system_check(&s, &d) == OK, "%s", d.text);
    arena_free(&a);
}
END_TEST
#endif

START_TEST(a_wrong_probe_is_refused)
{
    struct arena a = { 0 };
    struct calibrate_run r = { .a = &a };
    struct diag d = { 0 };
    const struct calibrate_probe p = { "layers 2", "gpus 2 ep 3 gbs 4 seq 32" };
    ck_assert_int_eq(calibrate_probe(&r, &p, 0, 3, &d), ERR_CONFIG);
    ck_assert(strstr(d.text, "ep"));
    arena_free(&a);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = { prices_are_found, probes_become_a_system, a_wake_is_what_steps_took, a_wrong_probe_is_refused,
#ifdef TEST_DEVICE
                                   probes_run_on_a_device,
#endif
    };
    return test_main("calibrate", tests, LEN(tests), 120);
}
