/* What both interpreters emit: one span per op that happened. Sorted by key, two traces of one program join by a
 * merge: no kernel names, no strings. */
#ifndef MODELS_TRACE_H
#define MODELS_TRACE_H
#include "models/program.h"
#include "models/unroll.h"

struct span {                       /* key: iter, rank, step, op                                                */
    int32_t iter, rank, step, op;
    int64_t t0_ns, t1_ns;           /* the stream is free, deps are done, the op was issued; completion         */
    int32_t rows[2];                /* SIZES: what it wrote; other ops on sized buffers: {their rows, 0}; else 0 */
};
struct trace_header {
    uint64_t program_hash;
    char source[16];                /* "predicted", "measured"                                                  */
    char system[64], revision[48];  /* code revision                                                            */
    int32_t n_rank, n_iter;
    int64_t clock_ns;               /* uncertainty between ranks' clocks                                        */
};
struct trace { struct trace_header head; int64_t n; struct span *span; };

int64_t trace_ns(double seconds);                       /* the one conversion: rounds to nearest                */
void trace_sort(struct trace *t);
/* The span of a key in a sorted trace, or NULL. */
const struct span *trace_find(const struct trace *t, int iter, int rank, int step, int op);
/* Whether a trace is one of this program: ERR_CONFIG when the hashes differ, or a span names a rank, step or op
 * that it lacks. */
enum err trace_fits(const struct trace *t, const struct program *pr, const struct job *j, struct diag *d);
/* A collective's wait and transfer by its group: wait = (latest t0 in the group) - own t0; transfer = t1 -
 * latest t0. `t` sorted; one entry per span in `wait_ns` (0 for spans of no group). For both traces alike. */
void trace_waits(int64_t *wait_ns, const struct trace *t, const struct program *pr, const struct job *j,
                 const struct unroll *u);
enum err trace_write(const struct trace *t, const char *path, struct diag *d);     /* aside, then renamed       */
/* ERR_IO: cannot be read. ERR_CONFIG: not a trace, or damaged (sizes, ranges, order). `*t` is set only on success. */
enum err trace_read(struct trace *t, struct arena *a, const char *path, struct diag *d);
/* Chrome trace JSON that Perfetto opens: a process per rank, a thread per stream. ERR_CONFIG as trace_fits. */
enum err trace_write_chrome(const struct trace *t, const struct program *pr, const struct job *j,
                            const char *path, struct diag *d);

#endif
