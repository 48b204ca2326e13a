/* At least 200 damaged inputs for every reader of a file, made from a good one by the same few strokes: each is refused
 * with an error of exit status 2 and one line that says where, or still means something and is read. None crashes. */
#include "exec/checkpoint.h"
#include "exec/data.h"
#include "exec/safetensors.h"
#include "models/recorded.h"
#include "models/trace.h"
#include "tests/test.h"
#include "tools/csv.h"
#include "tools/megatron.h"
#include "tools/nccl.h"
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

struct bytes { unsigned char *at; size_t n; };
typedef enum err reader(struct arena *a, const struct bytes *b, struct diag *d);

/* ---- readers ---- */

static enum err read_model(struct arena *a, const struct bytes *b, struct diag *d)
{
    struct cfg c;
    struct model m;
    TRY(cfg_read_text(&c, a, "bad", (const char *)b->at, b->n, d));
    return model_fill(&m, &c, d);
}

static enum err read_system(struct arena *a, const struct bytes *b, struct diag *d)
{
    struct cfg c;
    struct system s;
    TRY(cfg_read_text(&c, a, "bad", (const char *)b->at, b->n, d));
    return system_fill(&s, &c, d);
}

static enum err read_stack(struct arena *a, const struct bytes *b, struct diag *d)
{
    struct cfg c;
    struct stack s;
    TRY(cfg_read_text(&c, a, "bad", (const char *)b->at, b->n, d));
    return stack_fill(&s, &c, d);
}

static enum err read_plan(struct arena *a, const struct bytes *b, struct diag *d)
{
    struct cfg c;
    struct job *j = arena_alloc(a, sizeof *j);
    TRY(cfg_read_text(&c, a, "bad", (const char *)b->at, b->n, d));
    return plan_fill_job(j, a, &c, 0, NULL, 0, d);
}

static enum err read_recorded(struct arena *a, const struct bytes *b, struct diag *d)
{
    const struct recorded *r;
    return recorded_parse(&r, a, "bad", (const char *)b->at, b->n, d);
}

static enum err read_csv(struct arena *a, const struct bytes *b, struct diag *d)
{
    struct csv c;
    return csv_read_text(&c, a, "bad", (const char *)b->at, b->n, d);
}

static enum err import(struct arena *a, const struct megatron_args *args, struct diag *d)
{
    const char *(*flag)[2];
    int n;
    return megatron_import(&flag, &n, a, args, "deepseek-v3", d);
}

static enum err read_arguments(struct arena *a, const struct bytes *b, struct diag *d)
{
    struct megatron_args args;
    TRY(megatron_read(&args, a, "bad", (const char *)b->at, d));
    return import(a, &args, d);
}

static enum err read_bridge(struct arena *a, const struct bytes *b, struct diag *d)
{
    struct megatron_args args;
    struct cfg c;
    const char *(*flag)[2];
    int n;
    TRY(cfg_read_text(&c, a, "bad", (const char *)b->at, b->n, d));
    TRY(megatron_read_yaml(&args, a, &c, d));
    return megatron_import(&flag, &n, a, &args, "qwen3-30b-a3b", d);
}

static enum err read_topology(struct arena *a, const struct bytes *b, struct diag *d)
{
    struct nccl_said said;
    struct system s;
    TRY(system_read(&s, a, "h100-sxm", d));
    return nccl_topo(&s, &said, a, "bad", (const char *)b->at, b->n, d);
}

static enum err read_nccl_tests(struct arena *a, const struct bytes *b, struct diag *d)
{
    struct nccl_said said;
    struct system s;
    TRY(system_read(&s, a, "h100-sxm", d));
    return nccl_tests(&s, &said, a, "bad", (const char *)b->at, d);
}

static enum err read_layout(struct arena *a, const struct bytes *b, struct diag *d)
{
    struct layout l;
    (void)a;
    return layout_parse(&l, (const char *)b->at, 61, 1, 4, 4, d);
}

