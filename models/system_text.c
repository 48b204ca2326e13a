/* A system as YAML: options as maps in maps. Which of the optional ones are as always is not said. */
#include "models/system.h"
#include <string.h>

static int is_said(const struct system *s, const struct system *as_always, const struct opt *o)
{
    return !o->def || memcmp((const char *)s + o->at, (const char *)as_always + o->at, o->size) != 0;
}

/* Whether no option that is said before the i-th lies in the same map, whose name is the first `n` letters of
 * its key. */
static int is_first(const struct system *s, const struct system *as_always, int i, size_t n)
{
    for (int b = 0; b < i; b++)
        if (strncmp(system_opts[b].key, system_opts[i].key, n) == 0 && is_said(s, as_always, &system_opts[b]))
            return 0;
    return 1;
}

/* A map is written once, where its first key stands. */
static char *level(struct arena *a, char *text, const struct system *s, const struct system *as_always,
                   const char *prefix, int indent)
{
    const size_t n = strlen(prefix);
    for (int i = 0; i < system_n_opt; i++) {
        const struct opt *o = &system_opts[i];
        const char *rest = o->key + n, *dot;
        char value[256];
        if (strncmp(o->key, prefix, n) != 0 || !is_said(s, as_always, o)) continue;
        if (!(dot = strchr(rest, '.'))) {
            cfg_echo(value, sizeof value, s, o);
            text = arena_printf(a, "%s%*s%s: %s\n", text, indent, "", rest, *value ? value : "''");
            continue;
        }
        const size_t whole = (size_t)(dot + 1 - o->key);
        if (!is_first(s, as_always, i, whole)) continue;
        text = arena_printf(a, "%s%*s%.*s:\n", text, indent, "", (int)(dot - rest), rest);
        text = level(a, text, s, as_always, arena_printf(a, "%.*s", (int)whole, o->key), indent + 2);
    }
    return text;
}

char *system_text(struct arena *a, const struct system *s)
{
    struct system as_always = { 0 };
    cfg_defaults(&as_always, system_opts, system_n_opt);
    return level(a, "", s, &as_always, "", 0);
}
