/* Plans that go out as Megatron-LM's arguments come back as they were; what cannot be written or read is
 * refused. */
#include "tests/test.h"
#include "tools/megatron.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct job *job_of(struct arena *a, const char *flags)
{
    struct job *j = arena_alloc(a, sizeof *j);
    test_job(j, a, flags);
    return j;
}

/* plan -> script -> arguments -> plan. */
static void check_identity(const char *flags)
{
    struct arena a = { 0 };
    struct diag d = { "" };
    struct job *j = job_of(&a, flags), back;
    struct megatron_args args, env, read;
    const char *(*flag)[2], *full[96][2];
    int n;
    ck_assert_msg(megatron_export(&args, &env, &a, j, &d) == OK, "%s: %s", flags, d.text);
    const char *script = megatron_script(&a, j, &args, &env);
    ck_assert_msg(megatron_read(&read, &a, "script", script, &d) == OK, "%s: %s", flags, d.text);
    ck_assert_msg(megatron_import(&flag, &n, &a, &read, "", &d) == OK, "%s: %s", flags, d.text);
    ck_assert_int_lt(n, 90);
    memcpy(full, flag, (size_t)n * sizeof *flag);
    full[n][0] = "system", full[n++][1] = j->plan.system;
    full[n][0] = "stack", full[n++][1] = j->plan.stack;
    ck_assert_msg(plan_read_job(&back, &a, NULL, n, (const char *const(*)[2])full, 0, &d) == OK, "%s: %s",
                  flags, d.text);
    ck_assert_str_eq(plan_text(&a, &back.plan), plan_text(&a, &j->plan));
    ck_assert_ptr_nonnull(megatron_find(&args, "--expert-tensor-parallel-size"));
    arena_free(&a);
}

START_TEST(there_and_back)
{
    static const char *const plans[] = {
        "model deepseek-v3 system gb200-nvl72 gpus 256 pp 4 vpp 4 ep 64 seq 4096 gbs 8192 precision mxfp8 "
        "dispatcher hybridep "
        "recompute selective:moe_act+mla_up_proj layout Et*4|(tttt|)*14tmL",
        "model deepseek-v3 system h100-sxm gpus 1024 tp 2 pp 8 vpp 4 ep 64 seq 4096 gbs 8192 precision "
        "fp8-block ep-overlap 1 "
        "split-wgrad 1 dispatcher deepep moments bf16 master remainder",
        "model qwen3-235b-a22b system gb200-nvl72 gpus 256 tp 2 pp 4 vpp 3 ep 32 etp 1 seq 4096 gbs 2048 "
        "precision nvfp4 "
        "high-first 1 high-last 2 fp8-param-gather 0 clip 0.5 lr 3e-4 seed 7",
        "model mixtral-8x22b system h100-sxm gpus 128 tp 2 cp 2 pp 4 ep 4 etp 1 seq 8192 gbs 256 order "
        "tp-cp-ep-pp-dp cp-comm a2a "
        "recompute full dispatcher alltoall mbs 1",
        "model llama3-70b system h100-sxm gpus 64 tp 4 pp 4 vpp 5 mbs 1 gbs 128 seq 8192 precision fp8-cs",
        "model llama3-8b system b200 gpus 8 seq 8192 gbs 128 mbs 2 lr-decay cosine lr-warmup 100 lr-steps "
        "1000 lr-min 0.05",
        "model qwen3-30b-a3b system gb200-nvl72 gpus 8 ep 8 mbs 4 seq 4096 gbs 512 precision mxfp8 "
        "cuda-graph "
        "attn+moe_router+moe_preprocess dispatcher hybridep",
        "model qwen3-30b-a3b system gb200-nvl72 stack mcore-2510 gpus 8 ep 8 seq 4096 gbs 512 cuda-graph "
        "attn+moe_router dispatcher alltoall",
        "model llama3-8b system gb200-nvl72 stack mcore-2510 gpus 8 seq 4096 gbs 512 cuda-graph full",
        "model llama3-8b system gb200-nvl72 stack mcore-2608 gpus 8 seq 4096 gbs 512 cuda-graph full",
        "model qwen3-30b-a3b system h100-sxm gpus 16 layers 12 tp 2 ep 8 seq 4096 gbs 64 vocab-extra 1 grads "
        "bf16",
        "model gpt-oss-20b system h100-sxm gpus 8 ep 8 seq 4096 gbs 64",
        "model qwen2-57b-a14b system h100-sxm gpus 32 tp 4 etp 4 ep 4 seq 4096 gbs 64 load drop:cf1:position "
        "dispatcher alltoall",
        "model qwen2-57b-a14b system h100-sxm gpus 32 ep 8 seq 4096 gbs 64 load padded:cf1.25 dispatcher alltoall",
        "model llama3-70b system b200 gpus 8 tp 8 seq 4096 gbs 64 offload layers:20",
        "model llama3-70b system h100-sxm gpus 64 fsdp 1 mbs 1 gbs 64 seq 8192 lr-decay wsd lr-steps 500 "
        "lr-cooldown 0.1",
        "model llama3-8b system h100-sxm gpus 8 cp 2 cp-comm p2p gbs 64 seq 8192 packed positions+attention+loss",
        "model llama3-8b system h100-sxm gpus 8 cp 2 gbs 64 seq 8192 packed attention",
    };
    for (int i = 0; i < LEN(plans); i++) check_identity(plans[i]);
}
END_TEST

