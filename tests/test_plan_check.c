/* What follows from a plan and what it may not be: cases A05, C01, C02, C04, C06, C08, C11 and C12, every rule with
 * its own words and both numbers, and any nonsense in any field is refused without harm. */
#include "models/place.h"
#include "tests/test.h"
#include <limits.h>
#include <stdio.h>

static struct arena arena;
static struct job job;
static struct diag d;

/* Stacks and systems that the rules ask about; the rest of a job comes from the user's flags. */
#define MCORE "system gb200-nvl72 stack mcore-2510 "
#define QWEN  MCORE "model qwen3-30b-a3b "
#define DSV3  MCORE "model deepseek-v3 "
#define DENSE MCORE "model llama3-8b "

static enum err try(const char *flags)
{
    d.text[0] = 0;
    return test_job_try(&job, &arena, flags, &d);
}

static void accept(const char *flags)
{
    ck_assert_msg(try(flags) == OK, "%s: %s", flags, d.text);
}

static void refuse(const char *flags, enum err e, const char *const *parts)
{
    const enum err got = try(flags);
    ck_assert_msg(got == e && test_has(d.text, parts), "%s: %d %s (wanted %s)", flags, got, d.text, parts[0]);
}

START_TEST(etp_never_inherits_tp)                           /* case C01 */
{
    accept(QWEN "gpus 4 tp 4 ep 4 seq 4096 gbs 8");
    ck_assert(job.plan.etp == 1 && job.plan.dp == 1 && job.plan.edp == 1);
    ck_assert_int_eq(job.model.experts / job.plan.ep, 32);
    refuse(QWEN "gpus 4 tp 4 ep 4 etp 4 seq 4096 gbs 8", ERR_CONFIG,
           (const char *[]){ "etp 4 x ep 4 x pp 1 = 16 does not divide gpus 4", "16 GPUs", NULL });
    accept(QWEN "gpus 16 tp 2 ep 4 seq 4096 gbs 8");
    ck_assert_int_eq(job.plan.edp, 4);
    accept(QWEN "gpus 16 tp 2 ep 4 etp 2 seq 4096 gbs 8");
    ck_assert_int_eq(job.plan.edp, 2);
    accept(QWEN "gpus 4 pp 2 vpp 24 ep 2 seq 4096 gbs 8");
    job.model.layers = 24;
    ck_assert_int_eq(plan_resolve(&job, &d), ERR_CONFIG);
    ck_assert(test_has(d.text, (const char *[]){ "pp 2 x vpp 24 = 48 chunks", "24 layers", NULL }));
}
END_TEST

START_TEST(ep_may_exceed_dp)                                /* case C02 */
{
    accept(DSV3 "gpus 32 cp 16 ep 32 seq 4096 gbs 8");
    ck_assert(job.plan.dp == 2 && job.plan.edp == 1 && job.model.experts / job.plan.ep == 8);
    accept(DSV3 "gpus 32 cp 4 ep 8 seq 4096 gbs 8");
    ck_assert(job.plan.dp == 8 && job.plan.edp == 4);
    accept(DSV3 "gpus 16 tp 8 ep 4 etp 2 seq 4096 gbs 8");
    ck_assert(job.plan.dp == 2 && job.plan.edp == 2);
}
END_TEST

