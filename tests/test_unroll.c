/* Unroll against oracles: deps and `seen` against a naive closure on random programs, lives against the uses,
 * offsets against all pairs. */
#include "tests/test.h"
#include "tests/toy.h"
#include "models/unroll.h"
#include <stdio.h>
#include <stdlib.h>

static struct arena arena;       /* every test has a process of its own */

/* ---- random single-stage programs ---- */

static uint32_t seed;

static int draw(int below)
{
    seed = seed * 1664525u + 1013904223u;
    return (int)((seed >> 8) % (uint32_t)below);
}

/* Ops with random operands on random streams; passes are random lists, steps random micro-batches. */
static void random_program(struct program *pr, uint32_t s)
{
    enum { BUFS = 12, OPS = 25, PASSES = 4, STEPS = 9 };
    static const int sizes[] = { 1, 3, 16, 17, 40, 64, 100, 333 };
    seed = s;
    *pr = (struct program){ .arena = &arena, .n_stage = 1, .n_chunk = 1, .n_micro = 3, .n_buf = 1, .n_op = 1,
                            .lead = draw(3), .n_pass = PASSES };
    pr->buf = arena_alloc(&arena, (BUFS + 1) * sizeof *pr->buf);
    pr->op = arena_alloc(&arena, (OPS + 1) * sizeof *pr->op);
    pr->pass = arena_alloc(&arena, PASSES * sizeof *pr->pass);
    pr->order = arena_alloc(&arena, PASSES * OPS * sizeof *pr->order);
    pr->step = arena_alloc(&arena, sizeof *pr->step);
    pr->step[0] = arena_alloc(&arena, STEPS * sizeof **pr->step);
    pr->n_step = arena_alloc(&arena, sizeof *pr->n_step);
    for (int b = 0; b < BUFS; b++) {
        toy_buf(pr, sizes[draw(LEN(sizes))], 4, draw(6) ? KEEP_MICRO : KEEP_GRADIENT, 0);
        if (b > 4 && draw(4) == 0) pr->buf[pr->n_buf - 1].size = 1 + draw(4);
    }
    for (int k = 0; k < OPS; k++) {
        const struct toy_at at = { .pr = pr, .half = (enum half)draw(3) };
        struct op *o = toy_op(&at, OP_MERGE, (enum stream)draw(4), GROUP_NONE, (struct io){ 0 });
        for (int n = draw(3); n > 0; n--) o->io.read[n] = 1 + draw(BUFS);
        if (draw(3) == 0) o->io.add[0] = 1 + draw(BUFS);
        if (draw(3)) o->io.write[0] = 1 + draw(BUFS);
        if (draw(15) == 0) o->flags = OP_HOST_READS;
    }
    for (int p = 0; p < PASSES; p++) {
        pr->pass[p] = (struct pass){ .kind = PASS_FWD_BWD, .first = pr->n_order, .n = 1 + draw(12) };
        for (int k = 0; k < pr->pass[p].n; k++) pr->order[pr->n_order++] = 1 + draw(OPS);
    }
    for (pr->n_step[0] = 0; pr->n_step[0] < STEPS; pr->n_step[0]++)
        pr->step[0][pr->n_step[0]] = (struct step){ draw(PASSES), { draw(3), draw(3) } };
}

enum { ITEMS = 128 };
struct closure { char after[ITEMS][ITEMS]; };   /* after[i][k]: item i surely starts after item k has finished */

static void close_over(struct closure *c, int n)
{
    for (int k = 0; k < n; k++)
        for (int i = k + 1; i < n; i++)
            for (int m = 0; c->after[i][k] && m < k; m++) c->after[i][m] |= c->after[k][m];
}

static int same_instance(const struct program *pr, const struct item *x, const struct item *y, int buf)
{
    return pr->buf[buf].keep != KEEP_MICRO || x->micro == y->micro;
}

/* Whether the later item uses something that the earlier one used and at least one of them writes. */
static int conflict(const struct program *pr, const struct item *x, const struct item *y)
{
    struct use a[OP_USES], b[OP_USES];
    const int na = op_uses(a, pr, &pr->op[x->op]), nb = op_uses(b, pr, &pr->op[y->op]);
    for (int i = 0; i < na; i++)
        for (int k = 0; k < nb; k++)
            if (a[i].buf == b[k].buf && same_instance(pr, x, y, a[i].buf) &&
                (a[i].access != ACCESS_READ || b[k].access != ACCESS_READ)) return 1;
    return 0;
}

/* The rules themselves, over all pairs. */
static void naive(struct closure *c, const struct unroll *u, const struct program *pr)
{
    memset(c, 0, sizeof *c);
    for (int i = 0; i < u->n_item; i++)
        for (int k = 0; k < i; k++) {
            const struct item *x = &u->item[k], *y = &u->item[i];
            c->after[i][k] = pr->op[x->op].stream == pr->op[y->op].stream || conflict(pr, x, y) ||
                             x->step < y->step - pr->lead || (pr->op[x->op].flags & OP_HOST_READS) != 0;
        }
    close_over(c, u->n_item);
}

