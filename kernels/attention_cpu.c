/* Attention by blocks (Dao, "FlashAttention-2"): a block of queries of one head meets blocks of keys, scores and
 * probabilities stay in the cache, and every product runs on tiles (tile.h). Keys and values of a sequence are
 * brought into the order of positions first, so context parallelism is gone before the products begin; their
 * panels serve all query heads of their group. Blocks of keys that no query of a block sees (window, documents,
 * ring) are passed over. */
#include "kernels/kernels.h"
#include "kernels/tile.h"
#include "kernels/vexp.h"
#include <math.h>
#include <string.h>

enum { ATTENTION_QUERIES = 32, ATTENTION_KEYS = 128 }; /* of a block; keys a multiple of TILE_COLS */

/* One sequence and key/value head at a time; one query head and block of queries of it at a time. */
struct attention_work {
    const struct attention_shape *a;
    int keys;                     /* of a sequence */
    int32_t *row;                 /* of a key in sequence 0 */
    float *k, *v, *dk, *dv;       /* in order of position: [keys, dqk], [keys, dv] */
    tile_vec *k_turned, *v_turned;        /* panels of [dqk, keys], [dv, keys] */
    tile_vec *k_panel, *v_panel;          /* of [keys, dqk], [keys, dv] */
    tile_vec *q_panel, *do_panel;         /* of [queries, dqk], [queries, dv] */
    float *score, *dscore;        /* [queries, ATTENTION_KEYS] */
    float most[ATTENTION_QUERIES], sum[ATTENTION_QUERIES], along[ATTENTION_QUERIES];
    int from[ATTENTION_QUERIES], to[ATTENTION_QUERIES], queries;    /* keys seen: [from, to) */
    float scale;
};

static int64_t attention_padded(int64_t n)
{
    return (n + TILE_COLS - 1) / TILE_COLS * TILE_COLS;
}

/* Takes n floats of the scratch; or, without one, counts them. */
static float *attention_take(float *base, int64_t *used, int64_t n)
{
    float *p = base ? base + *used : NULL;
    *used += n;
    return p;
}

static int64_t attention_lay_out(struct attention_work *w, const struct attention_shape *a, float *base)
{
    const int64_t seq = attention_keys(a), keys = attention_padded(seq);
    const int64_t wide = attention_padded(a->dqk), wide_v = attention_padded(a->dv);
    int64_t n = 0;
    w->a = a;
    w->keys = (int)seq;
    w->scale = attention_scale(a);
    w->row = (int32_t *)(void *)attention_take(base, &n, seq);
    w->k = attention_take(base, &n, seq * a->dqk);
    w->v = attention_take(base, &n, seq * a->dv);
    w->dk = attention_take(base, &n, seq * a->dqk);
    w->dv = attention_take(base, &n, seq * a->dv);
    w->k_turned = (tile_vec *)attention_take(base, &n, a->dqk * keys);
    w->v_turned = (tile_vec *)attention_take(base, &n, a->dv * keys);
    w->k_panel = (tile_vec *)attention_take(base, &n, seq * wide);
    w->v_panel = (tile_vec *)attention_take(base, &n, seq * wide_v);
    w->q_panel = (tile_vec *)attention_take(base, &n, ATTENTION_QUERIES * wide);
    w->do_panel = (tile_vec *)attention_take(base, &n, ATTENTION_QUERIES * wide_v);
    w->score = attention_take(base, &n, ATTENTION_QUERIES * ATTENTION_KEYS);
    w->dscore = attention_take(base, &n, ATTENTION_QUERIES * ATTENTION_KEYS);
    return n;
}

int64_t attention_scratch_B_cpu(const struct attention_shape *a)
{
    struct attention_work w;
    return attention_lay_out(&w, a, NULL) * (int64_t)sizeof(float);
}

/* ---- panels ---- */

/* All panels of b [nk, n], one after the other. */
static void attention_pack(tile_vec *panel, struct tile_matrix b, int nk, int n)
{
    for (int n0 = 0; n0 < n; n0 += TILE_COLS, panel += nk * TILE_VECS, b.p += TILE_COLS * b.col)
        tile_pack(panel, b, nk, n - n0 < TILE_COLS ? n - n0 : TILE_COLS);
}

/* c [nm, n] (+)= a times rows [k0, k0 + nk) of a matrix of `rows` rows packed so. */
static void attention_product(float *c, int64_t ldc, struct tile_matrix a, const tile_vec *panel, int rows, int k0,
                              int nk, int nm, int n, int add)
{
    for (int n0 = 0; n0 < n; n0 += TILE_COLS, panel += rows * TILE_VECS) {
        const int nn = n - n0 < TILE_COLS ? n - n0 : TILE_COLS;
        tile_product(c + n0, ldc, a, panel + k0 * tile_vecs(nn), nk, nm, nn, add);
    }
}

