/* A file that appears whole or not at all: written aside, then renamed (a device, pipe or link: in place). */
#ifndef MODELS_TRACE_FILE_H
#define MODELS_TRACE_FILE_H
#include "models/base/err.h"
#include <stdio.h>

struct trace_file { FILE *f; const char *path; char aside[4096]; };

/* ERR_IO names the path and the system's reason. */
enum err trace_file_open(struct trace_file *t, const char *path, struct diag *d);
/* Closes and renames; on any write error so far, removes what was written aside. */
enum err trace_file_commit(struct trace_file *t, struct diag *d);

#endif
