/* moefold list: the built-in models, systems, stacks and plans, each read in full, so that what is listed also
 * works. */
#include "tools/args.h"
#include "tools/report.h"
#include "tools/verb.h"
#include <stdio.h>
#include <string.h>

struct list_model { struct model m; const char *attention; double total, active, mtp; };
static const struct report_col model_cols[] = {
    { "name", "model", REPORT_CHARS, offsetof(struct list_model, m.name) },
    { "layers", "layers", REPORT_INT, offsetof(struct list_model, m.layers) },
    { "hidden", "hidden", REPORT_INT, offsetof(struct list_model, m.hidden) },
    { "attention", "attention", REPORT_TEXT, offsetof(struct list_model, attention) },
    { "experts", "experts", REPORT_INT, offsetof(struct list_model, m.experts) },
    { "topk", "top-k", REPORT_INT, offsetof(struct list_model, m.topk) },
    { "params_total", NULL, REPORT_NUMBER, offsetof(struct list_model, total) },
    { "params_active", NULL, REPORT_NUMBER, offsetof(struct list_model, active) },
    { "params_mtp", NULL, REPORT_NUMBER, offsetof(struct list_model, mtp) },
    { NULL, "total, 1e9", REPORT_GIGA, offsetof(struct list_model, total) },
    { NULL, "active, 1e9", REPORT_GIGA, offsetof(struct list_model, active) },
};
static const struct report_col system_cols[] = {
    { "name", "system", REPORT_CHARS, offsetof(struct system, name) },
    { "memory_gib", "memory", REPORT_GIB, offsetof(struct system, memory_B) },
    { "peak_bf16_tflops", "bf16 TFLOPS", REPORT_TERA, offsetof(struct system, peak_flop_per_s[DT_BF16]) },
    { "peak_fp32_tflops", "fp32 TFLOPS", REPORT_TERA, offsetof(struct system, peak_flop_per_s[DT_F32]) },
    { "hbm_tb_per_s", "HBM TB/s", REPORT_TERA, offsetof(struct system, hbm_B_per_s) },
    { "domain", "NVLink domain", REPORT_INT, offsetof(struct system, domain) },
    { "nvlink_gb_per_s", "NVLink GB/s", REPORT_GIGA, offsetof(struct system, nvlink_B_per_s) },
    { "nic_gb_per_s", "NIC GB/s", REPORT_GIGA, offsetof(struct system, nic_B_per_s) },
};
struct list_stack { struct stack s; char schedules[96], recomputes[96]; };
static const struct report_col stack_cols[] = {
    { "name", "stack", REPORT_CHARS, offsetof(struct list_stack, s.name) },
    { "runs", "runs here", REPORT_BOOL, offsetof(struct list_stack, s.runs) },
    { "schedules", "schedules", REPORT_CHARS, offsetof(struct list_stack, schedules) },
    { "recomputes", "recompute", REPORT_CHARS, offsetof(struct list_stack, recomputes) },
};
struct list_plan { const char *name; struct plan p; };
static const struct report_col plan_cols[] = {
    { "name", "plan", REPORT_TEXT, offsetof(struct list_plan, name) },
    { "model", "model", REPORT_CHARS, offsetof(struct list_plan, p.model) },
    { "system", "system", REPORT_CHARS, offsetof(struct list_plan, p.system) },
    { "gpus", "GPUs", REPORT_INT, offsetof(struct list_plan, p.gpus) },
    { "pp", "pp", REPORT_INT, offsetof(struct list_plan, p.pp) },
    { "vpp", "vpp", REPORT_INT, offsetof(struct list_plan, p.vpp) },
    { "tp", "tp", REPORT_INT, offsetof(struct list_plan, p.tp) },
    { "cp", "cp", REPORT_INT, offsetof(struct list_plan, p.cp) },
    { "dp", "dp", REPORT_INT, offsetof(struct list_plan, p.dp) },
    { "etp", "etp", REPORT_INT, offsetof(struct list_plan, p.etp) },
    { "ep", "ep", REPORT_INT, offsetof(struct list_plan, p.ep) },
    { "edp", "edp", REPORT_INT, offsetof(struct list_plan, p.edp) },
    { "seq", "seq", REPORT_INT, offsetof(struct list_plan, p.seq) },
    { "gbs", "global batch", REPORT_INT, offsetof(struct list_plan, p.gbs) },
};

