/* Collects what sim knows of one plan into rows of columns; the same rows are predict's tables, its document and the
 * page of report. */
#include "tools/view.h"
#include "tools/answer.h"
#include <math.h>
#include <stddef.h>
#include <string.h>

const struct report_col view_head_cols[] = {
    { "step_s", "step", REPORT_S, offsetof(struct view, r.step_s) },
    { NULL, "  80 % within", REPORT_TEXT, offsetof(struct view, spread) },
    { "tokens_per_s_gpu", "tokens/s/GPU", REPORT_TENTHS, offsetof(struct view, r.tokens_per_s_gpu) },
    { "tflops_gpu", "model TFLOPS/GPU", REPORT_TENTHS, offsetof(struct view, r.tflops_gpu) },
    { "mfu", "MFU", REPORT_SHARE, offsetof(struct view, r.mfu) },
    { NULL, "  of the peak", REPORT_TEXT, offsetof(struct view, peak) },
    { "flop_per_token", NULL, REPORT_NUMBER, offsetof(struct view, r.flop_per_token) },
    { NULL, "model GFLOP/token", REPORT_GIGA, offsetof(struct view, r.flop_per_token) },
    { NULL, "parameters", REPORT_TEXT, offsetof(struct view, params) },
    { NULL, "fits", REPORT_TEXT, offsetof(struct view, fits) },
    { NULL, "  allocated", REPORT_GIB, offsetof(struct view, r.peak_B) },
    { NULL, "  reserved", REPORT_TEXT, offsetof(struct view, reserved) },
    { NULL, "  on the device", REPORT_TEXT, offsetof(struct view, device) },
    { NULL, "load", REPORT_TEXT, offsetof(struct view, balance) },
    { "off_grid_share", NULL, REPORT_NUMBER, offsetof(struct view, r.off_grid_share) },
    { NULL, "prices", REPORT_TEXT, offsetof(struct view, prices) },
};
const int view_head_n_col = LEN(view_head_cols);
static const struct report_col load_cols[] = {
    { "imbalance", NULL, REPORT_NUMBER, offsetof(struct load_row, imbalance) },
    { "mean_rows", NULL, REPORT_NUMBER, offsetof(struct load_row, mean) },
    { "most_rows", NULL, REPORT_NUMBER, offsetof(struct load_row, most) },
    { "busiest_rank", NULL, REPORT_INT, offsetof(struct load_row, rank) },
    { "dropped_share", NULL, REPORT_NUMBER, offsetof(struct load_row, dropped) },
    { "lost_s", NULL, REPORT_NUMBER, offsetof(struct load_row, lost_s) },
};
static const struct report_col param_cols[] = {
    { "total", NULL, REPORT_LONG, offsetof(struct model_params, total) },
    { "active", NULL, REPORT_LONG, offsetof(struct model_params, active) },
    { "mtp", NULL, REPORT_LONG, offsetof(struct model_params, mtp) },
};
static const struct report_col stage_cols[] = {
    { "stage", "stage", REPORT_INT, offsetof(struct stage_row, stage) },
    { "params_gib", "parameters", REPORT_GIB, offsetof(struct stage_row, part.params_B) },
    { "grads_gib", "gradients", REPORT_GIB, offsetof(struct stage_row, part.grads_B) },
    { "optimizer_gib", "optimizer", REPORT_GIB, offsetof(struct stage_row, part.optimizer_B) },
    { "activations_gib", "activations", REPORT_GIB, offsetof(struct stage_row, part.activations_B) },
    { "buffers_gib", "buffers", REPORT_GIB, offsetof(struct stage_row, part.buffers_B) },
    { "overhead_gib", "overhead", REPORT_GIB, offsetof(struct stage_row, part.overhead_B) },
    { "graphs_gib", "of it graphs", REPORT_GIB, offsetof(struct stage_row, part.graphs_B) },
    { "peers_gib", "of it dispatcher", REPORT_GIB, offsetof(struct stage_row, part.peers_B) },
    { "peak_gib", "peak", REPORT_GIB, offsetof(struct stage_row, part.peak_B) },
    { NULL, " ", REPORT_TEXT, offsetof(struct stage_row, mark) },
};
#define ALIVE_AT(field) (offsetof(struct predict, alive[0].field) - offsetof(struct predict, alive[0]))
static const struct report_col alive_cols[] = {
    { "what", "what", REPORT_CHARS, ALIVE_AT(what) },
    { "bytes", "bytes", REPORT_B, ALIVE_AT(bytes) },
    { "n", "buffers", REPORT_INT, ALIVE_AT(n) },
};
static const struct report_col time_cols[] = {
    { NULL, "line", REPORT_TEXT, offsetof(struct time_row, line) },
    { NULL, "time", REPORT_S, offsetof(struct time_row, s) },
    { NULL, "of the step", REPORT_SHARE, offsetof(struct time_row, share) },
};
static const struct report_col comm_cols[] = {
    { "group", "group", REPORT_TEXT, offsetof(struct comm_row, group) },
    { "bytes_per_rank", "sent a rank", REPORT_B, offsetof(struct comm_row, bytes) },
    { "total_s", "transfer", REPORT_S, offsetof(struct comm_row, total_s) },
    { "exposed_s", "exposed", REPORT_S, offsetof(struct comm_row, exposed_s) },
    { "link", "link", REPORT_TEXT, offsetof(struct comm_row, link) },
    { "op", "ops", REPORT_TEXT, offsetof(struct comm_row, op) },
};
static const struct report_col place_cols[] = {
    { "group", "group", REPORT_TEXT, offsetof(struct place_row, group) },
    { "size", "ranks", REPORT_INT, offsetof(struct place_row, at.size) },
    { "groups", "groups", REPORT_INT, offsetof(struct place_row, at.groups) },
    { "domains", "domains touched", REPORT_INT, offsetof(struct place_row, at.domains) },
    { "straddles", "straddlers", REPORT_INT, offsetof(struct place_row, at.straddles) },
    { "link", "slowest link", REPORT_TEXT, offsetof(struct place_row, link) },
};
static const struct report_col cost_cols[] = {
    { "days", "days", REPORT_TENTHS, offsetof(struct bill, days) },
    { "gpu_hours", "GPU-hours", REPORT_WHOLE, offsetof(struct bill, gpu_hours) },
    { "usd", "USD", REPORT_WHOLE, offsetof(struct bill, usd) },
    { "idle_gpu_hours", "GPU-hours idle beside", REPORT_WHOLE, offsetof(struct bill, idle_gpu_hours) },
    { "idle_usd", "USD for those", REPORT_WHOLE, offsetof(struct bill, idle_usd) },
    { "billed_usd", "USD billed", REPORT_WHOLE, offsetof(struct bill, billed_usd) },
    { "goodput", "goodput", REPORT_SHARE, offsetof(struct bill, goodput) },
    { "days_at_goodput", "days at that", REPORT_TENTHS, offsetof(struct bill, days_at_goodput) },
    { "billed_usd_at_goodput", "USD at that", REPORT_WHOLE, offsetof(struct bill, billed_usd_at_goodput) },
};
/* ---- collecting ---- */