/* Every option of a plan is in one table or in the list of those that are not; a new one must be placed. */
START_TEST(no_option_is_forgotten)
{
    for (int i = 0; i < plan_n_opt; i++) {
        const char *key = plan_opts[i].key;
        int known = 0;
        for (int k = 0; megatron_apart[k]; k++) known |= strcmp(megatron_apart[k], key) == 0;
        for (int k = 0; k < megatron_n_same; k++) known |= strcmp(megatron_same[k].key, key) == 0;
        for (int k = 0; k < megatron_n_means; k++) known |= strcmp(megatron_means[k].key, key) == 0;
        ck_assert_msg(known, "%s has no place in tools/megatron.c", key);
    }
}
END_TEST

/* An argument is called as the stack's Megatron-LM calls it. */
static const struct { const char *stack, *graph, *flag, *value, *impl; } graph_names[] = {
    { "mcore-2510", "attn", "--cuda-graph-scope", "attn", "transformer_engine" },
    { "mcore-2608", "attn", "--cuda-graph-modules", "attn", "transformer_engine" },
    { "mcore-2510", "full", "--cuda-graph-scope", "full_iteration", "local" },
    { "mcore-2608", "full", "--cuda-graph-modules", NULL, "full_iteration" },
    { "mcore-2510", "full-layer", "--cuda-graph-scope", NULL, "transformer_engine" },
};
static void check_name(int i)
{
    struct arena a = { 0 };
    struct diag d = { "" };
    struct job j;
    struct megatron_args args, env;
    test_job(&j, &a, arena_printf(&a, "model llama3-8b system gb200-nvl72 gpus 8 seq 4096 gbs 64 stack %s cuda-graph %s",
                                  graph_names[i].stack, graph_names[i].graph));
    ck_assert_msg(megatron_export(&args, &env, &a, &j, &d) == OK, "%s", d.text);
    const char *got = megatron_find(&args, graph_names[i].flag), *impl = megatron_find(&args, "--cuda-graph-impl");
    ck_assert_pstr_eq(got, graph_names[i].value);
    ck_assert_str_eq(impl, graph_names[i].impl);
    ck_assert(!megatron_find(&args, i % 2 ? "--cuda-graph-scope" : "--cuda-graph-modules"));
    arena_free(&a);
}

START_TEST(names_of_the_generation)
{
    for (int i = 0; i < LEN(graph_names); i++) check_name(i);
}
END_TEST

