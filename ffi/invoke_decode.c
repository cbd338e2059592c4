/* invoke_decode.c: RoPE, the cache's new token, and attention, in one.
 *
 * Invariant: lengths are there: without them nobody says where a token goes. */
#include "ffi/invoke.h"
#include "planner/status.h"

static fig_status check_token(const fig_invoke *invoke, const fig_array *array) {
    FIG_TRY(fig_array_check_rank(array, 3));
    FIG_TRY(fig_array_check_dtype(array, invoke->recipe.dtype));
    FIG_TRY(fig_array_check_dim(array, 0, invoke->rows));
    FIG_TRY(fig_array_check_dim(array, 1, invoke->recipe.kv_heads));
    FIG_TRY(fig_array_check_dim(array, 2, invoke->recipe.head_dim));
    return fig_array_check_rows(array);
}

fig_status fig_invoke_decode_describe(fig_invoke *invoke, const fig_invoke_decode *d) {
    fig_recipe *recipe = &invoke->recipe;
    FIG_TRY(fig_array_check_rank(&d->attention.q, 3));
    FIG_TRY(fig_invoke_attention_describe(invoke, &d->attention));
    FIG_TRY(check_token(invoke, &d->k));
    FIG_TRY(check_token(invoke, &d->v));
    if (!fig_array_is_present(&d->attention.lengths))
        return fig_fail(FIG_INVALID, "lengths are not given");
    recipe->kind = FIG_RECIPE_DECODE;
    recipe->rope = d->rope;
    if (recipe->rope.rotary_dim == 0) recipe->rope.rotary_dim = recipe->head_dim;
    fig_invoke_add(invoke, FIG_SLOT_K, &d->k);
    fig_invoke_add(invoke, FIG_SLOT_V, &d->v);
    return FIG_OK;
}
