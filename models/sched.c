/* Schedules: which ops each pass runs, and which passes each stage takes. Ops exist once per chunk and half;
 * a pass only selects and orders them by id, so a merged or split pass prices and traces the same ops as a
 * plain one. Passes are made when a stage first takes them: those that exist are those that happen. Orders
 * follow Megatron-LM core/pipeline_parallel/schedules.py (get_schedule_table, get_pp_rank_microbatches). */
#include "models/sched.h"
#include <assert.h>

struct slot { int32_t micro, v; };  /* one chunk-forward: micro-batch, and which of the stage's chunks */

struct sched {                      /* what the functions below share while one program is built */
    struct program *pr;
    int32_t pp, vpp, n_slot, group, merged, split, late;    /* late: reductions in OPTIM */
    int32_t room_pass, room_order, room_step;
    struct slot *slot;              /* forward order; backward takes the same with v mirrored */
    int32_t *after; /* by REDUCE op: the backward op it is spliced in after; 0: left to OPTIM */
    int32_t stage;                  /* being scheduled */
    int32_t *made; /* its passes by (kind, v of the FWD half, v of the BWD half, gathers), -1: not yet */
    int32_t *maker; /* by root buffer: the once-a-step op of a chunk that writes it; 0: none */
    int32_t once, once_end;         /* such ops still to push before those that need them */
    struct slot weight;             /* BWD_WEIGHT still to run; micro -1: none */
};

/* ---- what passes contain ---- */

static void sched_append(struct sched *s, int op)
{
    struct program *pr = s->pr;
    if (pr->n_order == s->room_order) {
        s->room_order = s->room_order ? 2 * s->room_order : 1024;
        pr->order =
            arena_grow(pr->arena, pr->order, (size_t)pr->n_order, (size_t)s->room_order, sizeof *pr->order);
    }
    pr->order[pr->n_order++] = op;
}

/* Before an op come the once-a-step ops that make what it reads, and those before these. */
static void sched_push(struct sched *s, int op)
{
    for (int i = 0; i < OP_READS && s->once < s->once_end; i++) {
        const int32_t made = s->maker[program_root(s->pr, s->pr->op[op].io.read[i])];
        while (s->once < s->once_end && s->once <= made) sched_append(s, s->once++);
    }
    sched_append(s, op);
}

/* What the step's first forward of a chunk does once. Gathers are issued at once; copies, on the stream of compute, where
 * they are needed, or all of them would wait for the last gather. */
static void sched_open_once(struct sched *s, const struct chunk *c)
{
    s->once = c->end;
    s->once_end = c->gathered;
    while (s->once < s->once_end && s->pr->op[s->once].kind == OP_PARAM_GATHER) sched_append(s, s->once++);
}

static void sched_close_once(struct sched *s)
{
    while (s->once < s->once_end) sched_append(s, s->once++);
}

static void sched_push_range(struct sched *s, int from, int to)
{
    for (int op = from; op < to; op++) sched_push(s, op);
}

/* Ops [from, to) whose OP_WEIGHT_GRAD flag is `flag`. */
static void sched_push_flagged(struct sched *s, int from, int to, int flag)
{
    for (int op = from; op < to; op++)
        if ((s->pr->op[op].flags & OP_WEIGHT_GRAD) == flag) sched_push(s, op);
}

/* Backward with every reduction right after the last op that adds to its gradient. */
static void sched_push_last(struct sched *s, const struct chunk *c)
{
    for (int op = c->bwd; op < c->reduce; op++) {
        sched_push(s, op);
        for (int r = c->reduce; r < c->end; r++)
            if (s->after[r] == op) sched_push(s, r);
    }
}

/* One part (a run of equal `part`) of the ops [from, to); returns where the next begins. With split weight
 * gradients only the BWD_INPUT ops are taken. */
static int sched_push_part(struct sched *s, int from, int to)
{
    int op = from;
    for (; op < to && s->pr->op[op].part == s->pr->op[from].part; op++)
        if (!s->split || !(s->pr->op[op].flags & OP_WEIGHT_GRAD)) sched_push(s, op);
    return op;
}

/* Parts in turn, backward one ahead: B.combine F.attention | B.experts F.dispatch | ... */
static void sched_push_woven(struct sched *s, const struct chunk *f, const struct chunk *b)
{
    int i = f->fwd, k = b->bwd;
    while (i < f->bwd || k < b->reduce) {
        k = sched_push_part(s, k, b->reduce);
        i = sched_push_part(s, i, f->bwd);
    }
}