START_TEST(the_split_is_chosen_when_layers_do_not_divide)   /* case C04: 46 layers, the first dense */
{
    accept(QWEN "gpus 64 tp 4 pp 4 ep 16 mbs 2 gbs 16 seq 4096");
    job.model = (struct model){ .name = "glm-4.5-air-like", .layers = 46, .hidden = 4096, .vocab = 151552,
                                .heads = 96, .kv_heads = 8, .head_dim = 128, .ffn = 10944, .dense_layers = 1,
                                .experts = 128, .topk = 8, .expert_ffn = 1408, .shared_ffn = 1408 };
    job.plan.tp = 8;
    ck_assert_msg(plan_resolve(&job, &d) == OK, "%s", d.text);
    ck_assert(job.plan.dp == 2 && job.plan.edp == 1 && job.plan.n_micro == 4);
    const int want[] = { 0, 11, 23, 35, 46 };
    for (int c = 0; c <= 4; c++) ck_assert_int_eq(job.plan.split.first[c], want[c]);
    strcpy(job.plan.layout, "12,11,11,12");
    ck_assert_int_eq(plan_resolve(&job, &d), OK);
    ck_assert_int_eq(job.plan.split.first[1], 12);
    job.plan.gpus = 32;
    ck_assert_int_eq(plan_resolve(&job, &d), ERR_CONFIG);
    ck_assert(test_has(d.text,
                       (const char *[]){ "etp 1 x ep 16 x pp 4 = 64 does not divide gpus 32", "64 GPUs", NULL }));
}
END_TEST

START_TEST(micro_batches_come_in_groups)                    /* case C06 */
{
    static const struct { int pp, m, group, ok; } row[] = {
        { 6, 3, 0, 0 }, { 4, 6, 4, 0 }, { 4, 8, 4, 1 }, { 4, 10, 4, 0 }, { 4, 10, 5, 1 }, { 4, 12, 4, 1 },
        { 4, 9, 5, 1 }, { 4, 11, 8, 0 }, { 4, 12, 8, 1 }, { 4, 8, 3, 0 }, { 4, 8, 9, 0 }, { 4, 4, 0, 1 },
    };
    char flags[256], pp[16], m[24];
    for (int i = 0; i < LEN(row); i++) {
        sprintf(flags, QWEN "gpus %d pp %d vpp 2 seq 4096 gbs %d vpp-group %d", row[i].pp, row[i].pp, row[i].m,
                row[i].group ? row[i].group : row[i].pp);
        sprintf(pp, "pp %d", row[i].pp);
        sprintf(m, "%d", row[i].m);
        if (row[i].ok) accept(flags);
        else if (row[i].group == 3)
            refuse(flags, ERR_CONFIG, (const char *[]){ "vpp-group 3", "smaller than", pp, NULL });
        else refuse(flags, ERR_CONFIG, (const char *[]){ pp, m, "raise gbs, lower dp or mbs, or", NULL });
    }
    refuse(QWEN "gpus 8 pp 4 vpp 2 seq 4096 gbs 9", ERR_CONFIG,        /* m must be whole first */
           (const char *[]){ "gbs 9 is not a multiple of mbs 1 x dp 2 = 2", "8 or 10", NULL });
    accept(QWEN "gpus 8 pp 8 seq 4096 gbs 4");              /* case A07: fewer micro-batches than stages are legal */
    ck_assert_int_eq(job.plan.n_micro, 4);
}
END_TEST

START_TEST(a_layout_of_other_sizes_is_refused_or_made_anew)        /* case C08 */
{
    static const char layout[] = "Et*4|(tttt|)*14tmL";
    char flags[256];
    for (int pp = 4; pp <= 8; pp *= 2) {
        char chunks[64];
        sprintf(flags, DSV3 "gpus 128 pp %d ep %d seq 4096 gbs 1024 layout %s", pp, 128 / pp, layout);
        sprintf(chunks, "pp %d x vpp 1 = %d", pp, pp);
        refuse(flags, ERR_CONFIG, (const char *[]){ "layout has 16 chunks", chunks, NULL });
        sprintf(flags, DSV3 "gpus 128 pp %d ep %d seq 4096 gbs 1024", pp, 128 / pp);
        accept(flags);
        ck_assert_int_eq(job.plan.split.n_chunk, pp);
        ck_assert_int_eq(job.plan.split.first[pp], 61);
    }
    accept(DSV3 "gpus 128 pp 4 ep 32 seq 4096 gbs 1024");
    ck_assert(job.plan.edp == 1 && job.plan.dp == 32);
    sprintf(flags, DSV3 "gpus 128 pp 4 vpp 4 ep 32 seq 4096 gbs 1024 layout %s", layout);     /* the user's wins */
    accept(flags);
    ck_assert_int_eq(job.plan.split.first[16] - job.plan.split.first[15], 1);
}
END_TEST

