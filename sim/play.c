/* See play.h. Each stage has three cursors over its steps: RECVs are posted as soon as the host can have issued
 * them, passes are played when their data is there, and a step is settled when its transfers are over too: the
 * lead window opens on it. */
#include "sim/play.h"
#include <math.h>
#include <string.h>

enum { MEET_WORLD, MEET_EMBED };

static int meeting_of(const struct op *o)
{
    const int meet = o->group == GROUP_WORLD ? MEET_WORLD : o->group == GROUP_EMBED ? MEET_EMBED : -1;
    return meet >= 0 && op_family((enum op_kind)o->kind) == FAMILY_COMM ? meet : -1;
}

static double later(double a, double b)
{
    return a > b ? a : b;
}

/* ---- where things are ---- */

static const struct pass *pass_at(const struct play *p, int stage, int step)
{
    return &p->c->pr->pass[p->c->pr->step[stage][step].pass];
}

static const struct play_pass *brief_at(const struct play *p, int stage, int step)
{
    return &p->pass[p->stage[stage].row[step].pass];
}

/* Direction 0 runs to the next stage, 1 to the one before; half 0 receives and sends in direction 0. */
static struct play_channel *channel_in(const struct play *p, int stage, int half)
{
    const int n = p->c->pr->n_stage;
    return &p->channel[half][half ? (stage + 1) % n : (stage + n - 1) % n];
}

static struct play_channel *channel_out(const struct play *p, int stage, int half)
{
    return &p->channel[half][stage];
}

/* The lead window: what a step's first ops wait for. Only for steps whose window is settled. */
static double window_s(const struct play *p, int stage, int step)
{
    const int k = step - 1 - p->c->pr->lead;
    return k >= 0 ? p->stage[stage].upto_s[k] : 0;
}

static void cursor_next(struct play_cursor *k, const struct play_pass *pass)
{
    for (int h = 0; h < 2; h++) k->recv[h] += pass->wire[h].recv, k->send[h] += pass->wire[h].send;
    k->step++;
}

/* A transfer takes what the slower of its two ends says, as for any ops that meet. */
static void channel_send(struct play_channel *x, double t0_s, double price_s)
{
    struct play_transfer *t = &x->at[x->n_send++];
    t->price_s = later(t->price_s, price_s);
    t->send_s = t0_s;
}

static void channel_receive(struct play_channel *x, double t0_s, double price_s)
{
    struct play_transfer *t = &x->at[x->n_recv++];
    t->price_s = later(t->price_s, price_s);
    t->recv_s = t0_s;
}

static void channel_meet(struct play_channel *x)
{
    for (; x->n_done < x->n_send && x->n_done < x->n_recv; x->n_done++) {
        struct play_transfer *t = &x->at[x->n_done];
        const double before_s = x->n_done ? t[-1].done_s : 0;
        t->done_s = later(later(t->send_s, t->recv_s), before_s) + t->price_s;
    }
}

static double transfer_t0_s(const struct play_transfer *t)
{
    return t->done_s - t->price_s;
}

/* ---- one op at a time ---- */

static struct play_slot *slot_at(const struct play *p, struct flow_use u, int micro)
{
    struct play_slot *s = &p->slot[u.key];
    const int who = u.micro ? micro : -1;
    if (s->micro == who) return s;
    if (u.key & 1 && s[-1].micro == who) return *s = s[-1], s;      /* forward's instance, met again in backward */
    *s = (struct play_slot){ 0, 0, who };
    return s;
}

static double uses_s(const struct play *p, int op, int micro)
{
    const struct flow *f = &p->c->flow;
    double t = 0;
    for (int i = f->at[op]; i < f->at[op + 1]; i++) {
        const struct play_slot *s = slot_at(p, f->use[i], micro);
        const double read_s = f->use[i].writes ? s->read_s : 0;
        t = later(t, later(s->wrote_s, read_s));
    }
    return t;
}

