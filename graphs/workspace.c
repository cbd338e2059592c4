/* workspace.c: where things lie in the memory that the steps of an engine share.
 *
 * Leaves how much a bucket needs to bounds.c. Invariant: what is placed begins where all before it
 * has ended, at a boundary that suits any access and any cache line. */
#include "graphs/workspace.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "planner/bounds.h"
#include "planner/size.h"
#include "planner/status.h"

enum { UNIT = 256 };

/* Takes `bytes` off the free end. */
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

/* The most of each that any bucket needs of a class. */
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

fig_status fig_workspace_place_classes(fig_workspace *workspace, const fig_split_classes *classes,
                                       const fig_bucket_shape *buckets, uint32_t bucket_count) {
    fig_bounds_class bounds[FIG_CLASS_LIMIT];
    uint64_t *end = &workspace->bytes;
    for (int32_t i = 0; i < classes->count; i++) {
        bounds[i] = bounds_of(&classes->of[i], i, buckets, bucket_count);
        FIG_TRY(place(end, bounds[i].counters_bytes, &workspace->counters[i]));
    }
    for (int32_t i = 0; i < classes->count; i++) {
        FIG_TRY(place(end, bounds[i].partials_bytes, &workspace->partials[i]));
        FIG_TRY(place(end, bounds[i].sums_bytes, &workspace->sums[i]));
    }
    return FIG_OK;
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
