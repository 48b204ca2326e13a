/* Where the stages of a plan sit on the cluster, and what one GPU sends over each kind of link in a step. Link load
 * is by the slowest link that a group crosses, as the table of communication has it. */
#include "tools/draw.h"
#include <math.h>

enum { WIDTH = 1180, CELL = 13, DOMAINS = 48, BARS = 470 };

/* One GPU a cell, filled with the colour of its pipeline stage. */
static void draw_domain(FILE *out, const struct job *j, int domain, double x, double y, int columns)
{
    const struct plan *p = &j->plan;
    const int first = domain * p->domain_gpus, per_host = j->system.gpus_per_host;
    const int rows = (j->system.domain + columns - 1) / columns;
    fprintf(out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%d\" height=\"%d\" rx=\"5\" fill=\"none\" stroke=\"#999\"/>"
                 "<text x=\"%.1f\" y=\"%.1f\" font-size=\"9\" fill=\"#555\">domain %d</text>\n",
            x, y, columns * CELL + 8, rows * CELL + 18, x + 4, y + 10, domain);
    for (int i = 0; i < j->system.domain; i++) {
        const int rank = first + i, used = i < p->domain_gpus && rank < p->gpus;
        const int stage = used ? fold_coord(p, rank).pp : 0;
        fprintf(out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%d\" height=\"%d\" fill=\"%s\" stroke=\"%s\" "
            "stroke-width=\"0.6\">",
                x + 4 + i % columns * CELL, y + 14 + i / columns * CELL, CELL - 2, CELL - 2,
                used ? draw_color(stage) : "#ffffff", i / per_host % 2 ? "#777" : "#bbb");
        if (used) fprintf(out, "<title>rank %d, stage %d</title></rect>", rank, stage);
        else fprintf(out, "<title>idle</title></rect>");
    }
    fputc('\n', out);
}

/* A stacked bar of the bytes of the groups on one link; the whole width is a link busy all the step. */
static void draw_link(FILE *out, const struct sim_lines *l, const struct place *place, enum link link, double B_per_s,
                      const char *what, double y)
{
    const double whole_B = B_per_s * l->step_s;
    double x = 180, sent_B = 0;
    char text[32], rate[32];
    for (int g = 1; g < GROUP_COUNT; g++)
        if (place[g].link == (int)link) sent_B += l->group_B[g];
    fprintf(out, "<text x=\"8\" y=\"%.1f\" font-size=\"13\">%s, %s</text><rect x=\"180\" y=\"%.1f\" "
        "width=\"%d\" height=\"18\" "
                 "fill=\"#f0f0f0\" stroke=\"#bbb\"/>\n",
            y + 13, what, units_human(rate, sizeof rate, B_per_s, UNIT_B_PER_S), y, BARS);
    for (int g = 1; g < GROUP_COUNT; g++) {
        const double w = place[g].link == (int)link && whole_B > 0 ? BARS * fmin(1, l->group_B[g] / whole_B) : 0;
        if (w <= 0) continue;
        fprintf(out, "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"18\" fill=\"%s\"><title>%s: "
            "%s</title></rect>", x, y,
                w, draw_color(g), fold_group_name((enum group)g), units_human(text, sizeof text,
                    l->group_B[g], UNIT_B));
        if (w > 26)
            fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" font-size=\"11\">%s</text>", x + 4, y + 13,
                    fold_group_name((enum group)g));
        x += w;
    }
    fprintf(out, "\n<text x=\"%d\" y=\"%.1f\" font-size=\"12\" fill=\"#555\">%s a GPU and step: %.1f %% of "
        "what the link could "
                 "carry</text>\n",
            180 + BARS + 10, y + 13, units_human(text, sizeof text, sent_B, UNIT_B), 100 * sent_B / whole_B);
}

void draw_topology(FILE *out, const struct job *j, const struct sim_lines *l, const struct place *place)
{
    const struct plan *p = &j->plan;
    const int domains = (p->gpus + p->domain_gpus - 1) / p->domain_gpus;
    const int shown = domains < DOMAINS ? domains : DOMAINS;
    const int columns = j->system.domain <= 8 ? j->system.domain : j->system.domain <= 16 ? 8 : 12;
    const int rows = (j->system.domain + columns - 1) / columns;
    const int wide = columns * CELL + 20, across = (WIDTH - 16) / wide, down = (shown + across - 1) / across;
    const double links = 72 + down * (rows * CELL + 28);
    char name[64], system[64];
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\" viewBox=\"0 0 %d %.0f\" "
            "font-family=\"Helvetica,Arial,sans-serif\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n"
            "<text x=\"8\" y=\"22\" font-size=\"17\">%s on %d GPUs of %s: %d NVLink domains</text>\n"
            "<text x=\"8\" y=\"42\" font-size=\"12\" fill=\"#555\">a cell is a GPU, its colour the pipeline "
            "stage; white: idle; "
            "borders alternate by host%s</text>\n",
            WIDTH, links + 76, WIDTH, links + 76, draw_safe(name, j->model.name), p->gpus,
            draw_safe(system, j->system.name), domains, shown < domains ? "; the first domains only" : "");
    for (int s = 0; s < p->pp && s < 24; s++)
        fprintf(out, "<rect x=\"%d\" y=\"32\" width=\"11\" height=\"11\" fill=\"%s\"/><text x=\"%d\" y=\"42\" "
                     "font-size=\"11\">%d</text>", 520 + s * 27, draw_color(s), 533 + s * 27, s);
    for (int d = 0; d < shown; d++)
        draw_domain(out, j, d, 8 + d % across * wide, 54 + d / across * (rows * CELL + 28), columns);
    draw_link(out, l, place, LINK_NVLINK, j->system.nvlink_B_per_s, "NVLink", links);
    draw_link(out, l, place, LINK_NIC, j->system.nic_B_per_s, "NIC", links + 28);
    fprintf(out, "</svg>\n");
}
