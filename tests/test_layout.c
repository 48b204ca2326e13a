/* Layouts: published strings word for word, cases A04, C01, C04 and C08, what is refused and in which words, the
 * even spread as a property, and that what is printed reads back as itself. */
#include "models/layout.h"
#include "tests/test.h"
#include <stdio.h>

static struct diag d;
static struct layout l;

static int on(const struct layout *x, int chunk)
{
    return x->first[chunk + 1] - x->first[chunk];
}

START_TEST(deepseek_v3_over_32_chunks_is_the_published_string)
{
    struct arena a = { 0 };
    ck_assert_int_eq(layout_parse(&l, "auto", 61, 1, 8, 4, &d), OK);
    ck_assert_str_eq(layout_text(&a, &l), "Et|(tt|)*30mL");
    ck_assert_int_eq(layout_parse(&l, "auto", 61, 0, 16, 2, &d), OK);
    ck_assert_str_eq(layout_text(&a, &l), "Et|(tt|)*30L");
    arena_free(&a);
}
END_TEST

START_TEST(even_is_as_many_layers_everywhere)
{
    struct arena a = { 0 };
    ck_assert_int_eq(layout_parse(&l, "even", 128, 0, 64, 1, &d), OK);
    ck_assert_str_eq(layout_text(&a, &l), "Et*2|(tt|)*62t*2L");
    ck_assert_int_eq(layout_parse(&l, "even", 8, 1, 2, 2, &d), OK);
    ck_assert_str_eq(layout_text(&a, &l), "Et*2|(tt|)*2t*2mL");
    ck_assert_int_eq(layout_parse(&l, "even", 61, 0, 4, 1, &d), ERR_CONFIG);
    ck_assert_ptr_nonnull(strstr(d.text, "61 layers do not divide over pp 4 x vpp 1 = 4 chunks"));
    arena_free(&a);
}
END_TEST

START_TEST(published_strings_print_as_they_were)
{
    static const struct { const char *text; int layers, mtp, pp, vpp; } row[] = {
        { "Et|(tt|)*30mL", 61, 1, 8, 4 },
        { "Et*3|(tt|)*29m|L", 61, 1, 8, 4 },
        { "Et|t*2m|L", 3, 1, 3, 1 },
        { "Et|(tt|)*2t*2m*2|L", 7, 2, 5, 1 },
        { "Et*2m|L", 2, 1, 2, 1 },
        { "Et|(tt|)*30L", 61, 0, 8, 4 },
        { "Et*4|(tttt|)*14tmL", 61, 1, 4, 4 },
    };
    struct arena a = { 0 };
    for (int i = 0; i < LEN(row); i++) {
        ck_assert_int_eq(layout_parse(&l, row[i].text, row[i].layers, row[i].mtp, row[i].pp, row[i].vpp, &d), OK);
        ck_assert_str_eq(layout_text(&a, &l), row[i].text);
    }
    /* two ways to write one layout: printed in the shorter one */
    ck_assert_int_eq(layout_parse(&l, "Et*2|(tt|)*22t|(tt|)*7mL", 61, 1, 8, 4, &d), OK);
    ck_assert_str_eq(layout_text(&a, &l), "Et*2|(tt|)*22t|(tt|)*7mL");
    arena_free(&a);
}
END_TEST

START_TEST(strings_place_layers)
{
    ck_assert_int_eq(layout_parse(&l, "Et*4|(tttt|)*14tmL", 61, 1, 4, 4, &d), OK);
    ck_assert_int_eq(l.n_chunk, 16);
    ck_assert_int_eq(l.mtp_chunk, 15);
    for (int c = 0; c < 15; c++) ck_assert_int_eq(on(&l, c), 4);
    ck_assert_int_eq(on(&l, 15), 1);
    ck_assert_int_eq(layout_parse(&l, " Ettt, |((t|)*2 t t|)*2, t*3L ", 14, 0, 8, 1, &d), OK);
    const int want[] = { 3, 1, 1, 2, 1, 1, 2, 3 };
    for (int c = 0; c < LEN(want); c++) ck_assert_int_eq(on(&l, c), want[c]);
    ck_assert_int_eq(l.mtp_chunk, -1);
    ck_assert_int_eq(layout_parse(&l, "E|tt|L", 2, 0, 3, 1, &d), OK);
    ck_assert_int_eq(l.first[1], 0);
    ck_assert_int_eq(l.first[2], 2);
}
END_TEST

