/* run_capture.c: tests runs of a fig_runner on a GPU, eager and captured. A captured run is
 * replayed with other lengths in the same arrays, and must leave the same bits as an eager run. The
 * first runner of the process is opened during a capture, and its first run becomes a child of
 * another graph, as in XLA. One test runs two threads at the same time. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/driver/gpu_caller.h"
#include "tests/support/place.h"
#include "tests/support/ffi/run_rig.h"

enum { ROWS = 8, LIMIT = 1024, PAGE = 16, DIM = 128, Q_HEADS = 32, KV_HEADS = 8 };
enum { REPLAYS = 1000, THREADS = 2, THREAD_RUNS = 100 };
enum { OF_THREAD_LOCAL = 1 }; /* the capture mode that XLA uses */

/* ---- A layer whose lengths lie on the device ------------------------------------------------- */

enum { LENGTHS, GATE, ACT, X, WEIGHT, NORMED, Q, K, V, OUT, LSE, K_CACHE, V_CACHE, TABLE };
enum { ALL = TABLE + 1, COLUMNS = LIMIT / PAGE, PAGES = ROWS * COLUMNS };

/* The tensors that a run writes. It also writes the caches, and rotates q and k in place. */
static const int32_t written[] = {ACT, NORMED, OUT, LSE};
enum { WRITTEN = sizeof written / sizeof written[0] };

static fig_tensor rows_of(fig_run_rig *rig, const char *name, fig_dtype dtype, int64_t heads,
                          int64_t dim) {
    return fig_run_rig_tensor(rig, name, dtype, (int64_t[4]){FIG_DIM_BATCH, heads, dim});
}

static void record_layer(fig_run_rig *rig, int paged) {
    const int32_t page = paged ? PAGE : LIMIT;
    const fig_spec spec = {.size = sizeof spec,
                           .dtype = FIG_BF16,
                           .q_heads = Q_HEADS,
                           .kv_heads = KV_HEADS,
                           .head_dim = DIM,
                           .page_size = paged ? PAGE : 0,
                           .batch_limit = ROWS,
                           .kv_limit = LIMIT};
    const int64_t cache[4] = {FIG_DIM_PAGES, page, KV_HEADS, DIM};
    fig_run_rig_begin(rig, &spec, 7);
    const fig_tensor lengths = rows_of(rig, "lengths", FIG_I32, 0, 0);
    const fig_gated_op gated = {.size = sizeof gated,
                                .in = rows_of(rig, "gate", FIG_BF16, 2 * 1001, 0),
                                .out = rows_of(rig, "act", FIG_BF16, 1001, 0)};
    const fig_rms_norm_op norm = {
        .size = sizeof norm,
        .in = rows_of(rig, "x", FIG_BF16, 515, 0),
        .weight = fig_run_rig_tensor(rig, "weight", FIG_BF16, (int64_t[4]){515}),
        .out = rows_of(rig, "normed", FIG_BF16, 515, 0)};
    fig_decode_attention_op attend = {.size = sizeof attend};
    attend.q = rows_of(rig, "q", FIG_BF16, Q_HEADS, DIM);
    attend.k = rows_of(rig, "k", FIG_BF16, KV_HEADS, DIM);
    attend.v = rows_of(rig, "v", FIG_BF16, KV_HEADS, DIM);
    attend.out = rows_of(rig, "out", FIG_BF16, Q_HEADS, DIM);
    attend.lse = rows_of(rig, "lse", FIG_F32, Q_HEADS, 0);
    attend.cache.k = fig_run_rig_tensor(rig, "k_cache", FIG_BF16, cache);
    attend.cache.v = fig_run_rig_tensor(rig, "v_cache", FIG_BF16, cache);
    if (paged)
        attend.cache.page_table =
            fig_run_rig_tensor(rig, "table", FIG_I32, (int64_t[4]){ROWS, COLUMNS});
    fig_program_read_lengths(rig->program, lengths, (fig_tensor){0});
    fig_silu_and_mul(rig->program, &gated);
    fig_rms_norm(rig->program, &norm);
    fig_decode_attention(rig->program, &attend);
    fig_run_rig_lower(rig);
}

