/* Reads and writes safetensors. A file is refused unless its tensors tile the bytes behind the header, so a
 * file cut short anywhere is seen before a number of it is used. */
#include "exec/safetensors.h"
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEAD_MAX_B = 100000000 };        /* the format's own limit */
static const char *const safetensors_name[] = {
#define X(id, bytes) #id,
    SAFETENSORS_LIST(X)
#undef X
};
static const int safetensors_size_B[] = {
#define X(id, bytes) bytes,
    SAFETENSORS_LIST(X)
#undef X
};

int64_t safetensors_elements(const struct safetensors_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->n_dim; i++) n *= t->dim[i];
    return n;
}

/* ---- header ---- */

static enum err safetensors_shape(struct safetensors_tensor *t, const json_t *shape)
{
    const size_t n = json_array_size(shape);
    if (!json_is_array(shape) || n > SAFETENSORS_DIMS) return ERR_CONFIG;
    t->n_dim = (int32_t)n;
    int64_t all = 1;
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(shape, i);
        const int64_t dim = json_integer_value(v);
        if (!json_is_integer(v) || dim < 0 || __builtin_mul_overflow(all, dim, &all) || all > INT64_MAX / 16)
            return ERR_CONFIG;
        t->dim[i] = dim;
    }
    return OK;
}

static int safetensors_type(const char *name)
{
    for (int i = 0; name && i < SAFETENSORS_TYPES; i++)
        if (strcmp(name, safetensors_name[i]) == 0) return i;
    return -1;
}

static enum err safetensors_entry(struct safetensors_tensor *t, const struct safetensors *s, struct arena *a,
                                  const char *name, const json_t *v, struct diag *d)
{
    const json_t *place = json_object_get(v, "data_offsets");
    const char *type = json_string_value(json_object_get(v, "dtype"));
    *t = (struct safetensors_tensor){ .name = arena_strdup(a, name), .type = safetensors_type(type) };
    if (t->type < 0)
        return fail(d, ERR_LIMIT, "%.200s: tensor %.100s has type '%.20s', which is not known", s->name, name,
                    type ? type : "none");
    const int64_t from = json_integer_value(json_array_get(place, 0)),
                  end = json_integer_value(json_array_get(place, 1));
    if (safetensors_shape(t, json_object_get(v, "shape")) != OK || json_array_size(place) != 2 || from < 0 ||
        end < from || end > s->data_B || end - from != safetensors_elements(t) * safetensors_size_B[t->type])
        return fail(d, ERR_CONFIG,
                    "%.200s: tensor %.100s lies at bytes %lld to %lld of %lld, which its shape does not "
                    "fill: the file is cut "
                    "short or broken, copy it again",
                    s->name, name, (long long)from, (long long)end, (long long)s->data_B);
    t->at_B = from;
    t->bytes = end - from;
    return OK;
}

static int safetensors_by_place(const void *x, const void *y)
{
    const struct safetensors_tensor *a = x, *b = y;
    if (a->at_B != b->at_B) return a->at_B < b->at_B ? -1 : 1;
    if (a->bytes != b->bytes) return a->bytes < b->bytes ? -1 : 1;
    return strcmp(a->name, b->name);
}

static enum err safetensors_tensors(struct safetensors *s, struct arena *a, json_t *head, struct diag *d)
{
    const char *name;
    json_t *v;
    s->tensor = arena_alloc(a, (json_object_size(head) + 1) * sizeof *s->tensor);
    json_object_foreach(head, name, v) {
        if (strcmp(name, "__metadata__") == 0) continue;
        TRY(safetensors_entry(&s->tensor[s->n], s, a, name, v, d));
        s->n++;
    }
    qsort(s->tensor, (size_t)s->n, sizeof *s->tensor, safetensors_by_place);
    int64_t at_B = 0;
    for (int i = 0; i < s->n; at_B += s->tensor[i++].bytes)
        if (s->tensor[i].at_B != at_B)
            return fail(
                d, ERR_CONFIG,
                "%.200s: tensor %.100s begins at byte %lld, the one before ends at %lld: copy it again",
                s->name, s->tensor[i].name, (long long)s->tensor[i].at_B, (long long)at_B);
    if (at_B == s->data_B) return OK;
    return fail(
        d, ERR_CONFIG,
        "%.200s: its tensors end at byte %lld, the file at %lld: it is cut short or broken, copy it again",
        s->name, (long long)at_B, (long long)s->data_B);
}

