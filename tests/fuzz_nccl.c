/* libFuzzer: any bytes as a topology of NCCL, then as output of nccl-tests. */
#include "tests/fuzz.h"
#include "tools/nccl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_B)
{
    struct arena a = { 0 };
    struct diag d = { 0 };
    struct nccl_said said;
    struct system s;
    char *text = arena_alloc(&a, size_B + 1);
    memcpy(text, data, size_B);
    if (system_read(&s, &a, "h100-sxm", &d) != OK) abort();
    fuzz_answer(nccl_topo(&s, &said, &a, "fuzz", text, size_B, &d), &d);
    fuzz_answer(nccl_tests(&s, &said, &a, "fuzz", text, &d), &d);
    arena_free(&a);
    return 0;
}
