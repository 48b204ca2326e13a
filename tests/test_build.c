/* The builder: what it emits counts the FLOP, parameters and rows that follow from the model by hand. */
#include "models/build.h"
#include "models/program.h"
#include "tests/test.h"

static const char *const plans[] = {
    "model deepseek-v3 system gb200-nvl72 gpus 256 pp 8 vpp 4 ep 32 gbs 4096 seq 4096",
    "model deepseek-v3 system gb200-nvl72 gpus 256 tp 2 pp 8 vpp 4 ep 32 gbs 4096 seq 4096",
    "model deepseek-v3 system gb200-nvl72 gpus 256 pp 4 ep 64 gbs 4096 seq 4096 mtp 0",
    "model qwen3-235b-a22b system h100-sxm gpus 256 tp 2 cp 2 pp 4 ep 32 gbs 1024 seq 4096",
    "model qwen3-30b-a3b system h100-sxm gpus 16 tp 8 ep 8 gbs 64 seq 4096",
    "model mixtral-8x7b system h100-sxm gpus 64 tp 4 ep 4 etp 2 pp 2 gbs 256 seq 4096",
    "model llama3-70b system h100-sxm gpus 64 tp 8 pp 4 gbs 256 seq 8192",
    "model gpt3-175b system a100-sxm gpus 256 tp 8 pp 8 gbs 256 seq 2048",
    "model mlm-gpt-1.7b system h100-sxm gpus 8 tp 2 cp 2 gbs 64 seq 4096",
    "model qwen2-57b-a14b system h100-sxm gpus 64 tp 2 pp 4 ep 4 gbs 256 seq 4096",
    "model qwen2-57b-a14b system h100-sxm gpus 8 tp 4 ep 8 gbs 64 seq 4096",
    "model deepseek-v2 system b200 gpus 64 tp 2 pp 4 ep 8 gbs 64 seq 4096",
    "model deepseek-v2 layers 4 system b200 gpus 8 ep 8 gbs 64 seq 4096",
    "model moonlight-16b-a3b system h100-sxm gpus 16 tp 2 cp 2 ep 8 gbs 64 seq 4096 recompute mla_up_proj+layernorm",
    "model gpt-oss-20b system h100-sxm gpus 8 tp 2 ep 4 gbs 64 seq 4096",
    "model gpt-oss-120b system gb200-nvl72 gpus 64 ep 64 gbs 64 seq 8192",
    "model nemotron3-nano-30b-a3b system gb200-nvl72 gpus 16 tp 2 pp 2 ep 8 gbs 64 seq 8192",
    "model nemotron3-super-120b-a12b system h100-sxm gpus 64 cp 2 ep 32 gbs 512 seq 8192 recompute moe_act+layernorm",
    "model nemotron3-super-120b-a12b system gb200-nvl72 gpus 64 tp 2 pp 2 ep 32 gbs 512 seq 8192 recompute full",
    "model tiny-moe system host gpus 8 tp 2 pp 2 ep 2 etp 2 gbs 8 seq 64",
    "model deepseek-v3 system h100-sxm gpus 1024 tp 2 pp 8 vpp 4 ep 64 gbs 8192 seq 4096 layout Et*3|(tt|)*29m|L",
    "model deepseek-v3 system h100-sxm gpus 1024 pp 16 vpp 2 ep 64 gbs 8192 seq 4096 layout Et*3|(tt|)*29m|L",
};

static void build(struct program *pr, struct job *j, struct arena *a, const char *flags)
{
    test_job(j, a, flags);
    program_build(pr, a, j);
}

/* Forward and backward of one micro-batch over all stages and ranks of a pipeline. */
static double model_flop(const struct program *pr)
{
    double flop = 0;
    for (int c = 0; c < pr->n_chunk; c++)
        for (int o = pr->chunk[c].fwd; o < pr->chunk[c].reduce; o++) flop += op_work(pr, &pr->op[o], pr->even).model_flop;
    return flop;
}

