/* Values <-> structs, by one table of options per kind of file. The same row reads a file's value and a
 * flag's, prints the help, and writes the value back, so these can not drift apart. Every message names the
 * key, what was given, what is allowed, and the nearest thing the user may have meant. */
#include "models/cfg.h"
#include <assert.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { CFG_KEY = 96 };

/* ---- the nearest of several words ---- */

/* Edit distance (insert, drop, change), one row at a time; words longer than the row are far from everything. */
static int cfg_distance(const char *a, const char *b)
{
    int row[64];
    const size_t n = strlen(a), m = strlen(b);
    if (n >= 64 || m >= 64) return 1000;
    for (size_t j = 0; j <= m; j++) row[j] = (int)j;
    for (size_t i = 1; i <= n; i++) {
        int corner = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= m; j++) {
            const int change = corner + (a[i - 1] != b[j - 1]);
            corner = row[j];
            const int gap = (row[j - 1] < row[j] ? row[j - 1] : row[j]) + 1;
            row[j] = change < gap ? change : gap;
        }
    }
    return row[m];
}

struct cfg_best { const char *word; int distance; };

/* At most a third of the letters may differ (at least one, at least two in words over three letters). */
static void cfg_best_try(struct cfg_best *best, const char *word, const char *given)
{
    const int n = (int)strnlen(given, 64), far = n / 3 > 2 ? n / 3 : n > 3 ? 2 : 1;
    const int distance = cfg_distance(given, word);
    if (distance <= far && (best->word == NULL || distance < best->distance))
        *best = (struct cfg_best){ word, distance };
}

const char *cfg_nearest(const struct opt *table, int n_opt, const char *key)
{
    struct cfg_best best = { 0 };
    for (int i = 0; i < n_opt; i++) cfg_best_try(&best, table[i].key, key);
    return best.word;
}

const struct opt *cfg_opt(const struct opt *table, int n_opt, const char *key)
{
    for (int i = 0; i < n_opt; i++)
        if (cfg_same_key(table[i].key, key)) return &table[i];
    return NULL;
}

/* ---- text -> value ---- */

static const struct word *cfg_word(const struct opt *o, const char *text)
{
    for (const struct word *w = o->words; w != NULL && w->text != NULL; w++)
        if (cfg_same_key(w->text, text)) return w;
    return NULL;
}

static int cfg_index(const char *const *names, const char *text)
{
    for (int i = 0; names[i] != NULL; i++)
        if (cfg_same_key(names[i], text)) return i;
    return -1;
}

/* "a, b, c" of what an option accepts by name. */
static void cfg_choices(char *to, size_t to_B, const struct opt *o)
{
    size_t n = 0;
    *to = '\0';
    for (const struct word *w = o->words; w != NULL && w->text != NULL && n < to_B; w++)
        n += (size_t)snprintf(to + n, to_B - n, "%s%s", n > 0 ? ", " : "", w->text);
    for (int i = 0; o->names != NULL && o->names[i] != NULL && n < to_B; i++)
        n += (size_t)snprintf(to + n, to_B - n, "%s%s", n > 0 ? ", " : "", o->names[i]);
}

static enum err cfg_bad_name(const struct opt *o, const char *text, const char *where, struct diag *d)
{
    struct cfg_best best = { 0 };
    char choices[256];
    for (const struct word *w = o->words; w != NULL && w->text != NULL; w++)
        cfg_best_try(&best, w->text, text);
    for (int i = 0; o->names[i] != NULL; i++) cfg_best_try(&best, o->names[i], text);
    cfg_choices(choices, sizeof(choices), o);
    return fail(d, ERR_CONFIG, "%s: %s = '%s' is not known%s%s%s: choose of %s", where, o->key,
                cfg_shown(text).text, best.word != NULL ? ": did you mean '" : "",
                best.word != NULL ? best.word : "", best.word != NULL ? "'" : "", choices);
}

/* How a number of this option is written, for messages. */
static const char *cfg_example(const struct opt *o)
{
    return o->type == OPT_INT ? "a whole number such as 8" : units_example(o->unit);
}

/* What is wrong with a number, NULL when nothing is. */
static const char *cfg_number_fault(double *x, const struct opt *o, const char *text)
{
    switch (units_parse(x, text, o->unit)) {
    case -1: return o->unit == UNIT_NONE ? "is not a number" : "is not a number with its unit";
    case -2: return "has no unit";
    case -3: return "has the wrong unit";
    default: return o->type == OPT_INT && *x != floor(*x) ? "is not a whole number" : NULL;
    }
}

