/* The page: what one must know in large figures, then pictures, then every table that predict prints. Light or dark
 * as the reader's system is; pictures are drawn for white paper and inverted in the dark, hues kept. */
#include "tools/page.h"
#include <string.h>

static const char style[] =
    ":root{color-scheme:light dark;--ink:#1c2733;--soft:#5b6b7b;--paper:#fff;--card:#f5f7f9;--line:#d9e0e6;--good:#1a7f4b;"
    "--bad:#c0392b;--mark:#e6f0fa}\n"
    "@media(prefers-color-scheme:dark){:root{--ink:#e4e9ee;--soft:#9aa8b5;--paper:#14181d;--card:#1d232a;--line:#323b45;"
    "--good:#5fd39a;--bad:#ff8576;--mark:#22344a}svg{filter:invert(.92) hue-rotate(180deg)}}\n"
    "*{box-sizing:border-box}body{margin:0 auto;max-width:1240px;padding:24px;font:15px/1.45 "
    "system-ui,Helvetica,Arial,"
    "sans-serif;color:var(--ink);background:var(--paper)}h1{font-size:24px;margin:0 0 "
    "2px}h2{font-size:16px;margin:30px 0 8px}"
    "p{color:var(--soft);margin:2px 0;overflow-wrap:anywhere}.cards{display:grid;grid-template-columns:repeat(auto-fit,"
    "minmax(150px,1fr));gap:10px;margin:18px 0}.card{background:var(--card);border:1px solid "
    "var(--line);border-radius:8px;"
    "padding:10px 14px}.card b{display:block;font-size:21px;white-space:nowrap}.card "
    "span{color:var(--soft);font-size:13px}"
    ".yes b{color:var(--good)}.no b{color:var(--bad)}.wide{overflow-x:auto}table{border-collapse:collapse;font-size:13px}"
    "th{text-align:left;color:var(--soft);font-weight:600}th,td{padding:3px 12px 3px 0;border-bottom:1px "
    "solid var(--line);"
    "white-space:nowrap}td.n,th.n{text-align:right}tr.mark td{background:var(--mark);font-weight:600}svg{max-width:100%;"
    "height:auto;display:block;border-radius:6px}.bar{display:flex;height:26px;border-radius:6px;overflow:hidden;margin:8px 0}"
    ".bar i{display:block}.key{display:flex;flex-wrap:wrap;gap:4px 18px;font-size:13px;color:var(--soft)}.key "
    "i{display:"
    "inline-block;width:11px;height:11px;border-radius:2px;margin-right:5px}input:not(:checked)~.whole "
    "svg{width:100%;"
    "height:300px}input:not(:checked)~.whole svg text{display:none}input:checked~.whole svg{max-width:none}"
    "label{font-size:13px;color:var(--soft)}\n";

void page_text(FILE *out, const char *text)
{
    for (; *text; text++)
        switch (*text) {
        case '<': fputs("&lt;", out); break;
        case '>': fputs("&gt;", out); break;
        case '&': fputs("&amp;", out); break;
        case '"': fputs("&quot;", out); break;
        default: fputc(*text, out);
        }
}

static void card(FILE *out, const char *figure, const char *what, const char *kind)
{
    fprintf(out, "<div class=\"card %s\"><b>", kind);
    page_text(out, figure);
    fputs("</b><span>", out);
    page_text(out, what);
    fputs("</span></div>\n", out);
}

static void table(FILE *out, const struct view_table *t)
{
    char cell[REPORT_CELL_B];
    fputs("<h2>", out);
    page_text(out, t->heading);
    fputs("</h2><div class=\"wide\"><table><tr>", out);
    for (int c = 0; c < t->list.n_col; c++) {
        if (!t->list.col[c].title) continue;
        fputs(report_is_text(t->list.col[c].kind) ? "<th>" : "<th class=\"n\">", out);
        page_text(out, t->list.col[c].title);
        fputs("</th>", out);
    }
    fputs("</tr>\n", out);
    for (int i = 0; i < t->list.n_row; i++) {
        const char *row = (const char *)t->list.row + (size_t)i * t->list.row_B;
        fputs(i == t->mark ? "<tr class=\"mark\">" : "<tr>", out);
        for (int c = 0; c < t->list.n_col; c++) {
            if (!t->list.col[c].title) continue;
            fputs(report_is_text(t->list.col[c].kind) ? "<td>" : "<td class=\"n\">", out);
            page_text(out, report_cell(cell, row, &t->list.col[c]));
            fputs("</td>", out);
        }
        fputs("</tr>\n", out);
    }
    fputs("</table></div>\n", out);
}

