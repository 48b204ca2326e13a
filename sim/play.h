/* A step played on all stages at once, pass by pass: a pass is one (max,+) product, SENDs meet RECVs, and the
 * ops of passes that meet other stages (gradient norm, input tables) are played one by one. Afterwards any
 * stage can be replayed op by op against the recorded meetings. Agrees with the sweep over unrolled items to
 * rounding, because what a product forgets (which op of an earlier step wrote a buffer) is implied by stream
 * order or by the lead window; where it is not, around OPTIM, ops are played one by one. */
#ifndef SIM_PLAY_H
#define SIM_PLAY_H
#include "sim/pass.h"

/* Where a stage is: a step, and which RECV and SEND of each direction comes next. */
struct play_cursor { int32_t step, recv[2], send[2]; };

struct play_stage {
    struct play_cursor body, post, settle;  /* passes done; RECVs posted; steps that are over with their transfers */
    double state[PASS_DIM];                 /* after the last body                                               */
    double post_host_s;                     /* the host's clock where `post` stands                              */
    double read_s;                          /* op by op: when the host last had what it waited for               */
    double *body_s, *upto_s;                /* per step: finish of streams that moved; everything's up to it     */
    int32_t op;                             /* of a body played op by op: next in the pass                       */
    int32_t met[2];                         /* WORLD and EMBED collectives so far                                */
    int32_t waits;                          /* its t0 at the next one is posted                                  */
    int32_t slow;                           /* the first step from here on whose ops are played one by one       */
    struct play_channel *in[2], *out[2];    /* by half: what it receives and sends by                            */
    const struct step *row;                 /* its schedule                                                      */
};
/* Transfers of one direction from one stage: the n-th SEND meets the n-th RECV, one after the other. */
struct play_transfer { double send_s, recv_s, done_s, price_s; };
struct play_channel { struct play_transfer *at; int32_t n_send, n_recv, n_done; };
/* The n-th collective of a group that spans stages. */
struct play_meeting { double *t0_s, *t1_s; int32_t *posted; int32_t members; };
/* What an op-by-op clock knows of a buffer's latest instance. */
struct play_slot { double wrote_s, read_s; int32_t micro; };
/* What the cursors ask of a pass, close together: wires; how far it moves the host, NAN where that hangs on more than
 * the host; its matrix; whether one of its ops meets other stages. */
struct play_pass { struct pass_wire wire[2]; double host_s; int32_t brief, meets; };

struct play {
    const struct cost *c; const double *op_s; const struct pass_price *price;
    struct play_stage *stage;
    struct play_channel *channel[2];        /* by sending stage: forward, backward                               */
    struct play_meeting meeting[2];         /* WORLD, EMBED                                                      */
    struct play_slot *slot;                 /* by flow key                                                       */
    struct pass_brief *brief;               /* passes of like layers share one                                   */
    struct play_pass *pass;                 /* per pass                                                          */
};

/* Plays the whole step. 0 when stages wait for each other for ever (a program that unroll_check refuses). */
int play_run(struct play *p, struct arena *a, const struct cost *c, const double *op_s,
             const struct pass_price *price);
/* When a stage's last op is done. */
double play_stage_s(const struct play *p, int stage);

/* One op that happened: `ready_s` when its stream was free, its deps done and the host not waiting for earlier
 * ops; t0_s that or its issue; meet_s the latest t0 of those it meets on other stages (t0_s: it meets none). */
struct play_mark { int32_t step, op, micro; double ready_s, t0_s, meet_s, t1_s; };
/* Takes the n marks of one step; no mark of a later step is ready before final_s. */
typedef void play_take(void *to, const struct play_mark *mark, int n, double final_s);
/* The stage op by op, in list order, against the meetings of play_run, handed over step by step. */
void play_replay(struct play *p, int stage, play_take *take, void *to);

#endif
