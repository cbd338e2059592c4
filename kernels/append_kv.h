/* append_kv.h: one head put into the cache on the host, for every twin that appends.
 *
 * Invariant: nothing outside the cache is written, whatever the page table says. */
#ifndef FIG_KERNELS_APPEND_KV_H
#define FIG_KERNELS_APPEND_KV_H

#include "kernels/cache.h"

/* Where a query token stands. */
typedef struct fig_append_kv_place {
    fig_cache_sequence sequence;
    int32_t token; /* of the sequence */
} fig_append_kv_place;

/* 0: the token, of the step's, stands nowhere, since its row is idle. */
int fig_append_kv_find(const fig_append_kv_params *p, int32_t number, fig_append_kv_place *place);
/* A head of k (is_v 0) or of v, which begins at element `at` of an array of p->dtype. */
void fig_append_kv_store(const fig_append_kv_params *p, const fig_append_kv_place *place, int is_v,
                         int32_t head, const void *from, int64_t at);

#endif