/* Other ways to keep experts even are passed over with a note; ours come back, with their coefficients. */
START_TEST(balance_of_scripts)
{
    static const struct { const char *script, *note; int balance; double aux; } row[] = {
        { "--moe-router-load-balancing-type sinkhorn", "sinkhorn: plans have aux_loss", BALANCE_NONE, 0.01 },
        { "--moe-router-load-balancing-type global_aux_loss seq_aux_loss --moe-aux-loss-coeff 1e-3 1e-4", "global_aux_loss",
          BALANCE_NONE, 0.01 },
        { "--moe-router-load-balancing-type seq_aux_loss --moe-aux-loss-coeff 1e-4", NULL, BALANCE_SEQ_AUX, 1e-4 },
    };
    for (int i = 0; i < LEN(row); i++) {
        struct arena a = { 0 };
        struct diag d = { "" };
        struct job j, back;
        struct megatron_args args, env, script;
        const char *(*flag)[2], *note[MEGATRON_NOTES];
        int n, noted = 0;
        test_job(&j, &a, "model qwen3-30b-a3b system h100-sxm gpus 16 ep 8 seq 4096 gbs 64");
        ck_assert_msg(megatron_export(&args, &env, &a, &j, &d) == OK, "%s", d.text);
        char *text = megatron_script(&a, &j, &args, &env), *at = strstr(text, "--moe-router-load-balancing-type none");
        ck_assert_ptr_nonnull(strstr(text, "# Nothing keeps experts even"));
        ck_assert_ptr_null(strstr(text, "--moe-aux-loss-coeff"));
        *at = 0;
        text = arena_printf(&a, "%s%s%s", text, row[i].script, at + strlen("--moe-router-load-balancing-type none"));
        ck_assert_msg(megatron_read(&script, &a, "x.sh", text, &d) == OK, "%s", d.text);
        ck_assert_msg(megatron_import(&flag, &n, &a, &script, "", &d) == OK, "%s", d.text);
        const char *const(*all)[2] = (const char *const(*)[2])flag;
        const char *more[64][2] = { { "system", "h100-sxm" } };
        for (int k = 0; k < n; k++) more[k + 1][0] = all[k][0], more[k + 1][1] = all[k][1];
        ck_assert_msg(plan_read_job(&back, &a, NULL, n + 1, (const char *const(*)[2])more, 0, &d) == OK, "%s", d.text);
        ck_assert_int_eq(back.plan.balance, row[i].balance);
        ck_assert_double_eq_tol(back.plan.aux_loss, row[i].aux, 1e-12);
        const int notes = megatron_notes(note, &a, &script, &back);
        for (int k = 0; k < notes && row[i].note; k++) noted += strstr(note[k], row[i].note) != NULL;
        ck_assert_int_eq(noted, row[i].note != NULL);
        arena_free(&a);
    }
}
END_TEST

/* What a script does not say, and its plan does. */
static const struct { const char *script; const char *notes[3]; } noted[] = {
    { "--use-distributed-optimizer --overlap-grad-reduce --num-experts 0", { NULL } },
    { "--overlap-grad-reduce", { "no --use-distributed-optimizer: the script's ranks hold whole optimizer states, those of "
                                 "every plan here 1/4 of them", NULL } },
    { "", { "no --use-distributed-optimizer", NULL } },
    { "--use-megatron-fsdp", { NULL } },
};
static void check_notes(int i)
{
    struct arena a = { 0 };
    struct diag d = { "" };
    struct job j;
    struct megatron_args args;
    const char *note[MEGATRON_NOTES];
    test_job(&j, &a, arena_printf(&a, "model llama3-8b system h100-sxm gpus 8 tp 2 seq 4096 gbs 64%s", i == 3 ? " fsdp 1" : ""));
    ck_assert(megatron_read(&args, &a, "run.sh", arena_printf(&a, "--bf16 %s", noted[i].script), &d) == OK);
    const int n = megatron_notes(note, &a, &args, &j);
    int want = 0;
    for (; noted[i].notes[want]; want++)
        ck_assert_msg(want < n && strstr(note[want], noted[i].notes[want]), "%s", want < n ? note[want] : "no note");
    ck_assert_int_eq(n, want);
    test_job(&j, &a, "model mixtral-8x22b system h100-sxm gpus 16 tp 2 etp 2 ep 8 dispatcher allgather seq 4096 gbs 64");
    ck_assert_int_eq(megatron_notes(note, &a, &args, &j), i == 3 ? 3 : want + 2);     /* here without fsdp */
    if (i == 3) want = 1;
    ck_assert(strstr(note[want], "no --expert-tensor-parallel-size: Megatron-LM takes tp, so etp is 2"));
    ck_assert(strstr(note[want + 1], "no --moe-token-dispatcher-type"));
    arena_free(&a);
}

