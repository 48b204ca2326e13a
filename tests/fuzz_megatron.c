/* libFuzzer: any bytes as a launch script, then as a recipe. A reader answers, or refuses in one line; it never crashes. */
#include "tests/fuzz.h"
#include "tools/megatron.h"
#include <string.h>

static void import(enum err e, struct arena *a, const struct megatron_args *args, struct diag *d)
{
    const char *(*flag)[2];
    int n;
    if (e == OK) e = megatron_import(&flag, &n, a, args, "", d);
    fuzz_answer(e, d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_B)
{
    struct arena a = { 0 };
    struct diag d = { 0 }, of_yaml = { 0 };
    struct megatron_args args = { 0 };
    struct cfg c;
    char *text = arena_alloc(&a, size_B + 1);
    memcpy(text, data, size_B);
    import(megatron_read(&args, &a, "fuzz", text, &d), &a, &args, &d);
    enum err e = cfg_read_text(&c, &a, "fuzz", text, size_B, &of_yaml);
    if (e == OK) e = megatron_read_yaml(&args, &a, &c, &of_yaml);
    import(e, &a, &args, &of_yaml);
    arena_free(&a);
    return 0;
}
