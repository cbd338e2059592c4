/* test_compiled_runs.c: tests runners that compile scores, over a driver that needs no GPU: what
 * open compiles, that no run compiles, and what is refused. */
#define _GNU_SOURCE /* nftw */
#include <ftw.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "engine/graph/cuda_resident.h"
#include "engine/runs/runner.h"
#include "include/figraph_scores.h"
#include "tests/support/driver/fake_graph.h"
#include "tests/support/fault.h"
#include "tests/support/hang.h"

enum { ROWS = 2, HEADS = 4, DIM = 64, LIMIT = 64, PAGE = 16, PAGES = 8, Q = ROWS * HEADS * DIM };

static const char twice[] = "score * 2.0", shifted[] = "score + kv_pos * 0.5";

/* Attention of one layer for each score, with lengths on the device. */
typedef struct work {
    fig_fake_cuda *driver;
    fig_program *program;
    fig_graphs *graphs;
    fig_runner *runner;
    uint16_t q[Q], out[2][Q], k_cache[PAGES * PAGE * DIM], v_cache[PAGES * PAGE * DIM];
    int32_t table[ROWS * LIMIT / PAGE], lengths[ROWS];
    fig_binding bindings[8];
    int32_t binding_count;
    const char *folder; /* of compiled scores, for a runner that another thread opens */
    _Alignas(16) uint8_t scratch[1 << 18];
} work;

static fig_tensor tensor(work *w, const char *name, fig_dtype dtype, const int64_t dims[4],
                         void *memory, size_t bytes) {
    fig_tensor_info info = {
        .size = sizeof info, .name = name, .role = FIG_ROLE_BOUND, .dtype = dtype};
    for (; info.rank < 4 && dims[info.rank] != 0; info.rank++)
        info.dims[info.rank] = dims[info.rank];
    w->bindings[w->binding_count++] =
        (fig_binding){.size = sizeof(fig_binding), .address = memory, .bytes = bytes};
    return fig_program_tensor(w->program, &info);
}
#define TENSOR(w, name, dtype, memory, ...)                                                        \
    tensor(w, name, dtype, (int64_t[4]){__VA_ARGS__}, memory, sizeof memory)

static void record(work *w, const char *const *texts, int count) {
    static const char *const outs[] = {"out", "other_out"};
    fig_cache cache = {{0}, {0}, {0}, {0}, {0}, {{0}}};
    const fig_tensor lengths = TENSOR(w, "lengths", FIG_I32, w->lengths, FIG_DIM_BATCH);
    const fig_tensor q = TENSOR(w, "q", FIG_F16, w->q, FIG_DIM_BATCH, HEADS, DIM);
    cache.k = TENSOR(w, "k_cache", FIG_F16, w->k_cache, FIG_DIM_PAGES, PAGE, 1, DIM);
    cache.v = TENSOR(w, "v_cache", FIG_F16, w->v_cache, FIG_DIM_PAGES, PAGE, 1, DIM);
    cache.page_table = TENSOR(w, "table", FIG_I32, w->table, ROWS, LIMIT / PAGE);
    fig_program_read_lengths(w->program, lengths, (fig_tensor){0});
    for (int i = 0; i < count; i++) {
        fig_score *score;
        assert_int_equal(fig_score_parse(&score, texts[i]), FIG_OK);
        fig_attention(
            w->program,
            FIG_OPTIONS(fig_attention_op, .q = q, .cache = cache, .score = score,
                        .out = TENSOR(w, outs[i], FIG_F16, w->out[i], FIG_DIM_BATCH, HEADS, DIM)));
        fig_score_destroy(score);
    }
}

