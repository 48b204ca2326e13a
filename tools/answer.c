/* The plan and the time of a step as every verb words them. */
#include "tools/answer.h"
#include <string.h>

static json_t *option_json(const struct plan *p, const struct opt *o)
{
    const char *at = (const char *)p + o->at;
    char text[1024];
    int32_t i;
    double x;
    switch (o->type) {
    case OPT_INT:
    case OPT_BOOL:
        memcpy(&i, at, sizeof i);
        return json_integer(i);
    case OPT_NUMBER:
        memcpy(&x, at, sizeof x);
        if (o->unit == UNIT_NONE) return report_real(x);
        break;
    default: break;
    }
    return json_string(cfg_echo(text, sizeof text, p, o));
}

json_t *answer_plan(struct arena *a, const struct plan *p)
{
    json_t *plan = json_object();
    for (int i = 0; i < plan_n_opt; i++) json_object_set_new(plan, plan_opts[i].key, option_json(p, &plan_opts[i]));
    json_object_set_new(plan, "layout", json_string(layout_text(a, &p->split)));
    json_object_set_new(plan, "dp", json_integer(p->dp));
    json_object_set_new(plan, "edp", json_integer(p->edp));
    json_object_set_new(plan, "n_micro", json_integer(p->n_micro));
    return plan;
}

static const char *echo(struct arena *a, const struct plan *p, const char *key)
{
    enum { ECHO_B = 128 };
    const struct opt *o = cfg_opt(plan_opts, plan_n_opt, key);
    return o ? cfg_echo(arena_alloc(a, ECHO_B), ECHO_B, p, o) : "";
}

/* ", dispatcher hybridep, cp-comm p2p": how ranks exchange, where there are several. */
static const char *ways(struct arena *a, const struct plan *p)
{
    const char *to = p->ep * p->etp > 1 ? arena_printf(a, ", dispatcher %s", echo(a, p, "dispatcher")) : "";
    return p->cp > 1 ? arena_printf(a, "%s, cp-comm %s", to, echo(a, p, "cp-comm")) : to;
}

/* ", order tp-cp-ep-pp-dp": what most plans leave alone, where this one does not. */
static const char *unusual(struct arena *a, const struct plan *p)
{
    static const char *const keys[] = { "order", "precision", "optimizer", "fsdp", "ep-overlap", "split-wgrad", "load" };
    const char *text = "";
    for (int i = 0; i < LEN(keys); i++) {
        const char *value = echo(a, p, keys[i]);
        if (strcmp(value, cfg_opt(plan_opts, plan_n_opt, keys[i])->def) != 0)
            text = arena_printf(a, "%s, %s %s", text, keys[i], value);
    }
    return text;
}

char *answer_plan_line(struct arena *a, const struct plan *p)
{
    return arena_printf(
        a, "pp %d x (tp %d cp %d dp %d | etp %d ep %d edp %d), %s, vpp %d, mbs %d, %d micro-batches, recompute %s%s%s",
        p->pp, p->tp, p->cp, p->dp, p->etp, p->ep, p->edp, echo(a, p, "schedule"), p->vpp, p->mbs, p->n_micro,
        echo(a, p, "recompute"), ways(a, p), unusual(a, p));
}

static enum answer_line line_of(enum group g)
{
    switch (g) {
    case GROUP_TP:
    case GROUP_KV: return ANSWER_TP;
    case GROUP_CP: return ANSWER_CP;
    case GROUP_EP:
    case GROUP_ETP:
    case GROUP_TPEP: return ANSWER_EP;
    case GROUP_PP:
    case GROUP_PREV:
    case GROUP_NEXT: return ANSWER_PP;
    default: return ANSWER_DP;          /* gradients, parameters, norms: once a step */
    }
}

const char *answer_line_name(enum answer_line l)
{
    static const char *const name[ANSWER_LINES] = {
#define X(id, text) text,
        ANSWER_LINE_LIST(X)
#undef X
    };
    return name[l];
}

void answer_lines(double line_s[ANSWER_LINES], const struct sim_lines *l)
{
    for (int i = 0; i < ANSWER_LINES; i++) line_s[i] = 0;
    for (int g = 0; g < GROUP_COUNT; g++) line_s[line_of((enum group)g)] += l->exposed_s[g];
    line_s[ANSWER_COMPUTE] = l->compute_s;
    line_s[ANSWER_OFFLOAD] = l->offload_s;
    line_s[ANSWER_HOST] = l->host_s;
    line_s[ANSWER_BUBBLE] = l->bubble_s;
    line_s[ANSWER_OPTIMIZER] = l->optimizer_s;
    line_s[ANSWER_UNACCOUNTED] = l->unaccounted_s;
    line_s[ANSWER_STEP] = l->step_s;
}
