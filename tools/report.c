/* The one place where a value becomes text or JSON. Tables go through libsmartcols, which knows the terminal's
 * width and colours; documents go through jansson. Neither ever sees NaN: a number that is not finite is null, or a
 * dash. */
#include "tools/report.h"
#include "models/base/units.h"
#include <libsmartcols/libsmartcols.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TEXT_B = REPORT_CELL_B };

static double number_at(const void *row, const struct report_col *c)
{
    const char *at = (const char *)row + c->at;
    int32_t i;
    int64_t l;
    double x;
    switch (c->kind) {
    case REPORT_INT:
    case REPORT_BOOL: memcpy(&i, at, sizeof i); return i;
    case REPORT_LONG: memcpy(&l, at, sizeof l); return (double)l;
    default: memcpy(&x, at, sizeof x); return x;
    }
}

static const char *text_at(const void *row, const struct report_col *c)
{
    const char *at = (const char *)row + c->at, *text;
    if (c->kind == REPORT_CHARS) return at;
    memcpy(&text, at, sizeof text);
    return text;
}

int report_is_text(enum report_kind k)
{
    return k == REPORT_TEXT || k == REPORT_CHARS;
}

/* A long count with spaces between thousands. */
static void print_grouped(char *to, size_t to_B, double value)
{
    char digits[64];
    const int n = snprintf(digits, sizeof digits, "%.0f", value);
    size_t at = 0;
    for (int i = 0; i < n && at + 2 < to_B; i++) {
        if (i > 0 && digits[i - 1] != '-' && (n - i) % 3 == 0) to[at++] = ' ';
        to[at++] = digits[i];
    }
    to[at] = '\0';
}

char *report_cell(char to[TEXT_B], const void *row, const struct report_col *c)
{
    if (report_is_text(c->kind)) {
        const char *text = text_at(row, c);
        snprintf(to, TEXT_B, "%s", text ? text : "");
        return to;
    }
    const double x = number_at(row, c);
    if (!isfinite(x)) {
        snprintf(to, TEXT_B, "-");
        return to;
    }
    switch (c->kind) {
    case REPORT_INT:    snprintf(to, TEXT_B, "%.0f", x); break;
    case REPORT_WHOLE:
    case REPORT_LONG:   print_grouped(to, TEXT_B, x); break;
    case REPORT_BOOL:   snprintf(to, TEXT_B, "%s", x != 0 ? "yes" : "no"); break;
    case REPORT_S:      units_human(to, TEXT_B, x, UNIT_S); break;
    case REPORT_B:
    case REPORT_GIB:    units_human(to, TEXT_B, x, UNIT_B); break;
    case REPORT_TERA:   snprintf(to, TEXT_B, "%.4g", x / 1e12); break;
    case REPORT_GIGA:   snprintf(to, TEXT_B, "%.5g", x / 1e9); break;
    case REPORT_SHARE:  snprintf(to, TEXT_B, "%.1f %%", 100 * x); break;
    case REPORT_GAIN:   snprintf(to, TEXT_B, x == 0 ? "0 %%" : "%+.3g %%", 100 * x); break;
    case REPORT_RATIO:  snprintf(to, TEXT_B, "%.2f", x); break;
    case REPORT_TENTHS: snprintf(to, TEXT_B, "%.1f", x); break;
    case REPORT_SIX:    snprintf(to, TEXT_B, "%#.6g", x); break;
    default:            snprintf(to, TEXT_B, "%.6g", x); break;
    }
    return to;
}

void report_heading(const char *format, ...)
{
    char text[TEXT_B];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    printf(isatty(STDOUT_FILENO) ? "\n\033[1m%s\033[0m\n" : "\n%s\n", text);
}

static void add_line(struct libscols_table *table, const struct report_list *l, int i, int bold)
{
    struct libscols_line *line = scols_table_new_line(table, NULL);
    const char *row = (const char *)l->row + (size_t)i * l->row_B;
    int at = 0;
    for (int c = 0; c < l->n_col; c++) {
        char text[TEXT_B];
        if (!l->col[c].title) continue;
        report_cell(text, row, &l->col[c]);
        scols_line_set_data(line, at++, text);
    }
    if (bold) scols_line_set_color(line, "\033[1m");
}

void report_table(const char *heading, const struct report_list *list, int mark)
{
    if (list->n_row == 0) return;
    struct libscols_table *table = scols_new_table();
    if (!table) abort();
    if (heading) report_heading("%s", heading);
    fflush(stdout);
    scols_table_set_stream(table, stdout);
    scols_table_enable_colors(table, isatty(STDOUT_FILENO));
    scols_table_set_column_separator(table, "  ");
    for (int c = 0; c < list->n_col; c++)
        if (list->col[c].title)
            scols_table_new_column(table, list->col[c].title, 0, report_is_text(list->col[c].kind) ? 0 : SCOLS_FL_RIGHT);
    for (int i = 0; i < list->n_row; i++) add_line(table, list, i, i == mark);
    scols_print_table(table);
    scols_unref_table(table);
}

void report_lines(const char *heading, const struct report_col *col, int n_col, const void *row)
{
    size_t width = 0;
    for (int c = 0; c < n_col; c++)
        if (col[c].title && strlen(col[c].title) > width) width = strlen(col[c].title);
    if (heading) report_heading("%s", heading);
    for (int c = 0; c < n_col; c++) {
        char text[TEXT_B];
        if (!col[c].title) continue;
        report_cell(text, row, &col[c]);
        if (text[0]) printf("  %-*s  %s\n", (int)width, col[c].title, text);
    }
}

json_t *report_real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *value_json(const void *row, const struct report_col *c)
{
    if (report_is_text(c->kind)) {
        const char *text = text_at(row, c);
        json_t *s = text ? json_string(text) : NULL;
        return s ? s : json_null();         /* also for bytes that are not UTF-8 */
    }
    const double x = number_at(row, c);
    switch (c->kind) {
    case REPORT_INT:
    case REPORT_LONG: return json_integer((json_int_t)x);
    case REPORT_BOOL: return json_boolean(x != 0);
    case REPORT_GIB:  return report_real(x / 1073741824.0);
    case REPORT_TERA: return report_real(x / 1e12);
    case REPORT_GIGA: return report_real(x / 1e9);
    default:          return report_real(x);
    }
}

json_t *report_keys(json_t *object, const struct report_col *col, int n_col, const void *row)
{
    for (int c = 0; c < n_col; c++)
        if (col[c].key) json_object_set_new(object, col[c].key, value_json(row, &col[c]));
    return object;
}

json_t *report_rows(const struct report_list *list)
{
    json_t *rows = json_array();
    for (int i = 0; i < list->n_row; i++)
        json_array_append_new(rows, report_keys(json_object(), list->col, list->n_col,
                                                (const char *)list->row + (size_t)i * list->row_B));
    return rows;
}

void report_document(json_t *document)
{
    json_dumpf(document, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(12));
    fputc('\n', stdout);
    json_decref(document);
}
