/* Packed documents: where they start and end in both kinds of data; a document's losses do not depend on its neighbours, nor on
 * where in a sequence it stands; every fold computes what one rank does (a document of 7 tokens at cp 2 loses none of them: the
 * packed part of case C11); what a prediction counts; and what is refused. */
#include "models/layout.h"
#include "tests/parity.h"
#include "tests/test.h"
#include <unistd.h>

enum { POSITIONS = 1 << PACKED_POSITIONS, ATTENTION = 1 << PACKED_ATTENTION, LOSS = 1 << PACKED_LOSS, EOD = ' ' };
enum { ATTN = 1 << RECOMPUTE_CORE_ATTN, FULL = 1 << RECOMPUTE_FULL };

/* ---- data ---- */

START_TEST(documents_of_a_text_end_with_a_token)
{
    const char *text = "ab c  defg hi";
    const struct data x = data_of_text((const uint8_t *)text, 13);
    static const int32_t want[13] = { 0, 0, 0, 3, 3, 5, 6, 6, 6, 6, 6, 11, 11 };
    int32_t start[13], later[6];
    data_document_starts(start, &x, EOD, 0, 13);
    ck_assert_mem_eq(start, want, sizeof want);
    data_document_starts(later, &x, EOD, 4, 6);             /* " " ends what began before: 1 */
    ck_assert_int_eq(later[0], 0);
    ck_assert_int_eq(later[1], 1);
    ck_assert_int_eq(later[2], 2);
    ck_assert_int_eq(later[5], 2);
    for (int i = 0; i < 13; i++) ck_assert_int_eq(data_document_ends(&x, EOD, i), text[i] == ' ');
    ck_assert_int_eq(data_loss_tokens(&x, DATA_TRAIN, EOD, 4, 0, 2), 8 - 3);
}
END_TEST

static void put(FILE *f, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++) fputc((int)(v >> 8 * i & 255), f);
}

/* A pair of files: sequences of these lengths, documents that end behind some of them. */
static void write_pair(const char *stem, const int *length, int n, const int *last, int n_last)
{
    char path[256];
    snprintf(path, sizeof path, "%s.idx", stem);
    FILE *f = fopen(path, "wb");
    int64_t at = 0;
    ck_assert_ptr_nonnull(f);
    fwrite("MMIDIDX\0\0", 1, 9, f);
    put(f, 1, 8), put(f, 1, 1), put(f, (uint64_t)n, 8), put(f, (uint64_t)n_last, 8);
    for (int i = 0; i < n; i++) put(f, (uint64_t)length[i], 4);
    for (int i = 0; i < n; at += length[i++]) put(f, (uint64_t)at, 8);
    for (int i = 0; i < n_last; i++) put(f, (uint64_t)last[i], 8);
    fclose(f);
    snprintf(path, sizeof path, "%s.bin", stem);
    f = fopen(path, "wb");
    ck_assert_ptr_nonnull(f);
    for (int64_t i = 0; i < at; i++) fputc((int)(i * 7 % 200), f);
    fclose(f);
}

START_TEST(documents_of_an_index_are_its)
{
    static const int length[] = { 3, 2, 7, 0, 4, 8 }, last[] = { 0, 2, 3, 4, 5, 6 };  /* ends: 5, 12, 12 (empty), 16, 24 */
    static const int32_t want[20] = { 0, 0, 0, 0, 0, 5, 5, 5, 5, 5, 5, 5, 12, 12, 12, 12, 16, 16, 16, 16 };
    struct arena a = { 0 };
    struct data x;
    struct diag d;
    char dir[] = "/tmp/moefold-packed-XXXXXX", stem[64];
    int32_t start[20];
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(stem, sizeof stem, "%s/pair", dir);
    write_pair(stem, length, 6, last, 6);
    ck_assert_msg(data_open(&x, &a, stem, 0, &d) == OK, "%s", d.text);
    ck_assert_int_eq(x.n_end, 4);
    data_document_starts(start, &x, -1, 0, 20);
    ck_assert_mem_eq(start, want, sizeof want);
    data_document_starts(start, &x, -1, 6, 8);
    ck_assert(start[0] == 0 && start[5] == 0 && start[6] == 6 && start[7] == 6);
    ck_assert(data_document_ends(&x, -1, 4) && !data_document_ends(&x, -1, 5) && data_document_ends(&x, -1, 11));
    ck_assert_int_eq(data_documents_check(&x, -1, &d), OK);
    data_close(&x);
    unlink(arena_printf(&a, "%s.idx", stem)), unlink(arena_printf(&a, "%s.bin", stem)), rmdir(dir);
    arena_free(&a);
}
END_TEST

