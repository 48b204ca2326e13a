/* Where the ranks of each group sit. A cluster is an NVLink domain, a node a host, a cell a GPU; domains stand in
 * columns so that a thousand GPUs still make a page and not a ribbon. */
#include "tools/draw.h"
#include <math.h>
#include <string.h>

const char *draw_color(int i)
{
    static const char *const color[] = { "#a6cee3", "#fdbf6f", "#b2df8a", "#fb9a99", "#cab2d6", "#ffff99",
                                         "#8dd3c7", "#e5c494", "#f4cae4", "#ccebc5", "#80b1d3", "#d9d9d9" };
    return color[i % LEN(color)];
}

char *draw_safe(char to[64], const char *text)
{
    snprintf(to, 64, "%s", text);
    for (char *c = to; *c; c++)
        if (strchr("\"\\<>&{}", *c)) *c = '_';
    return to;
}

/* Groups are numbered by the order in which ranks first meet them. */
static void number_groups(int32_t *number, int32_t *member, const struct job *j, enum group g)
{
    int n = 0;
    for (int r = 0; r < j->plan.gpus; r++) number[r] = -1;
    for (int r = 0; r < j->plan.gpus; r++) {
        int32_t ranks[DRAW_GPUS];
        if (number[r] >= 0) continue;
        const int size = fold_size(j, g);
        fold_members(j, g, r, ranks);
        for (int i = 0; i < size; i++) {
            number[ranks[i]] = n;
            member[ranks[i]] = i;
        }
        n++;
    }
}

static void draw_gpu(FILE *out, const struct job *j, int rank, int number, int member)
{
    const struct plan *p = &j->plan;
    const struct coord c = fold_coord(p, rank);
    const struct { const char *name; int size, at; } axis[] = {
        { "pp", p->pp, c.pp }, { "tp", p->tp, c.tp }, { "cp", p->cp, c.cp }, { "dp", p->dp, c.dp },
        { "etp", p->etp, c.etp }, { "ep", p->ep, c.ep }, { "edp", p->edp, c.edp } };
    fprintf(out, "<td bgcolor=\"%s\" width=\"52\"><b>%d</b><br/><font point-size=\"9\">#%d.%d", draw_color(number),
            rank, number, member);
    const char *between = "<br/>";
    for (int i = 0; i < LEN(axis); i++) {
        if (i == 4) between = "<br/>";          /* the second fold has a line of its own */
        if (axis[i].size > 1) fprintf(out, "%s%s%d", between, axis[i].name, axis[i].at), between = " ";
    }
    fprintf(out, "</font></td>");
}

static void draw_host(FILE *out, const struct job *j, int first, int end, const int32_t *number,
                      const int32_t *member)
{
    fprintf(out, "    h%d [label=<<table border=\"0\" cellborder=\"1\" cellspacing=\"0\" cellpadding=\"2\"><tr>",
            first);
    for (int r = first; r < end; r++) draw_gpu(out, j, r, number[r], member[r]);
    fprintf(out, "</tr></table>>];\n");
}

/* Returns the domain's last host; `above`: the host it stands under, -1: none. */
static int draw_domain(FILE *out, const struct job *j, int domain, int above, const int32_t *number,
                       const int32_t *member)
{
    const struct plan *p = &j->plan;
    const int first = domain * p->domain_gpus, room = p->gpus - first;
    const int end = first + (room < p->domain_gpus ? room : p->domain_gpus);
    const int idle = j->system.domain - (end - first);
    fprintf(out, "  subgraph cluster_%d {\n    label=\"NVLink domain %d%s\"; style=rounded; color=\"#888888\";\n",
            domain, domain, idle > 0 ? " (not full)" : "");
    for (int h = first; h < end; h += j->system.gpus_per_host)
        draw_host(out, j, h, h + j->system.gpus_per_host < end ? h + j->system.gpus_per_host : end, number, member);
    fprintf(out, "  }\n");
    int last = above;
    for (int h = first; h < end; h += j->system.gpus_per_host) {
        if (last >= 0) fprintf(out, "  h%d -> h%d;\n", last, h);
        last = h;
    }
    return last;
}

void draw_groups(FILE *out, const struct job *j, enum group g)
{
    int32_t number[DRAW_GPUS], member[DRAW_GPUS];
    const struct plan *p = &j->plan;
    const struct place at = place_of(j, g);
    const int domains = (p->gpus + p->domain_gpus - 1) / p->domain_gpus;
    const int hosts = (p->domain_gpus + j->system.gpus_per_host - 1) / j->system.gpus_per_host;
    const int column = (int)fmax(1, round(sqrt((double)domains * j->system.gpus_per_host / hosts)));
    char model[64], system[64];
    int above = -1;
    number_groups(number, member, j, g);
    fprintf(out,
        "digraph groups {\n  graph [fontname=\"Helvetica\", labelloc=t, fontsize=18, nodesep=0.1, ranksep=0.05, "
        "label=\"%s on %d GPUs of %s: groups of %s (%s)\\n%d groups of %d ranks, slowest link %s, worst group "
        "touches %d domain(s), %d straddle unevenly\\na cell: rank, #group.member, coordinates in both folds\"];\n"
        "  node [shape=plain, fontname=\"Helvetica\", fontsize=11];\n  edge [style=invis];\n",
        draw_safe(model, j->model.name), p->gpus, draw_safe(system, j->system.name), fold_group_name(g),
        p->order ? "tp-cp-ep-pp-dp" : "tp-cp-ep-dp-pp", at.groups, at.size, place_link_name((enum link)at.link),
        at.domains, at.straddles);
    for (int d = 0; d < domains; d++) above = draw_domain(out, j, d, d % column ? above : -1, number, member);
    fprintf(out, "}\n");
}
