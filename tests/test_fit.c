/* Calibration: planted figures are found again, bounds hold, what rows do not determine is named and left alone, a fit
 * never looks at the rows that it is scored on, and files are written with only the moved scalars changed. */
#include "tools/fit/fit_run.h"
#include "tools/fit/fit_write.h"
#include "tests/test.h"
#include <math.h>
#include <stdio.h>

/* ---- the solver alone: r[i] = a_i ln(x) + b_i ln(y) - what planted values give ---- */

enum { ROWS = 12 };
struct planted { double x, y, outlier; };

static double of_row(int i, const double *v)
{
    return (i % 3) * 0.5 * log(v[0]) + (i % 2) * 0.8 * log(v[1]);
}

static void planted_residual(void *of, const double *value, double *r)
{
    const struct planted *p = of;
    const double at[2] = { p->x, p->y };
    for (int i = 0; i < ROWS; i++) r[i] = of_row(i, value) - of_row(i, at) + (i == 5 ? p->outlier : 0);
}

static void planted_jacobian(void *of, const double *value, const char *want, double *jac)
{
    (void)of, (void)value;
    for (int i = 0; i < ROWS; i++) {
        jac[3 * i] = want[0] ? (i % 3) * 0.5 : 0;
        jac[3 * i + 1] = want[1] ? (i % 2) * 0.8 : 0;
        jac[3 * i + 2] = 0;
    }
}

static void solve_planted(struct fit_value value[3], struct planted p, int bounded)
{
    const struct fit_prior prior[3] = { { 1, 2, 0.5, 2 }, { 1, 2, 0.5, 2 }, { 0.7, 0.3, 0.2, 1 } };
    double weight[ROWS];
    for (int i = 0; i < ROWS; i++) weight[i] = 1;
    const struct fit_problem f = { .n_param = 3, .n_row = ROWS, .prior = prior, .weight = weight, .scale = 0.05,
                                   .bounded = bounded, .of = &p, .residual = planted_residual,
                                   .jacobian = planted_jacobian };
    fit_solve(value, &f);
}

START_TEST(solver_finds_what_was_planted)
{
    struct fit_value v[3];
    solve_planted(v, (struct planted){ 1.3, 0.8, 0 }, 1);
    ck_assert_double_eq_tol(v[0].value, 1.3, 0.005);
    ck_assert_double_eq_tol(v[1].value, 0.8, 0.005);
    ck_assert(v[0].low < 1.3 && 1.3 < v[0].high && !v[0].undetermined && !v[0].at_bound);
    solve_planted(v, (struct planted){ 1.3, 0.8, 5 }, 1);       /* one row off by e^5 moves it little */
    ck_assert_double_eq_tol(v[0].value, 1.3, 0.08);
}
END_TEST

START_TEST(bounds_hold_and_are_named)
{
    struct fit_value v[3];
    solve_planted(v, (struct planted){ 3, 0.8, 0 }, 1);
    ck_assert(v[0].value <= 2 && v[0].high <= 2 && v[0].at_bound == 1);
    ck_assert_int_eq(v[1].at_bound, 0);
    solve_planted(v, (struct planted){ 3, 0.8, 0 }, 0);
    ck_assert_double_eq_tol(v[0].value, 3, 0.02);
}
END_TEST

START_TEST(undetermined_stays_at_its_prior)
{
    struct fit_value v[3];
    solve_planted(v, (struct planted){ 1.3, 0.8, 0 }, 1);
    ck_assert_int_eq(v[2].undetermined, 1);
    ck_assert_double_eq(v[2].value, 0.7);
    ck_assert_double_eq(v[2].sensitivity, 0);
}
END_TEST

/* ---- a few runs ---- */

static const char runs[] =
    "id,source,model,system,gpus,precision,seq_len,gbs,mbs,tp,pp,vp,cp,ep,step_time_s\n"
    "a,s,llama3-8b,h100-sxm,8,bf16,8192,128,1,1,1,1,2,1,1\n"
    "b,s,llama3-8b,h100-sxm,8,bf16,8192,128,1,2,1,1,1,1,1\n"
    "c,s,llama3-8b,h100-sxm,8,bf16,4096,128,1,4,1,1,1,1,1\n"
    "d,s,mixtral-8x7b,h100-sxm,64,bf16,4096,256,1,1,4,8,1,8,1\n"
    "e,s,mixtral-8x7b,h100-sxm,64,bf16,4096,256,1,2,4,1,1,8,1\n"
    "f,s,llama3-70b,h100-sxm,64,bf16,8192,128,1,4,4,5,2,1,1\n"
    "g,s,llama3-70b,h100-sxm,64,bf16,8192,128,1,8,4,1,1,1,1\n"
    "h,s,llama3-8b,a100-sxm,8,bf16,8192,128,1,2,1,1,1,1,1\n"
    "i,s,llama3-8b,a100-sxm,8,bf16,4096,128,1,1,1,1,1,1,1\n"
    "j,t,llama3-8b,a100-sxm,8,bf16,4096,128,1,1,1,1,1,1,1\n";     /* the job of i, measured again */
