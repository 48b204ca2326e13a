/* Pieces of an answer that several verbs show: the plan's echo, what the program moves, where the time went. */
#ifndef TOOLS_ANSWER_H
#define TOOLS_ANSWER_H
#include "sim/predict.h"
#include "tools/report.h"

/* Every option of the plan as the answer used it, with dp, edp and n_micro, which follow. */
json_t *answer_plan(struct arena *a, const struct plan *p);
/* One line for people: "pp 4 x (tp 1 cp 1 dp 16 | etp 1 ep 8 edp 2), interleaved, vpp 2, ...", and at its end what is
 * not as usual. */
char *answer_plan_line(struct arena *a, const struct plan *p);

/* Where a step went: the lines sum to the step, which is the last. exposed.ep holds ep, etp and tp-ep, and so on.
 */
#define ANSWER_LINE_LIST(X)                                                                                        \
    X(COMPUTE, "compute")                                                                                          \
    X(TP, "exposed tp") X(CP, "exposed cp") X(EP, "exposed ep, etp") X(DP, "exposed dp, edp") X(PP, "exposed pp")  \
        X(OFFLOAD, "offload") X(HOST, "host") X(BUBBLE, "bubble") X(OPTIMIZER, "optimizer") X(UNACCOUNTED, "unaccounted")                \
            X(STEP, "step")
enum answer_line {
#define X(id, name) ANSWER_##id,
    ANSWER_LINE_LIST(X)
#undef X
    ANSWER_LINES
};
const char *answer_line_name(enum answer_line l);
void answer_lines(double line_s[ANSWER_LINES], const struct sim_lines *l);

#endif
