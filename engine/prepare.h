/* prepare.h: take up what was bound, and make buckets launchable with it. */
#ifndef FIG_ENGINE_PREPARE_H
#define FIG_ENGINE_PREPARE_H

#include "engine/engine.h"

/* Takes up what was bound, where that has changed. A staged step belongs to the bindings that it
 * was staged with, so none may wait for its launch then (FIG_ORDER). */
fig_status fig_prepare_settle(fig_engine *engine);
/* The same, and makes a bucket's exec ready; index from 0. */
fig_status fig_prepare_bucket(fig_engine *engine, uint32_t bucket);

#endif