static enum err read_tensors(struct arena *a, const struct bytes *b, struct diag *d)
{
    struct safetensors s;
    return safetensors_read(&s, a, "bad", b->at, (int64_t)b->n, d);
}

static enum err read_index(struct arena *a, const struct bytes *b, struct diag *d)
{
    struct data_index x;
    (void)a;
    return data_index_read(&x, "bad", b->at, (int64_t)b->n, 64, d);
}

static const char *const scratch = BUILD_DIR "/mutated";

static enum err read_file_as(const struct bytes *b, const char *path)
{
    mkdir(scratch, 0777);
    FILE *f = fopen(path, "wb");
    ck_assert(f && fwrite(b->at, 1, b->n, f) == b->n && fclose(f) == 0);
    return OK;
}

static enum err read_manifest(struct arena *a, const struct bytes *b, struct diag *d)
{
    struct checkpoint_file c = { 0 };
    read_file_as(b, BUILD_DIR "/mutated/manifest.json");
    const enum err e = checkpoint_open(&c, a, scratch, d);
    if (e == OK) checkpoint_close(&c);
    return e;
}

static enum err read_trace(struct arena *a, const struct bytes *b, struct diag *d)
{
    struct trace t;
    read_file_as(b, BUILD_DIR "/mutated/bad.mft");
    return trace_read(&t, a, BUILD_DIR "/mutated/bad.mft", d);
}

/* ---- good ones ---- */

static struct bytes copy_of(const void *text, size_t n)
{
    struct bytes b = { calloc(n + 1, 1), n };
    memcpy(b.at, text, n);
    return b;
}

static struct bytes text_of(const char *text) { return copy_of(text, strlen(text)); }

static struct bytes built_in(const char *kind, const char *name)
{
    for (int i = 0; i < cfg_embedded_n; i++)
        if (strcmp(cfg_embedded[i].kind, kind) == 0 && strcmp(cfg_embedded[i].name, name) == 0)
            return text_of(cfg_embedded[i].text);
    ck_abort_msg("no %s", name);
    return (struct bytes){ 0 };
}

/* A file of the source tree, its first `most` bytes. */
static struct bytes file_of(const char *path, size_t most)
{
    static char text[1 << 18];
    FILE *f = fopen(path, "rb");
    ck_assert_msg(f != NULL, "%s", path);
    const size_t n = fread(text, 1, most, f);
    fclose(f);
    return copy_of(text, n);
}

/* Three sequences of three documents, of uint16 tokens. */
static struct bytes index_of(void)
{
    unsigned char x[128] = "MMIDIDX\0\0\1\0\0\0\0\0\0\0\10";
    size_t n = 18;
    const int32_t length[] = { 8, 8, 16 };
    const int64_t at[] = { 0, 16, 32 }, document[] = { 0, 1, 2, 3 }, count[] = { 3, 4 };
    memcpy(x + n, count, sizeof count), n += sizeof count;
    memcpy(x + n, length, sizeof length), n += sizeof length;
    memcpy(x + n, at, sizeof at), n += sizeof at;
    memcpy(x + n, document, sizeof document), n += sizeof document;
    return copy_of(x, n);
}

static struct bytes tensors_of(void)
{
    static const char head[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]},\"b\":{\"dtype\":\"BF16\","
                               "\"shape\":[4],\"data_offsets\":[16,24]},\"__metadata__\":{\"format\":\"pt\"}}";
    struct bytes b = { calloc(sizeof head + 8 + 24, 1), sizeof head - 1 + 8 + 24 };
    b.at[0] = sizeof head - 1;
    memcpy(b.at + 8, head, sizeof head - 1);
    return b;
}

static struct bytes manifest_of(void)
{
    static const char text[] =
        "{\"format\":\"moefold checkpoint\",\"version\":1,\"step\":1,\"sequences\":8,\"seq\":8,\"data\":\"\",\"eval_split\":0,"
        "\"optimizer\":\"adamw\",\"shards\":[{\"file\":\"a\",\"bytes\":64,\"crc32\":\"00000000\"}]}";
    return copy_of(text, sizeof text - 1);
}

