/* Traces: a file comes back as it was, a damaged one is refused in one line, waits end with the last member, the
 * Chrome form is JSON that says what happened, and a recorded load is what SIZES wrote. */
#include "tests/test.h"
#include "tests/toy.h"
#include "models/load.h"
#include "models/trace.h"
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

static struct arena arena;      /* every test has a process of its own */

static const char *path_of(const char *name)
{
    return arena_printf(&arena, "%s/test_trace_%d_%s", BUILD_DIR, (int)getpid(), name);
}

/* ---- a trace of a toy program: every op lasts 5 ns, every item of a rank starts 10 ns after the last ---- */

struct made { struct program pr; struct job j; struct unroll *u; struct trace t; };

static void make(struct made *m, const struct toy *toy, int dp, int iters)
{
    struct diag d;
    toy_build(&m->pr, &arena, &m->j, toy);
    m->j.plan.dp = m->j.plan.edp = dp;
    m->j.plan.gpus = toy->pp * dp;
    m->u = arena_alloc(&arena, (size_t)toy->pp * sizeof *m->u);
    ck_assert_msg(unroll_all(m->u, &arena, &m->pr, &d) == OK, "%s", d.text);
    int64_t n = 0;
    for (int s = 0; s < toy->pp; s++) n += m->u[s].n_item;
    m->t = (struct trace){ .head = { .program_hash = program_hash(&m->pr), .source = "measured",
                                     .system = "host", .revision = "abc",
                                     .n_rank = m->j.plan.gpus, .n_iter = iters, .clock_ns = 40 } };
    m->t.span = arena_alloc(&arena, (size_t)(n * dp * iters) * sizeof *m->t.span);
    for (int iter = 0; iter < iters; iter++)
        for (int rank = 0; rank < m->j.plan.gpus; rank++) {
            const struct unroll *u = &m->u[fold_coord(&m->j.plan, rank).pp];
            for (int i = 0; i < u->n_item; i++)
                m->t.span[m->t.n++] =
                    (struct span){ iter, rank, u->item[i].step, u->item[i].op, 10 * i, 10 * i + 5, { 0 } };
        }
    trace_sort(&m->t);
}

static const struct toy small = { .pp = 2, .vpp = 2, .n_micro = 4, .layers = 1,
                                  .schedule = SCHEDULE_INTERLEAVED };

START_TEST(nanoseconds)
{
    ck_assert_int_eq(trace_ns(1.5e-9), 2);
    ck_assert_int_eq(trace_ns(1.4e-9), 1);
    ck_assert_int_eq(trace_ns(3600), 3600000000000);
    ck_assert_int_eq(trace_ns(-1.5e-9), -2);
    for (int i = 0; i < 100000; i++) {                      /* halves, and their neighbours on both sides */
        const double s = nextafter((i + 0.5) * 1e-9, i % 2 ? 0 : 1);
        ck_assert_int_eq(trace_ns(s), llround(s * 1e9));
    }
    ck_assert_int_eq(trace_ns(nextafter(0.5, 0) * 1e-9), llround(nextafter(0.5, 0) * 1e-9 * 1e9));
}
END_TEST

START_TEST(sorted_and_found)
{
    struct made m;
    make(&m, &small, 2, 2);
    ck_assert_int_gt(m.t.n, 100);
    for (int64_t i = 1; i < m.t.n; i++) {
        const struct span *a = &m.t.span[i - 1], *b = &m.t.span[i];
        ck_assert(a->iter < b->iter || (a->iter == b->iter && (a->rank < b->rank || (a->rank == b->rank &&
                  (a->step < b->step || (a->step == b->step && a->op < b->op))))));
        ck_assert_ptr_eq(trace_find(&m.t, b->iter, b->rank, b->step, b->op), b);
    }
    ck_assert_ptr_null(trace_find(&m.t, 2, 0, 0, 1));
    ck_assert_ptr_null(trace_find(&(struct trace){ .n = 0 }, 0, 0, 0, 1));
}
END_TEST

/* ---- files ---- */

static int spans_ascend(const struct trace *t)
{
    for (int64_t i = 1; i < t->n; i++) {
        const struct span *a = &t->span[i - 1], *b = &t->span[i];
        if (a->iter != b->iter ? a->iter > b->iter : a->rank != b->rank ? a->rank > b->rank
            : a->step != b->step ? a->step > b->step : a->op >= b->op) return 0;
    }
    return 1;
}

