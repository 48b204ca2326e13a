/* Hundreds of bad files, each refused with ERR_CONFIG and one line that begins "FILE:LINE:COLUMN: ".
 * Systematic mutations of the built-in files (every line of each: misspelt, doubled, emptied, out of range,
 * without unit ...), and hand-made ones for what mutations of lines do not reach. */
#include "models/plan.h"
#include "tests/test.h"
#include <stdio.h>

enum kind { MODEL, SYSTEM, STACK, PLAN, KIND_COUNT };

static enum err read_kind(enum kind kind, const char *text, size_t n, struct diag *d)
{
    struct arena a = { 0 };
    struct cfg c;
    union { struct model m; struct system s; struct stack k; struct job j; } x;
    enum err e = cfg_read_text(&c, &a, "bad.yaml", text, n, d);
    if (e == OK && kind == MODEL) e = model_fill(&x.m, &c, d);
    if (e == OK && kind == SYSTEM) e = system_fill(&x.s, &c, d);
    if (e == OK && kind == STACK) e = stack_fill(&x.k, &c, d);
    if (e == OK && kind == PLAN) e = plan_fill_job(&x.j, &a, &c, 0, NULL, 0, d);
    arena_free(&a);
    return e;
}

/* "bad.yaml:LINE:COLUMN: something long enough to help", one line. */
static int clear_message(const char *text)
{
    const char *s = text + 9;
    char *end;
    if (strncmp(text, "bad.yaml:", 9) != 0 || strchr(text, '\n') != NULL) return 0;
    if (strtol(s, &end, 10) < 1 || *end != ':') return 0;
    if (strtol(end + 1, &end, 10) < 1 || strncmp(end, ": ", 2) != 0) return 0;
    return strlen(end) > 20;
}

static void refused(enum kind kind, const char *text, size_t n)
{
    struct diag d = { 0 };
    const enum err e = read_kind(kind, text, n, &d);
    ck_assert_msg(e == ERR_CONFIG, "passed or failed otherwise (%d, '%s'):\n%.*s", e, d.text, (int)n, text);
    ck_assert_msg(clear_message(d.text), "'%s' for:\n%.*s", d.text, (int)n, text);
}

static const struct { enum kind kind; const char *folder, *name;
} file[] = {
    {MODEL, "models", "deepseek-v3"},   {MODEL, "models", "qwen3-235b-a22b"},
    {SYSTEM, "systems", "gb200-nvl72"}, {SYSTEM, "systems", "host"},
    {STACK, "stacks", "moefold"},       {PLAN, "plans", "deepseek-v3-1024-h100"},
    {PLAN, "plans", "tiny-moe-8"},
};

static const char *built_in(const char *folder, const char *name)
{
    for (int i = 0; i < cfg_embedded_n; i++)
        if (strcmp(cfg_embedded[i].kind, folder) == 0 && strcmp(cfg_embedded[i].name, name) == 0)
            return cfg_embedded[i].text;
    ck_abort_msg("no %s/%s", folder, name);
    return NULL;
}

/* A line "  key: value" of a file: where it is, and its parts. */
struct line { const char *at; int n, key_n, value_at, value_n; };

static int line_parse(struct line *l, const char *at)
{
    const int indent = (int)strspn(at, " "), n = (int)strcspn(at, "\n");
    const char *colon = memchr(at, ':', (size_t)n), *note = memchr(at, '#', (size_t)n);
    *l = (struct line){ .at = at, .n = n };
    if (colon == NULL || (note != NULL && note < colon)) return 0;
    l->key_n = (int)(colon - at);
    l->value_at = l->key_n + 1 + (int)strspn(colon + 1, " ");
    int end = note != NULL ? (int)(note - at) : n;
    while (end > l->value_at && at[end - 1] == ' ') end--;
    l->value_n = end - l->value_at;
    return indent < l->key_n && l->value_n > 0 && at[l->value_at] != '{' && at[l->value_at] != '[';
}

