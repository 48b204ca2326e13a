/* What an import says besides its plan. */
#include "tools/megatron.h"
#include <string.h>

const char megatron_balance_flag[] = "--moe-router-load-balancing-type";

int megatron_balances_otherwise(const struct megatron_args *args)
{
    const char *way = megatron_find(args, megatron_balance_flag);
    return way && strcmp(way, "none") != 0 && strcmp(way, "aux_loss") != 0 && strcmp(way, "seq_aux_loss") != 0;
}

static int lacks(const struct megatron_args *args, const char *flag)
{
    return !megatron_find(args, flag);
}

int megatron_notes(const char *note[MEGATRON_NOTES], struct arena *a, const struct megatron_args *args, const struct job *j)
{
    const struct plan *p = &j->plan;
    const int share = p->dp * p->cp;
    int n = 0;
    if (lacks(args, "--use-distributed-optimizer") && !p->fsdp && share > 1)
        note[n++] = arena_printf(a, "no --use-distributed-optimizer: the script's ranks hold whole optimizer states, those of every "
                                    "plan here 1/%d of them (experts 1/%d): its memory is more than predicted; add the flag",
                                 share, p->edp);
    if (lacks(args, "--expert-tensor-parallel-size") && j->model.experts && p->tp > 1)
        note[n++] = arena_printf(a, "no --expert-tensor-parallel-size: Megatron-LM takes tp, so etp is %d", p->etp);
    if (lacks(args, "--moe-token-dispatcher-type") && j->model.experts && p->ep > 1)
        note[n++] = "no --moe-token-dispatcher-type: Megatron-LM takes allgather";
    if (megatron_balances_otherwise(args))
        note[n++] = arena_printf(a, "%s %s: plans have aux_loss and seq_aux_loss, one at a time; taken as none", megatron_balance_flag,
                                 cfg_shown(megatron_find(args, megatron_balance_flag)).text);
    return n;
}
