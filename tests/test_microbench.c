/* Prices against configs/published/microbench.csv, by kind and system: the median error of the shipped
 * figures, and of figures fitted anew without one row, and without all rows of one shape (a column). A price
 * that only repeats what it was shown fails the last. Printed for all; asserted where a kind has at least 12
 * rows on a system. The fit walks one figure at a time down the absolute log errors: "refit" from the shipped
 * figures on, the others from round figures that have not seen what is left out. */
#include "tests/test.h"
#include "models/system.h"
#include "sim/cost.h"
#include <math.h>
#include <stddef.h>
#include <stdio.h>

enum { MAX_ROWS = 2000, MAX_SYSTEMS = 16, MAX_KNOBS = 6, MIN_ROWS = 12 };
enum bench { GEMM, GROUPED, ATTENTION_FWD, ATTENTION_BWD, ATTENTION_BOTH, ALLREDUCE, ALLTOALL, DISPATCH, COMBINE,
             BENCHES };

/* Bounds of the median error: with one row left out, with a column left out; 0: none is asked. */
static const struct { const char *name; double row, column; } bench[BENCHES] = {
    [GEMM] = { "gemm", 0.07, 0.12 },
    [GROUPED] = { "grouped_gemm", 0.07, 0.16 },
    [ATTENTION_FWD] = { "attention_fwd", 0.10, 0.12 },
    [ATTENTION_BWD] = { "attention_bwd", 0.10, 0.12 },
    [ATTENTION_BOTH] = { "attention_both", 0.10, 0.12 },
    [ALLREDUCE] = { "allreduce", 0.07, 0 },
    [ALLTOALL] = { "alltoall", 0.07, 0.12 },
    [DISPATCH] = { "dispatch", 0.07, 0.12 },
    [COMBINE] = { "combine", 0.07, 0.12 },
};

struct row {
    enum bench bench;
    int system;
    int64_t column;                     /* rows that share a column are left out together                         */
    enum op_kind op;
    struct work w, w2;                  /* w2: backward, of ATTENTION_BOTH                                        */
    struct exchange x;
    struct place place;
    double measured_s;
};
struct data {
    struct arena a;
    struct job job[MAX_SYSTEMS]; int n_job;
    struct row row[MAX_ROWS]; int n;
};

/* ---- reading ---- */

/* The number after "key=" in a shape, or `otherwise`. */
static double number(const char *shape, const char *key, double otherwise)
{
    const size_t len = strlen(key);
    for (const char *s = shape; s; s = strchr(s, ';')) {
        s += *s == ';';
        if (!strncmp(s, key, len) && s[len] == '=') return atof(s + len + 1);
    }
    return otherwise;
}

static int has(const char *shape, const char *pair)
{
    return strstr(shape, pair) != NULL;
}

static void read_gemm(struct row *r, const char *s, double element_B)
{
    const double m = number(s, "m", 0), n = number(s, "n", 0), k = number(s, "k", 0);
    const double out_B = !has(s, "pass=wgrad") ? 2 : has(s, "grad=fp32") ? 8 : 4;  /* added to: read, written */
    r->w.flop = 2 * m * n * k;
    r->w.read_B = element_B * (m + n) * k;
    r->w.write_B = out_B * m * n;
    r->column = (int64_t)n << 32 | (int64_t)k;
    r->op = has(s, "pass=dgrad") ? OP_DGRAD : has(s, "pass=wgrad") ? OP_WGRAD : OP_GEMM;
    r->w.rows = (int64_t)(r->op == OP_WGRAD ? k : m);
    r->w.cols = (int64_t)(r->op == OP_WGRAD ? m : r->op == OP_DGRAD ? k : n);
    r->w.inner = (int64_t)(r->op == OP_GEMM ? k : n);
}

