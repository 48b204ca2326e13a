/* Placement: full and partly used racks, and place_of over random plans against a walk over every rank of
 * every group that knows no strides. */
#include "models/place.h"
#include "tests/test.h"
#include <stdio.h>

enum { MOST = 1024, PLANS = 700 };

static struct job job;

static void set_plan(int gpus, int tp, int cp, int pp, int etp, int ep, int order)
{
    job = (struct job){ 0 };
    job.plan = (struct plan){ .gpus = gpus, .tp = tp, .cp = cp, .pp = pp, .etp = etp, .ep = ep, .order = order };
    job.plan.vpp = 1;
    job.plan.dp = gpus / (tp * cp * pp);
    job.plan.edp = gpus / (etp * ep * pp);
}

START_TEST(domains_are_filled_evenly)
{
    static const struct { int gpus, domain, per_host, want; } row[] = {
        { 256, 72, 4, 64 }, { 288, 72, 4, 72 }, { 1024, 8, 8, 8 }, { 1024, 72, 4, 64 }, { 72, 72, 4, 72 },
        { 4, 8, 8, 4 },     { 4, 72, 4, 4 },    { 12, 8, 8, 6 },   { 13, 8, 8, 1 },     { 8, 1, 1, 1 },
        { 96, 72, 4, 48 },  { 144, 72, 4, 72 }, { 36, 8, 8, 6 },   { 40, 8, 8, 8 },     { 8, 8, 0, 8 },
    };
    for (int i = 0; i < LEN(row); i++)
        ck_assert_int_eq(place_domain_gpus(row[i].gpus, row[i].domain, row[i].per_host), row[i].want);
}
END_TEST

/* Case E05: 64 hosts of 4 GPUs, 18 or 16 hosts of a rack used. */
START_TEST(full_racks_make_expert_groups_straddle)
{
    set_plan(256, 1, 1, 1, 1, 32, ORDER_TP_CP_EP_DP_PP);
    job.plan.domain_gpus = 72;
    struct place x = place_of(&job, GROUP_EP);
    ck_assert_int_eq(x.groups, 8);
    ck_assert_int_eq(x.straddles, 3);
    ck_assert_int_eq(x.link, LINK_NIC);
    ck_assert_int_eq(x.domains, 2);
    ck_assert_int_eq(x.in_domain, 8);
    ck_assert_int_eq(x.same_rail, 0);
    ck_assert_int_eq(x.nic_share, 2);       /* the second rack's: the end of group 2, the start of group 4 */
    const int split[][2] = { { 64, 8 }, { 128, 16 }, { 192, 24 } };        /* first rank, members in its domain */
    for (int i = 0; i < LEN(split); i++) {
        int here = 0;
        for (int r = split[i][0]; r < split[i][0] + 32; r++)
            here += place_domain(&job.plan, r) == place_domain(&job.plan, split[i][0]);
        ck_assert_int_eq(here, split[i][1]);
    }
    job.plan.domain_gpus = 64;
    x = place_of(&job, GROUP_EP);
    ck_assert_int_eq(x.straddles, 0);
    ck_assert_int_eq(x.link, LINK_NVLINK);
    ck_assert_int_eq(x.domains, 1);
    ck_assert_int_eq(place_domain(&job.plan, 255), 3);      /* still 4 racks */
}
END_TEST

START_TEST(expert_groups_of_64_in_full_racks)
{
    set_plan(256, 1, 1, 1, 1, 64, ORDER_TP_CP_EP_DP_PP);
    job.plan.domain_gpus = 72;
    ck_assert_int_eq(place_of(&job, GROUP_EP).straddles, 3);
    ck_assert_int_eq(place_of(&job, GROUP_EP).groups, 4);
    job.plan.domain_gpus = 64;
    ck_assert_int_eq(place_of(&job, GROUP_EP).straddles, 0);
}
END_TEST

START_TEST(hosts_of_8)
{
    set_plan(64, 2, 1, 2, 1, 32, ORDER_TP_CP_EP_DP_PP);
    job.plan.domain_gpus = 8;
    struct place x = place_of(&job, GROUP_EP);
    ck_assert_int_eq(x.link, LINK_NIC);
    ck_assert_int_eq(x.domains, 4);
    ck_assert_int_eq(x.in_domain, 8);
    ck_assert_int_eq(x.straddles, 0);
    ck_assert_int_eq(x.same_rail, 1);
    ck_assert_int_eq(x.nic_share, 1);
    ck_assert_int_eq(place_of(&job, GROUP_TP).link, LINK_NVLINK);
    x = place_of(&job, GROUP_DP);
    ck_assert_int_eq(x.in_domain, 4);
    ck_assert_int_eq(x.nic_share, 2);
    ck_assert_int_eq(place_of(&job, GROUP_CP).link, LINK_SELF);
    x = place_of(&job, GROUP_NEXT);
    ck_assert_int_eq(x.link, LINK_NIC);
    ck_assert_int_eq(x.groups, 32);
    ck_assert_int_eq(x.nic_share, 8);
    ck_assert_str_eq(place_link_name(LINK_NIC), "nic");
}
END_TEST

/* ---- every rank of every group ---- */
struct seen { int domains, fewest, most, rails; };

