/* The rules of a table of published runs: which option a column sets, what a blank means, how a source counts. They
 * are data (configs/published/sources.yaml), checked here once and looked up for every record. */
#include "tools/validate.h"
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- checking ---- */

static enum err rules_keys(const struct cfg *c, const struct cfg_node *map, const char *const *known,
                           const char *what, struct diag *d)
{
    if (map->type != CFG_MAP) return cfg_fail(d, c, map, "%s is a map", what);
    for (int i = 0; i < map->n; i++) {
        int k = 0;
        while (known[k] && !cfg_same_key(known[k], map->key[i])) k++;
        if (!known[k])
            return cfg_fail(d, c, &map->child[i], "%s has no key '%s'", what, cfg_shown(map->key[i]).text);
    }
    return OK;
}

/* The text of a key, `otherwise` where there is none. */
static const char *rules_text(const struct cfg_node *map, const char *key, const char *otherwise)
{
    const struct cfg_node *n = cfg_find(map, key);
    return n && n->type == CFG_SCALAR ? n->text : otherwise;
}

static enum err rules_word(const struct cfg *c, const struct cfg_node *map, const char *key, const char *const *words,
                           struct diag *d)
{
    const struct cfg_node *n = cfg_find(map, key);
    if (!n) return OK;
    for (int i = 0; words[i]; i++)
        if (n->type == CFG_SCALAR && strcmp(n->text, words[i]) == 0) return OK;
    return cfg_fail(d, c, n, "%s is not %s%s%s", key, words[0], words[1] ? " or " : "", words[1] ? words[1] : "");
}

static enum err rules_need(const struct cfg *c, const struct cfg_node *map, const char *key, struct diag *d)
{
    if (rules_text(map, key, NULL)) return OK;
    return cfg_fail(d, c, map, "%s is missing", key);
}

/* A map of texts under `key`, if there is one. */
static enum err rules_texts(const struct cfg *c, const struct cfg_node *map, const char *key, struct diag *d)
{
    const struct cfg_node *n = cfg_find(map, key);
    if (n && n->type != CFG_MAP) return cfg_fail(d, c, n, "%s is a map of texts", key);
    for (int i = 0; n && i < n->n; i++)
        if (n->child[i].type != CFG_SCALAR)
            return cfg_fail(d, c, &n->child[i], "%s of %s is no text", n->key[i], key);
    return OK;
}

static enum err check_columns(const struct cfg *c, const struct cfg_node *columns, struct diag *d)
{
    static const char *const known[] = { "option", "values", "else", "only", NULL }, *const kinds[] = { "moe", NULL };
    if (columns->type != CFG_MAP) return cfg_fail(d, c, columns, "columns is a map from columns to options");
    for (int i = 0; i < columns->n; i++) {
        const struct cfg_node *at = &columns->child[i];
        TRY(rules_keys(c, at, known, "a column", d));
        TRY(rules_need(c, at, "option", d));
        TRY(rules_word(c, at, "only", kinds, d));
        TRY(rules_texts(c, at, "values", d));
    }
    return OK;
}

static enum err check_blank(const struct cfg *c, const struct cfg_node *blank, struct diag *d)
{
    static const char *const known[] = { "column", "value", "when", NULL };
    if (blank->type != CFG_LIST) return cfg_fail(d, c, blank, "blank is a list of rules");
    for (int i = 0; i < blank->n; i++) {
        const struct cfg_node *at = &blank->child[i], *when;
        TRY(rules_keys(c, at, known, "a rule", d));
        TRY(rules_need(c, at, "column", d));
        TRY(rules_need(c, at, "value", d));
        if ((when = cfg_find(at, "when")) && when->type != CFG_MAP)
            return cfg_fail(d, c, when, "when is a map from columns to patterns");
    }
    return OK;
}

static enum err check_sources(const struct cfg *c, const struct cfg_node *sources, struct diag *d)
{
    static const char *const known[] = { "source", "set",    "attention",   "recomputed",
                                         "peak",   "memory", "memory_rank", "models", NULL };
    static const char *const squares[] = { "causal", "full", NULL }, *const flags[] = { "0", "1", NULL };
    static const char *const memories[] = { "device", "allocated", NULL };
    static const char *const ranks[] = { "worst", "first", NULL };
    double x;
    if (sources->type != CFG_LIST) return cfg_fail(d, c, sources, "sources is a list");
    for (int i = 0; i < sources->n; i++) {
        const struct cfg_node *at = &sources->child[i];
        TRY(rules_keys(c, at, known, "a source", d));
        TRY(rules_need(c, at, "source", d));
        TRY(rules_word(c, at, "attention", squares, d));
        TRY(rules_word(c, at, "recomputed", flags, d));
        TRY(rules_word(c, at, "memory", memories, d));
        TRY(rules_word(c, at, "memory_rank", ranks, d));
        if (cfg_find(at, "peak") && (units_parse(&x, rules_text(at, "peak", ""), UNIT_FLOP_PER_S) || !(x > 0)))
            return cfg_fail(d, c, at, "peak is not %s", units_example(UNIT_FLOP_PER_S));
        TRY(rules_texts(c, at, "set", d));
        TRY(rules_texts(c, at, "models", d));
    }
    return OK;
}

