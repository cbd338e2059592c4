/* fork_check.h: distinguishes the process that opened an engine from its forked children.
 *
 * A fork copies an engine's memory, but neither its threads nor its device. One word on a separate
 * page tells parent and child apart: the system clears the page in a child, so the check costs one
 * load. On a system that cannot clear the page, every process looks like the parent. Invariant: the
 * word changes only in a fork. */
#ifndef FIG_ENGINE_FORK_CHECK_H
#define FIG_ENGINE_FORK_CHECK_H

#include <stddef.h>
#include <stdint.h>

#include "include/figraph.h"

typedef struct fig_fork_check {
    volatile uint32_t *word; /* 1 in the parent, 0 in a child */
    size_t bytes;            /* size of the page */
} fig_fork_check;

/* fig_fork_check_close() accepts a zeroed struct. */
fig_status fig_fork_check_open(fig_fork_check *check);
void fig_fork_check_close(fig_fork_check *check);

static inline int fig_fork_check_is_child(const fig_fork_check *check) {
    return *check->word == 0;
}

#endif
