/* Checkpoints of Hugging Face transformers (Llama, Mixtral, Qwen3-MoE, DeepSeek-V2 and V3 and what is built
 * like them): a directory with config.json and *.safetensors. Imported into a checkpoint of ours, and written
 * back byte for byte as they were read: the checkpoint carries config.json and the headers of all files
 * (hf.json). */
#ifndef EXEC_HF_H
#define EXEC_HF_H
#include "exec/checkpoint.h"

/* What every checkpoint of a run that began with an imported one gets a copy of (train_ask.carry). */
extern const char *const hf_carried[];

/* Where a tensor of theirs lies in a whole parameter of ours: rows [row, row + rows) of an expert (0 where
 * there are none). turn: the last `turn` of every `head` rows, from `skip` on, are rotated in pairs (0, 1),
 * (2, 3) there, in halves here. */
struct hf_tensor {
    char name[96];
    int32_t param, expert, row, rows, cols, n_dim;
    int32_t turn, head, skip;
    int32_t copy;                       /* of a tensor before it */
};
/* All tensors of a one-rank program, for a config.json's model_type. Copies of a table (MTP) come behind it.
 * Returns how many. */
int hf_tensors(struct hf_tensor **all, struct arena *a, const struct program *pr, const struct model *m,
               const char *model_type);
/* To theirs (back 1) from ours, or the other way: rows [rows, cols] of one tensor. */
void hf_turn(float *to, const float *from, const struct hf_tensor *t, int back);

/* A one-rank job, its program and its state, as import, export and upcycle work on them. */
struct hf_model { struct job job; struct program pr; struct state state; };
/* Program and state (zeros) of a job that is there. ERR_NO: as hf_fits, on this host. */
enum err hf_model_make(struct hf_model *h, struct arena *a, struct diag *d);
/* ERR_NO: a host of so many bytes cannot hold the state. It is held whole, all ranks' and not streamed (case G05). */
enum err hf_fits(const struct program *pr, const struct job *j, double host_B, struct diag *d);
/* The same from a model's name or path, as of a plan; mtp 0: without MTP. */
enum err hf_model_open(struct hf_model *h, struct arena *a, const char *model, int mtp, struct diag *d);

/* Reads `dir` into a checkpoint under `root` at step 0. note: what is odd in it and may be meant, NULL: nothing. ERR_CONFIG
 * names a tensor that is missing, has another shape than the model, or has no place in it. */
enum err hf_import(struct arena *a, const char *dir, const char *root, const char **note, struct diag *d);
/* Writes the checkpoint `dir` as transformers reads it into `to`, made where it is not there: with the files,
 * types and bytes of what was imported once, else float32 in one file. ERR_LIMIT: no architecture of
 * transformers computes what the model does. */
enum err hf_export(struct arena *a, const char *dir, const char *to, struct diag *d);

/* ---- hf_config.c ---- */
struct json_t;
/* "files" of an hf.json for a model that was not imported: config.json, and the header of one file. The
 * caller's to release. */
enum err hf_config_make(struct json_t **files, struct arena *a, const struct program *pr,
                        const struct model *m, struct diag *d);

#endif
