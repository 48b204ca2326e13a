/* run --record-routes, --replay-routes: the choice of every token, for another run; run --record-load: which experts tokens chose, counted, as plan key `load` reads it back (models/recorded.h). */
#ifndef TOOLS_RECORD_H
#define TOOLS_RECORD_H
#include "exec/routes.h"

/* Room for the choices of so many steps. ERR_CONFIG: a model without experts, more choices than are held; ERR_IO: `path`
 * could not be written. */
enum err record_open(struct routes *r, struct arena *a, const struct job *j, int first, int steps, const char *flag,
                     const char *path, struct diag *d);
/* Read from `path`: which of its steps is the run's first. ERR_CONFIG: not of such a run, with both numbers. */
enum err record_replay(struct routes *r, int32_t *from, struct arena *a, const struct job *j, int first, int steps, const char *path,
                       struct diag *d);
/* All choices, as record_replay reads them. */
enum err record_routes(const struct routes *r, const char *path, struct diag *d);
/* A list for each layer in which a choice was made. */
enum err record_save(const struct routes *r, const struct model *m, const char *path, struct diag *d);

#endif
