/* One plan's answer as rows: memory, communication, compute, time, cost, and what was asked besides. */
#ifndef TOOLS_VIEW_H
#define TOOLS_VIEW_H
#include "tools/advice.h"
#include "tools/answer.h"
#include "tools/bill.h"
#include "tools/contention.h"
#include "tools/counsel.h"
#include "tools/range.h"
#include "tools/sensitivity.h"
#include "tools/vary.h"

/* tokens 0: no cost. price 0: the system's. goodput: share of the time that trains. */
struct view_ask { char vary[256]; double tokens, price_usd_per_h, goodput; int32_t sensitivity, contention; };

struct stage_row { int32_t stage; struct predict_stage part; const char *mark; };
struct time_row { const char *line; double s, share; };
struct comm_row { const char *group, *op, *link; double bytes, total_s, exposed_s; };
struct place_row { const char *group, *link; struct place at; };
struct load_row { double imbalance, mean, most, dropped, lost_s; int32_t rank; };

struct view {
    const struct job *job;
    struct predict r;
    struct range range; const char *spread; /* of the step, 80 %; in words */
    const char *peak, *fits, *tokens, *params, *prices, *balance;
    struct load_row load;
    const char *reserved, *device;          /* of the worst stage, whose allocated bytes are r.peak_B */
    struct stage_row *stage;
    struct time_row time[ANSWER_LINES]; int n_time;
    struct comm_row comm[GROUP_COUNT]; int n_comm;
    struct place_row place[GROUP_COUNT]; int n_place;
    int32_t domains, idle_gpus;
    struct bill cost;
    struct vary_row *curve; int n_curve;
    struct sensitivity_row better[SENSITIVITY_ROWS]; int n_better;
    struct contention contention;           /* where links are shared as ops meet, when asked for */
    struct counsel_row counsel[COUNSEL_ROWS]; int n_counsel;
    struct advice advice;                   /* of a plan that does not fit */
};

extern const struct report_col view_head_cols[];        /* of struct view: the headline figures */
extern const int view_head_n_col;

/* Reads the plan of `args`, predicts it and answers what is asked; `pr` receives the program. The view is valid as
 * long as the arena. */
enum err view_collect(struct view *v, struct program *pr, struct arena *a, const struct args *args,
                      const struct view_ask *f, struct diag *d);
/* The tables that have rows, in order of interest; `mark`: the row that stands out, -1: none. Returns how many. */
struct view_table { const char *heading; struct report_list list; int mark; };
enum { VIEW_TABLES = 10 };
int view_tables(struct view_table t[VIEW_TABLES], const struct view *v, struct arena *a, const struct view_ask *f);
void view_show(const struct view *v, struct arena *a, const struct view_ask *f);
json_t *view_document(const struct view *v, struct arena *a, const struct view_ask *f);

#endif
