/* operand.c: checks that operations make on one of their tensors.
 *
 * The other files of this folder say which operation makes which check. Invariant: a message names
 * the node, the operand, its value and the value that it must have. */
#include "graphs/operations/operand.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "planner/spec/spec.h"
#include "planner/status.h"

fig_status fig_operand_refuse(const fig_operand_node *o, fig_status status, const char *format,
                              ...) {
    char text[384];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    const char *name = fig_table_op_name(o->node->op);
    return fig_fail(status, "node %u (%s): %s", o->index, name != NULL ? name : "?", text);
}

uint32_t fig_operand_id(const fig_operand_node *o, uint32_t operand) {
    return fig_program_view_operand(o->view, o->node, operand);
}

const char *fig_operand_name(const fig_operand_node *o, uint32_t operand) {
    return o->operands == NULL ? "tensor" : o->operands[operand].name;
}

const fig_tensor_record *fig_operand_tensor(const fig_operand_node *o, uint32_t operand) {
    return fig_program_view_tensor(o->view, o->node, operand);
}

fig_status fig_operand_check_present(const fig_operand_node *o) {
    const uint32_t known =
        o->operands == NULL ? o->node->operand_count : fig_kernel_table[o->node->op].operand_count;
    for (uint32_t i = 0; i < known; i++) {
        const uint32_t id = fig_operand_id(o, i);
        const char *name = fig_operand_name(o, i);
        if (id > o->view->tensor_count)
            return fig_operand_refuse(o, FIG_INVALID, "%s is tensor %u, the program has %u", name,
                                      id, o->view->tensor_count);
        if (id == 0 && (o->operands == NULL || !o->operands[i].optional))
            return fig_operand_refuse(o, FIG_INVALID, "%s, operand %u, is absent", name, i);
    }
    return FIG_OK;
}

/* Checks that dims[0] matches the form: a symbol of the same kind and multiple, or a number. */
static fig_status check_symbol(const fig_operand_node *o, const char *name,
                               const fig_tensor_record *tensor, const fig_operand_form *form) {
    const int is_packed = o->view->spec.query_limit > 0;
    if (form->dims[0] == FIG_OPERAND_ROWS && !fig_program_view_has_rows(tensor))
        return fig_operand_refuse(o, FIG_INVALID, "%s: dims[0] must be FIG_DIM_BATCH%s", name,
                                  is_packed ? " or FIG_DIM_QUERIES" : "");
    if (form->dims[0] == FIG_DIM_BATCH && tensor->symbol != FIG_SYMBOL_BATCH)
        return fig_operand_refuse(o, FIG_INVALID, "%s: dims[0] must be FIG_DIM_BATCH", name);
    if (form->dims[0] == FIG_DIM_QUERIES && tensor->symbol != FIG_SYMBOL_QUERIES)
        return fig_operand_refuse(o, FIG_INVALID, "%s: dims[0] must be FIG_DIM_QUERIES", name);
    if (form->dims[0] == FIG_DIM_PAGES && fig_program_view_has_rows(tensor))
        return fig_operand_refuse(o, FIG_INVALID, "%s: dims[0] must be FIG_DIM_PAGES or a number",
                                  name);
    if (form->dims[0] >= 0 && tensor->symbol != FIG_SYMBOL_NONE)
        return fig_operand_refuse(o, FIG_INVALID, "%s: dims[0] must be a number", name);
    if (tensor->symbol == FIG_SYMBOL_NONE || form->multiple == FIG_OPERAND_ANY ||
        form->multiple == tensor->dims[0])
        return FIG_OK;
    return fig_operand_refuse(o, FIG_INVALID, "%s: multiple is %" PRId64 ", it must be %" PRId64,
                              name, tensor->dims[0], form->multiple);
}

fig_status fig_operand_check_form(const fig_operand_node *o, uint32_t operand,
                                  const fig_operand_form *form) {
    const fig_tensor_record *tensor = fig_operand_tensor(o, operand);
    const char *name = fig_operand_name(o, operand);
    if (tensor == NULL) return FIG_OK;
    if (tensor->rank != form->rank)
        return fig_operand_refuse(o, FIG_INVALID, "%s has rank %d, it must be %" PRId32, name,
                                  tensor->rank, form->rank);
    FIG_TRY(check_symbol(o, name, tensor, form));
    for (int i = form->dims[0] < 0; i < form->rank; i++) {
        if (form->dims[i] == FIG_OPERAND_ANY || form->dims[i] == tensor->dims[i]) continue;
        return fig_operand_refuse(o, FIG_INVALID,
                                  "%s: dims[%d] is %" PRId64 ", it must be %" PRId64, name, i,
                                  tensor->dims[i], form->dims[i]);
    }
    return FIG_OK;
}

