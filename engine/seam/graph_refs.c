/* graph_refs.c: counts references to an engine's memory, from any thread.
 *
 * Invariant: a graph drops its reference only after its last access to that memory. */
#include "engine/seam/graph_refs.h"

#include <assert.h>
#include <stdlib.h>

struct fig_graph_refs {
    uint32_t count;
};

fig_graph_refs *fig_graph_refs_create(void) {
    fig_graph_refs *refs = calloc(1, sizeof *refs);
    if (refs != NULL) refs->count = 1;
    return refs;
}

/* Partner: the release in fig_graph_refs_drop. This function needs nothing that the release
 * publishes. */
void fig_graph_refs_take(fig_graph_refs *refs) {
    __atomic_add_fetch(&refs->count, 1, __ATOMIC_ACQUIRE);
}

/* The release pairs with the acquire in fig_graph_refs_pieces. The acquire pairs with the releases
 * of other drops, because the last drop frees the struct. */
void fig_graph_refs_drop(void *reference) {
    fig_graph_refs *refs = reference;
    if (refs == NULL) return;
    const uint32_t left = __atomic_sub_fetch(&refs->count, 1, __ATOMIC_ACQ_REL);
    assert(left != UINT32_MAX);
    if (left == 0) free(refs);
}

/* Partner: the release in fig_graph_refs_drop. */
uint32_t fig_graph_refs_pieces(const fig_graph_refs *refs) {
    return __atomic_load_n(&refs->count, __ATOMIC_ACQUIRE) - 1;
}
