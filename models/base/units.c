/* Numbers with units. One table of spellings per kind serves parsing, printing and messages. Numbers are read
 * by strtod after a look at their characters, so hex, infinities and NaN never get in. */
#include "models/base/units.h"
#include "models/base/err.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct spelling { const char *text; double scale; enum unit unit; };

/* In each kind, the spellings that units_human uses come from small to large and before the others. */
static const struct spelling spelling[] = {
    {"B", 1, UNIT_B},
    {"KiB", 1024, UNIT_B},
    {"MiB", 1048576, UNIT_B},
    {"GiB", 1073741824, UNIT_B},
    {"TiB", 1099511627776, UNIT_B},
    {"kB", 1e3, UNIT_B},
    {"KB", 1e3, UNIT_B},
    {"MB", 1e6, UNIT_B},
    {"GB", 1e9, UNIT_B},
    {"TB", 1e12, UNIT_B},
    {"B/s", 1, UNIT_B_PER_S},
    {"kB/s", 1e3, UNIT_B_PER_S},
    {"MB/s", 1e6, UNIT_B_PER_S},
    {"GB/s", 1e9, UNIT_B_PER_S},
    {"TB/s", 1e12, UNIT_B_PER_S},
    {"KB/s", 1e3, UNIT_B_PER_S},
    {"KiB/s", 1024, UNIT_B_PER_S},
    {"MiB/s", 1048576, UNIT_B_PER_S},
    {"GiB/s", 1073741824, UNIT_B_PER_S},
    {"TiB/s", 1099511627776, UNIT_B_PER_S},
    {"Mb/s", 1e6 / 8, UNIT_B_PER_S},
    {"Gb/s", 1e9 / 8, UNIT_B_PER_S},
    {"Tb/s", 1e12 / 8, UNIT_B_PER_S},
    {"Mbit/s", 1e6 / 8, UNIT_B_PER_S},
    {"Gbit/s", 1e9 / 8, UNIT_B_PER_S},
    {"Tbit/s", 1e12 / 8, UNIT_B_PER_S},
    {"FLOP/s", 1, UNIT_FLOP_PER_S},
    {"MFLOP/s", 1e6, UNIT_FLOP_PER_S},
    {"GFLOP/s", 1e9, UNIT_FLOP_PER_S},
    {"TFLOP/s", 1e12, UNIT_FLOP_PER_S},
    {"PFLOP/s", 1e15, UNIT_FLOP_PER_S},
    {"GFLOPS", 1e9, UNIT_FLOP_PER_S},
    {"TFLOPS", 1e12, UNIT_FLOP_PER_S},
    {"PFLOPS", 1e15, UNIT_FLOP_PER_S},
    {"ns", 1e-9, UNIT_S},
    {"us", 1e-6, UNIT_S},
    {"ms", 1e-3, UNIT_S},
    {"s", 1, UNIT_S},
    {"USD/h", 1, UNIT_USD_PER_H},
};

/* How many of a kind's spellings units_human may use. */
static int units_ladder(enum unit unit)
{
    switch (unit) {
    case UNIT_B: case UNIT_B_PER_S: case UNIT_FLOP_PER_S: return 5;
    case UNIT_S: return 4;
    default: return 1;
    }
}

static const struct spelling *units_first(enum unit unit)
{
    for (int i = 0; i < LEN(spelling); i++)
        if (spelling[i].unit == unit) return &spelling[i];
    return NULL;
}

static const struct spelling *units_find(const char *text)
{
    for (int i = 0; i < LEN(spelling); i++)
        if (strcmp(spelling[i].text, text) == 0) return &spelling[i];
    return NULL;
}

/* The length of a plain decimal number at the front of `s`, 0 if there is none. */
static size_t units_number(const char *s)
{
    size_t n = s[0] == '-' || s[0] == '+', digits = 0;
    for (; strchr("0123456789.", s[n]) != NULL && s[n] != '\0'; n++) digits += s[n] != '.';
    if (digits == 0) return 0;
    if (s[n] != 'e' && s[n] != 'E') return n;
    size_t e = n + 1;
    e += s[e] == '-' || s[e] == '+';
    const size_t from = e;
    e += strspn(s + e, "0123456789");
    return e > from ? e : n;
}

int units_parse(double *value, const char *text, enum unit unit)
{
    const size_t n = units_number(text);
    char *end;
    if (n == 0) return -1;
    const double x = strtod(text, &end);
    if (end != text + n || !isfinite(x)) return -1;     /* two points, or beyond the range of a double */
    while (*end == ' ') end++;
    if (unit == UNIT_NONE) {
        if (*end == '\0') *value = x;
        return *end == '\0' ? 0 : units_find(end) != NULL ? -3 : -1;
    }
    if (*end == '\0') return -2;
    const struct spelling *s = units_find(end);
    if (s == NULL || s->unit != unit || !isfinite(x * s->scale)) return -3;
    *value = x * s->scale;
    return 0;
}

const char *units_example(enum unit unit)
{
    switch (unit) {
    case UNIT_B:          return "a size such as 80 GiB";
    case UNIT_B_PER_S:    return "a rate such as 4.8 TB/s or 400 Gb/s";
    case UNIT_FLOP_PER_S: return "a rate such as 989 TFLOP/s";
    case UNIT_S:          return "a time such as 5 us";
    case UNIT_USD_PER_H:  return "a price such as 2.5 USD/h";
    default:              return "a number such as 0.5";
    }
}

static const char *units_base(enum unit unit)
{
    for (int i = 0; i < LEN(spelling); i++)
        if (spelling[i].unit == unit && spelling[i].scale == 1) return spelling[i].text;
    return "";
}

/* The spelling with the shortest exact number of at most 9 digits; else the base unit and as many as it takes. */
char *units_print(char *to, size_t to_B, double value, enum unit unit)
{
    char text[64], best[64] = "";
    size_t best_n = sizeof(best);
    double back;
    for (int i = 0; i < LEN(spelling); i++) {
        if (spelling[i].unit != unit) continue;
        const int n = snprintf(text, sizeof(text), "%.9g", value / spelling[i].scale);
        snprintf(text + n, sizeof(text) - (size_t)n, " %s", spelling[i].text);
        if ((size_t)n >= best_n || units_parse(&back, text, unit) != 0 || back != value) continue;
        best_n = (size_t)n;
        memcpy(best, text, sizeof(best));
    }
    for (int digits = 6; *best == '\0' && digits <= 17; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, value);
        if (digits == 17 || strtod(text, NULL) == value)
            snprintf(best, sizeof(best), "%.40s%s%s", text, unit == UNIT_NONE ? "" : " ", units_base(unit));
    }
    snprintf(to, to_B, "%s", best);
    return to;
}

char *units_human(char *to, size_t to_B, double value, enum unit unit)
{
    const struct spelling *first = units_first(unit);
    if (first == NULL) {
        snprintf(to, to_B, "%.4g", value);
        return to;
    }
    int i = units_ladder(unit) - 1;
    while (i > 0 && fabs(value) < first[i].scale && value != 0) i--;
    if (value == 0) i = first->scale == 1 ? 0 : i;
    snprintf(to, to_B, "%.4g %s", value / first[i].scale, first[i].text);
    return to;
}
