/* Launchers of the dispatchers that send whole tokens. Every rank of etp x ep holds the map of who picks whom, so all
 * know what comes from where, and nothing but tokens travels. Two hops: a token goes once to each NVLink domain with
 * experts of it, to the member there that has the sender's place (the relay), which passes it on once to each member
 * with experts of it; there it becomes a row for each of them. Back the same way: rows are summed in each rank, then
 * by the relay, then at home. What rides along are the weights of a token's experts, in rising order of experts.
 * Floats only: bf16 plans hand in copies. */
#include "exec/backend_cpu.h"
#include "models/place.h"
#include <stdlib.h>
#include <string.h>

/* Tokens are (member s, its token t); members of etp x ep in group order. */
struct crowd {
    const uint8_t *map;             /* [members * tokens, experts], 1: picked */
    int64_t tokens;                 /* of one member */
    int experts, here, topk, members, me, etp; /* here: experts of one ep index */
    int32_t *domain, *place, *size; /* [members]: which domain, which place there, its members */
    int64_t message;                /* floats that travel for one token: a row, and topk weights */
};

static enum err crowd_open(struct crowd *w, const struct call *c, struct operand map, int64_t cols)
{
    const struct plan *p = &c->job->plan;
    void *scratch;
    *w = (struct crowd){.map = map.p, .tokens = map.rows / c->members, .experts = (int)map.cols,
                        .here = (int)map.cols / p->ep, .topk = c->job->model.topk, .members = c->members, .me = c->me,
                        .etp = p->etp, .message = cols + c->job->model.topk};
    TRY(backend_cpu_scratch(&scratch, 4 * c->members * (int64_t)sizeof(int32_t), c));
    int32_t *rank = scratch;
    w->domain = rank + c->members, w->place = w->domain + c->members, w->size = w->place + c->members;
    fold_members(c->job, GROUP_TPEP, c->rank, rank);
    for (int m = 0; m < c->members; m++) {
        w->domain[m] = place_domain(p, rank[m]);
        w->place[m] = 0;
        for (int i = 0; i < m; i++) w->place[m] += w->domain[i] == w->domain[m];
    }
    for (int m = 0; m < c->members; m++) {
        w->size[m] = 0;
        for (int i = 0; i < c->members; i++) w->size[m] += w->domain[i] == w->domain[m];
    }
    return OK;
}

static void crowd_close(struct crowd *w)
{
    free(w->domain - w->members);
}

static const uint8_t *picks(const struct crowd *w, int s, int64_t t)
{
    return w->map + (s * w->tokens + t) * w->experts;
}

/* Member q holds experts of the token. */
static int wanted(const struct crowd *w, int s, int64_t t, int q)
{
    return memchr(picks(w, s, t) + q / w->etp * w->here, 1, (size_t)w->here) != NULL;
}

/* Somebody in m's domain does. */
static int wanted_near(const struct crowd *w, int s, int64_t t, int m)
{
    for (int q = 0; q < w->members; q++)
        if (w->domain[q] == w->domain[m] && wanted(w, s, t, q)) return 1;
    return 0;
}

/* Member r relays s's tokens to its domain. At home everybody is their own relay. */
static int relays(const struct crowd *w, int r, int s)
{
    return w->place[r] == w->place[s] % w->size[r];
}

/* ---- what goes from whom to whom, in both directions alike ---- */

/* One all-to-all: floats for and from every member, and the messages themselves. */
struct post { int64_t *send_B, *recv_B; float *send, *recv; };

/* Calls `each` for the tokens that go from `from` to `to` in a hop, in order. */
typedef void visit(const struct crowd *w, int s, int64_t t, void *user);
static void first_hop(const struct crowd *w, int from, int to, visit *each, void *user)
{
    if (w->domain[from] == w->domain[to] || !relays(w, to, from)) return;
    for (int64_t t = 0; t < w->tokens; t++)
        if (wanted_near(w, from, t, to)) each(w, from, t, user);
}

static void second_hop(const struct crowd *w, int from, int to, visit *each, void *user)
{
    if (w->domain[from] != w->domain[to]) return;
    for (int s = 0; s < w->members; s++)
        for (int64_t t = 0; relays(w, from, s) && t < w->tokens; t++)
            if (wanted(w, s, t, to)) each(w, s, t, user);
}

typedef void hop(const struct crowd *w, int from, int to, visit *each, void *user);

static void count_one(const struct crowd *w, int s, int64_t t, void *user)
{
    (void)w, (void)s, (void)t;
    ++*(int64_t *)user;
}

