/* Layouts: Megatron's pipeline strings, layers per chunk, and the even spread.
 * A string is first written out (repeats and groups unrolled) into plain symbols, then read chunk by chunk; both
 * steps refuse in their own words. Grammar and meaning: Megatron-LM
 * core/transformer/pipeline_parallel_layer_layout.py, where commas only help the reader; groups may nest here. */
#include "models/layout.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { SYMBOLS = 8192, NESTING = 16, REPEATS = 100000, WRITTEN_OUT = 4 };

/* ---- writing out: "(tt|)*2" -> "tt|tt|" ---- */
struct writer {
    const char *text, *at;          /* the whole string, and how far it is read */
    char out[SYMBOLS];
    int n;
    struct diag *d;
};

static int writer_place(const struct writer *w) { return (int)(w->at - w->text) + 1; }

static void writer_skip(struct writer *w)
{
    while (*w->at == ',' || *w->at == ' ') w->at++;
}

/* Repeats out[from..] if "*n" follows. */
static enum err writer_repeat(struct writer *w, int from)
{
    const int len = w->n - from;
    writer_skip(w);
    if (*w->at != '*') return OK;
    w->at++;
    if (!isdigit((unsigned char)*w->at))
        return fail(w->d, ERR_CONFIG, "layout needs a number after '*' at character %d", writer_place(w));
    char *end;
    const long times = strtol(w->at, &end, 10);
    if (times < 1 || times > REPEATS)
        return fail(w->d, ERR_CONFIG, "layout repeats outside 1 to %d times after '*' at character %d", REPEATS,
                    writer_place(w));
    if ((times - 1) * len > SYMBOLS - w->n)
        return fail(w->d, ERR_LIMIT, "layout has more than %d symbols when written out", SYMBOLS);
    for (long i = 1; i < times; i++, w->n += len) memcpy(w->out + w->n, w->out + from, (size_t)len);
    w->at = end;
    return OK;
}

static enum err writer_symbol(struct writer *w)
{
    if (!strchr("EtmL|", *w->at))
        return fail(w->d, ERR_CONFIG,
                    "layout has '%c' at character %d: E (embedding), t (layer), m (MTP), L (loss), |, *n and "
                    "(..)*n are known",
                    isprint((unsigned char)*w->at) ? *w->at : '?', writer_place(w));
    if (w->n == SYMBOLS)
        return fail(w->d, ERR_LIMIT, "layout has more than %d symbols when written out", SYMBOLS);
    w->out[w->n++] = *w->at++;
    return OK;
}

/* Symbols and groups up to the end, or up to the ')' of a group. */
static enum err writer_run(struct writer *w, int depth)
{
    for (writer_skip(w); *w->at && *w->at != ')'; writer_skip(w)) {
        const int from = w->n, open = writer_place(w);
        if (*w->at == '(') {
            if (depth == NESTING)
                return fail(w->d, ERR_LIMIT, "layout has groups nested deeper than %d at character %d", NESTING,
                            open);
            w->at++;
            TRY(writer_run(w, depth + 1));
            if (*w->at != ')')
                return fail(w->d, ERR_CONFIG, "layout has '(' at character %d that is not closed", open);
            w->at++;
        } else {
            TRY(writer_symbol(w));
        }
        TRY(writer_repeat(w, from));
    }
    if (*w->at == ')' && depth == 0)
        return fail(w->d, ERR_CONFIG, "layout has ')' at character %d that closes nothing", writer_place(w));
    return OK;
}

/* ---- reading the symbols ---- */
struct tally { int chunks, t, E, m, L; };

static struct tally tally_of(const char *s, int n)
{
    struct tally y = { .chunks = 1 };
    for (int i = 0; i < n; i++) {
        y.chunks += s[i] == '|';
        y.t += s[i] == 't';
        y.E += s[i] == 'E';
        y.m += s[i] == 'm';
        y.L += s[i] == 'L';
    }
    return y;
}

static enum err check_chunks(int chunks, int pp, int vpp, struct diag *d)
{
    if (chunks == pp * vpp) return OK;
    if (chunks % pp == 0)
        return fail(d, ERR_CONFIG,
                    "layout has %d chunks, but pp %d x vpp %d = %d: set layout auto, or vpp %d, which makes %d",
                    chunks, pp, vpp, pp * vpp, chunks / pp, chunks);
    return fail(d, ERR_CONFIG,
                "layout has %d chunks, but pp %d x vpp %d = %d: set layout auto, or pp and vpp so that their "
                "product is %d",
                chunks, pp, vpp, pp * vpp, chunks);
}

