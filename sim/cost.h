/* What one op costs on a system: seconds on its stream, and seconds of the host to issue it. One formula a
 * family, one family a file (cost_gemm.c, cost_attention.c, cost_memory.c, cost_comm.c); here is what they
 * share. Contract: more work, more bytes or more rows never cost less. */
#ifndef SIM_COST_H
#define SIM_COST_H
#include "models/load.h"
#include "models/place.h"
#include "models/program.h"
#include "sim/flow.h"

struct cost {
    const struct program *pr; const struct job *job;
    struct place place[GROUP_COUNT];
    double domain_targets;                      /* NVLink domains that a token goes to (share.h), of GROUP_TPEP's */
    struct flow flow;
    const double *beside;                       /* by op: over its price alone, by what runs beside it; NULL: nothing does */
    const uint8_t *woken;                       /* by op: it waits for another stream (cost_wake.c); NULL: waking takes no time */
    const double *given_s, *given_issue_s;      /* by op, instead of the formulas; NULL: formulas */
};
/* Memory comes from the program's arena. */
void cost_init(struct cost *c, const struct program *pr, const struct job *j);
/* Seconds of an op whose routed buffers hold even[0], even[1] rows. Transfers only: waiting for peers is the
 * simulator's. */
double cost_op_s(const struct cost *c, int op, const int64_t even[2]);
/* What of that passes before it runs: its stream turns to it, or is woken (system.next_s, wake_s). 0 of p2p. */
double cost_wake_s(const struct cost *c, int op);
/* From the end of an op that the host waits for until the host goes on. */
double cost_read_s(const struct cost *c);
/* Sets c->woken: ops that read or add to what another stream writes before them in the list, and those behind what the host
 * reads, whose stream has nothing to do until the host goes on. */
void cost_wake(struct cost *c);
/* Units of work of an op as it was measured (system.op): local experts of a grouped product, scores of attention (queries by
 * keys by heads), runs of a norm, angles of a rotation; of what is met once a step, bytes that no cache held; else 0. */
double cost_units(const struct program *pr, const struct op *o, const struct work *w, const struct job *j);
/* Kernels of an op in the job's stack (stack.launch), 1 where they are not counted. Those of a memory-bound op follow each
 * other: it takes the floor of each. */
double cost_kernels(const struct cost *c, int op);
/* Host: kernels and calls at the system's prices. 0 for ops that launch nothing: HOLD, collectives of a group of one,
 * and what is in a graph behind its first op, which launches it. */
double cost_issue_s(const struct cost *c, int op);
/* 0: nothing is launched: a reference held, a collective of one. */
int cost_runs(const struct cost *c, int op);
/* All ops at the program's even rows; n_op doubles from the arena. */
double *cost_all_s(const struct cost *c, struct arena *a);

/* An op of a kind that was measured (system.op), and whether it was. Collectives of n: the floor n - 1 times. */
int cost_is_measured(const struct cost *c, enum op_kind kind);
double cost_measured_s(const struct cost *c, const struct op *o, const struct work *w);

/* The type in which products of `t` run: where the GPU has no such path, the next wider one that it has. */
enum dtype cost_path(const struct system *s, enum dtype t);
/* FLOP per second of its dense peak. */
double cost_peak(const struct system *s, enum dtype t);
/* Bytes per second at `eff` of the bandwidth; at eff_memory where `eff` is 0. */
double cost_hbm(const struct system *s, double eff);
/* The slower of arithmetic and bytes, what of the faster is not hidden, and the floor of a kernel. */
double cost_gemm_s(const struct cost *c, enum op_kind kind, const struct work *w);
double cost_attention_s(const struct cost *c, const struct work *w, int backward);
double cost_memory_s(const struct cost *c, enum op_kind kind, const struct work *w);
/* Bytes that pass between GPU and host: token rows in, routed sizes out. */
double cost_host_s(const struct cost *c, double bytes);
double cost_comm_s(const struct cost *c, const struct op *o, const struct work *w);
/* For how long a collective's or message's bytes alone hold this rank's NVLink and its NIC, were it by itself; no more than its
 * price. */
struct cost_links { double nvlink_s, nic_s; };
struct cost_links cost_comm_links(const struct cost *c, const struct op *o, const struct work *w);
/* One dispatch or combine kernel of a rank. target_B: tokens times distinct target ranks, itself included, as written
 * (fp8 with its scales); nvlink_B and nic_B of them go out over either link. */
enum exchange_kernel { EXCHANGE_HYBRIDEP, EXCHANGE_DEEPEP, EXCHANGE_DEEPEP2 };
struct exchange {
    double target_B, nvlink_B, nic_B;
    enum exchange_kernel kernel;
    int peers, sms, fp8, combine, called;       /* called: through the framework, whose own time counts */
};
double cost_exchange_s(const struct system *s, const struct exchange *x);
/* What a DISPATCH_TOKENS or COMBINE_TOKENS asks of it, without the permute kernel. */
struct exchange cost_exchange_of(const struct cost *c, const struct op *o, const struct work *w);
/* Multiprocessors that its kernel holds. */
int cost_exchange_sms(const struct cost *c);
/* Sets c->beside: what ops lose to the collectives they run beside, and what is left to see of collectives in pieces, at even
 * rows. All ops beside one, and it, together never take less when one of them takes longer. Of woven passes the loss is that of
 * the steady state, also in passes that stand alone. */
void cost_beside(struct cost *c);
/* Both. */
double cost_tokens_s(const struct cost *c, const struct op *o, const struct work *w);
struct cost_links cost_tokens_links(const struct cost *c, const struct op *o, const struct work *w);

/* Whether an op's price is extrapolated: a product or attention larger or smaller than any measured on the system, or
 * of a system on which none was. */
int cost_off_grid(const struct cost *c, int op);

#endif
