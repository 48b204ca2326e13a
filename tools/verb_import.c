/* moefold import: makes a checkpoint of what others wrote. */
#include "exec/hf.h"
#include "tools/args.h"
#include "tools/report.h"
#include "tools/verb.h"
#include <stdio.h>

static const char *const kinds[] = { "hf", NULL };
struct import_flags { int32_t from; char out[512]; };
static const struct opt flags[] = {
    { .key = "from", ARGS_NAME(struct import_flags, from, kinds, "hf"), .help = "what DIR is: a checkpoint of Hugging Face" },
    { .key = "out", ARGS_TEXT(struct import_flags, out, "moefold-import"), .help = "directory that gets the checkpoint" },
};

static enum err answer(struct arena *a, const char *dir, const struct import_flags *f, int json, struct diag *d)
{
    TRY(hf_import(a, dir, f->out, d));
    const char *made = arena_printf(a, "%s/step-00000000", f->out);
    if (json) report_document(json_pack("{s:s}", "checkpoint", made));
    else printf("%s\n\nGo on with: moefold run --resume %s --data TEXT --steps N\n", made, made);
    return OK;
}

enum err verb_import(int argc, char **argv, struct diag *d)
{
    static const struct args_spec spec = { .verb = "import", .words = "DIR", .flag = flags, .n_flag = LEN(flags), .min_words = 1,
                                           .max_words = 1, .what = "make a checkpoint of one that transformers wrote" };
    struct import_flags f;
    struct arena a = { 0 };
    struct args args;
    enum err e = args_parse(&args, &f, &spec, &a, argc, argv, d);
    if (e == OK && args.help) args_help(&spec);
    else if (e == OK) e = answer(&a, args.word[0], &f, args.json, d);
    arena_free(&a);
    return e;
}
