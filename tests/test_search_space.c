/* The space of a search: its counts equal those of an independent program (a throw-away prototype of ours
 * that counted the same rules) and those of trying every combination of options; its inline rules and
 * plan_check agree on every one; what the user gave is not varied. */
#include "tests/test.h"
#include "sim/search_space.h"

static void open_job(struct job *j, struct arena *a, char fixed[64], const char *flags)
{
    const char *flag[64][2];
    struct diag d = { 0 };
    int n = 0;
    char *rest = arena_strdup(a, flags), *key, *value;
    memset(fixed, 0, 64);
    while ((key = strtok_r(rest, " ", &rest)) && (value = strtok_r(rest, " ", &rest))) {
        flag[n][0] = key;
        flag[n++][1] = value;
        fixed[cfg_opt(plan_opts, plan_n_opt, key) - plan_opts] = 1;
    }
    ck_assert_msg(plan_read_open(j, a, n, (const char *const (*)[2])flag, &d) == OK, "%s: %s", flags, d.text);
}

/* ---- counts of real models ---- */

/* with_shapes: times chunks per stage and shapes of layouts, MTP and orders not counted. */
static const struct { const char *model; int gpus, gbs; int64_t grids, gbs_valid, with_mbs, with_shapes;
} counted[] = {
    { "deepseek-v3", 64, 4096, 1595, 1595, 6380, 217692 },
    { "deepseek-v3", 256, 4096, 4826, 4826, 19304, 733120 },
    { "deepseek-v3", 1024, 4096, 11089, 11089, 44293, 1801835 },
    { "deepseek-v3", 4096, 4096, 20760, 20760, 81889, 3370903 },
    { "deepseek-v3", 16384, 4096, 30984, 30618, 117883, 5020743 },
    { "deepseek-v3", 72, 4096, 437, 145, 580, 3380 },
    { "deepseek-v3", 72, 4608, 437, 437, 2330, 395718 },
    { "deepseek-v3", 288, 4096, 2389, 766, 3064, 15412 },
    { "deepseek-v3", 288, 4608, 2389, 2389, 12710, 1813760 },
    { "deepseek-v3", 1152, 4096, 8249, 2521, 10084, 46372 },
    { "deepseek-v3", 1152, 4608, 8249, 8249, 43622, 5464019 },
    { "deepseek-v3", 4608, 4608, 20927, 20927, 108118, 11845586 },
    { "deepseek-v3", 16416, 4608, 4162, 441, 1764, 1764 },
    { "deepseek-v3", 18432, 4608, 41788, 40951, 204556, 19720480 },
    { "qwen3-235b-a22b", 64, 4096, 1596, 1596, 6384, 543496 },
    { "qwen3-235b-a22b", 256, 4096, 4694, 4694, 18776, 1852940 },
    { "qwen3-235b-a22b", 1024, 4096, 10410, 10410, 41581, 4319347 },
    { "qwen3-235b-a22b", 4096, 4096, 18669, 18669, 73657, 7584416 },
    { "qwen3-235b-a22b", 16384, 4096, 27044, 26739, 103059, 10482826 },
    { "qwen3-235b-a22b", 72, 4096, 730, 146, 584, 7384 },
    { "qwen3-235b-a22b", 72, 4608, 730, 730, 3796, 2147780 },
    { "qwen3-235b-a22b", 288, 4096, 4050, 802, 3208, 33196 },
    { "qwen3-235b-a22b", 288, 4608, 4050, 4050, 21052, 9830750 },
    { "qwen3-235b-a22b", 1152, 4096, 14112, 2710, 10840, 96520 },
    { "qwen3-235b-a22b", 1152, 4608, 14112, 14112, 73072, 28848343 },
    { "qwen3-235b-a22b", 4608, 4608, 35064, 35064, 177744, 58386880 },
    { "qwen3-235b-a22b", 16416, 4608, 7932, 882, 3528, 3528 },
    { "qwen3-235b-a22b", 18432, 4608, 68033, 66763, 327885, 89172816 },
    { "mixtral-8x22b", 64, 4096, 1265, 1265, 5060, 232468 },
    { "mixtral-8x22b", 256, 4096, 3050, 3050, 12200, 586600 },
    { "mixtral-8x22b", 1024, 4096, 5810, 5810, 23202, 1101170 },
    { "mixtral-8x22b", 4096, 4096, 9484, 9484, 37270, 1736778 },
    { "mixtral-8x22b", 16384, 4096, 13270, 13058, 49578, 2294962 },
    { "mixtral-8x22b", 72, 4096, 437, 145, 580, 2980 },
    { "mixtral-8x22b", 72, 4608, 437, 437, 2330, 404832 },
    { "mixtral-8x22b", 288, 4096, 2101, 670, 2680, 11320 },
    { "mixtral-8x22b", 288, 4608, 2101, 2101, 11174, 1547830 },
    { "mixtral-8x22b", 1152, 4096, 5726, 1690, 6760, 25480 },
    { "mixtral-8x22b", 1152, 4608, 5726, 5726, 30206, 3499794 },
    { "mixtral-8x22b", 4608, 4608, 11600, 11600, 59454, 6018868 },
    { "mixtral-8x22b", 16416, 4608, 3601, 360, 1440, 1440 },
    { "mixtral-8x22b", 18432, 4608, 19720, 19228, 94216, 8510726 },
};

