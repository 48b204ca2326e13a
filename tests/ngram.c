/* A byte 3-gram model, as a bar that a trained model must pass (tools/learn): counts of the part of a text
 * that is trained on, bits per byte on the part that is evaluated, over the bytes that `moefold run`
 * evaluates. Probabilities of orders 3, 2, 1 and uniform are mixed by Witten and Bell's rule ("The
 * zero-frequency problem", IEEE Trans. Inf. Theory 37, 1991, method C): a context seen n times with t
 * different successors gives the next lower order t / (n + t). Usage: ngram TEXT EVAL_SPLIT SEQ SEQUENCES
 * (most that are evaluated). Prints the bits. */
#include "exec/data.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { BYTES = 256, CONTEXTS = BYTES * BYTES };

static uint32_t (*count)[BYTES], three[CONTEXTS][2], two_count[BYTES][BYTES], two[BYTES][2], one_count[BYTES],
    one[2];

static void see(uint32_t *successors, uint32_t seen[2], int c)
{
    seen[0]++;
    seen[1] += successors[c]++ == 0;
}

static double mixed(const uint32_t *successors, const uint32_t seen[2], int c, double lower)
{
    return seen[0] ? (successors[c] + seen[1] * lower) / (seen[0] + seen[1]) : lower;
}

int main(int argc, char **argv)
{
    struct arena a = { 0 };
    struct data x;
    struct diag d;
    if (argc != 5) return fprintf(stderr, "usage: ngram TEXT EVAL_SPLIT SEQ SEQUENCES\n"), 2;
    if (data_open(&x, &a, argv[1], atof(argv[2]), &d) != OK) return fprintf(stderr, "%s\n", d.text), 2;
    count = arena_alloc(&a, CONTEXTS * sizeof *count);
    for (int64_t i = 2; i < x.n_train; i++) {
        const uint8_t *t = x.token + i;
        see(count[t[-2] << 8 | t[-1]], three[t[-2] << 8 | t[-1]], t[0]);
        see(two_count[t[-1]], two[t[-1]], t[0]);
        see(one_count, one, t[0]);
    }
    const int64_t seq = atoll(argv[3]), most = atoll(argv[4]), all = data_sequences(&x, DATA_EVAL, seq);
    const int64_t n = (all < most ? all : most) * seq;
    double bits = 0;
    for (int64_t i = x.n_train + 1; i <= x.n_train + n; i++) {
        const uint8_t *t = x.token + i;
        const double p1 = mixed(one_count, one, t[0], 1.0 / BYTES),
                     p2 = mixed(two_count[t[-1]], two[t[-1]], t[0], p1);
        bits -= log2(mixed(count[t[-2] << 8 | t[-1]], three[t[-2] << 8 | t[-1]], t[0], p2));
    }
    printf("%.4f\n", bits / (double)n);
    data_close(&x);
    arena_free(&a);
    return 0;
}
