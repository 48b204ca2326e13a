/* The two folds: the group lists of Megatron's documentation and of case C02 word for word, and over random plans
 * an independent reading of the order strings: a group is the ranks that agree on every axis it does not span. */
#include "models/fold.h"
#include "tests/test.h"
#include <stdio.h>

enum { MOST = 4096, PLANS = 600 };

static struct job job;
static int32_t ranks[MOST];

static void set_plan(int gpus, int tp, int cp, int pp, int etp, int ep, int order)
{
    job = (struct job){ 0 };
    job.plan = (struct plan){ .gpus = gpus, .tp = tp, .cp = cp, .pp = pp, .etp = etp, .ep = ep, .order = order };
    job.plan.vpp = 1;
    job.plan.dp = gpus / (tp * cp * pp);
    job.plan.edp = gpus / (etp * ep * pp);
}

/* All groups of a kind, each once, by their first members: "0,1 2,3". */
static const char *list(enum group g, int most)
{
    static char text[4096];
    const int n = fold_size(&job, g);
    int groups = 0;
    *text = 0;
    for (int r = 0; r < job.plan.gpus && groups < most; r++) {
        if (fold_members(&job, g, r, ranks) != 0) continue;
        for (int i = 0; i < n; i++) sprintf(text + strlen(text), "%s%d", i ? "," : groups ? " " : "", ranks[i]);
        groups++;
    }
    return text;
}

START_TEST(megatron_example_of_16_ranks)
{
    set_plan(16, 2, 2, 2, 1, 4, ORDER_TP_CP_EP_DP_PP);
    ck_assert_str_eq(list(GROUP_TP, 3), "0,1 2,3 4,5");
    ck_assert_str_eq(list(GROUP_CP, 3), "0,2 1,3 4,6");
    ck_assert_str_eq(list(GROUP_DP, 4), "0,4 1,5 2,6 3,7");
    ck_assert_str_eq(list(GROUP_DPCP, 4), "0,2,4,6 1,3,5,7 8,10,12,14 9,11,13,15");
    ck_assert_str_eq(list(GROUP_PP, 2), "0,8 1,9");
    ck_assert_str_eq(list(GROUP_EP, 4), "0,1,2,3 4,5,6,7 8,9,10,11 12,13,14,15");
    ck_assert_str_eq(list(GROUP_EDP, 4), "0,4 1,5 2,6 3,7");
    ck_assert_str_eq(list(GROUP_TPDPCP, 2), "0,1,2,3,4,5,6,7 8,9,10,11,12,13,14,15");
    ck_assert_str_eq(list(GROUP_WORLD, 9), "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15");
}
END_TEST

START_TEST(pipeline_before_data)
{
    set_plan(16, 2, 2, 2, 1, 4, ORDER_TP_CP_EP_PP_DP);
    ck_assert_str_eq(list(GROUP_PP, 5), "0,4 1,5 2,6 3,7 8,12");
    ck_assert_str_eq(list(GROUP_DP, 3), "0,8 1,9 2,10");
    ck_assert_str_eq(list(GROUP_DPCP, 3), "0,2,8,10 1,3,9,11 4,6,12,14");
    ck_assert_str_eq(list(GROUP_TPDPCP, 2), "0,1,2,3,8,9,10,11 4,5,6,7,12,13,14,15");
    ck_assert_str_eq(list(GROUP_EP, 2), "0,1,2,3 4,5,6,7");
    ck_assert_str_eq(list(GROUP_EDP, 3), "0,8 1,9 2,10");
}
END_TEST