START_TEST(sequences_are_cut_evenly)                        /* case C11 */
{
    static const struct { int cp, tp, multiple; } row[] = {
        { 4, 2, 8 }, { 2, 4, 8 }, { 1, 4, 4 }, { 4, 1, 8 }, { 8, 8, 64 }, { 2, 3, 12 },
    };
    for (int i = 0; i < LEN(row); i++) {
        const struct plan p = { .cp = row[i].cp, .tp = row[i].tp, .sp = row[i].tp > 1 };
        ck_assert_int_eq(plan_seq_multiple(&p), row[i].multiple);
    }
    accept(QWEN "gpus 8 cp 2 tp 4 seq 4096 gbs 8");
    refuse(QWEN "gpus 8 cp 2 tp 4 seq 4100 gbs 8", ERR_CONFIG,
           (const char *[]){ "seq 4100", "8 (cp 2", "tp 4", "4096 or 4104", NULL });
    refuse(QWEN "gpus 8 cp 2 seq 7 gbs 8", ERR_CONFIG, (const char *[]){ "seq 7", "4 (cp 2", "4 or 8", NULL });
    refuse(QWEN "gpus 8 tp 4 seq 4098 gbs 8", ERR_CONFIG,
           (const char *[]){ "seq 4098", "tp 4", "4096 or 4100", NULL });
}
END_TEST

START_TEST(experts_with_tp_need_sequence_parallelism)       /* case C12 */
{
    refuse(QWEN "gpus 2 tp 2 sp 0 seq 4096 gbs 8", ERR_CONFIG,
           (const char *[]){ "tp 2 with experts needs sp 1", NULL });
    accept(QWEN "gpus 2 tp 2 sp 1 seq 4096 gbs 8");
    accept(QWEN "gpus 2 tp 2 seq 4096 gbs 8");
    ck_assert_int_eq(job.plan.sp, 1);
    refuse(DENSE "gpus 2 tp 2 sp 0 seq 4096 gbs 8", ERR_LIMIT,
           (const char *[]){ "sp 0 with tp > 1", "not built yet", NULL });
    accept(QWEN "gpus 2 tp 1 sp 0 seq 4096 gbs 8");
}
END_TEST

START_TEST(rows_do_not_shrink_with_ep)                      /* case A05 */
{
    accept(DSV3 "gpus 64 ep 64 seq 4096 gbs 64");
    ck_assert_int_eq(plan_even_rows(&job, 0), 32768);
    ck_assert_int_eq(plan_even_rows(&job, 0) * 7168 * 2, 448LL << 20);
    accept(DSV3 "gpus 128 tp 2 ep 64 seq 4096 gbs 64");
    ck_assert_int_eq(plan_even_rows(&job, 0), 16384);
    ck_assert_int_eq(plan_even_rows(&job, 1), 16384);
    accept(DSV3 "gpus 128 tp 2 ep 64 etp 2 seq 4096 gbs 64");
    ck_assert_int_eq(plan_even_rows(&job, 0), 16384);
    ck_assert_int_eq(plan_even_rows(&job, 1), 32768);
    accept(DSV3 "gpus 128 cp 2 ep 64 mbs 2 seq 4096 gbs 128");
    ck_assert_int_eq(plan_even_rows(&job, 0), 32768);
}
END_TEST

