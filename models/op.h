/* An op: one launcher call. No rank, micro-batch, address, price, shape or dep: shapes are its buffers', deps follow
 * from how it uses them. Position in io is meaning; the kind's line below says which. */
#ifndef MODELS_OP_H
#define MODELS_OP_H
#include "models/buf.h"
#include "models/fold.h"

/* Families share a price formula and a line in reports. */
enum op_family { FAMILY_GEMM, FAMILY_GROUPED, FAMILY_ATTENTION, FAMILY_MEMORY, FAMILY_COMM, FAMILY_P2P, FAMILY_OPTIM,
                 FAMILY_HOST, FAMILY_OFFLOAD, FAMILY_COUNT };

/* X(kind, family, io). T: tokens of a rank's slice; all matrices are row-major, one token a row. Weights are
 * [out, in]: y = x w^T. Grouped weights are [experts here * out, in]. w+ means accumulated into. `a?` may be 0.
 * Who must read what is checked in emit(): every position without `?` is there. row, col: copies of low precision of
 * the first output, which is then absent when nobody else reads it (emit_copy.c). */
#define OP_LIST(X)                                                                                                \
    X(DATA, HOST, "token?, label?, label2?, label3? <-") /* int32 rows of this cp slice, each one place further */ \
    X(EMBED, MEMORY, "y <- token, table")            /* rows of the vocabulary held here, zero elsewhere */       \
    X(EMBED_BWD, MEMORY, "table_g+ <- token, dy")                                                                 \
    X(NORM, MEMORY, "y?, rstd?, row?, col? <- x, w")    /* RMSNorm over each run of w.cols columns (heads of x       \
                                                        are separate runs); rstd: what stacks keep of it */       \
    X(NORM_BWD, MEMORY, "dx, w_g+ <- x, w, dy, dres?, rstd?") /* dres, the residual's gradient, is added to dx */ \
    X(ADD, MEMORY, "y <- a, b")                                                                                   \
    X(SPLIT, MEMORY, "y0, y1?, y2? <- x")            /* columns, in order */                                      \
    X(MERGE, MEMORY, "y <- x0, x1, x2?")             /* columns, in order */                                      \
    X(ROPE, MEMORY, "x+ <- start?")                  /* rotates every head in place, halves convention;           \
                                                        positions from the cp index, counted from a document's    \
                                                        start (DOCUMENTS) where that is read */                   \
    X(ROPE_BWD, MEMORY, "dx+ <- start?")             /* rotates back */                                           \
    X(MLA_QKV, MEMORY, "q, k, v <- qb, kvb, krope, start?")  /* rope on the last qk_rope columns of q, and on krope,      \
                                                        which every head's k gets */                              \
    X(MLA_QKV_BWD, MEMORY, "dqb, dkvb, dkrope <- dq, dk, dv, start?")                                                     \
    X(ATTN, ATTENTION, "o, lse <- q, k, v, sink?, start?") /* causal; k and v may have cp times the rows of q, or be    \
                                                        another cp member's (ring) */                             \
    X(ATTN_BWD, ATTENTION, "dq, dk, dv, sink_g?+ <- q, k, v, o, lse, do, start?")                                         \
    X(GEMM, GEMM, "y <- x, w, bias?")                                                                             \
    X(DGRAD, GEMM, "dx <- dy, w")                                                                                 \
    X(WGRAD, GEMM, "w_g+, bias_g?+ <- x, dy")                                                                     \
    X(GROUPED_GEMM, GROUPED, "y <- x, w, count, bias?") /* rows sorted by local expert */                         \
    X(GROUPED_DGRAD, GROUPED, "dx <- dy, w, count")                                                               \
    X(GROUPED_WGRAD, GROUPED, "w_g+, bias_g?+ <- x, dy, count")                                                   \
    X(SWIGLU, MEMORY, "y?, row?, col? <- gate_up, prob?") /* silu(gate) * up, times the row's prob */                  \
    X(SWIGLU_BWD, MEMORY, "dgate_up?, dprob?, row?, col? <- gate_up, dy, prob?")                                  \
    X(ROUTE, MEMORY, "score, perm, prob, mine <- logit, bias?") /* score [T, E]; perm [T K, 2] (token,            \
                                                        expert) by expert then token; prob [T K, 1]; mine         \
                                                        [1, E] int32 counts; with a capacity fewer probs, or more, \
                                                        and what was dropped behind them in perm (route.h) */     \
    X(ROUTE_BWD, MEMORY, "dlogit <- dprob, score, perm")                                                          \
    X(SIZES, HOST, "size <- count")                  /* size [2, 1] = rows after dispatch, rows after the         \
                                                        etp gather */                                             \
    X(PERMUTE, MEMORY, "y <- x, perm")               /* y[j] = x[perm[j].token] */                                \
    X(UNPERMUTE, MEMORY, "y <- x, perm, residual?")  /* y[t] = residual[t] + sum of x[j] with perm[j].token       \
                                                        = t */                                                    \
    X(SORT, MEMORY, "y <- x, count")                 /* from (etp member, source rank, expert) order to           \
                                                        (expert, member, source) */                               \
    X(UNSORT, MEMORY, "y <- x, count")               /* back */                                                   \
    X(DISPATCH, COMM, "y <- x, count")               /* all-to-all-v over ep; rows go to the rank that holds      \
                                                        their expert */                                           \
    X(COMBINE, COMM, "y <- x, count")                /* all-to-all-v back */                                      \
    X(DISPATCH_TOKENS, COMM, "y, prob? <- x, count, map?, prob?") /* tokens, once to each rank with experts of theirs,    \
                                                        then rows sorted by local expert; map: who picks      \
                                                        whom, of all ranks */                                 \
    X(COMBINE_TOKENS, COMM, "y, prob? <- x, count, prob?, map?") /* back: a token's rows are summed in each rank, then   \
                                                        in each NVLink domain, then at home */                \
    X(GATHER_V, COMM, "y <- x, count")               /* members' rows one after the other (etp) */                \
    X(SCATTER_V, COMM, "y <- x, count")              /* the sum over members of my rows (etp) */                  \
    X(GATHER, COMM, "y <- x")                        /* members' rows one after the other */                      \
    X(SCATTER, COMM, "y <- x")                       /* the sum over members of my part of the rows */            \
    X(SWAP, COMM, "y <- x")                          /* all-to-all: all heads of my tokens become my heads of all \
                                                        tokens, or back: rows and columns say which */            \
    X(ALL_REDUCE, COMM, "x+ <-")                     /* the sum over members */                                   \
    X(ALL_MAX, COMM, "x+ <-")                        /* the largest over members */                               \
    X(XENT_MAX, MEMORY, "max <- logit")              /* the row's largest, padding ignored */                     \
    X(XENT_SUM, MEMORY, "sum <- logit, label, max")  /* [T, 2] sum of exp(logit - max); label's logit - max       \
                                                        or 0 */                                                   \
    X(XENT, MEMORY, "metric+ <- sum")                /* the loss of these rows, over the step's tokens,           \
                                                        counted by tp index 0 */                                  \
    X(XENT_BWD, MEMORY, "dlogit+ <- label, max, sum") /* logits become their gradient in place */                 \
    X(SEND, P2P, "<- x")                                                                                          \
    X(RECV, P2P, "x <-")                                                                                          \
    X(ZERO, OPTIM, "x <-")                                                                                        \
    X(GRAD_SCATTER, COMM, "g+ <-")                   /* my part of g (by index in the group) becomes the sum      \
                                                        over members */                                           \
    X(PARAM_GATHER, COMM, "w+ <-")                   /* my part of w goes to all members */                       \
    X(SUMSQ, OPTIM, "metric+ <- g")                  /* the square sum of my part of g, over the number of        \
                                                        ranks that hold the same */                               \
    X(ADAMW, OPTIM, "w+, master?+, m+, v+ <- g, metric") /* my part, by index in the group */                     \
    X(SGD, OPTIM, "w+, master?+ <- g, metric")                 /* my part, by index in the group */                         \
    X(HOLD, HOST, "y? <- x0?, x1?, x2?, x3?")        /* no work; keeps its reads alive as a framework's           \
                                                        reference does; y: what the framework takes here */ \
    X(ACT, MEMORY, "y?, row?, col? <- up, prob?")    /* gelu or squared relu, times the row's prob */             \
    X(ACT_BWD, MEMORY, "dup?, dprob?, row?, col? <- up, dy, prob?")                                               \
    X(AMAX, MEMORY, "amax <- x")                     /* the largest magnitude, of x transformed too for NVFP4 */  \
    X(QUANTIZE, MEMORY, "row?, col? <- x, amax?")    /* copies of low precision, scaled along rows, along columns */ \
    X(SCAN, MEMORY, "y, raw, state <- x, w")         /* Mamba-2: convolution, chunked scan, gated norm; raw: before the norm; \
                                                        state: scratch, one a chunk */                            \
    X(SCAN_BWD, MEMORY, "dx, state, w_g+ <- x, raw, dy, w")                                                      \
    X(PICK, MEMORY, "perm, prob <- map, score")      /* of all tokens, the rows of experts here: perm [rows, 2] by expert,  \
                                                        then token; prob [rows, 1] */                             \
    X(PICK_BWD, MEMORY, "dscore <- dprob, perm")     /* zero where no row is */                                   \
    X(SCATTER_ADD, COMM, "g+ <- x")                  /* the sum over members of my part of x is added to g */     \
    X(OFFLOAD, OFFLOAD, "y <- x")                    /* to the host; of a gradient my part, by index in the group */                                            \
    X(RELOAD, OFFLOAD, "y <- x")                     /* from the host */                                          \
    X(HOST_ADAMW, OPTIM, "master+, m+, v+ <- g, metric") /* of my part, by the host, whose thread does it */     \
    X(ROUTE_MAP, MEMORY, "map <- perm")              /* [T, E] bytes: 1 where a token picked an expert */          \
    X(CAST, MEMORY, "w+ <- master")                  /* my part of w, by index in the group */              \
    X(SHIFT, COMM, "y0, y1? <- x0, x1?")             /* x to the next member around the group, y from the one before */ \
    X(ATTN_MERGE, MEMORY, "o, lse <- o0, lse0, o1, lse1") /* attention over two blocks of keys -> over both */    \
    X(DOCUMENTS, HOST, "start <-")                   /* int32, of whole sequences in order of position: where each \
                                                        token's document starts in its sequence */     \
    X(ROUTE_LOAD, MEMORY, "load <- score")           /* [scopes, E]: how many tokens have an expert among their   \
                                                        best; scopes: the micro-batch, or its sequences */        \
    X(BALANCE, MEMORY, "dlogit+, metric+ <- score, load?, logit?") /* losses that keep a router's choices even */

