/* libFuzzer: any bytes as a checkpoint's manifest, and as the name of a piece of a parameter. */
#include "exec/checkpoint.h"
#include "tests/fuzz.h"
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

static void piece(const uint8_t *data, size_t size_B)
{
    char name[256];
    struct checkpoint_piece p;
    int key_n;
    if (size_B >= sizeof name) return;
    memcpy(name, data, size_B);
    name[size_B] = '\0';
    if (checkpoint_parse(&p, &key_n, name) != OK) return;
    if (key_n < 1 || key_n >= (int)size_B || p.row_end <= p.row || p.col_end <= p.col || p.expert < 0)
        abort();
}

/* The manifest is a link to a file in memory: a disk would be the slowest part. */
static int manifest(char dir[64])
{
    static int f = -1;
    static char made[] = "/tmp/moefold-fuzz-XXXXXX";
    if (f < 0) {
        char path[64], target[32];
        f = memfd_create("manifest", 0);
        if (f < 0 || !mkdtemp(made)) abort();
        snprintf(path, sizeof path, "%s/manifest.json", made);
        snprintf(target, sizeof target, "/proc/self/fd/%d", f);
        if (symlink(target, path) != 0) abort();
    }
    strcpy(dir, made);
    return f;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_B)
{
    static const char before[] =
        "{\"format\":\"moefold checkpoint\",\"version\":1,\"step\":1,\"sequences\":8,\"seq\":8,\"data\":\"\","
        "\"eval_split\":0,\"optimizer\":\"adamw\",\"shards\":[{\"file\":\"a\",";
    char dir[64], text[8192];
    struct arena a = { 0 };
    struct diag d = { 0 };
    struct checkpoint_file c = { 0 };
    if (size_B < 1 || size_B > 4096) return 0;
    piece(data, size_B);
    const int file = manifest(dir), within = data[0] % 2 == 0;
    const int n = snprintf(text, sizeof text, "%s%.*s%s", within ? before : "", (int)size_B - 1,
                           (const char *)data + 1, within ? "}]}" : "");
    if (ftruncate(file, 0) != 0 || pwrite(file, text, (size_t)n, 0) != n) abort();
    const enum err e = checkpoint_open(&c, &a, dir, &d);
    fuzz_answer(e, &d);
    if (e == OK) checkpoint_close(&c);
    arena_free(&a);
    return 0;
}
