/* run_rig.c: records programs of one or a few operations, and runs them on the device under test.
 *
 * Invariant: all memory comes from place.h. */
#include "tests/support/ffi/run_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/common/numeric.h"
#include "tests/support/driver/caller.h"
#include "tests/support/place.h"

enum { POISON = 0xff };

static void expect_ok(fig_status status, const char *what) {
    if (status != FIG_OK) fail_msg("%s: %s", what, fig_message());
}

void fig_run_rig_begin(fig_run_rig *rig, const fig_spec *spec, uint64_t seed) {
    *rig = (fig_run_rig){.random = fig_random_seed(seed)};
    expect_ok(fig_program_create(&rig->program, spec), "program");
}

fig_tensor fig_run_rig_tensor(fig_run_rig *rig, const char *name, fig_dtype dtype,
                              const int64_t dims[4]) {
    fig_tensor_info info = {
        .size = sizeof info, .name = name, .role = FIG_ROLE_BOUND, .dtype = dtype};
    info.multiple = rig->multiple;
    while (info.rank < 4 && dims[info.rank] != 0) {
        info.dims[info.rank] = dims[info.rank];
        info.rank++;
    }
    assert_true(rig->count < FIG_RUN_RIG_TENSOR_LIMIT);
    rig->bindings[rig->count] = (fig_binding){.size = sizeof(fig_binding), .name = name};
    rig->dtypes[rig->count++] = dtype;
    return fig_program_tensor(rig->program, &info);
}

void fig_run_rig_lower(fig_run_rig *rig) {
    static const fig_bucket least = {1, 1};
    const fig_lower_options lower = {.size = sizeof lower, .buckets = &least, .bucket_count = 1};
    expect_ok(fig_program_finish(rig->program), "finish");
    expect_ok(fig_graphs_lower(&rig->graphs, rig->program, &lower), "lower");
    rig->run =
        (fig_run){.size = sizeof rig->run, .bindings = rig->bindings, .binding_count = rig->count};
}

void fig_run_rig_open(fig_run_rig *rig) {
    const fig_engine_options place = fig_place_options();
    const fig_runner_options options = {
        .size = sizeof options, .device = place.device, .test = place.test};
    if (rig->graphs == NULL) fig_run_rig_lower(rig);
    expect_ok(fig_runner_open(&rig->runner, rig->graphs, &options), "open");
}

void fig_run_rig_close(fig_run_rig *rig) {
    for (int32_t i = 0; i < rig->count; i++)
        fig_place_free(rig->blocks[i]);
    fig_place_free(rig->scratch);
    fig_runner_close(rig->runner);
    fig_graphs_destroy(rig->graphs);
    fig_program_destroy(rig->program);
    *rig = (fig_run_rig){0};
}

void *fig_run_rig_memory(fig_run_rig *rig, int32_t index, int64_t elements, int64_t skew) {
    const size_t item = (size_t)fig_numeric_bytes((int32_t)rig->dtypes[index]);
    fig_binding *binding = &rig->bindings[index];
    fig_place_free(rig->blocks[index]);
    rig->blocks[index] = fig_place_allocate((size_t)(elements + skew) * item);
    assert_non_null(rig->blocks[index]);
    binding->address = (uint8_t *)rig->blocks[index] + (size_t)skew * item;
    binding->bytes = (uint64_t)elements * item;
    return binding->address;
}

void fig_run_rig_store(void *array, fig_dtype dtype, int64_t index, double value) {
    if (dtype == FIG_I64) ((int64_t *)array)[index] = (int64_t)value;
    if (dtype == FIG_I32) ((int32_t *)array)[index] = (int32_t)value;
    if (dtype != FIG_I64 && dtype != FIG_I32)
        fig_numeric_store(array, (int32_t)dtype, index, (float)value);
}

void *fig_run_rig_fill(fig_run_rig *rig, int32_t index, int64_t elements, int64_t skew) {
    void *array = fig_run_rig_memory(rig, index, elements, skew);
    for (int64_t i = 0; i < elements; i++)
        fig_run_rig_store(array, rig->dtypes[index], i, (double)fig_random_normal(&rig->random));
    return array;
}

void fig_run_rig_strides(fig_run_rig *rig, int32_t index, int64_t a, int64_t b, int64_t c) {
    int64_t *strides = rig->bindings[index].strides;
    strides[0] = a;
    strides[1] = b;
    strides[2] = c;
    strides[3] = 1; /* the last of four strides; it is ignored if the tensor has fewer dims */
}

void fig_run_rig_scratch(fig_run_rig *rig, uint64_t bytes) {
    fig_scratch needed = {.size = sizeof needed};
    fig_traits traits = {.size = sizeof traits};
    expect_ok(fig_runner_read_traits(rig->runner, &traits), "traits");
    if (bytes == UINT64_MAX) {
        expect_ok(fig_graphs_run_scratch(rig->graphs, &traits, &rig->run, &needed), "scratch");
        bytes = needed.best_bytes;
    }
    fig_place_free(rig->scratch);
    rig->scratch = bytes > 0 ? fig_place_allocate(bytes) : NULL;
    rig->scratch_bytes = bytes;
    if (rig->scratch != NULL) memset(rig->scratch, POISON, bytes);
    rig->run.scratch = rig->scratch;
    rig->run.scratch_bytes = bytes;
}

/* The default stream belongs to the current context. The rig finds that context as any caller
 * does. */
static void wait(const fig_run_rig *rig) {
    fig_caller caller;
    if (fig_place_device() != FIG_DEVICE_CUDA) return;
    if (fig_caller_enter(&caller) != 0) fail_msg("no context");
    const fig_cu_result result = caller.cu->StreamSynchronize(rig->run.stream);
    fig_caller_leave(&caller);
    if (result != 0) fail_msg("the run ended with error %u", result);
}

fig_status fig_run_rig_run(fig_run_rig *rig) {
    const fig_status status = fig_runner_run(rig->runner, &rig->run);
    if (status == FIG_OK) wait(rig);
    return status;
}

fig_status fig_run_rig_plan(fig_run_rig *rig) {
    const fig_status status = fig_runner_plan(rig->runner, &rig->run);
    if (status == FIG_OK) wait(rig);
    return status;
}
