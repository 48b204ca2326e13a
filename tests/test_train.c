/* Training in pieces: a run that was stopped and resumed is the run that was not, in the same plan to the
 * bit, in another to 1e-5; evaluation sees the same loss under every plan and changes nothing. */
#include "exec/train.h"
#include "tests/parity.h"
#include "tests/test.h"
#include <unistd.h>

enum { STEPS = 9, CUT = 4 };
static char root[64];

static void make_root(void)
{
    strcpy(root, "/tmp/moefold-train-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(root));
}

static void drop_root(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", root);
    ck_assert_int_eq(system(command), 0);
}

/* The text shuffled, its last quarter kept for evaluation; a rate that moves. */
static struct data data_cut(const struct parity *p)
{
    struct data x = data_of_text(p->ask.text, p->ask.text_n);
    x.n_train = x.n * 3 / 4;
    x.shuffle = 1;
    x.seed = 3;
    return x;
}

static void open_cosine(struct parity *p, const struct fold *f)
{
    parity_open(p, f, 1, OPTIMIZER_ADAMW);
    p->j.plan.lr_decay = LR_DECAY_COSINE;
    p->j.plan.lr_warmup = 2;
    p->j.plan.lr_steps = STEPS;
}

static void run(struct train_result *r, struct parity *p, struct train_ask ask)
{
    const struct data x = data_cut(p);
    ask.data = &x;
    ask.traced = ask.poison = 1;
    ask.timeout_s = 60;
    ask.root = root;
    ask.keep = 9;
    ck_assert_msg(train_run(r, &p->a, &p->pr, p->u, &p->j, &ask, &p->d) == OK, "%s", p->d.text);
}

static void resume(struct train_result *r, struct parity *p, struct train_ask ask)
{
    struct checkpoint_file c;
    const char *dir;
    ck_assert_msg(checkpoint_find(&dir, &p->a, arena_printf(&p->a, "%s/step-%08d", root, CUT), &p->d) == OK,
                  "%s", p->d.text);
    ck_assert_msg(checkpoint_open(&c, &p->a, dir, &p->d) == OK, "%s", p->d.text);
    ask.resume = &c;
    run(r, p, ask);
    checkpoint_close(&c);
    ck_assert_int_eq(r->first_step, CUT);
    ck_assert_int_eq(r->n_step, STEPS - CUT);
}

static int close_to(double x, double want, double relative)
{
    return fabs(x - want) <= relative * fabs(want);
}

static const struct { struct fold one, other;
} pairs[] = {
    { { .name = "gqa", .family = GQA_ALL },
      { .name = "tp2 dp2 / ep4", .family = GQA_ALL, .tp = 2, .dp = 2, .ep = 4 } },
    { { .name = "pp2 cp2 / ep2", .family = MLA_ALL, .pp = 2, .cp = 2, .ep = 2 },
      { .name = "dp4 / etp2", .family = MLA_ALL, .dp = 4, .etp = 2 } },
    { { .name = "woven pp2 vpp2 tp2 / ep2",
        .family = GQA_ALL,
        .pp = 2,
        .vpp = 2,
        .tp = 2,
        .ep = 2,
        .woven = 1,
        .split = 1 },
      { .name = "cp2", .family = GQA_ALL, .cp = 2 } },
    { { .name = "dense tied pp2 dp2", .family = DENSE, .pp = 2, .dp = 2 },
      { .name = "dense tied tp2", .family = DENSE, .tp = 2 } },
    { { .name = "bf16 tp2 dp2 / ep2", .family = GQA_ALL, .tp = 2, .dp = 2, .ep = 2, .bf16 = 1 },
      { .name = "bf16 pp2 / ep1", .family = GQA_ALL, .pp = 2, .bf16 = 1 } },
    { { .name = "bf16 tp2 dp2 / ep2, 16-bit states", .family = GQA_ALL, .tp = 2, .dp = 2, .ep = 2, .bf16 = 1, .small = 1 },
      { .name = "bf16 dp2 pp2 / ep1, 16-bit states", .family = GQA_ALL, .dp = 2, .pp = 2, .bf16 = 1, .small = 1 } },
    { { .name = "dp2 / ep2, bf16 moments", .family = MLA_ALL, .dp = 2, .ep = 2, .small = 1 },
      { .name = "tp2, bf16 moments", .family = MLA_ALL, .tp = 2, .small = 1 } },
    { { .name = "fsdp dp4 / ep2", .family = MLA_ALL, .dp = 4, .ep = 2, .fsdp = 1 },
      { .name = "fsdp tp2 dp2, layers away", .family = MLA_ALL, .tp = 2, .dp = 2, .fsdp = 1, .offload = "layers:2" } },
    { { .name = "bf16 fsdp dp2, states away", .family = GQA_ALL, .dp = 2, .bf16 = 1, .fsdp = 1, .offload = "optimizer:0.6" },
      { .name = "bf16 pp2 dp2, states halved", .family = GQA_ALL, .pp = 2, .dp = 2, .bf16 = 1, .small = 1 } },
};

START_TEST(a_resumed_run_is_the_run)
{
    struct parity whole, cut, again, other;
    struct train_result r, first, rest, elsewhere;
    make_root();
    open_cosine(&whole, &pairs[_i].one);
    open_cosine(&cut, &pairs[_i].one);
    open_cosine(&again, &pairs[_i].one);
    open_cosine(&other, &pairs[_i].other);
    run(&r, &whole, (struct train_ask){ .steps = STEPS });
    run(&first, &cut, (struct train_ask){ .steps = CUT + 1, .save_every = CUT, .evals = 1, .eval_every = 2 });
    resume(&rest, &again, (struct train_ask){ .steps = STEPS });
    resume(&elsewhere, &other, (struct train_ask){ .steps = STEPS, .evals = 1, .eval_every = 3 });
    for (int i = 0; i < CUT; i++) ck_assert(first.step[i].loss == r.step[i].loss);
    for (int i = 0; i < STEPS - CUT; i++) {
        const struct exec_step *want = &r.step[CUT + i], *x = &rest.step[i], *y = &elsewhere.step[i];
        ck_assert_msg(x->loss == want->loss && x->grad_norm == want->grad_norm, "%s, step %d: %.9g, not %.9g",
                      pairs[_i].one.name, CUT + i, x->loss, want->loss);
        const double off = pairs[_i].one.bf16 ? 1e-2 : 1e-5;
        ck_assert_msg(close_to(y->loss, want->loss, off) && close_to(y->mtp_loss, want->mtp_loss, off) &&
                          close_to(y->grad_norm, want->grad_norm, 4 * off),
                      "%s, step %d: %.9g, not %.9g", pairs[_i].other.name, CUT + i, y->loss, want->loss);
    }
    ck_assert(r.step[STEPS - 1].loss < r.step[0].loss);
    parity_close(&whole);
    parity_close(&cut);
    parity_close(&again);
    parity_close(&other);
    drop_root();
}
END_TEST

/* At a rate of 0 the training loss of a sequence is its evaluation loss: the forward program is the same
 * arithmetic. */
START_TEST(evaluation_is_the_loss_of_training)
{
    struct parity p;
    struct train_result r, e;
    parity_open(&p, &pairs[_i].one, 1, pairs[_i].one.small || pairs[_i].one.offload ? OPTIMIZER_ADAMW : OPTIMIZER_SGD);
    p.j.plan.lr = 0;
    struct data x = data_of_text(p.ask.text, p.ask.text_n);
    const int64_t seqs = data_sequences(&x, DATA_TRAIN, p.j.plan.seq) / p.j.plan.gbs * p.j.plan.gbs;
    struct train_ask ask = { .data = &x, .steps = seqs / p.j.plan.gbs, .traced = 1, .timeout_s = 60 };
    ck_assert_msg(train_run(&r, &p.a, &p.pr, p.u, &p.j, &ask, &p.d) == OK, "%s", p.d.text);
    uint8_t twice[2 * 512];                         /* the text to train on, and the text to evaluate */
    ck_assert_int_le(x.n, 512);
    memcpy(twice, x.token, (size_t)x.n);
    memcpy(twice + x.n, x.token, (size_t)x.n);
    struct data both = data_of_text(twice, 2 * x.n);
    both.n_train = x.n;
    ask.data = &both;
    ask.steps = ask.evals = 1;
    ck_assert_msg(train_run(&e, &p.a, &p.pr, p.u, &p.j, &ask, &p.d) == OK, "%s", p.d.text);
    double loss = 0, mtp = 0;
    for (int i = 0; i < r.n_step; i++)
        loss += r.step[i].loss / r.n_step, mtp += r.step[i].mtp_loss / r.n_step;
    ck_assert_int_eq(e.n_eval, 1);
    ck_assert_int_eq(e.eval[0].tokens, seqs * p.j.plan.seq);
    ck_assert_msg(close_to(e.eval[0].loss, loss, 1e-6) && close_to(e.eval[0].mtp_loss, mtp, 1e-6),
                  "%s: %.9g, not %.9g", pairs[_i].one.name, e.eval[0].loss, loss);
    parity_close(&p);
}
END_TEST

START_TEST(a_loss_that_is_no_number_ends_the_run_and_keeps_what_was)
{
    const struct fold one = { .name = "one rank", .family = GQA };
    struct parity p;
    struct train_result r;
    const char *dir;
    make_root();
    parity_open(&p, &one, 1, OPTIMIZER_SGD);
    p.j.plan.lr = 1e9;
    p.j.plan.clip = 0;
    const struct data x = data_cut(&p);
    const struct train_ask ask = {
        .data = &x, .steps = 50, .traced = 1, .timeout_s = 60, .save_every = 1, .keep = 2, .root = root
    };
    ck_assert_int_eq(train_run(&r, &p.a, &p.pr, p.u, &p.j, &ask, &p.d), ERR_NO);
    ck_assert_msg(strstr(p.d.text, "lower lr") != NULL, "%s", p.d.text);
    ck_assert(r.n_step > 1 && isfinite(r.step[0].loss) && !isfinite(r.step[r.n_step - 1].grad_norm));
    ck_assert_int_eq(checkpoint_find(&dir, &p.a, root, &p.d), OK);
    parity_close(&p);
    drop_root();
}
END_TEST

/* Sequences of another length go on behind the tokens that were seen. */
START_TEST(a_resumed_run_knows_tokens_not_sequences)
{
    const struct fold one = { .name = "one rank", .family = GQA };
    struct parity p, half;
    struct train_result r;
    struct checkpoint_file c;
    make_root();
    parity_open(&p, &one, 1, OPTIMIZER_SGD);
    run(&r, &p, (struct train_ask){ .steps = CUT, .save_every = CUT });
    half = (struct parity){ .j = parity_job(&one, 1, OPTIMIZER_SGD) };
    half.j.plan.seq = PARITY_SEQ / 2;
    ck_assert_int_eq(plan_resolve(&half.j, &half.d), OK);
    program_build(&half.pr, &half.a, &half.j);
    half.u = arena_alloc(&half.a, sizeof *half.u);
    ck_assert_int_eq(unroll_all(half.u, &half.a, &half.pr, &half.d), OK);
    unroll_plan(half.u, &half.a, &half.pr);
    half.ask.text = parity_text(&half.ask.text_n);
    resume(&r, &half, (struct train_ask){ .steps = STEPS, .save_every = STEPS });
    ck_assert_int_eq(checkpoint_open(&c, &p.a, arena_printf(&p.a, "%s/step-%08d", root, STEPS), &p.d), OK);
    ck_assert_int_eq(c.head.seq, PARITY_SEQ / 2);
    ck_assert_int_eq(c.head.sequences, 2 * CUT * PARITY_GBS + (STEPS - CUT) * PARITY_GBS);
    checkpoint_close(&c);
    parity_close(&p);
    parity_close(&half);
    drop_root();
}
END_TEST

START_TEST(what_cannot_be_resumed_is_refused)
{
    const struct fold one = { .name = "one rank", .family = GQA };
    struct parity p, adam;
    struct train_result r;
    struct checkpoint_file c;
    make_root();
    parity_open(&p, &one, 1, OPTIMIZER_SGD);
    parity_open(&adam, &one, 1, OPTIMIZER_ADAMW);
    run(&r, &p, (struct train_ask){ .steps = CUT, .save_every = CUT });
    ck_assert_int_eq(checkpoint_open(&c, &p.a, arena_printf(&p.a, "%s/step-%08d", root, CUT), &p.d), OK);
    const struct data x = data_cut(&p);
    struct train_ask ask = { .data = &x, .steps = CUT, .traced = 1, .timeout_s = 60, .resume = &c };
    ck_assert_int_eq(train_run(&r, &p.a, &p.pr, p.u, &p.j, &ask, &p.d), ERR_CONFIG);
    ck_assert(strstr(p.d.text, "at step 4 already") != NULL);
    ask.steps = STEPS;
    ck_assert_int_eq(train_run(&r, &adam.a, &adam.pr, adam.u, &adam.j, &ask, &adam.d), ERR_CONFIG);
    ck_assert(strstr(adam.d.text, "no moments") != NULL);
    ck_assert_int_eq(train_run(&r, &p.a, &p.pr, p.u, &p.j, &ask, &p.d), OK);
    checkpoint_close(&c);
    parity_close(&p);
    parity_close(&adam);
    drop_root();
}
END_TEST

int main(void)
{
    const struct test_loop tests[] = {
        { a_resumed_run_is_the_run, LEN(pairs) },
        { evaluation_is_the_loss_of_training, LEN(pairs) },
        { a_loss_that_is_no_number_ends_the_run_and_keeps_what_was, 0 },
        { a_resumed_run_knows_tokens_not_sequences, 0 },
        { what_cannot_be_resumed_is_refused, 0 },
    };
    return test_main_loops("train", NULL, tests, LEN(tests), 240);
}
