/* What a verb takes, for who is not a reader of --help: parts of a shell's completion and of a man page, made from
 * the same rows of options. */
#ifndef TOOLS_GUIDE_H
#define TOOLS_GUIDE_H
#include "tools/args.h"

/* One arm of a `case $verb`: the flags, and the values of those that have a list. Bash, and zsh through
 * bashcompinit. */
void guide_completion(const struct args_spec *spec, const struct opt *common, int n_common);
/* One .SS of a man page; the plan's options are a section of their own, guide_man_plan. */
void guide_man(const struct args_spec *spec);
void guide_man_plan(void);
/* Text that roff reads as it is. */
void guide_roff(const char *text);

#endif
