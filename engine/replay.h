/* replay.h: stages a step that measure.c has already checked. */
#ifndef FIG_ENGINE_REPLAY_H
#define FIG_ENGINE_REPLAY_H

#include "engine/engine.h"

/* Stages a step that fig_step_check() has accepted, in bucket `index`, counted from 0. Returns
 * FIG_BUSY, and does not stage the step, if every slot is in flight or the slot cannot carry all
 * waiting page table entries. */
fig_status fig_replay_put(fig_engine *engine, const fig_plan_step *step, int32_t index);

#endif