START_TEST(counts_of_real_models)
{
    struct arena a = { 0 };
    struct job *j = arena_alloc(&a, sizeof *j);
    struct search_space s;
    char fixed[64];
    int64_t refused = 0;
    open_job(j, &a, fixed,
             arena_printf(&a, "model %s system gb200-nvl72 gpus %d gbs %d seq 4096", counted[_i].model,
                          counted[_i].gpus, counted[_i].gbs));
    search_space_init(&s, &a, j, fixed);
    ck_assert_int_eq(s.grids, counted[_i].grids);
    ck_assert_int_eq(s.gbs_valid, counted[_i].gbs_valid);
    ck_assert_int_eq(s.with_mbs, counted[_i].with_mbs);
    for (int k = 0; k < SEARCH_RULE_COUNT; k++) refused += s.refused[k];
    ck_assert_int_eq(refused + s.n_grid, s.foldings);
    arena_free(&a);
}
END_TEST

/* Shapes that Megatron-LM's flags can give a pipeline: the one spread evenly, and any number of layers on the first
 * and on the last stage, at least one a chunk, no more than on each of the equal stages between; two stages differ by
 * no more than two layers a chunk. A search walks the even one, or the one given. */
static int64_t layout_shapes(int layers, int pp, int vpp)
{
    int64_t n = 1;
    for (int first = vpp; pp > 1 && first < layers; first += vpp)
        for (int last = vpp; first + last <= layers; last += vpp) {
            const int rest = layers - first - last, middle = pp > 2 ? rest / (pp - 2) : 0;
            if (pp == 2) n += rest == 0 && abs(first - last) <= 2 * vpp;
            else n += rest == middle * (pp - 2) && middle % vpp == 0 && first <= middle && last <= middle;
        }
    return n;
}

/* Of the chunks that the space has for a grid and micro-batch, whatever the order and the weaving. */
enum { SHAPED = 128 };                  /* more than any of these models has layers */
static int64_t count_shapes(const struct search_space *s, int grid, int mbs, int64_t shapes[SHAPED][SHAPED])
{
    static struct search_point point[4 * LAYOUT_CHUNKS];
    const int layers = s->job->model.layers, pp = s->grid[grid].pp;
    const int64_t n = search_space_points(s, &s->grid[grid], grid, mbs, point).points;
    int64_t sum = 0;
    for (int64_t i = 0; i < n; i++) {
        if (i && point[i].vpp == point[i - 1].vpp) continue;
        int64_t *known = &shapes[pp][point[i].vpp];
        if (!*known) *known = layout_shapes(layers, pp, point[i].vpp);
        sum += *known;
    }
    return sum;
}