/* `back`: what a hop sends comes from where it went. */
static enum err post_open(struct post *p, const struct crowd *w, hop *h, int back, const struct call *c)
{
    const int64_t message_B = w->message * (int64_t)sizeof(float);
    int64_t out = 0, in = 0;
    void *counts, *floats;
    TRY(backend_cpu_scratch(&counts, 2 * w->members * (int64_t)sizeof(int64_t), c));
    p->send_B = counts;
    p->recv_B = p->send_B + w->members;
    for (int m = 0; m < w->members; m++) {
        int64_t to = 0, from = 0;
        h(w, w->me, m, count_one, &to);
        h(w, m, w->me, count_one, &from);
        p->send_B[m] = (back ? from : to) * message_B;
        p->recv_B[m] = (back ? to : from) * message_B;
        out += p->send_B[m], in += p->recv_B[m];
    }
    const enum err e = backend_cpu_scratch(&floats, out + in, c);
    p->send = floats;
    p->recv = p->send + out / (int64_t)sizeof(float);
    if (e != OK) free(counts);
    return e;
}

static void post_close(struct post *p)
{
    free(p->send);
    free(p->send_B);
}

/* A walk over messages and, token by token, over a table of what each is: copied there, added there, or from there. */
struct walk { float *at, *table; int mode; };
enum { WALK_TO, WALK_ADD, WALK_FROM };

static void walk_one(const struct crowd *w, int s, int64_t t, void *user)
{
    struct walk *k = user;
    float *entry = k->table + (s * w->tokens + t) * w->message;
    if (k->mode == WALK_FROM) memcpy(k->at, entry, (size_t)w->message * sizeof *entry);
    else if (k->mode == WALK_TO) memcpy(entry, k->at, (size_t)w->message * sizeof *entry);
    else for (int64_t i = 0; i < w->message; i++) entry[i] += k->at[i];
    k->at += w->message;
}

/* One hop of a table's messages. */
static enum err travel(float *table, const struct crowd *w, hop *h, const struct call *c)
{
    struct post p;
    TRY(post_open(&p, w, h, 0, c));
    struct walk out = {p.send, table, WALK_FROM}, in = {p.recv, table, WALK_TO};
    for (int m = 0; m < w->members; m++) h(w, w->me, m, walk_one, &out);
    const enum err e = c->comm_ops->all_to_all(c->comm, p.recv, p.recv_B, p.send, p.send_B, c->d);
    for (int m = 0; e == OK && m < w->members; m++) h(w, m, w->me, walk_one, &in);
    post_close(&p);
    return e;
}

/* ---- tokens and rows ---- */

/* A token's weights from the list of this rank's rows (by expert, then token), or back. */
static void weights(const struct crowd *w, float *table, float *list, int back)
{
    int64_t j = 0;
    for (int e = 0; list && e < w->experts; e++)
        for (int64_t t = 0; t < w->tokens; t++) {
            const uint8_t *pick = picks(w, w->me, t);
            if (!pick[e]) continue;
            float *at = table + (w->me * w->tokens + t + 1) * w->message - w->topk;
            for (int i = 0; i < e; i++) at += pick[i];
            if (back) list[j++] = *at;
            else *at = list[j++];
        }
}

/* Rows at the experts here, by expert, source and token, from a table of tokens; or back, summed. */
static void rows_move(const struct crowd *w, float *table, float *rows, float *row_weight, int64_t cols, int back)
{
    const int first = w->me / w->etp * w->here;
    for (int e = first; e < first + w->here; e++)
        for (int s = 0; s < w->members; s++)
            for (int64_t t = 0; t < w->tokens; t++) {
                const uint8_t *pick = picks(w, s, t);
                if (!pick[e]) continue;
                float *entry = table + (s * w->tokens + t) * w->message, *at = entry + cols;
                for (int i = 0; i < e; i++) at += pick[i];
                if (!back) memcpy(rows, entry, (size_t)cols * sizeof *rows);
                else for (int64_t i = 0; i < cols; i++) entry[i] += rows[i];
                if (row_weight) {
                    if (back) *at += *row_weight;
                    else *row_weight = *at;
                    row_weight++;
                }
                rows += cols;
            }
}

/* All zero: a message for every token of every member. */
static enum err table_open(float **table, const struct crowd *w, const struct call *c)
{
    const int64_t bytes = w->members * w->tokens * w->message * (int64_t)sizeof **table;
    void *p;
    TRY(backend_cpu_scratch(&p, bytes, c));
    memset(p, 0, (size_t)bytes);
    *table = p;
    return OK;
}

/* My own tokens' part of a table, or of the tokens themselves. */
static void own_tokens(const struct crowd *w, float *table, float *x, int64_t cols, int back)
{
    for (int64_t t = 0; t < w->tokens; t++, x += cols) {
        float *entry = table + (w->me * w->tokens + t) * w->message;
        memcpy(back ? x : entry, back ? entry : x, (size_t)cols * sizeof *x);
    }
}

