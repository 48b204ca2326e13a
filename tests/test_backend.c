/* The launchers of the reference backend: every kind has one, a step's text is the same set of sequences
 * under every fold, optimizer ops touch one slice, and routed rows go from tokens to experts and back as the
 * definition says, on threads that exchange over etp x ep. */
#include "exec/backend_cpu.h"
#include "exec/comm_shm.h"
#include "tests/numbers.h"
#include <pthread.h>
#include <string.h>

/* A call on buffers that are all of one dtype each: id 1 float, id 2 int32. */
enum { FLOATS = 1, INTS = 2 };
static struct buf bufs[] = {{0}, {.dtype = DT_F32}, {.dtype = DT_I32}};
static const struct program program = {.buf = bufs, .n_buf = LEN(bufs)};

static struct job job_init(void)
{
    struct job j = {0};
    j.plan = (struct plan){
        .tp = 1, .cp = 1, .dp = 1, .etp = 1, .ep = 1, .pp = 1, .mbs = 1, .gbs = 8, .seq = 16, .lr = 0.5};
    j.model = (struct model){
        .vocab = 256, .experts = 8, .topk = 3, .groups = 1, .groups_kept = 1, .route_scale = 1};
    return j;
}

static struct call call_init(const struct job *j, const struct op *o, struct diag *d)
{
    return (struct call){.op = o, .pr = &program, .job = j, .kernels = &kernels_ref, .members = 1, .lr = j->plan.lr, .d = d};
}

START_TEST(every_kind_has_a_launcher)
{
    static const int predicted_only[OP_KIND_COUNT] = {
        [OP_AMAX] = 1, [OP_QUANTIZE] = 1,
        [OP_SCAN] = 1, [OP_SCAN_BWD] = 1,
    };
    for (int k = 0; k < OP_KIND_COUNT; k++)
        ck_assert_msg((backend_cpu_launch[k] != NULL) != predicted_only[k], "%s", op_name((enum op_kind)k));
}
END_TEST

/* ---- text ---- */

enum { TEXT = 1000, SEQ = 16, GBS = 8 };

/* Marks what one rank reads of a step: seen[sequence's start][position]. */
static void read_step(int (*seen)[SEQ], const struct job *j, const uint8_t *text, int iter, struct coord at)
{
    const struct op o = {.kind = OP_DATA, .io.write = {INTS, INTS, INTS}};
    const int rows = (int)plan_tokens(&j->plan), n_micro = j->plan.gbs / (j->plan.dp * j->plan.mbs);
    int32_t token[256], label[256], label2[256];
    struct diag d;
    struct call c = call_init(j, &o, &d);
    const struct data data = data_of_text(text, TEXT);
    c.data = &data, c.first_seq = iter * GBS, c.at = at;
    c.write[0] = (struct operand){token, rows, 1};
    c.write[1] = (struct operand){label, rows, 1};
    c.write[2] = (struct operand){label2, rows, 1};
    for (c.micro = 0; c.micro < n_micro; c.micro++) {
        ck_assert_int_eq(backend_cpu_launch[OP_DATA](&c), OK);
        for (int r = 0; r < rows; r++) {
            const int local = SEQ / j->plan.cp, position = rope_position(r % local, SEQ, j->plan.cp, at.cp);
            ck_assert_int_eq(label[r], (token[r] + 1) % 256); /* the text counts up */
            ck_assert_int_eq(label2[r], (token[r] + 2) % 256);
            seen[token[r] - position][position]++;
        }
    }
}

START_TEST(a_step_is_the_same_text_under_every_fold)
{
    static const struct {
        int dp, cp, mbs;
    } folds[] = {{1, 1, 1}, {1, 1, 4}, {2, 1, 2}, {4, 2, 1}, {2, 4, 4}, {8, 1, 1}};
    uint8_t text[TEXT];
    for (int i = 0; i < TEXT; i++) text[i] = (uint8_t)i;
    for (int f = 0; f < LEN(folds); f++) {
        int seen[256][SEQ] = {{0}};
        struct job j = job_init();
        j.plan.dp = folds[f].dp, j.plan.cp = folds[f].cp, j.plan.mbs = folds[f].mbs;
        for (int dp = 0; dp < j.plan.dp; dp++)
            for (int cp = 0; cp < j.plan.cp; cp++)
                read_step(seen, &j, text, 1, (struct coord){.dp = dp, .cp = cp});
        for (int start = 0; start < 256; start++)
            for (int p = 0; p < SEQ; p++)
                ck_assert_int_eq(seen[start][p],
                                 start % SEQ == 0 && start / SEQ >= GBS && start / SEQ < 2 * GBS);
    }
}
END_TEST

