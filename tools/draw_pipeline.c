/* The predicted step as a timeline. A bar is a pass from its first to its last op on the compute stream; the thin
 * red strip under it is where that stream stands still inside the pass, which is communication that nothing hides.
 * Colour is the chunk: blue forward, orange backward, darker for later chunks; a woven pass has both. */
#include "tools/draw.h"
#include <math.h>
#include <stdlib.h>

enum { LEFT = 92, RIGHT = 96, TOP = 64, ROW = 34, GAP = 12, BAR = 26, PASS = 10, NARROW = 1720, WIDE = 16000 };

struct canvas {
    FILE *out;
    const struct program *pr;
    const struct job *j;
    double per_ns;
    int64_t end_ns;
    int width;
};
struct bar { int stage, step; int64_t t0_ns, t1_ns; };

static const char *shade(const char *const color[4], int chunk, int vpp)
{
    return color[vpp > 1 ? chunk * 3 / (vpp - 1) : 1];
}

static const char *fwd_color(const struct canvas *c, int chunk)
{
    static const char *const color[] = { "#c6dbef", "#9ecae1", "#6baed6", "#4292c6" };
    return shade(color, chunk / c->j->plan.pp, c->j->plan.vpp);
}

static const char *bwd_color(const struct canvas *c, int chunk)
{
    static const char *const color[] = { "#fee6ce", "#fdd0a2", "#fdae6b", "#fd8d3c" };
    return shade(color, chunk / c->j->plan.pp, c->j->plan.vpp);
}

static double x_of(const struct canvas *c, int64_t t_ns)
{
    return LEFT + c->per_ns * (double)t_ns;
}

static double y_of(int stage)
{
    return TOP + stage * (ROW + GAP);
}

static void rect(const struct canvas *c, double x, double y, double w, double h, const char *fill)
{
    fprintf(c->out, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"%s\"/>", x, y,
            w > 0.3 ? w : 0.3, h, fill);
}

static const char *one_color(const struct canvas *c, const struct pass *p)
{
    switch (p->kind) {
    case PASS_FWD: return fwd_color(c, p->chunk[0]);
    case PASS_BWD:
    case PASS_BWD_INPUT:
    case PASS_BWD_LAST: return bwd_color(c, p->chunk[1]);
    case PASS_BWD_WEIGHT: return "#c7e9c0";
    case PASS_OPTIM: return "#bcbddc";
    default: return "#d9d9d9";
    }
}

static void draw_label(const struct canvas *c, const struct bar *b, const struct step *s, double w)
{
    const int micro = s->micro[0] >= 0 ? s->micro[0] : s->micro[1];
    if (w < 13 || micro < 0) return;
    fprintf(c->out, "<text x=\"%.2f\" y=\"%.2f\" text-anchor=\"middle\" font-size=\"10\">%d</text>",
            x_of(c, b->t0_ns) + w / 2, y_of(b->stage) + BAR / 2 + 4.0, micro);
}

static void draw_bar(const struct canvas *c, const struct bar *b)
{
    const struct step *s = &c->pr->step[b->stage][b->step];
    const struct pass *p = &c->pr->pass[s->pass];
    const double x = x_of(c, b->t0_ns), w = x_of(c, b->t1_ns) - x, y = y_of(b->stage);
    fprintf(c->out, "<g stroke=\"#555\" stroke-width=\"%s\"><title>stage %d, step %d: %s, %.4g ms",
            w > 4 ? "0.4" : "0", b->stage, b->step, program_pass_name((enum pass_kind)p->kind),
            1e-6 * (double)(b->t1_ns - b->t0_ns));
    for (int half = 0; half < 2; half++)
        if (s->micro[half] >= 0)
            fprintf(c->out, ", %s of chunk %d, micro-batch %d", half ? "backward" : "forward", p->chunk[half],
                    s->micro[half]);
    fprintf(c->out, "</title>");
    if (p->kind == PASS_FWD_BWD) {
        rect(c, x, y, w, BAR / 2, fwd_color(c, p->chunk[0]));
        rect(c, x, y + BAR / 2, w, BAR / 2, bwd_color(c, p->chunk[1]));
    } else {
        rect(c, x, y, w, BAR, one_color(c, p));
    }
    fprintf(c->out, "</g>");
    draw_label(c, b, s, w);
    fprintf(c->out, "\n");
}

/* Where the compute stream stands still between two of its ops of one pass. */
static void draw_still(const struct canvas *c, int stage, int64_t from_ns, int64_t to_ns)
{
    const double w = c->per_ns * (double)(to_ns - from_ns);
    if (w < 0.05) return;
    rect(c, x_of(c, from_ns), y_of(stage) + BAR + 1, w, 5, "#e34a33");
}

static int by_start(const void *a, const void *b)
{
    const struct span *x = a, *y = b;
    if (x->t0_ns != y->t0_ns) return x->t0_ns < y->t0_ns ? -1 : 1;
    return (x->step > y->step) - (x->step < y->step);
}

/* A rank's spans on the compute stream, by start: passes follow each other there. */
static int64_t compute_spans(struct span *to, const struct canvas *c, const struct trace *t, int rank)
{
    int64_t n = 0;
    for (int64_t i = 0; i < t->n; i++) {
        const struct span *s = &t->span[i];
        if (s->rank == rank && c->pr->op[s->op].stream == STREAM_COMPUTE && s->t1_ns > s->t0_ns) to[n++] = *s;
    }
    qsort(to, (size_t)n, sizeof *to, by_start);
    return n;
}

