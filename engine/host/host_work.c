/* host_work.c: builds, copies and runs one launch of the host device.
 *
 * Invariant: nodes refer to their bytes by offset, never by pointer, so work may grow and be
 * copied. */
#include "engine/host/host_work.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

#include "engine/host/host_peers.h"
#include "planner/size.h"
#include "planner/status.h"

enum { DATA_ALIGNMENT = 16 };

/* The record of a call in the data. reads, writes and bytes are offsets into the data and replace
 * the pointers of args. */
typedef struct host_call {
    fig_callback callback;
    void *user;
    const char *name;
    const fig_plan_head *plan;
    uint32_t queries_offset;
    fig_call_args args;
    size_t reads, writes, bytes;
} host_call;

/* ---- Growing ------------------------------------------------------------------------------- */

/* Returns `items` with room for `count` items; the array moves if it has to grow. Returns NULL if
 * there is no memory; `items` is then unchanged. */
static void *grown(void *items, size_t *capacity, size_t count, size_t item_bytes) {
    if (count <= *capacity && items != NULL) return items;
    size_t larger = count < 8 ? 16 : count * 2, bytes;
    if (fig_size_multiply(&bytes, larger, item_bytes)) return NULL;
    void *moved = realloc(items, bytes);
    if (moved != NULL) *capacity = larger;
    return moved;
}

/* Makes room for one node, its edges and its data, and changes nothing else. */
static fig_status reserve(fig_host_work *work, size_t edge_count, size_t data_bytes) {
    fig_host_node *nodes =
        grown(work->nodes, &work->node_capacity, work->node_count + 1, sizeof *nodes);
    if (nodes != NULL) work->nodes = nodes;
    fig_host_edge *edges =
        grown(work->edges, &work->edge_capacity, work->edge_count + edge_count, sizeof *edges);
    if (edges != NULL) work->edges = edges;
    uint8_t *data = grown(work->data, &work->data_capacity, work->data_bytes + data_bytes, 1);
    if (data != NULL) work->data = data;
    if (nodes != NULL && edges != NULL && data != NULL) return FIG_OK;
    return fig_fail(FIG_NOMEM, "host device: a graph of %zu nodes", work->node_count + 1);
}

/* Appends bytes, for which reserve() has made room, and returns their offset. */
static size_t append_data(fig_host_work *work, const void *bytes, size_t count) {
    size_t offset = work->data_bytes;
    if (count > 0) memcpy(work->data + offset, bytes, count);
    work->data_bytes = fig_size_align(offset + count, DATA_ALIGNMENT);
    return offset;
}

/* Appends a node and its edges, for which reserve() has made room. */
static void append_node(fig_host_work *work, const fig_host_node *node, fig_dev_after after) {
    uint32_t index = (uint32_t)work->node_count;
    for (uint32_t i = 0; i < after.count; i++) {
        assert(after.nodes[i] < index);
        work->edges[work->edge_count++] = (fig_host_edge){after.nodes[i], index};
    }
    work->nodes[work->node_count++] = *node;
}

fig_status fig_host_work_kernel(fig_host_work *work, const fig_dev_launch *launch,
                                fig_dev_after after) {
    const uint32_t *grid = launch->grid;
    size_t blocks;
    if (fig_size_multiply(&blocks, (size_t)grid[0] * grid[1], grid[2]) || blocks > UINT32_MAX)
        return fig_fail(FIG_INVALID, "%s: a grid of %u x %u x %u blocks, limit %u in all",
                        fig_table_op_name(launch->op), grid[0], grid[1], grid[2], UINT32_MAX);
    FIG_TRY(reserve(work, after.count, launch->params_bytes + DATA_ALIGNMENT));
    fig_host_node node = {.op = launch->op, .grid = {grid[0], grid[1], grid[2]}};
    node.data = append_data(work, launch->params, launch->params_bytes);
    append_node(work, &node, after);
    return FIG_OK;
}