fig_status fig_operand_check_dtype(const fig_operand_node *o, uint32_t operand, uint32_t dtype) {
    const fig_tensor_record *tensor = fig_operand_tensor(o, operand);
    if (tensor == NULL || tensor->dtype == dtype) return FIG_OK;
    return fig_operand_refuse(o, FIG_INVALID, "%s has dtype %d, it must be %u",
                              fig_operand_name(o, operand), tensor->dtype, dtype);
}

fig_status fig_operand_check_activation(const fig_operand_node *o, uint32_t operand) {
    const fig_tensor_record *tensor = fig_operand_tensor(o, operand);
    if (tensor == NULL || tensor->dtype == FIG_F32 || tensor->dtype == FIG_F16 ||
        tensor->dtype == FIG_BF16)
        return FIG_OK;
    return fig_operand_refuse(o, FIG_INVALID,
                              "%s has dtype %d, it must be FIG_F32, FIG_F16 or FIG_BF16",
                              fig_operand_name(o, operand), tensor->dtype);
}

fig_status fig_operand_check_heads(const fig_operand_node *o, uint32_t operand) {
    static const fig_operand_form rows = {
        3, {FIG_OPERAND_ROWS, FIG_OPERAND_ANY, FIG_OPERAND_ANY}, FIG_OPERAND_ANY};
    const fig_tensor_record *tensor = fig_operand_tensor(o, operand);
    FIG_TRY(fig_operand_check_form(o, operand, &rows));
    if (tensor == NULL || tensor->dims[1] <= FIG_HEAD_LIMIT) return FIG_OK;
    return fig_operand_refuse(o, FIG_INVALID, "%s has %" PRId64 " heads, limit %d",
                              fig_operand_name(o, operand), tensor->dims[1], FIG_HEAD_LIMIT);
}

fig_status fig_operand_check_like(const fig_operand_node *o, uint32_t operand,
                                  const fig_operand_form *form, uint32_t dtype) {
    FIG_TRY(fig_operand_check_form(o, operand, form));
    return fig_operand_check_dtype(o, operand, dtype);
}

fig_status fig_operand_check_head_words(const fig_operand_node *o, uint32_t operand,
                                        int64_t heads) {
    const fig_operand_form form = {1, {heads}, FIG_OPERAND_ANY};
    return fig_operand_check_like(o, operand, &form, FIG_F32);
}

fig_status fig_operand_check_weight(const fig_operand_node *o, uint32_t operand, int64_t width,
                                    uint32_t dtype) {
    const fig_operand_form form = {1, {width}, FIG_OPERAND_ANY};
    return fig_operand_check_like(o, operand, &form, dtype);
}

fig_status fig_operand_check_positive(const fig_operand_node *o, const char *name, float value) {
    if (isfinite(value) && value > 0.0f) return FIG_OK;
    return fig_operand_refuse(o, FIG_INVALID, "%s is %g, it must be finite and above 0", name,
                              (double)value);
}

int64_t fig_operand_rows(const fig_tensor_record *tensor) {
    return tensor->symbol == FIG_SYMBOL_QUERIES ? FIG_DIM_QUERIES : FIG_DIM_BATCH;
}

fig_status fig_operand_check_row_tokens(const fig_operand_node *o, uint32_t operand) {
    const fig_tensor_record *tensor = fig_operand_tensor(o, operand);
    const int64_t multiple = tensor->dims[0];
    const fig_operand_form packed = {
        tensor->rank, {FIG_DIM_QUERIES, tensor->dims[1], tensor->dims[2]}, 1};
    if (o->view->spec.query_limit > 0) return fig_operand_check_form(o, operand, &packed);
    if (multiple <= o->view->spec.row_tokens) return FIG_OK;
    return fig_operand_refuse(
        o, FIG_INVALID, "%s: multiple is %" PRId64 ", limit %" PRId32 ", the spec's row_tokens",
        fig_operand_name(o, operand), multiple, o->view->spec.row_tokens);
}

void fig_operand_read_attributes(const fig_operand_node *o, size_t offset, void *attributes,
                                 size_t bytes) {
    fig_program_view_attributes(o->view, o->node, (uint32_t)offset, attributes, bytes);
}
