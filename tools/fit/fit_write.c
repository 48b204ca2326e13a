/* See fit_write.h. */
#include "tools/fit/fit_write.h"
#include "models/base/whole_file.h"
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

/* Where a scalar begins in the text, from its line and column (from 1). */
static size_t place_of(const char *text, const struct cfg_node *at)
{
    const char *s = text;
    for (int line = 1; line < at->line; line++) s = strchr(s, '\n') + 1;
    return (size_t)(s - text) + (size_t)at->column - 1;
}

static enum err replace(const char **text, struct arena *a, const struct cfg_file *from, const char *key,
                        const char *with, struct diag *d)
{
    struct cfg c;
    TRY(cfg_read_text(&c, a, from->name, *text, strlen(*text), d));
    const struct cfg_node *at = cfg_find(&c.root, key);
    if (!at || at->type != CFG_SCALAR)
        return fail(d, ERR_CONFIG, "configs/%s/%s.yaml has no key %s, which a parameter moves: add it", from->kind,
                    from->name, key);
    const size_t begin = place_of(*text, at), end = begin + strlen(at->text);
    if (strncmp(*text + begin, at->text, strlen(at->text)))
        return cfg_fail(d, &c, at, "%s is quoted: write it plainly", key);
    *text = arena_printf(a, "%.*s%s%s", (int)begin, *text, with, *text + end);
    return OK;
}

enum err fit_write_text(const char **to, struct arena *a, const struct fit_params *p, const double *value,
                        const struct cfg_file *from, struct diag *d)
{
    const int of_stack = strcmp(from->kind, "stacks") == 0;
    const struct opt *opt = of_stack ? stack_opts : system_opts;
    const int n = of_stack ? stack_n_opt : system_n_opt;
    *to = from->text;
    for (int i = 0; i < n; i++) {
        const char *with = fit_param_text(p, a, value, of_stack, from->name, opt[i].key);
        if (with) TRY(replace(to, a, from, opt[i].key, with, d));
    }
    return OK;
}

static enum err make_folder(const char *path, struct diag *d)
{
    if (mkdir(path, 0777) == 0 || errno == EEXIST) return OK;
    return fail(d, ERR_IO, "%s: %s", path, strerror(errno));
}

static enum err write_file(const char *path, const char *text, struct diag *d)
{
    struct whole_file w;
    TRY(whole_file_open(&w, path, d));
    fputs(text, w.f);
    return whole_file_commit(&w, d);
}

enum err fit_write_file(struct arena *a, const char *dir, const char *folder, const char *name, const char *text,
                        struct diag *d)
{
    TRY(make_folder(dir, d));
    TRY(make_folder(arena_printf(a, "%s/%s", dir, folder), d));
    return write_file(arena_printf(a, "%s/%s/%s.yaml", dir, folder, name), text, d);
}

enum err fit_write_all(int *n, struct arena *a, const struct fit_params *p, const double *value, const char *dir,
                       struct diag *d)
{
    *n = 0;
    TRY(make_folder(dir, d));
    for (int i = 0; i < cfg_embedded_n; i++) {
        const struct cfg_file *from = &cfg_embedded[i];
        const char *text;
        if (strcmp(from->kind, "systems") && strcmp(from->kind, "stacks")) continue;
        TRY(fit_write_text(&text, a, p, value, from, d));
        if (text == from->text) continue;
        TRY(fit_write_file(a, dir, from->kind, from->name, text, d));
        ++*n;
    }
    return OK;
}
