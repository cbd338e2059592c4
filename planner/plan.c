/* plan.c: where a plan's sections lie, and the writing of them.
 *
 * Leaves the split to split.c, and the slot and its tag to the ring. Invariant: where a section
 * lies on the device follows from the bucket, never from the step, so kernels hold its offset. */
#include "planner/plan.h"

#include <stdlib.h>
#include <string.h>

#include "planner/status.h"

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
    if (shape->row_tokens > 1)
        layout.tokens = take_section(&end, shape->row_limit, sizeof(int32_t));
    for (int32_t i = 0; i < shape->class_count; i++) {
        const fig_split_shape *split = &shape->splits[i];
        assert(split->row_limit == shape->row_limit);
        layout.prefix[i] = take_section(&end, shape->row_limit + 1, sizeof(int32_t));
        layout.starts[i] = take_section(&end, split->workers, sizeof(fig_split_start));
    }
    layout.bytes = end;
    shape->layout = layout;
}

fig_status fig_plan_held_init(fig_plan_held *held, int32_t row_limit) {
    const size_t rows = (size_t)row_limit + 1, words = rows * (1 + FIG_CLASS_LIMIT);
    *held = (fig_plan_held){.exec = -1, .sequences = calloc(words, sizeof(int32_t))};
    if (held->sequences == NULL)
        return fig_fail(FIG_NOMEM, "plan: %zu bytes", words * sizeof(int32_t));
    for (size_t i = 0; i < FIG_CLASS_LIMIT; i++)
        held->prefix[i] = held->sequences + rows * (i + 1);
    return FIG_OK;
}

void fig_plan_held_finish(fig_plan_held *held) {
    free(held->sequences);
    *held = (fig_plan_held){.exec = -1};
}

/* ---- Deciding what travels ----------------------------------------------------------------- */

/* Brings held->sequences to the step's; 1: they were others. */
static int settle_sequences(const fig_plan_step *step, fig_plan_held *held) {
    const int32_t *given = step->sequences;
    int32_t *sequences = held->sequences, changed = 0;
    for (int32_t row = 0; row < step->rows && given != NULL; row++) {
        changed |= sequences[row] ^ given[row];
        sequences[row] = given[row];
    }
    for (int32_t row = 0; row < step->rows && given == NULL; row++) {
        changed |= sequences[row] ^ row;
        sequences[row] = row;
    }
    return changed != 0;
}

/* Brings every class's prefix to the step's; 1: some split is another than before. */
static int settle_splits(const fig_plan_shape *shape, const fig_plan_step *step,
                         fig_plan_held *held) {
    const fig_split_rows rows = {step->lengths, step->rows, fig_plan_ahead(step)};
    int changed = 0;
    for (int32_t i = 0; i < shape->class_count; i++)
        changed |= fig_split_prefix(&shape->splits[i], &rows, held->prefix[i]);
    return changed;
}

uint32_t fig_plan_settle(const fig_plan_shape *shape, const fig_plan_step *step,
                         fig_plan_held *held) {
    const int held_none = held->exec != (int32_t)shape->exec || held->rows != step->rows;
    uint32_t sections = step->positions != NULL ? FIG_PLAN_HAS_POSITIONS : 0;
    assert(step->rows >= 0 && step->rows <= shape->row_limit && step->horizon >= 1);
    held->exec = (int32_t)shape->exec;
    held->rows = step->rows;
    if (step->tokens != NULL) sections |= FIG_PLAN_HAS_TOKENS;
    if (settle_sequences(step, held) | held_none) sections |= FIG_PLAN_HAS_SEQUENCES;
    if (step->lengths == NULL) return sections;
    sections |= FIG_PLAN_HAS_LENGTHS;
    if (settle_splits(shape, step, held) | held_none) sections |= FIG_PLAN_HAS_SPLITS;
    return sections;
}

/* ---- Writing a slot ------------------------------------------------------------------------ */

static void write_words(uint8_t *to, const int32_t *words, int32_t count) {
    if (count > 0) memcpy(to, words, (size_t)count * sizeof *words);
}

uint32_t fig_plan_write(const fig_plan_shape *shape, const fig_plan_step *step, uint32_t sections,
                        const fig_plan_held *held, uint8_t *slot) {
    assert((uintptr_t)slot % 16 == 0);
    const int grows = step->horizon > 1 && step->lengths != NULL;
    fig_plan_head *head = (fig_plan_head *)(void *)slot;
    fig_plan_head ours = {.exec = shape->exec,
                          .rows = step->rows,
                          .sections = sections,
                          .horizon = step->horizon,
                          .row_tokens = grows ? step->row_tokens : 0};
    const fig_plan_places places = fig_plan_places_of(shape, &ours);
    assert(fig_plan_has_places(shape, &ours));
    ours.bytes = places.bytes;
    for (int32_t i = 0; i < shape->class_count; i++)
        ours.tile_limits[i] = shape->splits[i].tile_limit;
    /* The tag is the ring's, and what a device may be reading. */
    memcpy(slot + sizeof head->tag, (const uint8_t *)&ours + sizeof head->tag,
           sizeof ours - sizeof head->tag);
    if (sections & FIG_PLAN_HAS_LENGTHS)
        write_words(slot + places.lengths, step->lengths, step->rows);
    if (sections & FIG_PLAN_HAS_SEQUENCES)
        write_words(slot + places.sequences, held->sequences, step->rows);
    if (sections & FIG_PLAN_HAS_POSITIONS)
        write_words(slot + places.positions, step->positions, step->rows);
    if (sections & FIG_PLAN_HAS_TOKENS) write_words(slot + places.tokens, step->tokens, step->rows);
    for (int32_t i = 0; i < shape->class_count && (sections & FIG_PLAN_HAS_SPLITS); i++) {
        write_words(slot + places.prefix[i], held->prefix[i], step->rows + 1);
        fig_split_starts(&shape->splits[i], held->prefix[i], step->rows,
                         (fig_split_start *)(void *)(slot + places.starts[i]));
    }
    return places.bytes;
}