START_TEST(short_text_is_refused)
{
    const struct op o = {.kind = OP_DATA, .io.write = {0, INTS}};
    const struct job j = job_init();
    int32_t label[SEQ];
    uint8_t text[SEQ + 4] = {0};
    struct diag d = {""};
    struct call c = call_init(&j, &o, &d);
    c.write[1] = (struct operand){label, SEQ, 1};
    struct data data = data_of_text(text, SEQ + 4);
    c.data = &data;
    ck_assert_int_eq(backend_cpu_launch[OP_DATA](&c), OK); /* labels without tokens: a last stage */
    data = data_of_text(text, SEQ + 3);
    ck_assert_int_eq(backend_cpu_launch[OP_DATA](&c), ERR_CONFIG);
    ck_assert_ptr_nonnull(strstr(d.text, "19 tokens"));
}
END_TEST

/* ---- slices ---- */

enum { WHOLE = 12, MEMBERS = 3, PART = WHOLE / MEMBERS };

START_TEST(optimizer_ops_touch_one_slice)
{
    struct job j = job_init();
    struct diag d;
    float *w = numbers_make(WHOLE, 1), *before = numbers_make(WHOLE, 1), *g = numbers_make(WHOLE, 2),
          metric[4] = {0};
    const struct op sgd = {.kind = OP_SGD, .io = {.add = {FLOATS}, .read = {FLOATS, FLOATS}}};
    const struct op sums = {.kind = OP_SUMSQ, .copies = 2, .io = {.add = {FLOATS}, .read = {FLOATS}}};
    double squares = 0;
    for (int me = 0; me < MEMBERS; me++) {
        struct call c = call_init(&j, &sums, &d);
        c.me = me, c.members = MEMBERS;
        c.add[0] = (struct operand){metric, 4, 1};
        c.read[0] = (struct operand){g, WHOLE, 1};
        ck_assert_int_eq(backend_cpu_launch[OP_SUMSQ](&c), OK);
        c.op = &sgd;
        c.add[0] = (struct operand){w, WHOLE, 1};
        c.read[1] = (struct operand){metric, 4, 1};
        ck_assert_int_eq(backend_cpu_launch[OP_SGD](&c), OK);
        for (int i = 0; i < PART; i++) squares += (double)g[me * PART + i] * g[me * PART + i] / 2;
        ck_assert_double_eq_tol(metric[2], squares, 1e-6);
        for (int i = 0; i < WHOLE; i++)
            ck_assert_double_eq_tol(w[i], before[i] - (i < (me + 1) * PART ? 0.5 * g[i] : 0), 1e-6);
    }
    free(w), free(before), free(g);
}
END_TEST

START_TEST(adamw_takes_its_state_from_the_slice)
{
    struct job j = job_init();
    struct diag d;
    float w[WHOLE], g[WHOLE], m[PART] = {0}, v[PART] = {0}, metric[4] = {0, 0, 36, 0};
    const struct op o = {.kind = OP_ADAMW,
                         .io = {.add = {FLOATS, 0, FLOATS, FLOATS}, .read = {FLOATS, FLOATS}}};
    struct call c = call_init(&j, &o, &d);
    for (int i = 0; i < WHOLE; i++) g[i] = 2, w[i] = 4;
    j.plan.beta1 = 0.9, j.plan.beta2 = 0.99, j.plan.adam_eps = 1e-8, j.plan.clip = 3, j.plan.weight_decay = 0.25;
    c.me = 1, c.members = MEMBERS;
    c.add[0] = (struct operand){w, WHOLE, 1};
    c.add[2] = (struct operand){m, PART, 1};
    c.add[3] = (struct operand){v, PART, 1};
    c.read[0] = (struct operand){g, WHOLE, 1};
    c.read[1] = (struct operand){metric, 4, 1};
    ck_assert_int_eq(backend_cpu_launch[OP_ADAMW](&c), OK);
    for (int i = 0; i < WHOLE; i++) ck_assert_double_eq_tol(w[i], i / PART == 1 ? 4 - 0.5 * (1 + 0.25 * 4) : 4, 1e-6);
    for (int i = 0; i < PART; i++)
        ck_assert_double_eq_tol(m[i], 0.1 * 2 * 3 / 6, 1e-6); /* norm 6 clipped to 3 */
}
END_TEST