/* ---- one document among others ---- */

static float row_loss[PARITY_SEQ];

static enum err keep_losses(const struct call *c)
{
    const float *sum = c->read[0].p;
    for (int r = 0; r < PARITY_SEQ && c->micro == 0; r++) row_loss[r] = logf(sum[2 * r]) - sum[2 * r + 1];
    return backend_cpu_launch[OP_XENT](c);
}

static void open_packed(struct parity *p, const struct fold *f, int seed, int optimizer, int packed)
{
    *p = (struct parity){ .j = parity_job(f, seed, (enum optimizer)optimizer) };
    p->j.plan.packed = packed;
    p->j.plan.eod = EOD;
    if (packed & LOSS) p->j.plan.mtp = 0;
    parity_make(p, f);
}

/* Of the tokens of one sequence, which is all of a step's; they sum to what the step says: a mean over those that count. */
static void losses_of(const char *text, enum family family, int packed, float *to)
{
    const struct fold f = { .name = "alone", .family = family };
    static launch *table[OP_KIND_COUNT];
    char whole[PARITY_SEQ * 8 + 32];
    struct parity p;
    for (int i = 0; i < LEN(whole); i++) whole[i] = text[i % PARITY_SEQ];
    open_packed(&p, &f, 1, OPTIMIZER_SGD, packed);
    memcpy(table, backend_cpu_launch, sizeof table);
    table[OP_XENT] = keep_losses;
    p.ask.steps = 1;
    p.ask.text = (const uint8_t *)whole;
    p.ask.text_n = LEN(whole);
    p.ask.backend = table;
    ck_assert_msg(parity_run(&p) == OK, "%s", p.d.text);
    memcpy(to, row_loss, sizeof row_loss);
    double sum = 0;
    int counted = 0;
    for (int i = 0; i < PARITY_SEQ; i++) {
        sum += (double)to[i];
        counted += !(packed & LOSS) || text[i] != EOD;
    }
    ck_assert_double_eq_tol(p.r.step[0].loss, sum / counted, 1e-5);
    parity_close(&p);
}

static const enum family alone[] = { GQA, V2, OSS };

/* The last token of a document predicts the next one's first: its loss counts only without `loss`. */
START_TEST(a_document_does_not_see_its_neighbours)
{
    float one[PARITY_SEQ], other[PARITY_SEQ], plain[PARITY_SEQ], masked[PARITY_SEQ];
    losses_of("abcdef ghij klm ", alone[_i], POSITIONS | ATTENTION, one);
    losses_of("axyzef ghij klm ", alone[_i], POSITIONS | ATTENTION, other);
    losses_of("axyzef ghij klm ", alone[_i], 0, plain);
    losses_of("abcdef ghij klm ", alone[_i], POSITIONS | ATTENTION | LOSS, masked);
    ck_assert(one[1] != other[1] && one[5] != other[5]);
    for (int i = 7; i < PARITY_SEQ - 1; i++) ck_assert_msg(one[i] == other[i], "row %d", i);
    ck_assert(plain[9] != other[9]);
    for (int i = 0; i < PARITY_SEQ; i++) {
        const int ends = i == 6 || i == 11 || i == 15;
        ck_assert_msg(ends ? masked[i] == 0 : masked[i] == one[i], "row %d: %g, unmasked %g", i, (double)masked[i],
                      (double)one[i]);
    }
}
END_TEST

START_TEST(a_document_is_the_same_wherever_it_stands)
{
    float one[PARITY_SEQ], other[PARITY_SEQ];
    losses_of("abcdef ghij klm ", alone[_i], POSITIONS | ATTENTION, one);
    losses_of("klm ghij abcdef ", alone[_i], POSITIONS | ATTENTION, other);
    for (int i = 0; i < 6; i++) ck_assert_float_eq_tol(one[i], other[9 + i], 1e-5f);
    for (int i = 0; i < 4; i++) ck_assert_float_eq_tol(one[7 + i], other[4 + i], 1e-5f);
    for (int i = 0; i < 3; i++) ck_assert_float_eq_tol(one[12 + i], other[i], 1e-5f);
}
END_TEST