static void note_uses(const struct play *p, int op, double t1_s)
{
    const struct flow *f = &p->c->flow;
    for (int i = f->at[op]; i < f->at[op + 1]; i++) {
        struct play_slot *s = &p->slot[f->use[i].key];
        if (f->use[i].writes) s->wrote_s = t1_s, s->read_s = 0;
        else s->read_s = later(s->read_s, t1_s);
    }
}

static int micro_of(const struct step *t, const struct op *o)
{
    return o->half == HALF_FWD ? t->micro[0] : o->half == HALF_BWD ? t->micro[1] : -1;
}

/* Posts this stage's arrival; 1 when all have come. */
static int meeting_post(struct play *p, struct play_stage *s, int which, double t0_s, double op_s)
{
    struct play_meeting *m = &p->meeting[which];
    const int n = s->met[which];
    if (!s->waits) {
        m->t0_s[n] = later(m->t0_s[n], t0_s);
        m->posted[n]++;
        s->waits = 1;
    }
    if (m->posted[n] < m->members) return 0;
    m->t1_s[n] = m->t0_s[n] + op_s;
    s->waits = 0;
    s->met[which]++;
    return 1;
}

/* The op's times. A SEND's t1 is known only when everything has been played. 0: it waits for other stages. */
static int mark_op(struct play *p, int stage, struct play_cursor *k, int op, struct play_mark *m)
{
    const struct op *o = &p->c->pr->op[op];
    struct play_stage *s = &p->stage[stage];
    const int half = o->half == HALF_BWD, meet = meeting_of(o);
    const double issued_s = s->state[PASS_HOST] + cost_issue_s(p->c, op);
    const double open_s = later(window_s(p, stage, k->step), s->read_s);
    m->ready_s = later(later(uses_s(p, op, m->micro), s->state[o->stream]), open_s);
    m->t0_s = m->meet_s = later(m->ready_s, issued_s);
    m->t1_s = m->t0_s + p->op_s[op];
    if (o->kind == OP_RECV) {
        const struct play_transfer *t = &s->in[half]->at[k->recv[half]];
        m->t1_s = t->done_s;
        m->meet_s = transfer_t0_s(t);
    } else if (o->kind == OP_SEND) {
        const struct play_transfer *t = &s->out[half]->at[k->send[half]];
        if (k->send[half] < s->out[half]->n_done) m->t1_s = t->done_s, m->meet_s = transfer_t0_s(t);
    } else if (meet >= 0) {
        if (!meeting_post(p, s, meet, m->t0_s, p->op_s[op])) return 0;
        m->meet_s = p->meeting[meet].t0_s[s->met[meet] - 1];
        m->t1_s = p->meeting[meet].t1_s[s->met[meet] - 1];
    }
    if (o->flags & OP_HOST_READS) s->read_s = m->t1_s;
    s->state[PASS_HOST] = later(issued_s, s->read_s + (s->read_s > 0 ? cost_read_s(p->c) : 0));
    return 1;
}

/* Puts the op behind the stage. */
static void take_op(struct play *p, int stage, const struct play_cursor *k, const struct play_mark *m)
{
    const struct op *o = &p->c->pr->op[m->op];
    const int half = o->half == HALF_BWD;
    if (o->kind == OP_SEND) {
        struct play_channel *x = p->stage[stage].out[half];
        if (x->n_send == k->send[half]) channel_send(x, m->t0_s, p->op_s[m->op]);
    } else note_uses(p, m->op, m->t1_s);
    p->stage[stage].state[o->stream] = m->t1_s;
}

/* ---- a stage's cursors ---- */

/* Steps whose passes and transfers are all over. */
static int settle(struct play *p, int stage)
{
    struct play_stage *s = &p->stage[stage];
    const int from = s->settle.step;
    while (s->settle.step < s->body.step) {
        const int k = s->settle.step;
        const struct play_pass *pass = brief_at(p, stage, k);
        double t = later(s->body_s[k], k ? s->upto_s[k - 1] : 0);
        for (int h = 0; h < 2; h++) {
            if (pass->wire[h].recv) t = later(t, s->in[h]->at[s->settle.recv[h]].done_s);   /* met: it has run */
            if (!pass->wire[h].send) continue;
            if (s->settle.send[h] >= s->out[h]->n_done) return s->settle.step > from;
            t = later(t, s->out[h]->at[s->settle.send[h]].done_s);
        }
        s->upto_s[k] = t;
        cursor_next(&s->settle, pass);
    }
    return s->settle.step > from;
}

