/* Results for people and for programs from one description. A column says where a value lies in a struct, what it
 * is, its JSON key and its title; the same rows become a table (libsmartcols), lines of title and value, or JSON
 * (jansson). A column without a title is for programs only, one without a key for people only. */
#ifndef TOOLS_REPORT_H
#define TOOLS_REPORT_H
#include "models/base/arena.h"
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

enum report_kind {
    REPORT_TEXT,        /* const char *; NULL: nothing                       */
    REPORT_CHARS,       /* char[], in place                                  */
    REPORT_INT,         /* int32_t                                           */
    REPORT_LONG,        /* int64_t                                           */
    REPORT_BOOL,        /* int32_t                                           */
    REPORT_S,           /* double, seconds                                   */
    REPORT_B,           /* double, bytes                                     */
    REPORT_GIB,         /* double, bytes; the JSON value is in GiB           */
    REPORT_TERA,        /* double; the value printed is in units of 1e12     */
    REPORT_GIGA,        /* double; in units of 1e9                           */
    REPORT_SHARE,       /* double, a fraction; people see per cent           */
    REPORT_GAIN,        /* double, a fraction that may be small; people see per cent with its sign           */
    REPORT_RATIO,       /* double, two of a kind divided                     */
    REPORT_TENTHS,      /* double; people see one decimal                    */
    REPORT_WHOLE,       /* double; people see no decimals, thousands apart   */
    REPORT_SIX,         /* double; six digits, also when they are zeros      */
    REPORT_NUMBER,      /* double                                            */
};
struct report_col { const char *key, *title; enum report_kind kind; size_t at; };
struct report_list { const struct report_col *col; int n_col; const void *row; size_t row_B; int n_row; };

/* What a person reads in one cell. Returns `to`. */
enum { REPORT_CELL_B = 256 };
char *report_cell(char to[REPORT_CELL_B], const void *row, const struct report_col *c);
int report_is_text(enum report_kind k);             /* words, not a number                         */
/* A table under `heading`; row `mark` (-1: none) stands out on a terminal. Nothing when there are no rows. */
void report_table(const char *heading, const struct report_list *list, int mark);
/* One struct as lines of title and value. */
void report_lines(const char *heading, const struct report_col *col, int n_col, const void *row);
json_t *report_rows(const struct report_list *list);
/* Adds one struct's keys to `object`, and returns it. */
json_t *report_keys(json_t *object, const struct report_col *col, int n_col, const void *row);
json_t *report_real(double value);                  /* null when it is not finite                  */
/* Prints and releases the document: one on stdout. */
void report_document(json_t *document);
/* Bold on a terminal, plain elsewhere. */
void report_heading(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
