/* Sleeping until something holds: a short spin, then a futex with a time-out. A ring costs a system call only
 * when somebody sleeps, so that tiny ops do not pay for idle streams. Works between threads and between forked
 * processes that share the page. The condition must be an atomic that the ringer has stored before it rings. */
#ifndef EXEC_BELL_H
#define EXEC_BELL_H
#include <stdatomic.h>
#include <stdint.h>

struct bell { _Atomic uint32_t rung, sleepers; };     /* zero-initialised */

/* Returns 1 as soon as ready(arg) holds, 0 when it still does not after `timeout_s`; timeout_s <= 0 waits for
 * ever. */
int  bell_wait(struct bell *b, int (*ready)(const void *arg), const void *arg, double timeout_s);
/* Wakes all who wait, so that they look again. */
void bell_ring(struct bell *b);
int64_t bell_now_ns(void);                              /* CLOCK_MONOTONIC */

#endif
