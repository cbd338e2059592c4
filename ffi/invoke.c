/* invoke.c: from a described call to a runner, and its run.
 *
 * The only file that both interfaces' calls pass through on every call. A hit of the registry
 * allocates nothing and takes no lock, so a call under capture is launches alone, if an earlier one
 * made its runner. Invariant: bindings are in the order of the recipe's slots. */
#include "ffi/invoke.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "engine/cuda/cuda_api.h"
#include "ffi/registry.h"
#include "planner/status.h"

fig_status fig_invoke_current_gpu(int32_t *ordinal) {
    fig_cu_device device = -1;
    *ordinal = -1;
    FIG_TRY(fig_cuda_api_open());
    if (fig_cuda_api_table()->CtxGetDevice(&device) != FIG_CU_SUCCESS)
        return fig_fail(FIG_ORDER, "the caller names no GPU, and none is current");
    *ordinal = device;
    return FIG_OK;
}

void fig_invoke_add(fig_invoke *invoke, fig_slot slot, const fig_array *array) {
    if (!fig_array_is_present(array)) return;
    invoke->recipe.device = array->device;
    invoke->recipe.ordinal = array->ordinal;
    invoke->recipe.slots |= 1u << slot;
    invoke->arrays[slot] = array;
}

/* Dense arrays go without strides, so that a runner may see in them what its program has, an array
 * with other leading dims, say. */
static fig_binding binding_of(const fig_array *array) {
    fig_binding binding = {
        .size = sizeof binding, .address = array->data, .bytes = fig_array_span(array)};
    if (fig_array_is_dense(array)) return binding;
    assert(array->rank <= 4);
    memcpy(binding.strides, array->strides, (size_t)array->rank * sizeof binding.strides[0]);
    return binding;
}

/* A cache of no tokens may have no memory, and a runner has no cache without. No token of it is
 * read, so q, which is as large as one of each row or larger, stands in for it. */
static const fig_array *array_of(const fig_invoke *invoke, fig_slot slot) {
    const fig_array *array = invoke->arrays[slot];
    const int is_cache = slot == FIG_SLOT_K_CACHE || slot == FIG_SLOT_V_CACHE;
    if (is_cache && invoke->kv_length == 0 && invoke->arrays[FIG_SLOT_Q] != NULL)
        return invoke->arrays[FIG_SLOT_Q];
    return array;
}

static int32_t bind(const fig_invoke *invoke, fig_binding bindings[FIG_SLOT_COUNT]) {
    int32_t count = 0;
    for (fig_slot slot = 0; slot < FIG_SLOT_COUNT; slot++)
        if (invoke->arrays[slot] != NULL) bindings[count++] = binding_of(array_of(invoke, slot));
    return count;
}

/* The default stream is never captured, and asking about it would end a capture elsewhere. */
static int is_capturing(const fig_invoke *invoke) {
    unsigned int status = 0;
    uint64_t id;
    fig_cu_graph graph;
    const fig_cu_node *tails;
    const fig_cu_edge *edges;
    size_t count;
    if (invoke->recipe.device != FIG_DEVICE_CUDA || invoke->stream == NULL) return 0;
    const fig_cuda_api *cu = fig_cuda_api_table();
    const fig_cu_result result =
        cu->StreamGetCaptureInfo(invoke->stream, &status, &id, &graph, &tails, &edges, &count);
    return result == FIG_CU_SUCCESS && status != 0;
}

static fig_run run_of(const fig_invoke *invoke, const fig_binding *bindings, int32_t count) {
    const fig_run run = {.size = sizeof run,
                         .rows = (int32_t)invoke->rows,
                         .kv_length = invoke->kv_length,
                         .segment = invoke->segment,
                         .bindings = bindings,
                         .binding_count = count,
                         .plan = invoke->plan,
                         .plan_bytes = invoke->plan_bytes,
                         .scratch = invoke->scratch,
                         .scratch_bytes = invoke->scratch_bytes,
                         .stream = invoke->stream};
    return run;
}

fig_status fig_invoke_lend(fig_invoke *invoke, const fig_array *scratch) {
    if (!fig_array_is_present(scratch)) return FIG_OK;
    FIG_TRY(fig_array_check_dense(scratch));
    invoke->scratch = scratch->data;
    invoke->scratch_bytes = fig_array_bytes(scratch);
    return FIG_OK;
}

void fig_invoke_lend_plan(fig_invoke *invoke, const fig_array *plan) {
    if (!fig_array_is_present(plan)) return;
    invoke->plan = plan->data;
    invoke->plan_bytes = fig_array_bytes(plan);
}

fig_status fig_invoke_launch(const fig_invoke *invoke, const fig_binding *bindings, int32_t count) {
    const fig_runner *runner;
    if (invoke->rows > INT32_MAX)
        return fig_fail(FIG_TOO_LARGE, "%" PRId64 " rows, limit %d", invoke->rows, INT32_MAX);
    if (invoke->rows == 0) return FIG_OK;
    FIG_TRY(fig_registry_find(&invoke->recipe, &runner));
    if (invoke->loads_only) return FIG_OK;
    const fig_run run = run_of(invoke, bindings, count);
    fig_registry_count(is_capturing(invoke) ? FIG_REGISTRY_CAPTURE : FIG_REGISTRY_EAGER);
    return invoke->plans ? fig_runner_plan(runner, &run) : fig_runner_run(runner, &run);
}

fig_status fig_invoke_run(const fig_invoke *invoke) {
    fig_binding bindings[FIG_SLOT_COUNT];
    const int32_t count = invoke->loads_only ? 0 : bind(invoke, bindings);
    return fig_invoke_launch(invoke, bindings, count);
}
