/* Written aside as PATH.part, so that a reader never sees half a file and a full disk leaves the old one. A device,
 * a pipe or a link is written as it stands: renaming would put a file in its place. */
#include "models/base/whole_file.h"
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

enum err whole_file_place(struct whole_file *w, const char *path, struct diag *d)
{
    struct stat s;
    const int aside = lstat(path, &s) != 0 || S_ISREG(s.st_mode);
    const int n = snprintf(w->aside, sizeof w->aside, "%s%s", path, aside ? ".part" : "");
    if (n < 0 || (size_t)n >= sizeof w->aside)
        return fail(d, ERR_IO, "%.64s...: the path has %d characters, more than %zu", path, n, sizeof w->aside);
    w->path = path;
    return OK;
}

int whole_file_replaces(const struct whole_file *w)
{
    return strcmp(w->aside, w->path) != 0;
}

enum err whole_file_open(struct whole_file *w, const char *path, struct diag *d)
{
    TRY(whole_file_place(w, path, d));
    w->f = fopen(w->aside, "wb");
    return w->f ? OK : fail(d, ERR_IO, "%.300s: cannot be written: %s", path, strerror(errno));
}

enum err whole_file_commit(struct whole_file *w, struct diag *d)
{
    const int bad = ferror(w->f), replaces = whole_file_replaces(w);
    if (fclose(w->f) == 0 && !bad && (!replaces || rename(w->aside, w->path) == 0)) return OK;
    const char *why = strerror(errno);
    if (replaces) remove(w->aside);
    return fail(d, ERR_IO, "%.300s: cannot be written: %s", w->path, why);
}

enum err whole_file_read(char **text, size_t *text_B, struct arena *a, const char *path, size_t most_B, struct diag *d)
{
    FILE *f = fopen(path, "rb");
    struct stat s;
    if (!f) return fail(d, ERR_IO, "cannot read %.200s: %s", path, strerror(errno));
    const int sized = fstat(fileno(f), &s) == 0 && S_ISREG(s.st_mode) && (size_t)s.st_size < most_B;
    const size_t room = sized ? (size_t)s.st_size + 1 : most_B + 1;     /* one more tells that it grew, or is too long */
    *text = arena_alloc(a, room + 1);
    errno = 0;
    *text_B = fread(*text, 1, room, f);
    const int broken = ferror(f), reason = errno;
    fclose(f);
    if (broken) return fail(d, ERR_IO, "cannot read %.200s: %s", path, strerror(reason));
    (*text)[*text_B] = '\0';
    return OK;
}