/* "671.03 B", "440.5 k". */
static const char *count_text(struct arena *a, double n)
{
    return n >= 1e9   ? arena_printf(a, "%.2f B", n / 1e9)
           : n >= 1e6 ? arena_printf(a, "%.2f M", n / 1e6)
                      : arena_printf(a, "%.1f k", n / 1e3);
}

/* What is reserved, or taken on the device, for so many allocated bytes: one figure, or from the least to the
 * most. */
static const char *range_text(struct arena *a, const struct job *j, double allocated_B, int device)
{
    char low[64], high[64];
    const double beside_B = device ? 0 : predict_taken_B(j, 0, 0);
    units_human(low, sizeof low, predict_taken_B(j, allocated_B, j->stack.reserve_low) - beside_B, UNIT_B);
    units_human(high, sizeof high, predict_taken_B(j, allocated_B, j->stack.reserve_high) - beside_B, UNIT_B);
    return strcmp(low, high) ? arena_printf(a, "%s to %s", low, high) : arena_strdup(a, low);
}

static void collect_head(struct view *v, struct arena *a)
{
    const struct predict *r = &v->r;
    char peak[64], cap[64];
    v->peak = arena_printf(a, "%.4g TFLOPS, dense %s", r->peak_flop_per_s / 1e12,
                           dtype_name((enum dtype)r->peak_dtype));
    v->params = arena_printf(
        a, "%s total, %s active%s", count_text(a, (double)r->params.total), count_text(a, (double)r->params.active),
        r->params.mtp ? arena_printf(a, ", and %s of MTP", count_text(a, (double)r->params.mtp)) : "");
    const struct predict_stage *worst = &r->stage[r->worst_stage];
    v->reserved = range_text(a, v->job, r->peak_B, 0);
    v->device = range_text(a, v->job, r->peak_B, 1);
    v->fits = r->feasible ? arena_printf(a, "yes: %s of %s on stage %d",
                                         units_human(peak, sizeof peak, worst->peak_B, UNIT_B),
                                         units_human(cap, sizeof cap, r->capacity_B, UNIT_B), r->worst_stage)
                          : arena_printf(a, "NO: %s", r->reason);
    v->prices = arena_printf(
        a, "%d of %d products and attentions (%.0f %% of their time) are of sizes not measured here",
        r->n_off_grid, r->n_priced, 100 * r->off_grid_share);
    v->stage = arena_alloc(a, (size_t)r->n_stage * sizeof *v->stage);
    for (int s = 0; s < r->n_stage; s++)
        v->stage[s] = (struct stage_row){ s, r->stage[s], s == r->worst_stage ? "<- largest" : "" };
}