static enum err model_row(void *row, struct arena *a, const char *name, struct diag *d)
{
    struct list_model *to = row;
    TRY(model_read(&to->m, a, name, d));
    const struct model_params n = model_params(&to->m);
    to->attention = to->m.attention == ATTENTION_MLA ? "MLA" : to->m.kv_heads < to->m.heads ? "GQA" : "MHA";
    to->total = (double)n.total;
    to->active = (double)n.active;
    to->mtp = (double)n.mtp;
    return OK;
}

static enum err system_row(void *row, struct arena *a, const char *name, struct diag *d)
{
    return system_read(row, a, name, d);
}

/* "a+b" of the names whose bits are set. */
static void names_of(char *to, size_t to_B, int32_t bits, const char *const *names)
{
    size_t at = 0;
    for (int i = 0; names[i] && at < to_B; i++)
        if (bits >> i & 1) at += (size_t)snprintf(to + at, to_B - at, "%s%s", at ? "+" : "", names[i]);
}

static enum err stack_row(void *row, struct arena *a, const char *name, struct diag *d)
{
    struct list_stack *to = row;
    TRY(stack_read(&to->s, a, name, d));
    names_of(to->schedules, sizeof to->schedules, to->s.schedules, stack_schedules);
    names_of(to->recomputes, sizeof to->recomputes, to->s.recomputes, stack_recomputes);
    return OK;
}

static enum err plan_row(void *row, struct arena *a, const char *name, struct diag *d)
{
    struct list_plan *to = row;
    struct job *j = arena_alloc(a, sizeof *j);
    TRY(plan_read_job(j, a, name, 0, NULL, 0, d));
    to->name = name;
    to->p = j->plan;
    return OK;
}

static const struct list_kind {
    const char *kind, *heading;
    const struct report_col *col; int n_col;
    size_t row_B;
    enum err (*row)(void *row, struct arena *a, const char *name, struct diag *d);
} kinds[] = {
    { "models", "Models", model_cols, LEN(model_cols), sizeof(struct list_model), model_row },
    { "systems", "Systems", system_cols, LEN(system_cols), sizeof(struct system), system_row },
    { "stacks", "Stacks", stack_cols, LEN(stack_cols), sizeof(struct list_stack), stack_row },
    { "plans", "Plans", plan_cols, LEN(plan_cols), sizeof(struct list_plan), plan_row },
};

static enum err rows_of(struct report_list *list, struct arena *a, const struct list_kind *k, struct diag *d)
{
    char *rows = arena_alloc(a, (size_t)(cfg_embedded_n + 1) * k->row_B);
    *list = (struct report_list){ k->col, k->n_col, rows, k->row_B, 0 };
    for (int i = 0; i < cfg_embedded_n; i++) {
        if (strcmp(cfg_embedded[i].kind, k->kind) != 0) continue;
        TRY(k->row(rows + (size_t)list->n_row * k->row_B, a, cfg_embedded[i].name, d));
        list->n_row++;
    }
    return OK;
}

static enum err list_kinds(const struct args *args, struct arena *a, json_t *document, struct diag *d)
{
    const char *only = args->n_word ? args->word[0] : NULL;
    int shown = 0;
    for (int i = 0; i < LEN(kinds); i++) {
        struct report_list list;
        if (only && strcmp(only, kinds[i].kind) != 0) continue;
        TRY(rows_of(&list, a, &kinds[i], d));
        if (args->json) json_object_set_new(document, kinds[i].kind, report_rows(&list));
        else report_table(kinds[i].heading, &list, -1);
        shown++;
    }
    return shown ? OK : fail(d, ERR_CONFIG, "'%s': list knows models, systems, stacks, plans", only);
}

enum err verb_list(int argc, char **argv, struct diag *d)
{
    static const struct args_spec spec = { .verb = "list", .words = "[models|systems|stacks|plans]", .max_words = 1,
                                           .what = "the built-in descriptions" };
    struct arena a = { 0 };
    struct args args;
    json_t *document = NULL;
    enum err e = args_parse(&args, NULL, &spec, &a, argc, argv, d);
    if (e == OK && args.help) args_help(&spec, &args);
    else if (e == OK) e = list_kinds(&args, &a, document = json_object(), d);
    if (e == OK && args.json && !args.help) report_document(document);
    else json_decref(document);
    arena_free(&a);
    return e;
}
