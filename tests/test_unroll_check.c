/* The check before a run: every schedule passes it, programs of the builders do, and planted faults do not, each
 * told by name. */
#include "tests/test.h"
#include "tests/toy.h"

static struct arena arena;       /* every test has a process of its own */

/* ---- whole programs ---- */

static void check_shape(const struct toy *t)
{
    struct program pr;
    struct job j;
    struct diag d;
    struct unroll *u = toy_unroll(&pr, &arena, &j, t, &d);
    for (int s = 0; s < t->pp; s++) unroll_plan(&u[s], &arena, &pr);
    ck_assert_msg(unroll_check(u, &pr, 1, &d) == OK, "pp %d vpp %d m %d group %d schedule %d split %d: %s",
                  t->pp, t->vpp, t->n_micro, t->group, t->schedule, t->split, d.text);
    arena_free(&arena);
}

START_TEST(every_schedule_passes)
{
    toy_each(check_shape);
}
END_TEST

/* ---- planted faults ---- */

static void refused(enum err e, const struct diag *d, const char *says)
{
    ck_assert_int_eq(e, ERR_NO);
    ck_assert_msg(strstr(d->text, says) != NULL, "\"%s\" does not say \"%s\"", d->text, says);
    ck_assert_int_lt((int)strlen(d->text), 500);
}

static const struct toy four = { .pp = 2, .vpp = 2, .n_micro = 4, .layers = 1,
                                 .schedule = SCHEDULE_INTERLEAVED };

static int find_op(const struct program *pr, int from, enum op_kind kind)
{
    int op = from;
    while (op < pr->n_op && pr->op[op].kind != kind) op++;
    ck_assert_int_lt(op, pr->n_op);
    return op;
}

START_TEST(swapped_steps)
{
    struct program pr;
    struct job j;
    struct diag d;
    struct unroll *u = toy_unroll(&pr, &arena, &j, &four, &d);
    const struct step first = pr.step[1][1];
    pr.step[1][1] = pr.step[1][2];
    pr.step[1][2] = first;
    refused(unroll_all(u, &arena, &pr, &d), &d,
            "micro-batch 0): SEND meets stage 1, step 1 (FWD of chunk 1, micro-batch 1): RECV");
}
END_TEST

/* Backward before forward: it would read what is not there. */
START_TEST(backward_too_soon)
{
    struct program pr;
    struct job j;
    struct diag d;
    const struct toy one = { .pp = 1, .vpp = 1, .n_micro = 1, .layers = 1 };
    struct unroll *u = toy_unroll(&pr, &arena, &j, &one, &d);
    const struct step f = pr.step[0][1];
    pr.step[0][1] = pr.step[0][2];
    pr.step[0][2] = f;
    ck_assert_int_eq(unroll_all(u, &arena, &pr, &d), OK);
    refused(unroll_check(u, &pr, 0, &d), &d, "step 1 (BWD_LAST of chunk 0, micro-batch 0): NORM reads buffer");
}
END_TEST

START_TEST(missing_send)
{
    struct program pr;
    struct job j;
    struct diag d;
    struct unroll *u = toy_unroll(&pr, &arena, &j, &four, &d);
    pr.op[find_op(&pr, pr.chunk[0].fwd, OP_SEND)] = pr.op[find_op(&pr, 1, OP_SIZES)];
    refused(unroll_all(u, &arena, &pr, &d), &d, "RECV");
}
END_TEST

/* A required operand left out is told by its op's line; a result that nobody reads any more, by who made it. */
START_TEST(missing_read)
{
    struct program pr;
    struct job j;
    struct diag d;
    struct unroll *u = toy_unroll(&pr, &arena, &j, &four, &d);
    struct op *send = &pr.op[find_op(&pr, pr.chunk[0].fwd, OP_SEND)];
    const struct op *wide = &pr.op[find_op(&pr, 1, OP_SWIGLU)];
    const struct op kept = *send;
    send->io.read[0] = 0;
    ck_assert_int_eq(unroll_all(u, &arena, &pr, &d), OK);
    refused(unroll_check(u, &pr, 0, &d), &d,
            "SEND of layer 1 lacks an operand or has one too many: it takes \"<- x\"");
    *send = kept;
    send->io.read[0] = wide->io.write[0];
    ck_assert_int_eq(unroll_all(u, &arena, &pr, &d), OK);
    refused(unroll_check(u, &pr, 0, &d), &d, "SCATTER: nobody reads what it writes");
}
END_TEST

START_TEST(gradient_not_zeroed)
{
    struct program pr;
    struct job j;
    struct diag d;
    struct unroll *u = toy_unroll(&pr, &arena, &j, &four, &d);
    pr.op[find_op(&pr, pr.stage[0].start + 1, OP_ZERO)].io.write[0] = pr.metric;
    ck_assert_int_eq(unroll_all(u, &arena, &pr, &d), OK);
    refused(unroll_check(u, &pr, 0, &d), &d, "WGRAD reads buffer");
}
END_TEST