/* Megatron's counter adds one multiply-add per latent element for MLA's norms (q_lora + kv_lora a layer): 2e-6 of the sum. */
START_TEST(flop_equals_the_closed_form)
{
    struct arena a = { 0 };
    struct program pr;
    struct job j;
    build(&pr, &j, &a, plans[_i]);
    const double tokens = (double)j.plan.mbs * j.plan.seq;
    const double per_token = model_flop(&pr) * j.plan.tp * j.plan.cp / tokens;
    const double kv_copies = (double)pr.group_size[GROUP_KV];
    const double want = model_flop_per_token(&j.model, j.plan.seq, j.plan.vocab_padded);
    if (kv_copies == 1) ck_assert_double_eq_tol(per_token / want, 1, 1e-5);
    else ck_assert_double_gt(per_token, want);      /* replicated K/V projections are computed more than once */
    arena_free(&a);
}
END_TEST

/* Every parameter once over all ranks; a table that two stages hold counts twice. */
START_TEST(parameters_equal_the_closed_form)
{
    struct arena a = { 0 };
    struct program pr;
    struct job j;
    build(&pr, &j, &a, plans[_i]);
    const struct model_params want = model_params(&j.model);
    int64_t n = 0;
    for (int i = 0; i < pr.n_param; i++)
        n += (int64_t)pr.param[i].rows * pr.param[i].cols * (pr.param[i].batch ? pr.param[i].batch : 1);
    const int64_t h = j.model.hidden, tables = j.model.tied ? 1 : 2;
    const int64_t padding = (j.plan.vocab_padded - j.model.vocab) * h * tables;
    const int64_t copy = (pr.group_size[GROUP_EMBED] - 1) * (int64_t)j.plan.vocab_padded * h;
    ck_assert_int_eq(n, want.total + (j.plan.mtp ? want.mtp : 0) + padding + copy);
    arena_free(&a);
}
END_TEST

/* A rank's slices of all parameters fill its buckets, less the padding to equal parts. */
START_TEST(slices_fill_the_buckets)
{
    struct arena a = { 0 };
    struct program pr;
    struct job j;
    build(&pr, &j, &a, plans[_i]);
    for (int k = 0; k < pr.n_bucket; k++) {
        int64_t end = 0;
        for (int i = 0; i < pr.n_param; i++) {
            const struct buf *w = &pr.buf[pr.param[i].w];
            if (w->view != pr.bucket[k].w) continue;
            ck_assert_int_eq(w->view_at, end);
            end += w->rows * w->cols;
        }
        const int64_t n = pr.group_size[pr.bucket[k].share_group], rows = pr.buf[pr.bucket[k].w].rows;
        ck_assert_int_eq(rows % n, 0);
        ck_assert_int_ge(rows, end);
        ck_assert_int_lt(rows - end, n);
        ck_assert_int_eq(rows, pr.buf[pr.bucket[k].g].rows);
    }
    arena_free(&a);
}
END_TEST

START_TEST(every_op_is_complete_and_has_its_group)
{
    struct arena a = { 0 };
    struct program pr;
    struct job j;
    build(&pr, &j, &a, plans[_i]);
    for (int o = 1; o < pr.n_op; o++) {
        const enum op_family f = op_family((enum op_kind)pr.op[o].kind);
        ck_assert_msg(op_io_complete(&pr.op[o]), "op %d %s", o, op_name((enum op_kind)pr.op[o].kind));
        if (f == FAMILY_COMM) ck_assert_int_gt(pr.group_size[pr.op[o].group], 1);
    }
    arena_free(&a);
}
END_TEST

