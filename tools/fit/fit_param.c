/* See fit_param.h. */
#include "tools/fit/fit_param.h"
#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading ---- */

static enum err fit_param_number(double *value, const struct cfg *c, const struct cfg_node *map, const char *key,
                                 struct diag *d)
{
    const struct cfg_node *n = cfg_find(map, key);
    if (!n) return cfg_fail(d, c, map, "%s is missing", key);
    if (n->type != CFG_SCALAR || units_parse(value, n->text, UNIT_NONE) || !(*value > 0))
        return cfg_fail(d, c, n, "%s is no number above 0", key);
    return OK;
}

static enum err fit_param_keys(const struct cfg *c, const struct cfg_node *map, const char *const *known,
                               const char *what, struct diag *d)
{
    if (map->type != CFG_MAP) return cfg_fail(d, c, map, "%s is a map", what);
    for (int i = 0; i < map->n; i++) {
        int k = 0;
        while (known[k] && !cfg_same_key(known[k], map->key[i])) k++;
        if (!known[k]) return cfg_fail(d, c, &map->child[i], "%s has no key '%s'", what, cfg_shown(map->key[i]).text);
    }
    return OK;
}

static enum err read_target(struct fit_target *t, const struct cfg *c, const struct cfg_node *at, struct diag *d)
{
    static const char *const known[] = { "systems", "stacks", "key", "base", NULL };
    TRY(fit_param_keys(c, at, known, "what a parameter moves", d));
    const struct cfg_node *systems = cfg_find(at, "systems"), *stacks = cfg_find(at, "stacks");
    const struct cfg_node *key = cfg_find(at, "key"), *base = cfg_find(at, "base");
    if (!systems == !stacks) return cfg_fail(d, c, at, "a parameter moves a key of systems or of stacks: name one");
    if (!key || key->type != CFG_SCALAR) return cfg_fail(d, c, at, "key is missing");
    t->of_stack = stacks != NULL;
    t->names = stacks ? stacks : systems;
    t->opt = stacks ? cfg_opt(stack_opts, stack_n_opt, key->text) : cfg_opt(system_opts, system_n_opt, key->text);
    if (!t->opt || t->opt->type != OPT_NUMBER)
        return cfg_fail(d, c, key, "%s have no number '%s'", stacks ? "stacks" : "systems", cfg_shown(key->text).text);
    t->base_text = base ? base->text : "1";
    if (units_parse(&t->base, t->base_text, t->opt->unit) || !(t->base > 0))
        return cfg_fail(d, c, base ? base : at, "base of %s is not %s above 0", t->opt->key,
                        units_example(t->opt->unit));
    return OK;
}

static enum err read_moves(struct fit_param *p, struct arena *a, const struct cfg *c, const struct cfg_node *moves,
                           struct diag *d)
{
    if (!moves || moves->type != CFG_LIST || moves->n == 0)
        return cfg_fail(d, c, moves, "%s: moves is a list of keys, one at least", p->name);
    p->target = arena_alloc(a, (size_t)moves->n * sizeof *p->target);
    for (int i = 0; i < moves->n; i++) TRY(read_target(&p->target[p->n_target++], c, &moves->child[i], d));
    return OK;
}

static enum err read_param(struct fit_param *p, struct arena *a, const struct cfg *c, const struct cfg_node *at,
                           struct diag *d)
{
    static const char *const known[] = { "name", "prior", "bounds", "source", "moves", NULL };
    static const char *const priors[] = { "median", "ln_sigma", NULL }, *const bounds[] = { "low", "high", NULL };
    TRY(fit_param_keys(c, at, known, "a parameter", d));
    for (int i = 0; known[i]; i++)
        if (!cfg_find(at, known[i])) return cfg_fail(d, c, at, "%s is missing", known[i]);
    const struct cfg_node *prior = cfg_find(at, "prior"), *bound = cfg_find(at, "bounds");
    p->name = cfg_find(at, "name")->text;
    p->source = cfg_find(at, "source")->text;
    if (!p->name || !p->source) return cfg_fail(d, c, at, "name and source are texts");
    TRY(fit_param_keys(c, prior, priors, "prior", d));
    TRY(fit_param_keys(c, bound, bounds, "bounds", d));
    TRY(fit_param_number(&p->median, c, prior, "median", d));
    TRY(fit_param_number(&p->ln_sigma, c, prior, "ln_sigma", d));
    TRY(fit_param_number(&p->low, c, bound, "low", d));
    TRY(fit_param_number(&p->high, c, bound, "high", d));
    if (!(p->low < p->high && p->low <= p->median && p->median <= p->high))
        return cfg_fail(d, c, at, "%s: low %g, median %g, high %g are not in that order", p->name, p->low, p->median,
                        p->high);
    return read_moves(p, a, c, cfg_find(at, "moves"), d);
}

