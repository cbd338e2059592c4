/* prompt_groups.h: finds the rows of a step of prompts that begin with the same pages.
 *
 * The caller's page table in host memory tells which rows share pages. planner/prefixes/prefixes.c
 * chooses the groups whose pages cost less when read once. Invariant: the groups need no more than
 * the options' shared_limit. */
#ifndef FIG_ENGINE_PROMPT_GROUPS_H
#define FIG_ENGINE_PROMPT_GROUPS_H

#include "include/figraph_prompts.h"
#include "planner/strip_groups.h"

typedef struct fig_prompt_groups {
    fig_strip_group *groups; /* [count] each behind those around it */
    int32_t *order;          /* [rows] the rows of groups; NULL: row r is entry r */
    int32_t count;
} fig_prompt_groups;

/* Finds the groups of a checked step. FIG_NOMEM. fig_prompt_groups_finish() also accepts what a
 * failed call left. */
fig_status fig_prompt_groups_find(const fig_prompts_options *options, const fig_strips_shape *shape,
                                  const fig_prompts_step *step, fig_prompt_groups *groups);
void fig_prompt_groups_finish(fig_prompt_groups *groups);

#endif
