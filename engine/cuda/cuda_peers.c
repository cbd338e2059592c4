/* cuda_peers.c: open the other ranks' inboxes, and read what a kernel left that stopped waiting.
 *
 * Ranks of one process reach each other by peer access, those of several by the driver's handles.
 * Each rank says how far it came before any goes on, so that one that could not open another's
 * inbox leaves no rank with half a group. */
#include "engine/cuda/cuda_peers.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "engine/ranks/group.h"
#include "planner/status.h"

enum { BUS_BYTES = 16 };

/* What a rank says of its GPU. */
typedef struct card {
    uint64_t process, context, inbox;
    fig_cu_ipc_handle handle;
    char bus[BUS_BYTES];
} card;

/* How far it came. */
typedef struct report {
    fig_status status;
    char sentence[156];
} report;

/* ---- Memory -------------------------------------------------------------------------------- */

static fig_status take(fig_cuda_gpu *gpu, size_t bytes, fig_cu_address *address) {
    CU_TRY(gpu, MemAlloc, address, bytes);
    CU_TRY(gpu, MemsetD8Async, *address, 0, bytes, gpu->aside);
    CU_TRY(gpu, StreamSynchronize, gpu->aside);
    return FIG_OK;
}

static fig_status take_memory(fig_cuda_peers *peers, fig_cuda_gpu *gpu, uint64_t byte_limit) {
    void *words;
    const uint64_t inbox_bytes = fig_peers_inbox_bytes(peers->count, byte_limit);
    CU_TRY(gpu, MemHostAlloc, &words, sizeof *peers->words,
           FIG_CU_HOST_PORTABLE | FIG_CU_HOST_MAPPED);
    peers->words = words;
    memset(peers->words, 0, sizeof *peers->words);
    peers->slot_bytes = fig_peers_inbox_bytes(1, byte_limit) / 2;
    FIG_TRY(take(gpu, inbox_bytes, &peers->inbox));
    return take(gpu, sizeof(fig_peers), &peers->block);
}

/* ---- Reaching the others ------------------------------------------------------------------- */

static fig_status make_card(const fig_cuda_peers *peers, fig_cuda_gpu *gpu, card *own) {
    memset(own, 0, sizeof *own);
    own->process = (uint64_t)getpid();
    own->context = (uint64_t)(uintptr_t)gpu->context;
    own->inbox = peers->inbox;
    CU_TRY(gpu, DeviceGetPCIBusId, own->bus, BUS_BYTES, gpu->device);
    CU_TRY(gpu, IpcGetMemHandle, &own->handle, peers->inbox);
    return FIG_OK;
}

/* In a process of its own a rank's inbox is opened, which also gives access; in this one its
 * address is good as it is, once its context may be reached. */
static fig_status reach(fig_cuda_peers *peers, fig_cuda_gpu *gpu, const card *own,
                        const card *theirs, int32_t rank, uint8_t **inbox) {
    fig_cu_result result;
    if (memcmp(theirs->bus, own->bus, BUS_BYTES) == 0)
        return fig_fail(FIG_INVALID, "ranks %" PRId32 " and %" PRId32 " are both on GPU %.*s",
                        peers->rank, rank, BUS_BYTES, own->bus);
    if (theirs->process == own->process) {
        *inbox = (uint8_t *)(uintptr_t)theirs->inbox;
        result = gpu->cu->CtxEnablePeerAccess((fig_cu_context)(uintptr_t)theirs->context, 0);
        if (result == FIG_CU_PEER_ACCESS_ALREADY_ENABLED) result = FIG_CU_SUCCESS;
    } else {
        result =
            gpu->cu->IpcOpenMemHandle(&peers->opened[rank], theirs->handle, FIG_CU_IPC_PEER_ACCESS);
        *inbox = (uint8_t *)(uintptr_t)peers->opened[rank];
    }
    if (result == FIG_CU_SUCCESS) return FIG_OK;
    fig_cuda_gpu_refuse(gpu, result, "reaching a peer");
    return fig_fail(FIG_UNSUPPORTED,
                    "rank %" PRId32 " cannot reach rank %" PRId32 "'s GPU %.*s: %s", peers->rank,
                    rank, BUS_BYTES, theirs->bus, fig_message());
}

static fig_status reach_all(fig_cuda_peers *peers, fig_cuda_gpu *gpu, const card *cards,
                            fig_peers *block) {
    for (int32_t r = 0; r < peers->count; r++) {
        block->inboxes[r] = (uint8_t *)(uintptr_t)peers->inbox;
        if (r != peers->rank)
            FIG_TRY(reach(peers, gpu, &cards[peers->rank], &cards[r], r, &block->inboxes[r]));
    }
    CU_TRY(gpu, MemcpyAsync, peers->block, (fig_cu_address)(uintptr_t)block, sizeof *block,
           gpu->aside);
    CU_TRY(gpu, StreamSynchronize, gpu->aside);
    return FIG_OK;
}

/* Whatever this rank has met, every rank hears it, and all go on or none. */
static fig_status conclude(struct fig_ranks *ranks, int32_t count, fig_status status) {
    report own = {.status = status}, all[FIG_PEERS_LIMIT];
    if (status != FIG_OK) strncpy(own.sentence, fig_message(), sizeof own.sentence - 1);
    FIG_TRY(fig_ranks_all_gather(ranks, &own, sizeof own, all));
    for (int32_t r = 0; r < count; r++)
        if (all[r].status != FIG_OK) return fig_status_relay(all[r].status, all[r].sentence);
    return FIG_OK;
}

