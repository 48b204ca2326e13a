/* Context parallelism by a ring: every fold computes what one rank computes, gradients of the first step and losses of all, with
 * both optimizers; grouped heads, MLA, windows, sinks, schedules, recompute, two micro-sequences, bf16; live bytes and arena as
 * predicted. The ring's blocks together are the whole of attention's work. */
#include "models/model.h"
#include "tests/parity.h"
#include "tests/test.h"

enum { ATTN = 1 << RECOMPUTE_CORE_ATTN, FULL = 1 << RECOMPUTE_FULL, UP = 1 << RECOMPUTE_MLA_UP_PROJ };

static const struct fold folds[] = {
    { .name = "cp2", .family = GQA, .cp = 2, .p2p = 1 },
    { .name = "cp4", .family = GQA_ALL, .cp = 4, .p2p = 1 },
    { .name = "cp8", .family = GQA_ALL, .cp = 8, .p2p = 1 },
    { .name = "cp4 mla core_attn", .family = MLA_ALL, .cp = 4, .p2p = 1, .recompute = ATTN },
    { .name = "cp2 mbs2 dp2 mla_up_proj / ep2", .family = MLA, .cp = 2, .dp = 2, .mbs = 2, .ep = 2, .p2p = 1, .recompute = UP },
    { .name = "cp4 oss", .family = OSS, .cp = 4, .ep = 2, .p2p = 1 },
    { .name = "cp2 tp2 pp2 oss full / ep4", .family = OSS_ALL, .cp = 2, .tp = 2, .pp = 2, .ep = 4, .p2p = 1, .recompute = FULL },
    { .name = "cp2 pp2 vpp2 tp4 shared kv", .family = GQA, .cp = 2, .pp = 2, .vpp = 2, .tp = 4, .p2p = 1 },
    { .name = "cp2 woven split pp2 vpp2 / ep2", .family = MLA, .cp = 2, .pp = 2, .vpp = 2, .ep = 2, .woven = 1, .split = 1,
      .p2p = 1 },
    { .name = "cp4 split pp2 tied mtp", .family = TIED_MTP, .cp = 4, .pp = 2, .split = 1, .p2p = 1 },
};

static const int seeds[FAMILY_TEST_COUNT] = { [GQA] = 12, [GQA_ALL] = 1, [MLA] = 1, [MLA_ALL] = 1, [TIED_MTP] = 15, [OSS] = 2,
                                              [OSS_ALL] = 1 };
enum { STEPS = PARITY_STEPS < 8 ? PARITY_STEPS : 8 };

static void run(struct parity *p, const struct fold *f, int optimizer)
{
    parity_open(p, f, seeds[f->family], (enum optimizer)optimizer);
    p->ask.steps = STEPS;
    ck_assert_msg(parity_run(p) == OK, "%s: %s", f->name, p->d.text);
}

static void none(const char *difference, const char *fold)
{
    ck_assert_msg(difference == NULL, "%s: %s", fold, difference ? difference : "");
}

START_TEST(a_ring_equals_one_rank)
{
    const struct fold *f = &folds[_i / 2 * PARITY_STRIDE], alone = { .name = "one rank", .family = f->family };
    struct parity p, one;
    run(&one, &alone, _i % 2);
    ck_assert_msg(one.r.score_gap > 1e-5, "%s: gap %g: choose another seed", f->name, (double)one.r.score_gap);
    run(&p, f, _i % 2);
    none(parity_gradients_differ(&p, &one), f->name);
    none(parity_loss_differs(&p, &one), f->name);
    none(parity_counts_differ(&p), f->name);
    parity_close(&p);
    parity_close(&one);
}
END_TEST

