/* Numbers with units: what is read, what is refused and how, and that what is printed reads back the same. */
#include "models/base/err.h"
#include "models/base/units.h"
#include "tests/test.h"
#include <math.h>

START_TEST(units_read)
{
    static const struct { const char *text; enum unit unit; double value;
    } row[] = {
        {"80 GiB", UNIT_B, 80.0 * 1073741824},
        {"80GB", UNIT_B, 80e9},
        {"0 B", UNIT_B, 0},
        {"1.5 kB", UNIT_B, 1500},
        {"189471 MiB", UNIT_B, 189471.0 * 1048576},
        {"2 TiB", UNIT_B, 2.0 * 1099511627776},
        {"3 KiB", UNIT_B, 3072},
        {"4.8 TB/s", UNIT_B_PER_S, 4.8e12},
        {"400 Gb/s", UNIT_B_PER_S, 50e9},
        {"800 Gbit/s", UNIT_B_PER_S, 100e9},
        {"989.4 TFLOP/s", UNIT_FLOP_PER_S, 989.4e12},
        {"1 PFLOP/s", UNIT_FLOP_PER_S, 1e15},
        {"2250 TFLOPS", UNIT_FLOP_PER_S, 2250e12},
        {"5 us", UNIT_S, 5e-6},
        {"3ns", UNIT_S, 3e-9},
        {"2 s", UNIT_S, 2},
        {"2.5 USD/h", UNIT_USD_PER_H, 2.5},
        {"-3", UNIT_NONE, -3},
        {"+1e-6", UNIT_NONE, 1e-6},
        {".5", UNIT_NONE, 0.5},
        {"1E3", UNIT_NONE, 1000},
    };
    for (int i = 0; i < LEN(row); i++) {
        double x = -7;
        ck_assert_msg(units_parse(&x, row[i].text, row[i].unit) == 0, "%s", row[i].text);
        ck_assert_msg(fabs(x - row[i].value) <= 1e-15 * fabs(row[i].value), "%s is %.17g", row[i].text, x);
    }
}
END_TEST

START_TEST(units_refused)
{
    static const struct { const char *text; enum unit unit; int status;
    } row[] = {
        {"", UNIT_NONE, -1},      {" 1", UNIT_NONE, -1},     {"nan", UNIT_NONE, -1},
        {"inf", UNIT_S, -1},      {"0x10", UNIT_NONE, -1},   {"1e400", UNIT_NONE, -1},
        {"1.2.3", UNIT_NONE, -1}, {"--1", UNIT_NONE, -1},    {"64k", UNIT_NONE, -1},
        {"e5", UNIT_NONE, -1},    {".", UNIT_NONE, -1},      {"1e", UNIT_NONE, -1},
        {"1,5", UNIT_NONE, -1},   {"GiB", UNIT_B, -1},       {"80", UNIT_B, -2},
        {"5 ", UNIT_S, -2},       {"5 us", UNIT_NONE, -3},   {"5 us", UNIT_B, -3},
        {"5 GiB", UNIT_S, -3},    {"5 parsecs", UNIT_S, -3}, {"5 gb", UNIT_B, -3},
        {"1e308 TB", UNIT_B, -3}, {"5 us us", UNIT_S, -3},
    };
    for (int i = 0; i < LEN(row); i++) {
        double x = -7;
        const int status = units_parse(&x, row[i].text, row[i].unit);
        ck_assert_msg(status == row[i].status, "'%s': %d, not %d", row[i].text, status, row[i].status);
        ck_assert_msg(x == -7, "'%s' was set", row[i].text);
    }
}
END_TEST

START_TEST(units_printed_reads_back)
{
    uint64_t state = 1;
    for (int i = 0; i < 20000; i++) {
        const enum unit unit = (enum unit)(i % (UNIT_USD_PER_H + 1));
        const double scale = pow(10, test_random(&state, 28) - 12);
        const double x =
            i % 3 == 0 ? test_random(&state, 1000) * scale : (test_random(&state, 1 << 30) + 0.1) * scale / 7;
        char text[64];
        double back;
        ck_assert_msg(units_parse(&back, units_print(text, sizeof(text), x, unit), unit) == 0, "%s", text);
        ck_assert_msg(back == x, "%.17g printed as %s", x, text);
    }
}
END_TEST

START_TEST(units_short_forms)
{
    char text[64];
    ck_assert_str_eq(units_print(text, sizeof(text), 80.0 * 1073741824, UNIT_B), "80 GiB");
    ck_assert_str_eq(units_print(text, sizeof(text), 4.8e12, UNIT_B_PER_S), "4.8 TB/s");
    ck_assert_str_eq(units_human(text, sizeof(text), 1.23456 * 1073741824, UNIT_B), "1.235 GiB");
    ck_assert_str_eq(units_human(text, sizeof(text), 45.1e-6, UNIT_S), "45.1 us");
    ck_assert_str_eq(units_human(text, sizeof(text), 0, UNIT_S), "0 s");
    ck_assert_str_eq(units_human(text, sizeof(text), 0, UNIT_B), "0 B");
}
END_TEST

/* Objects are aligned, zeroed, and stay where they are while the arena grows. */
START_TEST(arena_keeps)
{
    struct arena a = { 0 };
    int *kept = arena_alloc(&a, sizeof(int));
    *kept = 42;
    for (size_t i = 1; i < 3000; i++) {
        const unsigned char *p = arena_alloc(&a, i * 7);
        int used = (uintptr_t)p % 16 != 0;
        for (size_t k = 0; k < i * 7; k++) used |= p[k];
        ck_assert_int_eq(used, 0);
        memset(arena_alloc(&a, i), 0xFF, i);
    }
    ck_assert_int_eq(*kept, 42);
    int *grown = arena_grow(&a, kept, 1, 5, sizeof(int));
    ck_assert_int_eq(grown[0], 42);
    ck_assert_int_eq(grown[4], 0);
    ck_assert_str_eq(arena_printf(&a, "%s-%d", "x", 7), "x-7");
    arena_free(&a);
    ck_assert_ptr_null(a.last);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {units_read, units_refused, units_printed_reads_back, units_short_forms,
                                  arena_keeps};
    return test_main("units", tests, LEN(tests), 60);
}
