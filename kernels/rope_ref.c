/* The rotation. Angles are made in double: a float angle of position 100,000 would be off by a hundredth. */
#include "kernels/rope.h"

struct rope_scaling rope_linear(double factor)
{
    return (struct rope_scaling){.factor = factor, .low = -2, .high = -1};
}

struct rope_scaling rope_llama3(double factor, double original, double fast, double slow)
{
    return (struct rope_scaling){.factor = factor, .low = fast, .high = slow, .original = original};
}

/* The pair, in fractions, that makes so many turns. */
static double rope_pair_of(double turns, double original, double theta, int dim)
{
    return dim * log(original / (turns * 2 * 3.14159265358979324)) / (2 * log(theta));
}

struct rope_scaling rope_yarn(double factor, double original, double fast, double slow, int truncate, double magnitude,
                              double theta, int dim)
{
    struct rope_scaling s = {.factor = factor, .magnitude = magnitude};
    s.low = rope_pair_of(fast, original, theta, dim);
    s.high = rope_pair_of(slow, original, theta, dim);
    if (truncate) s.low = floor(s.low), s.high = ceil(s.high);
    s.low = fmax(s.low, 0);
    s.high = fmin(s.high, dim - 1);
    if (s.low == s.high) s.high += 0.001;
    return s;
}

static void rope_turn(float *a, float *b, float cosine, float sine)
{
    const float x = *a, y = *b;
    *a = x * cosine - y * sine;
    *b = y * cosine + x * sine;
}

/* Number i of every head of every row, and its partner. */
static void rope_pair(float *x, int64_t rows, int heads, int width, int dim, const struct rope *r, int i, int back)
{
    const int half = dim / 2;
    const double turn = rope_angle(r, i, dim), size = rope_magnitude(r);
    for (int64_t row = 0; row < rows; row++, x += (int64_t)heads * width) {
        const double angle = rope_place(r, row) * turn;
        const float cosine = (float)(size * cos(angle)), sine = (float)(size * (back ? -sin(angle) : sin(angle)));
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
