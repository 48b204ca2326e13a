/* Figures as pictures: a curve of one figure over the values of an option (predict --vary), and bars of what a
 * better machine buys (predict --sensitivity). Text that a user wrote goes through draw_safe. */
#include "tools/draw.h"
#include <math.h>

enum { WIDTH = 760, HEIGHT = 300, LEFT = 90, RIGHT = 30, TOP = 44, BOTTOM = 52, BAR = 24 };

static void open_svg(FILE *out, int width, int height, const char *title)
{
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
            "font-family=\"Helvetica,Arial,sans-serif\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n"
            "<text x=\"8\" y=\"22\" font-size=\"16\">%s</text>\n",
            width, height, width, height, title);
}

void draw_curve(FILE *out, const char *key, const struct vary_row *row, int n)
{
    const int wide = WIDTH - LEFT - RIGHT, high = HEIGHT - TOP - BOTTOM;
    double most = 0;
    char safe[64], text[128];
    snprintf(text, sizeof text, "tokens/s/GPU over %s", draw_safe(safe, key));
    open_svg(out, WIDTH, HEIGHT, text);
    for (int i = 0; i < n; i++)
        if (isfinite(row[i].tokens_per_s_gpu)) most = fmax(most, row[i].tokens_per_s_gpu);
    for (int k = 0; k <= 4 && most > 0; k++) {
        const double y = TOP + high * (1 - k / 4.0);
        fprintf(out, "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/><text x=\"%d\" y=\"%.1f\" "
                     "text-anchor=\"end\" font-size=\"11\" fill=\"#555\">%.4g</text>\n",
                LEFT, WIDTH - RIGHT, y, y, LEFT - 6, y + 4, most * k / 4);
    }
    double last_x = -1, last_y = 0;
    for (int i = 0; i < n; i++) {
        const double x = LEFT + (n > 1 ? (double)wide * i / (n - 1) : wide / 2.0);
        fprintf(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\" font-size=\"11\">%s</text>\n", x,
                HEIGHT - BOTTOM + 18, draw_safe(safe, row[i].value));
        if (!isfinite(row[i].tokens_per_s_gpu)) {
            fprintf(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\" font-size=\"11\" "
                "fill=\"#e34a33\">refused</text>\n",
                    x, HEIGHT - BOTTOM + 34);
            last_x = -1;
            continue;
        }
        const double y = TOP + high * (1 - row[i].tokens_per_s_gpu / most);
        if (last_x >= 0)
            fprintf(out, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#3182bd\" "
                "stroke-width=\"2\"/>\n", last_x,
                    last_y, x, y);
        fprintf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4.5\" fill=\"%s\" stroke=\"#3182bd\"><title>%s: "
            "%.1f</title></circle>\n",
                x, y, row[i].feasible ? "#3182bd" : "white", safe, row[i].tokens_per_s_gpu);
        if (!row[i].feasible)
            fprintf(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\" font-size=\"11\" "
                "fill=\"#e34a33\">too big</text>\n", x,
                    HEIGHT - BOTTOM + 34);
        last_x = x;
        last_y = y;
    }
    fprintf(out, "</svg>\n");
}

void draw_sensitivity(FILE *out, const struct sensitivity_row *row, int n)
{
    const double most = n && row[0].gain > 0 ? row[0].gain : 1;
    open_svg(out, WIDTH, TOP + n * BAR + 12, "tokens/s gained by a tenth of each figure of the system");
    for (int i = 0; i < n; i++) {
        const double y = TOP + i * BAR, w = 360 * fmax(0, row[i].gain) / most;
        fprintf(out,
                "<text x=\"150\" y=\"%.1f\" text-anchor=\"end\" font-size=\"12\">%s</text><rect x=\"158\" y=\"%.1f\" "
                "width=\"%.1f\" height=\"%d\" fill=\"#3182bd\"/><text x=\"%.1f\" y=\"%.1f\" font-size=\"12\" "
                "fill=\"#555\">%+.3g "
                "%%%s%s</text>\n",
                y + 15, row[i].key, y + 3, fmax(w, 0.8), BAR - 8, 158 + w + 8, y + 15, 100 * row[i].gain,
                row[i].with ? " " : "", row[i].with ? row[i].with : "");
    }
    fprintf(out, "</svg>\n");
}
