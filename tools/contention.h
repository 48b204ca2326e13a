/* predict and search --contention dynamic: the step once more, by events, where what runs at once shares links (sim_heap.h). */
#ifndef TOOLS_CONTENTION_H
#define TOOLS_CONTENTION_H
#include "models/fold.h"
#include "models/program.h"
#include "tools/report.h"

/* Of the stage that finishes last: a group's transfers with each link to itself, and as they went. */
struct contention_row { const char *group; double alone_s, shared_s, longer; };
struct contention { int32_t asked, last_stage; double step_s, longer; struct contention_row row[GROUP_COUNT]; int n; };
extern const struct report_col contention_cols[];
extern const int contention_n_col;

/* Values of --contention: "static", "dynamic". */
extern const char *const contention_names[];

enum { CONTENTION_ITEMS = 8000000 };
/* ERR_LIMIT: the step has more than CONTENTION_ITEMS ops. step_s: of the default prediction. */
enum err contention_of(struct contention *x, const struct program *pr, const struct job *j, double step_s, struct diag *d);

#endif
