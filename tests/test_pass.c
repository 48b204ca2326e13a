/* Passes as algebra: identity and associativity, applying a product is applying its factors, a chunk is the
 * product of its blocks in time and in memory, the pairs give the live bytes that unroll counts, and each
 * recompute drops what a hand count says. */
#include "tests/test.h"
#include "sim/sim.h"
#include <math.h>

/* Whole seconds, so that sums are exact and equality is equality. */
static void random_price(struct pass_price *p, uint64_t *state)
{
    *p = (struct pass_price){ .net_B = test_random(state, 200) - 100 };
    p->peak_B = fmax(0, p->net_B) + test_random(state, 100);
    for (int i = 0; i < PASS_DIM; i++)
        for (int k = 0; k < PASS_DIM; k++)
            p->m[i][k] = i != k && test_random(state, 3) ? -INFINITY : test_random(state, 1000);
    for (int s = 0; s < STREAM_COUNT; s++) p->busy_s[s] = test_random(state, 50);
}

/* Times within `off_s`, peaks within `off_B`. */
static void assert_close(const struct pass_price *a, const struct pass_price *b, double off_s, double off_B)
{
    for (int i = 0; i < PASS_DIM; i++)
        for (int k = 0; k < PASS_DIM; k++) {
            const double x = a->m[i][k], y = b->m[i][k];
            ck_assert_msg(x == y || fabs(x - y) <= off_s, "m[%d][%d] is %.17g and %.17g", i, k, x, y);
        }
    for (int s = 0; s < STREAM_COUNT; s++) ck_assert(fabs(a->busy_s[s] - b->busy_s[s]) <= off_s);
    ck_assert_double_eq(a->net_B, b->net_B);
    ck_assert(fabs(a->peak_B - b->peak_B) <= off_B);
    for (int h = 0; h < 2; h++) {
        ck_assert_int_eq(a->wire[h].recv, b->wire[h].recv);
        ck_assert_int_eq(a->wire[h].send, b->wire[h].send);
        ck_assert(fabs(a->wire[h].recv_issue_s - b->wire[h].recv_issue_s) <= off_s);
    }
}

START_TEST(algebra)
{
    uint64_t state = 7;
    for (int n = 0; n < 200; n++) {
        struct pass_price x[3], id, left, right, same;
        for (int i = 0; i < 3; i++) random_price(&x[i], &state);
        pass_identity(&id);
        pass_multiply(&same, &x[0], &id);
        assert_close(&same, &x[0], 0, 0);
        pass_multiply(&same, &id, &x[0]);
        assert_close(&same, &x[0], 0, 0);
        pass_multiply(&left, &x[0], &x[1]);
        pass_multiply(&left, &left, &x[2]);
        pass_multiply(&right, &x[1], &x[2]);
        pass_multiply(&right, &x[0], &right);
        assert_close(&left, &right, 0, 0);
        double in[PASS_DIM], one[PASS_DIM], many[PASS_DIM];
        for (int i = 0; i < PASS_DIM; i++) in[i] = many[i] = test_random(&state, 5000);
        pass_apply(one, &left, in);
        for (int i = 0; i < 3; i++) pass_apply(many, &x[i], many);
        for (int i = 0; i < PASS_DIM; i++) ck_assert_double_eq(one[i], many[i]);
        for (int k = 0; k < PASS_DIM; k++) ck_assert(left.m[k][k] >= x[0].m[k][k] + x[1].m[k][k] + x[2].m[k][k]);
    }
}
END_TEST

/* ---- a chunk is the product of its blocks ---- */

struct priced { struct program pr; struct cost c; double *op_s; };

static void price_block(struct priced *b, struct arena *a, const struct job *j, enum block block)
{
    program_build_block(&b->pr, a, j, block);
    cost_init(&b->c, &b->pr, j);
    b->op_s = cost_all_s(&b->c, a);
}

