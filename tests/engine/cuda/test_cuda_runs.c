/* test_cuda_runs.c: tests that a run on a GPU does nothing but launch kernels, so that a caller can
 * capture even the first run. Open has loaded everything else before, once for all runners, and it
 * stays loaded. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "engine/graph/cuda_resident.h"
#include "engine/runs/runner.h"
#include "include/figraph_runner.h"
#include "include/figraph_unstable.h"
#include "tests/support/driver/fake_graph.h"
#include "tests/support/fault.h"

enum {
    ROWS = 3,
    HEADS = 4,
    DIM = 64,
    LIMIT = 64,
    LONGER = 128,
    LONGEST = 2048,
    PAGE = 16,
    PAGES = 12
};

/* A layer's append and attention, with lengths on the device. */
typedef struct work {
    fig_fake_cuda *driver;
    fig_program *program;
    fig_graphs *graphs;
    fig_runner *runner;
    uint16_t q[ROWS * HEADS * DIM], k[ROWS * DIM], v[ROWS * DIM], out[ROWS * HEADS * DIM];
    uint16_t k_cache[PAGES * PAGE * DIM], v_cache[PAGES * PAGE * DIM];
    int32_t table[ROWS * LONGEST / PAGE], lengths[ROWS], limit;
    fig_binding bindings[8];
    _Alignas(16) uint8_t scratch[1 << 18];
    fig_run run;
} work;

static fig_tensor tensor(work *w, int32_t index, const char *name, fig_dtype dtype,
                         const int64_t dims[4], void *memory, size_t bytes) {
    fig_tensor_info info = {
        .size = sizeof info, .name = name, .role = FIG_ROLE_BOUND, .dtype = dtype};
    for (; info.rank < 4 && dims[info.rank] != 0; info.rank++)
        info.dims[info.rank] = dims[info.rank];
    w->bindings[index] =
        (fig_binding){.size = sizeof(fig_binding), .address = memory, .bytes = bytes};
    return fig_program_tensor(w->program, &info);
}
#define TENSOR(w, index, name, dtype, memory, ...)                                                 \
    tensor(w, index, name, dtype, (int64_t[4]){__VA_ARGS__}, memory, sizeof memory)

static void record(work *w) {
    fig_append_kv_op append = {.size = sizeof append};
    fig_attention_op attend = {.size = sizeof attend};
    fig_cache cache = {{0}, {0}, {0}, {0}, {0}, {{0}}};
    const fig_tensor lengths = TENSOR(w, 0, "lengths", FIG_I32, w->lengths, FIG_DIM_BATCH);
    attend.q = TENSOR(w, 1, "q", FIG_F16, w->q, FIG_DIM_BATCH, HEADS, DIM);
    append.k = TENSOR(w, 2, "k", FIG_F16, w->k, FIG_DIM_BATCH, 1, DIM);
    append.v = TENSOR(w, 3, "v", FIG_F16, w->v, FIG_DIM_BATCH, 1, DIM);
    attend.out = TENSOR(w, 4, "out", FIG_F16, w->out, FIG_DIM_BATCH, HEADS, DIM);
    cache.k = TENSOR(w, 5, "k_cache", FIG_F16, w->k_cache, FIG_DIM_PAGES, PAGE, 1, DIM);
    cache.v = TENSOR(w, 6, "v_cache", FIG_F16, w->v_cache, FIG_DIM_PAGES, PAGE, 1, DIM);
    cache.page_table = TENSOR(w, 7, "table", FIG_I32, w->table, ROWS, w->limit / PAGE);
    attend.cache = append.cache = cache;
    fig_program_read_lengths(w->program, lengths, (fig_tensor){0});
    fig_append_kv(w->program, &append);
    fig_program_segment(w->program, "attend");
    fig_attention(w->program, &attend);
}

static void make_graphs(work *w, int32_t limit) {
    const fig_spec spec = {.size = sizeof spec,
                           .dtype = FIG_F16,
                           .q_heads = HEADS,
                           .kv_heads = 1,
                           .head_dim = DIM,
                           .page_size = PAGE,
                           .batch_limit = ROWS,
                           .kv_limit = limit};
    *w = (work){.lengths = {40, 1, 64}, .limit = limit};
    for (int32_t i = 0; i < ROWS * LONGEST / PAGE; i++)
        w->table[i] = i % PAGES;
    assert_int_equal(fig_program_create(&w->program, &spec), FIG_OK);
    record(w);
    assert_int_equal(fig_program_finish(w->program), FIG_OK);
    assert_int_equal(fig_graphs_lower(&w->graphs, w->program, NULL), FIG_OK);
    w->run = (fig_run){.size = sizeof w->run,
                       .rows = ROWS,
                       .bindings = w->bindings,
                       .binding_count = 8,
                       .scratch = w->scratch,
                       .scratch_bytes = sizeof w->scratch};
    for (int32_t i = 0; i < ROWS * HEADS * DIM; i++)
        w->q[i] = (uint16_t)(0x3000 + i % 64);
    for (int32_t i = 0; i < PAGES * PAGE * DIM; i++)
        w->k_cache[i] = w->v_cache[i] = (uint16_t)(0x3000 + i % 1024);
}

