/* invoke_rope.c: the rotation of q and k, by positions or in packed segments.
 *
 * Invariant: if an output is the same array as its input, the rotation is done in place; the runner
 * refuses any other overlap. */
#include <inttypes.h>

#include "ffi/invoke/invoke.h"
#include "planner/spec/spec.h"
#include "planner/status.h"

static fig_status check_heads(const fig_array *array, const fig_array *like) {
    FIG_TRY(fig_array_check_rank(array, 3));
    FIG_TRY(fig_array_check_rows(array));
    FIG_TRY(fig_array_check_activation(array));
    if (like == array) return FIG_OK;
    FIG_TRY(fig_array_check_dtype(array, like->dtype));
    FIG_TRY(fig_array_check_dim(array, 0, like->dims[0]));
    return fig_array_check_dim(array, 2, like->dims[2]);
}

static int is_same(const fig_array *out, const fig_array *in) {
    if (out->data != in->data) return 0;
    for (int32_t i = 0; i < out->rank; i++)
        if (out->dims[i] > 1 && out->strides[i] != in->strides[i]) return 0;
    return 1;
}

static fig_status add_out(fig_invoke *invoke, fig_slot slot, const fig_array *out,
                          const fig_array *in) {
    FIG_TRY(check_heads(out, in));
    FIG_TRY(fig_array_check_alike(out, in));
    if (!is_same(out, in)) fig_invoke_add(invoke, slot, out);
    return FIG_OK;
}

static fig_status add_index(fig_invoke *invoke, fig_slot slot, const fig_array *array) {
    FIG_TRY(fig_array_check_rank(array, 1));
    FIG_TRY(fig_array_check_integers(array));
    FIG_TRY(fig_array_check_dense(array));
    invoke->recipe.index_dtype = array->dtype;
    fig_invoke_add(invoke, slot, array);
    return FIG_OK;
}

fig_status fig_invoke_rope_take_positions(fig_invoke *invoke, const fig_array *positions,
                                          int64_t tokens) {
    if (!fig_array_is_present(positions)) return FIG_OK;
    FIG_TRY(add_index(invoke, FIG_SLOT_POSITIONS, positions));
    return fig_array_check_dim(positions, 0, tokens);
}

static fig_status add_positions(fig_invoke *invoke, const fig_invoke_rope *rope) {
    if (fig_array_is_present(&rope->positions)) {
        if (fig_array_is_present(&rope->indptr) || fig_array_is_present(&rope->offsets))
            return fig_fail(FIG_INVALID, "positions and indptr are both given");
        return fig_invoke_rope_take_positions(invoke, &rope->positions, rope->q.dims[0]);
    }
    if (!fig_array_is_present(&rope->indptr) || !fig_array_is_present(&rope->offsets))
        return fig_fail(FIG_INVALID, "neither positions nor both indptr and offsets are given");
    FIG_TRY(add_index(invoke, FIG_SLOT_OFFSETS, &rope->offsets));
    FIG_TRY(add_index(invoke, FIG_SLOT_INDPTR, &rope->indptr));
    FIG_TRY(fig_array_check_dtype(&rope->offsets, rope->indptr.dtype));
    invoke->recipe.segments = FIG_SEQUENCE_LIMIT;
    if (rope->offsets.dims[0] < 1 || rope->offsets.dims[0] > FIG_SEQUENCE_LIMIT)
        return fig_fail(FIG_INVALID, "offsets has %" PRId64 " segments, limits 1 to %d",
                        rope->offsets.dims[0], FIG_SEQUENCE_LIMIT);
    return fig_array_check_dim(&rope->indptr, 0, rope->offsets.dims[0] + 1);
}

fig_status fig_invoke_rope_take_cos_sin(fig_invoke *invoke, const fig_array *cos_sin) {
    if (!fig_array_is_present(cos_sin)) return FIG_OK;
    FIG_TRY(fig_array_check_rank(cos_sin, 2));
    FIG_TRY(fig_array_check_dtype(cos_sin, FIG_F32));
    FIG_TRY(fig_array_check_dense(cos_sin));
    invoke->recipe.positions = cos_sin->dims[0];
    if (invoke->recipe.rope.rotary_dim == 0)
        invoke->recipe.rope.rotary_dim = (int32_t)cos_sin->dims[1]; /* the program checks it */
    fig_invoke_add(invoke, FIG_SLOT_COS_SIN, cos_sin);
    return FIG_OK;
}

fig_status fig_invoke_rope_describe(fig_invoke *invoke, const fig_invoke_rope *rope) {
    FIG_TRY(check_heads(&rope->q, &rope->q));
    FIG_TRY(check_heads(&rope->k, &rope->q));
    if (rope->q.dims[1] > INT32_MAX || rope->k.dims[1] > INT32_MAX || rope->q.dims[2] > INT32_MAX)
        return fig_fail(FIG_TOO_LARGE, "q or k has more heads than can be counted");
    fig_recipe *recipe = &invoke->recipe;
    invoke->rows = rope->q.dims[0];
    recipe->kind = FIG_RECIPE_ROPE;
    recipe->dtype = rope->q.dtype;
    recipe->q_heads = (int32_t)rope->q.dims[1];
    recipe->kv_heads = (int32_t)rope->k.dims[1];
    recipe->head_dim = (int32_t)rope->q.dims[2];
    recipe->rope = rope->rope;
    fig_invoke_add(invoke, FIG_SLOT_Q, &rope->q);
    fig_invoke_add(invoke, FIG_SLOT_K, &rope->k);
    FIG_TRY(add_positions(invoke, rope));
    FIG_TRY(fig_invoke_rope_take_cos_sin(invoke, &rope->cos_sin));
    if (recipe->rope.rotary_dim == 0) recipe->rope.rotary_dim = recipe->head_dim;
    FIG_TRY(add_out(invoke, FIG_SLOT_OUT, &rope->q_out, &rope->q));
    FIG_TRY(add_out(invoke, FIG_SLOT_K_OUT, &rope->k_out, &rope->k));
    if (recipe->q_heads == 0 || recipe->kv_heads == 0 || recipe->head_dim == 0) invoke->rows = 0;
    return FIG_OK;
}
