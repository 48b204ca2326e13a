/* Which layers stand on which pipeline chunk. Chunk c = v * pp + s is the v-th of stage s (Megatron's order). */
#ifndef MODELS_LAYOUT_H
#define MODELS_LAYOUT_H
#include "models/base/arena.h"
#include "models/base/err.h"
#include <stdint.h>

enum { LAYOUT_CHUNKS = 1024 };

struct layout {
    int32_t n_chunk;                        /* pp * vpp                                               */
    int32_t first[LAYOUT_CHUNKS + 1];       /* layers first[c] .. first[c + 1] - 1 stand on chunk c    */
    int32_t mtp_chunk, mtp;                 /* where m stands, -1: none, and how many. E is on 0, L on the last one */
};

/* `text`: Megatron's string ("Et|(tt|)*30mL": E embedding, t layer, m MTP, L loss, | next chunk, x*n and (..)*n
 * repeat, groups nest, commas and spaces are skipped), or layers per chunk ("1,2,2,3"), or "even": as many layers
 * on every chunk, E, m and L on top (Megatron-LM's default), or "auto": E, m and L count as one layer each, spread as
 * evenly as can be, later chunks lighter. A chunk with nothing is refused; m may stand on
 * the chunk before L's ("29m|L"); m on two chunks is ERR_LIMIT. Errors name the sizes: chunks against pp * vpp, layers
 * against the model's. Set only on success. */
enum err layout_parse(struct layout *l, const char *text, int layers, int mtp, int pp, int vpp, struct diag *d);
/* The layout as a Megatron string with repeats folded ("Et|(tt|)*30mL"). */
char *layout_text(struct arena *a, const struct layout *l);

static inline int layout_stage(int chunk, int pp) { return chunk % pp; }
/* What passes from chunk - 1 to `chunk` and back: main hidden states, behind m's chunk those of every MTP depth too. */
static inline int layout_states(const struct layout *l, int chunk)
{
    return l->mtp_chunk >= 0 && chunk > l->mtp_chunk ? 1 + l->mtp : 1;
}

#endif
