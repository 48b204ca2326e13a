/* Element types of buffers. Bytes are per element; block scales of MX formats are buffers of their own. */
#ifndef MODELS_BASE_DTYPE_H
#define MODELS_BASE_DTYPE_H

#define DTYPE_LIST(X) X(F32, "fp32", 4) X(BF16, "bf16", 2) X(FP8, "fp8", 1) X(I32, "int32", 4)

enum dtype {
#define X(id, name, bytes) DT_##id,
    DTYPE_LIST(X)
#undef X
    DT_COUNT
};

int dtype_B(enum dtype t);
const char *dtype_name(enum dtype t);

#endif
