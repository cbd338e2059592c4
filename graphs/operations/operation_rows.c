/* operation_rows.c: checks the operations that work row by row: the plan, the gated activation, the
 * norm and the collectives.
 *
 * Invariant: the width of a written row follows from the widths of the rows from which it is
 * computed. */
#include "graphs/operations/operation_parts.h"

#include <inttypes.h>
#include <math.h>

#include "include/figraph_parallel.h"
#include "planner/spec/spec.h"
#include "planner/status.h"

/* Checks that the plan is made once, before any node reads it. */
fig_status fig_operation_rows_check_plan(const fig_operand_node *o) {
    static const fig_operand_form rows = {1, {FIG_DIM_BATCH}, 1};
    if (o->index != 0)
        return fig_operand_refuse(o, FIG_INVALID, "it must be the first node, and the only one");
    FIG_TRY(fig_operand_check_like(o, FIG_PLAN_IN_LENGTHS, &rows, FIG_I32));
    FIG_TRY(fig_operand_check_like(o, FIG_PLAN_IN_POSITIONS, &rows, FIG_I32));
    const fig_operand_form starts = {1, {(int64_t)o->view->spec.batch_limit + 1}, FIG_OPERAND_ANY};
    if (fig_operand_tensor(o, FIG_PLAN_IN_QUERIES) != NULL && o->view->spec.query_limit == 0)
        return fig_operand_refuse(o, FIG_INVALID,
                                  "query_starts is there, but the spec's query_limit is 0");
    return fig_operand_check_like(o, FIG_PLAN_IN_QUERIES, &starts, FIG_I32);
}

fig_status fig_operation_rows_check_gated(const fig_operand_node *o) {
    static const fig_operand_form rows = {2, {FIG_OPERAND_ROWS, FIG_OPERAND_ANY}, FIG_OPERAND_ANY};
    fig_gated_attributes attributes;
    FIG_TRY(fig_operand_check_form(o, FIG_GATED_OUT, &rows));
    const fig_tensor_record *out = fig_operand_tensor(o, FIG_GATED_OUT);
    if (out->dims[1] > FIG_WIDTH_LIMIT)
        return fig_operand_refuse(o, FIG_INVALID, "out has width %" PRId64 ", limit %d",
                                  out->dims[1], FIG_WIDTH_LIMIT);
    const fig_operand_form twice = {2, {fig_operand_rows(out), 2 * out->dims[1]}, out->dims[0]};
    FIG_TRY(fig_operand_check_activation(o, FIG_GATED_OUT));
    FIG_TRY(fig_operand_check_like(o, FIG_GATED_IN, &twice, out->dtype));
    FIG_OPERAND_ATTRIBUTES(o, 0, &attributes);
    if (attributes.activation >= FIG_SILU && attributes.activation <= FIG_SWIGLU_LIMITED)
        return FIG_OK;
    return fig_operand_refuse(o, FIG_INVALID, "activation is %" PRId32 ", limits %d to %d",
                              attributes.activation, FIG_SILU, FIG_SWIGLU_LIMITED);
}

static fig_status check_norm(const fig_operand_node *o, const fig_rms_norm_attributes *norm) {
    FIG_TRY(fig_operand_check_positive(o, "epsilon", norm->epsilon));
    if (isfinite(norm->weight_offset)) return FIG_OK;
    return fig_operand_refuse(o, FIG_INVALID, "weight_offset is %g, it must be finite",
                              (double)norm->weight_offset);
}

fig_status fig_operation_rows_check_norm(const fig_operand_node *o) {
    static const fig_operand_form rows = {2, {FIG_OPERAND_ROWS, FIG_OPERAND_ANY}, FIG_OPERAND_ANY};
    fig_rms_norm_attributes attributes;
    FIG_TRY(fig_operand_check_form(o, FIG_RMS_NORM_IN, &rows));
    FIG_TRY(fig_operand_check_activation(o, FIG_RMS_NORM_IN));
    const fig_tensor_record *in = fig_operand_tensor(o, FIG_RMS_NORM_IN);
    const fig_operand_form same = {2, {fig_operand_rows(in), in->dims[1]}, in->dims[0]};
    if (in->dims[1] > FIG_WIDTH_LIMIT)
        return fig_operand_refuse(o, FIG_INVALID, "in has width %" PRId64 ", limit %d", in->dims[1],
                                  FIG_WIDTH_LIMIT);
    FIG_TRY(fig_operand_check_weight(o, FIG_RMS_NORM_WEIGHT, in->dims[1], in->dtype));
    FIG_TRY(fig_operand_check_like(o, FIG_RMS_NORM_RESIDUAL, &same, in->dtype));
    FIG_TRY(fig_operand_check_like(o, FIG_RMS_NORM_OUT, &same, in->dtype));
    FIG_OPERAND_ATTRIBUTES(o, 0, &attributes);
    return check_norm(o, &attributes);
}

