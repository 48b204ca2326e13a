/* See world.h. */
#include "exec/backend_load.h"
#include "exec/world.h"
#include <dlfcn.h>
#include <unistd.h>

enum err world_load(const struct world **w, struct world_seat *seat, const char *name, struct diag *d)
{
    char path[4200];
    if (!backend_load_path(path, sizeof path, name) || access(path, R_OK) != 0)
        return fail(d, ERR_CONFIG, "--comm %s: moefold_%s.so is not beside the program: it is built where an MPI is found; use "
                    "--comm shm", name, name);
    void *module = dlopen(path, RTLD_NOW | RTLD_GLOBAL);    /* an MPI's own plugins look for its symbols */
    if (!module) return fail(d, ERR_CONFIG, "--comm %s: %s", name, dlerror());
    const struct world *found = dlsym(module, "world_module");
    if (!found || found->version != WORLD_VERSION)
        return fail(d, ERR_CONFIG, "--comm %s: %s is of another version (%d, this program's is %d): build both again", name, path,
                    found ? found->version : 0, WORLD_VERSION);
    TRY(found->open(seat, d));
    *w = found;
    return OK;
}
