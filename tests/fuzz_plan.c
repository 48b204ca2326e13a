/* libFuzzer: any bytes as a plan. What is accepted must print as a plan that is accepted too, and resolve alike. */
#include "models/plan.h"
#include "tests/fuzz.h"

static void reads_back(struct arena *a, const struct job *j)
{
    struct diag d = { 0 };
    struct cfg c;
    struct job again;
    const char *text = plan_text(a, &j->plan);
    if (cfg_read_text(&c, a, "echo", text, strlen(text), &d) != OK) abort();
    if (plan_fill_job(&again, a, &c, 0, NULL, 0, &d) != OK) abort();
    if (strcmp(plan_text(a, &again.plan), text) != 0) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_B)
{
    struct arena a = { 0 };
    struct diag d = { 0 };
    struct cfg c;
    struct job j;
    enum err e = cfg_read_text(&c, &a, "fuzz", (const char *)data, size_B, &d);
    if (e == OK) e = plan_fill_job(&j, &a, &c, 0, NULL, 0, &d);
    fuzz_answer(e, &d);
    if (e == OK) reads_back(&a, &j);
    arena_free(&a);
    return 0;
}
