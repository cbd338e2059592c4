/* plan.c: where a plan's sections lie, and the writing of one.
 *
 * Leaves the split to split.c, and the slot and its sequence number to the ring. Invariant: where a
 * section lies follows from the bucket, never from the step, so kernels hold its offset. */
#include "planner/plan.h"

#include <string.h>

/* Takes `count` items off the front of what is left, and keeps the next section aligned. */
static uint32_t take_section(uint32_t *end, int32_t count, size_t item_bytes) {
    uint32_t offset = *end;
    *end = (uint32_t)fig_size_align(offset + (uint64_t)count * item_bytes, 16);
    return offset;
}

void fig_plan_lay_out(fig_plan_shape *shape) {
    assert(shape->row_limit >= 1);
    assert(shape->class_count >= 0 && shape->class_count <= FIG_CLASS_LIMIT);
    fig_plan_layout layout = {0};
    uint32_t end = sizeof(fig_plan_head);
    layout.lengths = take_section(&end, shape->row_limit, sizeof(int32_t));
    layout.positions = take_section(&end, shape->row_limit, sizeof(int32_t));
    layout.sequences = take_section(&end, shape->row_limit, sizeof(int32_t));
    for (int32_t i = 0; i < shape->class_count; i++) {
        const fig_split_shape *split = &shape->splits[i];
        assert(split->row_limit == shape->row_limit);
        layout.prefix[i] = take_section(&end, shape->row_limit + 1, sizeof(int32_t));
        layout.starts[i] = take_section(&end, split->workers, sizeof(fig_split_start));
    }
    layout.bytes = end;
    shape->layout = layout;
}

/* Starts end a plan and are there whatever the rows; without a split the rows' words end it. */
static uint32_t used_bytes(const fig_plan_shape *shape, int32_t rows) {
    if (shape->class_count > 0) return shape->layout.bytes;
    uint64_t end = shape->layout.sequences + (uint64_t)rows * sizeof(int32_t);
    return (uint32_t)fig_size_align(end, 16);
}

/* All but `sequence`, which the ring alone writes. */
static uint32_t write_head(const fig_plan_shape *shape, int32_t rows, fig_plan_head *head) {
    const uint32_t bytes = used_bytes(shape, rows);
    head->bytes = bytes;
    head->bucket = shape->bucket;
    head->rows = rows;
    memset(head->reserved, 0, sizeof head->reserved);
    return bytes;
}

uint32_t fig_plan_write(const fig_plan_shape *shape, const fig_plan_step *step, uint8_t *plan) {
    assert(step->rows >= 0 && step->rows <= shape->row_limit);
    assert((uintptr_t)plan % 16 == 0);
    int32_t *sequences = (int32_t *)(void *)(plan + shape->layout.sequences);
    const uint32_t bytes = write_head(shape, step->rows, (fig_plan_head *)(void *)plan);
    for (int32_t row = 0; row < step->rows; row++)
        sequences[row] = step->sequences != NULL ? step->sequences[row] : row;
    fig_plan_write_lengths(shape, step, plan);
    return bytes;
}

void fig_plan_write_lengths(const fig_plan_shape *shape, const fig_plan_step *step, uint8_t *plan) {
    const fig_plan_layout *layout = &shape->layout;
    int32_t *lengths = (int32_t *)(void *)(plan + layout->lengths);
    int32_t *positions = (int32_t *)(void *)(plan + layout->positions);
    for (int32_t row = 0; row < step->rows; row++) {
        int32_t length = step->lengths != NULL ? step->lengths[row] : 0;
        lengths[row] = length;
        positions[row] =
            step->positions != NULL ? step->positions[row] : fig_plan_last_token(length);
    }
    for (int32_t i = 0; i < shape->class_count; i++) {
        int32_t *prefix = (int32_t *)(void *)(plan + layout->prefix[i]);
        fig_split_start *starts = (fig_split_start *)(void *)(plan + layout->starts[i]);
        fig_split_plan(&shape->splits[i], step->lengths, step->rows, prefix, starts);
    }
}
