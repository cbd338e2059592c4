/* host_peers.c: exchanges the messages of a host rank's collectives with the other ranks.
 *
 * This file defines messages. The carrier transports them, and the reference kernels add or gather
 * them. Invariant: a single rank uses its own message as the only part and waits for no other
 * rank. */
#include "engine/host/host_peers.h"

#include <stdlib.h>

#include "engine/ranks/carrier.h"
#include "include/figraph_unstable.h"
#include "kernels/common/numeric.h"
#include "planner/status.h"

struct fig_host_peers {
    fig_peers peers; /* must be first: params point to it */
    fig_ranks *ranks;
    fig_carrier *carrier; /* NULL: there are no other ranks */
    const uint32_t *exec_buckets;
    const void *parts[FIG_RANKS_LIMIT];
};

/* The params that all collectives have in common. */
typedef struct message {
    const void *in;
    const uint8_t *plan;
    const fig_fetch_state *state;
    fig_host_peers *peers;
    fig_rows rows;
    int32_t width, dtype;
    uint32_t node;
} message;

#define MESSAGE_OF(p)                                                                              \
    {                                                                                              \
        .in = (p)->in, .plan = (p)->plan, .state = (p)->state,                                     \
        .peers = (fig_host_peers *)(void *)(p)->peers, .rows = (p)->rows, .width = (p)->width,     \
        .dtype = (p)->dtype, .node = (p)->node                                                     \
    }

static message message_of(fig_op op, const void *params) {
    const fig_all_reduce_params *reduce = params;
    const fig_all_gather_params *gather = params;
    assert(fig_kernel_table[op].meets);
    if (fig_kernel_table[op].meets == FIG_MEETING_SUM) return (message)MESSAGE_OF(reduce);
    return (message)MESSAGE_OF(gather);
}

fig_status fig_host_peers_open(fig_host_peers **out, const fig_dev_meeting *meeting,
                               fig_dev_met *met) {
    fig_ranks_info info = {.size = sizeof info, .count = 1};
    *out = NULL;
    if (meeting->ranks != NULL) FIG_TRY(fig_ranks_read_info(meeting->ranks, &info));
    fig_host_peers *peers = calloc(1, sizeof *peers);
    if (peers == NULL) return fig_fail(FIG_NOMEM, "host device: %zu bytes", sizeof *peers);
    peers->peers = (fig_peers){.parts = peers->parts, .rank = info.rank, .count = info.count};
    peers->ranks = meeting->ranks;
    peers->exec_buckets = meeting->exec_buckets;
    fig_status status = FIG_OK;
    if (meeting->ranks != NULL && meeting->byte_limit > 0)
        status = fig_carrier_open(&peers->carrier, meeting->ranks, meeting->byte_limit);
    if (status == FIG_OK) {
        *out = peers;
        *met = (fig_dev_met){peers, info.count, FIG_ROUTE_ONE_SHOT};
    } else {
        fig_host_peers_close(peers);
    }
    return status;
}

void fig_host_peers_close(fig_host_peers *peers) {
    if (peers == NULL) return;
    fig_carrier_close(peers->carrier);
    free(peers);
}

fig_status fig_host_peers_meet(fig_op op, const void *params) {
    const message m = message_of(op, params);
    const fig_plan_head *head = (const fig_plan_head *)(const void *)m.plan;
    const size_t row_bytes = (size_t)m.width * (size_t)fig_numeric_bytes(m.dtype);
    const fig_carrier_call call = {.step = (int64_t)m.state->replays,
                                   .bucket = 1 + (int32_t)m.peers->exec_buckets[head->exec],
                                   .node = (int32_t)m.node,
                                   .bytes = m.in,
                                   .count = (size_t)fig_params_rows(&m.rows, m.plan) * row_bytes};
    if (m.peers->carrier != NULL)
        return fig_carrier_exchange(m.peers->carrier, &call, m.peers->parts);
    m.peers->parts[0] = m.in;
    return FIG_OK;
}

void fig_host_peers_miss(fig_op op, const void *params, const char *reason) {
    const message m = message_of(op, params);
    if (m.peers->carrier != NULL) fig_ranks_abort(m.peers->ranks, reason);
}