/* The file with one line replaced by "KEY: VALUE" or whatever `replaced` says. */
static void with_line(enum kind kind, const char *text, const struct line *l, const char *replaced)
{
    char *out = malloc(strlen(text) + strlen(replaced) + 2);
    const int head = (int)(l->at - text);
    const int n = sprintf(out, "%.*s%s%s", head, text, replaced, l->at + l->n);
    refused(kind, out, (size_t)n);
    free(out);
}

/* Values that no option takes, whatever its type. */
static const char *const never[] = {
    "[1, [2]]", "{a: 1}", "",        "''",    "nan",     "-inf",   "1e999",     "-99999999999999999999999",
    "~",        "0x1F",   "&here 1", "*here", "!!int 1", "!own 1", "\"a\\0b\"", "\"\\x01\"",
    "'",        "\"",     "[",       "}",     "1: 2",    "@",      "`x`",       "%",
    "- 1"};
/* What an option with a unit does not take either. */
static const char *const no_unit[] = { "1", "-1 GiB", "1 GB/s/s", "1 kg", "1 GiB us", "GB/s" };

/* All mutations of one line; returns how many. */
static int mutate(enum kind kind, const char *text, const struct line *l)
{
    char out[512];
    int n = 0;
    for (int i = 0; i < LEN(never); i++, n++) {
        snprintf(out, sizeof(out), "%.*s: %s", l->key_n, l->at, never[i]);
        with_line(kind, text, l, out);
    }
    for (int i = 0; i < LEN(no_unit) && memchr(l->at + l->value_at, ' ', (size_t)l->value_n) != NULL;
         i++, n++) {
        snprintf(out, sizeof(out), "%.*s: %s", l->key_n, l->at, no_unit[i]);
        with_line(kind, text, l, out);
    }
    snprintf(out, sizeof(out), "%.*sq: %.*s", l->key_n, l->at, l->value_n, l->at + l->value_at);       /* misspelt */
    with_line(kind, text, l, out);
    snprintf(out, sizeof(out), "%.*s\n%.*s", l->n, l->at, l->n, l->at);                                /* twice    */
    with_line(kind, text, l, out);
    snprintf(out, sizeof(out), "\t%.*s", l->n, l->at);                                                 /* a tab    */
    with_line(kind, text, l, out);
    snprintf(out, sizeof(out), "%.*s %.*s", l->key_n, l->at, l->value_n, l->at + l->value_at);         /* no colon */
    with_line(kind, text, l, out);
    snprintf(out, sizeof(out), "%.*s: \xC3%.*s", l->key_n, l->at, l->value_n, l->at + l->value_at);    /* bad UTF-8 */
    with_line(kind, text, l, out);
    return n + 5;
}

START_TEST(lines_mutated)
{
    int n = 0;
    for (int f = 0; f < LEN(file); f++) {
        const char *text = built_in(file[f].folder, file[f].name);
        for (const char *at = text; *at != '\0'; at += strcspn(at, "\n"), at += *at == '\n') {
            struct line l;
            if (line_parse(&l, at)) n += mutate(file[f].kind, text, &l);
        }
    }
    ck_assert_int_gt(n, 2000);
}
END_TEST

/* ---- by hand ---- */

static const char *const broken_yaml[] = {
    "",
    "\n\n",
    "# only a note\n",
    "---\n",
    "...\n",
    "just words\n",
    "- 1\n- 2\n",
    "[1, 2]\n",
    "a: 1\n---\nb: 2\n",
    "a: 1\n...\nb: 2\n",
    "{a: 1",
    "{\"a\": 1,, \"b\": 2}",
    "a: 'open\n",
    "a: \"open\n",
    "a: \"\\ud83d\"\n",
    "a: \"\\q\"\n",
    "a: |\n text\n  more\nb\n",
    "a\n\tb: 1\n",
    "? {a: 1}\n: 2\n",
    "? [a]\n: 2\n",
    "*x : 1\n",
    "a: 1\na: 2\n",
    "kv_heads: 1\nkv-heads: 1\n",
    "a: 1\n b: 2\n",
    "%TAG ! x\n---\na: 1\n",
    "%YAML 9.9\n---\na: 1\n",
    "a: {b: {c: 1}\n",
    "\xEF\xBB\xBF",
    "\xFF\xFE"
    "a",
    "a: \xC0\x80\n",
    "a: \xED\xA0\x80\n",
    "a: \xF4\x90\x80\x80\n",
    "a: \xE2\x82\n",
    "a: \x01\n",
    "a: \x7F\n",
    "a: \xC2\x80\n",
    "a: \xEF\xBF\xBE\n",
    "<<: {a: 1}\n",
    "null: 1\n",
    ": 1\n",
    "'': 1\n",
    "a.b: 1\n",
    "\"a\\nb\": 1\n",
};

