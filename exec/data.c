/* Files are mapped, not read: a corpus may be larger than memory, and all ranks share its pages. */
#include "exec/data.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- opening ---- */

static enum err data_map(const uint8_t **at, int64_t *n, const char *path, struct diag *d)
{
    struct stat s;
    const int f = open(path, O_RDONLY | O_CLOEXEC);
    if (f < 0) return fail(d, ERR_IO, "--data: %.300s: %s", path, strerror(errno));
    enum err e = OK;
    void *map = MAP_FAILED;
    if (fstat(f, &s) != 0 || !S_ISREG(s.st_mode))
        e = fail(d, ERR_IO, "--data: %.300s: is no plain file", path);
    else if (s.st_size < 1)
        e = fail(d, ERR_CONFIG, "--data: %.300s is empty; a text or a .bin file is needed", path);
    else map = mmap(NULL, (size_t)s.st_size, PROT_READ, MAP_PRIVATE, f, 0);
    if (e == OK && map == MAP_FAILED) e = fail(d, ERR_IO, "--data: %.300s: %s", path, strerror(errno));
    close(f);
    if (e != OK) return e;
    *at = map;
    *n = s.st_size;
    return OK;
}

struct data data_of_text(const uint8_t *text, int64_t n)
{
    return (struct data){ .token = text, .n = n, .n_train = n, .type = DATA_U8, .name = "the text" };
}

static enum err data_open_text(struct data *x, const char *path, double eval, struct diag *d)
{
    TRY(data_map(&x->token, &x->n, path, d));
    x->map = (void *)(uintptr_t)x->token;
    x->map_B = x->n;
    x->n_train = x->n - (int64_t)(eval * (double)x->n);
    return OK;
}

static enum err data_open_pair(struct data *x, struct arena *a, const char *stem, double eval, struct diag *d)
{
    const char *bin = arena_printf(a, "%s.bin", stem), *idx = arena_printf(a, "%s.idx", stem);
    struct data_index index;
    const uint8_t *bytes;
    int64_t n;
    x->name = bin;
    TRY(data_map(&x->token, &x->map_B, bin, d));
    x->map = (void *)(uintptr_t)x->token;
    TRY(data_map(&bytes, &n, idx, d));
    const enum err e = data_index_read(&index, idx, bytes, n, x->map_B, d);
    if (e == OK) {
        x->n = x->n_train = index.tokens;
        x->type = index.type;
        int64_t *end = arena_alloc(a, (size_t)index.documents * sizeof *end + 1);
        x->n_end = data_index_ends(end, &index);
        x->end = end;
        const int64_t last = index.tokens - 1, cut = index.tokens - (int64_t)(eval * (double)index.tokens);
        if (eval > 0) x->n_train = data_index_end_before(&index, cut < last ? cut : last);
    }
    munmap((void *)(uintptr_t)bytes, (size_t)n);
    return e;
}

static int data_has(const char *stem, const char *ending, struct arena *a)
{
    return access(arena_printf(a, "%s%s", stem, ending), F_OK) == 0;
}

/* What the two files of a pair share, or NULL when `path` is not one. */
static const char *data_pair(struct arena *a, const char *path)
{
    const size_t n = strlen(path);
    const char *ending = n > 4 ? path + n - 4 : "";
    if (strcmp(ending, ".idx") == 0) return arena_printf(a, "%.*s", (int)n - 4, path);
    if (strcmp(ending, ".bin") == 0) {
        const char *stem = arena_printf(a, "%.*s", (int)n - 4, path);
        return data_has(stem, ".idx", a) ? stem : NULL;
    }
    return access(path, F_OK) != 0 && data_has(path, ".idx", a) ? path : NULL;
}

enum err data_open(struct data *x, struct arena *a, const char *path, double eval, struct diag *d)
{
    struct data read = { .name = arena_strdup(a, path), .type = DATA_U8 };
    const char *pair = data_pair(a, path);
    const enum err e = pair ? data_open_pair(&read, a, pair, eval, d) : data_open_text(&read, path, eval, d);
    if (e == OK) *x = read;
    else data_close(&read);
    return e;
}

void data_close(struct data *x)
{
    if (x->map) munmap(x->map, (size_t)x->map_B);
    *x = (struct data){ 0 };
}

/* ---- sequences ---- */

static int64_t data_tokens(const struct data *x, enum data_part part)
{
    return part == DATA_TRAIN ? x->n_train : x->n - x->n_train;
}

enum err data_check(const struct data *x, enum data_part part, int64_t seq, struct diag *d)
{
    const int64_t n = data_tokens(x, part), least = seq + DATA_BEHIND + 1;
    if (n >= least) return OK;
    return fail(
        d, ERR_CONFIG,
        "%.300s has %lld tokens to %s; sequences of %lld tokens need at least %lld: shorten --seq, give more "
        "data%s",
        x->name, (long long)n, part == DATA_TRAIN ? "train on" : "evaluate", (long long)seq, (long long)least,
        x->n_train < x->n ? " or another --eval-split" : "");
}

/* Offsets at which a pass may be cut: below `seq`, so that no token is left out for long. */
static int64_t data_offsets(const struct data *x, int64_t seq)
{
    const int64_t room = x->n_train - seq - DATA_BEHIND;
    return !x->shuffle ? 1 : room < seq ? room : seq;
}

int64_t data_sequences(const struct data *x, enum data_part part, int64_t seq)
{
    const int64_t n = data_tokens(x, part) - DATA_BEHIND;
    return part == DATA_EVAL ? n / seq : (n - (data_offsets(x, seq) - 1)) / seq;
}

/* splitmix64 (Steele, Lea, Flood 2014). */
static uint64_t data_hash(uint64_t h)
{
    h += 0x9e3779b97f4a7c15u;
    h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9u;
    h = (h ^ h >> 27) * 0x94d049bb133111ebu;
    return h ^ h >> 31;
}

/* A bijection of [0, n) by `key`, without a table: four Feistel rounds over the next power of four, walked
 * until the value is in range (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", section 3). */
static int64_t data_permute(int64_t i, int64_t n, uint64_t key)
{
    int bits = 1;
    while ((uint64_t)1 << 2 * bits < (uint64_t)n) bits++;
    const uint64_t mask = ((uint64_t)1 << bits) - 1;
    uint64_t v = (uint64_t)i;
    do {
        uint64_t left = v >> bits, right = v & mask;
        for (uint64_t round = 0; round < 4; round++) {
            const uint64_t next = left ^ (data_hash(key ^ data_hash(right << 3 | round)) & mask);
            left = right;
            right = next;
        }
        v = left << bits | right;
    } while (v >= (uint64_t)n);
    return (int64_t)v;
}

int64_t data_start(const struct data *x, enum data_part part, int64_t seq, int64_t s)
{
    const int64_t n = data_sequences(x, part, seq), pass = s / n, i = s % n;
    if (part == DATA_EVAL) return x->n_train + i * seq;
    if (!x->shuffle) return s * seq % (x->n_train - seq - DATA_BEHIND);
    const uint64_t key = data_hash(x->seed ^ data_hash((uint64_t)pass));
    const int64_t offset = (int64_t)(data_hash(key) % (uint64_t)data_offsets(x, seq));
    return offset + data_permute(i, n, key) * seq;
}