static enum err cfg_set_number(double *x, const struct opt *o, const char *text, const char *where,
                               struct diag *d)
{
    char lo[48], hi[48], choices[128];
    const char *fault = cfg_number_fault(x, o, text);
    if (fault == NULL && *x >= o->lo && *x <= o->hi) return OK;
    cfg_choices(choices, sizeof(choices), o);
    const char *or = *choices ? ", or " : "";
    if (fault != NULL)
        return fail(d, ERR_CONFIG, "%s: %s = '%s' %s: write %s%s%s", where, o->key, cfg_shown(text).text,
                    fault, cfg_example(o), or, choices);
    return fail(d, ERR_CONFIG, "%s: %s = '%s' is out of range: it must lie in %s .. %s%s%s", where, o->key,
                cfg_shown(text).text, units_print(lo, sizeof(lo), o->lo, o->unit),
                units_print(hi, sizeof(hi), o->hi, o->unit), or, choices);
}

/* "a+b+c", in any order, each once; a prefix such as "selective:" may stand before. */
static enum err cfg_set_names(int32_t *bits, const struct opt *o, const char *text, const char *where,
                              struct diag *d)
{
    const size_t prefix_n = o->prefix != NULL ? strlen(o->prefix) : 0;
    const char *s = prefix_n > 0 && strncmp(text, o->prefix, prefix_n) == 0 ? text + prefix_n : text;
    int32_t set = 0;
    if (strcmp(s, "none") == 0) {
        *bits = 0;
        return OK;
    }
    for (;;) {
        char name[64];
        const size_t n = strcspn(s, "+");
        snprintf(name, sizeof(name), "%.*s", n < sizeof(name) ? (int)n : (int)sizeof(name), s);
        const int i = cfg_index(o->names, name);
        if (i < 0) return cfg_bad_name(o, name, where, d);
        if (set & 1 << i)
            return fail(d, ERR_CONFIG, "%s: %s names '%s' twice: once is enough", where, o->key, name);
        set |= 1 << i;
        if (s[n] == '\0') break;
        s += n + 1;
    }
    *bits = set;
    return OK;
}

static enum err cfg_set_text(char *to, const struct opt *o, const char *text, const char *where,
                             struct diag *d)
{
    const size_t n = strlen(text);
    if (n >= o->size)
        return fail(d, ERR_CONFIG, "%s: %s has %zu bytes, at most %zu are kept: shorten it", where, o->key, n,
                    o->size - 1);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)text[i] < ' ' || text[i] == 0x7F)
            return fail(d, ERR_CONFIG, "%s: %s = '%s' has a control character at %zu: leave it out", where,
                        o->key, cfg_shown(text).text, i + 1);
    memset(to, 0, o->size);         /* bytes behind the text are hashed and compared too */
    memcpy(to, text, n);
    return OK;
}

static enum err cfg_set_bool(int32_t *to, const struct opt *o, const char *text, const char *where,
                             struct diag *d)
{
    const int yes = strcmp(text, "1") == 0 || strcmp(text, "true") == 0;
    if (!yes && strcmp(text, "0") != 0 && strcmp(text, "false") != 0)
        return fail(d, ERR_CONFIG, "%s: %s = '%s' is neither yes nor no: write 1, 0, true or false", where,
                    o->key, cfg_shown(text).text);
    *to = yes;
    return OK;
}

enum err cfg_set(void *to, const struct opt *o, const char *text, const char *where, struct diag *d)
{
    void *at = (char *)to + o->at;
    const struct word *w = cfg_word(o, text);
    double x = w != NULL ? w->value : 0;
    if (w == NULL) {
        if (*text == '\0' && (o->type != OPT_TEXT || o->def == NULL || *o->def != '\0'))
            return fail(d, ERR_CONFIG, "%s: %s is empty: %s", where, o->key, o->help);
        switch (o->type) {
        case OPT_TEXT: return cfg_set_text(at, o, text, where, d);
        case OPT_BOOL: return cfg_set_bool(at, o, text, where, d);
        case OPT_SET:  return cfg_set_names(at, o, text, where, d);
        case OPT_NAME:
            x = cfg_index(o->names, text);
            if (x < 0) return cfg_bad_name(o, text, where, d);
            break;
        default: TRY(cfg_set_number(&x, o, text, where, d));
        }
    }
    if (o->type == OPT_NUMBER) {
        *(double *)at = x;
    } else {
        *(int32_t *)at = (int32_t)x;
    }
    return OK;
}

void cfg_defaults(void *to, const struct opt *table, int n_opt)
{
    struct diag d;
    for (int i = 0; i < n_opt; i++) {
        const struct opt *o = &table[i];
        memset((char *)to + o->at, 0, o->size);
        const enum err e = o->def != NULL ? cfg_set(to, o, o->def, "default", &d) : OK;
        assert(e == OK);
        (void)e;
    }
}

/* ---- a document -> struct ---- */

struct cfg_fill {
    void *to; char *set;
    const struct opt *table; int n_opt;
    const struct cfg *c; struct diag *d;
};

