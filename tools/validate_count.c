/* Every source counts in its own way. What it measured is the first rate or time that its row has; what it would
 * have measured of a prediction follows from the rule of the source: the square of attention, the recomputed
 * forward, the peak that its MFU is of, whose memory it printed. */
#include "tools/validate.h"
#include <math.h>

static const char *const unit_columns[] = { "tokens_per_s_gpu", "step_time_s", "tflops_gpu", "mfu", "nothing" };

const char *validate_count_unit(enum validate_unit u)
{
    return unit_columns[u];
}

enum err validate_count_number(double *value, const struct validate_record *of, const char *column, struct diag *d)
{
    const struct csv *c = of->csv;
    const int at = csv_column(c, column);
    const struct csv_cell *cell = at < 0 ? NULL : &c->cell[(size_t)of->row * (size_t)c->n_col + (size_t)at];
    *value = (double)NAN;
    if (!cell || !*cell->text) return OK;
    if (units_parse(value, cell->text, UNIT_NONE) == 0 && *value > 0) return OK;
    return csv_fail(d, c, cell, "%s '%s' is no number above 0: leave it blank where nothing is known", column,
                    cfg_shown(cell->text).text);
}

enum err validate_count_measured(enum validate_unit *u, double *value, const struct validate_record *of,
                                 struct diag *d)
{
    *u = VALIDATE_NOTHING;
    for (int i = VALIDATE_NOTHING - 1; i >= 0; i--) {       /* all are checked, the first one stays */
        double x;
        TRY(validate_count_number(&x, of, unit_columns[i], d));
        if (isfinite(x) || i == VALIDATE_NOTHING - 1) *value = x;
        if (isfinite(x)) *u = (enum validate_unit)i;
    }
    return OK;
}

double validate_count_flop(const struct validate_source *s, const struct job *j)
{
    const struct model *m = &j->model;
    const int64_t vocab = j->plan.vocab_padded, seq = j->plan.seq;
    const double flop = model_flop_per_token(m, s->full_attention ? 2 * seq : seq, vocab);
    const double head = 6.0 * m->hidden * (double)vocab * (m->mtp + 1);     /* logits are not recomputed */
    return s->recomputed ? (flop - head) * 4 / 3 + head : flop;
}

double validate_count_predicted(enum validate_unit u, const struct validate_source *s, const struct job *j,
                                const struct predict *r)
{
    const double flop_per_s = r->tokens_per_s_gpu * validate_count_flop(s, j);
    switch (u) {
    case VALIDATE_TOKENS: return r->tokens_per_s_gpu;
    case VALIDATE_STEP:   return r->step_s;
    case VALIDATE_TFLOPS: return flop_per_s / 1e12;
    case VALIDATE_MFU:    return flop_per_s / (s->peak_flop_per_s > 0 ? s->peak_flop_per_s : r->peak_flop_per_s);
    default:              return (double)NAN;
    }
}

double validate_count_memory(const struct validate_source *s, const struct predict *r)
{
    const struct predict_stage *at = &r->stage[s->first_rank ? 0 : r->worst_stage];
    return s->allocated ? at->peak_B - at->overhead_B + at->graphs_B : at->peak_B;
}

/* Compute is split as its ops' own times are. */
struct validate_share validate_count_share(const struct sim_lines *l)
{
    double family_s[FAMILY_COUNT] = { 0 }, exposed_s = l->offload_s;
    for (int k = 0; k < OP_KIND_COUNT; k++) family_s[op_family((enum op_kind)k)] += l->kind_s[k];
    for (int g = 0; g < GROUP_COUNT; g++) exposed_s += l->exposed_s[g];
    const double gemm_s = family_s[FAMILY_GEMM] + family_s[FAMILY_GROUPED];
    const double busy_s = gemm_s + family_s[FAMILY_ATTENTION] + family_s[FAMILY_MEMORY];
    const double part = busy_s > 0 && l->step_s > 0 ? l->compute_s / busy_s / l->step_s : 0;
    const double whole = l->step_s > 0 ? 1 / l->step_s : 0;
    return (struct validate_share){
        gemm_s * part,     family_s[FAMILY_ATTENTION] * part, family_s[FAMILY_MEMORY] * part, exposed_s * whole,
        l->host_s * whole, l->bubble_s * whole,               l->optimizer_s * whole,
    };
}
