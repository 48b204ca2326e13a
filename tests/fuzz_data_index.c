/* libFuzzer: any bytes as a Megatron-LM index, behind a good magic every other time. What is accepted tiles
 * the .bin. */
#include "exec/data.h"
#include "tests/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_B)
{
    uint8_t bytes[4096];
    struct data_index x;
    struct diag d = { 0 };
    if (size_B < 3 || size_B > sizeof bytes) return 0;
    const int64_t n = (int64_t)size_B - 2, bin_B = data[1];
    memcpy(bytes, data + 2, (size_t)n);
    if (data[0] % 2 == 0 && n >= 18) memcpy(bytes, "MMIDIDX\0\0\1\0\0\0\0\0\0\0\1", 18);
    const enum err e = data_index_read(&x, "fuzz.idx", bytes, n, bin_B, &d);
    fuzz_answer(e, &d);
    if (e != OK) return 0;
    if (x.tokens < 1 || x.tokens > bin_B || x.sequences < 1) abort();
    for (int64_t at = 0; at <= x.tokens; at++)
        if (data_index_end_before(&x, at) > at) abort();
    return 0;
}
