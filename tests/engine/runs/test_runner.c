/* test_runner.c: tests that a run needs no state, that a wrong run is refused by name before any
 * launch, that one runner serves any number of threads, and that a run's needs can be asked for any
 * machine. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "include/figraph_unstable.h"
#include "tests/support/fault.h"
#include "tests/support/ffi/run_rig.h"
#include "tests/support/place.h"
#include "tools/figraph/truth/truth.h"

enum { ROWS = 4, LENGTH = 100, THREADS = 4, REPEATS = 25 };

/* Makes the standard step of one layer over dense caches, with everything bound. */
static void make_step(fig_run_rig *rig) {
    const fig_spec spec = {.size = sizeof spec,
                           .dtype = FIG_F16,
                           .q_heads = 4,
                           .kv_heads = 2,
                           .head_dim = 64,
                           .ffn_width = 24,
                           .batch_limit = ROWS,
                           .kv_limit = 128};
    fig_tensor_info info = {.size = sizeof info};
    fig_run_rig_begin(rig, &spec, 1);
    fig_program_decode_step(rig->program);
    fig_run_rig_open(rig);
    for (; fig_graphs_tensor(rig->graphs, rig->count, &info) == FIG_OK; rig->count++) {
        int64_t elements = ROWS;
        for (int32_t i = 1; i < info.rank; i++)
            elements *= info.dims[i];
        rig->bindings[rig->count] = (fig_binding){.size = sizeof(fig_binding)};
        rig->dtypes[rig->count] = FIG_F16;
        fig_run_rig_fill(rig, rig->count, elements, 0);
    }
    rig->run.binding_count = rig->count;
    rig->run.rows = ROWS;
    rig->run.kv_length = LENGTH;
    fig_run_rig_scratch(rig, UINT64_MAX);
}

static fig_binding *binding_of(fig_run_rig *rig, const char *name) {
    fig_tensor_info info = {.size = sizeof info};
    for (int32_t i = 0; fig_graphs_tensor(rig->graphs, i, &info) == FIG_OK; i++)
        if (strcmp(info.name, name) == 0) return &rig->bindings[i];
    fail_msg("no tensor %s", name);
    return NULL;
}

/* ---- Refusals */

static void expect_refusal(fig_run_rig *rig, fig_status status, const char *words) {
    const fig_status got = fig_runner_run(rig->runner, &rig->run);
    if (got != status || strstr(fig_message(), words) == NULL)
        fail_msg("%s \"%s\", wanted %s \"%s\"", fig_status_name(got), fig_message(),
                 fig_status_name(status), words);
}

static void each_wrong_number_is_refused_by_name(void **state) {
    (void)state;
    fig_run_rig rig;
    make_step(&rig);
    rig.run.plan_bytes = rig.run.scratch_bytes;
    const fig_run right = rig.run;
#define WRONG(change, status, words)                                                               \
    do {                                                                                           \
        rig.run.change;                                                                            \
        expect_refusal(&rig, status, words);                                                       \
        rig.run = right;                                                                           \
    } while (0)
    WRONG(rows = -1, FIG_INVALID, "rows is -1");
    WRONG(rows = ROWS + 1, FIG_TOO_LARGE, "rows is 5, the spec's batch_limit 4");
    WRONG(kv_length = -1, FIG_INVALID, "kv_length -1");
    WRONG(kv_length = 129, FIG_TOO_LARGE, "kv_length is 129, the spec's kv_limit 128");
    WRONG(binding_count = -1, FIG_INVALID, "binding_count -1");
    WRONG(binding_count = 7, FIG_UNBOUND, "is not bound");
    WRONG(bindings = NULL, FIG_UNBOUND, "is not bound");
    WRONG(segment = "attn.1", FIG_INVALID, "the program has no segment attn.1");
    WRONG(scratch = NULL, FIG_INVALID, "scratch is NULL");
    WRONG(scratch = (uint8_t *)right.scratch + 8, FIG_INVALID, "multiples of 16");
    WRONG(plan = (uint8_t *)right.scratch + 8, FIG_INVALID, "multiples of 16");
    WRONG(scratch_bytes = 100, FIG_INVALID, "scratch_bytes is 100, it must be");
    WRONG(size = 1, FIG_INVALID, "fig_run");
    if (fig_place_device() == FIG_DEVICE_HOST)
        WRONG(stream = &rig, FIG_INVALID, "it must be NULL on the host");
#undef WRONG
    rig.run.rows = 0;
    rig.run.bindings = NULL;
    assert_int_equal(fig_run_rig_run(&rig), FIG_OK);
    fig_run_rig_close(&rig);
}

