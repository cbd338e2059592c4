/* meeting.h: checks that the engines of all ranks agree before they exchange messages in a step. */
#ifndef FIG_ENGINE_MEETING_H
#define FIG_ENGINE_MEETING_H

#include "engine/engine.h"

/* Checks that all ranks agree, and connects them if the program has collectives; otherwise *met is
 * zeroed. Every rank must call this function, unless ranks is NULL. Returns FIG_INVALID if the
 * graphs are for another number of ranks or two ranks have different graphs. */
fig_status fig_meeting_open(const fig_engine *engine, struct fig_ranks *ranks, fig_dev_met *met);

#endif