static work *lower(const char *const *texts, int count) {
    const fig_spec spec = {.size = sizeof spec,
                           .dtype = FIG_F16,
                           .q_heads = HEADS,
                           .kv_heads = 1,
                           .head_dim = DIM,
                           .page_size = PAGE,
                           .batch_limit = ROWS,
                           .kv_limit = LIMIT};
    work *w = calloc(1, sizeof *w);
    assert_non_null(w);
    w->lengths[0] = 40, w->lengths[1] = 7;
    for (int i = 0; i < ROWS * LIMIT / PAGE; i++)
        w->table[i] = i % PAGES;
    for (int i = 0; i < Q; i++)
        w->q[i] = (uint16_t)(0x3000 + i % 64);
    for (int i = 0; i < PAGES * PAGE * DIM; i++)
        w->k_cache[i] = w->v_cache[i] = (uint16_t)(0x3000 + i % 1024);
    assert_int_equal(fig_program_create(&w->program, &spec), FIG_OK);
    record(w, texts, count);
    if (fig_program_finish(w->program) != FIG_OK) fail_msg("%s", fig_message());
    assert_int_equal(fig_graphs_lower(&w->graphs, w->program, NULL), FIG_OK);
    return w;
}

static work *begin(const char *const *texts, int count) {
    work *w = lower(texts, count);
    w->driver = fig_fake_cuda_install();
    return w;
}

static work *begin_one(const char *text) {
    return begin(&text, 1);
}

static fig_status open_runner(work *w, int32_t compiles, const char *folder) {
    const fig_runner_options options = {.size = sizeof options,
                                        .device = FIG_DEVICE_CUDA,
                                        .compile_scores = compiles,
                                        .score_cache = folder};
    return fig_runner_open(&w->runner, w->graphs, &options);
}

static void must_open(work *w, int32_t compiles, const char *folder) {
    if (open_runner(w, compiles, folder) != FIG_OK) fail_msg("%s", fig_message());
}

static void run(work *w) {
    const fig_run run = {.size = sizeof run,
                         .rows = ROWS,
                         .bindings = w->bindings,
                         .binding_count = w->binding_count,
                         .scratch = w->scratch,
                         .scratch_bytes = sizeof w->scratch};
    if (fig_runner_run(w->runner, &run) != FIG_OK) fail_msg("%s", fig_message());
}

/* Ends what a process keeps of its runners. */
static void forget(work *w) {
    fig_runner_close(w->runner);
    w->runner = NULL;
    fig_cuda_resident_forget();
    fig_cuda_scores_forget();
}

static void end(work *w) {
    forget(w);
    fig_graphs_destroy(w->graphs);
    fig_program_destroy(w->program);
    assert_int_equal(w->driver->held, 0);
    assert_int_equal(w->driver->unsafe, 0);
    fig_fake_cuda_remove();
    free(w);
}

/* ---- What is compiled ------------------------------------------------------------------------ */

static void open_compiles_and_no_run_does(void **state) {
    (void)state;
    work *w = begin_one(twice);
    uint16_t interpreted[Q];
    must_open(w, 0, NULL);
    run(w);
    assert_string_equal(w->driver->ran[FIG_OP_SCORED_ATTENTION], "fig_kernel_scored_attention");
    assert_int_equal(w->driver->links, 0);
    memcpy(interpreted, w->out[0], sizeof interpreted);
    memset(w->out, 0, sizeof w->out);
    forget(w);
    must_open(w, 1, NULL);
    const int64_t links = w->driver->links;
    assert_true(links > 0);
    run(w);
    run(w);
    assert_non_null(
        strstr(w->driver->ran[FIG_OP_SCORED_ATTENTION], "fig_kernel_scored_bulk_f16_64_"));
    assert_int_equal(w->driver->links, links);
    assert_memory_equal(w->out[0], interpreted, sizeof interpreted);
    end(w);
}

static void a_second_runner_compiles_nothing(void **state) {
    (void)state;
    work *w = begin_one(twice);
    must_open(w, 1, NULL);
    const int64_t links = w->driver->links;
    fig_runner_close(w->runner);
    must_open(w, 1, NULL);
    assert_int_equal(w->driver->links, links);
    end(w);
}

