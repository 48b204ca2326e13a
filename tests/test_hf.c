/* Truth from outside: small checkpoints that transformers wrote (tests/data/hf/make.py made them and
 * PyTorch's answers). Read, run, and written back: logits, gradients and bytes. And upcycling: an MoE made of
 * a dense checkpoint begins at its loss. Four of the checkpoints reach a longer context by slower rotary angles. */
#include "exec/exec_param.h"
#include "exec/hf.h"
#include "exec/train.h"
#include "exec/upcycle.h"
#include "tests/test.h"
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#define DATA SOURCE_DIR "/tests/data/hf/"
enum { VOCAB = 64, SEQ = 32 };
static const char *const models[] = { "llama",         "mixtral",        "qwen3-moe",      "deepseek-v3",
                                      "llama-llama3",  "mixtral-linear", "qwen3-moe-yarn", "deepseek-v3-yarn" };
static char root[64];

static void make_root(void)
{
    strcpy(root, "/tmp/moefold-hf-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(root));
}

static void run_shell(const char *command)
{
    ck_assert_msg(system(command) == 0, "%s", command);
}

static void drop_root(struct arena *a)
{
    run_shell(arena_printf(a, "rm -rf %s", root));
}

static const char *imported(struct arena *a, const char *from)
{
    struct diag d;
    const char *note;
    ck_assert_msg(hf_import(a, from, root, &note, &d) == OK, "%s", d.text);
    return arena_printf(a, "%s/step-00000000", root);
}

START_TEST(what_was_read_is_written_back)
{
    struct arena a = { 0 };
    struct diag d;
    make_root();
    const char *from = arena_printf(&a, DATA "%s", models[_i]), *dir = imported(&a, from),
               *to = arena_printf(&a, "%s/back", root);
    ck_assert_msg(hf_export(&a, dir, to, &d) == OK, "%s", d.text);
    run_shell(arena_printf(&a, "cmp %s/model.safetensors %s/model.safetensors", from, to));
    run_shell(arena_printf(&a, "cmp %s/config.json %s/config.json", from, to));
    drop_root(&a);
    arena_free(&a);
}
END_TEST

/* Without the layout that import left, a layout and a config.json are made; what they say is the same model.
 */
START_TEST(what_was_never_theirs_is_written_too)
{
    struct arena a = { 0 };
    struct diag d;
    struct model m, again;
    make_root();
    const char *dir = imported(&a, arena_printf(&a, DATA "%s", models[_i])),
               *to = arena_printf(&a, "%s/made", root);
    run_shell(arena_printf(&a, "rm %s/hf.json && mv %s %s/before", dir, dir, root));
    ck_assert_msg(hf_export(&a, arena_printf(&a, "%s/before", root), to, &d) == OK, "%s", d.text);
    run_shell(arena_printf(&a, "cmp %s/before/rank-00000.safetensors %s/rank-00000.safetensors", root,
                           imported(&a, to)));
    ck_assert_int_eq(model_read(&m, &a, arena_printf(&a, "%s/before/model.yaml", root), &d), OK);
    ck_assert_int_eq(model_read(&again, &a, arena_printf(&a, "%s/model.yaml", dir), &d), OK);
    strcpy(again.name, m.name);
    again.ffn = m.ffn;                              /* where no layer is dense it says nothing */
    ck_assert_str_eq(model_text(&a, &m), model_text(&a, &again));
    drop_root(&a);
    arena_free(&a);
}
END_TEST

/* ---- one step of a checkpoint under some plan ---- */

struct trial {
    struct arena a;
    struct job j; struct program pr; struct unroll *u;
    struct state state;
    char *arena[8];
    struct exec_result r;
    struct diag d;
};

static float logits[SEQ * 128];                     /* where the launcher below puts them */
static int logit_cols;

static enum err keep_logits(const struct call *c)
{
    const struct operand x = c->read[0];
    if (c->at.tp == 0 && c->at.cp == 0 && c->at.dp == 0) {      /* one rank: the others run beside it */
        logit_cols = (int)x.cols;
        if (x.rows * x.cols <= (int64_t)LEN(logits))
            memcpy(logits, x.p, (size_t)(x.rows * x.cols) * sizeof(float));
    }
    return backend_cpu_launch[OP_XENT_MAX](c);
}

static void put_state(void *user, int rank, const struct unroll *u, char *arena)
{
    const struct trial *s = user;
    state_put(&s->state, rank, u, arena);
}

static void keep_arena(void *user, int rank, int step, const struct unroll *u, const char *arena)
{
    struct trial *s = user;
    (void)step;
    memcpy(s->arena[rank], arena, (size_t)u->arena_B);
}

static void trial_run(struct trial *s, const char *dir, const char *flags, const uint8_t *text,
                      int64_t text_n)
{
    static launch *backend[OP_KIND_COUNT];
    struct checkpoint_file c;
    *s = (struct trial){ 0 };
    test_job(&s->j, &s->a,
             arena_printf(&s->a,
                          "model %s/model.yaml system host capacity worst mbs 1 seq 32 optimizer sgd lr 0 %s",
                          dir, flags));
    program_build(&s->pr, &s->a, &s->j);
    s->u = arena_alloc(&s->a, (size_t)s->pr.n_stage * sizeof *s->u);
    ck_assert_msg(unroll_all(s->u, &s->a, &s->pr, &s->d) == OK, "%s", s->d.text);
    for (int i = 0; i < s->pr.n_stage; i++) unroll_plan(&s->u[i], &s->a, &s->pr);
    for (int i = 0; i < s->j.plan.gpus; i++)
        s->arena[i] = arena_alloc(&s->a, (size_t)s->u[fold_coord(&s->j.plan, i).pp].arena_B);
    state_make(&s->state, &s->a, &s->pr, &s->j);
    ck_assert_msg(checkpoint_open(&c, &s->a, dir, &s->d) == OK, "%s", s->d.text);
    ck_assert_msg(checkpoint_load(&c, &s->state, &s->j, &s->d) == OK, "%s", s->d.text);
    checkpoint_close(&c);
    memcpy(backend, backend_cpu_launch, sizeof backend);
    backend[OP_XENT_MAX] = keep_logits;
    const struct exec_ask ask = { .steps = 1,
                                  .text = text,
                                  .text_n = text_n,
                                  .poison = 1,
                                  .timeout_s = 60,
                                  .backend = backend,
                                  .user = s,
                                  .before = put_state,
                                  .after_step = keep_arena };
    ck_assert_msg(exec_run(&s->r, &s->a, &s->pr, s->u, &s->j, &ask, &s->d) == OK, "%s", s->d.text);
}

static void trial_close(struct trial *s)
{
    arena_free(&s->a);
}

/* Every tensor's gradient against PyTorch's, by the norm of the difference. */
static void gradients_agree(struct trial *s, const char *model)
{
    struct safetensors want;
    struct hf_tensor *all;
    const char *type = strncmp(model, "qwen3-moe", 9) == 0      ? "qwen3_moe"
                       : strncmp(model, "deepseek-v3", 11) == 0 ? "deepseek_v3"
                       : strncmp(model, "mixtral", 7) == 0      ? "mixtral"
                                                                : "llama";
    const int n = hf_tensors(&all, &s->a, &s->pr, &s->j.model, type);
    int seen = 0;
    ck_assert_msg(safetensors_open(&want, &s->a,
                                   arena_printf(&s->a, DATA "%s/truth/gradient.safetensors", model),
                                   &s->d) == OK,
                  "%s", s->d.text);
    for (int i = 0; i < n; i++) {
        const struct param *q = &s->pr.param[all[i].param];
        const struct safetensors_tensor *t = safetensors_find(&want, all[i].name);
        if (!q->g) continue;                        /* the selection bias has none */
        ck_assert_msg(t != NULL, "%s", all[i].name);
        const int64_t count = safetensors_elements(t);
        float *whole = arena_alloc(&s->a, (size_t)exec_param_elements(q) * sizeof *whole);
        float *x = arena_alloc(&s->a, (size_t)count * sizeof *x),
              *y = arena_alloc(&s->a, (size_t)count * sizeof *y);
        exec_param_gather(whole, &s->pr, s->u, &s->j, all[i].param, 1, s->arena);
        hf_turn(x, whole + ((int64_t)all[i].expert * q->rows + all[i].row) * q->cols, &all[i], 1);
        ck_assert_int_eq(safetensors_floats(y, &want, t, 0, count, &s->d), OK);
        double off = 0, norm = 0;
        for (int64_t k = 0; k < count; k++) {
            off += ((double)x[k] - (double)y[k]) * ((double)x[k] - (double)y[k]);
            norm += (double)y[k] * (double)y[k];
        }
        ck_assert_msg(sqrt(off) <= 1e-3 * sqrt(norm) && (norm > 0 || q->batch),
                      "%s, %s: off by %.3g of its norm %.3g", model, all[i].name, sqrt(off / norm),
                      sqrt(norm));
        seen++;
    }
    ck_assert_int_eq(seen,
                     want.n - (s->j.model.selection_bias ? s->j.model.layers - s->j.model.dense_layers : 0));
    safetensors_close(&want);
}

static const char *const plans[] = { "gpus 1 gbs 1", "gpus 2 gbs 1 pp 2", "gpus 4 gbs 1 tp 2 cp 2" };

START_TEST(logits_and_gradients_are_pytorchs)
{
    struct trial s;
    struct arena a = { 0 };
    struct safetensors want;
    struct diag d;
    make_root();
    const char *model = models[_i / LEN(plans)], *dir = imported(&a, arena_printf(&a, DATA "%s", model));
    ck_assert_msg(
        safetensors_open(&want, &a, arena_printf(&a, DATA "%s/truth/logits.safetensors", model), &d) == OK,
        "%s", d.text);
    const struct safetensors_tensor *token = safetensors_find(&want, "token");
    float y[SEQ * VOCAB], loss;
    ck_assert_int_eq(safetensors_floats(y, &want, safetensors_find(&want, "logits"), 0, SEQ * VOCAB, &d), OK);
    ck_assert_int_eq(safetensors_floats(&loss, &want, safetensors_find(&want, "loss"), 0, 1, &d), OK);
    trial_run(&s, dir, plans[_i % LEN(plans)], want.data + token->at_B, token->bytes);
    ck_assert_msg(fabs(s.r.step[0].loss - (double)loss) <= 1e-4, "%s: loss %.7g, PyTorch's %.7g", model,
                  s.r.step[0].loss, (double)loss);
    double most = 0;
    for (int r = 0; r < SEQ && s.j.plan.gpus == 1; r++)
        for (int c = 0; c < VOCAB; c++)
            most = fmax(most, fabs((double)logits[r * logit_cols + c] - (double)y[r * VOCAB + c]));
    ck_assert_msg(most <= 1e-4, "%s: a logit is off by %.3g", model, most);
    gradients_agree(&s, model);
    safetensors_close(&want);
    trial_close(&s);
    drop_root(&a);
    arena_free(&a);
}
END_TEST

/* ---- upcycling ---- */

static const struct { struct upcycle_ask ask; const char *plan;
} upcycled[] = {
    { { 4, 2, 1, 7, NULL }, "gpus 1 gbs 1" },
    { { 8, 3, 1, 8, NULL }, "gpus 2 gbs 2 ep 2" },
    { { 8, 2, 2, 9, NULL }, "gpus 1 gbs 1" },
    { { 8, 4, 2, 10, NULL }, "gpus 4 gbs 4 ep 4" },
    { { 12, 4, 4, 11, NULL }, "gpus 2 gbs 1 tp 2 etp 2" },
};

START_TEST(an_upcycled_model_begins_at_its_parents_loss)
{
    struct arena a = { 0 };
    struct trial dense, moe;
    struct diag d;
    uint8_t text[256];
    make_root();
    for (int i = 0; i < LEN(text); i++) text[i] = (uint8_t)(i * i % VOCAB);
    const char *dir = imported(&a, DATA "llama");
    struct upcycle_ask ask = upcycled[_i].ask;
    ask.root = arena_printf(&a, "%s/moe", root);
    ck_assert_msg(upcycle(&a, dir, &ask, &d) == OK, "%s", d.text);
    trial_run(&moe, arena_printf(&a, "%s/step-00000000", ask.root), upcycled[_i].plan, text, LEN(text));
    trial_run(&dense, dir, arena_printf(&a, "gpus 1 gbs %d", moe.j.plan.gbs), text, LEN(text));
    ck_assert_int_eq(moe.j.model.experts, ask.experts);
    ck_assert_msg(fabs(moe.r.step[0].loss - dense.r.step[0].loss) <= 1e-5, "%s: loss %.7g, the parent's %.7g",
                  upcycled[_i].plan, moe.r.step[0].loss, dense.r.step[0].loss);
    trial_close(&moe);
    trial_close(&dense);
    drop_root(&a);
    arena_free(&a);
}
END_TEST

/* ---- case F06: a selection bias stays float32 though all else is bf16 ---- */

/* The fixture's files in `to`, its bias as float32 numbers that bf16 cannot hold. */
static void with_fine_bias(struct arena *a, const char *from, const char *to)
{
    struct safetensors s;
    struct diag d;
    char *head = "{";
    int64_t at_B = 0;
    ck_assert_msg(safetensors_open(&s, a, arena_printf(a, "%s/model.safetensors", from), &d) == OK, "%s", d.text);
    uint8_t *data = arena_alloc(a, 2 * (size_t)s.data_B);
    for (int i = 0; i < s.n; i++) {
        const struct safetensors_tensor *x = &s.tensor[i];
        const int bias = strstr(x->name, "e_score_correction_bias") != NULL;
        const int64_t n = safetensors_elements(x), bytes = bias ? 4 * n : x->bytes;
        const char *shape = x->n_dim == 1 ? arena_printf(a, "%lld", (long long)x->dim[0])
                                          : arena_printf(a, "%lld,%lld", (long long)x->dim[0], (long long)x->dim[1]);
        memcpy(data + at_B, s.data + x->at_B, (size_t)x->bytes);
        for (int64_t e = 0; bias && e < n; e++) ((float *)(void *)(data + at_B))[e] = 1.0007f + 1e-4f * (float)e;
        head = arena_printf(a, "%s%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%lld,%lld]}", head, i ? "," : "",
                            x->name, bias ? "F32" : "BF16", shape, (long long)at_B, (long long)(at_B + bytes));
        at_B += bytes;
    }
    head = arena_printf(a, "%s}", head);
    run_shell(arena_printf(a, "mkdir %s && cp %s/config.json %s", to, from, to));
    FILE *f = fopen(arena_printf(a, "%s/model.safetensors", to), "wb");
    const uint64_t head_B = strlen(head);
    ck_assert(f && fwrite(&head_B, 8, 1, f) == 1 && fwrite(head, 1, head_B, f) == head_B &&
              fwrite(data, 1, (size_t)at_B, f) == (size_t)at_B && fclose(f) == 0);
    safetensors_close(&s);
}

START_TEST(a_selection_bias_keeps_its_digits)
{
    struct arena a = { 0 };
    struct diag d;
    const char *note;
    make_root();
    const char *fine = arena_printf(&a, "%s/fine", root), *back = arena_printf(&a, "%s/back", root);
    with_fine_bias(&a, DATA "deepseek-v3", fine);
    ck_assert_msg(hf_import(&a, fine, root, &note, &d) == OK, "%s", d.text);
    ck_assert_ptr_null(note);
    ck_assert_msg(hf_export(&a, arena_printf(&a, "%s/step-00000000", root), back, &d) == OK, "%s", d.text);
    run_shell(arena_printf(&a, "cmp %s/model.safetensors %s/model.safetensors", fine, back));
    ck_assert_msg(hf_import(&a, DATA "deepseek-v3", arena_printf(&a, "%s/coarse", root), &note, &d) == OK, "%s", d.text);
    ck_assert_msg(note && strstr(note, "model.layers.1.mlp.gate.e_score_correction_bias is not F32 (1 such)"), "%s",
                  note ? note : "no note");
    drop_root(&a);
    arena_free(&a);
}
END_TEST

/* ---- what is wrong is named ---- */

START_TEST(wrong_checkpoints_are_refused)
{
    struct arena a = { 0 };
    struct diag d;
    const char *note;
    make_root();
    const char *at = arena_printf(&a, "%s/hf", root);
    run_shell(arena_printf(
        &a, "mkdir %s && cp " DATA "mixtral/config.json " DATA "llama/model.safetensors %s", at, at));
    ck_assert_int_eq(hf_import(&a, at, root, &note, &d), ERR_CONFIG);
    ck_assert_msg(strstr(d.text, "the config's model needs") != NULL, "%s", d.text);
    run_shell(arena_printf(&a,
                           "cp " DATA "mixtral/model.safetensors %s && sed -i 's/\"num_local_experts\": "
                                      "4/\"num_local_experts\": 3/' %s/config.json",
                           at, at));
    ck_assert_int_eq(hf_import(&a, at, root, &note, &d), ERR_CONFIG);
    ck_assert_msg(strstr(d.text, "gate.weight is 4 x 16") != NULL, "%s", d.text);
    run_shell(arena_printf(&a, "cp " DATA "mixtral/config.json %s && truncate -s 9000 %s/model.safetensors",
                           at, at));
    ck_assert_int_eq(hf_import(&a, at, root, &note, &d), ERR_CONFIG);
    ck_assert_msg(strstr(d.text, "cut short") != NULL, "%s", d.text);
    ck_assert_int_eq(hf_import(&a, "/nowhere", root, &note, &d), ERR_IO);
    drop_root(&a);
    arena_free(&a);
}
END_TEST

/* Case G05: 671 B parameters and 11.5 B of MTP in float32, with two moments of each, on a host of 1.5 TB. */
START_TEST(a_conversion_that_no_host_holds)
{
    struct arena a = { 0 };
    struct hf_model h;
    struct diag d = { "" };
    ck_assert_int_eq(hf_model_open(&h, &a, "deepseek-v3", 1, &d), ERR_NO);
    ck_assert_msg(strstr(d.text, "the host's memory, not a GPU's") && strstr(d.text, "not streamed"), "%s", d.text);
    ck_assert_int_eq(hf_fits(&h.pr, &h.job, 1.5e12, &d), ERR_NO);
    const double need_B = state_B(&h.pr, &h.job);
    ck_assert_msg(need_B > 4 * 3 * 682.6e9 && need_B < 4 * 3 * 684.6e9, "%g", need_B);      /* a copy of the table beside MTP */
    ck_assert_int_eq(hf_fits(&h.pr, &h.job, need_B, &d), OK);
    arena_free(&a);
}
END_TEST

int main(void)
{
    const struct test_loop tests[] = {
        { what_was_read_is_written_back, LEN(models) },
        { what_was_never_theirs_is_written_too, LEN(models) },
        { logits_and_gradients_are_pytorchs, LEN(models) * LEN(plans) },
        { an_upcycled_model_begins_at_its_parents_loss, LEN(upcycled) },
        { a_selection_bias_keeps_its_digits, 0 },
        { wrong_checkpoints_are_refused, 0 },
        { a_conversion_that_no_host_holds, 0 },
    };
    return test_main_loops("hf", NULL, tests, LEN(tests), 240);
}
