/* Predictions against runs that others measured and published. A row of the table becomes a plan by rules that are a
 * file (configs/published/sources.yaml): which option a column sets, what a blank means, how a source counts.
 * Whatever had to be inferred or approximated on the way is kept with the row, in words. */
#ifndef TOOLS_VALIDATE_H
#define TOOLS_VALIDATE_H
#include "sim/predict.h"
#include "tools/csv.h"
#include "tools/range.h"

/* ---- the rules (validate_rules.c) ---- */

struct validate_rules { struct cfg file; const struct cfg_node *columns, *blank, *sources; };

/* How a source counts, and the plan options it sets. */
struct validate_source {
    const char *pattern;
    const struct cfg_node *set, *models;    /* maps, or NULL: plan options; what it trained under a name */
    int full_attention, recomputed;     /* of its FLOP: the whole square; layers four times forward      */
    double peak_flop_per_s;             /* of its MFU; 0: the system's                                   */
    int allocated, first_rank;          /* of its memory                                                 */
};

/* One record of the table, as the rules see it. */
struct validate_record { const struct csv *csv; int row; int moe; };

/* The rules of a file, "sources" being the built-in ones; or of a text. Mistakes are refused with their place. */
enum err validate_rules_read(struct validate_rules *r, struct arena *a, const char *arg, struct diag *d);
enum err validate_rules_read_text(struct validate_rules *r, struct arena *a, const char *name, const char *text,
                                  struct diag *d);
/* A cell, "" where it is blank or the table has no such column. "kind" is moe or dense. */
const char *validate_rules_cell(const struct validate_record *r, const char *column);
/* What a blank in `column` stands for, NULL where no rule fits; a computed value is in `a`. */
const char *validate_rules_blank(const struct validate_rules *r, struct arena *a, const struct validate_record *of,
                                 const char *column, const struct model *m);
struct validate_source validate_rules_source(const struct validate_rules *r, const char *source);

/* ---- a row ---- */

enum validate_unit { VALIDATE_TOKENS, VALIDATE_STEP, VALIDATE_TFLOPS, VALIDATE_MFU, VALIDATE_NOTHING };

/* Shares of the step of the stage that finishes last. */
struct validate_share { double gemm, attention, memory, comm, host, bubble, optimizer; };

struct validate_row {
    const char *id, *source, *model, *system, *precision, *use, *kind;     /* kind: moe, dense                    */
    int index;                                  /* of the record in the table                                     */
    int ab;                                     /* takes part in A/B pairs: use score or ab                       */
    int scored;                                 /* and counts in error figures: use score                         */
    const char *skipped;                        /* why it has no prediction; NULL: it has one                     */
    const char *inferred, *approximated;        /* "mbs 1; vp 4", "" when nothing was                             */
    const char *mapping, *by;                   /* "whole" or "approximated"; a column that was asked for        */
    enum validate_unit unit;
    double measured, predicted;                 /* in that unit                                                   */
    double error;                               /* |predicted / measured - 1|                                     */
    double fast;                                /* predicted over measured rate - 1: above 0 is too fast          */
    double rate, measured_rate;                 /* tokens per second and GPU; the measured one by `fast`          */
    double measured_mem_B, predicted_mem_B, mem_error;     /* NAN where the row has none                          */
    int fits;
    struct validate_share share;
    double low, high;                           /* 80 %, in that unit                                             */
    double cv_error;                            /* when its half was not in the fit; NAN: it has never been in one */
    int covered;                                /* whether the range holds it, by that residual where there is one */
};

/* ---- what the table says of a row (validate_row.c) ---- */

/* Without a prediction, whose fields are NAN or "". What is no number where one belongs is bad input, not a skipped
 * row. `by`: a column to group by, or "". */
enum err validate_row_read(struct validate_row *row, const struct validate_record *of, const char *by, struct diag *d);
/* Every row has an id of its own, or it is refused with its place. */
enum err validate_row_ids(const struct csv *c, struct diag *d);

