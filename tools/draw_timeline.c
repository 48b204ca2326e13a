/* The step of a run under its prediction: of every rank a lane predicted at the measured load and a lane
 * measured, on one axis. In a lane the upper row is the compute stream, the lower one all others; pale is
 * waiting for peers, which is not the transfer. Every span's title says what it is and how long both sides
 * took. */
#include "tools/draw.h"
#include <stdlib.h>

enum { LEFT = 150, WIDTH = 1560, RIGHT = 40, TOP = 84, ROW = 15, LANE = 2 * ROW + 2, PAIR = 2 * LANE + 22 };

struct timeline {
    FILE *out;
    const struct beside *b;
    int64_t *wait_ns[JOIN_SIDES];
    double per_ns;
};

static const char *color_of(const struct op *o)
{
    switch (op_family((enum op_kind)o->kind)) {
    case FAMILY_COMM: return o->group == GROUP_TP ? "#74c476" : o->group == GROUP_CP ? "#a1d99b" : o->group == GROUP_WORLD ? "#969696"
                            : o->stream == STREAM_DP ? "#9e9ac8" : "#31a354";
    case FAMILY_P2P: return "#e377c2";
    case FAMILY_OPTIM: return "#756bb1";
    case FAMILY_OFFLOAD: return "#8c6d31";
    default: return o->half == HALF_BWD ? "#fdae6b" : "#6baed6";
    }
}

static void box(const struct timeline *t, int64_t from_ns, int64_t to_ns, double y, const char *fill, double opacity)
{
    const double x = LEFT + t->per_ns * (double)from_ns, w = t->per_ns * (double)(to_ns - from_ns);
    fprintf(t->out, "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%d\" fill=\"%s\" fill-opacity=\"%.2f\"/>", x, y,
            w > 0.2 ? w : 0.2, ROW, fill, opacity);
}

static void draw_span(const struct timeline *t, enum join_side side, int64_t i, double y)
{
    const struct span *s = &t->b->side[side].span[i];
    const struct op *o = &t->b->pr.op[s->op];
    const struct span *p = side == JOIN_LOAD ? trace_find(&t->b->side[JOIN_MEASURED], 0, s->rank, s->step, s->op)
                                             : trace_find(&t->b->side[JOIN_LOAD], 0, s->rank, s->step, s->op);
    const int64_t met_ns = s->t0_ns + t->wait_ns[side][i];
    if (o->stream != STREAM_COMPUTE) y += ROW + 1;
    fprintf(t->out, "<g><title>rank %d, step %d, op %d, %s%s", s->rank, s->step, s->op, op_name((enum op_kind)o->kind),
            o->layer >= 0 ? ", layer " : "");
    if (o->layer >= 0) fprintf(t->out, "%d", o->layer);
    fprintf(t->out, ": %.4g us", 1e-3 * (double)(s->t1_ns - s->t0_ns));
    if (met_ns > s->t0_ns) fprintf(t->out, ", of which %.4g waiting", 1e-3 * (double)(met_ns - s->t0_ns));
    if (p) fprintf(t->out, "; %s %.4g us", side == JOIN_LOAD ? "measured" : "predicted", 1e-3 * (double)(p->t1_ns - p->t0_ns));
    fprintf(t->out, "</title>");
    if (met_ns > s->t0_ns) box(t, s->t0_ns, met_ns, y, color_of(o), 0.25);
    box(t, met_ns, s->t1_ns, y, color_of(o), 1);
    fprintf(t->out, "</g>\n");
}

static double y_of(int rank, enum join_side side)
{
    return TOP + rank * PAIR + (side == JOIN_MEASURED ? LANE + 4 : 0);
}

static void draw_lane(const struct timeline *t, enum join_side side)
{
    const struct trace *x = &t->b->side[side];
    const char *const what = side == JOIN_LOAD ? "predicted" : "measured";
    for (int r = 0; r < t->b->job.plan.gpus; r++)
        fprintf(t->out, "<text x=\"8\" y=\"%.1f\" font-size=\"12\">rank %d %s</text>\n", y_of(r, side) + ROW + 4, r, what);
    for (int64_t i = 0; i < x->n; i++)
        if (x->span[i].t1_ns > x->span[i].t0_ns) draw_span(t, side, i, y_of(x->span[i].rank, side));
}

static void draw_legend(const struct timeline *t)
{
    static const char *const key[][2] = {
        { "#6baed6", "forward" },  { "#fdae6b", "backward" },        { "#756bb1", "optimizer" }, { "#74c476", "tp, cp" },
        { "#31a354", "exchange" }, { "#9e9ac8", "gradients, weights" }, { "#e377c2", "between stages" },
    };
    const struct plan *p = &t->b->job.plan;
    char name[64], predicted[32], measured[32];
    fprintf(t->out, "<text x=\"8\" y=\"24\" font-size=\"17\">%s on %d ranks: predicted %s, measured %s</text>\n",
            draw_safe(name, t->b->job.model.name), p->gpus,
            units_human(predicted, sizeof predicted, join_length_s(&t->b->side[JOIN_LOAD]), UNIT_S),
            units_human(measured, sizeof measured, join_length_s(&t->b->side[JOIN_MEASURED]), UNIT_S));
    for (int i = 0; i < LEN(key); i++)
        fprintf(t->out, "<rect x=\"%d\" y=\"38\" width=\"14\" height=\"12\" fill=\"%s\"/><text x=\"%d\" y=\"49\" font-size=\"12\">"
                        "%s</text>\n", LEFT + 150 * i, key[i][0], LEFT + 150 * i + 20, key[i][1]);
    fprintf(t->out, "<text x=\"%d\" y=\"49\" font-size=\"12\">pale: waits for peers; upper row: compute</text>\n",
            LEFT + 150 * LEN(key));
}

void draw_timeline(FILE *out, struct arena *a, const struct beside *b)
{
    static const enum join_side lane[] = { JOIN_LOAD, JOIN_MEASURED };
    struct timeline t = { .out = out, .b = b };
    int64_t end_ns = 1;
    const int high = TOP + b->job.plan.gpus * PAIR + 24, wide = LEFT + WIDTH + RIGHT;
    for (int k = 0; k < LEN(lane); k++) {
        const struct trace *x = &b->side[lane[k]];
        t.wait_ns[lane[k]] = arena_alloc(a, (size_t)(x->n + 1) * sizeof(int64_t));
        trace_waits(t.wait_ns[lane[k]], x, &b->pr, &b->job, b->u);
        for (int64_t i = 0; i < x->n; i++)
            if (x->span[i].t1_ns > end_ns) end_ns = x->span[i].t1_ns;
    }
    t.per_ns = WIDTH / (double)end_ns;
    fprintf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
                 "font-family=\"Helvetica,Arial,sans-serif\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
            wide, high, wide, high);
    draw_legend(&t);
    draw_ticks(out, LEFT, t.per_ns, end_ns, TOP - 8, high - 22);
    for (int k = 0; k < LEN(lane); k++) draw_lane(&t, lane[k]);
    fprintf(out, "</svg>\n");
}
