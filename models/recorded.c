#include "models/recorded.h"
#include "models/cfg.h"
#include <stdlib.h>
#include <string.h>

static enum err count_of(double *to, const struct cfg *c, const struct cfg_node *x, struct diag *d)
{
    const char *text = x->type == CFG_SCALAR ? x->text : "";
    char *end;
    const double n = strtod(text, &end);
    const int plain = *text && strspn(text, "0123456789.e+") == strlen(text) && *end == '\0';
    if (!plain || !(n >= 0 && n <= 1e15))
        return cfg_fail(d, c, x, "tokens: '%s' is no count from 0 to 1e15", x->type == CFG_SCALAR ? cfg_shown(text).text : "[..]");
    *to = n;
    return OK;
}

static enum err layer_of(double *to, const struct cfg *c, const struct cfg_node *list, int experts, struct diag *d)
{
    double sum = 0;
    if (list->type != CFG_LIST || list->n != experts)
        return cfg_fail(d, c, list, "tokens: a layer has %d counts, the first %d: give one for each expert",
                        list->type == CFG_LIST ? list->n : 0, experts);
    for (int e = 0; e < experts; e++) {
        TRY(count_of(&to[e], c, &list->child[e], d));
        sum += to[e];
    }
    if (sum > 0) return OK;
    return cfg_fail(d, c, list, "tokens: a layer has 0 tokens: leave it out, or count it");
}

static enum err fill(struct recorded *r, struct arena *a, const struct cfg *c, struct diag *d)
{
    const struct cfg_node *tokens = c->root.type == CFG_MAP ? cfg_find(&c->root, "tokens") : NULL;
    if (!tokens || c->root.n != 1 || tokens->type != CFG_LIST || tokens->n == 0)
        return cfg_fail(d, c, tokens ? tokens : &c->root,
                        "a recorded load is one key, tokens, with a list of counts, one an expert, or such a list for every layer");
    const int nested = tokens->child[0].type == CFG_LIST;
    r->layers = nested ? tokens->n : 1;
    r->experts = nested ? tokens->child[0].n : tokens->n;
    r->tokens = arena_alloc(a, ((size_t)r->layers * (size_t)r->experts + 1) * sizeof *r->tokens);
    for (int l = 0; l < r->layers; l++)
        TRY(layer_of(&r->tokens[(size_t)l * (size_t)r->experts], c, nested ? &tokens->child[l] : tokens, r->experts, d));
    return OK;
}

enum err recorded_parse(const struct recorded **to, struct arena *a, const char *path, const char *text, size_t text_B,
                        struct diag *d)
{
    struct recorded *r = arena_alloc(a, sizeof *r);
    struct cfg c;
    TRY(cfg_read_text(&c, a, path, text, text_B, d));
    TRY(fill(r, a, &c, d));
    r->path = arena_strdup(a, path);
    *to = r;
    return OK;
}

enum err recorded_read(const struct recorded **to, struct arena *a, const char *path, struct diag *d)
{
    struct recorded *r = arena_alloc(a, sizeof *r);
    struct cfg c;
    TRY(cfg_read_file(&c, a, path, d));
    TRY(fill(r, a, &c, d));
    r->path = arena_strdup(a, path);
    *to = r;
    return OK;
}
