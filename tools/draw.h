/* Pictures as text: DOT for Graphviz, and SVG for timelines, whose axis Graphviz does not know. Colours are the
 * same everywhere: forward blue, backward orange, communication by stream. */
#ifndef TOOLS_DRAW_H
#define TOOLS_DRAW_H
#include "models/place.h"
#include "models/trace.h"
#include "sim/sim.h"
#include "tools/beside.h"
#include "tools/sensitivity.h"
#include "tools/vary.h"
#include <stdio.h>

/* The fill of the i-th of many like things; neighbours differ. */
const char *draw_color(int i);
/* A user's text without what DOT, HTML or XML would read as more than text. Returns `to`. */
char *draw_safe(char to[64], const char *text);

/* Ranks on NVLink domains and hosts, each filled with the colour of its group of kind `g`. DOT. */
enum { DRAW_GPUS = 4096 };
void draw_groups(FILE *out, const struct job *j, enum group g);

/* The ops of one pass of one chunk in issue order, and the buffers that flow between them. DOT. `layer` -1: all. */
struct draw_part { int stage, chunk, backward, layer; };    /* chunk: the v-th of the stage */
void draw_program(FILE *out, const struct program *pr, const struct job *j, const struct draw_part *part);

/* A plan's program, priced and swept: one rank a stage. ERR_NO: ranks would wait for each other. */
struct draw_step { struct program pr; struct trace t; struct cost c; };
enum err draw_step_sweep(struct draw_step *w, struct arena *a, const struct job *j, struct diag *d);

/* One row a stage, one bar a pass: when each stage works on which micro-batch of which chunk. SVG. `t`: sorted, one
 * rank a stage (the first of each), one iteration. */
void draw_pipeline(FILE *out, struct arena *a, const struct program *pr, const struct job *j,
                   const struct trace *t);
/* Bytes allocated over the same step, a row a stage. SVG. `price`: pass_price_all of the program. */
void draw_memory(FILE *out, const struct program *pr, const struct job *j, const struct trace *t,
                 const struct pass_price *price);

/* Stages on NVLink domains and hosts, and the load of a GPU's links in a step. SVG. `l`, `place`: as predicted. */
void draw_topology(FILE *out, const struct job *j, const struct sim_lines *l, const struct place *place);
/* tokens/s/GPU at every value of `key`; what each figure of the machine buys, most first. SVG. */
void draw_curve(FILE *out, const char *key, const struct vary_row *row, int n);
void draw_sensitivity(FILE *out, const struct sensitivity_row *row, int n);

/* A measured step under its prediction: two lanes a rank, on one axis. SVG. At most DRAW_LANES ranks. */
enum { DRAW_LANES = 64 };
void draw_timeline(FILE *out, struct arena *a, const struct beside *b);
/* A tick at 1, 2 or 5 times a power of ten, about ten of them: lines from y0 to y1, times below. */
void draw_ticks(FILE *out, double left, double per_ns, int64_t end_ns, double y0, double y1);

#endif
