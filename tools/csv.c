/* Text -> cells. One pass, byte by byte: a cell is copied out as it is unquoted, so line and column are always
 * those of the file. The first record fixes how many cells every other one has. */
#include "tools/csv.h"
#include "models/base/whole_file.h"
#include "models/cfg.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { CSV_FILE_B = 16 << 20, CSV_COLUMNS = 256 };

/* What ends a cell. */
enum csv_end { CSV_COMMA, CSV_RECORD, CSV_FILE };

struct csv_reader {
    const char *at, *end;               /* what is left                          */
    int line, column;                   /* of `at`                               */
    char *out;                          /* where the next cell's text goes       */
    struct csv *c;
    struct diag *d;
};

static enum err csv_refuse(struct csv_reader *r, const char *what)
{
    return fail(r->d, ERR_CONFIG, "%.200s:%d:%d: %s", r->c->name, r->line, r->column, what);
}

enum err csv_fail(struct diag *d, const struct csv *c, const struct csv_cell *at, const char *format, ...)
{
    char what[sizeof d->text];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return fail(d, ERR_CONFIG, "%.200s:%d:%d: %s", c->name, at->line, at->column, what);
}

static char csv_next(struct csv_reader *r)
{
    const char c = *r->at++;
    if (c == '\n') r->line++;
    r->column = c == '\n' ? 1 : r->column + 1;
    return c;
}

static enum err csv_check_byte(struct csv_reader *r)
{
    const unsigned char c = (unsigned char)*r->at;
    if ((c >= ' ' && c != 0x7F) || c == '\t' || c == '\n') return OK;
    if (c == '\r' && r->at + 1 < r->end && r->at[1] == '\n') return OK;
    return csv_refuse(r, "a control character: save the file as plain text with LF or CRLF line ends");
}

/* From behind the opening quote to behind the closing one. */
static enum err csv_quoted(struct csv_reader *r)
{
    struct csv_reader open = *r;
    open.column--;
    while (r->at < r->end) {
        TRY(csv_check_byte(r));
        const char c = csv_next(r);
        if (c == '"' && (r->at == r->end || *r->at != '"')) return OK;
        if (c == '"') csv_next(r);              /* two stand for one */
        *r->out++ = c;
    }
    return csv_refuse(&open, "this quote never ends: close it, or double it where it is meant as text");
}

static enum err csv_plain(struct csv_reader *r)
{
    while (r->at < r->end && !strchr(",\r\n", *r->at)) {
        TRY(csv_check_byte(r));
        if (*r->at == '"') return csv_refuse(r, "a quote inside a cell: put the whole cell in quotes and double it");
        *r->out++ = csv_next(r);
    }
    return OK;
}

/* One cell and what ends it. */
static enum err csv_cell(struct csv_reader *r, struct csv_cell *cell, enum csv_end *end)
{
    *cell = (struct csv_cell){ r->out, r->line, r->column };
    if (r->at < r->end && *r->at == '"') {
        csv_next(r);
        TRY(csv_quoted(r));
    } else {
        TRY(csv_plain(r));
    }
    *r->out++ = '\0';
    *end = CSV_FILE;
    if (r->at == r->end) return OK;
    TRY(csv_check_byte(r));
    if (*r->at == '\r') csv_next(r);
    const char c = csv_next(r);
    if (c != ',' && c != '\n') {
        r->column--;
        return csv_refuse(r, "text behind a closing quote: double quotes that are meant as text");
    }
    *end = c == ',' ? CSV_COMMA : CSV_RECORD;
    return OK;
}

static enum err csv_head(struct csv_reader *r, struct arena *a)
{
    struct csv *c = r->c;
    enum csv_end end = CSV_COMMA;
    c->head = arena_alloc(a, CSV_COLUMNS * sizeof *c->head);
    while (end == CSV_COMMA) {
        if (c->n_col == CSV_COLUMNS) return csv_refuse(r, "more than 256 columns: is this the right file?");
        struct csv_cell *cell = &c->head[c->n_col];
        TRY(csv_cell(r, cell, &end));
        if (!*cell->text) return csv_fail(r->d, c, cell, "a column without a name: the first line names them");
        const int same = csv_column(c, cell->text);
        if (same >= 0)
            return csv_fail(r->d, c, cell, "column '%s' stands twice, first as number %d: rename one",
                            cfg_shown(cell->text).text, same + 1);
        c->n_col++;
    }
    return OK;
}

static enum err csv_record(struct csv_reader *r, struct arena *a)
{
    struct csv *c = r->c;
    const size_t n = (size_t)c->n_row * (size_t)c->n_col, more = (size_t)c->n_col;
    enum csv_end end = CSV_COMMA;
    int got = 0;
    if ((c->n_row & (c->n_row - 1)) == 0)
        c->cell = arena_grow(a, c->cell, n, n ? 2 * n : more, sizeof *c->cell);
    for (; end == CSV_COMMA; got++) {
        struct csv_cell extra, *cell = got < c->n_col ? &c->cell[n + (size_t)got] : &extra;
        TRY(csv_cell(r, cell, &end));
        if (got == c->n_col)
            return csv_fail(r->d, c, cell, "a cell more than the %d that the first line names: quote commas",
                            c->n_col);
    }
    if (got < c->n_col)
        return csv_fail(r->d, c, &c->cell[n], "%d cells instead of the %d that the first line names", got, c->n_col);
    c->n_row++;
    return OK;
}

enum err csv_read_text(struct csv *c, struct arena *a, const char *name, const char *text, size_t text_B,
                       struct diag *d)
{
    const size_t mark = text_B >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
    struct csv read = { .name = arena_strdup(a, name) };
    struct csv_reader r = { text + mark, text + text_B, 1, 1, arena_alloc(a, 2 * text_B + 2), &read, d };
    if (text_B > CSV_FILE_B)
        return fail(d, ERR_CONFIG, "%.200s:1:1: more than the limit of %d bytes: is this the right file?", name,
                    CSV_FILE_B);
    if (r.at == r.end) return csv_refuse(&r, "the file is empty: its first line names the columns");
    TRY(csv_head(&r, a));
    while (r.at < r.end) TRY(csv_record(&r, a));
    *c = read;
    return OK;
}

enum err csv_read_file(struct csv *c, struct arena *a, const char *path, struct diag *d)
{
    char *text;
    size_t n;
    TRY(whole_file_read(&text, &n, a, path, CSV_FILE_B, d));
    return csv_read_text(c, a, path, text, n, d);
}

int csv_column(const struct csv *c, const char *name)
{
    for (int i = 0; i < c->n_col; i++)
        if (strcmp(c->head[i].text, name) == 0) return i;
    return -1;
}