uint32_t fig_plan_add_pages(uint8_t *slot, const fig_plan_page *pages, uint32_t count) {
    fig_plan_head *head = (fig_plan_head *)(void *)slot;
    assert(head->page_count == 0);
    memcpy(slot + head->bytes, pages, count * sizeof *pages);
    head->page_count = count;
    head->bytes += count * (uint32_t)sizeof *pages;
    return head->bytes;
}

uint64_t fig_plan_sum(const uint8_t *slot, uint32_t bytes, uint64_t number) {
    const uint32_t *words = (const uint32_t *)(const void *)slot;
    const uint32_t head = sizeof(fig_plan_head) / 4;
    uint64_t sum = fig_plan_number_term(number);
    for (uint32_t n = 0; n < head; n++)
        if (fig_plan_is_summed(n)) sum += fig_plan_term(n, words[n]);
    for (uint32_t n = head; n < bytes / 4; n++)
        sum += fig_plan_term(n, words[n]);
    return sum;
}

/* ---- A plan on the device ------------------------------------------------------------------ */

void fig_plan_write_lengths(const fig_plan_shape *shape, const fig_plan_step *step, uint8_t *plan) {
    const fig_plan_layout *layout = &shape->layout;
    const fig_split_rows rows = {step->lengths, step->rows, 0};
    int32_t *lengths = (int32_t *)(void *)(plan + layout->lengths);
    int32_t *positions = (int32_t *)(void *)(plan + layout->positions);
    for (int32_t row = 0; row < step->rows; row++) {
        lengths[row] = step->lengths[row];
        positions[row] = step->positions != NULL ? step->positions[row]
                                                 : fig_plan_last_token(step->lengths[row]);
    }
    for (int32_t i = 0; i < shape->class_count; i++) {
        int32_t *prefix = (int32_t *)(void *)(plan + layout->prefix[i]);
        fig_split_start *starts = (fig_split_start *)(void *)(plan + layout->starts[i]);
        fig_split_prefix(&shape->splits[i], &rows, prefix);
        fig_split_starts(&shape->splits[i], prefix, step->rows, starts);
    }
}

/* Whole pieces of 16 bytes, as the kernel moves them: on the device a section ends with one too. */
static void unpack_words(uint8_t *plan, uint32_t to, const uint8_t *slot, uint32_t from,
                         int32_t count) {
    memcpy(plan + to, slot + from, fig_size_align((uint64_t)count * sizeof(int32_t), 16));
}

/* Positions that are not there follow from the lengths, where those are. */
static void unpack_positions(const fig_plan_shape *shape, const fig_plan_head *head,
                             const fig_plan_places *places, const uint8_t *slot, uint8_t *plan) {
    const int32_t *lengths = (const int32_t *)(const void *)(plan + shape->layout.lengths);
    int32_t *positions = (int32_t *)(void *)(plan + shape->layout.positions);
    if (head->sections & FIG_PLAN_HAS_POSITIONS) {
        unpack_words(plan, shape->layout.positions, slot, places->positions, head->rows);
    } else if (head->sections & FIG_PLAN_HAS_LENGTHS) {
        for (int32_t row = 0; row < head->rows; row++)
            positions[row] = fig_plan_last_token(lengths[row]);
    }
}

void fig_plan_unpack(const fig_plan_shape *shape, const uint8_t *slot, uint8_t *plan) {
    const fig_plan_head *head = (const fig_plan_head *)(const void *)slot;
    const fig_plan_layout *layout = &shape->layout;
    const fig_plan_places places = fig_plan_places_of(shape, head);
    memcpy(plan, head, sizeof *head);
    if (head->sections & FIG_PLAN_HAS_LENGTHS)
        unpack_words(plan, layout->lengths, slot, places.lengths, head->rows);
    if (head->sections & FIG_PLAN_HAS_SEQUENCES)
        unpack_words(plan, layout->sequences, slot, places.sequences, head->rows);
    unpack_positions(shape, head, &places, slot, plan);
    if (head->sections & FIG_PLAN_HAS_TOKENS)
        unpack_words(plan, layout->tokens, slot, places.tokens, head->rows);
    for (int32_t i = 0; i < shape->class_count && (head->sections & FIG_PLAN_HAS_SPLITS); i++) {
        const int32_t workers = shape->splits[i].workers;
        unpack_words(plan, layout->prefix[i], slot, places.prefix[i], head->rows + 1);
        unpack_words(plan, layout->starts[i], slot, places.starts[i],
                     workers * (int32_t)(sizeof(fig_split_start) / sizeof(int32_t)));
    }
}