static void cfg_where(char *to, size_t to_B, const struct cfg *c, const struct cfg_node *at)
{
    snprintf(to, to_B, "%.200s:%d:%d", c->name, at->line, at->column);
}

/* A list of words for an OPT_SET becomes "a+b". */
static enum err cfg_join(char *to, size_t to_B, const struct cfg_fill *f, const struct cfg_node *list)
{
    size_t n = (size_t)snprintf(to, to_B, "%s", list->n == 0 ? "none" : "");
    for (int i = 0; i < list->n; i++) {
        const struct cfg_node *v = &list->child[i];
        if (v->type != CFG_SCALAR)
            return cfg_fail(f->d, f->c, v, "a list of words cannot hold a map or a list");
        if (n + strlen(v->text) + 2 > to_B)
            return cfg_fail(f->d, f->c, v, "the list is too long: name each module once");
        n += (size_t)snprintf(to + n, to_B - n, "%s%s", i > 0 ? "+" : "", v->text);
    }
    return OK;
}

static enum err cfg_fill_one(const struct cfg_fill *f, const struct opt *o, const struct cfg_node *v)
{
    char where[256], joined[512];
    if (v->type == CFG_MAP || (v->type == CFG_LIST && o->type != OPT_SET))
        return cfg_fail(f->d, f->c, v, "%s holds a %s, it needs one value: %s", o->key,
                        v->type == CFG_MAP ? "map" : "list", o->help);
    if (v->type == CFG_LIST) TRY(cfg_join(joined, sizeof(joined), f, v));
    const char *text = v->type == CFG_LIST ? joined : v->text;
    if (cfg_set(f->to, o, text, "", f->d) != OK) {          /* once more, with the place, which is rarely needed */
        cfg_where(where, sizeof(where), f->c, v);
        return cfg_set(f->to, o, text, where, f->d);
    }
    f->set[o - f->table] = 1;
    return OK;
}

/* Whether some option's key begins with "prefix.". */
static int cfg_is_prefix(const struct cfg_fill *f, const char *prefix)
{
    const size_t n = strlen(prefix);
    for (int i = 0; i < f->n_opt; i++) {
        char front[CFG_KEY];
        if (f->table[i].key[strnlen(f->table[i].key, n)] != '.') continue;
        snprintf(front, sizeof(front), "%.*s", (int)n, f->table[i].key);
        if (cfg_same_key(front, prefix)) return 1;
    }
    return 0;
}

static enum err cfg_unknown(const struct cfg_fill *f, const char *key, const struct cfg_node *at)
{
    const char *near = cfg_nearest(f->table, f->n_opt, key);
    return near != NULL
               ? cfg_fail(f->d, f->c, at, "unknown key '%s': did you mean '%s'?", cfg_shown(key).text, near)
               : cfg_fail(f->d, f->c, at, "unknown key '%s': remove it, or see --help for the keys",
                          cfg_shown(key).text);
}

static enum err cfg_fill_map(const struct cfg_fill *f, const struct cfg_node *map, const char *prefix)
{
    for (int i = 0; i < map->n; i++) {
        char key[CFG_KEY];
        const struct cfg_node *v = &map->child[i];
        const int n = snprintf(key, sizeof(key), "%s%s%s", prefix, *prefix ? "." : "", map->key[i]);
        const struct opt *o =
            n < CFG_KEY && strchr(map->key[i], '.') == NULL ? cfg_opt(f->table, f->n_opt, key) : NULL;
        if (o != NULL) {
            TRY(cfg_fill_one(f, o, v));
        } else if (n >= CFG_KEY || !cfg_is_prefix(f, key)) {
            return cfg_unknown(f, key, v);
        } else if (v->type != CFG_MAP) {
            return cfg_fail(f->d, f->c, v, "%s needs a map of keys, such as '%s: { ... }'", key, key);
        } else {
            TRY(cfg_fill_map(f, v, key));
        }
    }
    return OK;
}

static enum err cfg_fill_checked(const struct cfg_fill *f)
{
    const struct cfg_node *root = &f->c->root;
    if (root->type != CFG_MAP)
        return cfg_fail(f->d, f->c, root, "the file must be a map: write 'key: value' lines");
    TRY(cfg_fill_map(f, root, ""));
    for (int i = 0; i < f->n_opt; i++)
        if (f->table[i].def == NULL && !f->set[i])
            return cfg_fail(f->d, f->c, root, "'%s' is missing: %s", f->table[i].key, f->table[i].help);
    return OK;
}

enum err cfg_fill(void *to, char *set, const struct opt *table, int n_opt, const struct cfg *c,
                  struct diag *d)
{
    char own[512] = { 0 };
    assert(n_opt <= (int)sizeof(own));
    if (set == NULL) set = own;
    memset(set, 0, (size_t)n_opt);
    cfg_defaults(to, table, n_opt);
    return cfg_fill_checked(&(struct cfg_fill){ to, set, table, n_opt, c, d });
}

