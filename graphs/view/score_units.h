/* score_units.h: the scores of a program as units of 16 bytes, as a file holds them.
 *
 * A score is one unit {node_count, array_count, weights, mask_node_count}, two units for each array
 * and one for each node, as figraph_scores.h defines both; the nodes of the mask come last. Scores
 * are numbered from 1 in their order. Invariant: in a checked program every score is in its normal
 * form, its arrays have a count, no two scores are equal, and each one has a node. */
#ifndef FIG_GRAPHS_SCORE_UNITS_H
#define FIG_GRAPHS_SCORE_UNITS_H

#include "graphs/view/program_view.h"
#include "planner/scores/score.h"

enum {
    FIG_SCORE_UNITS_SCORE_LIMIT = 64, /* scores of a program */
    FIG_SCORE_UNITS_LONGEST = 1 + 2 * FIG_SCORE_ARRAY_LIMIT + FIG_SCORE_NODE_LIMIT,
    FIG_SCORE_UNITS_LIMIT = FIG_SCORE_UNITS_SCORE_LIMIT * FIG_SCORE_UNITS_LONGEST
};

/* Writes a score and returns the number of its units, at most FIG_SCORE_UNITS_LONGEST. */
uint32_t fig_score_units_write(const fig_score *score, fig_score_unit *units);
/* Returns the number of the score with these units, or 0 if the program has no such score. */
uint32_t fig_score_units_find(const fig_program_view *view, const fig_score_unit *units,
                              uint32_t count);
/* Returns the number of scores. The view need not have been checked. */
uint32_t fig_score_units_count(const fig_program_view *view);
/* Copies score `number` of a checked program in the form that kernels get. Gives zeros if there is
 * no such score. */
void fig_score_units_code(const fig_program_view *view, uint32_t number, fig_score_code *code);
/* Makes score `number`. FIG_INVALID, FIG_FORMAT: the view was not checked. */
fig_status fig_score_units_read(const fig_program_view *view, uint32_t number, fig_score *score);
/* Returns the number of a node's score, or 0 if its operation has none. */
uint32_t fig_score_units_of(const fig_program_view *view, const fig_node *node);
/* Checks all scores, apart from the demands of nodes, which need not have been checked. */
fig_status fig_score_units_check(const fig_program_view *view);
/* Checks that each score has a node. Nodes and scores have been checked. */
fig_status fig_score_units_check_uses(const fig_program_view *view);

#endif
