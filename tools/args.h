/* The command line of one verb: positional words, the verb's own flags (a table of options over a struct of the
 * verb), and the plan as flags (the rows of plan_opts). `--key value` and `--key=value` are the same; a yes-or-no
 * flag needs no value. A flag nobody knows is refused with the nearest one that somebody does. */
#ifndef TOOLS_ARGS_H
#define TOOLS_ARGS_H
#include "models/plan.h"
#include <stddef.h>

/* The middle of a row of flags: a yes-or-no, an int from lo to hi, a name of a list, a text in an array of chars.
 */
#define ARGS_AT(type, field) .at = offsetof(type, field), .size = sizeof(((type *)0)->field)
#define ARGS_BOOL(owner, field) .type = OPT_BOOL, ARGS_AT(owner, field), .hi = 1, .def = "0"
#define ARGS_INT(owner, field, low, high, text)                                                                    \
    .type = OPT_INT, ARGS_AT(owner, field), .lo = low, .hi = high, .def = text
#define ARGS_NAME(owner, field, list, text) .type = OPT_NAME, ARGS_AT(owner, field), .names = list, .def = text
#define ARGS_TEXT(owner, field, text) .type = OPT_TEXT, ARGS_AT(owner, field), .def = text

/* --help=completion and --help=man: the same for a shell and for roff (guide.h). */
enum args_help { ARGS_HELP_NO, ARGS_HELP_TEXT, ARGS_HELP_COMPLETION, ARGS_HELP_MAN };
struct args_spec {
    const char *verb, *words, *what;        /* "predict", "[PLAN]", one sentence                        */
    const char *program;                    /* NULL: moefold                                            */
    const struct opt *flag; int n_flag;     /* rows of a struct that the verb owns                      */
    int takes_plan;                         /* the plan's options are flags too                         */
    int min_words, max_words;
};
enum { ARGS_WORDS = 4 };
struct args {
    int json, help;                         /* every verb has these two; help: enum args_help           */
    const char *word[ARGS_WORDS]; int n_word;
    const char *(*plan)[2]; int n_plan;     /* pairs of key and text, in order, for plan_read_job       */
};

/* Fills `flags` (defaults first) and `to` from argv, which begins after the verb. */
enum err args_parse(struct args *to, void *flags, const struct args_spec *spec, struct arena *a, int argc,
                    char **argv, struct diag *d);
/* One more option of the plan, as if it had been a flag. */
void args_add(struct args *to, struct arena *a, const char *key, const char *text);
/* Usage and the table of flags (key, values, default, help) on stdout, in the form that was asked for. */
void args_help(const struct args_spec *spec, const struct args *args);
/* The plan that words and flags describe. `runs`: defaults for `run`. */
enum err args_job(struct job *j, struct arena *a, const struct args *args, int runs, struct diag *d);

#endif
