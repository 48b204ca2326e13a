/* Activations on the host (plan.offload): bytes by hand, memory of device and host with and without,
 * what the host link costs, soundness, what a plan may not ask. */
#include "tests/sound.h"

#define DENSE "model llama3-70b layers 8 system h100-sxm stack mcore-2510 gpus 8 gbs 16 seq 4096 "
/* 274,696 bytes a token (7 h of bf16, q, k, v, both outputs of the MLP); what is below 2^20 elements stays:
 * the norms' 4 + 4 bytes and attention's 4 x 64. */
static const double LAYER_B = 4096.0 * (274696 - 8 - 256);

/* Bytes that ops of a kind write. */
static double copied_B(const struct program *pr, enum op_kind kind)
{
    double sum_B = 0;
    for (int i = 1; i < pr->n_op; i++)
        if (pr->op[i].kind == kind) sum_B += (double)buf_B(&pr->buf[pr->op[i].io.write[0]]);
    return sum_B;
}

START_TEST(bytes_of_layers)
{
    for (int n = 1; n < 8; n += 3) {
        struct arena text = { 0 };
        struct made m;
        sound_make(&m, arena_printf(&text, DENSE "offload layers:%d", n));
        ck_assert_double_eq(copied_B(&m.pr, OP_OFFLOAD), n * LAYER_B);
        ck_assert_double_eq(copied_B(&m.pr, OP_RELOAD), n * LAYER_B);
        ck_assert_double_eq(m.r.host_B, n * LAYER_B);       /* one micro-batch at a time */
        arena_free(&m.arena);
        arena_free(&text);
    }
}
END_TEST

/* At the peak, in the last layers' backward, all of those layers are away, or the next one of them is
 * back. */
START_TEST(memory_of_layers)
{
    struct made with, without;
    sound_make(&without, DENSE);
    sound_make(&with, DENSE "offload layers:6");
    ck_assert_double_eq(without.r.host_B, 0);
    ck_assert_double_ge(without.r.live_B - with.r.live_B, 4 * LAYER_B);
    ck_assert_double_le(without.r.live_B - with.r.live_B, 6 * LAYER_B);
    arena_free(&with.arena);
    arena_free(&without.arena);
}
END_TEST

/* Two layers' worth is on the device, so forward is no faster than the link, and backward neither. */
START_TEST(link_is_waited_for)
{
    struct made with, without;
    sound_make(&without, DENSE);
    sound_make(&with, DENSE "offload layers:7");
    const double link_s = LAYER_B / with.j.system.host_link_B_per_s;
    ck_assert_double_gt(with.r.step_s, 2 * 2 * 5 * link_s);         /* micro-batches, down and back, layers */
    ck_assert_double_gt(with.r.step_s, without.r.step_s);
    ck_assert_double_gt(with.r.lines.offload_s, 0);
    ck_assert_double_eq(without.r.lines.offload_s, 0);
    with.j.system.host_link_B_per_s *= 1000;
    with.j.system.issue_s = without.j.system.issue_s = 0;
    predict_job(&without.r, &without.pr, &without.arena, &without.j);
    predict_job(&with.r, &with.pr, &with.arena, &with.j);
    ck_assert_double_eq_tol(with.r.step_s, without.r.step_s, 0.001 * without.r.step_s);
    arena_free(&with.arena);
    arena_free(&without.arena);
}
END_TEST

/* q, k, v and o of attention, the norms' inputs, the projections' inputs: bytes a token, of all layers
 * but the last. */
START_TEST(bytes_of_modules)
{
    static const struct { const char *module; double token_B; } row[] = {
        { "core_attn", 2 * (8192 + 1024 + 1024 + 8192) },
        { "core_attn+attn_proj", 2 * (8192 + 1024 + 1024 + 8192) },
        { "attn_norm", 2 * 8192 }, { "mlp_norm", 2 * 8192 }, { "qkv_linear", 2 * 8192 },
    };
    for (int i = 0; i < LEN(row); i++) {
        struct arena text = { 0 };
        struct made m;
        sound_make(&m, arena_printf(&text, DENSE "offload %s", row[i].module));
        ck_assert_msg(copied_B(&m.pr, OP_OFFLOAD) == 7 * 4096 * row[i].token_B, "%s: %g a token",
                      row[i].module, copied_B(&m.pr, OP_OFFLOAD) / 7 / 4096);
        arena_free(&m.arena);
        arena_free(&text);
    }
}
END_TEST

