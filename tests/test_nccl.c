/* Systems from NCCL's topology and from nccl-tests: figures by hand, systems read back, hundreds of damaged files. */
#include "tests/test.h"
#include "tools/nccl.h"
#include <stdio.h>

static char *file(struct arena *a, const char *name)
{
    char *text = arena_alloc(a, 1 << 16);
    FILE *in = fopen(arena_printf(a, "%s/tests/data/nccl/%s", SOURCE_DIR, name), "r");
    ck_assert_ptr_nonnull(in);
    ck_assert_uint_lt(fread(text, 1, (1 << 16) - 1, in), (1 << 16) - 1);
    fclose(in);
    return text;
}

static enum err read_one(struct system *s, struct arena *a, const char *name, const char *text, struct diag *d)
{
    struct nccl_said said;
    const int xml = strstr(name, ".xml") != NULL;
    const enum err e = xml ? nccl_topo(s, &said, a, name, text, strlen(text), d) : nccl_tests(s, &said, a,
        name, text, d);
    if (e == OK) ck_assert_int_gt(said.n, 0);
    return e;
}

static struct system system_of(struct arena *a, const char *base)
{
    struct system s;
    struct diag d = { 0 };
    ck_assert_msg(system_read(&s, a, base, &d) == OK, "%s", d.text);
    return s;
}

static struct system imported(struct arena *a, const char *base, const char *name)
{
    struct system s = system_of(a, base);
    struct diag d = { 0 };
    ck_assert_msg(read_one(&s, a, name, file(a, name), &d) == OK, "%s", d.text);
    return s;
}

START_TEST(topology)
{
    struct arena a = { 0 };
    const struct system s = imported(&a, "gb200-nvl72", "h100.xml");
    ck_assert_int_eq(s.gpus_per_host, 8);
    ck_assert_int_eq(s.domain, 8);
    ck_assert_double_eq_tol(s.nvlink_B_per_s, 450e9, 1);
    ck_assert_double_eq_tol(s.nic_B_per_s, 50e9, 1);
    ck_assert_double_eq_tol(s.host_link_B_per_s, 32e9 * 16 * 128 / 130 / 8, 1);
    arena_free(&a);
}
END_TEST

START_TEST(tests)
{
    struct arena a = { 0 };
    const struct system base = system_of(&a, "h100-sxm"), one = imported(&a, "h100-sxm", "all_reduce_8.txt"),
                        two = imported(&a, "h100-sxm", "alltoall_16.txt");
    ck_assert_double_eq_tol(one.eff_nvls, 478.9 * 9 / 14 / 450, 1e-3);         /* a rank sends n + 1 parts,
                                                                                  not 2 (n - 1) */
    ck_assert_double_eq(one.eff_nvlink, base.eff_nvlink);
    ck_assert_double_eq_tol(one.nvlink_call_s, 40e-6 - base.kernel_s - 14 * base.nvlink_latency_s, 2e-7);
    ck_assert_double_eq_tol(two.eff_nic_alltoall, 60.0 * 8 / 15 / 50, 1e-3);   /* 8 of 15 peers are on the
                                                                                  other host */
    arena_free(&a);
}
END_TEST

/* Every figure comes back from the text. */
START_TEST(written_and_read)
{
    struct arena a = { 0 };
    static const char *const bases[] = { "h100-sxm", "gb200-nvl72", "host" };
    for (int i = 0; i < LEN(bases); i++) {
        struct cfg c;
        struct system s = system_of(&a, bases[i]), back;
        struct diag d = { 0 };
        const char *text = system_text(&a, &s);
        ck_assert_msg(cfg_read_text(&c, &a, "system.yaml", text, strlen(text), &d) == OK, "%s", d.text);
        ck_assert_msg(system_fill(&back, &c, &d) == OK, "%s", d.text);
        for (int k = 0; k < system_n_opt; k++)
            if (system_opts[k].type == OPT_NUMBER)
                ck_assert_double_eq(*(double *)((char *)&s + system_opts[k].at),
                    *(double *)((char *)&back + system_opts[k].at));
        ck_assert_int_eq(s.domain, back.domain);
    }
    arena_free(&a);
}
END_TEST

