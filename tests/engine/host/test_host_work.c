/* test_host_work.c: tests which data a launch of the host device copies, and the order in which
 * nodes run. */
#include "engine/host/host_work.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/fault.h"
#include "tests/support/place.h"

static const fig_dev_after none = {NULL, 0};

/* ---- Copies of arguments ------------------------------------------------------------------- */

typedef struct seen_args {
    int calls;
    fig_call_args args;
    const void *reads[2];
    void *writes[1];
    char bytes[8];
} seen_args;

static int32_t see_args(void *user, const fig_call_args *args) {
    seen_args *seen = user;
    seen->calls++;
    seen->args = *args;
    memcpy(seen->reads, args->reads, sizeof seen->reads);
    memcpy(seen->writes, args->writes, sizeof seen->writes);
    memcpy(seen->bytes, args->bytes, (size_t)args->byte_count);
    return 0;
}

static void a_call_has_its_own_copy_of_all_it_was_given(void **state) {
    (void)state;
    enum { CALLS = 40 };
    seen_args seen = {0};
    fig_plan_head plan = {.rows = 11};
    const void *reads[2] = {&plan, &seen};
    void *writes[1] = {&plan};
    char bytes[] = "seven";
    fig_host_work graph = {0}, work;
    fig_host_fault fault;
    uint64_t in_order = 0;
    fig_dev_call call = {.callback = see_args,
                         .user = &seen,
                         .name = "see",
                         .args = {.size = sizeof(fig_call_args),
                                  .device = FIG_DEVICE_HOST,
                                  .bucket = {4, 512},
                                  .tag = 99,
                                  .bytes = bytes,
                                  .byte_count = sizeof bytes,
                                  .reads = reads,
                                  .writes = writes},
                         .read_count = 2,
                         .write_count = 1,
                         .plan = &plan};
    for (int i = 0; i < CALLS; i++) /* so many calls that the graph's array is reallocated */
        assert_int_equal(fig_host_work_call(&graph, &call, none), FIG_OK);
    memset(reads, 0, sizeof reads);
    memset(writes, 0, sizeof writes);
    memset(bytes, 0, sizeof bytes);
    memset(&call, 0, sizeof call);
    assert_int_equal(fig_host_work_copy(&work, &graph), FIG_OK);
    fig_host_work_finish(&graph);
    fig_host_work_run(&work, &in_order, &fault);
    assert_int_equal(fault.status, FIG_OK);
    assert_int_equal(seen.calls, CALLS);
    assert_int_equal(seen.args.rows, 11);
    assert_int_equal(seen.args.tag, 99);
    assert_int_equal(seen.args.bucket.kv, 512);
    assert_null(seen.args.stream);
    assert_ptr_equal(seen.reads[0], &plan);
    assert_ptr_equal(seen.reads[1], &seen);
    assert_ptr_equal(seen.writes[0], &plan);
    assert_string_equal(seen.bytes, "seven");
    fig_host_work_finish(&work);
}

static void a_node_that_finds_no_memory_leaves_the_work_as_it_was(void **state) {
    (void)state;
    seen_args seen = {0};
    fig_plan_head plan = {.rows = 1};
    const void *reads[2] = {NULL, NULL};
    void *writes[1] = {NULL};
    const fig_dev_call call = {.callback = see_args,
                               .user = &seen,
                               .name = "see",
                               .args = {.reads = reads, .writes = writes},
                               .read_count = 2,
                               .write_count = 1,
                               .plan = &plan};
    fig_host_work work = {0};
    fig_host_fault fault;
    uint64_t in_order = 0;
    int refused = 0;
    for (uint32_t i = 0; i < 100; i++) {
        const uint32_t last = i - 1;
        const fig_dev_after after = {&last, i > 0};
        for (int64_t n = 1;; n++) {
            fig_fault_arm(n);
            fig_status status = fig_host_work_call(&work, &call, after);
            if (fig_fault_disarm() < n) {
                assert_int_equal(status, FIG_OK);
                break;
            }
            assert_int_equal(status, FIG_NOMEM);
            assert_int_equal(work.node_count, i);
            refused++;
        }
    }
    assert_in_range(refused, 3, 100);
    assert_int_equal(work.edge_count, 99);
    fig_host_work_run(&work, &in_order, &fault);
    assert_int_equal(seen.calls, 100);
    fig_host_work_finish(&work);
}

static void a_grid_of_more_blocks_than_are_counted_is_refused(void **state) {
    (void)state;
    const fig_fetch_params params = {0};
    fig_dev_launch kernel = {.op = FIG_OP_FETCH, .params = &params, .params_bytes = sizeof params};
    static const uint32_t grids[][3] = {{70000, 70000, 1},
                                        {1, 70000, 70000},
                                        {UINT32_MAX, UINT32_MAX, UINT32_MAX},
                                        {UINT32_MAX, UINT32_MAX, 2}};
    fig_host_work work = {0};
    for (int i = 0; i < 4; i++) {
        memcpy(kernel.grid, grids[i], sizeof kernel.grid);
        assert_int_equal(fig_host_work_kernel(&work, &kernel, none), FIG_INVALID);
        assert_int_equal(work.node_count, 0);
    }
    assert_string_equal(fig_message(), "fetch: a grid of 4294967295 x 4294967295 x 2 blocks, limit "
                                       "4294967295 in all");
    fig_host_work_finish(&work);
}