/* The plan's `layers`: the model's first ones, and no more than it has. */
START_TEST(layers_are_cut)
{
    struct arena a = { 0 };
    struct job j;
    struct diag d = { 0 };
    test_job(&j, &a, "model deepseek-v2 layers 4 system b200 gpus 8 ep 8 gbs 64 seq 4096");
    ck_assert_int_eq(j.model.layers, 4);
    ck_assert_int_eq(model_count_ffn(&j.model, FFN_MOE), 3);
    ck_assert_int_eq(test_job_try(&j, &a, "model deepseek-v2 layers 61 system b200 gpus 8 gbs 64 seq 4096", &d), ERR_CONFIG);
    ck_assert_str_eq(d.text, "--layers: layers = 61, but model deepseek-v2 has 60: ask for no more");
    arena_free(&a);
}
END_TEST

/* What the executor lacks is named, and predicted by any other stack. */
START_TEST(models_that_cannot_run_are_refused)
{
    static const struct { const char *model, *word; } row[] = {
        { "nemotron3-nano-30b-a3b", "a pattern of layers" }, { "gpt3-175b", "shifts of norms" },
    };
    for (int i = 0; i < LEN(row); i++) {
        struct arena a = { 0 };
        struct job j;
        struct diag d = { 0 };
        const char *flags = arena_printf(&a, "model %s system host stack moefold gpus 1 gbs 1 seq 64", row[i].model);
        ck_assert_int_eq(test_job_try(&j, &a, flags, &d), ERR_LIMIT);
        ck_assert_msg(strstr(d.text, row[i].word) && strstr(d.text, "stack moefold cannot run"), "%s", d.text);
        arena_free(&a);
    }
}
END_TEST

static int64_t dispatched_rows(const char *flags, int at)
{
    struct arena a = { 0 };
    struct program pr;
    struct job j;
    build(&pr, &j, &a, flags);
    const int64_t rows = pr.even[at];
    arena_free(&a);
    return rows;
}

/* Case A05: rows a GPU holds after dispatch are topk s b etp / tp, whatever ep is. */
START_TEST(dispatched_rows_do_not_shrink_with_ep)
{
    const char *tp1 = "model deepseek-v3 system gb200-nvl72 gpus 64 ep 64 gbs 64 seq 4096";
    const char *tp2 = "model deepseek-v3 system gb200-nvl72 gpus 128 tp 2 ep 64 gbs 64 seq 4096";
    const char *tp2_etp2 = "model deepseek-v3 system gb200-nvl72 gpus 128 tp 2 etp 2 ep 64 gbs 64 seq 4096";
    ck_assert_int_eq(dispatched_rows(tp1, 1), 32768);
    ck_assert_int_eq(dispatched_rows(tp2, 1), 16384);
    ck_assert_int_eq(dispatched_rows(tp2_etp2, 0), 16384);
    ck_assert_int_eq(dispatched_rows(tp2_etp2, 1), 32768);
}
END_TEST

/* Case A13: the first stage holds the input table; the last one the head, a copy of the table, and the MTP layer. */
/* Columns of K and V on a rank, also where tp divides heads but not the width of all K/V heads. */
START_TEST(kv_heads_are_whole)
{
    static const struct { int heads, kv_heads, tp, want; } row[] = {
        { 24, 4, 2, 12 }, { 24, 4, 4, 6 }, { 24, 4, 8, 6 }, { 24, 1, 12, 6 }, { 18, 2, 6, 6 }, { 24, 3, 12, 6 },
    };
    struct arena a = { 0 };
    struct program pr;
    struct job j;
    struct diag d;
    test_job(&j, &a, "model llama3-8b system h100-sxm gpus 24 tp 1 gbs 24 seq 72");
    j.model.head_dim = 6;
    j.model.heads = row[_i].heads;
    j.model.kv_heads = row[_i].kv_heads;
    j.plan.tp = j.plan.gpus = row[_i].tp;
    j.plan.sp = -1;
    j.model.ffn = 144;
    ck_assert_msg(plan_resolve(&j, &d) == OK, "%s", d.text);
    program_build(&pr, &a, &j);
    int splits = 0;
    for (int o = 1; o < pr.n_op; o++) {
        const struct op *op = &pr.op[o];
        if (op->kind != OP_SPLIT || op->half != HALF_FWD) continue;
        const int first = op->io.write[2] ? 1 : 0;      /* q, k, v; or k, v */
        ck_assert_int_eq(pr.buf[op->io.write[first]].cols, row[_i].want);
        ck_assert_int_eq(pr.buf[op->io.write[first + 1]].cols, row[_i].want);
        splits++;
    }
    ck_assert_int_eq(splits, j.model.layers);
    arena_free(&a);
}
END_TEST

