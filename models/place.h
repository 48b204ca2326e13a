/* Where a group's ranks sit, and so which link its collectives use. Ranks fill `domain_gpus` GPUs of each NVLink
 * domain in order; hosts within a domain hold `gpus_per_host`. */
#ifndef MODELS_PLACE_H
#define MODELS_PLACE_H
#include "models/fold.h"

enum link { LINK_SELF, LINK_NVLINK, LINK_NIC };

struct place {
    int32_t size;               /* ranks in the group                                                    */
    int32_t link;               /* the slowest link a member needs                                       */
    int32_t domains;            /* NVLink domains the worst group of this kind touches                   */
    int32_t in_domain;          /* fewest members that one touched domain holds in that worst group      */
    int32_t straddles;          /* groups of this kind whose domains hold unequal numbers of members     */
    int32_t groups;             /* groups of this kind in the plan                                       */
    int32_t same_rail;          /* members in different domains have the same index in their domain      */
    int32_t nic_share;          /* groups of this kind that share one domain's NICs                      */
};

const char *place_link_name(enum link l);
/* GPUs used of each domain when the plan does not say: the largest d <= domain that divides gpus and is a multiple of
 * gpus_per_host; else the largest d <= domain that divides gpus. 256 on NVL72 -> 64; 288 -> 72. */
int place_domain_gpus(int gpus, int domain, int gpus_per_host);
int place_domain(const struct plan *p, int rank);       /* index of the rank's domain */
/* The worst group of kind `g` in stage 0..pp-1 (they are alike by construction; all are looked at). */
struct place place_of(const struct job *j, enum group g);

#endif
