/* A reader never sees half a file: a crash leaves the old one, and a name with `.new` behind it. */
#include "tools/save.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { SAVE_PATH_B = 4096 };

static enum err lost(const char *path, struct diag *d)
{
    return fail(d, ERR_IO, "%s: cannot be written: %s", path, strerror(errno));
}

enum err save_text(const char *path, const char *text, size_t text_B, struct diag *d)
{
    char aside[SAVE_PATH_B];
    if (snprintf(aside, sizeof aside, "%s.new", path) >= (int)sizeof aside)
        return fail(d, ERR_IO, "%.60s...: a path of %zu bytes; at most %d", path, strlen(path), SAVE_PATH_B - 5);
    FILE *f = fopen(aside, "wb");
    if (!f) return lost(path, d);
    const int short_of = fwrite(text, 1, text_B, f) != text_B;
    if (fclose(f) != 0 || short_of || rename(aside, path) != 0) {
        const enum err e = lost(path, d);
        remove(aside);
        return e;
    }
    return OK;
}

enum err save_json(const char *path, const json_t *document, struct diag *d)
{
    char *text = json_dumps(document, JSON_INDENT(1) | JSON_REAL_PRECISION(12));
    if (!text) return fail(d, ERR_IO, "%s: the document could not be put into words", path);
    const enum err e = save_text(path, text, strlen(text), d);
    free(text);
    return e;
}

enum err save_directory(const char *path, struct diag *d)
{
    struct stat s;
    if (mkdir(path, 0777) == 0) return OK;
    if (errno != EEXIST) return lost(path, d);
    if (stat(path, &s) != 0 || !S_ISDIR(s.st_mode))
        return fail(d, ERR_IO, "%s: is there, and is no directory", path);
    return OK;
}
