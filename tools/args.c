/* Flags are looked up in three tables of options: what every verb has, the verb's own, and the plan's. Values of
 * the plan are only collected here; plan_read_job reads them on top of the plan's file, by the same rows. */
#include "tools/args.h"
#include "tools/guide.h"
#include "tools/report.h"
#include <stddef.h>
#include <string.h>

static const struct opt common[] = {
    { .key = "json", ARGS_BOOL(struct args, json),
      .help = "one JSON document on stdout, and nothing else there" },
    { .key = "help", ARGS_BOOL(struct args, help), .help = "this text" },
};

struct reader {
    struct args *to;
    void *flags;
    const struct args_spec *spec;
    struct arena *a;
    int argc, next;
    char **argv;
};

static const struct opt *find(void **owner, const struct reader *r, const char *key)
{
    const struct opt *o = cfg_opt(common, LEN(common), key);
    *owner = r->to;
    if (o) return o;
    *owner = r->flags;
    if ((o = cfg_opt(r->spec->flag, r->spec->n_flag, key)) != NULL) return o;
    *owner = NULL;
    return r->spec->takes_plan ? cfg_opt(plan_opts, plan_n_opt, key) : NULL;
}

static enum err unknown(const struct reader *r, const char *key, struct diag *d)
{
    const struct args_spec *s = r->spec;
    const char *near = s->n_flag ? cfg_nearest(s->flag, s->n_flag, key) : NULL;
    if (!near && s->takes_plan) near = cfg_nearest(plan_opts, plan_n_opt, key);
    if (!near) near = cfg_nearest(common, LEN(common), key);
    const char *shown = arena_strdup(r->a, cfg_shown(key).text);
    if (near) return fail(d, ERR_CONFIG, "--%s: %s has no such flag; did you mean --%s?", shown, s->verb, near);
    return fail(d, ERR_CONFIG, "--%s: %s has no such flag; `moefold %s --help` lists them", shown, s->verb,
                s->verb);
}

static int is_bool_text(const char *text)
{
    static const char *const words[] = { "0", "1", "false", "true" };
    for (int i = 0; i < LEN(words); i++)
        if (strcmp(text, words[i]) == 0) return 1;
    return 0;
}

/* The text of a flag without '=': the next word, which a yes-or-no flag may lack. */
static enum err value_of(const char **text, struct reader *r, const struct opt *o, struct diag *d)
{
    const char *next = r->next < r->argc ? r->argv[r->next] : NULL;
    if (o->type == OPT_BOOL && !(next && is_bool_text(next))) {
        *text = "1";
        return OK;
    }
    if (!next || strncmp(next, "--", 2) == 0)
        return fail(d, ERR_CONFIG, "--%s: the value is missing; write --%s VALUE (%s)", o->key, o->key, o->help);
    r->next++;
    *text = next;
    return OK;
}

void args_add(struct args *to, struct arena *a, const char *key, const char *text)
{
    to->plan = arena_grow(a, to->plan, to->n_plan, to->n_plan + 1, sizeof *to->plan);
    to->plan[to->n_plan][0] = key;
    to->plan[to->n_plan++][1] = text;
}

/* --fix k=v says the same as --k v; it reads better in a search. */
static enum err add_fixed(struct reader *r, const char *text, struct diag *d)
{
    const char *eq = strchr(text, '=');
    if (!eq) return fail(d, ERR_CONFIG, "--fix: '%s' is not of the form key=value", cfg_shown(text).text);
    const char *key = arena_printf(r->a, "%.*s", (int)(eq - text), text);
    const struct opt *o = cfg_opt(plan_opts, plan_n_opt, key);
    if (!o) {
        const char *near = cfg_nearest(plan_opts, plan_n_opt, key);
        return fail(d, ERR_CONFIG, "--fix: a plan has no '%s'%s%s", cfg_shown(key).text,
                    near ? "; did you mean " : "", near ? near : "");
    }
    args_add(r->to, r->a, o->key, eq + 1);
    return OK;
}

static enum err read_flag(struct reader *r, const char *word, struct diag *d)
{
    const char *eq = strchr(word, '=');
    const char *key = eq ? arena_printf(r->a, "%.*s", (int)(eq - word), word) : word;
    void *owner = NULL;
    const struct opt *o = find(&owner, r, key);
    if (!o) return unknown(r, key, d);
    const char *text = eq ? eq + 1 : NULL;
    if (!text) TRY(value_of(&text, r, o, d));
    if (*text == '\0') return fail(d, ERR_CONFIG, "--%s: the value is empty", o->key);
    if (owner == r->flags && strcmp(o->key, "fix") == 0) return add_fixed(r, text, d);
    if (owner) return cfg_set(owner, o, text, arena_printf(r->a, "--%s", o->key), d);
    args_add(r->to, r->a, o->key, text);
    return OK;
}