START_TEST(shapes_of_real_models)
{
    int64_t shapes[SHAPED][SHAPED] = { { 0 } };
    struct arena a = { 0 };
    struct job *j = arena_alloc(&a, sizeof *j);
    struct search_space s;
    char fixed[64];
    int64_t with_shapes = 0;
    open_job(j, &a, fixed,
             arena_printf(&a, "model %s system gb200-nvl72 gpus %d gbs %d seq 4096 mtp 0", counted[_i].model,
                          counted[_i].gpus, counted[_i].gbs));
    search_space_init(&s, &a, j, fixed);
    for (int g = 0; g < s.n_grid; g++)
        for (int mbs = s.mbs[0]; mbs <= s.mbs[1]; mbs++) with_shapes += count_shapes(&s, g, mbs, shapes);
    ck_assert_int_eq(with_shapes, counted[_i].with_shapes);
    arena_free(&a);
}
END_TEST

/* ---- every combination ---- */

static const char *const small[] = {
    "model tiny-moe system h100-sxm gpus 4 gbs 16 seq 48",
    "model tiny-moe system gb200-nvl72 gpus 6 gbs 24 seq 24",
    "model tiny-moe system h100-sxm gpus 8 gbs 8 seq 64 mbs 1",
    "model tiny-moe system h100-sxm gpus 8 gbs 16 seq 32 mbs 2 order tp-cp-ep-pp-dp",
    "model tiny-moe system host gpus 4 gbs 12 seq 16 capacity 1.5",
    "model tiny-moe system h100-sxm gpus 4 gbs 8 seq 16 vpp-group 3 mbs 1",
    "model tiny-moe system h100-sxm gpus 4 gbs 8 seq 16 schedule interleaved",
    "model tiny-moe system h100-sxm gpus 4 gbs 8 seq 16 ep-overlap 1 split-wgrad 1",
    "model tiny-moe system h100-sxm gpus 4 gbs 8 seq 16 layout Et|t|t|tL",
    "model tiny-moe system h100-sxm gpus 4 gbs 8 seq 16 recompute full",
    "model tiny-moe system h100-sxm gpus 4 gbs 8 seq 16 sp 0",
    "model tiny-moe system h100-sxm gpus 4 gbs 8 seq 16 cp-comm a2a",
    "model tiny-moe system h100-sxm gpus 4 gbs 8 seq 16 load drop:cf1",
    "model tiny-moe system h100-sxm gpus 4 gbs 8 seq 16 fsdp 1 ep 2",
    "model llama3-8b system h100-sxm gpus 4 gbs 8 seq 16 fsdp 1 cp 1",
    "model gpt-oss-20b system h100-sxm gpus 4 gbs 8 seq 128 dispatcher allgather",
    "model llama3-8b system h100-sxm gpus 4 gbs 8 seq 16 pp 2",
    "model tiny-moe system h100-sxm gpus 16 gbs 16 seq 32768 domain-gpus 4 dispatcher deepep",
};

struct tally { int64_t plans, refused; };

/* Every point and recompute set passes plan_check; returns how many there are. */
static int64_t check_points(const struct search_space *s, struct job *j)
{
    static struct search_point point[SEARCH_POINTS];
    struct diag d;
    int64_t plans = 0;
    for (int g = 0; g < s->n_grid; g++)
        for (int mbs = s->mbs[0]; mbs <= s->mbs[1]; mbs++) {
            const int64_t n = search_space_points(s, &s->grid[g], g, mbs, point).points;
            for (int64_t i = 0; i < n; i++)
                for (int r = 0; r < s->n_recompute[point[i].way.weave]; r++, plans++) {
                    *j = *s->job;
                    ck_assert_msg(search_space_plan(j, s, &point[i], s->recompute[point[i].way.weave][r], &d) ==
                                      OK,
                                  "%s", d.text);
                }
        }
    return plans;
}

static int is_given(const char fixed[64], const char *key)
{
    return fixed[cfg_opt(plan_opts, plan_n_opt, key) - plan_opts];
}

