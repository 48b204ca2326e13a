/* What is said of plans that are legal and fit badly: case E05's hint to the scheduler, racks of 72 of which 64 are used,
 * batches too small or of the wrong divisors; and that what is advised is taken and helps. */
#include "tests/test.h"
#include "tools/counsel.h"
#include <stdio.h>

struct asked { struct arena a; struct job j; struct predict r; struct counsel_row row[COUNSEL_ROWS]; int n; };

static void ask(struct asked *x, const char *flags)
{
    *x = (struct asked){ .n = 0 };
    test_job(&x->j, &x->a, flags);
    predict_job(&x->r, NULL, &x->a, &x->j);
    x->n = counsel_plan(x->row, &x->a, &x->j, &x->r);
}

static const struct counsel_row *find(const struct asked *x, const char *about, const char *says)
{
    for (int i = 0; i < x->n; i++)
        if (strcmp(x->row[i].about, about) == 0 && strstr(x->row[i].says, says)) return &x->row[i];
    return NULL;
}

/* "--key value" pairs as test_job takes them, in front of the plan's own, which give way. */
static char *changed(struct arena *a, const char *flags, const char *by)
{
    char *text = arena_strdup(a, ""), *rest = arena_strdup(a, flags), *key, *value;
    while ((key = strtok_r(rest, " ", &rest)) && (value = strtok_r(rest, " ", &rest)))
        if (!strstr(by, arena_printf(a, "--%s ", key))) text = arena_printf(a, "%s%s %s ", text, key, value);
    rest = arena_strdup(a, by);
    while ((key = strtok_r(rest, " ", &rest)) && (value = strtok_r(rest, " ", &rest)))
        text = arena_printf(a, "%s%s %s ", text, key + 2, value);
    return text;
}

#define RACKS "model qwen3-30b-a3b system gb200-nvl72 gpus 256 gbs 2048 seq 4096 ep 32 "

/* Case E05: 3 of 8 groups of 32 straddle full racks of 18 hosts; segments of 8 hosts. */
START_TEST(expert_groups_and_racks)
{
    struct asked x, y;
    ask(&x, RACKS "domain-gpus 72");
    const struct counsel_row *row = find(&x, "placement", "3 of 8 tp-ep groups straddle");
    ck_assert(row && strcmp(row->flags, "--domain-gpus 64") == 0);
    ck_assert(find(&x, "placement", "segments of 8 within one NVLink domain (Slurm: --segment=8)"));
    ck_assert(find(&x, "idle", "the last of 4 NVLink domains has 32 GPUs idle; 72 hold no whole groups of 32"));
    ask(&y, RACKS "domain-gpus 64");
    ck_assert(!find(&y, "placement", "straddle") && find(&y, "placement", "segments of 8"));
    ck_assert(y.r.step_s < x.r.step_s);
    row = find(&y, "idle", "64 of 72 GPUs of each of 4 NVLink domains are used, 32 are left idle");
    ck_assert_str_eq(row->flags, "--gpus 288 --domain-gpus 72 --ep 8 --gbs 2016");
    arena_free(&x.a);
    ask(&x, changed(&y.a, RACKS, row->flags));      /* what is advised is legal, and nobody is idle */
    ck_assert(!find(&x, "idle", "") && !find(&x, "placement", "straddle"));
    arena_free(&x.a);
    arena_free(&y.a);
}
END_TEST

START_TEST(nothing_to_say)
{
    static const char *const flags[] = {
        "model qwen3-30b-a3b system h100-sxm gpus 8 gbs 64 seq 4096 ep 8", "model llama3-8b system gb200-nvl72 gpus 72 tp 8 gbs 72 seq 4096",
        "model llama3-8b system h100-sxm gpus 16 pp 4 gbs 1024 seq 4096",
    };
    for (int i = 0; i < LEN(flags); i++) {
        struct asked x;
        ask(&x, flags[i]);
        ck_assert_msg(x.n == 0, "%s: %s", flags[i], x.n ? x.row[0].says : "");
        arena_free(&x.a);
    }
}
END_TEST

/* A batch of 4 micro-batches on 4 stages: each way out has much less of a bubble. */
START_TEST(a_batch_too_small)
{
    static const char plan[] = "model llama3-8b system h100-sxm gpus 8 pp 4 mbs 2 gbs 16 seq 4096 ";
    struct asked x;
    ask(&x, plan);
    const double before = x.r.lines.bubble_s / x.r.step_s;
    ck_assert_int_eq(x.n, 3);
    for (int i = 0; i < x.n; i++) {
        struct asked y;
        ck_assert_str_eq(x.row[i].about, "batch");
        ask(&y, changed(&x.a, plan, x.row[i].flags));
        const double now = y.r.lines.bubble_s / y.r.step_s;
        ck_assert_msg(now < (i ? 0.8 : 0.4) * before, "%s: %g, before %g", x.row[i].flags, now, before);
        arena_free(&y.a);
    }
    arena_free(&x.a);
}
END_TEST

/* 144 = 2^4 x 9 GPUs: 1024 is divided by few foldings, 1008 = 7 x 144 by all. */
START_TEST(a_batch_of_other_divisors)
{
    static const struct { const char *gbs, *flags; } row[] = { { "1024", "--gbs 1008" }, { "1008", NULL }, { "1000", "--gbs 1008" } };
    for (int i = 0; i < LEN(row); i++) {
        struct arena a = { 0 };
        struct job *j = arena_alloc(&a, sizeof *j);
        struct search_ask search = { .top = 1, .simulate = 1 };
        struct search_result r;
        struct counsel_row said[COUNSEL_ROWS];
        struct diag d = { "" };
        test_job_open(j, &a, search.fixed, arena_printf(&a, "model qwen3-30b-a3b system gb200-nvl72 gpus 144 seq 4096 gbs %s", row[i].gbs));
        ck_assert_msg(search_run(&r, &a, j, &search, &d) == OK, "%s", d.text);
        const int n = counsel_batch(said, &a, j, &search, &r);
        ck_assert_int_eq(n, row[i].flags != NULL);
        if (n) ck_assert_str_eq(said[0].flags, row[i].flags);
        arena_free(&a);
    }
}
END_TEST

int main(void)
{
    const TTest *const tests[] = { expert_groups_and_racks, nothing_to_say, a_batch_too_small, a_batch_of_other_divisors };
    return test_main("counsel", tests, LEN(tests), 120);
}
