/* Reads Megatron-LM's .idx from memory. The stream of tokens is the whole .bin, so sequences must tile it. */
#include "exec/data.h"
#include <string.h>

static uint64_t data_index_u64(const uint8_t *p, int bytes)
{
    uint64_t v = 0;
    for (int i = 0; i < bytes; i++) v |= (uint64_t)p[i] << 8 * i;
    return v;
}

/* Codes of the type of tokens: 1 uint8, 4 int32, 5 int64, 8 uint16; the others hold no tokens. -1: unknown.
 */
static int data_index_type(int code)
{
    switch (code) {
    case 1: return DATA_U8;
    case 4: return DATA_I32;
    case 5: return DATA_I64;
    case 8: return DATA_U16;
    default: return -1;
    }
}

static int64_t data_index_length(const struct data_index *x, int64_t i)
{
    return (int32_t)data_index_u64(x->length + 4 * i, 4);
}

static enum err data_index_tiles(struct data_index *x, const char *name, const uint8_t *offset, int64_t bin_B,
                                 struct diag *d)
{
    static const int size_B[] = { [DATA_U8] = 1, [DATA_U16] = 2, [DATA_I32] = 4, [DATA_I64] = 8 };
    int64_t at_B = 0;
    for (int64_t i = 0; i < x->sequences; i++) {
        const int64_t tokens = data_index_length(x, i), from_B = (int64_t)data_index_u64(offset + 8 * i, 8);
        if (tokens < 0 || from_B != at_B)
            return fail(d, ERR_CONFIG,
                        "--data: %.300s: sequence %lld has %lld tokens at byte %lld, but the ones before end "
                        "at %lld; make "
                        "the pair of files again",
                        name, (long long)i, (long long)tokens, (long long)from_B, (long long)at_B);
        at_B += tokens * size_B[x->type];
    }
    x->tokens = at_B / size_B[x->type];
    if (at_B == bin_B && at_B > 0) return OK;
    return fail(d, ERR_CONFIG,
                "--data: %.300s: its sequences take %lld bytes, the .bin beside it has %lld; copy both again",
                name, (long long)at_B, (long long)bin_B);
}

static enum err data_index_ends_rise(const struct data_index *x, const char *name, struct diag *d)
{
    int64_t before = 0;
    for (int64_t i = 0; i < x->documents; i++) {
        const int64_t end = (int64_t)data_index_u64(x->end + 8 * i, 8);
        if (end < before || end > x->sequences)
            return fail(d, ERR_CONFIG,
                        "--data: %.300s: document %lld ends at sequence %lld, not in %lld .. %lld; make the "
                        "pair again",
                        name, (long long)i, (long long)end, (long long)before, (long long)x->sequences);
        before = end;
    }
    return OK;
}

enum err data_index_read(struct data_index *x, const char *name, const uint8_t *bytes, int64_t n,
                         int64_t bin_B, struct diag *d)
{
    enum { HEAD_B = 34 };               /* magic 9, version 8, code 1, counts 8 and 8 */
    struct data_index read = { 0 };
    if (n < HEAD_B || memcmp(bytes, "MMIDIDX\0\0", 9) != 0)
        return fail(d, ERR_CONFIG,
                    "--data: %.300s: is no index of Megatron-LM (it does not begin with MMIDIDX)", name);
    const uint64_t version = data_index_u64(bytes + 9, 8), sequences = data_index_u64(bytes + 18, 8),
                   documents = data_index_u64(bytes + 26, 8);
    if (version != 1)
        return fail(d, ERR_LIMIT, "--data: %.300s: version %llu; only version 1 is known", name,
                    (unsigned long long)version);
    read.type = data_index_type(bytes[17]);
    if (read.type < 0)
        return fail(
            d, ERR_LIMIT,
            "--data: %.300s: tokens of type code %d; 1, 4, 5 and 8 (uint8, int32, int64, uint16) are read",
            name, bytes[17]);
    const uint64_t rest_B = (uint64_t)n - HEAD_B;
    if (sequences > rest_B / 12 || documents > rest_B / 8 || 12 * sequences + 8 * documents > rest_B)
        return fail(
            d, ERR_CONFIG,
            "--data: %.300s: %llu sequences and %llu documents do not fit its %lld bytes; copy it again",
            name, (unsigned long long)sequences, (unsigned long long)documents, (long long)n);
    read.sequences = (int64_t)sequences;
    read.documents = (int64_t)documents;
    read.length = bytes + HEAD_B;
    read.end = read.length + 12 * sequences;
    TRY(data_index_tiles(&read, name, read.length + 4 * sequences, bin_B, d));
    TRY(data_index_ends_rise(&read, name, d));
    *x = read;
    return OK;
}

int64_t data_index_ends(int64_t *end, const struct data_index *x)
{
    int64_t token = 0, sequence = 0, n = 0;
    for (int64_t i = 0; i < x->documents; i++) {
        const int64_t last = (int64_t)data_index_u64(x->end + 8 * i, 8);
        for (; sequence < last; sequence++) token += data_index_length(x, sequence);
        if (token > (n ? end[n - 1] : 0)) end[n++] = token;
    }
    return n;
}

int64_t data_index_end_before(const struct data_index *x, int64_t at)
{
    int64_t token = 0, sequence = 0, last = 0;
    for (int64_t i = 0; i < x->documents; i++) {
        const int64_t end = (int64_t)data_index_u64(x->end + 8 * i, 8);
        for (; sequence < end; sequence++) token += data_index_length(x, sequence);
        if (token > at) break;
        last = token;
    }
    return last;
}
