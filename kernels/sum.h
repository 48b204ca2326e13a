/* Sums over the members of a group whose buffers all lie on one device. */
#ifndef KERNELS_SUM_H
#define KERNELS_SUM_H
#include "kernels/stream.h"

enum { SUM_MEMBERS = 64 };
/* to[0 .. n - 1] = the sum (max: the largest) of from[0 .. members - 1], in that order, in float32; `to` may be one
 * of them. ERR_LIMIT: more than SUM_MEMBERS. */
enum err sum_members_cuda(float *to, const float *const *from, int members, int64_t n, int max, kstream s);

#endif
