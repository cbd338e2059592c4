/* invoke_gated.c: describes the gated activations, such as silu_and_mul, for arrays of any rank.
 *
 * Invariant: all dims except the last are rows, and are equal in both arrays. */
#include <inttypes.h>

#include "ffi/invoke/invoke.h"
#include "planner/status.h"

fig_status fig_invoke_gated_describe(fig_invoke *invoke, fig_activation activation,
                                     const fig_array *input, const fig_array *out) {
    FIG_TRY(fig_array_check_activation(input));
    FIG_TRY(fig_array_check_dtype(out, input->dtype));
    const int32_t last = input->rank - 1;
    if (last < 0 || input->dims[last] % 2 != 0)
        return fig_fail(FIG_INVALID, "input must be [..., 2 * width]: its last dim is even");
    FIG_TRY(fig_array_check_rank(out, input->rank));
    invoke->rows = 1;
    for (int32_t i = 0; i < last; i++) {
        FIG_TRY(fig_array_check_dim(out, i, input->dims[i]));
        if (__builtin_mul_overflow(invoke->rows, input->dims[i], &invoke->rows))
            return fig_fail(FIG_TOO_LARGE, "input has more rows than can be counted");
    }
    FIG_TRY(fig_array_check_dim(out, last, input->dims[last] / 2));
    FIG_TRY(fig_array_check_dense(input));
    FIG_TRY(fig_array_check_dense(out));
    if (out->dims[last] == 0) invoke->rows = 0;
    invoke->recipe.kind = FIG_RECIPE_GATED;
    invoke->recipe.activation = activation;
    invoke->recipe.dtype = input->dtype;
    invoke->recipe.width = out->dims[last];
    fig_invoke_add(invoke, FIG_SLOT_IN, input);
    fig_invoke_add(invoke, FIG_SLOT_OUT, out);
    return FIG_OK;
}
