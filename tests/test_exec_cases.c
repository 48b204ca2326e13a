/* What users of other executors reported wrong (cases of public bug reports, by their numbers here), run for real: expert
 * gradients that grow with ep (D11), ranks with no tokens (E01), states lost when a checkpoint moves to another fold (F08). */
#include "exec/backend_cpu.h"
#include "exec/comm_shm.h"
#include "exec/train.h"
#include "tests/numbers.h"
#include "tests/parity.h"
#include <pthread.h>
#include <unistd.h>

/* ---- D11: 4 experts, two a token, 32 sequences ---- */

static const struct fold same[] = {
    { .name = "ep 1", .family = GQA },
    { .name = "ep 2", .family = GQA, .dp = 2, .ep = 2 },
    { .name = "dp 2", .family = GQA, .dp = 2 },
    { .name = "ep 2, edp 2", .family = GQA, .dp = 4, .ep = 2 },
};

static void open_d11(struct parity *p, const struct fold *f)
{
    *p = (struct parity){ .j = parity_job(f, 3, OPTIMIZER_SGD) };
    p->j.model.experts = 4;
    p->j.plan.gbs = 32;
    parity_make(p, f);
    p->ask.steps = 1;
    ck_assert_msg(parity_run(p) == OK, "%s: %s", f->name, p->d.text);
}

START_TEST(gradients_do_not_grow_with_ep)
{
    struct parity one, p;
    open_d11(&one, &same[0]);
    open_d11(&p, &same[_i + 1]);
    ck_assert_int_eq(one.j.plan.dp * one.j.plan.ep, 1);
    ck_assert(one.r.score_gap > 1e-5);
    const char *off = parity_gradients_differ(&p, &one);
    ck_assert_msg(!off, "%s: %s", same[_i + 1].name, off);
    parity_close(&one);
    parity_close(&p);
}
END_TEST

/* ---- E01: four ranks of one ep group, some without a token ---- */

enum { RANKS = 4, E = 8, K = 2, H = 512, MOST = 256 };

struct member {
    struct job j;
    struct coord at;
    struct comm *ep;
    struct diag d;
    enum err e;
    int tokens;
    float *x, *logit, *out;
};

enum { FLOATS = 1, INTS = 2 };
static struct buf bufs[] = { { 0 }, { .dtype = DT_F32 }, { .dtype = DT_I32 } };
static const struct program program = { .buf = bufs, .n_buf = LEN(bufs) };

static enum err launch_on(struct member *m, enum op_kind k, struct operand write, struct operand r0, struct operand r1)
{
    const int id = k == OP_GATHER || k == OP_SIZES ? INTS : FLOATS;
    const struct op o = { .kind = (uint8_t)k, .io = { .write = { id }, .read = { id, INTS } } };
    struct call c = { .op = &o, .pr = &program, .job = &m->j, .kernels = &kernels_ref, .at = m->at, .comm_ops = &comm_shm,
                      .comm = m->ep, .me = m->at.ep, .members = RANKS, .d = &m->d };
    c.write[0] = write, c.read[0] = r0, c.read[1] = r1;
    return backend_cpu_launch[k](&c);
}

static enum err route_on(struct member *m, float *score, int32_t *perm, float *prob, int32_t *mine)
{
    const struct op o = { .kind = OP_ROUTE };
    struct call c = { .op = &o, .pr = &program, .job = &m->j, .kernels = &kernels_ref, .members = 1, .d = &m->d };
    c.write[0] = (struct operand){ score, m->tokens, E };
    c.write[1] = (struct operand){ perm, m->tokens * K, 2 };
    c.write[2] = (struct operand){ prob, m->tokens * K, 1 };
    c.write[3] = (struct operand){ mine, 1, E };
    c.read[0] = (struct operand){ m->logit, m->tokens, E };
    return backend_cpu_launch[OP_ROUTE](&c);
}

