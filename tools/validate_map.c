/* A record -> a job. Every column becomes an option of the plan: the cell, or what a blank stands for. A value that
 * plans cannot express, or that plan_check refuses, goes back to what its column calls nothing special; the row
 * says so. So a feature that plans learn is used by every row that names it, without a change here. */
#include "tools/validate.h"
#include <ctype.h>
#include <string.h>

enum { MAP_COLUMNS = 64, MAP_SET = 16 };

/* One column of a record on its way to the plan. `text` NULL: the option keeps its default. */
struct map_setting { const char *column, *text, *fallback; const struct opt *option; };
struct map {
    struct map_setting at[MAP_COLUMNS]; int n;
    const struct validate_source *source;
    struct arena *a;
    struct validate_row *row;
};

static void note(struct arena *a, const char **list, const char *text)
{
    *list = arena_printf(a, "%s%s%s", *list, **list ? "; " : "", text);
}

/* The text of exactly this key (which may hold dots), or NULL. */
static const char *scalar(const struct cfg_node *map, const char *key)
{
    for (int i = 0; i < map->n; i++)
        if (strcmp(map->key[i], key) == 0) return map->child[i].text;
    return NULL;
}

/* Whether `word` stands in `text` by itself. */
static int has_word(const char *text, const char *word)
{
    const size_t n = strlen(word);
    for (const char *at = text; (at = strstr(at, word)); at++) {
        const char before = at > text ? at[-1] : ' ', after = at[n];
        const int open = !isalnum((unsigned char)before) && before != '_' && before != '-';
        if (open && !isalnum((unsigned char)after) && after != '_' && after != '-') return 1;
    }
    return 0;
}

static int accepts(const struct opt *o, const char *text)
{
    struct plan scratch = { 0 };
    struct diag d = { "" };
    return cfg_set(&scratch, o, text, "", &d) == OK;
}

static int is_nothing(const struct map_setting *s)
{
    return s->fallback && s->text && strcmp(s->text, s->fallback) == 0;
}

/* Back to nothing special; `why` (may be NULL) ends the note. */
static void fall_back(struct map *m, struct map_setting *s, const char *why)
{
    note(m->a, &m->row->approximated, arena_printf(m->a, "%s %s as %s%s%s%s", s->column, s->text, s->fallback,
                                                   why ? " (" : "", why ? why : "", why ? ")" : ""));
    s->text = s->fallback;
}

/* The words of a set that `keep` likes; the others are noted. */
static void filter_set(struct map *m, struct map_setting *s,
                       int (*keep)(const struct opt *, const char *, const void *), const void *with)
{
    const char *prefix = s->option->prefix ? s->option->prefix : "", *left = "";
    const size_t skip = strncmp(s->text, prefix, strlen(prefix)) == 0 ? strlen(prefix) : 0;
    char *rest = arena_strdup(m->a, s->text + skip), *word;
    while ((word = strtok_r(rest, "+", &rest))) {
        if (keep(s->option, word, with)) left = arena_printf(m->a, "%s%s%s", left, *left ? "+" : prefix, word);
        else note(m->a, &m->row->approximated, arena_printf(m->a, "%s without %s", s->column, word));
    }
    s->text = *left ? left : s->fallback;
}

static int is_known(const struct opt *o, const char *word, const void *with)
{
    (void)with;
    return accepts(o, word);
}

static int is_unnamed(const struct opt *o, const char *word, const void *message)
{
    (void)o;
    return !has_word(message, word);
}

/* What plans can express of a setting, before any plan is made. */
static enum err express(struct map *m, struct map_setting *s, const char *option, struct diag *d)
{
    if (!s->option) {
        if (!s->fallback)
            return fail(d, ERR_CONFIG, "%s %s: plans have no option %s", s->column, cfg_shown(s->text).text, option);
        if (!is_nothing(s)) fall_back(m, s, NULL);
        s->text = NULL;
        return OK;
    }
    if (accepts(s->option, s->text)) return OK;
    if (!s->fallback) return cfg_set(&(struct plan){ 0 }, s->option, s->text, s->column, d);
    if (s->option->type == OPT_SET) filter_set(m, s, is_known, NULL);
    else fall_back(m, s, NULL);
    return OK;
}

/* What a source trained under a model's name. */
static const char *trained(const struct validate_source *s, const char *model)
{
    const char *other = s->models ? scalar(s->models, model) : NULL;
    return other ? other : model;
}