static enum err check_layers(int t, int layers, struct diag *d)
{
    if (t == layers) return OK;
    return fail(d, ERR_CONFIG, "layout places %d layers, but the model has %d: %s %d, or set layout auto", t,
                layers, t < layers ? "add" : "remove", abs(layers - t));
}

static enum err fail_empty(const struct layout *l, int chunk, struct diag *d)
{
    return fail(d, ERR_CONFIG, "layout has nothing on chunk %d of %d: give it a layer, or use fewer chunks",
                chunk, l->n_chunk);
}

static enum err check_symbols(const char *s, int n, int layers, int mtp, struct diag *d)
{
    const struct tally y = tally_of(s, n);
    if (y.E != 1 || s[0] != 'E')
        return fail(d, ERR_CONFIG, "layout has %d E: exactly one, as the first symbol of the first chunk", y.E);
    if (y.L != 1 || s[n - 1] != 'L')
        return fail(d, ERR_CONFIG, "layout has %d L: exactly one, as the last symbol of the last chunk", y.L);
    TRY(check_layers(y.t, layers, d));
    if (y.m != mtp)
        return fail(d, ERR_CONFIG, "layout has %d m, but the model has %d MTP layers: %s, or set mtp %d", y.m,
                    mtp, y.m < mtp ? "add m before L" : "remove m", y.m);
    return OK;
}

/* Fills first[] and mtp_chunk from checked symbols. */
static enum err place_symbols(struct layout *l, const char *s, int n, struct diag *d)
{
    int chunk = 0, layer = 0, held = 0;
    for (int i = 0; i < n; i++, held++) {
        if (s[i] == 't') {
            if (l->mtp_chunk >= 0)
                return fail(d, ERR_CONFIG, "layout has a layer (t) after m: m follows the last layer");
            layer++;
        } else if (s[i] == 'm') {
            if (l->mtp_chunk >= 0 && l->mtp_chunk != chunk)
                return fail(d, ERR_LIMIT,
                            "layout has m on chunk %d and on chunk %d: MTP depths apart are not supported; write m*%d "
                            "on one chunk", l->mtp_chunk, chunk, l->mtp);
            l->mtp_chunk = chunk;
        } else if (s[i] == '|') {
            if (held == 0) return fail_empty(l, chunk, d);
            l->first[++chunk] = layer;
            held = -1;              /* the loop's step makes it 0 */
        }
    }
    l->first[l->n_chunk] = layer;
    return OK;
}

static enum err parse_string(struct layout *l, const char *text, int layers, int mtp, int pp, int vpp,
                             struct diag *d)
{
    struct writer w = { .text = text, .at = text, .d = d };
    TRY(writer_run(&w, 0));
    if (w.n == 0)
        return fail(d, ERR_CONFIG, "layout is empty: write auto, layers per chunk, or a string such as Et|tt|tL");
    TRY(check_chunks(tally_of(w.out, w.n).chunks, pp, vpp, d));
    TRY(check_symbols(w.out, w.n, layers, mtp, d));
    return place_symbols(l, w.out, w.n, d);
}

/* ---- layers per chunk: "1,2,2,3" ---- */
static int is_counts(const char *text)
{
    return isdigit((unsigned char)*text) && text[strspn(text, "0123456789, ")] == '\0';
}

static enum err check_counts(const struct layout *l, int layers, struct diag *d)
{
    for (int c = 1; c < l->n_chunk - 1; c++)
        if (l->first[c] == l->first[c + 1]) return fail_empty(l, c, d);
    return check_layers(l->first[l->n_chunk], layers, d);
}

static enum err parse_counts(struct layout *l, const char *text, int layers, int mtp, int pp, int vpp,
                             struct diag *d)
{
    int chunks = 0;
    for (const char *at = text; *at;) {
        char *end;
        const long n = strtol(at, &end, 10);
        if (end == at) return fail(d, ERR_CONFIG, "layout has no number of layers at entry %d", chunks);
        if (n > SYMBOLS)
            return fail(d, ERR_CONFIG, "layout has more than %d layers at entry %d", SYMBOLS, chunks);
        if (chunks < l->n_chunk) l->first[chunks + 1] = l->first[chunks] + (int32_t)n;
        chunks++;
        at = end + strspn(end, " ");
        if (*at && *at != ',') return fail(d, ERR_CONFIG, "layout lacks a comma after entry %d", chunks - 1);
        at += *at == ',' && at[1];              /* a comma at the end stays, and is refused in the next round */
    }
    TRY(check_chunks(chunks, pp, vpp, d));
    if (mtp) l->mtp_chunk = l->n_chunk - 1;
    return check_counts(l, layers, d);
}