/* Ops out of order within some steps only, and everything out of order. */
START_TEST(any_order_is_sorted)
{
    enum { STEPS = 20, OPS = 7, N = 2 * STEPS * OPS };
    struct span span[N];
    struct trace t = { .n = N, .span = span };
    uint32_t state = 1;
    for (int round = 0; round < 200; round++) {
        const int across = round % 2;
        for (int i = 0; i < N; i++)
            span[i] = (struct span){ .iter = i / (STEPS * OPS), .step = i / OPS % STEPS, .op = i % OPS };
        for (int k = 0; k < 1 + round; k++) {
            const int i = (int)((state = state * 1664525 + 1013904223) >> 8) % N;
            const int other = (int)((state = state * 1664525 + 1013904223) >> 8) % (across ? N : OPS);
            const int to = across ? other : i / OPS * OPS + other;
            const struct span kept = span[i];
            span[i] = span[to], span[to] = kept;
        }
        trace_sort(&t);
        ck_assert(spans_ascend(&t));
    }
}
END_TEST

START_TEST(round_trip)
{
    struct made m;
    struct trace back;
    struct diag d;
    make(&m, &small, 1, 2);
    m.t.span[3].rows[0] = 123456789;
    m.t.span[3].rows[1] = 7;
    m.t.span[4].t0_ns = -5;
    m.t.span[4].t1_ns = INT64_C(1) << 60;
    const char *path = path_of("round");
    ck_assert_msg(trace_write(&m.t, path, &d) == OK, "%s", d.text);
    ck_assert_msg(trace_read(&back, &arena, path, &d) == OK, "%s", d.text);
    ck_assert_int_ne(access(arena_printf(&arena, "%s.part", path), F_OK), 0);
    ck_assert_int_eq(back.n, m.t.n);
    ck_assert_mem_eq(back.span, m.t.span, (size_t)m.t.n * sizeof *m.t.span);
    ck_assert_uint_eq(back.head.program_hash, m.t.head.program_hash);
    ck_assert_str_eq(back.head.source, "measured");
    ck_assert_str_eq(back.head.system, "host");
    ck_assert_str_eq(back.head.revision, "abc");
    ck_assert_int_eq(back.head.n_iter, 2);
    ck_assert_int_eq(back.head.clock_ns, 40);
    remove(path);
}
END_TEST

START_TEST(empty_trace)
{
    struct trace back, none = { .head = { .n_rank = 1 } };
    struct diag d;
    const char *path = path_of("empty");
    ck_assert_int_eq(trace_write(&none, path, &d), OK);
    ck_assert_int_eq(trace_read(&back, &arena, path, &d), OK);
    ck_assert_int_eq(back.n, 0);
    remove(path);
}
END_TEST

static unsigned char *slurp(const char *path, size_t *size_B)
{
    FILE *f = fopen(path, "rb");
    ck_assert_ptr_nonnull(f);
    fseek(f, 0, SEEK_END);
    *size_B = (size_t)ftell(f);
    rewind(f);
    unsigned char *bytes = arena_alloc(&arena, *size_B + 64);
    ck_assert_uint_eq(fread(bytes, 1, *size_B, f), *size_B);
    fclose(f);
    return bytes;
}

static enum err read_bytes(const unsigned char *bytes, size_t size_B, struct diag *d)
{
    struct arena a = { 0 };
    struct trace t = { .n = -1 };
    const char *path = path_of("bytes");
    FILE *f = fopen(path, "wb");
    ck_assert_uint_eq(fwrite(bytes, 1, size_B, f), size_B);
    fclose(f);
    const enum err e = trace_read(&t, &a, path, d);
    if (e != OK) ck_assert_int_eq(t.n, -1);         /* outputs are set only on success */
    arena_free(&a);
    remove(path);
    return e;
}

static void refused(const unsigned char *bytes, size_t size_B, const char *says)
{
    struct diag d = { "" };
    ck_assert_int_eq(read_bytes(bytes, size_B, &d), ERR_CONFIG);
    ck_assert_msg(strstr(d.text, says) != NULL, "\"%s\" does not say \"%s\"", d.text, says);
    ck_assert_ptr_null(strchr(d.text, '\n'));
}

