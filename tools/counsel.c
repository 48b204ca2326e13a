#include "tools/counsel.h"
#include "sim/search_space.h"
#include <math.h>
#include <stddef.h>
#include <stdlib.h>

const struct report_col counsel_cols[] = {
    { "about", "about", REPORT_TEXT, offsetof(struct counsel_row, about) },
    { "flags", "change", REPORT_TEXT, offsetof(struct counsel_row, flags) },
    { "says", "because", REPORT_TEXT, offsetof(struct counsel_row, says) },
};
const int counsel_n_col = LEN(counsel_cols);

struct counsel { struct counsel_row *row; int n; struct arena *a; const struct job *j; const struct predict *r; };

static void say(struct counsel *c, const char *about, const char *says, const char *flags)
{
    if (c->n < COUNSEL_ROWS) c->row[c->n++] = (struct counsel_row){ about, says, flags };
}

/* ---- where groups sit ---- */

/* Hosts from the first to the last member of the first group. */
static int span_hosts(const struct counsel *c, enum group g)
{
    const int n = fold_size(c->j, g);
    struct arena scratch = { 0 };
    int32_t *rank = arena_alloc(&scratch, (size_t)n * sizeof *rank), last = 0;
    fold_members(c->j, g, 0, rank);
    for (int i = 0; i < n; i++) last = rank[i] > last ? rank[i] : last;
    arena_free(&scratch);
    return last / c->j->system.gpus_per_host + 1;
}

/* GPUs of a domain to use, so that no group of the kind leaves its domain; 0: they leave any. */
static int tight_domain(const struct counsel *c, enum group g)
{
    struct job j = *c->j;
    for (int d = j.system.domain - j.system.domain % j.system.gpus_per_host; d > 0; d -= j.system.gpus_per_host) {
        j.plan.domain_gpus = d;
        const struct place at = place_of(&j, g);
        if (at.straddles == 0 && at.domains == 1) return d;
    }
    return 0;
}

static void say_straddlers(struct counsel *c, enum group g)
{
    const struct place *at = &c->r->place[g];
    const int d = at->straddles > 0 ? tight_domain(c, g) : 0, of = c->j->plan.domain_gpus;
    if (!d || d == of) return;
    say(c, "placement",
        arena_printf(c->a, "%d of %d %s groups straddle NVLink domains of which %d GPUs are used: with %d none does", at->straddles,
                     at->groups, fold_group_name(g), of, d),
        arena_printf(c->a, "--domain-gpus %d", d));
}

/* Ranks fill domains in order, and a scheduler that knows nothing of groups does not. */
static void say_segments(struct counsel *c)
{
    static const enum group kinds[] = { GROUP_TPEP, GROUP_TP, GROUP_CP };
    const struct system *s = &c->j->system;
    int hosts = 0;
    enum group widest = GROUP_TPEP;
    for (int i = 0; i < LEN(kinds); i++) {
        const struct place *at = &c->r->place[kinds[i]];
        const int h = at->size > 1 && (at->domains == 1 || tight_domain(c, kinds[i])) ? span_hosts(c, kinds[i]) : 0;
        if (h > hosts) hosts = h, widest = kinds[i];
    }
    if (hosts < 2 || c->j->plan.gpus <= c->j->plan.domain_gpus || s->domain <= s->gpus_per_host) return;
    say(c, "placement", arena_printf(c->a, "%s groups span %d hosts: have the scheduler place hosts in segments of %d within one NVLink "
                                           "domain (Slurm: --segment=%d)", fold_group_name(widest), hosts, hosts, hosts), "");
}

/* ---- GPUs left over ---- */

static int divides(int n, int of) { return n > 0 && of % n == 0; }

/* The plan on whole domains: no larger an ep, of which a domain holds whole groups, and the batch that is nearest. */
static int fill_domains(struct job *j, const struct counsel *c, int domains)
{
    struct plan *p = &j->plan;
    struct diag why = { "" };
    *j = *c->j;
    p->domain_gpus = j->system.domain;
    p->gpus = domains * p->domain_gpus;
    while (p->ep > 1 && !(divides(p->etp * p->ep, p->domain_gpus) && divides(p->ep, j->model.experts))) p->ep--;
    if (!divides(p->tp * p->cp * p->pp, p->gpus) || !divides(p->etp * p->ep * p->pp, p->gpus)) return 0;
    const int at_once = p->mbs * (p->gpus / (p->tp * p->cp * p->pp)) * (p->vpp > 1 ? p->pp : 1);     /* whole groups */
    p->gbs = at_once * (p->gbs > at_once ? (p->gbs + at_once / 2) / at_once : 1);
    return plan_resolve(j, &why) == OK;
}

enum { MORE = 16 };     /* whole domains that are tried beyond those used now */