START_TEST(mtp_may_stand_before_the_loss)
{
    ck_assert_int_eq(layout_parse(&l, "Et*3|(tt|)*29m|L", 61, 1, 8, 4, &d), OK);
    ck_assert(l.n_chunk == 32 && l.mtp_chunk == 30);
    ck_assert(on(&l, 29) == 2 && on(&l, 30) == 0 && on(&l, 31) == 0);
    for (int c = 0; c < 32; c++) ck_assert_int_eq(layout_states(&l, c), c == 31 ? 2 : 1);
    ck_assert_int_eq(layout_parse(&l, "Ett|ttm*2|L", 4, 2, 3, 1, &d), OK);
    ck_assert(l.mtp_chunk == 1 && l.mtp == 2 && layout_states(&l, 2) == 3);
    ck_assert_int_eq(layout_parse(&l, "Ettm|L", 2, 1, 2, 1, &d), OK);
    ck_assert_int_eq(l.mtp_chunk, 0);
    ck_assert_int_eq(layout_parse(&l, "auto", 4, 1, 2, 1, &d), OK);
    for (int c = 0; c < 2; c++) ck_assert_int_eq(layout_states(&l, c), 1);
}
END_TEST

START_TEST(uneven_split_counts_its_worst_stage)     /* case A04: toy of 1000 a layer (experts 5000), tables 500 */
{
    const int even[] = { 1500, 2000, 2000, 3500 }, mixed[] = { 1500, 2000, 6000, 15500 };
    ck_assert_int_eq(layout_parse(&l, "1,2,2,3", 8, 0, 4, 1, &d), OK);
    for (int c = 0; c < 4; c++) {
        int dense = c == 0 || c == 3 ? 500 : 0, moe = dense;
        for (int i = l.first[c]; i < l.first[c + 1]; i++) dense += 1000, moe += i < 4 ? 1000 : 5000;
        ck_assert_int_eq(dense, even[c]);
        ck_assert_int_eq(moe, mixed[c]);
    }
}
END_TEST

START_TEST(layers_that_do_not_divide_are_spread)    /* case C04: 46 layers over 4 stages */
{
    const int want[] = { 11, 12, 12, 11 };
    static const char *const legal[] = { "11,12,12,11", "10,13,13,10", "12, 11, 11, 12", "12,12,11,11" };
    ck_assert_int_eq(layout_parse(&l, "auto", 46, 0, 4, 1, &d), OK);
    for (int c = 0; c < 4; c++) ck_assert_int_eq(on(&l, c), want[c]);
    for (int i = 0; i < LEN(legal); i++) ck_assert_int_eq(layout_parse(&l, legal[i], 46, 0, 4, 1, &d), OK);
    ck_assert_int_eq(layout_parse(&l, "12,12,12,12", 46, 0, 4, 1, &d), ERR_CONFIG);
    ck_assert_ptr_nonnull(strstr(d.text, "48 layers, but the model has 46"));
}
END_TEST

START_TEST(a_chunk_needs_a_layer)                   /* case C01: 48 chunks */
{
    ck_assert_int_eq(layout_parse(&l, "auto", 48, 0, 2, 24, &d), OK);
    for (int c = 1; c < 47; c++) ck_assert_int_ge(on(&l, c), 1);
    ck_assert_int_eq(layout_parse(&l, "auto", 24, 0, 2, 24, &d), ERR_CONFIG);
    ck_assert_ptr_nonnull(
        strstr(d.text, "pp 2 x vpp 24 = 48 chunks, but 24 layers with embedding and loss fill at most 26"));
}
END_TEST

START_TEST(a_layout_of_other_sizes_names_both)      /* case C08: 16 chunks against pp 4 or 8 */
{
    const char *text = "Et*4|(tttt|)*14tmL";
    ck_assert_int_eq(layout_parse(&l, text, 61, 1, 4, 1, &d), ERR_CONFIG);
    ck_assert_ptr_nonnull(strstr(d.text, "16 chunks, but pp 4 x vpp 1 = 4: set layout auto, or vpp 4"));
    ck_assert_int_eq(layout_parse(&l, text, 61, 1, 8, 1, &d), ERR_CONFIG);
    ck_assert_ptr_nonnull(strstr(d.text, "pp 8 x vpp 1 = 8: set layout auto, or vpp 2"));
    ck_assert_int_eq(layout_parse(&l, "auto", 61, 1, 4, 1, &d), OK);
    ck_assert_int_eq(l.n_chunk, 4);
    for (int c = 0; c < 4; c++) ck_assert_int_eq(on(&l, c) + (c == 0) + 2 * (c == 3), 16);
    ck_assert_int_eq(layout_parse(&l, "auto", 61, 1, 8, 1, &d), OK);
    for (int c = 0; c < 8; c++) ck_assert_int_eq(on(&l, c) + (c == 0) + 2 * (c == 7), 8);
}
END_TEST