static void each_wrong_binding_is_refused_by_name(void **state) {
    (void)state;
    fig_run_rig rig;
    make_step(&rig);
    fig_binding *q = binding_of(&rig, "q.0"), *k = binding_of(&rig, "k_cache.0");
    fig_binding *out = binding_of(&rig, "out.0");
    const fig_binding right_q = *q, right_k = *k, right_out = *out;
#define WRONG(of, change, status, words)                                                           \
    do {                                                                                           \
        of->change;                                                                                \
        expect_refusal(&rig, status, words);                                                       \
        *of = right_##of;                                                                          \
    } while (0)
    WRONG(q, name = "k.0", FIG_INVALID, "is named k.0, but that tensor is q.0");
    WRONG(q, address = NULL, FIG_UNBOUND, "tensor q.0 has no address");
    WRONG(q, address = (uint8_t *)right_q.address + 1, FIG_INVALID, "it must be a multiple of 2");
    WRONG(q, bytes = 2 * 4 * 64 * ROWS - 1, FIG_INVALID, "tensor q.0: bytes is 2047");
    WRONG(q, strides[0] = -1, FIG_INVALID, "tensor q.0: strides[0] is -1");
    WRONG(k, bytes = 2 * 2 * 64 * ROWS * (LENGTH - 1), FIG_INVALID,
          "tensor k_cache.0: holds 99 tokens of each sequence, kv_length is 100");
    WRONG(k, bytes = 2 * 2 * 64 * ROWS - 1, FIG_INVALID,
          "tensor k_cache.0: bytes is 1023, which holds no token of each sequence");
    WRONG(out, address = (uint8_t *)right_q.address + 128, FIG_INVALID,
          "overlaps tensor q.0, and decode_attention writes");
#undef WRONG
    assert_int_equal(fig_run_rig_run(&rig), FIG_OK);
    rig.run.rows = 1; /* with one sequence, the stride between sequences does not matter */
    memcpy(k->strides, (int64_t[4]){1, 128, 64, 1}, sizeof k->strides);
    assert_int_equal(fig_run_rig_run(&rig), FIG_OK);
    k->bytes = 2 * 2 * 64 * (LENGTH - 1);
    expect_refusal(&rig, FIG_INVALID, "tensor k_cache.0: holds 99 tokens of each sequence");
    fig_run_rig_close(&rig);
}

static void a_runner_needs_a_device_and_a_program_that_it_can_run(void **state) {
    (void)state;
    fig_run_rig rig;
    fig_runner *runner;
    fig_run_rig_begin(&rig, FIG_OPTIONS(fig_spec, .dtype = FIG_F32), 1);
    const fig_tensor x = fig_run_rig_tensor(&rig, "x", FIG_F32, (int64_t[4]){FIG_DIM_BATCH, 4});
    fig_call(rig.program, FIG_OPTIONS(fig_call_op, .call = "gemm", .writes = &x, .write_count = 1));
    assert_int_equal(fig_program_finish(rig.program), FIG_OK);
    assert_int_equal(fig_graphs_lower(&rig.graphs, rig.program, NULL), FIG_OK);
    assert_int_equal(fig_runner_open(&runner, rig.graphs, NULL), FIG_UNSUPPORTED);
    assert_null(runner);
    assert_string_equal(fig_message(), "runner: node 0 is a call, which only an engine can run");
    fig_run_rig_close(&rig);
    make_step(&rig);
    assert_int_equal(fig_runner_open(&runner, NULL, NULL), FIG_INVALID);
    assert_int_equal(
        fig_runner_open(&runner, rig.graphs, FIG_OPTIONS(fig_runner_options, .device = 9)),
        FIG_INVALID);
    assert_string_equal(fig_message(), "runner: device is 9, which is no fig_device");
    assert_int_equal(fig_runner_open(&runner, rig.graphs,
                                     FIG_OPTIONS(fig_runner_options, .concurrent_runs = -1)),
                     FIG_INVALID);
    assert_string_equal(fig_message(), "runner: concurrent_runs is -1, limits 0 to 1024");
    assert_int_equal(fig_runner_device(rig.runner), fig_place_device());
    fig_runner_close(NULL);
    fig_run_rig_close(&rig);
}

