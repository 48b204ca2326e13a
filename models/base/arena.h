/* One allocator for everything that lives as long as an answer: nobody frees one object, arena_free frees all. */
#ifndef MODELS_BASE_ARENA_H
#define MODELS_BASE_ARENA_H
#include <stddef.h>

/* zero-initialised: `struct arena a = { 0 };`. shared: what is allocated from then on is seen by the processes that are
 * forked later, and their writes by all; none of them may allocate in it. */
struct arena { struct arena_block *last; int shared; };

/* `size_B` zeroed bytes, aligned to 16. Never NULL: on exhaustion the process prints one line and aborts. */
void *arena_alloc(struct arena *a, size_t size_B);
/* The array grown (or made, when `old` is NULL) to `n` elements of `elem_B` bytes; the old part copied, the rest zero. */
void *arena_grow(struct arena *a, void *old, size_t n_old, size_t n, size_t elem_B);
char *arena_strdup(struct arena *a, const char *s);
char *arena_printf(struct arena *a, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Whether the byte at `p` lies in one of its blocks. */
int   arena_holds(const struct arena *a, const void *p);
void  arena_free(struct arena *a);
/* All objects are gone, the memory stays for the next ones: what is built and dropped a thousand times is not asked of the
 * system each time. */
void  arena_clear(struct arena *a);

#endif
