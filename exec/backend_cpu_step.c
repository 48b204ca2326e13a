/* Launchers at the two ends of a step: tokens in, parameters updated. Optimizer ops work on this rank's slice
 * of a bucket, whose m, v and master buffers hold only that slice. */
#include "exec/backend_cpu.h"
#include <string.h>

/* ---- tokens ---- */

/* The step's sequences are the same under every fold: micro-batch m of dp rank d takes (m dp + d) mbs and the
 * next ones. */
static int64_t sequence(const struct call *c, int64_t s)
{
    const struct plan *p = &c->job->plan;
    return c->first_seq + ((int64_t)c->micro * p->dp + c->at.dp) * p->mbs + s;
}

static int64_t rows_written(const struct call *c)
{
    int i = 0;
    while (i < OP_WRITES && !c->write[i].p) i++;
    return i < OP_WRITES ? c->write[i].rows : 0;
}

static enum err take_token(int32_t *to, const struct call *c, int64_t at)
{
    const int64_t token = data_token(c->data, at);
    *to = (int32_t)token;
    if (token >= 0 && token < c->job->model.vocab) return OK;
    return fail(c->d, ERR_CONFIG, "%.300s: token %lld is %lld; the model's vocabulary is 0 .. %d: it is another tokenizer's",
                c->data->name, (long long)at, (long long)token, c->job->model.vocab - 1);
}

/* Whether a label counts: a document's last token predicts nothing. */
static int counts(const struct call *c, int64_t before)
{
    const struct plan *p = &c->job->plan;
    return !(p->packed >> PACKED_LOSS & 1) || !data_document_ends(c->data, p->eod, before);
}

/* The i-th write, where a stage wants it, is the stream i further on; a label that does not count is -1. */
enum err backend_cpu_data(const struct call *c)
{
    const struct rope at = backend_cpu_positions(c);
    const int local = at.seq / at.cp;
    const int64_t rows = rows_written(c);
    TRY(data_check(c->data, (enum data_part)c->part, at.seq, c->d));
    for (int64_t r = 0; r < rows; r++) {
        const int64_t start = data_start(c->data, (enum data_part)c->part, at.seq, sequence(c, r / local));
        const int64_t from = start + rope_position((int)(r % local), at.seq, at.cp, at.index);
        for (int i = 0; i < OP_WRITES; i++)
            if (c->write[i].p && i && !counts(c, from + i - 1)) ((int32_t *)c->write[i].p)[r] = -1;
            else if (c->write[i].p) TRY(take_token((int32_t *)c->write[i].p + r, c, from + i));
    }
    return OK;
}

enum err backend_cpu_documents(const struct call *c)
{
    const int seq = c->job->plan.seq;
    int32_t *start = c->write[0].p;
    TRY(data_check(c->data, (enum data_part)c->part, seq, c->d));
    for (int64_t s = 0; s < c->write[0].rows / seq; s++)
        data_document_starts(start + s * seq, c->data, c->job->plan.eod,
                             data_start(c->data, (enum data_part)c->part, seq, sequence(c, s)), seq);
    return OK;
}

/* ---- parameters ---- */

enum err backend_cpu_zero(const struct call *c)
{
    memset(c->write[0].p, 0, (size_t)backend_cpu_B(c, c->write[0], c->op->io.write[0]));
    return OK;
}

static int64_t slice(const struct call *c, struct operand whole)
{
    return whole.rows * whole.cols / c->members;
}

enum err backend_cpu_sumsq(const struct call *c)
{
    float *metric = c->add[0].p;
    const float *g = c->read[0].p;
    const int64_t n = slice(c, c->read[0]);
    return c->kernels->optimizer_sumsq(&metric[METRIC_SQUARES], g + c->me * n, n, 1.0 / c->op->copies);
}

static double clip_scale(const struct call *c)
{
    const float *metric = c->read[1].p;
    return optimizer_clip(metric[METRIC_SQUARES], c->job->plan.clip);
}

/* My part of the bucket whose parameters are views of `root`: elements [first, end). w begins at element w_at, the other
 * buffers at `first`. */
struct mine { int32_t root; int64_t first, end, w_at; float *w, *master, *m, *v; const float *g; };

/* Elements [from, to) of the bucket, all of them mine, with or without decay. */
static enum err adamw_some(const struct call *c, const struct mine *x, struct optimizer_adamw o, int64_t from, int64_t to,
                           int decays)
{
    const int64_t at = from - x->first;
    if (!decays) o.weight_decay = 0;
    return c->kernels->optimizer_adamw(x->w + from - x->w_at, x->master ? x->master + at : NULL, x->m + at, x->v + at,
                                       x->g + at, to - from, &o);
}

