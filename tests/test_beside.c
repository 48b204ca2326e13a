/* What runs beside what: backward's gathers and scatters over tp under the products of a linear (Megatron-LM
 * core/tensor_parallel/layers.py), exchanges of experts under another layer's half; and what products lose
 * to the kernels that hold multiprocessors meanwhile. Times by hand from the ops' own prices. */
#include "sim/predict.h"
#include "tests/test.h"
#include <math.h>
#include <stdio.h>

struct made { struct arena arena; struct job j; struct program pr; struct cost c; };

static void make(struct made *t, const char *flags, int async_tp)
{
    *t = (struct made){ 0 };
    test_job(&t->j, &t->arena, flags);
    t->j.stack.async_tp = async_tp;
    program_build(&t->pr, &t->arena, &t->j);
    cost_init(&t->c, &t->pr, &t->j);
}

static const char dense[] = "model llama3-8b layers 2 system h100-sxm gpus 4 tp 4 gbs 4 seq 4096";

/* Bytes and number of collectives over tp. */
static double wire_B(const struct made *t, int *n)
{
    double sum_B = 0;
    *n = 0;
    for (int i = 1; i < t->pr.n_op; i++) {
        if (t->pr.op[i].group != GROUP_TP) continue;
        sum_B += op_work(&t->pr, &t->pr.op[i], t->pr.even).wire_B;
        ++*n;
    }
    return sum_B;
}

/* Two linears a layer that take all tokens, and the head: of each the data gradient runs beside the gather
 * of its input and the weight gradient beside the scatter. The same bytes go as without. */
START_TEST(linears_hide_what_they_gather)
{
    struct made t, was;
    int n, n_was, dgrads = 0, wgrads = 0;
    make(&t, dense, 1);
    make(&was, dense, 0);
    ck_assert(t.j.stack.sync_experts);          /* of stacks that are Megatron's */
    ck_assert_double_eq(wire_B(&t, &n), wire_B(&was, &n_was));
    ck_assert_int_eq(n, n_was);
    for (int i = 1; i < t.pr.n_op; i++) {
        const struct op *o = &t.pr.op[i];
        if (!o->beside) continue;
        const struct op *m = &t.pr.op[o->beside];
        ck_assert_int_eq(m->stream, STREAM_TP);
        ck_assert_int_lt(o->beside, i);
        ck_assert(o->kind == OP_DGRAD ? m->kind == OP_GATHER : o->kind == OP_WGRAD && m->kind == OP_SCATTER);
        dgrads += o->kind == OP_DGRAD;
        wgrads += o->kind == OP_WGRAD;
    }
    ck_assert_int_eq(dgrads, 2 * 2 + 1);
    ck_assert_int_eq(wgrads, 2 * 2 + 1);
    struct predict r, r_was;
    predict_job(&r, NULL, &t.arena, &t.j);
    predict_job(&r_was, NULL, &was.arena, &was.j);
    ck_assert_double_lt(r.step_s, r_was.step_s);
    ck_assert_double_lt(r.lines.exposed_s[GROUP_TP], 0.75 * r_was.lines.exposed_s[GROUP_TP]);
    ck_assert_double_eq_tol(r.lines.group_total_s[GROUP_TP], r_was.lines.group_total_s[GROUP_TP], 1e-12);
    arena_free(&t.arena);
    arena_free(&was.arena);
}
END_TEST

/* Low precision gathers copies, as many and as early. */
START_TEST(copies_are_gathered_ahead)
{
    struct made t, was;
    int n, n_was, dgrads = 0;
    char flags[200];
    snprintf(flags, sizeof flags, "%s precision fp8-cs", dense);
    make(&t, flags, 1);
    make(&was, flags, 0);
    ck_assert_double_eq(wire_B(&t, &n), wire_B(&was, &n_was));
    ck_assert_int_eq(n, n_was);
    for (int i = 1; i < t.pr.n_op; i++) dgrads += t.pr.op[i].kind == OP_DGRAD && t.pr.op[i].beside;
    ck_assert_int_eq(dgrads, 2 * 2 + 1);
    arena_free(&t.arena);
    arena_free(&was.arena);
}
END_TEST

/* m: a collective that holds `sms` of 132. Ops beside it take d alone: while it runs they get on at 1 - sms
 * / 132. */
static void judge(const struct made *t, int m, double sms)
{
    double alone_s = 0, s = 0;
    struct cost alone = t->c;
    alone.beside = NULL;
    const double a = sms / 132, m_s = cost_op_s(&alone, m, t->pr.even);
    for (int i = 1; i < t->pr.n_op; i++) {
        if (t->pr.op[i].beside != m) continue;
        alone_s += cost_op_s(&alone, i, t->pr.even);
        s += cost_op_s(&t->c, i, t->pr.even);
    }
    const double want_s = m_s >= alone_s / (1 - a) ? alone_s / (1 - a) : alone_s + a * m_s;
    ck_assert_msg(fabs(s / want_s - 1) < 1e-12, "op %d %s: %g s, by hand %g", m,
                  op_name((enum op_kind)t->pr.op[m].kind), s, want_s);
    ck_assert_double_gt(s, alone_s);
}

