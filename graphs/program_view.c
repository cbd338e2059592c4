/* program_view.c: what is read off a program's records. */
#include "graphs/program_view.h"

#include <assert.h>
#include <string.h>

#include "planner/size.h"

uint32_t fig_program_view_dtype_bytes(uint32_t dtype) {
    switch (dtype) {
    case FIG_F32: return 4;
    case FIG_F16: return 2;
    case FIG_BF16: return 2;
    case FIG_E4M3: return 1;
    case FIG_E5M2: return 1;
    case FIG_I32: return 4;
    case FIG_I64: return 8;
    }
    return 0;
}

int64_t fig_program_view_extent(const fig_tensor_record *record, int64_t rows) {
    return record->symbol == FIG_SYMBOL_NONE ? record->dims[0] : record->dims[0] * rows;
}

int fig_program_view_measure(const fig_tensor_record *record, int64_t batch_limit,
                             uint64_t *bytes) {
    const int64_t rows = record->symbol == FIG_SYMBOL_BATCH ? batch_limit : 1;
    *bytes = fig_program_view_dtype_bytes(record->dtype);
    for (int i = 0; i < record->rank; i++) {
        size_t product, extent = (size_t)record->dims[i];
        if (i == 0) extent = (size_t)fig_program_view_extent(record, rows);
        if (fig_size_multiply(&product, *bytes, extent) || product > FIG_TENSOR_BYTES_LIMIT)
            return 1;
        *bytes = product;
    }
    return 0;
}

const char *fig_program_view_tensor_name(const fig_program_view *view, uint32_t tensor) {
    assert(tensor >= 1 && tensor <= view->tensor_count);
    return view->strings + view->tensors[tensor - 1].name;
}

int fig_program_view_is_split(const fig_program_view *view, const fig_node *node) {
    if (node->op >= FIG_OP_KERNEL_COUNT || !fig_kernel_table[node->op].split) return 0;
    return view->operands[node->operand + FIG_ATTENTION_OUT] != 0;
}

int fig_program_view_reads_lengths(const fig_program_view *view) {
    return view->node_count > 0 && view->nodes[0].op == FIG_OP_PLAN;
}

int fig_program_view_meets(const fig_node *node) {
    return node->op != FIG_OP_CALL && fig_kernel_table[node->op].meets;
}

int fig_program_view_find_segment(const fig_program_view *view, const char *name,
                                  fig_segment *segment) {
    for (uint32_t i = 0; i < view->segment_count; i++) {
        *segment = view->segments[i];
        if (strcmp(view->strings + segment->name, name) == 0) return 1;
    }
    *segment = (fig_segment){0, 0, 0};
    return 0;
}

uint64_t fig_program_view_tensor_bytes(const fig_program_view *view, uint32_t tensor) {
    uint64_t bytes;
    assert(tensor >= 1 && tensor <= view->tensor_count);
    int too_large =
        fig_program_view_measure(&view->tensors[tensor - 1], view->spec.batch_limit, &bytes);
    assert(!too_large);
    (void)too_large;
    return bytes;
}

uint64_t fig_program_view_message_bytes(const fig_program_view *view) {
    static_assert((int)FIG_ALL_REDUCE_IN == 0 && (int)FIG_ALL_GATHER_IN == 0, "the first operand");
    uint64_t most = 0;
    for (uint32_t n = 0; n < view->node_count; n++) {
        if (!fig_program_view_meets(&view->nodes[n])) continue;
        const uint32_t in = view->operands[view->nodes[n].operand];
        const uint64_t bytes = fig_program_view_tensor_bytes(view, in);
        if (bytes > most) most = bytes;
    }
    return most;
}

uint32_t fig_program_view_access(const fig_program_view *view, const fig_node *node, uint32_t i) {
    fig_call_attributes call;
    assert(i < node->operand_count);
    if (node->op != FIG_OP_CALL) return fig_kernel_table[node->op].operands[i].access;
    memcpy(&call, view->attributes + node->attribute, sizeof call);
    return i < call.read_count ? FIG_ACCESS_READ : FIG_ACCESS_WRITE;
}