/* Fields at their places in the file: what is written there must be what the reader says about it. */
START_TEST(damaged_files)
{
    enum { RANKS = 144, ITERS = 148, CLOCK = 152, COUNT = 160, SPANS = 168 };
    static const struct { int at; unsigned char byte; const char *says; } flip[] = {
        { 0, 'm', "not a trace" },
        { 31, 'x', "text of the header" },
        { 95, 'x', "text of the header" },
        { 143, 'x', "text of the header" },
        { RANKS + 3, 0x80, "ranks" },
        { ITERS + 3, 0x80, "iterations" },
        { CLOCK + 7, 0x80, "clock" },
        { COUNT + 7, 0x80, "spans" },
        { COUNT + 6, 0x10, "spans announced" },
        { COUNT, 1, "spans announced" },
        { SPANS + 3, 0x80, "has iteration" },
        { SPANS, 9, "has iteration 9" },
        { SPANS + 4, 9, "rank 9" },
        { SPANS + 11, 0x80, "step" },
        { SPANS + 15, 0x80, "op" },
        { SPANS + 23, 0x7f, "lasts" },
        { SPANS + 35, 0x80, "rows" },
        { SPANS + 39, 0x80, "rows" },
        { SPANS + 8, 200, "is not behind" },
    };
    struct made m;
    struct diag d;
    size_t size_B;
    const char *path = path_of("good");
    make(&m, &small, 1, 1);
    ck_assert_int_eq(trace_write(&m.t, path, &d), OK);
    unsigned char *bytes = slurp(path, &size_B);
    remove(path);
    ck_assert_uint_eq(size_B, SPANS + 40 * (size_t)m.t.n);
    for (int i = 0; i < LEN(flip); i++) {
        const unsigned char kept = bytes[flip[i].at];
        bytes[flip[i].at] = flip[i].byte;
        refused(bytes, size_B, flip[i].says);
        bytes[flip[i].at] = kept;
    }
    ck_assert_int_eq(read_bytes(bytes, size_B, &d), OK);
    for (size_t cut = 0; cut < size_B; cut += cut < 400 ? 1 : 97) refused(bytes, cut, "trace");
    refused(bytes, size_B + 1, "spans announced");
    memcpy(bytes + SPANS + 40, bytes + SPANS, 40);  /* a duplicate key */
    refused(bytes, size_B, "is not behind");
}
END_TEST

/* Random bytes anywhere: read or refused, never a crash. */
START_TEST(random_damage)
{
    struct made m;
    struct diag d;
    size_t size_B;
    uint64_t state = 1;
    int read = 0, refusals = 0;
    const char *path = path_of("good");
    make(&m, &(struct toy){ .pp = 1, .vpp = 1, .n_micro = 1, .layers = 1 }, 1, 1);
    ck_assert_int_eq(trace_write(&m.t, path, &d), OK);
    unsigned char *bytes = slurp(path, &size_B);
    remove(path);
    for (int i = 0; i < 2000; i++) {
        const int at = test_random(&state, (int)size_B);
        const unsigned char kept = bytes[at];
        bytes[at] = (unsigned char)test_random(&state, 256);
        const enum err e = read_bytes(bytes, size_B, &d);
        ck_assert(e == OK || e == ERR_CONFIG);
        read += e == OK;
        refusals += e != OK;
        bytes[at] = kept;
    }
    ck_assert_int_gt(read, 100);
    ck_assert_int_gt(refusals, 100);
}
END_TEST

START_TEST(unreadable_paths)
{
    struct trace t = { .head = { .n_rank = 1 } }, back;
    struct diag d;
    char *longest = arena_alloc(&arena, 6000);
    memset(longest, 'x', 5999);
    ck_assert_int_eq(trace_read(&back, &arena, "/nowhere/at/all", &d), ERR_IO);
    ck_assert_ptr_nonnull(strstr(d.text, "/nowhere/at/all: cannot be read"));
    ck_assert_int_ne(trace_read(&back, &arena, BUILD_DIR, &d), OK);
    ck_assert_int_eq(trace_write(&t, "/nowhere/at/all", &d), ERR_IO);
    ck_assert_int_eq(trace_write(&t, longest, &d), ERR_IO);
    ck_assert_int_eq(trace_write(&t, BUILD_DIR, &d), ERR_IO);       /* cannot be renamed over a folder */
    ck_assert_int_ne(access(BUILD_DIR ".part", F_OK), 0);
}
END_TEST

/* ---- waits ---- */