static void fill_layer(fig_run_rig *rig, int paged) {
    const int64_t cache = (int64_t)PAGES * PAGE * KV_HEADS * DIM;
    fig_run_rig_memory(rig, LENGTHS, ROWS, 0);
    fig_run_rig_fill(rig, GATE, ROWS * 2 * 1001, 1);
    fig_run_rig_memory(rig, ACT, ROWS * 1001, 0);
    fig_run_rig_fill(rig, X, ROWS * 515, 0);
    fig_run_rig_fill(rig, WEIGHT, 515, 0);
    fig_run_rig_memory(rig, NORMED, ROWS * 515, 0);
    fig_run_rig_fill(rig, Q, ROWS * Q_HEADS * DIM, 0);
    fig_run_rig_fill(rig, K, ROWS * KV_HEADS * DIM, 0);
    fig_run_rig_fill(rig, V, ROWS * KV_HEADS * DIM, 0);
    fig_run_rig_memory(rig, OUT, ROWS * Q_HEADS * DIM, 0);
    fig_run_rig_memory(rig, LSE, ROWS * Q_HEADS, 0);
    fig_run_rig_fill(rig, K_CACHE, cache, 0);
    fig_run_rig_fill(rig, V_CACHE, cache, 0);
    if (paged) {
        int32_t *table = fig_run_rig_memory(rig, TABLE, PAGES, 0);
        for (int32_t i = 0; i < PAGES; i++)
            table[i] = (i * 37 + 5) % PAGES;
    }
    rig->run.rows = ROWS;
    rig->run.stream = fig_gpu_caller.stream;
}

/* Scratch is device memory, since blocks increment counters in it when they end. Its size is for an
 * H200; it is known before any runner is open. */
static void give_scratch(fig_run_rig *rig) {
    fig_scratch needed = {.size = sizeof needed};
    fig_traits traits = {.size = sizeof traits};
    fig_cu_address address;
    assert_int_equal(fig_traits_named(&traits, "h200"), FIG_OK);
    assert_int_equal(fig_graphs_scratch(rig->graphs, &traits, ROWS, 0, &needed), FIG_OK);
    CU(MemAlloc, &address, needed.best_bytes);
    CU(MemsetD8Async, address, 0xff, needed.best_bytes, fig_gpu_caller.stream);
    CU(StreamSynchronize, fig_gpu_caller.stream);
    rig->run.scratch = (void *)(uintptr_t)address;
    rig->run.scratch_bytes = needed.best_bytes;
}

static void take_scratch(fig_run_rig *rig) {
    CU(MemFree, (fig_cu_address)(uintptr_t)rig->run.scratch);
}

static void draw_lengths(fig_run_rig *rig) {
    int32_t *lengths = rig->bindings[LENGTHS].address;
    for (int32_t row = 0; row < ROWS; row++)
        lengths[row] = fig_random_range(&rig->random, -20, LIMIT + 20);
}

/* Keeps the results of a run in one array, and restores the tensors that the run changed in
 * place. */
typedef struct kept {
    uint8_t *before[2]; /* the original q and k */
    uint8_t *left;
    size_t bytes;
} kept;

static kept keep_of(const fig_run_rig *rig) {
    kept of = {{NULL, NULL}, NULL, 0};
    for (int i = 0; i < 2; i++) {
        const fig_binding *binding = &rig->bindings[i == 0 ? Q : K];
        of.before[i] = malloc(binding->bytes);
        memcpy(of.before[i], binding->address, binding->bytes);
    }
    for (int i = 0; i < WRITTEN; i++)
        of.bytes += rig->bindings[written[i]].bytes;
    of.left = malloc(of.bytes);
    return of;
}

static void drop(kept *of) {
    free(of->before[0]);
    free(of->before[1]);
    free(of->left);
}

static void put_back(const fig_run_rig *rig, const kept *of) {
    for (int i = 0; i < 2; i++) {
        const fig_binding *binding = &rig->bindings[i == 0 ? Q : K];
        memcpy(binding->address, of->before[i], binding->bytes);
    }
    for (int i = 0; i < WRITTEN; i++)
        memset(rig->bindings[written[i]].address, 0xff, rig->bindings[written[i]].bytes);
}

static void take_left(const fig_run_rig *rig, kept *of) {
    size_t at = 0;
    for (int i = 0; i < WRITTEN; i++) {
        memcpy(of->left + at, rig->bindings[written[i]].address, rig->bindings[written[i]].bytes);
        at += rig->bindings[written[i]].bytes;
    }
}

static void expect_left(const fig_run_rig *rig, const kept *of, int n) {
    size_t at = 0;
    for (int i = 0; i < WRITTEN; i++) {
        const fig_binding *binding = &rig->bindings[written[i]];
        if (memcmp(of->left + at, binding->address, binding->bytes) != 0)
            fail_msg("replay %d: %s is not what an eager run leaves", n, binding->name);
        at += binding->bytes;
    }
}

/* ---- Captures -------------------------------------------------------------------------------- */

