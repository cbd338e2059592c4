/* yardstick.h: measures how much slower this thread runs at the moment than on the machine for
 * which the tests' limits were set.
 *
 * Limits on time are meant as limits on work. Other processes on the same cores, a slower clock or
 * a smaller cache make the same work take longer, so a test divides its times by this factor.
 * Invariant: the factor is at least 1, so a fast machine does not make a limit stricter. */
#ifndef FIG_TESTS_SUPPORT_YARDSTICK_H
#define FIG_TESTS_SUPPORT_YARDSTICK_H

/* Returns the processor time of the calling thread in microseconds. */
double fig_yardstick_now_us(void);
/* Returns the factor. This takes about half a millisecond. Measure before and after the work, and
 * use the larger factor. */
double fig_yardstick(void);

#endif
