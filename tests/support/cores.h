/* cores.h: two cores of this machine for a test to be bound to, and what the kernel says of that.
 *
 * From set_up to tear_down hwloc takes any machine that it is told of for this one, so that what it
 * binds is bound. Invariant: a test begins on a thread that may run on both cores and no others,
 * and the process is as it was after it. */
#ifndef FIG_TESTS_SUPPORT_CORES_H
#define FIG_TESTS_SUPPORT_CORES_H

typedef struct fig_cores {
    int first, second;
} fig_cores;

#define FIG_CORES_TEST(name)                                                                       \
    cmocka_unit_test_setup_teardown(name, fig_cores_set_up, fig_cores_tear_down)
int fig_cores_set_up(void **state);
int fig_cores_tear_down(void **state);

/* Those of a test that was set up so; skips it where the process may run on one core alone. */
fig_cores fig_cores_of(void **state);

/* Makes this the machine that hwloc finds, until tear_down: a format for the two cores' numbers. */
__attribute__((format(printf, 2, 0))) void fig_cores_pretend(const fig_cores *cores,
                                                             const char *synthetic);

/* Fails unless the calling thread may run on these and no others; second: -1: there is none. */
void fig_cores_check(int first, int second);

#endif