/* n and k are those of the layer in all three passes. */
static void read_grouped(struct row *r, const char *s, double element_B)
{
    const double e = number(s, "experts", 0), m = number(s, "m", 0), n = number(s, "n", 0), k = number(s, "k", 0);
    const double grad_B = has(s, "grad=fp32") ? 8 : 4;
    r->w.flop = 2 * e * m * n * k;
    r->w.rows = (int64_t)(e * m);
    r->w.cols = (int64_t)n;
    r->w.inner = (int64_t)k;
    r->w.experts = (int64_t)e;
    r->op = has(s, "pass=dgrad") ? OP_GROUPED_DGRAD : has(s, "pass=wgrad") ? OP_GROUPED_WGRAD : OP_GROUPED_GEMM;
    r->w.read_B = e * element_B * (r->op == OP_GROUPED_WGRAD ? m * (n + k)
                                   : r->op == OP_GROUPED_DGRAD ? (m + k) * n : (m + n) * k);
    r->w.write_B = e * (r->op == OP_GROUPED_WGRAD ? grad_B * n * k : 2 * m * (r->op == OP_GROUPED_DGRAD ? k : n));
    r->column = (int64_t)n << 32 | (int64_t)k;
}

static void read_attention(struct row *r, const char *s)
{
    const double tokens = number(s, "batch", 1) * number(s, "seq", 0), heads = number(s, "heads", 0);
    const double pairs = tokens * number(s, "seq", 0) * heads * (number(s, "causal", 1) > 0 ? 0.5 : 1);
    const double d_qk = number(s, "d_qk", 0), d_v = number(s, "d_v", 0);
    struct work fwd = { .dtype = DT_BF16, .rows = (int64_t)tokens, .cols = (int64_t)(heads * d_qk),
                        .experts = (int64_t)heads };
    struct work bwd = fwd;
    const double q_B = 2 * tokens * heads * d_qk, o_B = 2 * tokens * heads * d_v;
    const double kv_B = 2 * tokens * number(s, "kv", 0) * (d_qk + d_v);
    fwd.read_B = q_B + kv_B;
    fwd.write_B = o_B;
    bwd.read_B = q_B + kv_B + 2 * o_B;
    bwd.write_B = q_B + kv_B;
    fwd.flop = 2 * pairs * (d_qk + d_v);
    bwd.flop = 2 * pairs * (3 * d_qk + 2 * d_v);
    r->w = r->bench == ATTENTION_BWD ? bwd : fwd;
    r->w2 = bwd;
    r->column = (int64_t)heads << 32 | (int64_t)number(s, "kv", 0);
}

static void read_allreduce(struct row *r, const char *s)
{
    const double n = number(s, "ranks", 0);
    r->op = OP_ALL_REDUCE;
    r->w.wire_B = 2 * (n - 1) / n * number(s, "bytes", 0);
    r->place = (struct place){ .size = (int32_t)n, .link = LINK_NVLINK, .domains = 1, .in_domain = (int32_t)n,
                               .same_rail = 1 };
    r->column = (int)n;
}

/* Expected distinct groups of g among which k of e experts fall, uniformly and without replacement. */
static double targets(double g, double e, double k)
{
    double none = 1;
    for (int i = 0; i < k; i++) none *= (e - e / g - i) / (e - i);
    return g * (1 - none);
}

/* Returns the bytes that published bandwidths divide: those to domains where domains are crossed, else to
 * ranks. */
static double read_exchange(struct row *r, const char *s, int fp8)
{
    const double ep = number(s, "ep", 0), domains = number(s, "domains", 1), k = number(s, "topk", 0);
    const double experts = number(s, "experts", 0), token_B = number(s, "h", 0) * (fp8 ? 1 + 4.0 / 128 : 2);
    const double ranks_B = number(s, "tokens", 0) * token_B * targets(ep, experts, k);
    const double to_domains = domains > 1 ? number(s, "domain_targets", targets(domains, experts, k)) : 0;
    const double domains_B = number(s, "tokens", 0) * token_B * to_domains;
    r->x = (struct exchange){ .target_B = ranks_B, .nvlink_B = ranks_B * (1 - domains / ep),
                              .nic_B = domains_B * (1 - 1 / domains), .peers = (int)ep - 1, .sms = (int)number(s, "sms", 24), .fp8 = fp8,
                              .combine = r->bench == COMBINE, .called = number(s, "called", 0) > 0 };
    r->x.kernel = has(s, "impl=deepep2")  ? EXCHANGE_DEEPEP2
                  : has(s, "impl=deepep") ? EXCHANGE_DEEPEP
                                          : EXCHANGE_HYBRIDEP;
    r->column = (int)ep;
    if (r->bench == ALLTOALL) {
        r->op = OP_DISPATCH;
        r->w.wire_B = number(s, "tokens", 0) * token_B * k * (1 - 1 / ep);
        r->place = (struct place){ .size = (int32_t)ep, .domains = (int32_t)domains,
                                   .in_domain = (int32_t)(ep / domains), .same_rail = 1, .link = domains > 1 ? LINK_NIC : LINK_NVLINK };
    }
    return domains > 1 ? domains_B : ranks_B;
}