START_TEST(products_have_what_is_left)
{
    struct made t;
    int judged = 0;
    make(&t, dense, 1);
    for (int m = 1; m < t.pr.n_op; m++)
        for (int i = 1; i < t.pr.n_op; i++)
            if (t.pr.op[i].beside == m) {
                judge(&t, m, 16);
                judged++;
                break;
            }
    ck_assert_int_eq(judged, 2 * (2 * 2 + 1));
    arena_free(&t.arena);
}
END_TEST

/* Facts of the woven slot: backward's combine under forward's attention, dispatch under backward's experts,
 * backward's dispatch under forward's experts, combine under backward's attention. */
START_TEST(woven_halves_meet)
{
    static const struct { const char *way; int sms; } row[] = { { "alltoall", 16 }, { "deepep", 20 },
                                                               { "hybridep", 16 } };
    for (int k = 0; k < LEN(row); k++) {
        struct made t;
        char flags[200];
        snprintf(flags, sizeof flags, "model qwen3-30b-a3b layers 2 system h100-sxm gpus 16 ep 16 gbs 64 seq 4096 "
                                      "ep-overlap 1 dispatcher %s", row[k].way);
        make(&t, flags, 1);
        int32_t x[2][2] = { { 0 } };            /* of layer 1, by half: out and back */
        for (int i = 1; i < t.pr.n_op; i++) {
            const struct op *o = &t.pr.op[i];
            if (o->layer != 1 || o->stream != STREAM_EP || t.pr.buf[o->io.write[0]].cols != 2048) continue;
            x[o->half][x[o->half][0] != 0] = i;
        }
        for (int i = 1; i < t.pr.n_op; i++) {
            const struct op *o = &t.pr.op[i];
            const int fwd = o->half == HALF_FWD, grouped = op_family((enum op_kind)o->kind) == FAMILY_GROUPED;
            if (o->layer != 1 || (!grouped && o->kind != OP_ATTN && o->kind != OP_ATTN_BWD)) continue;
            ck_assert_int_eq(o->beside, fwd ? x[HALF_BWD][grouped] : x[HALF_FWD][!grouped]);
        }
        for (int h = 0; h < 2; h++)
            for (int i = 0; i < 2; i++) judge(&t, x[h][i], row[k].sms);
        arena_free(&t.arena);
    }
}
END_TEST

/* In pieces: forward's gathers and scatters with the four products of a layer, backward's gathers of dy with
 * the two data gradients that read them; a quarter of each shows, or what a product of three quarters leaves
 * of it. The sum of both grows with either. */
START_TEST(pieces_go_under_their_product)
{
    struct made t;
    char flags[200];
    int n = 0;
    snprintf(flags, sizeof flags, "%s tp-overlap 1", dense);
    make(&t, flags, 1);
    struct cost alone = t.c;
    alone.beside = NULL;
    for (int i = 1; i < t.pr.n_op; i++) {
        const struct op *o = &t.pr.op[i];
        if (!o->beside || o->group != GROUP_TP) continue;
        const struct op *with = &t.pr.op[o->beside];
        ck_assert_int_eq(with->beside, i);
        ck_assert(with->kind == OP_GEMM || (with->kind == OP_DGRAD && o->kind == OP_GATHER));
        const double d_s = cost_op_s(&alone, o->beside, t.pr.even), m_s = cost_op_s(&alone, i, t.pr.even);
        ck_assert_double_eq_tol(cost_op_s(&t.c, i, t.pr.even), fmax(m_s / 4, m_s - 0.75 * d_s), 1e-15);
        judge(&t, i, 16);
        n++;
    }
    ck_assert_int_eq(n, 2 * (4 + 2));
    struct predict r, was;
    predict_job(&r, NULL, &t.arena, &t.j);
    t.j.plan.tp_overlap = 0;
    predict_job(&was, NULL, &t.arena, &t.j);
    ck_assert_double_lt(r.step_s, was.step_s);
    arena_free(&t.arena);
}
END_TEST

/* Passes apart, one rank, a system that does not say how many multiprocessors it has. */
START_TEST(nothing_beside_nothing_lost)
{
    struct made t;
    make(&t, "model qwen3-30b-a3b layers 2 system h100-sxm gpus 16 ep 16 gbs 64 seq 4096", 1);
    ck_assert_ptr_null(t.c.beside);
    arena_free(&t.arena);
    make(&t, "model llama3-8b layers 2 system h100-sxm gpus 4 gbs 4 seq 4096", 1);
    ck_assert_ptr_null(t.c.beside);
    t.j.system.sms = 0;
    arena_free(&t.arena);
    make(&t, dense, 1);
    t.j.system.sms = 0;
    cost_init(&t.c, &t.pr, &t.j);
    for (int i = 1; i < t.pr.n_op; i++) ck_assert(!t.pr.op[i].beside || t.c.beside[i] == 1);
    arena_free(&t.arena);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = { linears_hide_what_they_gather, copies_are_gathered_ahead, products_have_what_is_left,
                                   woven_halves_meet, pieces_go_under_their_product,
                                   nothing_beside_nothing_lost };
    return test_main("beside", tests, LEN(tests), 60);
}