/* Checks that the rows of a message are whole 16-byte vectors, so that a GPU need not move smaller
 * units. */
static fig_status check_message(const fig_operand_node *o, uint32_t operand) {
    static const fig_operand_form rows = {2, {FIG_OPERAND_ROWS, FIG_OPERAND_ANY}, FIG_OPERAND_ANY};
    FIG_TRY(fig_operand_check_form(o, operand, &rows));
    FIG_TRY(fig_operand_check_activation(o, operand));
    const fig_tensor_record *tensor = fig_operand_tensor(o, operand);
    const char *name = fig_operand_name(o, operand);
    const int64_t unit = 16 / fig_program_view_dtype_bytes(tensor->dtype);
    if (tensor->dims[1] > FIG_WIDTH_LIMIT)
        return fig_operand_refuse(o, FIG_INVALID, "%s has width %" PRId64 ", limit %d", name,
                                  tensor->dims[1], FIG_WIDTH_LIMIT);
    if (tensor->dims[1] % unit == 0) return FIG_OK;
    return fig_operand_refuse(o, FIG_INVALID,
                              "%s has width %" PRId64 ", it must be a multiple of %" PRId64, name,
                              tensor->dims[1], unit);
}

fig_status fig_operation_rows_check_all_reduce(const fig_operand_node *o) {
    fig_rms_norm_attributes attributes;
    FIG_TRY(check_message(o, FIG_ALL_REDUCE_IN));
    const fig_tensor_record *in = fig_operand_tensor(o, FIG_ALL_REDUCE_IN);
    const fig_operand_form same = {2, {fig_operand_rows(in), in->dims[1]}, in->dims[0]};
    const int has_norm = fig_operand_tensor(o, FIG_ALL_REDUCE_WEIGHT) != NULL;
    FIG_TRY(fig_operand_check_like(o, FIG_ALL_REDUCE_OUT, &same, in->dtype));
    FIG_TRY(fig_operand_check_like(o, FIG_ALL_REDUCE_RESIDUAL, &same, in->dtype));
    FIG_TRY(fig_operand_check_weight(o, FIG_ALL_REDUCE_WEIGHT, in->dims[1], in->dtype));
    if (has_norm != (fig_operand_tensor(o, FIG_ALL_REDUCE_RESIDUAL) != NULL))
        return fig_operand_refuse(o, FIG_INVALID, "%s is there, but not %s",
                                  has_norm ? "weight" : "residual",
                                  has_norm ? "residual" : "weight");
    FIG_OPERAND_ATTRIBUTES(o, 0, &attributes);
    if (has_norm) return check_norm(o, &attributes);
    if (attributes.epsilon == 0.0f && attributes.weight_offset == 0.0f) return FIG_OK;
    return fig_operand_refuse(o, FIG_FORMAT, "epsilon is %g and weight_offset %g without a norm",
                              (double)attributes.epsilon, (double)attributes.weight_offset);
}

/* Checks an all-gather. The width of `out` divided by the width of `in` is the number of ranks. */
fig_status fig_operation_rows_check_all_gather(const fig_operand_node *o) {
    FIG_TRY(check_message(o, FIG_ALL_GATHER_IN));
    const fig_tensor_record *in = fig_operand_tensor(o, FIG_ALL_GATHER_IN);
    const fig_tensor_record *out = fig_operand_tensor(o, FIG_ALL_GATHER_OUT);
    const fig_operand_form rows = {2, {fig_operand_rows(in), out->dims[1]}, in->dims[0]};
    FIG_TRY(fig_operand_check_like(o, FIG_ALL_GATHER_OUT, &rows, in->dtype));
    FIG_TRY(check_message(o, FIG_ALL_GATHER_OUT));
    const int64_t ranks = out->dims[1] / in->dims[1];
    if (out->dims[1] % in->dims[1] == 0 && ranks <= FIG_PARALLEL_RANK_LIMIT) return FIG_OK;
    return fig_operand_refuse(o, FIG_INVALID,
                              "out has width %" PRId64 ", it must be a multiple of in's, %" PRId64
                              ", limit %d times",
                              out->dims[1], in->dims[1], FIG_PARALLEL_RANK_LIMIT);
}
