/* Slices of parameters: whatever the fold, gathering what every rank was given must give the values of the
 * whole back, and a gradient's element comes from the one rank that owns it. No step runs here. */
#include "tests/parity.h"
#include "tests/test.h"

static const struct fold folds[] = {
    { .name = "one rank", .family = MLA },
    { .name = "tp4, kv copied", .family = GQA, .tp = 4 },
    { .name = "tp2 etp2 ep2 dp2", .family = GQA, .tp = 2, .dp = 2, .etp = 2, .ep = 2 },
    { .name = "mla tp2 cp2 pp2 ep4", .family = MLA, .tp = 2, .cp = 2, .pp = 2, .ep = 4 },
    { .name = "tied mtp pp2 vpp2 tp2", .family = TIED_MTP, .tp = 2, .pp = 2, .vpp = 2 },
    { .name = "dense tied pp4 dp2", .family = DENSE, .pp = 4, .dp = 2 },
};

static void open_and_init(struct parity *p, const struct fold *f)
{
    parity_open(p, f, 7, OPTIMIZER_ADAMW);
    for (int r = 0; r < p->j.plan.gpus; r++)
        exec_param_init(&p->pr, &p->u[fold_coord(&p->j.plan, r).pp], &p->j, r, p->arena[r]);
}

START_TEST(gathering_undoes_slicing)
{
    for (int f = 0; f < LEN(folds); f++) {
        struct parity p;
        open_and_init(&p, &folds[f]);
        for (int i = 0; i < p.pr.n_param; i++) {
            const float *whole = parity_whole(&p, i, 0);
            const int64_t n = exec_param_elements(&p.pr.param[i]);
            for (int64_t k = 0; k < n; k++) ck_assert(whole[k] == exec_param_value(&p.j, &p.pr.param[i], k));
        }
        parity_close(&p);
    }
}
END_TEST

/* Every rank marks the part of every gradient bucket that it owns with 1, the rest with NaN: gathered, all
 * is 1. */
static void mark_owned(struct parity *p, int rank)
{
    const struct item once = { .micro = -1 };
    const int stage = fold_coord(&p->j.plan, rank).pp;
    for (int k = 0; k < p->pr.n_bucket; k++) {
        const struct bucket *b = &p->pr.bucket[k];
        if (b->stage != stage) continue;
        float *g = (float *)(void *)(p->arena[rank] + unroll_life(&p->u[stage], &p->pr, &once, b->g)->offset);
        const int64_t n = p->pr.buf[b->g].rows, part = n / fold_size(&p->j, (enum group)b->share_group);
        const int64_t me = fold_members(&p->j, (enum group)b->share_group, rank, NULL);
        for (int64_t i = 0; i < n; i++) g[i] = i / part == me ? 1 : NAN;
    }
}

START_TEST(gradients_come_from_their_owners)
{
    for (int f = 0; f < LEN(folds); f++) {
        struct parity p;
        open_and_init(&p, &folds[f]);
        for (int r = 0; r < p.j.plan.gpus; r++) mark_owned(&p, r);
        for (int i = 0; i < p.pr.n_param; i++) {
            const float *whole = parity_whole(&p, i, 1), want = p.pr.param[i].g ? 1 : 0;
            for (int64_t k = 0; k < exec_param_elements(&p.pr.param[i]); k++) ck_assert(whole[k] == want);
        }
        parity_close(&p);
    }
}
END_TEST

START_TEST(values_have_the_stated_spread)
{
    const struct fold one = { .name = "one rank", .family = MLA };
    struct parity p;
    parity_open(&p, &one, 7, OPTIMIZER_ADAMW);
    for (int i = 0; i < p.pr.n_param; i++) {
        const struct param *q = &p.pr.param[i];
        const char *name = program_param_name((enum param_name)q->name);
        const int64_t n = exec_param_elements(q);
        double sum = 0, square = 0;
        for (int64_t k = 0; k < n; k++) {
            const double v = (double)exec_param_value(&p.j, q, k);
            sum += v;
            square += v * v;
        }
        if (strstr(name, "norm")) ck_assert(sum == (double)n && square == (double)n);
        else if (q->name == PARAM_ROUTER_BIAS) ck_assert(square == 0);
        else {
            const double spread = sqrt(square / (double)n) / p.j.model.init_std, error = 4 / sqrt((double)n);
            ck_assert_msg(fabs(spread - 1) < error, "%s: spread %g", name, spread);
            ck_assert_msg(fabs(sum / (double)n) < error * p.j.model.init_std, "%s: mean %g", name,
                          sum / (double)n);
        }
    }
    parity_close(&p);
}
END_TEST

/* Tables that two stages hold are one; different layers, names and seeds are not. */
START_TEST(values_depend_on_seed_name_layer_and_place_alone)
{
    const struct fold pipe = { .name = "tied mtp pp2", .family = TIED_MTP, .pp = 2 };
    struct parity p;
    parity_open(&p, &pipe, 7, OPTIMIZER_ADAMW);
    const struct param *table = NULL;
    int tables = 0;
    for (int i = 0; i < p.pr.n_param; i++)
        if (p.pr.param[i].name == PARAM_EMBEDDING) table = &p.pr.param[i], tables++;
    ck_assert_int_eq(tables, 2);
    ck_assert_int_eq(table->layer, -1);
    struct param other = *table;
    other.stage = 0;
    ck_assert(exec_param_value(&p.j, &other, 5) == exec_param_value(&p.j, table, 5));
    other.layer = 1;
    ck_assert(exec_param_value(&p.j, &other, 5) != exec_param_value(&p.j, table, 5));
    other = *table;
    other.name = PARAM_HEAD;
    ck_assert(exec_param_value(&p.j, &other, 5) != exec_param_value(&p.j, table, 5));
    struct job seed = p.j;
    seed.plan.seed++;
    ck_assert(exec_param_value(&seed, table, 5) != exec_param_value(&p.j, table, 5));
    parity_close(&p);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = { gathering_undoes_slicing, gradients_come_from_their_owners,
                                   values_have_the_stated_spread,
                                   values_depend_on_seed_name_layer_and_place_alone };
    return test_main("exec_param", tests, LEN(tests), 60);
}
