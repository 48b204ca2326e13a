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

/* The i-th write, where a stage wants it, is the stream i further on. */
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
            if (c->write[i].p) TRY(take_token((int32_t *)c->write[i].p + r, c, from + i));
    }
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

/* Elements [from, to) of the bucket, all within my slice, with or without decay. */
static enum err adamw_some(const struct call *c, struct optimizer_adamw o, int64_t from, int64_t to, int decays)
{
    const int64_t mine = c->me * slice(c, c->read[0]), at = from - mine;
    float *w = c->add[0].p, *master = c->add[1].p, *m = c->add[2].p, *v = c->add[3].p;
    const float *g = c->read[0].p;
    if (!decays) o.weight_decay = 0;
    return c->kernels->optimizer_adamw(w + from, master ? master + at : NULL, m + at, v + at, g + from, to - from, &o);
}

/* Runs of parameters that decay and that do not, in the order in which they lie in the bucket. */
static enum err adamw_runs(const struct call *c, const struct optimizer_adamw *o, int64_t from, int64_t to)
{
    const struct program *pr = c->pr;
    for (int i = 0; i < pr->n_param && o->weight_decay != 0; i++) {
        const struct param *q = &pr->param[i];
        const struct buf *b = &pr->buf[q->w];
        if (b->view != c->op->io.add[0] || !program_param_is_vector((enum param_name)q->name)) continue;
        const int64_t first = b->view_at > from ? b->view_at : from, end = b->view_at + b->rows * b->cols;
        const int64_t last = end < to ? end : to;
        if (first >= last) continue;
        if (first > from) TRY(adamw_some(c, *o, from, first, 1));
        TRY(adamw_some(c, *o, first, last, 0));
        from = last;
    }
    return from < to ? adamw_some(c, *o, from, to, 1) : OK;
}

enum err backend_cpu_adamw(const struct call *c)
{
    const struct plan *p = &c->job->plan;
    const int64_t n = slice(c, c->read[0]);
    const struct optimizer_adamw o = {.lr = c->lr,
                                      .beta1 = p->beta1,
                                      .beta2 = p->beta2,
                                      .eps = p->adam_eps,
                                      .weight_decay = p->weight_decay,
                                      .scale = clip_scale(c),
                                      .step = c->iter + 1};
    return adamw_runs(c, &o, c->me * n, (c->me + 1) * n);
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
