/* score_units.h: the scores of a program as units of 16 bytes, the form in which a file holds them.
 *
 * A score is one unit {node_count, array_count, weights, mask_node_count}, then two units for each
 * fig_score_array, then one unit for each fig_score_node; the nodes of the mask come last. Scores
 * are numbered from 1 in their order. Invariant: in a checked program every score is in its normal
 * form, all its arrays have a count, no two scores are equal, and some node of the program uses
 * each score. */
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
/* Copies score `number` of a checked program to *code, the form that kernels read. If there is no
 * such score, *code is zeros. */
void fig_score_units_code(const fig_program_view *view, uint32_t number, fig_score_code *code);
/* Returns the first score of a checked program whose mask has the same nodes as that of score
 * `number`; 0 if there is no such score. */
uint32_t fig_score_units_mask(const fig_program_view *view, uint32_t number);
/* Makes score `number`. FIG_INVALID, FIG_FORMAT: the view was not checked. */
fig_status fig_score_units_read(const fig_program_view *view, uint32_t number, fig_score *score);
/* Returns the number of the score that a node uses, or 0 if its operation uses none. */
uint32_t fig_score_units_of(const fig_program_view *view, const fig_node *node);
/* Checks all scores themselves. The nodes that use them need not have been checked. */
fig_status fig_score_units_check(const fig_program_view *view);
/* Checks that some node uses each score. The caller has checked nodes and scores. */
fig_status fig_score_units_check_uses(const fig_program_view *view);

#endif
