/* moefold calibrate: times this machine's ops as `run` launches them, on one rank and on two that have a core
 * each, and writes a system file of what they took; or a GPU's, on one rank. One line of prices a kind of op; what no probe
 * has keeps the built-in host's. */
#include "exec/backend_load.h"
#include "models/op.h"
#include "tools/args.h"
#include "tools/calibrate.h"
#include "tools/report.h"
#include "tools/save.h"
#include "tools/verb.h"
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Sizes from those that caches hold to some tens of megabytes; widths of heads, numbers of experts and kinds of blocks that a
 * laptop's model may have. `busy`: one rank a core, each with sequences of its own, since cores share what lies
 * beyond their caches; `pair`: two ranks, every way to cut one. */
#define SMALL "layers 3 "
#define LARGE "layers 3 hidden 256 ffn 512 expert_ffn 256 shared_ffn 256 head_dim 32 "
static const struct { const char *model, *plan; int seqs; } busy[] = {
    { "", "seq 64", 4 },
    { "hidden 128 ffn 256 expert_ffn 128 shared_ffn 128 head_dim 16", "seq 128", 4 },
    { "hidden 256 ffn 512 expert_ffn 256 shared_ffn 256 head_dim 32 vocab 1024", "seq 256", 2 },
    { "layers 3 hidden 512 ffn 1024 heads 8 kv_heads 2 head_dim 64 expert_ffn 128 shared_ffn 128 experts 16 "
      "vocab 2048", "seq 128", 2 },
    { "layers 2 hidden 128 heads 4 kv_heads 4 head_dim 32 expert_ffn 256 experts 4 ffn 384", "seq 512", 2 },
    { "layers 2 hidden 128 attention mla qk_norm 0 q_lora 64 kv_lora 32 qk_nope 16 qk_rope 8 v_dim 16", "seq 128", 2 },
    { "layers 2 activation gelu hidden 128", "seq 128 optimizer sgd", 2 },
    { "layers 2 hidden 128", "seq 128 offload layers:1", 2 },
};
static const struct calibrate_probe pair[] = {
    { SMALL, "gpus 2 tp 2 gbs 4 seq 64" },
    { LARGE, "gpus 2 tp 2 gbs 4 seq 256" },
    { SMALL, "gpus 2 ep 2 gbs 4 seq 64 capacity worst" },
    { LARGE, "gpus 2 ep 2 gbs 4 seq 256 capacity worst" },
    { SMALL, "gpus 2 tp 2 etp 2 gbs 4 seq 64" },
    { LARGE, "gpus 2 etp 2 gbs 4 seq 256" },
    { SMALL, "gpus 2 pp 2 gbs 4 seq 64" },
    { LARGE, "gpus 2 pp 2 gbs 4 seq 256" },
    { SMALL, "gpus 2 cp 2 gbs 4 seq 64" },
    { LARGE, "gpus 2 cp 2 gbs 4 seq 256" },
    { LARGE, "gpus 2 cp 2 cp-comm p2p gbs 4 seq 256" },
    { SMALL, "gpus 2 cp 2 cp-comm a2a gbs 4 seq 64" },
    { LARGE, "gpus 2 cp 2 cp-comm a2a gbs 4 seq 256" },
    { SMALL, "gpus 2 ep 2 gbs 4 seq 64 capacity worst dispatcher allgather" },
    { LARGE, "gpus 2 ep 2 gbs 4 seq 256 capacity worst dispatcher allgather" },
    { SMALL, "gpus 2 ep 2 gbs 4 seq 64 capacity worst dispatcher hybridep" },
    { LARGE, "gpus 2 ep 2 gbs 4 seq 256 capacity worst dispatcher hybridep" },
    { SMALL, "gpus 2 gbs 4 seq 64 fsdp 1" },
    { LARGE, "gpus 2 gbs 4 seq 256 fsdp 1" },
};
/* A GPU's: layers as wide as DeepSeek-V3's and Qwen3-30B-A3B's, with few experts, so that the host fills their weights in
 * seconds; small ones for what a launch takes. */
