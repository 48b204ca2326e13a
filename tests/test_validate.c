/* What `validate` promises before any price is asked: records become the plans that the rules say; sources count as
 * they state; pairs and figures are those that a small table has by hand. Rules of the tests' own name options that
 * no plan will have, so that features do not age them. */
#include "tools/validate.h"
#include "tests/test.h"
#include <math.h>
#include <stdio.h>

static const char test_rules[] =
    "columns:\n"
    "  model: {option: model}\n"
    "  system: {option: system}\n"
    "  gpus: {option: gpus}\n"
    "  seq_len: {option: seq}\n"
    "  gbs: {option: gbs}\n"
    "  mbs: {option: mbs}\n"
    "  tp: {option: tp}\n"
    "  pp: {option: pp}\n"
    "  vp: {option: vpp}\n"
    "  ep: {option: ep, only: moe}\n"
    "  must: {option: no-such-option}\n"
    "  wing: {option: no-such-flag, else: 0}\n"
    "  recompute: {option: recompute, else: none}\n"
    "  dispatcher: {option: dispatcher, values: {'all.to': alltoall}, else: alltoall, only: moe}\n"
    "  sp: {option: sp, else: 1}\n"
    "blank:\n"
    "  - {column: mbs, value: 2, when: {source: ['old-*', older], kind: moe}}\n"
    "  - {column: mbs, value: 1}\n"
    "  - {column: vp, value: most 4, when: {pp: '!1'}}\n"
    "  - {column: tp, value: $ep}\n"
    "  - {column: wing, value: 0}\n"
    "  - {column: dispatcher, value: alltoall}\n"
    "sources:\n"
    "  - {source: 'old-*', set: {stack: mcore-2510}, attention: full, recomputed: 1, peak: 100 TFLOP/s}\n"
    "  - {source: renamed, models: {tiny-moe: qwen3-30b-a3b}}\n"
    "  - {source: '*', set: {stack: mcore-2510}, memory: allocated, memory_rank: first}\n";

struct fixture { struct arena a; struct diag d; struct validate_rules rules; struct csv csv; };

static void table_open(struct fixture *f, const char *rules, const char *text)
{
    *f = (struct fixture){ .d = { "" } };
    ck_assert_msg(validate_rules_read_text(&f->rules, &f->a, "rules", rules, &f->d) == OK, "%s", f->d.text);
    ck_assert_msg(csv_read_text(&f->csv, &f->a, "t.csv", text, strlen(text), &f->d) == OK, "%s", f->d.text);
}

static void row_open(struct validate_row *row, struct validate_record *of, struct fixture *f, int i)
{
    *of = (struct validate_record){ &f->csv, i, 0 };
    *row = (struct validate_row){ .index = i, .ab = 1, .scored = 1, .id = validate_rules_cell(of, "id"),
                                  .source = validate_rules_cell(of, "source"),
                                  .model = validate_rules_cell(of, "model"),
                                  .measured = 1, .inferred = "", .approximated = "" };
}

static enum err map_row(struct job *j, struct validate_row *row, struct fixture *f, int i)
{
    struct validate_record of;
    row_open(row, &of, f, i);
    f->d.text[0] = '\0';
    return validate_map_job(j, row, &f->a, &f->rules, &of, &f->d);
}

/* ---- rules ---- */

START_TEST(rules_refusals)
{
    static const struct { const char *text, *parts[3]; } bad[] = {
        { "columns: {}\nblank: []\n", { "sources is missing" } },
        { "columns: []\nblank: []\nsources: []\n", { "r:1:10", "columns is a map" } },
        { "columns: {a: {option: x, els: 1}}\nblank: []\nsources: []\n", { "no key 'els'" } },
        { "columns: {a: {else: 1}}\nblank: []\nsources: []\n", { "option is missing" } },
        { "columns: {a: {option: x, only: dense}}\nblank: []\nsources: []\n", { "only is not moe" } },
        { "columns: {a: {option: x, values: {b: []}}}\nblank: []\nsources: []\n", { "b of values is no text" } },
        { "columns: {}\nblank: [{column: a}]\nsources: []\n", { "r:2:9", "value is missing" } },
        { "columns: {}\nblank: [{column: a, value: 1, when: b}]\nsources: []\n", { "when is a map" } },
        { "columns: {}\nblank: []\nsources: [{source: a, attention: half}]\n", { "is not causal or full" } },
        { "columns: {}\nblank: []\nsources: [{source: a, peak: 3}]\n", { "peak is not a rate" } },
        { "columns: {}\nblank: []\nsources: [{source: a, set: 3}]\n", { "set is a map" } },
        { "columns: {}\nblank: []\nsources: []\nfudge: {}\n", { "no key 'fudge'" } },
    };
    for (int i = 0; i < LEN(bad); i++) {
        struct arena a = { 0 };
        struct diag d = { "" };
        struct validate_rules r;
        ck_assert_int_eq(validate_rules_read_text(&r, &a, "r", bad[i].text, &d), ERR_CONFIG);
        ck_assert_msg(test_has(d.text, bad[i].parts), "%d: %s", i, d.text);
        arena_free(&a);
    }
}
END_TEST

