/* hang.h: how long a test waits for an event before it reports a hang.
 *
 * A machine may be slow, and other processes may keep its cores busy, so no test limits how long
 * something takes. It waits until the event has happened. This limit only ends a wait for an event
 * that never happens. Invariant: tests/run gives a program more time than any of these waits. */
#ifndef FIG_TESTS_SUPPORT_HANG_H
#define FIG_TESTS_SUPPORT_HANG_H

#include <stdint.h>

enum { FIG_HANG_S = 600, FIG_HANG_US = FIG_HANG_S * 1000000 };
#define FIG_HANG_NS ((int64_t)FIG_HANG_US * 1000)

/* Set up and tear down a CMocka test. If the test hangs in between, the program ends, and this
 * counts as a failure. */
int fig_hang_watch(void **state);
int fig_hang_unwatch(void **state);

/* Waits for at least `us` microseconds. */
void fig_hang_pause(int64_t us);

#endif