/* Whether the host's clock after a pass is known before it has run: none of its ops holds the host up. */
static double host_moves_s(const struct pass_price *price)
{
    const double *host = price->m[PASS_HOST];
    for (int i = 0; i < PASS_DIM; i++)
        if (i != PASS_HOST && host[i] != -INFINITY) return NAN;
    return host[PASS_HOST];
}

static int post(struct play *p, int stage)
{
    struct play_stage *s = &p->stage[stage];
    const int from = s->post.step, n = p->c->pr->n_step[stage];
    while (s->post.step < n && s->post.step - 1 - p->c->pr->lead < s->settle.step) {
        if (isnan(s->post_host_s) && s->body.step == s->post.step && s->op == 0) s->post_host_s = s->state[PASS_HOST];
        if (isnan(s->post_host_s)) break;
        const struct play_pass *pass = brief_at(p, stage, s->post.step);
        for (int h = 0; h < 2; h++) {
            if (!pass->wire[h].recv) continue;
            const double issued_s = s->post_host_s + pass->wire[h].recv_issue_s;
            channel_receive(s->in[h], later(window_s(p, stage, s->post.step), issued_s), pass->wire[h].recv_s);
            channel_meet(s->in[h]);
        }
        s->post_host_s += pass->host_s;     /* NAN: it is told at the end of the pass */
        cursor_next(&s->post, pass);
    }
    return s->post.step > from;
}

static int received(const struct play *p, int stage)
{
    const struct play_stage *s = &p->stage[stage];
    const struct play_pass *pass = brief_at(p, stage, s->body.step);
    for (int h = 0; h < 2; h++)
        if (pass->wire[h].recv && s->body.recv[h] >= s->in[h]->n_done) return 0;
    return 1;
}

/* Only within `lead` steps of a pass that reads what others of its stage wrote are ops played one by one. */
static int by_ops(const struct play *p, int stage)
{
    struct play_stage *s = &p->stage[stage];
    const int n = p->c->pr->n_step[stage];
    if (s->slow < s->body.step) s->slow = s->body.step;
    while (s->slow < n && pass_at(p, stage, s->slow)->kind != PASS_OPTIM) s->slow++;
    return (s->slow < n && s->slow - s->body.step <= p->c->pr->lead) || brief_at(p, stage, s->body.step)->meets;
}

/* body_s: when the streams that it moved are done; the others were before. */
static void body_end(struct play *p, int stage, double body_s)
{
    struct play_stage *s = &p->stage[stage];
    s->body_s[s->body.step] = body_s;
    s->op = 0;
    cursor_next(&s->body, brief_at(p, stage, s->body.step));
    for (int h = 0; h < 2; h++) channel_meet(s->out[h]);
}

static int body_by_ops(struct play *p, int stage)
{
    struct play_stage *s = &p->stage[stage];
    const struct program *pr = p->c->pr;
    const struct pass *pass = pass_at(p, stage, s->body.step);
    for (; s->op < pass->n; s->op++) {
        const int op = pr->order[pass->first + s->op];
        struct play_mark m = { .step = s->body.step, .op = op,
                               .micro = micro_of(&pr->step[stage][s->body.step], &pr->op[op]) };
        if (!mark_op(p, stage, &s->body, op, &m)) return 0;
        take_op(p, stage, &s->body, &m);
    }
    double t = 0;
    for (int i = 0; i < STREAM_COUNT; i++)
        if (i < STREAM_SEND_F || i > STREAM_RECV_B) t = later(t, s->state[i]);
    body_end(p, stage, t);
    return 1;
}

/* Only streams that the pass asks for need hear when the window opened: it never opens earlier. Rows of a brief are
 * none of the streams that send and receive. */