enum err cfg_locate(struct diag *d, enum err e, const struct opt *table, int n_opt, const char *flagged,
                    const struct cfg *c)
{
    char key[CFG_KEY], where[256] = "";
    snprintf(key, sizeof(key), "%.*s", (int)strcspn(d->text, " ="), d->text);
    const struct opt *o = cfg_opt(table, n_opt, key);
    const struct cfg_node *at = c != NULL && o != NULL ? cfg_find(&c->root, o->key) : NULL;
    if (o != NULL && flagged != NULL && flagged[o - table]) {
        snprintf(where, sizeof(where), "--%s", o->key);
    } else if (c != NULL) {
        cfg_where(where, sizeof(where), c, at != NULL ? at : &c->root);
    }
    const struct diag text = *d;
    return *where ? fail(d, e, "%s: %s", where, text.text) : e;
}

/* ---- value -> text ---- */

static char *cfg_echo_set(char *text, size_t text_B, int32_t bits, const struct opt *o)
{
    size_t n = (size_t)snprintf(text, text_B, "%s", bits == 0 ? "none" : o->prefix != NULL ? o->prefix : "");
    const char *plus = "";
    for (int i = 0; o->names[i] != NULL && n < text_B; i++) {
        if (!(bits & 1 << i)) continue;
        n += (size_t)snprintf(text + n, text_B - n, "%s%s", plus, o->names[i]);
        plus = "+";
    }
    return text;
}

char *cfg_echo(char *text, size_t text_B, const void *from, const struct opt *o)
{
    const void *at = (const char *)from + o->at;
    if (o->type == OPT_TEXT) {
        snprintf(text, text_B, "%s", (const char *)at);
        return text;
    }
    const double x = o->type == OPT_NUMBER ? *(const double *)at : *(const int32_t *)at;
    for (const struct word *w = o->words; w != NULL && w->text != NULL; w++)
        if (w->value == x) {
            snprintf(text, text_B, "%s", w->text);
            return text;
        }
    switch (o->type) {
    case OPT_NAME: snprintf(text, text_B, "%s", o->names[(int)x]); return text;
    case OPT_SET:  return cfg_echo_set(text, text_B, (int32_t)x, o);
    case OPT_NUMBER: return units_print(text, text_B, x, o->unit);
    default:       snprintf(text, text_B, "%d", (int)x); return text;
    }
}

/* ---- embedded configs ---- */

static const struct cfg_file *cfg_named(const char *kind, const char *name)
{
    for (int i = 0; i < cfg_embedded_n; i++)
        if (strcmp(cfg_embedded[i].kind, kind) == 0 && strcmp(cfg_embedded[i].name, name) == 0)
            return &cfg_embedded[i];
    return NULL;
}

static int cfg_is_path(const char *arg)
{
    const size_t n = strlen(arg);
    return strchr(arg, '/') != NULL ||
           (n > 5 && (strcmp(arg + n - 5, ".yaml") == 0 || strcmp(arg + n - 5, ".json") == 0));
}

enum err cfg_check_name(const char *kind, const char *arg, const char *key, struct diag *d)
{
    struct cfg_best best = { 0 };
    if (cfg_is_path(arg) || cfg_named(kind, arg) != NULL) return OK;
    for (int i = 0; i < cfg_embedded_n; i++)
        if (strcmp(cfg_embedded[i].kind, kind) == 0) cfg_best_try(&best, cfg_embedded[i].name, arg);
    const struct cfg_shown shown = cfg_shown(arg);
    if (best.word != NULL)
        return fail(d, ERR_CONFIG, "%s '%s' is not one of the built-in %s: did you mean '%s'?", key,
                    shown.text, kind, best.word);
    return fail(d, ERR_CONFIG,
                "%s '%s' is not one of the built-in %s: give a file ending in .yaml or .json, or see"
                " `moefold list`",
                key, shown.text, kind);
}

enum err cfg_read_named(struct cfg *c, struct arena *a, const char *kind, const char *arg, struct diag *d)
{
    if (cfg_is_path(arg)) return cfg_read_file(c, a, arg, d);
    TRY(cfg_check_name(kind, arg, "the name", d));
    const struct cfg_file *f = cfg_named(kind, arg);
    return cfg_read_text(c, a, arena_printf(a, "configs/%s/%s.yaml", kind, arg), f->text, strlen(f->text), d);
}

char *cfg_stem(char *to, size_t to_B, const char *name)
{
    const char *slash = strrchr(name, '/'), *from = slash != NULL ? slash + 1 : name,
               *dot = strrchr(from, '.');
    snprintf(to, to_B, "%.*s", (int)(dot != NULL && dot > from ? (size_t)(dot - from) : strlen(from)), from);
    return to;
}