START_TEST(what_a_script_does_not_say)
{
    for (int i = 0; i < LEN(noted); i++) check_notes(i);
}
END_TEST

static void check_import(const char *script, const char *key, const char *want)
{
    struct arena a = { 0 };
    struct diag d = { "" };
    struct megatron_args args;
    const char *(*flag)[2], *got = NULL;
    int n;
    ck_assert_msg(megatron_read(&args, &a, "run.sh", script, &d) == OK, "%s", d.text);
    ck_assert_msg(megatron_import(&flag, &n, &a, &args, "", &d) == OK, "%s", d.text);
    for (int i = 0; i < n; i++)
        if (strcmp(flag[i][0], key) == 0) got = flag[i][1];
    ck_assert_msg(got && strcmp(got, want) == 0, "%s is %s, not %s", key, got ? got : "absent", want);
    arena_free(&a);
}

static void check_refused(const char *script, const char *what)
{
    struct arena a = { 0 };
    struct diag d = { "" };
    struct megatron_args args;
    const char *(*flag)[2];
    int n;
    enum err e = megatron_read(&args, &a, "run.sh", script, &d);
    if (e == OK) e = megatron_import(&flag, &n, &a, &args, "", &d);
    ck_assert_int_eq(e, ERR_CONFIG);
    ck_assert_msg(strstr(d.text, what), "'%s' is not in: %s", what, d.text);
    arena_free(&a);
}

#define MIXTRAL "--num-layers 56 --hidden-size 6144 --num-attention-heads 48 --num-experts 8 "
#define LLAMA "--num-layers 80 --hidden-size 8192 --num-attention-heads 64 "

START_TEST(scripts_of_others)
{
    check_import("MODEL=(\n  " LLAMA "\n  --bf16   # half\n)\nTRAIN=(\n  --seq-length 4096\n)\n", "seq",
                 "4096");
    check_import("MODEL=(\n  " LLAMA "\n)\nX=(\n --fp8-format=hybrid --fp8-recipe=delayed --bf16\n)\n",
                 "precision", "fp8-ds");
    check_import(LLAMA, "model", "llama3-70b");
    check_import(LLAMA "--context-parallel-size 2", "cp-comm", "p2p");
    check_import(LLAMA "--context-parallel-size 2 --cp-comm-type a2a", "cp-comm", "a2a");
    check_import("torchrun --nproc_per_node 8 --nnodes 4 pretrain_gpt.py \\\n " LLAMA "--bf16", "gpus", "32");
    check_import(MIXTRAL "--tensor-model-parallel-size 2", "etp",
                 "2"); /* its default is the other fold's tp */
    check_import(MIXTRAL, "dispatcher", "allgather"); /* and all-gather                     */
    check_import(LLAMA "--pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 5", "vpp",
                 "4");
    check_import(LLAMA "--pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 14", "layout",
                 "14,22,22,22");
    check_import(LLAMA "--recompute-granularity selective", "recompute", "selective:core_attn");
    check_import(LLAMA "--vocab-size 128257", "vocab-extra", "1");
}
END_TEST

START_TEST(refusals_of_scripts)
{
    check_refused("echo hello", "no argument begins with --");
    check_refused(LLAMA "--tensor-model-parallel-size $TP", "is the variable $TP");
    check_refused(LLAMA "--bf16 --fp8-format hybrid --fp8-recipe custom",
                  "--fp8-format hybrid says what no plan can");
    check_refused("--num-layers 80 --hidden-size 8000 --num-attention-heads 64",
                  "nearest is llama3-70b, but --hidden-size is 8000");
    check_refused("--hidden-size 8192 --num-attention-heads 64", "--num-layers is missing");
    check_refused(LLAMA "--pipeline-model-parallel-size 0", "is 0");
    check_refused(LLAMA "--pipeline-model-parallel-layout Et|t|L --pipeline-model-parallel-size 3",
                  "no layout of 80 layers");
    check_refused(LLAMA "--vocab-size 100", "--vocab-size is 100");
    check_refused(LLAMA "--x 'open", "a quote is not closed");
    check_refused(LLAMA "--recompute-granularity some", "'some' is not known");
}
END_TEST