static int find_system(struct data *d, const char *name)
{
    for (int i = 0; i < d->n_job; i++)
        if (!strcmp(d->job[i].system.name, name)) return i;
    struct diag diag = { 0 };
    struct job *j = &d->job[d->n_job];
    ck_assert_int_lt(d->n_job, MAX_SYSTEMS);
    ck_assert_msg(system_read(&j->system, &d->a, name, &diag) == OK, "%s: %s", name, diag.text);
    return d->n_job++;
}

static double measured_s(const struct row *r, const char *shape, const char *unit, double value, double moved_B)
{
    if (!strcmp(unit, "us")) return value * 1e-6;
    if (!strcmp(unit, "GB/s")) return moved_B / (value * 1e9);
    const double flop = r->w.flop + (r->bench == ATTENTION_BOTH ? r->w2.flop : 0);
    return flop * (has(shape, "counted=full") ? 2 : 1) / (value * 1e12);
}

static void read_row(struct data *d, char *field[8])
{
    struct row *r = &d->row[d->n];
    int b = 0;
    while (b < BENCHES && strcmp(bench[b].name, field[0])) b++;
    ck_assert_msg(b < BENCHES && d->n < MAX_ROWS, "row %d: kind %s", d->n + 2, field[0]);
    const int fp8 = !strncmp(field[2], "fp8", 3);
    const char *shape = field[3];
    double moved_B = 0;
    *r = (struct row){ .bench = (enum bench)b, .system = find_system(d, field[1]) };
    r->w.dtype = fp8 ? DT_FP8 : DT_BF16;
    switch (r->bench) {
    case GEMM: read_gemm(r, shape, fp8 ? 1 : 2); break;
    case GROUPED: read_grouped(r, shape, fp8 ? 1 : 2); break;
    case ATTENTION_FWD: case ATTENTION_BWD: case ATTENTION_BOTH: read_attention(r, shape); break;
    case ALLREDUCE: read_allreduce(r, shape); moved_B = r->w.wire_B; break;
    default: moved_B = read_exchange(r, shape, fp8);
    }
    r->measured_s = measured_s(r, shape, field[5], atof(field[4]), moved_B);
    ck_assert_msg(r->measured_s > 0 && isfinite(r->measured_s), "row %d has no time", d->n + 2);
    d->n++;
}

static void read_all(struct data *d)
{
    char line[1024];
    FILE *f = fopen(SOURCE_DIR "/configs/published/microbench.csv", "r");
    ck_assert_ptr_nonnull(f);
    ck_assert_ptr_nonnull(fgets(line, sizeof line, f));
    while (fgets(line, sizeof line, f)) {
        char *field[8] = { 0 }, *rest = line;
        for (int i = 0; i < LEN(field); i++) field[i] = strsep(&rest, ",\n");
        ck_assert_msg(field[7] != NULL, "row %d is short", d->n + 2);
        read_row(d, field);
    }
    fclose(f);
}

/* ---- pricing and fitting ---- */

