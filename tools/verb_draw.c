/* moefold draw: pictures of a plan. `-o F.dot` writes Graphviz's text, `-o F.svg` runs `dot -Tsvg` on it, without a
 * shell; the pipeline is SVG of our own, because Graphviz has no time axis. */
#include "sim/predict.h"
#include "tools/args.h"
#include "tools/draw.h"
#include "tools/report.h"
#include "tools/save.h"
#include "tools/verb.h"
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *const passes[] = { "fwd", "bwd", NULL };
struct draw_flags { char out[512], group[16]; int32_t stage, chunk, backward, layer; };
static const struct opt flags[] = {
    { .key = "out", ARGS_TEXT(struct draw_flags, out, ""),
      .help = "also -o: the picture, F.svg, or Graphviz's text, F.dot" },
    { .key = "group", ARGS_TEXT(struct draw_flags, group, "ep"),
      .help = "groups: whose members share a colour (tp, cp, dp, ep, etp, edp, pp, ..)" },
    { .key = "stage", ARGS_INT(struct draw_flags, stage, 0, 4096, "0"), .help = "program: the pipeline stage" },
    { .key = "chunk", ARGS_INT(struct draw_flags, chunk, 0, 4096, "0"),
      .help = "program: which of the stage's chunks" },
    { .key = "pass", ARGS_NAME(struct draw_flags, backward, passes, "fwd"), .help = "program: which way" },
    { .key = "layer", ARGS_INT(struct draw_flags, layer, -1, 4096, "-1"),
      .help = "program: one layer only; -1: all" },
};

static int ends_in(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n > m && strcmp(text + n - m, end) == 0;
}

/* ---- dot ---- */

