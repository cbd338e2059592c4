/* plan_tails.h: settles the tails of a step: which rows have them, where they begin, and how many
 * workers read them.
 *
 * plan.c calls these functions while it settles a plan, and plan.h explains what a tail is.
 * Invariant: what they find follows from the step alone, whatever steps came before. */
#ifndef FIG_PLANNER_PLAN_TAILS_H
#define FIG_PLANNER_PLAN_TAILS_H

#include "planner/plans/plan.h"

/* Notes whether rows of the step have tails. Returns 1 if that changed. The groups of the step have
 * been noted. */
int fig_plan_tails_note(const fig_plan_step *step, fig_plan_held *held);
/* Finds where the tails begin, and gives rows with a tail a place in held->narrow. */
void fig_plan_tails_find(const fig_plan_shape *shape, const fig_plan_step *step,
                         fig_plan_held *held);
/* Returns how many workers read rows of the class that shares, whose rows have tails. shape: that
 * of the bucket. held->prefix is that of the step. */
int32_t fig_plan_tails_readers(const fig_plan_shape *shape, const fig_plan_step *step,
                               int32_t split_class, fig_plan_held *held);
/* Writes tails [rows], with places in the strips `plan` of the class that shares. */
void fig_plan_tails_write(const fig_plan_held *held, int32_t rows, const uint8_t *plan,
                          fig_plan_tail *tails);

#endif
