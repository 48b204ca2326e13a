/* Packed documents: what of a sequence is kept within each of its documents. */
#include "models/plan.h"

/* A document as it is laid out. Megatron-Core (THD) pads each to what cp and sequence parallelism cut evenly, so that no token
 * is lost (case C11); our sequences are cut as wholes, wherever their documents end. */
int plan_document_rows(const struct job *j)
{
    const struct plan *p = &j->plan;
    const int of = j->stack.runs ? 1 : plan_seq_multiple(p), rows = (p->document + of - 1) / of * of;
    return rows < p->seq ? rows : p->seq;
}

enum err plan_packed_check(const struct job *j, struct diag *d)
{
    const struct plan *p = &j->plan;
    const int vocab = j->model.vocab + p->vocab_extra;
    if (p->document && !(p->packed & 1 << PACKED_ATTENTION))
        return fail(d, ERR_CONFIG, "document %d without packed attention: it says what attention sees; use packed attention or "
                    "document 0", p->document);
    if (p->document > p->seq)
        return fail(d, ERR_CONFIG, "document %d is longer than seq %d: lower it, or use 0 for whole sequences", p->document,
                    p->seq);
    if (p->eod >= vocab)
        return fail(d, ERR_CONFIG, "eod %d is not in the vocabulary, 0 .. %d: give the tokenizer's", p->eod, vocab - 1);
    if (p->packed & 1 << PACKED_POSITIONS && j->model.positions != POSITIONS_ROPE)
        return fail(d, ERR_CONFIG, "packed positions with a model without rotary positions: there is nothing to restart");
    if (j->stack.runs && p->packed & 1 << PACKED_LOSS && p->mtp)
        return fail(d, ERR_LIMIT, "packed loss with mtp %d cannot be run by stack %s: set mtp 0, or leave out loss", p->mtp,
                    j->stack.name);
    return OK;
}
