/* Memory over the predicted step: a row a stage, what is allocated at each pass's beginning, most and end, as the
 * pairs of the passes add up (sim_live). Grey lasts for ever, blue comes and goes, the red line is all that may be
 * allocated. */
#include "tools/draw.h"
#include "sim/predict.h"

enum { LEFT = 92, RIGHT = 150, TOP = 56, HIGH = 64, GAP = 14, WIDTH = 1400 };

struct field { FILE *out; double per_ns, per_B; };

static double x_of(const struct field *f, int64_t t_ns)
{
    return LEFT + f->per_ns * (double)t_ns;
}

static double y_of(const struct field *f, int stage, double bytes)
{
    return TOP + stage * (HIGH + GAP) + HIGH - f->per_B * bytes;
}

/* When step k of the stage begins and ends on the compute stream; `at` goes on from call to call. */
static void times_of(int64_t t_ns[2], const struct program *pr, const struct trace *t, int rank, int step,
    int64_t *at)
{
    while (*at < t->n && (t->span[*at].rank < rank || (t->span[*at].rank == rank
        && t->span[*at].step < step))) (*at)++;
    t_ns[0] = t_ns[1] = -1;
    for (; *at < t->n && t->span[*at].rank == rank && t->span[*at].step == step; (*at)++) {
        const struct span *s = &t->span[*at];
        if (pr->op[s->op].stream != STREAM_COMPUTE) continue;
        if (t_ns[0] < 0 || s->t0_ns < t_ns[0]) t_ns[0] = s->t0_ns;
        if (s->t1_ns > t_ns[1]) t_ns[1] = s->t1_ns;
    }
}

static void draw_stage(const struct field *f, const struct program *pr, const struct job *j, const struct trace *t,
                       const struct pass_price *price, int stage)
{
    const struct sim_peak peak = sim_live(pr, price, stage);
    const int rank = fold_rank(&j->plan, (struct coord){ .pp = stage });
    const double left = LEFT, right = LEFT + WIDTH, floor = y_of(f, stage, 0);
    double now_B = peak.kept_B;
    int64_t at = 0;
    char most[32];
    fprintf(f->out, "<text x=\"8\" y=\"%.1f\" font-size=\"13\">stage %d</text>\n", floor - HIGH / 2.0, stage);
    fprintf(f->out, "<path fill=\"#9ecae1\" stroke=\"#3182bd\" stroke-width=\"0.7\" d=\"M%.1f %.1f", left, floor);
    for (int k = 0; k < pr->n_step[stage]; k++) {
        const struct pass_price *p = &price[pr->step[stage][k].pass];
        int64_t t_ns[2];
        times_of(t_ns, pr, t, rank, k, &at);
        if (t_ns[0] >= 0)
            fprintf(f->out, "L%.2f %.2fL%.2f %.2fL%.2f %.2f", x_of(f, t_ns[0]), y_of(f, stage, now_B),
                    x_of(f, (t_ns[0] + t_ns[1]) / 2), y_of(f, stage, now_B + p->peak_B), x_of(f, t_ns[1]),
                    y_of(f, stage, now_B + p->net_B));
        now_B += p->net_B;
    }
    fprintf(f->out, "L%.1f %.2fL%.1f %.1fZ\"/>\n", right, y_of(f, stage, now_B), right, floor);
    fprintf(f->out,
            "<rect x=\"%.1f\" y=\"%.2f\" width=\"%d\" height=\"%.2f\" fill=\"#bdbdbd\"><title>weights, "
            "gradients, optimizer</title></rect>"
            "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.2f\" y2=\"%.2f\" stroke=\"#e34a33\" stroke-width=\"1.2\"/>\n"
            "<text x=\"%.1f\" y=\"%.1f\" font-size=\"12\" fill=\"#555\">most %s</text>\n",
            left, y_of(f, stage, peak.kept_B), WIDTH, f->per_B * peak.kept_B, left, right,
            y_of(f, stage, predict_room_B(j)), y_of(f, stage, predict_room_B(j)), right + 8, floor - HIGH / 2.0,
            units_human(most, sizeof most, peak.live_B, UNIT_B));
}

void draw_memory(FILE *out, const struct program *pr, const struct job *j, const struct trace *t,
                 const struct pass_price *price)
{
    struct field f = { .out = out };
    double most_B = predict_room_B(j);
    int64_t end_ns = 1;
    char name[64], room[32];
    for (int64_t i = 0; i < t->n; i++)
        if (t->span[i].t1_ns > end_ns) end_ns = t->span[i].t1_ns;
    for (int s = 0; s < pr->n_stage; s++) {
        const double live_B = sim_live(pr, price, s).live_B;
        if (live_B > most_B) most_B = live_B;
    }
    f.per_ns = (double)WIDTH / (double)end_ns;
    f.per_B = HIGH / most_B;
    const int high = TOP + pr->n_stage * (HIGH + GAP) + 8;
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
            "font-family=\"Helvetica,Arial,sans-serif\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n"
            "<text x=\"8\" y=\"22\" font-size=\"17\">%s on %d GPUs: allocated memory of one GPU over a step</text>\n"
            "<text x=\"8\" y=\"42\" font-size=\"12\" fill=\"#555\">grey: weights, gradients, optimizer; blue: "
            "comes and "
            "goes; red line: the %s that can be allocated</text>\n",
            LEFT + WIDTH + RIGHT, high, LEFT + WIDTH + RIGHT, high, draw_safe(name, j->model.name), j->plan.gpus,
            units_human(room, sizeof room, predict_room_B(j), UNIT_B));
    for (int s = 0; s < pr->n_stage; s++) draw_stage(&f, pr, j, t, price, s);
    fprintf(out, "</svg>\n");
}
