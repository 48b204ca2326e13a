/* Text -> tree. libyaml's events are turned into nodes that remember where they stood; whatever two readers
 * of YAML could disagree about (duplicates, anchors, tags, several documents) is refused here, so the rest of
 * the program sees plain maps, lists and scalars. Characters are checked first, because libyaml reports bad
 * ones without a line. */
#include "models/cfg.h"
#include "models/base/whole_file.h"
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

enum { CFG_FILE_B = 4 << 20, CFG_DEPTH = 16, CFG_CHILDREN = 1024 };

struct cfg_reader { yaml_parser_t parser; const struct cfg *c; struct arena *a; struct diag *d; };

static enum err cfg_fail_at(struct diag *d, const char *name, size_t line, size_t column, const char *what)
{
    return fail(d, ERR_CONFIG, "%.200s:%zu:%zu: %s", name, line, column, what);
}

enum err cfg_fail(struct diag *d, const struct cfg *c, const struct cfg_node *at, const char *format, ...)
{
    char what[sizeof(d->text)];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof(what), format, args);
    va_end(args);
    if (at == NULL) at = &c->root;
    return cfg_fail_at(d, c->name, (size_t)at->line, (size_t)at->column, what);
}

struct cfg_shown cfg_shown(const char *text)
{
    struct cfg_shown s;
    size_t n = strnlen(text, sizeof(s.text));
    const int cut = n == sizeof(s.text);
    if (cut) n = sizeof(s.text) - 4;
    while (cut && n > 0 && ((unsigned char)text[n] & 0xC0) == 0x80) n--;    /* whole characters only */
    for (size_t i = 0; i < n; i++)
        s.text[i] = (unsigned char)text[i] < ' ' || text[i] == 0x7F ? '?' : text[i];
    memcpy(s.text + n, cut ? "..." : "", cut ? 4 : 1);
    return s;
}

/* ---- characters ---- */

/* Decodes one character; returns its length, 0 for a malformed one. */
static size_t cfg_decode(uint32_t *code, const unsigned char *s, size_t n)
{
    const size_t len = s[0] < 0x80 ? 1 : s[0] >= 0xC2 && s[0] < 0xE0 ? 2 : (s[0] & 0xF0) == 0xE0 ? 3
                     : s[0] >= 0xF0 && s[0] < 0xF5 ? 4 : 0;
    if (len == 0 || len > n) return 0;
    *code = len == 1 ? s[0] : s[0] & (0xFFu >> (len + 1));
    for (size_t i = 1; i < len; i++) {
        if ((s[i] & 0xC0) != 0x80) return 0;
        *code = *code << 6 | (s[i] & 0x3F);
    }
    const int overlong = (len == 3 && *code < 0x800) || (len == 4 && *code < 0x10000);
    return overlong || *code > 0x10FFFF || (*code >= 0xD800 && *code < 0xE000) ? 0 : len;
}

/* The characters YAML 1.1 allows, section 5.1. */
static int cfg_printable(uint32_t c)
{
    return c == '\t' || c == '\n' || c == '\r' || c == 0x85 || (c >= 0x20 && c < 0x7F) ||
           (c >= 0xA0 && c < 0xFFFE && c != 0xFEFF) || c >= 0x10000;
}

/* Bytes of the mark that some editors put before the text. */
static size_t cfg_mark(const char *text, size_t n)
{
    return n >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
}

static enum err cfg_check_text(const char *name, const char *text, size_t n, struct diag *d)
{
    size_t line = 1, column = 1, i = cfg_mark(text, n);
    if (n > CFG_FILE_B)
        return fail(d, ERR_CONFIG,
                    "%.200s:1:1: %zu bytes are more than the limit of %d: is this the"
                    " right file?",
                    name, n, CFG_FILE_B);
    while (i < n) {
        if (text[i] >= ' ' && text[i] < 0x7F) {         /* nearly all */
            column++, i++;
            continue;
        }
        uint32_t code = 0;
        const size_t len = cfg_decode(&code, (const unsigned char *)text + i, n - i);
        if (len == 0)
            return cfg_fail_at(d, name, line, column, "a byte is not UTF-8: save the file as UTF-8 text");
        if (!cfg_printable(code)) {
            char what[96];
            snprintf(what, sizeof(what), "character U+%04X is not allowed: save the file as plain text",
                     (unsigned)code);
            return cfg_fail_at(d, name, line, column, what);
        }
        if (code == '\n') line++;
        column = code == '\n' ? 1 : column + 1;
        i += len;
    }
    return OK;
}

/* ---- JSON's surrogate pairs ---- */

/* The value of "\uXXXX" at `s`, -1 if there is none. */
static long cfg_escape(const char *s, size_t n)
{
    char digits[5] = "";
    if (n < 6 || s[0] != '\\' || s[1] != 'u') return -1;
    memcpy(digits, s + 2, 4);
    return strspn(digits, "0123456789abcdefABCDEF") == 4 ? strtol(digits, NULL, 16) : -1;
}

/* JSON writes a character beyond U+FFFF as two escapes, which libyaml refuses: they become YAML's one
 * "\U0001F600". Columns behind one on its line are two less than in the file. Returns the length written. */
