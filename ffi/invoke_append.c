/* invoke_append.c: the k and v of a step, into a cache.
 *
 * Invariant: lengths are there: without them nobody says where a token goes. */
#include "ffi/invoke_cache.h"
#include "planner/status.h"

fig_status fig_invoke_append_describe(fig_invoke *invoke, const fig_invoke_append *append) {
    const fig_invoke_cache cache = {&append->k_cache, &append->v_cache, &append->page_table,
                                    &append->k_scale, &append->v_scale, append->layout};
    fig_recipe *recipe = &invoke->recipe;
    FIG_TRY(fig_array_check_activation(&append->k));
    FIG_TRY(fig_array_check_rank(&append->k, 3));
    FIG_TRY(fig_array_check_alike(&append->v, &append->k));
    FIG_TRY(fig_array_check_dtype(&append->v, append->k.dtype));
    FIG_TRY(fig_array_check_rows(&append->k));
    FIG_TRY(fig_array_check_rows(&append->v));
    if (append->k.dims[1] > INT32_MAX || append->k.dims[2] > INT32_MAX)
        return fig_fail(FIG_TOO_LARGE, "k has more heads than can be counted");
    if (!fig_array_is_present(&append->lengths))
        return fig_fail(FIG_INVALID, "lengths are not given");
    invoke->rows = append->k.dims[0];
    recipe->kind = FIG_RECIPE_APPEND;
    recipe->dtype = append->k.dtype;
    recipe->q_heads = recipe->kv_heads = (int32_t)append->k.dims[1];
    recipe->head_dim = (int32_t)append->k.dims[2];
    fig_invoke_add(invoke, FIG_SLOT_K, &append->k);
    fig_invoke_add(invoke, FIG_SLOT_V, &append->v);
    FIG_TRY(fig_invoke_cache_take_lengths(invoke, &append->lengths));
    return fig_invoke_cache_take(invoke, &cache);
}
