/* Traces as files. The format is fixed: "MFTRACE1", a header and spans of 40 bytes, every number little-endian,
 * so that a trace read elsewhere is the same bytes. A file is not trusted: sizes, counts, ranges and order are
 * checked on reading, since everything behind joins by a merge of sorted keys. */
#include "models/trace.h"
#include "models/base/whole_file.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SPAN_B = 40 };
#define TRACE_MAGIC "MFTRACE1"
/* Magic, hash, three texts, ranks, iterations, clock, spans. */
enum { HEAD_B = 8 + 8 + 16 + 64 + 48 + 4 + 4 + 8 + 8 };

int64_t trace_ns(double seconds)
{
    const double ns = seconds * 1e9;
    if (!(ns >= 0 && ns < 1e15)) return llround(ns);
    const int64_t whole = (int64_t)ns;      /* as llround, which is a call: a trace has a million of them */
    return whole + (ns - (double)whole >= 0.5);
}

static int trace_compare(const void *x, const void *y)
{
    const struct span *a = x, *b = y;
    if (a->iter != b->iter) return a->iter < b->iter ? -1 : 1;
    if (a->rank != b->rank) return a->rank < b->rank ? -1 : 1;
    if (a->step != b->step) return a->step < b->step ? -1 : 1;
    return (a->op > b->op) - (a->op < b->op);
}

static int same_step(const struct span *a, const struct span *b)
{
    return a->iter == b->iter && a->rank == b->rank && a->step == b->step;
}

/* Whoever makes a trace makes it step by step: then only ops of one step are out of order, and of few steps. */
void trace_sort(struct trace *t)
{
    for (int64_t from = 0, end; from < t->n; from = end) {
        int in_order = 1;
        for (end = from + 1; end < t->n && same_step(&t->span[from], &t->span[end]); end++)
            in_order &= t->span[end - 1].op <= t->span[end].op;
        if (from && trace_compare(&t->span[from - 1], &t->span[from]) > 0) {
            qsort(t->span, (size_t)t->n, sizeof *t->span, trace_compare);
            return;
        }
        if (!in_order) qsort(&t->span[from], (size_t)(end - from), sizeof *t->span, trace_compare);
    }
}

const struct span *trace_find(const struct trace *t, int iter, int rank, int step, int op)
{
    const struct span key = { .iter = iter, .rank = rank, .step = step, .op = op };
    return t->n ? bsearch(&key, t->span, (size_t)t->n, sizeof *t->span, trace_compare) : NULL;
}

enum err trace_fits(const struct trace *t, const struct program *pr, const struct job *j, struct diag *d)
{
    if (t->head.program_hash != program_hash(pr))
        return fail(d, ERR_CONFIG,
                    "the trace is of program %016llx, the plan makes program %016llx: not the same plan",
                    (unsigned long long)t->head.program_hash, (unsigned long long)program_hash(pr));
    for (int64_t i = 0; i < t->n; i++) {
        const struct span *s = &t->span[i];
        const int known = s->rank < j->plan.gpus, stage = known ? fold_coord(&j->plan, s->rank).pp : 0;
        if (!known || s->step >= pr->n_step[stage] || s->op >= pr->n_op)
            return fail(d, ERR_CONFIG,
                        "span %lld of the trace has rank %d, step %d, op %d: the program has %d ranks, "
                        "%d steps, %d ops",
                        (long long)i, s->rank, s->step, s->op, j->plan.gpus, pr->n_step[stage], pr->n_op);
    }
    return OK;
}

/* ---- bytes ---- */

static unsigned char *trace_put(unsigned char *to, uint64_t value, int n_B)
{
    for (int k = 0; k < n_B; k++) *to++ = (unsigned char)(value >> 8 * k);
    return to;
}

static uint64_t trace_get(const unsigned char **from, int n_B)
{
    uint64_t value = 0;
    for (int k = 0; k < n_B; k++) value |= (uint64_t)*(*from)++ << 8 * k;
    return value;
}

