/* What `csv` promises: tables are read as RFC 4180 says, every cell with its place, or refused with one. */
#include "tools/csv.h"
#include "tests/test.h"

START_TEST(csv_cells)
{
    static const char text[] = "\xEF\xBB\xBFid,what,n\r\n"
                               "a,\"one, two\",1\r\n"
                               "b,\"say \"\"yes\"\"\",\r\n"
                               "c,\"two\nlines\",3\n"
                               "d,,\"\"";
    struct arena a = { 0 };
    struct diag d = { "" };
    struct csv c;
    ck_assert_int_eq(csv_read_text(&c, &a, "t.csv", text, sizeof text - 1, &d), OK);
    ck_assert_int_eq(c.n_row, 4);
    ck_assert_int_eq(c.n_col, 3);
    ck_assert_str_eq(c.head[0].text, "id");
    ck_assert_str_eq(c.cell[1].text, "one, two");
    ck_assert_str_eq(c.cell[3 + 1].text, "say \"yes\"");
    ck_assert_str_eq(c.cell[3 + 2].text, "");
    ck_assert_str_eq(c.cell[6 + 1].text, "two\nlines");
    ck_assert_str_eq(c.cell[6 + 2].text, "3");
    ck_assert_int_eq(c.cell[6 + 2].line, 5);            /* behind the line break inside quotes */
    ck_assert_int_eq(c.cell[6 + 2].column, 8);
    ck_assert_str_eq(c.cell[9 + 2].text, "");
    ck_assert_int_eq(csv_column(&c, "n"), 2);
    ck_assert_int_eq(csv_column(&c, "m"), -1);
    arena_free(&a);
}
END_TEST

START_TEST(csv_refusals)
{
    static const struct { const char *text, *parts[3]; } bad[] = {
        { "", { "t.csv:1:1", "empty" } },
        { "a,,b\n", { "t.csv:1:3", "without a name" } },
        { "a,b,a\n", { "t.csv:1:5", "'a' stands twice" } },
        { "a,b\n1,2\n3\n", { "t.csv:3:1", "1 cells instead of the 2" } },
        { "a,b\n1,2,3\n", { "t.csv:2:5", "more than the 2" } },
        { "a,b\n\n1,2\n", { "t.csv:2:1", "1 cells" } },
        { "a,b\n1,\"two\n", { "t.csv:2:3", "never ends" } },
        { "a,b\n1,\"two\"x\n", { "t.csv:2:8", "behind a closing quote" } },
        { "a,b\n1,t\"w\n", { "t.csv:2:4", "quote inside a cell" } },
        { "a,b\n1,\x01\n", { "t.csv:2:3", "control character" } },
        { "a,b\n1,2\r3,4\n", { "t.csv:2:4", "control character" } },
    };
    for (int i = 0; i < LEN(bad); i++) {
        struct arena a = { 0 };
        struct diag d = { "" };
        struct csv c;
        ck_assert_int_eq(csv_read_text(&c, &a, "t.csv", bad[i].text, strlen(bad[i].text), &d), ERR_CONFIG);
        ck_assert_msg(test_has(d.text, bad[i].parts), "%d: %s", i, d.text);
        arena_free(&a);
    }
}
END_TEST

/* Whatever the bytes are, it is a table with whole records or a refusal with a place. */
START_TEST(csv_noise)
{
    static const char letters[] = "a,\"\n\r1\t\x01\xC3";
    uint64_t state = 7;
    for (int i = 0; i < 20000; i++) {
        struct arena a = { 0 };
        struct diag d = { "" };
        struct csv c;
        char text[24];
        const int n = test_random(&state, (int)sizeof text);
        for (int k = 0; k < n; k++) text[k] = letters[test_random(&state, LEN(letters))];   /* \0 too */
        if (csv_read_text(&c, &a, "t.csv", text, (size_t)n, &d) == OK) {
            for (int k = 0; k < c.n_row * c.n_col; k++) ck_assert_ptr_nonnull(c.cell[k].text);
            ck_assert_int_ge(c.n_col, 1);
        } else {
            ck_assert_msg(strncmp(d.text, "t.csv:", 6) == 0, "%s", d.text);
        }
        arena_free(&a);
    }
}
END_TEST

int main(void)
{
    const TTest *const tests[] = { csv_cells, csv_refusals, csv_noise };
    return test_main("csv", tests, LEN(tests), 60);
}
