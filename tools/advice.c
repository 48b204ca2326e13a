/* Tries what a person would: more GPUs, more stages or shards, modules recomputed, states in fewer bytes, the
 * host's memory. Each is the same plan with options on top, read, checked and predicted like any other; what is
 * refused is no advice. When no single change fits, the largest savings are put together, one after the other. */
#include "tools/advice.h"
#include "sim/least.h"
#include "tools/vary.h"
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

const struct report_col advice_cols[] = {
    { "change", "change", REPORT_TEXT, offsetof(struct advice_row, change) },
    { "fits", "fits", REPORT_BOOL, offsetof(struct advice_row, fits) },
    { "saves_gib", "saves", REPORT_GIB, offsetof(struct advice_row, saves_B) },
    { "peak_gib", "peak", REPORT_GIB, offsetof(struct advice_row, peak_B) },
    { "gpus", "GPUs", REPORT_INT, offsetof(struct advice_row, gpus) },
    { "step_s", "step", REPORT_S, offsetof(struct advice_row, step_s) },
    { "slower", "tokens/s/GPU lost", REPORT_SHARE, offsetof(struct advice_row, slower) },
    { "flags", NULL, REPORT_TEXT, offsetof(struct advice_row, flags) },
};
const int advice_n_col = LEN(advice_cols);

enum { TRIES = 96, SETS = 12, TOGETHER = 4, PARTNERS = 6 };
struct attempt { const char *what; const char *set[SETS][2]; int n, parts; struct advice_row row; };
struct attempts {
    struct arena *a;
    const struct args *args;
    const struct job *j;
    const struct predict *r;
    struct attempt *one; int n, tried;
};

/* ---- neighbours ---- */

static struct attempt *add(struct attempts *all, const char *what)
{
    struct attempt *t = &all->one[all->n];
    if (all->n < TRIES) all->n++;
    *t = (struct attempt){ .what = what, .parts = 1 };
    return t;
}

static struct attempt *with(struct attempt *t, const char *key, const char *text)
{
    t->set[t->n][0] = key;
    t->set[t->n++][1] = text;
    return t;
}

static void add_one(struct attempts *all, const char *key, const char *text)
{
    with(add(all, arena_printf(all->a, "%s %s", key, text)), key, text);
}

static const char *number(struct attempts *all, int x)
{
    return arena_printf(all->a, "%d", x);
}

/* Chunks are others when stages are: the layout is made anew. */
static void add_degree(struct attempts *all, const char *key, int value, int relayout)
{
    struct attempt *t = with(add(all, arena_printf(all->a, "%s %d", key, value)), key, number(all, value));
    if (relayout) with(with(t, "layout", "auto"), "vpp-group", "auto");
}

static void add_folds(struct attempts *all)
{
    const struct plan *p = &all->j->plan;
    const int layers = all->j->model.layers, moe = all->j->model.experts > 0;
    for (int k = 2; k <= 8; k *= 2) {
        if (p->pp * p->vpp * k <= layers) add_degree(all, "pp", p->pp * k, 1);
        if (moe && p->ep * k <= all->j->model.experts) add_degree(all, "ep", p->ep * k, 0);
        if (p->tp * k <= all->j->model.heads) add_degree(all, "tp", p->tp * k, 0);
        if (k <= 4) add_degree(all, "cp", p->cp * k, 0);
        if (moe && k <= 4) add_degree(all, "etp", p->etp * k, 0);
        if (p->mbs % k == 0) add_degree(all, "mbs", p->mbs / k, 0);
        if (p->vpp % k == 0 && p->vpp > 1) add_degree(all, "vpp", p->vpp / k, 1);
        if (p->pp * k <= layers && p->vpp % k == 0)
            with(with(with(with(add(all, arena_printf(all->a, "pp %d, vpp %d", p->pp * k, p->vpp / k)), "pp",
                                number(all, p->pp * k)), "vpp", number(all, p->vpp / k)), "layout", "auto"),
                 "vpp-group", "auto");
    }
}

/* Of the host's memory. */
static void add_workers(struct attempts *all)
{
    for (int n = all->j->plan.data_workers / 2; all->j->plan.data_workers > 0; n /= 2) {
        add_degree(all, "data-workers", n, 0);
        if (n == 0) break;
    }
    if (all->j->plan.offload_modules || all->j->plan.offload_layers || all->j->plan.offload_optimizer > 0)
        add_one(all, "offload", "none");
}

