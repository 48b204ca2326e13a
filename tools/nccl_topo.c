/* The XML that NCCL writes of one host, by expat. NCCL does not say rates: a link's is the generation's (NVIDIA's
 * data sheets: 25 GB/s a direction from V100 to H100, 50 from Blackwell on), a PCI lane's its GT/s with 128b/130b. */
#include "tools/nccl.h"
#include <expat.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH = 64, GPUS = 64 };
struct reader {
    XML_Parser p;
    struct arena *a;
    int depth, n_gpu, n_net, links[GPUS], sm, failed, line, column;
    double pci_B_per_s[DEPTH], host_B_per_s, net_bit_per_s;
    const char *wrong;
};

static void wrong(struct reader *r, const char *what)
{
    if (r->failed) return;
    r->failed = 1;
    r->wrong = what;
    r->line = (int)XML_GetCurrentLineNumber(r->p);
    r->column = (int)XML_GetCurrentColumnNumber(r->p) + 1;
    XML_StopParser(r->p, XML_FALSE);
}

static const char *attribute(const char **pairs, const char *name)
{
    for (int i = 0; pairs[i]; i += 2)
        if (strcmp(pairs[i], name) == 0) return pairs[i + 1];
    return NULL;
}

/* A number from low to high; text after it ("32.0 GT/s PCIe") is passed over. */
static double number(struct reader *r, const char **pairs, const char *name, double low, double high)
{
    const char *text = attribute(pairs, name);
    char *end = NULL;
    const double x = text ? strtod(text, &end) : 0;
    if (text && end != text && isfinite(x) && x >= low && x <= high) return x;
    wrong(r, arena_printf(r->a, "%s is '%s'; a number from %g to %g is needed", name, text
        ? cfg_shown(text).text : "absent",
                          low, high));
    return low;
}

/* A bus without a speed (a virtual machine's) says nothing. */
static double pci_rate(struct reader *r, const char **pairs)
{
    const char *speed = attribute(pairs, "link_speed"), *width = attribute(pairs, "link_width");
    if (!speed || !width || !*speed || !*width || atof(width) == 0) return 0;
    return number(r, pairs, "link_speed", 0, 256) * 1e9 * number(r, pairs, "link_width", 0, 64) * 128 / 130 / 8;
}

static void XMLCALL open_element(void *user, const char *name, const char **pairs)
{
    struct reader *r = user;
    if (++r->depth >= DEPTH) {
        wrong(r, "elements lie deeper than 64 in each other");
        return;
    }
    r->pci_B_per_s[r->depth] = r->pci_B_per_s[r->depth - 1];
    if (r->depth == 1 && strcmp(name, "system") != 0) wrong(r,
        "this is no topology of NCCL, which begins with <system>");
    if (strcmp(name, "pci") == 0) {
        const double rate = pci_rate(r, pairs), above = r->pci_B_per_s[r->depth];
        if (rate > 0) r->pci_B_per_s[r->depth] = above > 0 && above < rate ? above : rate;
    } else if (strcmp(name, "gpu") == 0) {
        if (r->n_gpu == GPUS) {
            wrong(r, "a host has more than 64 GPUs");
            return;
        }
        const int sm = (int)number(r, pairs, "sm", 30, 999);
        if (r->n_gpu && sm != r->sm) wrong(r, "the GPUs of the host are of different generations");
        r->sm = sm;
        r->n_gpu++;
        r->host_B_per_s = r->pci_B_per_s[r->depth];
    } else if (strcmp(name, "nvlink") == 0) {
        if (r->n_gpu) r->links[r->n_gpu - 1] += (int)number(r, pairs, "count", 1, 1000);
        else wrong(r, "an NVLink stands outside a GPU");
    } else if (strcmp(name, "net") == 0) {
        r->net_bit_per_s += 1e6 * number(r, pairs, "speed", 1, 1e7);
        r->n_net++;
    }
}

static void XMLCALL close_element(void *user, const char *name)
{
    struct reader *r = user;
    (void)name;
    r->depth--;
}

