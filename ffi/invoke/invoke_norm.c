/* invoke_norm.c: describes RMSNorm of rows, or of the sum of rows and a residual.
 *
 * Invariant: all arrays except the weight have the same rows and width. */
#include "ffi/invoke/invoke.h"
#include "planner/status.h"

static fig_status check_rows(const fig_array *array, const fig_array *like) {
    FIG_TRY(fig_array_check_alike(array, like));
    FIG_TRY(fig_array_check_dtype(array, like->dtype));
    return fig_array_check_dense(array);
}

fig_status fig_invoke_norm_describe(fig_invoke *invoke, const fig_invoke_norm *norm) {
    fig_recipe *recipe = &invoke->recipe;
    FIG_TRY(fig_array_check_activation(&norm->input));
    FIG_TRY(fig_array_check_rank(&norm->input, 2));
    FIG_TRY(fig_array_check_dense(&norm->input));
    FIG_TRY(check_rows(&norm->out, &norm->input));
    if (fig_array_is_present(&norm->residual)) FIG_TRY(check_rows(&norm->residual, &norm->input));
    FIG_TRY(fig_array_check_rank(&norm->weight, 1));
    FIG_TRY(fig_array_check_dim(&norm->weight, 0, norm->input.dims[1]));
    FIG_TRY(fig_array_check_dtype(&norm->weight, norm->input.dtype));
    FIG_TRY(fig_array_check_dense(&norm->weight));
    if (!(norm->epsilon > 0))
        return fig_fail(FIG_INVALID, "epsilon is %g, it must be above 0", norm->epsilon);
    invoke->rows = norm->input.dims[1] == 0 ? 0 : norm->input.dims[0];
    recipe->kind = FIG_RECIPE_NORM;
    recipe->dtype = norm->input.dtype;
    recipe->width = norm->input.dims[1];
    recipe->epsilon = (float)norm->epsilon;
    recipe->weight_offset = (float)norm->weight_offset;
    fig_invoke_add(invoke, FIG_SLOT_IN, &norm->input);
    fig_invoke_add(invoke, FIG_SLOT_RESIDUAL, &norm->residual);
    fig_invoke_add(invoke, FIG_SLOT_WEIGHT, &norm->weight);
    fig_invoke_add(invoke, FIG_SLOT_OUT, &norm->out);
    return FIG_OK;
}