static const char params[] =
    "parameters:\n"
    "  - { name: math, source: test, prior: { median: 1, ln_sigma: 3 }, bounds: { low: 0.5, high: 1.5 },\n"
    "      moves: [{ systems: ['h*', 'a100-*'], key: step.gemm.bf16 }] }\n"
    "  - { name: bytes, source: test, prior: { median: 1, ln_sigma: 3 }, bounds: { low: 0.4, high: 1.5 },\n"
    "      moves: [{ systems: [h100-sxm, 'a100-*'], key: step.memory }] }\n"
    "  - { name: older, source: test, prior: { median: 1, ln_sigma: 3 }, bounds: { low: 0.5, high: 2 },\n"
    "      moves: [{ systems: a100-sxm, key: step.gemm.bf16 }, { systems: a100-sxm, key: host.issue, base: 5 us }] }\n"
    "  - { name: nobody, source: test, prior: { median: 0.9, ln_sigma: 0.2 }, bounds: { low: 0.5, high: 2 },\n"
    "      moves: [{ systems: b200, key: step.nvlink }] }\n";

struct fixture {
    struct arena a; struct diag d;
    struct validate_rules rules; struct fit_params params; struct fit_data data;
};

static void open_runs(struct fixture *f)
{
    const char *path = BUILD_DIR "/test_fit.csv";
    FILE *to = fopen(path, "w");
    ck_assert_ptr_nonnull(to);
    fputs(runs, to);
    fclose(to);
    *f = (struct fixture){ .d = { "" } };
    f->data = (struct fit_data){ .a = &f->a, .params = &f->params, .threads = 2 };
    ck_assert_msg(fit_param_read_text(&f->params, &f->a, "p", params, &f->d) == OK, "%s", f->d.text);
    ck_assert_msg(validate_rules_read(&f->rules, &f->a, "sources", &f->d) == OK, "%s", f->d.text);
    ck_assert_msg(fit_data_read(&f->data, path, &f->rules, NULL, 0, &f->d) == OK, "%s", f->d.text);
    fit_data_weigh(&f->data);
    ck_assert_int_eq(f->data.n_row, 10);
    ck_assert_int_eq(f->data.n_job, 9);
}

/* What these values predict becomes what was measured. */
static void plant(struct fixture *f, const double *value)
{
    double step_s[16];
    char want[16];
    memset(want, 1, sizeof want);
    fit_data_steps(&f->data, value, want, step_s);
    for (int i = 0; i < f->data.n_row; i++) f->data.row[i].measured_s = step_s[f->data.row[i].job];
}

START_TEST(planted_machine_is_found)
{
    struct fixture f;
    struct fit_value v[FIT_PARAMS];
    double value[FIT_PARAMS], ln_fast[16];
    char train[16];
    open_runs(&f);
    plant(&f, (double[]){ 0.8, 0.6, 1.2, 0.9 });
    memset(train, 1, sizeof train);
    fit_run(v, &f.data, train, 1, 1);
    ck_assert_double_eq_tol(v[0].value, 0.8, 0.008);
    ck_assert_double_eq_tol(v[1].value, 0.6, 0.05);     /* bytes take little of these steps */
    ck_assert_double_eq_tol(v[2].value, 1.2, 0.012);
    for (int i = 0; i < 4; i++) value[i] = v[i].value;
    fit_run_score(ln_fast, &f.data, value, train);
    for (int i = 0; i < f.data.n_row; i++) ck_assert_double_eq_tol(ln_fast[i], 0, 0.01);
    ck_assert_int_eq(v[3].undetermined, 1);
    ck_assert(f.data.row[9].weight < 0.8 && f.data.row[8].weight == f.data.row[9].weight);
    ck_assert_double_eq(f.data.row[0].weight, 1);
    arena_free(&f.a);
}
END_TEST

