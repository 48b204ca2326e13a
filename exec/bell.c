/* Event count on a Linux futex. A sleeper announces itself before it looks at its condition for the last time,
 * and a ringer looks for sleepers after it has stored the condition: with sequentially consistent atomics at
 * least one of them sees the other, so no ring is lost. */
#include "exec/bell.h"
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { SPINS = 64 };        /* more would steal the core from the thread that is waited for */

int64_t bell_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void bell_sleep(struct bell *b, uint32_t seen, int64_t left_ns)
{
    const struct timespec t = { .tv_sec = left_ns / 1000000000, .tv_nsec = left_ns % 1000000000 };
    syscall(SYS_futex, &b->rung, FUTEX_WAIT, seen, left_ns > 0 ? &t : NULL, NULL, 0);
}

static int bell_sleep_until(struct bell *b, int (*ready)(const void *arg), const void *arg, int64_t end_ns)
{
    for (;;) {
        const uint32_t seen = atomic_load(&b->rung);
        if (ready(arg)) return 1;
        const int64_t left_ns = end_ns ? end_ns - bell_now_ns() : 0;
        if (end_ns && left_ns <= 0) return 0;
        bell_sleep(b, seen, left_ns);
    }
}

int bell_wait(struct bell *b, int (*ready)(const void *arg), const void *arg, double timeout_s)
{
    for (int i = 0; i < SPINS; i++)
        if (ready(arg)) return 1;
    const int64_t end_ns = timeout_s > 0 ? bell_now_ns() + (int64_t)(timeout_s * 1e9) : 0;
    atomic_fetch_add(&b->sleepers, 1);
    const int came = bell_sleep_until(b, ready, arg, end_ns);
    atomic_fetch_sub(&b->sleepers, 1);
    return came;
}

void bell_ring(struct bell *b)
{
    if (!atomic_load(&b->sleepers)) return;
    atomic_fetch_add(&b->rung, 1);
    syscall(SYS_futex, &b->rung, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}