START_TEST(alone_a_collective_is_a_copy)
{
    const enum op_kind kinds[] = {OP_GATHER, OP_SCATTER, OP_DISPATCH, OP_COMBINE, OP_GATHER_V, OP_SCATTER_V};
    const struct job j = job_init();
    struct diag d;
    float *x = numbers_make(WHOLE, 1);
    for (int k = 0; k < LEN(kinds); k++) {
        float y[WHOLE] = {0};
        const struct op o = {.kind = (uint8_t)kinds[k], .io = {.write = {FLOATS}, .read = {FLOATS, INTS}}};
        struct call c = call_init(&j, &o, &d);
        c.write[0] = (struct operand){y, 4, 3};
        c.read[0] = (struct operand){x, 4, 3};
        ck_assert_int_eq(backend_cpu_launch[kinds[k]](&c), OK);
        ck_assert_int_eq(memcmp(x, y, sizeof y), 0);
    }
    free(x);
}
END_TEST

/* ---- ranks as threads: etp x ep members route, exchange, compute and come back ---- */

enum { ETP = 2, EP = 2, RANKS = ETP * EP, E = 8, K = 3, T = 10, H = 5, SENT = T * K, MOST = SENT * RANKS };

struct member {
    struct job j;
    struct coord at;
    struct diag d;
    struct comm *tpep, *ep, *etp;
    enum err e;
    float x[T * H], logit[T * E], out[T * H], g[WHOLE];
};

static enum err launch_one(struct member *m, enum op_kind k, struct comm *comm, int me, int members,
                           struct operand write, struct operand r0, struct operand r1)
{
    const int id = k == OP_GATHER || k == OP_SIZES ? INTS : FLOATS;
    const struct op o = {.kind = (uint8_t)k, .io = {.write = {id}, .read = {id, INTS}}};
    struct call c = call_init(&m->j, &o, &m->d);
    c.at = m->at, c.comm_ops = &comm_shm, c.comm = comm, c.me = me, c.members = members;
    c.write[0] = write, c.read[0] = r0, c.read[1] = r1;
    return backend_cpu_launch[k](&c);
}

static enum err route(struct member *m, int32_t *perm, float *prob, int32_t *mine)
{
    float score[T * E];
    const struct op o = {.kind = OP_ROUTE};
    struct call c = call_init(&m->j, &o, &m->d);
    c.write[0] = (struct operand){score, T, E};
    c.write[1] = (struct operand){perm, SENT, 2};
    c.write[2] = (struct operand){prob, SENT, 1};
    c.write[3] = (struct operand){mine, 1, E};
    c.read[0] = (struct operand){m->logit, T, E};
    return backend_cpu_launch[OP_ROUTE](&c);
}

/* Stands for the experts: this etp member's part of row -> (part) of row times (expert + 1); the parts sum to
 * it. */
static void expert_parts(float *y, const float *x, const struct exchange *ex, struct coord at)
{
    for (int l = 0, row = 0; l < E / EP; l++)
        for (int64_t n = exchange_expert(ex, at.ep, l); n > 0; n--, row++)
            for (int c = 0; c < H; c++)
                y[row * H + c] =
                    x[row * H + c] * (float)(at.ep * (E / EP) + l + 1) * (at.etp ? 0.75f : 0.25f);
}

