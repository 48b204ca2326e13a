/* Calibrated system and stack files: the built-in texts with only the scalars replaced that parameters move, so that
 * every comment and every other number stays. */
#ifndef TOOLS_FIT_WRITE_H
#define TOOLS_FIT_WRITE_H
#include "tools/fit/fit_param.h"

/* The text of a description with what `value` makes of its keys. ERR_CONFIG where a key that is moved does not stand
 * in it. */
enum err fit_write_text(const char **to, struct arena *a, const struct fit_params *p, const double *value,
                        const struct cfg_file *from, struct diag *d);
/* DIR/systems/NAME.yaml and DIR/stacks/NAME.yaml of all that are moved; folders are made. Counts them. */
enum err fit_write_all(int *n, struct arena *a, const struct fit_params *p, const double *value, const char *dir,
                       struct diag *d);

/* DIR/FOLDER/NAME.yaml, whole; folders are made. */
enum err fit_write_file(struct arena *a, const char *dir, const char *folder, const char *name, const char *text,
                        struct diag *d);

#endif
