/* meeting.h: what an engine and those of the other ranks agree on before they meet in a step. */
#ifndef FIG_ENGINE_MEETING_H
#define FIG_ENGINE_MEETING_H

#include "engine/engine.h"

/* Collective where ranks is not NULL. *met: zero where the program has no collectives.
 * FIG_INVALID: the graphs are not for such a group, or two ranks have not the same. */
fig_status fig_meeting_open(const fig_engine *engine, struct fig_ranks *ranks, fig_dev_met *met);

#endif