START_TEST(broken_files)
{
    for (int kind = 0; kind < KIND_COUNT; kind++)
        for (int i = 0; i < LEN(broken_yaml); i++)
            refused((enum kind)kind, broken_yaml[i], strlen(broken_yaml[i]));
}
END_TEST

START_TEST(nul_bytes_depth_and_size)
{
    char *deep = malloc(1 << 16), *huge = malloc(5 << 20);
    for (int kind = 0; kind < KIND_COUNT; kind++) {
        refused((enum kind)kind, "a: 1\0b: 2", 9);
        int n = sprintf(deep, "a: ");
        for (int i = 0; i < 400; i++) n += sprintf(deep + n, "%s", i % 2 ? "[" : "{b: ");
        refused((enum kind)kind, deep, (size_t)n);
        n = sprintf(deep, "a: [");
        for (int i = 0; i < 2000; i++) n += sprintf(deep + n, "%d, ", i);
        n += sprintf(deep + n, "1]\n");
        refused((enum kind)kind, deep, (size_t)n);
        memset(huge, ' ', 5 << 20);
        refused((enum kind)kind, huge, 5 << 20);
        memset(huge, 'k', 5000);
        memcpy(huge + 5000, ": 1\n", 4);
        refused((enum kind)kind, huge, 5004);
    }
    free(deep);
    free(huge);
}
END_TEST

/* Files cut short: what is left misses something, wherever the cut falls before `end`. */
START_TEST(truncated)
{
    static const struct { enum kind kind; const char *folder, *name, *end; } row[] = {
        { MODEL, "models", "deepseek-v3", "v_dim" }, { MODEL, "models", "mixtral-8x7b", "expert_ffn" },
        { SYSTEM, "systems", "h100-sxm", "issue" }, { STACK, "stacks", "mcore-2510", "overhead" },
        { PLAN, "plans", "deepseek-v3-256-gb200", "gbs" }, { PLAN, "plans", "tiny-moe-8", "host" },
    };
    for (int i = 0; i < LEN(row); i++) {
        const char *text = built_in(row[i].folder, row[i].name), *end = strstr(text, row[i].end);
        ck_assert_ptr_nonnull(end);
        for (const char *cut = text; cut < end; cut += 3) refused(row[i].kind, text, (size_t)(cut - text));
    }
}
END_TEST

