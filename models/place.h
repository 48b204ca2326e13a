/* Where a group's ranks sit, and so which link its collectives use. Ranks fill `domain_gpus` GPUs of each NVLink
 * domain in order; hosts within a domain hold `gpus_per_host`. */
#ifndef MODELS_PLACE_H
#define MODELS_PLACE_H
#include "models/fold.h"

enum link { LINK_SELF, LINK_NVLINK, LINK_NIC };

struct place {
    int32_t size;               /* ranks in the group                                                          */
    int32_t link;               /* enum link: the slowest that a member needs                                  */
    int32_t domains;            /* NVLink domains that the worst group of this kind touches                    */
    int32_t in_domain;          /* fewest members that one touched domain holds in a group with that many      */
    int32_t straddles;          /* groups with unequal numbers of members in their domains, or that touch more
                                   domains than the best placed group of their kind                            */
    int32_t groups;             /* groups of this kind in the plan                                             */
    int32_t same_rail;          /* in every group, all domains hold the same indices (1 inside one domain)     */
    int32_t nic_share;          /* most groups of this kind that leave one domain through its NICs; at least 1 */
};

const char *place_link_name(enum link l);
/* GPUs used of each domain when the plan does not say: the largest d <= domain that divides gpus and is a
 * multiple of gpus_per_host; else the largest d <= domain that divides gpus. 256 on NVL72 -> 64; 288 -> 72. */
int place_domain_gpus(int gpus, int domain, int gpus_per_host);
int place_domain(const struct plan *p, int rank);       /* index of the rank's domain */
/* All groups of kind `g`, the worst one described. PREV and NEXT are the same pairs, each counted in its sender's
 * domain; the pair that closes the ring of stages exists only with vpp > 1. Microseconds, for any number of GPUs. */
struct place place_of(const struct job *j, enum group g);

#endif