static void draw_stage(const struct canvas *c, const struct span *s, int64_t n, int stage)
{
    struct bar b = { .stage = stage, .step = -1 };
    int64_t busy_ns = 0;
    fprintf(c->out, "<text x=\"8\" y=\"%.1f\" font-size=\"13\">stage %d</text>\n", y_of(stage) + BAR / 2 + 4.0,
            stage);
    for (int64_t i = 0; i < n; i++) {
        busy_ns += s[i].t1_ns - s[i].t0_ns;
        if (s[i].step == b.step) {
            draw_still(c, stage, b.t1_ns, s[i].t0_ns);
        } else {
            if (b.step >= 0) draw_bar(c, &b);
            b = (struct bar){ stage, s[i].step, s[i].t0_ns, s[i].t1_ns };
        }
        if (s[i].t1_ns > b.t1_ns) b.t1_ns = s[i].t1_ns;
    }
    if (b.step >= 0) draw_bar(c, &b);
    fprintf(c->out, "<text x=\"%d\" y=\"%.1f\" font-size=\"12\" fill=\"#555\">busy %.1f %%</text>\n",
            LEFT + c->width + 8, y_of(stage) + BAR / 2 + 4.0, 100 * (double)busy_ns / (double)c->end_ns);
}

void draw_ticks(FILE *out, double left, double per_ns, int64_t end_ns, double y0, double y1)
{
    const double end_s = 1e-9 * (double)end_ns, raw = end_s / 10, power = pow(10, floor(log10(raw)));
    const double tick_s = power * (raw / power < 1.5 ? 1 : raw / power < 3.5 ? 2 : raw / power < 7.5 ? 5 : 10);
    for (int i = 0; i * tick_s <= end_s; i++) {
        char text[32];
        const double x = left + per_ns * (double)trace_ns(i * tick_s);
        fprintf(out,
                "<line x1=\"%.1f\" y1=\"%.0f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#ccc\" stroke-width=\"0.6\"/>"
                "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\" font-size=\"11\" fill=\"#555\">%s</text>\n",
                x, y0, x, y1, x, y1 + 14, units_human(text, sizeof text, i * tick_s, UNIT_S));
    }
}

static void draw_legend(const struct canvas *c)
{
    static const char *const key[][2] = {
        { "#9ecae1", "forward" }, { "#fdd0a2", "backward" }, { "#c7e9c0", "weight gradients" },
        { "#bcbddc", "optimizer" }, { "#e34a33", "compute waits inside a pass" },
    };
    char name[64], step[32];
    const struct plan *p = &c->j->plan;
    draw_safe(name, c->j->model.name);
    fprintf(c->out,
            "<text x=\"8\" y=\"22\" font-size=\"17\">%s on %d GPUs: predicted step %s, pp %d, vpp %d, %d "
            "micro-batches</text>\n",
            name, p->gpus, units_human(step, sizeof step, 1e-9 * (double)c->end_ns, UNIT_S), p->pp, p->vpp,
            p->n_micro);
    for (int i = 0; i < LEN(key); i++) {
        rect(c, LEFT + 200.0 * i, 34, 14, 12, key[i][0]);
        fprintf(c->out, "<text x=\"%.1f\" y=\"45\" font-size=\"12\">%s</text>\n", LEFT + 200.0 * i + 20,
                key[i][1]);
    }
    fprintf(c->out, "<text x=\"%.1f\" y=\"45\" font-size=\"12\">darker: later chunk; number: micro-batch</text>\n",
            LEFT + 200.0 * LEN(key));
}

/* Wide enough that most passes are seen apart, if that is at all possible. */
static int width_of(const struct program *pr)
{
    int width = NARROW;
    for (int s = 0; s < pr->n_stage; s++)
        if (PASS * pr->n_step[s] > width) width = PASS * pr->n_step[s];
    return width < WIDE ? width : WIDE;
}

void draw_pipeline(FILE *out, struct arena *a, const struct program *pr, const struct job *j, const struct trace *t)
{
    struct canvas c = { .out = out, .pr = pr, .j = j, .end_ns = 1 };
    struct span *s = arena_alloc(a, (size_t)(t->n + 1) * sizeof *s);
    for (int64_t i = 0; i < t->n; i++)
        if (t->span[i].t1_ns > c.end_ns) c.end_ns = t->span[i].t1_ns;
    c.width = width_of(pr);
    c.per_ns = (double)c.width / (double)c.end_ns;
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\" viewBox=\"0 0 %d %.0f\" preserveAspectRatio=\"none\" "
            "font-family=\"Helvetica,Arial,sans-serif\">\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
            LEFT + c.width + RIGHT, y_of(pr->n_stage) + 28, LEFT + c.width + RIGHT, y_of(pr->n_stage) + 28);
    draw_legend(&c);
    draw_ticks(out, LEFT, c.per_ns, c.end_ns, TOP - 6, y_of(pr->n_stage));
    for (int stage = 0; stage < pr->n_stage; stage++) {
        const struct coord at = { .pp = stage };
        draw_stage(&c, s, compute_spans(s, &c, t, fold_rank(&j->plan, at)), stage);
    }
    fprintf(out, "</svg>\n");
}
