/* How tokens choose experts, and what is done with those that choose a full one: plan key `load`, the column
 * `routing` of published runs. "POLICY:DISTRIBUTION", either alone: dropless:balanced (the default),
 * dropless:zipf:1.2, dropless:dirichlet:0.5, dropless:worst, drop:cf1, drop:cf1:position, padded:cf1.25:zipf:1, recorded:FILE.
 * A run takes dropless, drop and padded; its tokens choose for themselves. */
#ifndef MODELS_ROUTING_H
#define MODELS_ROUTING_H
#include "models/base/arena.h"
#include "models/base/err.h"
#include "models/recorded.h"
#include <stdint.h>

/* Megatron-LM core/transformer/moe: DROP is --moe-expert-capacity-factor (what an expert gets of a rank
 * beyond its capacity is dropped; rows stay the load's), PADDED adds --moe-pad-expert-input-to-capacity (rows
 * are static). A rank drops among its own tokens of a micro-batch, so what is dropped depends on how tokens are cut into ranks
 * and micro-batches (tp, cp, mbs): two folds compute the same when they cut them alike, or when nothing is dropped. */
enum routing_policy { ROUTING_DROPLESS, ROUTING_DROP, ROUTING_PADDED };
/* Of popularity over experts; the k-th most popular of E, k from 0, is picked in proportion to: BALANCED 1;
 * ZIPF (k + 1)^-skew; DIRICHLET the quantile (E - k - 1/2) / E of Gamma(skew), of which a symmetric
 * Dirichlet's components are made. WORST: every token picks as many experts of one rank as it can. RECORDED: as
 * counted in a file. */
enum routing_kind { ROUTING_BALANCED, ROUTING_ZIPF, ROUTING_DIRICHLET, ROUTING_WORST, ROUTING_RECORDED };

struct routing {
    int32_t policy, kind;
    int32_t by_position;            /* an expert keeps the first tokens, not those that weigh it most (--moe-token-drop-policy)     */
    double capacity;                /* factor on the picks an expert gets of a rank under even routing; 0: dropless */
    double skew;                    /* of ZIPF 0 .. 8 (0: balanced); of DIRICHLET 0.05 .. 1000 (large: balanced)    */
    const struct recorded *recorded;        /* of RECORDED; routing_load reads it                                  */
};

/* Set only on success. A capacity factor is 1 unless given, and within 0.01 .. 1000. */
enum err routing_parse(struct routing *r, const char *text, struct diag *d);
/* The same, and the file of a recorded load, which may live in the arena. */
enum err routing_load(struct routing *r, struct arena *a, const char *text, struct diag *d);
/* As routing_parse reads it back: "dropless:balanced", "drop:cf1", "padded:cf1:zipf:1". */
char *routing_text(struct arena *a, const struct routing *r);

#endif
