/* moefold completion, moefold man: every verb is asked for its options (--help=completion, --help=man), and what
 * they print is put between a beginning and an end. */
#include "tools/args.h"
#include "tools/guide.h"
#include "tools/verb.h"
#include <stdio.h>
#include <string.h>

static enum err ask_all(const char *form, struct diag *d)
{
    for (int i = 0; i < verb_n; i++) {
        char *argv[] = { (char *)form, NULL };
        TRY(verb_all[i].run(1, argv, d));
    }
    return OK;
}

/* ---- completion ---- */

static enum err print_completion(int zsh, struct diag *d)
{
    if (zsh) printf("#compdef moefold\nautoload -U +X bashcompinit && bashcompinit\n");
    printf("# Words for moefold; made by `moefold completion %s`.\n_moefold() {\n"
           "    local cur=\"${COMP_WORDS[COMP_CWORD]}\" prev=\"${COMP_WORDS[COMP_CWORD-1]}\" words=''\n"
           "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n        words='", zsh ? "zsh" : "bash");
    for (int i = 0; i < verb_n; i++) printf("%s%s", i ? " " : "", verb_all[i].name);
    printf("'\n    else\n    case \"${COMP_WORDS[1]}\" in\n");
    TRY(ask_all("--help=completion", d));
    printf("    esac\n    fi\n    COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n}\n"
           "complete -o default -F _moefold moefold\n");
    return OK;
}

enum err verb_completion(int argc, char **argv, struct diag *d)
{
    static const struct args_spec spec = { .verb = "completion", .words = "bash|zsh", .min_words = 1, .max_words = 1,
                                           .what = "words for a shell: source <(moefold completion bash)" };
    struct arena a = { 0 };
    struct args args;
    enum err e = args_parse(&args, NULL, &spec, &a, argc, argv, d);
    if (e == OK && args.help) args_help(&spec, &args);
    else if (e == OK && strcmp(args.word[0], "bash") != 0 && strcmp(args.word[0], "zsh") != 0)
        e = fail(d, ERR_CONFIG, "'%s' is no shell that completions are made for: give bash or zsh",
                 cfg_shown(args.word[0]).text);
    else if (e == OK) e = print_completion(strcmp(args.word[0], "zsh") == 0, d);
    arena_free(&a);
    return e;
}

/* ---- man ---- */

static enum err print_man(struct diag *d)
{
    printf(".TH MOEFOLD 1\n.SH NAME\nmoefold \\- plans, predicts and runs Mixture\\-of\\-Experts training\n"
           ".SH SYNOPSIS\n.B moefold\n.I verb\n[words] [\\-\\-options] [\\-\\-json] [\\-\\-help]\n"
           ".SH DESCRIPTION\nA plan folds one set of GPUs twice: once for attention, once for experts. "
           "Every option of a plan is a flag of the same name;\n\\fB\\-\\-json\\fR prints one document.\n"
           ".SH VERBS\n");
    TRY(ask_all("--help=man", d));
    printf(".SH OPTIONS OF A PLAN\n");
    guide_man_plan();
    printf(".SH EXIT STATUS\n0: done. 1: the answer is no (nothing fits, a check failed, a capacity "
        "overflowed). 2: bad "
           "input, with one line that says where and what to do.\n");
    return OK;
}

enum err verb_man(int argc, char **argv, struct diag *d)
{
    static const struct args_spec spec = { .verb = "man", .words = "",
        .what = "the man page: moefold man > moefold.1" };
    struct arena a = { 0 };
    struct args args;
    enum err e = args_parse(&args, NULL, &spec, &a, argc, argv, d);
    if (e == OK && args.help) args_help(&spec, &args);
    else if (e == OK) e = print_man(d);
    arena_free(&a);
    return e;
}