START_TEST(capacity_lies_between_even_and_worst)
{
    accept(DSV3 "gpus 64 ep 64 seq 4096 gbs 64");           /* this stack has none: rows are the load's */
    ck_assert(job.plan.capacity == 0);
    ck_assert_int_eq(plan_capacity_rows(&job, 0), 32768);
    accept(DSV3 "gpus 64 ep 64 seq 4096 gbs 64 capacity 1.1");
    ck_assert_int_eq(plan_capacity_rows(&job, 0), 36045);   /* 36044.8 */
    accept(DSV3 "gpus 64 ep 64 seq 4096 gbs 64 capacity worst");
    ck_assert_int_eq(plan_capacity_rows(&job, 0), 4096 * 64 * 4);       /* a token picks each of 4 experts once */
    accept(DSV3 "gpus 8 ep 8 seq 4096 gbs 64 capacity worst");
    ck_assert_int_eq(plan_capacity_rows(&job, 0), 4096 * 8 * 8);
    refuse(DSV3 "gpus 4 ep 4 seq 4096 gbs 64 capacity 4.5", ERR_CONFIG,
           (const char *[]){ "capacity 4.5 exceeds 4", "ep 4", "topk 8", NULL });
    job.plan.capacity = 0.5;
    ck_assert_int_eq(plan_check(&job, &d), ERR_CONFIG);
    ck_assert(test_has(d.text, (const char *[]){ "capacity 0.5 is below 1", NULL }));
    accept("model tiny-moe system h100-sxm stack moefold precision fp32 gpus 4 ep 4 seq 64 gbs 8");
    ck_assert(job.plan.capacity == 1.5);
    accept("model tiny-moe system h100-sxm stack moefold precision fp32 gpus 4 ep 1 seq 64 gbs 8");
    ck_assert(job.plan.capacity == 1);                      /* no factor exceeds the worst case */
    accept("model tiny-moe system host gpus 4 ep 4");
    ck_assert(job.plan.capacity == PLAN_CAPACITY_WORST);
}
END_TEST

START_TEST(defaults_follow_from_the_rest)
{
    accept(DSV3 "gpus 256 pp 4 vpp 4 ep 64 seq 4096 gbs 4096");
    const struct plan *p = &job.plan;
    ck_assert(p->schedule == SCHEDULE_INTERLEAVED && p->vpp_group == 4 && p->sp == 0 &&
              p->dispatcher == DISPATCHER_ALLTOALL);
    ck_assert(p->mtp == 1 && job.model.mtp == 1 && p->split.mtp_chunk == 15 && p->vocab_padded == 129280);
    ck_assert(p->domain_gpus == 64 && p->dp == 64 && p->edp == 1 && p->n_micro == 64);
    accept(DSV3 "gpus 256 pp 4 vpp 4 ep 64 seq 4096 gbs 4096 mtp 0 ep-overlap 1");
    ck_assert(p->schedule == SCHEDULE_FWD_BWD && job.model.mtp == 0 && p->split.mtp_chunk == -1);
    accept(DSV3 "gpus 256 tp 8 pp 4 seq 4096 gbs 4096");
    ck_assert(p->schedule == SCHEDULE_1F1B && p->sp == 1 && p->vocab_padded == 129280 + 768);    /* to 1024 */
    accept(DSV3 "gpus 288 ep 32 pp 9 seq 4096 gbs 4096");
    ck_assert_int_eq(p->domain_gpus, 72);
    accept(DSV3 "gpus 256 ep 64 schedule fwd-bwd seq 4096 gbs 4096");
    ck_assert_int_eq(p->ep_overlap, 1);
}
END_TEST

