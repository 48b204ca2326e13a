/* Fibers, barriers, warp meetings and asynchronous copies: see simt.h. A fiber that cannot go on is skipped, not
 * resumed, so a wait costs one switch. */
#include "tests/simt/simt.h"
#include "tests/simt/cuda_runtime.h"
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
enum { STACK_B = 256 << 10 };
#else
enum { STACK_B = 64 << 10 };
#endif

enum {
    THREADS = 1024, LANES = 32, COPIES = 128, KERNELS = 64,
    SHARED_B = 227 << 10, OPEN_SHARED_B = 48 << 10      /* what a block can have; what it has without asking */
};

struct copy { void *to; const void *from; int bytes, zeros, group; };
struct fiber {
    void *sp;                           /* where it was left */
    ucontext_t context;
    const unsigned *wait;               /* goes on when *wait != seen; NULL: may run */
    unsigned seen;
    int done, n_copy, group;
    struct copy copy[COPIES];
};
struct warp { unsigned turn; int here; void (*all)(void *const *); void *lane[LANES]; };

struct simt_dim simt_thread, simt_block, simt_threads, simt_blocks;

static struct {
    pthread_mutex_t one;
    struct fiber *fiber; char *stacks;
    struct warp warp[THREADS / LANES];
    unsigned barrier; int n_barrier;
    int now, n, failed;                 /* the running fiber; fibers of this block */
    void *host_sp; ucontext_t host;
    void (*body)(void *); void *arg;
    char *shared;
    unsigned order, random;
    char fault[256]; int unread;        /* of the last fault: its text; whether cudaGetLastError is to say so */
    struct { const void *kernel; int shared_B; } allowed[KERNELS]; int n_allowed;
} g = { .one = PTHREAD_MUTEX_INITIALIZER };

/* Static shared variables live in a section of their own, so that they can be poisoned like the dynamic ones. */
extern char __start_simt_shared[] __attribute__((weak)), __stop_simt_shared[] __attribute__((weak));

void simt_order(unsigned order)
{
    pthread_mutex_lock(&g.one);
    g.order = g.random = order;
    pthread_mutex_unlock(&g.one);
}

const char *simt_fault(void)
{
    static char last[sizeof g.fault];
    pthread_mutex_lock(&g.one);
    memcpy(last, g.fault, sizeof last);
    g.fault[0] = 0;
    pthread_mutex_unlock(&g.one);
    return last;
}

cudaError_t cudaGetLastError(void)
{
    pthread_mutex_lock(&g.one);
    const cudaError_t e = g.unread ? cudaErrorLaunchFailure : cudaSuccess;
    g.unread = 0;
    pthread_mutex_unlock(&g.one);
    return e;
}

static void fault(const char *format, ...)
{
    va_list args;
    if (g.failed) return;
    g.failed = g.unread = 1;
    va_start(args, format);
    const int n = snprintf(g.fault, sizeof g.fault, "block (%u, %u, %u), ", simt_block.x, simt_block.y, simt_block.z);
    vsnprintf(g.fault + n, sizeof g.fault - (size_t)n, format, args);
    va_end(args);
}

/* ---- switching ---- */

#if defined(__x86_64__)
/* Saves what a call must keep, leaves its stack in *from and goes on where `to` was left. */
void simt_switch(void **from, void *to);
__asm__(".text\n.globl simt_switch\n.type simt_switch,@function\nsimt_switch:\n"
        "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
        "mov %rsp,(%rdi)\nmov %rsi,%rsp\n"
        "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n"
        ".size simt_switch,.-simt_switch\n");
#endif

static char *stack_of(int i)
{
    return g.stacks + (size_t)i * STACK_B;
}

static void to_fiber(int i)
{
    struct fiber *f = &g.fiber[i];
#if defined(__SANITIZE_ADDRESS__)
    void *fake;
    __sanitizer_start_switch_fiber(&fake, stack_of(i), STACK_B);
#endif
#if defined(__x86_64__)
    simt_switch(&g.host_sp, f->sp);
#else
    swapcontext(&g.host, &f->context);
#endif
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(fake, NULL, NULL);
#endif
}

#if defined(__SANITIZE_ADDRESS__)
static const void *host_stack;
static size_t host_stack_B;
#endif

static void to_host(void)
{
    struct fiber *f = &g.fiber[g.now];
#if defined(__SANITIZE_ADDRESS__)
    void *fake;
    __sanitizer_start_switch_fiber(f->done ? NULL : &fake, host_stack, host_stack_B);
#endif
#if defined(__x86_64__)
    simt_switch(&f->sp, g.host_sp);
#else
    swapcontext(&f->context, &g.host);
#endif
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(fake, &host_stack, &host_stack_B);
#endif
}

