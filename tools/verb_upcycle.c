/* moefold upcycle: makes an MoE of a dense checkpoint. */
#include "exec/upcycle.h"
#include "tools/args.h"
#include "tools/report.h"
#include "tools/verb.h"
#include <stdio.h>

struct upcycle_flags { int32_t experts, topk, granularity, seed; char out[512]; };
static const struct opt flags[] = {
    { .key = "experts", ARGS_INT(struct upcycle_flags, experts, 1, 65536, "8"), .help = "of every layer" },
    { .key = "topk", ARGS_INT(struct upcycle_flags, topk, 1, 1024, "2"), .help = "experts a token uses" },
    { .key = "granularity",
      ARGS_INT(struct upcycle_flags, granularity, 1, 1024, "1"),
      .help = "narrow experts that an MLP is cut into; divides experts and topk" },
    { .key = "seed",
      ARGS_INT(struct upcycle_flags, seed, 0, 2147483647, "1234"),
      .help = "of the new routers" },
    { .key = "out",
      ARGS_TEXT(struct upcycle_flags, out, "moefold-upcycle"),
      .help = "directory that gets the checkpoint" },
};

static enum err answer(struct arena *a, const char *path, const struct upcycle_flags *f, int json,
                       struct diag *d)
{
    const struct upcycle_ask ask = { f->experts, f->topk, f->granularity, f->seed, f->out };
    const char *dir, *made = arena_printf(a, "%s/step-00000000", f->out);
    TRY(checkpoint_find(&dir, a, path, d));
    TRY(upcycle(a, dir, &ask, d));
    if (json) report_document(json_pack("{s:s,s:s}", "parent", dir, "checkpoint", made));
    else printf("%s\n\nGo on with: moefold run --resume %s --data TEXT --steps N\n", made, made);
    return OK;
}

enum err verb_upcycle(int argc, char **argv, struct diag *d)
{
    static const struct args_spec spec = { .verb = "upcycle",
                                           .words = "CHECKPOINT",
                                           .flag = flags,
                                           .n_flag = LEN(flags),
                                           .min_words = 1,
                                           .max_words = 1,
                                           .what =
                                               "make an MoE of a dense checkpoint, or of a run's newest" };
    struct upcycle_flags f;
    struct arena a = { 0 };
    struct args args;
    enum err e = args_parse(&args, &f, &spec, &a, argc, argv, d);
    if (e == OK && args.help) args_help(&spec, &args);
    else if (e == OK) e = answer(&a, args.word[0], &f, args.json, d);
    arena_free(&a);
    return e;
}