static int64_t index_of(const struct made *m, int rank, int item)
{
    const struct item *i = &m->u[fold_coord(&m->j.plan, rank).pp].item[item];
    const struct span *s = trace_find(&m->t, 0, rank, i->step, i->op);
    ck_assert_ptr_nonnull(s);
    return s - m->t.span;
}

/* Against the rule read literally: for each span, all spans that meet it, by a search over everything. */
START_TEST(waits_follow_the_rule)
{
    struct made m;
    uint64_t state = 5;
    int waited = 0;
    make(&m, &small, 2, 1);
    for (int64_t i = 0; i < m.t.n; i++) m.t.span[i].t0_ns += test_random(&state, 1000);
    int64_t *wait_ns = arena_alloc(&arena, (size_t)m.t.n * sizeof *wait_ns);
    trace_waits(wait_ns, &m.t, &m.pr, &m.j, m.u);
    for (int rank = 0; rank < m.j.plan.gpus; rank++) {
        const int stage = fold_coord(&m.j.plan, rank).pp;
        for (int i = 0; i < m.u[stage].n_item; i++) {
            const int64_t own = index_of(&m, rank, i);
            const struct op *o = &m.pr.op[m.u[stage].item[i].op];
            int64_t latest_ns = m.t.span[own].t0_ns;
            for (int peer = 0; peer < m.j.plan.gpus; peer++) {
                const int at = fold_coord(&m.j.plan, peer).pp, same_pipe = peer % 2 == rank % 2;
                int item = -1;
                if (o->kind == OP_GRAD_SCATTER && at == stage) item = i;
                if ((o->kind == OP_SEND || o->kind == OP_RECV) && at != stage && same_pipe)
                    item = m.u[stage].item[i].mate;
                if (o->kind == OP_ALL_REDUCE)
                    for (int k = 0; k < m.u[at].n_item; k++)
                        if (m.pr.op[m.u[at].item[k].op].kind == OP_ALL_REDUCE) item = k;
                if (item < 0) continue;
                const int64_t t0_ns = m.t.span[index_of(&m, peer, item)].t0_ns;
                if (t0_ns > latest_ns) latest_ns = t0_ns;
            }
            ck_assert_int_eq(wait_ns[own], latest_ns - m.t.span[own].t0_ns);
            waited += wait_ns[own] > 0;
        }
    }
    ck_assert_int_gt(waited, 50);
}
END_TEST

/* With one rank per stage only pipeline peers are there; groups inside a stage wait for nobody. */
START_TEST(waits_of_one_rank_a_stage)
{
    struct made m;
    int p2p = 0;
    make(&m, &small, 2, 1);
    int64_t n = 0;
    for (int64_t i = 0; i < m.t.n; i++)
        if (m.t.span[i].rank % 2 == 0) m.t.span[n++] = m.t.span[i];
    m.t.n = n;
    int64_t *wait_ns = arena_alloc(&arena, (size_t)n * sizeof *wait_ns);
    trace_waits(wait_ns, &m.t, &m.pr, &m.j, m.u);
    for (int64_t i = 0; i < n; i++) {
        const int kind = m.pr.op[m.t.span[i].op].kind;
        const int meets = kind == OP_SEND || kind == OP_RECV || kind == OP_ALL_REDUCE;
        if (!meets) ck_assert_int_eq(wait_ns[i], 0);
        p2p += meets && wait_ns[i] > 0;
    }
    ck_assert_int_gt(p2p, 10);
}
END_TEST

/* ---- Chrome ---- */

static json_t *chrome_of(const struct made *m)
{
    struct diag d;
    json_error_t e;
    const char *path = path_of("chrome.json");
    ck_assert_msg(trace_write_chrome(&m->t, &m->pr, &m->j, path, &d) == OK, "%s", d.text);
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &e);
    ck_assert_msg(root != NULL, "line %d: %s", e.line, e.text);
    remove(path);
    return root;
}