static struct bytes trace_of(void)
{
    struct span span[6];
    struct trace t = { .head = { .program_hash = 7, .source = "measured", .n_rank = 2, .n_iter = 1 }, .n = 6, .span = span };
    struct diag d;
    for (int i = 0; i < 6; i++)
        span[i] = (struct span){ .rank = i / 3, .step = i % 3, .op = 1 + i % 3, .t0_ns = 10 * i, .t1_ns = 10 * i + 5 };
    mkdir(scratch, 0777);
    ck_assert_msg(trace_write(&t, BUILD_DIR "/mutated/good.mft", &d) == OK, "%s", d.text);
    return file_of(BUILD_DIR "/mutated/good.mft", 1 << 16);
}

/* ---- strokes ---- */

static uint64_t state;

static int any(int below)
{
    return below > 0 ? test_random(&state, below) : 0;
}

/* [at, at + n) becomes `by`. */
static struct bytes replaced(const struct bytes *b, size_t at, size_t n, const void *by, size_t by_n)
{
    struct bytes to = { calloc(b->n - n + by_n + 1, 1), b->n - n + by_n };
    memcpy(to.at, b->at, at);
    memcpy(to.at + at, by, by_n);
    memcpy(to.at + at + by_n, b->at + at + n, b->n - at - n);
    return to;
}

/* A run of digits or of letters somewhere. */
static void word_near(const struct bytes *b, size_t from, size_t *at, size_t *n)
{
    *at = from;
    while (*at > 0 && b->at[*at - 1] > 32 && !strchr(",:=\"[]{}()<>|/", b->at[*at - 1])) (*at)--;
    for (*n = 0; *at + *n < b->n && b->at[*at + *n] > 32 && !strchr(",:=\"[]{}()<>|/", b->at[*at + *n]); (*n)++) continue;
}

static struct bytes stroke(const struct bytes *b)
{
    static const char *const words[] = { "-7", "x", "", "1e99", "nan", "999999999999999999999", "0", "0.5", "\"", "null", "[]" };
    const size_t from = (size_t)any((int)b->n), left = b->n - from;
    size_t at, n;
    const char *word = words[any(LEN(words))];
    const unsigned char byte = (unsigned char)any(256);
    word_near(b, from, &at, &n);
    switch (any(7)) {
    case 0: return replaced(b, from, left, "", 0);                                          /* cut short     */
    case 1: return replaced(b, at, n, word, strlen(word));                                  /* another word  */
    case 2: return replaced(b, from, (size_t)any(left < 40 ? (int)left : 40) + 1 > left ? left : (size_t)any(40) % left + 1, "", 0);
    case 3: return replaced(b, from, 1, &byte, 1);                                          /* another byte  */
    case 4: return replaced(b, from, 0, b->at + at, n);                                     /* said twice    */
    case 5: return replaced(b, from, 0, "{}[]:,\"'<>&%*!-|#\n\t" + any(19), 1);
    default: return replaced(b, at, n ? 1 : 0, "q", 1);                                     /* misspelt      */
    }
}

/* ---- the table ---- */

