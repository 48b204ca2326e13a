/* What a product runs beside: a collective's kernel holds multiprocessors, and the product goes without
 * them. Two cases are known before anything is priced. A collective over tp runs beside the products that
 * are emitted between it and the first reader of its result. In woven passes a layer's halves meet another
 * layer's, alike but for its number: attention beside the exchange of the other half that comes first or
 * last, experts beside the one between (build.h: parts). With tp-overlap a collective and the product that
 * reads or makes its bytes go in pieces, each marked with the other. Marks are of no consequence to what is
 * executed. */
#include "models/build.h"

static int reads(const struct op *o, int buf)
{
    for (int i = 0; i < OP_READS; i++)
        if (o->io.read[i] == buf) return 1;
    return 0;
}

static int is_product(const struct op *o)
{
    const enum op_family f = op_family((enum op_kind)o->kind);
    return f == FAMILY_GEMM || f == FAMILY_GROUPED;
}

static void beside_tp(struct program *pr, int from, int to)
{
    for (int i = from, running = 0; i < to; i++) {
        struct op *o = &pr->op[i];
        if (o->group == GROUP_TP) running = o->io.write[0] ? i : 0;
        else if (running && reads(o, pr->op[running].io.write[0])) running = 0;
        else if (running && is_product(o)) o->beside = running;
    }
}

/* The op that sends rows out (0) and that which brings them back (1) in a half of a layer, 0: none. */
struct exchanges { int32_t op[2]; };

static int is_exchange(const struct op *o)
{
    switch (o->kind) {
    case OP_DISPATCH: case OP_COMBINE: case OP_DISPATCH_TOKENS: case OP_COMBINE_TOKENS:
        return !(o->flags & OP_RECOMPUTE);
    default: return 0;
    }
}

/* Of two in one part, the first: weights of rows ride behind them. */
static void exchanges_add(struct exchanges *x, const struct program *pr, int op)
{
    if (!x->op[0]) x->op[0] = op;
    else if (!x->op[1] && pr->op[op].part != pr->op[x->op[0]].part) x->op[1] = op;
}

/* The exchange of the other half under which the op runs: while mine are `own`. */
static int other(const struct program *pr, const struct op *o, const struct exchanges *own,
                 const struct exchanges *others)
{
    const int out = pr->op[own->op[0]].part, back = pr->op[own->op[1]].part;
    const int fwd = o->half == HALF_FWD;
    if (o->part < out || o->part > back) return others->op[fwd ? 0 : 1];
    if (o->part > out && o->part < back) return others->op[fwd ? 1 : 0];
    return 0;
}

static void beside_woven(struct build *b, int from, int to)
{
    struct program *pr = b->pr;
    const int layers = b->j->model.layers + MODEL_MTP;
    struct arena scratch = { 0 };
    struct exchanges (*x)[2] = arena_alloc(&scratch, (size_t)layers * sizeof *x);
    for (int i = from; i < to; i++) {
        const struct op *o = &pr->op[i];
        if (o->layer >= 0 && is_exchange(o)) exchanges_add(&x[o->layer][o->half], pr, i);
    }
    for (int i = from; i < to; i++) {
        struct op *o = &pr->op[i];
        if (o->layer < 0 || o->stream != STREAM_COMPUTE || o->half == HALF_STEP) continue;
        const struct exchanges *own = &x[o->layer][o->half], *others = &x[o->layer][!o->half];
        if (own->op[1] && others->op[1]) o->beside = other(pr, o, own, others);
    }
    arena_free(&scratch);
}

static int writer(const struct program *pr, int from, int to, int buf)
{
    for (int i = to - 1; i >= from; i--)
        if (pr->op[i].io.write[0] == buf) return i;
    return 0;
}

static int reader(const struct program *pr, int from, int to, int buf)
{
    for (int i = from; i < to; i++)
        if (reads(&pr->op[i], buf)) return i;
    return 0;
}

/* The linears' own: a gather for the product that reads it first, a scatter of what a product of forward
 * made. The head is no TransformerEngine linear, and what runs beside a product already stays there (bulk
 * overlap). */
static void pipeline_tp(struct program *pr, int from, int to)
{
    for (int i = from; i < to; i++) {
        struct op *o = &pr->op[i];
        if (o->group != GROUP_TP || o->layer < 0 || (o->kind != OP_GATHER && o->kind != OP_SCATTER)) continue;
        const int gather = o->kind == OP_GATHER;
        const int with = gather ? reader(pr, i + 1, to, o->io.write[0]) : writer(pr, from, i, o->io.read[0]);
        struct op *product = &pr->op[with];
        const int kind_fits = product->kind == OP_GEMM || (gather && product->kind == OP_DGRAD);
        if (!with || !kind_fits || product->beside) continue;
        o->beside = with;
        product->beside = i;
    }
}

void build_beside(struct build *b, int from, int to)
{
    if (b->j->plan.schedule == SCHEDULE_FWD_BWD) beside_woven(b, from, to);
    beside_tp(b->pr, from, to);
    if (b->j->plan.tp_overlap) pipeline_tp(b->pr, from, to);
}
