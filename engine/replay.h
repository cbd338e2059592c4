/* replay.h: stages a step that was checked before. */
#ifndef FIG_ENGINE_REPLAY_H
#define FIG_ENGINE_REPLAY_H

#include "engine/engine.h"

/* Sets *index to the bucket that a step takes, and step->groups to its groups. Finds the groups in
 * the page tables that the step would be staged with now. Fails as fig_bucket_choose() does. */
fig_status fig_replay_choose(fig_engine *engine, fig_plan_step *step, int32_t *index);
/* Sets what else the step's plan in bucket `index` depends on. The step's groups have been found,
 * and the bucket is prepared. */
void fig_replay_complete(fig_engine *engine, int32_t index, fig_plan_step *step);
/* Stages a step that fig_step_check() has accepted, in bucket `index`, counted from 0. Returns
 * FIG_BUSY, and does not stage the step, if every slot is in flight or the slot cannot carry all
 * waiting page table entries. */
fig_status fig_replay_put(fig_engine *engine, const fig_plan_step *step, int32_t index);

#endif
