/* A backend whose every launcher is the same function: it launches the second side on copies of the outputs, the first
 * in place, and compares. */
#include "exec/verify.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { VERIFY_OUTPUTS = OP_WRITES + OP_ADDS };

double verify_limit(enum dtype t)
{
    return t == DT_BF16 ? 1.5 / 128 : 2e-5;
}

static int64_t verify_B(const struct call *c, const struct operand *o, int id)
{
    return o->p ? dtype_all_B((enum dtype)c->pr->buf[id].dtype, o->rows * o->cols) : 0;
}

static double verify_at(const void *p, enum dtype t, int64_t i)
{
    if (t == DT_F32) return ((const float *)p)[i];
    if (t == DT_I32) return ((const int32_t *)p)[i];
    const uint32_t bits = (uint32_t)((const uint16_t *)p)[i] << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static double verify_largest(const void *p, enum dtype t, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++) most = fmax(most, fabs(verify_at(p, t, i)));
    return most;
}

/* The largest difference of one output; NaN on one side only is infinitely off. */
static struct verify_kind verify_compare(const void *a, const void *b, enum dtype t, int64_t n)
{
    struct verify_kind worst = {.dtype = t};
    const double most = t == DT_I32 ? 0 : verify_largest(a, t, n);
    for (int64_t i = 0; i < n; i++) {
        const double x = verify_at(a, t, i), y = verify_at(b, t, i);
        if (x == y || (isnan(x) && isnan(y))) continue;
        const double off = isfinite(x) && isfinite(y) && most > 0 ? fabs(y - x) / most : INFINITY;
        if (off > worst.off) worst = (struct verify_kind){.dtype = t, .off = off, .a = x, .b = y, .element = i};
    }
    return worst;
}

static void verify_note(struct verify *v, const struct call *c, struct verify_kind w, int output)
{
    pthread_mutex_lock(&v->lock);
    struct verify_kind *k = &v->kind[c->op->kind];
    if (w.off > k->off) {
        w.launches = k->launches;
        w.rank = c->rank;
        w.op = (int32_t)(c->op - c->pr->op);
        w.micro = c->micro;
        w.iter = c->iter;
        w.output = output;
        *k = w;
    }
    pthread_mutex_unlock(&v->lock);
}

static void verify_outputs(const struct call *c, const struct call *twin)
{
    struct verify *v = c->backend_user;
    pthread_mutex_lock(&v->lock);
    v->kind[c->op->kind].launches++;
    pthread_mutex_unlock(&v->lock);
    for (int i = 0; i < VERIFY_OUTPUTS; i++) {
        const int add = i >= OP_WRITES, k = add ? i - OP_WRITES : i;
        const int id = add ? c->op->io.add[k] : c->op->io.write[k];
        const struct operand *x = add ? &c->add[k] : &c->write[k], *y = add ? &twin->add[k] : &twin->write[k];
        if (x->p) verify_note(v, c, verify_compare(x->p, y->p, (enum dtype)c->pr->buf[id].dtype, x->rows * x->cols), i);
    }
}

/* Points twin's outputs into `copy`, which gets what they hold now. Returns the bytes needed (copy NULL: only that). */
static int64_t verify_copy(struct call *twin, char *copy)
{
    int64_t at = 0;
    for (int i = 0; i < VERIFY_OUTPUTS; i++) {
        const int add = i >= OP_WRITES, k = add ? i - OP_WRITES : i;
        struct operand *o = add ? &twin->add[k] : &twin->write[k];
        const int64_t size_B = verify_B(twin, o, add ? twin->op->io.add[k] : twin->op->io.write[k]);
        if (copy && o->p) {
            memcpy(copy + at, o->p, (size_t)size_B);
            o->p = copy + at;
        }
        at += (size_B + 63) / 64 * 64;
    }
    return at;
}

static enum err verify_twice(const struct call *c, const struct verify *v)
{
    struct call a = *c, b = *c;
    float gap = INFINITY;
    const struct backend *on = v->b.on;
    const int64_t copy_B = verify_copy(&b, NULL) + 1;
    char *copy = on ? on->arena_new(copy_B) : malloc((size_t)copy_B);
    if (!copy) return fail(c->d, ERR_LIMIT, "%s: no memory for a second set of outputs", op_name(c->op->kind));
    verify_copy(&b, copy);
    a.kernels = v->a.kernels;
    b.kernels = v->b.kernels;
    b.score_gap = &gap;
    enum err e = v->b.launch[c->op->kind](&b);
    const char *text = e == OK && on ? on->wait() : NULL;
    if (text) e = fail(c->d, ERR_DEVICE, "rank %d, %s of layer %d: the device says: %s", c->rank,
                       op_name((enum op_kind)c->op->kind), c->op->layer, text);
    if (e == OK) e = v->a.launch[c->op->kind](&a);
    if (e == OK) verify_outputs(&a, &b);
    if (on) on->arena_free(copy);
    else free(copy);
    return e;
}

static enum err verify_launch(const struct call *c)
{
    const struct verify *v = c->backend_user;
    const enum op_family f = op_family((enum op_kind)c->op->kind);
    if (f != FAMILY_COMM && f != FAMILY_P2P) return verify_twice(c, v);
    struct call a = *c;
    a.kernels = v->a.kernels;
    return v->a.launch[c->op->kind](&a);
}

enum err verify_run(struct verify *v, struct arena *arena, const struct program *pr, const struct unroll *u,
                    const struct job *j, const struct exec_ask *ask, struct diag *d)
{
    launch *table[OP_KIND_COUNT];
    struct exec_ask both = *ask;
    struct exec_result r;
    for (int k = 0; k < OP_KIND_COUNT; k++) table[k] = verify_launch;
    both.backend = table;
    both.backend_user = v;
    both.kernels = v->a.kernels;
    both.on = v->b.on;
    memset(v->kind, 0, sizeof v->kind);
    pthread_mutex_init(&v->lock, NULL);
    const enum err e = exec_run(&r, arena, pr, u, j, &both, d);
    pthread_mutex_destroy(&v->lock);
    return e;
}