START_TEST(rules_blanks)
{
    struct fixture f;
    const struct model m = { .layers = 24 };
    table_open(&f, test_rules, "id,source,pp,tp,ep,gpus,gbs,mbs\n"
                               "a,old-1,1,,8,8,8,1\n"
                               "b,new,4,,,16,32,1\n"        /* 4 sets of 4 GPUs, 8 micro-batches, 6 layers a stage */
                               "c,older,4,,,16,24,1\n"      /* 6 micro-batches are no whole groups of 4            */
                               "d,new,5,,,5,10,1\n");       /* 24 layers on 5 stages                               */
    struct validate_record of[4];
    for (int i = 0; i < 4; i++) of[i] = (struct validate_record){ &f.csv, i, i != 3 };
#define BLANK(i, column) validate_rules_blank(&f.rules, &f.a, &of[i], column, &m)
    ck_assert_str_eq(BLANK(0, "mbs"), "2");
    ck_assert_str_eq(BLANK(1, "mbs"), "1");
    ck_assert_str_eq(BLANK(2, "mbs"), "2");
    of[2].moe = 0;
    ck_assert_str_eq(BLANK(2, "mbs"), "1");
    ck_assert_ptr_null(BLANK(0, "vp"));                     /* pp 1 */
    ck_assert_str_eq(BLANK(1, "vp"), "3");                  /* of 1, 2, 3, 6: the largest up to 4 */
    ck_assert_str_eq(BLANK(2, "vp"), "1");
    ck_assert_str_eq(BLANK(3, "vp"), "1");
    ck_assert_str_eq(BLANK(0, "tp"), "8");
    ck_assert_ptr_null(BLANK(1, "tp"));
    ck_assert_ptr_null(BLANK(0, "gbs"));
#undef BLANK
    ck_assert(validate_rules_source(&f.rules, "old-9").full_attention);
    ck_assert(!validate_rules_source(&f.rules, "older").full_attention);
    ck_assert(validate_rules_source(&f.rules, "never seen").allocated);
    arena_free(&f.a);
}
END_TEST

/* ---- records -> plans ---- */

#define MAP_HEAD "id,source,model,system,gpus,seq_len,gbs,mbs,tp,pp,vp,ep,must,wing,recompute,dispatcher,sp\n"

START_TEST(map_expressible)
{
    struct fixture f;
    struct job j;
    struct validate_row row;
    table_open(&f, test_rules,
               MAP_HEAD "a,new,qwen3-30b-a3b,h100-sxm,16,4096,64,,2,2,3,8,,,selective:layernorm,all.to,1\n");
    ck_assert_msg(map_row(&j, &row, &f, 0) == OK, "%s", f.d.text);
    const struct plan *p = &j.plan;
    const int32_t got[] = { p->gpus, p->seq, p->gbs, p->mbs, p->tp, p->pp, p->vpp, p->ep };
    const int32_t want[] = { 16, 4096, 64, 1, 2, 2, 3, 8 };
    for (int i = 0; i < LEN(want); i++) ck_assert_int_eq(got[i], want[i]);
    ck_assert_int_eq(j.plan.recompute, 1 << RECOMPUTE_LAYERNORM);
    ck_assert_int_eq(j.plan.dispatcher, DISPATCHER_ALLTOALL);
    ck_assert_str_eq(j.stack.name, "mcore-2510");
    ck_assert_str_eq(row.inferred, "stack mcore-2510; mbs 1; wing 0");
    ck_assert_str_eq(row.approximated, "");
    ck_assert_str_eq(row.kind, "moe");
    arena_free(&f.a);
}
END_TEST

