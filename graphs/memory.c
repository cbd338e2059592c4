/* memory.c: computes, before a caller opens an engine, the memory that its graphs will need.
 *
 * Invariant: an engine allocates exactly these sizes, except that the sizes of execs are estimates.
 * A test compares the computed sizes with those of an engine. */
#include <inttypes.h>
#include <stdlib.h>

#include "graphs/graphs.h"
#include "planner/size.h"
#include "planner/status.h"

/* Measured on an H200, where graphs of 4, 40 and 400 kernels take 82, 205 and 1311 KiB each. */
enum { EXEC_BYTES = 70 << 10, EXEC_LAUNCH_BYTES = 31 * 1024 / 10, WORDS_BYTES = 64 };

/* Returns the bytes of the state tensors that the engine allocates if the caller does not bind
 * them. Counts only tensors whose size is known before binding. */
static uint64_t state_bytes_of(const fig_program_view *view) {
    uint64_t bytes = 0;
    for (uint32_t id = 1; id <= view->tensor_count; id++) {
        const fig_tensor_record *record = &view->tensors[id - 1];
        if (record->role != FIG_ROLE_STATE || record->symbol == FIG_SYMBOL_PAGES) continue;
        bytes += fig_program_view_tensor_bytes(view, id);
    }
    return bytes;
}

/* Adds the bytes of one token in a cache, once for each tensor. `counted`: [tensor_count] */
static void count_cache(const fig_program_view *view, uint32_t id, uint8_t *counted,
                        uint64_t *bytes) {
    const fig_tensor_record *record = &view->tensors[id - 1];
    if (counted[id - 1]) return;
    counted[id - 1] = 1;
    *bytes += (uint64_t)record->dims[2] * (uint64_t)record->dims[3] *
              fig_program_view_dtype_bytes(record->dtype);
}

/* Counts the caches of a node: the operands whose extent the node's kernel reads. */
static void count_caches(const fig_program_view *view, const fig_node *node, uint8_t *counted,
                         uint64_t *bytes) {
    const fig_kernel *kernel = &fig_kernel_table[node->op];
    for (uint32_t i = 0; i < kernel->field_count; i++) {
        if (kernel->fields[i].kind != FIG_FIELD_EXTENT) continue;
        const uint32_t id = fig_launch_operand(view, node, node->op, kernel->fields[i].operand);
        if (id != 0) count_cache(view, id, counted, bytes);
    }
}

static fig_status count_token_bytes(const fig_program_view *view, uint64_t *bytes) {
    uint8_t *counted = calloc((size_t)view->tensor_count + 1, 1);
    *bytes = 0;
    if (counted == NULL) return fig_fail(FIG_NOMEM, "memory: %u tensors", view->tensor_count);
    for (uint32_t n = 0; n < view->node_count; n++) {
        const fig_node *node = &view->nodes[n];
        if (node->op < FIG_OP_KERNEL_COUNT) count_caches(view, node, counted, bytes);
    }
    free(counted);
    return FIG_OK;
}

uint64_t fig_memory_exec_bytes(const fig_graphs *graphs) {
    const uint64_t launches = (uint64_t)fig_program_view_of(graphs->program)->node_count + 2;
    return EXEC_BYTES + launches * EXEC_LAUNCH_BYTES;
}

/* Fills in all sizes. Pinned memory holds the ring, and the buffer from which many page-table
 * entries are copied at once. The ring consists of slots, and of words that the device writes for
 * the host. Device memory holds a plan, the state of the fetch, and the slot that the device has
 * prefetched. */
static fig_status fill_memory(const fig_graphs *graphs, int32_t slots, fig_memory_info *info) {
    const fig_program_view *view = fig_program_view_of(graphs->program);
    if (slots == 0) slots = FIG_SLOT_DEFAULT;
    if (slots < FIG_SLOT_LEAST || slots > FIG_SLOT_LIMIT)
        return fig_fail(FIG_INVALID, "memory: slots is %" PRId32 ", limits %d to %d", slots,
                        FIG_SLOT_LEAST, FIG_SLOT_LIMIT);
    info->workspace_bytes = graphs->workspace.bytes;
    info->plan_bytes = graphs->plan_bytes + sizeof(fig_fetch_state) + fig_graphs_slot_bytes(graphs);
    info->state_bytes = state_bytes_of(view);
    info->pinned_bytes =
        WORDS_BYTES + (uint64_t)slots * fig_graphs_slot_bytes(graphs) + FIG_GRAPHS_BULK_BYTES;
    info->exec_count = (int32_t)graphs->exec_count;
    info->exec_bytes = (uint64_t)graphs->exec_count * fig_memory_exec_bytes(graphs);
    return count_token_bytes(view, &info->token_bytes);
}

fig_status fig_graphs_memory(const fig_graphs *graphs, int32_t slots, fig_memory_info *info) {
    fig_memory_info ours = {.size = sizeof ours};
    const fig_status status = fill_memory(graphs, slots, &ours);
    FIG_TRY(fig_status_give(info, &ours, sizeof ours, "fig_memory_info"));
    return status;
}
