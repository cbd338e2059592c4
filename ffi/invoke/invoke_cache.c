/* invoke_cache.c: checks a cache and its page table, and describes them.
 *
 * The dims of one page, in memory, are tokens, heads, head_dim, or heads, tokens, head_dim under
 * HND. In a latent cache they are tokens and the numbers or bytes of a token. A dense sequence is
 * one page, so a dense cache of one row may come without its first dim.
 * Invariant: for a valid length no read leaves the arrays, because a row's tokens end with its page
 * or with its row of the page table. */
#include "ffi/invoke/invoke_cache.h"

#include <inttypes.h>

#include "kernels/latent/latent.h"
#include "planner/spec/spec.h"
#include "planner/status.h"

fig_status fig_invoke_cache_take_tokens(fig_invoke *invoke, fig_array *array) {
    const int64_t tokens = array->dims[1];
    if (tokens < 1 || tokens > FIG_ROW_TOKENS_LIMIT)
        return fig_fail(FIG_INVALID, "%s has %" PRId64 " tokens a row, limits 1 to %d", array->name,
                        tokens, FIG_ROW_TOKENS_LIMIT);
    invoke->recipe.row_tokens = tokens > 1 ? (int32_t)tokens : 0;
    return fig_array_join(array);
}

fig_status fig_invoke_cache_take_queries(fig_invoke *invoke, const fig_invoke_queries *queries,
                                         const fig_array *tokens, const fig_array *lengths) {
    const int64_t given = queries->row_tokens;
    if (given < 0 || given > FIG_CHUNK_TOKENS_LIMIT)
        return fig_fail(FIG_INVALID, "row_tokens is %" PRId64 ", limits 0 to %d", given,
                        FIG_CHUNK_TOKENS_LIMIT);
    const int is_given = fig_array_is_present(lengths);
    /* Where lengths may be absent, a caller passes those of no rows as an empty array, too. */
    const int has_rows = queries->start_loc.rank != 1 || queries->start_loc.dims[0] != 1;
    if (!is_given && has_rows) return fig_fail(FIG_INVALID, "lengths are not given");
    FIG_TRY(fig_array_check_rank(tokens, 3));
    if (is_given) FIG_TRY(fig_array_check_rank(lengths, 1));
    invoke->tokens = tokens->dims[0];
    invoke->rows = is_given ? lengths->dims[0] : 0;
    invoke->recipe.row_tokens = given > 0 ? (int32_t)given : FIG_NARROW_TOKENS_LIMIT;
    return fig_invoke_cache_take_starts(invoke, &queries->start_loc);
}

/* Removes the rows of a cache or page table that the call does not use. */
static fig_status cut_rows(const fig_invoke *invoke, fig_array *array) {
    FIG_TRY(fig_array_check_least(array, 0, invoke->rows));
    array->dims[0] = invoke->rows;
    return FIG_OK;
}

static fig_status check_cache(const fig_invoke *invoke, const fig_array *array,
                              const fig_invoke_cache *cache, int64_t *pages, int64_t *tokens) {
    const int is_single = array->rank == 3;
    if (!is_single) FIG_TRY(fig_array_check_rank(array, 4));
    const int32_t first = is_single ? 0 : 1;
    const int32_t heads_dim = first + (cache->layout == FIG_NHD ? 1 : 0);
    const int32_t tokens_dim = first + (cache->layout == FIG_NHD ? 0 : 1);
    FIG_TRY(fig_array_check_dim(array, heads_dim, invoke->recipe.kv_heads));
    FIG_TRY(fig_array_check_dim(array, first + 2, invoke->recipe.head_dim));
    FIG_TRY(fig_array_check_rows(array));
    *pages = is_single ? 1 : array->dims[0];
    *tokens = array->dims[tokens_dim];
    return FIG_OK;
}

static fig_status check_dtype(const fig_invoke *invoke, const fig_array *array) {
    const fig_dtype dtype = array->dtype;
    if (dtype == invoke->recipe.dtype || dtype == FIG_E4M3 || dtype == FIG_E5M2) return FIG_OK;
    return fig_fail(FIG_ARRAY_WRONG_TYPE,
                    "%s is %s, it must have the type of q, or float8_e4m3fn or float8_e5m2",
                    array->name, array->type);
}

static fig_status take_paged(fig_invoke *invoke, const fig_invoke_cache *cache, int64_t page) {
    fig_array *table = cache->page_table;
    int64_t tokens;
    FIG_TRY(fig_array_check_rank(table, 2));
    FIG_TRY(fig_array_check_dtype(table, FIG_I32));
    FIG_TRY(cut_rows(invoke, table));
    FIG_TRY(fig_array_check_rows(table));
    if (page < 1 || page > INT32_MAX)
        return fig_fail(FIG_INVALID, "%s has pages of %" PRId64 " tokens", cache->k->name, page);
    if (__builtin_mul_overflow(table->dims[1], page, &tokens)) tokens = INT64_MAX;
    invoke->recipe.page_size = (int32_t)page;
    invoke->kv_length = tokens;
    fig_invoke_add(invoke, FIG_SLOT_PAGE_TABLE, table);
    return FIG_OK;
}

/* Takes a scale: one number for all heads, possibly without a dim, or one number for each head. */
static fig_status take_scale(fig_invoke *invoke, fig_slot slot, fig_array *scale) {
    if (!fig_array_is_present(scale)) return FIG_OK;
    if (scale->rank == 0) {
        scale->rank = 1;
        scale->dims[0] = scale->strides[0] = 1;
    }
    FIG_TRY(fig_array_check_rank(scale, 1));
    FIG_TRY(fig_array_check_dtype(scale, FIG_F32));
    FIG_TRY(fig_array_check_dense(scale));
    if (scale->dims[0] != 1) FIG_TRY(fig_array_check_dim(scale, 0, invoke->recipe.kv_heads));
    if (invoke->recipe.scales != 0) FIG_TRY(fig_array_check_dim(scale, 0, invoke->recipe.scales));
    invoke->recipe.scales = (int32_t)scale->dims[0];
    fig_invoke_add(invoke, slot, scale);
    return FIG_OK;
}

