/* Element types of buffers. A block-scaled type holds its scales too: one of `scale` bytes for each run of `block`
 * elements, counted with the buffer's bytes (OCP MX spec 1.0: 32 elements share an E8M0; NVFP4: 16 share an E4M3;
 * DeepSeek-V3 report 3.3.2: 128 share an FP32). Per-tensor scales are a few bytes and not counted. */
#ifndef MODELS_BASE_DTYPE_H
#define MODELS_BASE_DTYPE_H
#include <stdint.h>

/* X(id, name, bits, block, scale, peak): products of this type run at the peak of `peak`. */
#define DTYPE_LIST(X)                                                                                             \
    X(F32, "fp32", 32, 1, 0, F32)                                                                                 \
    X(BF16, "bf16", 16, 1, 0, BF16)                                                                               \
    X(FP8, "fp8", 8, 1, 0, FP8)                                                                                   \
    X(I32, "int32", 32, 1, 0, I32)                                                                                \
    X(F16, "fp16", 16, 1, 0, BF16)                                                                                \
    X(FP8_BLOCK, "fp8-block", 8, 128, 4, FP8)                                                                     \
    X(MXFP8, "mxfp8", 8, 32, 1, FP8)                                                                              \
    X(FP4, "fp4", 4, 16, 1, FP4)                                                                                  \
    X(I16, "int16", 16, 1, 0, I16)

enum dtype {
#define X(id, name, bits, block, scale, peak) DT_##id,
    DTYPE_LIST(X)
#undef X
    DT_COUNT
};

struct dtype_format { uint8_t bits, block, scale, peak; };
extern const struct dtype_format dtype_formats[DT_COUNT];

/* Bytes of one element, rounded up, without scales. */
int dtype_B(enum dtype t);
/* Of many: with scales. */
static inline int64_t dtype_all_B(enum dtype t, int64_t n)
{
    const struct dtype_format *f = &dtype_formats[t];
    return (f->bits >= 8 ? n * (f->bits / 8) : (n * f->bits + 7) / 8) +
           (f->scale ? (n + f->block - 1) / f->block * f->scale : 0);
}
static inline enum dtype dtype_peak(enum dtype t) { return (enum dtype)dtype_formats[t].peak; }
const char *dtype_name(enum dtype t);

#endif
