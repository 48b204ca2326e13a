/* Pieces of an answer that several verbs show: the plan's echo, what the program moves, where the time went. */
#ifndef TOOLS_ANSWER_H
#define TOOLS_ANSWER_H
#include "sim/predict.h"
#include "tools/report.h"

/* Every option of the plan as the answer used it, with dp, edp and n_micro, which follow. */
json_t *answer_plan(struct arena *a, const struct plan *p);
/* One line for people: "64 GPUs: tp 1 cp 1 pp 4 dp 16 | etp 1 ep 8 edp 2 | vpp 2, ...". */
char *answer_plan_line(struct arena *a, const struct plan *p);

/* The lines that a group's exposed communication is summed into: exposed.ep holds ep, etp and tp-ep, and so on. */
enum answer_line { ANSWER_TP, ANSWER_CP, ANSWER_EP, ANSWER_DP, ANSWER_PP, ANSWER_LINES };
const char *answer_line_name(enum answer_line l);
void answer_exposed(double exposed_s[ANSWER_LINES], const struct sim_lines *l);

#endif
