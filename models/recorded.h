/* Tokens per expert as somebody counted them, for plan key `load: recorded:FILE`: YAML (or JSON) with one key, `tokens`:
 * a list of counts, one an expert, alike in all layers; or a list of such lists, one a MoE layer, any layers. What a
 * count is of, a step or a run, is all the same: only shares matter. */
#ifndef MODELS_RECORDED_H
#define MODELS_RECORDED_H
#include "models/base/arena.h"
#include "models/base/err.h"
#include <stdint.h>

struct recorded { const char *path; int32_t layers, experts; double *tokens; };     /* tokens[layer * experts + expert] */

/* ERR_CONFIG, with the place: counts that are no numbers from 0 to 1e15, a layer without tokens, lists of unequal
 * length. `r` and what it points to live in the arena. */
enum err recorded_read(const struct recorded **r, struct arena *a, const char *path, struct diag *d);
/* The same from a text, named `path` in messages. */
enum err recorded_parse(const struct recorded **r, struct arena *a, const char *path, const char *text, size_t text_B,
                        struct diag *d);

#endif
