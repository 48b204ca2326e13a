#include "exec/routes.h"
#include "models/base/whole_file.h"
#include <string.h>

static int32_t routes_layers(const struct model *m) { return m->layers + m->mtp * model_mtp_layers(m); }

static size_t routes_choices(const struct routes *r)
{
    return (size_t)r->steps * (size_t)r->layers * (size_t)r->gbs * (size_t)r->seq * (size_t)r->topk;
}

void routes_make(struct routes *r, struct arena *a, const struct job *j, int steps)
{
    *r = (struct routes){ .steps = steps, .layers = routes_layers(&j->model), .gbs = j->plan.gbs, .seq = j->plan.seq,
                          .topk = j->model.topk, .experts = j->model.experts };
    const size_t n = routes_choices(r);
    r->pick = arena_alloc(a, (n + 1) * sizeof *r->pick);
    memset(r->pick, 0xff, n * sizeof *r->pick);
}

int32_t *routes_at(const struct routes *r, int step, int layer, int64_t sequence, int position)
{
    return r->pick + ((((int64_t)step * r->layers + layer) * r->gbs + sequence) * r->seq + position) * r->topk;
}

enum err routes_check(const struct routes *r, const struct job *j, int steps, struct diag *d)
{
    const struct { const char *what; int32_t has, wants; } row[] = {
        { "steps", r->steps, steps }, { "layers", r->layers, routes_layers(&j->model) }, { "gbs", r->gbs, j->plan.gbs },
        { "seq", r->seq, j->plan.seq }, { "topk", r->topk, j->model.topk },
        { "experts", r->experts, j->model.experts },
    };
    for (int i = 0; i < LEN(row); i++)
        if (i == 0 ? row[i].has < row[i].wants : row[i].has != row[i].wants)
            return fail(d, ERR_CONFIG, "the recorded routing has %s %d, this run %d: record it with the same model and batch",
                        row[i].what, row[i].has, row[i].wants);
    return OK;
}

/* ---- as a file ---- */

enum { ROUTES_NONE = 0xffff };          /* a choice that was not recorded: of a dense layer */
struct routes_head { char magic[8]; int32_t first_step, steps, layers, gbs, seq, topk, experts, zero; };
static const char routes_magic[8] = { 'm', 'o', 'e', 'r', 'o', 'u', 't', '1' };

/* FNV-1a, 64 bits. */
static uint64_t routes_sum(const void *bytes, size_t n)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++) h = (h ^ ((const uint8_t *)bytes)[i]) * 0x100000001b3u;
    return h;
}

const char *routes_bytes(size_t *size_B, struct arena *a, const struct routes *r)
{
    const size_t n = routes_choices(r), head_B = sizeof(struct routes_head), body_B = n * sizeof(uint16_t);
    struct routes_head head = { .first_step = r->first_step, .steps = r->steps, .layers = r->layers, .gbs = r->gbs, .seq = r->seq,
                                .topk = r->topk, .experts = r->experts };
    char *to = arena_alloc(a, head_B + body_B + sizeof(uint64_t));
    memcpy(head.magic, routes_magic, sizeof head.magic);
    memcpy(to, &head, head_B);
    for (size_t i = 0; i < n; i++) {
        const uint16_t pick = r->pick[i] < 0 ? ROUTES_NONE : (uint16_t)r->pick[i];
        memcpy(to + head_B + i * sizeof pick, &pick, sizeof pick);
    }
    const uint64_t sum = routes_sum(to, head_B + body_B);
    memcpy(to + head_B + body_B, &sum, sizeof sum);
    *size_B = head_B + body_B + sizeof sum;
    return to;
}

/* Either no choice of a token, or topk different experts. */
static int routes_token_is_whole(const int32_t *pick, const struct routes *r)
{
    for (int i = 0; i < r->topk; i++) {
        if ((pick[i] < 0) != (pick[0] < 0) || pick[i] >= r->experts) return 0;
        for (int k = 0; k < i && pick[i] >= 0; k++)
            if (pick[k] == pick[i]) return 0;
    }
    return 1;
}

/* Bytes that follow from the sizes of the head; -1: they are none. */
static double routes_size_B(const struct routes_head *h)
{
    const int32_t size[] = { h->steps, h->layers, h->gbs, h->seq, h->topk, h->experts };
    double choices = 1;
    for (int i = 0; i < LEN(size); i++)
        if (size[i] < 1) return -1;
    for (int i = 0; i < 5; i++) choices *= size[i];
    return sizeof *h + 2 * choices + 8;
}

enum err routes_read(struct routes *r, struct arena *a, const char *path, struct diag *d)
{
    struct routes_head head;
    char *text;
    size_t text_B;
    TRY(whole_file_read(&text, &text_B, a, path, (size_t)1 << 31, d));
    memset(&head, 0, sizeof head);
    memcpy(&head, text, text_B < sizeof head ? text_B : sizeof head);
    if (memcmp(head.magic, routes_magic, sizeof head.magic) != 0)
        return fail(d, ERR_CONFIG, "%s: is no recorded routing: write it with run --record-routes", path);
    if ((double)text_B != routes_size_B(&head))
        return fail(d, ERR_CONFIG, "%s: has %zu bytes, its head says %.0f: it is damaged, record it again", path, text_B,
                    routes_size_B(&head));
    struct routes made = { .first_step = head.first_step, .steps = head.steps, .layers = head.layers, .gbs = head.gbs,
                           .seq = head.seq, .topk = head.topk, .experts = head.experts };
    const size_t n = routes_choices(&made), body_B = sizeof head + n * sizeof(uint16_t);
    uint64_t sum;
    memcpy(&sum, text + body_B, sizeof sum);
    if (sum != routes_sum(text, body_B))
        return fail(d, ERR_CONFIG, "%s: its checksum is %016llx, the file's bytes give %016llx: it is damaged, record it again",
                    path, (unsigned long long)sum, (unsigned long long)routes_sum(text, body_B));
    made.pick = arena_alloc(a, n * sizeof *made.pick);
    for (size_t i = 0; i < n; i++) {
        uint16_t pick;
        memcpy(&pick, text + sizeof head + i * sizeof pick, sizeof pick);
        made.pick[i] = pick == ROUTES_NONE ? -1 : pick;
    }
    for (size_t i = 0; i < n; i += (size_t)made.topk)
        if (!routes_token_is_whole(made.pick + i, &made))
            return fail(d, ERR_CONFIG, "%s: a token chooses an expert twice, or one beyond %d: record it again", path, made.experts);
    *r = made;
    return OK;
}
