/* replay.h: what runs a step, but for the public calls. */
#ifndef FIG_ENGINE_REPLAY_H
#define FIG_ENGINE_REPLAY_H

#include "engine/engine.h"

/* What stage does with a step that was checked and its bucket chosen, index from 0: FIG_BUSY, or it
 * is staged. */
fig_status fig_replay_put(fig_engine *engine, const fig_plan_step *step, int32_t index);

#endif
