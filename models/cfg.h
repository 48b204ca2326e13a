/* Reads YAML (JSON is YAML here) with libyaml into a tree that remembers line and column, and moves values between
 * that tree, the command line and plain structs by one table of options per kind of file.
 * Refused, each with its place: unknown and duplicate keys (with the nearest known key), anchors, aliases, tags, more
 * than one document, nesting over 16, files over 4 MiB, numbers out of range, missing units. */
#ifndef MODELS_CFG_H
#define MODELS_CFG_H
#include "models/base/arena.h"
#include "models/base/err.h"
#include "models/base/units.h"

struct cfg_node {
    enum { CFG_SCALAR, CFG_MAP, CFG_LIST } type;
    const char *text;                   /* of a scalar                                  */
    int line, column;                   /* from 1                                       */
    int n;                              /* children                                     */
    struct cfg_node *child;             /* values, in file order                        */
    const char **key;                   /* of a map, key[i] names child[i]              */
};

/* A document and where it came from. `name` stands before line and column in every message. */
struct cfg { const char *name; struct cfg_node root; };

enum err cfg_read_text(struct cfg *c, struct arena *a, const char *name, const char *text, size_t text_B, struct diag *d);
enum err cfg_read_file(struct cfg *c, struct arena *a, const char *path, struct diag *d);
/* ERR_CONFIG as "NAME:LINE:COLUMN: text". */
enum err cfg_fail(struct diag *d, const struct cfg *c, const struct cfg_node *at, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The value of `key` in a map, or NULL. "a.b" is b in the map a; '_' and '-' are equal. */
const struct cfg_node *cfg_find(const struct cfg_node *map, const char *key);
/* Whether two keys are the same: '_' and '-' are equal. */
int cfg_same_key(const char *a, const char *b);
/* User text for a message: control characters replaced, cut to size. `cfg_shown(x).text` lives as long as its expression. */
struct cfg_shown { char text[64]; };
struct cfg_shown cfg_shown(const char *text);

/* ---- one row per option: it serves file, flag, --help and echo ---- */
enum opt_type {
    OPT_INT,        /* int32_t, lo..hi                                                                          */
    OPT_NUMBER,     /* double in `unit`, lo..hi                                                                 */
    OPT_BOOL,       /* int32_t: 0 1 false true                                                                  */
    OPT_NAME,       /* int32_t: index in `names`                                                                */
    OPT_SET,        /* int32_t: bit i is names[i]; written "a+b", "none" when empty; a YAML list is accepted     */
    OPT_TEXT,       /* char[size]: printable, no longer than size - 1                                           */
};
struct word { const char *text; double value; };     /* a word that stands for a value, such as { "auto", -1 }    */
struct opt {
    const char *key;                    /* in the file; "a.b" for a key in a nested map; the flag is --key       */
    enum opt_type type;
    size_t at, size;                    /* offsetof and sizeof in the struct that the table describes            */
    enum unit unit; double lo, hi;
    const char *const *names;           /* NULL-ended                                                           */
    const char *def;                    /* as a user would type it; NULL: required                              */
    const char *help;                   /* one line, with the unit                                              */
    const struct word *words;           /* NULL, or words accepted and echoed beside the values; ends with a NULL text */
    const char *prefix;                 /* NULL, or what may stand before the names of an OPT_SET: "selective:"   */
};

/* Fills `to` from a map: defaults first, then every key of the file; a missing required key is an error. `set` (n_opt
 * bytes, may be NULL) tells which options the document gave. */
enum err cfg_fill(void *to, char *set, const struct opt *table, int n_opt, const struct cfg *c, struct diag *d);
/* All defaults; required options are left zero. */
void cfg_defaults(void *to, const struct opt *table, int n_opt);
/* One option from text; `where` begins the message: "--tp" or "FILE:LINE:COLUMN". */
enum err cfg_set(void *to, const struct opt *o, const char *text, const char *where, struct diag *d);
/* Gives an error that begins with a key ("ep = 3 does not divide ...") its place: the flag's name when `flagged` (n_opt
 * bytes, may be NULL) has it, else where the document has it, else the document (`c` may be NULL). Returns `e`. */
enum err cfg_locate(struct diag *d, enum err e, const struct opt *table, int n_opt, const char *flagged,
                    const struct cfg *c);
/* The row of `key`, or NULL. With '_' and '-' taken as equal. */
const struct opt *cfg_opt(const struct opt *table, int n_opt, const char *key);
/* The known key nearest to `key` by edit distance, or NULL when none is near. */
const char *cfg_nearest(const struct opt *table, int n_opt, const char *key);
/* An option's value as cfg_set would read it back. Returns `text`. */
char *cfg_echo(char *text, size_t text_B, const void *from, const struct opt *o);

/* ---- the embedded configs (generated by CMake from configs/) ---- */
struct cfg_file { const char *kind, *name, *text; };    /* "models", "deepseek-v3", the file's text */
extern const struct cfg_file cfg_embedded[];
extern const int cfg_embedded_n;
/* Refuses an `arg` that is no file and not embedded, with the nearest name. The message begins with `key`, for cfg_locate. */
enum err cfg_check_name(const char *kind, const char *arg, const char *key, struct diag *d);
/* `arg` with '/' or ending in .yaml or .json is a file; else a name in `kind`, unknown ones refused with the nearest. */
enum err cfg_read_named(struct cfg *c, struct arena *a, const char *kind, const char *arg, struct diag *d);
/* "qwen" for "configs/models/qwen.yaml": what a description is called that does not name itself. Returns `to`. */
char *cfg_stem(char *to, size_t to_B, const char *name);

#endif