/* The reductions no BWD_LAST took, then the optimizer. */
static void sched_push_optim(struct sched *s)
{
    for (int v = 0; v < s->vpp; v++) {
        const struct chunk *c = &s->pr->chunk[v * s->pp + s->stage];
        for (int r = c->reduce; r < c->end; r++)
            if (!s->after[r]) sched_push(s, r);
    }
    sched_push_range(s, s->pr->stage[s->stage].optim, s->pr->stage[s->stage].start);
}

static void sched_push_ops(struct sched *s, enum pass_kind kind, const struct chunk *f, const struct chunk *b)
{
    switch (kind) {
    case PASS_START:      sched_push_range(s, s->pr->stage[s->stage].start, s->pr->stage[s->stage].end); break;
    case PASS_FWD:        sched_push_range(s, f->fwd, f->bwd); break;
    case PASS_BWD:        sched_push_range(s, b->bwd, b->reduce); break;
    case PASS_BWD_INPUT:  sched_push_flagged(s, b->bwd, b->reduce, 0); break;
    case PASS_BWD_WEIGHT: sched_push_flagged(s, b->bwd, b->reduce, OP_WEIGHT_GRAD); break;
    case PASS_BWD_LAST:   sched_push_last(s, b); break;
    case PASS_FWD_BWD:    sched_push_woven(s, f, b); break;
    case PASS_OPTIM:      sched_push_optim(s); break;
    case PASS_COUNT:      break;
    }
}

/* ---- where reductions go ---- */

static int sched_warmup(const struct sched *s, int stage)
{
    const int behind = s->pp - 1 - stage;
    const int n = (s->vpp == 1 ? behind : 2 * behind + (s->vpp - 1) * s->group) + s->merged;
    return n < s->n_slot ? n : s->n_slot;
}

/* Whether the last micro-batch's backward of a chunk is a pass of its own: merged, it comes `warmup` slots later and
 * meets a forward unless these are over. */
static int sched_ends_alone(const struct sched *s, int chunk)
{
    const int v = s->vpp - 1 - chunk / s->pp;
    for (int k = 0; k < s->n_slot && s->merged; k++)
        if (s->slot[k].micro == s->pr->n_micro - 1 && s->slot[k].v == v)
            return k + sched_warmup(s, chunk % s->pp) >= s->n_slot;
    return 1;
}

/* The gradient that an op adds to, or 0. */
static int sched_gradient(const struct program *pr, int op)
{
    struct use use[OP_USES];
    const int n = op_uses(use, pr, &pr->op[op]);
    for (int k = 0; k < n; k++)
        if (use[k].access == ACCESS_ADD && pr->buf[use[k].buf].keep == KEEP_GRADIENT) return use[k].buf;
    return 0;
}

static int sched_has(const struct chunk *c, int op)
{
    return op >= c->bwd && op < c->reduce;
}

/* last[gradient]: the last backward op that adds to it, or -1 where several chunks do (a tied table). */
static int32_t *sched_last_adds(const struct program *pr)
{
    int32_t *last = arena_alloc(pr->arena, (size_t)pr->n_buf * sizeof *last);
    for (int c = 0; c < pr->n_chunk; c++)
        for (int op = pr->chunk[c].bwd; op < pr->chunk[c].reduce; op++) {
            const int g = sched_gradient(pr, op);
            if (!g) continue;
            last[g] = last[g] == 0 || sched_has(&pr->chunk[c], last[g]) ? op : -1;
        }
    return last;
}

/* A reduction goes under its chunk's last backward unless another chunk adds to its gradient, or it (or an
 * earlier one of the same gradient) meets other stages: a stage that waits in mid-schedule for one that is
 * later would hang both. */
static void sched_place_reduces(struct sched *s)
{
    const struct program *pr = s->pr;
    s->after = arena_alloc(pr->arena, (size_t)pr->n_op * sizeof *s->after);
    if (s->split || s->late) return;
    int32_t *last = sched_last_adds(pr);
    for (int c = 0; c < pr->n_chunk; c++)
        for (int r = pr->chunk[c].reduce; r < pr->chunk[c].end; r++) {
            const int g = sched_gradient(pr, r), group = pr->op[r].group;
            if (group == GROUP_EMBED || group == GROUP_WORLD) last[g] = -1;
            else if (g && sched_has(&pr->chunk[c], last[g]) && sched_ends_alone(s, c)) s->after[r] = last[g];
        }
}

