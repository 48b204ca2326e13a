/* Work of a device that goes on when its launcher has returned. Every item has two marks in the stream of its lane,
 * around its launch: the second is what items of other lanes come after, and both are its span's clock. Without a
 * device every launcher has done its work when it returns, and there is nothing here to do. */
#include "exec/exec_rank.h"

static const struct backend *device(const struct exec_rank *r)
{
    return r->x->ask->on;
}

static enum err exec_mark_says(const struct exec_rank *r, int item, const char *text, struct diag *d)
{
    const struct op *o = &r->x->pr->op[r->u->item[item].op];
    if (!text) return OK;
    return fail(d, ERR_DEVICE, "rank %d, at or before %s of layer %d: the device says: %s", r->rank,
                op_name((enum op_kind)o->kind), o->layer, text);
}

static void **begins(const struct exec_rank *r, int item)
{
    return &r->mark[2 * item];
}

static void **ends(const struct exec_rank *r, int item)
{
    return &r->mark[2 * item + 1];
}

static void **clock_mark(const struct exec_rank *r)
{
    return &r->mark[2 * r->u->n_item];
}

enum err exec_mark_open(struct exec_rank *r, struct arena *a, struct diag *d)
{
    const int n = 2 * r->u->n_item + 1;
    if (!device(r)) return OK;
    r->mark = arena_alloc(a, (size_t)n * sizeof *r->mark);
    for (; r->n_mark < n; r->n_mark++)
        if (!(r->mark[r->n_mark] = device(r)->mark_new()))
            return fail(d, ERR_LIMIT, "rank %d: no room for %d events of the device, only for %d", r->rank, n,
                        r->n_mark);
    return OK;
}

void exec_mark_close(struct exec_rank *r)
{
    while (r->n_mark > 0) device(r)->mark_free(r->mark[--r->n_mark]);
}

/* Items of the same lane are in order without a word. */
enum err exec_mark_begin(const struct exec_rank *r, int item, struct diag *d)
{
    const struct item *it = &r->u->item[item];
    const struct op *op = r->x->pr->op;
    const char *text = NULL;
    if (!device(r)) return OK;
    for (int k = 0; k < it->n_dep && !text; k++) {
        const int dep = r->u->dep[it->dep + k];
        if (op[r->u->item[dep].op].stream != op[it->op].stream) text = device(r)->after(*ends(r, dep));
    }
    if (!text && r->x->ask->poison)
        text = device(r)->wait(); /* the host is about to fill what others have done with */
    return exec_mark_says(r, item, text ? text : device(r)->mark(*begins(r, item)), d);
}

enum err exec_mark_end(const struct exec_rank *r, int item, struct diag *d)
{
    if (!device(r)) return OK;
    const char *text = device(r)->mark(*ends(r, item));
    return exec_mark_says(r, item, text || !r->x->ask->poison ? text : device(r)->wait(), d);
}

enum err exec_mark_reached(const struct exec_rank *r, int item, struct diag *d)
{
    return device(r) ? exec_mark_says(r, item, device(r)->reached(*ends(r, item)), d) : OK;
}

enum err exec_mark_clock(struct exec_rank *r, struct diag *d)
{
    if (!device(r)) return OK;
    const char *text = device(r)->mark(*clock_mark(r));
    if (!text) text = device(r)->reached(*clock_mark(r));
    r->clock_ns = bell_now_ns();
    return exec_mark_says(r, 0, text, d);
}

void exec_mark_spans(struct exec_rank *r, int step)
{
    if (!device(r) || step >= r->x->n_traced) return;
    for (int i = 0; i < r->u->n_item; i++) {
        struct span *s = &r->span[(int64_t)step * r->u->n_item + i];
        s->t0_ns = r->clock_ns + (int64_t)(1e9 * device(r)->between_s(*clock_mark(r), *begins(r, i)));
        s->t1_ns = r->clock_ns + (int64_t)(1e9 * device(r)->between_s(*clock_mark(r), *ends(r, i)));
        if (s->t1_ns <= s->t0_ns) s->t1_ns = s->t0_ns + 1; /* events are half a microsecond apart, or not at all */
    }
}