/* ---- from a record to a plan (validate_map.c) ---- */

/* The job of record `of->row`, or ERR_CONFIG with why there is none. Lists what was inferred and approximated.
 * `of->moe` is set on the way. */
enum err validate_map_job(struct job *j, struct validate_row *row, struct arena *a,
                          const struct validate_rules *rules, struct validate_record *of, struct diag *d);

/* ---- what a source measured, and what it would have measured of a prediction (validate_count.c) ---- */

const char *validate_count_unit(enum validate_unit u);          /* "tokens_per_s_gpu", .. */
/* The first of tokens/s, step time, TFLOPS, MFU that the record has; VALIDATE_NOTHING. */
enum err validate_count_measured(enum validate_unit *u, double *value, const struct validate_record *of,
                                 struct diag *d);
/* A cell's number, NAN where it is blank. Refuses, with its place, what is no number above 0. */
enum err validate_count_number(double *value, const struct validate_record *of, const char *column, struct diag *d);
/* FLOP per token under a source's rule. Full attention is the causal count at twice the length (no windows). */
double validate_count_flop(const struct validate_source *s, const struct job *j);
/* The prediction in a row's unit. */
double validate_count_predicted(enum validate_unit u, const struct validate_source *s, const struct job *j,
                                const struct predict *r);
/* Bytes as the source reports them. */
double validate_count_memory(const struct validate_source *s, const struct predict *r);
struct validate_share validate_count_share(const struct sim_lines *l);

/* ---- ranges (validate_range.c) ---- */

/* How far off each published run was when its half was not in the fit (configs/published/cv.yaml), and the ranges. */
struct validate_cv { struct cfg file; struct ranges ranges; };
enum err validate_range_read(struct validate_cv *cv, struct arena *a, struct diag *d);
/* Fills low, high, cv_error and covered of a row that is predicted. */
enum err validate_range_row(struct validate_row *row, const struct validate_cv *cv, const struct job *j,
                            const struct predict *r, struct diag *d);

/* ---- errors, groups, pairs (validate_error.c, validate_group.c, validate_pair.c) ---- */

struct validate_error { int n; double median, mean, p90, max; };        /* NAN when n is 0 */
struct validate_error validate_error_of(const double *error, int n);
/* The middle of the sorted values, between two where n is even; NAN when n is 0. */
double validate_error_median(const double *value, int n);

/* Scored rows that have something in common. `fast`: the median of theirs; `share`: medians too. */
struct validate_group { const char *name; struct validate_error error, cv; double fast; struct validate_share share; };
/* Groups by a text of the row, in the order in which they first come. */
int validate_group_by(struct validate_group **group, struct arena *a, const struct validate_row *row, int n_row,
                      size_t text_at);
/* For each part of a step the quarter of all scored rows where its share is largest. */
int validate_group_quarters(struct validate_group **group, struct arena *a, const struct validate_row *row,
                            int n_row);
/* What was inferred or approximated, without reasons, and in how many rows; the most frequent first. */
struct validate_note { const char *text; int rows; };
int validate_group_notes(struct validate_note **note, struct arena *a, const struct validate_row *row, int n_row,
                         size_t text_at);

/* Two rows of one source and model that differ in one setting column. */
struct validate_pair {
    int a, b;                           /* of the rows                                                    */
    const char *column;                 /* NULL: no column says what changed                              */
    double measured, predicted;         /* rate of b over rate of a, - 1                                  */
    int changed, right, close;          /* measured above 5 %; same sign; logarithms within a factor 1.5  */
};
/* Every pair of predicted rows with use score or ab. Settings are the columns of the rules; a blank against a value
 * is no difference that a column says, and takes the pair out. Pairs without any difference are given when the rows
 * follow each other: steps of a log. Returns how many. */
int validate_pair_all(struct validate_pair **pair, struct arena *a, const struct csv *c,
                      const struct validate_rules *rules, const struct validate_row *row, int n_row);

#endif
