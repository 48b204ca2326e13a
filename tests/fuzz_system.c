/* libFuzzer: any bytes as a system description. A reader answers, or refuses in one line; it never crashes. */
#include "models/system.h"
#include "tests/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_B)
{
    struct arena a = { 0 };
    struct diag d = { 0 };
    struct cfg c;
    struct system x;
    enum err e = cfg_read_text(&c, &a, "fuzz", (const char *)data, size_B, &d);
    if (e == OK) e = system_fill(&x, &c, &d);
    fuzz_answer(e, &d);
    arena_free(&a);
    return 0;
}
