/* Reading YAML and JSON: the tree and its places, options in and out, and that every built-in description is
 * right. */
#include "models/plan.h"
#include "tests/test.h"
#include <stddef.h>

static enum err read_text(struct cfg *c, struct arena *a, const char *text, struct diag *d)
{
    return cfg_read_text(c, a, "f.yaml", text, strlen(text), d);
}

START_TEST(tree_and_places)
{
    struct arena a = { 0 };
    struct diag d = { 0 };
    struct cfg c;
    ck_assert_int_eq(read_text(&c, &a, "# note\none: 1\ntwo_a:\n  deep: [x, 'y z']\n  b: \"\\u00e9\"\n", &d),
                     OK);
    ck_assert_int_eq(c.root.type, CFG_MAP);
    ck_assert_int_eq(c.root.n, 2);
    const struct cfg_node *list = cfg_find(&c.root, "two-a.deep");
    ck_assert_ptr_nonnull(list);
    ck_assert_int_eq(list->type, CFG_LIST);
    ck_assert_str_eq(list->child[1].text, "y z");
    ck_assert_int_eq(list->child[1].line, 4);
    ck_assert_int_eq(list->child[1].column, 13);
    ck_assert_str_eq(cfg_find(&c.root, "two_a.b")->text, "\xC3\xA9");
    ck_assert_ptr_null(cfg_find(&c.root, "two_a.c"));
    ck_assert_ptr_null(cfg_find(&c.root, "one.x"));
    ck_assert_int_eq(cfg_fail(&d, &c, list, "so %d", 5), ERR_CONFIG);
    ck_assert_str_eq(d.text, "f.yaml:4:9: so 5");
    arena_free(&a);
}
END_TEST

/* JSON is read as YAML; a character beyond U+FFFF is two escapes there, and an escaped backslash begins none. */
START_TEST(json)
{
    struct arena a = { 0 };
    struct diag d = { 0 };
    struct cfg c;
    ck_assert_msg(
        read_text(&c, &a,
                  "{\"a\": \"\\ud83d\\ude00!\", \"b\": {\"c\": [1, 2.5, true]},\n \"d\": \"\\\\ud83d\"}",
                  &d) == OK,
        "%s", d.text);
    ck_assert_str_eq(cfg_find(&c.root, "a")->text, "\xF0\x9F\x98\x80!");
    ck_assert_str_eq(cfg_find(&c.root, "b.c")->child[1].text, "2.5");
    ck_assert_str_eq(cfg_find(&c.root, "d")->text, "\\ud83d");
    arena_free(&a);
}
END_TEST

/* ---- options ---- */

static const char *const colours[] = { "red", "sea_green", "blue", NULL };
static const struct word words[] = { { "auto", -1 }, { NULL, 0 } };
static const struct word sets[] = { { "none", 0 }, { "all", 4 }, { NULL, 0 } };
struct thing { int32_t n, yes, colour, set; double size_B; char text[8]; };
static const struct opt table[] = {
    {.key = "n",
     .type = OPT_INT,
     .at = offsetof(struct thing, n),
     .size = 4,
     .lo = 1,
     .hi = 9,
     .def = "auto",
     .help = "n",
     .words = words},
    {.key = "yes", .type = OPT_BOOL, .at = offsetof(struct thing, yes), .size = 4, .def = "0", .help = "yes"},
    {.key = "colour",
     .type = OPT_NAME,
     .at = offsetof(struct thing, colour),
     .size = 4,
     .names = colours,
     .def = "red",
     .help = "c"},
    {.key = "a.set",
     .type = OPT_SET,
     .at = offsetof(struct thing, set),
     .size = 4,
     .names = colours,
     .def = "none",
     .help = "s",
     .words = sets,
     .prefix = "some:"},
    {.key = "a.size",
     .type = OPT_NUMBER,
     .at = offsetof(struct thing, size_B),
     .size = 8,
     .unit = UNIT_B,
     .lo = 1,
     .hi = 1e12,
     .def = NULL,
     .help = "a size"},
    {.key = "text",
     .type = OPT_TEXT,
     .at = offsetof(struct thing, text),
     .size = 8,
     .def = "",
     .help = "text"},
};

