/* mask_value.h: computes which tokens a query sees under the mask of a score.
 *
 * Host and GPU compile this file. Owns the meaning of ranges and bits; score_value.h owns the
 * meaning of all other nodes. Invariant: the ranges lie within the row, the first one ends before
 * the second one begins, and an empty range is 0 to 0. Read by nvcc. */
#ifndef FIG_PLANNER_MASK_VALUE_H
#define FIG_PLANNER_MASK_VALUE_H

#include "planner/scores/score_value.h"

enum { FIG_MASK_BITS = 64, FIG_MASK_NO_TOKEN = 0x7fffffff };

/* The tokens that one query sees. */
typedef struct fig_mask_sight {
    int32_t first, end;       /* the first range: tokens [first, end) */
    int32_t second, last_end; /* the second range: tokens [second, last_end) */
    int32_t bits_first;       /* the token that bit 0 stands for; it may be below 0 */
    uint32_t bits[2];         /* 1: the token may be seen */
} fig_mask_sight;

/* Returns a bound within [low, high]. */
FIG_BOTH int32_t fig_mask_value_clamp(int32_t bound, int32_t low, int32_t high) {
    return bound < low ? low : bound > high ? high : bound;
}

/* Adds a range, which must not be empty. */
FIG_BOTH void fig_mask_value_add(fig_mask_sight *sight, int32_t first, int32_t end) {
    if (sight->end == 0) {
        sight->first = first;
        sight->end = end;
    } else if (first > sight->end) {
        sight->second = first;
        sight->last_end = end;
    } else if (end < sight->first) {
        sight->second = sight->first;
        sight->last_end = sight->end;
        sight->first = first;
        sight->end = end;
    } else {
        if (first < sight->first) sight->first = first;
        if (end > sight->end) sight->end = end;
    }
}

/* Computes which tokens a query sees. low: the first token of the query's window, at least 0. */
FIG_BOTH fig_mask_sight fig_mask_value_of(const fig_score_code *code,
                                          const fig_score_inputs *inputs, int32_t low) {
    const int32_t given = (int32_t)inputs->terms[FIG_SCORE_KV_LENGTH];
    const int32_t length = given > low ? given : low;
    const fig_score_node *nodes = code->nodes + code->node_count;
    fig_mask_sight sight = {0, 0, 0, 0, length - FIG_MASK_BITS, {0xffffffffu, 0xffffffffu}};
    uint32_t values[FIG_SCORE_NODE_LIMIT];
    for (uint32_t n = 0; n < code->mask_node_count; n++) {
        const fig_score_node *node = &nodes[n];
        values[n] = 0;
        if (node->op == FIG_SCORE_BITS) {
            sight.bits[0] = values[node->a];
            sight.bits[1] = values[node->b];
        } else if (node->op == FIG_SCORE_RANGE) {
            const int32_t first = fig_mask_value_clamp((int32_t)values[node->a], low, length);
            const int32_t end = fig_mask_value_clamp((int32_t)values[node->b], low, length);
            if (first < end) fig_mask_value_add(&sight, first, end);
        } else {
            values[n] = fig_score_value_node(code, inputs, nodes, n, values);
        }
    }
    return sight;
}

/* Returns 1 if the query sees the token, which lies in the row. */
FIG_BOTH int fig_mask_value_sees(const fig_mask_sight *sight, int32_t token) {
    const int in_first = token >= sight->first && token < sight->end;
    const int in_second = token >= sight->second && token < sight->last_end;
    if (!in_first && !in_second) return 0;
    const int32_t bit = token - sight->bits_first;
    return bit < 0 || (sight->bits[bit >> 5 & 1] >> (bit & 31) & 1) != 0;
}

/* Returns the first token at or after `token` that lies in a range, or FIG_MASK_NO_TOKEN if there
 * is none. */
FIG_BOTH int32_t fig_mask_value_next(const fig_mask_sight *sight, int32_t token) {
    if (token < sight->end) return token > sight->first ? token : sight->first;
    if (token < sight->last_end) return token > sight->second ? token : sight->second;
    return FIG_MASK_NO_TOKEN;
}

/* Returns 1 if the query sees all tokens from `first` to end - 1. */
FIG_BOTH int fig_mask_value_sees_all(const fig_mask_sight *sight, int32_t first, int32_t end) {
    const int in_first = first >= sight->first && end <= sight->end;
    const int in_second = first >= sight->second && end <= sight->last_end;
    const int has_bits = (sight->bits[0] & sight->bits[1]) != 0xffffffffu;
    return (in_first || in_second) && (!has_bits || end <= sight->bits_first);
}

#endif