/* Rows of one key/value head of a sequence into the order of positions, or back. */
static void attention_rows_move(float *ordered, float *rows, const struct attention_work *w, int64_t first, int head,
                                int width, int back)
{
    for (int p = 0; p < w->keys; p++, ordered += width) {
        float *at = rows + ((first + w->row[p]) * w->a->nkv + head) * width;
        memcpy(back ? at : ordered, back ? ordered : at, (size_t)width * sizeof *at);
    }
}

static void attention_rows_find(struct attention_work *w)
{
    for (int i = 0; i < w->keys; i++) w->row[i] = (int32_t)attention_key_row(w->a, 0, i);
}

static void attention_take_keys(struct attention_work *w, const float *k, const float *v, int64_t first, int head)
{
    const struct attention_shape *a = w->a;
    attention_rows_move(w->k, (float *)(uintptr_t)k, w, first, head, a->dqk, 0);
    attention_rows_move(w->v, (float *)(uintptr_t)v, w, first, head, a->dv, 0);
    attention_pack(w->k_turned, (struct tile_matrix){w->k, 1, a->dqk}, a->dqk, w->keys);
}

/* Queries [r0, ..) of this member's rows of sequence s. */
static void attention_take_queries(struct attention_work *w, int64_t s, int r0)
{
    const struct rope *at = &w->a->at;
    const int rest = at->seq / at->cp - r0;
    w->queries = rest < ATTENTION_QUERIES ? rest : ATTENTION_QUERIES;
    for (int r = 0; r < w->queries; r++) {
        const int position = rope_position(r0 + r, at->seq, at->cp, at->index);
        w->from[r] = attention_from(w->a, s, position);
        w->to[r] = attention_before(w->a, position + 1);
    }
}

/* The blocks of keys that some query of the block sees: [first, end), first at a panel's beginning. */
static int attention_first_key(const struct attention_work *w)
{
    return w->from[0] / TILE_COLS * TILE_COLS;
}

static int attention_end_key(const struct attention_work *w)
{
    return w->to[w->queries - 1];
}

/* Of n keys from k0 on, query r sees [*low, *high). */
static void attention_seen(const struct attention_work *w, int r, int k0, int n, int *low, int *high)
{
    *high = w->to[r] - k0 < n ? w->to[r] - k0 : n;
    *low = w->from[r] > k0 ? w->from[r] - k0 : 0;
    if (*high < *low) *high = *low = 0;
}

/* c [queries, n] = a times the keys' panels from key k0 on. */
static void attention_scores(float *c, const struct attention_work *w, struct tile_matrix a, const tile_vec *turned,
                             int width, int k0, int n)
{
    for (int j = 0; j < n; j += TILE_COLS) {
        const int rest = w->keys - (k0 + j); /* as packed, whatever is asked for */
        tile_product(c + j, ATTENTION_KEYS, a, turned + (int64_t)(k0 + j) / TILE_COLS * TILE_VECS * width, width,
                     w->queries, rest < TILE_COLS ? rest : TILE_COLS, 0);
    }
}

/* ---- forward ---- */

static float attention_largest(const float *x, int n, float most)
{
    float part[TILE_LANES];
    int i = 0;
    for (int j = 0; j < TILE_LANES; j++) part[j] = most;
    for (; i + TILE_LANES <= n; i += TILE_LANES)
        for (int j = 0; j < TILE_LANES; j++) part[j] = x[i + j] > part[j] ? x[i + j] : part[j];
    for (; i < n; i++) most = x[i] > most ? x[i] : most;
    for (int j = 0; j < TILE_LANES; j++) most = part[j] > most ? part[j] : most;
    return most;
}

/* x becomes exp(x scale - most); returns the sum, in TILE_LANES parts. */
static float attention_exp(float *x, int n, float scale, float most)
{
    float part[TILE_LANES] = {0}, sum = 0;
    int i = 0;
    for (; i + TILE_LANES <= n; i += TILE_LANES)
        for (int j = 0; j < TILE_LANES; j++) {
            x[i + j] = vexp(x[i + j] * scale - most);
            part[j] += x[i + j];
        }
    for (; i < n; i++) sum += x[i] = vexp(x[i] * scale - most);
    for (int j = 0; j < TILE_LANES; j++) sum += part[j];
    return sum;
}

