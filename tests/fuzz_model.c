/* libFuzzer: any bytes as a model description. A reader answers, or refuses in one line; it never crashes. */
#include "models/model.h"
#include "tests/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_B)
{
    struct arena a = { 0 };
    struct diag d = { 0 };
    struct cfg c;
    struct model x;
    enum err e = cfg_read_text(&c, &a, "fuzz", (const char *)data, size_B, &d);
    if (e == OK) e = model_fill(&x, &c, &d);
    fuzz_answer(e, &d);
    arena_free(&a);
    return 0;
}
