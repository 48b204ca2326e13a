/* A plan as Megatron-LM's arguments, and back (megatron/training/arguments.py and the dataclasses whose
 * fields it turns into arguments, main of 2026). What a plan says goes there and returns unchanged; what a
 * launch needs besides (kernels, overlaps, environment) goes there only. */
#ifndef TOOLS_MEGATRON_H
#define TOOLS_MEGATRON_H
#include "models/plan.h"

/* "--bf16", NULL; "--recompute-modules", "mlp moe_act". */
struct megatron_arg { const char *flag, *value; };
struct megatron_args { struct megatron_arg *arg; int n; };

/* ---- out (megatron_export.c) ---- */

/* All arguments of a checked job, the model's sizes among them; environment variables apart. ERR_CONFIG names
 * what Megatron-Core cannot run or has no argument for. */
enum err megatron_export(struct megatron_args *args, struct megatron_args *env, struct arena *a,
                         const struct job *j, struct diag *d);
/* The sizes of a model alone, MTP and what the plan decides left out. ERR_CONFIG: an architecture that
 * pretrain_gpt.py has not. */
enum err megatron_model(struct megatron_args *args, struct arena *a, const struct model *m, struct diag *d);
/* A bash script around torchrun; what it is called with (data, tokenizer, iterations) goes on to Megatron-LM.
 */
char *megatron_script(struct arena *a, const struct job *j, const struct megatron_args *args,
                      const struct megatron_args *env);

/* ---- in (megatron_words.c) ---- */

/* The arguments in a launch script or a file of arguments: words that begin with "--", with what follows them
 * on their line; quotes, comments and bash's arrays are understood, whatever has no "--" before it is passed
 * over. */
enum err megatron_read(struct megatron_args *args, struct arena *a, const char *name, const char *text,
                       struct diag *d);
/* The same from a recipe of Megatron-Bridge written out as YAML: `model.tensor_model_parallel_size: 2`. */
enum err megatron_read_yaml(struct megatron_args *args, struct arena *a, const struct cfg *c, struct diag *d);

/* ---- and on (megatron_import.c) ---- */

/* Options of a plan, as plan_read_job takes them, from arguments. `model` "": a built-in one with these sizes
 * is looked for; else it must have them. ERR_CONFIG: no such model (the nearest is named), arguments that
 * contradict each other, or say what no plan can. */
enum err megatron_import(const char *(**flag)[2], int *n_flag, struct arena *a,
                         const struct megatron_args *args, const char *model, struct diag *d);
/* The value of the last `flag`, "" for a switch, NULL when it is not there. */
const char *megatron_find(const struct megatron_args *args, const char *flag);

/* Whether the arguments keep experts even in a way that plans have not (sinkhorn, several losses at once). */
extern const char megatron_balance_flag[];
int megatron_balances_otherwise(const struct megatron_args *args);

/* What the plan made of arguments takes for granted and they do not say: defaults of Megatron-LM that a reader of the
 * script may not expect, and what every plan has that the script has not. Returns how many. */
enum { MEGATRON_NOTES = 8 };
int megatron_notes(const char *note[MEGATRON_NOTES], struct arena *a, const struct megatron_args *args, const struct job *j);

/* ---- what both go by (megatron.c) ---- */

/* One number or word: a plan's option under another name. */
struct megatron_same { const char *key, *flag; };
extern const struct megatron_same megatron_same[];
extern const int megatron_n_same;
/* One value of an option is these arguments ("" none). Of one option the row that says most wins. */
struct megatron_means { const char *key, *text, *args; };
extern const struct megatron_means megatron_means[];
extern const int megatron_n_means;
/* Options that are no argument: found otherwise, or of a prediction only. */
extern const char *const megatron_apart[];

void megatron_add(struct megatron_args *args, struct arena *a, const char *flag, const char *value);
/* Adds "--x 1 --y" word by word. */
void megatron_add_all(struct megatron_args *args, struct arena *a, const char *text);

#endif
