/* yardstick.c: measures the time of a fixed piece of work.
 *
 * A chain of dependent multiplications shows the clock rate and how much of the core other threads
 * leave to this one. A walk through memory shows how much of the cache they leave. */
#include "tests/support/yardstick.h"

#include <stdint.h>
#include <time.h>

/* the time of both parts on the machine for which the tests' limits were set, without other load */
static const double alone_us = 600;
enum { LINKS = 100000, WORDS = 1 << 15, STEPS = 100000 };

double fig_yardstick_now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

double fig_yardstick(void) {
    static uint32_t words[WORDS]; /* 128 KiB */
    const double begin_us = fig_yardstick_now_us();
    uint64_t link = 1;
    for (int i = 0; i < LINKS; i++)
        link = link * 6364136223846793005u + 1442695040888963407u;
    uint32_t at = (uint32_t)link % WORDS;
    for (int i = 0; i < STEPS; i++) {
        words[at]++;
        at = (at * 1664525u + 1013904223u + words[at] % 2) % WORDS;
    }
    *(volatile uint32_t *)words = at;
    const double slower = (fig_yardstick_now_us() - begin_us) / alone_us;
    return slower > 1 ? slower : 1;
}
