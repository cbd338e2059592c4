/* invoke_cache.c: checks a cache and its page table, and describes them.
 *
 * The dims of one page, in memory, are tokens, heads, head_dim, or heads, tokens, head_dim under
 * HND. A dense sequence is one page, so a dense cache of one row may come without its first dim.
 * Invariant: no read of a sound length leaves the arrays, since a row's tokens end with its page or
 * with its row of the page table. */
#include "ffi/invoke_cache.h"

#include <inttypes.h>

#include "planner/status.h"

static fig_status check_cache(const fig_invoke *invoke, const fig_array *array,
                              const fig_invoke_cache *cache, int64_t *pages, int64_t *tokens) {
    const int is_single = array->rank == 3;
    if (!is_single) FIG_TRY(fig_array_check_rank(array, 4));
    const int32_t first = is_single ? 0 : 1;
    const int32_t heads_dim = first + (cache->layout == FIG_NHD ? 1 : 0);
    const int32_t tokens_dim = first + (cache->layout == FIG_NHD ? 0 : 1);
    FIG_TRY(fig_array_check_dim(array, heads_dim, invoke->recipe.kv_heads));
    FIG_TRY(fig_array_check_dim(array, first + 2, invoke->recipe.head_dim));
    FIG_TRY(fig_array_check_dense(array));
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
    const fig_array *table = cache->page_table;
    int64_t tokens;
    FIG_TRY(fig_array_check_rank(table, 2));
    FIG_TRY(fig_array_check_dtype(table, FIG_I32));
    FIG_TRY(fig_array_check_dim(table, 0, invoke->rows));
    FIG_TRY(fig_array_check_dense(table));
    if (page < 1 || page > INT32_MAX)
        return fig_fail(FIG_INVALID, "%s has pages of %" PRId64 " tokens", cache->k->name, page);
    if (__builtin_mul_overflow(table->dims[1], page, &tokens)) tokens = INT64_MAX;
    invoke->recipe.page_size = (int32_t)page;
    invoke->kv_length = tokens;
    FIG_TRY(fig_recipe_round_tokens(tokens, &invoke->recipe.kv_limit));
    fig_invoke_add(invoke, FIG_SLOT_PAGE_TABLE, table);
    return FIG_OK;
}

static fig_status take_scale(fig_invoke *invoke, fig_slot slot, const fig_array *scale) {
    if (!fig_array_is_present(scale)) return FIG_OK;
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
        if (cache->k->rank == 4) FIG_TRY(fig_array_check_dim(cache->k, 0, invoke->rows));
        if (cache->k->rank == 3 && invoke->rows > 1)
            return fig_fail(FIG_INVALID, "%s has one sequence, q has %" PRId64 " rows",
                            cache->k->name, invoke->rows);
        invoke->kv_length = tokens;
        FIG_TRY(fig_recipe_round_tokens(tokens, &invoke->recipe.kv_limit));
    }
    fig_invoke_add(invoke, FIG_SLOT_K_CACHE, cache->k);
    fig_invoke_add(invoke, FIG_SLOT_V_CACHE, cache->v);
    FIG_TRY(take_scale(invoke, FIG_SLOT_K_SCALE, cache->k_scale));
    return take_scale(invoke, FIG_SLOT_V_SCALE, cache->v_scale);
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
