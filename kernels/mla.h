/* Multi-head latent attention's last step before attention (DeepSeek-V2 paper, section 2.1): the up-projected
 * halves become q, k, v. q's last `rope` numbers of every head are rotated; k takes its first `nope` from the
 * head's kv and its last `rope` from one rotated key that all heads share. float32. */
#ifndef KERNELS_MLA_H
#define KERNELS_MLA_H
#include "kernels/rope.h"

struct mla {
    int heads, nope, rope, v;
}; /* heads here; widths */

/* q, qb, k [rows, heads * (nope + rope)]; kvb [rows, heads * (nope + v)]; krope [rows, rope]; v [rows, heads
 * * v]. */
enum err mla_ref(float *q, float *k, float *v, const float *qb, const float *kvb, const float *krope,
                 int64_t rows, const struct mla *m, const struct rope *r);
/* dkrope is the sum over heads. */
enum err mla_bwd_ref(float *dqb, float *dkvb, float *dkrope, const float *dq, const float *dk,
                     const float *dv, int64_t rows, const struct mla *m, const struct rope *r);

/* The same, all of type t. */
enum err mla_cuda(void *q, void *k, void *v, const void *qb, const void *kvb, const void *krope, int64_t rows,
                  const struct mla *m, const struct rope *r, enum dtype t, kstream s);
enum err mla_bwd_cuda(void *dqb, void *dkvb, void *dkrope, const void *dq, const void *dk, const void *dv, int64_t rows,
                      const struct mla *m, const struct rope *r, enum dtype t, kstream s);

#endif