fig_status fig_host_work_call(fig_host_work *work, const fig_dev_call *call, fig_dev_after after) {
    size_t reads_bytes = (size_t)call->read_count * sizeof(void *);
    size_t writes_bytes = (size_t)call->write_count * sizeof(void *);
    size_t bytes = (size_t)call->args.byte_count;
    size_t data_bytes = sizeof(host_call) + reads_bytes + writes_bytes + bytes;
    FIG_TRY(reserve(work, after.count, data_bytes + 4 * DATA_ALIGNMENT));
    host_call held = {.callback = call->callback,
                      .user = call->user,
                      .name = call->name,
                      .plan = call->plan,
                      .queries_offset = call->queries_offset,
                      .args = call->args};
    held.reads = append_data(work, call->args.reads, reads_bytes);
    held.writes = append_data(work, call->args.writes, writes_bytes);
    held.bytes = append_data(work, call->args.bytes, bytes);
    fig_host_node node = {.op = FIG_OP_CALL};
    node.data = append_data(work, &held, sizeof held);
    append_node(work, &node, after);
    return FIG_OK;
}

/* ---- Copies -------------------------------------------------------------------------------- */

void fig_host_work_finish(fig_host_work *work) {
    free(work->nodes);
    free(work->edges);
    free(work->data);
    free(work->waiting);
    free(work->ready);
    free(work->blocks);
    *work = (fig_host_work){0};
}

/* Returns a copy of `count` items; `count` may be 0. Returns NULL only if there is no memory. */
static void *copied(const void *items, size_t count, size_t item_bytes) {
    void *copy = calloc(count > 0 ? count : 1, item_bytes);
    if (copy != NULL && count > 0) memcpy(copy, items, count * item_bytes);
    return copy;
}

fig_status fig_host_work_copy(fig_host_work *copy, const fig_host_work *work) {
    *copy = (fig_host_work){.node_count = work->node_count,
                            .edge_count = work->edge_count,
                            .data_bytes = work->data_bytes};
    copy->nodes = copied(work->nodes, work->node_count, sizeof *work->nodes);
    copy->edges = copied(work->edges, work->edge_count, sizeof *work->edges);
    copy->data = copied(work->data, work->data_bytes, 1);
    if (copy->nodes != NULL && copy->edges != NULL && copy->data != NULL) return FIG_OK;
    fig_host_work_finish(copy);
    return fig_fail(FIG_NOMEM, "host device: an exec of %zu nodes", work->node_count);
}

static uint32_t block_count(const fig_host_node *node) {
    return node->grid[0] * node->grid[1] * node->grid[2];
}

fig_status fig_host_work_add_scratch(fig_host_work *work) {
    uint32_t blocks = 1;
    for (size_t i = 0; i < work->node_count; i++)
        if (block_count(&work->nodes[i]) > blocks) blocks = block_count(&work->nodes[i]);
    work->waiting = calloc(work->node_count + 1, sizeof *work->waiting);
    work->ready = calloc(work->node_count + 1, sizeof *work->ready);
    work->blocks = calloc(blocks, sizeof *work->blocks);
    if (work->waiting != NULL && work->ready != NULL && work->blocks != NULL) return FIG_OK;
    return fig_fail(FIG_NOMEM, "host device: an order of %zu nodes", work->node_count);
}

fig_status fig_host_work_patch(fig_host_work *work, uint32_t node, const void *params,
                               size_t params_bytes) {
    FIG_TRY_OURS(node < work->node_count && work->nodes[node].op < FIG_OP_KERNEL_COUNT &&
                     params_bytes == fig_kernel_table[work->nodes[node].op].params_bytes,
                 "host device: %zu bytes of params for node %" PRIu32 " of %zu", params_bytes, node,
                 (size_t)work->node_count);
    memcpy(work->data + work->nodes[node].data, params, params_bytes);
    return FIG_OK;
}

/* ---- Running ------------------------------------------------------------------------------- */

/* Draws a number below `count`, which must not be 0. xorshift is good enough: any order will do if
 * the seed reproduces it. */
static uint32_t draw(uint64_t *random, uint32_t count) {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    return (uint32_t)((*random >> 16) % count);
}

/* Runs all blocks of a kernel. The params are copied to an aligned place first, because they may
 * hold tensor maps, which need 64-byte alignment; the data does not have it. */
static void run_kernel(fig_host_work *work, const fig_host_node *node, uint64_t *random) {
    alignas(64) uint8_t params[FIG_PARAMS_LIMIT];
    const uint32_t *grid = node->grid;
    memcpy(params, work->data + node->data, fig_kernel_table[node->op].params_bytes);
    uint32_t count = block_count(node);
    for (uint32_t i = 0; *random != 0 && i < count; i++) { /* one pass fills and shuffles */
        uint32_t j = draw(random, i + 1);
        work->blocks[i] = work->blocks[j];
        work->blocks[j] = i;
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t index = *random != 0 ? work->blocks[i] : i;
        uint32_t block[3] = {index % grid[0], index / grid[0] % grid[1], index / grid[0] / grid[1]};
        fig_kernel_table[node->op].reference(params, block);
    }
}

