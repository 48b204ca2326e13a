/* Files that the program writes: whole or not at all. Written beside their place, then renamed into it; a device, a
 * pipe or a link is written where it is. */
#ifndef TOOLS_SAVE_H
#define TOOLS_SAVE_H
#include "models/base/err.h"
#include <jansson.h>
#include <stddef.h>

/* Whether save_text could write there: asked before long work. Leaves nothing behind. */
enum err save_try(const char *path, struct diag *d);
enum err save_text(const char *path, const char *text, size_t text_B, struct diag *d);
enum err save_json(const char *path, const json_t *document, struct diag *d);
/* The directory, made when it is not there. */
enum err save_directory(const char *path, struct diag *d);

#endif