START_TEST(ring_is_named)
{
    struct program pr;
    struct job j;
    struct diag d;
    struct unroll *u = toy_unroll(&pr, &arena, &j, &four, &d);
    pr.lead = 0;        /* interleaved needs more */
    ck_assert_int_eq(unroll_all(u, &arena, &pr, &d), OK);
    refused(unroll_check(u, &pr, 0, &d), &d, "stages wait for each other; stage ");
    ck_assert_msg(strstr(d.text, " waits for stage 0") && strstr(d.text, " waits for stage 1"), "%s", d.text);
}
END_TEST

/* A ring over eight stages still fits the message. */
START_TEST(long_ring)
{
    struct program pr;
    struct job j;
    struct diag d;
    struct unroll *u = toy_unroll(&pr, &arena, &j, &(struct toy){ .pp = 8, .vpp = 2, .n_micro = 8, .layers = 1,
                                                     .schedule = SCHEDULE_INTERLEAVED }, &d);
    pr.lead = 0;
    ck_assert_int_eq(unroll_all(u, &arena, &pr, &d), OK);
    refused(unroll_check(u, &pr, 0, &d), &d, "stages wait for each other; stage ");
}
END_TEST

START_TEST(unequal_world)
{
    struct program pr;
    struct job j;
    struct diag d;
    struct unroll *u = toy_unroll(&pr, &arena, &j, &four, &d);
    pr.op[find_op(&pr, pr.stage[1].optim, OP_ALL_REDUCE)].group = GROUP_TP;
    refused(unroll_all(u, &arena, &pr, &d), &d, "stage 0 has 1 collectives of group world, stage 1 has 0");
}
END_TEST

START_TEST(two_streams)
{
    struct program pr;
    struct job j;
    struct diag d;
    struct unroll *u = toy_unroll(&pr, &arena, &j, &four, &d);
    pr.op[find_op(&pr, 1, OP_SCATTER)].stream = STREAM_TP;
    ck_assert_int_eq(unroll_all(u, &arena, &pr, &d), OK);
    refused(unroll_check(u, &pr, 0, &d), &d,
            "SCATTER on stream TP, but group ep has collectives on stream EP too");
}
END_TEST

/* A buffer that grew after planning, a life with a short size, and one moved onto another. */
START_TEST(short_buffers)
{
    struct program pr;
    struct job j;
    struct diag d;
    struct unroll *u = toy_unroll(&pr, &arena, &j, &four, &d);
    for (int s = 0; s < 2; s++) unroll_plan(&u[s], &arena, &pr);
    ck_assert_int_eq(unroll_check(u, &pr, 1, &d), OK);
    const int micro = pr.op[find_op(&pr, 1, OP_GEMM)].io.write[0];
    pr.buf[micro].rows++;
    refused(unroll_check(u, &pr, 1, &d), &d, "was given 160 bytes of 192");
    pr.buf[micro].rows--;
    for (int k = 0; k < u[0].n_life; k++) {             /* as if each had been planned one row too short */
        struct life *l = &u[0].life[k];
        if (pr.buf[l->buf].keep == KEEP_MICRO) l->offset = l->offset / 2 / 64 * 64;
    }
    refused(unroll_check(u, &pr, 1, &d), &d, "may be alive together");
}
END_TEST

/* ---- programs of the builders ---- */

static struct unroll *build_real(struct program *pr, struct job *j, const char *flags)
{
    struct diag d;
    test_job(j, &arena, arena_printf(&arena, "model tiny-moe system host stack moefold seq 32 %s", flags));
    program_build(pr, &arena, j);
    struct unroll *u = arena_alloc(&arena, (size_t)pr->n_stage * sizeof *u);
    ck_assert_msg(unroll_all(u, &arena, pr, &d) == OK, "%s: %s", flags, d.text);
    return u;
}

/* Folds, schedules, split and recomputed backward: all pass, planned too. */
START_TEST(real_programs_pass)
{
    static const char *const flags[] = {
        "gpus 1 gbs 2", "gpus 2 ep 2 gbs 8 schedule fwd-bwd", "gpus 2 pp 2 gbs 8", "gpus 4 pp 4 gbs 3",
        "gpus 4 pp 2 vpp 2 ep 2 gbs 8", "gpus 4 pp 2 vpp 2 ep 2 gbs 16 schedule fwd-bwd",
        "gpus 8 tp 2 pp 2 ep 2 cp 2 gbs 8", "gpus 8 tp 2 etp 2 ep 2 gbs 8 recompute full",
        "gpus 8 tp 2 ep 8 gbs 4 recompute moe-act", "gpus 8 tp 4 etp 1 ep 2 pp 2 gbs 8 optimizer sgd",
        "gpus 4 pp 2 gbs 16 split-wgrad 1", "gpus 4 pp 2 vpp 2 gbs 8 split-wgrad 1",
        "gpus 4 pp 2 vpp 2 vpp-group 4 gbs 16", "gpus 4 pp 2 vpp 2 ep 2 gbs 8 schedule fwd-bwd split-wgrad 1",
        "gpus 2 ep 2 gbs 4 recompute layernorm", "gpus 4 pp 4 gbs 8 recompute full",
    };
    for (int i = 0; i < LEN(flags); i++) {
        struct program pr = { 0 };
        struct job j;
        struct diag d = { "" };
        struct unroll *u = build_real(&pr, &j, flags[i]);
        ck_assert_msg(unroll_check(u, &pr, 0, &d) == OK, "%s: %s", flags[i], d.text);
        for (int s = 0; s < pr.n_stage; s++) {
            unroll_plan(&u[s], &arena, &pr);
            ck_assert_int_le(u[s].live_B, u[s].arena_B);
            ck_assert_int_le(u[s].arena_B, u[s].live_B + u[s].live_B / 10 + 64 * u[s].n_life);
        }
        ck_assert_msg(unroll_check(u, &pr, 1, &d) == OK, "%s: %s", flags[i], d.text);
    }
}
END_TEST