/* Routes, sends rows to their experts, which multiply them by (expert + 1), and brings their sums back. */
static enum err there_and_back(struct member *m, struct arena *a)
{
    const int sent = m->tokens * K;
    float *score = arena_alloc(a, sizeof(float) * MOST * E), *prob = arena_alloc(a, sizeof(float) * MOST * K);
    float *send = arena_alloc(a, sizeof(float) * MOST * K * H), *back = arena_alloc(a, sizeof(float) * MOST * K * H);
    int32_t *perm = arena_alloc(a, sizeof(int32_t) * MOST * K * 2), mine[E], count[RANKS * E], size[2];
    TRY(route_on(m, score, perm, prob, mine));
    const struct operand counts = { count, RANKS, E }, none = { 0 };
    TRY(launch_on(m, OP_GATHER, counts, (struct operand){ mine, 1, E }, none));
    TRY(launch_on(m, OP_SIZES, (struct operand){ size, 2, 1 }, counts, none));
    const int n = size[0];
    float *got = arena_alloc(a, sizeof(float) * ((size_t)n + 1) * H), *sorted = arena_alloc(a, sizeof(float) * ((size_t)n + 1) * H);
    TRY(launch_on(m, OP_PERMUTE, (struct operand){ send, sent, H }, (struct operand){ m->x, m->tokens, H },
                  (struct operand){ perm, sent, 2 }));
    TRY(launch_on(m, OP_DISPATCH, (struct operand){ got, n, H }, (struct operand){ send, sent, H }, counts));
    TRY(launch_on(m, OP_SORT, (struct operand){ sorted, n, H }, (struct operand){ got, n, H }, counts));
    const struct exchange ex = { .count = count, .etp = 1, .ep = RANKS, .experts = E };
    for (int l = 0, row = 0; l < E / RANKS; l++)
        for (int64_t left = exchange_expert(&ex, m->at.ep, l); left > 0; left--, row++)
            for (int c = 0; c < H; c++) sorted[row * H + c] *= (float)(m->at.ep * (E / RANKS) + l + 1);
    TRY(launch_on(m, OP_UNSORT, (struct operand){ got, n, H }, (struct operand){ sorted, n, H }, counts));
    TRY(launch_on(m, OP_COMBINE, (struct operand){ back, sent, H }, (struct operand){ got, n, H }, counts));
    return launch_on(m, OP_UNPERMUTE, (struct operand){ m->out, m->tokens, H }, (struct operand){ back, sent, H },
                     (struct operand){ perm, sent, 2 });
}

static void *member_main(void *arg)
{
    struct member *m = arg;
    struct arena a = { 0 };
    m->e = there_and_back(m, &a);
    arena_free(&a);
    return NULL;
}

/* Every token's row times the sum of (expert + 1) over its best two; nothing behind the last one is written. */
static void check_member(const struct member *m)
{
    ck_assert_msg(m->e == OK, "%s", m->d.text);
    for (int t = 0; t < m->tokens; t++) {
        double times = 0;
        for (int e = 0; e < E; e++) {
            int above = 0;
            for (int o = 0; o < E; o++) above += m->logit[t * E + o] > m->logit[t * E + e];
            times += above < K ? e + 1 : 0;
        }
        for (int c = 0; c < H; c++)
            ck_assert_double_eq_tol(m->out[t * H + c], times * (double)m->x[t * H + c], 1e-5 * times);
    }
    ck_assert(isnan(m->out[m->tokens * H]));
}

static void exchange_once(const int tokens[RANKS], int round)
{
    struct arena a = { 0 };
    struct member m[RANKS];
    pthread_t t[RANKS];
    static const int32_t all[RANKS] = { 0, 1, 2, 3 };
    struct comm_shm *s = comm_shm_open(&a, 20);
    for (int i = 0; i < RANKS; i++) {
        m[i] = (struct member){ .at = { .ep = i }, .tokens = tokens[i] };
        m[i].j.plan = (struct plan){ .tp = 1, .cp = 1, .dp = RANKS, .etp = 1, .ep = RANKS, .pp = 1, .mbs = 1 };
        m[i].j.model = (struct model){ .experts = E, .topk = K, .groups = 1, .groups_kept = 1, .route_scale = 1 };
        m[i].ep = comm_shm_join(s, "ep", 0, i, RANKS, all);
        m[i].x = numbers_make(MOST * H, (uint64_t)(1 + i + 10 * round));
        m[i].logit = numbers_make(MOST * E, (uint64_t)(5 + i + 10 * round));
        m[i].out = numbers_poison((MOST + 1) * H);
    }
    for (int i = 0; i < RANKS; i++) pthread_create(&t[i], NULL, member_main, &m[i]);
    for (int i = 0; i < RANKS; i++) pthread_join(t[i], NULL);
    for (int i = 0; i < RANKS; i++) {
        check_member(&m[i]);
        free(m[i].x), free(m[i].logit), free(m[i].out);
    }
    arena_free(&a);
}

START_TEST(ranks_without_tokens_come_to_every_collective)
{
    static const int uneven[RANKS] = { 256, 0, 17, 1 }, none[RANKS] = { 0 };
    uint64_t state = 1;
    exchange_once(uneven, 0);
    exchange_once(none, 1);
    for (int round = 2; round < 22; round++) {
        int tokens[RANKS];
        for (int i = 0; i < RANKS; i++) tokens[i] = test_random(&state, 3) ? test_random(&state, MOST + 1) : 0;
        exchange_once(tokens, round);
    }
}
END_TEST

/* ---- F08: 8 layers of 8 experts, a vocabulary of 32k ---- */