/* ---- folds ---- */

static const struct { struct fold f; int packed; } folds[] = {
    { { .name = "dp2 mbs2 / ep2", .family = GQA, .dp = 2, .mbs = 2, .ep = 2 }, POSITIONS | ATTENTION | LOSS },
    { { .name = "cp2", .family = GQA, .cp = 2 }, POSITIONS | ATTENTION | LOSS },
    { { .name = "cp4 ring", .family = GQA_ALL, .cp = 4, .p2p = 1 }, POSITIONS | ATTENTION | LOSS },
    { { .name = "cp2 ring core_attn oss mbs2", .family = OSS, .cp = 2, .p2p = 1, .mbs = 2, .recompute = ATTN },
      POSITIONS | ATTENTION },
    { { .name = "cp2 a2a pp2", .family = GQA_ALL, .cp = 2, .pp = 2, .a2a = 1 }, POSITIONS | ATTENTION | LOSS },
    { { .name = "cp2 mla tp2 mtp full", .family = MLA_ALL, .cp = 2, .tp = 2, .recompute = FULL }, POSITIONS | ATTENTION },
    { { .name = "woven split pp2 vpp2 tp2 / ep2", .family = GQA_ALL, .pp = 2, .vpp = 2, .tp = 2, .ep = 2, .woven = 1,
        .split = 1 },
      POSITIONS | ATTENTION | LOSS },
    { { .name = "pp2 tp2 v2: attention alone", .family = V2, .pp = 2, .tp = 2 }, ATTENTION },
    { { .name = "tp4: loss alone", .family = GQA_ALL, .tp = 4 }, LOSS },
};
static const int seeds[FAMILY_TEST_COUNT] = { [GQA] = 2, [GQA_ALL] = 1, [MLA_ALL] = 1, [V2] = 4, [OSS] = 4 };
enum { STEPS = PARITY_STEPS < 6 ? PARITY_STEPS : 6 };

static void run(struct parity *p, const struct fold *f, int optimizer, int packed)
{
    open_packed(p, f, seeds[f->family], optimizer, packed);
    p->ask.steps = STEPS;
    ck_assert_msg(parity_run(p) == OK, "%s: %s", f->name, p->d.text);
}

static void none(const char *difference, const char *fold)
{
    ck_assert_msg(difference == NULL, "%s: %s", fold, difference ? difference : "");
}

START_TEST(a_fold_equals_one_rank)
{
    const struct fold *f = &folds[_i / 2 * PARITY_STRIDE].f, one_rank = { .name = "one rank", .family = f->family };
    const int packed = folds[_i / 2 * PARITY_STRIDE].packed;
    struct parity p, one;
    run(&one, &one_rank, _i % 2, packed);
    ck_assert_msg(one.r.score_gap > 1e-5, "%s: gap %g: choose another seed", f->name, (double)one.r.score_gap);
    run(&p, f, _i % 2, packed);
    none(parity_gradients_differ(&p, &one), f->name);
    none(parity_loss_differs(&p, &one), f->name);
    none(parity_counts_differ(&p), f->name);
    parity_close(&p);
    parity_close(&one);
}
END_TEST

/* ---- predictions and refusals ---- */

static double attention_flop(const char *flags, double *model)
{
    struct arena a = { 0 };
    struct program pr;
    struct job j;
    double flop = *model = 0;
    test_job(&j, &a, flags);
    program_build(&pr, &a, &j);
    for (int i = 0; i < pr.n_op; i++) {
        if (op_family((enum op_kind)pr.op[i].kind) != FAMILY_ATTENTION || pr.op[i].layer != 1) continue;
        const struct work w = op_work(&pr, &pr.op[i], pr.even);
        flop += w.flop, *model += w.model_flop;
    }
    arena_free(&a);
    return flop;
}

#define LLAMA "model llama3-8b layers 4 system h100-sxm stack mcore-2608 gpus 8 gbs 8 seq 8192 tp 2 "