enum err safetensors_read(struct safetensors *s, struct arena *a, const char *name, const uint8_t *bytes,
                          int64_t n, struct diag *d)
{
    uint64_t head_B = 0;
    for (int i = 0; i < 8 && n >= 8; i++) head_B |= (uint64_t)bytes[i] << 8 * i;
    if (n < 8 || head_B > HEAD_MAX_B || head_B > (uint64_t)n - 8)
        return fail(
            d, ERR_CONFIG,
            "%.200s: has %lld bytes, its header would take %llu: it is no safetensors file, or is cut short",
            name, (long long)n, (unsigned long long)head_B);
    struct safetensors read = { .name = arena_strdup(a, name),
                                .head = (const char *)bytes,
                                .head_B = (int64_t)head_B + 8,
                                .data = bytes + 8 + head_B,
                                .data_B = n - 8 - (int64_t)head_B };
    json_error_t why;
    json_t *head = json_loadb((const char *)bytes + 8, (size_t)head_B, JSON_REJECT_DUPLICATES, &why);
    if (!head) {
        for (char *c = why.text; *c; c++)
            if ((unsigned char)*c < ' ') *c = ' ';
        return fail(d, ERR_CONFIG, "%.200s: its header is no JSON: %s (byte %d)", name, why.text,
                    why.position);
    }
    const enum err e = json_is_object(head)
                           ? safetensors_tensors(&read, a, head, d)
                           : fail(d, ERR_CONFIG, "%.200s: its header is no map of tensors", name);
    json_decref(head);
    if (e == OK) *s = read;
    return e;
}

enum err safetensors_open(struct safetensors *s, struct arena *a, const char *path, struct diag *d)
{
    struct stat st;
    const int f = open(path, O_RDONLY | O_CLOEXEC);
    if (f < 0) return fail(d, ERR_IO, "%.300s: %s", path, strerror(errno));
    void *map = fstat(f, &st) == 0 && st.st_size > 0
                    ? mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, f, 0)
                    : MAP_FAILED;
    const char *why = st.st_size == 0 ? "is empty" : strerror(errno);
    close(f);
    if (map == MAP_FAILED) return fail(d, ERR_IO, "%.300s: %s", path, why);
    const enum err e = safetensors_read(s, a, path, map, st.st_size, d);
    if (e != OK) {
        munmap(map, (size_t)st.st_size);
        return e;
    }
    s->map = map;
    s->map_B = st.st_size;
    return OK;
}

void safetensors_close(struct safetensors *s)
{
    if (s->map) munmap(s->map, (size_t)s->map_B);
    *s = (struct safetensors){ 0 };
}

const struct safetensors_tensor *safetensors_find(const struct safetensors *s, const char *name)
{
    for (int i = 0; i < s->n; i++)
        if (strcmp(s->tensor[i].name, name) == 0) return &s->tensor[i];
    return NULL;
}

