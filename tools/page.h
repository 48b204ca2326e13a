/* A plan's answer as one HTML document that needs nothing else: no network, no scripts. */
#ifndef TOOLS_PAGE_H
#define TOOLS_PAGE_H
#include "tools/draw.h"
#include "tools/view.h"

/* Writes it whole. `step` NULL: its pictures would be too large, and the page says so. */
void page_write(FILE *out, struct arena *a, const struct view *v, const struct view_ask *ask,
    const struct draw_step *step);
/* User text without what HTML would read as more than text. */
void page_text(FILE *out, const char *text);

#endif
