/* What fits badly in a plan that is legal, and what to change: groups that straddle NVLink domains, GPUs that stay idle
 * in them, batches too small for their pipeline, batches that few foldings divide. */
#ifndef TOOLS_COUNSEL_H
#define TOOLS_COUNSEL_H
#include "sim/search.h"
#include "tools/report.h"

/* about: "placement", "idle", "batch"; flags: what to add to the command, "" where it is none of its. */
struct counsel_row { const char *about, *says, *flags; };
extern const struct report_col counsel_cols[];
extern const int counsel_n_col;

enum { COUNSEL_ROWS = 8 };
/* Of a plan and its prediction; nothing is predicted again. Returns how many rows. */
int counsel_plan(struct counsel_row row[COUNSEL_ROWS], struct arena *a, const struct job *j, const struct predict *r);
/* Of a search whose batch fewer than half of the foldings divide: the batch near it that most divide. */
int counsel_batch(struct counsel_row row[COUNSEL_ROWS], struct arena *a, const struct job *j, const struct search_ask *ask,
                  const struct search_result *r);

#endif