static int32_t trace_get32(const unsigned char **from)
{
    return (int32_t)(uint32_t)trace_get(from, 4);
}

static unsigned char *trace_put_text(unsigned char *to, const char *text, size_t n_B)
{
    memset(to, 0, n_B);
    memcpy(to, text, strnlen(text, n_B - 1));
    return to + n_B;
}

/* 0 when the text does not end within its field. */
static int trace_get_text(char *text, const unsigned char **from, size_t n_B)
{
    memcpy(text, *from, n_B);
    *from += n_B;
    return text[n_B - 1] == 0;
}

/* ---- writing ---- */

static void trace_put_head(unsigned char *to, const struct trace *t)
{
    const struct trace_header *h = &t->head;
    memcpy(to, TRACE_MAGIC, 8);
    to = trace_put(to + 8, h->program_hash, 8);
    to = trace_put_text(to, h->source, sizeof h->source);
    to = trace_put_text(to, h->system, sizeof h->system);
    to = trace_put_text(to, h->revision, sizeof h->revision);
    to = trace_put(to, (uint32_t)h->n_rank, 4);
    to = trace_put(to, (uint32_t)h->n_iter, 4);
    to = trace_put(to, (uint64_t)h->clock_ns, 8);
    trace_put(to, (uint64_t)t->n, 8);
}

static void trace_put_span(unsigned char *to, const struct span *s)
{
    to = trace_put(to, (uint32_t)s->iter, 4);
    to = trace_put(to, (uint32_t)s->rank, 4);
    to = trace_put(to, (uint32_t)s->step, 4);
    to = trace_put(to, (uint32_t)s->op, 4);
    to = trace_put(to, (uint64_t)s->t0_ns, 8);
    to = trace_put(to, (uint64_t)s->t1_ns, 8);
    to = trace_put(to, (uint32_t)s->rows[0], 4);
    trace_put(to, (uint32_t)s->rows[1], 4);
}

enum err trace_write(const struct trace *t, const char *path, struct diag *d)
{
    struct whole_file file;
    unsigned char head[HEAD_B], span[SPAN_B];
    TRY(whole_file_open(&file, path, d));
    trace_put_head(head, t);
    fwrite(head, 1, sizeof head, file.f);       /* errors stay in the stream until the commit */
    for (int64_t i = 0; i < t->n; i++) {
        trace_put_span(span, &t->span[i]);
        fwrite(span, 1, sizeof span, file.f);
    }
    return whole_file_commit(&file, d);
}

/* ---- reading ---- */

static enum err trace_get_head(struct trace *t, const unsigned char *from, const char *path, struct diag *d)
{
    struct trace_header *h = &t->head;
    from += 8;
    h->program_hash = trace_get(&from, 8);
    const int ends = trace_get_text(h->source, &from, sizeof h->source) &
                     trace_get_text(h->system, &from, sizeof h->system) &
                     trace_get_text(h->revision, &from, sizeof h->revision);
    h->n_rank = trace_get32(&from);
    h->n_iter = trace_get32(&from);
    h->clock_ns = (int64_t)trace_get(&from, 8);
    t->n = (int64_t)trace_get(&from, 8);
    if (!ends) return fail(d, ERR_CONFIG, "%.300s: damaged trace: a text of the header does not end", path);
    if (h->n_rank < 1 || h->n_iter < 0 || h->clock_ns < 0 || t->n < 0)
        return fail(d, ERR_CONFIG, "%.300s: damaged trace: %d ranks, %d iterations, clock %lld ns, %lld spans",
                    path, h->n_rank, h->n_iter, (long long)h->clock_ns, (long long)t->n);
    return OK;
}

