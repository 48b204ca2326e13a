/* Reads tables as RFC 4180 writes them: a line of names, then records, cells in commas, quotes around cells that hold
 * commas, quotes or line breaks; LF or CRLF. Every refusal says FILE:LINE:COLUMN (columns in bytes, from 1).
 * Refused: no header, empty and repeated names, records with more or fewer cells than the header, text around
 * quotes, quotes that never end, control characters, files over 16 MiB. */
#ifndef TOOLS_CSV_H
#define TOOLS_CSV_H
#include "models/base/arena.h"
#include "models/base/err.h"

struct csv_cell { const char *text; int line, column; };    /* unquoted; where it begins in the file */
struct csv {
    const char *name;                   /* of the file, for messages                         */
    int n_row, n_col;                   /* records without the header                        */
    struct csv_cell *head;              /* [n_col]                                           */
    struct csv_cell *cell;              /* [n_row * n_col], record after record              */
};

enum err csv_read_text(struct csv *c, struct arena *a, const char *name, const char *text, size_t text_B,
                       struct diag *d);
enum err csv_read_file(struct csv *c, struct arena *a, const char *path, struct diag *d);
/* Which column has this name, or -1. */
int csv_column(const struct csv *c, const char *name);
/* ERR_CONFIG as "FILE:LINE:COLUMN: text". */
enum err csv_fail(struct diag *d, const struct csv *c, const struct csv_cell *at, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
