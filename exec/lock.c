#include "exec/lock.h"
#include <errno.h>

void lock_open(struct lock *l)
{
    pthread_mutexattr_t a;
    pthread_mutexattr_init(&a);
    pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&l->mutex, &a);
    pthread_mutexattr_destroy(&a);
}

void lock_take(struct lock *l)
{
    if (pthread_mutex_lock(&l->mutex) == EOWNERDEAD) pthread_mutex_consistent(&l->mutex);
}

void lock_give(struct lock *l)
{
    pthread_mutex_unlock(&l->mutex);
}