/* One bar of the whole step, a colour a line. */
static void where_it_went(FILE *out, const struct view *v)
{
    static const char *const color[ANSWER_LINES] = { "#4292c6", "#fdae6b", "#e6b800", "#e34a33", "#b15928", "#cab2d6",
                                                     "#8dd3c7", "#fb9a99", "#969696", "#74c476", "#525252" };
    double line_s[ANSWER_LINES];
    answer_lines(line_s, &v->r.lines);
    fputs("<h2>Where the step goes</h2><div class=\"bar\">", out);
    for (int l = 0; l < ANSWER_STEP; l++)
        if (line_s[l] > 0)
            fprintf(out, "<i style=\"width:%.3f%%;background:%s\" title=\"%s\"></i>",
                100 * line_s[l] / line_s[ANSWER_STEP],
                    color[l], answer_line_name((enum answer_line)l));
    fputs("</div><div class=\"key\">", out);
    for (int l = 0; l < ANSWER_STEP; l++)
        if (line_s[l] > 0)
            fprintf(out, "<span><i style=\"background:%s\"></i>%s %.1f %%</span>", color[l],
                    answer_line_name((enum answer_line)l), 100 * line_s[l] / line_s[ANSWER_STEP]);
    fputs("</div>\n", out);
}

static void headline(FILE *out, struct arena *a, const struct view *v, const struct view_ask *ask)
{
    const struct predict *r = &v->r;
    char text[64];
    fputs("<div class=\"cards\">\n", out);
    card(out, r->feasible ? "fits" : "does not fit",
         arena_printf(a, "%s of %s", arena_strdup(a, units_human(text, sizeof text,
             r->stage[r->worst_stage].peak_B, UNIT_B)),
                      arena_strdup(a, units_human(text, sizeof text, r->capacity_B, UNIT_B))), r->feasible
                          ? "yes" : "no");
    card(out, units_human(text, sizeof text, r->step_s, UNIT_S), "a step, predicted", "");
    card(out, arena_printf(a, "%.0f", r->tokens_per_s_gpu), "tokens/s/GPU", "");
    card(out, arena_printf(a, "%.0f", r->tflops_gpu), "model TFLOPS/GPU", "");
    card(out, arena_printf(a, "%.1f %%", 100 * r->mfu), arena_printf(a, "MFU of %s", v->peak), "");
    if (ask->tokens > 0)
        card(out, arena_printf(a, "%.1f days", v->cost.days),
             v->cost.usd > 0 ? arena_printf(a, "%.4g tokens, %.3g million USD", ask->tokens, v->cost.usd / 1e6)
                             : arena_printf(a, "%.4g tokens", ask->tokens), "");
    fputs("</div>\n", out);
    if (!r->feasible) fputs("<p>", out), page_text(out, r->reason), fputs("</p>\n", out);
    if (v->advice.bound) fputs("<p>infeasible ", out), page_text(out, v->advice.bound), fputs("</p>\n", out);
    fputs("<p>", out);
    page_text(out, v->prices);
    if (v->spread) fputs("; the step lies with 80 % in ", out), page_text(out, v->spread);
    else fputs("; no range of error is stated, for lack of published runs of this stack", out);
    fputs("</p>\n", out);
}

static void pictures(FILE *out, struct arena *a, const struct view *v, const struct view_ask *ask,
                     const struct draw_step *step)
{
    fputs("<h2>Where it sits</h2><div class=\"wide\">", out);
    draw_topology(out, v->job, &v->r.lines, v->r.place);
    fputs("</div>\n<h2>The step over time</h2>", out);
    if (step) {
        fputs("<input type=\"checkbox\" id=\"full\"><label for=\"full\"> full size</label><div class=\"wide "
            "whole\">", out);
        draw_pipeline(out, a, &step->pr, v->job, &step->t);
        fputs("</div><h2>Memory over time</h2><div class=\"wide\">", out);
        draw_memory(out, &step->pr, v->job, &step->t, pass_price_all(&step->c, cost_all_s(&step->c, a), a));
        fputs("</div>\n", out);
    } else fputs("<p>The step has too many passes to be drawn here.</p>\n", out);
    fputs("<h2>What a better machine buys</h2><div class=\"wide\">", out);
    draw_sensitivity(out, v->better, v->n_better);
    fputs("</div>\n", out);
    if (v->n_curve) {
        fputs("<h2>Varied</h2><div class=\"wide\">", out);
        draw_curve(out, arena_printf(a, "%.*s", (int)strcspn(ask->vary, "="), ask->vary), v->curve, v->n_curve);
        fputs("</div>\n", out);
    }
}

void page_write(FILE *out, struct arena *a, const struct view *v, const struct view_ask *ask,
    const struct draw_step *step)
{
    struct view_table t[VIEW_TABLES];
    const struct plan *p = &v->job->plan;
    const char *title = arena_printf(a, "%s on %d GPUs of %s", v->job->model.name, p->gpus, v->job->system.name);
    const int n = view_tables(t, v, a, ask);
    fputs("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
          "content=\"width=device-width\"><title>", out);
    page_text(out, title);
    fprintf(out, "</title><style>%s</style></head><body>\n<h1>", style);
    page_text(out, title);
    fputs("</h1>\n<p>", out);
    page_text(out, arena_printf(a, "stack %s, sequence %d, global batch %d; %s; layout %s",
        v->job->stack.name, p->seq, p->gbs,
                                answer_plan_line(a, p), layout_text(a, &p->split)));
    fputs("</p>\n", out);
    headline(out, a, v, ask);
    where_it_went(out, v);
    pictures(out, a, v, ask, step);
    for (int i = 0; i < n; i++) table(out, &t[i]);
    fputs("</body></html>\n", out);
}
