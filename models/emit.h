/* Emitting ops: one call per op kind, named by what it computes; returns the output buffer. Shapes follow from the inputs.
 * One emit per full expression, nested only in sequence: C leaves the order of arguments open, and list order is meaning. */
#ifndef MODELS_EMIT_H
#define MODELS_EMIT_H
#include "models/program.h"

struct weight { int w, g, bias, bias_g, low; };  /* views: weight and gradient; the same of its bias, 0: none. low: its
                                                    products read copies of low precision */
/* What stands in for a buffer in products (emit_copy.c), by buffer. */
struct copies {
    int32_t op, first;                  /* what makes them, as its outputs `first` on; op 0: nothing yet */
    int32_t copy[2];                    /* by axis: of a weight; of a tensor gathered over tp       */
    int32_t shard;                      /* this buffer is the gather of `shard`, made only as copies */
    int32_t next;                       /* weights with copies, a chain from build.low_weights      */
};
/* A cut bucket's `whole`: what it is gathered in; of a view of one: the view of `to` that was made last. 0: none. */
struct bound { int32_t to, view; };
struct gathered { int32_t first, n; };  /* a unit: buckets gathered together, of a layer, the table, the head */
struct pool { int32_t buf; uint8_t sum_group, share_group, dtype, turn, grad; };    /* what units take in turn */
struct norm_made { int32_t x, w, rstd; };   /* what norms of the current chunk left for their backward */

/* What a builder carries along. Every op takes chunk, layer, part, half and flags from here. */
struct build {
    struct program *pr; struct arena *arena; const struct job *j;
    int chunk, stage, layer, part, flags;
    enum half half;
    enum op_graph graph;                /* of the next op (build_scope)                             */
    enum dtype act;                     /* of activations and weights                               */
    int64_t tok, tok_sp;                /* tokens of a micro-batch on this rank: whole cp slice, sequence-parallel slice */
    int32_t cap_buf, cap_op, cap_param, cap_bucket;
    int32_t open[16];                   /* buckets of this layer by way of sharing (build_bucket.c), 0: none yet */
    struct norm_made *norm; int32_t n_norm, cap_norm;
    int32_t *gathered, *roped;          /* by stage: the output layer's gathered input, rotary tables; 0: none yet */
    int32_t *table, *table_unit;        /* by stage: its input table, param index + 1, 0: none yet; its unit */
    const struct recipe *recipe;
    struct copies *copies;              /* cap_buf of them; NULL: products read what they are given */
    int32_t low_weights;
    int32_t start;                      /* of documents, of the current chunk (build.c); 0: none are packed            */
    int64_t states, on_host;            /* elements with optimizer states so far; of them, updated by the host */
    struct bound *bound;                /* by buffer; NULL: no bucket is cut (build_shard.c)        */
    struct gathered *unit; int32_t n_unit, cap_unit, unit_from;     /* from: its first bucket, while it is open */
    struct pool pool[32]; int32_t n_pool;   /* of the chunk's half at hand                          */
    struct op_arity arity[OP_KIND_COUNT];
};

/* ---- buffers of one micro-batch ---- */
int emit_buf(struct build *b, int64_t rows, int cols, enum dtype t);
int emit_like(struct build *b, int x, int cols);            /* rows, size and dtype of x */
int emit_view(struct build *b, int x, int64_t row, int64_t rows);   /* a window of whole rows of x */
/* What an operand stands for now: a view of what its bucket was gathered in; itself where nothing is cut. */
int emit_bound(struct build *b, int x);
/* ---- any op; the pointer is good until the next emit ---- */
struct op *emit(struct build *b, enum op_kind k, enum stream s, enum group g, struct io io);

/* What a framework keeps: it takes a buffer here, which lives until a later emit_hold reads it (or a buffer of the
 * micro-batch that is still referenced). 0 is no buffer. */
int  emit_taken(struct build *b, int64_t rows, int cols, enum dtype t);
void emit_hold(struct build *b, int x0, int x1, int x2, int x3);