START_TEST(experts_over_more_ranks_than_dp)                 /* case C02 */
{
    set_plan(32, 1, 16, 1, 1, 32, ORDER_TP_CP_EP_DP_PP);     /* (a) */
    ck_assert_int_eq(job.plan.dp, 2);
    ck_assert_int_eq(job.plan.edp, 1);
    ck_assert_int_eq(fold_size(&job, GROUP_DPCP), 32);
    ck_assert_int_eq(fold_size(&job, GROUP_EP), 32);
    set_plan(32, 1, 4, 1, 1, 8, ORDER_TP_CP_EP_DP_PP);       /* (b) */
    ck_assert_int_eq(fold_size(&job, GROUP_DP), 8);
    ck_assert_int_eq(fold_size(&job, GROUP_EDP), 4);
    set_plan(16, 8, 1, 1, 2, 4, ORDER_TP_CP_EP_DP_PP);       /* (c) */
    ck_assert_str_eq(list(GROUP_TP, 9), "0,1,2,3,4,5,6,7 8,9,10,11,12,13,14,15");
    ck_assert_str_eq(list(GROUP_DP, 2), "0,8 1,9");
    ck_assert_str_eq(list(GROUP_ETP, 2), "0,1 2,3");
    ck_assert_str_eq(list(GROUP_EP, 4), "0,2,4,6 1,3,5,7 8,10,12,14 9,11,13,15");
    ck_assert_str_eq(list(GROUP_TPEP, 2), "0,1,2,3,4,5,6,7 8,9,10,11,12,13,14,15");
    ck_assert_str_eq(list(GROUP_EDP, 2), "0,8 1,9");
}
END_TEST

START_TEST(etp_is_what_is_given)                            /* case C01: 16 GPUs, TP2 EP4 */
{
    set_plan(16, 2, 1, 1, 1, 4, ORDER_TP_CP_EP_DP_PP);
    ck_assert_int_eq(fold_size(&job, GROUP_EDP), 4);
    ck_assert_str_eq(list(GROUP_EP, 2), "0,1,2,3 4,5,6,7");
    set_plan(16, 2, 1, 1, 2, 4, ORDER_TP_CP_EP_DP_PP);
    ck_assert_int_eq(fold_size(&job, GROUP_EDP), 2);
    ck_assert_str_eq(list(GROUP_EP, 2), "0,2,4,6 1,3,5,7");
}
END_TEST

/* ---- an independent reading: axes in the order's words, decoded one after the other ---- */
enum axis { TP, CP, DP, PP, AXES };

/* The rank's place on every axis of a fold whose sizes are given, leftmost of `order` fastest. */
static void decode(int place[AXES], const int size[AXES], const enum axis order[AXES], int rank)
{
    for (int i = 0; i < AXES; i++) {
        place[order[i]] = rank % size[order[i]];
        rank /= size[order[i]];
    }
}

static void decode_plan(int place[AXES], int rank, int expert)
{
    static const enum axis order[][AXES] = { { TP, CP, DP, PP }, { TP, CP, PP, DP } };
    const struct plan *p = &job.plan;
    const int dense[AXES] = { p->tp, p->cp, p->dp, p->pp }, experts[AXES] = { p->etp, p->ep, p->edp, p->pp };
    decode(place, expert ? experts : dense, order[p->order], rank);
}

static const struct { enum group g; int expert, span; } kinds[] = {
    { GROUP_NONE, 0, 0 },
    { GROUP_TP, 0, 1 << TP },
    { GROUP_CP, 0, 1 << CP },
    { GROUP_DP, 0, 1 << DP },
    { GROUP_PP, 0, 1 << PP },
    { GROUP_DPCP, 0, 1 << CP | 1 << DP },
    { GROUP_TPDPCP, 0, 1 << TP | 1 << CP | 1 << DP },
    { GROUP_ETP, 1, 1 << TP },
    { GROUP_EP, 1, 1 << CP },
    { GROUP_EDP, 1, 1 << DP },
    { GROUP_PP, 1, 1 << PP },
    { GROUP_TPEP, 1, 1 << TP | 1 << CP },
    { GROUP_WORLD, 0, 1 << TP | 1 << CP | 1 << DP | 1 << PP },
};

static int same_group(int a, int b, int expert, int span)
{
    int x[AXES], y[AXES];
    decode_plan(x, a, expert);
    decode_plan(y, b, expert);
    for (int k = 0; k < AXES; k++)
        if (!(span >> k & 1) && x[k] != y[k]) return 0;
    return 1;
}

/* Both folds of a random number of GPUs, up to 256, with 72-GPU racks among them. */
static void random_plan(uint64_t *seed)
{
    static const int sizes[] = { 1, 2, 3, 4, 6, 8, 9, 12 };
    for (;;) {
        int x[5];
        for (int i = 0; i < 5; i++) x[i] = sizes[test_random(seed, LEN(sizes))];
        const int dense = x[0] * x[1] * x[2], expert = x[3] * x[4] * x[2], order = test_random(seed, 2);
        const int gpus = test_random(seed, 3) ? dense * (1 + test_random(seed, 8)) : 72 * (1 + test_random(seed, 3));
        if (gpus > 256 || gpus % dense || gpus % expert) continue;
        if (order == ORDER_TP_CP_EP_PP_DP && x[2] > 1 && gpus / dense != gpus / expert) continue;
        set_plan(gpus, x[0], x[1], x[2], x[3], x[4], order);
        return;
    }
}

