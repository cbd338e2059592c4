/* score_units.c: reads, writes and checks the scores of a program. */
#include "graphs/view/score_units.h"

#include <stdlib.h>
#include <string.h>

#include "planner/status.h"

enum { ARRAY_UNITS = sizeof(fig_score_array) / sizeof(fig_score_unit) };
static_assert(sizeof(fig_score_array) == 32 && sizeof(fig_score_node) == 16, "file format");

/* The units that hold one score. */
typedef struct extent {
    uint32_t first, node_count, array_count, weights, mask_node_count;
} extent;

/* Finds the parts of the score that begins at unit `first`. Returns the number of its units, or 0
 * if no valid score begins there or the score does not end within the units. */
static uint32_t extent_at(const fig_program_view *view, uint32_t first, extent *at) {
    *at = (extent){.first = first};
    if (first >= view->score_units) return 0;
    const uint32_t *words = view->scores[first].words;
    if (words[0] < 1 || words[0] > FIG_SCORE_NODE_LIMIT || words[1] > FIG_SCORE_ARRAY_LIMIT)
        return 0;
    if (words[3] > FIG_SCORE_NODE_LIMIT - words[0]) return 0;
    *at = (extent){first, words[0], words[1], words[2], words[3]};
    const uint32_t count = 1 + ARRAY_UNITS * words[1] + words[0] + words[3];
    return count <= view->score_units - first ? count : 0;
}

/* Finds score `number`. Returns the number of its units, or 0 if there is no such score. */
static uint32_t find(const fig_program_view *view, uint32_t number, extent *at) {
    uint32_t count = 0;
    *at = (extent){.first = 0};
    for (uint32_t i = 0, first = 0; i < number; i++, first += count) {
        count = extent_at(view, first, at);
        if (count == 0) return 0;
    }
    return count;
}

uint32_t fig_score_units_count(const fig_program_view *view) {
    uint32_t count = 0, length = 0;
    extent at;
    for (uint32_t first = 0; (length = extent_at(view, first, &at)) > 0; first += length)
        count++;
    return count;
}

uint32_t fig_score_units_write(const fig_score *score, fig_score_unit *units) {
    const fig_score_code *code = &score->code;
    const uint32_t node_count = code->node_count + code->mask_node_count;
    units[0] = (fig_score_unit){
        {code->node_count, score->array_count, code->weights, code->mask_node_count}};
    memcpy(units + 1, score->arrays, score->array_count * sizeof *score->arrays);
    memcpy(units + 1 + ARRAY_UNITS * score->array_count, code->nodes,
           node_count * sizeof *code->nodes);
    return 1 + ARRAY_UNITS * score->array_count + node_count;
}

uint32_t fig_score_units_find(const fig_program_view *view, const fig_score_unit *units,
                              uint32_t count) {
    uint32_t number = 0, length = 0;
    extent at;
    for (uint32_t first = 0; (length = extent_at(view, first, &at)) > 0; first += length) {
        number++;
        if (length == count && memcmp(view->scores + first, units, count * sizeof *units) == 0)
            return number;
    }
    return 0;
}

void fig_score_units_code(const fig_program_view *view, uint32_t number, fig_score_code *code) {
    extent at;
    memset(code, 0, sizeof *code);
    if (find(view, number, &at) == 0) return;
    const fig_score_unit *units = view->scores + at.first + 1;
    code->node_count = at.node_count;
    code->weights = at.weights;
    code->mask_node_count = at.mask_node_count;
    for (uint32_t i = 0; i < at.array_count; i++) {
        fig_score_array array;
        memcpy(&array, units + ARRAY_UNITS * i, sizeof array);
        code->arrays[i] = (fig_score_extent){array.dtype, array.count};
    }
    memcpy(code->nodes, units + ARRAY_UNITS * at.array_count,
           (at.node_count + at.mask_node_count) * sizeof *code->nodes);
}

/* Returns the nodes of the mask of a score. */
static const fig_score_unit *mask_of(const fig_program_view *view, const extent *at) {
    return view->scores + at->first + 1 + ARRAY_UNITS * at->array_count + at->node_count;
}

uint32_t fig_score_units_mask(const fig_program_view *view, uint32_t number) {
    extent own, other;
    if (find(view, number, &own) == 0) return 0;
    for (uint32_t i = 1; i < number; i++) {
        find(view, i, &other);
        if (own.mask_node_count == other.mask_node_count &&
            memcmp(mask_of(view, &own), mask_of(view, &other),
                   own.mask_node_count * sizeof *view->scores) == 0)
            return i;
    }
    return number;
}

