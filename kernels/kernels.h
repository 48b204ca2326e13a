/* Kernels that exist twice: as their meaning in plain loops (x_ref) and at this machine's speed (x_cpu). The fast
 * ones are compiled once for every instruction set (CMakeLists.txt); which runs is decided by asking the CPU.
 * Launchers call through a table, so a backend of references and a fast one are the same launchers. */
#ifndef KERNELS_KERNELS_H
#define KERNELS_KERNELS_H
#include "kernels/attention.h"
#include "kernels/bf16.h"
#include "kernels/gemm.h"
#include "kernels/norm.h"
#include "kernels/optimizer.h"
#include "kernels/swiglu.h"
#include "kernels/xent.h"

#define KERNELS_LIST(X)                                                                                            \
    X(gemm) X(gemm_dgrad) X(gemm_wgrad) X(gemm_grouped) X(gemm_grouped_dgrad) X(gemm_grouped_wgrad)               \
    X(attention_scratch_B) X(attention) X(attention_bwd) X(norm) X(norm_bwd) X(swiglu) X(swiglu_bwd) X(xent_max)  \
    X(xent_sum) X(xent_bwd) X(optimizer_sumsq) X(optimizer_adamw) X(bf16_widen)   \
    X(bf16_narrow)

struct kernels {
    const char *name;   /* "reference", or the instruction set */
#define X(k) __typeof__(k##_ref) *k;
    KERNELS_LIST(X)
#undef X
};
#define X(k) extern __typeof__(k##_ref) k##_cpu;
KERNELS_LIST(X)
#undef X

extern const struct kernels kernels_ref;
/* The i-th fastest that this CPU runs; NULL: there are no more. */
const struct kernels *kernels_fast(int i);

#endif
