/* stranger.h: uses the graphs of a file that the library has accepted, whoever made the file.
 * Everything must work.
 *
 * For tests of damaged files and for fuzzers. If something does not work, the process prints a
 * message and calls abort(). */
#ifndef FIG_TESTS_SUPPORT_STRANGER_H
#define FIG_TESTS_SUPPORT_STRANGER_H

#include "include/figraph.h"

/* Prints the graphs in every format, asks for their memory and plans, saves them, and loads the
 * saved file, which must be the same. */
void fig_stranger_use(const fig_graphs *graphs);
/* Binds all tensors on the host device, fills lengths and leaves all else 0, and runs a step of at
 * most two rows. The library may refuse any of this. If more than a few MiB would be needed, runs
 * nothing. */
void fig_stranger_step(const fig_graphs *graphs);

#endif
