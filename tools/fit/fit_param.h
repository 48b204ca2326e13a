/* What may be calibrated: a file of few physical quantities (configs/published/fit.yaml), each with what is known of it
 * before any run (a median and a spread in natural logarithms), the bounds that measurements set, and the keys of
 * system and stack files that it moves. A key is its base times all parameters that move it, so a calibration never
 * depends on the one before. None may speak of a row, a model or a source: there is no key for that. */
#ifndef TOOLS_FIT_PARAM_H
#define TOOLS_FIT_PARAM_H
#include "models/plan.h"

enum { FIT_PARAMS = 64 };

/* A key of some files. `names`: patterns of their names. */
struct fit_target {
    int of_stack;
    const struct cfg_node *names;       /* a text or a list of texts                      */
    const struct opt *opt;
    double base; const char *base_text; /* in the key's unit; as the file would say it    */
};
struct fit_param {
    const char *name, *source;
    double median, ln_sigma;            /* prior                                          */
    double low, high;                   /* never left                                     */
    struct fit_target *target; int n_target;
};
struct fit_params { struct cfg file; struct fit_param at[FIT_PARAMS]; int n; };

/* A file, or a name among the built-in ones ("fit"). Mistakes are refused with their place. */
enum err fit_param_read(struct fit_params *p, struct arena *a, const char *arg, struct diag *d);
enum err fit_param_read_text(struct fit_params *p, struct arena *a, const char *name, const char *text, struct diag *d);
/* Whether parameter i moves a key of this system or this stack. */
int fit_param_moves(const struct fit_params *p, int i, const char *system, const char *stack);
/* Sets the keys of a system as it was read (bare: before system_in_step) and of a stack. value: one a parameter. */
void fit_param_apply(const struct fit_params *p, const double *value, struct system *system, struct stack *stack);
/* The text of one key, base times value, in the unit of the base; NULL where nothing moves it. */
const char *fit_param_text(const struct fit_params *p, struct arena *a, const double *value, int of_stack,
                           const char *name, const char *key);

#endif
