/* Backends other than the CPU's are modules beside the program, opened when asked for: the program itself then starts without
 * their libraries, and runs where those are not. */
#include "exec/backend_load.h"
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int backend_load_path(char *to, int to_B, const char *name)
{
    char self[4096];
    const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n < 0) return 0;
    self[n] = 0;
    char *slash = strrchr(self, '/');
    if (slash) *slash = 0;
    return snprintf(to, (size_t)to_B, "%s/moefold_%s.so", self, name) < to_B;
}

enum err backend_load(const struct backend **b, const char *name, struct diag *d)
{
    char path[4200];
    if (!backend_load_path(path, sizeof path, name) || access(path, R_OK) != 0)
        return fail(d, ERR_DEVICE, "--backend %s: moefold_%s.so is not beside the program: it is built where nvcc is found; use "
                                   "--backend cpu", name, name);
    void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!module) return fail(d, ERR_DEVICE, "--backend %s: %s", name, dlerror());
    const struct backend *found = dlsym(module, "backend_module");
    if (!found || found->version != BACKEND_VERSION)
        return fail(d, ERR_DEVICE, "--backend %s: %s is of another version (%d, this program's is %d): build both again", name, path,
                    found ? found->version : 0, BACKEND_VERSION);
    TRY(found->open(d));
    *b = found;
    return OK;
}