static fig_status meet(fig_cuda_peers *peers, fig_cuda_gpu *gpu, fig_peers *block) {
    card own, cards[FIG_PEERS_LIMIT];
    fig_status status = make_card(peers, gpu, &own);
    FIG_TRY(conclude(peers->ranks, peers->count, status));
    FIG_TRY(fig_ranks_all_gather(peers->ranks, &own, sizeof own, cards));
    status = reach_all(peers, gpu, cards, block);
    if (status == FIG_OK) {
        status = fig_group_watch(peers->ranks, &peers->words->lost);
        peers->watched = status == FIG_OK;
    }
    return conclude(peers->ranks, peers->count, status);
}

/* ---- Open and close ------------------------------------------------------------------------ */

static fig_status check_group(fig_cuda_peers *peers) {
    fig_ranks_info info = {.size = sizeof info, .count = 1, .local_count = 1};
    if (peers->ranks != NULL) FIG_TRY(fig_ranks_read_info(peers->ranks, &info));
    peers->rank = info.rank;
    peers->count = info.count;
    peers->timeout_us = info.timeout_us;
    if (info.count > FIG_PEERS_LIMIT)
        return fig_fail(FIG_UNSUPPORTED,
                        "cuda device: %" PRId32 " ranks, limit %d that write into one another's "
                        "memory",
                        info.count, FIG_PEERS_LIMIT);
    if (info.local_count == info.count) return FIG_OK;
    return fig_fail(FIG_UNSUPPORTED,
                    "cuda device: %" PRId32 " of %" PRId32 " ranks are on this host, and ranks "
                    "reach one another's memory on one host alone",
                    info.local_count, info.count);
}

fig_status fig_cuda_peers_open(fig_cuda_peers *peers, fig_cuda_gpu *gpu,
                               const fig_dev_meeting *meeting) {
    *peers = (fig_cuda_peers){.ranks = meeting->ranks, .exec_buckets = meeting->exec_buckets};
    FIG_TRY(check_group(peers));
    fig_status status = take_memory(peers, gpu, meeting->byte_limit);
    if (peers->ranks != NULL && peers->count > 1)
        status = conclude(peers->ranks, peers->count, status);
    FIG_TRY(status);
    fig_cu_address words;
    CU_TRY(gpu, MemHostGetDevicePointer, &words, peers->words, 0);
    fig_peers block = {.words = (fig_peers_words *)(uintptr_t)words,
                       .timeout_ns = (uint64_t)peers->timeout_us * 1000,
                       .slot_bytes = peers->slot_bytes,
                       .rank = peers->rank,
                       .count = peers->count};
    if (peers->count > 1) return meet(peers, gpu, &block);
    return reach_all(peers, gpu, NULL, &block);
}

void fig_cuda_peers_close(fig_cuda_peers *peers, fig_cuda_gpu *gpu) {
    if (peers->watched) fig_group_unwatch(peers->ranks, &peers->words->lost);
    for (int32_t r = 0; r < FIG_PEERS_LIMIT; r++)
        if (peers->opened[r] != 0) gpu->cu->IpcCloseMemHandle(peers->opened[r]);
    if (peers->block != 0) gpu->cu->MemFree(peers->block);
    if (peers->inbox != 0) gpu->cu->MemFree(peers->inbox);
    if (peers->words != NULL) gpu->cu->MemFreeHost(peers->words);
    *peers = (fig_cuda_peers){0};
}

/* ---- What a kernel left -------------------------------------------------------------------- */

static fig_status tell_apart(const fig_cuda_peers *peers) {
    const fig_peers_words *words = peers->words;
    const fig_peers_place *mine = &words->mine, *theirs = &words->theirs;
    return fig_fail(FIG_INVALID,
                    "rank %" PRId32 " is at step %u, bucket %u, node %u with %u rows, and rank %u "
                    "at step %u, bucket %u, node %u with %u rows",
                    peers->rank, mine->step, 1 + peers->exec_buckets[mine->exec], mine->node,
                    mine->rows, words->rank, theirs->step, 1 + peers->exec_buckets[theirs->exec],
                    theirs->node, theirs->rows);
}

static fig_status tell(const fig_cuda_peers *peers, uint32_t verdict) {
    if (verdict == FIG_PEERS_APART) return tell_apart(peers);
    if (verdict == FIG_PEERS_LATE)
        return fig_fail(FIG_TIMEOUT, "rank %u did not come to a collective within %" PRId64 " us",
                        peers->words->rank, peers->timeout_us);
    FIG_TRY(fig_ranks_check(peers->ranks));
    return fig_fail(FIG_LOST, "the group of ranks is lost");
}

fig_status fig_cuda_peers_check(fig_cuda_peers *peers) {
    if (peers->words == NULL) return FIG_OK;
    /* Partner: a kernel writes the verdict behind what it is about. */
    const uint32_t verdict = *(volatile uint32_t *)&peers->words->verdict;
    if (verdict == FIG_PEERS_FINE) return FIG_OK;
    if (peers->told) return fig_fail(FIG_LOST, "the group of ranks is lost");
    peers->told = 1;
    const fig_status status = tell(peers, verdict);
    if (verdict != FIG_PEERS_LOST) fig_ranks_abort(peers->ranks, fig_message());
    return status;
}