static enum err read_word(struct reader *r, const char *word, struct diag *d)
{
    const struct args_spec *s = r->spec;
    if (r->to->n_word >= s->max_words)
        return fail(d, ERR_CONFIG, "'%s' is one word too many: moefold %s %s", cfg_shown(word).text, s->verb,
                    s->words);
    r->to->word[r->to->n_word++] = word;
    return OK;
}

enum err args_parse(struct args *to, void *flags, const struct args_spec *spec, struct arena *a, int argc,
                    char **argv, struct diag *d)
{
    struct reader r = { .to = to, .flags = flags, .spec = spec, .a = a, .argc = argc, .argv = argv };
    *to = (struct args){ 0 };
    cfg_defaults(flags, spec->flag, spec->n_flag);
    while (r.next < argc) {
        const char *word = argv[r.next++];
        if (strcmp(word, "-h") == 0) to->help = ARGS_HELP_TEXT;
        else if (strcmp(word, "--help=completion") == 0) to->help = ARGS_HELP_COMPLETION;
        else if (strcmp(word, "--help=man") == 0) to->help = ARGS_HELP_MAN;
        else if (strcmp(word, "-o") == 0) TRY(read_flag(&r, "out", d));
        else if (strncmp(word, "--", 2) == 0) TRY(read_flag(&r, word + 2, d));
        else TRY(read_word(&r, word, d));
    }
    if (!to->help && to->n_word < spec->min_words)
        return fail(d, ERR_CONFIG, "%s needs more words: moefold %s %s", spec->verb, spec->verb, spec->words);
    return OK;
}

/* ---- help ---- */

struct help_row { const char *flag, *values, *def, *help; };
static const struct report_col help_cols[] = {
    { "flag", "flag", REPORT_TEXT, offsetof(struct help_row, flag) },
    { "values", "values", REPORT_TEXT, offsetof(struct help_row, values) },
    { "default", "default", REPORT_TEXT, offsetof(struct help_row, def) },
    { "help", "", REPORT_TEXT, offsetof(struct help_row, help) },
};

static char *join_names(struct arena *a, const char *const *names, const char *between)
{
    char *text = arena_strdup(a, names[0]);
    for (int i = 1; names[i]; i++) text = arena_printf(a, "%s%s%s", text, between, names[i]);
    return text;
}

static const char *values_text(struct arena *a, const struct opt *o)
{
    switch (o->type) {
    case OPT_INT: return arena_printf(a, "%.0f..%.0f", o->lo, o->hi);
    case OPT_NUMBER: return o->unit == UNIT_NONE ? arena_printf(a, "%g..%g", o->lo, o->hi) : units_example(o->unit);
    case OPT_BOOL: return "0|1";
    case OPT_NAME: return join_names(a, o->names, "|");
    case OPT_SET: return join_names(a, o->names, "+");
    default: return "text";
    }
}

static void help_table(struct arena *a, const char *heading, const struct opt *opt, int n)
{
    struct help_row *row = arena_alloc(a, (size_t)(n + 1) * sizeof *row);
    for (int i = 0; i < n; i++)
        row[i] = (struct help_row){ arena_printf(a, "--%s", opt[i].key), values_text(a, &opt[i]), opt[i].def,
                                    opt[i].help };
    report_table(heading, &(struct report_list){ help_cols, LEN(help_cols), row, sizeof *row, n }, -1);
}

void args_help(const struct args_spec *spec, const struct args *args)
{
    if (args->help == ARGS_HELP_COMPLETION) {
        guide_completion(spec, common, LEN(common));
        return;
    }
    if (args->help == ARGS_HELP_MAN) {
        guide_man(spec);
        return;
    }
    struct arena a = { 0 };
    const size_t n = (size_t)spec->n_flag;
    struct opt *all = arena_alloc(&a, (n + LEN(common)) * sizeof *all);
    if (n) memcpy(all, spec->flag, n * sizeof *all);
    memcpy(all + n, common, sizeof common);
    printf("%s %s %s: %s\n", spec->program ? spec->program : "moefold", spec->verb, spec->words, spec->what);
    help_table(&a, "flags", all, (int)n + LEN(common));
    if (spec->takes_plan)
        help_table(&a, spec->max_words ? "the plan as flags, on top of PLAN's file" : "the plan as flags",
                   plan_opts, plan_n_opt);
    arena_free(&a);
}

enum err args_job(struct job *j, struct arena *a, const struct args *args, int runs, struct diag *d)
{
    return plan_read_job(j, a, args->n_word ? args->word[args->n_word - 1] : NULL, args->n_plan,
                         (const char *const (*)[2])args->plan, runs, d);
}