/* Squares of documents: a sequence of n equal ones does 1 / n of the work, in a ring too. */
START_TEST(work_is_the_documents)
{
    double whole_model, model, whole = attention_flop(LLAMA, &whole_model);
    ck_assert_double_eq_tol(attention_flop(LLAMA "packed attention document 1024", &model) * 8, whole, 1e-9 * whole);
    ck_assert_double_eq_tol(model * 8, whole_model, 1e-9 * whole_model);
    ck_assert_double_eq_tol(attention_flop(LLAMA "packed attention", &model), whole, 1e-9 * whole);
    const double ring = attention_flop(LLAMA "cp 2 cp-comm p2p packed attention document 1024", &model);
    ck_assert_double_eq_tol(ring * 16, whole, 1e-3 * whole);
}
END_TEST

/* Case C11: on stacks that pad documents one of 7 tokens at cp 2 takes 8; never 6. */
START_TEST(padding_never_rounds_down)
{
    struct arena a = { 0 };
    struct job j;
    test_job(&j, &a, "model llama3-8b layers 4 system h100-sxm stack mcore-2608 gpus 8 gbs 8 seq 8192 cp 2 packed attention "
                     "document 7");
    ck_assert_int_eq(plan_document_rows(&j), 8);
    test_job(&j, &a, LLAMA "cp 4 packed attention document 7");
    ck_assert_int_eq(plan_document_rows(&j), 8);
    test_job(&j, &a, "model llama3-8b layers 4 system host stack moefold gpus 2 gbs 8 seq 8192 cp 2 packed attention "
                     "document 7");
    ck_assert_int_eq(plan_document_rows(&j), 7);
    arena_free(&a);
}
END_TEST

static void refused(const char *flags, enum err e, const char *part)
{
    struct arena a = { 0 };
    struct job j;
    struct diag d = { 0 };
    ck_assert_int_eq(test_job_try(&j, &a, flags, &d), e);
    ck_assert_msg(strstr(d.text, part), "'%s' is not in: %s", part, d.text);
    arena_free(&a);
}

START_TEST(nonsense_is_refused)
{
    refused(LLAMA "document 512", ERR_CONFIG, "document 512 without packed attention");
    refused(LLAMA "packed attention document 9000", ERR_CONFIG, "longer than seq 8192");
    refused(LLAMA "packed loss eod 200000", ERR_CONFIG, "eod 200000 is not in the vocabulary");
    refused(LLAMA "packed borders", ERR_CONFIG, "borders");
    refused("model deepseek-v3 layers 4 system host stack moefold gpus 1 packed loss eod 1", ERR_LIMIT, "packed loss with mtp 1");
    const struct fold f = { .name = "no eod", .family = GQA };
    struct parity p;
    open_packed(&p, &f, 1, OPTIMIZER_SGD, ATTENTION);
    p.j.plan.eod = -1;
    ck_assert_int_eq(parity_run(&p), ERR_CONFIG);
    ck_assert_msg(strstr(p.d.text, "give --eod"), "%s", p.d.text);
    parity_close(&p);
    static const uint8_t ends[64] = { 0 };
    const struct data only = data_of_text(ends, LEN(ends));
    open_packed(&p, &f, 1, OPTIMIZER_SGD, ATTENTION | LOSS);
    p.j.plan.eod = 0;
    p.ask.data = &only;
    ck_assert_int_eq(parity_run(&p), ERR_CONFIG);
    ck_assert_msg(strstr(p.d.text, "nothing to learn from"), "%s", p.d.text);
    parity_close(&p);
}
END_TEST

int main(void)
{
    const struct test_loop tests[] = {
        { documents_of_a_text_end_with_a_token, 0 },
        { documents_of_an_index_are_its, 0 },
        { a_document_does_not_see_its_neighbours, LEN(alone) },
        { a_document_is_the_same_wherever_it_stands, LEN(alone) },
        { a_fold_equals_one_rank, 2 * ((LEN(folds) - 1) / PARITY_STRIDE + 1) },
        { work_is_the_documents, 0 },
        { padding_never_rounds_down, 0 },
        { nonsense_is_refused, 0 },
    };
    return test_main_loops("packed", NULL, tests, LEN(tests), 120);
}
