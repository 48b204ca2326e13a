/* libFuzzer: any bytes as a safetensors file; every other time behind the right length of header. What is
 * accepted lies inside the file, and its floats can be read. */
#include "exec/safetensors.h"
#include "tests/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_B)
{
    static const char before[] =
        "{\"t\":{\"dtype\":\"F16\",\"shape\":[2,2],\"data_offsets\":[0,8]},\"u\":{\"dtype\":\"";
    uint8_t bytes[8192];
    struct arena a = { 0 };
    struct diag d = { 0 };
    struct safetensors s = { 0 };
    if (size_B < 2 || size_B > 4096) return 0;
    size_t n = size_B - 1;
    memcpy(bytes, data + 1, n);
    if (data[0] % 2 == 0) { /* a header that ends at the last brace, and begins well */
        size_t head_B = n, begin_B = sizeof before - 1;
        while (head_B > 0 && data[head_B] != '}') head_B--;
        n += 8 + begin_B;
        memset(bytes, 0, 8);
        bytes[0] = (uint8_t)(head_B + begin_B), bytes[1] = (uint8_t)((head_B + begin_B) >> 8);
        memcpy(bytes + 8, before, begin_B);
        memcpy(bytes + 8 + begin_B, data + 1, size_B - 1);
    }
    const enum err e = safetensors_read(&s, &a, "fuzz", bytes, (int64_t)n, &d);
    fuzz_answer(e, &d);
    for (int i = 0; e == OK && i < s.n; i++) {
        const struct safetensors_tensor *t = &s.tensor[i];
        float x[8];
        const int64_t all = safetensors_elements(t);
        if (t->at_B < 0 || t->at_B + t->bytes > s.data_B) abort();
        for (int64_t k = 0; k < all; k += 8)
            if (safetensors_floats(x, &s, t, k, all - k < 8 ? all - k : 8, &d) != OK) break;
    }
    arena_free(&a);
    return 0;
}