/* The cell, spelled as the plan does, or what its blank stands for; NULL: nothing to set. */
static const char *text_of(struct map *m, const struct validate_rules *rules, const struct validate_record *of,
                           const struct cfg_node *column, const char *name, const struct model *model)
{
    const int idle = scalar(column, "only") && !of->moe;
    const char *cell = validate_rules_cell(of, name), *text = cell, *spelled;
    const struct cfg_node *values = cfg_find(column, "values");
    if (!*cell) {
        text = idle ? NULL : validate_rules_blank(rules, m->a, of, name, model);
        if (text) note(m->a, &m->row->inferred, arena_printf(m->a, "%s %s", name, text));
    }
    if (!text) return NULL;
    if (strcmp(name, "model") == 0) return trained(m->source, text);
    return values && (spelled = scalar(values, text)) ? spelled : text;
}

static enum err collect(struct map *m, const struct validate_rules *rules, const struct validate_record *of,
                        const struct model *model, struct diag *d)
{
    for (int i = 0; i < rules->columns->n && m->n < MAP_COLUMNS; i++) {
        const struct cfg_node *column = &rules->columns->child[i];
        const char *name = rules->columns->key[i], *option = scalar(column, "option");
        struct map_setting s = { .column = name, .fallback = scalar(column, "else"),
                                 .option = cfg_opt(plan_opts, plan_n_opt, option) };
        s.text = text_of(m, rules, of, column, name, model);
        if (s.text) TRY(express(m, &s, option, d));
        m->at[m->n++] = s;
    }
    return OK;
}

static enum err read_plan(struct job *j, const struct map *m, struct diag *d)
{
    const char *flag[MAP_COLUMNS + MAP_SET][2];
    int n = 0;
    const struct cfg_node *set = m->source->set;
    for (int i = 0; set && i < set->n && n < MAP_SET; i++) {
        flag[n][0] = set->key[i];
        flag[n++][1] = set->child[i].text;
    }
    for (int i = 0; i < m->n; i++) {
        if (!m->at[i].text || !m->at[i].option) continue;
        flag[n][0] = m->at[i].option->key;
        flag[n++][1] = m->at[i].text;
    }
    return plan_read_job(j, m->a, NULL, n, (const char *const(*)[2])flag, 0, d);
}

/* "--dispatcher: dispatcher deepep is not offered by ..". */
static int begins_with(const char *message, const char *key)
{
    const size_t n = strlen(key);
    return strncmp(message, "--", 2) == 0 && strncmp(message + 2, key, n) == 0 && message[2 + n] == ':';
}

/* The setting that a refusal is about and that can go back: its message begins with it, or else names it. */
static struct map_setting *culprit(struct map *m, const char *message)
{
    for (int named = 0; named < 2; named++)
        for (int i = 0; i < m->n; i++) {
            struct map_setting *s = &m->at[i];
            if (!s->option || !s->text || !s->fallback || is_nothing(s)) continue;
            if ((named ? has_word : begins_with)(message, s->option->key)) return s;
        }
    return NULL;
}

static void give_way(struct map *m, struct map_setting *s, const char *message)
{
    const char *before = s->text;
    if (s->option->type == OPT_SET && strchr(before, '+')) filter_set(m, s, is_unnamed, message);
    if (s->text == before || strcmp(s->text, before) == 0) {
        s->text = before;
        fall_back(m, s, message);
    }
}

enum err validate_map_job(struct job *j, struct validate_row *row, struct arena *a,
                          const struct validate_rules *rules, struct validate_record *of, struct diag *d)
{
    const struct validate_source source = validate_rules_source(rules, row->source);
    const char *name = trained(&source, row->model);
    struct map m = { .source = &source, .a = a, .row = row };
    struct model model;
    row->inferred = row->approximated = "";
    if (!*row->model) return fail(d, ERR_CONFIG, "model is blank");
    TRY(model_read(&model, a, name, d));
    of->moe = model.experts > 0;
    row->kind = of->moe ? "moe" : "dense";
    for (int i = 0; source.set && i < source.set->n; i++)
        note(a, &row->inferred, arena_printf(a, "%s %s", source.set->key[i], source.set->child[i].text));
    if (name != row->model) note(a, &row->inferred, arena_printf(a, "model %s", name));
    TRY(collect(&m, rules, of, &model, d));
    for (int tries = 0; tries < 2 * MAP_COLUMNS; tries++) {
        struct diag why = { "" };
        const enum err e = read_plan(j, &m, &why);
        struct map_setting *s = e == OK ? NULL : culprit(&m, why.text);
        if (e == OK) return OK;
        if (!s) return fail(d, e, "%s", why.text);
        give_way(&m, s, arena_strdup(a, why.text));
    }
    return fail(d, ERR_CONFIG, "no legal plan");
}
