/* published_best: is the layout of a published best run among the plans within 10 % of our best? Of every model and
 * cluster with NeMo rows the run with most tokens/s a GPU: its plan predicted, and the best plan that a
 * search finds for the same GPUs, batch, precision, optimizer, dispatcher and offload. Minutes; no test.
 * Usage: published_best [RUNS.csv] [MODEL] */
#include "sim/search.h"
#include "tools/answer.h"
#include "tools/validate.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* What a search may choose; the rest is the run's. */
static const char *const open_keys[] = { "tp", "cp", "pp", "vpp", "etp", "ep", "order", "layout", "schedule", "vpp-group", "mbs",
                                         "recompute", "ep-overlap", "split-wgrad", "sp", "domain-gpus", NULL };

#define WITHIN 0.10

static int is_open(const char *key)
{
    for (int i = 0; open_keys[i]; i++)
        if (strcmp(open_keys[i], key) == 0) return 1;
    return 0;
}

/* The run's plan with what a search chooses left open. */
static enum err open_job(struct job *to, struct search_ask *ask, struct arena *a, const struct job *j, struct diag *d)
{
    const char *flag[64][2];
    int n = 0;
    for (int i = 0; i < plan_n_opt && n < 64; i++) {
        char text[1024];
        if (is_open(plan_opts[i].key)) continue;
        flag[n][0] = plan_opts[i].key;
        flag[n++][1] = arena_strdup(a, cfg_echo(text, sizeof text, &j->plan, &plan_opts[i]));
        ask->fixed[i] = 1;
    }
    return plan_read_open(to, a, n, (const char *const(*)[2])flag, d);
}

struct best { const char *model, *system; int row; double tokens; };

static int find(const struct best *b, int n, const char *model, const char *system)
{
    for (int i = 0; i < n; i++)
        if (strcmp(b[i].model, model) == 0 && strcmp(b[i].system, system) == 0) return i;
    return n;
}

/* The fastest row of each model and system. */
static int best_rows(struct best *b, const struct csv *c, const char *only)
{
    int n = 0;
    for (int r = 0; r < c->n_row && n < 256; r++) {
        const struct validate_record of = { c, r, 0 };
        const char *model = validate_rules_cell(&of, "model"), *system = validate_rules_cell(&of, "system");
        const double tokens = strtod(validate_rules_cell(&of, "tokens_per_s_gpu"), NULL);
        if (strncmp(validate_rules_cell(&of, "source"), "nemo", 4) || strcmp(validate_rules_cell(&of, "use"), "score")) continue;
        if (*only && strcmp(only, model)) continue;
        const int i = find(b, n, model, system);
        if (i == n) b[n++] = (struct best){ model, system, r, tokens };
        else if (tokens > b[i].tokens) b[i].row = r, b[i].tokens = tokens;
    }
    return n;
}

struct said { int searched, within, unwoven; };

/* How much slower the run's layout is than the best plan found; woven passes only where the run wove, or not. */
static enum err slower_by(double *slower, struct search_result *r, struct arena *a, const struct job *j, double step_s, int weave,
                          struct diag *d)
{
    struct job *open = arena_alloc(a, sizeof *open);
    struct search_ask ask = { .top = 1 };
    *r = (struct search_result){ 0 };
    TRY(open_job(open, &ask, a, j, d));
    if (!weave) {
        open->plan.ep_overlap = j->plan.ep_overlap;
        ask.fixed[cfg_opt(plan_opts, plan_n_opt, "ep-overlap") - plan_opts] = 1;
    }
    TRY(search_run(r, a, open, &ask, d));
    *slower = step_s / r->hit[0].step_s - 1;
    return OK;
}

static void compare(struct said *said, const struct validate_rules *rules, const struct csv *c, const struct best *b)
{
    struct arena a = { 0 };
    struct job *j = arena_alloc(&a, sizeof *j);
    struct validate_record of = { c, b->row, 0 };
    struct validate_row row = { .source = validate_rules_cell(&of, "source"), .model = b->model };
    struct search_result any, as_run;
    struct predict p;
    struct diag d = { "" };
    double slower, unwoven;
    enum err e = validate_map_job(j, &row, &a, rules, &of, &d);
    if (e == OK) predict_job(&p, NULL, &a, j);
    if (e == OK) e = slower_by(&slower, &any, &a, j, p.step_s, 1, &d);
    if (e == OK) e = slower_by(&unwoven, &as_run, &a, j, p.step_s, 0, &d);
    if (e != OK) printf("%-26s %-12s: %s\n", b->model, b->system, d.text);
    else {
        said->searched++;
        said->within += slower <= WITHIN;
        said->unwoven += unwoven <= WITHIN;
        printf("%-26s %-12s %5d %-9s %8.0f %8.0f %8.0f  %+6.1f %%  %+6.1f %%%s%s%s\n", b->model, b->system, j->plan.gpus,
               validate_rules_cell(&of, "precision"), b->tokens, p.tokens_per_s_gpu, any.hit[0].tokens_per_s_gpu, 100 * slower,
               100 * unwoven, unwoven <= WITHIN ? "" : "  OUT", p.feasible ? "" : ", does not fit here",
               any.proven && as_run.proven ? "" : ", best not proven");
        printf("    published      %s\n    best           %s\n", answer_plan_line(&a, &j->plan), answer_plan_line(&a, &any.hit[0].plan));
        if (any.hit[0].plan.ep_overlap != j->plan.ep_overlap) printf("    woven as run   %s\n", answer_plan_line(&a, &as_run.hit[0].plan));
    }
    fflush(stdout);
    arena_free(&a);
}

int main(int argc, char **argv)
{
    struct arena a = { 0 };
    struct diag d = { "" };
    struct validate_rules rules;
    struct csv c;
    struct best b[256];
    enum err e = validate_rules_read(&rules, &a, "sources", &d);
    if (e == OK) e = csv_read_file(&c, &a, argc > 1 ? argv[1] : "configs/published/runs.csv", &d);
    if (e != OK) {
        fprintf(stderr, "published_best: %s\n", d.text);
        return 2;
    }
    const int n = best_rows(b, &c, argc > 2 ? argv[2] : "");
    struct said said = { 0 };
    printf("tokens/s/GPU: measured, predicted for its layout, of the best plan found; how much slower its layout's step is than\n"
           "the best plan's, and than that of plans that weave passes only where it did\n");
    for (int i = 0; i < n; i++) compare(&said, &rules, &c, &b[i]);
    printf("of %d runs %d can be searched; layouts within 10 %% of the best plan: %d, of the best that weaves only as they did: %d\n", n,
           said.searched, said.within, said.unwoven);
    arena_free(&a);
    return 0;
}
