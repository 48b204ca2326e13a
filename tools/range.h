/* How far off predictions have been on measured runs that no calibration had seen (moefold-fit cv), and what follows for
 * one prediction: configs/published/range.yaml. */
#ifndef TOOLS_RANGE_H
#define TOOLS_RANGE_H
#include "sim/predict.h"

/* Which runs a prediction is like. OFF: most of its products are of sizes not measured on the system. */
enum range_class { RANGE_DENSE, RANGE_MOE, RANGE_DENSE_OFF, RANGE_MOE_OFF, RANGE_NEW_SYSTEM, RANGE_NEW_MODEL, RANGE_CLASSES };
const char *range_name(enum range_class c);
/* Share of the time of products beyond which a plan counts as off the measured grid. */
#define RANGE_OFF 0.5

/* Of ln(measured step / predicted step): 10 and 90 % lie below. rows: how many runs say so. */
struct range { double low, high; int rows; };
struct ranges { struct range of[RANGE_CLASSES]; const struct cfg_node *models, *systems; };

/* The built-in file. */
enum err range_read(struct ranges *r, struct arena *a, const char *arg, struct diag *d);
enum range_class range_class_of(const struct ranges *r, const struct job *j, double off_grid_share);
/* Between which the step lies with 80 %: never narrower than what the class's neighbours on the grid have. */
struct range range_step(const struct ranges *r, enum range_class c, double step_s);
/* Quantile of n values, as numpy's default: between ranks. Sorts them. */
double range_quantile(double *value, int n, double q);
/* The range of residuals ln(measured step / predicted step). */
struct range range_of(double *ln, int n);

#endif