static void XMLCALL refuse_doctype(void *user, const char *name, const char *system, const char *public, int internal)
{
    (void)name, (void)system, (void)public, (void)internal;
    wrong(user, "a document type is not expected here");
}

static void say(struct nccl_said *said, const char *text)
{
    if (said->n < NCCL_SAID) said->text[said->n++] = text;
}

static const char *rate(struct arena *a, const char *key, double B_per_s, const char *from)
{
    char text[64];
    return arena_printf(a, "%s: %s, %s", key, units_human(text, sizeof text, B_per_s, UNIT_B_PER_S), from);
}

/* A switch or a C2C link of the same GPU is one more <nvlink>; all GPUs must have as many links. */
static enum err lay(struct system *s, struct nccl_said *said, const struct reader *r, const char *name,
    struct diag *d)
{
    struct system to = *s;
    for (int i = 1; i < r->n_gpu; i++)
        if (r->links[i] != r->links[0])
            return fail(d, ERR_CONFIG, "%s: GPU 0 has %d NVLinks, GPU %d has %d: a system describes equal GPUs", name,
                        r->links[0], i, r->links[i]);
    if (to.gpus_per_host != r->n_gpu || !r->links[0]) to.domain = r->n_gpu;     /* a rack's is not in the XML */
    to.gpus_per_host = r->n_gpu;
    say(said, arena_printf(r->a, "gpu.per_host: %d, nvlink.domain: %d (racks are not in the XML)", r->n_gpu,
        to.domain));
    if (r->links[0]) {
        to.nvlink_B_per_s = r->links[0] * (r->sm >= 100 ? 50e9 : r->sm >= 70 ? 25e9 : 20e9);
        say(said, rate(r->a, "nvlink.bandwidth", to.nvlink_B_per_s,
                       arena_printf(r->a, "%d links of sm %d", r->links[0], r->sm)));
    } else if (r->host_B_per_s > 0) {
        to.nvlink_B_per_s = r->host_B_per_s;
        say(said, rate(r->a, "nvlink.bandwidth", to.nvlink_B_per_s, "PCI: there is no NVLink"));
    }
    if (r->n_net) {
        to.nic_B_per_s = r->net_bit_per_s / 8 / r->n_gpu;
        say(said, rate(r->a, "nic.bandwidth", to.nic_B_per_s, arena_printf(r->a, "%d ports for %d GPUs",
            r->n_net, r->n_gpu)));
    }
    if (r->host_B_per_s > 0) {
        to.host_link_B_per_s = r->host_B_per_s;
        say(said, rate(r->a, "host.link", to.host_link_B_per_s, "PCI"));
    }
    TRY(system_check(&to, d));
    *s = to;
    return OK;
}

enum err nccl_topo(struct system *s, struct nccl_said *said, struct arena *a, const char *name, const char *text,
                   size_t text_B, struct diag *d)
{
    struct reader r = { .p = XML_ParserCreate(NULL), .a = a };
    enum err e = OK;
    *said = (struct nccl_said){ .n = 0 };
    if (!r.p) return fail(d, ERR_IO, "%s: no memory for a reader of XML", name);
    XML_SetUserData(r.p, &r);
    XML_SetElementHandler(r.p, open_element, close_element);
    XML_SetStartDoctypeDeclHandler(r.p, refuse_doctype);
    if (XML_Parse(r.p, text, (int)text_B, 1) != XML_STATUS_OK)
        e = r.failed ? fail(d, ERR_CONFIG, "%s:%d:%d: %s", name, r.line, r.column, r.wrong)
                     : fail(d, ERR_CONFIG, "%s:%d:%d: not XML: %s", name, (int)XML_GetCurrentLineNumber(r.p),
                            (int)XML_GetCurrentColumnNumber(r.p) + 1, XML_ErrorString(XML_GetErrorCode(r.p)));
    else if (r.n_gpu == 0) e = fail(d, ERR_CONFIG, "%s:1:1: no <gpu> is in this topology: nothing to read", name);
    XML_ParserFree(r.p);
    return e == OK ? lay(s, said, &r, name, d) : e;
}
