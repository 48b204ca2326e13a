/* What outlives a run of a program: every rank's weights and optimizer state, apart from any arena. Moves
 * into arenas and out, so that programs that share weights (training, evaluation) follow one another. */
#ifndef EXEC_STATE_H
#define EXEC_STATE_H
#include "exec/numbers.h"
#include "models/unroll.h"

struct state {
    const struct program *pr;
    int64_t *at;    /* [buf]: first byte of a kept root in its ranks' blocks, -1: not kept */
    int64_t *bytes; /* [stage] */
    char **rank; int32_t n_rank;
};

/* All zero; lives in the arena. */
void state_make(struct state *s, struct arena *a, const struct program *pr, const struct job *j);
/* Bytes that this takes on the host. */
double state_B(const struct program *pr, const struct job *j);
void state_take(struct state *s, int rank, const struct unroll *u, const char *arena);
void state_put(const struct state *s, int rank, const struct unroll *u, char *arena);
/* The same weights, of a program whose buckets are the same (other passes, no optimizer). */
void state_put_weights(const struct state *s, int rank, const struct program *pr, const struct unroll *u,
                       char *arena);
/* First element of a kept buffer or of a view into one. */
void *state_bytes_at(const struct state *s, int rank, int id);
/* The same as numbers. */
struct numbers state_numbers(const struct state *s, int rank, int id);
/* The same of a float32 one. */
float *state_at(const struct state *s, int rank, int id);

#endif