char *safetensors_head(struct arena *a, struct safetensors_tensor *tensor, int n, int64_t *head_B)
{
    size_t room = 64, at = 9;
    for (int i = 0; i < n; i++) room += strlen(tensor[i].name) + 96 + (size_t)tensor[i].n_dim * 21;
    char *text = arena_alloc(a, room);
    int64_t at_B = 0;
    text[8] = '{';
    for (int i = 0; i < n; i++) {
        struct safetensors_tensor *t = &tensor[i];
        t->at_B = at_B;
        t->bytes = safetensors_elements(t) * safetensors_size_B[t->type];
        at_B += t->bytes;
        at += (size_t)sprintf(text + at, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", i ? "," : "", t->name,
                              safetensors_name[t->type]);
        for (int k = 0; k < t->n_dim; k++)
            at += (size_t)sprintf(text + at, "%s%lld", k ? "," : "", (long long)t->dim[k]);
        at += (size_t)sprintf(text + at, "],\"data_offsets\":[%lld,%lld]}", (long long)t->at_B,
                              (long long)at_B);
    }
    text[at++] = '}';
    while (at % 8) text[at++] = ' ';
    for (int i = 0; i < 8; i++) text[i] = (char)((at - 8) >> 8 * i);
    *head_B = (int64_t)at;
    return text;
}

/* ---- numbers ---- */

static float safetensors_from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* IEEE 754 binary16: 5 bits of exponent, 10 of fraction. */
static float safetensors_from_f16(uint32_t h)
{
    const uint32_t sign = h >> 15 << 31, exponent = h >> 10 & 31, fraction = h & 1023;
    if (exponent == 31) return safetensors_from_bits(sign | 0x7f800000u | fraction << 13);
    if (exponent) return safetensors_from_bits(sign | (exponent + 112) << 23 | fraction << 13);
    const float tiny = (float)fraction * 0x1p-24f;
    return sign ? -tiny : tiny;
}

static uint32_t safetensors_to_f16(uint32_t bits)
{
    const uint32_t sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    if (size > 0x7f800000) return sign | 0x7e00 | (size >> 13 & 0x3ff);     /* NaN */
    if (size >= 0x477ff000) return sign | 0x7c00;                           /* rounds to infinity */
    if (size >= 0x38800000) return sign | (size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13;
    if (size < 0x33000000) return sign;
    const uint32_t shift = 126 - (size >> 23), fraction = (size & 0x7fffff) | 0x800000;
    const uint32_t kept = fraction >> shift, lost = fraction & ((1u << shift) - 1), half = 1u << (shift - 1);
    return sign | (kept + (lost > half || (lost == half && (kept & 1))));
}

enum err safetensors_floats(float *to, const struct safetensors *s, const struct safetensors_tensor *t,
                            int64_t first, int64_t n, struct diag *d)
{
    const uint8_t *p = s->data + t->at_B + first * safetensors_size_B[t->type];
    switch (t->type) {
    case SAFETENSORS_F32: memcpy(to, p, (size_t)n * sizeof *to); return OK;
    case SAFETENSORS_BF16:
        for (int64_t i = 0; i < n; i++)
            to[i] = safetensors_from_bits((uint32_t)p[2 * i] << 16 | (uint32_t)p[2 * i + 1] << 24);
        return OK;
    case SAFETENSORS_F16:
        for (int64_t i = 0; i < n; i++)
            to[i] = safetensors_from_f16((uint32_t)p[2 * i] | (uint32_t)p[2 * i + 1] << 8);
        return OK;
    default:
        return fail(d, ERR_LIMIT,
                    "%.200s: tensor %.100s is of type %s; F32, BF16 and F16 are read: convert it", s->name,
                    t->name, safetensors_name[t->type]);
    }
}

void safetensors_bytes(uint8_t *to, const float *from, int64_t n, enum safetensors_type type)
{
    if (type == SAFETENSORS_F32) memcpy(to, from, (size_t)n * sizeof *from);
    else
        for (int64_t i = 0; i < n; i++) {
            uint32_t bits, half;
            memcpy(&bits, &from[i], sizeof bits);
            if (type == SAFETENSORS_F16) half = safetensors_to_f16(bits);
            else if ((bits & 0x7fffffff) > 0x7f800000) half = bits >> 16 | 0x40;
            else half = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
            to[2 * i] = (uint8_t)half;
            to[2 * i + 1] = (uint8_t)(half >> 8);
        }
}
