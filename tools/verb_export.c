/* moefold export: a plan as what other software takes. Exit 1 when that software cannot run it, with the
 * reason. */
#include "exec/hf.h"
#include "tools/args.h"
#include "tools/megatron.h"
#include "tools/report.h"
#include "tools/save.h"
#include "tools/verb.h"
#include <string.h>

enum export_to { EXPORT_HF, EXPORT_MEGATRON };
static const char *const export_names[] = { "hf", "megatron", NULL };

struct export_flags { int32_t to; char out[512]; };
static const struct opt flags[] = {
    { .key = "to", ARGS_NAME(struct export_flags, to, export_names, "hf"),
      .help = "hf: a checkpoint for transformers; megatron: a bash script with all of a plan's arguments" },
    { .key = "out", ARGS_TEXT(struct export_flags, out, ""),
      .help = "also -o: the script, else stdout; the directory that gets the checkpoint, else moefold-export" },
};

static json_t *args_json(const struct megatron_args *args)
{
    json_t *list = json_object();
    for (int i = 0; i < args->n; i++) {
        const struct megatron_arg *x = &args->arg[i];
        json_object_set_new(list, x->flag, x->value ? json_string(x->value) : json_true());
    }
    return list;
}

static enum err to_megatron(struct arena *a, const struct args *args, const struct export_flags *f,
                            struct diag *d)
{
    struct job *j = arena_alloc(a, sizeof *j);
    struct megatron_args flag, env;
    TRY(args_job(j, a, args, 0, d));
    TRY(megatron_export(&flag, &env, a, j, d));
    const char *script = megatron_script(a, j, &flag, &env);
    if (*f->out) TRY(save_text(f->out, script, strlen(script), d));
    if (args->json)
        report_document(
            json_pack("{s:s,s:o,s:o}", "to", "megatron", "args", args_json(&flag), "env", args_json(&env)));
    else if (!*f->out) fputs(script, stdout);
    else printf("%d arguments and %d environment variables are in %s\n", flag.n, env.n, f->out);
    return OK;
}

static enum err to_hf(struct arena *a, const struct args *args, const struct export_flags *f, struct diag *d)
{
    const char *dir, *out = *f->out ? f->out : "moefold-export";
    if (!args->n_word) return fail(d, ERR_CONFIG, "export needs a checkpoint: moefold export CHECKPOINT [--to hf]");
    if (args->n_plan) return fail(d, ERR_CONFIG, "--%s: a checkpoint has no plan: leave it out", args->plan[0][0]);
    TRY(checkpoint_find(&dir, a, args->word[0], d));
    TRY(hf_export(a, dir, out, d));
    if (args->json) report_document(json_pack("{s:s,s:s}", "checkpoint", dir, "out", out));
    else printf("%s\n", out);
    return OK;
}

enum err verb_export(int argc, char **argv, struct diag *d)
{
    static const struct args_spec spec = {
        .verb       = "export",
        .words      = "[PLAN|CHECKPOINT]",
        .flag       = flags,
        .n_flag     = LEN(flags),
        .takes_plan = 1,
        .max_words  = 1,
        .what       = "a checkpoint or a plan as other software takes it",
    };
    struct export_flags f;
    struct arena a = { 0 };
    struct args args;
    enum err e = args_parse(&args, &f, &spec, &a, argc, argv, d);
    if (e == OK && args.help) args_help(&spec, &args);
    else if (e == OK) e = f.to == EXPORT_HF ? to_hf(&a, &args, &f, d) : to_megatron(&a, &args, &f, d);
    arena_free(&a);
    return e;
}
