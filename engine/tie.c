/* tie.c: count the ends of a tie, on any thread.
 *
 * Invariant: what a graph that is gone has read, it read before its end was let go. */
#include "engine/tie.h"

#include <assert.h>
#include <stdlib.h>

struct fig_tie {
    uint32_t ends;
};

fig_tie *fig_tie_create(void) {
    fig_tie *tie = calloc(1, sizeof *tie);
    if (tie != NULL) tie->ends = 1;
    return tie;
}

/* Partner: the release in fig_tie_drop, of which this may follow one but needs nothing of it. */
void fig_tie_take(fig_tie *tie) {
    __atomic_add_fetch(&tie->ends, 1, __ATOMIC_ACQUIRE);
}

/* Releases to the acquire in fig_tie_pieces; and acquires what the others have released, since the
 * last frees. */
void fig_tie_drop(void *end) {
    fig_tie *tie = end;
    if (tie == NULL) return;
    const uint32_t left = __atomic_sub_fetch(&tie->ends, 1, __ATOMIC_ACQ_REL);
    assert(left != UINT32_MAX);
    if (left == 0) free(tie);
}

/* Partner: the release in fig_tie_drop. */
uint32_t fig_tie_pieces(const fig_tie *tie) {
    return __atomic_load_n(&tie->ends, __ATOMIC_ACQUIRE) - 1;
}
