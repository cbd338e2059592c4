/* hang.c: ends a test that hangs, and pauses in tests where something must come late. */
#include "tests/support/hang.h"

#include <time.h>
#include <unistd.h>

int fig_hang_watch(void **state) {
    (void)state;
    alarm(FIG_HANG_S);
    return 0;
}

int fig_hang_unwatch(void **state) {
    (void)state;
    alarm(0);
    return 0;
}

void fig_hang_pause(int64_t us) {
    const struct timespec pause = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&pause, NULL);
}