static work *begin_of(int32_t limit) {
    work *w = malloc(sizeof *w);
    assert_non_null(w);
    make_graphs(w, limit);
    w->driver = fig_fake_cuda_install();
    return w;
}

static work *begin(void) {
    return begin_of(LIMIT);
}

static void open_runner(work *w) {
    const fig_runner_options options = {.size = sizeof options, .device = FIG_DEVICE_CUDA};
    if (fig_runner_open(&w->runner, w->graphs, &options) != FIG_OK) fail_msg("%s", fig_message());
}

static void end(work *w) {
    fig_runner_close(w->runner);
    fig_graphs_destroy(w->graphs);
    fig_program_destroy(w->program);
    fig_cuda_resident_forget();
    assert_int_equal(w->driver->held, 0);
    assert_int_equal(w->driver->unsafe, 0);
    fig_fake_cuda_remove();
    free(w);
}

/* ---- Tests */

static void a_run_is_its_launches_between_a_push_and_a_pop(void **state) {
    (void)state;
    work *w = begin();
    open_runner(w);
    const int64_t calls = w->driver->calls, held = w->driver->held;
    const int64_t maps = w->driver->maps;
    assert_int_equal(fig_runner_run(w->runner, &w->run), FIG_OK);
    /* The run launches the planner, append and attention. Making a tensor map is not a call to the
     * GPU. */
    assert_int_equal(w->driver->calls - calls, 2 + 3 + w->driver->maps - maps);
    assert_int_equal(w->driver->maps - maps, 2);
    assert_int_equal(w->driver->stream_launches, 3);
    /* The first kernel launches early too, whatever runs before it. */
    assert_int_equal(w->driver->early_launches, 3);
    assert_int_equal(w->driver->held, held);
    assert_null(w->driver->current);
    assert_string_equal(w->driver->ran[FIG_OP_ATTENTION], "fig_kernel_attention_bulk_f16_64_4");
    end(w);
}

/* Rows of at most 128 tokens run the short kernel with two workers per row, even if the runner was
 * opened for longer rows. */
static void short_rows_have_a_kernel_that_open_has_loaded(void **state) {
    (void)state;
    work *w = begin_of(LONGER);
    open_runner(w);
    assert_int_equal(fig_runner_run(w->runner, &w->run), FIG_OK);
    assert_string_equal(w->driver->ran[FIG_OP_ATTENTION], "fig_kernel_attention_short_f16_64_2_4");
    end(w);
    w = begin_of(LONGEST);
    open_runner(w);
    w->run.kv_length = LONGER;
    assert_int_equal(fig_runner_run(w->runner, &w->run), FIG_OK);
    assert_string_equal(w->driver->ran[FIG_OP_ATTENTION], "fig_kernel_attention_short_f16_64_2_4");
    end(w);
}

/* Breaks an invariant on purpose, as a bug in the library would: attention asks for more shared
 * memory than open allowed. */
static void a_kernel_that_open_did_not_load_is_a_status(void **state) {
    (void)state;
    work *w = begin();
    const int bytes = w->driver->shared_bytes;
    w->driver->shared_bytes = bytes / 2;
    open_runner(w);
    w->driver->shared_bytes = bytes;
    assert_int_equal(fig_runner_run(w->runner, &w->run), FIG_OK);
    w->runner->kernel_traits.shared_bytes = bytes;
    w->run.rows = 2; /* a run that is not in the memo */
    assert_int_equal(fig_runner_run(w->runner, &w->run), FIG_FAULT);
    assert_non_null(strstr(fig_message(), "a fault of libfigraph's own: run: "
                                          "fig_kernel_attention_bulk_f16_64_4 with "));
    assert_null(w->driver->current);
    w->runner->kernel_traits.shared_bytes = bytes / 2;
    assert_int_equal(fig_runner_run(w->runner, &w->run), FIG_OK);
    end(w);
}

