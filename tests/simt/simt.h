/* Runs CUDA kernels on the CPU, for tests where no GPU is. A block's threads are fibers that take turns at barriers and
 * warp operations, in an order that the test chooses; blocks run one after the other. Nothing here can race, so a race
 * shows as an answer that depends on the order. Shared memory is poisoned when a block starts. What a GPU would hang or
 * fault on (threads of a block at different barriers, a lane missing from a warp operation, impossible launch sizes)
 * ends the launch, is described by simt_fault() and returned by cudaGetLastError(). One launch at a time in a process:
 * concurrent ones wait. */
#ifndef TESTS_SIMT_SIMT_H
#define TESTS_SIMT_SIMT_H
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif

/* Order of threads and blocks in the launches from now on: 0 rising, 1 falling, 2 and above: shuffled, each number in
 * another way, and again at every turn. In even orders a block's warps stay together, in odd ones each runs ahead until it
 * must wait for another. */
void simt_order(unsigned order);
enum { SIMT_ORDERS = 4 };       /* how many of them tests go through */

/* What was wrong with a launch since the last call; "" when nothing was. */
const char *simt_fault(void);

/* ---- for cuda_runtime.h beside this file ---- */

struct simt_dim { unsigned x, y, z; };
struct simt_grid { struct simt_dim blocks, threads; size_t shared_B; };
extern struct simt_dim simt_thread, simt_block, simt_threads, simt_blocks;
void simt_launch_run(const struct simt_grid *g, void (*body)(void *), void *arg);
/* Lets `kernel` have more than 48 KiB of dynamic shared memory; simt_launch_allowed asks. */
void simt_launch_allow(const void *kernel, int shared_B);
int simt_launch_allowed(const void *kernel, size_t shared_B);
char *simt_shared_memory(void);
void simt_barrier(void);
/* All 32 lanes of the warp meet; the last one runs all(lanes' pointers), whose writes every lane then sees. */
void simt_meet(void *mine, void (*all)(void *const *lane));
/* Asynchronous copies happen as late as can be, at the wait, in even orders, and at once in odd ones: what is read too early
 * and what is overwritten too early both show. `left` groups may still be open after a wait. */
void simt_copy(void *to, const void *from, int bytes, int zeros);
void simt_copy_commit(void);
void simt_copy_wait(int left);
/* Ends the launch from inside a kernel, as a failed check does. Does not return there. */
void simt_fail(const char *why);

#ifdef __cplusplus
}
#endif
#endif
