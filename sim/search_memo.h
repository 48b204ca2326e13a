/* Inside search_block: values found by the sizes that they depend on. */
#ifndef SIM_SEARCH_MEMO_H
#define SIM_SEARCH_MEMO_H
#include "models/base/arena.h"
#include "models/base/err.h"
#include <stdint.h>
#include <string.h>

/* No padding: compared and hashed as bytes. */
struct key { int32_t block, recompute, tp, cp, etp, ep, mbs, pp, order, weave, mtp, dispatcher, cp_comm, fsdp; };

/* Open addressing; values are found by index, and stay where they are. */
struct memo { struct key *key; void **value; int32_t n, room; };
/* What was asked for last, by recompute set and way as far as these are told apart: neighbouring plans see the same
 * sizes. */
enum { LAST_BITS = 9, LAST_SETS = 1 << LAST_BITS };
struct last { struct key key; void *value; };

static inline uint64_t key_hash(const struct key *k)
{
    uint32_t v[sizeof *k / sizeof(uint32_t)];
    uint64_t h = 1469598103934665603u;
    memcpy(v, k, sizeof v);
    for (int i = 0; i < LEN(v); i++) h = (h ^ v[i]) * 1099511628211u;
    return h ^ h >> 32;
}

static inline int key_same(const struct key *a, const struct key *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

static inline int is_last(const struct last *l, const struct key *k)
{
    return l->value && key_same(&l->key, k);
}

static inline int last_of(const struct key *k)
{
    const int way = ((k->weave * 4 + k->dispatcher) * 3 + k->cp_comm) * 2 + (k->fsdp > 0);
    return (int)((uint32_t)(256 * way + k->recompute) * 2654435769u >> (32 - LAST_BITS));
}

/* Where the key's value is, or where it goes. */
static inline void **memo_at(struct memo *m, const struct key *k)
{
    uint64_t i = key_hash(k) & (uint64_t)(m->room - 1);
    while (m->value[i] && !key_same(&m->key[i], k)) i = (i + 1) & (uint64_t)(m->room - 1);
    m->key[i] = *k;
    return &m->value[i];
}

static inline void memo_init(struct memo *m, struct arena *a, int32_t room)
{
    *m = (struct memo){ .key = arena_alloc(a, (size_t)room * sizeof *m->key),
                        .value = arena_alloc(a, (size_t)room * sizeof *m->value), .room = room };
}

static inline void **memo_find(struct memo *m, struct arena *a, const struct key *k)
{
    if (4 * m->n > 3 * m->room) {
        const struct memo old = *m;
        memo_init(m, a, 2 * old.room);
        m->n = old.n;
        for (int i = 0; i < old.room; i++)
            if (old.value[i]) *memo_at(m, &old.key[i]) = old.value[i];
    }
    return memo_at(m, k);
}

#endif
