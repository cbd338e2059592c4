/* invoke_score.c: reads the score of an attention call into the call's description.
 *
 * Invariant: after fig_invoke_score_take(), every array has at least as many elements as the score
 * declares. */
#include "ffi/invoke/invoke_score.h"

#include <inttypes.h>

#include "ffi/known_scores.h"
#include "ffi/registry.h"
#include "planner/status.h"

/* Refuses ALiBi and a soft cap beside a score, which can express both. */
static fig_status check_alone(const fig_invoke_attention *a) {
    if (fig_array_is_present(&a->alibi))
        return fig_fail(FIG_INVALID, "alibi is given beside a score: write "
                                     "slope[head] * (kv_pos - q_pos) into the score");
    if (a->soft_cap > 0)
        return fig_fail(FIG_INVALID,
                        "logits_soft_cap is %g beside a score: write cap * tanh(x / cap) into the "
                        "score",
                        a->soft_cap);
    return FIG_OK;
}

/* Refuses arrays that a score does not have. */
static fig_status check_surplus(const fig_invoke_attention *a, uint32_t count) {
    for (uint32_t i = count; i < FIG_SCORE_ARRAY_LIMIT; i++)
        if (fig_array_is_present(&a->score_arrays[i]))
            return fig_fail(FIG_INVALID,
                            "score_array%" PRIu32 " is given, but the call's score has %" PRIu32
                            " arrays",
                            i, count);
    return FIG_OK;
}

/* Checks an array of a score. Messages use the name that the array has in the score. */
static fig_status check_array(const fig_score_array *of, fig_array *array) {
    const int64_t least = of->count > 0 ? of->count : 1;
    if (!fig_array_is_present(array))
        return fig_fail(FIG_INVALID, "score: array %s is not given", of->name);
    array->name = of->name;
    FIG_TRY(fig_array_check_rank(array, 1));
    FIG_TRY(fig_array_check_dtype(array, of->dtype));
    FIG_TRY(fig_array_check_dense(array));
    FIG_TRY(fig_array_check_least(array, 0, least));
    if (array->dims[0] <= INT32_MAX) return FIG_OK;
    return fig_fail(FIG_TOO_LARGE, "%s has %" PRId64 " elements, limit %d", of->name,
                    array->dims[0], INT32_MAX);
}

/* Returns 1 if attention can compute this score from alibi and soft_cap alone. */
static int is_plain(const fig_invoke *invoke, const fig_score *score, const fig_score_form *form,
                    const fig_invoke_attention *a) {
    const int32_t slopes = form->slope_array;
    if (!form->is_known) return 0;
    return slopes < 0 || (score->arrays[slopes].dtype == FIG_F32 &&
                          a->score_arrays[slopes].dims[0] == invoke->recipe.q_heads);
}

fig_status fig_invoke_score_take(fig_invoke *invoke, fig_invoke_attention *a) {
    fig_recipe *recipe = &invoke->recipe;
    const fig_score *score;
    if (a->score == 0) return check_surplus(a, 0);
    FIG_TRY(fig_known_scores_find(a->score, &score));
    FIG_TRY(check_alone(a));
    FIG_TRY(check_surplus(a, score->array_count));
    for (uint32_t i = 0; i < score->array_count; i++)
        FIG_TRY(check_array(&score->arrays[i], &a->score_arrays[i]));
    const fig_score_form form = fig_score_recognise(score);
    if (is_plain(invoke, score, &form, a)) {
        recipe->soft_cap = form.soft_cap;
        if (form.slope_array >= 0)
            fig_invoke_add(invoke, FIG_SLOT_ALIBI, &a->score_arrays[form.slope_array]);
        return FIG_OK;
    }
    recipe->score = a->score;
    recipe->compiles_scores = fig_registry_compiles_scores();
    for (uint32_t i = 0; i < score->array_count; i++) {
        recipe->score_counts[i] = (int32_t)a->score_arrays[i].dims[0];
        fig_invoke_add(invoke, FIG_SLOT_SCORE_ARRAY + i, &a->score_arrays[i]);
    }
    return FIG_OK;
}