START_TEST(refusals_have_words_of_their_own)
{
    static const struct { const char *text; int layers, mtp, pp, vpp; enum err e; const char *part[4]; } row[] = {
        { "Ett|ttm||L", 4, 1, 4, 1, ERR_CONFIG, { "nothing on chunk 2 of 4" } },
        { "Ett|ttm|mL", 4, 2, 3, 1, ERR_LIMIT, { "m on chunk 1 and on chunk 2", "m*2" } },
        { "Ett|ttLm", 4, 1, 2, 1, ERR_CONFIG, { "1 L", "last symbol" } },
        { "Ettm|ttL", 4, 1, 2, 1, ERR_CONFIG, { "after m" } },
        { "", 4, 0, 1, 1, ERR_CONFIG, { "empty" } },
        { "Etx*4L", 4, 0, 1, 1, ERR_CONFIG, { "'x' at character 3" } },
        { "Et*L", 4, 0, 1, 1, ERR_CONFIG, { "number after '*' at character 4" } },
        { "Et*0L", 4, 0, 1, 1, ERR_CONFIG, { "repeats outside 1 to" } },
        { "Et*99999999999999999999L", 4, 0, 1, 1, ERR_CONFIG, { "repeats outside 1 to" } },
        { "E((t*1000)*1000)*1000L", 4, 0, 1, 1, ERR_LIMIT, { "more than 8192 symbols" } },
        { "Et*2*2L", 4, 0, 1, 1, ERR_CONFIG, { "'*' at character 5" } },
        { "E(tt|L", 2, 0, 2, 1, ERR_CONFIG, { "'(' at character 2 that is not closed" } },
        { "Ett)|L", 2, 0, 2, 1, ERR_CONFIG, { "')' at character 4 that closes nothing" } },
        { "E(((((((((((((((((t)))))))))))))))))L", 1, 0, 1, 1, ERR_LIMIT, { "nested deeper than 16" } },
        { "tt|tt", 4, 0, 2, 1, ERR_CONFIG, { "0 E" } },
        { "EttE|ttL", 4, 0, 2, 1, ERR_CONFIG, { "2 E" } },
        { "tEt|ttL", 4, 0, 2, 1, ERR_CONFIG, { "1 E", "first symbol" } },
        { "Ett|tt", 4, 0, 2, 1, ERR_CONFIG, { "0 L" } },
        { "Ett|Ltt", 4, 0, 2, 1, ERR_CONFIG, { "1 L", "last symbol" } },
        { "Ett|tL", 4, 0, 2, 1, ERR_CONFIG, { "3 layers, but the model has 4", "add 1" } },
        { "Ett|tttL", 4, 0, 2, 1, ERR_CONFIG, { "5 layers, but the model has 4", "remove 1" } },
        { "Ett|ttL", 4, 1, 2, 1, ERR_CONFIG, { "0 m", "1 MTP", "add m" } },
        { "Ett|ttmL", 4, 0, 2, 1, ERR_CONFIG, { "1 m", "0 MTP", "remove m" } },
        { "Ett|tmtL", 4, 1, 2, 1, ERR_CONFIG, { "after m" } },
        { "Ett||ttL", 4, 0, 3, 1, ERR_CONFIG, { "nothing on chunk 1 of 3" } },
        { "Ett|ttL", 4, 0, 3, 1, ERR_CONFIG, { "2 chunks", "pp 3 x vpp 1 = 3" } },
        { "2,0,2", 4, 0, 3, 1, ERR_CONFIG, { "nothing on chunk 1 of 3" } },
        { "2,2,", 4, 0, 3, 1, ERR_CONFIG, { "no number of layers at entry 2" } },
        { "2 2", 4, 0, 2, 1, ERR_CONFIG, { "lacks a comma after entry 0" } },
        { "2,,2", 4, 0, 3, 1, ERR_CONFIG, { "no number of layers at entry 1" } },
        { "2,99999999999999999999", 4, 0, 2, 1, ERR_CONFIG, { "more than 8192 layers at entry 1" } },
        { "4", 4, 0, 2, 1, ERR_CONFIG, { "1 chunks", "pp 2 x vpp 1 = 2" } },
        { "auto", 4, 0, 64, 64, ERR_LIMIT, { "4096 chunks", "1024" } },
        { "auto", 4, 9000, 1, 1, ERR_LIMIT, { "mtp 9000" } },
        { "auto", 0, 0, 1, 1, ERR_LIMIT, { "of 0 layers" } },
        { "auto", 2, 1, 5, 1, ERR_CONFIG, { "pp 5 x vpp 1 = 5 chunks", "2 layers", "at most 4" } },
    };
    for (int i = 0; i < LEN(row); i++) {
        struct layout kept = { .n_chunk = -7 };
        const enum err e = layout_parse(&kept, row[i].text, row[i].layers, row[i].mtp, row[i].pp, row[i].vpp, &d);
        ck_assert_msg(e == row[i].e && test_has(d.text, row[i].part), "row %d: %s", i, d.text);
        ck_assert_int_eq(kept.n_chunk, -7);         /* set only on success */
    }
}
END_TEST