enum op_kind {
#define X(id, family, io) OP_##id,
    OP_LIST(X)
#undef X
    OP_KIND_COUNT
};

/* A group's collectives all run on one stream, or its members could meet in different orders. */
#define STREAM_LIST(X) X(COMPUTE) X(TP) X(CP) X(EP) X(DP) X(SEND_F) X(RECV_F) X(SEND_B) X(RECV_B) X(EMBED) X(WORLD) X(D2H) X(H2D)
enum stream {
#define X(id) STREAM_##id,
    STREAM_LIST(X)
#undef X
    STREAM_COUNT
};

enum half { HALF_FWD, HALF_BWD, HALF_STEP };    /* which of a step's micro-batches binds this op's buffers; STEP: none */
enum op_flag {
    OP_WEIGHT_GRAD = 1,     /* belongs to BWD_WEIGHT when backward is split                             */
    OP_RECOMPUTE = 2,       /* forward work done again                                                  */
    OP_HOST_READS = 4,      /* nothing is issued until it is done                                       */
    OP_REDUCE = 8,          /* gradient reduction: under the last micro-batch, or in OPTIM              */
    OP_MTP = 16,            /* of the MTP part: its loss has a weight of its own                        */
    OP_ROUTER = 32,         /* the router's GEMMs: not counted as model FLOP                            */
};

