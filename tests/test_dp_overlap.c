/* Collectives over replicas under compute: where gathers and reductions stand, that what they feed comes after them, and
 * what hiding them saves. */
#include "tests/sound.h"

#define LLAMA "model llama3-8b layers 8 system gb200-nvl72 gpus 16 gbs 64 seq 4096 "
#define QWEN "model qwen3-30b-a3b layers 8 system h100-sxm gpus 32 gbs 256 seq 4096 "
static const char *const plans[] = {
    LLAMA "", LLAMA "tp 2 pp 2", LLAMA "pp 2 vpp 2 cuda-graph full-layer", QWEN "ep 8", QWEN "ep 8 pp 2 vpp 2 ep-overlap 1",
    QWEN "ep 8 ep-overlap 1", QWEN "ep 8 precision fp8-cs", LLAMA "precision mxfp8 tp 2", LLAMA "precision nvfp4 pp 2",
    LLAMA "precision mxfp8 fp8-param-gather 1", LLAMA "offload optimizer:0.5", LLAMA "optimizer sgd recompute full",
    "model deepseek-v3 layers 6 system gb200-nvl72 gpus 32 pp 2 ep 8 gbs 64 seq 4096 precision mxfp8",
};

static void make(struct made *m, const char *flags, const char *overlap)
{
    struct arena a = { 0 };
    sound_make(m, arena_printf(&a, "%s dp-overlap %s", flags, overlap));
    arena_free(&a);
}

/* How often an op of this kind stands in passes that gather, and in others, of all that stages run. */
struct stands { int gathering, optim, else_where; };
static struct stands count(const struct program *pr, enum op_kind kind)
{
    struct stands n = { 0 };
    for (int s = 0; s < pr->n_stage; s++)
        for (int k = 0; k < pr->n_step[s]; k++) {
            const struct pass *p = &pr->pass[pr->step[s][k].pass];
            for (int i = 0; i < p->n; i++) {
                if (pr->op[pr->order[p->first + i]].kind != kind) continue;
                if (p->gathers) n.gathering++;
                else if (p->kind == PASS_OPTIM) n.optim++;
                else n.else_where++;
            }
        }
    return n;
}

START_TEST(gathers_go_under_the_first_forward)
{
    struct made m, late;
    make(&m, plans[_i], "both");
    make(&late, plans[_i], "grads");
    const struct stands at = count(&m.pr, OP_PARAM_GATHER), was = count(&late.pr, OP_PARAM_GATHER);
    ck_assert_int_gt(was.optim, 0);
    ck_assert_int_eq(was.gathering + was.else_where, 0);
    ck_assert_int_eq(at.gathering, was.optim);
    ck_assert_int_eq(at.optim + at.else_where, 0);
    for (int s = 0; s < m.pr.n_stage; s++)
        for (int k = 0; k < m.pr.n_step[s]; k++)
            ck_assert_int_eq(m.pr.pass[m.pr.step[s][k].pass].gathers, m.pr.step[s][k].micro[0] == 0);
    arena_free(&m.arena);
    arena_free(&late.arena);
}
END_TEST

/* Weights are read after they were gathered; copies are made between. */
START_TEST(what_is_gathered_is_read_later)
{
    struct made m;
    make(&m, plans[_i], "both");
    const struct program *pr = &m.pr;
    for (int p = 0; p < pr->n_pass; p++) {
        char *read = arena_alloc(&m.arena, (size_t)pr->n_buf);
        for (int i = 0; i < pr->pass[p].n && pr->pass[p].gathers; i++) {
            const struct op *o = &pr->op[pr->order[pr->pass[p].first + i]];
            if (o->kind == OP_PARAM_GATHER) ck_assert(!read[program_root(pr, o->io.add[0])]);
            for (int w = 0; w < OP_WRITES; w++)     /* of a copy that is written */
                if (o->half == HALF_STEP && o->io.write[w]) ck_assert(!read[o->io.write[w]] || o->kind == OP_ZERO);
            for (int r = 0; r < OP_READS; r++) read[program_root(pr, o->io.read[r])] = read[o->io.read[r]] = 1;
            read[0] = 0;
        }
    }
    arena_free(&m.arena);
}
END_TEST

START_TEST(both_clocks_agree)
{
    struct made m;
    make(&m, plans[_i], "both");
    sound_clocks(&m, plans[_i]);
    arena_free(&m.arena);
}
END_TEST

/* Hidden is no slower than after; and no more is hidden than there is. */
START_TEST(what_is_hidden_was_there)
{
    struct made none, grads, both;
    make(&none, plans[_i], "none");
    make(&grads, plans[_i], "grads");
    make(&both, plans[_i], "both");
    const struct stands reduced = count(&none.pr, OP_GRAD_SCATTER);
    ck_assert_int_eq(reduced.optim > 0, 1);
    ck_assert_int_eq(reduced.gathering + reduced.else_where, 0);
    double gathers_s = 0, scatters_s = 0;
    struct cost c;
    cost_init(&c, &none.pr, &none.j);
    for (int i = 1; i < none.pr.n_op; i++) {
        if (none.pr.op[i].kind == OP_PARAM_GATHER) gathers_s += cost_op_s(&c, i, none.pr.even);
        if (none.pr.op[i].kind == OP_GRAD_SCATTER) scatters_s += cost_op_s(&c, i, none.pr.even);
    }
    ck_assert_double_le(grads.r.step_s, none.r.step_s * (1 + 1e-9));
    ck_assert_double_le(both.r.step_s, grads.r.step_s * (1 + 1e-9));
    ck_assert_double_le(none.r.step_s - grads.r.step_s, scatters_s * 1.001);
    ck_assert_double_le(grads.r.step_s - both.r.step_s, gathers_s * 1.001);
    arena_free(&none.arena);
    arena_free(&grads.arena);
    arena_free(&both.arena);
}
END_TEST

START_TEST(run_refuses)
{
    static const char *const said[] = { "dp-overlap both", "not built in stack moefold", "set grads", NULL };
    sound_refused("model tiny-moe system host stack moefold gpus 2 gbs 8 seq 64 dp-overlap both", said);
}
END_TEST

int main(void)
{
    const struct test_loop tests[] = {
        { gathers_go_under_the_first_forward, LEN(plans) },
        { what_is_gathered_is_read_later, LEN(plans) },
        { both_clocks_agree, LEN(plans) },
        { what_is_hidden_was_there, LEN(plans) },
        { run_refuses, 0 },
    };
    return test_main_loops("dp_overlap", NULL, tests, LEN(tests), 120);
}