static void a_repeated_run_prepares_nothing(void **state) {
    (void)state;
    work *w = begin();
    uint16_t first[ROWS * HEADS * DIM], other[ROWS * HEADS * DIM];
    open_runner(w);
    assert_int_equal(fig_runner_run(w->runner, &w->run), FIG_OK);
    memcpy(first, w->out, sizeof first);
    memset(w->out, 0, sizeof w->out);
    const int64_t calls = w->driver->calls;
    assert_int_equal(fig_runner_run(w->runner, &w->run), FIG_OK);
    assert_int_equal(w->driver->calls - calls, 2 + 3);
    assert_memory_equal(w->out, first, sizeof first);
    w->bindings[4].address = other; /* with another address it is another run */
    assert_int_equal(fig_runner_run(w->runner, &w->run), FIG_OK);
    assert_memory_equal(other, first, sizeof first);
    w->run.rows = 1; /* so it is with another number of rows */
    memset(other, 0, sizeof other);
    assert_int_equal(fig_runner_run(w->runner, &w->run), FIG_OK);
    assert_memory_equal(other, first, HEADS * DIM * sizeof *other);
    assert_int_equal(other[HEADS * DIM], 0);
    end(w);
}

/* Callers set the fields of a struct, but not its padding. */
static void padding_in_bindings_is_ignored(void **state) {
    (void)state;
    work *w = begin();
    fig_binding dirty[8];
    open_runner(w);
    assert_int_equal(fig_runner_run(w->runner, &w->run), FIG_OK);
    const int64_t calls = w->driver->calls;
    memset(dirty, 0xa5, sizeof dirty);
    for (int i = 0; i < 8; i++) {
        dirty[i].size = w->bindings[i].size;
        dirty[i].name = NULL;
        dirty[i].address = w->bindings[i].address;
        dirty[i].bytes = w->bindings[i].bytes;
        memcpy(dirty[i].strides, w->bindings[i].strides, sizeof dirty[i].strides);
    }
    w->run.bindings = dirty;
    assert_int_equal(fig_runner_run(w->runner, &w->run), FIG_OK);
    assert_int_equal(w->driver->calls - calls, 2 + 3); /* the run was found in the memo */
    end(w);
}

/* Returns FIG_ATTENTION_APART and FIG_ATTENTION_IN_ORDER as the runner sets them for attention on a
 * GPU of sm_count SMs. */
static uint32_t flags_of(int sm_count, int32_t concurrent_runs) {
    work *w = begin();
    w->driver->sm_count = sm_count;
    if (fig_runner_open(&w->runner, w->graphs,
                        FIG_OPTIONS(fig_runner_options, .device = FIG_DEVICE_CUDA,
                                    .concurrent_runs = concurrent_runs)) != FIG_OK)
        fail_msg("%s", fig_message());
    assert_int_equal(fig_runner_run(w->runner, &w->run), FIG_OK);
    uint32_t flags = 0;
    const fig_lower_common *common = &w->runner->graphs->common;
    for (uint32_t i = 0; i < common->launch_count; i++) {
        const uint32_t part =
            w->runner->early_reads[i] & (FIG_ATTENTION_APART | FIG_ATTENTION_IN_ORDER);
        if (common->launches[i].op == FIG_OP_ATTENTION) flags |= part;
        if (common->launches[i].op != FIG_OP_ATTENTION) assert_int_equal(part, 0);
    }
    end(w);
    return flags;
}

/* In each launch, up to seven blocks may wait for blocks that are not resident yet; if workers are
 * spread, up to 22. */
static void no_block_waits_for_another_where_runs_at_once_could_fill_the_gpu(void **state) {
    (void)state;
    assert_int_equal(flags_of(265, 0), 0);
    assert_int_equal(flags_of(264, 0), FIG_ATTENTION_IN_ORDER);
    assert_int_equal(flags_of(132, 0), FIG_ATTENTION_IN_ORDER);
    assert_int_equal(flags_of(85, 0), FIG_ATTENTION_IN_ORDER);
    assert_int_equal(flags_of(84, 0), FIG_ATTENTION_APART);
    assert_int_equal(flags_of(14, 0), FIG_ATTENTION_APART);
    assert_int_equal(flags_of(7, 1), 0);
    assert_int_equal(flags_of(14, 2), FIG_ATTENTION_APART);
    assert_int_equal(flags_of(132, 5), 0);
    assert_int_equal(flags_of(132, 6), FIG_ATTENTION_IN_ORDER);
    assert_int_equal(flags_of(132, 18), FIG_ATTENTION_IN_ORDER);
    assert_int_equal(flags_of(132, 19), FIG_ATTENTION_APART);
}