static size_t cfg_join_pairs(char *to, const char *text, size_t n)
{
    size_t i = 0, out = 0;
    while (i < n) {
        const char *slash = memchr(text + i, '\\', n - i);
        const size_t plain = slash != NULL ? (size_t)(slash - (text + i)) : n - i;
        memcpy(to + out, text + i, plain);
        out += plain;
        i += plain;
        if (slash == NULL) break;
        const long high = cfg_escape(text + i, n - i),
                   low = n - i > 6 ? cfg_escape(text + i + 6, n - i - 6) : -1;
        if (high >= 0xD800 && high < 0xDC00 && low >= 0xDC00 && low < 0xE000) {
            char pair[16];
            snprintf(pair, sizeof(pair), "\\U%08lX", 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00));
            memcpy(to + out, pair, 10);
            out += 10;
            i += 12;
        } else {
            const size_t len = i + 1 < n ? 2 : 1;       /* an escaped backslash begins no escape */
            memcpy(to + out, text + i, len);
            out += len;
            i += len;
        }
    }
    return out;
}

/* ---- events -> nodes ---- */

static enum err cfg_event(struct cfg_reader *r, yaml_event_t *e)
{
    if (yaml_parser_parse(&r->parser, e)) return OK;
    const char *problem = r->parser.problem != NULL ? r->parser.problem : "unreadable";
    const char *context = r->parser.context != NULL ? r->parser.context : "";
    char what[256];
    snprintf(what, sizeof(what), "not YAML: %s%s%s: check indentation (spaces, no tabs), quotes and colons",
             problem, *context ? " " : "", context);
    return cfg_fail_at(r->d, r->c->name, r->parser.problem_mark.line + 1, r->parser.problem_mark.column + 1,
                       what);
}

static enum err cfg_node(struct cfg_reader *r, struct cfg_node *node, const yaml_event_t *e, int depth);

/* Reads events up to the end of a map or list into `node`. */
static enum err cfg_children(struct cfg_reader *r, struct cfg_node *node, yaml_event_type_t end, int depth);

/* A key that libyaml just gave: a plain scalar, and new in its map. */
static enum err cfg_key(struct cfg_reader *r, const struct cfg_node *map, const struct cfg_node *key)
{
    if (key->type != CFG_SCALAR) return cfg_fail(r->d, r->c, key, "a key is a word, not a map or a list");
    for (int i = 0; i < map->n; i++)
        if (cfg_same_key(map->key[i], key->text))
            return cfg_fail(r->d, r->c, key, "'%s' stands twice, first on line %d: keep one",
                            cfg_shown(key->text).text, map->child[i].line);
    return OK;
}

/* Room for one more child; sizes are powers of two. */
static void cfg_room(struct cfg_reader *r, struct cfg_node *node)
{
    const size_t n = (size_t)node->n;
    if ((n & (n - 1)) != 0 && n > 0) return;
    node->child = arena_grow(r->a, node->child, n, n > 0 ? 2 * n : 1, sizeof(*node->child));
    if (node->type == CFG_MAP)
        node->key = arena_grow(r->a, node->key, n, n > 0 ? 2 * n : 1, sizeof(*node->key));
}

/* One value of a list; or, of a map, a key (`e`) and the value behind it. */
static enum err cfg_child(struct cfg_reader *r, struct cfg_node *node, const yaml_event_t *e, int depth)
{
    struct cfg_node child = { 0 };
    TRY(cfg_node(r, &child, e, depth));
    if (node->n == CFG_CHILDREN)
        return cfg_fail(r->d, r->c, &child, "more than %d entries: is this the right file?", CFG_CHILDREN);
    cfg_room(r, node);
    if (node->type == CFG_MAP) {
        yaml_event_t value;
        TRY(cfg_key(r, node, &child));
        node->key[node->n] = child.text;
        TRY(cfg_event(r, &value));
        const enum err status = cfg_node(r, &child, &value, depth);
        yaml_event_delete(&value);
        TRY(status);
    }
    node->child[node->n++] = child;
    return OK;
}

static enum err cfg_children(struct cfg_reader *r, struct cfg_node *node, yaml_event_type_t end, int depth)
{
    if (depth > CFG_DEPTH)
        return cfg_fail(r->d, r->c, node, "nested %d deep, at most %d are read: flatten it", depth,
                        CFG_DEPTH);
    for (;;) {
        yaml_event_t e;
        TRY(cfg_event(r, &e));
        const int done = e.type == end;
        const enum err status = done ? OK : cfg_child(r, node, &e, depth);
        yaml_event_delete(&e);
        if (done || status != OK) return status;
    }
}

/* Anchors, aliases and tags have no meaning here, so they are not silently dropped. */
static enum err cfg_plain(struct cfg_reader *r, const struct cfg_node *node, const yaml_char_t *anchor,
                          const yaml_char_t *tag)
{
    if (anchor != NULL)
        return cfg_fail(r->d, r->c, node, "anchor '&%s' is not supported: write the value out",
                        cfg_shown((const char *)anchor).text);
    if (tag != NULL)
        return cfg_fail(r->d, r->c, node, "tag '%s' is not supported: leave it out",
                        cfg_shown((const char *)tag).text);
    return OK;
}

