/* append_kv.h: stores one head in the cache on the host, for every reference kernel that appends.
 *
 * Invariant: nothing outside the cache is written, whatever the page table holds. */
#ifndef FIG_KERNELS_APPEND_KV_H
#define FIG_KERNELS_APPEND_KV_H

#include "kernels/common/cache.h"

/* The place of a query token. */
typedef struct fig_append_kv_place {
    fig_cache_sequence sequence;
    int32_t token; /* number within the sequence */
} fig_append_kv_place;

/* Finds the place of query token `number` of the step. Returns 0 if the row is idle, because the
 * token then has no place. */
int fig_append_kv_find(const fig_append_kv_params *p, int32_t number, fig_append_kv_place *place);
/* Stores a head of k (is_v 0) or v, which begins at element `at` of an array of p->dtype. */
void fig_append_kv_store(const fig_append_kv_params *p, const fig_append_kv_place *place, int is_v,
                         int32_t head, const void *from, int64_t at);

#endif