/* Returns the kernel that a run's launch of the node's attention gets. */
static void *kernel_of(work *w, uint32_t node) {
    const fig_lower_common *common = &w->graphs->common;
    const fig_run_size size = {ROWS, LIMIT, FIG_RUN_SHAPE_BEST, 0};
    _Alignas(64) uint8_t params[FIG_PARAMS_LIMIT];
    fig_run_shape shape;
    fig_family_choice choice;
    assert_int_equal(fig_run_shape_of_variant(w->graphs, &w->runner->traits, &size, 0, &shape),
                     FIG_OK);
    fig_run_fill(w->runner, &shape, common->node_launches[node].first, params);
    fig_families_choose(FIG_OP_SCORED_ATTENTION, params, &w->runner->kernel_traits, &choice);
    fig_run_launch launch = {.op = FIG_OP_SCORED_ATTENTION, .shape = choice.shape};
    launch.params = params;
    assert_int_equal(w->runner->api->begin(w->runner->device, NULL), FIG_OK);
    const fig_status status = w->runner->api->prepare(w->runner->device, &choice, &launch);
    if (w->runner->api->end(w->runner->device, status) != FIG_OK) fail_msg("%s", fig_message());
    return launch.kernel;
}

static void two_scores_of_a_program_are_two_kernels(void **state) {
    (void)state;
    static const char *const texts[] = {twice, shifted};
    work *w = begin(texts, 2);
    w->driver->capability = 80; /* where no launch has a tensor map */
    must_open(w, 1, NULL);
    const uint32_t last = w->runner->program->node_count - 1;
    assert_ptr_not_equal(kernel_of(w, last), kernel_of(w, last - 1));
    assert_ptr_equal(kernel_of(w, last), kernel_of(w, last));
    end(w);
    w = begin(texts, 2);
    w->driver->capability = 80;
    must_open(w, 0, NULL);
    assert_ptr_equal(kernel_of(w, last), kernel_of(w, last - 1)); /* interpreted by one */
    end(w);
}

static void a_score_with_a_mask_is_interpreted(void **state) {
    (void)state;
    work *w = begin_one("see 0:q_pos + 1; score * 2.0");
    must_open(w, 1, NULL);
    run(w);
    assert_int_equal(w->driver->links, 0);
    assert_string_equal(w->driver->ran[FIG_OP_SCORED_ATTENTION], "fig_kernel_scored_attention");
    end(w);
}

static void a_runner_that_is_opened_during_a_capture_compiles(void **state) {
    (void)state;
    work *w = begin_one(twice);
    fig_cu_stream stream = fig_fake_cuda_stream_create(&fig_fake_cuda_primary);
    assert_true(fig_fake_cuda_capture(stream));
    must_open(w, 1, NULL);
    assert_true(w->driver->links > 0);
    fig_fake_cuda_drop(fig_fake_cuda_end(stream));
    fig_fake_cuda_stream_destroy(stream);
    end(w);
}

static char folder[] = "/tmp/fig_runs_XXXXXX";

/* Makes a new folder of that name. */
static void make_folder(void) {
    memcpy(folder + sizeof folder - 7, "XXXXXX", 6);
    assert_non_null(mkdtemp(folder));
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *at) {
    (void)info, (void)kind, (void)at;
    return remove(path);
}

/* ---- While the driver compiles --------------------------------------------------------------- */

/* Opens a runner, while another thread has the driver compile. */
static void *open_other(void *of) {
    work *w = of;
    must_open(w, 1, w->folder);
    return NULL;
}

static void open_meanwhile(void *other) {
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, open_other, other), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

/* Opens two runners, the second one while the driver compiles the score of the first. Returns how
 * many scores were compiled. */
static int64_t open_both(work *first, work *second, const char *kept_in) {
    first->folder = second->folder = kept_in;
    first->driver->compiling = open_meanwhile;
    first->driver->user = second;
    must_open(first, 1, kept_in);
    assert_non_null(second->runner);
    return first->driver->links;
}

static void end_both(work *first, work *second) {
    fig_runner_close(second->runner);
    fig_graphs_destroy(second->graphs);
    fig_program_destroy(second->program);
    free(second);
    end(first);
}