static enum err round_trip(struct member *m)
{
    int32_t perm[2 * SENT], mine[E], count[RANKS * E], size[2];
    float prob[SENT], send[SENT * H], got[MOST * H], all[MOST * H], sorted[MOST * H], y[MOST * H],
        back[SENT * H];
    TRY(route(m, perm, prob, mine));
    TRY(launch_one(m, OP_GATHER, m->tpep, m->at.etp + ETP * m->at.ep, RANKS,
                   (struct operand){count, RANKS, E}, (struct operand){mine, 1, E}, (struct operand){0}));
    const struct operand counts = {count, RANKS, E};
    TRY(launch_one(m, OP_SIZES, NULL, 0, 1, (struct operand){size, 2, 1}, counts, (struct operand){0}));
    const int n0 = size[0], n1 = size[1];
    TRY(launch_one(m, OP_PERMUTE, NULL, 0, 1, (struct operand){send, SENT, H}, (struct operand){m->x, T, H},
                   (struct operand){perm, SENT, 2}));
    TRY(launch_one(m, OP_DISPATCH, m->ep, m->at.ep, EP, (struct operand){got, n0, H},
                   (struct operand){send, SENT, H}, counts));
    TRY(launch_one(m, OP_GATHER_V, m->etp, m->at.etp, ETP, (struct operand){all, n1, H},
                   (struct operand){got, n0, H}, counts));
    TRY(launch_one(m, OP_SORT, NULL, 0, 1, (struct operand){sorted, n1, H}, (struct operand){all, n1, H},
                   counts));
    const struct exchange ex = {count, ETP, EP, E, 0};
    expert_parts(y, sorted, &ex, m->at);
    TRY(launch_one(m, OP_UNSORT, NULL, 0, 1, (struct operand){all, n1, H}, (struct operand){y, n1, H},
                   counts));
    TRY(launch_one(m, OP_SCATTER_V, m->etp, m->at.etp, ETP, (struct operand){got, n0, H},
                   (struct operand){all, n1, H}, counts));
    TRY(launch_one(m, OP_COMBINE, m->ep, m->at.ep, EP, (struct operand){back, SENT, H},
                   (struct operand){got, n0, H}, counts));
    return launch_one(m, OP_UNPERMUTE, NULL, 0, 1, (struct operand){m->out, T, H},
                      (struct operand){back, SENT, H}, (struct operand){perm, SENT, 2});
}

/* A gradient's slice is summed, then gathered as if it were the new weight. */
static enum err reduce(struct member *m)
{
    const struct op o = {.kind = OP_GRAD_SCATTER, .io.add = {FLOATS}};
    struct call c = call_init(&m->j, &o, &m->d);
    c.comm_ops = &comm_shm, c.comm = m->tpep, c.me = m->at.etp + ETP * m->at.ep, c.members = RANKS;
    c.add[0] = (struct operand){m->g, WHOLE, 1};
    TRY(backend_cpu_launch[OP_GRAD_SCATTER](&c));
    return backend_cpu_launch[OP_PARAM_GATHER](&c);
}

static void *member_main(void *arg)
{
    struct member *m = arg;
    m->e = round_trip(m);
    if (m->e == OK) m->e = reduce(m);
    return NULL;
}

static void member_init(struct member *m, struct comm_shm *s, int i, int lopsided)
{
    const int32_t all[RANKS] = {0, 1, 2, 3}, ep[EP] = {i % ETP, i % ETP + ETP},
                  etp[ETP] = {i / ETP * ETP, i / ETP * ETP + 1};
    *m = (struct member){.j = job_init(), .at = {.etp = i % ETP, .ep = i / ETP}};
    m->j.plan.etp = ETP, m->j.plan.ep = EP;
    m->tpep = comm_shm_join(s, "tp-ep", 0, i, RANKS, all);
    m->ep = comm_shm_join(s, "ep", m->at.etp, m->at.ep, EP, ep);
    m->etp = comm_shm_join(s, "etp", m->at.ep, m->at.etp, ETP, etp);
    float *x = numbers_make(T * H, (uint64_t)(10 + i)), *logit = numbers_make(T * E, (uint64_t)(20 + i));
    memcpy(m->x, x, sizeof m->x);
    memcpy(m->logit, logit, sizeof m->logit);
    for (int k = 0; lopsided && k < T * E; k++)
        m->logit[k] += k % E < K ? 10 : 0; /* all to the first experts */
    for (int k = 0; k < WHOLE; k++) m->g[k] = (float)(i + k);
    free(x), free(logit);
}

/* out[t] = x[t] times the sum of (expert + 1) over its K best experts. */
static void check_out(const struct member *m)
{
    for (int t = 0; t < T; t++) {
        double times = 0, want[H];
        for (int e = 0; e < E; e++) {
            int above = 0;
            for (int o = 0; o < E; o++) above += m->logit[t * E + o] > m->logit[t * E + e];
            times += above < K ? e + 1 : 0;
        }
        for (int c = 0; c < H; c++) want[c] = m->x[t * H + c] * times;
        numbers_same(m->out + t * H, want, H, 1e-5);
    }
}