/* Runs dot from one file to another. What it grumbles about is not ours to show. */
static enum err run_dot(FILE *in, FILE *out, const char *path, struct diag *d)
{
    posix_spawn_file_actions_t files;
    char *argv[] = { "dot", "-Tsvg", NULL };
    pid_t pid;
    int status = -1;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, fileno(in), STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&files, fileno(out), STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    const int failed = posix_spawnp(&pid, "dot", &files, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&files);
    if (failed)
        return fail(d, ERR_IO, "%s: dot cannot be started: %s; install graphviz, or write %.*s.dot", path,
                    strerror(failed), (int)strlen(path) - 4, path);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
    if (status == 0) return OK;
    return fail(d, ERR_IO, "%s: dot ended with %s %d and drew nothing", path,
                WIFEXITED(status) ? "status" : "signal", WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
}

static enum err broken(const char *path, struct diag *d)
{
    return fail(d, ERR_IO, "%s: no temporary file: %s", path, strerror(errno));
}

/* What dot wrote, from the beginning. */
static enum err keep_drawn(FILE *out, const char *path, struct arena *a, struct diag *d)
{
    const off_t n = lseek(fileno(out), 0, SEEK_END);
    char *svg = arena_alloc(a, n > 0 ? (size_t)n : 1);
    if (n < 0 || fseeko(out, 0, SEEK_SET) != 0 || fread(svg, 1, (size_t)n, out) != (size_t)n)
        return broken(path, d);
    return save_text(path, svg, (size_t)n, d);
}

/* Both texts go through files without a name, so that dot may stop reading when it likes. */
static enum err draw_by_dot(const char *text, size_t text_B, const char *path, struct arena *a, struct diag *d)
{
    FILE *in = tmpfile(), *out = tmpfile();
    enum err e = in && out ? OK : broken(path, d);
    if (e == OK && (fwrite(text, 1, text_B, in) != text_B || fflush(in) != 0 ||
                    lseek(fileno(in), 0, SEEK_SET) != 0))
        e = broken(path, d);
    if (e == OK) e = run_dot(in, out, path, d);
    if (e == OK) e = keep_drawn(out, path, a, d);
    if (in) fclose(in);
    if (out) fclose(out);
    return e;
}

/* ---- what can be drawn ---- */

static enum err groups(FILE *out, struct arena *a, const struct job *j, const struct draw_flags *f, struct diag *d)
{
    (void)a;
    if (j->plan.gpus > DRAW_GPUS)
        return fail(d, ERR_LIMIT, "gpus = %d: a picture holds at most %d", j->plan.gpus, DRAW_GPUS);
    for (int g = 1; g < GROUP_COUNT; g++) {
        if (strcmp(f->group, fold_group_name((enum group)g)) != 0) continue;
        draw_groups(out, j, (enum group)g);
        return OK;
    }
    return fail(d, ERR_CONFIG,
                "--group: '%s' is no kind of group; try tp, cp, dp, dp-cp, ep, etp, tp-ep, edp or pp",
                cfg_shown(f->group).text);
}

static enum err program(FILE *out, struct arena *a, const struct job *j, const struct draw_flags *f, struct diag *d)
{
    struct program pr = { 0 };
    const struct draw_part part = { f->stage, f->chunk, f->backward, f->layer };
    if (f->stage >= j->plan.pp)
        return fail(d, ERR_CONFIG, "--stage: %d; the plan has stages 0 to %d", f->stage, j->plan.pp - 1);
    if (f->chunk >= j->plan.vpp)
        return fail(d, ERR_CONFIG, "--chunk: %d; a stage has chunks 0 to %d", f->chunk, j->plan.vpp - 1);
    const int c = f->chunk * j->plan.pp + f->stage;
    const struct layout *l = &j->plan.split;
    if (f->layer >= 0 && (f->layer < l->first[c] || f->layer >= l->first[c + 1]))
        return fail(d, ERR_CONFIG, "--layer: %d; chunk %d of stage %d holds layers %d to %d", f->layer, f->chunk,
                    f->stage, l->first[c], l->first[c + 1] - 1);
    program_build(&pr, a, j);
    draw_program(out, &pr, j, &part);
    return OK;
}

static enum err pipeline(FILE *out, struct arena *a, const struct job *j, const struct draw_flags *f,
                         struct diag *d)
{
    struct draw_step w = { 0 };
    (void)f;
    TRY(draw_step_sweep(&w, a, j, d));
    draw_pipeline(out, a, &w.pr, j, &w.t);
    return OK;
}

static enum err memory(FILE *out, struct arena *a, const struct job *j, const struct draw_flags *f, struct diag *d)
{
    struct draw_step w = { 0 };
    (void)f;
    TRY(draw_step_sweep(&w, a, j, d));
    draw_memory(out, &w.pr, j, &w.t, pass_price_all(&w.c, cost_all_s(&w.c, a), a));
    return OK;
}

static enum err topology(FILE *out, struct arena *a, const struct job *j, const struct draw_flags *f, struct diag *d)
{
    struct predict r;
    (void)f;
    (void)d;
    predict_job(&r, NULL, a, j);
    draw_topology(out, j, &r.lines, r.place);
    return OK;
}

static enum err sensitivity(FILE *out, struct arena *a, const struct job *j, const struct draw_flags *f,
    struct diag *d)
{
    struct sensitivity_row row[SENSITIVITY_ROWS];
    struct predict r;
    (void)f;
    (void)d;
    predict_job(&r, NULL, a, j);
    draw_sensitivity(out, row, sensitivity_of(row, a, j, &r));
    return OK;
}

/* Of a run's directory, not of a plan. */
static enum err timeline(FILE *out, struct arena *a, const char *dir, struct diag *d)
{
    struct beside *b = arena_alloc(a, sizeof *b);
    enum err e = beside_read(b, a, dir, "", d);
    if (e == OK && b->job.plan.gpus > DRAW_LANES)
        e = fail(d, ERR_LIMIT, "%s: has %d ranks: a picture holds at most %d", dir, b->job.plan.gpus, DRAW_LANES);
    if (e == OK) draw_timeline(out, a, b);
    json_decref(b->run);
    return e;
}

static const struct subject {
    const char *name;
    enum err (*draw)(FILE *out, struct arena *a, const struct job *j, const struct draw_flags *f, struct diag *d);
    enum err (*draw_run)(FILE *out, struct arena *a, const char *dir, struct diag *d);  /* or of a directory */
    int dot;                                    /* its text is DOT, and SVG is dot's to make */
} subjects[] = { { "groups", groups, NULL, 1 }, { "program", program, NULL, 1 }, { "pipeline", pipeline, NULL, 0 },
                 { "memory", memory, NULL, 0 }, { "topology", topology, NULL, 0 },
                 { "sensitivity", sensitivity, NULL, 0 }, { "timeline", NULL, timeline, 0 } };

static enum err find_subject(const struct subject **s, const char *name, struct diag *d)
{
    for (int i = 0; i < LEN(subjects); i++)
        if (strcmp(subjects[i].name, name) == 0) return *s = &subjects[i], OK;
    return fail(d, ERR_CONFIG, "'%s' cannot be drawn; groups, memory, pipeline, program, sensitivity, "
        "timeline and topology can", cfg_shown(name).text);
}

static enum err check_out(const struct subject *s, const char *path, struct diag *d)
{
    if (ends_in(path, ".svg") || (s->dot && ends_in(path, ".dot"))) return OK;
    return fail(d, ERR_CONFIG, "--out: '%s' should end in .svg%s", cfg_shown(path).text, s->dot ? " or .dot" : "");
}

static enum err answer(struct arena *a, const struct args *args, const struct draw_flags *f, struct diag *d)
{
    const struct subject *s = NULL;
    struct args plan = *args;
    struct job *j = arena_alloc(a, sizeof *j);
    char *text = NULL;
    size_t text_B = 0;
    TRY(find_subject(&s, args->word[0], d));
    TRY(check_out(s, f->out, d));
    plan.n_word = args->n_word - 1;
    plan.word[0] = args->word[1];
    if (s->draw_run && args->n_plan)
        return fail(d, ERR_CONFIG, "--%s: %s draws what was run, whose plan is in its directory: leave it out", args->plan[0][0], s->name);
    if (!s->draw_run) TRY(args_job(j, a, &plan, 0, d));
    else if (args->n_word < 2) return fail(d, ERR_CONFIG, "%s: name the directory that `moefold run --out` wrote", s->name);
    FILE *out = open_memstream(&text, &text_B);
    if (!out) return fail(d, ERR_IO, "%s: no memory for the picture", f->out);
    enum err e = s->draw_run ? s->draw_run(out, a, args->word[1], d) : s->draw(out, a, j, f, d);
    fclose(out);
    if (e == OK)
        e = s->dot && ends_in(f->out, ".svg") ? draw_by_dot(text, text_B, f->out, a, d)
                                              : save_text(f->out, text, text_B, d);
    free(text);
    if (e == OK && args->json) report_document(json_pack("{s:s}", "written", f->out));
    else if (e == OK) printf("%s\n", f->out);
    return e;
}

enum err verb_draw(int argc, char **argv, struct diag *d)
{
    static const struct args_spec spec = {
        .verb = "draw", .words = "groups|memory|pipeline|program|sensitivity|topology [PLAN] -o F.svg, timeline DIR -o F.svg",
            .flag = flags, .n_flag = LEN(flags),
        .takes_plan = 1, .min_words = 1, .max_words = 2, .what = "pictures of a plan",
    };
    struct draw_flags f;
    struct arena a = { 0 };
    struct args args;
    enum err e = args_parse(&args, &f, &spec, &a, argc, argv, d);
    if (e == OK && args.help) args_help(&spec, &args);
    else if (e == OK) e = answer(&a, &args, &f, d);
    arena_free(&a);
    return e;
}