/* Whatever required read is left out, of any op, is told. */
START_TEST(any_missing_read)
{
    struct program pr = { 0 };
    struct job j;
    struct diag d;
    int n = 0;
    struct unroll *u = build_real(&pr, &j, "gpus 4 pp 2 ep 2 gbs 4");
    for (int op = 1; op < pr.n_op; op++)
        for (int k = 0; k < OP_READS && pr.op[op].io.read[k]; k++) {
            const int32_t kept = pr.op[op].io.read[k];
            pr.op[op].io.read[k] = 0;
            if (!op_io_complete(&pr.op[op])) {
                refused(unroll_check(u, &pr, 0, &d), &d, arena_printf(&arena, "op %d: ", op));
                n++;
            }
            pr.op[op].io.read[k] = kept;
        }
    ck_assert_int_gt(n, 200);
}
END_TEST

/* Steps of a real program exchanged, any two of one stage that differ: refused, or still a right order. */
START_TEST(any_swapped_steps)
{
    struct program pr = { 0 };
    struct job j;
    struct diag d;
    int refusals = 0, n = 0;
    build_real(&pr, &j, "gpus 2 pp 2 gbs 4");
    for (int s = 0; s < 2; s++)
        for (int x = 0; x < pr.n_step[s]; x++)
            for (int y = 0; y < x; y++, n++) {
                struct unroll u[2];
                const struct step kept = pr.step[s][x];
                pr.step[s][x] = pr.step[s][y];
                pr.step[s][y] = kept;
                const int bad = unroll_all(u, &arena, &pr, &d) != OK || unroll_check(u, &pr, 0, &d) != OK;
                refusals += bad;
                const uint8_t before = pr.pass[pr.step[s][y].pass].kind, after = pr.pass[pr.step[s][x].pass].kind;
                if (before == PASS_FWD && after == PASS_FWD) ck_assert(bad);    /* the other stage keeps its order */
                if (before == PASS_OPTIM) ck_assert(bad);       /* gradients are not complete */
                pr.step[s][y] = pr.step[s][x];
                pr.step[s][x] = kept;
            }
    ck_assert_int_gt(refusals, n / 2);
}
END_TEST

static void leave_deps_out(const char *flags)
{
    struct program pr = { 0 };
    struct job j;
    struct diag d;
    int n = 0, races = 0;
    struct unroll *u = build_real(&pr, &j, flags);
    for (int s = 0; s < pr.n_stage; s++)
        for (int i = 0; i < u[s].n_item; i += 7)
            for (int k = 0; k < u[s].item[i].n_dep; k++, n++) {
                const struct item kept = u[s].item[i];
                int32_t *dep = &u[s].dep[kept.dep];
                const int32_t left_out = dep[k];
                dep[k] = dep[kept.n_dep - 1];
                u[s].item[i].n_dep--;
                ck_assert_int_eq(unroll_check(u, &pr, 0, &d), ERR_NO);
                races += strstr(d.text, "does not wait for") != NULL;
                dep[k] = left_out;
                u[s].item[i] = kept;
            }
    ck_assert_int_gt(n, 10);
    ck_assert_int_gt(races, n / 2);
    ck_assert_int_eq(unroll_check(u, &pr, 0, &d), OK);
}

/* Whatever dep is left out, of any item, is told: each orders two uses, the lead window or the host. */
START_TEST(any_missing_dep)
{
    leave_deps_out("gpus 4 pp 2 ep 2 gbs 4");
    leave_deps_out("gpus 4 pp 2 vpp 2 ep 2 gbs 8 schedule fwd-bwd");
    leave_deps_out("gpus 8 tp 2 cp 2 etp 2 gbs 8 recompute full");
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        every_schedule_passes, swapped_steps, backward_too_soon, missing_send, missing_read,
        gradient_not_zeroed, ring_is_named, long_ring, unequal_world, two_streams, short_buffers,
        real_programs_pass, any_missing_read, any_swapped_steps,
        any_missing_dep,
    };
    return test_main("unroll_check", tests, LEN(tests), 600);
}
