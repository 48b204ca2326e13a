/* What the files of the reference backend share: the launchers' names, scratch memory, and the view of a
 * call's counts. Only backend_cpu*.c include this; everybody else sees the table in backend.h. */
#ifndef EXEC_BACKEND_CPU_H
#define EXEC_BACKEND_CPU_H
#include "exec/backend.h"
#include "kernels/act.h"
#include "kernels/attention.h"
#include "kernels/balance.h"
#include "kernels/exchange.h"
#include "kernels/merge.h"
#include "kernels/mla.h"
#include "kernels/route.h"
#include "kernels/xent.h"

/* One launcher per kind of OP_LIST, in its order. */
launch backend_cpu_data, backend_cpu_embed, backend_cpu_embed_bwd, backend_cpu_norm, backend_cpu_norm_bwd,
    backend_cpu_add, backend_cpu_split, backend_cpu_merge, backend_cpu_rope, backend_cpu_rope_bwd,
    backend_cpu_mla_qkv, backend_cpu_mla_qkv_bwd, backend_cpu_attn, backend_cpu_attn_bwd, backend_cpu_gemm,
    backend_cpu_dgrad, backend_cpu_wgrad, backend_cpu_grouped_gemm, backend_cpu_grouped_dgrad,
    backend_cpu_grouped_wgrad, backend_cpu_swiglu, backend_cpu_swiglu_bwd, backend_cpu_route,
    backend_cpu_route_bwd, backend_cpu_sizes, backend_cpu_permute, backend_cpu_unpermute, backend_cpu_sort,
    backend_cpu_unsort, backend_cpu_dispatch, backend_cpu_combine, backend_cpu_gather_v,
    backend_cpu_scatter_v, backend_cpu_gather, backend_cpu_scatter, backend_cpu_all_reduce,
    backend_cpu_all_max, backend_cpu_xent_max, backend_cpu_xent_sum, backend_cpu_xent, backend_cpu_xent_bwd,
    backend_cpu_send, backend_cpu_recv, backend_cpu_zero, backend_cpu_grad_scatter, backend_cpu_param_gather,
    backend_cpu_sumsq, backend_cpu_adamw, backend_cpu_sgd, backend_cpu_hold, backend_cpu_act,
    backend_cpu_act_bwd, backend_cpu_swap, backend_cpu_dispatch_tokens, backend_cpu_combine_tokens,
    backend_cpu_route_map, backend_cpu_pick, backend_cpu_pick_bwd, backend_cpu_scatter_add, backend_cpu_copy,
    backend_cpu_host_adamw, backend_cpu_cast, backend_cpu_shift, backend_cpu_attn_merge, backend_cpu_documents,
    backend_cpu_route_load, backend_cpu_balance;

/* Memory for one launch, to be freed by the launcher; ERR_LIMIT when there is none. */
enum err backend_cpu_scratch(void **p, int64_t bytes, const struct call *c);
/* Bytes of the operand `o` whose buffer is `id`. */
int64_t backend_cpu_B(const struct call *c, struct operand o, int id);
/* Who sends how many routed rows to whom, by the count matrix that is the call's operand `count`. */
struct exchange backend_cpu_exchange(const struct call *c, struct operand count);
/* Where this rank's rows stand in their sequences. */
struct rope backend_cpu_positions(const struct call *c);

/* What an op's kernel is told, from the call's shapes and the model: other backends ask too. `heads`: of attention's output o,
 * here. */
struct mla backend_cpu_mla(const struct call *c);
struct attention_shape backend_cpu_attention(const struct call *c, struct operand o, int heads);
float *backend_cpu_sinks(const struct call *c, struct operand all, int heads);
struct xent backend_cpu_vocabulary(const struct call *c, struct operand logit);
enum act backend_cpu_act_kind(const struct call *c);
struct route_rule backend_cpu_route_rule(const struct call *c);
struct balance backend_cpu_balance_rule(const struct call *c, int64_t rows);    /* rows: of scores, here */
double backend_cpu_loss_scale(const struct call *c);    /* of a row's gradient */
enum { METRIC_SQUARES = 2, METRIC_BALANCE };    /* places of the gradients' square sum, of balance losses in the metric buffer */

#endif