/* The recompute sets that a search tries: none, one of the modules that cost least for what they save, all of these, full. */
static int is_tried(const struct job *j, int set)
{
    const int all = (j->model.experts ? 1 << RECOMPUTE_MOE_ACT : 0) | 1 << RECOMPUTE_LAYERNORM |
                    (j->model.attention == ATTENTION_MLA ? 1 << RECOMPUTE_MLA_UP_PROJ : 0);
    const int one = (set & (set - 1)) == 0;
    return (one && !(set & ~(all | 1 << RECOMPUTE_FULL))) || set == all;
}

static int plan_passes(struct job *j, const struct job *from, const int v[12])
{
    struct diag d;
    struct plan *p = &j->plan;
    *j = *from;
    p->tp = v[0], p->cp = v[1], p->pp = v[2], p->etp = v[3], p->ep = v[4], p->vpp = v[5], p->mbs = v[6],
    p->order = v[7] & 1;
    p->ep_overlap = v[7] >> 1;
    p->recompute = v[8], p->dispatcher = v[9], p->cp_comm = v[10], p->fsdp = v[11];
    return plan_resolve(j, &d) == OK;
}

/* The dispatcher where experts are spread, the kind of cp where there is any, and fsdp where something is held twice, are what
 * the user gave or anything else; elsewhere they are the standard ones. */
static int is_way(const struct job *from, const char fixed[64], const int v[12])
{
    const int stage = from->plan.gpus / v[2], held_twice = stage / v[0] > 1 || (from->model.experts && stage / v[3] / v[4] > 1);
    if (is_given(fixed, "fsdp") ? v[11] != from->plan.fsdp : v[11] && !held_twice) return 0;
    const int given = is_given(fixed, "dispatcher"), standard = given ? from->plan.dispatcher : from->stack.dispatcher;
    const int spread = v[3] * v[4] > 1 && !given, ring = v[1] > 1 && !is_given(fixed, "cp-comm");
    return (spread || v[9] == standard) && (ring || v[10] == from->plan.cp_comm);
}

/* A value that the user gave must be that one. The second order counts where it differs from the first. */
static int is_asked(const struct job *from, const char fixed[64], const int v[12])
{
    const struct plan *p = &from->plan;
    const int given[9] = {
        p->tp, p->cp, p->pp, p->etp, p->ep, p->vpp, p->mbs, p->order | p->ep_overlap << 1, p->recompute};
    static const char *const key[] = { "tp", "cp", "pp", "etp", "ep", "vpp", "mbs" };
    for (int i = 0; i < LEN(key); i++)
        if (is_given(fixed, key[i]) && v[i] != given[i]) return 0;
    if (is_given(fixed, "order") ? (v[7] & 1) != p->order
                                 : (v[7] & 1) && (v[2] == 1 || p->gpus / v[0] / v[1] / v[2] == 1))
        return 0;
    if (is_given(fixed, "ep-overlap") && v[7] >> 1 != p->ep_overlap) return 0;
    if (!is_way(from, fixed, v)) return 0;
    return is_given(fixed, "recompute") ? v[8] == given[8] : is_tried(from, v[8]);
}

/* All degrees up to the GPUs, divisors or not. */
static int64_t try_all(struct job *j, const struct job *from, const char fixed[64])
{
    const int n = from->plan.gpus, chunks = from->model.layers + 2;
    int64_t plans = 0;
    int v[12];
    for (v[0] = 1; v[0] <= n; v[0]++)
        for (v[1] = 1; v[0] * v[1] <= n; v[1]++)
            for (v[2] = 1; v[0] * v[1] * v[2] <= n; v[2]++)
                for (v[3] = 1; v[2] * v[3] <= n; v[3]++)
                    for (v[4] = 1; v[2] * v[3] * v[4] <= n; v[4]++)
                        for (v[5] = 1; v[5] <= chunks && (v[5] == 1 || v[2] > 1); v[5]++)
                            for (v[6] = 1; v[6] <= 8; v[6]++)
                                for (v[7] = 0; v[7] < 4; v[7]++)
                                    for (v[8] = 0; v[8] < 2 << RECOMPUTE_FULL; v[8]++)
                                        for (v[9] = 0; v[9] <= DISPATCHER_ALLGATHER; v[9]++)
                                            for (v[10] = 0; v[10] <= CP_COMM_P2P; v[10]++)
                                                for (v[11] = 0; v[11] < 2; v[11]++)
                                                    if ((is_tried(from, v[8]) || v[8] == from->plan.recompute) &&
                                                        is_asked(from, fixed, v))
                                                        plans += plan_passes(j, from, v);
    return plans;
}