static const struct { struct fold from, to;
} moves[] = {
    { { .name = "pp 4", .family = GQA, .pp = 4 }, { .name = "ep 4", .family = GQA, .dp = 4, .ep = 4 } },
    { { .name = "ep 8", .family = GQA, .dp = 8, .ep = 8 }, { .name = "ep 4", .family = GQA, .dp = 4, .ep = 4 } },
    { { .name = "ep 4, edp 2", .family = GQA, .dp = 8, .ep = 4 }, { .name = "ep 2, edp 4", .family = GQA, .dp = 8, .ep = 2 } },
};
static char root[64];

static void open_f08(struct parity *p, const struct fold *f)
{
    *p = (struct parity){ .j = parity_job(f, 1, OPTIMIZER_ADAMW) };
    p->j.model.layers = 8, p->j.model.vocab = 32000;
    parity_make(p, f);
}

static void train_to(struct train_result *r, struct parity *p, int64_t steps, const char *dir)
{
    const struct data text = data_of_text(p->ask.text, p->ask.text_n);
    struct checkpoint_file c;
    struct train_ask ask = { .data = &text, .steps = steps, .traced = 1, .timeout_s = 60, .save_every = dir ? 0 : 2, .keep = 9,
                             .root = root };
    if (dir) {
        ck_assert_msg(checkpoint_open(&c, &p->a, dir, &p->d) == OK, "%s", p->d.text);
        ask.resume = &c;
    }
    ck_assert_msg(train_run(r, &p->a, &p->pr, p->u, &p->j, &ask, &p->d) == OK, "%s", p->d.text);
    if (dir) checkpoint_close(&c);
}

static void move(struct state *s, struct parity *p, const char *dir)
{
    struct checkpoint_file c;
    state_make(s, &p->a, &p->pr, &p->j);
    ck_assert_msg(checkpoint_open(&c, &p->a, dir, &p->d) == OK, "%s", p->d.text);
    ck_assert_msg(checkpoint_load(&c, s, &p->j, &p->d) == OK, "%s", p->d.text);
    checkpoint_close(&c);
}

static const char *save_as(struct parity *p, const struct state *s, const char *name)
{
    struct checkpoint c;
    const struct checkpoint_head head = { .step = 2, .sequences = 2 * PARITY_GBS, .seq = PARITY_SEQ, .optimizer = OPTIMIZER_ADAMW };
    ck_assert_msg(checkpoint_begin(&c, &p->a, arena_printf(&p->a, "%s/%s", root, name), &p->pr, &p->j, &head, &p->d) == OK,
                  "%s", p->d.text);
    for (int r = 0; r < p->j.plan.gpus; r++) ck_assert_msg(checkpoint_shard(&c, s, r, &p->d) == OK, "%s", p->d.text);
    ck_assert_msg(checkpoint_commit(&c, &p->d) == OK, "%s", p->d.text);
    return arena_strdup(&p->a, c.dir);
}

/* Weights and moments go to the other fold and come back as the same bytes; its next step's loss is that of the run that
 * went on. */
START_TEST(states_move_to_other_folds)
{
    struct parity from, to;
    struct train_result whole, r;
    struct state there, back;
    strcpy(root, "/tmp/moefold-f08-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(root));
    open_f08(&from, &moves[_i].from);
    open_f08(&to, &moves[_i].to);
    train_to(&whole, &from, 3, NULL);
    const char *saved = arena_printf(&to.a, "%s/step-00000002", root);
    move(&there, &to, saved);
    move(&back, &from, save_as(&to, &there, "there"));
    const char *again = save_as(&from, &back, "back");
    for (int i = 0; i < from.j.plan.gpus; i++) {
        const char *compare = arena_printf(&to.a, "cmp %s/rank-%05d.safetensors %s/rank-%05d.safetensors", saved, i, again, i);
        ck_assert_msg(system(compare) == 0, "%s -> %s: rank %d", moves[_i].from.name, moves[_i].to.name, i);
    }
    train_to(&r, &to, 3, saved);
    ck_assert_int_eq(r.n_step, 1);
    ck_assert_double_eq_tol(r.step[0].loss, whole.step[2].loss, 1e-6 * whole.step[2].loss);
    ck_assert_int_eq(system(arena_printf(&to.a, "rm -rf %s", root)), 0);
    parity_close(&from);
    parity_close(&to);
}
END_TEST

int main(void)
{
    const struct test_loop tests[] = {
        { gradients_do_not_grow_with_ep, LEN(same) - 1 },
        { ranks_without_tokens_come_to_every_collective, 0 },
        { states_move_to_other_folds, LEN(moves) },
    };
    return test_main_loops("exec_cases", NULL, tests, LEN(tests), 240);
}
