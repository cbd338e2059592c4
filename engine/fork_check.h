/* fork_check.h: whether this process is the one that opened an engine, or a child forked from it.
 *
 * A fork copies an engine's memory, but neither its threads nor its device. One word on a page of
 * its own tells the two apart: the system clears the page in a child, so a look costs one load.
 * Where the system cannot, no process is a child. Invariant: the word changes in a fork alone. */
#ifndef FIG_ENGINE_FORK_CHECK_H
#define FIG_ENGINE_FORK_CHECK_H

#include <stddef.h>
#include <stdint.h>

#include "include/figraph.h"

typedef struct fig_fork_check {
    volatile uint32_t *word; /* 1; in a child 0 */
    size_t bytes;            /* of the page */
} fig_fork_check;

/* close takes a zeroed struct. */
fig_status fig_fork_check_open(fig_fork_check *check);
void fig_fork_check_close(fig_fork_check *check);

static inline int fig_fork_check_is_child(const fig_fork_check *check) {
    return *check->word == 0;
}

#endif