static void others_open_while_the_driver_compiles(void **state) {
    (void)state;
    static const char *const text = shifted;
    work *w = begin_one(twice);
    must_open(w, 1, NULL);
    const int64_t links = w->driver->links;
    forget(w);
    w->driver->links = 0;
    work *other = lower(&text, 1);
    assert_int_equal(open_both(w, other, NULL), 2 * links);
    run(w);
    run(other);
    assert_non_null(
        strstr(w->driver->ran[FIG_OP_SCORED_ATTENTION], "fig_kernel_scored_bulk_f16_64_"));
    end_both(w, other);
}

static void two_threads_that_compile_the_same_score_share_its_kernel(void **state) {
    (void)state;
    static const char *const text = twice;
    work *w = begin_one(twice);
    make_folder();
    w->driver->capability = 80; /* where no launch has a tensor map */
    must_open(w, 1, NULL);
    const int64_t links = w->driver->links, held = w->driver->held;
    forget(w);
    w->driver->links = 0;
    work *other = lower(&text, 1);
    /* Only the score that the first thread was compiling when the second came is compiled twice. */
    assert_int_equal(open_both(w, other, folder), links + 1);
    assert_int_equal(w->driver->held, held);
    const uint32_t node = w->runner->program->node_count - 1;
    assert_ptr_equal(kernel_of(w, node), kernel_of(other, node));
    /* Later processes find what both have written. */
    fig_runner_close(other->runner);
    forget(w);
    w->driver->links = 0;
    must_open(w, 1, folder);
    must_open(other, 1, folder);
    assert_int_equal(w->driver->links, 0);
    nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    end_both(w, other);
}

/* ---- What is kept, and what is refused ------------------------------------------------------- */

static void a_folder_keeps_the_code_for_later_processes(void **state) {
    (void)state;
    work *w = begin_one(twice);
    make_folder();
    must_open(w, 1, folder);
    const int64_t links = w->driver->links;
    forget(w);
    must_open(w, 1, folder);
    assert_int_equal(w->driver->links, links);
    run(w);
    forget(w);
    assert_int_equal(chmod(folder, 0770), 0);
    assert_int_equal(open_runner(w, 1, folder), FIG_INVALID);
    assert_non_null(strstr(fig_message(), "others may write in /tmp/fig_runs_"));
    assert_null(w->runner);
    nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    assert_int_equal(open_runner(w, 0, folder), FIG_INVALID);
    assert_non_null(
        strstr(fig_message(), "runner: score_cache is for runners with compile_scores"));
    end(w);
}

static void a_driver_that_does_not_compile_says_what_to_do(void **state) {
    (void)state;
    work *w = begin_one(twice);
    w->driver->refuses_scores = 1;
    assert_int_equal(open_runner(w, 1, NULL), FIG_UNSUPPORTED);
    assert_non_null(strstr(fig_message(), "without compile_scores the score is interpreted"));
    assert_null(w->runner);
    must_open(w, 0, NULL);
    end(w);
}

static void a_runner_that_lacked_memory_may_be_opened_again(void **state) {
    (void)state;
    work *w = begin_one(twice);
    for (int64_t n = 1;; n++) {
        fig_fault_arm(n);
        const fig_status status = open_runner(w, 1, NULL);
        if (fig_fault_disarm() < n) break;
        if (status != FIG_OK && status != FIG_NOMEM) fail_msg("%d: %s", (int)n, fig_message());
        forget(w);
    }
    run(w);
    end(w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(open_compiles_and_no_run_does),
        cmocka_unit_test(a_second_runner_compiles_nothing),
        cmocka_unit_test(two_scores_of_a_program_are_two_kernels),
        cmocka_unit_test(a_score_with_a_mask_is_interpreted),
        cmocka_unit_test(a_runner_that_is_opened_during_a_capture_compiles),
        cmocka_unit_test_setup_teardown(others_open_while_the_driver_compiles, fig_hang_watch,
                                        fig_hang_unwatch),
        cmocka_unit_test_setup_teardown(two_threads_that_compile_the_same_score_share_its_kernel,
                                        fig_hang_watch, fig_hang_unwatch),
        cmocka_unit_test(a_folder_keeps_the_code_for_later_processes),
        cmocka_unit_test(a_runner_that_lacked_memory_may_be_opened_again),
        cmocka_unit_test(a_driver_that_does_not_compile_says_what_to_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