static void body_by_product(struct play *p, int stage)
{
    struct play_stage *s = &p->stage[stage];
    const struct play_pass *pass = brief_at(p, stage, s->body.step);
    const struct pass_brief *brief = &p->brief[pass->brief];
    const double open_s = window_s(p, stage, s->body.step);
    double done_s = 0;
    for (int k = 0; k < brief->n_col && brief->col[k] < STREAM_COUNT; k++)
        s->state[brief->col[k]] = later(s->state[brief->col[k]], open_s);
    for (int h = 0; h < 2; h++)
        s->state[PASS_DATA + h] = pass->wire[h].recv ? s->in[h]->at[s->body.recv[h]].done_s : 0;
    pass_brief_apply(s->state, brief);
    for (int h = 0; h < 2; h++)
        if (pass->wire[h].send)
            channel_send(s->out[h], later(open_s, s->state[PASS_DATA + h]), pass->wire[h].send_s);
    for (int i = 0; i < brief->n_row && brief->row[i] < STREAM_COUNT; i++)
        done_s = later(done_s, s->state[brief->row[i]]);
    body_end(p, stage, done_s);
}

/* As far as this stage gets. */
static int advance(struct play *p, int stage)
{
    struct play_stage *s = &p->stage[stage];
    int moved = 0;
    for (;;) {
        const int settled = settle(p, stage), posted = post(p, stage);
        moved |= settled | posted;
        if (s->body.step >= s->post.step || !received(p, stage)) return moved;
        if (!by_ops(p, stage)) body_by_product(p, stage);
        else if (!body_by_ops(p, stage)) return moved;
        moved = 1;
    }
}

/* ---- the whole step ---- */

static int most_steps(const struct program *pr)
{
    int n = 0;
    for (int s = 0; s < pr->n_stage; s++) n = pr->n_step[s] > n ? pr->n_step[s] : n;
    return n;
}

enum { SHARED = 16 };                   /* matrices that are looked through for an equal one */

/* Pass by pass its matrix, an equal one of another pass where there is one: most stages hold the same layers. */
static void play_passes(struct play *p, struct arena *a)
{
    const int n = p->c->pr->n_pass;
    int first[SHARED], distinct = 0;        /* pass that has the i-th of the latest */
    p->brief = arena_alloc(a, (size_t)n * sizeof *p->brief);
    p->pass = arena_alloc(a, (size_t)n * sizeof *p->pass);
    for (int i = 0; i < n; i++) {
        const struct pass_price *price = &p->price[i];
        int k = distinct > SHARED ? distinct - SHARED : 0;
        while (k < distinct && memcmp(p->price[first[k % SHARED]].m, price->m, sizeof price->m)) k++;
        memcpy(p->pass[i].wire, price->wire, sizeof price->wire);
        p->pass[i].brief = k;
        p->pass[i].host_s = k < distinct ? p->pass[first[k % SHARED]].host_s : host_moves_s(price);
        if (k < distinct) continue;
        first[distinct % SHARED] = i;
        pass_brief_of(&p->brief[distinct++], price);
    }
}

static void play_room(struct play *p, struct arena *a)
{
    const struct program *pr = p->c->pr;
    p->stage = arena_alloc(a, (size_t)pr->n_stage * sizeof *p->stage);
    for (int h = 0; h < 2; h++) p->channel[h] = arena_alloc(a, (size_t)pr->n_stage * sizeof *p->channel[h]);
    for (int s = 0; s < pr->n_stage; s++) {
        struct play_stage *t = &p->stage[s];
        t->body_s = arena_alloc(a, (size_t)pr->n_step[s] * sizeof *t->body_s);
        t->upto_s = arena_alloc(a, (size_t)pr->n_step[s] * sizeof *t->upto_s);
        t->row = pr->step[s];
        for (int h = 0; h < 2; h++) {
            t->in[h] = channel_in(p, s, h), t->out[h] = channel_out(p, s, h);
            t->out[h]->at = arena_alloc(a, (size_t)most_steps(pr) * sizeof *t->out[h]->at);
        }
    }
    p->slot = arena_alloc(a, (size_t)p->c->flow.n_key * sizeof *p->slot);
    for (int i = 0; i < p->c->flow.n_key; i++) p->slot[i].micro = -2;
}

