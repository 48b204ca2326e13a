/* Traces as Chrome trace JSON, which Perfetto and chrome://tracing open: a process per rank, a thread per
 * stream. Written as a stream of text: names come from ids, so nothing needs escaping, and a long trace needs
 * no memory. */
#include "models/trace.h"
#include "models/base/whole_file.h"
#include <inttypes.h>

struct chrome {
    FILE *f;
    const struct program *pr;
    const struct job *j;
    int32_t rank;               /* last named, and which of its streams are */
    uint32_t streams;
    int n;                      /* events so far */
};

/* Begins an event, with the comma that the one before it needs. */
static void trace_chrome_event(struct chrome *c)
{
    fputs(c->n++ ? ",\n{" : "{", c->f);
}

static void trace_chrome_meta(struct chrome *c, const char *what, int rank, int stream)
{
    trace_chrome_event(c);
    fprintf(c->f, "\"ph\":\"M\",\"name\":\"%s\",\"pid\":%d,\"tid\":%d,\"args\":{", what, rank, stream);
}

/* Names a rank and its streams at their first span. */
static void trace_chrome_names(struct chrome *c, int rank, int stream)
{
    if (rank != c->rank) {
        c->rank = rank;
        c->streams = 0;
        trace_chrome_meta(c, "process_name", rank, 0);
        fprintf(c->f, "\"name\":\"rank %d, stage %d\"}}", rank, fold_coord(&c->j->plan, rank).pp);
    }
    if (c->streams >> stream & 1) return;
    c->streams |= 1u << stream;
    trace_chrome_meta(c, "thread_name", rank, stream);
    fprintf(c->f, "\"name\":\"%s\"}}", op_stream_name((enum stream)stream));
    trace_chrome_meta(c, "thread_sort_index", rank, stream);
    fprintf(c->f, "\"sort_index\":%d}}", stream);
}

/* Nanoseconds as the microseconds that the format wants, exactly. */
static void trace_chrome_us(FILE *f, const char *key, int64_t ns)
{
    const uint64_t abs_ns = ns < 0 ? -(uint64_t)ns : (uint64_t)ns;
    fprintf(f, ",\"%s\":%s%" PRIu64 ".%03d", key, ns < 0 ? "-" : "", abs_ns / 1000, (int)(abs_ns % 1000));
}

static void trace_chrome_span(struct chrome *c, const struct span *s)
{
    const struct op *o = &c->pr->op[s->op];
    const int stage = fold_coord(&c->j->plan, s->rank).pp;
    const struct step *t = &c->pr->step[stage][s->step];
    const int micro = o->half == HALF_STEP ? -1 : t->micro[o->half == HALF_BWD];
    trace_chrome_names(c, s->rank, o->stream);
    trace_chrome_event(c);
    fprintf(c->f, "\"ph\":\"X\",\"name\":\"%s", op_name((enum op_kind)o->kind));
    if (o->layer >= 0) fprintf(c->f, " L%d", o->layer);
    if (micro >= 0) fprintf(c->f, " m%d", micro);
    fprintf(c->f, "\",\"cat\":\"%s\",\"pid\":%d,\"tid\":%d",
            program_pass_name((enum pass_kind)c->pr->pass[t->pass].kind), s->rank, o->stream);
    trace_chrome_us(c->f, "ts", s->t0_ns);
    trace_chrome_us(c->f, "dur", s->t1_ns - s->t0_ns);
    fprintf(c->f, ",\"args\":{\"iter\":%d,\"step\":%d,\"op\":%d,\"rows\":%d}}", s->iter, s->step, s->op,
            s->rows[0]);
}

enum err trace_write_chrome(const struct trace *t, const struct program *pr, const struct job *j,
                            const char *path, struct diag *d)
{
    struct whole_file file;
    TRY(trace_fits(t, pr, j, d));
    TRY(whole_file_open(&file, path, d));
    struct chrome c = { .f = file.f, .pr = pr, .j = j, .rank = -1 };
    fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n", file.f);
    for (int64_t i = 0; i < t->n; i++) trace_chrome_span(&c, &t->span[i]);
    fputs("\n]}\n", file.f);
    return whole_file_commit(&file, d);
}