static void add_recompute(struct attempts *all)
{
    const struct plan *p = &all->j->plan;
    const struct opt *o = cfg_opt(plan_opts, plan_n_opt, "recompute");
    int most = p->recompute;
    for (int m = 0; m < RECOMPUTE_FULL; m++) {
        char text[128];
        struct plan other = *p;
        if (!(all->j->stack.recomputes >> m & 1) || p->recompute >> m & 1
            || p->recompute >> RECOMPUTE_FULL & 1) continue;
        other.recompute |= 1 << m;
        if (m != RECOMPUTE_MLP && m != RECOMPUTE_MOE) most |= 1 << m;
        with(add(all, arena_printf(all->a, "recompute %s too", stack_recomputes[m])), "recompute",
             arena_strdup(all->a, cfg_echo(text, sizeof text, &other, o)));
    }
    struct plan other = *p;
    char text[128];
    other.recompute = most;
    if (most != p->recompute) add_one(all, "recompute", arena_strdup(all->a, cfg_echo(text, sizeof text, &other, o)));
    if (!(p->recompute >> RECOMPUTE_FULL & 1)) add_one(all, "recompute", "full");
}

static void add_states(struct attempts *all)
{
    const struct plan *p = &all->j->plan;
    if (p->moments == STATE_FP32) add_one(all, "moments", "bf16");
    if (p->moments != STATE_FP8) add_one(all, "moments", "fp8");
    if (p->grads == STATE_FP32) add_one(all, "grads", "bf16");
    if (p->master == MASTER_FP32) add_one(all, "master", "remainder");
    if (!p->fp8_param_gather) add_one(all, "fp8-param-gather", "1");
    if (!p->fsdp) add_one(all, "fsdp", "1");
    if (p->graph) add_one(all, "cuda-graph", "none");
    if (p->offload_optimizer < 1) add_one(all, "offload", "optimizer:1");
}

static void add_offload(struct attempts *all)
{
    const struct job *j = all->j;
    const char *most = "";
    for (int m = OFFLOAD_ATTN_NORM; m <= OFFLOAD_MOE_ACT; m++) {
        if (!(j->stack.offloads >> m & 1) || j->plan.offload_modules >> m & 1) continue;
        most = arena_printf(all->a, "%s%s%s", most, *most ? "+" : "", stack_offloads[m]);
        if (m != OFFLOAD_ATTN_PROJ) add_one(all, "offload", stack_offloads[m]);
    }
    if (*most) add_one(all, "offload", most);
    if (j->plan.pp == 1 && j->stack.offloads >> OFFLOAD_LAYERS & 1 && j->model.layers > 1)
        add_one(all, "offload", arena_printf(all->a, "layers:%d", j->model.layers - 1));
}

/* More GPUs as replicas, and the same with experts or layers spread over them. */
static void add_gpus(struct attempts *all)
{
    const struct plan *p = &all->j->plan;
    for (int k = 2; k <= 16 && p->gpus <= (1 << 20) / k; k *= 2) {
        add_degree(all, "gpus", p->gpus * k, 0);
        if (p->ep * k <= all->j->model.experts)
            with(with(add(all, arena_printf(all->a, "gpus %d, ep %d", p->gpus * k, p->ep * k)), "gpus",
                      number(all, p->gpus * k)), "ep", number(all, p->ep * k));
        if (p->pp * p->vpp * k <= all->j->model.layers)
            with(with(with(with(add(all, arena_printf(all->a, "gpus %d, pp %d", p->gpus * k, p->pp * k)), "gpus",
                                number(all, p->gpus * k)), "pp", number(all, p->pp * k)), "layout", "auto"),
                 "vpp-group", "auto");
    }
}

/* ---- trying ---- */

/* 0: refused, or nothing gained. */
static int attempt_try(struct attempts *all, struct attempt *t)
{
    struct arena scratch = { 0 };
    struct job *j = arena_alloc(&scratch, sizeof *j);
    struct predict r;
    struct diag why = { "" };
    all->tried++;
    const enum err e = vary_try(&r, j, &scratch, all->args, t->n, (const char *const(*)[2])t->set, &why);
    if (e == OK) {
        const double peak_B = r.stage[r.worst_stage].peak_B;
        const double was_B = all->r->stage[all->r->worst_stage].peak_B;
        const char *flags = "";
        for (int i = 0; i < t->n; i++)
            flags = arena_printf(all->a, "%s%s--%s %s", flags, i ? " " : "", t->set[i][0], t->set[i][1]);
        t->row = (struct advice_row){ t->what, flags, r.feasible, j->plan.gpus, t->parts, all->tried,
            was_B - peak_B, peak_B,
                                      r.step_s, 1 - r.tokens_per_s_gpu / all->r->tokens_per_s_gpu };
    }
    arena_free(&scratch);
    return e == OK && (t->row.fits || t->row.saves_B > 0);
}

static int by_worth(const void *a, const void *b)
{
    const struct advice_row *x = &((const struct attempt *)a)->row, *y = &((const struct attempt *)b)->row;
    if (x->fits != y->fits) return y->fits - x->fits;
    if (x->fits && x->gpus != y->gpus) return (x->gpus > y->gpus) - (x->gpus < y->gpus);
    if (x->fits && x->n != y->n) return x->n - y->n;
    if (x->fits && x->slower != y->slower) return x->slower < y->slower ? -1 : 1;
    if (x->fits) return x->order - y->order;
    if (x->saves_B != y->saves_B) return x->saves_B > y->saves_B ? -1 : 1;
    return strcmp(x->change, y->change);
}

