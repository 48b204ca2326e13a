/* Tokens: which ones a sequence holds, that a pass takes each sequence once, that nothing depends on who
 * asks; files of both kinds; and the learning rate, which is a function of the step as they are. */
#include "exec/data.h"
#include "exec/lr.h"
#include "tests/test.h"
#include <math.h>
#include <stdio.h>
#include <unistd.h>

enum { SEQ = 16 };

START_TEST(a_pass_takes_every_sequence_once)
{
    static const int sizes[] = { SEQ + 4, SEQ + 5, 2 * SEQ + 3, 2 * SEQ + 4, 100, 1000, 4099 };
    uint8_t text[4099] = { 0 };
    for (int k = 0; k < LEN(sizes); k++)
        for (uint64_t seed = 0; seed < 5; seed++) {
            struct data x = data_of_text(text, sizes[k]);
            struct diag d;
            x.shuffle = 1;
            x.seed = seed;
            ck_assert_int_eq(data_check(&x, DATA_TRAIN, SEQ, &d), OK);
            const int64_t n = data_sequences(&x, DATA_TRAIN, SEQ);
            ck_assert_int_ge(n, 1);
            for (int64_t pass = 0; pass < 3; pass++) {
                char taken[4099] = { 0 };
                const int64_t offset = data_start(&x, DATA_TRAIN, SEQ, pass * n) % SEQ;
                for (int64_t i = 0; i < n; i++) {
                    const int64_t at = data_start(&x, DATA_TRAIN, SEQ, pass * n + i);
                    ck_assert(at >= 0 && at + SEQ + DATA_BEHIND <= x.n_train && at % SEQ == offset);
                    ck_assert(!taken[at]);
                    taken[at] = 1;
                }
            }
        }
}
END_TEST

START_TEST(passes_and_seeds_have_orders_of_their_own)
{
    uint8_t text[4000] = { 0 };
    struct data x = data_of_text(text, sizeof text), y;
    x.shuffle = 1;
    y = x;
    y.seed = 1;
    const int64_t n = data_sequences(&x, DATA_TRAIN, SEQ);
    int in_order = 0, as_before = 0, as_seed = 0;
    for (int64_t i = 0; i + 1 < n; i++) {
        const int64_t at = data_start(&x, DATA_TRAIN, SEQ, i);
        in_order += data_start(&x, DATA_TRAIN, SEQ, i + 1) == at + SEQ;
        as_before += data_start(&x, DATA_TRAIN, SEQ, n + i) / SEQ == at / SEQ;
        as_seed += data_start(&y, DATA_TRAIN, SEQ, i) / SEQ == at / SEQ;
    }
    ck_assert_int_lt(in_order, 8);
    ck_assert_int_lt(as_before, 8);
    ck_assert_int_lt(as_seed, 8);
}
END_TEST

START_TEST(evaluation_is_apart_and_in_order)
{
    char path[] = "/tmp/moefold-data-XXXXXX";
    struct arena a = { 0 };
    struct data x;
    struct diag d;
    const int f = mkstemp(path);
    uint8_t text[1000];
    for (int i = 0; i < 1000; i++) text[i] = (uint8_t)(i % 251);
    ck_assert(write(f, text, sizeof text) == (ssize_t)sizeof text);
    ck_assert_msg(data_open(&x, &a, path, 0.1, &d) == OK, "%s", d.text);
    x.shuffle = 1;
    ck_assert_int_eq(x.n_train, 900);
    ck_assert_int_eq(data_sequences(&x, DATA_EVAL, SEQ), 6);
    for (int i = 0; i < 12; i++) ck_assert_int_eq(data_start(&x, DATA_EVAL, SEQ, i), 900 + i % 6 * SEQ);
    for (int i = 0; i < 200; i++)
        ck_assert_int_le(data_start(&x, DATA_TRAIN, SEQ, i), 900 - SEQ - DATA_BEHIND);
    for (int i = 0; i < 1000; i++) ck_assert_int_eq(data_token(&x, i), i % 251);
    ck_assert_int_eq(data_check(&x, DATA_EVAL, 97, &d), ERR_CONFIG);
    ck_assert(strstr(d.text, "100 tokens") && strstr(d.text, "101"));
    data_close(&x);
    unlink(path);
    ck_assert_int_eq(data_open(&x, &a, path, 0, &d), ERR_IO);
    arena_free(&a);
}
END_TEST

/* ---- Megatron-LM's pair ---- */

static int put(uint8_t *to, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++) to[i] = (uint8_t)(v >> 8 * i);
    return bytes;
}

/* Three sequences of 5, 0 and 40 tokens, in documents that end at sequences 1 and 3, as Megatron-LM's writer
 * lays them. */
static int index_make(uint8_t *to, int code, int token_B)
{
    static const int length[] = { 5, 0, 40 };
    int n = 0, at = 0;
    memcpy(to, "MMIDIDX\0\0", 9);
    n = 9;
    n += put(to + n, 1, 8);
    n += put(to + n, (uint64_t)code, 1);
    n += put(to + n, 3, 8);
    n += put(to + n, 3, 8);
    for (int i = 0; i < 3; i++) n += put(to + n, (uint64_t)length[i], 4);
    for (int i = 0; i < 3; at += length[i++] * token_B) n += put(to + n, (uint64_t)at, 8);
    n += put(to + n, 0, 8);
    n += put(to + n, 1, 8);
    n += put(to + n, 3, 8);
    return n;
}

