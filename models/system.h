/* The machine: one GPU (or CPU rank), the NVLink domain, the network, the host. Every number in configs/systems names
 * its source. Efficiencies are fractions of the peak beside them. What measured shapes add to them (ramps, floors,
 * shares not hidden, exchange kernels) is 0 where nothing was measured: the formulas of sim/cost*.c are then a plain
 * roofline. Shapes outside the measured range are counted by cost_off_grid. */
#ifndef MODELS_SYSTEM_H
#define MODELS_SYSTEM_H
#include "models/base/dtype.h"
#include "models/cfg.h"
#include <stdint.h>

/* Dispatch and combine kernels that send each token once to each distinct target (DeepEP, HybridEP). */
struct system_exchange {
    struct { double dispatch, combine; } eff_nvlink, eff_nic;       /* of the links; 0: as alltoall            */
    double dispatch_B_per_s, dispatch_fp8_B_per_s, combine_B_per_s; /* that one SM moves; 0: no bound            */
    struct { double dispatch, combine; } deepep, call_s;            /* DeepEP's rate of an SM over HybridEP's; of
                                                                       the framework's call around the kernel  */
};

/* What an op of one kind was measured to take, instead of the formulas above: floor_s, and for each of its bytes (wire_B of
 * collectives), FLOP and units (cost_units) on top, one after the other. All 0: not measured. */
struct system_op { double floor_s, B_per_s, flop_per_s, each_s; };
enum { SYSTEM_KINDS = 96 };                         /* at least OP_KIND_COUNT */

struct system {
    char name[64];
    /* one GPU */
    double memory_B, hbm_B_per_s;
    double peak_flop_per_s[DT_COUNT];               /* dense; 0: the GPU has no such path                        */
    double eff_gemm[DT_COUNT], eff_grouped[DT_COUNT];   /* of the peak                                           */
    int32_t block_scaled;                           /* tensor cores scale by block, and take fp8 along any axis (Blackwell);
                                                       0: one scale, fp8 along the contraction only (Hopper)     */
    double eff_attention_fwd, eff_attention_bwd;    /* of the bf16 peak (fp32 where there is no bf16)            */
    double eff_memory;                              /* of hbm_B_per_s, for memory-bound ops                      */
    double kernel_s;                                /* floor of one kernel on the device                         */
    int32_t sms;                                    /* multiprocessors                                           */
    double ramp_gemm[DT_COUNT];                     /* of a product: inner size whose time comes on top          */
    double eff_gemm_bytes;                          /* of hbm_B_per_s, for operands of products; 0: eff_memory   */
    double exposed_gemm, exposed_grouped;           /* share of the lesser of arithmetic and bytes not hidden    */
    double expert_s;                                /* a grouped product pays it for each expert                 */
    struct { double fwd, bwd; } attention_rows,     /* of q in one block, which one SM works off; 0: no such end */
        attention_wide,                             /* efficiency falls as (128 / d)^wide, heads of d > 128      */
        attention_bytes;                            /* share of its bytes' time that comes on top                */
    double attention_narrow;                        /* and as (d / 128)^narrow, heads of d < 128                 */
    double eff_permute;                             /* of hbm_B_per_s, rows by index; 0: eff_memory              */
    double eff_scan;                                /* of hbm_B_per_s, Mamba's scans; 0: eff_memory              */
    double eff_optimizer;                           /* of hbm_B_per_s, updates of weights; 0: eff_memory         */
    struct { double from, to; } gemm_flop, grouped_flop, attention_flop;    /* measured sizes; to 0: none        */
    double overhead_B;                              /* context, NCCL, workspaces: on top of what the program holds */
    int32_t gpus_per_host;
    /* inside an NVLink domain, per GPU and direction */
    int32_t domain;                                 /* GPUs                                                      */
    double nvlink_B_per_s, nvlink_latency_s, eff_nvlink, eff_nvlink_alltoall;
    double eff_nvls;                                /* all-reduce added up in the switch; 0: there is none       */
    double nvls_fill_B;                             /* a GPU's part of its pipe; 0: in ramp_s                    */
    double nvlink_call_s;                           /* of each collective                                        */
    double ramp_s, ramp_B;                          /* a hop: ramp_s * B / (B + ramp_B) until its pipe is full */
    /* between domains, per GPU and direction */
    double nic_B_per_s, nic_latency_s, eff_nic, eff_nic_alltoall;
    double rail_hop_s;                              /* added when a group's members sit on different rails       */
    double nic_ramp_s;                              /* as ramp_s, where domains are crossed                      */
    struct system_exchange exchange;
    /* what a training step leaves of the rates above, which bare kernels reach: clocks fall under sustained power,
     * operands are cold, links are shared. Calibrated on whole runs (moefold-fit); 1: all of it                 */
    struct system_step {
        double gemm[DT_COUNT], grouped;             /* of arithmetic; grouped on top of gemm                     */
        double attention, memory, scan, optimizer;  /* of attention's arithmetic; of bytes                       */
        double nvlink, nic, exchange;               /* of collectives and p2p; of dispatch and combine           */
    } step;
    /* host */
    double host_link_B_per_s, host_memory_B;        /* per GPU                                                   */
    double host_update_B_per_s;                     /* host memory that an optimizer's update reaches, per GPU; 0: unknown */
    double issue_s;                                 /* host time to launch one kernel                            */
    double call_s;                                  /* of one call of a framework in Python; 0: as a launch      */
    double graph_s;                                 /* to launch a captured graph; 0: as a kernel                */
    double next_s, wake_s;                          /* between two ops of a stream; from the end of what another stream, or the
                                                       host, waits for until that goes on                        */
    double cache_B;                                 /* the last cache, of all ranks of a host; 0: none               */
    struct system_op op[SYSTEM_KINDS];              /* by enum op_kind                                           */
    double price_usd_per_h;                         /* per GPU-hour; 0: unknown                                  */
};

extern const struct opt system_opts[];
extern const int system_n_opt;

/* From a name or path; from a document. Both end with system_check, whose errors then get the place of the key. */
enum err system_read(struct system *s, struct arena *a, const char *arg, struct diag *d);
enum err system_fill(struct system *s, const struct cfg *c, struct diag *d);
/* As YAML that reads back the same; optional keys that are at their defaults are left out. */
char *system_text(struct arena *a, const struct system *s);
/* The system as it is inside a step: rates times their shares, which are then 1. What a job holds (plan_fill_job);
 * system_read gives bare kernels. */
void system_in_step(struct system *s);
/* No peak, or peaks without efficiencies; a domain that is no multiple of the GPUs of a host. */
enum err system_check(const struct system *s, struct diag *d);

#endif
