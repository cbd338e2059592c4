/* cores.h: chooses two cores of this machine for a test, and asks the system where a thread may
 * run.
 *
 * Between set_up and tear_down, hwloc believes that the machine is as the test describes it, so
 * that binding works. Invariant: a test begins on a thread that may run on exactly the two cores.
 * tear_down undoes everything. */
#ifndef FIG_TESTS_SUPPORT_CORES_H
#define FIG_TESTS_SUPPORT_CORES_H

typedef struct fig_cores {
    int first, second;
} fig_cores;

#define FIG_CORES_TEST(name)                                                                       \
    cmocka_unit_test_setup_teardown(name, fig_cores_set_up, fig_cores_tear_down)
int fig_cores_set_up(void **state);
int fig_cores_tear_down(void **state);

/* Returns the two cores of a test. Skips the test if the process may run on only one core. */
fig_cores fig_cores_of(void **state);

/* Makes hwloc find the machine `synthetic` until tear_down. This format string has a place for each
 * of the two cores' numbers. */
__attribute__((format(printf, 2, 0))) void fig_cores_pretend(const fig_cores *cores,
                                                             const char *synthetic);

/* Fails unless the calling thread may run on exactly these cores. second: -1 if there is only one
 * core. */
void fig_cores_check(int first, int second);

#endif
