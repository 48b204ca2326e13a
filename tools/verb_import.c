/* moefold import: a model from a Hugging Face config.json, a plan from a launch script of Megatron-LM or a
 * recipe of Megatron-Bridge. What it writes has been read back by the same rules as any model or plan. */
#include "exec/hf.h"
#include "models/base/whole_file.h"
#include "tools/args.h"
#include "tools/megatron.h"
#include "tools/nccl.h"
#include "tools/report.h"
#include "tools/save.h"
#include "tools/verb.h"
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum import_from { IMPORT_HF, IMPORT_MEGATRON, IMPORT_BRIDGE, IMPORT_NCCL_TOPO, IMPORT_NCCL_TESTS };
static const char *const import_names[] = { "hf", "megatron", "bridge", "nccl-topo", "nccl-tests", NULL };

struct import_flags { int32_t from; char out[256]; };
static const struct opt flags[] = {
    { .key = "from", ARGS_NAME(struct import_flags, from, import_names, "hf"),
      .help = "hf: a directory, or config.json alone; megatron: a launch script; bridge: a recipe in YAML; "
              "nccl-topo, nccl-tests: a system, over --system" },
    { .key = "out", ARGS_TEXT(struct import_flags, out, ""),
      .help = "also -o: write it there; a checkpoint: the directory that gets it, else moefold-import" },
};

static enum err give(const struct import_flags *f, const char *text, const char *what, struct diag *d)
{
    if (!*f->out) return fputs(text, stdout), OK;
    TRY(save_text(f->out, text, strlen(text), d));
    printf("%s is in %s\n", what, f->out);
    return OK;
}

/* ---- a checkpoint, a model ---- */

static enum err checkpoint(struct arena *a, const struct args *args, const struct import_flags *f, struct diag *d)
{
    const char *root = *f->out ? f->out : "moefold-import";
    const char *note;
    TRY(hf_import(a, args->word[0], root, &note, d));
    const char *made = arena_printf(a, "%s/step-00000000", root);
    if (args->json) report_document(json_pack("{s:s,s:s*}", "checkpoint", made, "note", note));
    else printf("%s\n\nGo on with: moefold run --resume %s --data TEXT --steps N\n", made, made);
    if (!args->json && note) printf("Note: %s\n", note);
    return OK;
}


static enum err from_hf(struct arena *a, const struct args *args, const struct import_flags *f,
                        struct diag *d)
{
    struct cfg c;
    struct model m;
    struct stat st;
    if (args->n_plan)
        return fail(d, ERR_CONFIG, "--%s: an import from hf makes no plan: leave it out", args->plan[0][0]);
    if (stat(args->word[0], &st) != 0 || S_ISDIR(st.st_mode)) return checkpoint(a, args, f, d);
    TRY(cfg_read_file(&c, a, args->word[0], d));
    TRY(model_fill(&m, &c, d));
    const struct model_params n = model_params(&m);
    const char *text = arena_printf(a, "# From %s: %lld parameters, %lld active.\n%s", args->word[0],
                                    (long long)n.total, (long long)n.active, model_text(a, &m));
    if (!args->json) return give(f, text, m.name, d);
    if (*f->out) TRY(save_text(f->out, text, strlen(text), d));
    report_document(json_pack("{s:s,s:s,s:I,s:I}", "from", "hf", "model", model_text(a, &m), "total",
                              (json_int_t)n.total, "active", (json_int_t)n.active));
    return OK;
}

/* ---- a plan ---- */

static const char *asked_model(const struct args *args)
{
    for (int i = args->n_plan - 1; i >= 0; i--)
        if (strcmp(args->plan[i][0], "model") == 0) return args->plan[i][1];
    return "";
}

static enum err read_file(char **text, struct arena *a, const char *path, struct diag *d)
{
    enum { MOST_B = 1 << 22 };
    size_t n;
    TRY(whole_file_read(text, &n, a, path, MOST_B, d));
    if (n > MOST_B)
        return fail(d, ERR_CONFIG, "%s: is larger than %d bytes: is this the right file?", path, MOST_B);
    if (memchr(*text, 0, n)) return fail(d, ERR_CONFIG, "%s: holds a zero byte: is this the right file?", path);
    return OK;
}