static double price_s(const struct job *j, const struct row *r)
{
    struct cost c = { .job = j };
    c.place[GROUP_EP] = r->place;
    const struct op o = { .kind = (uint8_t)r->op, .group = GROUP_EP };
    switch (r->bench) {
    case GEMM: case GROUPED: return cost_gemm_s(&c, r->op, &r->w);
    case ATTENTION_FWD: return cost_attention_s(&c, &r->w, 0);
    case ATTENTION_BWD: return cost_attention_s(&c, &r->w, 1);
    case ATTENTION_BOTH: return cost_attention_s(&c, &r->w, 0) + cost_attention_s(&c, &r->w2, 1);
    case ALLREDUCE: case ALLTOALL: return cost_comm_s(&c, &o, &r->w);
    default: return cost_exchange_s(&j->system, &r->x);
    }
}

/* What is fitted anew for a kind: a figure (of the type of its products where it has one a type), a round
 * value to begin at, its bounds. Forward and backward measured together tell only the backward figures, the
 * forward ones stay. */
static const struct { enum bench bench; int typed; size_t at; double scale, low, high; } figures[] = {
    { GEMM, 1, offsetof(struct system, eff_gemm), 0.5, 0.01, 1 },
    { GEMM, 1, offsetof(struct system, ramp_gemm), 300, 0, 1e4 },
    { GEMM, 0, offsetof(struct system, exposed_gemm), 0.5, 0, 1 },
    { GROUPED, 1, offsetof(struct system, eff_grouped), 0.5, 0.01, 1 },
    { GROUPED, 0, offsetof(struct system, expert_s), 3e-6, 0, 1e-4 },
    { GROUPED, 0, offsetof(struct system, exposed_grouped), 0.5, 0, 1 },
    { ATTENTION_FWD, 0, offsetof(struct system, eff_attention_fwd), 0.5, 0.01, 1 },
    { ATTENTION_FWD, 0, offsetof(struct system, attention_wide.fwd), 0.3, -1, 1 },
    { ATTENTION_FWD, 0, offsetof(struct system, attention_narrow), 0.3, 0, 1 },
    { ATTENTION_FWD, 0, offsetof(struct system, attention_bytes.fwd), 0.5, 0, 8 },
    { ATTENTION_BWD, 0, offsetof(struct system, eff_attention_bwd), 0.5, 0.01, 1 },
    { ATTENTION_BWD, 0, offsetof(struct system, attention_wide.bwd), 0.5, -1, 1 },
    { ATTENTION_BWD, 0, offsetof(struct system, attention_narrow), 0.3, 0, 1 },
    { ATTENTION_BWD, 0, offsetof(struct system, attention_bytes.bwd), 1, 0, 8 },
    { ATTENTION_BOTH, 0, offsetof(struct system, eff_attention_bwd), 0.5, 0.01, 1 },
    { ATTENTION_BOTH, 0, offsetof(struct system, attention_narrow), 0.3, 0, 1 },
    { ATTENTION_BOTH, 0, offsetof(struct system, attention_bytes.bwd), 1, 0, 8 },
    { ALLREDUCE, 0, offsetof(struct system, eff_nvlink), 0.8, 0.01, 1 },
    { ALLREDUCE, 0, offsetof(struct system, eff_nvls), 0.5, 0.01, 1 },
    { ALLREDUCE, 0, offsetof(struct system, nvlink_call_s), 5e-6, 0, 1e-3 },
    { ALLREDUCE, 0, offsetof(struct system, ramp_s), 1e-5, 0, 1e-2 },
    { ALLTOALL, 0, offsetof(struct system, eff_nvlink_alltoall), 0.7, 0.01, 1 },
    { ALLTOALL, 0, offsetof(struct system, eff_nic_alltoall), 0.8, 0.01, 1 },
    { ALLTOALL, 0, offsetof(struct system, nvlink_latency_s), 1.5e-6, 0, 1e-4 },
    { DISPATCH, 0, offsetof(struct system, exchange.eff_nvlink.dispatch), 0.7, 0.01, 1 },
    { DISPATCH, 0, offsetof(struct system, exchange.eff_nic.dispatch), 0.8, 0.01, 1 },
    { DISPATCH, 0, offsetof(struct system, exchange.dispatch_B_per_s), 3e10, 1e9, 1e12 },
    { DISPATCH, 0, offsetof(struct system, exchange.deepep.dispatch), 0.7, 0.05, 5 },
    { DISPATCH, 0, offsetof(struct system, exchange.call_s.dispatch), 2e-4, 0, 1e-2 },
    { DISPATCH, 0, offsetof(struct system, exchange.dispatch_fp8_B_per_s), 3e10, 1e9, 1e12 },
    { COMBINE, 0, offsetof(struct system, exchange.eff_nvlink.combine), 0.7, 0.01, 1 },
    { COMBINE, 0, offsetof(struct system, exchange.eff_nic.combine), 0.8, 0.01, 1 },
    { COMBINE, 0, offsetof(struct system, exchange.combine_B_per_s), 3e10, 1e9, 1e12 },
    { COMBINE, 0, offsetof(struct system, exchange.deepep.combine), 0.7, 0.05, 5 },
    { COMBINE, 0, offsetof(struct system, exchange.call_s.combine), 2e-4, 0, 1e-2 },
};