#define DEEPSEEK "layers 1 dense_layers 0 hidden 7168 attention mla qk_norm 0 heads 128 q_lora 1536 kv_lora 512 qk_nope 128 " \
                 "qk_rope 64 v_dim 128 experts 8 topk 4 expert_ffn 2048 shared_ffn 2048 vocab 1024"
#define QWEN "layers 1 dense_layers 0 hidden 2048 heads 32 kv_heads 4 head_dim 128 experts 16 topk 8 expert_ffn 768 shared_ffn 0 " \
             "score softmax selection_bias 0 vocab 8192"
static const struct calibrate_probe gpu[] = {
    { "", "precision bf16 gpus 1 gbs 4 seq 64" },
    { "hidden 256 ffn 512 expert_ffn 256 shared_ffn 256 head_dim 32 vocab 1024", "precision bf16 gpus 1 gbs 4 seq 512" },
    { QWEN, "precision bf16 gpus 1 gbs 2 seq 1024" },
    { QWEN, "precision bf16 gpus 1 gbs 2 seq 4096" },
    { DEEPSEEK, "precision bf16 gpus 1 gbs 2 seq 4096" },
};
enum { STEPS = 9 };

static const char *const calibrate_backends[] = { "cpu", "cuda", NULL };
struct calibrate_flags { char out[512]; int32_t backend; };
static const struct opt flags[] = {
    { .key = "out", .type = OPT_TEXT, .at = offsetof(struct calibrate_flags, out), .size = 512, .def = "calibrated.yaml",
      .help = "also -o: the system file, for --system of predict, search, run and compare" },
    { .key = "backend", ARGS_NAME(struct calibrate_flags, backend, calibrate_backends, "cpu"), .help = "whose ops: fp32, or a GPU's in bf16" },
};
static const struct report_col fit_cols[] = {
    { "table", "op", REPORT_TEXT, offsetof(struct calibrate_fit, kind) },
    { NULL, "family", REPORT_TEXT, offsetof(struct calibrate_fit, family) },
    { "points", "ops timed", REPORT_INT, offsetof(struct calibrate_fit, n) },
    { "from_B", "bytes from", REPORT_B, offsetof(struct calibrate_fit, from_B) },
    { "to_B", "to", REPORT_B, offsetof(struct calibrate_fit, to_B) },
    { "floor_s", "floor", REPORT_S, offsetof(struct calibrate_fit, price.floor_s) },
    { "B_per_s", "GB/s", REPORT_GIGA, offsetof(struct calibrate_fit, price.B_per_s) },
    { "flop_per_s", "GFLOP/s", REPORT_GIGA, offsetof(struct calibrate_fit, price.flop_per_s) },
    { "each_s", "each", REPORT_S, offsetof(struct calibrate_fit, price.each_s) },
    { "spread", "spread", REPORT_SHARE, offsetof(struct calibrate_fit, spread) },
    { "median_error", "off by", REPORT_SHARE, offsetof(struct calibrate_fit, error) },
};

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void progress(int done, int all, double since_s)
{
    if (isatty(STDERR_FILENO)) fprintf(stderr, "\r  %d of %d probes, %.0f s ", done, all, now_s() - since_s);
    if (done == all && isatty(STDERR_FILENO)) fprintf(stderr, "\r%40s\r", "");
}

static enum err measure(struct calibrate_run *r, int cores, struct diag *d)
{
    enum { MOST = 8 };
    const int n = r->on ? LEN(gpu) : LEN(busy) + (cores > 1 ? LEN(pair) : 0), ranks = cores < MOST ? cores : MOST;
    const double since_s = now_s();
    for (int i = 0; i < n; i++) {
        progress(i, n, since_s);
        struct calibrate_probe p = r->on ? gpu[i] : i < LEN(busy) ? (struct calibrate_probe){ busy[i].model, NULL } : pair[i - LEN(busy)];
        if (!p.plan) p.plan = arena_printf(r->a, "%s gpus %d gbs %d", busy[i].plan, ranks, ranks * busy[i].seqs);
        TRY(calibrate_probe(r, &p, i, STEPS, d));
    }
    progress(n, n, since_s);
    return OK;
}

