/* operation_call.c: checks the name, tensors and bytes of a call of foreign work.
 *
 * Invariant: all bytes beyond the counted ones are 0. */
#include "graphs/operations/operation_parts.h"

#include <string.h>

#include "graphs/view/strings.h"
#include "planner/status.h"

static fig_status check_call_name(const fig_operand_node *o, uint32_t offset) {
    const fig_program_view *view = o->view;
    if (!fig_strings_begins(view->strings, view->string_bytes, offset))
        return fig_operand_refuse(o, FIG_FORMAT, "no name begins at byte %u of %u", offset,
                                  view->string_bytes);
    return FIG_OK;
}

/* A call may list the same tensor as read and as written, because a callback may do both. */
fig_status fig_operation_call_check(const fig_operand_node *o) {
    fig_call_attributes call;
    const fig_node *node = o->node;
    if (node->attribute_bytes != sizeof call)
        return fig_operand_refuse(o, FIG_FORMAT, "%u bytes of attributes, it must be %zu",
                                  node->attribute_bytes, sizeof call);
    memcpy(&call, o->view->attributes + node->attribute, sizeof call);
    FIG_TRY(check_call_name(o, call.name));
    if (call.read_count > FIG_CALL_TENSOR_LIMIT || call.read_count > node->operand_count)
        return fig_operand_refuse(o, FIG_INVALID, "read_count is %u of %u tensors, limit %d",
                                  call.read_count, node->operand_count, FIG_CALL_TENSOR_LIMIT);
    if (node->operand_count - call.read_count > FIG_CALL_TENSOR_LIMIT)
        return fig_operand_refuse(o, FIG_INVALID, "write_count is %u, limit %d",
                                  node->operand_count - call.read_count, FIG_CALL_TENSOR_LIMIT);
    if (call.byte_count > FIG_CALL_BYTES_LIMIT)
        return fig_operand_refuse(o, FIG_INVALID, "byte_count is %u, limit %d", call.byte_count,
                                  FIG_CALL_BYTES_LIMIT);
    FIG_TRY(fig_operand_check_present(o));
    for (uint32_t b = call.read_count; b < node->operand_count; b++) {
        for (uint32_t a = call.read_count; a < b; a++) {
            if (fig_operand_id(o, a) == fig_operand_id(o, b))
                return fig_operand_refuse(
                    o, FIG_INVALID, "writes %s twice",
                    fig_program_view_tensor_name(o->view, fig_operand_id(o, a)));
        }
    }
    for (uint32_t i = call.byte_count; i < FIG_CALL_BYTES_LIMIT; i++) {
        if (call.bytes[i] != 0)
            return fig_operand_refuse(o, FIG_FORMAT, "byte %u is not 0 but lies beyond byte_count",
                                      i);
    }
    if (call.reserved != 0)
        return fig_operand_refuse(o, FIG_FORMAT, "reserved is %u", call.reserved);
    return FIG_OK;
}
