/* plan_held.c: the record of what the device holds of the last plan.
 *
 * Owns its memory; plan.c keeps it true. Invariant: nothing allocates after
 * fig_plan_held_init(). */
#include <stdlib.h>
#include <string.h>

#include "planner/plans/plan.h"
#include "planner/status.h"

void fig_plan_held_finish(fig_plan_held *held) {
    free(held->starts[0]);
    free(held->chunks);
    free(held->strips);
    free(held->work.rows);
    free(held->work.segments);
    free(held->work.members);
    free(held->groups);
    free(held->group_order);
    free(held->narrow);
    free(held->before);
    free(held->hidden);
    fig_strip_rows_finish(&held->rows_of_groups);
    *held = (fig_plan_held){.exec = -1};
}

const fig_strips_shape *fig_plan_held_sharer(const fig_plan_held *held) {
    const fig_strips_shape *shape = held->chunk_shapes;
    for (int32_t i = 0; i < held->chunk_classes; i++)
        if (held->chunk_shapes[i].shares) shape = &held->chunk_shapes[i];
    return shape;
}

int32_t fig_plan_held_queries(const fig_plan_held *held, const fig_strip_group *group) {
    const int32_t *starts = held->queries + 1;
    int32_t queries = 0;
    for (int32_t n = 0; n < group->rows; n++) {
        const int32_t row = held->group_order[group->first + n];
        queries += starts[row + 1] - starts[row];
    }
    return queries;
}

/* Allocates the memory for the rows of groups. There are as many pieces as strips and workers, at
 * most. */
static fig_status hold_rows(fig_plan_held *held, const fig_plan_held_limits *limits) {
    const fig_strips_shape *shape = fig_plan_held_sharer(held);
    const int64_t queries = (int64_t)FIG_STRIP_GROUPS_LEVEL_LIMIT * limits->shared_limit;
    const int64_t strips =
        fig_plan_group_limit(limits->row_limit) + queries / (2 * fig_strips_half(shape->ratio));
    const fig_strip_rows_limits most = {.pieces = strips * shape->kv_heads + shape->workers,
                                        .rows = limits->row_limit};
    const fig_status status = fig_strip_rows_init(&held->rows_of_groups, shape, &most);
    if (status != FIG_OK) fig_plan_held_finish(held);
    return status;
}

/* Allocates the arrays for the groups of a step, their rows, segments and members. */
static fig_status hold_groups(fig_plan_held *held, const fig_plan_held_limits *limits) {
    const size_t rows = (size_t)limits->row_limit;
    const size_t groups = (size_t)fig_plan_group_limit(limits->row_limit), segments = rows + groups;
    const size_t members = (size_t)limits->shared_limit * FIG_STRIPS_SHARED_LIMIT;
    held->work.rows = calloc(rows, sizeof *held->work.rows);
    held->work.segments = calloc(segments, sizeof *held->work.segments);
    held->work.members = calloc(members, sizeof *held->work.members);
    held->groups = calloc(groups + 1, sizeof *held->groups);
    held->group_order = calloc(rows, sizeof *held->group_order);
    held->narrow = calloc(rows, sizeof *held->narrow);
    held->before = calloc(rows, sizeof *held->before);
    held->hidden = calloc(rows, sizeof *held->hidden);
    if (held->work.rows != NULL && held->work.segments != NULL && held->work.members != NULL &&
        held->groups != NULL && held->group_order != NULL && held->narrow != NULL &&
        held->before != NULL && held->hidden != NULL)
        return hold_rows(held, limits);
    fig_plan_held_finish(held);
    return fig_fail(FIG_NOMEM, "plan: %zu rows that share pages", rows);
}

/* Allocates the arrays for the chunks of a step and for the strips. */
static fig_status hold_chunks(fig_plan_held *held, const fig_plan_held_limits *limits) {
    const size_t chunks = (size_t)limits->row_limit * sizeof *held->chunks;
    const size_t strips = (size_t)fig_size_align((uint64_t)limits->strips_bytes + 1, 16);
    held->chunk_classes = limits->chunk_classes;
    held->chunk_least = limits->chunk_least;
    memcpy(held->chunk_shapes, limits->chunk_shapes,
           (size_t)limits->chunk_classes * sizeof *held->chunk_shapes);
    held->chunks = malloc(chunks);
    held->strips = aligned_alloc(16, strips);
    if (held->chunks != NULL && held->strips != NULL)
        return limits->shared_limit > 0 ? hold_groups(held, limits) : FIG_OK;
    fig_plan_held_finish(held);
    return fig_fail(FIG_NOMEM, "plan: %zu bytes", chunks + strips);
}

fig_status fig_plan_held_init(fig_plan_held *held, const fig_plan_held_limits *limits) {
    const size_t rows = (size_t)limits->row_limit + 2, words = rows * (2 + FIG_CLASS_LIMIT);
    const size_t starts = (size_t)FIG_CLASS_LIMIT * FIG_WORKER_LIMIT;
    const size_t bytes = starts * sizeof(fig_split_start) + words * sizeof(int32_t);
    *held = (fig_plan_held){.exec = -1, .starts = {calloc(1, bytes)}};
    if (held->starts[0] == NULL) return fig_fail(FIG_NOMEM, "plan: %zu bytes", bytes);
    held->sequences = (int32_t *)(void *)(held->starts[0] + starts);
    for (size_t i = 0; i < FIG_CLASS_LIMIT; i++) {
        held->starts[i] = held->starts[0] + FIG_WORKER_LIMIT * i;
        held->prefix[i] = held->sequences + rows * (i + 2);
    }
    held->queries = held->sequences + rows;
    return limits->chunk_classes > 0 ? hold_chunks(held, limits) : FIG_OK;
}
