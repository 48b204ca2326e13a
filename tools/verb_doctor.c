/* moefold doctor: what this machine can do. Looks at files only: it starts no program, opens no device and loads no
 * driver, so it cannot hang on a broken one. A thing that is absent is named with what would need it. */
#include "exec/backend_load.h"
#include "models/cfg.h"
#include "tools/args.h"
#include "tools/report.h"
#include "tools/verb.h"
#include <assert.h>
#include <glob.h>
#include <stddef.h>
#include <unistd.h>

struct doctor_check { const char *what; int32_t found; const char *detail, *used_by; };
static const struct report_col check_cols[] = {
    { "what", "what", REPORT_TEXT, offsetof(struct doctor_check, what) },
    { "found", "found", REPORT_BOOL, offsetof(struct doctor_check, found) },
    { "detail", "detail", REPORT_TEXT, offsetof(struct doctor_check, detail) },
    { "used_by", "used by", REPORT_TEXT, offsetof(struct doctor_check, used_by) },
};

/* A thing is there when one of these files is. */
static const struct { const char *what, *used_by, *path[5]; } files[] = {
    { "Graphviz dot", "draw -o F.svg", { "/usr/bin/dot", "/usr/local/bin/dot", "/bin/dot" } },
    { "CUDA compiler", "building the CUDA module", { "/usr/local/cuda/bin/nvcc", "/usr/bin/nvcc", "/opt/cuda/bin/nvcc" } },
    { "NVIDIA driver", "run --backend cuda", { "/proc/driver/nvidia/version", "/dev/nvidiactl" } },
    { "MPI", "tests of communicators over a job", { "/usr/bin/mpirun", "/usr/local/bin/mpirun", "/opt/openmpi/bin/mpirun" } },
};

/* The CUDA backend is a file beside the program. */
static struct doctor_check check_module(struct arena *a, const char *what, const char *name, const char *used_by)
{
    char path[4200] = "";
    const int found = backend_load_path(path, sizeof path, name) && access(path, R_OK) == 0;
    return (struct doctor_check){ what, found, found ? arena_strdup(a, path) : "absent", used_by };
}

/* Things that are there once for each entry of a folder of the kernel's. */
static const struct { const char *what, *used_by, *pattern; } entries[] = {
    { "NVIDIA GPUs", "run --backend cuda", "/proc/driver/nvidia/gpus/*" },
    { "InfiniBand ports", "nothing yet", "/sys/class/infiniband/*/ports/*" },
};

static struct doctor_check check_entries(int i, struct arena *a)
{
    glob_t found = { 0 };
    const size_t n = glob(entries[i].pattern, 0, NULL, &found) == 0 ? found.gl_pathc : 0;
    globfree(&found);
    return (struct doctor_check){ entries[i].what, n > 0, n ? arena_printf(a, "%zu", n) : "none",
        entries[i].used_by };
}

/* The widest vectors of this CPU. */
static const char *vectors(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) return "AVX-512";
    if (__builtin_cpu_supports("avx2")) return "AVX2";
    return "SSE2";
#else
    return "of this architecture";
#endif
}

static struct doctor_check check_file(int i)
{
    const char *const *path = files[i].path;
    while (*path && access(*path, R_OK) != 0) path++;
    return (struct doctor_check){ files[i].what, *path != NULL, *path ? *path : "absent", files[i].used_by };
}

#if defined(__clang__)
#define COMPILER __VERSION__            /* names itself */
#else
#define COMPILER "gcc " __VERSION__
#endif

static const char *built_with(void)
{
#if defined(__SANITIZE_ADDRESS__)
    return COMPILER ", AddressSanitizer";
#elif defined(__SANITIZE_THREAD__)
    return COMPILER ", ThreadSanitizer";
#else
    return COMPILER;
#endif
}

enum { DOCTOR_MOST = 7 + LEN(entries) + LEN(files) };

static int collect(struct doctor_check to[DOCTOR_MOST], struct arena *a)
{
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    const double memory_B = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    int n = 0;
    to[n++] = (struct doctor_check){ "CPU cores", 1, arena_printf(a, "%ld", cores),
                                     "run: one thread a rank and stream" };
    to[n++] = (struct doctor_check){ "memory", 1, units_human(arena_alloc(a, 32), 32, memory_B, UNIT_B),
                                     "run: all ranks' arenas" };
    to[n++] = (struct doctor_check){ "CPU vectors", 1, vectors(), "run: kernels" };
    for (int i = 0; i < LEN(entries); i++) to[n++] = check_entries(i, a);
    for (int i = 0; i < LEN(files); i++) to[n++] = check_file(i);
    to[n++] = check_module(a, "CUDA module", "cuda", "run --backend cuda");
    to[n++] = check_module(a, "MPI module", "mpi", "run --comm mpi");
    to[n++] = (struct doctor_check){ "built with", 1, built_with(), "" };
    to[n++] = (struct doctor_check){ "built-in files", cfg_embedded_n > 0, arena_printf(a, "%d", cfg_embedded_n),
                                     "list" };
    assert(n == DOCTOR_MOST);
    return n;
}

enum err verb_doctor(int argc, char **argv, struct diag *d)
{
    static const struct args_spec spec = { .verb = "doctor", .words = "", .what = "what this machine can do" };
    struct doctor_check check[DOCTOR_MOST];
    struct arena a = { 0 };
    struct args args;
    enum err e = args_parse(&args, NULL, &spec, &a, argc, argv, d);
    if (e != OK) goto done;
    if (args.help) {
        args_help(&spec, &args);
        goto done;
    }
    const struct report_list list = { check_cols, LEN(check_cols), check, sizeof check[0], collect(check, &a) };
    if (args.json) report_document(json_pack("{s:o}", "checks", report_rows(&list)));
    else report_table("This machine", &list, -1);
done:
    arena_free(&a);
    return e;
}