/* Runs of parameters that decay and that do not, in the order in which they lie in the bucket. */
static enum err adamw_runs(const struct call *c, const struct mine *x, const struct optimizer_adamw *o)
{
    const struct program *pr = c->pr;
    int64_t from = x->first;
    for (int i = 0; i < pr->n_param && o->weight_decay != 0; i++) {
        const struct param *q = &pr->param[i];
        const struct buf *b = &pr->buf[q->w];
        if (b->view != x->root || !program_param_is_vector((enum param_name)q->name)) continue;
        const int64_t first = b->view_at > from ? b->view_at : from, end = b->view_at + b->rows * b->cols;
        const int64_t last = end < x->end ? end : x->end;
        if (first >= last) continue;
        if (first > from) TRY(adamw_some(c, x, *o, from, first, 1));
        TRY(adamw_some(c, x, *o, first, last, 0));
        from = last;
    }
    return from < x->end ? adamw_some(c, x, *o, from, x->end, 1) : OK;
}

/* The bucket that the executor cut over replicas, or whose states it put on the host, by its weights or the host's
 * master; else NULL. */
static const struct bucket *bucket_cut(const struct program *pr, int32_t id)
{
    for (int i = 0; i < pr->n_bucket; i++) {
        const struct bucket *k = &pr->bucket[i];
        if ((k->whole && k->w == id) || k->host_master == id) return k;
    }
    return NULL;
}

static struct optimizer_adamw adamw_rule(const struct call *c)
{
    const struct plan *p = &c->job->plan;
    return (struct optimizer_adamw){ .lr = c->lr, .beta1 = p->beta1, .beta2 = p->beta2, .eps = p->adam_eps,
                                     .weight_decay = p->weight_decay, .scale = clip_scale(c), .step = c->iter + 1 };
}

/* Where my part of n elements begins in its bucket. */
static int64_t first_of(const struct call *c, const struct bucket *k, int64_t n)
{
    return n * fold_members(c->job, (enum group)k->share_group, c->rank, NULL);
}

enum err backend_cpu_adamw(const struct call *c)
{
    const int32_t w = c->op->io.add[0];
    const struct bucket *cut = bucket_cut(c->pr, w);
    const int64_t n = slice(c, c->read[0]), first = cut ? first_of(c, cut, n) : c->me * n;
    const struct mine x = { .root = cut ? cut->whole : w, .first = first, .end = first + n, .w_at = cut ? first : 0,
                            .w = c->add[0].p, .master = c->add[1].p, .m = c->add[2].p, .v = c->add[3].p,
                            .g = (const float *)c->read[0].p + c->me * n };
    const struct optimizer_adamw o = adamw_rule(c);
    return adamw_runs(c, &x, &o);
}

/* The host has copies of my part of everything. */
enum err backend_cpu_host_adamw(const struct call *c)
{
    const struct bucket *k = bucket_cut(c->pr, c->op->io.add[0]);
    const int64_t n = c->add[0].rows, first = first_of(c, k, n);
    const struct mine x = { .root = k->whole ? k->whole : k->w, .first = first, .end = first + n, .w_at = first,
                            .w = c->add[0].p, .m = c->add[1].p, .v = c->add[2].p, .g = c->read[0].p };
    const struct optimizer_adamw o = adamw_rule(c);
    return adamw_runs(c, &x, &o);
}

/* My part of what is written, where the op names who shares it. */
enum err backend_cpu_cast(const struct call *c)
{
    const int64_t n = c->read[0].rows;
    memcpy((float *)c->add[0].p + c->me * n, c->read[0].p, (size_t)n * sizeof(float));
    return OK;
}

/* To the other memory, or back: as much as is written, my part where there is more to read. */
enum err backend_cpu_copy(const struct call *c)
{
    const int64_t bytes = backend_cpu_B(c, c->write[0], c->op->io.write[0]);
    memcpy(c->write[0].p, (const char *)c->read[0].p + c->me * bytes, (size_t)bytes);
    return OK;
}

enum err backend_cpu_sgd(const struct call *c)
{
    const int64_t n = slice(c, c->read[0]);
    const float *g = c->read[0].p;
    float *w = c->add[0].p;
    return optimizer_sgd_ref(w + c->me * n, c->add[1].p, g + c->me * n, n, c->lr, clip_scale(c));
}

/* A framework's reference: no work, only a use. */
enum err backend_cpu_hold(const struct call *c)
{
    (void)c;
    return OK;
}
