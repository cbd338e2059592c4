/* test_meeting.c: tests engines of several ranks in one step. Every rank must have the same bits,
 * whatever the order of its other work. If one rank is at another place, is late or has failed,
 * every rank must get an error.
 *
 * Ranks are threads, each with an engine on the host. The test computes the expected sums
 * itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "include/figraph_parallel.h"
#include "include/figraph_ranks.h"
#include "include/figraph_unstable.h"
#include "kernels/common/numeric.h"
#include "planner/status.h"
#include "tests/support/ranks/crew.h"
#include "tests/support/files/sample.h"

enum { RANKS = 4, ROWS = 6, WIDTH = 32, PART = 8, STEPS = 12 };

#define TRY(call)                                                                                  \
    do {                                                                                           \
        const fig_status try_status_ = (call);                                                     \
        if (try_status_ != FIG_OK) return try_status_;                                             \
    } while (0)

static fig_graphs *graphs;

/* How a rank differs from the others. */
typedef struct task {
    int32_t rows[STEPS]; /* the rows of each step; 0: ROWS */
    int32_t steps;       /* 0: STEPS */
    int answer;          /* what its call returns from the second step on */
    uint64_t shuffle;
    const fig_graphs *graphs; /* NULL: the graphs that all ranks share */
    int32_t waits_us;         /* how long it waits after its last step before it closes */
    uint16_t seen[4][ROWS * WIDTH];
} task;

static fig_tensor rows(fig_program *program, const char *name, int64_t width) {
    return fig_program_tensor(program, FIG_OPTIONS(fig_tensor_info, .name = name,
                                                   .role = FIG_ROLE_BOUND, .dtype = FIG_BF16,
                                                   .rank = 2, .dims = {FIG_DIM_BATCH, width}));
}

/* Lowers three collectives without common tensors, an activation, and a call that writes the tensor
 * that the first collective sums. */
static fig_graphs *lower(int64_t ranks, int64_t width) {
    static const fig_bucket buckets[] = {{2, 64}, {ROWS, 200}};
    const fig_spec spec = fig_sample_spec();
    fig_program *program = fig_sample_program(&spec);
    fig_graphs *made;
    const fig_tensor a = rows(program, "a", width), sum = rows(program, "sum", width);
    fig_rms_norm_op norm = {.size = sizeof norm};
    norm.in = rows(program, "b", WIDTH);
    norm.out = rows(program, "normed", WIDTH);
    norm.residual = rows(program, "residual", WIDTH);
    norm.weight = fig_program_tensor(program, FIG_OPTIONS(fig_tensor_info, .name = "weight",
                                                          .role = FIG_ROLE_BOUND, .dtype = FIG_BF16,
                                                          .rank = 1, .dims = {WIDTH}));
    fig_call(program, FIG_OPTIONS(fig_call_op, .call = "fill", .writes = &a, .write_count = 1));
    fig_all_reduce(program, FIG_OPTIONS(fig_all_reduce_op, .in = a, .out = sum));
    fig_silu_and_mul(program, FIG_OPTIONS(fig_gated_op, .in = rows(program, "gate_up", 16),
                                          .out = rows(program, "act", 8)));
    fig_all_reduce_add_rms_norm(program, &norm);
    fig_all_gather(program, FIG_OPTIONS(fig_all_gather_op, .in = rows(program, "part", PART),
                                        .out = rows(program, "all", ranks * PART)));
    if (fig_program_finish(program) != FIG_OK) fail_msg("%s", fig_message());
    if (fig_graphs_lower(&made, program,
                         FIG_OPTIONS(fig_lower_options, .buckets = buckets, .bucket_count = 2)) !=
        FIG_OK)
        fail_msg("%s", fig_message());
    fig_program_destroy(program);
    return made;
}

static int set_up(void **state) {
    (void)state;
    graphs = lower(RANKS, WIDTH);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    fig_graphs_destroy(graphs);
    return 0;
}

/* Returns a rank's value of an element. */
static uint16_t number_of(int32_t rank, int tensor, int i) {
    return fig_numeric_bf16((float)((rank * 13 + tensor * 5 + i * 3) % 41) - 20.0f);
}

typedef struct filling {
    const fig_crew_member *member;
    int calls;
} filling;

