/* Losses that keep a router's choices even, and small, as Megatron-Core defines them (megatron/core/transformer/moe/
 * moe_utils.py: switch_load_balancing_loss_func, z_loss_func): over a scope of T tokens, a micro-batch or one sequence,
 *   coeff E / (K T^2) sum over e of load_e P_e,   P_e = the sum of probabilities p[t, e],
 * where load_e counts the tokens that have expert e among their K best probabilities (no bias, no groups: so is DeepSeek-V3's
 * f_i), and is a constant for gradients; p: the softmax, or sigmoids over their sum. And z coeff / T times the sum of
 * logsumexp(logits)^2. float32, sums in double. */
#ifndef KERNELS_BALANCE_H
#define KERNELS_BALANCE_H
#include "kernels/stream.h"

struct balance {
    int experts, topk, sigmoid;
    int64_t first, local;   /* row t belongs to scope (first + t) / local      */
    double scale, z_scale;  /* coeff E / (K T^2), z coeff / T, over the number of scopes */
};

/* load [scopes, experts], all written: counts over these rows, of which some scopes may have none. */
enum err balance_load_ref(float *load, const float *score, int64_t rows, int64_t scopes, const struct balance *b);
/* dlogit [rows, experts] += the gradient, *loss += its value over these rows. score: as ROUTE leaves them (softmax, or
 * sigmoids not yet divided); load: over all rows of a scope, NULL: no balance; logit: NULL: no z loss. */
enum err balance_ref(float *dlogit, float *loss, const float *score, const float *load, const float *logit, int64_t rows,
                     const struct balance *b);

/* The same on the device; experts at most BALANCE_EXPERTS (ERR_LIMIT). scratch: balance_cuda_scratch_B. */
enum { BALANCE_EXPERTS = 8192 };
int64_t balance_cuda_scratch_B(int64_t rows);
enum err balance_load_cuda(float *load, const float *score, int64_t rows, int64_t scopes, const struct balance *b, kstream s);
enum err balance_cuda(float *dlogit, float *loss, const float *score, const float *load, const float *logit, int64_t rows,
                      const struct balance *b, void *scratch, kstream s);

#endif