static void try_all(struct attempts *all)
{
    int n = 0;
    for (int i = 0; i < all->n; i++)
        if (attempt_try(all, &all->one[i])) all->one[n++] = all->one[i];
    all->n = n;
    qsort(all->one, (size_t)n, sizeof *all->one, by_worth);
}

/* Both changes; 0 when they set the same option, or too many. */
static int joined(struct attempt *to, struct arena *a, const struct attempt *x, const struct attempt *y)
{
    *to = *x;
    if (x->n + y->n > SETS) return 0;
    for (int i = 0; i < y->n; i++) {
        int at = 0;
        while (at < x->n && strcmp(x->set[at][0], y->set[i][0]) != 0) at++;
        if (at < x->n && strcmp(y->set[i][1], "auto") != 0) return 0;
        if (at == x->n) with(to, y->set[i][0], y->set[i][1]);
    }
    to->what = arena_printf(a, "%s; %s", x->what, y->what);
    to->parts = x->parts + y->parts;
    return 1;
}

/* From one change on, adds what saves most until it fits. Only savers on as many GPUs are partners. */
static int grow(struct attempt *now, struct attempts *all, int n_single)
{
    while (!now->row.fits && now->parts < TOGETHER) {
        struct attempt best = *now;
        int partners = 0;
        for (int i = 0; i < n_single && partners < PARTNERS; i++) {
            struct attempt both;
            if (all->one[i].row.gpus != all->j->plan.gpus || !joined(&both, all->a, now, &all->one[i])) continue;
            partners++;
            if (attempt_try(all, &both) && by_worth(&both, &best) < 0) best = both;
        }
        if (best.parts == now->parts) return 0;
        *now = best;
    }
    return now->row.fits;
}

/* The fewest changes that fit together: from the best few beginnings on as many GPUs, and failing that on more. */
static void combine(struct attempts *all)
{
    const int n_single = all->n;
    int begun = 0, found = 0;
    for (int more = 0; more < 2 && !found; more++)
        for (int i = 0; i < n_single && begun < 3 * (more + 1) && all->n < TRIES; i++) {
            struct attempt t = all->one[i];
            if ((t.row.gpus > all->j->plan.gpus) != more) continue;
            begun++;
            if (!grow(&t, all, n_single)) continue;
            all->one[all->n++] = t;
            found++;
        }
    qsort(all->one, (size_t)all->n, sizeof *all->one, by_worth);
}

/* ---- words ---- */

static void say_bound(struct advice *v, struct arena *a, const struct job *j, const struct predict *r)
{
    const int64_t mtp = j->plan.mtp > 0 ? r->params.mtp : 0;
    v->least_gpus = least_gpus(j, r->params.total);
    v->least_gpus_mtp = least_gpus(j, r->params.total + mtp);
    if (v->least_gpus_mtp <= j->plan.gpus) return;
    const double each_B = least_param_B(&j->plan), gib = 1.0 / (1 << 30);
    v->bound = arena_printf(
        a,
        "at any layout: the states alone, %.4g B for each of %.2f B parameters, are %.2f TB: at least %lld "
        "GPUs of %.2f "
        "GiB, the plan has %d%s",
        each_B, (double)r->params.total / 1e9, (double)r->params.total * each_B / 1e12, (long long)v->least_gpus,
        j->system.memory_B * gib, j->plan.gpus,
        mtp ? arena_printf(a, "; %lld with MTP", (long long)v->least_gpus_mtp) : "");
}

/* Of savings that do not suffice, two of a kind are enough. */
static int is_more_of_the_same(const struct attempt *one, int i)
{
    int alike = 0;
    for (int k = 0; k < i; k++)
        alike += !one[k].row.fits && one[k].parts == 1 && strcmp(one[k].set[0][0], one[i].set[0][0]) == 0;
    return !one[i].row.fits && alike >= 2;
}

void advice_of(struct advice *v, struct arena *a, const struct args *args, const struct job *j,
    const struct predict *r)
{
    struct attempts all = { .a = a, .args = args, .j = j, .r = r };
    all.one = arena_alloc(a, (TRIES + 1) * sizeof *all.one);
    *v = (struct advice){ 0 };
    say_bound(v, a, j, r);
    add_workers(&all);
    if (r->stage[r->worst_stage].peak_B > r->capacity_B || r->host_B <= j->system.host_memory_B) {
        add_folds(&all);
        add_recompute(&all);
        add_states(&all);
        add_offload(&all);
        add_gpus(&all);
    }
    try_all(&all);
    if (all.n && !all.one[0].row.fits) combine(&all);
    v->tried = all.tried;
    v->row = arena_alloc(a, ADVICE_ROWS * sizeof *v->row);
    for (int i = 0; i < all.n && v->n < ADVICE_ROWS; i++)
        if (!is_more_of_the_same(all.one, i)) v->row[v->n++] = all.one[i].row;
}