/* maker[root]: the op of a chunk's once-a-step ones that writes it. */
static int32_t *sched_makers(const struct program *pr)
{
    int32_t *maker = arena_alloc(pr->arena, (size_t)pr->n_buf * sizeof *maker);
    for (int c = 0; c < pr->n_chunk; c++)
        for (int op = pr->chunk[c].end; op < pr->chunk[c].gathered; op++)
            for (int i = 0; i < OP_WRITES; i++)
                if (pr->op[op].kind != OP_ZERO) maker[program_root(pr, pr->op[op].io.write[i])] = op;
    maker[0] = 0;
    return maker;
}

/* ---- which passes a stage takes ---- */

static int sched_pass_make(struct sched *s, enum pass_kind kind, int vf, int vb, int gathers)
{
    struct program *pr = s->pr;
    if (pr->n_pass == s->room_pass) {
        s->room_pass = s->room_pass ? 2 * s->room_pass : 64;
        pr->pass =
            arena_grow(pr->arena, pr->pass, (size_t)pr->n_pass, (size_t)s->room_pass, sizeof *pr->pass);
    }
    const int whole = kind == PASS_START || kind == PASS_OPTIM;
    const int f = whole ? s->stage : vf < 0 ? -1 : vf * s->pp + s->stage;
    const int b = vb < 0 ? -1 : vb * s->pp + s->stage;
    const int first = pr->n_order;
    if (gathers) sched_open_once(s, &pr->chunk[f]);
    sched_push_ops(s, kind, f < 0 ? NULL : &pr->chunk[f], b < 0 ? NULL : &pr->chunk[b]);
    sched_close_once(s);
    pr->pass[pr->n_pass] = (struct pass){ .kind = (uint8_t)kind, .gathers = (uint8_t)gathers, .chunk = { (int16_t)f, (int16_t)b },
                                          .first = first, .n = pr->n_order - first };
    return pr->n_pass++;
}

/* A step of the stage: the pass of these halves (v -1: no such half), made when it is the first time. */
static void sched_step(struct sched *s, enum pass_kind kind, struct slot f, struct slot b)
{
    struct program *pr = s->pr;
    const struct chunk *c = f.v < 0 ? NULL : &pr->chunk[f.v * s->pp + s->stage];
    const int gathers = c && f.micro == 0 && c->gathered > c->end;
    int32_t *made = &s->made[(((int)kind * (s->vpp + 1) + f.v + 1) * (s->vpp + 1) + b.v + 1) * 2 + gathers];
    if (*made < 0) *made = sched_pass_make(s, kind, f.v, b.v, gathers);
    assert(pr->n_step[s->stage] < s->room_step);
    pr->step[s->stage][pr->n_step[s->stage]++] = (struct step){ *made, { f.micro, b.micro } };
}

static const struct slot sched_none = { -1, -1 };

static void sched_weight(struct sched *s)
{
    if (s->weight.micro >= 0) sched_step(s, PASS_BWD_WEIGHT, sched_none, s->weight);
    s->weight = sched_none;
}

static void sched_backward(struct sched *s, struct slot b)
{
    const int last = b.micro == s->pr->n_micro - 1;
    sched_step(s, s->split ? PASS_BWD_INPUT : last ? PASS_BWD_LAST : PASS_BWD, sched_none, b);
    if (s->split) s->weight = b;
}

static struct slot sched_mirror(const struct sched *s, int k)
{
    return (struct slot){ s->slot[k].micro, s->vpp - 1 - s->slot[k].v };
}

/* Slot k of a stage: forward k, and the backward that is `warmup` behind. A split backward's weight half
 * waits until the next forward has been issued, so that the next stage gets its input sooner; woven or
 * flushing it follows at once. */
static void sched_slot(struct sched *s, int k, int warmup)
{
    const int has_f = k < s->n_slot, has_b = k >= warmup;
    if (has_f && has_b && s->merged) {
        sched_step(s, PASS_FWD_BWD, s->slot[k], sched_mirror(s, k - warmup));
        if (s->split) s->weight = sched_mirror(s, k - warmup);
    } else {
        if (has_f) sched_step(s, PASS_FWD, s->slot[k], sched_none);
        sched_weight(s);
        if (has_b) sched_backward(s, sched_mirror(s, k - warmup));
    }
    if (s->merged || k + 1 >= s->n_slot) sched_weight(s);
}

