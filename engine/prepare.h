/* prepare.h: takes up new bindings, and makes buckets launchable with them. */
#ifndef FIG_ENGINE_PREPARE_H
#define FIG_ENGINE_PREPARE_H

#include "engine/engine.h"

/* If bindings have changed, makes them current. Returns FIG_ORDER if they have changed while a
 * staged step still waits for its launch: a step must be launched with the bindings with which it
 * was staged. */
fig_status fig_prepare_settle(fig_engine *engine);
/* Calls fig_prepare_settle(), and then makes the exec of a bucket ready. Buckets count from 0. */
fig_status fig_prepare_bucket(fig_engine *engine, uint32_t bucket);

#endif