static int32_t fill(void *user, const fig_call_args *args) {
    filling *f = user;
    const task *of = f->member->user;
    uint16_t *a = args->writes[0];
    for (int i = 0; i < args->rows * WIDTH; i++)
        a[i] = number_of(f->member->rank, 0, i);
    return f->calls++ > 0 ? of->answer : 0;
}

static fig_status bind_all(fig_engine *engine, const fig_graphs *of) {
    fig_tensor_info info = {.size = sizeof info};
    for (int32_t i = 0; fig_graphs_tensor(of, i, &info) == FIG_OK; i++)
        TRY(fig_engine_bind(engine, FIG_OPTIONS(fig_binding, .name = info.name)));
    return FIG_OK;
}

static fig_status write(fig_engine *engine, const char *name, int32_t rank, int tensor, int count) {
    uint16_t numbers[ROWS * WIDTH];
    for (int i = 0; i < count; i++)
        numbers[i] = number_of(rank, tensor, i);
    return fig_engine_write(
        engine, FIG_OPTIONS(fig_span, .name = name, .bytes = (uint64_t)count * 2), numbers);
}

static fig_status run_steps(fig_engine *engine, const task *of) {
    static const int32_t lengths[ROWS] = {1, 1, 1, 1, 1, 1};
    const int32_t steps = of->steps != 0 ? of->steps : STEPS;
    for (int32_t n = 0; n < steps; n++) {
        const int32_t count = of->rows[n] != 0 ? of->rows[n] : ROWS;
        TRY(fig_engine_step(engine, FIG_OPTIONS(fig_step, .rows = count, .kv_lengths = lengths)));
        TRY(fig_engine_wait(engine, 60000000));
    }
    const struct timespec pause = {of->waits_us / 1000000, of->waits_us % 1000000 * 1000};
    nanosleep(&pause, NULL);
    return FIG_OK;
}

static fig_status read_all(fig_engine *engine, task *of, int32_t count) {
    static const char *const names[] = {"sum", "normed", "residual", "all"};
    for (int i = 0; i < 4; i++) {
        const uint64_t width = i < 3 ? WIDTH : (uint64_t)count * PART;
        TRY(fig_engine_read(engine,
                            FIG_OPTIONS(fig_span, .name = names[i], .bytes = ROWS * width * 2),
                            of->seen[i]));
    }
    return FIG_OK;
}

static fig_status use(fig_engine *engine, const fig_crew_member *member, const fig_graphs *of) {
    task *mine = member->user;
    filling filled = {member, 0};
    TRY(bind_all(engine, of));
    TRY(fig_engine_register(engine, "fill", fill, &filled));
    TRY(write(engine, "b", member->rank, 1, ROWS * WIDTH));
    TRY(write(engine, "part", member->rank, 2, ROWS * PART));
    TRY(write(engine, "residual", 0, 3, ROWS * WIDTH));
    TRY(write(engine, "weight", 0, 4, WIDTH));
    TRY(run_steps(engine, mine));
    return read_all(engine, mine, member->ranks != NULL ? member->count : 1);
}

/* Runs a rank. Closes its engine even if a step failed. */
static fig_status serve(fig_crew_member *member) {
    const task *mine = member->user;
    const fig_graphs *of = mine->graphs != NULL ? mine->graphs : graphs;
    fig_engine *engine;
    char message[256];
    TRY(fig_engine_open(
        &engine, of,
        FIG_OPTIONS(fig_engine_options, .device = FIG_DEVICE_HOST, .ranks = member->ranks,
                    .test = FIG_OPTIONS(fig_test_options, .shuffle = mine->shuffle))));
    const fig_status status = use(engine, member, of);
    snprintf(message, sizeof message, "%s", fig_message());
    const fig_status closed = fig_engine_close(engine);
    if (status != FIG_OK) return fig_status_relay(status, message);
    return closed;
}

static void run(fig_crew_member *crew, task *tasks, int32_t count) {
    for (int32_t i = 0; i < count; i++)
        crew[i].user = &tasks[i];
    fig_crew_run_local(crew, count, serve);
}

static void check_status(const fig_crew_member *member, fig_status status, const char *part) {
    if (member->status != status || strstr(member->message, part) == NULL)
        fail_msg("rank %d: %s (\"%s\"), not %s with \"%s\"", (int)member->rank,
                 fig_status_name(member->status), member->message, fig_status_name(status), part);
}

