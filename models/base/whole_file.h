/* A file that appears whole or not at all: written aside, then renamed (a device, pipe or link: in place). */
#ifndef MODELS_BASE_WHOLE_FILE_H
#define MODELS_BASE_WHOLE_FILE_H
#include "models/base/arena.h"
#include "models/base/err.h"
#include <stdio.h>

struct whole_file { FILE *f; const char *path; char aside[4096]; };     /* aside: what is opened, path itself if in place */

/* Where `path` will be written; opens nothing. ERR_IO when the path is too long. */
enum err whole_file_place(struct whole_file *w, const char *path, struct diag *d);
/* Whether committing renames. */
int whole_file_replaces(const struct whole_file *w);
/* ERR_IO names the path and the system's reason. */
enum err whole_file_open(struct whole_file *w, const char *path, struct diag *d);
/* Closes and renames; on any write error so far, removes what was written aside. */
enum err whole_file_commit(struct whole_file *w, struct diag *d);

/* The other way: all bytes of a file, a zero behind them; of a longer one than most_B, most_B + 1, so that the caller can tell
 * by *text_B and refuse it in its own words. ERR_IO names the path and the system's reason. */
enum err whole_file_read(char **text, size_t *text_B, struct arena *a, const char *path, size_t most_B, struct diag *d);

#endif
