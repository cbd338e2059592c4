/* invoke_latent.c: describes attention over a latent cache, and RoPE, norm, append and attention as
 * one operation.
 *
 * Invariant: lengths on the device are not trusted, so the call also passes the largest number of
 * tokens that a row may have. */
#include <inttypes.h>

#include "ffi/invoke/invoke_attention.h"
#include "ffi/invoke/invoke_cache.h"
#include "kernels/latent/latent.h"
#include "planner/status.h"

/* Checks q_rope, if it is given. q has been checked, and is as the caller gave it. */
static fig_status check_rope(fig_invoke_latent *l) {
    const int32_t rank = l->q.rank;
    if (!fig_array_is_present(&l->q_rope)) return FIG_OK;
    FIG_TRY(fig_array_check_rank(&l->q_rope, rank));
    FIG_TRY(fig_array_check_dtype(&l->q_rope, l->q.dtype));
    for (int32_t i = 0; i < rank - 1; i++)
        FIG_TRY(fig_array_check_dim(&l->q_rope, i, l->q.dims[i]));
    FIG_TRY(fig_array_check_dim(&l->q_rope, rank - 1, FIG_LATENT_ROPE_DIM));
    FIG_TRY(fig_array_check_rows(&l->q_rope));
    return rank == 4 ? fig_array_join(&l->q_rope) : FIG_OK;
}

/* Returns 1 if q has 512 values a head. The q_rope of no tokens is an empty array, which counts as
 * absent. */
static int is_apart(const fig_invoke_latent *l) {
    const int has_512 = l->q.dims[l->q.rank - 1] == FIG_LATENT_DIM;
    return fig_array_is_present(&l->q_rope) || (l->q.dims[0] == 0 && has_512);
}

/* Checks q and out, and takes their heads and query tokens. */
static fig_status take_heads(fig_invoke *invoke, fig_invoke_latent *l) {
    fig_recipe *recipe = &invoke->recipe;
    const int32_t rank = l->q.rank;
    if (rank != 4) FIG_TRY(fig_array_check_rank(&l->q, 3));
    FIG_TRY(fig_array_check_activation(&l->q));
    FIG_TRY(
        fig_array_check_dim(&l->q, rank - 1, is_apart(l) ? FIG_LATENT_DIM : FIG_LATENT_KEY_DIM));
    const int64_t q_heads = l->q.dims[rank - 2];
    if (q_heads < 1 || q_heads > FIG_LATENT_HEAD_LIMIT || q_heads % FIG_LATENT_HEAD_UNIT != 0)
        return fig_fail(FIG_INVALID,
                        "q has %" PRId64 " heads, it must be a multiple of %d, limit %d", q_heads,
                        FIG_LATENT_HEAD_UNIT, FIG_LATENT_HEAD_LIMIT);
    FIG_TRY(fig_array_check_rank(&l->out, rank));
    for (int32_t i = 0; i < rank - 1; i++)
        FIG_TRY(fig_array_check_dim(&l->out, i, l->q.dims[i]));
    FIG_TRY(fig_array_check_dim(&l->out, rank - 1, FIG_LATENT_DIM));
    FIG_TRY(fig_array_check_dtype(&l->out, l->q.dtype));
    FIG_TRY(fig_array_check_rows(&l->q));
    FIG_TRY(fig_array_check_rows(&l->out));
    FIG_TRY(fig_invoke_attention_check_lse(&l->lse, &l->q));
    FIG_TRY(check_rope(l));
    recipe->dtype = l->q.dtype;
    recipe->q_heads = (int32_t)q_heads;
    recipe->kv_heads = 1;
    recipe->head_dim = FIG_LATENT_KEY_DIM;
    invoke->rows = l->q.dims[0];
    const fig_invoke_heads heads = {&l->q, &l->out, &l->lse, &l->lengths, &l->queries};
    return fig_invoke_attention_take_tokens(invoke, &heads);
}