static void fiber_main(void)
{
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(NULL, &host_stack, &host_stack_B);
#endif
    g.body(g.arg);
    g.fiber[g.now].done = 1;
    to_host();
    abort();                            /* nobody resumes what is done */
}

static void fiber_start(int i)
{
    struct fiber *f = &g.fiber[i];
    f->wait = NULL;
    f->done = f->n_copy = f->group = 0;
#if defined(__SANITIZE_ADDRESS__)
    ASAN_UNPOISON_MEMORY_REGION(stack_of(i), STACK_B);
#endif
#if defined(__x86_64__)
    void **sp = (void **)(void *)(stack_of(i) + STACK_B) - 1;   /* as if called: aligned, less a return */
    *sp = NULL;
    *--sp = (void *)(uintptr_t)fiber_main;
    for (int k = 0; k < 6; k++) *--sp = NULL;
    f->sp = sp;
#else
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = stack_of(i);
    f->context.uc_stack.ss_size = STACK_B;
    makecontext(&f->context, fiber_main, 0);
#endif
}

/* ---- what kernels call ---- */

static void wait_for(const unsigned *turn)
{
    struct fiber *f = &g.fiber[g.now];
    f->seen = *turn;
    f->wait = turn;
    to_host();
}

void simt_barrier(void)
{
    if (++g.n_barrier < g.n) {
        wait_for(&g.barrier);
        return;
    }
    g.n_barrier = 0;
    g.barrier++;
}

void simt_meet(void *mine, void (*all)(void *const *lane))
{
    struct warp *w = &g.warp[g.now / LANES];
    if (g.n % LANES) simt_fail("a warp operation needs whole warps of 32 threads");
    if (w->here && w->all != all) simt_fail("lanes of one warp are at different warp operations");
    w->all = all;
    w->lane[g.now % LANES] = mine;
    if (++w->here < LANES) {
        wait_for(&w->turn);
        return;
    }
    all(w->lane);
    w->here = 0;
    w->turn++;
}

static void copy_now(const struct copy *c)
{
    if (c->bytes) memcpy(c->to, c->from, (size_t)c->bytes);
    memset((char *)c->to + c->bytes, 0, (size_t)c->zeros);
}

void simt_copy(void *to, const void *from, int bytes, int zeros)
{
    struct fiber *f = &g.fiber[g.now];
    if (g.order % 2) {
        copy_now(&(struct copy){ to, from, bytes, zeros, 0 });
        return;
    }
    if (f->n_copy == COPIES) simt_fail("too many asynchronous copies of one thread are open");
    f->copy[f->n_copy++] = (struct copy){ to, from, bytes, zeros, f->group };
}

void simt_copy_commit(void)
{
    g.fiber[g.now].group++;
}

void simt_copy_wait(int left)
{
    struct fiber *f = &g.fiber[g.now];
    int kept = 0;
    for (int i = 0; i < f->n_copy; i++) {
        const struct copy *c = &f->copy[i];
        if (c->group >= f->group - left) f->copy[kept++] = *c;
        else copy_now(c);
    }
    f->n_copy = kept;
}

char *simt_shared_memory(void)
{
    return g.shared;
}

void simt_fail(const char *why)
{
    fault("thread %d: %s", g.now, why);
    to_host();                          /* the launch has ended: nobody comes back */
    abort();
}

/* ---- a launch ---- */

static unsigned below(unsigned n)
{
    g.random = g.random * 1664525u + 1013904223u;
    return (unsigned)((uint64_t)(g.random >> 8) * n >> 24);
}

static void arrange(unsigned *list, unsigned n)
{
    for (unsigned i = 0; i < n; i++) list[i] = g.order == 1 ? n - 1 - i : i;
    for (unsigned i = n; g.order > 1 && i > 1; i--) {
        const unsigned j = below(i), kept = list[i - 1];
        list[i - 1] = list[j];
        list[j] = kept;
    }
}

static void place(int i)
{
    const unsigned t = (unsigned)i, x = simt_threads.x, y = simt_threads.y;
    simt_thread = (struct simt_dim){ t % x, t / x % y, t / (x * y) };
    g.now = i;
}

static void describe_stuck(void)
{
    for (int i = 0; i < g.n; i++) {
        const struct fiber *f = &g.fiber[i];
        if (f->done) continue;
        const int at_barrier = f->wait == &g.barrier;
        fault("thread %d waits %s that not all threads reach", i, at_barrier ? "at a barrier" : "in a warp operation");
        return;
    }
}

/* Lets a fiber go on, if it may; whether it did. */
static int resume(int i, int *left)
{
    struct fiber *f = &g.fiber[i];
    if (g.failed || f->done || (f->wait && *f->wait == f->seen)) return 0;
    f->wait = NULL;
    place(i);
    to_fiber(i);
    *left -= f->done;
    return 1;
}

