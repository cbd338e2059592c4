/* invoke_cache.h: reads a caller's KV cache, paged or dense, NHD or HND, into a recipe.
 *
 * K and V may be separate arrays or interleaved in one. Invariant: after a cache is taken, the
 * recipe describes a program over this cache, and no row can be longer than its kv_limit. */
#ifndef FIG_FFI_INVOKE_CACHE_H
#define FIG_FFI_INVOKE_CACHE_H

#include "ffi/invoke/invoke.h"

typedef struct fig_invoke_cache {
    fig_array *k; /* or the latent cache */
    fig_array *v, *page_table, *lengths, *k_scale, *v_scale;
    int64_t layout; /* 0: NHD, 1: HND */
} fig_invoke_cache;

/* Reads the number of query tokens per row from an array [rows][tokens][heads][head_dim], and joins
 * the array's first two dims. */
fig_status fig_invoke_cache_take_tokens(fig_invoke *invoke, fig_array *array);

/* Takes the number of query tokens of each row; rows may differ in this number. The first dim of
 * `tokens` counts the query tokens of all rows. Sets invoke->rows from the array of lengths. */
fig_status fig_invoke_cache_take_queries(fig_invoke *invoke, const fig_invoke_queries *queries,
                                         const fig_array *tokens, const fig_array *lengths);

/* Takes the cache and its lengths. The recipe's heads and head_dim, and invoke->rows, must be set
 * before. */
fig_status fig_invoke_cache_take(fig_invoke *invoke, const fig_invoke_cache *cache);

/* Takes a latent cache, [pages][page_size][values] with a page table, otherwise
 * [rows][tokens][values], and its lengths. Sets the recipe's kv_dtype. */
fig_status fig_invoke_cache_take_latent(fig_invoke *invoke, const fig_invoke_cache *cache);

/* The first function takes lengths, i32 [rows], if they are present. The second takes
 * query_start_loc, i32 [rows + 1]. */
fig_status fig_invoke_cache_take_lengths(fig_invoke *invoke, const fig_array *lengths);
fig_status fig_invoke_cache_take_starts(fig_invoke *invoke, const fig_array *query_start_loc);

#endif
