/* prompt_groups.h: finds the rows of a step of prompts that begin with the same pages.
 *
 * The caller's page table in host memory tells which rows share pages. planner/prefixes/prefixes.c
 * chooses the groups whose pages cost less when read once. Invariant: the groups need no more than
 * the options' shared_limit. */
#ifndef FIG_ENGINE_PROMPT_GROUPS_H
#define FIG_ENGINE_PROMPT_GROUPS_H

#include "include/figraph_prompts.h"
#include "planner/plans/strip_groups.h"

typedef struct fig_prompt_groups {
    fig_strip_group *groups; /* [count] each comes after the groups that enclose it */
    int32_t *order;          /* [rows] row numbers; groups are ranges of it. NULL: entry r is r */
    int32_t count;
} fig_prompt_groups;

/* Finds the groups of a checked step. May fail with FIG_NOMEM; fig_prompt_groups_finish() accepts
 * the struct even then. */
fig_status fig_prompt_groups_find(const fig_prompts_options *options, const fig_strips_shape *shape,
                                  const fig_prompts_step *step, fig_prompt_groups *groups);
void fig_prompt_groups_finish(fig_prompt_groups *groups);

#endif