START_TEST(counts_are_what_passes)
{
    struct arena a = { 0 };
    struct job *j = arena_alloc(&a, sizeof *j), *scratch = arena_alloc(&a, sizeof *scratch);
    struct search_space s;
    char fixed[64];
    open_job(j, &a, fixed, small[_i]);
    search_space_init(&s, &a, j, fixed);
    const int64_t listed = check_points(&s, scratch), passing = try_all(scratch, j, fixed);
    ck_assert_msg(listed == s.plans && passing == s.plans,
                  "%s: counted %lld, listed %lld, %lld pass plan_check", small[_i], (long long)s.plans,
                  (long long)listed, (long long)passing);
    arena_free(&a);
}
END_TEST

/* ---- refusals ---- */

/* A refused folding fails plan_check whatever stands on it; one that is not refused passes with some
 * batch. */
START_TEST(refusals_are_plan_checks)
{
    static const char *const flags[] = {
        "model deepseek-v3 system gb200-nvl72 gpus 72 gbs 4608 seq 4096",
        "model qwen3-30b-a3b system h100-sxm gpus 48 gbs 48 seq 4096",
        "model mixtral-8x7b system h100-sxm gpus 24 gbs 240 seq 1536",
    };
    struct arena a = { 0 };
    struct job *j = arena_alloc(&a, sizeof *j), *one = arena_alloc(&a, sizeof *one);
    struct search_space s;
    struct diag d;
    char fixed[64];
    int seen[2] = { 0, 0 };
    open_job(j, &a, fixed, flags[_i]);
    search_space_init(&s, &a, j, fixed);
    for (int i = 0; i < s.n_size * s.n_size * s.n_size * s.n_size * s.n_size; i++) {
        int digit[5], rest = i;
        for (int k = 0; k < 5; k++, rest /= s.n_size) digit[k] = s.size[rest % s.n_size];
        const struct search_grid g = {
            .pp = digit[0], .tp = digit[1], .cp = digit[2], .etp = digit[3], .ep = digit[4]};
        const int stage = j->plan.gpus / g.pp;
        if (stage % (g.tp * g.cp) || stage % (g.etp * g.ep)) continue;
        *one = *j;
        one->plan.tp = g.tp, one->plan.cp = g.cp, one->plan.pp = g.pp, one->plan.etp = g.etp,
        one->plan.ep = g.ep;
        one->plan.gbs = stage / (g.tp * g.cp);      /* one micro-batch: only the folding can be at fault */
        const int refused = search_space_refuses(&s, &g) >= 0 || !s.layout[g.pp],
                  fails = plan_resolve(one, &d) != OK;
        ck_assert_msg(refused == fails, "tp %d cp %d pp %d etp %d ep %d: %s, but plan_check says %s", g.tp,
                      g.cp, g.pp, g.etp, g.ep, refused ? "refused" : "allowed", fails ? d.text : "ok");
        seen[refused]++;
    }
    ck_assert_int_eq(seen[0] + seen[1], s.foldings);
    ck_assert_int_gt(seen[0], 100);
    ck_assert_int_gt(seen[1], 100);
    arena_free(&a);
}
END_TEST

int main(void)
{
    const struct test_loop tests[] = {
        { counts_of_real_models, LEN(counted) },
        { shapes_of_real_models, LEN(counted) },
        { counts_are_what_passes, LEN(small) },
        { refusals_are_plan_checks, 3 },
    };
    return test_main_loops("search_space", NULL, tests, LEN(tests), 600);
}