/* One row of scores against what the row has seen: rescales o, the sum and the largest. */
static void attention_row(struct attention_work *w, float *o, int r, int k0, int n)
{
    float *x = w->score + r * ATTENTION_KEYS;
    int low, high;
    attention_seen(w, r, k0, n, &low, &high);
    for (int i = 0; i < low; i++) x[i] = 0;
    for (int i = high; i < n; i++) x[i] = 0;
    if (low == high) return;
    const float most = fmaxf(w->most[r], w->scale * attention_largest(x + low, high - low, x[low]));
    const float keep = w->sum[r] > 0 ? vexp(w->most[r] - most) : 0;
    w->sum[r] = w->sum[r] * keep + attention_exp(x + low, high - low, w->scale, most);
    w->most[r] = most;
    for (int j = 0; j < w->a->dv; j++) o[j] *= keep;
}

static void attention_block(struct attention_work *w, float *o, float *lse, const float *q, const float *sink)
{
    const struct attention_shape *a = w->a;
    const int64_t q_row = (int64_t)a->nq * a->dqk, o_row = (int64_t)a->nq * a->dv;
    const int end = attention_end_key(w);
    for (int r = 0; r < w->queries; r++) {
        w->most[r] = sink ? *sink : -INFINITY;
        w->sum[r] = sink ? 1 : 0;
        memset(o + r * o_row, 0, (size_t)a->dv * sizeof *o);
    }
    for (int k0 = attention_first_key(w); k0 < end; k0 += ATTENTION_KEYS) {
        const int n = end - k0 < ATTENTION_KEYS ? end - k0 : ATTENTION_KEYS;
        attention_scores(w->score, w, (struct tile_matrix){q, q_row, 1}, w->k_turned, a->dqk, k0, n);
        for (int r = 0; r < w->queries; r++) attention_row(w, o + r * o_row, r, k0, n);
        attention_product(o, o_row, (struct tile_matrix){w->score, ATTENTION_KEYS, 1}, w->v_panel, w->keys, k0, n,
                          w->queries, a->dv, 1);
    }
    for (int r = 0; r < w->queries; r++) {
        const float over = w->sum[r] > 0 ? 1 / w->sum[r] : 0;
        for (int j = 0; j < a->dv; j++) o[r * o_row + j] *= over;
        lse[r * a->nq] = w->most[r] + logf(w->sum[r]);
    }
}

enum err attention_cpu(float *o, float *lse, const float *q, const float *k, const float *v, const float *sink,
                       const struct attention_shape *a, void *scratch)
{
    const int local = a->at.seq / a->at.cp, group = a->nq / a->nkv;
    struct attention_work w;
    attention_lay_out(&w, a, scratch);
    attention_rows_find(&w);
    for (int64_t first = 0; first < (int64_t)a->seqs * local; first += local)
        for (int kv = 0; kv < a->nkv; kv++) {
            attention_take_keys(&w, k, v, first, kv);
            attention_pack(w.v_panel, (struct tile_matrix){w.v, a->dv, 1}, w.keys, a->dv);
            for (int r0 = 0; r0 < local; r0 += ATTENTION_QUERIES) {
                attention_take_queries(&w, first / local, r0);
                for (int h = kv * group; h < (kv + 1) * group; h++) {
                    const int64_t at = (first + r0) * a->nq + h;
                    attention_block(&w, o + at * a->dv, lse + at, q + at * a->dqk, sink ? sink + h : NULL);
                }
            }
        }
    return OK;
}

/* ---- backward ---- */

static float attention_dot(const float *x, const float *y, int n)
{
    float part[TILE_LANES] = {0}, sum = 0;
    int i = 0;
    for (; i + TILE_LANES <= n; i += TILE_LANES)
        for (int j = 0; j < TILE_LANES; j++) part[j] += x[i + j] * y[i + j];
    for (; i < n; i++) sum += x[i] * y[i];
    for (int j = 0; j < TILE_LANES; j++) sum += part[j];
    return sum;
}

/* Scores become probabilities p, products with values the scores' gradient p (dp - along) scale. */
static void attention_row_bwd(struct attention_work *w, float lse, int r, int k0, int n, int sinks)
{
    float *x = w->score + r * ATTENTION_KEYS, *d = w->dscore + r * ATTENTION_KEYS;
    const float scale = w->scale, along = w->along[r];
    int low, high;
    attention_seen(w, r, k0, n, &low, &high);
    for (int i = 0; i < low; i++) x[i] = d[i] = 0;
    for (int i = high; i < n; i++) x[i] = d[i] = 0;
    for (int i = low; i < high; i++) {
        x[i] = vexp(x[i] * scale - lse);
        d[i] = x[i] * (d[i] - along) * scale;
    }
    for (int i = low; sinks && i < high; i++) w->sum[r] += x[i];
}