/* ---- Numbers */

static void check_numbers(const task *tasks) {
    for (int i = 0; i < ROWS * WIDTH; i++) {
        float sum = fig_numeric_of_bf16(number_of(0, 0, i));
        for (int32_t r = 1; r < RANKS; r++)
            sum += fig_numeric_of_bf16(number_of(r, 0, i));
        assert_int_equal(tasks[0].seen[0][i], fig_numeric_bf16(sum));
        const int row = i / (RANKS * PART), column = i % (RANKS * PART);
        assert_int_equal(tasks[0].seen[3][i],
                         number_of(column / PART, 2, row * PART + column % PART));
    }
    for (int32_t r = 1; r < RANKS; r++)
        assert_memory_equal(tasks[r].seen, tasks[0].seen, sizeof tasks[0].seen);
}

static void all_ranks_have_the_same_bits_in_any_order_of_work(void **state) {
    (void)state;
    static task tasks[RANKS];
    fig_crew_member crew[RANKS];
    for (uint64_t seed = 0; seed < 6; seed++) {
        memset(tasks, 0, sizeof tasks);
        fig_crew_init(crew, RANKS);
        for (int32_t i = 0; i < RANKS; i++) {
            tasks[i].shuffle = seed == 0 ? 0 : seed * 1000003 + (uint64_t)i * 7919;
            for (int n = 0; n < STEPS; n++)
                tasks[i].rows[n] = 1 + (n * 5 + (int)seed) % ROWS;
            tasks[i].rows[STEPS - 1] = ROWS;
        }
        run(crew, tasks, RANKS);
        for (int32_t i = 0; i < RANKS; i++)
            check_status(&crew[i], FIG_OK, "");
        check_numbers(tasks);
    }
}

/* Runs in a group of one rank, or in no group. A sum over one rank changes nothing. */
static void a_program_may_run_alone(void **state) {
    (void)state;
    static task tasks[2];
    fig_crew_member crew[2];
    fig_graphs *one = lower(1, WIDTH);
    memset(tasks, 0, sizeof tasks);
    for (int i = 0; i < 2; i++) {
        fig_crew_init(&crew[i], 1);
        tasks[i].graphs = one;
    }
    run(&crew[0], &tasks[0], 1);
    crew[1].user = &tasks[1];
    fig_crew_run(&crew[1], 1, serve);
    for (int i = 0; i < 2; i++)
        check_status(&crew[i], FIG_OK, "");
    for (int i = 0; i < ROWS * WIDTH; i++)
        assert_int_equal(tasks[0].seen[0][i], number_of(0, 0, i));
    for (int i = 0; i < ROWS * PART; i++)
        assert_int_equal(tasks[0].seen[3][i], number_of(0, 2, i));
    assert_memory_equal(tasks[0].seen, tasks[1].seen, sizeof tasks[0].seen);
    fig_graphs_destroy(one);
}

/* ---- Ranks at different places */

static void a_rank_in_another_bucket_is_an_error_that_names_both(void **state) {
    (void)state;
    static task tasks[2];
    fig_crew_member crew[2];
    fig_graphs *two = lower(2, WIDTH);
    memset(tasks, 0, sizeof tasks);
    fig_crew_init(crew, 2);
    tasks[0].graphs = tasks[1].graphs = two;
    tasks[1].rows[3] = 1; /* so rank 1 is in the smaller bucket and rank 0 in the larger one */
    run(crew, tasks, 2);
    for (int i = 0; i < 2; i++) {
        assert_true(crew[i].status == FIG_INVALID || crew[i].status == FIG_LOST);
        check_status(&crew[i], crew[i].status, "bucket");
        check_status(&crew[i], crew[i].status, "rank 0");
        check_status(&crew[i], crew[i].status, "rank 1");
    }
    fig_graphs_destroy(two);
}