static void refused(const char *base, const char *name, const char *text, const char *says)
{
    struct arena a = { 0 };
    struct system s = system_of(&a, base);
    struct diag d = { 0 };
    ck_assert_msg(read_one(&s, &a, name, text, &d) == ERR_CONFIG, "passed: %s", text);
    ck_assert_msg(strstr(d.text, says) && !strchr(d.text, '\n') && strncmp(d.text, name, strlen(name)) == 0,
        "'%s' lacks '%s'",
                  d.text, says);
    arena_free(&a);
}

START_TEST(refusals)
{
    static const char ranks[] = "# Rank 0 Group 0 Pid 1 on a device 0\n# Rank 1 Group 0 Pid 2 on a device 1\n";
    struct arena a = { 0 };
    refused("h100-sxm", "x.xml", "", ":1:1");
    refused("h100-sxm", "x.xml", "<graphs/>", "<system>");
    refused("h100-sxm", "x.xml", "<system><gpu sm=\"90\">", "not XML");
    refused("h100-sxm", "x.xml", "<system></system>", "no <gpu>");
    refused("h100-sxm", "x.xml", "<system>\n <gpu sm=\"ninety\"/></system>", ":2:2: sm is 'ninety'");
    refused("h100-sxm", "x.xml", "<system><gpu/></system>", "absent");
    refused("h100-sxm", "x.xml", "<system><gpu sm=\"90\"/><gpu sm=\"80\"/></system>", "generations");
    refused("h100-sxm", "x.xml", "<system><gpu sm=\"90\"><nvlink count=\"2\"/></gpu><gpu "
        "sm=\"90\"/></system>", "GPU 1 has 0");
    refused("h100-sxm", "x.xml", "<!DOCTYPE s [<!ENTITY e \"x\">]><system>&e;</system>", "document type");
    refused("h100-sxm", "x.txt", "", "which collective");
    refused("h100-sxm", "alltoall.txt", "", "no row");
    refused("h100-sxm", "alltoall.txt", "1024 256 float none -1 9.0 1.0 1.0 0", "0 ranks");
    refused("h100-sxm", "alltoall.txt", "12 13 float", ":1: not a row");
    refused("h100-sxm", "alltoall.txt", arena_printf(&a, "%s1024 256 float none -1 9.0 1.0 900.0 0", ranks),
        "more than the link");
    refused("h100-sxm", "alltoall.txt", arena_printf(&a, "%s1024 256 float none -1 nan 1.0 90.0 0", ranks),
        "no machine");
    arena_free(&a);
}
END_TEST

/* Bytes replaced, cut out and doubled: an answer, or one line that begins with the file. */
START_TEST(damaged)
{
    static const char *const names[] = { "h100.xml", "all_reduce_8.txt", "alltoall_16.txt" };
    uint64_t seed = 7;
    for (int f = 0; f < LEN(names); f++) {
        struct arena a = { 0 };
        const char *whole = file(&a, names[f]);
        const struct system base = system_of(&a, "h100-sxm");
        const int n = (int)strlen(whole);
        int bad = 0;
        for (int i = 0; i < 400; i++) {
            struct arena own = { 0 };
            struct diag d = { 0 };
            struct system s = base;
            char *text = arena_strdup(&own, whole);
            const int at = test_random(&seed, n), some = 1 + test_random(&seed, 40);
            if (i % 3 == 0) text[at] = (char)(1 + test_random(&seed, 126));
            else if (i % 3 == 1) text[at] = '\0';
            else if (at + some < n) memmove(text + at, text + at + some, (size_t)(n - at - some) + 1);
            if (read_one(&s, &own, names[f], text, &d) == OK) {
                ck_assert_msg(system_check(&s, &d) == OK, "%s", d.text);
            } else {
                ck_assert_msg(d.text[0] && !strchr(d.text, '\n') && strncmp(d.text, names[f],
                    strlen(names[f])) == 0, "'%s'", d.text);
                ck_assert_int_eq(memcmp(&s, &base, sizeof s), 0);
                bad++;
            }
            arena_free(&own);
        }
        ck_assert_int_gt(bad, f == 0 ? 200 : 20);
        arena_free(&a);
    }
}
END_TEST

int main(void)
{
    const TTest *const all[] = { topology, tests, written_and_read, refusals, damaged };
    return test_main("nccl", all, LEN(all), 60);
}