START_TEST(every_rule_has_its_words)
{
    static const struct { const char *flags; enum err e; const char *part[5]; } row[] = {
        { QWEN "gpus 12 tp 2 pp 4 seq 4096 gbs 8", ERR_CONFIG,
          { "tp 2 x cp 1 x pp 4 = 8 does not divide gpus 12", "8 or 16 GPUs" } },
        { QWEN "gpus 12 tp 2 pp 4 ep 4 seq 4096 gbs 8", ERR_CONFIG, { "does not divide gpus 12", "use 16 GPUs" } },
        { QWEN "gpus 16 pp 2 ep 2 etp 8 seq 4096 gbs 8", ERR_CONFIG,
          { "etp 8 x ep 2 x pp 2 = 32 does not divide gpus 16" } },
        { QWEN "gpus 16 tp 2 pp 2 ep 4 order tp-cp-ep-pp-dp seq 4096 gbs 8", ERR_CONFIG,
          { "order tp-cp-ep-pp-dp with pp 2", "dp is 4 and edp 2", "tp-cp-ep-dp-pp" } },
        { QWEN "gpus 24 ep 24 seq 4096 gbs 24", ERR_CONFIG,
          { "ep 24 does not divide experts 128", "divisors of 128" } },
        { QWEN "gpus 5 etp 5 seq 4096 gbs 10", ERR_CONFIG, { "etp 5 does not divide expert_ffn 768" } },
        { QWEN "gpus 3 tp 3 seq 4098 gbs 8", ERR_CONFIG, { "tp 3 does not divide heads 32" } },
        { DSV3 "gpus 3 tp 3 seq 4098 gbs 8", ERR_CONFIG, { "tp 3 does not divide heads 128" } },
        { QWEN "gpus 2 tp 2 seq 4097 gbs 8", ERR_CONFIG, { "seq 4097", "tp 2", "4096 or 4098" } },
        { QWEN "gpus 8 seq 4096 gbs 4", ERR_CONFIG,
          { "gbs 4 is not a multiple of mbs 1 x dp 8 = 8", "use gbs 8" } },
        { QWEN "gpus 8 vpp 2 seq 4096 gbs 8", ERR_CONFIG, { "vpp 2 needs pp above 1" } },
        { QWEN "gpus 8 pp 2 vpp 2 schedule 1f1b seq 4096 gbs 8", ERR_CONFIG, { "schedule 1f1b", "vpp is 2" } },
        { QWEN "gpus 8 pp 2 schedule interleaved seq 4096 gbs 8", ERR_CONFIG,
          { "schedule interleaved needs vpp above 1" } },
        { QWEN "gpus 8 ep 8 schedule 1f1b ep-overlap 1 seq 4096 gbs 8", ERR_CONFIG,
          { "ep-overlap 1 and schedule 1f1b" } },
        { QWEN "gpus 8 ep-overlap 1 seq 4096 gbs 8", ERR_CONFIG, { "schedule fwd-bwd", "ep is 1" } },
        { QWEN "gpus 8 pp 2 ep 4 ep-overlap 1 seq 4096 gbs 8", ERR_CONFIG,
          { "schedule fwd-bwd with pp 2 needs vpp above 1" } },
        { QWEN "gpus 8 ep 8 ep-overlap 1 recompute full seq 4096 gbs 8", ERR_CONFIG,
          { "fwd-bwd and recompute full" } },
        { DENSE "gpus 8 ep 8 seq 4096 gbs 8", ERR_CONFIG, { "ep 8 and etp 1 need experts", "llama3-8b has none" } },
        { DENSE "gpus 8 etp 2 seq 4096 gbs 8", ERR_CONFIG, { "ep 1 and etp 2 need experts" } },
        { DENSE "gpus 8 recompute selective:moe_act seq 4096 gbs 8", ERR_CONFIG, { "moe_act needs experts" } },
        { QWEN "gpus 8 recompute selective:mla_up_proj seq 4096 gbs 8", ERR_CONFIG, { "mla_up_proj needs MLA" } },
        { QWEN "gpus 8 recompute selective:full+layernorm seq 4096 gbs 8", ERR_CONFIG,
          { "recompute full", "alone" } },
        { QWEN "gpus 8 domain-gpus 80 seq 4096 gbs 8", ERR_CONFIG, { "domain-gpus 80 is outside 1 to 72" } },
        { MCORE "model megatron-22b gpus 4 mtp 1 layers 4 pp 4 layout Et|tt|tm|L seq 2048 gbs 8", ERR_LIMIT,
          { "m on stage 2", "ties its tables", "0, 2 and 3", "mL at the end" } },
        { QWEN "gpus 8 mtp 1 pp 2 layout 24,23 seq 4096 gbs 8", ERR_CONFIG,
          { "layout places 47 layers", "has 48" } },
        { "model tiny-moe stack mcore-2510 system host precision fp8-cs gpus 2", ERR_CONFIG,
          { "precision fp8-cs has no peak", "host" } },
        { "model tiny-moe stack moefold system h100-sxm gpus 2 seq 64 gbs 8 precision fp8-cs", ERR_LIMIT,
          { "precision fp8-cs is not built in stack moefold" } },
        { "model tiny-moe stack moefold system h100-sxm gpus 2 seq 64 gbs 8 moments fp8", ERR_LIMIT,
          { "moments fp8", "moefold" } },
        { QWEN "gpus 8 seq 4096 gbs 8 precision fp32 grads bf16", ERR_CONFIG, { "grads bf16", "precision is fp32" } },
        { QWEN "gpus 8 seq 4096 gbs 8 optimizer sgd moments bf16", ERR_CONFIG, { "optimizer adamw" } },
        { QWEN "gpus 8 seq 4096 gbs 8 fp8-param-gather 1", ERR_CONFIG, { "fp8-param-gather", "precision is bf16" } },
        { QWEN "gpus 8 seq 4096 gbs 8 precision mxfp8 fp8-param-gather 1 master remainder", ERR_CONFIG,
          { "master remainder", "leaves none" } },
        { QWEN "gpus 8 seq 4096 gbs 8 high-last 2", ERR_CONFIG, { "high-last 2", "precision is bf16" } },
        { QWEN "gpus 8 seq 4096 gbs 8 precision fp16 master remainder", ERR_CONFIG, { "precision has none" } },
        { QWEN "gpus 8 seq 4096 gbs 8 system h100-sxm precision mxfp8", ERR_CONFIG,
          { "precision mxfp8 needs", "block", "h100-sxm" } },
        { QWEN "gpus 8 seq 4096 gbs 8 system a100-sxm precision fp8-cs", ERR_CONFIG,
          { "precision fp8-cs has no peak", "a100-sxm" } },
    };
    for (int i = 0; i < LEN(row); i++) refuse(row[i].flags, row[i].e, row[i].part);
}
END_TEST