/* Routed rows: 8 of each of 4096 tokens; h 2048 into FC1, 2 x 768 out of it. */
START_TEST(bytes_of_experts)
{
    static const struct { const char *module; double row_B; } row[] = {
        { "expert_fc1", 2 * 2048 },
        { "moe_act", 2 * 2 * 768 },
        { "expert_fc1+moe_act", 2 * (2048 + 2 * 768) },
    };
    for (int i = 0; i < LEN(row); i++) {
        struct arena text = { 0 };
        struct made m;
        sound_make(&m, arena_printf(&text, "model qwen3-30b-a3b layers 4 system h100-sxm gpus 8 ep 8 gbs 8 "
                                           "seq 4096 offload %s", row[i].module));
        ck_assert_double_eq(copied_B(&m.pr, OP_OFFLOAD), 3 * 4096 * 8 * row[i].row_B);
        arena_free(&m.arena);
        arena_free(&text);
    }
}
END_TEST

/* In flight, a stage's host holds as many micro-batches as its device would. */
START_TEST(host_of_a_pipeline)
{
    struct made m;
    sound_make(&m, "model llama3-70b layers 8 system h100-sxm gpus 16 pp 2 gbs 64 seq 4096 offload attn_norm");
    ck_assert_double_eq(m.r.host_B, 2 * 3 * 4096 * 2 * 8192);       /* stage 0: 2 in flight, 3 of 4 layers */
    arena_free(&m.arena);
}
END_TEST

START_TEST(host_is_too_small)
{
    struct made m;
    sound_make(&m, DENSE "offload layers:7");
    ck_assert_double_le(m.r.host_B, m.j.system.host_memory_B);
    m.j.system.host_memory_B = 1e9;
    m.j.system.memory_B = 1e12;
    predict_job(&m.r, &m.pr, &m.arena, &m.j);
    ck_assert(!m.r.feasible);
    ck_assert_msg(strstr(m.r.reason, "host of h100-sxm") && strstr(m.r.reason, "0.93 GiB") &&
                  strstr(m.r.reason, "offload less"), "%s", m.r.reason);
    arena_free(&m.arena);
}
END_TEST

/* ---- the optimizer ---- */

/* Bytes kept for ever, on device (0) or host. */
static double states_B(const struct program *pr, int host)
{
    double sum_B = 0;
    for (int i = 1; i < pr->n_buf; i++)
        if (pr->buf[i].keep == KEEP_OPTIMIZER && (pr->buf[i].place == PLACE_HOST) == host)
            sum_B += (double)buf_B(&pr->buf[i]);
    return sum_B;
}

/* All on the host: moments leave, 8 bytes a parameter; the host has 16 with its copies of gradient and master. Half:
 * within a bucket of it. Down and up 4 bytes, and 28 pass the host's memory. */
START_TEST(optimizer_on_host)
{
    struct made none, half, all;
    sound_make(&none, DENSE);
    sound_make(&half, DENSE "offload optimizer:0.5");
    sound_make(&all, DENSE "offload optimizer:1");
    const double part = states_B(&none.pr, 0) / 12, up_s = 4 * part / all.j.system.host_link_B_per_s;
    ck_assert_double_eq(states_B(&all.pr, 0), 4 * part);
    ck_assert_double_eq(states_B(&all.pr, 1), 16 * part);
    ck_assert_double_eq(all.r.host_B, 16 * part);
    ck_assert_double_eq(copied_B(&all.pr, OP_OFFLOAD), 4 * part);
    ck_assert_double_eq(copied_B(&all.pr, OP_RELOAD), 4 * part);
    ck_assert_double_eq_tol(states_B(&half.pr, 1), 8 * part, 16 * 1.1e9 / 8);
    ck_assert_double_lt(states_B(&half.pr, 1), 8 * part + 1);
    const double update_s = 28 * part / all.j.system.host_update_B_per_s;
    ck_assert_double_gt(all.r.step_s - none.r.step_s, update_s);
    ck_assert_double_lt(all.r.step_s - none.r.step_s, update_s + 2 * up_s);
    ck_assert_double_gt(half.r.step_s, none.r.step_s);
    ck_assert_double_lt(half.r.step_s, all.r.step_s);
    arena_free(&none.arena);
    arena_free(&half.arena);
    arena_free(&all.arena);
}
END_TEST

/* ---- soundness ---- */

static const char *const sound[] = {
    "model llama3-70b layers 6 gpus 8 gbs 16 offload layers:3",
    "model llama3-70b layers 6 gpus 8 gbs 16 offload layers:5 fsdp 1",
    "model llama3-8b layers 5 gpus 8 tp 2 gbs 8 precision fp8-cs fp8-param-gather 1 fsdp 1 offload layers:2",
    "model qwen3-30b-a3b layers 4 gpus 8 ep 8 gbs 16 offload layers:3",
    "model qwen3-30b-a3b layers 4 gpus 8 ep 4 gbs 16 offload layers:2+optimizer:1",
    "model qwen3-30b-a3b layers 4 gpus 16 pp 2 ep 4 gbs 32 offload optimizer:0.4+core_attn",
    "model qwen3-30b-a3b layers 4 gpus 16 pp 2 ep 8 gbs 64 offload expert_fc1+moe_act+core_attn",
    "model qwen3-30b-a3b layers 8 gpus 16 pp 2 vpp 2 ep 8 gbs 64 offload attn_norm+qkv_linear+mlp_norm",
    "model deepseek-v3 layers 6 gpus 8 ep 8 gbs 16 dispatcher hybridep offload core_attn+attn_proj+expert_fc1",
    "model qwen3-30b-a3b layers 8 gpus 16 pp 2 vpp 2 ep 8 gbs 64 ep-overlap 1 offload moe_act+core_attn",
    "model deepseek-v3 layers 6 gpus 8 ep 8 gbs 8 recompute mla_up_proj+layernorm offload expert_fc1+moe_act",
};

