/* What a table says of a row before anything is predicted. */
#include "tools/validate.h"
#include <math.h>
#include <string.h>

static enum err use_of(struct validate_row *row, const struct validate_record *of, struct diag *d)
{
    const char *use = validate_rules_cell(of, "use");
    const int score = !*use || strcmp(use, "score") == 0, ab = strcmp(use, "ab") == 0;
    const int column = csv_column(of->csv, "use");
    row->use = *use ? use : "score";
    row->scored = score;
    row->ab = score || ab;
    if (score || ab || strcmp(use, "no") == 0) return OK;
    return csv_fail(d, of->csv, &of->csv->cell[(size_t)of->row * (size_t)of->csv->n_col + (size_t)column],
                    "use '%s' is none of score, ab, no", cfg_shown(use).text);
}

enum err validate_row_read(struct validate_row *row, const struct validate_record *of, const char *by,
                           struct diag *d)
{
    const double none = (double)NAN;
    double mem_gib;
    *row = (struct validate_row){ .index = of->row, .kind = "", .inferred = "", .approximated = "", .predicted = none,
                                  .error = none, .fast = none, .rate = none, .measured_rate = none,
                                  .predicted_mem_B = none, .mem_error = none, .low = none, .high = none,
                                  .cv_error = none };
    row->id        = validate_rules_cell(of, "id");
    row->source    = validate_rules_cell(of, "source");
    row->model     = validate_rules_cell(of, "model");
    row->system    = validate_rules_cell(of, "system");
    row->precision = validate_rules_cell(of, "precision");
    row->by        = validate_rules_cell(of, by);
    if (!*row->by) row->by = "(blank)";
    TRY(use_of(row, of, d));
    TRY(validate_count_measured(&row->unit, &row->measured, of, d));
    TRY(validate_count_number(&mem_gib, of, "peak_mem_gib", d));
    row->measured_mem_B = mem_gib * (1 << 30);
    return OK;
}

enum err validate_row_ids(const struct csv *c, struct diag *d)
{
    const int id = csv_column(c, "id");
    if (id < 0) return csv_fail(d, c, &c->head[0], "no column is called id: the first line names the columns");
    for (int i = 0; i < c->n_row; i++) {
        const struct csv_cell *at = &c->cell[(size_t)i * (size_t)c->n_col + (size_t)id];
        if (!*at->text) return csv_fail(d, c, at, "id is blank: every row has one of its own");
        for (int k = 0; k < i; k++)
            if (strcmp(at->text, c->cell[(size_t)k * (size_t)c->n_col + (size_t)id].text) == 0)
                return csv_fail(d, c, at, "id '%s' stands twice, first in record %d: rename one",
                                cfg_shown(at->text).text, k + 1);
    }
    return OK;
}
