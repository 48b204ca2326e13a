/* Communicators in shared memory: every call against its definition on groups of 1 to 16 threads, and of forked
 * processes that show each other memory of their own: uneven and empty parts, sums in member order bit for bit,
 * in-place use, and every way a run can break: late, failed and disagreeing members. Compiled once more with TEST_MPI for
 * the members of an MPI job (mpirun -np 8), where every process checks what all of them got; and with TEST_LOCAL for logical
 * ranks on one device, here the emulated one, which then copies and sums. */
#include "tests/comm_members.h"

static void all_ok(const struct member *m, int n)
{
    for (int i = 0; i < n; i++) ck_assert_msg(m[i].e == OK, "member %d: %s", i, m[i].d.text);
}

/* A value that rounds: sums in another order differ in the last bits. */
static float value(int member, int k)
{
    return (float)sin(member * 131 + k * 7 + 1) * (k % 3 ? 1.0f : 1e4f);
}

static int part(int i)              /* uneven, some empty */
{
    return i * 7 % 5 * 3;
}

static int64_t parts_before(int i)
{
    int64_t sum = 0;
    while (i--) sum += part(i);
    return sum;
}

static void gather_body(struct member *m)
{
    float in[64];
    int64_t part_B[MOST];
    for (int r = 0; r < 50 && m->e == OK; r++) {
        for (int k = 0; k < part(m->me); k++) in[k] = value(m->me, k + r);
        for (int i = 0; i < m->n; i++) part_B[i] = part(i) * (int64_t)sizeof(float);
        m->e = m->ops->gather(m->c, m->out, in, part_B, &m->d);
    }
}

START_TEST(gather_lays_parts_in_member_order)
{
    struct member m[MOST];
    const int n = sizes[_i];
    run_all(m, n, 10, gather_body);
    all_ok(m, n);
    for (int i = 0; i < n; i++)
        for (int from = 0; from < n; from++)
            for (int k = 0; k < part(from); k++)
                ck_assert(m[i].out[parts_before(from) + k] == value(from, k + 49));
}
END_TEST

static void gather_in_place_body(struct member *m)
{
    int64_t part_B[MOST];
    for (int i = 0; i < m->n; i++) part_B[i] = 4 * (int64_t)sizeof(float);
    for (int k = 0; k < 4; k++) m->out[m->me * 4 + k] = value(m->me, k);
    m->e = m->ops->gather(m->c, m->out, m->out + m->me * 4, part_B, &m->d);
}

START_TEST(gather_works_in_place)
{
    struct member m[MOST];
    run_all(m, 8, 10, gather_in_place_body);
    all_ok(m, 8);
    for (int i = 0; i < 8; i++)
        for (int k = 0; k < 32; k++) ck_assert(m[i].out[k] == value(k / 4, k % 4));
}
END_TEST

/* The same from each member's stack: other processes do not see it. */
static void reduce_own_body(struct member *m)
{
    float x[100];
    for (int k = 0; k < 100; k++) x[k] = value(m->me, k);
    m->e = m->ops->all_reduce(m->c, x, 100, 0, &m->d);
    memcpy(m->out, x, sizeof x);
}

/* The sum in member order: what every call must give, bit for bit. */
static float sum_of(int n, int k)
{
    float sum = value(0, k);
    for (int i = 1; i < n; i++) sum += value(i, k);
    return sum;
}

static void scatter_body(struct member *m)
{
    int64_t part_n[MOST];
    float in[WORDS];
    for (int i = 0; i < m->n; i++) part_n[i] = part(i);
    for (int k = 0; k < parts_before(m->n); k++) in[k] = value(m->me, k);
    for (int r = 0; r < 50 && m->e == OK; r++) m->e = m->ops->scatter_sum(m->c, m->out, in, part_n, &m->d);
}

START_TEST(scatter_sums_my_part_in_member_order)
{
    struct member m[MOST];
    const int n = sizes[_i];
    run_all(m, n, 10, scatter_body);
    all_ok(m, n);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < part(i); k++) ck_assert(m[i].out[k] == sum_of(n, (int)parts_before(i) + k));
}
END_TEST

static void scatter_in_place_body(struct member *m)
{
    int64_t part_n[MOST];
    for (int i = 0; i < m->n; i++) part_n[i] = 300;
    for (int k = 0; k < 300 * m->n; k++) m->out[k] = value(m->me, k);
    m->e = m->ops->scatter_sum(m->c, m->out + 300 * m->me, m->out, part_n, &m->d);
}

START_TEST(scatter_works_in_place)
{
    struct member m[MOST];
    run_all(m, 5, 10, scatter_in_place_body);
    all_ok(m, 5);
    for (int i = 0; i < 5; i++)
        for (int k = 0; k < 1500; k++) ck_assert(m[i].out[k] == (k / 300 == i ? sum_of(5, k) : value(i, k)));
}
END_TEST