static void a_rank_that_stays_away_is_named_in_time(void **state) {
    (void)state;
    static task tasks[2];
    fig_crew_member crew[2];
    fig_graphs *two = lower(2, WIDTH);
    memset(tasks, 0, sizeof tasks);
    fig_crew_init(crew, 2);
    crew[0].timeout_us = crew[1].timeout_us = FIG_CREW_ABSENT_US;
    tasks[0].graphs = tasks[1].graphs = two;
    tasks[1].steps = 3;
    tasks[1].waits_us = 2000000; /* longer than rank 0 waits for rank 1's fourth step */
    run(crew, tasks, 2);
    check_status(&crew[0], FIG_TIMEOUT, "rank 1");
    fig_graphs_destroy(two);
}

static void a_call_that_fails_on_one_rank_ends_the_step_on_all(void **state) {
    (void)state;
    static task tasks[2];
    fig_crew_member crew[2];
    fig_graphs *two = lower(2, WIDTH);
    memset(tasks, 0, sizeof tasks);
    /* if a rank waited for the group's timeout, the test would count as hanging */
    fig_crew_init(crew, 2);
    tasks[0].graphs = tasks[1].graphs = two;
    tasks[1].answer = 7;
    run(crew, tasks, 2);
    check_status(&crew[1], FIG_CALLBACK, "call \"fill\" returned 7");
    check_status(&crew[0], FIG_LOST, "call \"fill\" returned 7");
    fig_graphs_destroy(two);
}

/* ---- Opening */

static void ranks_agree_on_spec_ladder_and_file_before_they_meet(void **state) {
    (void)state;
    static task tasks[2];
    fig_crew_member crew[2];
    fig_graphs *two = lower(2, WIDTH), *other = lower(2, 2 * WIDTH);
    memset(tasks, 0, sizeof tasks);
    fig_crew_init(crew, 2);
    tasks[0].graphs = two;
    tasks[1].graphs = other;
    run(crew, tasks, 2);
    for (int i = 0; i < 2; i++) {
        check_status(&crew[i], FIG_INVALID, "file");
        check_status(&crew[i], FIG_INVALID, "rank");
    }
    fig_graphs_destroy(other);
    fig_graphs_destroy(two);
}

static void graphs_for_another_number_of_ranks_are_refused(void **state) {
    (void)state;
    static task tasks[2];
    fig_crew_member crew[2];
    fig_graphs *model = lower(1, WIDTH), *share;
    memset(tasks, 0, sizeof tasks);
    fig_crew_init(crew, 2);
    tasks[0].graphs = tasks[1].graphs = graphs;
    run(crew, tasks, 2);
    check_status(&crew[0], FIG_INVALID, "node 4 (all_gather) is for 4 ranks, but the group has 2");
    FIG_SAMPLE_REFUSES(fig_graphs_rank(&share, model, 2), FIG_INVALID, "width 4");
    fig_graphs_destroy(model);
}

static void rows_that_are_sent_lie_close_together(void **state) {
    (void)state;
    fig_graphs *one = lower(1, WIDTH);
    fig_engine *engine;
    if (fig_engine_open(&engine, one, FIG_OPTIONS(fig_engine_options, .device = FIG_DEVICE_HOST)) !=
        FIG_OK)
        fail_msg("%s", fig_message());
    FIG_SAMPLE_REFUSES(fig_engine_bind(engine, FIG_OPTIONS(fig_binding, .name = "residual",
                                                           .bytes = 1 << 12, .strides = {40, 1})),
                       FIG_INVALID, "tensor residual: strides[0] is 40, it must be 32");
    assert_int_equal(fig_engine_bind(engine, FIG_OPTIONS(fig_binding, .name = "gate_up",
                                                         .bytes = 1 << 12, .strides = {40, 1})),
                     FIG_OK);
    fig_engine_close(engine);
    fig_graphs_destroy(one);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_ranks_have_the_same_bits_in_any_order_of_work),
        cmocka_unit_test(a_program_may_run_alone),
        cmocka_unit_test(a_rank_in_another_bucket_is_an_error_that_names_both),
        cmocka_unit_test(a_rank_that_stays_away_is_named_in_time),
        cmocka_unit_test(a_call_that_fails_on_one_rank_ends_the_step_on_all),
        cmocka_unit_test(ranks_agree_on_spec_ladder_and_file_before_they_meet),
        cmocka_unit_test(graphs_for_another_number_of_ranks_are_refused),
        cmocka_unit_test(rows_that_are_sent_lie_close_together),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