/* What the stored deps and streams say; `without`: one dep left out, or -1. */
static void stored(struct closure *c, const struct unroll *u, const struct program *pr, int without)
{
    memset(c, 0, sizeof *c);
    for (int i = 0; i < u->n_item; i++) {
        for (int k = 0; k < i; k++)
            c->after[i][k] = pr->op[u->item[k].op].stream == pr->op[u->item[i].op].stream;
        for (int d = u->item[i].dep; d < u->item[i].dep + u->item[i].n_dep; d++)
            if (d != without) c->after[i][u->dep[d]] = 1;
    }
    close_over(c, u->n_item);
}

START_TEST(deps_are_the_closure)
{
    static struct closure want, got;
    long n_dep = 0, n_item = 0;
    for (uint32_t s = 0; s < 300; s++) {
        struct program pr;
        struct unroll u;
        random_program(&pr, s);
        unroll_stage(&u, &arena, &pr, 0);
        ck_assert_int_le(u.n_item, ITEMS);
        naive(&want, &u, &pr);
        stored(&got, &u, &pr, -1);
        ck_assert_msg(!memcmp(&want, &got, sizeof want), "seed %u", s);
        for (int i = 0; i < u.n_item; i++)
            for (int m = 0; m < STREAM_COUNT; m++) {
                int last = -1;
                for (int k = 0; k < i; k++)
                    if (want.after[i][k] && pr.op[u.item[k].op].stream == m) last = k;
                ck_assert_int_eq(u.seen[i][m], last);
            }
        for (int d = 0; d < u.n_dep && s < 20; d++) {       /* none is implied by the others */
            stored(&got, &u, &pr, d);
            ck_assert_int_ne(memcmp(&want, &got, sizeof want), 0);
        }
        n_dep += u.n_dep;
        n_item += u.n_item;
    }
    ck_assert_int_gt(n_dep, n_item / 10);
}
END_TEST

/* first, last and count of every life, and the live bytes, from the items alone. */
START_TEST(lives_are_the_uses)
{
    for (uint32_t s = 0; s < 100; s++) {
        struct program pr;
        struct unroll u;
        int64_t most_B = 0;
        random_program(&pr, s);
        unroll_stage(&u, &arena, &pr, 0);
        for (int i = 0; i < u.n_item; i++) {
            int64_t alive_B = 0;
            for (int k = 0; k < u.n_life; k++) {
                const struct life *l = &u.life[k];
                if (pr.buf[l->buf].keep != KEEP_MICRO || (l->first <= i && i <= l->last_item))
                    alive_B += l->bytes;
            }
            if (i == u.live_item) ck_assert_int_eq(alive_B, u.live_B);
            if (alive_B > most_B) most_B = alive_B;
        }
        ck_assert_int_eq(most_B, u.live_B);
        for (int k = 0; k < u.n_life; k++) {
            const struct life *l = &u.life[k];
            int first = -1, last = -1, n = 0, on[STREAM_COUNT];
            memset(on, -1, sizeof on);
            for (int i = 0; i < u.n_item; i++) {
                struct use use[OP_USES];
                const int n_use = op_uses(use, &pr, &pr.op[u.item[i].op]);
                for (int m = 0; m < n_use; m++) {
                    if (use[m].buf != l->buf || (l->micro >= 0 && u.item[i].micro != l->micro)) continue;
                    if (pr.buf[l->buf].keep == KEEP_MICRO && u.item[i].micro != l->micro) continue;
                    if (first < 0) first = i;
                    last = i;
                    on[pr.op[u.item[i].op].stream] = i;
                    n++;
                    ck_assert_ptr_eq(unroll_life(&u, &pr, &u.item[i], l->buf), l);
                }
            }
            ck_assert_int_eq(l->first, first);
            ck_assert_int_eq(l->last_item, last);
            ck_assert_int_eq(l->n_use, n);
            ck_assert_mem_eq(l->last, on, sizeof on);
        }
    }
}
END_TEST

/* ---- offsets ---- */

/* Lives share bytes only where every use of one precedes the first use of the other in the naive closure. */
START_TEST(offsets_never_collide)
{
    static struct closure c;
    for (uint32_t s = 0; s < 200; s++) {
        struct program pr;
        struct unroll u;
        random_program(&pr, s);
        unroll_stage(&u, &arena, &pr, 0);
        unroll_plan(&u, &arena, &pr);
        naive(&c, &u, &pr);
        ck_assert_int_ge(u.arena_B, u.live_B);
        for (int x = 0; x < u.n_life; x++) {
            const struct life *a = &u.life[x];
            ck_assert_int_eq(a->offset % 64, 0);
            ck_assert_int_le(a->offset + a->bytes, u.arena_B);
            for (int y = 0; y < x; y++) {
                const struct life *b = &u.life[y];
                if (a->offset + a->bytes <= b->offset || b->offset + b->bytes <= a->offset) continue;
                ck_assert(pr.buf[a->buf].keep == KEEP_MICRO && pr.buf[b->buf].keep == KEEP_MICRO);
                int ab = 1, ba = 1;
                for (int m = 0; m < STREAM_COUNT; m++) {
                    ab &= a->last[m] < 0 || c.after[b->first][a->last[m]];
                    ba &= b->last[m] < 0 || c.after[a->first][b->last[m]];
                }
                ck_assert_msg(ab || ba, "seed %u: lives %d and %d", s, x, y);
            }
        }
    }
}
END_TEST