static struct bytes good_model(void) { return built_in("models", "deepseek-v3"); }
static struct bytes good_system(void) { return built_in("systems", "h100-sxm"); }
static struct bytes good_stack(void) { return built_in("stacks", "mcore-2608"); }
static struct bytes good_plan(void) { return built_in("plans", "tiny-moe-8"); }
static struct bytes good_hf(void) { return file_of(SOURCE_DIR "/tests/data/model/deepseek-v3-v4.json", 1 << 16); }
static struct bytes good_csv(void) { return text_of("id,gpus,\"a,b\"\r\nx,8,\"say \"\"so\"\"\"\r\ny,16,\r\n"); }
static struct bytes good_script(void) { return file_of(SOURCE_DIR "/tests/data/megatron/deepseek-v3.sh", 1 << 16); }
static struct bytes good_recipe(void) { return file_of(SOURCE_DIR "/tests/data/megatron/qwen3-30b.yaml", 1 << 16); }
static struct bytes good_topology(void) { return file_of(SOURCE_DIR "/tests/data/nccl/h100.xml", 1 << 16); }
static struct bytes good_times(void) { return file_of(SOURCE_DIR "/tests/data/nccl/all_reduce_8.txt", 1 << 16); }
static struct bytes good_layout(void) { return text_of("Et*4|(tttt|)*14tmL"); }
static struct bytes good_counts(void) { return text_of("tokens:\n  - [1, 2, 3]\n  - [4, 5, 6]\n"); }

/* `place`: what every refusal names; whole 0: the good one needs files beside it. */
static const struct { const char *what; reader *read; struct bytes (*good)(void); const char *place[2]; int is_whole; } row[] = {
    { "model", read_model, good_model, { "bad:" }, 1 },       { "system", read_system, good_system, { "bad:" }, 1 },
    { "stack", read_stack, good_stack, { "bad:" }, 1 },       { "plan", read_plan, good_plan, { "bad:" }, 1 },
    { "config.json", read_model, good_hf, { "bad:" }, 1 },    { "csv", read_csv, good_csv, { "bad:" }, 1 },
    { "arguments", read_arguments, good_script, { "--", "bad:" }, 1 },
    { "recipe", read_bridge, good_recipe, { "--", "bad:" }, 1 },
    { "topology", read_topology, good_topology, { "bad:" }, 1 },
    { "nccl-tests", read_nccl_tests, good_times, { "bad:" }, 1 },
    { "layout", read_layout, good_layout, { "layout" }, 1 },  { "counts", read_recorded, good_counts, { "bad:" }, 1 },
    { "safetensors", read_tensors, tensors_of, { "bad:" }, 1 }, { "idx", read_index, index_of, { "bad:" }, 1 },
    { "manifest", read_manifest, manifest_of, { "mutated" }, 0 }, { "trace", read_trace, trace_of, { "bad.mft" }, 1 },
};

static void judge(int i, enum err e, const struct diag *d, const struct bytes *b)
{
    const char *a = strstr(d->text, row[i].place[0]), *other = row[i].place[1] ? strstr(d->text, row[i].place[1]) : NULL;
    ck_assert_msg(e == ERR_CONFIG || e == ERR_IO || e == ERR_LIMIT, "%s: %d '%s' for:\n%.2000s", row[i].what, e, d->text, (const char *)b->at);
    ck_assert_msg((a || other) && !strchr(d->text, '\n') && strlen(d->text) > 20, "%s: '%s' for:\n%.2000s", row[i].what, d->text,
                  (const char *)b->at);
}

START_TEST(two_hundred_each)
{
    struct bytes good = row[_i].good();
    struct arena a = { 0 };
    struct diag d = { "" };
    const enum err whole = row[_i].read(&a, &good, &d);
    ck_assert_msg(whole == OK || !row[_i].is_whole, "%s: %s", row[_i].what, d.text);
    arena_free(&a);
    int refused = 0;
    state = 17;
    for (int tries = 0; refused < 200 && tries < 4000; tries++) {
        struct bytes b = stroke(&good);
        struct diag why = { "" };
        const enum err e = row[_i].read(&a, &b, &why);
        if (e != OK) judge(_i, e, &why, &b), refused++;
        arena_free(&a);
        free(b.at);
    }
    ck_assert_msg(refused == 200, "%s: of 4000 only %d refused", row[_i].what, refused);
    free(good.at);
}
END_TEST

int main(void)
{
    const struct test_loop tests[] = {
        { two_hundred_each, LEN(row) },
    };
    return test_main_loops("mutated", NULL, tests, LEN(tests), 120);
}
