/* What is trained on: a stream of tokens from a file, cut into sequences. Two kinds of file: any text (a byte
 * is a token) and Megatron-LM's pair PATH.bin, PATH.idx. The first part of the stream is trained on, the rest
 * evaluated. Which tokens sequence `s` of a run holds depends on (data, seed, tokens per sequence, s) alone:
 * under every plan the ranks together see the same ones, and a run resumes by knowing how many it has seen.
 */
#ifndef EXEC_DATA_H
#define EXEC_DATA_H
#include "models/base/arena.h"
#include "models/base/err.h"
#include <stdint.h>

enum data_type { DATA_U8, DATA_U16, DATA_I32, DATA_I64 };
enum data_part { DATA_TRAIN, DATA_EVAL };

struct data {
    const uint8_t *token;
    int64_t n;       /* little-endian, of `type` */
    int64_t n_train; /* tokens [0, n_train) are trained on, the others evaluated */
    int32_t type;    /* enum data_type */
    int32_t shuffle;
    uint64_t seed;    /* 0: sequences of a pass come in the stream's order */
    const int64_t *end; /* of a pair: tokens before which its documents end, rising */
    int64_t n_end;
    const char *name; /* for messages */
    void *map;
    int64_t map_B; /* data_close unmaps it; NULL: somebody else's memory */
};
/* A sequence also needs the tokens behind it: labels, of MTP depths too. */
enum { DATA_BEHIND = 3 };

/* The bytes of a text in memory, all trained on, in order; nothing to close. */
struct data data_of_text(const uint8_t *text, int64_t n);
/* Opens `path`: a text, or a pair of Megatron-LM files named by either of them or by what they share. eval:
 * the part of the stream, 0 to below 1, kept from training; of a pair whole documents, at least the last.
 * Errors name the file. */
enum err data_open(struct data *x, struct arena *a, const char *path, double eval, struct diag *d);
void data_close(struct data *x);

/* Whether sequences of `seq` tokens can be taken from a part. ERR_CONFIG gives both numbers. */
enum err data_check(const struct data *x, enum data_part part, int64_t seq, struct diag *d);
/* Sequences in one pass over a part: of DATA_EVAL disjoint ones in order. */
int64_t data_sequences(const struct data *x, enum data_part part, int64_t seq);
/* Where sequence `s` (0, 1, ... without end, a pass after the other) begins in the stream. Every pass over a
 * shuffled part takes its sequences in an order of its own, cut at an offset of its own. Needs data_check. */
int64_t data_start(const struct data *x, enum data_part part, int64_t seq, int64_t s);
/* The token at a place of the stream. */
static inline int64_t data_token(const struct data *x, int64_t at)
{
    const uint8_t *p = x->token;
    switch (x->type) {
    case DATA_U16: return p[2 * at] | p[2 * at + 1] << 8;
    case DATA_I32: p += 4 * at; return (int32_t)(p[0] | p[1] << 8 | p[2] << 16 | (uint32_t)p[3] << 24);
    case DATA_I64: {
        uint64_t v = 0;
        for (int i = 0; i < 8; i++) v |= (uint64_t)p[8 * at + i] << 8 * i;
        return (int64_t)v;
    }
    default: return p[at];
    }
}

/* ---- data_documents.c: where documents end: at token `eod`; with eod < 0 where a pair's index says (Megatron-LM
 * training/utils.py get_ltor_masks_and_position_ids, which knows a token's end alone) ---- */
/* ERR_CONFIG: neither is there. */
enum err data_documents_check(const struct data *x, int eod, struct diag *d);
/* Whether the token at a place of the stream is its document's last. */
int data_document_ends(const struct data *x, int eod, int64_t at);
/* start [seq]: of each token of the sequence that begins at `at`, the position where its document does; 0 where that
 * is before. */
void data_document_starts(int32_t *start, const struct data *x, int eod, int64_t at, int64_t seq);
/* Tokens of sequences first .. first + n - 1 whose next one is of the same document. */
int64_t data_loss_tokens(const struct data *x, enum data_part part, int eod, int64_t seq, int64_t first, int64_t n);

/* ---- data_index.c: Megatron-LM's index, core/datasets/indexed_dataset.py at 00caa53: "MMIDIDX\0\0", version
 * 1, a code of the tokens' type, counts of sequences and of document ends, lengths (int32), byte offsets
 * (int64), ends (int64) ---- */
struct data_index { int64_t tokens, sequences, documents; int32_t type; const uint8_t *length, *end; };
/* From the bytes of a .idx; bin_B: size of its .bin. Refuses sequences that are not one behind the other from
 * 0, or that end elsewhere than the .bin does. */
enum err data_index_read(struct data_index *x, const char *name, const uint8_t *bytes, int64_t n,
                         int64_t bin_B, struct diag *d);
/* Tokens before which each document ends, in x->documents places; how many of them were written: empty ones are left out. */
int64_t data_index_ends(int64_t *end, const struct data_index *x);
/* The last end of a document at or before token `at`; 0 when there is none. */
int64_t data_index_end_before(const struct data_index *x, int64_t at);

#endif