/* ---- auto ---- */
/* E, the layers, m and L in a row, cut into chunks whose lengths differ by at most one, the longer ones first.
 * Only where that leaves L alone on the last chunk while m must stand with it, the last chunk takes both and the
 * others share the rest. */
static enum err spread(struct layout *l, int layers, int mtp, int pp, int vpp, struct diag *d)
{
    const int n = l->n_chunk, tail = 1 + mtp, units = 1 + layers + tail;
    const int joined = units / n < tail && n > 1; /* m and L together are more than the last chunk's share */
    const int cut = joined ? n - 1 : n, shared = joined ? units - tail : units;
    if (shared < cut)
        return fail(d, ERR_CONFIG,
                    "pp %d x vpp %d = %d chunks, but %d layers with embedding and loss fill at most %d: "
                    "lower vpp or pp",
                    pp, vpp, n, layers, layers + 2);
    for (int c = 0, end = 0; c < cut; c++) {
        end += shared / cut + (c < shared % cut);
        l->first[c + 1] = end - 1 < layers ? end - 1 : layers;
    }
    l->first[n] = layers;
    if (mtp) l->mtp_chunk = n - 1;
    return OK;
}

/* ---- even ---- */

static enum err share_evenly(struct layout *l, int layers, int mtp, int pp, int vpp, struct diag *d)
{
    const int n = l->n_chunk;
    if (layers % n)
        return fail(d, ERR_CONFIG, "layout even: %d layers do not divide over pp %d x vpp %d = %d chunks: use auto", layers,
                    pp, vpp, n);
    for (int c = 0; c < n; c++) l->first[c + 1] = (c + 1) * (layers / n);
    if (mtp) l->mtp_chunk = n - 1;
    return OK;
}

enum err layout_parse(struct layout *l, const char *text, int layers, int mtp, int pp, int vpp, struct diag *d)
{
    if (pp < 1 || vpp < 1 || (int64_t)pp * vpp > LAYOUT_CHUNKS)
        return fail(d, ERR_LIMIT, "pp %d x vpp %d = %lld chunks: 1 to %d are supported", pp, vpp,
                    (long long)pp * vpp, LAYOUT_CHUNKS);
    if (layers < 1 || layers > SYMBOLS)
        return fail(d, ERR_LIMIT, "layout of %d layers: 1 to %d are supported", layers, SYMBOLS);
    if (mtp < 0 || mtp > SYMBOLS) return fail(d, ERR_LIMIT, "mtp %d: 0 to %d MTP depths are supported", mtp, SYMBOLS);
    struct layout made = { .n_chunk = pp * vpp, .mtp_chunk = -1, .mtp = mtp };
    if (strcmp(text, "auto") == 0)
        TRY(spread(&made, layers, mtp, pp, vpp, d));
    else if (strcmp(text, "even") == 0)
        TRY(share_evenly(&made, layers, mtp, pp, vpp, d));
    else if (is_counts(text))
        TRY(parse_counts(&made, text, layers, mtp, pp, vpp, d));
    else
        TRY(parse_string(&made, text, layers, mtp, pp, vpp, d));
    *l = made;
    return OK;
}

/* ---- printing ---- */
static int layers_on(const struct layout *l, int chunk) { return l->first[chunk + 1] - l->first[chunk]; }

/* `n` layers: written out up to `most`, else "t*n". */
static const char *layers_text(struct arena *a, int n, int most)
{
    return n <= most ? arena_printf(a, "%.*s", n, "tttt") : arena_printf(a, "t*%d", n);
}

static const char *mtp_text(struct arena *a, int n)
{
    return n > 1 ? arena_printf(a, "m*%d", n) : "m";
}

/* Holds layers and nothing else. */
static int is_plain(const struct layout *l, int c)
{
    return c > 0 && c < l->n_chunk - 1 && c != l->mtp_chunk;
}

/* Plain chunks from `c` on that hold the same layers; 1 where `c` is not one. */
static int alike(const struct layout *l, int c)
{
    int n = 1;
    while (is_plain(l, c) && is_plain(l, c + n) && layers_on(l, c + n) == layers_on(l, c)) n++;
    return n;
}

char *layout_text(struct arena *a, const struct layout *l)
{
    char *text = arena_strdup(a, "E");
    for (int c = 0; c < l->n_chunk;) {
        const int n = alike(l, c), t = layers_on(l, c), last = c + n == l->n_chunk;
        if (n > 1)
            text = arena_printf(a, "%s(%s|)*%d", text, layers_text(a, t, WRITTEN_OUT), n);
        else
            text = arena_printf(a, "%s%s%s%s", text, layers_text(a, t, 1), l->mtp_chunk == c ? mtp_text(a, l->mtp) : "",
                                last ? "L" : "|");
        c += n;
    }
    return text;
}