START_TEST(chrome_json)
{
    struct made m;
    make(&m, &small, 2, 2);
    m.t.span[0].t0_ns = 1234567;
    m.t.span[0].t1_ns = 1234568 + 2000;
    json_t *root = chrome_of(&m), *event;
    size_t k, spans = 0, names = 0;
    json_array_foreach(json_object_get(root, "traceEvents"), k, event) {
        const char *ph = json_string_value(json_object_get(event, "ph"));
        const int pid = (int)json_integer_value(json_object_get(event, "pid"));
        if (!strcmp(ph, "M")) {
            names += !strcmp(json_string_value(json_object_get(event, "name")), "process_name");
            continue;
        }
        const struct span *s = &m.t.span[spans++];
        const struct op *o = &m.pr.op[s->op];
        ck_assert_str_eq(ph, "X");
        ck_assert_int_eq(pid, s->rank);
        ck_assert_int_eq(json_integer_value(json_object_get(event, "tid")), o->stream);
        const char *name = json_string_value(json_object_get(event, "name"));
        ck_assert_ptr_eq(strstr(name, op_name((enum op_kind)o->kind)), name);
        if (o->layer >= 0) ck_assert_ptr_nonnull(strstr(name, arena_printf(&arena, " L%d", o->layer)));
        ck_assert_double_eq_tol(json_number_value(json_object_get(event, "ts")), (double)s->t0_ns / 1e3, 1e-6);
        ck_assert_double_eq_tol(json_number_value(json_object_get(event, "dur")),
                                (double)(s->t1_ns - s->t0_ns) / 1e3, 1e-6);
    }
    ck_assert_int_eq(spans, m.t.n);
    ck_assert_int_ge(names, 4);
    json_decref(root);
}
END_TEST

START_TEST(other_programs_refused)
{
    struct made m;
    struct diag d;
    struct load l;
    make(&m, &small, 1, 1);
    m.t.span[5].step = 1000;
    ck_assert_int_eq(trace_write_chrome(&m.t, &m.pr, &m.j, path_of("no"), &d), ERR_CONFIG);
    ck_assert_ptr_nonnull(strstr(d.text, "step 1000"));
    ck_assert_int_eq(load_from_trace(&l, &arena, &m.pr, &m.j, &m.t, &d), ERR_CONFIG);
    m.t.head.program_hash++;
    ck_assert_int_eq(trace_write_chrome(&m.t, &m.pr, &m.j, path_of("no"), &d), ERR_CONFIG);
    ck_assert_ptr_nonnull(strstr(d.text, "not the same plan"));
}
END_TEST

/* ---- load ---- */

START_TEST(recorded_load)
{
    struct made m;
    struct diag d;
    struct load l;
    int64_t even[2];
    int sizes = 0;
    make(&m, &small, 2, 2);
    for (int64_t i = 0; i < m.t.n; i++) {
        struct span *s = &m.t.span[i];
        const struct op *o = &m.pr.op[s->op];
        if (o->kind != OP_SIZES) continue;
        const int micro = m.pr.step[fold_coord(&m.j.plan, s->rank).pp][s->step].micro[0];
        s->rows[0] = 1000 * s->rank + 100 * o->layer + 10 * micro + 1 + 5000 * s->iter;
        s->rows[1] = s->rows[0] + 1;
        sizes++;
    }
    ck_assert_int_eq(sizes, 2 * 4 * 2 * 4);     /* iterations, ranks, chunks a stage, micro-batches */
    ck_assert_msg(load_from_trace(&l, &arena, &m.pr, &m.j, &m.t, &d) == OK, "%s", d.text);
    for (int rank = 0; rank < 4; rank++)
        for (int layer = rank / 2; layer < 4; layer += 2)
            for (int micro = 0; micro < 4; micro++) {
                load_rows(even, &l, &m.pr, rank, layer, micro);
                ck_assert_int_eq(even[0], 1000 * rank + 100 * layer + 10 * micro + 1);
                ck_assert_int_eq(even[1], even[0] + 1);
            }
    load_rows_stage(even, &l, &m.pr, &m.j, 1, 3, 2);        /* ranks 2 and 3: the busier one */
    ck_assert_int_eq(even[0], 3321);
    load_rows(even, &l, &m.pr, 0, 1, 0);                    /* a layer that rank 0 does not have */
    ck_assert_int_eq(even[0], m.pr.even[0]);
    load_rows(even, NULL, &m.pr, 0, 0, 0);
    ck_assert_int_eq(even[1], m.pr.even[1]);
    load_rows_stage(even, NULL, &m.pr, &m.j, 0, 0, 0);
    ck_assert_int_eq(even[0], m.pr.even[0]);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        nanoseconds, sorted_and_found, any_order_is_sorted, round_trip, empty_trace, damaged_files, random_damage,
        unreadable_paths, waits_follow_the_rule, waits_of_one_rank_a_stage, chrome_json, other_programs_refused, recorded_load,
    };
    return test_main("trace", tests, LEN(tests), 300);
}
