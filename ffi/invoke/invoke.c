/* invoke.c: finds the runner of a described call and runs it.
 *
 * Every call of both interfaces passes through this file. If an earlier call has made the runner, a
 * call allocates nothing and takes no lock, so under capture it only launches kernels. Invariant:
 * bindings are in the order of the recipe's slots. */
#include "ffi/invoke/invoke.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "engine/driver/cuda_api.h"
#include "ffi/registry.h"
#include "planner/spec/spec.h"
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
    invoke->recipe.slots |= UINT64_C(1) << slot;
    invoke->arrays[slot] = array;
}

static int is_cache(fig_slot slot) {
    return slot == FIG_SLOT_K_CACHE || slot == FIG_SLOT_V_CACHE || slot == FIG_SLOT_LATENT_CACHE;
}

/* Returns 1 if the array has more tokens per sequence, or a wider page table, than the program's
 * tensor. The excess is skipped, so the runner needs the stride between sequences. */
static int is_clamped(const fig_invoke *invoke, fig_slot slot) {
    const int holds_tokens = slot == FIG_SLOT_PAGE_TABLE ||
                             (is_cache(slot) && invoke->arrays[FIG_SLOT_PAGE_TABLE] == NULL);
    return holds_tokens && invoke->kv_length == FIG_KV_LIMIT;
}

/* Writes the strides in the order of the tensor's dims. A dense cache of one row may lack the first
 * dim, and under HND heads come before tokens in the array. */
static void put_strides(const fig_invoke *invoke, fig_slot slot, const fig_array *array,
                        int64_t strides[4]) {
    const int32_t rank = slot == FIG_SLOT_LATENT_CACHE ? 3 : 4;
    const int32_t first = is_cache(slot) ? rank - array->rank : 0;
    assert(array->rank + first <= 4);
    if (first > 0) strides[0] = INT64_MAX; /* there is one row; the runner replaces this stride */
    memcpy(strides + first, array->strides, (size_t)array->rank * sizeof strides[0]);
    if (!is_cache(slot) || invoke->recipe.layout != FIG_HND) return;
    const int64_t heads = strides[1];
    strides[1] = strides[2];
    strides[2] = heads;
}

/* Dense arrays are bound without strides, because their leading dims may differ from those of the
 * program's tensor. A cache without tokens may have no memory, but a runner requires an address. No
 * token of such a cache is read, so the memory of q is bound in its place: it is large enough for
 * one token of each row. */
static fig_binding binding_of(const fig_invoke *invoke, fig_slot slot) {
    const fig_array *q = invoke->arrays[FIG_SLOT_Q];
    const int is_empty = is_cache(slot) && invoke->kv_length == 0 && q != NULL;
    const fig_array *array = is_empty ? q : invoke->arrays[slot];
    fig_binding binding = {
        .size = sizeof binding, .address = array->data, .bytes = fig_array_span(array)};
    if (is_empty || (fig_array_is_dense(array) && !is_clamped(invoke, slot))) return binding;
    put_strides(invoke, slot, array, binding.strides);
    return binding;
}

static int32_t bind(const fig_invoke *invoke, fig_binding bindings[FIG_SLOT_COUNT]) {
    int32_t count = 0;
    for (fig_slot slot = 0; slot < FIG_SLOT_COUNT; slot++)
        if (invoke->arrays[slot] != NULL) bindings[count++] = binding_of(invoke, slot);
    return count;
}

/* The default stream is never captured, and querying it would invalidate another stream's capture.
 */
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

/* A recorded program knows the tokens of its rows itself. */
static int is_packed(const fig_invoke *invoke) {
    return invoke->recipe.kind != FIG_RECIPE_PROGRAM && fig_recipe_is_packed(&invoke->recipe);
}

static fig_run run_of(const fig_invoke *invoke, const fig_binding *bindings, int32_t count) {
    const int64_t most = invoke->rows * fig_recipe_tokens(&invoke->recipe);
    const fig_run run = {.size = sizeof run,
                         .rows = (int32_t)invoke->rows,
                         .kv_length = invoke->kv_length,
                         .query_tokens =
                             is_packed(invoke) && most < invoke->tokens ? most : invoke->tokens,
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

fig_status fig_invoke_lend_plan(fig_invoke *invoke, const fig_array *plan) {
    if (!fig_array_is_present(plan)) return FIG_OK;
    FIG_TRY(fig_array_check_dense(plan));
    /* The split of attention with a score may differ from that of the other calls under a plan. */
    if (invoke->recipe.score != 0)
        return fig_fail(FIG_INVALID,
                        "plan is given beside a score: a call with a score that is not a soft cap "
                        "or ALiBi makes its own plan");
    invoke->plan = plan->data;
    invoke->plan_bytes = fig_array_bytes(plan);
    return FIG_OK;
}

fig_status fig_invoke_launch(const fig_invoke *invoke, const fig_binding *bindings, int32_t count) {
    const fig_runner *runner;
    if (invoke->rows > INT32_MAX)
        return fig_fail(FIG_TOO_LARGE, "%" PRId64 " rows, limit %d", invoke->rows, INT32_MAX);
    if (invoke->rows == 0 || (is_packed(invoke) && invoke->tokens == 0 && !invoke->plans))
        return FIG_OK;
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