static void check_round_trip(int lopsided)
{
    static struct member m[RANKS];
    struct arena a = {0};
    struct comm_shm *s = comm_shm_open(&a, 60);
    pthread_t t[RANKS];
    for (int i = 0; i < RANKS; i++) member_init(&m[i], s, i, lopsided);
    for (int i = 0; i < RANKS; i++) pthread_create(&t[i], NULL, member_main, &m[i]);
    for (int i = 0; i < RANKS; i++) pthread_join(t[i], NULL);
    for (int i = 0; i < RANKS; i++) {
        ck_assert_msg(m[i].e == OK, "%s", m[i].d.text);
        check_out(&m[i]);
        for (int k = 0; k < WHOLE; k++) ck_assert_float_eq(m[i].g[k], (float)(0 + 1 + 2 + 3 + RANKS * k));
    }
    arena_free(&a);
}

START_TEST(routed_rows_reach_their_experts_and_come_back)
{
    check_round_trip(0);
}
END_TEST

START_TEST(some_ranks_may_receive_nothing)
{
    check_round_trip(1);
}
END_TEST

/* With no gradient a step is decay alone: of matrices, not of norms and biases, whichever slice they lie in. */
START_TEST(vectors_do_not_decay)
{
    static struct buf w_bufs[] = {{0},
                                  {.dtype = DT_F32, .rows = 12, .cols = 1},
                                  {.dtype = DT_F32, .rows = 2, .cols = 2, .view = 1, .view_at = 0},
                                  {.dtype = DT_F32, .rows = 1, .cols = 3, .view = 1, .view_at = 4},
                                  {.dtype = DT_F32, .rows = 3, .cols = 1, .view = 1, .view_at = 7},
                                  {.dtype = DT_F32, .rows = 1, .cols = 2, .view = 1, .view_at = 10}};
    static struct param params[] = {
        {.w = 2, .name = PARAM_O}, {.w = 3, .name = PARAM_ATTN_NORM}, {.w = 4, .name = PARAM_Q}, {.w = 5, .name = PARAM_Q_BIAS}};
    const struct program pr = {.buf = w_bufs, .n_buf = LEN(w_bufs), .param = params, .n_param = LEN(params)};
    static const int decays[12] = {1, 1, 1, 1, 0, 0, 0, 1, 1, 1, 0, 0};
    const struct op o = {.kind = OP_ADAMW, .io = {.add = {1, 0, 1, 1}, .read = {1, 1}}};
    struct job j = job_init();
    j.plan.weight_decay = 0.1, j.plan.beta1 = j.plan.beta2 = 0.9, j.plan.adam_eps = 1e-8;
    for (int members = 1; members <= 4; members++) {
        float w[12], g[12] = {0}, metric[4] = {0};
        for (int i = 0; i < 12; i++) w[i] = (float)(i + 1);
        for (int me = 0; me < members; me++) {
            float m[12] = {0}, v[12] = {0};
            struct diag d;
            struct call c = call_init(&j, &o, &d);
            c.pr = &pr, c.members = members, c.me = me;
            c.add[0] = (struct operand){w, 12, 1};
            c.add[2] = (struct operand){m, 12 / members, 1}, c.add[3] = (struct operand){v, 12 / members, 1};
            c.read[0] = (struct operand){g, 12, 1}, c.read[1] = (struct operand){metric, 4, 1};
            ck_assert_int_eq(backend_cpu_launch[OP_ADAMW](&c), OK);
        }
        for (int i = 0; i < 12; i++)
            ck_assert_float_eq_tol(w[i], (float)((i + 1) * (decays[i] ? 1 - j.plan.lr * 0.1 : 1)), 1e-6f);
    }
}
END_TEST

int main(void)
{
    const TTest *const test[] = {every_kind_has_a_launcher,
                                 a_step_is_the_same_text_under_every_fold,
                                 short_text_is_refused,
                                 optimizer_ops_touch_one_slice,
                                 adamw_takes_its_state_from_the_slice,
                                 alone_a_collective_is_a_copy,
                                 routed_rows_reach_their_experts_and_come_back,
                                 some_ranks_may_receive_nothing,
                                 vectors_do_not_decay};
    return test_main("backend", test, LEN(test), 300);
}
