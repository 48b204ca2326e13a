/* An MoE made of a dense checkpoint (Megatron-LM core/transformer/moe/upcycling_utils.py; He et al.,
 * "Upcycling Large Language Models into Mixture of Experts", section 3.2). Every MLP becomes experts,
 * everything else is copied, routers are new. Granularity G cuts an MLP into G narrow experts; a router's
 * rows come in runs of G equal ones, so that a token that chooses a run gets all shards of one copy. Weights
 * of the chosen experts sum to one, so G shards weighted alike add up to 1 / G of the MLP: the linear halves,
 * up and down, get the root of G each (down all of it where there is no gate). The published rule scales the
 * gate too, by the cube root, which silu does not pass on: here the first loss is the parent's. */
#ifndef EXEC_UPCYCLE_H
#define EXEC_UPCYCLE_H
#include "exec/checkpoint.h"

struct upcycle_ask {
    int32_t experts, topk, granularity, seed;
    const char *root;
}; /* root: directory of checkpoints */

/* From the checkpoint `dir` into ROOT/step-00000000. ERR_CONFIG: it has experts already, or G does not divide
 * ffn, experts and topk. */
enum err upcycle(struct arena *a, const char *dir, const struct upcycle_ask *ask, struct diag *d);

#endif