static void reduce_body(struct member *m)
{
    const int n = 1000;
    for (int r = 0; r < 20 && m->e == OK; r++) {
        for (int k = 0; k < n; k++) m->out[k] = value(m->me, k);
        m->e = m->ops->all_reduce(m->c, m->out, n, 0, &m->d);
    }
}

START_TEST(all_reduce_is_the_same_bits_everywhere)
{
    struct member m[MOST];
    const int n = sizes[_i];
    run_all(m, n, 10, reduce_body);
    all_ok(m, n);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < 1000; k++) ck_assert(m[i].out[k] == sum_of(n, k));
}
END_TEST

START_TEST(all_reduce_of_own_memory)
{
    struct member m[MOST];
    run_all(m, 5, 10, reduce_own_body);
    all_ok(m, 5);
    for (int i = 0; i < 5; i++)
        for (int k = 0; k < 100; k++) ck_assert(m[i].out[k] == sum_of(5, k));
}
END_TEST

#if !defined(TEST_MPI) && !defined(TEST_LOCAL)
static void too_much_body(struct member *m)
{
    static float x[2 * WORDS];
    m->e = m->ops->all_reduce(m->c, x, 2 * WORDS, 0, &m->d);
}

START_TEST(more_of_own_memory_than_there_is_room_for)
{
    struct member m[MOST];
    forked = 1;
    run_all(m, 3, 10, too_much_body);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(m[i].e, ERR_COMM);
        ck_assert_ptr_nonnull(strstr(m[i].d.text, "shows 32768 bytes of its own memory at TEST_OP, room was made for 16384"));
    }
}
END_TEST
#endif

static void reduce_few_body(struct member *m)       /* fewer elements than members */
{
    for (int k = 0; k < 3; k++) m->out[k] = value(m->me, k);
    m->e = m->ops->all_reduce(m->c, m->out, 3, 1, &m->d);
    if (m->e == OK) m->e = m->ops->all_reduce(m->c, NULL, 0, 0, &m->d);
}

START_TEST(all_reduce_takes_the_largest_of_few)
{
    struct member m[MOST];
    run_all(m, 8, 10, reduce_few_body);
    all_ok(m, 8);
    for (int k = 0; k < 3; k++) {
        float most = value(0, k);
        for (int i = 1; i < 8; i++) most = fmaxf(most, value(i, k));
        for (int i = 0; i < 8; i++) ck_assert(m[i].out[k] == most);
    }
}
END_TEST

static int sent(int from, int to)
{
    return (from * 5 + to * 3) % 7;
}

static void all_to_all_body(struct member *m)
{
    float in[WORDS];
    int64_t send_B[MOST], recv_B[MOST];
    int at = 0;
    for (int i = 0; i < m->n; i++) {
        send_B[i] = sent(m->me, i) * (int64_t)sizeof(float);
        recv_B[i] = sent(i, m->me) * (int64_t)sizeof(float);
        for (int k = 0; k < sent(m->me, i); k++) in[at++] = value(m->me, 100 * i + k);
    }
    for (int r = 0; r < 50 && m->e == OK; r++)
        m->e = m->ops->all_to_all(m->c, m->out, recv_B, in, send_B, &m->d);
}

START_TEST(all_to_all_moves_every_block)
{
    struct member m[MOST];
    const int n = sizes[_i];
    run_all(m, n, 10, all_to_all_body);
    all_ok(m, n);
    for (int i = 0; i < n; i++) {
        int at = 0;
        for (int from = 0; from < n; from++)
            for (int k = 0; k < sent(from, i); k++) ck_assert(m[i].out[at++] == value(from, 100 * i + k));
    }
}
END_TEST

/* The sender overwrites its buffer as soon as the call returns: by then the receiver must have it. */
static void send_body(struct member *m)
{
    float x[32];
    for (int r = 0; r < 100 && m->e == OK; r++) {
        for (int k = 0; k < 32; k++) x[k] = value(r, k);
        m->e = m->ops->send(m->c, 1, x, sizeof x, &m->d);
    }
}

static void recv_body(struct member *m)
{
    float x[32];
    for (int r = 0; r < 100 && m->e == OK; r++) {
        m->e = m->ops->recv(m->c, 0, x, sizeof x, &m->d);
        for (int k = 0; k < 32; k++) m->out[0] += x[k] != value(r, k);
    }
}

static void p2p_body(struct member *m)
{
    if (m->me == 0) send_body(m);
    else recv_body(m);
}

START_TEST(send_meets_recv_in_order)
{
    struct member m[MOST];
    run_all(m, 2, 10, p2p_body);
    all_ok(m, 2);
    ck_assert(m[1].out[0] == 0);
}
END_TEST

/* ---- broken runs: everybody is told, nobody hangs ---- */

static void late_body(struct member *m)
{
    if (m->me != 2) m->e = m->ops->all_reduce(m->c, m->out, 10, 0, &m->d);
}

