/* test_whole_runs.c: tests which runs of attention are a single launch, without plan and scratch:
 * runs of attention alone, over few tokens, if the host knows how many. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "engine/graph/cuda_resident.h"
#include "include/figraph_runner.h"
#include "tests/support/driver/fake_cuda.h"

enum { ROWS = 3, HEADS = 4, DIM_LIMIT = 96, LIMIT = 64 };

/* Attention, followed by an append to the same dense caches, each in its own segment. */
typedef struct work {
    fig_fake_cuda *driver;
    fig_program *program;
    fig_graphs *graphs;
    fig_runner *runner;
    /* for q, k, v, out and the two caches */
    _Alignas(16) uint16_t numbers[6][ROWS * LIMIT * DIM_LIMIT];
    int32_t lengths[ROWS];
    fig_binding bindings[7];
    int32_t count;
    _Alignas(16) uint8_t scratch[1 << 18];
    _Alignas(16) uint8_t plan[4096];
    int64_t dim;
} work;

static fig_tensor add(work *w, const char *name, fig_dtype dtype, void *memory, int64_t first,
                      int64_t heads, int64_t dim) {
    const int64_t rows = first == FIG_DIM_PAGES ? ROWS * (int64_t)LIMIT : ROWS;
    const uint64_t bytes = (uint64_t)(rows * (heads > 0 ? heads * dim * 2 : 4));
    fig_tensor_info info = {.size = sizeof info,
                            .name = name,
                            .role = FIG_ROLE_BOUND,
                            .dtype = dtype,
                            .rank = heads > 0 ? 3 : 1,
                            .dims = {first, heads, dim}};
    if (first == FIG_DIM_PAGES) {
        info.rank = 4;
        info.dims[1] = LIMIT, info.dims[2] = heads, info.dims[3] = dim;
    }
    w->bindings[w->count++] =
        (fig_binding){.size = sizeof(fig_binding), .address = memory, .bytes = bytes};
    return fig_program_tensor(w->program, &info);
}

static void record(work *w, int reads_lengths) {
    fig_append_kv_op append = {.size = sizeof append};
    fig_attention_op attend = {.size = sizeof attend};
    fig_cache cache = {{0}, {0}, {0}, {0}, {0}, {{0}}};
    w->count = 0;
    attend.q = add(w, "q", FIG_F16, w->numbers[0], FIG_DIM_BATCH, HEADS, w->dim);
    append.k = add(w, "k", FIG_F16, w->numbers[1], FIG_DIM_BATCH, 1, w->dim);
    append.v = add(w, "v", FIG_F16, w->numbers[2], FIG_DIM_BATCH, 1, w->dim);
    attend.out = add(w, "out", FIG_F16, w->numbers[3], FIG_DIM_BATCH, HEADS, w->dim);
    cache.k = add(w, "k_cache", FIG_F16, w->numbers[4], FIG_DIM_PAGES, 1, w->dim);
    cache.v = add(w, "v_cache", FIG_F16, w->numbers[5], FIG_DIM_PAGES, 1, w->dim);
    attend.cache = append.cache = cache;
    if (reads_lengths)
        fig_program_read_lengths(w->program,
                                 add(w, "lengths", FIG_I32, w->lengths, FIG_DIM_BATCH, 0, 0),
                                 (fig_tensor){0});
    fig_program_segment(w->program, "attend");
    fig_attention(w->program, &attend);
    fig_program_segment(w->program, "append");
    fig_append_kv(w->program, &append);
}

static fig_status open_runner(work *w, int reads_lengths, int32_t dim) {
    const fig_runner_options options = {.size = sizeof options, .device = FIG_DEVICE_CUDA};
    const fig_spec spec = {.size = sizeof spec,
                           .dtype = FIG_F16,
                           .q_heads = HEADS,
                           .kv_heads = 1,
                           .head_dim = dim,
                           .batch_limit = ROWS,
                           .kv_limit = LIMIT};
    w->dim = dim;
    assert_int_equal(fig_program_create(&w->program, &spec), FIG_OK);
    record(w, reads_lengths);
    if (fig_program_finish(w->program) != FIG_OK) fail_msg("%s", fig_message());
    assert_int_equal(fig_graphs_lower(&w->graphs, w->program, NULL), FIG_OK);
    return fig_runner_open(&w->runner, w->graphs, &options);
}

static void close_runner(work *w) {
    fig_runner_close(w->runner);
    fig_graphs_destroy(w->graphs);
    fig_program_destroy(w->program);
    w->runner = NULL;
}

