/* The folds that execution is held to: by threads (test_exec.c), by processes (test_exec_fork.c). */
#ifndef TESTS_FOLDS_H
#define TESTS_FOLDS_H
#include "tests/parity.h"

enum { ACT = 1 << RECOMPUTE_MOE_ACT, NORM = 1 << RECOMPUTE_LAYERNORM, UP = 1 << RECOMPUTE_MLA_UP_PROJ,
       ATTN = 1 << RECOMPUTE_CORE_ATTN, MLP = 1 << RECOMPUTE_MLP, MOE = 1 << RECOMPUTE_MOE,
       SHARED = 1 << RECOMPUTE_SHARED_EXPERTS, FULL = 1 << RECOMPUTE_FULL };

static const struct fold folds[] = {
    /* one axis at a time */
    { .name = "dp2", .family = GQA, .dp = 2 },
    { .name = "dp8", .family = MLA, .dp = 8 },
    { .name = "tp2", .family = GQA_ALL, .tp = 2 },
    { .name = "tp4: more than kv heads", .family = GQA, .tp = 4 },
    { .name = "tp2 mla", .family = MLA, .tp = 2, .etp = 2 },
    { .name = "cp2", .family = GQA, .cp = 2 },
    { .name = "cp4 mla", .family = MLA_ALL, .cp = 4 },
    { .name = "ep2", .family = GQA_ALL, .dp = 2, .ep = 2 },
    { .name = "ep8", .family = GQA, .dp = 8, .ep = 8 },
    { .name = "etp2", .family = GQA_ALL, .dp = 2, .etp = 2 },
    { .name = "pp2", .family = GQA, .pp = 2 },
    { .name = "pp4 mla mtp", .family = MLA, .pp = 4 },
    { .name = "pp2 vpp2", .family = GQA_ALL, .pp = 2, .vpp = 2 },
    /* folded mixtures */
    { .name = "tp2 dp4 / ep4 edp2", .family = GQA, .tp = 2, .dp = 4, .ep = 4 },
    { .name = "tp2 cp2 dp2 / etp2 ep4", .family = GQA_ALL, .tp = 2, .cp = 2, .dp = 2, .etp = 2, .ep = 4 },
    { .name = "tp4 dp2 / ep8: kv shared", .family = MLA, .tp = 4, .dp = 2, .ep = 8 },
    { .name = "tp4 dp2 / etp4 edp2: kv shared", .family = GQA, .tp = 4, .dp = 2, .etp = 4 },
    { .name = "cp2 dp4 / ep2 edp4", .family = MLA_ALL, .cp = 2, .dp = 4, .ep = 2 },
    { .name = "tp2 pp2 dp2 / ep4", .family = GQA, .tp = 2, .pp = 2, .dp = 2, .ep = 4 },
    { .name = "cp2 pp4 / etp2", .family = MLA, .cp = 2, .pp = 4, .etp = 2 },
    { .name = "tp2 pp2 cp2 / ep2 etp2", .family = MLA_ALL, .tp = 2, .pp = 2, .cp = 2, .etp = 2, .ep = 2 },
    { .name = "dp4 mbs2 / ep2 edp2", .family = GQA, .dp = 4, .ep = 2, .mbs = 2 },
    /* dense, tied tables, MTP on another stage than the input table */
    { .name = "dense tied tp2 dp2", .family = DENSE, .tp = 2, .dp = 2 },
    { .name = "dense tied pp2 tp2", .family = DENSE, .pp = 2, .tp = 2 },
    { .name = "dense tied cp2 pp4", .family = DENSE, .cp = 2, .pp = 4 },
    { .name = "tied mtp pp2 dp2 / ep2", .family = TIED_MTP, .pp = 2, .dp = 2, .ep = 2 },
    { .name = "tied mtp tp2 pp2 vpp2", .family = TIED_MTP, .tp = 2, .pp = 2, .vpp = 2 },
    /* MTP on the chunk before the loss */
    { .name = "mtp apart pp2", .family = MLA_ALL, .pp = 2, .layout = "Ettttm|L" },
    { .name = "mtp apart alone tp2 pp4", .family = MLA_ALL, .tp = 2, .pp = 4, .layout = "Et|ttt|m|L" },
    { .name = "mtp apart pp4 dp2 / ep2 full", .family = MLA, .pp = 4, .dp = 2, .ep = 2, .layout = "Et|tt|tm|L",
      .recompute = FULL },
    { .name = "mtp apart pp2 vpp2 dp2 / ep2", .family = MLA, .pp = 2, .vpp = 2, .dp = 2, .ep = 2, .layout = "Et|tt|tm|L" },
    { .name = "mtp apart woven split pp2 vpp2 tp2 / ep2", .family = MLA_ALL, .pp = 2, .vpp = 2, .tp = 2, .ep = 2,
      .woven = 1, .split = 1, .layout = "Et|tt|tm|L" },
    { .name = "mtp apart tied cp2 pp2", .family = TIED_MTP, .cp = 2, .pp = 2, .layout = "Ettttm|L" },
    /* schedules */
    { .name = "pp2 vpp3, ends of their own", .family = GQA_ALL, .pp = 2, .vpp = 3, .tp = 2,
      .layout = "E|t|t|t|t|L" },
    { .name = "pp2 vpp2 tp2 / ep2, group 3", .family = MLA_ALL, .pp = 2, .vpp = 2, .tp = 2, .ep = 2,
      .group = 3 },
    { .name = "pp2 uneven layout", .family = GQA, .pp = 2, .layout = "Et|tttL" },
    { .name = "split wgrad pp2 / etp2", .family = MLA_ALL, .pp = 2, .dp = 2, .etp = 2, .split = 1 },
    { .name = "split wgrad pp2 vpp2 tp2", .family = GQA_ALL, .pp = 2, .vpp = 2, .tp = 2, .split = 1 },
    { .name = "woven dp4 / ep4", .family = GQA, .dp = 4, .ep = 4, .woven = 1 },
    { .name = "woven pp2 vpp2 dp2 / ep2", .family = MLA, .pp = 2, .vpp = 2, .dp = 2, .ep = 2, .woven = 1 },
    { .name = "woven split pp2 vpp2 tp2 / ep2", .family = GQA_ALL, .pp = 2, .vpp = 2, .tp = 2, .ep = 2,
      .woven = 1, .split = 1 },
    /* recompute */
    { .name = "moe_act", .family = GQA, .dp = 2, .ep = 2, .recompute = ACT },
    { .name = "layernorm", .family = GQA_ALL, .tp = 2, .recompute = NORM },
    { .name = "mla_up_proj", .family = MLA, .tp = 2, .ep = 2, .recompute = UP },
    { .name = "all modules pp2 dp2 / ep2", .family = MLA_ALL, .pp = 2, .dp = 2, .ep = 2,
      .recompute = ACT | NORM | UP },
    { .name = "full", .family = MLA, .tp = 2, .dp = 2, .ep = 2, .recompute = FULL },
    { .name = "full pp2 vpp2 cp2", .family = GQA, .pp = 2, .vpp = 2, .cp = 2, .recompute = FULL },
    { .name = "woven moe_act layernorm pp2 vpp2 / ep4", .family = GQA_ALL, .pp = 2, .vpp = 2, .tp = 2,
      .dp = 2, .ep = 4, .woven = 1, .recompute = ACT | NORM },
    { .name = "core_attn mlp cp2 / ep2", .family = GQA_ALL, .cp = 2, .dp = 2, .ep = 2, .recompute = ATTN | MLP },
    { .name = "core_attn moe tp2 dp2 / etp2 ep2", .family = MLA_ALL, .tp = 2, .dp = 2, .etp = 2, .ep = 2,
      .recompute = ATTN | MOE },
    { .name = "shared_experts mlp moe_act pp2 dp2 / ep2", .family = MLA, .pp = 2, .dp = 2, .ep = 2,
      .recompute = SHARED | MLP | ACT },
    { .name = "split full pp2", .family = GQA_ALL, .pp = 2, .split = 1, .recompute = FULL },
    /* DeepSeek-V2's routing; MLA without a latent of the queries */
    { .name = "v2 tp2 pp2 / ep2", .family = V2, .tp = 2, .pp = 2, .dp = 2, .ep = 2 },
    { .name = "v2 relu2 tp2 dp2 / etp2 ep2 moe_act", .family = V2_ALL, .tp = 2, .dp = 2, .etp = 2, .ep = 2, .recompute = ACT },
    { .name = "v2 cp2 / etp2 layernorm mla_up_proj", .family = V2, .cp = 2, .dp = 2, .etp = 2, .recompute = NORM | UP },
    /* windows, sinks, biases */
    { .name = "oss tp2 dp2 / ep4", .family = OSS, .tp = 2, .dp = 2, .ep = 4 },
    { .name = "oss tp4: kv shared, full", .family = OSS, .tp = 4, .ep = 2, .recompute = FULL },
    { .name = "oss cp2 pp2 / ep2 core_attn", .family = OSS_ALL, .cp = 2, .pp = 2, .ep = 2, .recompute = ATTN },
    { .name = "oss woven split pp2 vpp2 tp2 / ep2", .family = OSS_ALL, .pp = 2, .vpp = 2, .tp = 2, .ep = 2, .woven = 1,
      .split = 1 },
    /* context parallelism by heads */
    { .name = "cp2 a2a", .family = GQA, .cp = 2, .a2a = 1 },
    { .name = "cp4 a2a mla core_attn", .family = MLA_ALL, .cp = 4, .a2a = 1, .recompute = ATTN },
    { .name = "tp2 cp2 pp2 a2a / ep4", .family = MLA, .tp = 2, .cp = 2, .pp = 2, .ep = 4, .a2a = 1 },
    { .name = "cp2 dp2 a2a oss mbs2 / ep2 full", .family = OSS, .cp = 2, .dp = 2, .mbs = 2, .ep = 2, .a2a = 1,
      .recompute = FULL },
    /* dispatchers: everything gathered; whole tokens in two hops, over domains of several sizes */
    { .name = "allgather dp4 / ep4", .family = GQA, .dp = 4, .ep = 4, .dispatcher = DISPATCHER_ALLGATHER },
    { .name = "allgather tp2 dp2 / etp2 ep2 moe", .family = MLA_ALL, .tp = 2, .dp = 2, .etp = 2, .ep = 2,
      .dispatcher = DISPATCHER_ALLGATHER, .recompute = MOE },
    { .name = "allgather cp2 pp2 / ep2 full", .family = MLA, .cp = 2, .pp = 2, .ep = 2, .dispatcher = DISPATCHER_ALLGATHER,
      .recompute = FULL },
    { .name = "two hops dp4 / ep4, one domain", .family = GQA, .dp = 4, .ep = 4, .dispatcher = DISPATCHER_HYBRIDEP },
    { .name = "two hops dp8 / ep8, domains of 4", .family = GQA, .dp = 8, .ep = 8, .dispatcher = DISPATCHER_HYBRIDEP,
      .domain = 4 },
    { .name = "two hops tp2 dp4 / etp2 ep4, domains of 2", .family = MLA_ALL, .tp = 2, .dp = 4, .etp = 2, .ep = 4,
      .dispatcher = DISPATCHER_HYBRIDEP, .domain = 2 },
    { .name = "two hops woven pp2 vpp2 dp4 / ep4 moe_act, domains of 2", .family = OSS, .pp = 2, .vpp = 2, .dp = 4, .ep = 4,
      .woven = 1, .recompute = ACT, .dispatcher = DISPATCHER_HYBRIDEP, .domain = 2 },
    /* 16 ranks */
    { .name = "two hops tp2 dp8 / ep8 etp2, domains of 4", .family = V2, .tp = 2, .dp = 8, .ep = 8, .etp = 2,
      .dispatcher = DISPATCHER_HYBRIDEP, .domain = 4 },
    { .name = "tp2 cp2 pp2 dp2 / ep4 etp2", .family = GQA_ALL, .tp = 2, .cp = 2, .pp = 2, .dp = 2, .ep = 4, .etp = 2 },
    { .name = "pp2 dp8 / ep8", .family = GQA, .dp = 8, .pp = 2, .ep = 8 },
    { .name = "latent dp4 / ep4", .family = LATENT_ALL, .dp = 4, .ep = 4 },
    { .name = "latent tp2 dp2 / etp2 ep2", .family = LATENT_ALL, .tp = 2, .dp = 2, .etp = 2, .ep = 2 },
    { .name = "latent pp2 vpp2 cp2 / ep2 woven", .family = LATENT_ALL, .pp = 2, .vpp = 2, .cp = 2, .ep = 2, .woven = 1 },
};

/* Seeds for which no routing decision of 20 steps is closer than 1e-5, so that rounding cannot flip one. */
static const int seeds[FAMILY_TEST_COUNT] = {
    [GQA] = 12, [GQA_ALL] = 1, [MLA] = 1, [MLA_ALL] = 1, [DENSE] = 1, [TIED_MTP] = 15, [V2] = 34, [V2_ALL] = 1, [OSS] = 2, [OSS_ALL] = 1, [LATENT_ALL] = 1
};

#endif
