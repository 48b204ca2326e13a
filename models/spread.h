/* How many distinct targets (ranks, NVLink domains) hold the experts that a token picks: what dispatchers that send a
 * token once to each target put on the wire. */
#ifndef MODELS_SPREAD_H
#define MODELS_SPREAD_H
#include "models/model.h"

/* Expected number among `targets` equal, contiguous parts of the experts (1 .. experts), all experts equally likely: topk of
 * them without replacement, of the groups_kept of the groups that routing leaves (DeepEP, buffers/elastic.py
 * get_expected_topk; with groups arXiv 2412.19437, section 2.1.2). 1 to min(targets, topk); 0 without experts. */
double spread_targets(const struct model *m, int targets);

#endif