static const struct { const char *layout; int table, mtp; } ends[] = {
    { "auto", 15, 15 }, { "Et*5|(t*4|)*13t*4m|L", 14, 14 },
};

START_TEST(tables_and_mtp_stand_on_their_stages)
{
    struct arena a = { 0 };
    struct program pr;
    struct job j;
    build(&pr, &j, &a, arena_printf(&a, "model deepseek-v3 system gb200-nvl72 gpus 1024 pp 16 ep 64 gbs 4096 seq 4096 layout %s",
                                    ends[_i].layout));
    int64_t table[16] = { 0 }, head[16] = { 0 }, mtp[16] = { 0 };
    for (int i = 0; i < pr.n_param; i++) {
        const struct param *q = &pr.param[i];
        const int64_t n = (int64_t)q->rows * q->cols * (q->batch ? q->batch : 1);
        if (q->name == PARAM_EMBEDDING) table[q->stage] += n;
        else if (q->name == PARAM_HEAD) head[q->stage] += n;
        else if (q->layer == 61) mtp[q->name == PARAM_MTP_NORM && q->stage == 15 ? ends[_i].mtp : q->stage] += n;
    }
    for (int s = 0; s < 16; s++) {
        ck_assert_int_eq(table[s], s == 0 || s == ends[_i].table ? 926679040 : 0);
        ck_assert_int_eq(head[s], s == 15 ? 926679040 : 0);
        ck_assert_int_eq(mtp[s], s == ends[_i].mtp ? 11610068224 : 0);
    }
    arena_free(&a);
}
END_TEST

/* Behind m the boundary carries the main and every MTP depth's hidden states, both ways; before it the main ones. */
START_TEST(boundaries_behind_mtp_carry_all_states)
{
    struct arena a = { 0 };
    struct program pr;
    struct job j;
    build(&pr, &j, &a, "model deepseek-v3 system gb200-nvl72 gpus 1024 tp 2 pp 16 ep 64 gbs 4096 seq 4096 "
                       "layout Et*5|(t*4|)*13t*4m|L");
    for (int c = 1; c < 16; c++) {
        const struct chunk *k = &pr.chunk[c - 1], *next = &pr.chunk[c];
        const int id[] = { k->x_out, next->x_in, next->dx_out, k->dy_in };
        for (int i = 0; i < LEN(id); i++) {
            ck_assert_int_eq(pr.buf[id[i]].rows, (c == 15 ? 2 : 1) * 2048);
            ck_assert_int_eq(pr.buf[id[i]].cols, 7168);
        }
    }
    arena_free(&a);
}
END_TEST

int main(void)
{
    const struct test_loop tests[] = {
        { flop_equals_the_closed_form, LEN(plans) },
        { parameters_equal_the_closed_form, LEN(plans) },
        { slices_fill_the_buckets, LEN(plans) },
        { every_op_is_complete_and_has_its_group, LEN(plans) },
        { layers_are_cut, 0 },
        { models_that_cannot_run_are_refused, 0 },
        { dispatched_rows_do_not_shrink_with_ep, 0 },
        { kv_heads_are_whole, 6 },
        { tables_and_mtp_stand_on_their_stages, LEN(ends) },
        { boundaries_behind_mtp_carry_all_states, 0 },
    };
    return test_main_loops("build", NULL, tests, LEN(tests), 120);
}
