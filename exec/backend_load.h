/* Opens a backend's module, moefold_NAME.so beside the program. It stays open until the program ends. */
#ifndef EXEC_BACKEND_LOAD_H
#define EXEC_BACKEND_LOAD_H
#include "exec/backend.h"

/* ERR_DEVICE: there is no module, or it finds no device to work on; the text says which. */
enum err backend_load(const struct backend **b, const char *name, struct diag *d);
/* Where the module is looked for; 0: no such place, or to_B bytes are too few. */
int backend_load_path(char *to, int to_B, const char *name);

#endif
