/* plan_tails.c: see plan_tails.h. */
#include "planner/plans/plan_tails.h"

#include <string.h>

static int32_t sharer_of(const fig_plan_held *held) {
    return (int32_t)(fig_plan_held_sharer(held) - held->chunk_shapes);
}

int fig_plan_tails_note(const fig_plan_step *step, fig_plan_held *held) {
    const int had = held->has_tails;
    held->has_tails = held->group_count > 0 && step->serves_tails && step->paces != NULL &&
                      step->paces[sharer_of(held)].serves_tails;
    return held->has_tails != had;
}

/* A group comes behind those that enclose it. */
void fig_plan_tails_find(const fig_plan_shape *shape, const fig_plan_step *step,
                         fig_plan_held *held) {
    const int32_t rows = step->rows, tile_tokens = shape->splits[sharer_of(held)].tile_tokens;
    const int32_t *starts = held->queries + 1;
    memset(held->before, 0, (size_t)rows * sizeof *held->before);
    for (int32_t g = 0; g < held->group_count && held->has_tails; g++) {
        const fig_strip_group *group = &held->groups[g];
        for (int32_t n = 0; n < group->rows; n++) {
            const int32_t row = held->group_order[group->first + n];
            if (starts[row + 1] - starts[row] == 1) held->before[row] = group->to;
        }
    }
    for (int32_t row = 0; row < rows; row++) {
        held->hidden[row] = held->before[row] / tile_tokens;
        if (held->before[row] > 0) held->narrow[row] = 1;
    }
}

/* Rows rarely grow into a tile that changes the rounded number of tiles, so few steps search for
 * the best division. */
int32_t fig_plan_tails_readers(const fig_plan_shape *shape, const fig_plan_step *step,
                               int32_t split_class, fig_plan_held *held) {
    const fig_strips_shape *strips = &held->chunk_shapes[split_class];
    const int64_t groups = shape->splits[split_class].groups;
    const int64_t tiles = fig_size_rounded(held->prefix[split_class][step->rows] * groups);
    fig_division_prefixes prefixes = {.tails = step->rows * groups};
    if (held->is_listed && tiles == held->tail_tiles) return held->readers[split_class];
    held->tail_tiles = tiles;
    for (int32_t g = 0; g < held->group_count; g++)
        fig_division_add_prefix(strips, &held->groups[g],
                                fig_plan_held_queries(held, &held->groups[g]), &prefixes);
    return fig_division_tail_readers(&step->paces[split_class], strips, &prefixes, tiles);
}

void fig_plan_tails_write(const fig_plan_held *held, int32_t rows, const uint8_t *plan,
                          fig_plan_tail *tails) {
    const fig_strips_head *head = (const fig_strips_head *)(const void *)plan;
    const int32_t q_heads = head->ratio * head->kv_heads;
    const int32_t counters = fig_strips_slot_counters(head->workers);
    for (int32_t row = 0; row < rows; row++) {
        const fig_strip_groups_row *of = &held->work.rows[row];
        tails[row] = (fig_plan_tail){0};
        if (held->before[row] == 0) continue;
        tails[row] = (fig_plan_tail){.first_token = held->before[row],
                                     .first = head->partial_vectors + of->first_slot * q_heads,
                                     .counter = counters + of->token * q_heads,
                                     .slots = of->slots};
    }
}