START_TEST(refusals_of_plans)
{
    static const struct { const char *flags, *what;
    } plans[] = {
        { "model deepseek-v3 system h100-sxm gpus 64 ep 64 seq 4096 gbs 64 stack moefold",
          "our own executor" },
        { "model deepseek-v3 system h100-sxm gpus 64 ep 64 seq 4096 gbs 64 split-wgrad 1",
          "set ep-overlap 1" },
        { "model deepseek-v3 system h100-sxm gpus 64 ep 64 seq 4096 gbs 64 moments bf16",
          "set master remainder" },
        { "model nemotron3-nano-30b-a3b system h100-sxm gpus 8 ep 8 seq 4096 gbs 64", "hybrid" },
        { "model gpt3-175b system a100-sxm gpus 64 tp 8 pp 8 seq 2048 gbs 64 precision fp16",
          "of the GPT kind" },
    };
    for (int i = 0; i < LEN(plans); i++) {
        struct arena a = { 0 };
        struct diag d = { "" };
        struct megatron_args args, env;
        ck_assert_int_eq(megatron_export(&args, &env, &a, job_of(&a, plans[i].flags), &d), ERR_NO);
        ck_assert_msg(strstr(d.text, plans[i].what), "'%s' is not in: %s", plans[i].what, d.text);
        arena_free(&a);
    }
}
END_TEST

START_TEST(recipes_in_yaml)
{
    static const char text[] =
        "model:\n  num_layers: 48\n  hidden_size: 2048\n  num_attention_heads: 32\n  num_moe_experts: 128\n"
        "  tensor_model_parallel_size: 1\n  expert_model_parallel_size: 8\n  sequence_parallel: false\n"
        "  pipeline_model_parallel_size: 2\n  virtual_pipeline_model_parallel_size: 12\n"
        "  moe_token_dispatcher_type: alltoall\n  recompute_granularity: selective\n"
        "  recompute_modules: [moe_act, layernorm]\ntrain:\n  micro_batch_size: 4\n  global_batch_size: 512\n"
        "dataset:\n  sequence_length: 4096\nmixed_precision: bf16_with_mxfp8_mixed\n";
    static const char *const want[][2] = { { "model", "qwen3-30b-a3b" },
                                           { "ep", "8" },
                                           { "vpp", "12" },
                                           { "mbs", "4" },
                                           { "sp", "0" },
                                           { "seq", "4096" },
                                           { "precision", "mxfp8" },
                                           { "recompute", "selective:moe_act+layernorm" } };
    struct arena a = { 0 };
    struct diag d = { "" };
    struct cfg c;
    struct megatron_args args;
    const char *(*flag)[2];
    int n;
    ck_assert_msg(cfg_read_text(&c, &a, "recipe.yaml", text, sizeof text - 1, &d) == OK, "%s", d.text);
    ck_assert_msg(megatron_read_yaml(&args, &a, &c, &d) == OK, "%s", d.text);
    ck_assert_msg(megatron_import(&flag, &n, &a, &args, "", &d) == OK, "%s", d.text);
    for (int w = 0; w < LEN(want); w++) {
        const char *got = "absent";
        for (int i = 0; i < n; i++)
            if (strcmp(flag[i][0], want[w][0]) == 0) got = flag[i][1];
        ck_assert_str_eq(got, want[w][1]);
    }
    arena_free(&a);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = { there_and_back,      no_option_is_forgotten, scripts_of_others,
                                   refusals_of_scripts, refusals_of_plans,      recipes_in_yaml,
                                   names_of_the_generation, what_a_script_does_not_say, balance_of_scripts };
    return test_main("megatron", tests, LEN(tests), 60);
}