static void check_group(int rank, enum group g, int expert, int span)
{
    const int n = fold_size(&job, g), index = fold_members(&job, g, rank, ranks);
    ck_assert_int_eq(ranks[index], rank);
    int members = 0;
    for (int r = 0; r < job.plan.gpus; r++) members += same_group(rank, r, expert, span);
    ck_assert_int_eq(members, n);
    for (int i = 0; i < n; i++) {
        ck_assert(same_group(rank, ranks[i], expert, span));
        if (i > 0) ck_assert_int_lt(ranks[i - 1], ranks[i]);
    }
    ck_assert_int_eq(fold_members(&job, g, rank, NULL), index);
}

START_TEST(groups_are_the_ranks_that_agree_elsewhere)
{
    uint64_t seed = 3;
    for (int i = 0; i < PLANS; i++) {
        random_plan(&seed);
        for (int k = 0; k < LEN(kinds); k++)
            for (int t = 0; t < 8; t++)
                check_group(test_random(&seed, job.plan.gpus), kinds[k].g, kinds[k].expert, kinds[k].span);
    }
}
END_TEST

START_TEST(coordinates_read_back)
{
    uint64_t seed = 4;
    for (int i = 0; i < PLANS; i++) {
        random_plan(&seed);
        for (int r = 0; r < job.plan.gpus; r++) {
            const struct coord c = fold_coord(&job.plan, r);
            int dense[AXES], expert[AXES];
            decode_plan(dense, r, 0);
            decode_plan(expert, r, 1);
            ck_assert(c.tp == dense[TP] && c.cp == dense[CP] && c.dp == dense[DP] && c.pp == dense[PP]);
            ck_assert(c.etp == expert[TP] && c.ep == expert[CP] && c.edp == expert[DP] && c.pp == expert[PP]);
            ck_assert_int_eq(fold_rank(&job.plan, c), r);
            ck_assert_int_eq(fold_rank_expert(&job.plan, c), r);
        }
    }
}
END_TEST

START_TEST(every_rank_of_a_group_lists_the_same_members)
{
    uint64_t seed = 5;
    for (int i = 0; i < PLANS; i++) {
        random_plan(&seed);
        job.model = (struct model){ .attention = ATTENTION_GQA, .kv_heads = job.plan.tp % 2 ? 1 : job.plan.tp / 2 };
        const int rank = test_random(&seed, job.plan.gpus);
        for (enum group g = 0; g < GROUP_COUNT; g++) {
            if (g == GROUP_PREV || g == GROUP_NEXT) continue;
            int32_t own[256], index = fold_members(&job, g, rank, own);
            for (int k = 0; k < fold_size(&job, g); k++) {
                ck_assert_int_eq(fold_members(&job, g, own[k], ranks), k);
                ck_assert_mem_eq(ranks, own, sizeof(int32_t) * (size_t)fold_size(&job, g));
            }
            if (index >= 0) ck_assert_int_eq(own[index], rank);
        }
    }
}
END_TEST

START_TEST(kv_groups_hold_the_same_heads)
{
    set_plan(16, 8, 1, 1, 1, 8, ORDER_TP_CP_EP_DP_PP);
    job.model = (struct model){ .attention = ATTENTION_GQA, .kv_heads = 2 };
    ck_assert_str_eq(list(GROUP_KV, 3), "0,1,2,3 4,5,6,7 8,9,10,11");
    job.model.kv_heads = 4;
    ck_assert_str_eq(list(GROUP_KV, 2), "0,1 2,3");
    for (int r = 0; r < 16; r++) {      /* K/V head of a rank: its tp index times heads over tp */
        fold_members(&job, GROUP_KV, r, ranks);
        for (int i = 0; i < 2; i++)
            ck_assert_int_eq(fold_coord(&job.plan, ranks[i]).tp * 4 / 8, fold_coord(&job.plan, r).tp * 4 / 8);
    }
    job.model.kv_heads = 8;
    ck_assert_int_eq(fold_size(&job, GROUP_KV), 1);
    job.model = (struct model){ .attention = ATTENTION_MLA, .kv_heads = 1 };
    ck_assert_int_eq(fold_size(&job, GROUP_KV), 1);
}
END_TEST