static void trace_get_span(struct span *s, const unsigned char *from)
{
    s->iter = trace_get32(&from);
    s->rank = trace_get32(&from);
    s->step = trace_get32(&from);
    s->op = trace_get32(&from);
    s->t0_ns = (int64_t)trace_get(&from, 8);
    s->t1_ns = (int64_t)trace_get(&from, 8);
    s->rows[0] = trace_get32(&from);
    s->rows[1] = trace_get32(&from);
}

/* Ranges, and keys that rise: a merge relies on both. */
static enum err trace_check_span(const struct trace *t, int64_t i, const char *path, struct diag *d)
{
    const struct span *s = &t->span[i];
    if (s->iter < 0 || s->iter >= t->head.n_iter || s->rank < 0 || s->rank >= t->head.n_rank || s->step < 0 ||
        s->op < 1)
        return fail(d, ERR_CONFIG, "%.300s: damaged trace: span %lld has iteration %d, rank %d, step %d, op %d",
                    path, (long long)i, s->iter, s->rank, s->step, s->op);
    if (s->t1_ns < s->t0_ns || s->rows[0] < 0 || s->rows[1] < 0)
        return fail(d, ERR_CONFIG,
                    "%.300s: damaged trace: span %lld lasts from %lld to %lld ns, rows %d and %d", path,
                    (long long)i, (long long)s->t0_ns, (long long)s->t1_ns, s->rows[0], s->rows[1]);
    if (i > 0 && trace_compare(&t->span[i - 1], s) >= 0)
        return fail(d, ERR_CONFIG, "%.300s: damaged trace: span %lld is not behind the one before it", path,
                    (long long)i);
    return OK;
}

/* Bytes of an open file, which must be a plain one. */
static int64_t trace_size_B(FILE *f)
{
    if (fseek(f, 0, SEEK_END) != 0) return -1;
    const long size_B = ftell(f);
    return fseek(f, 0, SEEK_SET) == 0 ? size_B : -1;
}

static enum err trace_get_spans(struct trace *t, struct arena *a, FILE *f, const char *path, struct diag *d)
{
    unsigned char bytes[SPAN_B];
    t->span = arena_alloc(a, (size_t)t->n * sizeof *t->span);
    for (int64_t i = 0; i < t->n; i++) {
        if (fread(bytes, 1, SPAN_B, f) != SPAN_B) return fail(d, ERR_IO, "%.300s: cannot be read", path);
        trace_get_span(&t->span[i], bytes);
        TRY(trace_check_span(t, i, path, d));
    }
    return OK;
}

/* The file's size is compared with its counts before anything is allocated by them. */
static enum err trace_get_all(struct trace *t, struct arena *a, FILE *f, const char *path, struct diag *d)
{
    unsigned char head[HEAD_B];
    const int64_t size_B = trace_size_B(f);
    if (size_B < 0) return fail(d, ERR_IO, "%.300s: cannot be read: not a plain file", path);
    if (size_B < HEAD_B || fread(head, 1, HEAD_B, f) != HEAD_B || memcmp(head, TRACE_MAGIC, 8) != 0)
        return fail(d, ERR_CONFIG,
                    "%.300s: not a trace: it does not begin with a header of %d bytes and " TRACE_MAGIC, path,
                    HEAD_B);
    TRY(trace_get_head(t, head, path, d));
    if (t->n != (size_B - HEAD_B) / SPAN_B || (size_B - HEAD_B) % SPAN_B != 0)
        return fail(d, ERR_CONFIG, "%.300s: damaged trace: %lld spans announced, %lld bytes of them there",
                    path, (long long)t->n, (long long)(size_B - HEAD_B));
    return trace_get_spans(t, a, f, path, d);
}

enum err trace_read(struct trace *t, struct arena *a, const char *path, struct diag *d)
{
    struct trace read = { 0 };
    FILE *f = fopen(path, "rb");
    if (!f) return fail(d, ERR_IO, "%.300s: cannot be read: %s", path, strerror(errno));
    const enum err e = trace_get_all(&read, a, f, path, d);
    fclose(f);
    if (e == OK) *t = read;
    return e;
}