/* What plans cannot express, or may not have, goes back to nothing special, and is said. */
START_TEST(map_approximations)
{
    struct fixture f;
    struct job j;
    struct validate_row row;
    table_open(&f, test_rules, MAP_HEAD
               "a,new,qwen3-30b-a3b,h100-sxm,16,4096,64,1,2,1,1,8,,1,selective:layernorm+warp,pigeon,0\n"
               "b,new,llama3-8b,h100-sxm,16,4096,64,1,2,1,1,,,,selective:moe_act+layernorm,,\n"
               "c,new,llama3-8b,h100-sxm,16,4096,64,1,2,1,1,,,,selective:moe_act,,\n"
               "d,renamed,tiny-moe,h100-sxm,16,4096,64,1,2,1,1,1,,,,,\n");
    ck_assert_msg(map_row(&j, &row, &f, 0) == OK, "%s", f.d.text);
    ck_assert_int_eq(j.plan.recompute, 1 << RECOMPUTE_LAYERNORM);
    ck_assert_int_eq(j.plan.dispatcher, DISPATCHER_ALLTOALL);
    ck_assert_int_eq(j.plan.sp, 1);
    const char *const said[] = { "wing 1 as 0", "recompute without warp", "dispatcher pigeon as alltoall",
                                 "sp 0 as 1 (--", NULL };
    ck_assert_msg(test_has(row.approximated, said), "%s", row.approximated);
    ck_assert_msg(map_row(&j, &row, &f, 1) == OK, "%s", f.d.text);
    ck_assert_int_eq(j.plan.recompute, 1 << RECOMPUTE_LAYERNORM);
    ck_assert_str_eq(row.approximated, "recompute without moe_act");
    ck_assert_str_eq(row.kind, "dense");
    ck_assert_msg(map_row(&j, &row, &f, 2) == OK, "%s", f.d.text);
    ck_assert_int_eq(j.plan.recompute, 0);
    ck_assert_msg(map_row(&j, &row, &f, 3) == OK, "%s", f.d.text);
    ck_assert_str_eq(j.model.name, "qwen3-30b-a3b");
    ck_assert_ptr_nonnull(strstr(row.inferred, "model qwen3-30b-a3b"));
    arena_free(&f.a);
}
END_TEST

START_TEST(map_refusals)
{
    static const struct { const char *record, *parts[3]; } bad[] = {
        { "a,new,,h100-sxm,16,4096,64,1,2,1,1,8,,,,,\n", { "model is blank" } },
        { "a,new,qwen4,h100-sxm,16,4096,64,1,2,1,1,8,,,,,\n", { "qwen4" } },
        { "a,new,qwen3-30b-a3b,,16,4096,64,1,2,1,1,8,,,,,\n", { "system is missing" } },
        { "a,new,qwen3-30b-a3b,h100-sxm,16,4096,,1,2,1,1,8,,,,,\n", { "gbs is missing" } },
        { "a,new,qwen3-30b-a3b,h100-sxm,many,4096,64,1,2,1,1,8,,,,,\n", { "gpus", "many" } },
        { "a,new,qwen3-30b-a3b,h100-sxm,16,4096,64,1,3,1,1,8,,,,,\n", { "tp 3" } },
        { "a,new,qwen3-30b-a3b,h100-sxm,16,4096,64,1,2,1,1,8,4,,,,\n", { "must 4", "no-such-option" } },
    };
    for (int i = 0; i < LEN(bad); i++) {
        struct fixture f;
        struct job j;
        struct validate_row row;
        char text[512];
        snprintf(text, sizeof text, MAP_HEAD "%s", bad[i].record);
        table_open(&f, test_rules, text);
        ck_assert_int_eq(map_row(&j, &row, &f, 0), ERR_CONFIG);
        ck_assert_msg(test_has(f.d.text, bad[i].parts), "%d: %s", i, f.d.text);
        arena_free(&f.a);
    }
}
END_TEST

/* ---- counting ---- */

START_TEST(count_units)
{
    static const struct { const char *record; enum validate_unit unit; double value; } want[] = {
        { "a,5,4,3,2\n", VALIDATE_TOKENS, 5 }, { "a,,4,3,2\n", VALIDATE_STEP, 4 },
        { "a,,,3,2\n", VALIDATE_TFLOPS, 3 },   { "a,,,,0.2\n", VALIDATE_MFU, 0.2 },
        { "a,,,,\n", VALIDATE_NOTHING, (double)NAN },
    };
    for (int i = 0; i < LEN(want); i++) {
        struct fixture f;
        enum validate_unit u;
        double x;
        char text[128];
        snprintf(text, sizeof text, "id,tokens_per_s_gpu,step_time_s,tflops_gpu,mfu\n%s", want[i].record);
        table_open(&f, test_rules, text);
        ck_assert_int_eq(validate_count_measured(&u, &x, &(struct validate_record){ &f.csv, 0, 0 }, &f.d), OK);
        ck_assert_int_eq(u, want[i].unit);
        ck_assert(u == VALIDATE_NOTHING ? isnan(x) : x == want[i].value);
        arena_free(&f.a);
    }
}
END_TEST

