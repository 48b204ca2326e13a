/* The router: which experts a token goes to, and with what weight. Scores are a softmax or sigmoids of the
 * logits; the choice is made on score + bias, the weight on the score alone; ties go to the lower index.
 * Group-limited choice (DeepSeek-V3 report, section 2.1.2): experts in `groups` equal groups, a group's score
 * is the sum of its best two (of DeepSeek-V2, its best one), and only the best `kept` groups are looked at.
 * With a capacity, an expert keeps so many of the tokens that chose it, in their order, and the others are dropped: the weights
 * of a token are divided by the sum of all it chose, dropped or not (Megatron-LM moe_utils.py, apply_router_token_dropping).
 * float32, sums in double. */
#ifndef KERNELS_ROUTE_H
#define KERNELS_ROUTE_H
#include "kernels/stream.h"

struct route_rule {
    int experts, topk, groups, kept; /* kept * experts / groups >= topk; groups 1: no limit      */
    int group_max;                   /* a group's score is its best expert's, not its best two's */
    int sigmoid, norm_topk;          /* norm_topk: weights of a token are divided by their sum   */
    double scale;                    /* times this, after all                                    */
    int64_t capacity;                /* tokens that an expert keeps; 0: all                      */
    int by_position;                 /* the first ones, not those with the largest weights; of equals the first */
    int padded;                      /* an expert has capacity rows, whoever chose it            */
};

/* Rows that are kept, or padded: of prob. */
static inline int64_t route_rows(int64_t rows, const struct route_rule *r)
{
    const int64_t picks = rows * r->topk, held = r->capacity * r->experts;
    return r->capacity && (r->padded || held < picks) ? held : picks;
}

/* Rows of perm: every choice, and with `padded` those of prob before them. */
static inline int64_t route_listed(int64_t rows, const struct route_rule *r)
{
    return rows * r->topk + (r->capacity && r->padded ? r->capacity * r->experts : 0);
}

/* perm's token of a choice that was dropped; and that token again. -1: nobody's row. */
static inline int32_t route_dropped(int32_t token) { return -2 - token; }
static inline int32_t route_token(int32_t listed) { return listed < -1 ? route_dropped(listed) : listed; }

/* Bytes of scratch for either pass over `rows` tokens. */
int64_t route_scratch_B(int64_t rows, const struct route_rule *r);

/* score [rows, experts]; perm [route_listed, 2] (token, expert) by expert, then token; prob [route_rows] in
 * that order; mine [experts] rows per expert; logit [rows, experts]; bias [experts] or NULL. Behind the rows that are kept come
 * the choices that were dropped (route_dropped(token), expert), by token, and -1; of rows that only fill an expert up the
 * token is -1 and the weight 0. `gap` is
 * lowered to the smallest margin that decided a choice, of experts, of groups or of what is dropped. given [rows, topk]: the choices,
 * made elsewhere; NULL: made here. */
enum err route_ref(float *score, int32_t *perm, float *prob, int32_t *mine, float *gap, const float *logit,
                   const float *bias, const int32_t *given, int64_t rows, const struct route_rule *r, void *scratch);
/* dlogit [rows, experts] from dprob [route_rows] in the order of perm. */
enum err route_bwd_ref(float *dlogit, const float *dprob, const float *score, const int32_t *perm,
                       int64_t rows, const struct route_rule *r, void *scratch);

/* The same; logit, score, prob and their gradients float32, as the choice must not depend on how rows are stored. gap may be
 * NULL; experts at most ROUTE_EXPERTS, topk at most ROUTE_TOPK, no capacity. scratch: route_cuda_scratch_B. */
enum { ROUTE_EXPERTS = 1024, ROUTE_TOPK = 32 };
int64_t route_cuda_scratch_B(int64_t rows, const struct route_rule *r);
enum err route_cuda(float *score, int32_t *perm, float *prob, int32_t *mine, float *gap, const float *logit,
                    const float *bias, const int32_t *given, int64_t rows, const struct route_rule *r, void *scratch,
                    kstream s);
enum err route_bwd_cuda(float *dlogit, const float *dprob, const float *score, const int32_t *perm, int64_t rows,
                        const struct route_rule *r, void *scratch, kstream s);

#endif
