/* The rotation. Angles are made in double: a float angle of position 100,000 would be off by a hundredth. */
#include "kernels/rope.h"
#include <math.h>

static void rope_turn(float *a, float *b, float cosine, float sine)
{
    const float x = *a, y = *b;
    *a = x * cosine - y * sine;
    *b = y * cosine + x * sine;
}

/* Number i of every head of every row, and its partner. */
static void rope_pair(float *x, int64_t rows, int heads, int width, int dim, const struct rope *r, int i, int back)
{
    const int local = r->seq / r->cp, half = dim / 2;
    const double turn = pow(r->theta, -2.0 * i / dim);
    for (int64_t row = 0; row < rows; row++, x += (int64_t)heads * width) {
        const double angle = rope_position((int)(row % local), r->seq, r->cp, r->index) * turn;
        const float cosine = (float)cos(angle), sine = (float)(back ? -sin(angle) : sin(angle));
        for (int h = 0; h < heads; h++) {
            float *head = x + (int64_t)h * width + width - dim;
            rope_turn(&head[i], &head[i + half], cosine, sine);
        }
    }
}

enum err rope_ref(float *x, int64_t rows, int heads, int width, int dim, const struct rope *r, int back)
{
    for (int i = 0; i < dim / 2; i++) rope_pair(x, rows, heads, width, dim, r, i, back);
    return OK;
}