static void sched_stage(struct sched *s, int stage)
{
    struct program *pr = s->pr;
    const int n_made = PASS_COUNT * (s->vpp + 1) * (s->vpp + 1) * 2;
    s->stage = stage;
    s->weight = sched_none;
    for (int k = 0; k < n_made; k++) s->made[k] = -1;
    pr->step[stage] = arena_alloc(pr->arena, (size_t)s->room_step * sizeof **pr->step);
    sched_step(s, PASS_START, sched_none, sched_none);
    const int warmup = sched_warmup(s, stage);
    for (int k = 0; k < s->n_slot + warmup; k++) sched_slot(s, k, warmup);
    sched_step(s, PASS_OPTIM, sched_none, sched_none);
}

/* Chunk-forwards in order: `group` micro-batches on one chunk, then the same ones on the stage's next. */
static void sched_slots(struct sched *s)
{
    const int n = s->pr->n_micro;
    int k = 0;
    s->slot = arena_alloc(s->pr->arena, (size_t)s->n_slot * sizeof *s->slot);
    for (int first = 0; first < n; first += s->group)
        for (int v = 0; v < s->vpp; v++)
            for (int m = first; m < n && m < first + s->group; m++) s->slot[k++] = (struct slot){ m, v };
}

/* How far a rank's streams may be apart, in steps. Less costs less memory (an activation a step), too little
 * is a ring of ranks that wait for each other. Where a group has `spare` micro-batches more than stages, what
 * the last stage sends waits that many slots for the first to take it; found by unroll_check over all
 * schedules with pp 2..6, vpp 2..3, spare 0..6. */
static int sched_lead(const struct sched *s)
{
    const int steps = (s->merged ? 1 : 2) + s->split, spare = s->vpp > 1 ? s->group - s->pp : 0;
    const int lead = steps * (spare + 1);
    return s->vpp == 1 || lead < 2 ? 2 : lead;
}

void sched_build(struct program *pr, const struct job *j)
{
    const int pp = pr->n_stage, vpp = pr->n_chunk / pp;
    struct sched s = {
        .pr = pr, .pp = pp, .vpp = vpp, .n_slot = pr->n_micro * vpp,
        .group = vpp == 1 ? pr->n_micro : j->plan.vpp_group > 0 ? j->plan.vpp_group : pp,
        .merged = j->plan.schedule == SCHEDULE_FWD_BWD, .split = j->plan.split_wgrad != 0,
        .late = j->plan.dp_overlap == DP_OVERLAP_NONE,
        .room_step = 3 * pr->n_micro * vpp + 2,     /* forward, backward, weight gradient; START, OPTIM */
    };
    pr->lead = sched_lead(&s);
    pr->n_pass = pr->n_order = 0;
    pr->pass = NULL;
    pr->order = NULL;
    pr->step = arena_alloc(pr->arena, (size_t)pp * sizeof *pr->step);
    pr->n_step = arena_alloc(pr->arena, (size_t)pp * sizeof *pr->n_step);
    s.made = arena_alloc(pr->arena, (size_t)(PASS_COUNT * (vpp + 1) * (vpp + 1) * 2) * sizeof *s.made);
    s.maker = sched_makers(pr);
    sched_slots(&s);
    sched_place_reduces(&s);
    for (int stage = 0; stage < pp; stage++) sched_stage(&s, stage);
}

/* A forward is in flight until the last backward pass that uses it: BWD_WEIGHT where backward is split. */
int sched_in_flight(const struct program *pr, int stage)
{
    int now = 0, most = 0, split = 0;
    for (int p = 0; p < pr->n_pass; p++) split |= pr->pass[p].kind == PASS_BWD_WEIGHT;
    for (int k = 0; k < pr->n_step[stage]; k++) {
        const struct step *t = &pr->step[stage][k];
        const int kind = pr->pass[t->pass].kind;
        now += t->micro[0] >= 0;
        most = now > most ? now : most;
        now -= split ? kind == PASS_BWD_WEIGHT : t->micro[1] >= 0;
    }
    return most;
}