/* After a failed launch, the next run does not use the memo and makes all launches again. */
static void a_run_that_failed_is_not_remembered(void **state) {
    (void)state;
    work *w = begin();
    open_runner(w);
    w->driver->fail_name = "cuLaunchKernelEx";
    w->driver->fail_with = FIG_CU_OUT_OF_MEMORY;
    assert_int_not_equal(fig_runner_run(w->runner, &w->run), FIG_OK);
    w->driver->fail_name = NULL;
    const int64_t launches = w->driver->stream_launches;
    assert_int_equal(fig_runner_run(w->runner, &w->run), FIG_OK);
    assert_int_equal(w->driver->stream_launches - launches, 3);
    assert_true(w->out[0] != 0);
    end(w);
}

/* Captures as another library would: on a stream of its own, in the strictest capture mode. */
static void the_first_run_of_all_may_be_captured_and_replayed(void **state) {
    (void)state;
    work *w = begin();
    uint16_t eager[ROWS * HEADS * DIM];
    open_runner(w);
    fig_cu_stream stream = fig_fake_cuda_stream_create(&fig_fake_cuda_primary);
    w->run.stream = stream;
    assert_true(fig_fake_cuda_capture(stream));
    assert_int_equal(fig_runner_run(w->runner, &w->run), FIG_OK);
    fig_cu_exec exec = fig_fake_cuda_end(stream);
    assert_non_null(exec);
    assert_int_equal(w->out[0], 0);
    fig_runner_close(w->runner); /* the captured work remains usable */
    w->runner = NULL;
    for (int32_t length = LIMIT; length > 1; length--) {
        w->lengths[0] = length;
        w->lengths[1] = LIMIT + 1;
        memset(w->scratch, 0xff, sizeof w->scratch);
        fig_fake_cuda_launch(exec, stream);
        memcpy(eager, w->out, sizeof eager);
        assert_true(eager[0] != 0 && eager[HEADS * DIM] == 0);
    }
    open_runner(w);
    w->run.stream = NULL;
    assert_int_equal(fig_runner_run(w->runner, &w->run), FIG_OK);
    assert_memory_equal(eager, w->out, sizeof eager);
    fig_fake_cuda_drop(exec);
    fig_fake_cuda_stream_destroy(stream);
    end(w);
}

/* The first call that is made inside a capture opens its runner there. */
static void a_runner_is_opened_while_the_caller_captures(void **state) {
    (void)state;
    work *w = begin();
    fig_cu_stream stream = fig_fake_cuda_stream_create(&fig_fake_cuda_primary);
    assert_true(fig_fake_cuda_capture(stream));
    open_runner(w);
    w->run.stream = stream;
    assert_int_equal(fig_runner_run(w->runner, &w->run), FIG_OK);
    fig_cu_exec exec = fig_fake_cuda_end(stream);
    assert_non_null(exec);
    fig_fake_cuda_drop(exec);
    fig_fake_cuda_stream_destroy(stream);
    end(w);
}

static void kernels_are_loaded_once_for_all_runners(void **state) {
    (void)state;
    work *w = begin();
    const fig_runner_options options = {.size = sizeof options, .device = FIG_DEVICE_CUDA};
    fig_runner *second;
    open_runner(w);
    const int64_t held = w->driver->held;
    assert_int_equal(fig_runner_open(&second, w->graphs, &options), FIG_OK);
    assert_int_equal(w->driver->held, held);
    fig_runner_close(second);
    assert_int_equal(w->driver->held, held);
    assert_int_equal(fig_runner_run(w->runner, &w->run), FIG_OK);
    end(w);
}

/* Fails each call of open and of a run in turn. */
static void a_driver_that_refuses_a_call_leaves_nothing_behind(void **state) {
    (void)state;
    work *w = begin();
    const fig_runner_options options = {.size = sizeof options, .device = FIG_DEVICE_CUDA};
    fig_status opened = FIG_OK, ran = FIG_OK;
    int64_t n = 1;
    do {
        w->driver->calls = 0;
        w->driver->failed = NULL;
        w->driver->fail_at = n++;
        w->driver->fail_with = FIG_CU_OUT_OF_MEMORY;
        opened = fig_runner_open(&w->runner, w->graphs, &options);
        ran = opened == FIG_OK ? fig_runner_run(w->runner, &w->run) : FIG_OK;
        const char *failed = w->driver->failed;
        if (failed != NULL && !fig_fake_cuda_is_guess(failed) &&
            strcmp(failed, "cuThreadExchangeStreamCaptureMode") != 0 &&
            strcmp(failed, "cuCtxPopCurrent") != 0)
            assert_true(opened != FIG_OK || ran != FIG_OK);
        assert_null(w->driver->current);
        fig_runner_close(w->runner);
        w->runner = NULL;
        w->driver->fail_at = 0;
        fig_cuda_resident_forget();
        assert_int_equal(w->driver->held, 0);
    } while (w->driver->failed != NULL);
    assert_true(n > 20);
    end(w);
}