START_TEST(count_refusals)
{
    static const char *const bad[] = { "-3", "0", "nan", "1e999", "fast", "3 TFLOPS" };
    for (int i = 0; i < LEN(bad); i++) {
        struct fixture f;
        enum validate_unit u;
        double x;
        char text[128];
        snprintf(text, sizeof text, "id,tokens_per_s_gpu,mfu\na,1,%s\n", bad[i]);
        table_open(&f, test_rules, text);
        const struct validate_record of = { &f.csv, 0, 0 };
        ck_assert_int_eq(validate_count_measured(&u, &x, &of, &f.d), ERR_CONFIG);
        ck_assert_msg(strncmp(f.d.text, "t.csv:2:5: mfu", 14) == 0, "%s", f.d.text);
        arena_free(&f.a);
    }
}
END_TEST

/* arXiv 2104.04473, equation 3: 96 B s l h^2 (1 + s / 6h + V / 16lh), with recomputed layers and the whole square. */
START_TEST(count_flop)
{
    struct fixture f;
    struct job j;
    table_open(&f, test_rules, "id\n");
    test_job(&j, &f.a, "model gpt3-175b system a100-sxm precision fp16 gpus 384 tp 8 pp 12 seq 2048 gbs 1536");
    const double h = 12288, l = 96, s = 2048, v = j.plan.vocab_padded;
    const struct validate_source old = validate_rules_source(&f.rules, "old-paper");
    const struct validate_source new = validate_rules_source(&f.rules, "x");
    const double want = 96 * l * h * h * (1 + s / (6 * h) + v / (16 * l * h));
    ck_assert_double_eq_tol(validate_count_flop(&old, &j) / want, 1, 1e-12);
    const double causal = 72 * l * h * h * (1 + s / (12 * h)) + 6 * h * v;
    ck_assert_double_eq_tol(validate_count_flop(&new, &j) / causal, 1, 1e-12);
    /* what each unit says of the same prediction */
    struct predict r = { .step_s = 2, .tokens_per_s_gpu = 100, .peak_flop_per_s = 4e14 };
    ck_assert_double_eq(validate_count_predicted(VALIDATE_STEP, &old, &j, &r), 2);
    ck_assert_double_eq(validate_count_predicted(VALIDATE_TOKENS, &old, &j, &r), 100);
    ck_assert_double_eq_tol(validate_count_predicted(VALIDATE_TFLOPS, &old, &j, &r), 100 * want / 1e12, 1e-9);
    ck_assert_double_eq_tol(validate_count_predicted(VALIDATE_MFU, &old, &j, &r), 100 * want / 100e12, 1e-9);
    ck_assert_double_eq_tol(validate_count_predicted(VALIDATE_MFU, &new, &j, &r), 100 * causal / 4e14, 1e-9);
    arena_free(&f.a);
}
END_TEST

START_TEST(count_memory)
{
    struct fixture f;
    struct predict_stage stage[] = { { .overhead_B = 4, .peak_B = 30 }, { .overhead_B = 4, .peak_B = 50 } };
    const struct predict r = { .stage = stage, .n_stage = 2, .worst_stage = 1 };
    table_open(&f, test_rules, "id\n");
    const struct validate_source device = validate_rules_source(&f.rules, "old-paper");
    const struct validate_source first = validate_rules_source(&f.rules, "x");
    ck_assert_double_eq(validate_count_memory(&device, &r), 50);
    ck_assert_double_eq(validate_count_memory(&first, &r), 26);
    arena_free(&f.a);
}
END_TEST

/* ---- figures ---- */

