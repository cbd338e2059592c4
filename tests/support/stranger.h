/* stranger.h: what must go well with graphs of a file that was accepted, whoever made it.
 *
 * For tests of damage and for fuzzers alike: what does not go well ends the process with a
 * sentence, by abort(). */
#ifndef FIG_TESTS_SUPPORT_STRANGER_H
#define FIG_TESTS_SUPPORT_STRANGER_H

#include "include/figraph.h"

/* Shows them in every format, asks what they take and what a step would do, saves them, and loads
 * what was saved: it is the same. */
void fig_stranger_use(const fig_graphs *graphs);
/* Binds all tensors on the host device, to zeros but for lengths, and runs a step of two rows at
 * most; the library may refuse any of it. Where more than a few MiB are asked for nothing runs. */
void fig_stranger_step(const fig_graphs *graphs);

#endif