static work *begin(void) {
    work *w = calloc(1, sizeof *w);
    assert_non_null(w);
    w->driver = fig_fake_cuda_install();
    return w;
}

static void end(work *w) {
    fig_cuda_resident_forget();
    assert_int_equal(w->driver->held, 0);
    fig_fake_cuda_remove();
    free(w);
}

/* Returns the number of launches in one run of all rows. Sets *whole to 1 if one launch did all of
 * attention. */
static int64_t count_launches(work *w, const char *segment, void *plan, int *whole) {
    const fig_run run = {.size = sizeof run,
                         .rows = ROWS,
                         .kv_length = LIMIT,
                         .bindings = w->bindings,
                         .binding_count = w->count,
                         .segment = segment,
                         .plan = plan,
                         .plan_bytes = plan != NULL ? sizeof w->plan : 0,
                         .scratch = w->scratch,
                         .scratch_bytes = sizeof w->scratch};
    const int64_t before = w->driver->stream_launches;
    w->driver->ran[FIG_OP_WHOLE_ATTENTION] = NULL;
    if (fig_runner_run(w->runner, &run) != FIG_OK) fail_msg("%s", fig_message());
    *whole = w->driver->ran[FIG_OP_WHOLE_ATTENTION] != NULL;
    return w->driver->stream_launches - before;
}

static void a_run_of_attention_alone_is_a_single_launch(void **state) {
    (void)state;
    work *w = begin();
    int whole;
    assert_int_equal(open_runner(w, 0, 64), FIG_OK);
    assert_int_equal(count_launches(w, "attend", NULL, &whole), 1);
    assert_true(whole);
    /* All segments: the planner, attention and the append. The segment "append" alone: the planner
     * and the append. */
    assert_int_equal(count_launches(w, NULL, NULL, &whole), 3);
    assert_false(whole);
    assert_int_equal(count_launches(w, "append", NULL, &whole), 2);
    assert_false(whole);
    close_runner(w);
    end(w);
}

/* The plan was made for a split attention and other runs may read it too, so this run must read it
 * as well. */
static void a_plan_that_is_given_is_read(void **state) {
    (void)state;
    work *w = begin();
    int whole;
    assert_int_equal(open_runner(w, 0, 64), FIG_OK);
    const fig_run run = {.size = sizeof run,
                         .rows = ROWS,
                         .kv_length = LIMIT,
                         .bindings = w->bindings,
                         .binding_count = w->count,
                         .plan = w->plan,
                         .plan_bytes = sizeof w->plan,
                         .scratch = w->scratch,
                         .scratch_bytes = sizeof w->scratch};
    if (fig_runner_plan(w->runner, &run) != FIG_OK) fail_msg("%s", fig_message());
    assert_int_equal(count_launches(w, "attend", w->plan, &whole), 1);
    assert_false(whole);
    close_runner(w);
    end(w);
}

/* The lengths on the device may be less than kv_length, which is all that the host knows. */
static void lengths_on_the_device_are_planned(void **state) {
    (void)state;
    work *w = begin();
    int whole;
    w->lengths[0] = 1;
    assert_int_equal(open_runner(w, 1, 64), FIG_OK);
    assert_int_equal(count_launches(w, "attend", NULL, &whole), 2);
    assert_false(whole);
    close_runner(w);
    end(w);
}

/* Returns how many more kernels a runner loads if the host knows the lengths than if only the
 * device does. */
static int64_t count_loaded(work *w, int32_t dim) {
    assert_int_equal(open_runner(w, 1, dim), FIG_OK);
    const int64_t held = w->driver->held;
    close_runner(w);
    assert_int_equal(open_runner(w, 0, dim), FIG_OK);
    const int64_t more = w->driver->held - held;
    close_runner(w);
    fig_cuda_resident_forget();
    return more;
}

static void a_runner_loads_whole_attention_if_a_run_may_need_it(void **state) {
    (void)state;
    work *w = begin();
    assert_int_equal(count_loaded(w, 64), 1);
    assert_int_equal(count_loaded(w, 96), 0); /* there is no such kernel for heads of 96 */
    w->driver->capability = 80;
    assert_int_equal(count_loaded(w, 64), 0);
    end(w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_of_attention_alone_is_a_single_launch),
        cmocka_unit_test(a_plan_that_is_given_is_read),
        cmocka_unit_test(lengths_on_the_device_are_planned),
        cmocka_unit_test(a_runner_loads_whole_attention_if_a_run_may_need_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
