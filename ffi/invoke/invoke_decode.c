/* invoke_decode.c: describes RoPE, append and attention as one operation.
 *
 * Invariant: lengths are required, because they give the position of each token. */
#include "ffi/invoke/invoke.h"
#include "planner/status.h"

/* Checks k or v. rank: the rank of the caller's q. */
static fig_status take_tokens(const fig_invoke *invoke, int32_t rank, fig_array *array) {
    const int64_t tokens = rank == 4 ? fig_recipe_tokens(&invoke->recipe) : 1;
    const int is_packed = fig_recipe_is_packed(&invoke->recipe);
    FIG_TRY(fig_array_check_rank(array, rank));
    FIG_TRY(fig_array_check_dtype(array, invoke->recipe.dtype));
    FIG_TRY(fig_array_check_dim(array, 0, is_packed ? invoke->tokens : invoke->rows));
    if (rank == 4) FIG_TRY(fig_array_check_dim(array, 1, tokens));
    FIG_TRY(fig_array_check_dim(array, rank - 2, invoke->recipe.kv_heads));
    FIG_TRY(fig_array_check_dim(array, rank - 1, invoke->recipe.head_dim));
    FIG_TRY(fig_array_check_rows(array));
    return rank == 4 ? fig_array_join(array) : FIG_OK;
}

/* Takes the arrays that give the RoPE angles. In a plain call, which rotates nothing, there must be
 * no such array, and the recipe's rotary_dim stays 0. */
static fig_status take_angles(fig_invoke *invoke, const fig_invoke_decode *d) {
    fig_recipe *recipe = &invoke->recipe;
    const int64_t tokens =
        fig_recipe_is_packed(recipe) ? invoke->tokens : invoke->rows * fig_recipe_tokens(recipe);
    const fig_array *unread = fig_array_is_present(&d->positions) ? &d->positions : &d->cos_sin;
    if (d->plain && fig_array_is_present(unread))
        return fig_fail(FIG_INVALID, "%s is given, but q and k are not to be rotated",
                        unread->name);
    if (d->plain) return FIG_OK;
    recipe->rope = d->rope;
    FIG_TRY(fig_invoke_rope_take_positions(invoke, &d->positions, tokens));
    FIG_TRY(fig_invoke_rope_take_cos_sin(invoke, &d->cos_sin));
    if (recipe->rope.rotary_dim == 0) recipe->rope.rotary_dim = recipe->head_dim;
    return FIG_OK;
}

fig_status fig_invoke_decode_describe(fig_invoke *invoke, fig_invoke_decode *d) {
    const int32_t rank = d->attention.q.rank;
    fig_recipe *recipe = &invoke->recipe;
    if (rank != 4) FIG_TRY(fig_array_check_rank(&d->attention.q, 3));
    FIG_TRY(fig_invoke_attention_describe(invoke, &d->attention));
    FIG_TRY(take_tokens(invoke, rank, &d->k));
    FIG_TRY(take_tokens(invoke, rank, &d->v));
    if (!fig_array_is_present(&d->attention.lengths))
        return fig_fail(FIG_INVALID, "lengths are not given");
    recipe->kind = FIG_RECIPE_DECODE;
    FIG_TRY(take_angles(invoke, d));
    fig_invoke_add(invoke, FIG_SLOT_K, &d->k);
    fig_invoke_add(invoke, FIG_SLOT_V, &d->v);
    return FIG_OK;
}
