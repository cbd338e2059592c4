/* score.h: an expression in its normal form, and what the library asks of it.
 *
 * figraph_scores.h describes the language. score_build.c makes the normal form, score_parse.c reads
 * texts and score_tokens.c their words, score_print.c writes texts, score_ops.c has the operations,
 * and score.c the rest. Invariant: the nodes of a fig_score are its normal form, and building a
 * score from them gives the same bytes. */
#ifndef FIG_PLANNER_SCORE_H
#define FIG_PLANNER_SCORE_H

#include "planner/scores/score_value.h"

struct fig_score {
    fig_score_code code;
    uint32_t array_count;
    fig_score_array arrays[FIG_SCORE_ARRAY_LIMIT];
    char text[FIG_SCORE_TEXT_LIMIT + 1];
};

/* Nodes that a builder holds before the normal form drops those without use. */
enum { FIG_SCORE_BUILD_LIMIT = 512 };
enum { FIG_SCORE_RANGE_LIMIT = 2 }; /* ranges of a mask */

/* A score that is being built. No two of its nodes are equal. */
typedef struct fig_score_builder {
    fig_score_node nodes[FIG_SCORE_BUILD_LIMIT];
    /* [node] equal for parts that are equal, whatever the numbers of their nodes and arrays */
    uint64_t keys[FIG_SCORE_BUILD_LIMIT];
    uint8_t has_score[FIG_SCORE_BUILD_LIMIT]; /* [node] 1: it depends on the term `score` */
    fig_score_array arrays[FIG_SCORE_ARRAY_LIMIT];
    uint32_t node_count, array_count;
    uint16_t ranges[FIG_SCORE_RANGE_LIMIT]; /* nodes */
    uint16_t bits;                          /* a node, if has_bits is 1 */
    uint32_t range_count, has_bits;
} fig_score_builder;

/* Adds an array and sets *number. Refuses a name that is no name, or is taken. */
fig_status fig_score_build_array(fig_score_builder *builder, const fig_score_array *array,
                                 uint32_t *number);
/* Adds a node, with the conversions that its operands imply, unless an equal one is there; sets
 * *number to the node that has the value. `type` is read for a constant alone. The sentence of a
 * failure does not say where. */
fig_status fig_score_build_node(fig_score_builder *builder, const fig_score_node *node,
                                uint16_t *number);
/* Makes a node that is a range or bits a part of the mask. A part that is there already is not
 * added again. The sentence of a failure does not say where. */
fig_status fig_score_build_part(fig_score_builder *builder, uint16_t node);
/* Writes the normal form of node `root`, with the mask and its text, to *score. */
fig_status fig_score_build_finish(const fig_score_builder *builder, uint16_t root,
                                  fig_score_weights weights, fig_score *score);

/* Writes the text of the normal form to score->text. */
void fig_score_print_text(fig_score *score);

/* Fills *score with the normal form of parts that a caller or a file gives. */
fig_status fig_score_make(fig_score *score, const fig_score_parts *parts);

/* What attention can do without an expression. */
typedef struct fig_score_form {
    int is_known;
    float soft_cap;      /* 0: none */
    int32_t slope_array; /* the array of ALiBi's slopes; -1: none */
} fig_score_form;

/* Makes *score from a score and the mask of another one. Either may be NULL. */
fig_status fig_score_join(const fig_score *score, const fig_score *mask, fig_score *joined);

/* Recognises score, score + slope[head] * (kv_pos - q_pos), and cap * tanh(x / cap) of either. */
fig_score_form fig_score_recognise(const fig_score *score);

#endif