/* What a machine that others use says is not what this machine does. */
static enum err refuse(const struct calibrate_fit *fit, int n, struct diag *d)
{
    enum { MOST = 30 };
    for (int i = 0; i < n; i++)
        if (strcmp(fit[i].family, op_family_name(FAMILY_GEMM)) == 0 && fit[i].spread > MOST / 100.0)
            return fail(d, ERR_NO, "half of the times of one %s lie %.0f %% around their median, more than %d %%: the "
                                   "machine is busy with something else; calibrate when it is not", fit[i].kind,
                        100 * fit[i].spread, MOST);
    return OK;
}

static void show(const struct calibrate_fit *fit, int n, const struct system *s, double gap_s,
                 const char *path, int cores)
{
    report_table("What ops took: a floor, and on top bytes, FLOP, and each expert, score, run of a norm or angle",
                 &(struct report_list){ fit_cols, LEN(fit_cols), fit, sizeof *fit, n }, -1);
    printf("\n  between two ops of a stream %.2f us; to wake one that waits %.1f us, and %.1f us with what follows\n",
           1e6 * s->next_s, 1e6 * gap_s, 1e6 * s->wake_s);
    if (cores < 2) printf("  one rank: nothing between ranks was measured, and is as in the built-in host\n");
    printf("  %s\n", path);
}

/* What one core sees; sysconf adds up all caches of a socket, of which a virtual machine has a part. 0: not known. */
static double last_cache_B(void)
{
    long KiB = 0;
    FILE *f = fopen("/sys/devices/system/cpu/cpu0/cache/index3/size", "r");
    if (!f) return 0;
    if (fscanf(f, "%ldK", &KiB) != 1) KiB = 0;
    fclose(f);
    return 1024.0 * (double)KiB;
}

static enum err answer(struct arena *a, const struct args *args, const struct calibrate_flags *f, struct diag *d)
{
    const char *out = f->out;
    const int cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    struct calibrate_run r = { .a = a, .cache_B = last_cache_B() };
    struct calibrate_fit *fit = arena_alloc(a, OP_KIND_COUNT * sizeof *fit);
    struct system s;
    if (f->backend) TRY(backend_load(&r.on, calibrate_backends[f->backend], d));
    TRY(save_try(out, d));
    TRY(system_read(&s, a, "host", d));
    TRY(measure(&r, cores, d));
    const int n = calibrate_fits(fit, &s, &r);
    TRY(refuse(fit, n, d));
    const double gap_s = s.wake_s;
    if (!r.on) calibrate_wake(&s, &r);
    s.host_memory_B = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) / (r.on ? 1 : cores);
    s.memory_B = r.on ? (double)r.on->memory_B() : s.host_memory_B;
    TRY(system_check(&s, d));
    const char *what = r.on ? "one GPU, bf16" : arena_printf(a, "%d cores, fp32", cores);
    const char *text = arena_printf(a, "# Measured by moefold calibrate on %s.\n%s", what, system_text(a, &s));
    TRY(save_text(out, text, strlen(text), d));
    const struct report_list fits = { fit_cols, LEN(fit_cols), fit, sizeof *fit, n };
    if (args->json)
        report_document(json_pack("{s:s,s:f,s:f,s:o}", "written", out, "next_s", s.next_s, "wake_s", s.wake_s, "fits",
                                  report_rows(&fits)));
    else show(fit, n, &s, gap_s, out, r.on ? 1 : cores);
    return OK;
}

enum err verb_calibrate(int argc, char **argv, struct diag *d)
{
    static const struct args_spec spec = { .verb = "calibrate", .words = "[-o SYSTEM.yaml] [--backend cuda]", .flag = flags,
                                           .n_flag = LEN(flags), .what = "what this machine's ops take, as a system file" };
    struct calibrate_flags f;
    struct arena a = { 0 };
    struct args args;
    enum err e = args_parse(&args, &f, &spec, &a, argc, argv, d);
    if (e == OK && args.help) args_help(&spec, &args);
    else if (e == OK) e = answer(&a, &args, &f, d);
    arena_free(&a);
    return e;
}
