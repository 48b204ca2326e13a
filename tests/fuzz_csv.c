/* libFuzzer: any bytes as a table. What is accepted must read back alike with every cell in quotes. */
#include "tests/fuzz.h"
#include "tools/csv.h"

/* `text` in quotes and `end` behind it; returns where the next cell goes. */
static char *quoted(char *to, const char *text, const char *end)
{
    *to++ = '"';
    for (; *text; text++) {
        if (*text == '"') *to++ = '"';
        *to++ = *text;
    }
    *to++ = '"';
    while (*end) *to++ = *end++;
    return to;
}

static void reads_back(struct arena *a, const struct csv *c, size_t size_B)
{
    const size_t n = (size_t)c->n_row * (size_t)c->n_col;
    char *text = arena_alloc(a, 2 * size_B + 4 * (n + (size_t)c->n_col) + 1), *to = text;
    struct diag d = { 0 };
    struct csv again;
    for (int i = 0; i < c->n_col; i++) to = quoted(to, c->head[i].text, i + 1 < c->n_col ? "," : "\r\n");
    for (size_t i = 0; i < n; i++) to = quoted(to, c->cell[i].text, (i + 1) % (size_t)c->n_col ? "," : "\r\n");
    if (csv_read_text(&again, a, "again", text, (size_t)(to - text), &d) != OK) abort();
    if (again.n_row != c->n_row || again.n_col != c->n_col) abort();
    for (size_t i = 0; i < n; i++)
        if (strcmp(again.cell[i].text, c->cell[i].text) != 0) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_B)
{
    struct arena a = { 0 };
    struct diag d = { 0 };
    struct csv c;
    const enum err e = csv_read_text(&c, &a, "fuzz", (const char *)data, size_B, &d);
    fuzz_answer(e, &d);
    if (e == OK) reads_back(&a, &c, size_B);
    arena_free(&a);
    return 0;
}