static enum err rules_check(struct validate_rules *r, struct diag *d)
{
    static const char *const known[] = { "columns", "blank", "sources", NULL };
    TRY(rules_keys(&r->file, &r->file.root, known, "a file of rules", d));
    for (int i = 0; known[i]; i++)
        if (!cfg_find(&r->file.root, known[i])) return cfg_fail(d, &r->file, NULL, "%s is missing", known[i]);
    r->columns = cfg_find(&r->file.root, "columns");
    r->blank   = cfg_find(&r->file.root, "blank");
    r->sources = cfg_find(&r->file.root, "sources");
    TRY(check_columns(&r->file, r->columns, d));
    TRY(check_blank(&r->file, r->blank, d));
    return check_sources(&r->file, r->sources, d);
}

/* The tree's root lies in `r->file`, so it is checked and pointed into where it stays. */
enum err validate_rules_read(struct validate_rules *r, struct arena *a, const char *arg, struct diag *d)
{
    TRY(cfg_read_named(&r->file, a, "published", arg, d));
    return rules_check(r, d);
}

enum err validate_rules_read_text(struct validate_rules *r, struct arena *a, const char *name, const char *text,
                                  struct diag *d)
{
    TRY(cfg_read_text(&r->file, a, name, text, strlen(text), d));
    return rules_check(r, d);
}

/* ---- looking up ---- */

const char *validate_rules_cell(const struct validate_record *r, const char *column)
{
    const int c = csv_column(r->csv, column);
    return c < 0 ? "" : r->csv->cell[(size_t)r->row * (size_t)r->csv->n_col + (size_t)c].text;
}

static int rules_fits(const char *text, const struct cfg_node *patterns)
{
    const struct cfg_node *list = patterns->type == CFG_LIST ? patterns->child : patterns;
    const int n = patterns->type == CFG_LIST ? patterns->n : 1;
    const int not = n > 0 && list[0].type == CFG_SCALAR && *list[0].text == '!';
    for (int i = 0; i < n; i++) {
        const char *p = list[i].type == CFG_SCALAR ? list[i].text : "";
        if (fnmatch(not && i == 0 ? p + 1 : p, text, 0) == 0) return !not;
    }
    return not;
}

static int rules_when(const struct cfg_node *when, const struct validate_record *of)
{
    for (int i = 0; when && i < when->n; i++) {
        const char *key = when->key[i];
        const char *text = strcmp(key, "kind") == 0 ? (of->moe ? "moe" : "dense") : validate_rules_cell(of, key);
        if (!rules_fits(text, &when->child[i])) return 0;
    }
    return 1;
}

static long rules_number(const struct validate_record *of, const char *column)
{
    const char *text = validate_rules_cell(of, column);
    const long n = strtol(text, NULL, 10);
    return n > 0 && n < 1 << 20 ? n : 1;
}

/* The largest number of chunks a stage up to `most`: whole layers in each, whole groups of pp micro-batches. */
static long rules_chunks(const struct validate_record *of, const struct model *m, long most)
{
    const long layers = *validate_rules_cell(of, "layers") ? rules_number(of, "layers") : m->layers;
    const long pp = rules_number(of, "pp");
    const long sets = rules_number(of, "gpus") / (rules_number(of, "tp") * rules_number(of, "cp") * pp);
    const long micro = sets > 0 ? rules_number(of, "gbs") / (sets * rules_number(of, "mbs")) : 0;
    if (pp == 1 || micro < pp || micro % pp) return 1;
    while (most > 1 && layers % (pp * most)) most--;
    return most > 1 ? most : 1;
}

const char *validate_rules_blank(const struct validate_rules *r, struct arena *a, const struct validate_record *of,
                                 const char *column, const struct model *m)
{
    for (int i = 0; i < r->blank->n; i++) {
        const struct cfg_node *rule = &r->blank->child[i];
        const char *value = rules_text(rule, "value", "");
        if (strcmp(rules_text(rule, "column", ""), column) || !rules_when(cfg_find(rule, "when"), of)) continue;
        if (*value == '$') return *(value = validate_rules_cell(of, value + 1)) ? value : NULL;
        if (strncmp(value, "most ", 5) == 0) return arena_printf(a, "%ld", rules_chunks(of, m, atol(value + 5)));
        return value;
    }
    return NULL;
}

struct validate_source validate_rules_source(const struct validate_rules *r, const char *source)
{
    struct validate_source s = { .pattern = "" };
    for (int i = 0; i < r->sources->n; i++) {
        const struct cfg_node *at = &r->sources->child[i];
        s.pattern = rules_text(at, "source", "");
        if (fnmatch(s.pattern, source, 0)) continue;
        s.set            = cfg_find(at, "set");
        s.models         = cfg_find(at, "models");
        s.full_attention = strcmp(rules_text(at, "attention", "causal"), "full") == 0;
        s.recomputed     = strcmp(rules_text(at, "recomputed", "0"), "1") == 0;
        s.allocated      = strcmp(rules_text(at, "memory", "device"), "allocated") == 0;
        s.first_rank     = strcmp(rules_text(at, "memory_rank", "worst"), "first") == 0;
        units_parse(&s.peak_flop_per_s, rules_text(at, "peak", ""), UNIT_FLOP_PER_S);
        return s;
    }
    return (struct validate_source){ .pattern = "" };
}
