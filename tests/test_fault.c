/* Planted faults, each caught by name: in the program (a swapped step, a missing read, a short buffer), in a
 * kernel (an expert gradient scaled by 1/ep, which only SGD's losses show), in the run (capacity, a rank that
 * fails, a rank that does not come). A run never hangs, and what the executor does not run it refuses. */
#include "tests/parity.h"
#include "tests/test.h"
#include <unistd.h>

static void has(const char *text, const char *part)
{
    ck_assert_msg(text && strstr(text, part), "\"%s\" is not in: %s", part, text ? text : "(nothing)");
}

static const struct fold ep2 = { .name = "ep2", .family = GQA_ALL, .dp = 4, .ep = 2 };
static const struct fold pp2 = { .name = "pp2", .family = GQA_ALL, .pp = 2, .tp = 2 };

/* Unrolls again after the program was changed. */
static enum err unroll_again(struct parity *p)
{
    if (unroll_all(p->u, &p->a, &p->pr, &p->d) != OK) return ERR_NO;
    for (int s = 0; s < p->pr.n_stage; s++) unroll_plan(&p->u[s], &p->a, &p->pr);
    return OK;
}

static struct op *first_op(struct parity *p, enum op_kind kind)
{
    for (int i = 1; i < p->pr.n_op; i++)
        if (p->pr.op[i].kind == kind) return &p->pr.op[i];
    ck_abort_msg("no %s", op_name(kind));
    return NULL;
}

/* ---- in the program ---- */

static void swap_steps(struct parity *p, int stage, int x, int y)
{
    struct step *s = p->pr.step[stage], t = s[x];
    s[x] = s[y];
    s[y] = t;
}

START_TEST(a_forward_of_another_micro_batch)
{
    struct parity p;
    parity_open(&p, &pp2, 1, OPTIMIZER_SGD);
    swap_steps(&p, 0, 1, 2);
    ck_assert_int_eq(unroll_again(&p), ERR_NO);
    has(p.d.text, "stage 0, step 1");
    has(p.d.text, "micro-batch 1");
    has(p.d.text, "not the same micro-batch");
    parity_close(&p);
}
END_TEST

/* On one stage nobody else notices: the backward comes before its own forward. */
START_TEST(a_backward_before_its_forward)
{
    struct parity p;
    parity_open(&p, &ep2, 1, OPTIMIZER_SGD);
    swap_steps(&p, 0, 1, 2);
    ck_assert_int_eq(unroll_again(&p), OK);
    ck_assert_int_eq(parity_run(&p), ERR_NO);
    has(p.d.text, "before anything writes it");
    has(p.d.text, "BWD");
    parity_close(&p);
}
END_TEST

START_TEST(a_missing_read)
{
    struct parity p;
    parity_open(&p, &ep2, 1, OPTIMIZER_SGD);
    first_op(&p, OP_GROUPED_WGRAD)->io.read[0] = 0;
    ck_assert_int_eq(unroll_again(&p), OK);
    ck_assert_int_eq(parity_run(&p), ERR_NO);
    has(p.d.text, "GROUPED_WGRAD");
    has(p.d.text, "lacks an operand");
    parity_close(&p);
}
END_TEST

/* A kernel that reads what its op does not say: v, which forward read, at the address it had then. */
static struct operand hidden[8][PARITY_GBS];

static enum err shows_v(const struct call *c)
{
    hidden[c->op->layer][c->micro] = c->read[2];
    return backend_cpu_launch[OP_ATTN](c);
}

static enum err reads_hidden_v(const struct call *c)
{
    struct call with_v = *c;
    with_v.read[2] = hidden[c->op->layer][c->micro];
    return backend_cpu_launch[OP_ATTN_BWD](&with_v);
}

START_TEST(a_hidden_read_finds_poison)
{
    const struct fold one = { .name = "one", .family = GQA_ALL };
    struct parity p, good;
    launch *table[OP_KIND_COUNT];
    memcpy(table, backend_cpu_launch, sizeof table);
    table[OP_ATTN] = shows_v;
    table[OP_ATTN_BWD] = reads_hidden_v;
    parity_open(&good, &one, 1, OPTIMIZER_SGD);
    parity_open(&p, &one, 1, OPTIMIZER_SGD);
    p.ask.backend = good.ask.backend = table;
    p.ask.steps = good.ask.steps = 1;
    for (int i = 1; i < p.pr.n_op; i++)
        if (p.pr.op[i].kind == OP_ATTN_BWD) p.pr.op[i].io.read[2] = p.pr.op[i].io.read[1];
    ck_assert_int_eq(unroll_again(&p), OK);
    ck_assert_msg(parity_run(&good) == OK && parity_run(&p) == OK, "%s%s", good.d.text, p.d.text);
    ck_assert(isfinite(good.r.step[0].grad_norm));
    ck_assert(isnan(p.r.step[0].grad_norm));
    has(parity_gradients_differ(&p, &good), "off by nan");
    parity_close(&p);
    parity_close(&good);
}
END_TEST

