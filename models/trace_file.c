/* Written aside as PATH.part, so that a reader never sees half a file and a full disk leaves the old one. A device,
 * a pipe or a link is written as it stands: renaming would put a file in its place. */
#include "models/trace_file.h"
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

static int trace_file_replaces(const char *path)
{
    struct stat s;
    return lstat(path, &s) != 0 || S_ISREG(s.st_mode);
}

enum err trace_file_open(struct trace_file *t, const char *path, struct diag *d)
{
    const int n = snprintf(t->aside, sizeof t->aside, "%s%s", path, trace_file_replaces(path) ? ".part" : "");
    if (n < 0 || (size_t)n >= sizeof t->aside)
        return fail(d, ERR_IO, "%.64s...: the path has %d characters, more than %zu", path, n, sizeof t->aside);
    t->path = path;
    t->f = fopen(t->aside, "wb");
    return t->f ? OK : fail(d, ERR_IO, "%.300s: cannot be written: %s", t->aside, strerror(errno));
}

enum err trace_file_commit(struct trace_file *t, struct diag *d)
{
    const int bad = ferror(t->f);
    const int replaces = strcmp(t->aside, t->path) != 0;
    if (fclose(t->f) == 0 && !bad && (!replaces || rename(t->aside, t->path) == 0)) return OK;
    const char *why = strerror(errno);
    if (replaces) remove(t->aside);
    return fail(d, ERR_IO, "%.300s: cannot be written: %s", t->path, why);
}