static void say_idle(struct counsel *c)
{
    const struct plan *p = &c->j->plan;
    const int domain = c->j->system.domain, domains = (p->gpus + p->domain_gpus - 1) / p->domain_gpus;
    const int idle = domains * domain - p->gpus;
    struct job *j;
    int n = domains;
    if (domains < 2 || idle <= 0) return;
    struct arena scratch = { 0 };
    j = arena_alloc(&scratch, sizeof *j);
    while (n <= domains + MORE && !fill_domains(j, c, n)) n++;
    const char *full = n > domains + MORE ? "" : arena_printf(c->a, "--gpus %d --domain-gpus %d --ep %d --gbs %d", j->plan.gpus, domain,
                                                           j->plan.ep, j->plan.gbs);
    const char *holds = divides(p->etp * p->ep, domain) ? "" : arena_printf(c->a, "; %d hold no whole groups of %d", domain, p->etp * p->ep);
    if (p->domain_gpus < domain)
        say(c, "idle", arena_printf(c->a, "%d of %d GPUs of each of %d NVLink domains are used, %d are left idle%s", p->domain_gpus, domain,
                                    domains, idle, holds), full);
    else say(c, "idle", arena_printf(c->a, "the last of %d NVLink domains has %d GPUs idle%s", domains, idle, holds), full);
    arena_free(&scratch);
}

/* ---- batches ---- */

/* Of a pipeline's step, what stages wait at its ends (Megatron-LM, arXiv 2104.04473, section 2.2). */
static double bubble(int pp, int vpp, double n_micro) { return (pp - 1) / (vpp * n_micro + pp - 1); }

static void say_batch(struct counsel *c)
{
    enum { SHARE = 20 };                        /* a twentieth of the step is worth a word, and what to aim at */
    const struct plan *p = &c->j->plan;
    const double now = c->r->lines.bubble_s / c->r->step_s, aim = 1.0 / SHARE;
    const double rest = fmax(0, now - bubble(p->pp, p->vpp, p->n_micro));       /* stages that are not alike wait anyhow */
    if (p->pp == 1 || !(now > aim) || !(bubble(p->pp, p->vpp, p->n_micro) > aim)) return;
    const int least = (int)ceil((p->pp - 1) * (1 - aim) / aim / p->vpp), m = (least + p->pp - 1) / p->pp * p->pp;
    say(c, "batch", arena_printf(c->a, "%d micro-batches on %d stages: the bubble is %.0f %% of the step; %d would leave about %.0f %% if stages are alike",
                                 p->n_micro, p->pp, 100 * now, m, 100 * (rest + bubble(p->pp, p->vpp, m))),
        arena_printf(c->a, "--gbs %lld", (long long)m * p->mbs * p->dp));
    if (p->mbs > 1)
        say(c, "batch", arena_printf(c->a, "or as many tokens in smaller micro-batches: about %.0f %%",
                                     100 * (rest + bubble(p->pp, p->vpp, (double)p->n_micro * p->mbs))), "--mbs 1");
    struct job j = *c->j;
    for (int v = 2 * p->vpp; p->pp * v <= c->j->model.layers; v *= 2) {
        struct diag why = { "" };
        j.plan.vpp = v;
        j.plan.schedule = p->ep_overlap ? p->schedule : SCHEDULE_INTERLEAVED;
        if (p->vpp_group > p->n_micro || layout_parse(&j.plan.split, "auto", j.model.layers, j.plan.mtp, p->pp, v, &why) != OK ||
            plan_resolve(&j, &why) != OK)
            continue;
        say(c, "batch", arena_printf(c->a, "or %d chunks a stage: about %.0f %%, and more messages", v, 100 * (rest + bubble(p->pp, v, p->n_micro))),
            arena_printf(c->a, "--vpp %d --layout auto --schedule auto", v));
        return;
    }
}

int counsel_plan(struct counsel_row row[COUNSEL_ROWS], struct arena *a, const struct job *j, const struct predict *r)
{
    struct counsel c = { row, 0, a, j, r };
    say_straddlers(&c, GROUP_TPEP);
    say_straddlers(&c, GROUP_TP);
    say_segments(&c);
    say_idle(&c);
    say_batch(&c);
    return c.n;
}

/* ---- of a search ---- */

static int64_t suits(const struct job *j, const struct search_ask *ask, int gbs)
{
    struct arena scratch = { 0 };
    struct job *other = arena_alloc(&scratch, sizeof *other);
    struct search_space s;
    *other = *j;
    other->plan.gbs = gbs;
    search_space_init(&s, &scratch, other, ask->fixed);
    const int64_t n = s.gbs_valid;
    arena_free(&scratch);
    return n;
}

int counsel_batch(struct counsel_row row[COUNSEL_ROWS], struct arena *a, const struct job *j, const struct search_ask *ask,
                  const struct search_result *r)
{
    const int gbs = j->plan.gbs, gpus = j->plan.gpus;
    int64_t most = r->gbs_valid;
    int best = gbs;
    if (2 * r->gbs_valid >= r->grids) return 0;
    for (int of = gpus; of > 1 && of >= gpus / 4; of = of % 2 ? 1 : of / 2)
        for (int up = 0; up < 2; up++) {
            const int near = (gbs / of + up) * of;
            const int64_t n = near > 0 && near != gbs ? suits(j, ask, near) : 0;
            const int nearer = best != gbs && abs(near - gbs) < abs(best - gbs);
            if (n > most || (n == most && nearer)) most = n, best = near;
        }
    if (best == gbs) return 0;
    row[0] = (struct counsel_row){ "batch",
        arena_printf(a, "a batch of %d is divided by %lld of %lld pairs of foldings, one of %d by %lld", gbs, (long long)r->gbs_valid,
                     (long long)r->grids, best, (long long)most), arena_printf(a, "--gbs %d", best) };
    return 1;
}