/* Even orders: everybody in turn, so that warps stay together. Odd ones: a warp goes on until it waits for another, so that
 * warps are as far apart as barriers allow. */
static int round_of_turns(const unsigned *turn, int *left)
{
    int moved = 0;
    for (int k = 0; k < g.n; k++) {
        const int i = (int)turn[k], warp = i / LANES * LANES, end = warp + LANES < g.n ? warp + LANES : g.n;
        int again = resume(i, left);
        moved |= again;
        while (again && g.order % 2) {
            again = 0;
            for (int l = warp; l < end; l++) again |= resume(l, left);
        }
    }
    return moved;
}

/* Every fiber that may go on does so, until all are done; nobody going on means that they wait for ever. */
static void run_block(size_t shared_B, unsigned *turn)
{
    const size_t static_B = (size_t)(__stop_simt_shared - __start_simt_shared);
    int left = g.n;
    memset(g.shared, 0xff, shared_B);
    if (static_B) memset(__start_simt_shared, 0xff, static_B);
    memset(g.warp, 0, sizeof g.warp);
    g.n_barrier = 0;
    for (int i = 0; i < g.n; i++) fiber_start(i);
    arrange(turn, (unsigned)g.n);
    while (left && !g.failed) {
        if (!round_of_turns(turn, &left)) describe_stuck();
        if (g.order > 1) arrange(turn, (unsigned)g.n);
    }
}

static int sizes_are_wrong(const struct simt_grid *to)
{
    const struct simt_dim b = to->blocks, t = to->threads;
    const uint64_t threads = (uint64_t)t.x * t.y * t.z;
    simt_block = (struct simt_dim){ 0, 0, 0 };
    if (!b.x || !b.y || !b.z || b.x > INT32_MAX || b.y > 65535 || b.z > 65535)
        fault("a grid of (%u, %u, %u) blocks cannot be", b.x, b.y, b.z);
    else if (!threads || threads > THREADS) fault("a block of (%u, %u, %u) threads cannot be", t.x, t.y, t.z);
    return g.failed;
}

static void memory_open(void)
{
    if (g.fiber) return;
    g.fiber = calloc(THREADS, sizeof *g.fiber);
    g.stacks = mmap(NULL, (size_t)THREADS * STACK_B, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!g.fiber || g.stacks == MAP_FAILED) abort();
}

/* Dynamic shared memory is exactly as large as was asked for, so that a sanitizer sees what lies behind it. */
void simt_launch_run(const struct simt_grid *to, void (*body)(void *), void *arg)
{
    pthread_mutex_lock(&g.one);
    memory_open();
    g.failed = 0;
    if (!sizes_are_wrong(to)) {
        const struct simt_dim b = to->blocks;
        const unsigned n = b.x * b.y * b.z;
        unsigned *blocks = malloc(((size_t)n + THREADS) * sizeof *blocks), *turn = blocks + n;
        g.shared = aligned_alloc(128, (to->shared_B + 127) / 128 * 128 + 128);
        if (!blocks || !g.shared) abort();
        g.body = body, g.arg = arg;
        g.n = (int)(to->threads.x * to->threads.y * to->threads.z);
        simt_threads = to->threads, simt_blocks = b;
        g.random = g.order;
        arrange(blocks, n);
        for (unsigned i = 0; i < n && !g.failed; i++) {
            simt_block = (struct simt_dim){ blocks[i] % b.x, blocks[i] / b.x % b.y, blocks[i] / (b.x * b.y) };
            run_block(to->shared_B, turn);
        }
        free(blocks);
        free(g.shared);
    }
    pthread_mutex_unlock(&g.one);
}

void simt_launch_allow(const void *kernel, int shared_B)
{
    int i = 0;
    pthread_mutex_lock(&g.one);
    while (i < g.n_allowed && g.allowed[i].kernel != kernel) i++;
    if (i == KERNELS) abort();
    if (i == g.n_allowed) g.n_allowed++;
    g.allowed[i].kernel = kernel;
    g.allowed[i].shared_B = shared_B;
    pthread_mutex_unlock(&g.one);
}

int simt_launch_allowed(const void *kernel, size_t shared_B)
{
    int limit = OPEN_SHARED_B;
    pthread_mutex_lock(&g.one);
    for (int i = 0; i < g.n_allowed; i++)
        if (g.allowed[i].kernel == kernel) limit = g.allowed[i].shared_B;
    const int fits = shared_B <= (size_t)limit && shared_B <= SHARED_B;
    if (!fits) {
        g.failed = 0;
        simt_block = (struct simt_dim){ 0, 0, 0 };
        fault("%zu bytes of dynamic shared memory, %d are allowed", shared_B, limit);
    }
    pthread_mutex_unlock(&g.one);
    return fits;
}
