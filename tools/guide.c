/* Words for shells and for man, from the tables of options. Nothing here knows a verb by name. */
#include "tools/guide.h"
#include <stdio.h>
#include <string.h>

/* ---- completion ---- */

/* Names that an option may have: of a list, of its words, of the built-in files of its kind. */
static int print_values(const struct opt *o)
{
    static const struct { const char *key, *kind; } files[] = {
        { "model", "models" }, { "system", "systems" }, { "stack", "stacks" } };
    int n = 0;
    if (o->type == OPT_BOOL) return printf("0 1");
    for (int i = 0; o->names && o->names[i]; i++) n += printf("%s%s", n ? " " : "", o->names[i]);
    for (int i = 0; o->words && o->words[i].text; i++) n += printf("%s%s", n ? " " : "", o->words[i].text);
    for (int f = 0; f < LEN(files); f++)
        for (int i = 0; strcmp(files[f].key, o->key) == 0 && i < cfg_embedded_n; i++)
            if (strcmp(cfg_embedded[i].kind, files[f].kind) == 0) n += printf("%s%s", n ? " " : "",
                cfg_embedded[i].name);
    return n;
}

static int has_values(const struct opt *o)
{
    return o->type == OPT_BOOL || o->names || o->words || strcmp(o->key, "model") == 0 ||
           strcmp(o->key, "system") == 0 || strcmp(o->key, "stack") == 0;
}

static void value_arms(const struct opt *opt, int n)
{
    for (int i = 0; i < n; i++) {
        if (!has_values(&opt[i]) || (opt[i].type == OPT_BOOL && strcmp(opt[i].def, "0") == 0
            && !opt[i].words)) continue;
        printf("        --%s) words='", opt[i].key);
        print_values(&opt[i]);
        printf("' ;;\n");
    }
}

static void flag_words(const struct opt *opt, int n)
{
    for (int i = 0; i < n; i++) printf(" --%s", opt[i].key);
}

void guide_completion(const struct args_spec *spec, const struct opt *common, int n_common)
{
    printf("    %s)\n        case $prev in\n", spec->verb);
    value_arms(spec->flag, spec->n_flag);
    if (spec->takes_plan) value_arms(plan_opts, plan_n_opt);
    printf("        *) words='");
    flag_words(spec->flag, spec->n_flag);
    flag_words(common, n_common);
    if (spec->takes_plan) flag_words(plan_opts, plan_n_opt);
    for (int i = 0; spec->takes_plan && spec->max_words && i < cfg_embedded_n; i++)
        if (strcmp(cfg_embedded[i].kind, "plans") == 0) printf(" %s", cfg_embedded[i].name);
    printf("' ;;\n        esac ;;\n");
}

/* ---- man ---- */

void guide_roff(const char *text)
{
    if (*text == '.' || *text == '\'') fputs("\\&", stdout);
    for (; *text; text++) {
        if (*text == '\\') fputs("\\e", stdout);
        else if (*text == '-') fputs("\\-", stdout);
        else fputc(*text, stdout);
    }
}

static void options(const struct opt *opt, int n)
{
    for (int i = 0; i < n; i++) {
        printf(".TP\n\\fB\\-\\-");
        guide_roff(opt[i].key);
        printf("\\fR");
        if (opt[i].names && (opt[i].type == OPT_NAME || opt[i].type == OPT_SET)) {
            const char *between = opt[i].type == OPT_SET ? "+" : "|";
            fputc(' ', stdout);
            for (int k = 0; opt[i].names[k]; k++) {
                if (k) fputs(between, stdout);
                guide_roff(opt[i].names[k]);
            }
        }
        fputc('\n', stdout);
        guide_roff(opt[i].help);
        if (opt[i].def && *opt[i].def) {
            printf(" (default ");
            guide_roff(opt[i].def);
            fputc(')', stdout);
        }
        fputc('\n', stdout);
    }
}

void guide_man(const struct args_spec *spec)
{
    printf(".SS ");
    guide_roff(spec->verb);
    fputc(' ', stdout);
    guide_roff(spec->words);
    fputc('\n', stdout);
    guide_roff(spec->what);
    printf(".\n%s", spec->takes_plan ? "Takes the options of a plan too.\n" : "");
    options(spec->flag, spec->n_flag);
}

void guide_man_plan(void)
{
    options(plan_opts, plan_n_opt);
}
