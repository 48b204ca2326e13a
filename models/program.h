/* What every rank will do, in order: no prices, clocks, addresses or ranks. Built once, unrolled once per stage; the
 * offset planner, the simulator and the executor all walk that. */
#ifndef MODELS_PROGRAM_H
#define MODELS_PROGRAM_H
#include "models/base/arena.h"
#include "models/op.h"

enum pass_kind { PASS_START, PASS_FWD, PASS_BWD, PASS_BWD_INPUT, PASS_BWD_WEIGHT, PASS_BWD_LAST, PASS_FWD_BWD, PASS_OPTIM,
                 PASS_COUNT };
const char *program_pass_name(enum pass_kind k);

struct pass  { uint8_t kind, gathers; int16_t chunk[2]; int32_t first, n; };  /* order[first ..]: op ids in issue order. gathers: of
                                                                           parameters, under the FWD half. chunk of the FWD
                                                                           half, of the BWD half; START, OPTIM: the stage in chunk[0] */
struct step  { int32_t pass, micro[2]; };       /* micro-batch of the FWD half and of the BWD half, or -1             */
struct chunk {                                  /* op ids: [fwd, bwd) [bwd, reduce) [reduce, end) [end, gathered): what
                                                   the step's first forward does once; boundary buffers               */
    int32_t fwd, bwd, reduce, end, gathered;
    int32_t x_in, x_out, dy_in, dx_out;         /* 0 where a chunk begins with the embedding or ends with the loss    */
};
struct stage { int32_t optim, start, end; };    /* op ids: [optim, start) once at the end, [start, end) at the start  */

enum shard {                                    /* how a parameter is cut over tp (etp for experts)                   */
    SHARD_NONE,                                 /* every member has the whole                                         */
    SHARD_ROWS, SHARD_COLS,                     /* equal parts of the rows (outputs), of the columns (inputs)         */
    SHARD_ROWS_PAIR,                            /* gate and up one above the other, each cut by rows                  */
    SHARD_KV,                                   /* rows by K/V head; tp / kv_heads members share one when tp is more  */
};
#define PARAM_LIST(X)                                                                                             \
    X(EMBEDDING, "embedding") X(HEAD, "head") X(FINAL_NORM, "final_norm") X(ATTN_NORM, "attn_norm") X(Q, "q")       \
    X(K, "k") X(V, "v") X(Q_NORM, "q_norm") X(K_NORM, "k_norm") X(O, "o") X(Q_A, "q_a") X(Q_A_NORM, "q_a_norm")     \
    X(Q_B, "q_b") X(KV_A, "kv_a") X(KV_A_NORM, "kv_a_norm") X(KV_B, "kv_b") X(MLP_NORM, "mlp_norm") X(FC1, "fc1")   \
    X(FC2, "fc2") X(ROUTER, "router") X(ROUTER_BIAS, "router_bias") X(EXPERT_FC1, "expert_fc1")                   \
    X(EXPERT_FC2, "expert_fc2") X(SHARED_FC1, "shared_fc1") X(SHARED_FC2, "shared_fc2") X(MTP_ENORM, "mtp_enorm") \
    X(MTP_HNORM, "mtp_hnorm") X(MTP_PROJ, "mtp_proj") X(MTP_NORM, "mtp_norm") X(O_BIAS, "o_bias") X(SINK, "sink")        \
    X(MAMBA_IN, "mamba_in") X(MAMBA_SCAN, "mamba_scan") X(MAMBA_OUT, "mamba_out") X(LATENT_DOWN, "latent_down")     \
    X(LATENT_UP, "latent_up") X(Q_BIAS, "q_bias") X(K_BIAS, "k_bias") X(V_BIAS, "v_bias") X(FC1_BIAS, "fc1_bias")      \
    X(FC2_BIAS, "fc2_bias") X(ROUTER_SHIFT, "router_shift") X(EXPERT_FC1_BIAS, "expert_fc1_bias")                 \
    X(EXPERT_FC2_BIAS, "expert_fc2_bias") X(SHARED_FC1_BIAS, "shared_fc1_bias") X(SHARED_FC2_BIAS, "shared_fc2_bias")
enum param_name {
#define X(id, name) PARAM_##id,
    PARAM_LIST(X)
#undef X
    PARAM_COUNT
};
const char *program_param_name(enum param_name n);
/* One number an output or a head, or a norm's weight: not a matrix. Such have no weight decay (Megatron-LM
 * optimizer/__init__.py: biases and parameters of one dimension). */
int program_param_is_vector(enum param_name n);

struct param {                      /* where a rank's slice lies in the whole: for init, checkpoint, parity, verify           */
    int32_t w, g;                   /* views of a bucket's weight and gradient; g 0: not trained (router_bias)                 */
    int32_t rows, cols;             /* of the whole (padded vocabulary); of one expert when batch > 0                          */
    int32_t batch;                  /* experts in the whole, cut over ep; 0: not an expert's                                   */
    int16_t layer, stage;
    uint8_t name, shard;
};