fig_status fig_invoke_cache_take(fig_invoke *invoke, const fig_invoke_cache *cache) {
    int64_t pages, tokens, v_pages, v_tokens;
    if (cache->layout != FIG_NHD && cache->layout != FIG_HND)
        return fig_fail(FIG_INVALID, "kv_layout_code is %" PRId64 ", it must be 0, NHD, or 1, HND",
                        cache->layout);
    FIG_TRY(check_cache(invoke, cache->k, cache, &pages, &tokens));
    FIG_TRY(check_cache(invoke, cache->v, cache, &v_pages, &v_tokens));
    FIG_TRY(fig_array_check_alike(cache->v, cache->k));
    FIG_TRY(check_dtype(invoke, cache->k));
    FIG_TRY(fig_array_check_dtype(cache->v, cache->k->dtype));
    invoke->recipe.layout = (fig_kv_layout)cache->layout;
    invoke->recipe.kv_dtype = cache->k->dtype;
    if (fig_array_is_present(cache->page_table)) {
        FIG_TRY(take_paged(invoke, cache, tokens));
    } else {
        if (cache->k->rank == 4) {
            FIG_TRY(cut_rows(invoke, cache->k));
            FIG_TRY(cut_rows(invoke, cache->v));
        }
        if (cache->k->rank == 3 && invoke->rows > 1)
            return fig_fail(FIG_INVALID, "%s has one sequence, q has %" PRId64 " rows",
                            cache->k->name, invoke->rows);
        invoke->kv_length = tokens;
    }
    FIG_TRY(fig_recipe_round_tokens(&invoke->kv_length, fig_array_is_present(cache->lengths),
                                    &invoke->recipe.kv_limit));
    FIG_TRY(fig_invoke_cache_take_lengths(invoke, cache->lengths));
    fig_invoke_add(invoke, FIG_SLOT_K_CACHE, cache->k);
    fig_invoke_add(invoke, FIG_SLOT_V_CACHE, cache->v);
    FIG_TRY(take_scale(invoke, FIG_SLOT_K_SCALE, cache->k_scale));
    return take_scale(invoke, FIG_SLOT_V_SCALE, cache->v_scale);
}

/* Sets the dtype and checks the size of a token. Codes are bytes, which have no dtype of their
 * own. */
static fig_status check_latents(fig_invoke *invoke, const fig_array *array) {
    fig_recipe *recipe = &invoke->recipe;
    const int is_codes = fig_array_is_bytes(array);
    FIG_TRY(fig_array_check_rank(array, 3));
    if (is_codes && recipe->dtype == FIG_F32)
        return fig_fail(FIG_ARRAY_WRONG_TYPE,
                        "%s is uint8, but q is float32, it must be float16 or bfloat16",
                        array->name);
    if (!is_codes && array->dtype != recipe->dtype)
        return fig_fail(FIG_ARRAY_WRONG_TYPE, "%s is %s, it must have the type of q, or uint8",
                        array->name, array->type);
    recipe->kv_dtype = is_codes ? FIG_E4M3 : recipe->dtype;
    FIG_TRY(fig_array_check_dim(array, 2, fig_latent_width((int32_t)recipe->kv_dtype)));
    return fig_array_check_rows(array);
}

fig_status fig_invoke_cache_take_latent(fig_invoke *invoke, const fig_invoke_cache *cache) {
    fig_array *latents = cache->k;
    const int has_lengths = fig_array_is_present(cache->lengths);
    FIG_TRY(check_latents(invoke, latents));
    if (fig_array_is_present(cache->page_table)) {
        FIG_TRY(take_paged(invoke, cache, latents->dims[1]));
    } else {
        FIG_TRY(cut_rows(invoke, latents));
        invoke->kv_length = latents->dims[1];
    }
    FIG_TRY(fig_recipe_round_tokens(&invoke->kv_length, has_lengths, &invoke->recipe.kv_limit));
    FIG_TRY(fig_invoke_cache_take_lengths(invoke, cache->lengths));
    fig_invoke_add(invoke, FIG_SLOT_LATENT_CACHE, latents);
    return FIG_OK;
}

fig_status fig_invoke_cache_take_lengths(fig_invoke *invoke, const fig_array *lengths) {
    if (!fig_array_is_present(lengths)) return FIG_OK;
    FIG_TRY(fig_array_check_rank(lengths, 1));
    FIG_TRY(fig_array_check_dtype(lengths, FIG_I32));
    FIG_TRY(fig_array_check_dim(lengths, 0, invoke->rows));
    FIG_TRY(fig_array_check_dense(lengths));
    fig_invoke_add(invoke, FIG_SLOT_LENGTHS, lengths);
    return FIG_OK;
}

fig_status fig_invoke_cache_take_starts(fig_invoke *invoke, const fig_array *query_start_loc) {
    FIG_TRY(fig_array_check_rank(query_start_loc, 1));
    FIG_TRY(fig_array_check_dtype(query_start_loc, FIG_I32));
    FIG_TRY(fig_array_check_dim(query_start_loc, 0, invoke->rows + 1));
    FIG_TRY(fig_array_check_dense(query_start_loc));
    fig_invoke_add(invoke, FIG_SLOT_QUERY_STARTS, query_start_loc);
    return FIG_OK;
}