/* Adds the captured graph as a child, the only node of another graph. */
static fig_cu_exec capture(fig_run_rig *rig) {
    fig_cu_graph captured = NULL, graph = NULL;
    fig_cu_node node;
    fig_cu_exec exec = NULL;
    fig_cu_instantiate_params params = {.flags = 0};
    CU(StreamBeginCapture, fig_gpu_caller.stream, OF_THREAD_LOCAL);
    fig_run_rig_open(rig);
    const fig_status status = fig_runner_run(rig->runner, &rig->run);
    CU(StreamEndCapture, fig_gpu_caller.stream, &captured);
    if (status != FIG_OK) fail_msg("%s", fig_message());
    CU(GraphCreate, &graph, 0);
    CU(GraphAddChildGraphNode, &node, graph, NULL, 0, captured);
    CU(GraphInstantiateWithParams, &exec, graph, &params);
    CU(GraphDestroy, captured);
    CU(GraphDestroy, graph);
    return exec;
}

static void replays_leave_an_eager_run_s_bits(int paged) {
    fig_run_rig rig;
    record_layer(&rig, paged);
    fill_layer(&rig, paged);
    give_scratch(&rig);
    draw_lengths(&rig);
    fig_cu_exec exec = capture(&rig);
    kept of = keep_of(&rig);
    for (int n = 0; n < REPLAYS; n++) {
        draw_lengths(&rig);
        put_back(&rig, &of);
        CU(GraphLaunch, exec, fig_gpu_caller.stream);
        CU(StreamSynchronize, fig_gpu_caller.stream);
        take_left(&rig, &of);
        put_back(&rig, &of);
        if (fig_run_rig_run(&rig) != FIG_OK) fail_msg("%s", fig_message());
        expect_left(&rig, &of, n);
    }
    CU(GraphExecDestroy, exec);
    drop(&of);
    take_scratch(&rig);
    fig_run_rig_close(&rig);
}

/* In this process the library has run nothing and loaded no kernel before. */
static void the_first_captured_run_replays_for_other_lengths(void **state) {
    (void)state;
    replays_leave_an_eager_run_s_bits(1);
}

static void dense_caches_replay_too(void **state) {
    (void)state;
    replays_leave_an_eager_run_s_bits(0);
}

/* ---- Threads --------------------------------------------------------------------------------- */

typedef struct runner_thread {
    pthread_t thread;
    fig_run_rig rig;
    kept of;
    int failed; /* the number of the failed run, from 1 */
} runner_thread;

static void *run_often(void *argument) {
    runner_thread *own = argument;
    fig_cu_context popped;
    fig_cu_stream mine = NULL;
    fig_gpu_caller.cu->CtxPushCurrent(fig_gpu_caller.context);
    fig_gpu_caller.cu->StreamCreate(&mine, FIG_CU_STREAM_NON_BLOCKING);
    own->rig.run.stream = mine;
    for (int n = 1; n <= THREAD_RUNS && own->failed == 0; n++) {
        size_t at = 0;
        put_back(&own->rig, &own->of);
        if (fig_runner_run(own->rig.runner, &own->rig.run) != FIG_OK ||
            fig_gpu_caller.cu->StreamSynchronize(mine) != FIG_CU_SUCCESS)
            own->failed = n;
        for (int i = 0; i < WRITTEN; i++) {
            const fig_binding *binding = &own->rig.bindings[written[i]];
            if (memcmp(own->of.left + at, binding->address, binding->bytes) != 0) own->failed = n;
            at += binding->bytes;
        }
    }
    fig_gpu_caller.cu->StreamDestroy(mine);
    fig_gpu_caller.cu->CtxPopCurrent(&popped);
    return NULL;
}

static void two_threads_run_side_by_side(void **state) {
    (void)state;
    runner_thread threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        runner_thread *own = &threads[i];
        *own = (runner_thread){.failed = 0};
        record_layer(&own->rig, 1);
        fill_layer(&own->rig, 1);
        give_scratch(&own->rig);
        fig_run_rig_open(&own->rig);
        draw_lengths(&own->rig);
        own->of = keep_of(&own->rig);
        put_back(&own->rig, &own->of);
        if (fig_run_rig_run(&own->rig) != FIG_OK) fail_msg("%s", fig_message());
        take_left(&own->rig, &own->of);
    }
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i].thread, NULL, run_often, &threads[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i].thread, NULL);
        assert_int_equal(threads[i].failed, 0);
        drop(&threads[i].of);
        take_scratch(&threads[i].rig);
        fig_run_rig_close(&threads[i].rig);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_captured_run_replays_for_other_lengths),
        cmocka_unit_test(dense_caches_replay_too),
        cmocka_unit_test(two_threads_run_side_by_side),
    };
    setenv("FIG_DEVICE", "cuda", 1); /* this test always needs a GPU */
    return cmocka_run_group_tests(tests, fig_gpu_caller_set_up, fig_gpu_caller_tear_down);
}