/* First fit in the order of birth, for comparison. */
static int64_t birth_order_B(const struct unroll *u, const struct program *pr)
{
    int64_t *at = calloc((size_t)u->n_life, sizeof *at), top = 0;
    for (int k = 0; k < u->n_life; k++) {
        const struct life *l = &u->life[k];
        for (int again = 1; again;) {
            again = 0;
            for (int m = 0; m < k; m++) {
                const struct life *p = &u->life[m];
                if (at[m] + p->bytes <= at[k] || at[k] + l->bytes <= at[m] || !unroll_meet(u, pr, p, l))
                    continue;
                at[k] = (at[m] + p->bytes + 63) / 64 * 64;
                again = 1;
            }
        }
        if (at[k] + l->bytes > top) top = at[k] + l->bytes;
    }
    free(at);
    return (top + 63) / 64 * 64;
}

START_TEST(size_order_beats_birth_order)
{
    static const int schedule[] = { SCHEDULE_1F1B, SCHEDULE_INTERLEAVED, SCHEDULE_FWD_BWD };
    int64_t planned_B = 0, birth_B = 0;
    for (int k = 0; k < LEN(schedule); k++)
        for (int split = 0; split < 2; split++) {
            struct program pr;
            struct job j;
            struct diag d;
            const struct toy t = { .pp = 4, .vpp = 1 + (k > 0), .n_micro = 8, .schedule = schedule[k],
                                   .split = split, .layers = 2 };
            struct unroll *u = toy_unroll(&pr, &arena, &j, &t, &d);
            for (int s = 0; s < t.pp; s++) {
                unroll_plan(&u[s], &arena, &pr);
                planned_B += u[s].arena_B;
                birth_B += birth_order_B(&u[s], &pr);
                ck_assert_int_le(u[s].live_B, u[s].arena_B);
            }
        }
    ck_assert_msg(planned_B <= birth_B, "%lld bytes by size, %lld by birth", (long long)planned_B,
                  (long long)birth_B);
}
END_TEST

/* ---- meetings ---- */

/* A SEND meets the RECV of the same micro-batch and boundary, and the other way round. */
START_TEST(mates)
{
    struct program pr;
    struct job j;
    struct diag d;
    int n = 0;
    struct unroll *u = toy_unroll(&pr, &arena, &j, &(struct toy){ .pp = 2, .vpp = 2, .n_micro = 4, .layers = 1,
                                                     .schedule = SCHEDULE_INTERLEAVED }, &d);
    for (int s = 0; s < 2; s++)
        for (int i = 0; i < u[s].n_item; i++) {
            const struct item *a = &u[s].item[i];
            if (op_family((enum op_kind)pr.op[a->op].kind) != FAMILY_P2P) continue;
            const struct item *b = &u[1 - s].item[a->mate];
            ck_assert_int_eq(b->mate, i);
            ck_assert_int_eq(a->micro, b->micro);
            ck_assert_int_ne(pr.op[a->op].kind, pr.op[b->op].kind);
            n++;
        }
    ck_assert_int_eq(n, 3 * 4 * 2 * 2);     /* boundaries, micro-batches, directions, ends */
}
END_TEST

/* ---- edges ---- */

/* A buffer of the stage that no op uses is there all the same. */
START_TEST(unused_lives)
{
    struct program pr;
    struct job j;
    struct diag d;
    toy_build(&pr, &arena, &j, &(struct toy){ .pp = 2, .vpp = 1, .n_micro = 2, .layers = 1 });
    const int spare = toy_buf(&pr, 1000, 1, KEEP_OPTIMIZER, 0);
    struct unroll u[2];
    ck_assert_int_eq(unroll_all(u, &arena, &pr, &d), OK);
    const struct item any = { .micro = 1 };
    const struct life *l = unroll_life(&u[0], &pr, &any, spare);
    ck_assert_ptr_nonnull(l);
    ck_assert_int_eq(l->n_use, 0);
    ck_assert_int_eq(l->bytes, 4000);
    ck_assert_ptr_null(unroll_life(&u[1], &pr, &any, spare));
    ck_assert_int_ge(u[0].live_B, 4000);
    for (int s = 0; s < 2; s++) unroll_plan(&u[s], &arena, &pr);
    ck_assert_int_eq(unroll_check(u, &pr, 1, &d), OK);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        deps_are_the_closure, lives_are_the_uses, offsets_never_collide, size_order_beats_birth_order,
        mates, unused_lives,
    };
    return test_main("unroll", tests, LEN(tests), 600);
}
