/* The program `moefold`: finds the verb, runs it, turns its outcome into the exit status. 0: done. 1: the answer is
 * no (nothing fits, a check failed, a capacity overflowed). 2: bad input, with one line that says what, both
 * numbers, and the way out. */
#include "exec/world.h"
#include "tools/launched.h"
#include "tools/verb.h"
#include <signal.h>
#include <stdio.h>
#include <string.h>

const struct verb verb_all[] = {
    { "predict", verb_predict, "what one plan needs and how fast it is: memory, communication, time, cost" },
    { "search",  verb_search,  "the best plans of a model on a cluster, and why the others lost" },
    { "run",     verb_run,     "train under a plan on this machine; writes metrics and a trace" },
    { "upcycle", verb_upcycle, "an MoE made of a dense checkpoint" },
    { "verify",  verb_verify,  "one program on two backends, compared op by op" },
    { "calibrate", verb_calibrate, "what this machine's ops take, timed, as a system file" },
    { "compare", verb_compare, "predicted beside measured, op by op, of a directory that run wrote" },
    { "validate", verb_validate, "measured runs of others, predicted: errors, where they sit, signs of changes" },
    { "import",  verb_import,  "a checkpoint, a model or a plan from other software's files" },
    { "export",  verb_export,  "a checkpoint or a plan as other software takes it" },
    { "draw",    verb_draw,    "pictures: groups, pipeline, program" },
    { "report",  verb_report,  "one page about a plan: figures, tables and pictures in one HTML file" },
    { "list",    verb_list,    "the built-in models, systems, stacks and plans" },
    { "doctor",  verb_doctor,  "what this machine can do" },
    { "completion", verb_completion, "words for a shell" },
    { "man",     verb_man,     "the man page" },
};
const int verb_n = LEN(verb_all);

static void usage(FILE *to)
{
    fprintf(to, "moefold plans, predicts and runs Mixture-of-Experts training.\n\n"
                "usage: moefold VERB ... [--json] [--help]\n\n");
    for (int i = 0; i < verb_n; i++) fprintf(to, "  %-12s%s\n", verb_all[i].name, verb_all[i].what);
    fprintf(to, "\nmoefold VERB --help lists the flags of a verb. First steps:\n"
                "  moefold search --model deepseek-v3 --system gb200-nvl72 --gpus 256 --seq 4096 --gbs 4096\n"
                "  moefold run --model tiny-moe --ranks 4 --ep 4 --steps 10\n");
}

static enum err no_verb(const char *word, struct diag *d)
{
    return fail(d, ERR_CONFIG,
                "no verb is called '%s'; the verbs are predict, search, run, import, export, upcycle, verify, "
                "calibrate, compare, validate, draw, report, list, doctor, completion, man",
                word);
}

static enum err dispatch(int argc, char **argv, struct diag *d)
{
    const char *word = argv[1];
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0)
        return usage(stdout), OK;
    for (int i = 0; i < verb_n; i++)
        if (strcmp(word, verb_all[i].name) == 0) return verb_all[i].run(argc - 2, argv + 2, d);
    return no_verb(word, d);
}

static int exit_status(enum err e)
{
    switch (e) {
    case OK: return 0;
    case ERR_NO:
    case ERR_COMM: return 1;
    default: return 2;
    }
}

/* Of a job's process; NULL: alone. */
static const struct world *in_world;

void verb_world(const struct world *w)
{
    in_world = w;
}

int main(int argc, char **argv)
{
    if (argc < 2) return usage(stderr), 2;
    signal(SIGXFSZ, SIG_IGN);               /* a limit on files is an error of the write that meets it */
    struct diag d = { "" };
    enum err e = dispatch(argc, argv, &d);
    if (fflush(stdout) != 0 || ferror(stdout)) e = fail(&d, ERR_IO, "stdout: the answer could not be written");
    if (d.text[0] && launched_first()) fprintf(stderr, "moefold: %s\n", d.text);
    if (in_world) in_world->close(exit_status(e));
    return exit_status(e);
}