/* Units on a chunk: layers, E, m and L count as one each. */
static int units(const struct layout *x, int c)
{
    return on(x, c) + (c == 0) + (c == x->mtp_chunk) + (c == x->n_chunk - 1);
}

static void check_spread(const struct layout *x, int layers, int mtp)
{
    const int n = x->n_chunk, average = (layers + 2 + mtp) / n;
    ck_assert_int_eq(x->first[0], 0);
    ck_assert_int_eq(x->first[n], layers);
    ck_assert_int_eq(x->mtp_chunk, mtp ? n - 1 : -1);
    for (int c = 0; c < n; c++) {
        ck_assert_int_ge(on(x, c), 0);
        ck_assert_int_ge(units(x, c), average);
        ck_assert_int_le(units(x, c), average + 1);
        const int joined = c == n - 1 && mtp && average < 2;    /* m and L stay together, the heavier for it */
        if (c > 0 && !joined) ck_assert_int_le(units(x, c), units(x, c - 1));
    }
}

START_TEST(auto_is_even_and_later_chunks_are_lighter)
{
    int fits = 0;
    for (int n = 1; n <= 40; n++)
        for (int layers = 1; layers <= 90; layers++)
            for (int mtp = 0; mtp <= 1; mtp++) {
                const int can = layers + 2 >= n;            /* m stands with L, so it fills no chunk */
                ck_assert_int_eq(layout_parse(&l, "auto", layers, mtp, n, 1, &d) == OK, can);
                if (can) check_spread(&l, layers, mtp);
                fits += can;
            }
    ck_assert_int_gt(fits, 5000);
}
END_TEST

static void check_reads_back(const struct layout *x, int layers, int mtp)
{
    struct arena a = { 0 };
    struct layout again;
    const char *text = layout_text(&a, x);
    ck_assert_msg(layout_parse(&again, text, layers, mtp, x->n_chunk, 1, &d) == OK, "%s: %s", text, d.text);
    ck_assert_int_eq(again.mtp_chunk, x->mtp_chunk);
    ck_assert_mem_eq(again.first, x->first, sizeof(int32_t) * (size_t)(x->n_chunk + 1));
    arena_free(&a);
}

START_TEST(what_is_printed_reads_back)
{
    uint64_t seed = 1;
    for (int i = 0; i < 2000; i++) {
        const int n = 1 + test_random(&seed, 20), mtp = test_random(&seed, 2);
        char text[256] = "";
        int layers = 0;
        for (int c = 0; c < n; c++) {
            const int end = c == 0 || c == n - 1, t = test_random(&seed, 3) + (end ? c == 0 && n == 1 : 1);
            sprintf(text + strlen(text), c ? ",%d" : "%d", t);
            layers += t;
        }
        if (layers == 0) continue;
        ck_assert_msg(layout_parse(&l, text, layers, mtp, n, 1, &d) == OK, "%s: %s", text, d.text);
        check_reads_back(&l, layers, mtp);
    }
}
END_TEST

START_TEST(any_text_is_read_or_refused)
{
    static const char symbol[] = "EttttmL|||()**23 ,0";
    uint64_t seed = 2;
    int read = 0;
    for (int i = 0; i < 200000; i++) {
        char text[24];
        const int n = 1 + test_random(&seed, (int)sizeof text - 1);
        for (int c = 0; c < n; c++) text[c] = symbol[test_random(&seed, (int)sizeof symbol - 1)];
        text[0] = test_random(&seed, 2) ? 'E' : text[0];
        text[n - 1] = 0;
        const int layers = 1 + test_random(&seed, 4), pp = 1 + test_random(&seed, 3);
        d.text[0] = 0;
        if (layout_parse(&l, text, layers, 0, pp, 1, &d) != OK) {
            ck_assert_int_ne(d.text[0], 0);
            continue;
        }
        check_reads_back(&l, layers, 0);
        read++;
    }
    ck_assert_int_gt(read, 10);
}
END_TEST

int main(void)
{
    const TTest *const test[] = {
        deepseek_v3_over_32_chunks_is_the_published_string, even_is_as_many_layers_everywhere, published_strings_print_as_they_were,
        strings_place_layers, mtp_may_stand_before_the_loss, uneven_split_counts_its_worst_stage, layers_that_do_not_divide_are_spread,
        a_chunk_needs_a_layer, a_layout_of_other_sizes_names_both, refusals_have_words_of_their_own,
        auto_is_even_and_later_chunks_are_lighter, what_is_printed_reads_back, any_text_is_read_or_refused,
    };
    return test_main("layout", test, LEN(test), 300);
}