static void an_open_that_fails_holds_nothing(void **state) {
    (void)state;
    fig_run_rig rig;
    make_step(&rig);
    const fig_runner_options options = {.size = sizeof options, .device = FIG_DEVICE_HOST};
    for (int64_t n = 1;; n++) {
        fig_runner *runner;
        fig_fault_arm(n);
        const fig_status status = fig_runner_open(&runner, rig.graphs, &options);
        const int failed = fig_fault_disarm() >= n;
        if (failed) assert_int_equal(status, FIG_NOMEM);
        if (failed) assert_null(runner);
        fig_runner_close(runner);
        if (!failed) break;
    }
    fig_run_rig_close(&rig);
}

/* ---- Results */

/* The results equal those of an engine's step of the same rows. Only attention may differ, since
 * its work may be cut at other places. */
static void a_run_of_the_standard_step_is_an_engine_s_step(void **state) {
    (void)state;
    fig_run_rig rig;
    fig_graphs *graphs;
    fig_engine *engine;
    fig_tensor_info info = {.size = sizeof info};
    make_step(&rig);
    void *copies[FIG_RUN_RIG_TENSOR_LIMIT];
    const fig_engine_options options = fig_place_options();
    assert_int_equal(fig_graphs_lower(&graphs, rig.program, NULL), FIG_OK);
    assert_int_equal(fig_engine_open(&engine, graphs, &options), FIG_OK);
    for (int32_t i = 0; fig_graphs_tensor(rig.graphs, i, &info) == FIG_OK; i++) {
        fig_binding binding = rig.bindings[i];
        binding.name = info.name;
        binding.address = copies[i] = fig_place_allocate(binding.bytes);
        memcpy(copies[i], rig.bindings[i].address, binding.bytes);
        assert_int_equal(fig_engine_bind(engine, &binding), FIG_OK);
    }
    const int32_t lengths[ROWS] = {LENGTH, LENGTH, LENGTH, LENGTH};
    assert_int_equal(
        fig_engine_step(engine, FIG_OPTIONS(fig_step, .rows = ROWS, .kv_lengths = lengths)),
        FIG_OK);
    assert_int_equal(fig_engine_wait(engine, -1), FIG_OK);
    assert_int_equal(fig_run_rig_run(&rig), FIG_OK);
    for (int32_t i = 0; fig_graphs_tensor(rig.graphs, i, &info) == FIG_OK; i++) {
        const int is_out = strcmp(info.name, "out.0") == 0;
        const int64_t count = (int64_t)rig.bindings[i].bytes / 2;
        for (int64_t j = 0; j < count; j++) {
            const double want = truth_load(copies[i], FIG_F16, j);
            const double got = truth_load(rig.bindings[i].address, FIG_F16, j);
            const double apart = got > want ? got - want : want - got;
            if (!(apart <= (is_out ? 1.01 * truth_ulp(FIG_F16, want) + 1e-4 : 0)))
                fail_msg("%s: element %lld is %g, the engine's %g", info.name, (long long)j, got,
                         want);
        }
    }
    fig_engine_close(engine);
    fig_graphs_destroy(graphs);
    for (int32_t i = 0; i < rig.count; i++)
        fig_place_free(copies[i]);
    fig_run_rig_close(&rig);
}

/* Tensors of other segments need not be bound, and a segment that needs no plan needs no
 * scratch. */
static void a_segment_runs_by_itself(void **state) {
    (void)state;
    fig_run_rig rig;
    make_step(&rig);
    fig_binding *act = binding_of(&rig, "act.0"), *out = binding_of(&rig, "out.0");
    const fig_binding bound_out = *out, bound_act = *act;
    *out = (fig_binding){.size = sizeof *out};
    memset(act->address, 0xff, act->bytes);
    const fig_run right = rig.run;
    rig.run.segment = "act.0";
    rig.run.scratch = NULL;
    rig.run.scratch_bytes = 0;
    assert_int_equal(fig_run_rig_run(&rig), FIG_OK);
    for (int64_t i = 0; i < (int64_t)act->bytes / 2; i++)
        assert_true(truth_load(act->address, FIG_F16, i) < 1000);
    rig.run = right;
    rig.run.segment = "attn.0";
    *act = (fig_binding){.size = sizeof *act};
    expect_refusal(&rig, FIG_UNBOUND, "tensor out.0 has no address");
    *out = bound_out;
    assert_int_equal(fig_run_rig_run(&rig), FIG_OK);
    *act = bound_act;
    fig_run_rig_close(&rig);
}

