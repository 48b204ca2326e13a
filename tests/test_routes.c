/* Recorded routing as a file, and as what a run takes: choices that no router would make are taken all the same, and alike by
 * every fold (case: router replay); what is no such file is refused. */
#include "tests/parity.h"
#include "tests/test.h"
#include <unistd.h>

static void run(struct parity *p, const struct fold *f, const struct routes *r, int replay)
{
    parity_open(p, f, 1, OPTIMIZER_SGD);
    p->ask.steps = 3;
    p->ask.routes = r;
    p->ask.replay = replay;
    ck_assert_msg(parity_run(p) == OK, "%s", p->d.text);
}

/* Every choice becomes the next expert. */
static void turn(struct routes *r)
{
    const int64_t n = (int64_t)r->steps * r->layers * r->gbs * r->seq * r->topk;
    for (int64_t i = 0; i < n; i++)
        if (r->pick[i] >= 0) r->pick[i] = (r->pick[i] + 1) % r->experts;
}

START_TEST(a_run_takes_what_it_is_given)
{
    const struct fold one = { .name = "one rank", .family = MLA }, many = { .name = "dp2 ep2 pp2", .family = MLA, .pp = 2, .dp = 2, .ep = 2 };
    struct parity p, q, own;
    struct routes r;
    struct arena a = { 0 };
    struct job j = parity_job(&one, 1, OPTIMIZER_SGD);
    j.plan.mtp = 1;
    routes_make(&r, &a, &j, 3);
    run(&own, &one, &r, 0);
    turn(&r);
    run(&p, &one, &r, 1);
    run(&q, &many, &r, 1);
    ck_assert(fabs(p.r.step[0].loss - own.r.step[0].loss) > 1e-4);
    const char *off = parity_loss_differs(&q, &p), *gradients = parity_gradients_differ(&q, &p);
    ck_assert_msg(!off && !gradients, "%s %s", off ? off : "", gradients ? gradients : "");
    parity_close(&p), parity_close(&q), parity_close(&own);
    arena_free(&a);
}
END_TEST

static const char path[] = "test_routes.file";

static void write_file(const char *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    ck_assert(f && fwrite(bytes, 1, n, f) == n && fclose(f) == 0);
}

static struct routes sample(struct arena *a)
{
    const struct fold one = { .name = "one rank", .family = GQA };
    const struct job j = parity_job(&one, 1, OPTIMIZER_SGD);
    struct routes r;
    routes_make(&r, a, &j, 2);
    r.first_step = 5;
    const int64_t tokens = (int64_t)r.steps * r.layers * r.gbs * r.seq;
    for (int64_t t = tokens / 4; t < tokens; t++)       /* the first layers of a step may be dense: nothing recorded */
        for (int i = 0; i < r.topk; i++) r.pick[t * r.topk + i] = (int32_t)(t + 3 * i) % r.experts;
    return r;
}

START_TEST(a_file_holds_all_choices)
{
    struct arena a = { 0 };
    struct diag d;
    struct routes r = sample(&a), back;
    size_t size_B;
    const char *bytes = routes_bytes(&size_B, &a, &r);
    const size_t n = (size_t)r.steps * (size_t)r.layers * (size_t)r.gbs * (size_t)r.seq * (size_t)r.topk;
    write_file(bytes, size_B);
    ck_assert_msg(routes_read(&back, &a, path, &d) == OK, "%s", d.text);
    ck_assert(back.first_step == 5 && back.steps == r.steps && back.layers == r.layers && back.experts == r.experts);
    ck_assert_mem_eq(back.pick, r.pick, n * sizeof *r.pick);
    for (size_t at = 0; at < size_B; at += 97) {        /* any byte changed, any end cut off */
        char *bad = arena_alloc(&a, size_B);
        memcpy(bad, bytes, size_B);
        bad[at] ^= 0x10;
        write_file(bad, size_B);
        ck_assert_msg(routes_read(&back, &a, path, &d) == ERR_CONFIG && strstr(d.text, path), "byte %zu changed", at);
        write_file(bytes, at);
        ck_assert_msg(routes_read(&back, &a, path, &d) == ERR_CONFIG && strstr(d.text, path), "%zu bytes", at);
    }
    unlink(path);
    arena_free(&a);
}
END_TEST

/* A whole file of choices that no router makes would leave the lists of a run. */
START_TEST(impossible_choices_are_refused)
{
    for (int kind = 0; kind < 3; kind++) {
        struct arena a = { 0 };
        struct diag d;
        struct routes r = sample(&a), back;
        size_t size_B;
        int32_t *pick = routes_at(&r, 1, 3, 0, 0);
        pick[1] = kind == 0 ? pick[0] : kind == 1 ? r.experts : -1;
        const char *bytes = routes_bytes(&size_B, &a, &r);
        write_file(bytes, size_B);
        ck_assert_int_eq(routes_read(&back, &a, path, &d), ERR_CONFIG);
        ck_assert_msg(strstr(d.text, "expert"), "%s", d.text);
        unlink(path);
        arena_free(&a);
    }
}
END_TEST

int main(void)
{
    const struct test_loop tests[] = {
        { a_run_takes_what_it_is_given, 0 },
        { a_file_holds_all_choices, 0 },
        { impossible_choices_are_refused, 0 },
    };
    return test_main_loops("routes", NULL, tests, LEN(tests), 120);
}