START_TEST(programs_are_sound)
{
    struct arena text = { 0 };
    struct made m;
    sound_make(&m, arena_printf(&text, "system h100-sxm stack %s seq 4096 %s",
                                _i % 2 ? "mcore-2510" : "mcore-2608", sound[_i]));
    ck_assert_double_gt(copied_B(&m.pr, OP_RELOAD), 0);
    ck_assert_double_gt(m.r.host_B, 0);
    sound_check(&m, sound[_i]);
    arena_free(&m.arena);
    arena_free(&text);
}
END_TEST

/* Also where passes are far from the step's end, and the link is what everything waits for. */
START_TEST(slow_links_are_sound)
{
    static const char *const flags[] = {
        "model llama3-70b layers 5 system h100-sxm gpus 1 gbs 12 seq 4096 offload layers:4",
        "model qwen3-30b-a3b layers 8 system h100-sxm gpus 16 pp 2 ep 8 gbs 192 seq 4096 offload expert_fc1",
    };
    for (int i = 0; i < LEN(flags); i++)
        for (int slow = 1; slow <= 100; slow *= 10) {
            struct made m;
            sound_make(&m, flags[i]);
            m.j.system.host_link_B_per_s /= slow;
            predict_job(&m.r, &m.pr, &m.arena, &m.j);
            sound_check(&m, flags[i]);
            arena_free(&m.arena);
        }
}
END_TEST

START_TEST(slower_ops_never_help)
{
    struct made m;
    sound_make(&m, "model llama3-70b layers 4 system h100-sxm gpus 8 gbs 16 seq 4096 fsdp 1 offload layers:3");
    sound_monotone(&m);
    arena_free(&m.arena);
}
END_TEST

/* ---- what is refused ---- */

START_TEST(refusals)
{
    static const struct { const char *flags, *said[4]; } row[] = {
        { DENSE "offload layers:8", { "layers:8", "of 8 layers", "7 at most", NULL } },
        { DENSE "offload layers:x", { "layers:x", "whole number", NULL } },
        { DENSE "offload layers:0", { "layers:0", "1 to 1000", NULL } },
        { DENSE "offload optimizer:1.5", { "optimizer:1.5", "up to 1", NULL } },
        { DENSE "offload optimizer:1 optimizer sgd", { "optimizer:1", "adamw", NULL } },
        { DENSE "offload optimizer:1 master remainder", { "optimizer:1", "master fp32", NULL } },
        { "model llama3-70b layers 8 system a100-pcie gpus 8 gbs 16 seq 4096 offload optimizer:1",
          { "host.update", "a100-pcie", NULL } },
        { DENSE "offload core_atn", { "core_atn", "not known", "core_attn", NULL } },
        { DENSE "offload attn_proj", { "attn_proj", "needs core_attn", NULL } },
        { DENSE "offload moe_act", { "needs experts", "llama3-70b", NULL } },
        { DENSE "offload core_attn+layers:2", { "exclude each other", NULL } },
        { DENSE "offload layers:2 recompute full", { "layers:2", "recompute", NULL } },
        { DENSE "pp 2 offload layers:2", { "needs pp 1", "pp is 2", NULL } },
        { DENSE "fsdp 1 offload core_attn", { "fsdp 1", "not built together", NULL } },
        { DENSE "split-wgrad 1 offload core_attn", { "split-wgrad 1", "exclude each other", NULL } },
        { DENSE "stack deepspeed-2021 offload core_attn", { "core_attn", "not offered", "deepspeed-2021", NULL } },
    };
    for (int i = 0; i < LEN(row); i++) sound_refused(row[i].flags, row[i].said);
}
END_TEST

int main(void)
{
    const struct test_loop tests[] = {
        { bytes_of_layers, 0 },
        { memory_of_layers, 0 },
        { link_is_waited_for, 0 },
        { bytes_of_modules, 0 },
        { bytes_of_experts, 0 },
        { host_of_a_pipeline, 0 },
        { host_is_too_small, 0 },
        { optimizer_on_host, 0 },
        { programs_are_sound, LEN(sound) },
        { slow_links_are_sound, 0 },
        { slower_ops_never_help, 0 },
        { refusals, 0 },
    };
    return test_main_loops("offload", NULL, tests, LEN(tests), 120);
}