START_TEST(options_from_a_document)
{
    struct arena a = { 0 };
    struct diag d = { 0 };
    struct cfg c;
    struct thing t;
    char set[LEN(table)];
    ck_assert_int_eq(
        read_text(&c, &a, "a: {size: 2 GiB, set: [blue, sea-green]}\ncolour: sea-green\nyes: true\ntext: abc",
                  &d),
        OK);
    ck_assert_msg(cfg_fill(&t, set, table, LEN(table), &c, &d) == OK, "%s", d.text);
    ck_assert_int_eq(t.n, -1);
    ck_assert_int_eq(t.yes, 1);
    ck_assert_int_eq(t.colour, 1);
    ck_assert_int_eq(t.set, 6);
    ck_assert(t.size_B == 2147483648.0);
    ck_assert_str_eq(t.text, "abc");
    ck_assert(!set[0] && set[1] && set[2] && set[3] && set[4] && set[5]);
    arena_free(&a);
}
END_TEST

START_TEST(options_from_text)
{
    static const struct { int row; const char *text; int32_t value; const char *echo;
    } good[] = {
        {0, "9", 9, "9"},       {0, "auto", -1, "auto"},
        {0, "1e0", 1, "1"},     {3, "some:red+blue", 5, "some:red+blue"},
        {3, "blue", 4, "all"},  {3, "all", 4, "all"},
        {3, "none", 0, "none"}, {3, "red", 1, "some:red"},
        {2, "blue", 2, "blue"}, {1, "false", 0, "0"},
    };
    struct diag d = { 0 };
    for (int i = 0; i < LEN(good); i++) {
        const struct opt *o = &table[good[i].row];
        struct thing t = { 0 };
        char text[64];
        ck_assert_msg(cfg_set(&t, o, good[i].text, "--x", &d) == OK, "%s", d.text);
        ck_assert_int_eq(*(int32_t *)((char *)&t + o->at), good[i].value);
        ck_assert_str_eq(cfg_echo(text, sizeof(text), &t, o), good[i].echo);
    }
}
END_TEST

START_TEST(options_refused)
{
    static const struct { int row; const char *text; const char *message;
    } bad[] = {
        {0, "10", "--n: n = '10' is out of range: it must lie in 1 .. 9, or auto"},
        {0, "2.5", "--n: n = '2.5' is not a whole number: write a whole number such as 8, or auto"},
        {0, "x", "--n: n = 'x' is not a number: write a whole number such as 8, or auto"},
        {0, "", "--n: n is empty: n"},
        {1, "yes", "--n: yes = 'yes' is neither yes nor no: write 1, 0, true or false"},
        {2, "bleu", "--n: colour = 'bleu' is not known: did you mean 'blue': choose of red, sea_green, blue"},
        {3, "red+red", "--n: a.set names 'red' twice: once is enough"},
        {3, "red+", "--n: a.set = '' is not known: choose of none, all, red, sea_green, blue"},
        {4, "80", "--n: a.size = '80' has no unit: write a size such as 80 GiB"},
        {4, "80 us", "--n: a.size = '80 us' has the wrong unit: write a size such as 80 GiB"},
        {4, "2 TB", "--n: a.size = '2 TB' is out of range: it must lie in 1 B .. 1 TB"},
        {5, "12345678", "--n: text has 8 bytes, at most 7 are kept: shorten it"},
        {5, "a\nb", "--n: text = 'a?b' has a control character at 2: leave it out"},
    };
    for (int i = 0; i < LEN(bad); i++) {
        struct diag d = { 0 };
        struct thing t = { .n = 7 };
        ck_assert_int_eq(cfg_set(&t, &table[bad[i].row], bad[i].text, "--n", &d), ERR_CONFIG);
        ck_assert_str_eq(d.text, bad[i].message);
        ck_assert_int_eq(t.n, 7);
    }
}
END_TEST

START_TEST(nearest_key)
{
    ck_assert_str_eq(cfg_nearest(model_opts, model_n_opt, "hiden"), "hidden");
    ck_assert_str_eq(cfg_nearest(model_opts, model_n_opt, "kv_head"), "kv_heads");
    ck_assert_str_eq(cfg_nearest(system_opts, system_n_opt, "gpu.hbm_bandwith"), "gpu.hbm_bandwidth");
    ck_assert_ptr_null(cfg_nearest(model_opts, model_n_opt, "zzzzzzzz"));
    ck_assert_ptr_eq(cfg_opt(plan_opts, plan_n_opt, "ep_overlap"),
                     cfg_opt(plan_opts, plan_n_opt, "ep-overlap"));
    ck_assert_ptr_null(cfg_opt(plan_opts, plan_n_opt, "ep"  "x"));
}
END_TEST

