/* Recorded routing: which experts every token of every step chose in every layer, by the token's place in the step and
 * not by who held it. A run records it, or takes its choices from it, under any fold: so two precisions, or two folds,
 * are compared without the flips that rounding makes where two scores are near (router replay). */
#ifndef EXEC_ROUTES_H
#define EXEC_ROUTES_H
#include "models/plan.h"

struct routes {
    int32_t first_step, steps, layers, gbs, seq, topk, experts;     /* layers: with those of MTP */
    int32_t *pick;                              /* [step][layer][sequence][position][topk], -1: not recorded */
};

/* Nothing recorded; lives in the arena. */
void routes_make(struct routes *r, struct arena *a, const struct job *j, int steps);
/* The topk experts of one token. step from 0. */
int32_t *routes_at(const struct routes *r, int step, int layer, int64_t sequence, int position);
/* ERR_CONFIG when a run of `steps` steps of `j` is not what they were recorded of, with both numbers. */
enum err routes_check(const struct routes *r, const struct job *j, int steps, struct diag *d);
/* As a file: magic, sizes, choices of two bytes, a checksum; little-endian. The text lives in the arena. */
const char *routes_bytes(size_t *size_B, struct arena *a, const struct routes *r);
/* ERR_IO, ERR_CONFIG: no such file, not whole, changed, or choices that no router makes. */
enum err routes_read(struct routes *r, struct arena *a, const char *path, struct diag *d);

#endif