START_TEST(what_a_model_or_stack_lacks_is_refused)
{
    accept(QWEN "gpus 8 tp 8 ep 4 seq 4096 gbs 8");         /* 4 K/V heads, each on two ranks */
    job.model.kv_heads = 6;
    ck_assert_int_eq(plan_check(&job, &d), ERR_CONFIG);
    ck_assert(test_has(d.text, (const char *[]){ "tp 8 and kv_heads 6", NULL }));
    job.model.kv_heads = 4, job.model.shared_ffn = 1412;
    ck_assert_int_eq(plan_check(&job, &d), ERR_CONFIG);
    ck_assert(test_has(d.text, (const char *[]){ "tp 8 does not divide shared_ffn 1412", NULL }));
    job.model.shared_ffn = 0, job.model.ffn = 6148;
    ck_assert_int_eq(plan_check(&job, &d), OK);             /* no dense layer uses it */
    job.model.dense_layers = 1;
    ck_assert_int_eq(plan_check(&job, &d), ERR_CONFIG);
    ck_assert(test_has(d.text, (const char *[]){ "tp 8 does not divide ffn 6148", NULL }));
    accept(DSV3 "gpus 8 ep 8 pp 1 ep-overlap 1 split-wgrad 1 recompute selective:moe_act+mla_up_proj seq 4096 gbs 8");
    const struct stack all = job.stack;
    job.stack.schedules = 1 << SCHEDULE_1F1B;
    ck_assert_int_eq(plan_check(&job, &d), ERR_CONFIG);
    ck_assert(test_has(d.text, (const char *[]){ "schedule fwd-bwd is not offered by stack mcore-2510", NULL }));
    job.stack = all, job.stack.recomputes = 1 << RECOMPUTE_MOE_ACT;
    ck_assert_int_eq(plan_check(&job, &d), ERR_CONFIG);
    ck_assert(test_has(d.text, (const char *[]){ "recompute mla_up_proj is not offered", NULL }));
    job.stack = all, job.stack.split_wgrad = 0;
    ck_assert_int_eq(plan_check(&job, &d), ERR_CONFIG);
    ck_assert(test_has(d.text, (const char *[]){ "split-wgrad 1 is not offered", NULL }));
    job.stack = all, job.stack.dispatchers = 0;
    ck_assert_int_eq(plan_check(&job, &d), ERR_CONFIG);
    ck_assert(test_has(d.text, (const char *[]){ "dispatcher alltoall is not offered", NULL }));
    job.stack = all, job.plan.dp = 3;
    ck_assert_int_eq(plan_check(&job, &d), ERR_CONFIG);
    ck_assert(test_has(d.text, (const char *[]){ "dp 3", "resolve the plan again", NULL }));
}
END_TEST

