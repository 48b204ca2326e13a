/* What the launchers of the CUDA backend are made of. Only exec/backend*_cuda.c include this. */
#ifndef EXEC_BACKEND_CUDA_H
#define EXEC_BACKEND_CUDA_H
#include "exec/backend_cpu.h"
#include "exec/device_cuda.h"

launch backend_cuda_grouped_gemm, backend_cuda_grouped_dgrad, backend_cuda_grouped_wgrad, backend_cuda_route,
    backend_cuda_route_bwd, backend_cuda_route_load, backend_cuda_balance, backend_cuda_permute, backend_cuda_unpermute,
    backend_cuda_sort, backend_cuda_unsort;

#define STREAM device_stream()

static inline enum dtype type_of(const struct call *c, int id)
{
    return (enum dtype)c->pr->buf[id].dtype;
}

/* Names rank, op and layer when the GPU says something. */
static inline enum err says(const struct call *c, const char *text)
{
    if (!text) return OK;
    return fail(c->d, ERR_DEVICE, "rank %d, %s of layer %d: the GPU says: %s", c->rank, op_name((enum op_kind)c->op->kind),
                c->op->layer, text);
}

/* An op's answer; `e`: what its kernels' launchers said. */
static inline enum err done(const struct call *c, enum err e)
{
    if (e == OK) return OK;
    if (e == ERR_DEVICE) return says(c, "a launch was refused");
    return fail(c->d, e, "rank %d, %s of layer %d: no kernel for this type or width", c->rank,
                op_name((enum op_kind)c->op->kind), c->op->layer);
}

static inline enum err scratch_open(void **p, const struct call *c, int64_t bytes)
{
    return says(c, device_scratch_new(p, bytes));
}

/* Ends an op that had scratch. */
static inline enum err done_with(const struct call *c, enum err e, void *scratch)
{
    const char *text = device_scratch_free(scratch);
    TRY(done(c, e));
    return says(c, text);
}

/* By the CPU, on the same memory, when all that came before in this stream is done. */
static inline enum err on_host(const struct call *c)
{
    TRY(says(c, device_wait()));
    return backend_cpu_table(&c->job->plan)[c->op->kind](c);
}

/* Whether all operands that are there, except those with a bit in `apart` (written, added to, read: in that order), are stored
 * as `t`, which is fp32 or bf16. */
static inline int stored_as(const struct call *c, enum dtype t, unsigned apart)
{
    const struct io *io = &c->op->io;
    unsigned bit = 1;
    if (t != DT_F32 && t != DT_BF16) return 0;
    for (int i = 0; i < OP_WRITES; i++, bit <<= 1)
        if (c->write[i].p && !(apart & bit) && type_of(c, io->write[i]) != t) return 0;
    for (int i = 0; i < OP_ADDS; i++, bit <<= 1)
        if (c->add[i].p && !(apart & bit) && type_of(c, io->add[i]) != t) return 0;
    for (int i = 0; i < OP_READS; i++, bit <<= 1)
        if (c->read[i].p && !(apart & bit) && type_of(c, io->read[i]) != t) return 0;
    return 1;
}
#define WRITTEN(i) (1u << (i))
#define ADDED(i) (1u << (OP_WRITES + (i)))
#define READ(i) (1u << (OP_WRITES + OP_ADDS + (i)))

static inline int is_float(const struct call *c, struct operand o, int id)
{
    return !o.p || type_of(c, id) == DT_F32;
}

#endif
