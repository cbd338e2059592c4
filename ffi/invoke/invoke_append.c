/* invoke_append.c: describes the append of a step's k and v to a cache.
 *
 * Invariant: lengths are required, because they give the position of each token. */
#include "ffi/invoke/invoke_cache.h"
#include "planner/status.h"

fig_status fig_invoke_append_describe(fig_invoke *invoke, fig_invoke_append *append) {
    const fig_invoke_cache cache = {&append->k_cache, &append->v_cache, &append->page_table,
                                    &append->lengths, &append->k_scale, &append->v_scale,
                                    append->layout};
    fig_recipe *recipe = &invoke->recipe;
    FIG_TRY(fig_array_check_activation(&append->k));
    if (append->k.rank != 4) FIG_TRY(fig_array_check_rank(&append->k, 3));
    FIG_TRY(fig_array_check_alike(&append->v, &append->k));
    FIG_TRY(fig_array_check_dtype(&append->v, append->k.dtype));
    FIG_TRY(fig_array_check_rows(&append->k));
    FIG_TRY(fig_array_check_rows(&append->v));
    invoke->rows = append->k.dims[0];
    if (fig_array_is_present(&append->queries.start_loc)) {
        FIG_TRY(
            fig_invoke_cache_take_queries(invoke, &append->queries, &append->k, &append->lengths));
    } else if (append->k.rank == 4) {
        FIG_TRY(fig_invoke_cache_take_tokens(invoke, &append->k));
        FIG_TRY(fig_array_join(&append->v));
    }
    if (append->k.dims[1] > INT32_MAX || append->k.dims[2] > INT32_MAX)
        return fig_fail(FIG_TOO_LARGE, "k has more heads than can be counted");
    if (!fig_array_is_present(&append->lengths))
        return fig_fail(FIG_INVALID, "lengths are not given");
    recipe->kind = FIG_RECIPE_APPEND;
    recipe->dtype = append->k.dtype;
    recipe->q_heads = recipe->kv_heads = (int32_t)append->k.dims[1];
    recipe->head_dim = (int32_t)append->k.dims[2];
    fig_invoke_add(invoke, FIG_SLOT_K, &append->k);
    fig_invoke_add(invoke, FIG_SLOT_V, &append->v);
    return fig_invoke_cache_take(invoke, &cache);
}