/* Rows that are scored may say anything: the fit to the others stays, to the bit. */
START_TEST(fit_does_not_see_what_it_is_scored_on)
{
    struct fixture f;
    struct fit_value v[FIT_PARAMS], w[FIT_PARAMS];
    double value[FIT_PARAMS], before[16], after[16];
    char half[16], train[16], score[16];
    open_runs(&f);
    plant(&f, (double[]){ 0.8, 0.6, 1.2, 0.9 });
    fit_cv_halves(half, &f.data, FIT_GROUP_PAIR, 1);
    for (int i = 0; i < f.data.n_row; i++) train[i] = !(score[i] = half[i] == 1);
    fit_run(v, &f.data, train, 1, 0);
    for (int i = 0; i < 4; i++) value[i] = v[i].value;
    fit_run_score(before, &f.data, value, score);
    for (int i = 0; i < f.data.n_row; i++)
        if (score[i]) f.data.row[i].measured_s *= 3;
    fit_run(w, &f.data, train, 1, 0);
    fit_run_score(after, &f.data, value, score);
    for (int i = 0; i < 4; i++) ck_assert_double_eq(v[i].value, w[i].value);
    for (int i = 0; i < f.data.n_row; i++) {
        ck_assert(isnan(before[i]) == !score[i]);
        if (score[i]) ck_assert_double_eq_tol(after[i] - before[i], log(3), 1e-9);
    }
    arena_free(&f.a);
}
END_TEST

START_TEST(halves_keep_siblings_together)
{
    struct fixture f;
    char half[16], other[16];
    int differs = 0;
    open_runs(&f);
    for (int seed = 1; seed <= FIT_SEEDS; seed++) {
        int n = 0;
        fit_cv_halves(half, &f.data, FIT_GROUP_PAIR, seed);
        fit_cv_halves(other, &f.data, FIT_GROUP_PAIR, seed + 1);
        differs |= memcmp(half, other, (size_t)f.data.n_row) != 0;
        for (int i = 0; i < f.data.n_row; i++) {
            n += half[i];
            for (int k = 0; k < i; k++) {
                const struct validate_row *x = &f.data.row[i].of, *y = &f.data.row[k].of;
                if (strcmp(x->model, y->model) == 0 && strcmp(x->system, y->system) == 0)
                    ck_assert_int_eq(half[i], half[k]);
            }
        }
        ck_assert(n >= 3 && n <= 7);
    }
    ck_assert(differs);
    arena_free(&f.a);
}
END_TEST

/* Every row is scored once a seed, by the half that is not its own. */
START_TEST(cross_validation_scores_every_row)
{
    struct fixture f;
    struct fit_cv cv;
    open_runs(&f);
    plant(&f, (double[]){ 0.8, 0.6, 1.2, 0.9 });
    fit_cv_all(&cv, &f.data, FIT_GROUP_PAIR, 2, NULL);
    ck_assert_int_eq(cv.n_fold, 4);
    for (int seed = 0; seed < 2; seed++) {
        ck_assert_int_eq(cv.fold[2 * seed].error.n + cv.fold[2 * seed + 1].error.n, f.data.n_row);
        for (int i = 0; i < f.data.n_row; i++) ck_assert(isfinite(cv.ln_fast[seed * f.data.n_row + i]));
    }
    ck_assert(cv.mean.median >= 0 && cv.mean.median < 0.3);
    arena_free(&f.a);
}
END_TEST

/* ---- parameters and files ---- */

START_TEST(keys_are_bases_times_parameters)
{
    struct fixture f;
    struct system s, again;
    struct stack t = { .name = "mcore-2510" };
    const double value[] = { 0.8, 0.6, 1.2, 0.9 };
    open_runs(&f);
    ck_assert_int_eq(system_read(&s, &f.a, "a100-sxm", &f.d), OK);
    fit_param_apply(&f.params, value, &s, &t);
    again = s;
    fit_param_apply(&f.params, value, &again, &t);
    ck_assert(memcmp(&s, &again, sizeof s) == 0);               /* from the base, whatever was there */
    ck_assert_double_eq_tol(s.step.gemm[DT_BF16], 0.8 * 1.2, 1e-12);
    ck_assert_double_eq_tol(s.issue_s, 5e-6 * 1.2, 1e-18);
    ck_assert_str_eq(fit_param_text(&f.params, &f.a, value, 0, "a100-sxm", "host.issue"), "6 us");
    ck_assert_ptr_null(fit_param_text(&f.params, &f.a, value, 0, "a100-sxm", "host.link"));
    arena_free(&f.a);
}
END_TEST

