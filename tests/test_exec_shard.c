/* What a rank does not keep on its device: parameters and gradients cut over replicas, activations and optimizer states on
 * the host. Sharded runs equal one rank; a run that puts things on the host is the run that does not, to the bit. */
#include "exec/checkpoint.h"
#include "tests/parity.h"
#include "tests/test.h"

/* ---- cut over replicas ---- */

static const struct fold cut[] = {
    { .name = "dp2", .family = GQA_ALL, .dp = 2 },
    { .name = "dp4 / ep2", .family = MLA_ALL, .dp = 4, .ep = 2 },
    { .name = "dp4 / ep4: experts have one replica", .family = GQA_ALL, .dp = 4, .ep = 4 },
    { .name = "tp2 dp2 / etp2", .family = GQA_ALL, .tp = 2, .dp = 2, .etp = 2 },
    { .name = "cp2 dp2 / ep2", .family = MLA_ALL, .cp = 2, .dp = 2, .ep = 2 },
    { .name = "pp2 vpp2 dp2", .family = GQA_ALL, .pp = 2, .vpp = 2, .dp = 2 },
    { .name = "woven pp2 vpp2 dp2 / ep2", .family = MLA_ALL, .pp = 2, .vpp = 2, .dp = 2, .ep = 2, .woven = 1 },
    { .name = "dp2, all recomputed", .family = GQA_ALL, .dp = 2, .recompute = 1 << RECOMPUTE_FULL },
    { .name = "dense tied pp2 dp2", .family = DENSE, .pp = 2, .dp = 2 },
    { .name = "biases, sinks, windows, dp2", .family = OSS_ALL, .dp = 2 },
};

static struct parity reference[FAMILY_TEST_COUNT][2];

static void make_references(void)
{
    for (int i = 0; i < LEN(cut); i++)
        for (int o = 0; o < 2; o++) {
            const struct fold one = { .name = "one rank", .family = cut[i].family };
            struct parity *p = &reference[one.family][o];
            if (p->arena) continue;
            parity_open(p, &one, 1, (enum optimizer)o);
            p->ask.steps = 4;
            ck_assert_msg(parity_run(p) == OK, "%s", p->d.text);
        }
}

static void none(const char *difference, const char *fold)
{
    ck_assert_msg(difference == NULL, "%s: %s", fold, difference ? difference : "");
}

START_TEST(cut_parameters_equal_one_rank)
{
    struct fold f = cut[_i / 2];
    struct parity p, *one = &reference[f.family][_i % 2];
    f.fsdp = 1;
    parity_open(&p, &f, 1, (enum optimizer)(_i % 2));
    p.ask.steps = 4;
    ck_assert_msg(parity_run(&p) == OK, "%s: %s", f.name, p.d.text);
    none(parity_gradients_differ(&p, one), f.name);
    none(parity_loss_differs(&p, one), f.name);
    none(parity_counts_differ(&p), f.name);
    parity_close(&p);
}
END_TEST

/* ---- on the host ---- */

static const struct fold away[] = {
    { .name = "layers", .family = GQA_ALL, .offload = "layers:2" },
    { .name = "layers, dp2", .family = DENSE, .dp = 2, .offload = "layers:3" },
    { .name = "modules", .family = GQA_ALL, .dp = 2, .ep = 2,
      .offload = "attn_norm+qkv_linear+core_attn+attn_proj+mlp_norm+expert_fc1+moe_act" },
    { .name = "modules, mla, pp2 vpp2", .family = MLA_ALL, .pp = 2, .vpp = 2, .offload = "core_attn+attn_proj+mlp_norm+expert_fc1" },
    { .name = "modules, tp2 cp2", .family = MLA_ALL, .tp = 2, .cp = 2, .offload = "qkv_linear+core_attn+moe_act" },
    { .name = "modules, woven", .family = GQA_ALL, .pp = 2, .vpp = 2, .dp = 2, .ep = 2, .woven = 1, .offload = "core_attn+moe_act" },
    { .name = "layers, fsdp", .family = GQA_ALL, .dp = 2, .fsdp = 1, .offload = "layers:2" },
    { .name = "states", .family = GQA_ALL, .dp = 2, .ep = 2, .bf16 = 1, .offload = "optimizer:1" },
    { .name = "half of the states", .family = MLA_ALL, .tp = 2, .dp = 2, .bf16 = 1, .offload = "optimizer:0.5" },
    { .name = "states, fsdp", .family = GQA_ALL, .dp = 2, .bf16 = 1, .fsdp = 1, .offload = "optimizer:1" },
    { .name = "states and modules, pp2", .family = DENSE, .pp = 2, .dp = 2, .bf16 = 1, .small = 0, .offload = "optimizer:0.7+core_attn" },
};

static int64_t host_B(const struct parity *p)
{
    int64_t n = 0;
    for (int s = 0; s < p->pr.n_stage; s++) n += p->u[s].host_B;
    return n;
}

START_TEST(what_waits_on_the_host_comes_back)
{
    struct fold stays = away[_i];
    struct parity p, q;
    stays.offload = NULL;
    parity_open(&p, &away[_i], 1, OPTIMIZER_ADAMW);
    parity_open(&q, &stays, 1, OPTIMIZER_ADAMW);
    p.ask.steps = q.ask.steps = 4;
    ck_assert_int_gt(host_B(&p), 0);
    ck_assert_msg(parity_run(&p) == OK, "%s: %s", stays.name, p.d.text);
    ck_assert_msg(parity_run(&q) == OK, "%s: %s", stays.name, q.d.text);
    for (int s = 0; s < 4; s++)
        ck_assert_msg(p.r.step[s].loss == q.r.step[s].loss && p.r.step[s].grad_norm == q.r.step[s].grad_norm,
                      "%s, step %d: %.9g, not %.9g", stays.name, s, p.r.step[s].loss, q.r.step[s].loss);
    none(parity_counts_differ(&p), stays.name);
    parity_close(&p);
    parity_close(&q);
}
END_TEST

int main(void)
{
    const struct test_loop tests[] = {
        { cut_parameters_equal_one_rank, 2 * LEN(cut) },
        { what_waits_on_the_host_comes_back, LEN(away) },
    };
    return test_main_loops("exec_shard", make_references, tests, LEN(tests), 240);
}
