/* Blocks of growing size, each filled from its front. An object never moves and is never freed alone: what is
 * built for one answer dies with it. Exhaustion ends the process: no caller has a better plan than that. */
#include "models/base/arena.h"
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { ARENA_ALIGN_B = 16, ARENA_FIRST_B = 1 << 14, ARENA_LARGEST_B = 1 << 24 };

struct arena_block {
    struct arena_block *before;
    size_t used_B, size_B;          /* of `data` */
    size_t mapped_B;                /* of the whole block; 0: of the heap */
    _Alignas(ARENA_ALIGN_B) unsigned char data[];
};

static _Noreturn void arena_exhausted(size_t size_B)
{
    fprintf(stderr, "moefold: out of memory: %zu bytes more were needed\n", size_B);
    abort();
}

/* Pages that nobody touches cost nothing: a shared block may be larger than what will ever be used of it. */
static struct arena_block *arena_block_map(size_t size_B)
{
    struct arena_block *b = mmap(NULL, size_B, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (b == MAP_FAILED) return NULL;
    b->mapped_B = size_B;
    return b;
}

/* Blocks double up to a limit, so a large program costs few of them and a small one little memory. */
static struct arena_block *arena_block_add(struct arena *a, size_t size_B)
{
    size_t data_B = a->last == NULL ? ARENA_FIRST_B : 2 * a->last->size_B;
    if (data_B > ARENA_LARGEST_B) data_B = ARENA_LARGEST_B;
    if (data_B < size_B) data_B = size_B;
    if (data_B > SIZE_MAX - sizeof(struct arena_block)) arena_exhausted(size_B);
    struct arena_block *b = a->shared ? arena_block_map(sizeof(*b) + data_B) : calloc(1, sizeof(*b) + data_B);
    if (b == NULL) arena_exhausted(size_B);
    b->size_B = data_B;
    b->before = a->last;
    a->last = b;
    return b;
}

void *arena_alloc(struct arena *a, size_t size_B)
{
    if (size_B > SIZE_MAX - ARENA_ALIGN_B) arena_exhausted(size_B);
    const size_t aligned_B = (size_B + ARENA_ALIGN_B - 1) / ARENA_ALIGN_B * ARENA_ALIGN_B;
    struct arena_block *b = a->last;
    if (b == NULL || b->size_B - b->used_B < aligned_B) b = arena_block_add(a, aligned_B);
    void *p = b->data + b->used_B;
    b->used_B += aligned_B;
    return p;
}

void *arena_grow(struct arena *a, void *old, size_t n_old, size_t n, size_t elem_B)
{
    if (elem_B > 0 && n > SIZE_MAX / elem_B) arena_exhausted(n);
    void *p = arena_alloc(a, n * elem_B);
    if (old != NULL) memcpy(p, old, (n_old < n ? n_old : n) * elem_B);
    return p;
}

char *arena_strdup(struct arena *a, const char *s)
{
    const size_t size_B = strlen(s) + 1;
    return memcpy(arena_alloc(a, size_B), s, size_B);
}

char *arena_printf(struct arena *a, const char *format, ...)
{
    va_list args, again;
    char none[1];
    va_start(args, format);
    va_copy(again, args);
    const int n = vsnprintf(none, sizeof none, format, args);
    va_end(args);
    if (n < 0) arena_exhausted(0);
    char *text = arena_alloc(a, (size_t)n + 1);
    vsnprintf(text, (size_t)n + 1, format, again);
    va_end(again);
    return text;
}

int arena_holds(const struct arena *a, const void *p)
{
    for (const struct arena_block *b = a->last; b != NULL; b = b->before)
        if ((uintptr_t)p >= (uintptr_t)b->data && (uintptr_t)p < (uintptr_t)b->data + b->used_B) return 1;
    return 0;
}

void arena_free(struct arena *a)
{
    while (a->last != NULL) {
        struct arena_block *b = a->last;
        a->last = b->before;
        if (b->mapped_B) munmap(b, b->mapped_B);
        else free(b);
    }
}

/* The last block is the largest: soon it holds everything. */
void arena_clear(struct arena *a)
{
    struct arena_block *b = a->last;
    if (b == NULL) return;
    a->last = b->before;
    arena_free(a);
    memset(b->data, 0, b->used_B);
    b->before = NULL;
    b->used_B = 0;
    a->last = b;
}
