/* Rows in groups: by a text they share, by the part of the step that is largest in them, by what had to be inferred.
 * Groups tell where the residual sits without fitting anything: a mechanism that is missing or wrong shows as rows
 * that are too fast or too slow exactly where its share is large. */
#include "tools/validate.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SHARE(field, text) { text, offsetof(struct validate_share, field) }
static const struct { const char *name; size_t at; } parts[] = {
    SHARE(gemm, "gemm"), SHARE(attention, "attention"), SHARE(memory, "memory-bound"),
    SHARE(comm, "communication"), SHARE(host, "host"), SHARE(bubble, "bubble"), SHARE(optimizer, "optimizer"),
};

static const char *text_of(const struct validate_row *r, size_t at)
{
    const char *text;
    memcpy(&text, (const char *)r + at, sizeof text);
    return text ? text : "";
}

static double share_of(const struct validate_row *r, int part)
{
    double x;
    memcpy(&x, (const char *)&r->share + parts[part].at, sizeof x);
    return x;
}

/* Figures of the rows whose `in` is set. */
static struct validate_group group_of(const char *name, struct arena *a, const struct validate_row *row, int n_row,
                                      const char *in)
{
    struct validate_group g = { .name = name };
    double *value = arena_alloc(a, (size_t)(n_row + 1) * sizeof *value);
    int n = 0;
    for (int i = 0; i < n_row; i++)
        if (in[i]) value[n++] = row[i].error;
    g.error = validate_error_of(value, n);
    n = 0;
    for (int i = 0; i < n_row; i++)
        if (in[i] && isfinite(row[i].cv_error)) value[n++] = row[i].cv_error;
    g.cv = validate_error_of(value, n);
    n = 0;
    for (int i = 0; i < n_row; i++)
        if (in[i]) value[n++] = row[i].fast;
    g.fast = validate_error_median(value, n);
    for (int p = 0; p < LEN(parts); p++) {
        n = 0;
        for (int i = 0; i < n_row; i++)
            if (in[i]) value[n++] = share_of(&row[i], p);
        const double median = validate_error_median(value, n);
        memcpy((char *)&g.share + parts[p].at, &median, sizeof median);
    }
    return g;
}

static int counts(const struct validate_row *r)
{
    return r->scored && !r->skipped && isfinite(r->error);
}

int validate_group_by(struct validate_group **group, struct arena *a, const struct validate_row *row, int n_row,
                      size_t text_at)
{
    char *done = arena_alloc(a, (size_t)n_row + 1), *in = arena_alloc(a, (size_t)n_row + 1);
    int n = 0;
    *group = arena_alloc(a, (size_t)(n_row + 1) * sizeof **group);
    for (int i = 0; i < n_row; i++) {
        if (done[i] || !counts(&row[i])) continue;
        memset(in, 0, (size_t)n_row);
        for (int k = i; k < n_row; k++)
            if (counts(&row[k]) && strcmp(text_of(&row[i], text_at), text_of(&row[k], text_at)) == 0)
                in[k] = done[k] = 1;
        (*group)[n++] = group_of(text_of(&row[i], text_at), a, row, n_row, in);
    }
    return n;
}

/* The median of what lies above the median; `value` is room for a number a row. */
static double upper_quartile(double *value, const struct validate_row *row, int n_row, int part)
{
    int n = 0;
    for (int i = 0; i < n_row; i++)
        if (counts(&row[i])) value[n++] = share_of(&row[i], part);
    const double middle = validate_error_median(value, n);
    int above = 0;
    for (int i = 0; i < n; i++)
        if (value[i] > middle) value[above++] = value[i];
    return above ? validate_error_median(value, above) : middle;
}

int validate_group_quarters(struct validate_group **group, struct arena *a, const struct validate_row *row, int n_row)
{
    char *in = arena_alloc(a, (size_t)n_row + 1);
    double *value = arena_alloc(a, (size_t)(n_row + 1) * sizeof *value);
    *group = arena_alloc(a, LEN(parts) * sizeof **group);
    for (int p = 0; p < LEN(parts); p++) {
        const double least = upper_quartile(value, row, n_row, p);
        for (int i = 0; i < n_row; i++)
            in[i] = (char)(counts(&row[i]) && share_of(&row[i], p) > 0 && share_of(&row[i], p) >= least);
        (*group)[p] = group_of(parts[p].name, a, row, n_row, in);
    }
    return LEN(parts);
}

static int by_rows(const void *a, const void *b)
{
    const struct validate_note *x = a, *y = b;
    return x->rows != y->rows ? (x->rows < y->rows) - (x->rows > y->rows) : strcmp(x->text, y->text);
}

/* "dispatcher deepep as alltoall (--dispatcher: ..)": what stands before the reason. Reasons may hold "; ". */
static char *next_note(char **rest)
{
    char *note = *rest, *end = note;
    int depth = 0;
    if (!*note) return NULL;
    for (; *end && !(depth == 0 && strncmp(end, "; ", 2) == 0); end++) depth += (*end == '(') - (*end == ')');
    *rest = *end ? end + 2 : end;
    *end = '\0';
    if ((end = strstr(note, " ("))) *end = '\0';
    return note;
}

int validate_group_notes(struct validate_note **note, struct arena *a, const struct validate_row *row, int n_row,
                         size_t text_at)
{
    int n = 0, room = 32;
    *note = arena_alloc(a, (size_t)room * sizeof **note);
    for (int i = 0; i < n_row; i++) {
        char *rest = arena_strdup(a, text_of(&row[i], text_at)), *text;
        while ((text = next_note(&rest))) {
            int at = 0;
            while (at < n && strcmp((*note)[at].text, text)) at++;
            if (at == room) *note = arena_grow(a, *note, (size_t)n, (size_t)(room *= 2), sizeof **note);
            if (at == n) (*note)[n++] = (struct validate_note){ text, 0 };
            (*note)[at].rows++;
        }
    }
    qsort(*note, (size_t)n, sizeof **note, by_rows);
    return n;
}
