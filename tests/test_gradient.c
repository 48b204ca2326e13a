/* Backward against finite differences of forward, on one rank with top-k = experts (a routing flip is no
 * derivative): what parity cannot see, because all folds share it. The loss is summed here in doubles from what
 * XENT reads; the change that backward predicts is the sum of gradient times the change that floats really
 * made. */
#include "tests/parity.h"
#include "tests/test.h"

/* What the launchers and hooks of this file share with a test; one rank, one thread at a time. */
static struct watch {
    struct parity *p;
    double loss;                    /* of the step, MTP at its weight */
    int param; const float *along; double far;      /* what to add to a parameter */
    double predicted;               /* sum of gradient times change */
    const float *gradient;
} watch;

static enum err watched_xent(const struct call *c)
{
    const float *sum = c->read[0].p;
    const double weight = (c->op->flags & OP_MTP ? c->job->model.mtp_weight : 1) / (PARITY_GBS * PARITY_SEQ);
    for (int64_t t = 0; t < c->read[0].rows; t++)
        watch.loss += weight * (log((double)sum[2 * t]) - (double)sum[2 * t + 1]);
    return backend_cpu_launch[OP_XENT](c);
}

static void move_parameter(void *user, int rank, const struct unroll *u, char *arena)
{
    const struct parity *p = user;
    const struct param *q = &p->pr.param[watch.param];
    const struct item once = { .micro = -1 };
    float *w = (float *)(void *)(arena + unroll_life(u, &p->pr, &once, q->w)->offset) + p->pr.buf[q->w].view_at;
    ck_assert_int_eq(rank, 0);
    for (int64_t i = 0; i < exec_param_elements(q); i++) {
        const float before = w[i];
        w[i] = (float)((double)before + watch.far * (double)watch.along[i]);
        watch.predicted += (double)watch.gradient[i] * ((double)w[i] - (double)before);
    }
}

static double loss_at(struct parity *p, double far)
{
    struct arena a = { 0 };
    struct exec_result r;
    watch.loss = 0;
    watch.far = far;
    ck_assert_msg(exec_run(&r, &a, &p->pr, p->u, &p->j, &p->ask, &p->d) == OK, "%s", p->d.text);
    arena_free(&a);
    return watch.loss;
}

/* Central difference along `along` (of length 1 times `far`): off by how much of the change that backward
 * predicts? */
static void derivative_agrees(struct parity *p, int param, const float *along, double far, double tolerance,
                              const char *what)
{
    char name[64];
    watch.param = param;
    watch.along = along;
    watch.predicted = 0;
    const double up = loss_at(p, far), predicted_up = watch.predicted;
    watch.predicted = 0;
    const double down = loss_at(p, -far), predicted = predicted_up - watch.predicted, measured = up - down;
    ck_assert_msg(fabs(measured - predicted) <= tolerance * fabs(predicted) + 3e-7,
                  "%s, %s: loss changes by %.6g, backward says %.6g", parity_name(name, &p->pr.param[param]),
                  what, measured, predicted);
}

/* The largest gradients of a tensor, one in each third of it. */
static void elements_agree(struct parity *p, int param, const float *g, int64_t n, float *along)
{
    for (int third = 0; third < 3; third++) {
        int64_t at = n * third / 3;
        for (int64_t i = at; i < n * (third + 1) / 3; i++)
            if (fabsf(g[i]) > fabsf(g[at])) at = i;
        memset(along, 0, (size_t)n * sizeof *along);
        along[at] = 1;
        derivative_agrees(p, param, along, 0.02, 0.02, "one element");
    }
}

static void directions_agree(struct parity *p, int param, const float *g, int64_t n, float *along)
{
    const double norm = parity_norm(g, NULL, n);
    const double far = fmin(0.1, 2e-3 / norm);
    for (int64_t i = 0; i < n; i++) along[i] = (float)((double)g[i] / norm);
    derivative_agrees(p, param, along, far, 5e-3, "along the gradient");
    uint32_t x = 12345; /* signs at random, leaning to the gradient so that the change can be seen */
    for (int64_t i = 0; i < n; i++) {
        x = x * 1664525 + 1013904223;
        along[i] = (float)((double)g[i] / norm * (x >> 31 ? 1.5 : 0.25));
    }
    derivative_agrees(p, param, along, far, 5e-3, "a random direction");
}

/* Dropped by position, since a choice by weight could flip. */
static const struct fold one[] = {
    { .name = "gqa", .family = GQA_ALL }, { .name = "mla", .family = MLA_ALL }, { .name = "dense", .family = DENSE },
    { .name = "v2", .family = V2_ALL }, { .name = "oss", .family = OSS_ALL }, { .name = "latent", .family = LATENT_ALL },
    { .name = "mla, dropped", .family = MLA_ALL, .load = "drop:cf0.6:position" },
    { .name = "oss, dropped and filled up", .family = OSS_ALL, .load = "padded:cf0.4:position" },
    { .name = "gqa, filled up", .family = GQA_ALL, .load = "padded:cf1:position" },
};

START_TEST(backward_is_the_derivative_of_forward)
{
    struct parity p;
    launch *table[OP_KIND_COUNT];
    parity_open(&p, &one[_i], 3, OPTIMIZER_SGD);
    memcpy(table, backend_cpu_launch, sizeof table);
    table[OP_XENT] = watched_xent;
    p.ask.steps = 1;
    p.ask.backend = table;
    ck_assert_msg(parity_run(&p) == OK, "%s", p.d.text);
    p.ask.after_step = NULL;
    p.ask.poison = 0;
    p.ask.before = move_parameter;
    for (int i = 0; i < p.pr.n_param; i += PARITY_STRIDE) {
        const int64_t n = exec_param_elements(&p.pr.param[i]);
        float *along = arena_alloc(&p.a, (size_t)n * sizeof *along);
        if (!p.pr.param[i].g) continue;
        watch.gradient = parity_whole(&p, i, 1);
        directions_agree(&p, i, watch.gradient, n, along);
        elements_agree(&p, i, watch.gradient, n, along);
    }
    parity_close(&p);
}
END_TEST

int main(void)
{
    const struct test_loop tests[] = {
        { backward_is_the_derivative_of_forward, LEN(one) },
    };
    return test_main_loops("gradient", NULL, tests, LEN(tests), 240);
}
