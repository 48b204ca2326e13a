/* The tables of both directions. */
#include "tools/megatron.h"
#include <string.h>

const struct megatron_same megatron_same[] = {
    { "tp", "--tensor-model-parallel-size" },
    { "cp", "--context-parallel-size" },
    { "pp", "--pipeline-model-parallel-size" },
    { "etp", "--expert-tensor-parallel-size" },
    { "ep", "--expert-model-parallel-size" },
    { "vpp-group", "--microbatch-group-size-per-virtual-pipeline-stage" },
    { "mbs", "--micro-batch-size" },
    { "gbs", "--global-batch-size" },
    { "seq", "--seq-length" },
    { "lr", "--lr" },
    { "weight-decay", "--weight-decay" },
    { "beta1", "--adam-beta1" },
    { "beta2", "--adam-beta2" },
    { "adam-eps", "--adam-eps" },
    { "clip", "--clip-grad" },
    { "aux-loss-coeff", "--moe-aux-loss-coeff" },
    { "z-loss-coeff", "--moe-z-loss-coeff" },
    { "seed", "--seed" },
    { "lr-warmup", "--lr-warmup-iters" },
    { "lr-steps", "--lr-decay-iters" },
};
const int megatron_n_same = LEN(megatron_same);

const struct megatron_means megatron_means[] = {
    { "order", "tp-cp-ep-dp-pp", "" },
    { "order", "tp-cp-ep-pp-dp", "--use-tp-pp-dp-mapping" },
    { "precision", "fp32", "" },
    { "precision", "bf16", "--bf16" },
    { "precision", "fp16", "--fp16" },
    { "precision", "fp8-cs", "--bf16 --fp8-format hybrid --fp8-recipe tensorwise" },
    { "precision", "fp8-ds", "--bf16 --fp8-format hybrid --fp8-recipe delayed" },
    { "precision", "fp8-block", "--bf16 --fp8-format e4m3 --fp8-recipe blockwise" },
    { "precision", "mxfp8", "--bf16 --fp8-format e4m3 --fp8-recipe mxfp8" },
    { "precision", "nvfp4", "--bf16 --fp4-format e2m1 --fp4-recipe nvfp4" },
    { "fp8-param-gather", "0", "" },
    { "fp8-param-gather", "1", "--fp8-param-gather" },
    { "optimizer", "adamw", "--optimizer adam" },
    { "optimizer", "sgd", "--optimizer sgd" },
    { "grads", "fp32", "--accumulate-allreduce-grads-in-fp32" },
    { "grads", "bf16", "--grad-reduce-in-bf16" },
    { "moments", "fp32", "" },
    { "moments", "bf16", "--exp-avg-dtype bf16 --exp-avg-sq-dtype bf16" },
    { "moments", "fp8", "--exp-avg-dtype fp8 --exp-avg-sq-dtype fp8" },
    { "master", "fp32", "" },
    { "master", "remainder", "--use-precision-aware-optimizer" },
    { "packed", "none", "" },
    { "packed", "positions", "--reset-position-ids" },
    { "packed", "attention", "--reset-attention-mask" },
    { "packed", "loss", "--eod-mask-loss" },
    { "packed", "positions+attention", "--reset-position-ids --reset-attention-mask" },
    { "packed", "positions+loss", "--reset-position-ids --eod-mask-loss" },
    { "packed", "attention+loss", "--reset-attention-mask --eod-mask-loss" },
    { "packed", "positions+attention+loss", "--reset-position-ids --reset-attention-mask --eod-mask-loss" },
    { "cp-comm", "allgather", "--cp-comm-type all_gather" },
    { "cp-comm", "a2a", "--cp-comm-type a2a" },
    { "cp-comm", "p2p", "--cp-comm-type p2p" },
    { "dp-overlap", "none", "" },
    { "dp-overlap", "grads", "--overlap-grad-reduce" },
    { "dp-overlap", "both", "--overlap-grad-reduce --overlap-param-gather" },
    { "tp-overlap", "0", "" },
    { "tp-overlap", "1", "--tp-comm-overlap" },
    { "dispatcher", "allgather", "--moe-token-dispatcher-type allgather" },
    { "dispatcher", "alltoall", "--moe-token-dispatcher-type alltoall" },
    { "dispatcher", "deepep", "--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend deepep" },
    { "dispatcher", "hybridep", "--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend hybridep" },
    { "balance", "none", "--moe-router-load-balancing-type none" },
    { "balance", "aux_loss", "--moe-router-load-balancing-type aux_loss" },
    { "balance", "seq_aux_loss", "--moe-router-load-balancing-type seq_aux_loss" },
    { "ep-overlap", "0", "" },
    { "ep-overlap", "1", "--overlap-moe-expert-parallel-comm" },
    { "split-wgrad", "0", "" },
    { "split-wgrad", "1", "--delay-wgrad-compute" },
    { "fsdp", "0", "" },
    { "fsdp", "1", "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params" },
    { "lr-decay", "constant", "--lr-decay-style constant" },
    { "lr-decay", "cosine", "--lr-decay-style cosine" },
    { "lr-decay", "wsd", "--lr-decay-style WSD --lr-wsd-decay-style linear" },
    { "sp", "0", "" },
    { "sp", "1", "--sequence-parallel" },
};
const int megatron_n_means = LEN(megatron_means);

/* The first three are looked for otherwise (sizes, torchrun's line, the caller); then what megatron_export.c
 * writes and megatron_import.c reads by itself; then what only a prediction knows. */
const char *const megatron_apart[] = {
    "model",    "system", "stack",       "gpus",        "vpp",        "layout",      "schedule",
    "layers",   "mtp",    "recompute",   "cuda-graph",  "high-first", "high-last",   "offload",
    "capacity", "load",   "vocab-extra", "domain-gpus", "data-workers", "lr-min",     "lr-cooldown",
    "eod",      "document", NULL,
};

void megatron_add(struct megatron_args *args, struct arena *a, const char *flag, const char *value)
{
    args->arg = arena_grow(a, args->arg, args->n, args->n + 1, sizeof *args->arg);
    args->arg[args->n++] = (struct megatron_arg){ flag, value };
}

void megatron_add_all(struct megatron_args *args, struct arena *a, const char *text)
{
    char *rest = arena_strdup(a, text), *word;
    while ((word = strtok_r(rest, " ", &rest))) {
        struct megatron_arg *last = args->n ? &args->arg[args->n - 1] : NULL;
        if (strncmp(word, "--", 2) == 0) megatron_add(args, a, word, NULL);
        else last->value = last->value ? arena_printf(a, "%s %s", last->value, word) : word;
    }
}

const char *megatron_find(const struct megatron_args *args, const char *flag)
{
    for (int i = args->n - 1; i >= 0; i--)
        if (strcmp(args->arg[i].flag, flag) == 0) return args->arg[i].value ? args->arg[i].value : "";
    return NULL;
}
