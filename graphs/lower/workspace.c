/* workspace.c: lays out the memory that the steps of an engine share.
 *
 * bounds.c computes the needs of a bucket. Invariant: each part begins behind all earlier parts,
 * aligned for any access and to a cache line. */
#include "graphs/lower/workspace.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "planner/size.h"
#include "planner/spec/spec.h"
#include "planner/split/bounds.h"
#include "planner/status.h"

enum { UNIT = 256 };

/* Places `bytes` bytes at *end and moves *end behind these bytes. */
static fig_status place(uint64_t *end, uint64_t bytes, uint64_t *offset) {
    *offset = *end;
    if (bytes > FIG_WORKSPACE_BYTES_LIMIT - *end)
        return fig_fail(FIG_TOO_LARGE,
                        "workspace: %" PRIu64 " bytes and %" PRIu64 " more, limit %" PRIu64, *end,
                        bytes, FIG_WORKSPACE_BYTES_LIMIT);
    *end = fig_size_align(*end + bytes, UNIT);
    return FIG_OK;
}

static uint64_t max_of(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

/* Returns, for a class, the maximum of each size over all buckets. */
static fig_bounds_class bounds_of(const fig_split_class *split_class, int32_t index,
                                  const fig_bucket_shape *buckets, uint32_t bucket_count) {
    fig_bounds_class most = {0, 0, 0, 0};
    for (uint32_t i = 0; i < bucket_count; i++) {
        const fig_split_shape *split = &buckets[i].plan.splits[index];
        const fig_bounds_class own =
            fig_bounds_class_of(split, split_class->q_heads / split->groups, split_class->head_dim);
        most.partials_bytes = max_of(most.partials_bytes, own.partials_bytes);
        most.sums_bytes = max_of(most.sums_bytes, own.sums_bytes);
        most.counters_bytes = max_of(most.counters_bytes, own.counters_bytes);
    }
    return most;
}

/* Returns the needs of the strips of a class; bounds_of() returns the needs of its split. */
static fig_bounds_class strip_bounds_of(int32_t index, const fig_bucket_shape *buckets,
                                        uint32_t bucket_count) {
    fig_bounds_class most = {0, 0, 0, 0};
    for (uint32_t i = 0; i < bucket_count; i++) {
        const fig_plan_shape *plan = &buckets[i].plan;
        const fig_strips_shape *strips = &buckets[i].strips[index];
        const fig_strips_limits limits =
            fig_plan_strips_limits(plan, strips, FIG_NARROW_TOKENS_LIMIT + 1);
        const fig_strips_sizes own = fig_strip_sizes_bound(strips, &limits);
        const uint64_t vectors = (uint64_t)own.partial_vectors;
        most.partials_bytes =
            max_of(most.partials_bytes, vectors * (uint64_t)strips->head_dim * sizeof(float));
        most.sums_bytes = max_of(most.sums_bytes, vectors * 2 * sizeof(float));
        most.counters_bytes =
            max_of(most.counters_bytes, (uint64_t)own.counters * sizeof(uint32_t));
    }
    return most;
}

/* Places the counters of the strips. All counters lie before all partials. */
static fig_status place_strip_counters(fig_workspace *workspace, const fig_split_classes *classes,
                                       const fig_bounds_class *bounds) {
    for (int32_t i = 0; i < classes->count && classes->has_chunks; i++)
        FIG_TRY(place(&workspace->bytes, bounds[i].counters_bytes, &workspace->strip_counters[i]));
    return FIG_OK;
}

static fig_status place_strips(fig_workspace *workspace, const fig_split_classes *classes,
                               const fig_bounds_class *bounds) {
    for (int32_t i = 0; i < classes->count && classes->has_chunks; i++) {
        FIG_TRY(place(&workspace->bytes, bounds[i].partials_bytes, &workspace->strip_partials[i]));
        FIG_TRY(place(&workspace->bytes, bounds[i].sums_bytes, &workspace->strip_sums[i]));
    }
    return FIG_OK;
}

fig_status fig_workspace_place_classes(fig_workspace *workspace, const fig_split_classes *classes,
                                       const fig_bucket_shape *buckets, uint32_t bucket_count) {
    fig_bounds_class bounds[FIG_CLASS_LIMIT], of_strips[FIG_CLASS_LIMIT];
    uint64_t *end = &workspace->bytes;
    for (int32_t i = 0; i < classes->count && classes->has_chunks; i++)
        of_strips[i] = strip_bounds_of(i, buckets, bucket_count);
    for (int32_t i = 0; i < classes->count; i++) {
        bounds[i] = bounds_of(&classes->of[i], i, buckets, bucket_count);
        FIG_TRY(place(end, bounds[i].counters_bytes, &workspace->counters[i]));
    }
    FIG_TRY(place_strip_counters(workspace, classes, of_strips));
    for (int32_t i = 0; i < classes->count; i++) {
        FIG_TRY(place(end, bounds[i].partials_bytes, &workspace->partials[i]));
        FIG_TRY(place(end, bounds[i].sums_bytes, &workspace->sums[i]));
    }
    return place_strips(workspace, classes, of_strips);
}

static fig_status place_all(fig_workspace *workspace, const fig_program_view *view,
                            const fig_bucket_shape *buckets, uint32_t bucket_count) {
    fig_split_classes classes;
    FIG_TRY(fig_split_classes_find(view, &classes));
    FIG_TRY(fig_workspace_place_classes(workspace, &classes, buckets, bucket_count));
    for (uint32_t id = 1; id <= view->tensor_count; id++) {
        uint64_t *offset = &workspace->temps[id - 1];
        *offset = UINT64_MAX;
        if (view->tensors[id - 1].role == FIG_ROLE_TEMP)
            FIG_TRY(place(&workspace->bytes, fig_program_view_tensor_bytes(view, id), offset));
    }
    return FIG_OK;
}

fig_status fig_workspace_init(fig_workspace *workspace, const fig_program_view *view,
                              const fig_bucket_shape *buckets, uint32_t bucket_count) {
    memset(workspace, 0, sizeof *workspace);
    workspace->temps = calloc((size_t)view->tensor_count + 1, sizeof *workspace->temps);
    if (workspace->temps == NULL)
        return fig_fail(FIG_NOMEM, "workspace: %u offsets of %zu bytes", view->tensor_count,
                        sizeof *workspace->temps);
    fig_status status = place_all(workspace, view, buckets, bucket_count);
    if (status != FIG_OK) fig_workspace_finish(workspace);
    return status;
}

void fig_workspace_finish(fig_workspace *workspace) {
    free(workspace->temps);
    memset(workspace, 0, sizeof *workspace);
}