static struct seen look(const int32_t *ranks, int n, int8_t *touched)
{
    const int size = job.plan.domain_gpus;
    static int count[MOST];
    static char index[MOST][MOST];
    struct seen s = { .fewest = n, .rails = 1 };
    int first = -1;
    memset(count, 0, sizeof count);
    memset(touched, 0, MOST);
    for (int i = 0; i < n; i++) {
        const int d = ranks[i] / size;
        if (count[d]++ == 0) memset(index[d], 0, sizeof index[d]);
        index[d][ranks[i] % size] = touched[d] = 1;
    }
    for (int d = 0; d < MOST; d++) {
        if (!count[d]) continue;
        s.domains++;
        if (count[d] < s.fewest) s.fewest = count[d];
        if (count[d] > s.most) s.most = count[d];
        if (first < 0) first = d;
        else if (memcmp(index[d], index[first], sizeof index[d]) != 0) s.rails = 0;
    }
    return s;
}

/* Whether `rank` brings a group that nobody before it brought. Alone, every rank does. */
static int brings(enum group g, int rank, int index)
{
    const int last = fold_coord(&job.plan, rank).pp == job.plan.pp - 1;
    if (fold_size(&job, g) == 1) return 1;
    return g == GROUP_NEXT || g == GROUP_PREV ? !last || job.plan.vpp > 1 : index == 0;
}

static struct place walk(enum group g)
{
    static int32_t ranks[MOST];
    static int8_t touched[MOST];
    static struct seen seen[MOST];
    static int leaving[MOST];
    struct place x = { .size = fold_size(&job, g), .same_rail = 1, .nic_share = 1 };
    const int pairs = g == GROUP_PREV || g == GROUP_NEXT || (g == GROUP_EMBED && x.size == 2);
    int best = MOST;
    memset(leaving, 0, sizeof leaving);
    for (int r = 0; r < job.plan.gpus; r++) {
        const int index = fold_members(&job, g == GROUP_PREV ? GROUP_NEXT : g, r, ranks);
        if (!brings(g, r, index)) continue;
        const struct seen s = seen[x.groups++] = look(ranks, x.size, touched);
        const int sender = pairs ? place_domain(&job.plan, r) : -1;
        for (int d = 0; d < MOST; d++) leaving[d] += s.domains > 1 && (pairs ? d == sender : touched[d]);
        if (s.domains > x.domains || (s.domains == x.domains && s.fewest < x.in_domain))
            x.domains = s.domains, x.in_domain = s.fewest;
        x.same_rail &= s.rails;
        if (s.domains < best) best = s.domains;
    }
    for (int i = 0; i < x.groups; i++) x.straddles += seen[i].fewest != seen[i].most || seen[i].domains > best;
    for (int d = 0; d < MOST; d++) x.nic_share = leaving[d] > x.nic_share ? leaving[d] : x.nic_share;
    x.link = x.size == 1 ? LINK_SELF : x.domains == 1 ? LINK_NVLINK : LINK_NIC;
    return x;
}

static void random_plan(uint64_t *seed)
{
    static const int sizes[] = { 1, 1, 2, 3, 4, 5, 6, 8, 12, 16 };
    for (;;) {
        int x[5];
        for (int i = 0; i < 5; i++) x[i] = sizes[test_random(seed, LEN(sizes))];
        const int dense = x[0] * x[1] * x[2], expert = x[3] * x[4] * x[2], order = test_random(seed, 2);
        const int gpus = test_random(seed, 3) ? dense * (1 + test_random(seed, 32)) : 72 * (1 + test_random(seed, 8));
        if (gpus > 640 || gpus % dense || gpus % expert) continue;
        if (order == ORDER_TP_CP_EP_PP_DP && x[2] > 1 && gpus / dense != gpus / expert) continue;
        set_plan(gpus, x[0], x[1], x[2], x[3], x[4], order);
        job.plan.vpp = 1 + test_random(seed, 2);
        job.plan.domain_gpus = test_random(seed, 2) ? 1 + test_random(seed, 80) : place_domain_gpus(gpus, 72, 4);
        job.model.tied = test_random(seed, 2);
        job.model.kv_heads = x[0] % 2 ? 1 : x[0] / 2;
        return;
    }
}

struct shown { char text[160]; };

static struct shown place_shown(const struct place *x)
{
    struct shown s;
    snprintf(s.text, sizeof s.text, "size %d link %d domains %d in %d straddles %d of %d rail %d share %d", x->size,
             x->link, x->domains, x->in_domain, x->straddles, x->groups, x->same_rail, x->nic_share);
    return s;
}

static const char *plan_shown(void)
{
    static char text[160];
    const struct plan *p = &job.plan;
    snprintf(text, sizeof text, "gpus %d tp %d cp %d pp %d vpp %d etp %d ep %d order %d domain %d", p->gpus, p->tp,
             p->cp, p->pp, p->vpp, p->etp, p->ep, p->order, p->domain_gpus);
    return text;
}

START_TEST(place_of_equals_a_walk_over_every_rank)
{
    uint64_t seed = 7;
    int straddling = 0, apart = 0;
    for (int i = 0; i < PLANS; i++) {
        random_plan(&seed);
        for (enum group g = 0; g < GROUP_COUNT; g++) {
            const struct place got = place_of(&job, g), want = walk(g);
            ck_assert_msg(memcmp(&got, &want, sizeof got) == 0, "plan %d (%s), %s: got %s, want %s", i, plan_shown(),
                          fold_group_name(g), place_shown(&got).text, place_shown(&want).text);
            straddling += got.straddles > 0;
            apart += got.link == LINK_NIC && got.straddles == 0;
        }
    }
    ck_assert_int_gt(straddling, 1000);
    ck_assert_int_gt(apart, 1000);
}
END_TEST

int main(void)
{
    const TTest *const test[] = {
        domains_are_filled_evenly,
        full_racks_make_expert_groups_straddle,
        expert_groups_of_64_in_full_racks,
        hosts_of_8,
        place_of_equals_a_walk_over_every_rank,
    };
    return test_main("place", test, LEN(test), 600);
}
