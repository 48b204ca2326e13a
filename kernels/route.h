/* The router: which experts a token goes to, and with what weight. Scores are a softmax or sigmoids of the
 * logits; the choice is made on score + bias, the weight on the score alone; ties go to the lower index.
 * Group-limited choice (DeepSeek-V3 report, section 2.1.2): experts in `groups` equal groups, a group's score
 * is the sum of its best two (of DeepSeek-V2, its best one), and only the best `kept` groups are looked at.
 * float32, sums in double. */
#ifndef KERNELS_ROUTE_H
#define KERNELS_ROUTE_H
#include "kernels/stream.h"

struct route_rule {
    int experts, topk, groups, kept; /* kept * experts / groups >= topk; groups 1: no limit      */
    int group_max;                   /* a group's score is its best expert's, not its best two's */
    int sigmoid, norm_topk;          /* norm_topk: weights of a token are divided by their sum   */
    double scale;                    /* times this, after all                                    */
};

/* Bytes of scratch for either pass over `rows` tokens. */
int64_t route_scratch_B(int64_t rows, const struct route_rule *r);

/* score [rows, experts]; perm [rows * topk, 2] (token, expert) by expert, then token; prob [rows * topk] in
 * that order; mine [experts] tokens per expert; logit [rows, experts]; bias [experts] or NULL. `gap` is
 * lowered to the smallest margin that decided a choice, of experts or of groups. given [rows, topk]: the choices,
 * made elsewhere; NULL: made here. */
enum err route_ref(float *score, int32_t *perm, float *prob, int32_t *mine, float *gap, const float *logit,
                   const float *bias, const int32_t *given, int64_t rows, const struct route_rule *r, void *scratch);
/* dlogit [rows, experts] from dprob [rows * topk] in the order of perm. */
enum err route_bwd_ref(float *dlogit, const float *dprob, const float *score, const int32_t *perm,
                       int64_t rows, const struct route_rule *r, void *scratch);

/* The same; logit, score, prob and their gradients float32, as the choice must not depend on how rows are stored. gap may be
 * NULL; experts at most ROUTE_EXPERTS, topk at most ROUTE_TOPK. scratch: route_cuda_scratch_B. */
enum { ROUTE_EXPERTS = 1024, ROUTE_TOPK = 32 };
int64_t route_cuda_scratch_B(int64_t rows, const struct route_rule *r);
enum err route_cuda(float *score, int32_t *perm, float *prob, int32_t *mine, float *gap, const float *logit,
                    const float *bias, const int32_t *given, int64_t rows, const struct route_rule *r, void *scratch,
                    kstream s);
enum err route_bwd_cuda(float *dlogit, const float *dprob, const float *score, const int32_t *perm, int64_t rows,
                        const struct route_rule *r, void *scratch, kstream s);

#endif