START_TEST(error_figures)
{
    const double e[] = { 0.3, 1.0, 0.1, 0.4, 0.2 };
    const struct validate_error five = validate_error_of(e, 5), none = validate_error_of(e, 0);
    ck_assert_int_eq(five.n, 5);
    ck_assert_double_eq_tol(five.median, 0.3, 1e-15);
    ck_assert_double_eq_tol(five.mean, 0.4, 1e-15);
    ck_assert_double_eq_tol(five.p90, 0.4 + 0.6 * 0.6, 1e-15);
    ck_assert_double_eq(five.max, 1);
    ck_assert_double_eq_tol(validate_error_median(e, 4), 0.35, 1e-15);
    ck_assert(isnan(none.median) && isnan(none.mean) && isnan(none.p90) && isnan(none.max));
}
END_TEST

START_TEST(group_rows)
{
    struct arena a = { 0 };
    struct validate_group *g;
    struct validate_note *note;
    struct validate_row row[] = {
        { .source = "x", .scored = 1, .error = 0.1, .fast = 0.1, .share = { .gemm = 0.9, .comm = 0.1 },
          .inferred = "mbs 1" },
        { .source = "y", .scored = 1, .error = 0.2, .fast = -0.2, .share = { .gemm = 0.7, .comm = 0.3 },
          .inferred = "vp 2 (why; not (ever)); mbs 1" },
        { .source = "x", .scored = 1, .error = 0.5, .fast = 0.5, .share = { .gemm = 0.2, .comm = 0.8 },
          .inferred = "" },
        { .source = "x", .scored = 0, .error = 9, .inferred = "" },
        { .source = "z", .scored = 1, .error = (double)NAN, .skipped = "no model", .inferred = "" },
    };
    ck_assert_int_eq(validate_group_by(&g, &a, row, LEN(row), offsetof(struct validate_row, source)), 2);
    ck_assert_str_eq(g[0].name, "x");
    ck_assert_int_eq(g[0].error.n, 2);
    ck_assert_double_eq_tol(g[0].error.median, 0.3, 1e-15);
    ck_assert_double_eq_tol(g[0].share.gemm, 0.55, 1e-15);
    ck_assert_double_eq_tol(g[1].fast, -0.2, 1e-15);
    ck_assert_int_eq(validate_group_notes(&note, &a, row, LEN(row), offsetof(struct validate_row, inferred)), 2);
    ck_assert_str_eq(note[0].text, "mbs 1");
    ck_assert_int_eq(note[0].rows, 2);
    ck_assert_str_eq(note[1].text, "vp 2");
    const int n = validate_group_quarters(&g, &a, row, LEN(row));
    for (int i = 0; i < n; i++) {
        const int here = strcmp(g[i].name, "communication") == 0 || strcmp(g[i].name, "gemm") == 0;
        ck_assert_int_eq(g[i].error.n, here);       /* the largest of three; nothing where every share is 0 */
        if (strcmp(g[i].name, "communication") == 0) ck_assert_double_eq(g[i].error.max, 0.5);
    }
    arena_free(&a);
}
END_TEST

/* ---- pairs ---- */

static int find_pair(const struct validate_pair *p, int n, int a, int b)
{
    for (int i = 0; i < n; i++)
        if (p[i].a == a && p[i].b == b) return i;
    return -1;
}

START_TEST(pair_known)
{
    static const double measured[] = { 100, 120, 96, 100, 100, 100, 100, 102, 100 };
    static const double predicted[] = { 50, 57, 55, 50, 50, 50, 50, 50, 50 };
    struct fixture f;
    struct validate_row row[9];
    struct validate_pair *p;
    table_open(&f, test_rules, "id,source,model,tp,mbs,wing,notes\n"
                               "0,s,m,1,1,,base\n"
                               "1,s,m,2,1,,tp\n"
                               "2,s,m,4,1,,tp again\n"
                               "3,s,m,8,2,,two settings\n"
                               "4,s,m,1,1,1,a blank against a value\n"
                               "5,t,m,2,1,,another source\n"
                               "6,s,n,2,1,,another model\n"
                               "7,s,m,4,1,,as 2\n"
                               "8,s,m,1,1,,not to be used\n");
    for (int i = 0; i < 9; i++) {
        struct validate_record of;
        row_open(&row[i], &of, &f, i);
        row[i].measured_rate = measured[i];
        row[i].rate = predicted[i];
    }
    row[8].ab = 0;
    const int n = validate_pair_all(&p, &f.a, &f.csv, &f.rules, row, 9);
    ck_assert_int_eq(n, 5);         /* 0-1, 0-2, 1-2, 0-7, 1-7; 2-7 is equal, but others lie between */
    const int up = find_pair(p, n, 0, 1), down = find_pair(p, n, 0, 2), fall = find_pair(p, n, 1, 2);
    ck_assert_int_ge(up, 0);
    ck_assert_str_eq(p[up].column, "tp");
    ck_assert_double_eq_tol(p[up].measured, 0.20, 1e-12);
    ck_assert_double_eq_tol(p[up].predicted, 0.14, 1e-12);
    ck_assert(p[up].changed && p[up].right && p[up].close);         /* ln 1.2 / ln 1.14 = 1.39 */
    ck_assert(!p[down].changed && !p[down].right);                  /* 4 % down, 10 % up       */
    ck_assert(p[fall].changed && p[fall].right && !p[fall].close);  /* 20 % down, 3.5 % down   */
    arena_free(&f.a);
}
END_TEST

