/* Optimizers over one rank's slice of a bucket, and the square sum that clipping needs. float32. */
#ifndef KERNELS_OPTIMIZER_H
#define KERNELS_OPTIMIZER_H
#include "kernels/stream.h"

struct optimizer_adamw {
    double lr, beta1, beta2, eps, weight_decay;
    double scale; /* of the gradient, from clipping                  */
    int step;     /* from 1: bias correction                         */
};

/* *sum += scale * (the sum of g[i]^2, in double). */
enum err optimizer_sumsq_ref(float *sum, const float *g, int64_t n, double scale);
/* What the gradient is multiplied by so that its norm, the root of `sumsq`, is at most `clip`: min(1, clip /
 * (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_; 1 when clip is 0. */
double optimizer_clip(double sumsq, double clip);
/* Decoupled weight decay (Loshchilov and Hutter, "Decoupled Weight Decay Regularization"). The step is taken
 * on `master` and copied to w; where master is NULL, w is the master. */
enum err optimizer_adamw_ref(float *w, float *master, float *m, float *v, const float *g, int64_t n,
                             const struct optimizer_adamw *o);
/* w -= lr * scale * g; `master` as above. */
enum err optimizer_sgd_ref(float *w, float *master, const float *g, int64_t n, double lr, double scale);

/* The same. Gradients, m, v and master are float32, w of type t: bf16 weights need a master. In place of the step's `scale`
 * the device's square sum is taken when `sumsq` is not NULL: scale = optimizer_clip(*sumsq, clip) * o->scale, so that
 * the host never waits for it. scratch: OPTIMIZER_SCRATCH_B. */
enum { OPTIMIZER_BLOCKS = 528, OPTIMIZER_SCRATCH_B = OPTIMIZER_BLOCKS * 8 };
enum err optimizer_sumsq_cuda(float *sum, const float *g, int64_t n, double scale, void *scratch, kstream s);
enum err optimizer_adamw_cuda(void *w, float *master, float *m, float *v, const float *g, int64_t n,
                              const struct optimizer_adamw *o, const float *sumsq, double clip, enum dtype t, kstream s);
enum err optimizer_sgd_cuda(void *w, float *master, const float *g, int64_t n, double lr, double scale, const float *sumsq,
                            double clip, enum dtype t, kstream s);

#endif
