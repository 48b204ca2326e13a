/* What passes between ops where threads run streams: a stream turns to its next op, or sleeps until what it
 * waits for on another stream is done and is woken. Whether an op waits so is read off the list: it uses what
 * an op of another stream wrote before it. That it did not sleep, because the other was early, is not seen: a
 * price is not less for it. */
#include "sim/cost.h"

/* What streams know: the last op of each that is surely done when another's latest begins. */
struct known { int32_t of[STREAM_COUNT][STREAM_COUNT]; };

/* Messages between stages wait for each other anyhow, and a block of a search does not know which it has. */
static int is_message(const struct op *o)
{
    return op_family((enum op_kind)o->kind) == FAMILY_P2P;
}

/* Weights are gathered a step before; what is only written belongs to nobody else. */
static int waits(struct known *k, const struct program *pr, const int32_t *last, const struct op *o,
                 const struct use *u)
{
    const int before = last[u->buf];
    if (u->access == ACCESS_WRITE || pr->buf[u->buf].keep == KEEP_WEIGHT || !before) return 0;
    const struct op *b = &pr->op[before];
    if (b->stream == o->stream || is_message(b) || before <= k->of[o->stream][b->stream]) return 0;
    k->of[o->stream][b->stream] = before;
    return 1;
}

/* Its stream, empty until the host goes on. */
static int behind_read(const struct program *pr, int op)
{
    return op > 1 && pr->op[op - 1].flags & OP_HOST_READS && pr->op[op - 1].half == pr->op[op].half;
}

static void wake_op(uint8_t *woken, struct known *k, int32_t *last, const struct program *pr, int op)
{
    const struct op *o = &pr->op[op];
    struct use use[OP_USES];
    const int n = op_uses(use, pr, o);
    *woken = (uint8_t)behind_read(pr, op);
    for (int u = 0; u < n; u++) *woken |= (uint8_t)waits(k, pr, last, o, &use[u]);
    for (int u = 0; u < n; u++)
        if (use[u].access != ACCESS_READ) last[use[u].buf] = op;
}

void cost_wake(struct cost *c)
{
    const struct program *pr = c->pr;
    struct arena scratch = { 0 };
    struct known k = { 0 };
    if (c->job->system.wake_s == 0) return;
    uint8_t *woken = arena_alloc(pr->arena, (size_t)pr->n_op);
    int32_t *last = arena_alloc(&scratch, (size_t)pr->n_buf * sizeof *last);
    for (int i = 1; i < pr->n_op; i++) wake_op(&woken[i], &k, last, pr, i);
    c->woken = woken;
    arena_free(&scratch);
}

double cost_wake_s(const struct cost *c, int op)
{
    const struct system *s = &c->job->system;
    if (c->given_s || !cost_runs(c, op) || is_message(&c->pr->op[op])) return 0;
    return c->woken && c->woken[op] ? s->wake_s : s->next_s;
}

double cost_read_s(const struct cost *c)
{
    return c->given_s ? 0 : c->job->system.wake_s;
}
