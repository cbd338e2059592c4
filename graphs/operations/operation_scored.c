/* operation_scored.c: checks attention with a score.
 *
 * Invariant: every array of a node's score has a tensor of its dtype with at least its elements, so
 * an index that is clamped to the score's count stays inside the tensor. */
#include "graphs/operations/operation_parts.h"

#include <inttypes.h>

#include "graphs/view/score_units.h"
#include "planner/status.h"

static fig_status check_array(const fig_operand_node *o, uint32_t array,
                              const fig_score_extent *extent) {
    static const fig_operand_form form = {1, {FIG_OPERAND_ANY}, FIG_OPERAND_ANY};
    const uint32_t operand = FIG_SCORED_ARRAY + array;
    const fig_tensor_record *tensor = fig_operand_tensor(o, operand);
    if (extent->dtype == 0) { /* the score has no such array */
        if (tensor == NULL) return FIG_OK;
        return fig_operand_refuse(o, FIG_INVALID, "%s is there, the score has %" PRIu32 " arrays",
                                  fig_operand_name(o, operand), array);
    }
    if (tensor == NULL)
        return fig_operand_refuse(o, FIG_INVALID, "%s is absent, the score reads it",
                                  fig_operand_name(o, operand));
    FIG_TRY(fig_operand_check_like(o, operand, &form, extent->dtype));
    if (tensor->symbol == FIG_SYMBOL_NONE && tensor->dims[0] >= extent->count) return FIG_OK;
    return fig_operand_refuse(o, FIG_INVALID,
                              "%s: dims[0] must be a number, at least the %" PRId32
                              " elements that the score says",
                              fig_operand_name(o, operand), extent->count);
}

fig_status fig_operation_scored_check(const fig_operand_node *o) {
    fig_scored_attributes attributes;
    fig_score_code code;
    FIG_TRY(fig_operation_attention_check(o));
    FIG_OPERAND_ATTRIBUTES(o, 0, &attributes);
    if (attributes.score < 1 || attributes.score > fig_score_units_count(o->view))
        return fig_operand_refuse(o, FIG_FORMAT, "score is %" PRIu32 ", the program has %" PRIu32,
                                  attributes.score, fig_score_units_count(o->view));
    fig_score_units_code(o->view, attributes.score, &code);
    for (uint32_t i = 0; i < FIG_SCORE_ARRAY_LIMIT; i++)
        FIG_TRY(check_array(o, i, &code.arrays[i]));
    if (fig_operand_tensor(o, FIG_ATTENTION_ALIBI) != NULL || attributes.attention.soft_cap != 0.0f)
        return fig_operand_refuse(o, FIG_INVALID, "%s is given beside a score",
                                  fig_operand_tensor(o, FIG_ATTENTION_ALIBI) != NULL ? "alibi"
                                                                                     : "soft_cap");
    if (code.weights != FIG_SCORE_SOFTMAX && fig_operand_tensor(o, FIG_ATTENTION_SINKS) != NULL)
        return fig_operand_refuse(o, FIG_INVALID,
                                  "sinks are given, but the weights are those of a sigmoid");
    return FIG_OK;
}