/* Any number of runs can share a plan, but a run that reads no plan must not be given one. */
static void a_plan_is_shared(void **state) {
    (void)state;
    fig_run_rig rig;
    fig_scratch needed = {.size = sizeof needed};
    fig_traits traits = {.size = sizeof traits};
    make_step(&rig);
    fig_binding *out = binding_of(&rig, "out.0"), *q = binding_of(&rig, "q.0");
    fig_binding *k = binding_of(&rig, "k.0");
    uint8_t *own = malloc(out->bytes), *before[] = {malloc(q->bytes), malloc(k->bytes)};
    assert_true(own != NULL && before[0] != NULL && before[1] != NULL);
    memcpy(before[0], q->address, q->bytes);
    memcpy(before[1], k->address, k->bytes);
    assert_int_equal(fig_run_rig_run(&rig), FIG_OK);
    memcpy(own, out->address, out->bytes);
    assert_int_equal(fig_runner_plan(rig.runner, &rig.run), FIG_INVALID);
    assert_int_equal(fig_runner_read_traits(rig.runner, &traits), FIG_OK);
    assert_int_equal(fig_graphs_scratch(rig.graphs, &traits, ROWS, LENGTH, &needed), FIG_OK);
    rig.run.plan = fig_place_allocate(needed.plan_bytes);
    rig.run.plan_bytes = needed.plan_bytes;
    assert_int_equal(fig_run_rig_plan(&rig), FIG_OK);
    for (int n = 0; n < 2; n++) {
        memcpy(q->address, before[0], q->bytes);
        memcpy(k->address, before[1], k->bytes);
        memset(out->address, 0xff, out->bytes);
        rig.run.segment = "attn.0";
        assert_int_equal(fig_run_rig_run(&rig), FIG_OK);
        assert_memory_equal(own, out->address, out->bytes);
    }
    rig.run.segment = "act.0";
    assert_int_equal(fig_runner_plan(rig.runner, &rig.run), FIG_ORDER);
    assert_string_equal(fig_message(), "plan: no node of the run reads a plan");
    fig_place_free(rig.run.plan);
    free(own);
    free(before[0]);
    free(before[1]);
    fig_run_rig_close(&rig);
}

/* ---- Threads */

typedef struct thread_work {
    const fig_run_rig *rig;
    pthread_t thread;
    uint16_t *out;
    int failed;
} thread_work;

static void *run_often(void *argument) {
    thread_work *work = argument;
    fig_binding bindings[2] = {work->rig->bindings[0], work->rig->bindings[1]};
    fig_run run = work->rig->run;
    bindings[1].address = work->out;
    run.bindings = bindings;
    for (int n = 0; n < REPEATS; n++) {
        run.rows = 1 + n % 40;
        work->failed |= fig_runner_run(work->rig->runner, &run) != FIG_OK;
        run.rows = -1;
        work->failed |= fig_runner_run(work->rig->runner, &run) != FIG_INVALID;
        work->failed |= strncmp(fig_message(), "run: rows is -1", 15) != 0;
    }
    return NULL;
}