/* Rows that nothing tells apart are steps of a log when they follow each other. */
START_TEST(pair_log)
{
    struct fixture f;
    struct validate_row row[3];
    struct validate_pair *p;
    table_open(&f, test_rules, "id,source,model,tp\n0,s,m,1\n1,s,m,1\n2,s,m,1\n");
    for (int i = 0; i < 3; i++) {
        struct validate_record of;
        row_open(&row[i], &of, &f, i);
        row[i].measured_rate = row[i].rate = 1;
    }
    ck_assert_int_eq(validate_pair_all(&p, &f.a, &f.csv, &f.rules, row, 3), 2);
    ck_assert(p[0].a == 0 && p[0].b == 1 && !p[0].column);
    ck_assert(p[1].a == 1 && p[1].b == 2 && !p[1].column);
    arena_free(&f.a);
}
END_TEST

/* ---- the published table ---- */

/* Every row that counts has a legal plan by the built-in rules. */
START_TEST(published_rows)
{
    struct arena a = { 0 };
    struct diag d = { "" };
    struct validate_rules rules;
    struct csv c;
    int n = 0;
    ck_assert_msg(validate_rules_read(&rules, &a, "sources", &d) == OK, "%s", d.text);
    ck_assert_msg(csv_read_file(&c, &a, SOURCE_DIR "/configs/published/runs.csv", &d) == OK, "%s", d.text);
    for (int i = 0; i < c.n_row; i++) {
        struct fixture f = { .rules = rules, .csv = c };
        struct validate_row row;
        if (strcmp(validate_rules_cell(&(struct validate_record){ &c, i, 0 }, "use"), "score")) continue;
        struct job *j = arena_alloc(&f.a, sizeof *j);
        ck_assert_msg(map_row(j, &row, &f, i) == OK, "%s: %s", row.id, f.d.text);
        n++;
        arena_free(&f.a);
    }
    ck_assert_int_eq(n, 371);
    arena_free(&a);
}
END_TEST

/* Pairs of the table, whatever is predicted. */
START_TEST(published_pairs)
{
    struct arena a = { 0 };
    struct diag d = { "" };
    struct validate_rules rules;
    struct validate_pair *p;
    struct csv c;
    int named = 0;
    ck_assert_msg(validate_rules_read(&rules, &a, "sources", &d) == OK, "%s", d.text);
    ck_assert_msg(csv_read_file(&c, &a, SOURCE_DIR "/configs/published/runs.csv", &d) == OK, "%s", d.text);
    struct fixture f = { .rules = rules, .csv = c };
    struct validate_row *row = arena_alloc(&a, (size_t)c.n_row * sizeof *row);
    for (int i = 0; i < c.n_row; i++) {
        struct validate_record of;
        enum validate_unit u;
        row_open(&row[i], &of, &f, i);
        row[i].ab = strcmp(validate_rules_cell(&of, "use"), "no") != 0;
        row[i].measured_rate = row[i].rate = 1;
        ck_assert_int_eq(validate_count_measured(&u, &row[i].measured, &of, &d), OK);
    }
    const int n = validate_pair_all(&p, &a, &c, &rules, row, c.n_row);
    for (int i = 0; i < n; i++) named += p[i].column != NULL;
    ck_assert_int_eq(named, 231);       /* by a script of its own over the same file */
    ck_assert_int_eq(n - named, 8);     /* steps of the GB200 log between rows with equal settings */
    arena_free(&a);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        rules_refusals, rules_blanks,  map_expressible, map_approximations, map_refusals,
        count_units,    count_refusals, count_flop,     count_memory,       error_figures,
        group_rows,     pair_known,    pair_log,        published_rows,     published_pairs,
    };
    return test_main("validate", tests, LEN(tests), 60);
}