/* The SEND or RECV that an op range holds, as a run of its own; identity when there is none. */
static struct pass_price wire_price(const struct priced *w, int from, int to, enum op_kind kind)
{
    struct pass_price p;
    pass_identity(&p);
    for (int32_t i = from; i < to; i++) {
        const struct op *o = &w->pr.op[i];
        if (o->kind != kind) continue;
        const int half = o->half == HALF_BWD, buf = kind == OP_RECV ? o->io.write[0] : o->io.read[0];
        struct pass_edge e = { 0 };
        e.in[half] = e.out[half] = buf;
        pass_price(&p, &w->c, w->op_s, half ? PASS_BWD : PASS_FWD, &i, 1, &e);
    }
    return p;
}

static struct pass_price block_price(const struct priced *b, enum pass_kind kind)
{
    struct pass_price price[PASS_COUNT];
    pass_price_chunk(price, &b->c, b->op_s, 0);
    return price[kind];
}

/* The blocks of a chunk in forward order. */
static int chunk_blocks(enum block *list, const struct job *j, int chunk)
{
    const struct layout *l = &j->plan.split;
    int n = 0;
    if (chunk == 0) list[n++] = BLOCK_EMBED;
    for (int i = l->first[chunk]; i < l->first[chunk + 1]; i++)
        list[n++] = model_is_moe(&j->model, i) ? BLOCK_MOE : BLOCK_DENSE;
    if (chunk == l->n_chunk - 1) list[n++] = BLOCK_LOSS;
    return n;
}

static struct pass_price product(const struct priced *whole, const struct priced block[BLOCK_COUNT],
                                 const struct job *j, int chunk, enum pass_kind kind)
{
    const struct chunk *k = &whole->pr.chunk[chunk];
    const int from = kind == PASS_FWD ? k->fwd : k->bwd, to = kind == PASS_FWD ? k->bwd : k->reduce;
    enum block list[64];
    const int n = chunk_blocks(list, j, chunk);
    struct pass_price p = wire_price(whole, from, to, OP_RECV), next;
    for (int i = 0; i < n; i++) {
        next = block_price(&block[list[kind == PASS_FWD ? i : n - 1 - i]], kind);
        pass_multiply(&p, &p, &next);
    }
    next = wire_price(whole, from, to, OP_SEND);
    pass_multiply(&p, &p, &next);
    return p;
}

static const char *const block_jobs[] = {
    "model tiny-moe system host stack moefold gpus 4 pp 2 ep 2 gbs 8 seq 64",
    "model tiny-moe system h100-sxm gpus 8 pp 2 tp 2 cp 2 ep 4 gbs 8 seq 64 recompute moe_act+layernorm",
    "model qwen3-30b-a3b system h100-sxm gpus 64 pp 4 tp 2 ep 16 gbs 64 seq 4096",
    "model deepseek-v3 system gb200-nvl72 gpus 256 pp 4 vpp 4 ep 64 gbs 256 seq 4096 recompute mla_up_proj mtp 0",
    "model llama3-8b system h100-sxm gpus 16 pp 2 tp 4 gbs 32 seq 4096 recompute full",
    "model deepseek-v3 system gb200-nvl72 gpus 256 pp 4 ep 64 gbs 256 seq 4096",
};

/* The chunk that ends with the loss reads its labels first, the loss block when the loss comes: exact but for
 * that op and what it writes. */
struct late { double s, B; };

static struct late late_labels(const struct priced *w, int chunk)
{
    struct late late = { 0 };
    if (chunk < w->pr.n_chunk - 1) return late;
    for (int i = w->pr.chunk[chunk].fwd; i < w->pr.chunk[chunk].bwd; i++) {
        const struct op *o = &w->pr.op[i];
        if (o->kind != OP_DATA) continue;
        late.s += w->op_s[i] + cost_issue_s(&w->c, i);
        for (int k = 0; k < OP_WRITES; k++)
            if (o->io.write[k]) late.B += (double)program_B(&w->pr, o->io.write[k]);
    }
    return late;
}

