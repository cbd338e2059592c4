/* meeting.h: what an engine and those of the other ranks agree on before they meet in a step. */
#ifndef FIG_ENGINE_MEETING_H
#define FIG_ENGINE_MEETING_H

#include "engine/engine.h"

/* Collective where ranks is not NULL. *peers: what collectives' params point to, the device's; NULL
 * where the program has none. FIG_INVALID: the graphs are not for such a group, or two ranks have
 * not the same. */
fig_status fig_meeting_open(const fig_engine *engine, struct fig_ranks *ranks, void **peers);

#endif
