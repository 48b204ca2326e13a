/* A checkpoint: a directory with the weights and the optimizer state of a run, written by all ranks at once
 * and readable under any other plan. manifest.json (format, step, sequences seen, optimizer, shards with
 * sizes and hashes), model.yaml, plan.yaml, and a safetensors shard per rank. A tensor of a shard is a
 * rectangle of one whole parameter: its name "layers.2.expert_fc1.m[3,0:16,8:16]" says which (w: weight, m,
 * v: AdamW's moments; expert 3, rows 0 to 15, columns 8 to 15), so that a reader knows no fold of the writer.
 * float32, whatever the plan keeps; of bf16 runs the master weights; rows that pad the vocabulary are not stored. The directory is
 * written as DIR.part and renamed: what is there under its name is whole. */
#ifndef EXEC_CHECKPOINT_H
#define EXEC_CHECKPOINT_H
#include "exec/safetensors.h"
#include "exec/state.h"

struct checkpoint_head {
    int64_t step, sequences; /* steps taken, sequences seen */
    int32_t seq;             /* tokens in one; 0: none was seen */
    int32_t optimizer;       /* enum optimizer whose state it holds, -1: weights alone */
    char data[512];
    double eval_split; /* what it was trained on, as the user named it ("": the built-in text) */
};

/* ---- writing: begin once, a shard by every rank (concurrently), commit once ---- */
struct checkpoint_shard { int64_t bytes; uint64_t hash; };
struct checkpoint {
    char dir[3800], part[3900];
    const struct program *pr; const struct job *j;
    struct checkpoint_head head;
    struct checkpoint_shard *shard; int32_t n_shard;
};
/* ROOT/step-00000100, ROOT made where it is not there. ERR_IO names what cannot be made. */
enum err checkpoint_begin(struct checkpoint *c, struct arena *a, const char *root, const struct program *pr,
                          const struct job *j, const struct checkpoint_head *head, struct diag *d);
/* The same for a process that writes shards of a checkpoint which another one has begun and will commit: makes nothing. */
enum err checkpoint_join(struct checkpoint *c, struct arena *a, const char *root, const struct program *pr,
                         const struct job *j, const struct checkpoint_head *head, struct diag *d);
enum err checkpoint_shard(struct checkpoint *c, const struct state *s, int rank, struct diag *d);
/* Copies a file of another checkpoint, where that has it. */
enum err checkpoint_carry(struct checkpoint *c, const char *from, const char *name, struct diag *d);
enum err checkpoint_commit(struct checkpoint *c, struct diag *d);
/* Removes what was written of a checkpoint that will not be committed. */
void checkpoint_abandon(struct checkpoint *c);
/* Whether a directory is called as checkpoints are: step- and at least 8 digits (a filter for scandir). */
struct dirent;
int checkpoint_is_named(const struct dirent *e);
/* Removes all whole checkpoints of a root but the newest `keep`. */
void checkpoint_prune(const char *root, int keep);

/* ---- reading ---- */
struct checkpoint_file {
    const char *dir;
    struct checkpoint_head head;
    struct safetensors *shard; int32_t n_shard;
};
/* The directory that `path` means: itself when it has a manifest, else its newest checkpoint (in it or in
 * PATH/checkpoints). ERR_IO: there is none. */
enum err checkpoint_find(const char **dir, struct arena *a, const char *path, struct diag *d);
/* Checks sizes and hashes of all shards: a file that is cut short or changed is named. */
enum err checkpoint_open(struct checkpoint_file *c, struct arena *a, const char *dir, struct diag *d);
void checkpoint_close(struct checkpoint_file *c);
/* ERR_CONFIG names the first size in which the checkpoint's model is not the job's. */
enum err checkpoint_check_model(const struct checkpoint_file *c, struct arena *a, const struct model *m,
                                struct diag *d);
/* Fills the weights of all ranks, and the optimizer state where the checkpoint has it and the program wants
 * it. Every element must be there. */
enum err checkpoint_load(const struct checkpoint_file *c, struct state *s, const struct job *j,
                         struct diag *d);

/* ---- names ---- */
/* "layers.2.expert_fc1", "embedding". Returns `to`; 64 bytes are enough. */
char *checkpoint_key(char *to, size_t to_B, const struct param *q);
/* Of a tensor's name; the key's length in *key_n. ERR_CONFIG when it is not one. */
struct checkpoint_piece { char kind; int64_t expert, row, row_end, col, col_end; };
enum err checkpoint_parse(struct checkpoint_piece *p, int *key_n, const char *name);
/* Rows of a whole parameter that mean something: not what pads the vocabulary. */
int64_t checkpoint_rows(const struct param *q, const struct model *m);
uint64_t checkpoint_hash(uint64_t h, const void *bytes, int64_t n); /* FNV-1a; begin with CHECKPOINT_HASH */
#define CHECKPOINT_HASH 0xcbf29ce484222325u

#endif
