/* libFuzzer: any bytes as counts of tokens per expert. What is accepted sums to more than nothing in every layer. */
#include "models/recorded.h"
#include "tests/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_B)
{
    struct arena a = { 0 };
    struct diag d = { 0 };
    const struct recorded *r = NULL;
    const enum err e = recorded_parse(&r, &a, "fuzz", (const char *)data, size_B, &d);
    fuzz_answer(e, &d);
    for (int l = 0; e == OK && l < r->layers; l++) {
        double sum = 0;
        for (int k = 0; k < r->experts; k++) sum += r->tokens[(size_t)l * (size_t)r->experts + (size_t)k];
        if (!(sum > 0 && sum <= 1e15 * r->experts)) abort();
    }
    arena_free(&a);
    return 0;
}
