/* Texts and documents as whole files (models/base/whole_file), and whether that would work. */
#include "models/base/whole_file.h"
#include "tools/save.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static enum err lost(const char *path, struct diag *d)
{
    return fail(d, ERR_IO, "%s: cannot be written: %s", path, strerror(errno));
}

enum err save_try(const char *path, struct diag *d)
{
    struct whole_file w;
    struct stat s;
    TRY(whole_file_place(&w, path, d));
    if (!whole_file_replaces(&w)) {     /* opening a pipe would end its reader */
        if (stat(path, &s) == 0 && S_ISDIR(s.st_mode)) return errno = EISDIR, lost(path, d);
        return access(path, W_OK) == 0 || errno == ENOENT ? OK : lost(path, d);
    }
    FILE *f = fopen(w.aside, "ab");
    if (!f) return lost(path, d);
    fclose(f);
    remove(w.aside);
    return OK;
}

enum err save_text(const char *path, const char *text, size_t text_B, struct diag *d)
{
    struct whole_file w;
    TRY(whole_file_open(&w, path, d));
    fwrite(text, 1, text_B, w.f);       /* a short write shows in commit */
    return whole_file_commit(&w, d);
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
