/* memory.c: what graphs take of a device, before one is opened.
 *
 * Invariant: but for execs, which are estimated, an engine takes exactly what is said here; a test
 * holds the two together. */
#include <inttypes.h>
#include <stdlib.h>

#include "graphs/graphs.h"
#include "planner/size.h"
#include "planner/status.h"

/* Of an H200, where graphs of 4, 40 and 400 kernels take 82, 205 and 1311 KiB each. */
enum { EXEC_BYTES = 70 << 10, EXEC_LAUNCH_BYTES = 31 * 1024 / 10, WORDS_BYTES = 64 };

/* The engine's own unless bound, and known before anything is bound. */
static uint64_t state_bytes_of(const fig_program_view *view) {
    uint64_t bytes = 0;
    for (uint32_t id = 1; id <= view->tensor_count; id++) {
        const fig_tensor_record *record = &view->tensors[id - 1];
        if (record->role != FIG_ROLE_STATE || record->symbol == FIG_SYMBOL_PAGES) continue;
        bytes += fig_program_view_tensor_bytes(view, id);
    }
    return bytes;
}

/* Adds what one token takes of a cache, once for each tensor. `counted`: [tensor_count] */
static void count_cache(const fig_program_view *view, uint32_t id, uint8_t *counted,
                        uint64_t *bytes) {
    const fig_tensor_record *record = &view->tensors[id - 1];
    if (counted[id - 1]) return;
    counted[id - 1] = 1;
    *bytes += (uint64_t)record->dims[2] * (uint64_t)record->dims[3] *
              fig_program_view_dtype_bytes(record->dtype);
}

static void count_caches(const fig_program_view *view, const fig_node *node, int k, int v,
                         uint8_t *counted, uint64_t *bytes) {
    const uint32_t *ids = view->operands + node->operand;
    count_cache(view, ids[k], counted, bytes);
    count_cache(view, ids[v], counted, bytes);
}

static fig_status count_token_bytes(const fig_program_view *view, uint64_t *bytes) {
    uint8_t *counted = calloc((size_t)view->tensor_count + 1, 1);
    *bytes = 0;
    if (counted == NULL) return fig_fail(FIG_NOMEM, "memory: %u tensors", view->tensor_count);
    for (uint32_t n = 0; n < view->node_count; n++) {
        const fig_node *node = &view->nodes[n];
        if (node->op < FIG_OP_KERNEL_COUNT && fig_kernel_table[node->op].split)
            count_caches(view, node, FIG_ATTENTION_K_CACHE, FIG_ATTENTION_V_CACHE, counted, bytes);
        if (node->op == FIG_OP_APPEND_KV)
            count_caches(view, node, FIG_APPEND_K_CACHE, FIG_APPEND_V_CACHE, counted, bytes);
    }
    free(counted);
    return FIG_OK;
}

uint64_t fig_memory_exec_bytes(const fig_graphs *graphs) {
    const uint64_t launches = (uint64_t)fig_program_view_of(graphs->program)->node_count + 2;
    return EXEC_BYTES + launches * EXEC_LAUNCH_BYTES;
}

/* Pinned is the ring, which is what the device tells the host and slots, and what pages in bulk
 * pass through. The device has a plan, how far it is, and the slot that it took ahead. */
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