/* An optional operand that is left out passes every check of form; the gradients name where it was. */
START_TEST(a_missing_residual)
{
    const struct fold one = { .name = "one", .family = GQA_ALL };
    struct parity p, good;
    parity_open(&good, &one, 1, OPTIMIZER_SGD);
    parity_open(&p, &ep2, 1, OPTIMIZER_SGD);
    p.ask.steps = good.ask.steps = 1;
    /* the last layer's MLP norm: all layers below miss its residual's gradient */
    for (int i = 1; i < p.pr.n_op; i++)
        if (p.pr.op[i].kind == OP_NORM_BWD && p.pr.op[i].layer == 3) {
            p.pr.op[i].io.read[3] = 0;
            break;
        }
    ck_assert_int_eq(unroll_again(&p), OK);
    ck_assert_msg(parity_run(&good) == OK && parity_run(&p) == OK, "%s%s", good.d.text, p.d.text);
    has(parity_gradients_differ(&p, &good), "gradient of");
    parity_close(&p);
    parity_close(&good);
}
END_TEST

START_TEST(a_short_buffer)
{
    struct parity p;
    parity_open(&p, &ep2, 1, OPTIMIZER_SGD);
    const int y = first_op(&p, OP_DISPATCH)->io.write[0];
    p.pr.buf[y].rows = 3;
    ck_assert_int_eq(unroll_again(&p), OK);
    ck_assert_int_eq(parity_run(&p), ERR_NO);
    char text[32];
    snprintf(text, sizeof text, "buffer %d holds 3;", y);
    has(p.d.text, text);
    has(p.d.text, "layer 1");
    parity_close(&p);
}
END_TEST

START_TEST(a_short_buffer_in_the_plan_of_offsets)
{
    struct parity p;
    parity_open(&p, &ep2, 1, OPTIMIZER_SGD);
    const int64_t rows = p.pr.buf[first_op(&p, OP_ATTN)->io.write[0]].rows;
    p.pr.buf[first_op(&p, OP_ATTN)->io.write[0]].rows = rows / 2;
    ck_assert_int_eq(unroll_again(&p), OK);
    p.pr.buf[first_op(&p, OP_ATTN)->io.write[0]].rows = rows;
    ck_assert_int_eq(parity_run(&p), ERR_NO);
    has(p.d.text, "was given");
    parity_close(&p);
}
END_TEST

/* ---- in a kernel ---- */

static enum err scaled_expert_gradient(const struct call *c)
{
    float *g = c->add[0].p;
    const enum err e = backend_cpu_launch[OP_GRAD_SCATTER](c);
    if (c->op->group != GROUP_EDP) return e;
    for (int64_t i = 0; i < c->add[0].rows * c->add[0].cols; i++) g[i] /= (float)c->job->plan.ep;
    return e;
}

START_TEST(an_expert_gradient_scaled_by_ep)
{
    const struct fold one = { .name = "one", .family = GQA_ALL };
    struct parity p, good;
    launch *table[OP_KIND_COUNT];
    memcpy(table, backend_cpu_launch, sizeof table);
    table[OP_GRAD_SCATTER] = scaled_expert_gradient;
    parity_open(&good, &one, 1, OPTIMIZER_SGD);
    parity_open(&p, &ep2, 1, OPTIMIZER_SGD);
    good.j.plan.clip = p.j.plan.clip = 0;   /* clipping would spread the fault over all parameters */
    p.ask.backend = table;
    ck_assert_msg(parity_run(&good) == OK && parity_run(&p) == OK, "%s%s", good.d.text, p.d.text);
    has(parity_gradients_differ(&p, &good), "gradient of layer 1 expert_fc1");
    has(parity_loss_differs(&p, &good), "gradient norm of step 0");
    p.r.step[0].grad_norm = good.r.step[0].grad_norm;
    double worst = 0;
    for (int s = 0; s < p.r.n_step; s++) worst = fmax(worst, fabs(p.r.step[s].loss / good.r.step[s].loss - 1));
    ck_assert_msg(worst > 1e-5, "SGD's losses hide it: %g", worst);
    parity_close(&p);
    parity_close(&good);
}
END_TEST

/* ---- in the run ---- */