static void attention_block_bwd(struct attention_work *w, float *dq, const float *q, const float *o,
                                const float *lse, const float *dout, int sinks)
{
    const struct attention_shape *a = w->a;
    const int64_t q_row = (int64_t)a->nq * a->dqk, o_row = (int64_t)a->nq * a->dv;
    const int end = attention_end_key(w), seq = w->keys;
    attention_pack(w->q_panel, (struct tile_matrix){q, q_row, 1}, w->queries, a->dqk);
    attention_pack(w->do_panel, (struct tile_matrix){dout, o_row, 1}, w->queries, a->dv);
    for (int r = 0; r < w->queries; r++) {
        w->along[r] = attention_dot(dout + r * o_row, o + r * o_row, a->dv);
        w->sum[r] = 0;
        memset(dq + r * q_row, 0, (size_t)a->dqk * sizeof *dq);
    }
    for (int k0 = attention_first_key(w); k0 < end; k0 += ATTENTION_KEYS) {
        const int n = end - k0 < ATTENTION_KEYS ? end - k0 : ATTENTION_KEYS;
        attention_scores(w->score, w, (struct tile_matrix){q, q_row, 1}, w->k_turned, a->dqk, k0, n);
        attention_scores(w->dscore, w, (struct tile_matrix){dout, o_row, 1}, w->v_turned, a->dv, k0, n);
        for (int r = 0; r < w->queries; r++) attention_row_bwd(w, lse[r * a->nq], r, k0, n, sinks);
        attention_product(dq, q_row, (struct tile_matrix){w->dscore, ATTENTION_KEYS, 1}, w->k_panel, seq, k0, n,
                          w->queries, a->dqk, 1);
        attention_product(w->dk + (int64_t)k0 * a->dqk, a->dqk, (struct tile_matrix){w->dscore, 1, ATTENTION_KEYS},
                          w->q_panel, w->queries, 0, w->queries, n, a->dqk, 1);
        attention_product(w->dv + (int64_t)k0 * a->dv, a->dv, (struct tile_matrix){w->score, 1, ATTENTION_KEYS},
                          w->do_panel, w->queries, 0, w->queries, n, a->dv, 1);
    }
}

/* The sink's probability, which is what the keys leave of 1, takes from all of them; the first block of a ring counts the 1. */
static float attention_sink_bwd(const struct attention_work *w)
{
    float sum = 0;
    for (int r = 0; r < w->queries; r++) sum -= ((w->a->ring > 1 ? 0 : 1) - w->sum[r]) * w->along[r];
    return sum;
}

static void attention_open_keys_bwd(struct attention_work *w)
{
    const struct attention_shape *a = w->a;
    attention_pack(w->v_turned, (struct tile_matrix){w->v, 1, a->dv}, a->dv, w->keys);
    attention_pack(w->k_panel, (struct tile_matrix){w->k, a->dqk, 1}, w->keys, a->dqk);
    memset(w->dk, 0, (size_t)w->keys * (size_t)a->dqk * sizeof *w->dk);
    memset(w->dv, 0, (size_t)w->keys * (size_t)a->dv * sizeof *w->dv);
}

enum err attention_bwd_cpu(float *dq, float *dk, float *dv, float *dsink, const float *q, const float *k,
                           const float *v, const float *o, const float *lse, const float *dout,
                           const struct attention_shape *a, void *scratch)
{
    const int local = a->at.seq / a->at.cp, group = a->nq / a->nkv;
    struct attention_work w;
    attention_lay_out(&w, a, scratch);
    attention_rows_find(&w);
    for (int64_t first = 0; first < (int64_t)a->seqs * local; first += local)
        for (int kv = 0; kv < a->nkv; kv++) {
            attention_take_keys(&w, k, v, first, kv);
            attention_open_keys_bwd(&w);
            for (int h = kv * group; h < (kv + 1) * group; h++)
                for (int r0 = 0; r0 < local; r0 += ATTENTION_QUERIES) {
                    const int64_t at = (first + r0) * a->nq + h;
                    attention_take_queries(&w, first / local, r0);
                    attention_block_bwd(&w, dq + at * a->dqk, q + at * a->dqk, o + at * a->dv, lse + at,
                                        dout + at * a->dv, dsink != NULL);
                    if (dsink) dsink[h] += attention_sink_bwd(&w);
                }
            attention_rows_move(w.dk, dk, &w, first, kv, a->dqk, 1);
            attention_rows_move(w.dv, dv, &w, first, kv, a->dv, 1);
        }
    return OK;
}