START_TEST(neighbours_are_sender_and_receiver)
{
    int32_t next[2], prev[2];
    uint64_t seed = 6;
    for (int i = 0; i < PLANS; i++) {
        random_plan(&seed);
        const int r = test_random(&seed, job.plan.gpus), pp = job.plan.pp;
        const int at = fold_members(&job, GROUP_NEXT, r, next);
        ck_assert_int_eq(at, 0);
        ck_assert_int_eq(next[0], r);
        if (pp == 1) {
            ck_assert_int_eq(fold_size(&job, GROUP_NEXT), 1);
            ck_assert_int_eq(fold_size(&job, GROUP_PREV), 1);
            continue;
        }
        struct coord c = fold_coord(&job.plan, r);
        c.pp = (c.pp + 1) % pp;
        ck_assert_int_eq(next[1], fold_rank(&job.plan, c));
        ck_assert_int_eq(next[1], fold_rank_expert(&job.plan, c));
        ck_assert_int_eq(fold_members(&job, GROUP_PREV, next[1], prev), 1);
        ck_assert_mem_eq(prev, next, sizeof next);
    }
}
END_TEST

START_TEST(embed_spans_the_stages_that_hold_the_table)
{
    int32_t stage[2];
    set_plan(16, 2, 1, 4, 1, 2, ORDER_TP_CP_EP_DP_PP);
    ck_assert_int_eq(fold_embed_stages(&job, stage), 1);
    ck_assert_int_eq(stage[0], 0);
    ck_assert_int_eq(fold_size(&job, GROUP_EMBED), 1);
    job.model.tied = 1;
    ck_assert_int_eq(fold_embed_stages(&job, stage), 2);
    ck_assert_int_eq(stage[1], 3);
    ck_assert_int_eq(fold_members(&job, GROUP_EMBED, 1, ranks), 0);
    ck_assert(ranks[0] == 1 && ranks[1] == 13);
    ck_assert_int_eq(fold_members(&job, GROUP_EMBED, 13, ranks), 1);
    ck_assert(ranks[0] == 1 && ranks[1] == 13);
    ck_assert_int_eq(fold_members(&job, GROUP_EMBED, 5, ranks), -1);
    ck_assert(ranks[0] == 1 && ranks[1] == 13);
    job.model.tied = 0;
    job.model.mtp = 1;
    ck_assert_int_eq(fold_size(&job, GROUP_EMBED), 2);
    for (int c = 0; c < 4; c++) {               /* MTP's stage holds it, wherever that is */
        job.plan.split = (struct layout){ .n_chunk = 4, .mtp_chunk = c, .mtp = 1 };
        ck_assert_int_eq(fold_embed_stages(&job, stage), c ? 2 : 1);
        ck_assert_int_eq(stage[c > 0], c);
    }
    job.plan.split = (struct layout){ 0 };
    set_plan(16, 2, 1, 1, 1, 2, ORDER_TP_CP_EP_DP_PP);
    job.model.tied = 1;
    ck_assert_int_eq(fold_size(&job, GROUP_EMBED), 1);
}
END_TEST

START_TEST(names_are_those_of_the_list)
{
    ck_assert_str_eq(fold_group_name(GROUP_NONE), "none");
    ck_assert_str_eq(fold_group_name(GROUP_DPCP), "dp-cp");
    ck_assert_str_eq(fold_group_name(GROUP_WORLD), "world");
}
END_TEST

int main(void)
{
    const TTest *const test[] = {
        megatron_example_of_16_ranks,
        pipeline_before_data,
        experts_over_more_ranks_than_dp,
        etp_is_what_is_given,
        groups_are_the_ranks_that_agree_elsewhere,
        coordinates_read_back,
        every_rank_of_a_group_lists_the_same_members,
        kv_groups_hold_the_same_heads,
        neighbours_are_sender_and_receiver,
        embed_spans_the_stages_that_hold_the_table,
        names_are_those_of_the_list,
    };
    return test_main("fold", test, LEN(test), 300);
}
