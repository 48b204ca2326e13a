/* See routing.h. */
#include "models/routing.h"
#include "models/base/units.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const policies[] = { "dropless", "drop", "padded" };
static const struct { const char *name; double low, high; } kinds[] = {     /* high 0: no number behind it */
    { "balanced", 0, 0 }, { "zipf", 0, 8 }, { "dirichlet", 0.05, 1000 }, { "worst", 0, 0 },
    { "recorded", 0, 0 },
};

/* What is still to be read, and what was asked. */
struct words { const char *rest, *text; };

/* The word at the front, when it is `want`: it is taken, with the colon behind it. */
static int take(struct words *w, const char *want)
{
    const size_t n = strlen(want);
    if (strncmp(w->rest, want, n) != 0 || (w->rest[n] != '\0' && w->rest[n] != ':')) return 0;
    w->rest += n + (w->rest[n] == ':');
    return 1;
}

static enum err take_number(double *x, struct words *w, const char *what, double low, double high,
                            struct diag *d)
{
    char *end;
    const double value = strtod(w->rest, &end);
    const int plain = strspn(w->rest, "0123456789.e+-") == (size_t)(end - w->rest) && end != w->rest;
    if (!plain || (*end != '\0' && *end != ':'))
        return fail(d, ERR_CONFIG, "load '%.60s': %s needs a number from %g to %g behind it, such as %s%s1",
                    w->text, what, low, high, what, *what == 'c' ? "" : ":");
    if (!(value >= low && value <= high))
        return fail(d, ERR_CONFIG, "load '%.60s': %s %g is outside %g to %g", w->text, what, value, low,
                    high);
    *x = value;
    w->rest = end + (*end == ':');
    return OK;
}

static enum err take_capacity(struct routing *r, struct words *w, struct diag *d)
{
    if (r->policy == ROUTING_DROPLESS) return OK;
    r->capacity = 1;
    if (strncmp(w->rest, "cf", 2) == 0) {
        w->rest += 2;
        TRY(take_number(&r->capacity, w, "cf", 0.01, 1000, d));
    }
    r->by_position = take(w, "position");
    return OK;
}

/* All that is left is the file's name. */
static enum err take_file(struct words *w, struct diag *d)
{
    if (*w->rest == '\0')
        return fail(d, ERR_CONFIG, "load '%.60s': name the file of counts, such as recorded:tokens.yaml", w->text);
    w->rest += strlen(w->rest);
    return OK;
}

static enum err take_kind(struct routing *r, struct words *w, struct diag *d)
{
    if (*w->rest == '\0') return OK;
    for (int k = 0; k < LEN(kinds); k++) {
        if (!take(w, kinds[k].name)) continue;
        r->kind = k;
        if (k == ROUTING_RECORDED) return take_file(w, d);
        if (kinds[k].high == 0) return OK;
        return take_number(&r->skew, w, kinds[k].name, kinds[k].low, kinds[k].high, d);
    }
    return fail(d, ERR_CONFIG,
                "load '%.60s' is not known: take dropless, drop:cf1, drop:cf1:position or padded:cf1, then balanced, zipf:S, "
                "dirichlet:A, worst or recorded:FILE, such as dropless:zipf:1",
                w->text);
}

enum err routing_parse(struct routing *r, const char *text, struct diag *d)
{
    struct routing made = { 0 };
    struct words w = { text, text };
    for (int p = LEN(policies) - 1; p >= 0; p--)
        if (take(&w, policies[p])) {
            made.policy = p;
            break;
        }
    TRY(take_capacity(&made, &w, d));
    TRY(take_kind(&made, &w, d));
    const size_t n = strlen(text);
    if (made.kind == ROUTING_RECORDED) return *r = made, OK;
    if (*w.rest != '\0' || n == 0 || text[n - 1] == ':')
        return fail(d, ERR_CONFIG, "load '%.60s' does not end where it should: write it like dropless:zipf:1", text);
    *r = made;
    return OK;
}

enum err routing_load(struct routing *r, struct arena *a, const char *text, struct diag *d)
{
    struct routing made;
    TRY(routing_parse(&made, text, d));
    if (made.kind == ROUTING_RECORDED) {
        struct diag why = { "" };
        const enum err e = recorded_read(&made.recorded, a, strstr(text, "recorded:") + 9, &why);
        if (e != OK) return fail(d, e, "load recorded: %s", why.text);
    }
    *r = made;
    return OK;
}

char *routing_text(struct arena *a, const struct routing *r)
{
    const char *text = policies[r->policy];
    if (r->policy != ROUTING_DROPLESS)
        text = arena_printf(a, "%s:cf%.9g%s", text, r->capacity, r->by_position ? ":position" : "");
    if (r->policy == ROUTING_DROPLESS || r->kind != ROUTING_BALANCED)
        text = arena_printf(a, "%s:%s", text, kinds[r->kind].name);
    if (r->kind == ROUTING_RECORDED) return arena_printf(a, "%s:%s", text, r->recorded ? r->recorded->path : "");
    return kinds[r->kind].high > 0 ? arena_printf(a, "%s:%.9g", text, r->skew) : arena_strdup(a, text);
}
