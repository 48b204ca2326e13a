/* Where documents end in the stream: at a token that says so, or where Megatron-LM's index does. */
#include "exec/data.h"

enum err data_documents_check(const struct data *x, int eod, struct diag *d)
{
    if (eod >= 0 || x->n_end > 0) return OK;
    return fail(d, ERR_CONFIG,
                "packed: %.300s does not say where documents end: give --eod, the token that ends one (10 ends a line of text), "
                "or a pair .bin .idx",
                x->name);
}

/* The first end behind token `at`: tokens before which documents end. */
static int64_t data_end_behind(const struct data *x, int64_t at)
{
    int64_t low = 0, high = x->n_end;
    while (low < high) {
        const int64_t mid = (low + high) / 2;
        if (x->end[mid] > at) high = mid;
        else low = mid + 1;
    }
    return low;
}

int data_document_ends(const struct data *x, int eod, int64_t at)
{
    if (eod >= 0) return data_token(x, at) == eod;
    const int64_t i = data_end_behind(x, at);
    return i < x->n_end && x->end[i] == at + 1;
}

void data_document_starts(int32_t *start, const struct data *x, int eod, int64_t at, int64_t seq)
{
    int64_t i = eod < 0 ? data_end_behind(x, at) : 0;
    int32_t from = 0;
    for (int64_t p = 0; p < seq; p++) {
        start[p] = from;
        const int ends = eod >= 0 ? data_token(x, at + p) == eod : i < x->n_end && x->end[i] == at + p + 1;
        while (eod < 0 && i < x->n_end && x->end[i] <= at + p + 1) i++;
        if (ends) from = (int32_t)(p + 1);
    }
}

int64_t data_loss_tokens(const struct data *x, enum data_part part, int eod, int64_t seq, int64_t first, int64_t n)
{
    int64_t tokens = 0;
    for (int64_t s = first; s < first + n; s++) {
        const int64_t at = data_start(x, part, seq, s);
        for (int64_t p = 0; p < seq; p++) tokens += !data_document_ends(x, eod, at + p);
    }
    return tokens;
}