fig_status fig_score_units_read(const fig_program_view *view, uint32_t number, fig_score *score) {
    fig_score_array arrays[FIG_SCORE_ARRAY_LIMIT];
    fig_score_node nodes[FIG_SCORE_NODE_LIMIT];
    extent at;
    memset(score, 0, sizeof *score);
    if (find(view, number, &at) == 0)
        return fig_fail(FIG_FORMAT, "score %u: no score begins there", number);
    const fig_score_unit *units = view->scores + at.first + 1;
    memcpy(arrays, units, at.array_count * sizeof *arrays);
    memcpy(nodes, units + ARRAY_UNITS * at.array_count,
           (at.node_count + at.mask_node_count) * sizeof *nodes);
    return fig_score_make(score, &(fig_score_parts){.size = sizeof(fig_score_parts),
                                                    .nodes = nodes,
                                                    .arrays = arrays,
                                                    .node_count = (int32_t)at.node_count,
                                                    .array_count = (int32_t)at.array_count,
                                                    .weights = at.weights,
                                                    .mask_node_count = (int32_t)at.mask_node_count,
                                                    .mask_nodes = nodes + at.node_count});
}

uint32_t fig_score_units_of(const fig_program_view *view, const fig_node *node) {
    uint32_t number = 0;
    if (node->op >= FIG_OP_KERNEL_COUNT || !fig_kernel_table[node->op].has_score) return 0;
    fig_program_view_attributes(view, node, offsetof(fig_scored_attributes, score), &number,
                                sizeof number);
    return number;
}

/* Checks that the score is in its normal form, that all its arrays have a count, and that no
 * earlier score is equal. */
static fig_status check_score(const fig_program_view *view, uint32_t number, fig_score *score) {
    fig_score_unit made[FIG_SCORE_UNITS_LONGEST];
    extent at;
    const uint32_t count = find(view, number, &at);
    FIG_TRY(fig_score_units_read(view, number, score));
    if (fig_score_units_write(score, made) != count ||
        memcmp(made, view->scores + at.first, count * sizeof *made) != 0)
        return fig_fail(FIG_FORMAT, "score %u: it is not in its normal form", number);
    for (uint32_t i = 0; i < score->array_count; i++)
        if (score->arrays[i].count == 0)
            return fig_fail(FIG_FORMAT, "score %u: array %s has no count", number,
                            score->arrays[i].name);
    if (fig_score_units_find(view, made, count) != number)
        return fig_fail(FIG_FORMAT, "score %u: it is there twice", number);
    return FIG_OK;
}

fig_status fig_score_units_check(const fig_program_view *view) {
    const uint32_t count = fig_score_units_count(view);
    fig_status status = FIG_OK;
    extent at;
    uint32_t end = 0;
    if (view->score_units == 0) return FIG_OK;
    for (uint32_t number = 1; number <= count; number++)
        end += extent_at(view, end, &at);
    if (end != view->score_units)
        return fig_fail(FIG_FORMAT,
                        "score %u: its counts are beyond their limits, or its units end",
                        count + 1);
    if (count > FIG_SCORE_UNITS_SCORE_LIMIT)
        return fig_fail(FIG_TOO_LARGE, "program: %u scores, limit %d", count,
                        FIG_SCORE_UNITS_SCORE_LIMIT);
    fig_score *score = calloc(1, sizeof *score);
    if (score == NULL) return fig_fail(FIG_NOMEM, "score: %zu bytes", sizeof *score);
    for (uint32_t number = 1; number <= count && status == FIG_OK; number++)
        status = check_score(view, number, score);
    free(score);
    return status;
}

fig_status fig_score_units_check_uses(const fig_program_view *view) {
    const uint32_t count = fig_score_units_count(view);
    uint8_t is_used[FIG_SCORE_UNITS_SCORE_LIMIT + 1] = {0};
    for (uint32_t n = 0; n < view->node_count; n++) {
        const uint32_t number = fig_score_units_of(view, &view->nodes[n]);
        if (number <= count) is_used[number] = 1;
    }
    for (uint32_t number = 1; number <= count; number++)
        if (!is_used[number]) return fig_fail(FIG_FORMAT, "score %u: no node has it", number);
    return FIG_OK;
}