/* Of the first ep group of the fullest stage; what its imbalance costs is the step less that of even routing. */
static void collect_load(struct view *v, struct arena *a)
{
    const struct load_spread *s = &v->r.load;
    const struct plan *p = &v->job->plan;
    struct load_row *l = &v->load;
    if (s->mean <= 0) return;
    *l = (struct load_row){ .imbalance = s->most / s->mean, .mean = s->mean, .most = s->most, .dropped = s->dropped };
    int32_t *member = arena_alloc(a, (size_t)p->ep * sizeof *member);
    fold_members(v->job, GROUP_EP, fold_rank(p, (struct coord){ .pp = v->r.worst_stage }), member);
    l->rank = member[s->busiest];
    if (p->routing.kind != ROUTING_BALANCED) {
        struct job *even = arena_alloc(a, sizeof *even);
        struct predict r;
        *even = *v->job;
        even->plan.routing.kind = ROUTING_BALANCED;
        predict_job(&r, NULL, a, even);
        l->lost_s = v->r.step_s - r.step_s;
    }
    char lost[64];
    v->balance = arena_printf(a, "%s: rank %d gets %.0f rows, %.2f of the mean, which costs %s%s", p->load,
        l->rank, l->most,
                              l->imbalance, units_human(lost, sizeof lost, l->lost_s, UNIT_S),
                              l->dropped > 0 ? arena_printf(a, "; %.1f %% of picks dropped", 100 * l->dropped) : "");
}

static void collect_time(struct view *v)
{
    double line_s[ANSWER_LINES];
    answer_lines(line_s, &v->r.lines);
    for (int l = 0; l < ANSWER_LINES; l++)
        if (line_s[l] != 0)
            v->time[v->n_time++] = (struct time_row){ answer_line_name((enum answer_line)l), line_s[l],
                                                      line_s[l] / line_s[ANSWER_STEP] };
}

/* The kinds of ops that a group's communication consists of: "DISPATCH COMBINE". */
static const char *kinds_of(struct arena *a, const struct program *pr, enum group g)
{
    char seen[OP_KIND_COUNT] = { 0 };
    const char *text = "";
    for (int o = 1; o < pr->n_op; o++) {
        const struct op *op = &pr->op[o];
        const enum op_family f = op_family((enum op_kind)op->kind);
        if (op->group != g || seen[op->kind] || (f != FAMILY_COMM && f != FAMILY_P2P)) continue;
        seen[op->kind] = 1;
        text = arena_printf(a, "%s%s%s", text, *text ? " " : "", op_name((enum op_kind)op->kind));
    }
    return text;
}

static void collect_groups(struct view *v, struct arena *a, const struct program *pr)
{
    const struct predict *r = &v->r;
    for (int g = 1; g < GROUP_COUNT; g++) {
        const struct place *at = &r->place[g];
        const char *name = fold_group_name((enum group)g), *link = place_link_name((enum link)at->link);
        const double total_s = r->lines.group_total_s[g];
        if (total_s > 0 || r->lines.group_B[g] > 0)
            v->comm[v->n_comm++] = (struct comm_row){ name, kinds_of(a, pr, (enum group)g), link,
                                                      r->lines.group_B[g], total_s, r->lines.exposed_s[g] };
        const int edge = g == GROUP_PREV || g == GROUP_NEXT;        /* pp says where these are */
        if (at->size > 1 && !edge) v->place[v->n_place++] = (struct place_row){ name, link, *at };
    }
    const struct plan *p = &v->job->plan;
    v->domains = (p->gpus + p->domain_gpus - 1) / p->domain_gpus;
    v->idle_gpus = v->domains * v->job->system.domain - p->gpus;
}