/* ---- all tables, all built-in files ---- */

static const struct { const char *kind; const struct opt *opt; const int *n;
} tables[] = {
    {"models", model_opts, &model_n_opt},
    {"systems", system_opts, &system_n_opt},
    {"stacks", stack_opts, &stack_n_opt},
    {"plans", plan_opts, &plan_n_opt},
};

/* Rows have what messages and --help need; defaults are legal (cfg_defaults asserts that); an echo reads back. */
START_TEST(tables_are_whole)
{
    for (int k = 0; k < LEN(tables); k++) {
        union { struct model m; struct system s; struct stack k; struct plan p; } from, to;
        memset(&from, 0, sizeof(from));
        cfg_defaults(&from, tables[k].opt, *tables[k].n);
        for (int i = 0; i < *tables[k].n; i++) {
            const struct opt *o = &tables[k].opt[i];
            char text[600];
            struct diag d = { 0 };
            ck_assert_msg(o->help != NULL && strlen(o->help) > 0 && strchr(o->help, '\n') == NULL, "%s",
                          o->key);
            ck_assert_msg((o->type != OPT_NAME && o->type != OPT_SET) || o->names != NULL, "%s", o->key);
            ck_assert_ptr_eq(cfg_opt(tables[k].opt, *tables[k].n, o->key), o);      /* no key twice */
            if (o->def == NULL) continue;
            memset(&to, 0, sizeof(to));
            ck_assert_msg(cfg_set(&to, o, cfg_echo(text, sizeof(text), &from, o), "echo", &d) == OK, "%s",
                          d.text);
            ck_assert_msg(memcmp((char *)&to + o->at, (char *)&from + o->at, o->size) == 0, "%s: %s", o->key,
                          text);
        }
    }
}
END_TEST

START_TEST(built_in_files)
{
    int n = 0;
    for (int i = 0; i < cfg_embedded_n; i++) {
        const struct cfg_file *f = &cfg_embedded[i];
        struct arena a = { 0 };
        struct diag d = { 0 };
        union { struct model m; struct system s; struct stack k; struct job j; } x;
        enum err e = OK;                        /* a file of another kind, such as the text that `run` trains on */
        if (strcmp(f->kind, "models") == 0) e = model_read(&x.m, &a, f->name, &d);
        if (strcmp(f->kind, "systems") == 0) e = system_read(&x.s, &a, f->name, &d);
        if (strcmp(f->kind, "stacks") == 0) e = stack_read(&x.k, &a, f->name, &d);
        if (strcmp(f->kind, "plans") == 0) e = plan_read_job(&x.j, &a, f->name, 0, NULL, 0, &d);
        ck_assert_msg(e == OK, "%s/%s: %s", f->kind, f->name, d.text);
        for (int k = 0; k < LEN(tables); k++) n += strcmp(f->kind, tables[k].kind) == 0;
        arena_free(&a);
    }
    ck_assert_int_ge(n, 8 + 5 + 2 + 5);
}
END_TEST

/* A plan's text is a plan: read again it resolves to the same bytes. */
START_TEST(plan_text_reads_back)
{
    for (int i = 0; i < cfg_embedded_n; i++) {
        struct arena a = { 0 };
        struct diag d = { 0 };
        struct cfg c;
        struct job once, again;
        if (strcmp(cfg_embedded[i].kind, "plans") != 0) continue;
        ck_assert_int_eq(plan_read_job(&once, &a, cfg_embedded[i].name, 0, NULL, 0, &d), OK);
        const char *text = plan_text(&a, &once.plan);
        ck_assert_msg(cfg_read_text(&c, &a, "echo", text, strlen(text), &d) == OK, "%s", d.text);
        ck_assert_msg(plan_fill_job(&again, &a, &c, 0, NULL, 0, &d) == OK, "%s", d.text);
        ck_assert_str_eq(plan_text(&a, &again.plan), text);
        memcpy(once.plan.layout, again.plan.layout, sizeof(once.plan.layout));     /* auto, and its text */
        ck_assert(memcmp(&once, &again, sizeof(once)) == 0);
        arena_free(&a);
    }
}
END_TEST

/* ---- plans from flags ---- */

