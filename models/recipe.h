/* Precisions of training, as recipes: what activations are, and what the products of weights read instead.
 * Quantised are the inputs of linear layers, their output gradients and their weights. Embedding, head, router,
 * norms and attention's core read no copies, and neither do residuals, collectives of experts or the optimizer
 * (TransformerEngine common/recipe/__init__.py, docs/features/low_precision_training; Megatron-Core MoE report,
 * section 5). */
#ifndef MODELS_RECIPE_H
#define MODELS_RECIPE_H
#include "models/base/dtype.h"

/* How a product that contracts over the other axis gets its operand: weight gradients contract over tokens,
 * data gradients over outputs. */
enum columns {
    COLUMNS_SAME,       /* the copy itself                                                              */
    COLUMNS_KMAJOR,     /* a transposed copy where tensor cores take fp8 along the contraction only
                           (Hopper), else the copy itself                                               */
    COLUMNS_OWN,        /* scales run along the contraction: a copy of its own everywhere               */
};

/* X(id, name, activations, copies of activations and gradients, copies of weights, columns, ...)
 * passes: kernels that read the tensor: 2 where its largest value is found first (current scaling; NVFP4's
 * global scale, of the Hadamard-transformed tensor too, which the second kernel transforms again).
 * needs: 1: tensor cores that scale by block (system.block_scaled).
 * fused: 1: norms and activations may write the copies themselves, since the scale is at hand or found within a
 * block that one thread group holds.
 * pad: tokens of each expert are padded to a multiple (Megatron-LM moe_utils.py get_align_size; 128 for
 * 128-wide blocks and for grouped NVFP4 quantisation).
 * sends: bytes an element when low-precision primary weights are gathered; 2: bf16, quantised on arrival. */
#define RECIPE_LIST(X)                                                                                            \
    X(BF16, "bf16", BF16, BF16, BF16, SAME, 0, 0, 0, 1, 2)                                                        \
    X(FP32, "fp32", F32, F32, F32, SAME, 0, 0, 0, 1, 4)                                                           \
    X(FP16, "fp16", F16, F16, F16, SAME, 0, 0, 0, 1, 2)                                                           \
    X(FP8_CS, "fp8-cs", BF16, FP8, FP8, KMAJOR, 2, 0, 0, 16, 1)                                                   \
    X(FP8_DS, "fp8-ds", BF16, FP8, FP8, KMAJOR, 1, 0, 1, 16, 1)                                                   \
    X(FP8_BLOCK, "fp8-block", BF16, FP8_BLOCK, FP8, OWN, 1, 0, 0, 128, 1)                                         \
    X(MXFP8, "mxfp8", BF16, MXFP8, MXFP8, OWN, 1, 1, 1, 32, 2)                                                    \
    X(NVFP4, "nvfp4", BF16, FP4, FP4, OWN, 2, 1, 0, 128, 2)

enum precision {
#define X(id, name, act, x, w, columns, passes, needs, fused, pad, sends) PRECISION_##id,
    RECIPE_LIST(X)
#undef X
    PRECISION_COUNT
};

struct recipe {
    const char *name;
    uint8_t act, x, w;          /* enum dtype                                                    */
    uint8_t columns;            /* enum columns                                                  */
    uint8_t passes, needs_block, fused, pad, sends_B;
};
const struct recipe *recipe_of(int32_t precision);
extern const char *const recipe_names[PRECISION_COUNT + 1];     /* NULL-ended */

/* Whether products read copies at all. */
static inline int recipe_is_low(const struct recipe *r) { return r->x != r->act; }

#endif
