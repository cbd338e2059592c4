/* invoke_cache.h: a KV cache as callers have one, paged or dense, NHD or HND.
 *
 * Invariant: what is left in a recipe by take describes the cache's program, and rows of it can be
 * as long as `tokens` says. */
#ifndef FIG_FFI_INVOKE_CACHE_H
#define FIG_FFI_INVOKE_CACHE_H

#include "ffi/invoke.h"

typedef struct fig_invoke_cache {
    const fig_array *k, *v, *page_table, *k_scale, *v_scale;
    int64_t layout; /* 0: NHD, 1: HND */
} fig_invoke_cache;

/* heads, head_dim and rows are those of the recipe and the invoke, set before. */
fig_status fig_invoke_cache_take(fig_invoke *invoke, const fig_invoke_cache *cache);

/* [rows] i32, where it is there. */
fig_status fig_invoke_cache_take_lengths(fig_invoke *invoke, const fig_array *lengths);

#endif
