/* A reader never sees half a file: a crash leaves the old one, and a name with `.new` behind it. A device, a pipe
 * or a link is written as it stands: renaming would put a file in its place. */
#include "tools/save.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SAVE_PATH_B = 4096 };
struct place_of_file { char text[SAVE_PATH_B]; int aside; };    /* what is opened; renamed afterwards when aside */

static enum err lost(const char *path, struct diag *d)
{
    return fail(d, ERR_IO, "%s: cannot be written: %s", path, strerror(errno));
}

static enum err find_place(struct place_of_file *to, const char *path, struct diag *d)
{
    struct stat s;
    to->aside = lstat(path, &s) != 0 || S_ISREG(s.st_mode);
    if (snprintf(to->text, sizeof to->text, "%s%s", path, to->aside ? ".new" : "") >= (int)sizeof to->text)
        return fail(d, ERR_IO, "%.60s...: a path of %zu bytes; at most %d", path, strlen(path), SAVE_PATH_B - 5);
    return OK;
}

enum err save_try(const char *path, struct diag *d)
{
    struct place_of_file place;
    struct stat s;
    TRY(find_place(&place, path, d));
    if (!place.aside) {                 /* opening a pipe would end its reader */
        if (stat(path, &s) == 0 && S_ISDIR(s.st_mode)) return errno = EISDIR, lost(path, d);
        return access(path, W_OK) == 0 || errno == ENOENT ? OK : lost(path, d);
    }
    FILE *f = fopen(place.text, "ab");
    if (!f) return lost(path, d);
    fclose(f);
    remove(place.text);
    return OK;
}

enum err save_text(const char *path, const char *text, size_t text_B, struct diag *d)
{
    struct place_of_file place;
    TRY(find_place(&place, path, d));
    FILE *f = fopen(place.text, "wb");
    if (!f) return lost(path, d);
    const int short_of = fwrite(text, 1, text_B, f) != text_B;
    if (fclose(f) == 0 && !short_of && (!place.aside || rename(place.text, path) == 0)) return OK;
    const enum err e = lost(path, d);
    if (place.aside) remove(place.text);
    return e;
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