struct knob { double *at, scale, low, high; };      /* a figure of one system */

static int knobs_of(struct knob p[MAX_KNOBS], struct system *s, enum bench b, enum dtype t)
{
    int n = 0;
    for (int i = 0; i < LEN(figures); i++) {
        if (figures[i].bench != b) continue;
        ck_assert_int_lt(n, MAX_KNOBS);
        double *const at = (double *)((char *)s + figures[i].at) + (figures[i].typed ? (int)t : 0);
        p[n++] = (struct knob){ at, figures[i].scale, figures[i].low, figures[i].high };
    }
    return n;
}

/* Which rows a fit does not see: by position, by column; -1: none. */
struct leave { int row; int64_t column; };

/* The absolute log errors of the rows seen (rounded off near 0, or a walk along one figure at a time gets
 * stuck on its edges), and a pull to where the figures began, which decides only what the rows leave open. */
static double loss(const struct job *j, const struct knob *p, int n_knob, const double *began, struct row *const *row,
                   int n, struct leave skip)
{
    double sum = 0;
    for (int i = 0; i < n; i++) {
        if (i == skip.row || row[i]->column == skip.column) continue;
        const double e = log(price_s(j, row[i]) / row[i]->measured_s);
        sum += sqrt(e * e + 1e-3);
    }
    for (int k = 0; k < n_knob; k++) {
        const double moved = (*p[k].at - began[k]) / p[k].scale;
        sum += 0.05 * moved * moved;
    }
    return sum;
}

static void fit(struct job *j, const struct knob *p, int n_knob, struct row *const *row, int n, struct leave skip)
{
    double began[MAX_KNOBS];
    for (int k = 0; k < n_knob; k++) began[k] = *p[k].at;
    double best = loss(j, p, n_knob, began, row, n, skip);
    for (double step = 0.25; step >= 0.004; step /= 2)
        for (int k = 0, turned = 0; k < n_knob && turned < 200; k++)
            for (int sign = -1; sign <= 1; sign += 2) {
                const double was = *p[k].at;
                *p[k].at = fmin(fmax(was + sign * step * p[k].scale, p[k].low), p[k].high);
                const double now = loss(j, p, n_knob, began, row, n, skip);
                if (now < best) {
                    best = now;
                    k = -1;             /* from the first figure again */
                    turned++;
                    break;
                }
                *p[k].at = was;
            }
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, by_value);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

static double error(const struct job *j, const struct row *r)
{
    return fabs(price_s(j, r) / r->measured_s - 1);
}

/* ---- the table ---- */

static double shipped_error(const struct job *j, struct row *const *row, int n)
{
    double e[MAX_ROWS];
    for (int i = 0; i < n; i++) e[i] = error(j, row[i]);
    return median(e, n);
}

/* Where a fit that leaves rows out begins: at round figures that have not seen them; exchange kernels on B200
 * at those of GB200, the same chip, since nearly all of B200's rows are of one ep. The framework's calls are the
 * host's time, which takes as much less there as a launch does. */