START_TEST(capacity_overflow_names_rank_layer_rows_and_factor)
{
    const struct fold skewed = { .name = "ep8", .family = GQA, .dp = 8, .ep = 8 };
    struct parity p;
    parity_open(&p, &skewed, 1, OPTIMIZER_SGD);
    p.j.plan.capacity = 1;
    program_build(&p.pr, &p.a, &p.j);
    ck_assert_int_eq(unroll_again(&p), OK);
    ck_assert_int_eq(parity_run(&p), ERR_NO);
    has(p.d.text, "rank ");
    has(p.d.text, "layer 1");
    has(p.d.text, "holds 32;");
    const char *needs = strstr(p.d.text, "needs capacity ");
    ck_assert_ptr_nonnull(needs);
    ck_assert_double_gt(atof(needs + strlen("needs capacity ")), 1);
    const struct diag first = p.d;
    for (int again = 0; again < 3; again++) {       /* whichever thread is first, the fullest rank is named */
        ck_assert_int_eq(parity_run(&p), ERR_NO);
        ck_assert_str_eq(p.d.text, first.text);
    }
    parity_close(&p);
}
END_TEST

static enum err fails_on_rank_5(const struct call *c)
{
    if (c->rank == 5 && c->iter == 1) return (fail)(c->d, ERR_LIMIT, "planted: no memory on rank 5");
    return backend_cpu_launch[c->op->kind](c);
}

static const enum op_kind failing[] = { OP_DATA, OP_ATTN_BWD, OP_COMBINE, OP_RECV, OP_SGD };

START_TEST(a_failing_rank_ends_the_run_with_its_own_words)
{
    const struct fold f = { .name = "mixed", .family = GQA_ALL, .pp = 2, .tp = 2, .dp = 2, .ep = 4 };
    struct parity p;
    launch *table[OP_KIND_COUNT];
    memcpy(table, backend_cpu_launch, sizeof table);
    table[failing[_i]] = fails_on_rank_5;
    parity_open(&p, &f, 1, OPTIMIZER_SGD);
    p.ask.backend = table;
    p.ask.timeout_s = 0;                    /* nothing but the break may end it */
    ck_assert_int_eq(parity_run(&p), ERR_LIMIT);
    ck_assert_str_eq(p.d.text, "planted: no memory on rank 5");
    parity_close(&p);
}
END_TEST

static enum err comes_late(const struct call *c)
{
    if (c->rank == 1) usleep(1500000);
    return backend_cpu_launch[OP_PERMUTE](c);
}

START_TEST(a_late_rank_is_named)
{
    struct parity p;
    launch *table[OP_KIND_COUNT];
    memcpy(table, backend_cpu_launch, sizeof table);
    table[OP_PERMUTE] = comes_late;
    parity_open(&p, &ep2, 1, OPTIMIZER_SGD);
    p.ask.backend = table;
    p.ask.timeout_s = 0.5;
    ck_assert_int_eq(parity_run(&p), ERR_COMM);
    has(p.d.text, "rank 1 did not come to group ep");
    has(p.d.text, "rank 0 is at DISPATCH");
    parity_close(&p);
}
END_TEST

START_TEST(what_the_executor_does_not_run_is_refused)
{
    struct parity p;
    parity_open(&p, &ep2, 1, OPTIMIZER_SGD);
    p.j.stack.runs = 0;
    snprintf(p.j.stack.name, sizeof p.j.stack.name, "mcore-2510");
    ck_assert_int_eq(parity_run(&p), ERR_CONFIG);
    has(p.d.text, "stack mcore-2510");
    p.j.stack.runs = 1;
    p.j.plan.precision = PRECISION_FP16;
    ck_assert_int_eq(parity_run(&p), ERR_CONFIG);
    has(p.d.text, "fp16");
    p.j.plan.precision = PRECISION_FP32;
    p.ask.steps = 0;
    ck_assert_int_eq(parity_run(&p), ERR_CONFIG);
    has(p.d.text, "--steps");
    p.ask.steps = 1;
    p.ask.text_n = 0;
    ck_assert_int_eq(parity_run(&p), ERR_CONFIG);
    has(p.d.text, "text");
    p.ask.text_n = 1;
    p.u[0].arena_B = INT64_C(1) << 50;
    ck_assert_int_eq(parity_run(&p), ERR_NO);
    has(p.d.text, "the arenas of 4 ranks need 4096 TiB");
    parity_close(&p);
}
END_TEST

int main(void)
{
    const struct test_loop tests[] = {
        { a_forward_of_another_micro_batch, 0 },
        { a_backward_before_its_forward, 0 },
        { a_missing_read, 0 },
        { a_hidden_read_finds_poison, 0 },
        { a_missing_residual, 0 },
        { a_short_buffer, 0 },
        { a_short_buffer_in_the_plan_of_offsets, 0 },
        { an_expert_gradient_scaled_by_ep, 0 },
        { capacity_overflow_names_rank_layer_rows_and_factor, 0 },
        { a_failing_rank_ends_the_run_with_its_own_words, LEN(failing) },
        { a_late_rank_is_named, 0 },
        { what_the_executor_does_not_run_is_refused, 0 },
    };
    return test_main_loops("fault", NULL, tests, LEN(tests), 120);
}