/* One reduction unit: a weight buffer, its gradient and its optimizer state, of one layer and one way of sharing. */
struct bucket {
    int32_t w, g, master, m, v;     /* root buffers (w may be a view of g); master, m, v: one rank's part; 0: none             */
    int32_t whole, whole_g;         /* 0: w and g are whole. Else they are one rank's part too, and parameters are views of
                                       these, which stand for what is gathered and added to in turn (build_shard.c)          */
    int32_t host_master, host_g;    /* 0; or the host's copies of master and of my part of g: m and v are there too          */
    uint8_t sum_group;              /* all-reduced over this first: NONE, TP (replicated), KV, or EMBED                       */
    uint8_t share_group;            /* then cut over this: DPCP or EDP                                                        */
    int16_t copies;                 /* ranks outside share_group that hold the same (the size of sum_group)                   */
    int16_t stage, chunk, layer;
};

struct program {
    struct buf *buf;  struct op *op;  struct param *param;  struct bucket *bucket;  struct pass *pass;
    int32_t *order;                 /* all passes' op ids, one after the other                                                */
    struct chunk *chunk;            /* pp * vpp of them                                                                       */
    struct stage *stage;            /* pp of them                                                                             */
    struct step **step;             /* by stage: ranks of a stage differ only in coordinates                                  */
    int32_t *n_step;
    int32_t n_buf, n_op, n_param, n_bucket, n_pass, n_order, n_chunk, n_stage, n_micro;     /* buf[0] and op[0] are unused    */
    int32_t lead;                   /* streams of a rank may be at most this many steps apart                                 */
    int32_t metric;                 /* of stage 0; stage s has metric + s: float[4] loss, MTP loss, square sum of grads, balance losses */
    int32_t document;               /* tokens that packed attention sees as whole; 0: a sequence                              */
    int32_t seq, topk;              /* tokens per sequence; of the router                                                     */
    int32_t round_B;                /* an allocation is a multiple of this; 0: exactly its bytes                              */
    int32_t group_size[GROUP_COUNT];
    double targets;                 /* ranks of a tp-ep group that hold experts of a token, on average (spread.h)             */
    int64_t even[2];                /* rows of routed buffers under even routing                                              */
    int64_t picked[2];              /* of them, what tokens can have picked; fewer only where experts are padded to a capacity */
    struct {                        /* set by load_apply for the busiest rank; 0: as under even routing                       */
        int64_t padded[2];          /* rows of padded routed buffers, by expert                                               */
        double targets;             /* tokens that it receives, over those that it sends                                      */
    } busy;
    struct arena *arena;
};

/* Of the program's meaning: buffers, ops, passes, steps, group sizes. */
uint64_t program_hash(const struct program *pr);
/* Builds blocks, schedules and passes for a checked job. */
void program_build(struct program *pr, struct arena *a, const struct job *j);
/* One block alone (its forward and backward, its buckets; no schedule): for pricing. Kinds of layers repeat, so a search
 * prices each kind once. chunk[0]'s x_in, x_out, dy_in, dx_out are its boundary: a block gives birth to its x_out and
 * dx_out and ends the life of its x_in and dy_in. BLOCK_LOSS holds the MTP layer too when the plan has one. */
enum block { BLOCK_EMBED, BLOCK_DENSE, BLOCK_MOE, BLOCK_LOSS, BLOCK_COUNT };
void program_build_block(struct program *pr, struct arena *a, const struct job *j, enum block block);

static inline int program_root(const struct program *pr, int id) { return pr->buf[id].view ? pr->buf[id].view : id; }
/* Bytes that a buffer takes: what unroll, pass prices, peaks and reports count. */
static inline int64_t program_B(const struct program *pr, int id)
{
    const int64_t bytes = buf_B(&pr->buf[id]);
    return pr->round_B ? (bytes + pr->round_B - 1) / pr->round_B * pr->round_B : bytes;
}
/* Rows of a buffer under given sizes of routed ones; of padded ones also without the padding. */
static inline int64_t program_rows_bare(const struct program *pr, int id, const int64_t even[2])
{ return pr->buf[id].size || pr->buf[id].pad ? even[pr->buf[id].size_at] : pr->buf[id].rows; }
static inline int64_t program_rows(const struct program *pr, int id, const int64_t even[2])
{
    const int64_t rows = program_rows_bare(pr, id, even);
    if (!pr->buf[id].pad) return rows;
    const int64_t padded = pr->busy.padded[pr->buf[id].size_at];
    return padded ? padded : buf_padded(rows, pr->buf[id].groups, pr->buf[id].pad);
}

#endif
