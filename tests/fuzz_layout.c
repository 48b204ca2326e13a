/* libFuzzer: any text as a pipeline layout, over pp 1 to 16, vpp 1 to 4, up to 64 layers (the first three bytes). */
#include "models/layout.h"
#include "tests/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_B)
{
    struct arena a = { 0 };
    struct diag d = { 0 };
    struct layout l;
    char text[512] = "";
    if (size_B < 3) return 0;
    memcpy(text, data + 3, size_B - 3 < sizeof(text) - 1 ? size_B - 3 : sizeof(text) - 1);
    const int pp = data[0] % 16 + 1, vpp = data[1] % 4 + 1, layers = data[2] % 64 + 1, mtp = data[2] >> 7;
    const enum err e = layout_parse(&l, text, layers, mtp, pp, vpp, &d);
    fuzz_answer(e, &d);
    if (e == OK && (l.n_chunk != pp * vpp || l.first[l.n_chunk] != layers)) abort();
    if (e == OK && layout_parse(&l, layout_text(&a, &l), layers, mtp, pp, vpp, &d) != OK) abort();
    arena_free(&a);
    return 0;
}
