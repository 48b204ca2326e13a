/* Numbers with units, the only place besides the report that knows GB from GiB. GB is 1e9, GiB is 2^30. */
#ifndef MODELS_BASE_UNITS_H
#define MODELS_BASE_UNITS_H
#include <stddef.h>

enum unit {
    UNIT_NONE,          /* a bare number; "64k"-like suffixes are refused                       */
    UNIT_B,             /* B kB KB MB GB TB KiB MiB GiB TiB  -> bytes                           */
    UNIT_B_PER_S,       /* the same with /s; also Gb/s and Gbit/s (bits)    -> bytes per second */
    UNIT_FLOP_PER_S,    /* GFLOP/s TFLOP/s PFLOP/s (also TFLOPS)            -> FLOP per second  */
    UNIT_S,             /* ns us ms s                                       -> seconds          */
    UNIT_USD_PER_H,     /* USD/h                                                                */
};

/* Parses the whole of `text` as a number in `unit`. 0 on success; -1 not a number, or not finite; -2 the unit is
 * missing; -3 the unit is of another kind. `*value` is set only on success. */
int units_parse(double *value, const char *text, enum unit unit);
/* What units_parse would accept, for messages: "a size such as 80 GiB". */
const char *units_example(enum unit unit);
/* Prints `value` so that units_parse reads the same number back. Returns `to`. */
char *units_print(char *to, size_t to_B, double value, enum unit unit);
/* A short human form: "1.23 GiB", "45.1 us". Returns `to`. */
char *units_human(char *to, size_t to_B, double value, enum unit unit);

#endif
