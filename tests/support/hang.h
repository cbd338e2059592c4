/* hang.h: how long a test waits for what always comes before it calls that a hang.
 *
 * A machine may be slow, and others may keep its cores busy, so no test is bounded by how fast
 * something should be: it waits until the thing has happened, and this limit is only for a thing
 * that never does. Invariant: tests/run gives a program longer than any one of these waits. */
#ifndef FIG_TESTS_SUPPORT_HANG_H
#define FIG_TESTS_SUPPORT_HANG_H

#include <stdint.h>

enum { FIG_HANG_S = 600, FIG_HANG_US = FIG_HANG_S * 1000000 };

/* Set up and tear down of a CMocka test between which a hang ends the program: that is a failure
 * too. */
int fig_hang_watch(void **state);
int fig_hang_unwatch(void **state);

/* Lets at least so much time go by. */
void fig_hang_pause(int64_t us);

#endif
