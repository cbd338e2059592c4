/* mask_lines.c: see mask_lines.h. */
#include "planner/scores/mask_lines.h"

#include <stdlib.h>
#include <string.h>

#include "planner/scores/score_ops.h"
#include "planner/status.h"

/* Marks the nodes on which the ranges depend. Returns FIG_MASK_LINE_*, or 0 if there is no range or
 * one reads an array. */
static uint32_t mark(const fig_score_code *score, uint8_t *is_needed) {
    const fig_score_node *nodes = score->nodes + score->node_count;
    uint32_t line = 0;
    memset(is_needed, 0, score->mask_node_count);
    for (uint32_t n = score->mask_node_count; n-- > 0;) {
        const fig_score_node *node = &nodes[n];
        const uint16_t operands[] = {node->a, node->b, node->c};
        is_needed[n] |= node->op == FIG_SCORE_RANGE;
        if (!is_needed[n]) continue;
        if (node->op == FIG_SCORE_ELEMENT) return 0;
        line |= FIG_MASK_LINE_KNOWN;
        if (node->op == FIG_SCORE_Q_POS) line |= FIG_MASK_LINE_BY_QUERY;
        if (node->op == FIG_SCORE_HEAD || node->op == FIG_SCORE_KV_HEAD)
            line |= FIG_MASK_LINE_BY_HEAD;
        for (int32_t o = 0; o < fig_score_ops_operands(node->op); o++)
            is_needed[operands[o]] = 1;
    }
    return line;
}

uint32_t fig_mask_lines_ranges(const fig_score_code *score, fig_score_code *ranges) {
    uint8_t is_needed[FIG_SCORE_NODE_LIMIT];
    uint16_t numbers[FIG_SCORE_NODE_LIMIT] = {0};
    memset(ranges, 0, sizeof *ranges);
    const uint32_t line = mark(score, is_needed);
    for (uint32_t n = 0; n < score->mask_node_count && line != 0; n++) {
        if (!is_needed[n]) continue;
        fig_score_node *node = &ranges->nodes[ranges->mask_node_count];
        *node = score->nodes[score->node_count + n];
        const int32_t operands = fig_score_ops_operands(node->op);
        node->a = operands > 0 ? numbers[node->a] : 0;
        node->b = operands > 1 ? numbers[node->b] : 0;
        node->c = operands > 2 ? numbers[node->c] : 0;
        numbers[n] = (uint16_t)ranges->mask_node_count++;
    }
    ranges->line = line;
    return line;
}

fig_status fig_mask_lines_init(fig_mask_lines *lines, int32_t count, int32_t row_limit) {
    assert(count >= 0 && count <= FIG_CLASS_LIMIT && row_limit >= 1);
    memset(lines, 0, sizeof *lines);
    if (count == 0) return FIG_OK;
    lines->of = calloc((size_t)count, sizeof *lines->of);
    lines->room = calloc((size_t)count * (size_t)row_limit, sizeof *lines->room);
    lines->count = count;
    if (lines->of != NULL && lines->room != NULL) return FIG_OK;
    fig_mask_lines_finish(lines);
    return fig_fail(FIG_NOMEM, "plan: masks of %d classes for %d rows", (int)count, (int)row_limit);
}

void fig_mask_lines_finish(fig_mask_lines *lines) {
    free(lines->of);
    free(lines->room);
    memset(lines, 0, sizeof *lines);
}

/* Returns the tiles of one row that nobody sees. */
static int32_t hidden_of(const fig_mask_lines_class *own, const fig_split_shape *split,
                         const fig_mask_row *row) {
    const fig_mask_tiles whole = fig_mask_line_whole(split, row);
    const fig_mask_tiles seen = fig_mask_line_of(&own->ranges, split, row);
    return fig_mask_line_count(&whole) - fig_mask_line_count(&seen);
}

const int32_t *const *fig_mask_lines_find(fig_mask_lines *lines, const fig_plan_shape *shape,
                                          const fig_plan_step *step) {
    const int32_t growth = step->horizon > 1 ? step->row_tokens : 0;
    if (lines->count == 0 || step->lengths == NULL) return NULL;
    for (int32_t i = 0; i < lines->count; i++) {
        const fig_mask_lines_class *own = &lines->of[i];
        const fig_split_shape *split = &shape->splits[own->split_class];
        int32_t *hidden = lines->room + (size_t)i * (size_t)step->rows;
        for (int32_t r = 0; r < step->rows; r++) {
            const fig_mask_row row = {.row = r,
                                      .queries = step->queries != NULL ? step->queries[r]
                                                                       : shape->row_tokens,
                                      .length = step->lengths[r],
                                      .launches = growth > 0 ? step->horizon : 1,
                                      .growth = growth,
                                      .heads = own->heads,
                                      .ratio = own->ratio};
            const int is_chunk = step->queries != NULL && row.queries > split->row_tokens;
            hidden[r] = 0;
            if (row.length > 0 && row.queries > 0 && !is_chunk)
                hidden[r] = hidden_of(own, split, &row);
        }
        lines->hidden[own->split_class] = hidden;
    }
    return lines->hidden;
}