/* In a captured graph: its launch is the region's first op's; or a buffer taken for a graph's input (of a HOLD). */
enum op_graph { OP_GRAPH_NONE, OP_GRAPH_INSIDE, OP_GRAPH_FIRST, OP_GRAPH_INPUT };

enum { OP_WRITES = 4, OP_ADDS = 4, OP_READS = 7 };
struct io { int32_t write[OP_WRITES], add[OP_ADDS], read[OP_READS]; };     /* add: read, then written in place */

struct op {
    uint8_t kind, stream, group, half, flags;
    uint8_t graph;          /* enum op_graph                                                                      */
    int16_t layer;          /* 0 .. layers - 1; layers + i: MTP i; -1: none                                       */
    int16_t part;           /* where two passes may be interleaved (build.h)                                      */
    int32_t beside;         /* the collective that holds multiprocessors while it runs (build_beside.c); 0: none      */
    int32_t window;         /* ATTN: tokens seen back; 0: all                                                      */
    int16_t ring;           /* ATTN: 1 + how many members before this one in cp those keys are of; 0: of all       */
    int16_t copies;         /* SUMSQ: how many ranks hold the same gradient; else 1                               */
    struct io io;
};

const char *op_name(enum op_kind k);            /* "GROUPED_GEMM" */
const char *op_io_text(enum op_kind k);         /* the quoted part of its line above */
static inline enum op_family op_family(enum op_kind k)
{
    static const uint8_t family[] = {
#define X(id, family, io) FAMILY_##family,
        OP_LIST(X)
#undef X
    };
    return (enum op_family)family[k];
}
/* A kind's line, read: by access (below) the positions that it names, and those of them without `?`, bit by bit. */
struct op_arity { uint8_t named[3], required[3]; };
struct op_arity op_arity(enum op_kind k);
int op_io_fits(const struct op *o, struct op_arity a);  /* every position that must be there is, and no unnamed one */
int op_io_complete(const struct op *o);                 /* it fits its kind's line */
const char *op_family_name(enum op_family f);
const char *op_stream_name(enum stream s);

struct program;
/* Every buffer an op uses, with views resolved to what they are windows of, and with the size buffers of sized ones as
 * reads: the one place that knows. `use` needs OP_USES entries; returns how many. */
enum { OP_USES = OP_WRITES + OP_ADDS + OP_READS + 4 };
enum access { ACCESS_READ, ACCESS_WRITE, ACCESS_ADD };
struct use { int32_t buf; enum access access; };
int op_uses(struct use use[OP_USES], const struct program *pr, const struct op *o);

/* The one counter of work, from the shapes of an op's buffers. `rows` of sized buffers are given: even[0] rows after
 * dispatch, even[1] after the etp gather. model_flop is Megatron's count: zero for router, recompute and padding, causal
 * half of attention (Megatron-LM training.py). flop is what the kernel executes, causal half too.
 * experts: of a grouped product; of attention, its heads.
 * For collectives wire_B is what leaves one rank, ring counting: x (n - 1) / n of the full size, twice for all-reduce. */
struct work { double model_flop, flop, read_B, write_B, wire_B; enum dtype dtype; int64_t rows, cols, inner, experts; };
struct work op_work(const struct program *pr, const struct op *o, const int64_t even[2]);

#endif