/* Every pass's meetings with other stages, counted over the schedules: the members of a group have equal counts. */
static void play_meetings(struct play *p, struct arena *a)
{
    const struct program *pr = p->c->pr;
    int32_t (*count)[2] = arena_alloc(a, (size_t)pr->n_pass * sizeof *count);
    for (int i = 0; i < pr->n_pass; i++)
        for (int k = 0; k < pr->pass[i].n; k++) {
            const int meet = meeting_of(&pr->op[pr->order[pr->pass[i].first + k]]);
            if (meet >= 0) p->pass[i].meets = 1, count[i][meet]++;
        }
    for (int w = 0; w < 2; w++) {
        int most = 0;
        for (int s = 0; s < pr->n_stage; s++) {
            int n = 0;
            for (int k = 0; k < pr->n_step[s]; k++) n += count[pr->step[s][k].pass][w];
            p->meeting[w].members += n > 0;
            most = n > most ? n : most;
        }
        p->meeting[w].t0_s = arena_alloc(a, (size_t)most * sizeof(double));
        p->meeting[w].t1_s = arena_alloc(a, (size_t)most * sizeof(double));
        p->meeting[w].posted = arena_alloc(a, (size_t)most * sizeof(int32_t));
    }
}

int play_run(struct play *p, struct arena *a, const struct cost *c, const double *op_s,
             const struct pass_price *price)
{
    *p = (struct play){ .c = c, .op_s = op_s, .price = price };
    play_passes(p, a);
    play_room(p, a);
    play_meetings(p, a);
    for (int moved = 1; moved;) {
        moved = 0;
        for (int s = 0; s < c->pr->n_stage; s++) moved |= advance(p, s);
    }
    for (int s = 0; s < c->pr->n_stage; s++)
        if (p->stage[s].settle.step < c->pr->n_step[s]) return 0;
    return 1;
}

double play_stage_s(const struct play *p, int stage)
{
    return p->stage[stage].upto_s[p->c->pr->n_step[stage] - 1];
}

/* ---- a stage again, op by op ---- */

static int longest_pass(const struct program *pr)
{
    int n = 0;
    for (int i = 0; i < pr->n_pass; i++) n = pr->pass[i].n > n ? pr->pass[i].n : n;
    return n;
}

static void replay_step(struct play_mark *mark, struct play *p, int stage, struct play_cursor *k)
{
    const struct program *pr = p->c->pr;
    const struct pass *pass = pass_at(p, stage, k->step);
    for (int i = 0; i < pass->n; i++, mark++) {
        const int op = pr->order[pass->first + i];
        *mark = (struct play_mark){ .step = k->step, .op = op,
                                    .micro = micro_of(&pr->step[stage][k->step], &pr->op[op]) };
        mark_op(p, stage, k, op, mark);
        take_op(p, stage, k, mark);
        mark->t0_s += cost_wake_s(p->c, op);        /* the price holds it, but it is the host's; of all that meet */
        mark->meet_s += cost_wake_s(p->c, op);
    }
}

void play_replay(struct play *p, int stage, play_take *take, void *to)
{
    const struct program *pr = p->c->pr;
    struct arena scratch = { 0 };
    struct play_mark *mark = arena_alloc(&scratch, (size_t)longest_pass(pr) * sizeof *mark);
    struct play_stage *s = &p->stage[stage];
    memset(s->state, 0, sizeof s->state);
    memset(s->met, 0, sizeof s->met);
    s->read_s = 0;
    for (int i = 0; i < p->c->flow.n_key; i++) p->slot[i] = (struct play_slot){ 0, 0, -2 };
    for (struct play_cursor k = { 0 }; k.step < pr->n_step[stage]; cursor_next(&k, brief_at(p, stage, k.step))) {
        replay_step(mark, p, stage, &k);
        take(to, mark, pass_at(p, stage, k.step)->n, window_s(p, stage, k.step + 1));
    }
    arena_free(&scratch);
}