/* Returns the query tokens of the step; 0 if the program is not packed. Without a section of them,
 * each row has one. */
static int32_t call_queries(const host_call *call) {
    const uint8_t *plan = (const uint8_t *)call->plan;
    if (call->args.queries == 0 || call->plan->rows == 0) return 0;
    if (call->queries_offset == 0) return call->plan->rows;
    return *(const int32_t *)(const void *)(plan + call->queries_offset);
}

static void run_call(const fig_host_work *work, const fig_host_node *node, fig_host_fault *fault) {
    const uint8_t *data = work->data;
    const host_call *call = (const host_call *)(const void *)(data + node->data);
    fig_call_args args = call->args;
    args.stream = NULL;
    args.rows = call->plan->rows;
    args.queries = call_queries(call);
    args.bytes = data + call->bytes;
    args.reads = (const void *const *)(const void *)(data + call->reads);
    args.writes = (void *const *)(const void *)(data + call->writes);
    int answer = call->callback(call->user, &args);
    if (answer == 0) return;
    fault->status = FIG_CALLBACK;
    snprintf(fault->sentence, sizeof fault->sentence, "step %" PRIu64 ": call \"%s\" returned %d",
             fig_plan_tag_number(call->plan->tag), call->name, answer);
}

static void meet_ranks(const fig_host_work *work, const fig_host_node *node,
                       fig_host_fault *fault) {
    fault->status = fig_host_peers_meet(node->op, work->data + node->data);
    if (fault->status == FIG_OK) return;
    snprintf(fault->sentence, sizeof fault->sentence, "%s", fig_message());
}

/* Runs one node. After a fault the nodes of a step are skipped, because they would read memory that
 * was never written. A skipped kernel does not harm the next step, because each kernel resets its
 * own counters. The look ahead runs even after a fault, because it reports to the host that the
 * plan has left its slot; without it the ring would fill up. */
static void run_node(fig_host_work *work, uint32_t index, uint64_t *random, fig_host_fault *fault) {
    const fig_host_node *node = &work->nodes[index];
    const int meets = node->op != FIG_OP_CALL && fig_kernel_table[node->op].meets;
    if (fault->status != FIG_OK && meets)
        fig_host_peers_miss(node->op, work->data + node->data, fault->sentence);
    if (fault->status != FIG_OK && node->op != FIG_OP_LOOK_AHEAD) return;
    if (meets) meet_ranks(work, node, fault);
    if (fault->status != FIG_OK && meets) return;
    if (node->op == FIG_OP_CALL) {
        run_call(work, node, fault);
    } else {
        run_kernel(work, node, random);
    }
}

/* Runs the nodes in a random order that the edges allow. The function walks all edges for each
 * node. That is fast enough for tests, the only users of random orders: a graph of a thousand nodes
 * takes milliseconds. */
static void run_shuffled(fig_host_work *work, uint64_t *random, fig_host_fault *fault) {
    uint32_t ready_count = 0;
    memset(work->waiting, 0, work->node_count * sizeof *work->waiting);
    for (size_t i = 0; i < work->edge_count; i++)
        work->waiting[work->edges[i].to]++;
    for (uint32_t i = 0; i < work->node_count; i++)
        if (work->waiting[i] == 0) work->ready[ready_count++] = i;
    while (ready_count > 0) {
        uint32_t chosen = draw(random, ready_count);
        uint32_t index = work->ready[chosen];
        work->ready[chosen] = work->ready[--ready_count];
        run_node(work, index, random, fault);
        for (size_t i = 0; i < work->edge_count; i++) {
            if (work->edges[i].from != index) continue;
            uint32_t to = work->edges[i].to;
            if (--work->waiting[to] == 0) work->ready[ready_count++] = to;
        }
    }
}

void fig_host_work_run(fig_host_work *work, uint64_t *random, fig_host_fault *fault) {
    *fault = (fig_host_fault){FIG_OK, ""};
    if (*random != 0) {
        run_shuffled(work, random, fault);
        return;
    }
    for (uint32_t i = 0; i < work->node_count; i++)
        run_node(work, i, random, fault);
}