START_TEST(plan_defaults)
{
    struct arena a = { 0 };
    struct diag d = { 0 };
    struct job j;
    test_job(&j, &a, "model tiny-moe system host gpus 3");
    ck_assert_str_eq(j.stack.name, "moefold");
    ck_assert_int_eq(j.plan.precision, PRECISION_FP32);
    ck_assert_int_eq(j.plan.gbs, 9);            /* the least multiple of every dp that is at least 8 */
    ck_assert_int_eq(j.plan.seq, 64);
    test_job(&j, &a, "model mixtral-8x7b system b200 gpus 8 gbs 64 seq 4096");
    ck_assert_str_eq(j.stack.name, "mcore-2510");
    ck_assert_int_eq(j.plan.precision, PRECISION_BF16);
    const char *const runs[][2] = { { "model", "tiny-moe" } };
    ck_assert_msg(plan_read_job(&j, &a, NULL, 1, runs, 1, &d) == OK, "%s", d.text);
    ck_assert_str_eq(j.system.name, "host");
    ck_assert_int_eq(j.plan.gpus, 1);
    const char *const over[][2] = { { "gbs", "16" }, { "tp", "1" }, { "ep", "2" } };
    ck_assert_msg(plan_read_job(&j, &a, "tiny-moe-8", LEN(over), over, 0, &d) == OK, "%s", d.text);
    ck_assert_int_eq(j.plan.dp, 4);             /* the file's pp 2, the flags' tp 1 */
    arena_free(&a);
}
END_TEST

START_TEST(plan_refused)
{
    static const struct { const char *flags, *message;
    } row[] = {
        {"system host", "model is missing: name one, such as --model deepseek-v3"},
        {"model tiny-moe", "system is missing: name one, such as --system gb200-nvl72"},
        {"model tiny-moe system b200 gbs 8 seq 64", "gpus is missing: say how many, such as --gpus 256"},
        {"model tiny-moe system b200 gpus 8 seq 64",
         "gbs is missing: give the sequences of a step, such as --gbs 4096"},
        {"model tiny-moe system b200 gpus 8 gbs 64",
         "seq is missing: give the tokens of a sequence, such as --seq 4096"},
        {"model tiny-mo system host",
         "--model: model 'tiny-mo' is not one of the built-in models: did you mean 'tiny-moe'?"},
        {"model tiny-moe system host mbz 2", "--mbz: unknown option: did you mean --mbs?"},
        {"model deepseek-v3 system b200 gpus 8 ep 8 gbs 8192 mbs 64 seq 16777216 capacity worst",
         "--seq: seq = 16777216 with mbs = 64 makes buffers of 2e+15 bytes, more than can be counted: lower them"},
        {"model tiny-moe system host tp 0", "--tp: tp = '0' is out of range: it must lie in 1 .. 1024"},
    };
    for (int i = 0; i < LEN(row); i++) {
        struct arena a = { 0 };
        struct diag d = { 0 };
        struct job j;
        ck_assert_int_eq(test_job_try(&j, &a, row[i].flags, &d), ERR_CONFIG);
        ck_assert_str_eq(d.text, row[i].message);
        arena_free(&a);
    }
}
END_TEST

/* A rule of plan_check is blamed on the flag when a flag broke it, else on the line of the file. */
START_TEST(plan_errors_have_places)
{
    struct arena a = { 0 };
    struct diag d = { 0 };
    struct cfg c;
    struct job j;
    const char *const bad[][2] = { { "ep", "3" } };
    ck_assert_int_eq(read_text(&c, &a, "model: tiny-moe\nsystem: host\ngpus: 6\nep: 3\n", &d), OK);
    ck_assert_int_eq(plan_fill_job(&j, &a, &c, 0, NULL, 0, &d), ERR_CONFIG);
    ck_assert_msg(strncmp(d.text, "f.yaml:4:5: ep 3", 16) == 0, "%s", d.text);
    ck_assert_int_eq(plan_fill_job(&j, &a, &c, 1, bad, 0, &d), ERR_CONFIG);
    ck_assert_msg(strncmp(d.text, "--ep: ep 3", 10) == 0, "%s", d.text);
    arena_free(&a);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {tree_and_places,
                                  json,
                                  options_from_a_document,
                                  options_from_text,
                                  options_refused,
                                  nearest_key,
                                  tables_are_whole,
                                  built_in_files,
                                  plan_text_reads_back,
                                  plan_defaults,
                                  plan_refused,
                                  plan_errors_have_places};
    return test_main("cfg", tests, LEN(tests), 60);
}