static enum err read_arguments(struct megatron_args *to, struct arena *a, const char *path, int from,
                               struct diag *d)
{
    if (from == IMPORT_BRIDGE) {
        struct cfg c;
        TRY(cfg_read_file(&c, a, path, d));
        return megatron_read_yaml(to, a, &c, d);
    }
    char *text = "";
    TRY(read_file(&text, a, path, d));
    return megatron_read(to, a, path, text, d);
}

static enum err from_megatron(struct arena *a, const struct args *args, const struct import_flags *f,
                              struct diag *d)
{
    struct job *j = arena_alloc(a, sizeof *j);
    struct megatron_args given;
    struct args with = { 0 };
    const char *(*found)[2];
    int n;
    TRY(read_arguments(&given, a, args->word[0], f->from, d));
    TRY(megatron_import(&found, &n, a, &given, asked_model(args), d));
    for (int i = 0; i < n; i++) args_add(&with, a, found[i][0], found[i][1]);
    for (int i = 0; i < args->n_plan; i++) args_add(&with, a, args->plan[i][0], args->plan[i][1]);
    TRY(args_job(j, a, &with, 0, d));
    const char *note[MEGATRON_NOTES], *text = "";
    const int n_note = megatron_notes(note, a, &given, j);
    json_t *notes = json_array();
    for (int i = 0; i < n_note; i++) {
        text = arena_printf(a, "%s# %s\n", text, note[i]);
        json_array_append_new(notes, json_string(note[i]));
    }
    text = arena_printf(a, "%s%s", text, plan_text(a, &j->plan));
    enum err e = OK;
    if (!args->json) e = give(f, text, "the plan", d);
    else if (*f->out) e = save_text(f->out, text, strlen(text), d);
    if (!args->json || e != OK) return json_decref(notes), e;
    report_document(json_pack("{s:s,s:s,s:o}", "from", import_names[f->from], "plan", text, "notes", notes));
    return OK;
}

/* ---- a system ---- */

static const char *asked(const struct args *args, const char *key)
{
    for (int i = args->n_plan - 1; i >= 0; i--)
        if (strcmp(args->plan[i][0], key) == 0) return args->plan[i][1];
    return NULL;
}

static enum err from_nccl(struct arena *a, const struct args *args, const struct import_flags *f, struct diag *d)
{
    const char *base = asked(args, "system");
    struct nccl_said said;
    struct system s;
    char *text = "";
    if (!base)
        return fail(d, ERR_CONFIG, "--system is missing: name the one whose other figures are kept, such as "
            "--system h100-sxm");
    TRY(system_read(&s, a, base, d));
    TRY(read_file(&text, a, args->word[0], d));
    TRY(f->from == IMPORT_NCCL_TOPO ? nccl_topo(&s, &said, a, args->word[0], text, strlen(text), d)
                                    : nccl_tests(&s, &said, a, args->word[0], text, d));
    snprintf(s.name, sizeof s.name, "%.50s", arena_printf(a, "%s-%s", s.name, import_names[f->from]));
    const char *yaml = arena_printf(a, "# %s, and from %s:\n", base, args->word[0]);
    for (int i = 0; i < said.n; i++) yaml = arena_printf(a, "%s#   %s\n", yaml, said.text[i]);
    yaml = arena_printf(a, "%s%s", yaml, system_text(a, &s));
    if (!args->json) return give(f, yaml, "the system", d);
    if (*f->out) TRY(save_text(f->out, yaml, strlen(yaml), d));
    report_document(json_pack("{s:s,s:s}", "from", import_names[f->from], "system", yaml));
    return OK;
}

enum err verb_import(int argc, char **argv, struct diag *d)
{
    static const struct args_spec spec = {
        .verb       = "import",
        .words      = "FILE",
        .flag       = flags,
        .n_flag     = LEN(flags),
        .takes_plan = 1,
        .min_words  = 1,
        .max_words  = 1,
        .what       = "a checkpoint, a model or a plan from the files of other software",
    };
    struct import_flags f;
    struct arena a = { 0 };
    struct args args;
    enum err e = args_parse(&args, &f, &spec, &a, argc, argv, d);
    if (e == OK && args.help) args_help(&spec, &args);
    else if (e == OK) e = f.from == IMPORT_HF            ? from_hf(&a, &args, &f, d)
                          : f.from >= IMPORT_NCCL_TOPO ? from_nccl(&a, &args, &f, d)
                                                       : from_megatron(&a, &args, &f, d);
    arena_free(&a);
    return e;
}