fig_status fig_invoke_latent_describe(fig_invoke *invoke, fig_invoke_latent *l) {
    const fig_invoke_cache cache = {
        .k = &l->cache, .page_table = &l->page_table, .lengths = &l->lengths};
    fig_recipe *recipe = &invoke->recipe;
    recipe->kind = FIG_RECIPE_LATENT;
    FIG_TRY(take_heads(invoke, l));
    if (!((float)l->sm_scale > 0)) /* the recipe holds it as a float, which may be 0 */
        return fig_fail(FIG_INVALID, "sm_scale is %g, it must be above 0", l->sm_scale);
    recipe->window = fig_invoke_attention_window(l->window_left);
    recipe->sm_scale = (float)l->sm_scale;
    recipe->deterministic = l->deterministic != 0;
    fig_invoke_add(invoke, FIG_SLOT_Q, &l->q);
    fig_invoke_add(invoke, FIG_SLOT_Q_ROPE, &l->q_rope);
    FIG_TRY(fig_invoke_cache_take_latent(invoke, &cache));
    FIG_TRY(fig_invoke_attention_take_per_head(invoke, FIG_SLOT_SINKS, &l->sinks));
    fig_invoke_add(invoke, FIG_SLOT_OUT, &l->out);
    fig_invoke_add(invoke, FIG_SLOT_LSE, &l->lse);
    return FIG_OK;
}

/* ---- What is appended */

/* Takes the array of new tokens. rank: the rank of the caller's q. */
static fig_status take_latent(fig_invoke *invoke, int32_t rank, fig_array *latent) {
    const int is_packed = fig_recipe_is_packed(&invoke->recipe);
    FIG_TRY(fig_array_check_rank(latent, rank - 1));
    FIG_TRY(fig_array_check_dtype(latent, invoke->recipe.dtype));
    FIG_TRY(fig_array_check_dim(latent, 0, is_packed ? invoke->tokens : invoke->rows));
    if (rank == 4) FIG_TRY(fig_array_check_dim(latent, 1, fig_recipe_tokens(&invoke->recipe)));
    FIG_TRY(fig_array_check_dim(latent, rank - 2, FIG_LATENT_KEY_DIM));
    FIG_TRY(fig_array_check_rows(latent));
    if (rank == 4) FIG_TRY(fig_array_join(latent));
    fig_invoke_add(invoke, FIG_SLOT_LATENT, latent);
    return FIG_OK;
}

static fig_status take_norm(fig_invoke *invoke, const fig_invoke_latent *l) {
    const int is_given = fig_array_is_present(&l->norm);
    if (!is_given && l->norm_epsilon != 0)
        return fig_fail(FIG_INVALID, "norm_epsilon is %g, but norm is not given", l->norm_epsilon);
    if (!is_given) return FIG_OK;
    if (!(l->norm_epsilon >= 0))
        return fig_fail(FIG_INVALID, "norm_epsilon is %g, it must be above 0", l->norm_epsilon);
    FIG_TRY(fig_array_check_rank(&l->norm, 1));
    FIG_TRY(fig_array_check_dim(&l->norm, 0, FIG_LATENT_DIM));
    FIG_TRY(fig_array_check_dtype(&l->norm, invoke->recipe.dtype));
    FIG_TRY(fig_array_check_dense(&l->norm));
    invoke->recipe.epsilon = (float)l->norm_epsilon;
    fig_invoke_add(invoke, FIG_SLOT_NORM, &l->norm);
    return FIG_OK;
}

static fig_status take_angles(fig_invoke *invoke, const fig_invoke_latent *l) {
    fig_recipe *recipe = &invoke->recipe;
    const int64_t tokens =
        fig_recipe_is_packed(recipe) ? invoke->tokens : invoke->rows * fig_recipe_tokens(recipe);
    recipe->rope = l->rope; /* the program checks rotary_dim */
    if (recipe->rope.rotary_dim == 0) recipe->rope.rotary_dim = FIG_LATENT_ROPE_DIM;
    FIG_TRY(fig_invoke_rope_take_positions(invoke, &l->positions, tokens));
    if (!fig_array_is_present(&l->cos_sin)) return FIG_OK;
    FIG_TRY(fig_invoke_rope_take_cos_sin(invoke, &l->cos_sin));
    return fig_array_check_dim(&l->cos_sin, 1, FIG_LATENT_ROPE_DIM);
}

fig_status fig_invoke_latent_describe_decode(fig_invoke *invoke, fig_invoke_latent *l) {
    const int32_t rank = l->q.rank;
    FIG_TRY(fig_invoke_latent_describe(invoke, l));
    FIG_TRY(take_latent(invoke, rank, &l->latent));
    /* Lengths of no rows are an empty array, which counts as absent. */
    if (!fig_array_is_present(&l->lengths) && invoke->rows > 0)
        return fig_fail(FIG_INVALID, "lengths are not given");
    invoke->recipe.kind = FIG_RECIPE_LATENT_DECODE;
    FIG_TRY(take_norm(invoke, l));
    return take_angles(invoke, l);
}