/* Every integer of the plan that a user can set. */
static int32_t *field(struct plan *p, int i)
{
    int32_t *const f[] = { &p->gpus, &p->tp,        &p->cp,         &p->pp,         &p->vpp,        &p->etp,
                           &p->ep,   &p->order,     &p->schedule,   &p->vpp_group,  &p->mbs,        &p->gbs,
                           &p->seq,  &p->precision, &p->recompute,  &p->dispatcher, &p->ep_overlap, &p->split_wgrad,
                           &p->sp,   &p->mtp,       &p->domain_gpus };
    return f[i % LEN(f)];
}

START_TEST(nonsense_is_refused_without_harm)
{
    static const int32_t odd[] = { INT_MIN, INT_MAX, -1, 0, 1, 2, 3, 1 << 20, 1 << 30, -2, 7, 64, 1024, INT_MAX - 1 };
    uint64_t seed = 8;
    int refused = 0;
    accept(DSV3 "gpus 256 pp 4 vpp 4 ep 64 seq 4096 gbs 4096");
    const struct job good = job;
    for (int i = 0; i < 100000; i++) {
        job = good;
        for (int k = test_random(&seed, 3); k >= 0; k--)
            *field(&job.plan, test_random(&seed, 21)) = odd[test_random(&seed, LEN(odd))];
        d.text[0] = 0;
        const enum err e = plan_resolve(&job, &d);
        ck_assert(e == OK || e == ERR_CONFIG || e == ERR_LIMIT);
        ck_assert_int_eq(e != OK, d.text[0] != 0);
        refused += e != OK;
        if (e != OK) continue;
        ck_assert_int_eq(job.plan.tp * job.plan.cp * job.plan.dp * job.plan.pp, job.plan.gpus);
        ck_assert_int_eq(job.plan.etp * job.plan.ep * job.plan.edp * job.plan.pp, job.plan.gpus);
        ck_assert_int_eq(job.plan.n_micro * job.plan.mbs * job.plan.dp, job.plan.gbs);
    }
    ck_assert_int_gt(refused, 50000);
    ck_assert_int_lt(refused, 99000);
}
END_TEST

int main(void)
{
    const TTest *const test[] = {
        etp_never_inherits_tp,
        ep_may_exceed_dp,
        the_split_is_chosen_when_layers_do_not_divide,
        micro_batches_come_in_groups,
        a_layout_of_other_sizes_is_refused_or_made_anew,
        sequences_are_cut_evenly,
        experts_with_tp_need_sequence_parallelism,
        rows_do_not_shrink_with_ep,
        capacity_lies_between_even_and_worst,
        defaults_follow_from_the_rest,
        every_rule_has_its_words,
        what_a_model_or_stack_lacks_is_refused,
        nonsense_is_refused_without_harm,
    };
    return test_main("plan_check", test, LEN(test), 300);
}
