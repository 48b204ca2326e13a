/* Checkpoints: what one plan wrote another reads, to the last bit and back again; what is broken is refused
 * by name; what is there under its name is whole, whenever a writer died. */
#include "exec/train.h"
#include "tests/parity.h"
#include "tests/test.h"
#include <dirent.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static char root[64];

static void make_root(void)
{
    strcpy(root, "/tmp/moefold-checkpoint-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(root));
}

static void drop_root(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", root);
    ck_assert_int_eq(system(command), 0);
}

static char *in_root(struct arena *a, const char *name)
{
    return arena_printf(a, "%s/%s", root, name);
}

/* Numbers that say where they are, in all that is kept. */
static void fill_state(struct state *s, const struct parity *p)
{
    state_make(s, (struct arena *)(uintptr_t)&p->a, &p->pr, &p->j);
    for (int r = 0; r < s->n_rank; r++) {
        const int stage = fold_coord(&p->j.plan, r).pp;
        for (int i = 0; i < p->pr.n_param; i++) {
            const struct param *q = &p->pr.param[i];
            if (q->stage != stage) continue;
            const struct exec_param_slice slice =
                exec_param_slice(&p->pr, &p->j, q, fold_coord(&p->j.plan, r));
            const int64_t n = slice.batch * slice.rows * slice.cols;
            const struct bucket *k = q->g ? exec_param_bucket(&p->pr, q) : NULL;
            const struct exec_param_owned own =
                k ? exec_param_owned(&p->pr, &p->j, q, r) : (struct exec_param_owned){ 0, 0 };
            for (int64_t e = 0; e < n; e++) {
                const int64_t row = e / slice.cols,
                              at = exec_param_place(&slice, row / slice.rows, row % slice.rows) +
                                   e % slice.cols,
                              here = p->pr.buf[q->w].view_at + e;
                const float v = (float)(at % 4099) + (float)q->name / 64 + (float)(q->layer + 1) / 4096;
                state_at(s, r, q->w)[e] = v;
                if (!k || !k->m || here < own.first || here >= own.end) continue;
                state_at(s, r, k->m)[here - own.first] = v + 5000;
                state_at(s, r, k->v)[here - own.first] = v + 10000;
            }
        }
    }
}

static const char *save(const struct parity *p, const struct state *s, const char *name, int64_t step)
{
    struct checkpoint c;
    struct diag d;
    struct arena *a = (struct arena *)(uintptr_t)&p->a;
    const struct checkpoint_head head = {
        .step = step, .sequences = 8 * step, .seq = 16, .optimizer = p->j.plan.optimizer
    };
    ck_assert_msg(checkpoint_begin(&c, a, in_root(a, name), &p->pr, &p->j, &head, &d) == OK, "%s", d.text);
    for (int r = 0; r < p->j.plan.gpus; r++)
        ck_assert_msg(checkpoint_shard(&c, s, r, &d) == OK, "%s", d.text);
    ck_assert_msg(checkpoint_commit(&c, &d) == OK, "%s", d.text);
    return arena_strdup(a, c.dir);
}

static void load(struct state *s, struct parity *p, const char *dir)
{
    struct checkpoint_file c;
    state_make(s, &p->a, &p->pr, &p->j);
    ck_assert_msg(checkpoint_open(&c, &p->a, dir, &p->d) == OK, "%s", p->d.text);
    ck_assert_msg(checkpoint_load(&c, s, &p->j, &p->d) == OK, "%s", p->d.text);
    ck_assert_int_eq(c.head.sequences, 8 * c.head.step);
    checkpoint_close(&c);
}

static const struct { struct fold one, other;
} pairs[] = {
    { { .name = "one rank", .family = GQA },
      { .name = "tp4 kv copied dp2 / ep4", .family = GQA, .tp = 4, .dp = 2, .ep = 4 } },
    { { .name = "dp8", .family = MLA, .dp = 8 },
      { .name = "tp2 cp2 pp2 / ep4", .family = MLA, .tp = 2, .cp = 2, .pp = 2, .ep = 4 } },
    { { .name = "tied mtp pp2 vpp2", .family = TIED_MTP, .pp = 2, .vpp = 2 },
      { .name = "tied mtp tp2 dp2 / etp2 ep2", .family = TIED_MTP, .tp = 2, .dp = 2, .etp = 2, .ep = 2 } },
    { { .name = "dense tp2 dp2", .family = DENSE, .tp = 2, .dp = 2 },
      { .name = "dense pp4", .family = DENSE, .pp = 4 } },
    { { .name = "mla dp3 of 24", .family = MLA_ALL, .dp = 2, .etp = 2 },
      { .name = "mla cp4 ep4", .family = MLA_ALL, .cp = 4, .ep = 4 } },
};

/* From one plan into another: every number is where it says it is. And back: the files are the same bytes. */
START_TEST(another_plan_reads_the_same_numbers)
{
    struct parity one, other;
    struct state s, t, want, back;
    make_root();
    parity_open(&one, &pairs[_i].one, 1, OPTIMIZER_ADAMW);
    parity_open(&other, &pairs[_i].other, 1, OPTIMIZER_ADAMW);
    fill_state(&s, &one);
    fill_state(&want, &other);
    load(&t, &other, save(&one, &s, "a", 3));
    int64_t n = 0, off = 0;
    for (int r = 0; r < t.n_rank; r++) {
        const float *x = (const float *)(void *)t.rank[r], *y = (const float *)(void *)want.rank[r];
        for (int64_t i = 0; i < t.bytes[fold_coord(&other.j.plan, r).pp] / 4; i++, n++)
            off += x[i] != y[i] && x[i] != 0;
    }
    ck_assert_msg(off == 0, "%s -> %s: %lld of %lld", pairs[_i].one.name, pairs[_i].other.name,
                  (long long)off, (long long)n);
    const char *there = save(&other, &t, "b", 3);
    load(&back, &one, there);
    save(&one, &back, "c", 3);
    for (int r = 0; r < one.j.plan.gpus; r++) {
        const char *same = arena_printf(
            &one.a,
            "cmp -s %s/a/step-00000003/rank-%05d.safetensors %s/c/step-00000003/rank-%05d.safetensors", root,
            r, root, r);
        ck_assert_int_eq(system(same), 0);
    }
    parity_close(&one);
    parity_close(&other);
    drop_root();
}
END_TEST

/* ---- broken ones ---- */

static const struct fold small = { .name = "dp2", .family = GQA, .dp = 2 };

static void damage(const char *path, long at, int cut)
{
    FILE *f = fopen(path, "r+b");
    ck_assert_ptr_nonnull(f);
    if (cut) ck_assert_int_eq(ftruncate(fileno(f), at), 0);
    else {
        fseek(f, at, SEEK_SET);
        const int c = getc(f);
        fseek(f, at, SEEK_SET);
        putc(c ^ 16, f);
    }
    fclose(f);
}

static void refuses(struct parity *p, const char *dir, const char *says)
{
    struct checkpoint_file c;
    struct state s;
    p->d.text[0] = '\0';
    enum err e = checkpoint_open(&c, &p->a, dir, &p->d);
    if (e == OK) {
        e = checkpoint_check_model(&c, &p->a, &p->j.model, &p->d);
        state_make(&s, &p->a, &p->pr, &p->j);
        if (e == OK) e = checkpoint_load(&c, &s, &p->j, &p->d);
        checkpoint_close(&c);
    }
    ck_assert(e != OK);
    ck_assert_msg(strstr(p->d.text, says) != NULL, "not '%s': %s", says, p->d.text);
}

START_TEST(broken_checkpoints_are_refused)
{
    struct parity p, mla;
    struct state s;
    make_root();
    parity_open(&p, &small, 1, OPTIMIZER_ADAMW);
    fill_state(&s, &p);
    const char *dir = save(&p, &s, "a", 5), *shard = arena_printf(&p.a, "%s/rank-00001.safetensors", dir);
    const struct fold other = { .name = "mla", .family = MLA };
    parity_open(&mla, &other, 1, OPTIMIZER_ADAMW);
    refuses(&mla, dir, "attention is gqa");
    damage(shard, 20000, 0);
    refuses(&p, dir, "hash");
    damage(shard, 20000, 0);
    load(&s, &p, dir);
    damage(shard, 20000, 1);
    refuses(&p, dir, "cut short");
    unlink(shard);
    refuses(&p, dir, "rank-00001.safetensors");
    /* a manifest that knows of one shard alone */
    const char *text =
        "{\"format\":\"moefold "
        "checkpoint\",\"version\":1,\"step\":5,\"sequences\":40,\"seq\":16,\"data\":\"\",\"eval_split\":0,"
        "\"optimizer\":\"adamw\","
        "\"shards\":[{\"file\":\"rank-00000.safetensors\",\"bytes\":%lld,\"hash\":\"%016llx\"}]}";
    struct safetensors one;
    ck_assert_int_eq(safetensors_open(&one, &p.a, arena_printf(&p.a, "%s/rank-00000.safetensors", dir), &p.d),
                     OK);
    FILE *f = fopen(arena_printf(&p.a, "%s/manifest.json", dir), "w");
    fprintf(f, text, (long long)one.map_B,
            (unsigned long long)checkpoint_hash(CHECKPOINT_HASH, one.map, one.map_B));
    fclose(f);
    refuses(&p, dir, "a shard is missing");
    safetensors_close(&one);
    damage(arena_printf(&p.a, "%s/manifest.json", dir), 3, 0);
    refuses(&p, dir, "manifest.json");
    ck_assert_int_eq(checkpoint_find(&dir, &p.a, "/nowhere", &p.d), ERR_IO);
    parity_close(&p);
    parity_close(&mla);
    drop_root();
}
END_TEST

START_TEST(names_are_read_as_they_are_written)
{
    struct checkpoint_piece p;
    int n;
    ck_assert_int_eq(checkpoint_parse(&p, &n, "layers.2.expert_fc1.m[3,0:16,8:24]"), OK);
    ck_assert(n == 19 && p.kind == 'm' && p.expert == 3 && p.row == 0 && p.row_end == 16 && p.col == 8 &&
              p.col_end == 24);
    static const char *const wrong[] = { "",
                                         "[",
                                         "q.w",
                                         "q.w[0,0:1,0:1",
                                         "q.w[0,0:1,0:1]x",
                                         "q.x[0,0:1,0:1]",
                                         "q.w[0,1:1,0:1]",
                                         "q.w[-1,0:1,0:1]",
                                         "q.w[0,0:1,0:99999999999999999]",
                                         "q.w[0,0:1]",
                                         ".w[0,0:1,0:1]" };
    for (int i = 0; i < LEN(wrong); i++)
        ck_assert_msg(checkpoint_parse(&p, &n, wrong[i]) != OK, "%s", wrong[i]);
}
END_TEST

/* ---- writers that die ---- */

/* A writer gone after some of its shards leaves the checkpoint before, and the next writer is not in its way.
 */
START_TEST(a_writer_that_dies_between_shards_leaves_the_one_before)
{
    struct parity p;
    struct state s;
    const char *found;
    make_root();
    parity_open(&p, &small, 1, OPTIMIZER_ADAMW);
    fill_state(&s, &p);
    const char *whole = save(&p, &s, "a", 1);
    const pid_t child = fork();
    if (child == 0) {
        struct checkpoint c;
        const struct checkpoint_head head = {
            .step = 2, .sequences = 16, .seq = 16, .optimizer = OPTIMIZER_ADAMW
        };
        if (checkpoint_begin(&c, &p.a, in_root(&p.a, "a"), &p.pr, &p.j, &head, &p.d) == OK)
            checkpoint_shard(&c, &s, 0, &p.d);
        _exit(0);
    }
    ck_assert_int_eq(waitpid(child, NULL, 0), child);
    ck_assert_int_eq(access(in_root(&p.a, "a/step-00000002.part/rank-00000.safetensors"), F_OK), 0);
    ck_assert_int_eq(checkpoint_find(&found, &p.a, in_root(&p.a, "a"), &p.d), OK);
    ck_assert_str_eq(found, whole);
    load(&s, &p, found);
    save(&p, &s, "a", 2);
    ck_assert_int_eq(checkpoint_find(&found, &p.a, in_root(&p.a, "a"), &p.d), OK);
    ck_assert_str_eq(found, in_root(&p.a, "a/step-00000002"));
    save(&p, &s, "a", 2);                           /* over itself */
    load(&s, &p, found);
    save(&p, &s, "a", 3);
    checkpoint_prune(in_root(&p.a, "a"), 2);
    ck_assert_int_ne(access(whole, F_OK), 0);
    load(&s, &p, found);
    parity_close(&p);
    drop_root();
}
END_TEST

static struct train_ask train_ask_of(struct parity *p, struct data *x)
{
    *x = data_of_text(p->ask.text, p->ask.text_n);
    return (struct train_ask){ .data = x,
                               .steps = 8,
                               .traced = 1,
                               .timeout_s = 60,
                               .save_every = 1,
                               .keep = 2,
                               .root = in_root(&p->a, "checkpoints") };
}

/* Killed wherever it is: what is found is whole, and the run goes on from there to the same bits. */
START_TEST(a_run_that_is_killed_goes_on)
{
    struct parity p;
    struct data x;
    struct train_result want, r;
    make_root();
    parity_open(&p, &small, 1, OPTIMIZER_ADAMW);
    struct train_ask ask = train_ask_of(&p, &x);
    ask.save_every = 0;
    ck_assert_msg(train_run(&want, &p.a, &p.pr, p.u, &p.j, &ask, &p.d) == OK, "%s", p.d.text);
    ask.save_every = 1;
    const char *dir = NULL;
    for (int kill_us = 1000, done = 0; !done; kill_us += 3000) {
        const pid_t child = fork();
        struct checkpoint_file c;
        if (dir) {
            ck_assert_msg(checkpoint_open(&c, &p.a, dir, &p.d) == OK, "%s", p.d.text);
            ask.resume = &c;
            done = c.head.step >= 6;
        }
        const int over = dir && c.head.step == ask.steps;       /* it came to its end before it was killed */
        if (child == 0) {
            if (!over) train_run(&r, &p.a, &p.pr, p.u, &p.j, &ask, &p.d);
            _exit(0);
        }
        usleep((useconds_t)kill_us);
        kill(child, SIGKILL);
        ck_assert_int_eq(waitpid(child, NULL, 0), child);
        if (done && !over) {
            ck_assert_msg(train_run(&r, &p.a, &p.pr, p.u, &p.j, &ask, &p.d) == OK, "%s", p.d.text);
            for (int i = 0; i < r.n_step; i++)
                ck_assert(r.step[i].loss == want.step[r.first_step + i].loss &&
                          r.step[i].grad_norm == want.step[r.first_step + i].grad_norm);
        }
        if (dir) checkpoint_close(&c);
        if (checkpoint_find(&dir, &p.a, root, &p.d) != OK) dir = NULL;
    }
    parity_close(&p);
    drop_root();
}
END_TEST

/* A full disk is one line, and what was there stays. */
START_TEST(a_checkpoint_that_cannot_be_written_leaves_the_one_before)
{
    struct parity p;
    struct state s;
    const char *found;
    make_root();
    parity_open(&p, &small, 1, OPTIMIZER_ADAMW);
    fill_state(&s, &p);
    const char *whole = save(&p, &s, "a", 1);
    struct checkpoint c;
    const struct checkpoint_head head = {
        .step = 2, .sequences = 16, .seq = 16, .optimizer = OPTIMIZER_ADAMW
    };
    ck_assert_int_eq(checkpoint_begin(&c, &p.a, in_root(&p.a, "a"), &p.pr, &p.j, &head, &p.d), OK);
    ck_assert_int_eq(symlink("/dev/full", arena_printf(&p.a, "%s/rank-00000.safetensors", c.part)), 0);
    ck_assert_int_eq(checkpoint_shard(&c, &s, 0, &p.d), ERR_IO);
    ck_assert(strstr(p.d.text, "No space left") && !strchr(p.d.text, '\n'));
    checkpoint_abandon(&c);
    ck_assert_int_ne(access(c.part, F_OK), 0);
    ck_assert_int_eq(checkpoint_find(&found, &p.a, in_root(&p.a, "a"), &p.d), OK);
    ck_assert_str_eq(found, whole);
    parity_close(&p);
    drop_root();
}
END_TEST

int main(void)
{
    const struct test_loop tests[] = {
        { another_plan_reads_the_same_numbers, LEN(pairs) },
        { broken_checkpoints_are_refused, 0 },
        { names_are_read_as_they_are_written, 0 },
        { a_writer_that_dies_between_shards_leaves_the_one_before, 0 },
        { a_run_that_is_killed_goes_on, 0 },
        { a_checkpoint_that_cannot_be_written_leaves_the_one_before, 0 },
    };
    return test_main_loops("checkpoint", NULL, tests, LEN(tests), 240);
}