static void begin(struct job *j, const struct knob *p, int n_knob, struct data *d, enum bench b)
{
    for (int k = 0; k < n_knob; k++) *p[k].at = p[k].scale;
    if ((b != DISPATCH && b != COMBINE) || strcmp(j->system.name, "b200") != 0) return;
    const struct system *twin = &d->job[find_system(d, "gb200-nvl72")].system;
    const double host = j->system.issue_s / twin->issue_s;
    j->system.exchange = twin->exchange;
    j->system.exchange.call_s.dispatch *= host;
    j->system.exchange.call_s.combine *= host;
}

/* Errors of the rows that the fit has not seen; `j` and the knobs that point into it are restored. */
static double row_error(struct data *d, struct job *j, const struct knob *p, int n_knob, struct row *const *row,
                        int n)
{
    const struct job fitted = *j;
    double e[MAX_ROWS];
    for (int i = 0; i < n; i++) {
        begin(j, p, n_knob, d, row[i]->bench);
        fit(j, p, n_knob, row, n, (struct leave){ i, -1 });
        e[i] = error(j, row[i]);
        *j = fitted;
    }
    return median(e, n);
}

/* NAN where all rows are of one column. */
static double column_error(struct data *d, struct job *j, const struct knob *p, int n_knob, struct row *const *row,
                           int n)
{
    const struct job fitted = *j;
    double e[MAX_ROWS];
    int columns = 0;
    for (int i = 0; i < n; i++) {
        int seen = 0;
        for (int k = 0; k < i && !seen; k++) seen = row[k]->column == row[i]->column;
        if (seen) continue;
        columns++;
        begin(j, p, n_knob, d, row[i]->bench);
        fit(j, p, n_knob, row, n, (struct leave){ -1, row[i]->column });
        for (int k = i; k < n; k++)
            if (row[k]->column == row[i]->column) e[k] = error(j, row[k]);
        *j = fitted;
    }
    return columns > 1 ? median(e, n) : NAN;
}

/* Prints one line and holds it against its bounds. */
static void judge(struct data *d, enum bench b, int system)
{
    struct row *row[MAX_ROWS];
    struct knob p[MAX_KNOBS];
    int n = 0;
    for (int i = 0; i < d->n; i++)
        if (d->row[i].bench == b && d->row[i].system == system) row[n++] = &d->row[i];
    if (n == 0) return;
    struct job j = d->job[system];
    const int n_knob = knobs_of(p, &j.system, b, row[0]->w.dtype);
    const double shipped = shipped_error(&j, row, n);
    fit(&j, p, n_knob, row, n, (struct leave){ -1, -1 });
    const double refit = shipped_error(&j, row, n);
    const double one = row_error(d, &j, p, n_knob, row, n), column = column_error(d, &j, p, n_knob, row, n);
    printf("%-14s %-12s %4d rows: shipped %5.2f %%, refit %5.2f, row left out %5.2f, column left out %5.2f%s\n",
           bench[b].name, j.system.name, n, 100 * shipped, 100 * refit, 100 * one, 100 * column,
           n < MIN_ROWS ? "  (listed only)" : "");
    const int met = one <= bench[b].row && !(bench[b].column > 0 && column > bench[b].column);
    if (n < MIN_ROWS) return;
    ck_assert_msg(met, "%s on %s: its bounds are exceeded", bench[b].name, j.system.name);
    ck_assert_msg(shipped <= bench[b].row, "%s on %s: shipped figures err by %.1f %%", bench[b].name, j.system.name,
                  100 * shipped);
}

START_TEST(medians_within_bounds)
{
    struct data *d = calloc(1, sizeof *d);
    read_all(d);
    for (int b = 0; b < BENCHES; b++)
        for (int s = 0; s < d->n_job; s++) judge(d, (enum bench)b, s);
    fflush(stdout);
    arena_free(&d->a);
    free(d);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = { medians_within_bounds };
    return test_main("microbench", tests, LEN(tests), 600);
}