/* ---- dense ---- */
/* Its backward finds what stack.norm_stat keeps by x and w: the last norm of both in the chunk. */
int  emit_norm(struct build *b, int x, struct weight w);
int  emit_norm_slice(struct build *b, int x, struct weight w, int cols);    /* of the first `cols` columns of x */
int  emit_norm_bwd(struct build *b, int x, struct weight w, int dy, int dres);
int  emit_add(struct build *b, int x, int y);
int  emit_gemm(struct build *b, int x, struct weight w);    /* y [rows of x, rows of w] */
int  emit_dgrad(struct build *b, int dy, struct weight w);
void emit_wgrad(struct build *b, int x, int dy, struct weight w);
int  emit_act(struct build *b, int fc1, int prob);         /* the model's activation: SWIGLU halves the columns */
int  emit_act_bwd(struct build *b, int fc1, int dy, int prob, int *dprob);  /* dfc1; prob 0: no dprob */
/* Collectives over equal parts; x itself when the group has one member. */
int  emit_gather(struct build *b, enum group g, int x);
int  emit_scatter(struct build *b, enum group g, int x);
void emit_all_reduce(struct build *b, enum group g, int x, int max);
int  emit_swap(struct build *b, int x, int back);           /* over cp: all heads of my tokens -> my heads of all, or back */
void emit_shift(struct build *b, const int x[2], int y[2]); /* over cp: x to the next member, y from the one before */
/* Where the current chunk's documents start, for what the plan keeps within them; 0: that is whole sequences. */
int  emit_documents(const struct build *b, enum packed of);
/* ---- low precision (emit_copy.c) ---- */
enum axis { AXIS_ROWS, AXIS_COLUMNS };      /* along which scales run and products contract */
int  emit_is_low(const struct build *b);    /* of the current layer */
/* What a product reads in place of an activation or its gradient. `fresh`: made in this half; else forward's will do. */
int  emit_copy(struct build *b, int x, enum axis axis, int fresh);
int  emit_copy_weight(struct build *b, int w, enum axis axis);
/* The gather over tp of what products with low weights alone read. */
int  emit_gather_input(struct build *b, int x);
/* The same for a weight gradient, before the data gradient under which it travels; 0 where the stack gathers when it comes to it
 * (stack.async_tp). */
int  emit_gather_ahead(struct build *b, int x);
/* Autograd's reference to what was gathered so, until the function returns; of low precision it has the copies alone. */
void emit_hold_gathered(struct build *b, int x);
void emit_quantize_weights(struct build *b);            /* those of the current stage since the last call, once a step */
/* Ops [from, to), all that a chunk has: those that make copies no longer write what only the copies' readers wanted. */
void emit_copy_settle(struct build *b, int from, int to);
/* ---- routed ---- */
/* Who goes where; prob in sent order. size 0: rows are static; map: of all ranks' tokens, where a dispatcher needs it.
 * Dispatcher allgather: scores of all ranks, and the rows of experts here among all tokens. */
struct route { int perm, count, size, prob, map, score, pick, pick_prob; };
int  emit_grouped_gemm(struct build *b, int x, struct weight w, int count, int cols);
int  emit_grouped_dgrad(struct build *b, int dy, struct weight w, int count, int cols);
void emit_grouped_wgrad(struct build *b, int x, int dy, struct weight w, int count);
int  emit_to_experts(struct build *b, int x, const struct route *r);    /* dispatch, gather over etp, sort by expert */
int  emit_to_tokens(struct build *b, int x, const struct route *r);     /* the way back                              */
/* A routed buffer with the columns of `like`: `at` 0 after dispatch, 1 after the etp gather. emit_pad: its rows of each expert
 * up to what blocks of scales need. */
int  emit_routed(struct build *b, int like, const struct route *r, int at);
void emit_pad(struct build *b, int x);
/* ---- the same by dispatchers that send whole tokens (emit_tokens.c) ---- */
int  emit_by_tokens(const struct build *b);                 /* the plan has one, and ranks to send to */
/* What ranks tell each other first: sets r->count and r->map from this rank's counts. */
int emit_tokens_map(struct build *b, const struct route *r);
void emit_tokens_plan(struct build *b, struct route *r, int mine);
/* Tokens to rows at the experts, and back. prob: in and out, weights that ride along; NULL: none. */
int  emit_tokens_out(struct build *b, int x, const struct route *r, int *prob);
int  emit_tokens_back(struct build *b, int x, const struct route *r, int *prob);
/* ---- emit_allgather.c: the same where everything is gathered. score: of this rank's tokens; pick: when sizes are known.
 * `forward`: tokens go out, or come back; else their gradients. dprob: of rows here -> of my tokens' scores. ---- */
void emit_allgather_plan(struct build *b, struct route *r, int score, int mine);
void emit_allgather_pick(struct build *b, struct route *r);
int  emit_allgather_out(struct build *b, int x, const struct route *r, int forward);
int  emit_allgather_back(struct build *b, int x, const struct route *r, int forward);
int  emit_allgather_prob_back(struct build *b, int dprob, const struct route *r);
/* ---- between stages ---- */
int  emit_recv(struct build *b, enum group g, int64_t rows);    /* hidden states (or their gradient) of the chunk's boundary */
void emit_send(struct build *b, enum group g, int x);

/* Of a group's collectives. Where the stack's framework orders them so (stack.sync_experts) those of experts are on the compute
 * stream: they wait for all that was issued before, and what follows for them. Not where two passes are woven. */
enum stream emit_stream(const struct build *b, enum group g);

#endif