static enum err cfg_scalar(struct cfg_reader *r, struct cfg_node *node, const yaml_event_t *e)
{
    const char *text = (const char *)e->data.scalar.value;
    node->type = CFG_SCALAR;
    TRY(cfg_plain(r, node, e->data.scalar.anchor, e->data.scalar.tag));
    if (strlen(text) != e->data.scalar.length)
        return cfg_fail(r->d, r->c, node, "a text contains \\0: leave it out");
    node->text = arena_strdup(r->a, text);
    return OK;
}

static enum err cfg_node(struct cfg_reader *r, struct cfg_node *node, const yaml_event_t *e, int depth)
{
    *node = (struct cfg_node){ .line = (int)e->start_mark.line + 1, .column = (int)e->start_mark.column + 1 };
    switch (e->type) {
    case YAML_SCALAR_EVENT:
        return cfg_scalar(r, node, e);
    case YAML_MAPPING_START_EVENT:
        node->type = CFG_MAP;
        TRY(cfg_plain(r, node, e->data.mapping_start.anchor, e->data.mapping_start.tag));
        return cfg_children(r, node, YAML_MAPPING_END_EVENT, depth + 1);
    case YAML_SEQUENCE_START_EVENT:
        node->type = CFG_LIST;
        TRY(cfg_plain(r, node, e->data.sequence_start.anchor, e->data.sequence_start.tag));
        return cfg_children(r, node, YAML_SEQUENCE_END_EVENT, depth + 1);
    default:
        return cfg_fail(r->d, r->c, node, "alias '*%s' is not supported: write the value out",
                        e->type == YAML_ALIAS_EVENT ? cfg_shown((const char *)e->data.alias.anchor).text
                                                    : "");
    }
}

/* The events around the one document. */
static enum err cfg_document(struct cfg_reader *r, struct cfg_node *root)
{
    int n_document = 0;
    for (;;) {
        yaml_event_t e;
        TRY(cfg_event(r, &e));
        const struct cfg_node here = {.line = (int)e.start_mark.line + 1,
                                      .column = (int)e.start_mark.column + 1};
        const yaml_event_type_t type = e.type;
        enum err status = OK;
        if (type == YAML_DOCUMENT_START_EVENT && ++n_document > 1)
            status =
                cfg_fail(r->d, r->c, &here, "a second document begins: one file holds one, remove the rest");
        else if (type != YAML_STREAM_START_EVENT && type != YAML_DOCUMENT_START_EVENT &&
                 type != YAML_DOCUMENT_END_EVENT && type != YAML_STREAM_END_EVENT)
            status = cfg_node(r, root, &e, 0);
        yaml_event_delete(&e);
        TRY(status);
        if (type == YAML_STREAM_END_EVENT)
            return n_document > 0
                       ? OK
                       : cfg_fail(r->d, r->c, &here, "the file is empty: write 'key: value' lines");
    }
}

enum err cfg_read_text(struct cfg *c, struct arena *a, const char *name, const char *text, size_t text_B,
                       struct diag *d)
{
    struct cfg read = { .name = arena_strdup(a, name) };
    struct cfg_reader r = { .c = &read, .a = a, .d = d };
    TRY(cfg_check_text(name, text, text_B, d));
    char *joined = arena_alloc(a, text_B + 1);
    const size_t mark = cfg_mark(text, text_B), joined_B = cfg_join_pairs(joined, text + mark, text_B - mark);
    if (!yaml_parser_initialize(&r.parser)) return fail(d, ERR_IO, "%.200s: out of memory in libyaml", name);
    yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)joined, joined_B);
    struct cfg_node root = { 0 };
    const enum err status = cfg_document(&r, &root);
    yaml_parser_delete(&r.parser);
    TRY(status);
    *c = (struct cfg){ .name = read.name, .root = root };
    return OK;
}

enum err cfg_read_file(struct cfg *c, struct arena *a, const char *path, struct diag *d)
{
    char *text;
    size_t n;
    TRY(whole_file_read(&text, &n, a, path, CFG_FILE_B, d));
    return cfg_read_text(c, a, path, text, n, d);
}

/* ---- looking things up ---- */

static int cfg_same_prefix(const char *a, const char *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char x = a[i] == '_' ? '-' : a[i], y = b[i] == '_' ? '-' : b[i];
        if (x != y || x == '\0') return x == y;
    }
    return 1;
}

int cfg_same_key(const char *a, const char *b)
{
    return cfg_same_prefix(a, b, SIZE_MAX);
}

const struct cfg_node *cfg_find(const struct cfg_node *map, const char *key)
{
    const size_t n = strcspn(key, ".");
    if (map->type != CFG_MAP) return NULL;
    for (int i = 0; i < map->n; i++) {
        if (strlen(map->key[i]) != n || !cfg_same_prefix(map->key[i], key, n)) continue;
        return key[n] == '.' ? cfg_find(&map->child[i], key + n + 1) : &map->child[i];
    }
    return NULL;
}
