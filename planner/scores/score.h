/* score.h: an expression in its normal form, and the functions that make, print and recognise it.
 *
 * figraph_scores.h describes the language. score_build.c makes the normal form, score_parse.c reads
 * texts and score_tokens.c their words, score_print.c writes texts, score_ops.c has the operations,
 * and score.c has the other functions. Invariant: the nodes of a fig_score are its normal form, and
 * a score built from these nodes has the same bytes. */
#ifndef FIG_PLANNER_SCORE_H
#define FIG_PLANNER_SCORE_H

#include "planner/scores/score_value.h"

struct fig_score {
    fig_score_code code;
    uint32_t array_count;
    fig_score_array arrays[FIG_SCORE_ARRAY_LIMIT];
    char text[FIG_SCORE_TEXT_LIMIT + 1];
};

/* The most nodes of a builder. It may have more than a score, because the normal form drops unused
 * nodes. */
enum { FIG_SCORE_BUILD_LIMIT = 512 };
enum { FIG_SCORE_RANGE_LIMIT = 2 }; /* ranges of a mask */

/* A score that is being built. No two of its nodes are equal. */
typedef struct fig_score_builder {
    fig_score_node nodes[FIG_SCORE_BUILD_LIMIT];
    /* [node] Equal parts have equal keys, whatever the numbers of their nodes and arrays. */
    uint64_t keys[FIG_SCORE_BUILD_LIMIT];
    uint8_t has_score[FIG_SCORE_BUILD_LIMIT]; /* [node] 1: the node depends on the term `score` */
    fig_score_array arrays[FIG_SCORE_ARRAY_LIMIT];
    uint32_t node_count, array_count;
    uint16_t ranges[FIG_SCORE_RANGE_LIMIT]; /* [range_count] the nodes that are the mask's ranges */
    uint16_t bits;                          /* the node that is the mask's bits, if has_bits is 1 */
    uint32_t range_count, has_bits;
} fig_score_builder;

/* Adds an array and sets *number. Refuses a name that is invalid or already used. */
fig_status fig_score_build_array(fig_score_builder *builder, const fig_score_array *array,
                                 uint32_t *number);
/* Adds a node, and conversions of its operands where they need one, unless the builder has an equal
 * node. Sets *number to the node that has the value. Reads the field `type` only if the node is a
 * constant. The sentence of a failure does not name the place of the mistake. */
fig_status fig_score_build_node(fig_score_builder *builder, const fig_score_node *node,
                                uint16_t *number);
/* Makes a node, which must be a range or bits, a part of the mask. Does nothing if the mask has
 * that part already. The sentence of a failure does not name the place of the mistake. */
fig_status fig_score_build_part(fig_score_builder *builder, uint16_t node);
/* Writes the normal form of node `root` and of the mask to *score, together with its text. */
fig_status fig_score_build_finish(const fig_score_builder *builder, uint16_t root,
                                  fig_score_weights weights, fig_score *score);

/* Writes the text of the normal form to score->text. */
void fig_score_print_text(fig_score *score);

/* Fills *score with the normal form of parts that come from a caller or a file. */
fig_status fig_score_make(fig_score *score, const fig_score_parts *parts);

/* A score as the other fields of attention express it. */
typedef struct fig_score_form {
    int is_known;        /* 1: soft_cap and ALiBi can express the score */
    float soft_cap;      /* 0: none */
    int32_t slope_array; /* the array of ALiBi's slopes; -1: none */
} fig_score_form;

/* Makes *joined from the expression of `score` and the mask of `mask`. Either may be NULL. */
fig_status fig_score_join(const fig_score *score, const fig_score *mask, fig_score *joined);

/* Recognises the scores `score` and `score + slope[head] * (kv_pos - q_pos)`, and
 * `cap * tanh(x / cap)` where x is one of these two. */
fig_score_form fig_score_recognise(const fig_score *score);

#endif