START_TEST(a_late_member_is_named)
{
    struct member m[MOST];
    run_all(m, 4, 0.2, late_body);
    for (int i = 0; i < 4; i++) {
        if (i == 2) continue;
        ck_assert_int_eq(m[i].e, ERR_COMM);
        ck_assert_ptr_nonnull(strstr(m[i].d.text, "group dp"));
        ck_assert_ptr_nonnull(strstr(m[i].d.text, "TEST_OP"));
        has(&m[i], "rank %d did not come", 2);
        if (FIRST) ck_assert_str_eq(m[i].d.text, m[0].d.text);      /* MPI: who gave up at the same time says so itself */
    }
}
END_TEST

static void failed_body(struct member *m)
{
    if (m->me == 1) m->broken(m->run, "rank 11 stopped: no memory");
    else m->e = m->ops->gather(m->c, m->out, m->out, (int64_t[MOST]){ 0 }, &m->d);
}

START_TEST(a_failed_member_frees_the_others)
{
    struct member m[MOST];
    run_all(m, 8, 0, failed_body);          /* no time-out: only the break can end it */
    for (int i = 0; i < 8; i++) {
        if (i == 1) continue;
        ck_assert_int_eq(m[i].e, ERR_COMM);
        ck_assert_str_eq(m[i].d.text, "rank 11 stopped: no memory");
    }
}
END_TEST

static void differ_body(struct member *m)
{
    m->e = m->me == 3 ? m->ops->gather(m->c, m->out, m->out, (int64_t[MOST]){ 0 }, &m->d)
                      : m->ops->all_reduce(m->c, m->out, 8, 0, &m->d);
}

START_TEST(different_calls_are_refused)
{
    struct member m[MOST];
    run_all(m, 4, 10, differ_body);
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(m[i].e, ERR_COMM);
        ck_assert_ptr_nonnull(strstr(m[i].d.text, "members must make equal calls"));
        has(&m[i], "rank %d", 3);
    }
}
END_TEST

static void uneven_body(struct member *m)
{
    int64_t send_B[MOST], recv_B[MOST];
    for (int i = 0; i < m->n; i++) send_B[i] = recv_B[i] = 8;
    if (m->me == 0) send_B[1] = 16;
    m->e = m->ops->all_to_all(m->c, m->out, recv_B, m->out + 1000, send_B, &m->d);
}

START_TEST(unequal_bytes_are_refused)
{
    struct member m[MOST];
    run_all(m, 3, 10, uneven_body);
    for (int i = 0; i < 3; i++) ck_assert_int_eq(m[i].e, ERR_COMM);
    has(&m[1], "rank %d sends 16 bytes, rank %d expects 8", 0);
}
END_TEST

#ifdef TEST_MPI
enum { SIZES = LEN(sizes) - 1 };
#else
enum { SIZES = LEN(sizes) };
#endif

static TCase *all_tests(const char *members, void (*as)(void))
{
    TCase *t = tcase_create(members);
    tcase_set_timeout(t, 120);
    if (as) tcase_add_checked_fixture(t, as, NULL);
    tcase_add_loop_test(t, gather_lays_parts_in_member_order, 0, SIZES);
    tcase_add_test(t, gather_works_in_place);
    tcase_add_loop_test(t, scatter_sums_my_part_in_member_order, 0, SIZES);
    tcase_add_test(t, scatter_works_in_place);
    tcase_add_loop_test(t, all_reduce_is_the_same_bits_everywhere, 0, SIZES);
    tcase_add_test(t, all_reduce_takes_the_largest_of_few);
    tcase_add_loop_test(t, all_to_all_moves_every_block, 0, SIZES);
    tcase_add_test(t, send_meets_recv_in_order);
    tcase_add_test(t, a_late_member_is_named);
    tcase_add_test(t, a_failed_member_frees_the_others);
    tcase_add_test(t, different_calls_are_refused);
    tcase_add_test(t, unequal_bytes_are_refused);
    tcase_add_test(t, all_reduce_of_own_memory);
    return t;
}

static int run_suite(Suite *s, enum fork_status forks)
{
    SRunner *r = srunner_create(s);
    srunner_set_fork_status(r, forks);
    srunner_run_all(r, CK_NORMAL);
    const int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}

#ifdef TEST_MPI
int main(int argc, char **argv)
{
    int threads;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &threads);
    Suite *s = suite_create("comm_mpi");
    suite_add_tcase(s, all_tests("mpi", NULL));
    const int failed = run_suite(s, CK_NOFORK);
    if (failed) MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_Finalize();
    return 0;
}
#else
int main(void)
{
    Suite *s = suite_create("comm");
    suite_add_tcase(s, all_tests("threads", as_threads));
#ifndef TEST_LOCAL
    TCase *processes = all_tests("processes", as_processes);
    tcase_add_test(processes, more_of_own_memory_than_there_is_room_for);
    suite_add_tcase(s, processes);
#endif
    return run_suite(s, CK_FORK);
}
#endif
