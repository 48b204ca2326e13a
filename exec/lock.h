/* A mutex between the ranks of a run, be they threads or forked processes that share its page. A process that is
 * killed while it holds the lock gives it up: what the lock guards may then be half written, and must be of a kind
 * that this does not spoil (a text to show). */
#ifndef EXEC_LOCK_H
#define EXEC_LOCK_H
#include <pthread.h>

struct lock { pthread_mutex_t mutex; };

void lock_open(struct lock *l);
void lock_take(struct lock *l);
void lock_give(struct lock *l);

#endif
