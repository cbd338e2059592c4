/* cores.c: see cores.h. */
#define _GNU_SOURCE /* sched_setaffinity */
#include "tests/support/cores.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static fig_cores cores;
static cpu_set_t before;

int fig_cores_set_up(void **state) {
    cpu_set_t set;
    CPU_ZERO(&set);
    cores = (fig_cores){-1, -1};
    *state = &cores;
    if (sched_getaffinity(0, sizeof before, &before) != 0) return 1;
    for (size_t core = 0; core < CPU_SETSIZE && CPU_COUNT(&set) < 2; core++) {
        if (!CPU_ISSET(core, &before)) continue;
        *(CPU_COUNT(&set) == 0 ? &cores.first : &cores.second) = (int)core;
        CPU_SET(core, &set);
    }
    setenv("HWLOC_THISSYSTEM", "1", 1);
    return sched_setaffinity(0, sizeof set, &set);
}

int fig_cores_tear_down(void **state) {
    (void)state;
    unsetenv("HWLOC_THISSYSTEM");
    unsetenv("HWLOC_SYNTHETIC");
    return sched_setaffinity(0, sizeof before, &before);
}

fig_cores fig_cores_of(void **state) {
    const fig_cores *two = *state;
    if (two->second >= 0) return *two;
    print_message("skipped: the process may run on one core alone\n");
    skip();
    return *two;
}

void fig_cores_pretend(const fig_cores *two, const char *synthetic) {
    char text[128];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(text, sizeof text, synthetic, two->first, two->second);
#pragma GCC diagnostic pop
    setenv("HWLOC_SYNTHETIC", text, 1);
}

void fig_cores_check(int first, int second) {
    cpu_set_t set;
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    assert_int_equal(CPU_COUNT(&set), second >= 0 ? 2 : 1);
    assert_true(CPU_ISSET((size_t)first, &set));
    if (second >= 0) assert_true(CPU_ISSET((size_t)second, &set));
}
