/* Counts lives while they happen, for comparison with what unroll predicted: a birth is the first issued use of
 * an instance, a death the last one. With poison the bytes of the unborn and of the dead are NaN, so a read
 * that no builder declared shows in the loss. */
#include "exec/exec_rank.h"

enum { POISON = 0x7fc0dead };           /* a quiet NaN as a float, absurd as a count */
enum { ALIGN_B = 64 };                  /* offsets are multiples of it, and so is the arena */

static int exec_life_micro(const struct program *pr, const struct item *it, int root)
{
    return pr->buf[root].keep == KEEP_MICRO ? it->micro : -1;
}

static int64_t exec_life_index(const struct program *pr, const struct item *it, int root)
{
    return (int64_t)root * (pr->n_micro + 1) + exec_life_micro(pr, it, root) + 1;
}

static int exec_life_for_ever(const struct program *pr, int id, int stage)
{
    const struct buf *b = &pr->buf[id];
    return b->keep != KEEP_MICRO && !b->view && b->stage == stage;
}

/* What is on the host takes nothing of the device. */
static int64_t exec_life_B(const struct program *pr, int root)
{
    return pr->buf[root].place == PLACE_HOST ? 0 : buf_B(&pr->buf[root]);
}

static void exec_life_touch(struct exec_life *l, const struct exec_rank *r, const struct item *it, int root)
{
    const int64_t used_B = unroll_life(r->u, r->x->pr, it, root)->offset + buf_B(&r->x->pr->buf[root]);
    const int64_t end_B = (used_B + ALIGN_B - 1) / ALIGN_B * ALIGN_B;
    if (r->x->pr->buf[root].place == PLACE_HOST) return;
    if (end_B > l->touched_B) l->touched_B = end_B;
}

void exec_life_open(struct exec_life *l, struct arena *a, const struct exec_rank *r)
{
    const struct program *pr = r->x->pr;
    const size_t n = (size_t)pr->n_buf * (size_t)(pr->n_micro + 1);
    const struct item once = { .micro = -1 };
    struct use use[OP_USES];
    l->total = arena_alloc(a, n * sizeof *l->total);
    l->left = arena_alloc(a, n * sizeof *l->left);
    l->todo = arena_alloc(a, n * sizeof *l->todo);
    for (int i = 0; i < r->u->n_item; i++) {
        const struct item *it = &r->u->item[i];
        const int uses = op_uses(use, pr, &pr->op[it->op]);
        for (int k = 0; k < uses; k++) l->total[exec_life_index(pr, it, use[k].buf)]++;
    }
    for (size_t i = 0; i < n; i++) {
        l->left[i] = l->total[i];
        l->todo[i] = l->total[i];
    }
    for (int id = 1; id < pr->n_buf; id++) {
        if (!exec_life_for_ever(pr, id, r->at.pp)) continue;
        l->alive_B += exec_life_B(pr, id);
        exec_life_touch(l, r, &once, id);
    }
    l->most_B = l->alive_B;
}

void exec_life_issue(struct exec_life *l, const struct exec_rank *r, const struct item *it)
{
    const struct program *pr = r->x->pr;
    struct use use[OP_USES];
    const int n = op_uses(use, pr, &pr->op[it->op]);
    int64_t dead_B = 0;
    for (int k = 0; k < n; k++) {
        const int64_t i = exec_life_index(pr, it, use[k].buf);
        const int mortal = pr->buf[use[k].buf].keep == KEEP_MICRO;
        if (mortal && l->left[i] == l->total[i]) l->alive_B += exec_life_B(pr, use[k].buf);
        if (--l->left[i] == 0) {
            l->left[i] = l->total[i];
            if (mortal) dead_B += exec_life_B(pr, use[k].buf);
        }
        exec_life_touch(l, r, it, use[k].buf);
    }
    if (l->alive_B > l->most_B) l->most_B = l->alive_B;
    l->alive_B -= dead_B;
}

int exec_life_open_count(const struct exec_life *l, const struct exec_rank *r)
{
    const int64_t n = (int64_t)r->x->pr->n_buf * (r->x->pr->n_micro + 1);
    int open = 0;
    for (int64_t i = 0; i < n; i++) open += l->left[i] != l->total[i];
    return open;
}

/* ---- poison ---- */

static void exec_life_fill(const struct exec_rank *r, const struct item *it, int root)
{
    int32_t *p = (int32_t *)(void *)(r->arena + unroll_life(r->u, r->x->pr, it, root)->offset);
    const int64_t n = buf_B(&r->x->pr->buf[root]) / (int64_t)sizeof *p;
    for (int64_t i = 0; i < n; i++) p[i] = POISON;
}

/* The first use is a write on which all others depend: nobody else can have completed a use, or be at one. */
void exec_life_born(struct exec_life *l, const struct exec_rank *r, const struct item *it)
{
    const struct program *pr = r->x->pr;
    struct use use[OP_USES];
    const int n = op_uses(use, pr, &pr->op[it->op]);
    for (int k = 0; k < n; k++) {
        const int64_t i = exec_life_index(pr, it, use[k].buf);
        if (pr->buf[use[k].buf].keep == KEEP_MICRO && atomic_load(&l->todo[i]) == l->total[i])
            exec_life_fill(r, it, use[k].buf);
    }
}

void exec_life_died(struct exec_life *l, const struct exec_rank *r, const struct item *it)
{
    const struct program *pr = r->x->pr;
    struct use use[OP_USES];
    const int n = op_uses(use, pr, &pr->op[it->op]);
    for (int k = 0; k < n; k++) {
        const int64_t i = exec_life_index(pr, it, use[k].buf);
        if (pr->buf[use[k].buf].keep != KEEP_MICRO || atomic_fetch_sub(&l->todo[i], 1) != 1) continue;
        exec_life_fill(r, it, use[k].buf);
        atomic_store(&l->todo[i], l->total[i]);
    }
}
