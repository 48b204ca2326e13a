/* What nccl-tests prints: comments with the ranks and their hosts, then a row a size: size, count, type, redop,
 * root, and twice time (us), algbw, busbw (GB/s), wrong. Bus bandwidth is bytes that a rank sends over time (nccl-
 * tests doc/PERFORMANCE.md), so an efficiency is by the formulas of sim/cost_comm.c turned round. */
#include "tools/nccl.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum collective { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALLTOALL, COLLECTIVES };
static const char *const collective_names[] = { "all_reduce", "all_gather", "reduce_scatter", "alltoall" };

struct sample { double size_B, time_s, bus_B_per_s; int line; };
enum { HOSTS = 64, RANKS = 4096 };
struct output { struct sample least, most; int kind, ranks, hosts; char host[HOSTS][64]; };

static int kind_in(const char *text, size_t n)
{
    for (int k = 0; k < COLLECTIVES; k++)
        for (size_t i = 0; i + strlen(collective_names[k]) <= n; i++)
            if (strncmp(text + i, collective_names[k], strlen(collective_names[k])) == 0) return k;
    return COLLECTIVES;
}

/* "#  Rank  0 Group  0 Pid 123 on node1 device  0 [0x19] NVIDIA H100": counts it, and its host. */
static void read_rank(struct output *o, const char *line, size_t n)
{
    char text[256], host[64];
    const char *on;
    int i = 0, rank;
    snprintf(text, sizeof text, "%.*s", (int)(n < 255 ? n : 255), line);
    if (sscanf(text, "# Rank %d", &rank) != 1 || !(on = strstr(text, " on ")) || sscanf(on, " on %63s",
        host) != 1) return;
    o->ranks++;
    while (i < o->hosts && strcmp(o->host[i], host) != 0) i++;
    if (i == o->hosts && o->hosts < HOSTS) snprintf(o->host[o->hosts++], sizeof o->host[0], "%s", host);
}

static enum err read_row(struct output *o, const char *name, int line, const char *at, size_t n, struct diag *d)
{
    char text[512], type[32], redop[32];
    double size, count, time_us, alg, bus;
    int root;
    snprintf(text, sizeof text, "%.*s", (int)(n < 511 ? n : 511), at);
    if (sscanf(text, "%lf %lf %31s %31s %d %lf %lf %lf", &size, &count, type, redop, &root, &time_us, &alg,
        &bus) != 8)
        return fail(d, ERR_CONFIG, "%s:%d: not a row of nccl-tests (size count type redop root time algbw "
            "busbw): '%s'", name,
                    line, cfg_shown(text).text);
    if (!(size >= 0 && size < 1e15 && time_us > 0 && time_us < 1e12 && bus >= 0 && bus < 1e6))
        return fail(d, ERR_CONFIG, "%s:%d: size %g, time %g us, busbw %g GB/s: no machine does that", name,
            line, size, time_us,
                    bus);
    const struct sample s = { size, 1e-6 * time_us, 1e9 * bus, line };
    if (size > 0 && (o->least.line == 0 || size < o->least.size_B)) o->least = s;
    if (o->most.line == 0 || size >= o->most.size_B) o->most = s;
    return OK;
}

static enum err read_output(struct output *o, const char *name, const char *text, struct diag *d)
{
    int line = 1;
    *o = (struct output){ .kind = COLLECTIVES };
    for (const char *at = text; *at; line++) {
        const size_t n = strcspn(at, "\n"), blank = strspn(at, " \t\r");
        if (blank < n && at[blank] == '#') {
            if (o->kind == COLLECTIVES) o->kind = kind_in(at, n);
            read_rank(o, at + blank, n - blank);
        } else if (blank < n && strchr("0123456789", at[blank])) TRY(read_row(o, name, line, at, n, d));
        at += n + (at[n] == '\n');
    }
    if (o->kind == COLLECTIVES) o->kind = kind_in(name, strlen(name));
    if (o->kind == COLLECTIVES)
        return fail(d, ERR_CONFIG, "%s: neither output nor file says which collective: name the file "
            "all_reduce, all_gather, "
                                   "reduce_scatter or alltoall", name);
    if (o->most.line == 0) return fail(d, ERR_CONFIG, "%s: no row of figures is in this output", name);
    if (o->ranks < 2 || o->ranks > RANKS || o->ranks % o->hosts)
        return fail(d, ERR_CONFIG, "%s: %d ranks on %d hosts; 2 or more, as many on each host, are needed "
            "(lines \"# Rank ..\")",
                    name, o->ranks, o->hosts);
    return OK;
}

static enum err set(double *to, struct nccl_said *said, struct arena *a, const char *name, const struct output *o,
                    const char *key, double x, struct diag *d)
{
    if (!(x > 0 && x <= 1))
        return fail(d, ERR_CONFIG, "%s:%d: %s would be %.3g, more than the link: is the bandwidth of --system "
            "right?", name,
                    o->most.line, key, x);
    said->text[said->n++] = arena_printf(a, "%s: %.3f (was %.3f), %s of %d ranks on %d hosts, %.4g B", key, x, *to,
                                         collective_names[o->kind], o->ranks, o->hosts, o->most.size_B);
    *to = x;
    return OK;
}

enum err nccl_tests(struct system *s, struct nccl_said *said, struct arena *a, const char *name, const char *text,
                    struct diag *d)
{
    struct output o;
    *said = (struct nccl_said){ .n = 0 };
    TRY(read_output(&o, name, text, d));
    struct system to = *s;
    const double n = o.ranks, k = n / o.hosts, bus = o.most.bus_B_per_s;
    if (o.ranks <= s->domain && (o.hosts == 1 || s->domain > s->gpus_per_host)) {
        if (o.kind == ALLTOALL)
            TRY(set(&to.eff_nvlink_alltoall, said, a, name, &o, "nvlink.alltoall_efficiency",
                bus / s->nvlink_B_per_s, d));
        else if (o.kind == ALL_REDUCE && s->eff_nvls > 0 && n > 4)
            TRY(set(&to.eff_nvls, said, a, name, &o, "nvlink.nvls_efficiency",
                    bus * (n + 1) / (2 * (n - 1)) / s->nvlink_B_per_s, d));
        else TRY(set(&to.eff_nvlink, said, a, name, &o, "nvlink.efficiency", bus / s->nvlink_B_per_s, d));
        if (o.kind != ALLTOALL && o.least.line && o.least.size_B <= 65536) {
            const int passes = o.kind == ALL_REDUCE ? 2 : 1;
            const double call_s = o.least.time_s - s->kernel_s - passes * (n - 1) * s->nvlink_latency_s;
            to.nvlink_call_s = fmax(0, call_s);
            said->text[said->n++] = arena_printf(a, "nvlink.call: %.3g us, of %.0f B in %.3g us",
                1e6 * to.nvlink_call_s,
                                                 o.least.size_B, 1e6 * o.least.time_s);
        }
    } else {
        if (s->domain != (int)k)
            return fail(d, ERR_CONFIG, "%s: %d ranks on each host, but a domain of %s has %d GPUs: use runs "
                "that fill domains",
                        name, (int)k, s->name, s->domain);
        if (o.kind == ALLTOALL)
            TRY(set(&to.eff_nic_alltoall, said, a, name, &o, "nic.alltoall_efficiency",
                bus * (n - k) / (n - 1) / s->nic_B_per_s, d));
        else TRY(set(&to.eff_nic, said, a, name, &o, "nic.efficiency", bus / (k * s->nic_B_per_s), d));
    }
    TRY(system_check(&to, d));
    *s = to;
    return OK;
}
