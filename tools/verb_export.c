/* moefold export: writes a checkpoint as others read it. */
#include "exec/hf.h"
#include "tools/args.h"
#include "tools/report.h"
#include "tools/verb.h"
#include <stdio.h>

static const char *const kinds[] = { "hf", NULL };
struct export_flags { int32_t to; char out[512]; };
static const struct opt flags[] = {
    { .key = "to", ARGS_NAME(struct export_flags, to, kinds, "hf"), .help = "what is written: a checkpoint of Hugging Face" },
    { .key = "out", ARGS_TEXT(struct export_flags, out, "moefold-export"), .help = "directory that gets it" },
};

static enum err answer(struct arena *a, const char *path, const struct export_flags *f, int json, struct diag *d)
{
    const char *dir;
    TRY(checkpoint_find(&dir, a, path, d));
    TRY(hf_export(a, dir, f->out, d));
    if (json) report_document(json_pack("{s:s,s:s}", "checkpoint", dir, "out", f->out));
    else printf("%s\n", f->out);
    return OK;
}

enum err verb_export(int argc, char **argv, struct diag *d)
{
    static const struct args_spec spec = { .verb = "export", .words = "CHECKPOINT", .flag = flags, .n_flag = LEN(flags),
                                           .min_words = 1, .max_words = 1,
                                           .what = "write a checkpoint, or a run's newest, as transformers reads it" };
    struct export_flags f;
    struct arena a = { 0 };
    struct args args;
    enum err e = args_parse(&args, &f, &spec, &a, argc, argv, d);
    if (e == OK && args.help) args_help(&spec);
    else if (e == OK) e = answer(&a, args.word[0], &f, args.json, d);
    arena_free(&a);
    return e;
}