static void collect_cost(struct view *v, const struct view_ask *f)
{
    const double price = f->price_usd_per_h > 0 ? f->price_usd_per_h : v->job->system.price_usd_per_h;
    const int gpus = v->job->plan.gpus;
    v->cost = bill_of(f->tokens, v->r.tokens_per_s_gpu * gpus, gpus, v->idle_gpus, price, f->goodput);
}

/* Of the tokens given, or of 1e12. */
static struct vary_cost curve_cost(const struct view_ask *f)
{
    return (struct vary_cost){ f->tokens > 0 ? f->tokens : 1e12, f->price_usd_per_h };
}

/* ---- showing ---- */

#define ROWS(cols, rows, n) (&(struct report_list){ cols, LEN(cols), rows, sizeof *(rows), n })
#define CURVE(v) (&(struct report_list){ vary_cols, vary_n_col, (v)->curve, sizeof *(v)->curve, (v)->n_curve })
#define BETTER(v) (&(struct report_list){ sensitivity_cols, sensitivity_n_col, (v)->better, sizeof *(v)->better, (v)->n_better })
#define SHARED(v)                                                                                                  \
    (&(struct report_list){ contention_cols, contention_n_col, (v)->contention.row, sizeof(struct contention_row),      \
                            (v)->contention.n })
#define COUNSEL(v)                                                                                                 \
    (&(struct report_list){ counsel_cols, counsel_n_col, (v)->counsel, sizeof(struct counsel_row), (v)->n_counsel })
#define ADVICE(v) (&(struct report_list){ advice_cols, advice_n_col, (v)->advice.row, sizeof *(v)->advice.row, (v)->advice.n })

static json_t *advice_json(const struct view *v)
{
    const struct advice *x = &v->advice;
    return json_pack("{s:o,s:o,s:I,s:I,s:i}", "changes", report_rows(ADVICE(v)), "bound",
                     x->bound ? json_string(x->bound) : json_null(), "least_gpus", (json_int_t)x->least_gpus,
                     "least_gpus_mtp", (json_int_t)x->least_gpus_mtp, "tried", x->tried);
}

static json_t *range_json(const struct job *j, double allocated_B, int device)
{
    const double beside_B = device ? 0 : predict_taken_B(j, 0, 0);
    const double low_B = predict_taken_B(j, allocated_B, j->stack.reserve_low) - beside_B;
    const double high_B = predict_taken_B(j, allocated_B, j->stack.reserve_high) - beside_B;
    return json_pack("{s:I,s:I}", "low", (json_int_t)low_B, "high", (json_int_t)high_B);
}

static json_t *memory_json(const struct view *v)
{
    const struct predict *r = &v->r;
    const struct coord first = { .pp = r->worst_stage };
    json_t *m = json_pack("{s:i,s:i}", "worst_rank",
                          v->balance ? v->load.rank : fold_rank(&v->job->plan, first), "worst_stage",
                          r->worst_stage);
    json_object_set_new(m, "peak_B", json_integer((json_int_t)r->peak_B));
    json_object_set_new(m, "peak_gib", report_real(r->peak_B / 1073741824.0));
    json_object_set_new(m, "capacity_gib", report_real(r->capacity_B / 1073741824.0));
    json_object_set_new(m, "allocated_B", json_integer((json_int_t)r->peak_B));
    json_object_set_new(m, "reserved_B", range_json(v->job, r->peak_B, 0));
    json_object_set_new(m, "device_B", range_json(v->job, r->peak_B, 1));
    json_object_set_new(m, "live_B", json_integer((json_int_t)r->live_B));
    json_object_set_new(m, "arena_B", r->arena_B > 0 ? json_integer((json_int_t)r->arena_B) : json_null());
    json_object_set_new(m, "peak_at", json_string(r->peak_at));
    json_object_set_new(m, "alive", report_rows(ROWS(alive_cols, r->alive, r->n_alive)));
    json_object_set_new(m, "by_stage", report_rows(ROWS(stage_cols, v->stage, r->n_stage)));
    return m;
}