static void file_write(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    ck_assert(f && fwrite(bytes, 1, n, f) == n && fclose(f) == 0);
}

START_TEST(a_pair_of_megatron_is_read)
{
    static const struct { int code, token_B; } types[] = { { 1, 1 }, { 8, 2 }, { 4, 4 }, { 5, 8 } };
    char dir[] = "/tmp/moefold-pair-XXXXXX";
    struct arena a = { 0 };
    ck_assert_ptr_nonnull(mkdtemp(dir));
    const char *idx = arena_printf(&a, "%s/text.idx", dir), *bin = arena_printf(&a, "%s/text.bin", dir);
    const char *const names[] = { idx, bin, arena_printf(&a, "%s/text", dir) };
    for (int t = 0; t < LEN(types); t++) {
        uint8_t head[256], token[45 * 8];
        for (int i = 0; i < 45; i++) put(token + i * types[t].token_B, (uint64_t)(3 * i), types[t].token_B);
        file_write(idx, head, (size_t)index_make(head, types[t].code, types[t].token_B));
        file_write(bin, token, (size_t)(45 * types[t].token_B));
        for (int k = 0; k < LEN(names); k++) {
            struct data x;
            struct diag d;
            ck_assert_msg(data_open(&x, &a, names[k], 0.5, &d) == OK, "%s", d.text);
            ck_assert_int_eq(x.n, 45);
            ck_assert_int_eq(x.n_train, 5);             /* whole documents, at least the last */
            for (int i = 0; i < 45; i++) ck_assert_int_eq(data_token(&x, i), 3 * i);
            data_close(&x);
        }
    }
    unlink(idx);
    unlink(bin);
    rmdir(dir);
    arena_free(&a);
}
END_TEST

START_TEST(a_broken_index_is_refused)
{
    static const struct { int at, bytes; uint64_t v; const char *says; } broken[] = {
        { 0, 1, 'X', "MMIDIDX" },      { 9, 8, 2, "version 2" },     { 17, 1, 7, "type code 7" },
        { 18, 8, 2, "at byte" },       { 18, 8, ~0ull, "do not fit" }, { 26, 8, 1ull << 61, "do not fit" },
        { 34, 4, 6, "end at 12" },     { 34, 4, ~0ull, "-1 tokens" }, { 46, 8, 1, "at byte 1" },
        { 42, 4, 41, "the .bin beside it has 90" }, { 78, 8, 5, "document 1 ends at sequence 5" },
    };
    for (int k = 0; k < LEN(broken); k++) {
        uint8_t head[256];
        struct data_index x;
        struct diag d = { "" };
        const int n = index_make(head, 8, 2);
        ck_assert_int_eq(data_index_read(&x, "text.idx", head, n, 90, &d), OK);
        put(head + broken[k].at, broken[k].v, broken[k].bytes);
        ck_assert_msg(data_index_read(&x, "text.idx", head, n, 90, &d) != OK, "%d was taken", k);
        ck_assert_msg(strstr(d.text, broken[k].says) != NULL, "%d: %s", k, d.text);
    }
    uint8_t head[256];
    struct data_index x;
    struct diag d;
    const int n = index_make(head, 8, 2);
    for (int cut = 0; cut < n; cut++) ck_assert(data_index_read(&x, "text.idx", head, cut, 90, &d) != OK);
}
END_TEST

/* ---- learning rate ---- */

static int near(double x, double want)
{
    return fabs(x - want) <= 1e-12;
}

START_TEST(rates_rise_hold_and_fall)
{
    struct plan p = { .lr = 2, .lr_warmup = 10, .lr_steps = 110, .lr_min = 0.1, .lr_cooldown = 0.2 };
    ck_assert(near(lr_at(&p, 0), 0.2) && near(lr_at(&p, 9), 2) && near(lr_at(&p, 10), 2) &&
              near(lr_at(&p, 999), 2));
    p.lr_decay = LR_DECAY_COSINE;
    ck_assert(near(lr_at(&p, 4), 1) && near(lr_at(&p, 10), 2) && near(lr_at(&p, 60), 1.1) &&
              near(lr_at(&p, 110), 0.2));
    ck_assert(near(lr_at(&p, 35), 0.2 + 1.8 * (1 + cos(acos(-1) / 4)) / 2) && near(lr_at(&p, 5000), 0.2));
    p.lr_decay = LR_DECAY_WSD;
    ck_assert(near(lr_at(&p, 87), 2) && near(lr_at(&p, 88), 2) && near(lr_at(&p, 99), 1.1) &&
              near(lr_at(&p, 110), 0.2));
    p.lr_steps = 5;                                     /* over before it rose */
    ck_assert(near(lr_at(&p, 3), 0.8) && near(lr_at(&p, 20), 0.2));
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        a_pass_takes_every_sequence_once, passes_and_seeds_have_orders_of_their_own,
        evaluation_is_apart_and_in_order, a_pair_of_megatron_is_read,
        a_broken_index_is_refused,        rates_rise_hold_and_fall
    };
    return test_main("data", tests, LEN(tests), 60);
}