/* Byte for byte but for the moved scalars, and read back as they were applied. */
START_TEST(files_change_only_where_moved)
{
    struct fixture f;
    struct cfg c;
    struct system s, applied;
    struct stack t = { .name = "mcore-2510" };
    const double value[] = { 0.8, 0.6, 1.2, 0.9 };
    const char *text = NULL, *from = NULL;
    int lines = 0;
    open_runs(&f);
    for (int i = 0; i < cfg_embedded_n; i++) {
        if (strcmp(cfg_embedded[i].kind, "systems") || strcmp(cfg_embedded[i].name, "a100-sxm")) continue;
        from = cfg_embedded[i].text;
        ck_assert_msg(fit_write_text(&text, &f.a, &f.params, value, &cfg_embedded[i], &f.d) == OK, "%s", f.d.text);
    }
    ck_assert_ptr_nonnull(text);
    ck_assert_int_eq(cfg_read_text(&c, &f.a, "a100-sxm", text, strlen(text), &f.d), OK);
    ck_assert_int_eq(system_fill(&s, &c, &f.d), OK);
    ck_assert_int_eq(system_read(&applied, &f.a, "a100-sxm", &f.d), OK);
    fit_param_apply(&f.params, value, &applied, &t);
    ck_assert_double_eq_tol(s.step.gemm[DT_BF16], applied.step.gemm[DT_BF16], 1e-12);
    ck_assert_double_eq_tol(s.issue_s, applied.issue_s, 1e-15);
    for (const char *x = text, *y = from; *x && *y; lines++) {
        const size_t nx = strcspn(x, "\n"), ny = strcspn(y, "\n");
        const int moved = memmem(x, nx, "bf16: 0.96", 10) || memmem(x, nx, "memory: 0.6", 11) || memmem(x, nx, "issue: 6 us", 11);
        if (!moved) ck_assert_msg(nx == ny && memcmp(x, y, nx) == 0, "line %d: %.*s", lines + 1, (int)nx, x);
        x += nx + (x[nx] == '\n');
        y += ny + (y[ny] == '\n');
    }
    ck_assert_int_gt(lines, 40);
    arena_free(&f.a);
}
END_TEST

START_TEST(bad_parameters_are_refused)
{
    static const char *const bad[][2] = {
        { "parameters: [{ name: a }]", "prior is missing" },
        { "parameters: [{ name: a, source: s, prior: { median: 3, ln_sigma: 1 }, bounds: { low: 1, high: 2 }, "
          "moves: [{ systems: b200, key: step.nic }] }]", "not in that order" },
        { "parameters: [{ name: a, source: s, prior: { median: 1, ln_sigma: 0 }, bounds: { low: 1, high: 2 }, "
          "moves: [] }]", "no number above 0" },
        { "parameters: [{ name: a, source: s, prior: { median: 1, ln_sigma: 1 }, bounds: { low: 1, high: 2 }, "
          "moves: [{ systems: b200, key: step.no }] }]", "have no number 'step.no'" },
        { "parameters: [{ name: a, source: s, prior: { median: 1, ln_sigma: 1 }, bounds: { low: 1, high: 2 }, "
          "moves: [{ key: step.nic }] }]", "name one" },
        { "parameters: [{ name: a, source: s, prior: { median: 1, ln_sigma: 1 }, bounds: { low: 1, high: 2 }, "
          "moves: [{ systems: b200, key: host.issue }] }]", "base of host.issue" },
        { "parameters: [{ name: a, source: s, prior: { median: 1, ln_sigma: 1 }, bounds: { low: 1, high: 2 }, "
          "moves: [{ rows: b200, key: host.issue }] }]", "has no key 'rows'" },
    };
    struct arena a = { 0 };
    struct fit_params *p = arena_alloc(&a, sizeof *p);
    for (int i = 0; i < LEN(bad); i++) {
        struct diag d = { "" };
        ck_assert_int_eq(fit_param_read_text(p, &a, "p", bad[i][0], &d), ERR_CONFIG);
        ck_assert_msg(strstr(d.text, bad[i][1]) != NULL, "%d: %s", i, d.text);
    }
    arena_free(&a);
}
END_TEST

/* The built-in file is sound, and each of its keys stands in each file that it moves. */
START_TEST(built_in_parameters)
{
    struct arena a = { 0 };
    struct diag d = { "" };
    struct fit_params *p = arena_alloc(&a, sizeof *p);
    double value[FIT_PARAMS];
    ck_assert_msg(fit_param_read(p, &a, "fit", &d) == OK, "%s", d.text);
    for (int i = 0; i < p->n; i++) value[i] = p->at[i].median;
    for (int i = 0; i < cfg_embedded_n; i++) {
        const char *text;
        if (strcmp(cfg_embedded[i].kind, "systems") && strcmp(cfg_embedded[i].kind, "stacks")) continue;
        ck_assert_msg(fit_write_text(&text, &a, p, value, &cfg_embedded[i], &d) == OK, "%s", d.text);
    }
    arena_free(&a);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        solver_finds_what_was_planted, bounds_hold_and_are_named, undetermined_stays_at_its_prior,
        planted_machine_is_found, fit_does_not_see_what_it_is_scored_on, halves_keep_siblings_together,
        cross_validation_scores_every_row, keys_are_bases_times_parameters, files_change_only_where_moved,
        bad_parameters_are_refused, built_in_parameters,
    };
    return test_main("fit", tests, LEN(tests), 120);
}