/* A run does not allocate on the host either. */
static void a_run_allocates_nothing(void **state) {
    (void)state;
    work *w = begin();
    open_runner(w);
    assert_int_equal(fig_runner_run(w->runner, &w->run), FIG_OK);
    w->run.rows--; /* another run, which is not in the memo yet */
    fig_fault_arm(0);
    const fig_status status = fig_runner_run(w->runner, &w->run);
    assert_int_equal(fig_fault_disarm(), 0);
    assert_int_equal(status, FIG_OK);
    end(w);
}

/* Returns the flags of the last launch of a captured run, which is attention. */
static uint32_t flags_of_last(work *w) {
    fig_attention_params params;
    fig_cu_stream stream = fig_fake_cuda_stream_create(&fig_fake_cuda_primary);
    w->run.stream = stream;
    assert_true(fig_fake_cuda_capture(stream));
    assert_int_equal(fig_runner_run(w->runner, &w->run), FIG_OK);
    fig_cu_exec exec = fig_fake_cuda_end(stream);
    assert_non_null(exec);
    memcpy(&params, exec->nodes[exec->node_count - 1].params, sizeof params);
    fig_fake_cuda_drop(exec);
    fig_fake_cuda_stream_destroy(stream);
    /* IN_ORDER depends on the number of SMs; see flags_of() */
    return params.flags & ~(uint32_t)FIG_ATTENTION_IN_ORDER;
}

/* Attention may not be early if the launch that made the plan is directly in front of it, as in a
 * segment without the append. */
static void attention_starts_early_if_a_launch_separates_it_from_its_plan(void **state) {
    (void)state;
    work *w = begin();
    static _Alignas(16) uint8_t plan[4096];
    open_runner(w);
    assert_int_equal(flags_of_last(w), FIG_ATTENTION_EARLY);
    w->run.plan = plan;
    w->run.plan_bytes = sizeof plan;
    assert_int_equal(flags_of_last(w), FIG_ATTENTION_EARLY);
    w->run.segment = "attend";
    assert_int_equal(flags_of_last(w), 0);
    w->run.plan = NULL;
    assert_int_equal(flags_of_last(w), 0);
    end(w);
}

static void plain_edges_are_plain_launches(void **state) {
    (void)state;
    work *w = begin();
    const fig_test_options test = {.size = sizeof test, .plain_edges = 1, .plain_kernels = 1};
    const fig_runner_options options = {
        .size = sizeof options, .device = FIG_DEVICE_CUDA, .test = &test};
    assert_int_equal(fig_runner_open(&w->runner, w->graphs, &options), FIG_OK);
    assert_int_equal(fig_runner_run(w->runner, &w->run), FIG_OK);
    assert_int_equal(w->driver->early_launches, 0);
    assert_string_equal(w->driver->ran[FIG_OP_ATTENTION], "fig_kernel_attention_copy_f16_64");
    end(w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_is_its_launches_between_a_push_and_a_pop),
        cmocka_unit_test(short_rows_have_a_kernel_that_open_has_loaded),
        cmocka_unit_test(a_kernel_that_open_did_not_load_is_a_status),
        cmocka_unit_test(a_repeated_run_prepares_nothing),
        cmocka_unit_test(padding_in_bindings_is_ignored),
        cmocka_unit_test(no_block_waits_for_another_where_runs_at_once_could_fill_the_gpu),
        cmocka_unit_test(a_run_that_failed_is_not_remembered),
        cmocka_unit_test(the_first_run_of_all_may_be_captured_and_replayed),
        cmocka_unit_test(a_runner_is_opened_while_the_caller_captures),
        cmocka_unit_test(kernels_are_loaded_once_for_all_runners),
        cmocka_unit_test(a_driver_that_refuses_a_call_leaves_nothing_behind),
        cmocka_unit_test(a_run_allocates_nothing),
        cmocka_unit_test(attention_starts_early_if_a_launch_separates_it_from_its_plan),
        cmocka_unit_test(plain_edges_are_plain_launches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