static json_t *time_json(const struct sim_lines *l)
{
    double line_s[ANSWER_LINES];
    answer_lines(line_s, l);
    json_t *exposed = json_pack("{s:f,s:f,s:f,s:f,s:f}", "tp", line_s[ANSWER_TP], "cp", line_s[ANSWER_CP], "ep",
                                line_s[ANSWER_EP], "dp", line_s[ANSWER_DP], "pp", line_s[ANSWER_PP]);
    return json_pack("{s:f,s:o,s:f,s:f,s:f,s:f,s:f}", "compute_s", l->compute_s, "exposed", exposed, "offload_s",
                     l->offload_s, "bubble_s", l->bubble_s, "host_s", l->host_s, "optimizer_s", l->optimizer_s,
                     "unaccounted_s", l->unaccounted_s);
}

json_t *view_document(const struct view *v, struct arena *a, const struct view_ask *f)
{
    const struct predict *r = &v->r;
    json_t *doc = json_object();
    json_object_set_new(doc, "plan", answer_plan(a, &v->job->plan));
    json_object_set_new(doc, "feasible", json_boolean(r->feasible));
    json_object_set_new(doc, "reason", r->feasible ? json_null() : json_string(r->reason));
    report_keys(doc, view_head_cols, view_head_n_col, v);
    json_object_set_new(
        doc, "peak_tflops_dense",
        json_pack("{s:s,s:f}", "dtype", dtype_name((enum dtype)r->peak_dtype), "value", r->peak_flop_per_s / 1e12));
    json_object_set_new(doc, "params", report_keys(json_object(), param_cols, LEN(param_cols), &r->params));
    if (v->balance)
        json_object_set_new(doc, "load", report_keys(json_object(), load_cols, LEN(load_cols), &v->load));
    json_object_set_new(doc, "memory", memory_json(v));
    json_object_set_new(doc, "host", json_pack("{s:f,s:f}", "peak_gib", r->host_B / 1073741824.0,
                                               "capacity_gib", v->job->system.host_memory_B / 1073741824.0));
    json_object_set_new(doc, "time", time_json(&r->lines));
    json_object_set_new(doc, "comm", report_rows(ROWS(comm_cols, v->comm, v->n_comm)));
    json_object_set_new(doc, "placement", report_rows(ROWS(place_cols, v->place, v->n_place)));
    json_object_set_new(doc, "domains", json_integer(v->domains));
    json_object_set_new(doc, "idle_gpus", json_integer(v->idle_gpus));
    json_object_set_new(
        doc, "cost", f->tokens > 0 ? report_keys(json_object(), cost_cols, LEN(cost_cols), &v->cost) : json_null());
    json_object_set_new(doc, "range", json_pack("{s:o,s:o}", "low_s", report_real(v->range.low), "high_s",
                                                report_real(v->range.high)));
    json_object_set_new(doc, "curve", report_rows(CURVE(v)));
    json_object_set_new(doc, "sensitivity", report_rows(BETTER(v)));
    json_object_set_new(doc, "contention", !v->contention.asked ? json_null()
                        : json_pack("{s:o,s:o,s:i,s:o}", "step_s", report_real(v->contention.step_s), "longer",
                                    report_real(v->contention.longer), "last_stage", v->contention.last_stage, "groups",
                                    report_rows(SHARED(v))));
    json_object_set_new(doc, "advice", r->feasible ? json_null() : advice_json(v));
    json_object_set_new(doc, "counsel", report_rows(COUNSEL(v)));
    return doc;
}

/* ---- tables ---- */

static void put(struct view_table *t, int *n, const char *heading, const struct report_list *rows, int mark)
{
    if (rows->n_row > 0) t[(*n)++] = (struct view_table){ heading, *rows, mark };
}