/* Shares of the blocks sum to all, whatever the window, and are counted one by one. */
static double counted(int seq, int window, int cp, int step)
{
    const int local = seq / cp;
    double seen = 0, all = 0;
    for (int i = 0; i < cp; i++)
        for (int r = 0; r < local; r++) {
            const int query = rope_position(r, seq, cp, i), first = window && query >= window ? query + 1 - window : 0;
            all += query + 1 - first;
            for (int k = 0; k < local; k++) {
                const int key = rope_position(k, seq, cp, (i - step + cp) % cp);
                seen += key <= query && key >= first;
            }
        }
    return seen / all;
}

START_TEST(blocks_share_the_work)
{
    static const int cps[] = { 1, 2, 4, 8 }, windows[] = { 0, 1, 3, 5, 16, 31, 64, 100 };
    for (int c = 0; c < LEN(cps); c++)
        for (int w = 0; w < LEN(windows); w++)
            for (int step = 0; step < cps[c]; step++) {
                const double share = model_ring_share(64, windows[w], cps[c], step), want = counted(64, windows[w], cps[c], step);
                ck_assert_msg(fabs(share - want) < 1e-12, "cp %d window %d step %d: %g, counted %g", cps[c], windows[w], step,
                              share, want);
            }
}
END_TEST

/* A ring sends its K and V cp - 1 times forward; backward as often again, and their gradients cp times. */
START_TEST(a_ring_shifts_as_often_as_it_must)
{
    const struct fold f = { .name = "cp4", .family = GQA, .cp = 4, .p2p = 1 };
    struct parity p;
    int shifts[2] = { 0 }, blocks[2] = { 0 };
    parity_open(&p, &f, 1, OPTIMIZER_ADAMW);
    for (int i = 0; i < p.pr.n_op; i++) {
        const struct op *o = &p.pr.op[i];
        if (o->layer != 1) continue;
        shifts[o->half == HALF_BWD] += o->kind == OP_SHIFT;
        blocks[0] += o->kind == OP_ATTN, blocks[1] += o->kind == OP_ATTN_BWD;
    }
    ck_assert_int_eq(shifts[0], 3);
    ck_assert_int_eq(shifts[1], 3 + 4);
    ck_assert_int_eq(blocks[0], 4);
    ck_assert_int_eq(blocks[1], 4);
    parity_close(&p);
}
END_TEST

/* Of stacks that are only predicted the ring is TransformerEngine's, which has no windows and no sinks. */
START_TEST(rings_without_windows_are_refused_by_name)
{
    struct arena a = { 0 };
    struct job j;
    struct diag d = { 0 };
    ck_assert_int_eq(test_job_try(&j, &a, "model gpt-oss-20b system h100-sxm stack mcore-2510 gpus 8 cp 2 ep 8 gbs 8 seq 4096 "
                                          "cp-comm p2p", &d), ERR_CONFIG);
    ck_assert_msg(test_has(d.text, (const char *[]){ "cp-comm p2p", "sliding window", "a2a or allgather", NULL }), "%s", d.text);
    test_job(&j, &a, "model gpt-oss-20b system host stack moefold gpus 8 cp 2 ep 8 gbs 8 seq 4096 cp-comm p2p");
    test_job(&j, &a, "model llama3-8b system h100-sxm stack mcore-2510 gpus 8 cp 2 gbs 8 seq 4096 cp-comm p2p");
    ck_assert_int_eq(test_job_try(&j, &a, "model llama3-8b system h100-sxm stack mcore-2510 gpus 8 cp 2 gbs 8 seq 4098 "
                                          "cp-comm p2p", &d), ERR_CONFIG);
    arena_free(&a);
}
END_TEST

int main(void)
{
    const struct test_loop tests[] = {
        { a_ring_equals_one_rank, 2 * ((LEN(folds) - 1) / PARITY_STRIDE + 1) },
        { blocks_share_the_work, 0 },
        { rings_without_windows_are_refused_by_name, 0 },
        { a_ring_shifts_as_often_as_it_must, 0 },
    };
    return test_main_loops("ring", NULL, tests, LEN(tests), 120);
}
