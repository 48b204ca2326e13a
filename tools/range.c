/* Reads range.yaml and looks a plan up in it. */
#include "tools/range.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[RANGE_CLASSES] = { "dense", "moe", "dense-off-grid", "moe-off-grid", "new-system",
                                                  "new-model" };

const char *range_name(enum range_class c)
{
    return names[c];
}

static enum err read_number(double *to, const struct cfg *c, const struct cfg_node *map, const char *key, struct diag *d)
{
    const struct cfg_node *v = cfg_find(map, key);
    char *end = NULL;
    if (!v || v->type != CFG_SCALAR) return cfg_fail(d, c, map, "%s is missing", key);
    *to = strtod(v->text, &end);
    if (*end || end == v->text || !isfinite(*to)) return cfg_fail(d, c, v, "%s is no number", key);
    return OK;
}

enum err range_read(struct ranges *r, struct arena *a, const char *arg, struct diag *d)
{
    struct cfg *c = arena_alloc(a, sizeof *c);
    *r = (struct ranges){ .models = NULL };
    TRY(cfg_read_named(c, a, "published", arg, d));
    for (int i = 0; i < RANGE_CLASSES; i++) {
        const struct cfg_node *map = cfg_find(&c->root, names[i]);
        double rows;
        if (!map || map->type != CFG_MAP) return cfg_fail(d, c, &c->root, "%s is missing: write it by moefold-fit cv", names[i]);
        TRY(read_number(&r->of[i].low, c, map, "low", d));
        TRY(read_number(&r->of[i].high, c, map, "high", d));
        TRY(read_number(&rows, c, map, "rows", d));
        if (r->of[i].low > r->of[i].high) return cfg_fail(d, c, map, "low is above high");
        r->of[i].rows = (int)rows;
    }
    r->models  = cfg_find(&c->root, "models");
    r->systems = cfg_find(&c->root, "systems");
    return OK;
}

static int stands_in(const struct cfg_node *list, const char *name)
{
    for (int i = 0; list && i < list->n; i++)
        if (list->child[i].type == CFG_SCALAR && strcmp(list->child[i].text, name) == 0) return 1;
    return 0;
}

enum range_class range_class_of(const struct ranges *r, const struct job *j, double off_grid_share)
{
    const int moe = j->model.experts > 0;
    if (!stands_in(r->models, j->model.name)) return RANGE_NEW_MODEL;
    if (!stands_in(r->systems, j->system.name)) return RANGE_NEW_SYSTEM;
    if (off_grid_share > RANGE_OFF) return moe ? RANGE_MOE_OFF : RANGE_DENSE_OFF;
    return moe ? RANGE_MOE : RANGE_DENSE;
}

struct range range_step(const struct ranges *r, enum range_class c, double step_s)
{
    static const int near[RANGE_CLASSES][2] = {
        [RANGE_DENSE_OFF]  = { RANGE_DENSE, RANGE_DENSE }, [RANGE_MOE_OFF]   = { RANGE_MOE, RANGE_MOE },
        [RANGE_NEW_SYSTEM] = { RANGE_DENSE, RANGE_MOE },   [RANGE_NEW_MODEL] = { RANGE_DENSE, RANGE_MOE },
        [RANGE_DENSE] = { RANGE_DENSE, RANGE_DENSE }, [RANGE_MOE] = { RANGE_MOE, RANGE_MOE },
    };
    struct range x = r->of[c];
    for (int i = 0; i < 2; i++) {
        x.low  = fmin(x.low, r->of[near[c][i]].low);
        x.high = fmax(x.high, r->of[near[c][i]].high);
    }
    return (struct range){ step_s * exp(x.low), step_s * exp(x.high), x.rows };
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double range_quantile(double *value, int n, double q)
{
    qsort(value, (size_t)n, sizeof *value, by_value);
    const double at = q * (n - 1);
    const int below = (int)at, above = below + 1 < n ? below + 1 : below;
    return value[below] + (at - below) * (value[above] - value[below]);
}

struct range range_of(double *ln, int n)
{
    if (n == 0) return (struct range){ 0, 0, 0 };
    const double low = range_quantile(ln, n, 0.1);
    return (struct range){ low, range_quantile(ln, n, 0.9), n };
}