START_TEST(blocks_make_a_chunk)
{
    const double rounding_s = 1e-12;
    const char *flags = block_jobs[_i];
    struct arena a = { 0 };
    struct job j;
    struct priced whole, block[BLOCK_COUNT];
    test_job(&j, &a, flags);
    j.stack.hold_pipeline = 0;          /* what a chunk holds of earlier micro-batches is no block's */
    program_build(&whole.pr, &a, &j);
    cost_init(&whole.c, &whole.pr, &j);
    whole.op_s = cost_all_s(&whole.c, &a);
    for (int b = 0; b < BLOCK_COUNT; b++) price_block(&block[b], &a, &j, (enum block)b);
    for (int k = 0; k < whole.pr.n_chunk; k++) {
        struct pass_price price[PASS_COUNT];
        pass_price_chunk(price, &whole.c, whole.op_s, k);
        const struct late late = late_labels(&whole, k);
        for (int kind = PASS_FWD; kind <= PASS_BWD; kind++) {
            const struct pass_price p = product(&whole, block, &j, k, (enum pass_kind)kind);
            assert_close(&p, &price[kind], rounding_s + late.s, late.B);
        }
    }
    arena_free(&a);
}
END_TEST

/* ---- pairs are live bytes ---- */

static const char *const live_jobs[] = {
    "model tiny-moe system host stack moefold gpus 4 pp 2 ep 2 gbs 8 seq 64",
    "model tiny-moe system host stack moefold gpus 4 pp 2 vpp 2 ep 2 gbs 16 seq 64 split-wgrad 1",
    "model tiny-moe system h100-sxm gpus 8 pp 2 vpp 2 ep 4 gbs 64 seq 64 split-wgrad 1 ep-overlap 1 "
    "recompute moe_act",
    "model tiny-moe system h100-sxm gpus 8 tp 8 ep 8 gbs 64 seq 64 split-wgrad 1 ep-overlap 1",
    "model tiny-moe system h100-sxm gpus 8 pp 2 cp 2 tp 2 gbs 16 seq 64 recompute full",
    "model qwen3-30b-a3b system h100-sxm gpus 64 pp 4 tp 2 ep 16 gbs 64 seq 4096",
    "model deepseek-v3 system gb200-nvl72 gpus 256 pp 4 vpp 4 ep 64 gbs 512 seq 4096 recompute mla_up_proj",
    "model nemotron3-super-120b-a12b layers 12 system gb200-nvl72 gpus 64 tp 2 cp 2 pp 2 ep 16 gbs 64 seq 8192",
    "model gpt-oss-20b layers 6 system b200 gpus 16 tp 2 pp 2 vpp 2 ep 4 gbs 64 seq 4096",
};

START_TEST(pairs_are_live_bytes)
{
    struct arena a = { 0 };
    struct job j;
    struct program pr;
    struct cost c;
    test_job(&j, &a, live_jobs[_i]);
    program_build(&pr, &a, &j);
    cost_init(&c, &pr, &j);
    const struct pass_price *price = pass_price_all(&c, cost_all_s(&c, &a), &a);
    for (int s = 0; s < pr.n_stage; s++) {
        struct unroll u;
        unroll_stage(&u, &a, &pr, s);
        ck_assert_double_eq(sim_live(&pr, price, s).live_B, (double)u.live_B);
    }
    arena_free(&a);
}
END_TEST

/* ---- what a forward keeps ---- */

static double kept_B(const char *plan, const char *recompute)
{
    struct arena a = { 0 };
    struct job j;
    struct program pr;
    struct cost c;
    double net_B = 0;
    test_job(&j, &a, arena_printf(&a, "%s stack moefold seq 4096 recompute %s", plan, recompute));
    program_build(&pr, &a, &j);
    cost_init(&c, &pr, &j);
    const struct pass_price *price = pass_price_all(&c, cost_all_s(&c, &a), &a);
    for (int k = 0; k < pr.n_pass; k++)
        if (pr.pass[k].kind == PASS_FWD) net_B += price[k].net_B;
    arena_free(&a);
    return net_B;
}

