/* Safetensors files (github.com/huggingface/safetensors, README "Format"): 8 bytes of length, a JSON map from
 * name to type, shape and place, then the tensors' bytes, little-endian, one behind the other. */
#ifndef EXEC_SAFETENSORS_H
#define EXEC_SAFETENSORS_H
#include "models/base/arena.h"
#include "models/base/err.h"
#include <stdint.h>

#define SAFETENSORS_LIST(X)                                                                                  \
    X(F32, 4)                                                                                                \
    X(BF16, 2) X(F16, 2) X(F64, 8) X(I64, 8) X(I32, 4) X(I16, 2) X(I8, 1) X(U8, 1) X(BOOL, 1) X(F8_E4M3, 1)  \
        X(F8_E5M2, 1)
enum safetensors_type {
#define X(id, bytes) SAFETENSORS_##id,
    SAFETENSORS_LIST(X)
#undef X
    SAFETENSORS_TYPES
};
enum { SAFETENSORS_DIMS = 8 };
struct safetensors_tensor {
    const char *name;
    int32_t type, n_dim; int64_t dim[SAFETENSORS_DIMS];
    int64_t at_B, bytes;                /* behind the header */
};
struct safetensors {
    const char *name;                   /* of the file, for messages */
    struct safetensors_tensor *tensor; int32_t n;       /* by place; they tile `data` */
    const char *head; int64_t head_B;   /* the header as it stands, length and padding included */
    const uint8_t *data; int64_t data_B;
    void *map; int64_t map_B;
};

/* From the bytes of a whole file, which must stay. Errors name the file. */
enum err safetensors_read(struct safetensors *s, struct arena *a, const char *name, const uint8_t *bytes,
                          int64_t n, struct diag *d);
/* Maps a file. */
enum err safetensors_open(struct safetensors *s, struct arena *a, const char *path, struct diag *d);
void safetensors_close(struct safetensors *s);
const struct safetensors_tensor *safetensors_find(const struct safetensors *s,
                                                  const char *name); /* or NULL */
int64_t safetensors_elements(const struct safetensors_tensor *t);

/* Elements [first, first + n) as float32. ERR_LIMIT: of another type than F32, BF16 and F16. */
enum err safetensors_floats(float *to, const struct safetensors *s, const struct safetensors_tensor *t,
                            int64_t first, int64_t n, struct diag *d);
/* float32 -> the bytes of a type, to nearest, ties to even: F32, BF16 or F16. */
void safetensors_bytes(uint8_t *to, const float *from, int64_t n, enum safetensors_type type);
/* The header of tensors in the order given, whose at_B and bytes this sets; length in *head_B. Names need no
 * escapes. */
char *safetensors_head(struct arena *a, struct safetensors_tensor *tensor, int n, int64_t *head_B);

#endif
