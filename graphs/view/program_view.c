/* program_view.c: reads a program's records. */
#include "graphs/view/program_view.h"

#include <assert.h>
#include <string.h>

#include "planner/size.h"
#include "planner/spec/latent_spec.h"
#include "planner/spec/spec.h"

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

int fig_program_view_has_rows(const fig_tensor_record *record) {
    return record->symbol == FIG_SYMBOL_BATCH || record->symbol == FIG_SYMBOL_QUERIES;
}

int64_t fig_program_view_rows(const fig_tensor_record *record, const fig_spec *spec) {
    if (record->symbol == FIG_SYMBOL_BATCH) return spec->batch_limit;
    return record->symbol == FIG_SYMBOL_QUERIES ? spec->query_limit : 1;
}

int fig_program_view_measure(const fig_tensor_record *record, const fig_spec *spec,
                             uint64_t *bytes) {
    const int64_t rows = fig_program_view_rows(record, spec);
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

uint32_t fig_program_view_operand(const fig_program_view *view, const fig_node *node, uint32_t i) {
    return i < node->operand_count ? view->operands[node->operand + i] : 0;
}

const fig_tensor_record *fig_program_view_tensor(const fig_program_view *view, const fig_node *node,
                                                 uint32_t i) {
    const uint32_t id = fig_program_view_operand(view, node, i);
    return id != 0 ? &view->tensors[id - 1] : NULL;
}

void fig_program_view_attributes(const fig_program_view *view, const fig_node *node,
                                 uint32_t offset, void *to, size_t bytes) {
    size_t there = offset < node->attribute_bytes ? node->attribute_bytes - offset : 0;
    if (there > bytes) there = bytes;
    memset(to, 0, bytes);
    if (there > 0) memcpy(to, view->attributes + node->attribute + offset, there);
}

int fig_program_view_is_split(const fig_program_view *view, const fig_node *node) {
    if (node->op >= FIG_OP_KERNEL_COUNT || fig_kernel_table[node->op].split == NULL) return 0;
    return fig_program_view_operand(view, node, fig_kernel_table[node->op].split->out) != 0;
}

int fig_program_view_makes_plan(const fig_node *node) {
    return node->op < FIG_OP_KERNEL_COUNT && fig_kernel_table[node->op].makes_plan;
}

int fig_program_view_reads_lengths(const fig_program_view *view) {
    return view->node_count > 0 && fig_program_view_makes_plan(&view->nodes[0]);
}

int fig_program_view_has_chunks(const fig_program_view *view) {
    int32_t most = FIG_NARROW_TOKENS_LIMIT;
    if (fig_program_view_reads_lengths(view)) most = FIG_ROW_TOKENS_LIMIT;
    if (view->spec.latent_dim != 0) most = FIG_LATENT_SPEC_ROW_TOKENS;
    return view->spec.query_limit > 0 && view->spec.row_tokens > most;
}

int32_t fig_program_view_narrow_tokens(const fig_program_view *view) {
    const int32_t tokens = view->spec.row_tokens;
    if (!fig_program_view_has_chunks(view)) return tokens;
    return tokens < FIG_NARROW_TOKENS_LIMIT ? tokens : FIG_NARROW_TOKENS_LIMIT;
}

uint32_t fig_program_view_query_starts(const fig_program_view *view) {
    if (!fig_program_view_reads_lengths(view)) return 0;
    return fig_program_view_operand(view, &view->nodes[0], FIG_PLAN_IN_QUERIES);
}

int fig_program_view_meets(const fig_node *node) {
    return node->op < FIG_OP_KERNEL_COUNT && fig_kernel_table[node->op].meets != FIG_MEETING_NONE;
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
    int too_large = fig_program_view_measure(&view->tensors[tensor - 1], &view->spec, &bytes);
    assert(!too_large);
    (void)too_large;
    return bytes;
}

uint64_t fig_program_view_message_bytes(const fig_program_view *view) {
    uint64_t most = 0;
    for (uint32_t n = 0; n < view->node_count; n++) {
        if (!fig_program_view_meets(&view->nodes[n])) continue;
        const uint32_t in = fig_program_view_operand(view, &view->nodes[n], 0);
        const uint64_t bytes = fig_program_view_tensor_bytes(view, in);
        if (bytes > most) most = bytes;
    }
    return most;
}

uint32_t fig_program_view_access(const fig_program_view *view, const fig_node *node, uint32_t i) {
    fig_call_attributes call;
    assert(i < node->operand_count);
    if (node->op != FIG_OP_CALL)
        return i < fig_kernel_table[node->op].operand_count
                   ? fig_kernel_table[node->op].operands[i].access
                   : 0;
    memcpy(&call, view->attributes + node->attribute, sizeof call);
    return i < call.read_count ? FIG_ACCESS_READ : FIG_ACCESS_WRITE;
}
