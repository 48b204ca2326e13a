/* The machine: one GPU (or CPU rank), the NVLink domain, the network, the host. Every number in configs/systems names
 * its source. Efficiencies are fractions of the peak beside them: plainly named constants, replaced by measured tables
 * later (they then keep the same name). */
#ifndef MODELS_SYSTEM_H
#define MODELS_SYSTEM_H
#include "models/base/dtype.h"
#include "models/cfg.h"
#include <stdint.h>

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
    double overhead_B;                              /* context, NCCL, workspaces: on top of what the program holds */
    int32_t gpus_per_host;
    /* inside an NVLink domain, per GPU and direction */
    int32_t domain;                                 /* GPUs                                                      */
    double nvlink_B_per_s, nvlink_latency_s, eff_nvlink, eff_nvlink_alltoall;
    /* between domains, per GPU and direction */
    double nic_B_per_s, nic_latency_s, eff_nic, eff_nic_alltoall;
    double rail_hop_s;                              /* added when a group's members sit on different rails       */
    /* host */
    double host_link_B_per_s, host_memory_B;        /* per GPU                                                   */
    double issue_s;                                 /* host time to issue one op of a stack whose `issue` is 1   */
    double price_usd_per_h;                         /* per GPU-hour; 0: unknown                                  */
};

extern const struct opt system_opts[];
extern const int system_n_opt;

/* From a name or path; from a document. Both end with system_check, whose errors then get the place of the key. */
enum err system_read(struct system *s, struct arena *a, const char *arg, struct diag *d);
enum err system_fill(struct system *s, const struct cfg *c, struct diag *d);
/* No peak, or peaks without efficiencies; a domain that is no multiple of the GPUs of a host. */
enum err system_check(const struct system *s, struct diag *d);

#endif