/* A document that is well formed and cannot be. Each names the key at fault and its line. */
START_TEST(impossible)
{
    static const struct { enum kind kind; const char *folder, *name, *key, *value;
    } row[] = {
        {MODEL, "models", "qwen3-235b-a22b", "kv_heads", "5"},
        {MODEL, "models", "qwen3-235b-a22b", "head_dim", "127"},
        {MODEL, "models", "qwen3-235b-a22b", "topk", "129"},
        {MODEL, "models", "qwen3-235b-a22b", "expert_ffn", "0"},
        {MODEL, "models", "deepseek-v3", "groups", "3"},
        {MODEL, "models", "deepseek-v3", "groups_kept", "9"},
        {MODEL, "models", "deepseek-v3", "groups_kept", "0"},
        {MODEL, "models", "deepseek-v3", "groups", "256"},
        {MODEL, "models", "deepseek-v3", "dense_layers", "62"},
        {MODEL, "models", "deepseek-v3", "ffn", "0"},
        {MODEL, "models", "deepseek-v3", "q_lora", "-1"},
        {MODEL, "models", "deepseek-v3", "qk_rope", "63"},
        {MODEL, "models", "deepseek-v3", "kv_lora", "0"},
        {MODEL, "models", "deepseek-v3", "v_dim", "0"},
        {MODEL, "models", "deepseek-v3", "experts", "0"},
        {MODEL, "models", "deepseek-v3", "mtp", "3"},
        {MODEL, "models", "nemotron3-nano-30b-a3b", "mamba_groups", "7"},
        {MODEL, "models", "nemotron3-nano-30b-a3b", "pattern", "MEXE"},
        {MODEL, "models", "nemotron3-nano-30b-a3b", "activation", "mish"},
        {MODEL, "models", "gpt-oss-20b", "bias", "[all]"},
        {MODEL, "models", "deepseek-v2", "group_score", "best"},
        {SYSTEM, "systems", "h100-sxm", "domain", "9"},
        {SYSTEM, "systems", "h100-sxm", "memory_efficiency", "1.01"},
        {SYSTEM, "systems", "h100-sxm", "per_host", "0"},
        {SYSTEM, "systems", "b200", "bf16", "0"},
        {STACK, "stacks", "moefold", "capacity", "0.5"},
        {STACK, "stacks", "moefold", "schedules", "[]"},
        {STACK, "stacks", "moefold", "schedules", "[zbv]"},
        {STACK, "stacks", "moefold", "recompute", "[full, full]"},
        {PLAN, "plans", "tiny-moe-8", "ep", "3"},
        {PLAN, "plans", "tiny-moe-8", "gpus", "6"},
        {PLAN, "plans", "tiny-moe-8", "gbs", "7"},
        {PLAN, "plans", "tiny-moe-8", "seq", "63"},
        {PLAN, "plans", "tiny-moe-8", "pp", "8"},
        {PLAN, "plans", "tiny-moe-8", "model", "tiny-mo"},
        {PLAN, "plans", "deepseek-v3-1024-h100", "layout", "Et|(tt|)*29mL"},
        {PLAN, "plans", "deepseek-v3-1024-h100", "recompute", "selective:nothing"},
        {PLAN, "plans", "deepseek-v3-1024-h100", "precision", "fp4"},
        {PLAN, "plans", "deepseek-v3-1024-h100", "model", "mixtral-8x22b"},
    };
    for (int i = 0; i < LEN(row); i++) {
        const char *text = built_in(row[i].folder, row[i].name);
        int found = 0;
        for (const char *at = text; *at != '\0' && !found; at += strcspn(at, "\n"), at += *at == '\n') {
            struct line l;
            char out[128];
            line_parse(&l, at);
            const int indent = (int)strspn(at, " ");
            if (l.key_n - indent != (int)strlen(row[i].key) ||
                strncmp(at + indent, row[i].key, strlen(row[i].key)) != 0)
                continue;
            snprintf(out, sizeof(out), "%.*s: %s", l.key_n, at, row[i].value);
            with_line(row[i].kind, text, &l, out);
            found = 1;
        }
        ck_assert_msg(found, "no %s in %s", row[i].key, row[i].name);
    }
}
END_TEST

/* Noise: no byte changed anywhere makes a reader crash or answer on two lines. */
START_TEST(noise)
{
    uint64_t state = 7;
    for (int i = 0; i < 20000; i++) {
        const int f = test_random(&state, LEN(file));
        const char *text = built_in(file[f].folder, file[f].name);
        const size_t n = strlen(text);
        char *copy = malloc(n);
        memcpy(copy, text, n);
        for (int k = test_random(&state, 4); k >= 0; k--)
            copy[test_random(&state, (int)n)] = test_random(&state, 2)
                                                    ? (char)test_random(&state, 256)
                                                    : "{}[]:#&*!|>'\"%@\n\t -"[test_random(&state, 19)];
        struct diag d = { 0 };
        const enum err e = read_kind(file[f].kind, copy, n, &d);
        free(copy);
        if (e == OK) continue;
        if (e != ERR_CONFIG && e != ERR_LIMIT && e != ERR_IO) ck_abort_msg("%d: %s", e, d.text);
        if (strchr(d.text, '\n') != NULL || strlen(d.text) < 20) ck_abort_msg("'%s'", d.text);
    }
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {lines_mutated, broken_files, nul_bytes_depth_and_size,
                                  truncated,     impossible,   noise};
    return test_main("bad_input", tests, LEN(tests), 300);
}