#define QWEN "model qwen3-30b-a3b system h100-sxm gpus 8 gbs 64 "
#define DSV3 "model deepseek-v3 system gb200-nvl72 gpus 64 ep 64 gbs 256 mtp 0 "
enum { T = 4096, R = T * 8 * 3 / 2 };           /* tokens; routed rows at the stack's capacity of 1.5 */

/* By hand, bf16: each recompute drops its module's results from what a micro-batch keeps, and nothing else. */
static const struct { const char *plan, *recompute; double less_B; } dropped[] = {
    { QWEN "ep 8", "moe_act", 48.0 * 2 * R * 768 },
    { QWEN "tp 2 ep 4 etp 2", "moe_act", 48.0 * 2 * R * 768 / 2 },      /* half of the width on twice the half of the rows */
    { QWEN "ep 8", "layernorm", (2 * 48 + 1.0) * 2 * T * 2048 },
    { QWEN "tp 2 ep 4 etp 2", "layernorm", (2 * 48 + 1.0) * 2 * T * 2048 / 2 },
    { DSV3, "moe_act", 58.0 * 2 * R * 2048 },
    { DSV3, "layernorm", (2 * 61 + 1.0) * 2 * T * 7168 },
    { DSV3, "mla_up_proj", 61.0 * 2 * T * (128 * (192 + 192 + 128) - 64) },     /* q, k, v; but the rotary key stays */
};

START_TEST(recompute_drops_what_it_names)
{
    const double less_B = kept_B(dropped[_i].plan, "none") - kept_B(dropped[_i].plan, dropped[_i].recompute);
    ck_assert_double_eq(less_B, dropped[_i].less_B);
}
END_TEST

/* Full: the inputs of 48 layers; of the head its logits, input, norm, and tokens, labels, maxima, two sums. */
START_TEST(full_recompute_keeps_inputs)
{
    ck_assert_double_eq(kept_B(QWEN "ep 8", "full"), 2.0 * T * (48 * 2048 + 151936 + 2 * 2048) + 4.0 * T * 5);
}
END_TEST

static double most_live_B(const struct program *pr, const struct pass_price *price)
{
    double most_B = 0;
    for (int s = 0; s < pr->n_stage; s++) most_B = fmax(most_B, sim_live(pr, price, s).live_B);
    return most_B;
}

/* A larger buffer never lowers a peak, and as more bytes never a step. */
START_TEST(larger_buffers_never_help)
{
    struct arena a = { 0 };
    struct job j;
    struct program pr;
    struct cost c;
    struct sim_result before, after;
    uint64_t state = 5;
    test_job(&j, &a, live_jobs[2]);
    program_build(&pr, &a, &j);
    cost_init(&c, &pr, &j);
    const double *op_s = cost_all_s(&c, &a);
    const struct pass_price *price = pass_price_all(&c, op_s, &a);
    sim_step(&before, &a, &c, op_s, price);
    for (int n = 0; n < 100; n++) {
        const double was_B = most_live_B(&pr, price);
        struct buf *b = &pr.buf[1 + test_random(&state, pr.n_buf - 1)];
        b->rows += 1 + test_random(&state, 1000);
        op_s = cost_all_s(&c, &a);
        price = pass_price_all(&c, op_s, &a);
        sim_step(&after, &a, &c, op_s, price);
        ck_assert(most_live_B(&pr, price) >= was_B);
        ck_assert(after.step_s >= before.step_s);
        before = after;
    }
    arena_free(&a);
}
END_TEST

int main(void)
{
    const struct test_loop tests[] = {
        { algebra, 0 },
        { blocks_make_a_chunk, LEN(block_jobs) },
        { larger_buffers_never_help, 0 },
        { recompute_drops_what_it_names, LEN(dropped) },
        { full_recompute_keeps_inputs, 0 },
        { pairs_are_live_bytes, LEN(live_jobs) },
    };
    return test_main_loops("pass", NULL, tests, LEN(tests), 120);
}