/* ---- Orders -------------------------------------------------------------------------------- */

enum { NODES = 6, ORDERS = 100 };

typedef struct node_log {
    uint64_t tags[ORDERS][NODES];
    int count;
} node_log;

static int32_t log_tag(void *user, const fig_call_args *args) {
    node_log *log = user;
    log->tags[log->count / NODES][log->count % NODES] = args->tag;
    log->count++;
    return 0;
}

/*     0 -> 1 -> 3 -> 5
 *      `-> 2 -'         4 follows no node */
static void run_lattice(uint64_t random, node_log *log) {
    static const uint32_t zero[] = {0}, both[] = {1, 2}, three[] = {3};
    const fig_dev_after after[NODES] = {none, {zero, 1}, {zero, 1}, {both, 2}, none, {three, 1}};
    const fig_plan_head plan = {.rows = 1};
    fig_host_work work = {0};
    fig_host_fault fault;
    memset(log, 0, sizeof *log);
    for (uint64_t i = 0; i < NODES; i++) {
        const fig_dev_call call = {
            .callback = log_tag, .user = log, .name = "log", .args.tag = i, .plan = &plan};
        assert_int_equal(fig_host_work_call(&work, &call, after[i]), FIG_OK);
    }
    assert_int_equal(fig_host_work_add_scratch(&work), FIG_OK);
    for (int i = 0; i < ORDERS; i++)
        fig_host_work_run(&work, &random, &fault);
    assert_int_equal(log->count, ORDERS * NODES);
    fig_host_work_finish(&work);
}

static void nodes_run_in_any_order_that_edges_allow(void **state) {
    (void)state;
    static node_log plain, shuffled, again, other;
    int free_first = 0, two_before_one = 0;
    run_lattice(0, &plain);
    run_lattice(12345, &shuffled);
    run_lattice(12345, &again);
    run_lattice(54321, &other);
    assert_memory_equal(&shuffled, &again, sizeof shuffled);
    assert_true(memcmp(&shuffled, &other, sizeof shuffled) != 0);
    for (int i = 0; i < ORDERS; i++) {
        int at[NODES];
        for (uint64_t j = 0; j < NODES; j++) {
            assert_int_equal(plain.tags[i][j], j);
            at[shuffled.tags[i][j]] = (int)j;
        }
        assert_true(at[0] < at[1] && at[0] < at[2] && at[1] < at[3] && at[2] < at[3]);
        assert_true(at[3] < at[5]);
        free_first += at[4] == 0;
        two_before_one += at[2] < at[1];
    }
    assert_in_range(free_first, 10, 90);
    assert_in_range(two_before_one, 10, 90);
}

/* Each row has one block, so an omitted block leaves poison in its row. */
static void shuffled_blocks_run_once_each(void **state) {
    (void)state;
    enum { ROWS = 37, WIDTH = 8 };
    static float in[ROWS][2 * WIDTH], out[2][ROWS][WIDTH];
    const fig_plan_head plan = {.rows = ROWS};
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < 2 * WIDTH; c++)
            in[r][c] = (float)(r + 1) + (float)c / 16.0f;
    memset(out, 0xff, sizeof out);
    for (int i = 0; i < 2; i++) {
        uint64_t random = i == 0 ? 0 : 77;
        const fig_gated_params params = {.in = in,
                                         .out = out[i],
                                         .plan = (const uint8_t *)&plan,
                                         .in_stride = 2 * WIDTH,
                                         .out_stride = WIDTH,
                                         .rows = {ROWS, 1},
                                         .width = WIDTH,
                                         .dtype = FIG_F32};
        const fig_dev_launch kernel = {.op = FIG_OP_GATED,
                                       .grid = {ROWS, 1, 1},
                                       .block = {1, 1, 1},
                                       .params = &params,
                                       .params_bytes = sizeof params};
        fig_host_work work = {0};
        fig_host_fault fault;
        assert_int_equal(fig_host_work_kernel(&work, &kernel, none), FIG_OK);
        assert_int_equal(fig_host_work_add_scratch(&work), FIG_OK);
        fig_host_work_run(&work, &random, &fault);
        uint32_t sum = 0;
        for (uint32_t b = 0; random != 0 && b < ROWS; b++)
            sum += work.blocks[b];
        assert_int_equal(sum, random == 0 ? 0 : ROWS * (ROWS - 1) / 2);
        fig_host_work_finish(&work);
    }
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < WIDTH; c++)
            assert_true(out[0][r][c] > 0.0f);
    assert_memory_equal(out[0], out[1], sizeof out[0]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_call_has_its_own_copy_of_all_it_was_given),
        cmocka_unit_test(a_node_that_finds_no_memory_leaves_the_work_as_it_was),
        cmocka_unit_test(a_grid_of_more_blocks_than_are_counted_is_refused),
        cmocka_unit_test(nodes_run_in_any_order_that_edges_allow),
        cmocka_unit_test(shuffled_blocks_run_once_each),
    };
    fig_place_host_program("it is about the host device's work");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