static int names_fit(const struct cfg_node *names, const char *name)
{
    if (names->type == CFG_SCALAR) return fnmatch(names->text, name, 0) == 0;
    for (int i = 0; names->type == CFG_LIST && i < names->n; i++)
        if (names->child[i].type == CFG_SCALAR && fnmatch(names->child[i].text, name, 0) == 0) return 1;
    return 0;
}

static int target_fits(const struct fit_target *t, int of_stack, const char *name)
{
    return t->of_stack == of_stack && names_fit(t->names, name);
}

/* Two parameters that move one key of one file must agree where it begins. */
static enum err check_bases(const struct fit_params *p, struct diag *d)
{
    for (int f = 0; f < cfg_embedded_n; f++) {
        const int of_stack = strcmp(cfg_embedded[f].kind, "stacks") == 0;
        if (!of_stack && strcmp(cfg_embedded[f].kind, "systems") != 0) continue;
        const struct fit_target *first[FIT_PARAMS * 4];
        int n = 0;
        for (int i = 0; i < p->n; i++)
            for (int k = 0; k < p->at[i].n_target; k++) {
                const struct fit_target *t = &p->at[i].target[k];
                if (!target_fits(t, of_stack, cfg_embedded[f].name)) continue;
                for (int m = 0; m < n; m++)
                    if (first[m]->opt == t->opt && strcmp(first[m]->base_text, t->base_text))
                        return fail(d, ERR_CONFIG, "%s: %s of %s has the bases %s and %s: give one", p->file.name,
                                    t->opt->key, cfg_embedded[f].name, first[m]->base_text, t->base_text);
                if (n < LEN(first)) first[n++] = t;
            }
    }
    return OK;
}

static enum err read_all(struct fit_params *p, struct arena *a, struct diag *d)
{
    static const char *const known[] = { "parameters", NULL };
    TRY(fit_param_keys(&p->file, &p->file.root, known, "a file of parameters", d));
    const struct cfg_node *list = cfg_find(&p->file.root, "parameters");
    if (!list || list->type != CFG_LIST) return cfg_fail(d, &p->file, list, "parameters is a list");
    if (list->n > FIT_PARAMS)
        return cfg_fail(d, &p->file, list, "%d parameters, at most %d are read", list->n, FIT_PARAMS);
    for (p->n = 0; p->n < list->n; p->n++) {
        p->at[p->n] = (struct fit_param){ .n_target = 0 };
        TRY(read_param(&p->at[p->n], a, &p->file, &list->child[p->n], d));
    }
    return check_bases(p, d);
}

enum err fit_param_read(struct fit_params *p, struct arena *a, const char *arg, struct diag *d)
{
    TRY(cfg_read_named(&p->file, a, "published", arg, d));
    return read_all(p, a, d);
}

enum err fit_param_read_text(struct fit_params *p, struct arena *a, const char *name, const char *text, struct diag *d)
{
    TRY(cfg_read_text(&p->file, a, name, text, strlen(text), d));
    return read_all(p, a, d);
}

/* ---- moving ---- */

int fit_param_moves(const struct fit_params *p, int i, const char *system, const char *stack)
{
    for (int k = 0; k < p->at[i].n_target; k++) {
        const struct fit_target *t = &p->at[i].target[k];
        if (target_fits(t, t->of_stack, t->of_stack ? stack : system)) return 1;
    }
    return 0;
}

static double *field_of(const struct fit_target *t, struct system *system, struct stack *stack)
{
    return (double *)((t->of_stack ? (char *)stack : (char *)system) + t->opt->at);
}

/* First all bases, then all factors. */
void fit_param_apply(const struct fit_params *p, const double *value, struct system *system, struct stack *stack)
{
    for (int factors = 0; factors < 2; factors++)
        for (int i = 0; i < p->n; i++)
            for (int k = 0; k < p->at[i].n_target; k++) {
                const struct fit_target *t = &p->at[i].target[k];
                if (!target_fits(t, t->of_stack, t->of_stack ? stack->name : system->name)) continue;
                double *x = field_of(t, system, stack);
                *x = factors ? *x * value[i] : t->base;
            }
}

const char *fit_param_text(const struct fit_params *p, struct arena *a, const double *value, int of_stack,
                           const char *name, const char *key)
{
    double factor = 1;
    const char *base = NULL;
    for (int i = 0; i < p->n; i++)
        for (int k = 0; k < p->at[i].n_target; k++) {
            const struct fit_target *t = &p->at[i].target[k];
            if (!target_fits(t, of_stack, name) || strcmp(t->opt->key, key)) continue;
            factor *= value[i];
            base = t->base_text;
        }
    if (!base) return NULL;
    char *unit;
    const double number = strtod(base, &unit);
    return arena_printf(a, "%.4g%s", number * factor, unit);
}