enum err backend_cpu_dispatch_tokens(const struct call *c)
{
    const struct operand x = c->read[0], y = c->write[0];
    struct crowd w;
    float *table;
    TRY(crowd_open(&w, c, c->read[2], x.cols));
    enum err e = table_open(&table, &w, c);
    if (e == OK) {
        own_tokens(&w, table, x.p, x.cols, 0);
        weights(&w, table, c->read[3].p, 0);
        e = travel(table, &w, first_hop, c);
        if (e == OK) e = travel(table, &w, second_hop, c);
        if (e == OK) rows_move(&w, table, y.p, c->write[1].p, x.cols, 0);
        free(table);
    }
    crowd_close(&w);
    return e;
}

/* The sums of a hop must not meet the parts they are made of: each hop goes from one table to another. */
static enum err travel_back(float **table, const struct crowd *w, hop *h, const struct call *c)
{
    struct post p;
    float *sum;
    TRY(table_open(&sum, w, c));
    enum err e = post_open(&p, w, h, 1, c);
    if (e == OK) {
        struct walk out = {p.send, *table, WALK_FROM}, in = {p.recv, sum, WALK_ADD};
        for (int m = 0; m < w->members; m++) h(w, m, w->me, walk_one, &out);
        e = c->comm_ops->all_to_all(c->comm, p.recv, p.recv_B, p.send, p.send_B, c->d);
        for (int m = 0; e == OK && m < w->members; m++) h(w, w->me, m, walk_one, &in);
        post_close(&p);
    }
    if (e == OK && h == first_hop) /* my own domain's sum is here already */
        for (int64_t i = 0; i < w->tokens * w->message; i++)
            sum[w->me * w->tokens * w->message + i] += (*table)[w->me * w->tokens * w->message + i];
    free(*table);
    *table = sum;
    return e;
}

enum err backend_cpu_combine_tokens(const struct call *c)
{
    const struct operand x = c->read[0], y = c->write[0];
    struct crowd w;
    float *table;
    TRY(crowd_open(&w, c, c->read[3], x.cols));
    enum err e = table_open(&table, &w, c);
    if (e == OK) {
        rows_move(&w, table, x.p, c->read[2].p, x.cols, 1);
        e = travel_back(&table, &w, second_hop, c);
        if (e == OK) e = travel_back(&table, &w, first_hop, c);
        if (e == OK) own_tokens(&w, table, y.p, x.cols, 1);
        if (e == OK) weights(&w, table, c->write[1].p, 1);
        free(table);
    }
    crowd_close(&w);
    return e;
}

/* ---- everything gathered ---- */

/* Of this rank's rows: 1 where a token picked an expert. */
enum err backend_cpu_route_map(const struct call *c)
{
    const struct operand map = c->write[0], perm = c->read[0];
    const int32_t *p = perm.p;
    memset(map.p, 0, (size_t)(map.rows * map.cols));
    for (int64_t j = 0; j < perm.rows; j++) ((uint8_t *)map.p)[p[2 * j] * map.cols + p[2 * j + 1]] = 1;
    return OK;
}

/* The rows of the experts here among all tokens, by expert, then token, and their weights from the scores. */
enum err backend_cpu_pick(const struct call *c)
{
    const struct operand map = c->read[0], score = c->read[1];
    const struct model *m = &c->job->model;
    const int here = (int)map.cols / c->job->plan.ep, first = c->at.ep * here;
    const uint8_t *pick = map.p;
    const float *s = score.p;
    int32_t *perm = c->write[0].p;
    float *prob = c->write[1].p;
    for (int e = first; e < first + here; e++)
        for (int64_t t = 0; t < map.rows; t++) {
            if (!pick[t * map.cols + e]) continue;
            double sum = 0;
            for (int i = 0; i < map.cols; i++) sum += pick[t * map.cols + i] ? s[t * map.cols + i] : 0;
            *perm++ = (int32_t)t;
            *perm++ = e;
            *prob++ = (float)(s[t * map.cols + e] * (m->norm_topk ? m->route_scale / (sum + 1e-20) : m->route_scale));
        }
    return OK;
}

enum err backend_cpu_pick_bwd(const struct call *c)
{
    const struct operand d = c->write[0], dprob = c->read[0];
    const int32_t *perm = c->read[1].p;
    memset(d.p, 0, (size_t)(d.rows * d.cols) * sizeof(float));
    for (int64_t j = 0; j < dprob.rows; j++)
        ((float *)d.p)[perm[2 * j] * d.cols + perm[2 * j + 1]] = ((const float *)dprob.p)[j];
    return OK;
}
