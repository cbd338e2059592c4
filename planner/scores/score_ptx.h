/* score_ptx.h: writes a score as PTX, for a template of attention.
 *
 * Host and GPU interpret scores by score_value.h; what this file writes computes the same bits.
 * Operations of more than a few instructions are calls of functions, which nvcc compiled from
 * score_value.h into the template; graphs/scores/score_template.c puts their bodies in. Invariant:
 * whatever the score computes, no element is read outside its array: the index is clamped to the
 * count in the params right before the load. */
#ifndef FIG_PLANNER_SCORE_PTX_H
#define FIG_PLANNER_SCORE_PTX_H

#include "planner/scores/ptx_text.h"
#include "planner/scores/score_value.h"

enum { FIG_SCORE_PTX_NAME_LIMIT = 128 }; /* bytes of a register's or param's name, with its NUL */

/* Where a score stands in a template: names of registers, and of the entry's params. */
typedef struct fig_score_ptx_place {
    char out[FIG_SCORE_PTX_NAME_LIMIT];                         /* gets the logit in base 2 */
    char terms[FIG_SCORE_TERM_COUNT][FIG_SCORE_PTX_NAME_LIMIT]; /* [fig_score_op] */
    char params[FIG_SCORE_PTX_NAME_LIMIT];
    uint32_t arrays; /* offset in the params of the addresses of the arrays */
    uint32_t counts; /* offset in the params of fig_score_code.arrays */
} fig_score_ptx_place;

/* Appends the instructions of the score: lines that each hold one instruction, in braces. */
void fig_score_ptx_write(const fig_score_code *code, const fig_score_ptx_place *place,
                         fig_ptx_text *text);

#endif
