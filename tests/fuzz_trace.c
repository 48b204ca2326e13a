/* libFuzzer: any bytes as a trace file, given through a file in memory. Every other input is spans behind a good header,
 * so that their checks are reached too. What is accepted is in order, as the merge behind it needs. */
#include "models/trace.h"
#include "tests/fuzz.h"
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SPAN_B = 40 };

/* Header of models/trace.c: magic, hash, three texts, 3 ranks, 2 iterations, clock, the count of spans. */
static void put_header(int file, size_t spans_B)
{
    unsigned char head[8 + 8 + 16 + 64 + 48 + 4 + 4 + 8 + 8] = "MFTRACE1";
    const size_t n = spans_B / SPAN_B;
    head[144] = 3;
    head[148] = 2;
    for (size_t k = 0; k < 8; k++) head[160 + k] = (unsigned char)(n >> 8 * k);
    if (write(file, head, sizeof(head)) != (ssize_t)sizeof(head)) abort();
}

static void check_order(const struct trace *t)
{
    for (int64_t i = 0; i < t->n; i++) {
        const struct span *s = &t->span[i];
        if (s->t1_ns < s->t0_ns || s->rank >= t->head.n_rank || s->iter >= t->head.n_iter) abort();
        if (i > 0 && s->iter < s[-1].iter) abort();
        if (i > 0 && s->iter == s[-1].iter && s->rank < s[-1].rank) abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_B)
{
    struct arena a = { 0 };
    struct diag d = { 0 };
    struct trace t = { 0 };
    char path[32];
    if (size_B == 0) return 0;
    const int file = memfd_create("trace", 0);
    if (file < 0) abort();
    if (data[0] % 2 == 0) put_header(file, size_B - 1);
    if (write(file, data + 1, size_B - 1) != (ssize_t)(size_B - 1)) abort();
    snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
    const enum err e = trace_read(&t, &a, path, &d);
    fuzz_answer(e, &d);
    if (e == OK) check_order(&t);
    close(file);
    arena_free(&a);
    return 0;
}