int view_tables(struct view_table t[VIEW_TABLES], const struct view *v, struct arena *a, const struct view_ask *f)
{
    const struct predict *r = &v->r;
    const int fits = v->advice.n && v->advice.row[0].fits;
    int n = 0;
    put(t, &n, "Where the step of the last-finishing stage went", ROWS(time_cols, v->time, v->n_time), v->n_time - 1);
    put(t, &n, "Memory of one GPU, by stage, at its peak", ROWS(stage_cols, v->stage, r->n_stage), r->worst_stage);
    put(t, &n, arena_printf(a, "Alive at the peak of stage %d (%s): most bytes first, by the op that made them",
                            r->worst_stage, r->peak_at), ROWS(alive_cols, r->alive, r->n_alive), -1);
    put(t, &n, "Communication, one rank of that stage, one step", ROWS(comm_cols, v->comm, v->n_comm), -1);
    char shared[64];
    put(t, &n, arena_printf(a, "Links shared by what runs at once: the step takes %s, %.2f %% more; stage %d",
                            units_human(shared, sizeof shared, v->contention.step_s, UNIT_S), 100 * v->contention.longer,
                            v->contention.last_stage), SHARED(v), -1);
    put(t, &n, arena_printf(a, "Placement: %d NVLink domain(s), %d of %d GPUs used in each, %d left idle", v->domains,
                            v->job->plan.domain_gpus, v->job->system.domain, v->idle_gpus),
        ROWS(place_cols, v->place, v->n_place), -1);
    put(t, &n, "What fits badly, or needs a word to others", COUNSEL(v), -1);
    put(t, &n, arena_printf(a, "Varied: %s; days and USD of %.4g tokens", f->vary, curve_cost(f).tokens),
        CURVE(v), -1);
    put(t, &n, "One figure of the system a tenth better at a time", BETTER(v), -1);
    put(t, &n, arena_printf(a, "What would change that, of %d plans tried: %s", v->advice.tried,
                            fits ? "what fits first" : "none of these fits, most saved first"), ADVICE(v),
                                fits ? 0 : -1);
    return n;
}

void view_show(const struct view *v, struct arena *a, const struct view_ask *f)
{
    struct view_table t[VIEW_TABLES];
    const struct plan *p = &v->job->plan;
    const int n = view_tables(t, v, a, f);
    report_heading("%s on %d GPUs of %s, stack %s, seq %d, global batch %d", v->job->model.name, p->gpus,
                   v->job->system.name, v->job->stack.name, p->seq, p->gbs);
    printf("  %s\n  layout %s\n\n", answer_plan_line(a, p), layout_text(a, &p->split));
    report_lines(NULL, view_head_cols, view_head_n_col, v);
    for (int i = 0; i < n; i++) report_table(t[i].heading, &t[i].list, t[i].mark);
    if (f->tokens > 0) {
        report_heading("%.4g tokens", f->tokens);
        report_lines(NULL, cost_cols, LEN(cost_cols), &v->cost);
    }
    if (v->advice.bound) printf("\n  infeasible %s\n", v->advice.bound);
    if (v->advice.n && v->advice.row[0].fits) printf("\n  the smallest change: %s\n", v->advice.row[0].flags);
}

/* Of our own executor on this machine nothing is published: no range. */
static enum err collect_range(struct view *v, struct arena *a, struct diag *d)
{
    struct ranges all;
    char low[64], high[64];
    v->range = (struct range){ (double)NAN, (double)NAN, 0 };
    if (v->job->stack.runs) return OK;
    TRY(range_read(&all, a, "range", d));
    const enum range_class c = range_class_of(&all, v->job, v->r.off_grid_share);
    v->range = range_step(&all, c, v->r.step_s);
    v->spread = arena_printf(a, "%s to %s, as %d runs like it (%s) lay", units_human(low, sizeof low, v->range.low, UNIT_S),
                             units_human(high, sizeof high, v->range.high, UNIT_S), v->range.rows, range_name(c));
    return OK;
}

enum err view_collect(struct view *v, struct program *pr, struct arena *a, const struct args *args,
                      const struct view_ask *f, struct diag *d)
{
    struct job *j = arena_alloc(a, sizeof *j);
    const struct vary_cost c = curve_cost(f);
    *v = (struct view){ .job = j };
    TRY(args_job(j, a, args, 0, d));
    predict_job(&v->r, pr, a, j);
    TRY(collect_range(v, a, d));
    collect_head(v, a);
    collect_load(v, a);
    collect_time(v);
    collect_groups(v, a, pr);
    collect_cost(v, f);
    if (*f->vary) TRY(vary_curve(&v->curve, &v->n_curve, a, args, f->vary, &c, d));
    v->n_counsel = counsel_plan(v->counsel, a, j, &v->r);
    if (f->contention) TRY(contention_of(&v->contention, pr, j, v->r.step_s, d));
    if (f->sensitivity) v->n_better = sensitivity_of(v->better, a, j, &v->r);
    if (!v->r.feasible) advice_of(&v->advice, a, args, j, &v->r);
    return OK;
}