static void one_runner_serves_any_number_of_threads(void **state) {
    (void)state;
    fig_run_rig rig;
    thread_work work[THREADS];
    fig_run_rig_begin(&rig, FIG_OPTIONS(fig_spec, .dtype = FIG_BF16), 1);
    const fig_tensor in = fig_run_rig_tensor(&rig, "in", FIG_BF16, (int64_t[4]){FIG_DIM_BATCH, 62});
    const fig_tensor out =
        fig_run_rig_tensor(&rig, "out", FIG_BF16, (int64_t[4]){FIG_DIM_BATCH, 31});
    fig_silu_and_mul(rig.program, FIG_OPTIONS(fig_gated_op, .in = in, .out = out));
    fig_run_rig_open(&rig);
    fig_run_rig_fill(&rig, 0, 40 * 62, 0);
    fig_run_rig_memory(&rig, 1, 40 * 31, 0);
    for (int i = 0; i < THREADS; i++) {
        work[i] = (thread_work){.rig = &rig, .out = fig_place_allocate(40 * 31 * 2)};
        assert_int_equal(pthread_create(&work[i].thread, NULL, run_often, &work[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(work[i].thread, NULL);
        assert_false(work[i].failed);
    }
    rig.run.rows = REPEATS;
    assert_int_equal(fig_run_rig_run(&rig), FIG_OK);
    for (int i = 0; i < THREADS; i++) {
        assert_memory_equal(work[i].out, rig.bindings[1].address, REPEATS * 31 * 2);
        fig_place_free(work[i].out);
    }
    fig_run_rig_close(&rig);
}

/* ---- Scratch */

static void scratch_can_be_asked_for_every_chip(void **state) {
    (void)state;
    fig_run_rig rig;
    fig_traits traits = {.size = sizeof traits};
    fig_scratch needed = {.size = sizeof needed};
    make_step(&rig);
    for (int32_t i = 0; fig_traits_name(i) != NULL; i++) {
        assert_int_equal(fig_traits_named(&traits, fig_traits_name(i)), FIG_OK);
        for (int32_t rows = 1; rows <= ROWS; rows++) {
            assert_int_equal(fig_graphs_scratch(rig.graphs, &traits, rows, 0, &needed), FIG_OK);
            assert_true(needed.plan_bytes > 0 && needed.least_bytes >= 4 * 2);
            /* On a GPU a single worker reads so few tokens, so there are no partials to merge. */
            assert_true(needed.best_bytes >= needed.least_bytes);
            if (traits.compute_capability == 0) assert_true(needed.best_bytes > needed.least_bytes);
        }
    }
    assert_int_equal(fig_graphs_scratch(rig.graphs, NULL, 0, 0, &needed), FIG_OK);
    assert_true(needed.best_bytes == 0 && needed.plan_bytes == 0);
    assert_int_equal(fig_graphs_scratch(rig.graphs, NULL, 1, 129, &needed), FIG_TOO_LARGE);
    assert_int_equal(fig_graphs_scratch(rig.graphs, NULL, ROWS + 1, 0, &needed), FIG_TOO_LARGE);
    assert_int_equal(fig_graphs_scratch(rig.graphs, NULL, -1, 0, &needed), FIG_INVALID);
    assert_int_equal(fig_graphs_scratch(rig.graphs, NULL, 1, -1, &needed), FIG_INVALID);
    traits.sm_count = 0;
    assert_int_equal(fig_graphs_scratch(rig.graphs, &traits, 1, 0, &needed), FIG_INVALID);
    fig_run_rig_close(&rig);
}

/* A fixed split has its cuts at fixed places, since these determine the bits of the result. */
static void a_fixed_split_is_cut_no_further(void **state) {
    (void)state;
    fig_run_rig rig;
    fig_graphs *graphs;
    fig_scratch needed = {.size = sizeof needed};
    make_step(&rig);
    assert_int_equal(
        fig_graphs_lower(&graphs, rig.program, FIG_OPTIONS(fig_lower_options, .deterministic = 1)),
        FIG_OK);
    assert_int_equal(fig_graphs_scratch(graphs, NULL, ROWS, 0, &needed), FIG_OK);
    /* the difference is the plan alone */
    assert_true(needed.best_bytes - needed.least_bytes < 1024);
    fig_graphs_destroy(graphs);
    fig_run_rig_close(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_wrong_number_is_refused_by_name),
        cmocka_unit_test(each_wrong_binding_is_refused_by_name),
        cmocka_unit_test(a_runner_needs_a_device_and_a_program_that_it_can_run),
        cmocka_unit_test(an_open_that_fails_holds_nothing),
        cmocka_unit_test(a_run_of_the_standard_step_is_an_engine_s_step),
        cmocka_unit_test(a_segment_runs_by_itself),
        cmocka_unit_test(a_plan_is_shared),
        cmocka_unit_test(one_runner_serves_any_number_of_threads),
        cmocka_unit_test(scratch_can_be_asked_for_every_chip),
        cmocka_unit_test(a_fixed_split_is_cut_no_further),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
