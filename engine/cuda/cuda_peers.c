/* cuda_peers.c: opens the routes to the other ranks, and reports why a kernel stopped waiting.
 *
 * Ranks of one process reach each other by peer access, and ranks of several processes by the
 * driver's IPC handles. If neither is possible, NCCL carries all messages. Opening has several
 * stages, and the ranks exchange their results after each stage. So if one rank cannot open another
 * rank's inbox, the stage fails on every rank, and no rank is left with half a group. */
#include "engine/cuda/cuda_peers.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "engine/seam/clock.h"
#include "engine/ranks/group.h"
#include "planner/routes.h"
#include "planner/status.h"

enum { BUS_BYTES = 16 };

/* Describes a rank's GPU to the other ranks. */
typedef struct card {
    uint64_t process, context, inbox;
    fig_cu_ipc_handle handle;
    char bus[BUS_BYTES];
} card;

/* The result of a stage on one rank. */
typedef struct report {
    fig_status status;
    char sentence[156];
} report;

/* Exchanges the results: if a stage failed on one rank, it fails on every rank, with that rank's
 * message. */
static fig_status conclude(const fig_cuda_peers *peers, fig_status status) {
    report own = {.status = status}, all[FIG_RANKS_LIMIT];
    if (peers->count == 1) return status;
    if (status != FIG_OK) strncpy(own.sentence, fig_message(), sizeof own.sentence - 1);
    FIG_TRY(fig_ranks_all_gather(peers->ranks, &own, sizeof own, all));
    for (int32_t r = 0; r < peers->count; r++)
        if (all[r].status != FIG_OK) return fig_status_relay(all[r].status, all[r].sentence);
    return FIG_OK;
}

/* ---- Memory -------------------------------------------------------------------------------- */

static fig_status take(fig_cuda_gpu *gpu, size_t bytes, fig_cu_address *address) {
    CU_TRY(gpu, MemAlloc, address, bytes);
    CU_TRY(gpu, MemsetD8Async, *address, 0, bytes, gpu->aside);
    CU_TRY(gpu, StreamSynchronize, gpu->aside);
    return FIG_OK;
}

static fig_status take_words(fig_cuda_peers *peers, fig_cuda_gpu *gpu) {
    void *words;
    CU_TRY(gpu, MemHostAlloc, &words, sizeof *peers->words,
           FIG_CU_HOST_PORTABLE | FIG_CU_HOST_MAPPED);
    peers->words = words;
    memset(peers->words, 0, sizeof *peers->words);
    return take(gpu, sizeof(fig_peers), &peers->block);
}

static fig_status take_inbox(fig_cuda_peers *peers, fig_cuda_gpu *gpu, uint64_t byte_limit) {
    peers->slot_bytes = fig_peers_inbox_bytes(1, byte_limit) / 2;
    return take(gpu, fig_peers_inbox_bytes(peers->count, byte_limit), &peers->inbox);
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

/* Makes another rank's inbox reachable. The inbox of another process is opened by its handle, which
 * also enables access. The inbox of a rank in this process is used at its own address, once peer
 * access to its context is enabled. */
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
    return FIG_OK;
}

static fig_status meet_near(fig_cuda_peers *peers, fig_cuda_gpu *gpu, uint64_t byte_limit,
                            fig_peers *block) {
    card own, cards[FIG_PEERS_LIMIT];
    fig_status status = take_inbox(peers, gpu, byte_limit);
    if (peers->count == 1) return status == FIG_OK ? reach_all(peers, gpu, NULL, block) : status;
    if (status == FIG_OK) status = make_card(peers, gpu, &own);
    FIG_TRY(conclude(peers, status));
    peers->is_told = 1;
    FIG_TRY(fig_ranks_all_gather(peers->ranks, &own, sizeof own, cards));
    return conclude(peers, reach_all(peers, gpu, cards, block));
}

/* ---- Open and close ------------------------------------------------------------------------ */

/* Returns FIG_UNSUPPORTED if the ranks of this group cannot all write into one another's memory. */
static fig_status check_near(const fig_cuda_peers *peers, const fig_ranks_info *info) {
    if (peers->count > FIG_PEERS_LIMIT)
        return fig_fail(FIG_UNSUPPORTED,
                        "cuda device: %" PRId32 " ranks, limit %d for ranks that write into one "
                        "another's memory",
                        peers->count, FIG_PEERS_LIMIT);
    if (info->local_count == peers->count) return FIG_OK;
    return fig_fail(FIG_UNSUPPORTED,
                    "cuda device: %" PRId32 " of %" PRId32 " ranks are on this host, and only "
                    "ranks on one host reach one another's memory",
                    info->local_count, peers->count);
}

/* Sets *has to 1 if every rank could open NCCL. */
static fig_status find_nccl(const fig_cuda_peers *peers, int *has) {
    const uint8_t own = fig_nccl_api_open() == FIG_OK;
    uint8_t all[FIG_RANKS_LIMIT];
    *has = 0;
    if (peers->count == 1) return FIG_OK;
    FIG_TRY(fig_ranks_all_gather(peers->ranks, &own, sizeof own, all));
    *has = 1;
    for (int32_t r = 0; r < peers->count; r++)
        *has &= all[r];
    return FIG_OK;
}

static void attend(void *peers) {
    fig_cuda_peers_attend(peers);
}

static fig_status open_nccl(fig_cuda_peers *peers, fig_cuda_gpu *gpu, uint64_t byte_limit) {
    const fig_cuda_nccl_wish wish = {.ranks = peers->ranks,
                                     .rank = peers->rank,
                                     .count = peers->count,
                                     .timeout_us = peers->timeout_us,
                                     .byte_limit = byte_limit};
    FIG_TRY(conclude(peers, fig_cuda_nccl_init(&peers->nccl, gpu, &wish)));
    FIG_TRY(conclude(peers, fig_cuda_nccl_open(&peers->nccl, gpu)));
    gpu->attend = attend;
    gpu->attended = peers;
    return FIG_OK;
}

/* Opens the routes of the group, and allocates their memory. If NCCL is present, inboxes have room
 * only for the messages that NCCL does not carry. A communicator is opened only if NCCL would carry
 * some message. */
static fig_status open_ways(fig_cuda_peers *peers, fig_cuda_gpu *gpu,
                            const fig_dev_meeting *meeting, const fig_ranks_info *info,
                            fig_peers *block) {
    const uint32_t wanted = gpu->routes != 0 ? gpu->routes : UINT32_MAX;
    const uint32_t own = (FIG_ROUTE_ONE_SHOT | FIG_ROUTE_TWO_SHOT) & wanted;
    const uint64_t limit = fig_routes_own_limit(peers->count);
    uint64_t bytes = meeting->byte_limit;
    fig_status near = check_near(peers, info);
    int has_nccl;
    FIG_TRY(find_nccl(peers, &has_nccl));
    has_nccl = has_nccl && (wanted & FIG_ROUTE_NCCL) != 0;
    if (own == 0) near = fig_fail(FIG_UNSUPPORTED, "cuda device: only NCCL is allowed");
    if (has_nccl && gpu->routes == 0 && bytes > limit) bytes = limit;
    if (near == FIG_OK) near = meet_near(peers, gpu, bytes, block);
    if (near != FIG_OK && near != FIG_UNSUPPORTED) return near;
    if (near == FIG_OK) peers->routes = own;
    if (!has_nccl) return near;
    if (near == FIG_OK && gpu->routes == 0 && meeting->byte_limit <= limit) return FIG_OK;
    peers->routes |= FIG_ROUTE_NCCL;
    return open_nccl(peers, gpu, meeting->byte_limit);
}

static fig_status publish(fig_cuda_peers *peers, fig_cuda_gpu *gpu, fig_peers *block) {
    fig_cu_address words;
    CU_TRY(gpu, MemHostGetDevicePointer, &words, peers->words, 0);
    block->words = (fig_peers_words *)(uintptr_t)words;
    block->timeout_ns = (uint64_t)peers->timeout_us * 1000;
    block->slot_bytes = peers->slot_bytes;
    block->rank = peers->rank;
    block->count = peers->count;
    CU_TRY(gpu, MemcpyAsync, peers->block, (fig_cu_address)(uintptr_t)block, sizeof *block,
           gpu->aside);
    CU_TRY(gpu, StreamSynchronize, gpu->aside);
    if (peers->count == 1) return FIG_OK;
    FIG_TRY(fig_group_watch(peers->ranks, &peers->words->lost));
    peers->watched = 1;
    return FIG_OK;
}

fig_status fig_cuda_peers_open(fig_cuda_peers *peers, fig_cuda_gpu *gpu,
                               const fig_dev_meeting *meeting, fig_dev_met *met) {
    fig_ranks_info info = {.size = sizeof info, .count = 1, .local_count = 1};
    fig_peers block = {0};
    *met = (fig_dev_met){0};
    *peers = (fig_cuda_peers){.ranks = meeting->ranks,
                              .exec_buckets = meeting->exec_buckets,
                              .exec_count = meeting->exec_count};
    if (peers->ranks != NULL) FIG_TRY(fig_ranks_read_info(peers->ranks, &info));
    peers->rank = info.rank;
    peers->count = info.count;
    peers->timeout_us = info.timeout_us;
    FIG_TRY(conclude(peers, take_words(peers, gpu)));
    FIG_TRY(open_ways(peers, gpu, meeting, &info, &block));
    FIG_TRY(conclude(peers, publish(peers, gpu, &block)));
    *met = (fig_dev_met){(void *)(uintptr_t)peers->block, peers->count, peers->routes};
    return FIG_OK;
}

/* Frees the inbox if no other rank knows it. Otherwise another rank may still write into it: it may
 * be late in a collective that this rank gave up, or begin one that this rank never begins. If the
 * memory had a new owner by then, the packets would overwrite the owner's data. A rank cannot find
 * out when all others have ended, because they may close their engines much later. So the inbox,
 * and the context that holds it, stay until the process ends. */
static void let_go_of_inbox(const fig_cuda_peers *peers, const fig_cuda_gpu *gpu) {
    fig_cu_context kept;
    if (peers->inbox == 0) return;
    if (peers->is_told) {
        gpu->cu->DevicePrimaryCtxRetain(&kept, gpu->device);
    } else {
        gpu->cu->MemFree(peers->inbox);
    }
}

void fig_cuda_peers_close(fig_cuda_peers *peers, fig_cuda_gpu *gpu) {
    if (peers->watched) fig_group_unwatch(peers->ranks, &peers->words->lost);
    if (gpu->attended == peers) gpu->attend = NULL;
    fig_cuda_nccl_close(&peers->nccl, gpu);
    for (int32_t r = 0; r < FIG_PEERS_LIMIT; r++)
        if (peers->opened[r] != 0) gpu->cu->IpcCloseMemHandle(peers->opened[r]);
    if (peers->block != 0) gpu->cu->MemFree(peers->block);
    let_go_of_inbox(peers, gpu);
    if (peers->words != NULL) gpu->cu->MemFreeHost(peers->words);
    *peers = (fig_cuda_peers){0};
}

/* ---- Where NCCL waits ---------------------------------------------------------------------- */

/* An NCCL kernel waits for its peers without a timeout, so the host ends the wait in three cases:
 * the group is lost, the ranks are at different places, or a graph's collectives have been running
 * for longer than the group's timeout, counted from when they were first found running. */
void fig_cuda_peers_attend(fig_cuda_peers *peers) {
    volatile fig_peers_words *words = peers->words;
    const uint32_t begun = words->begun, ended = words->ended;
    const int64_t now_ns = fig_clock_ns();
    if (peers->nccl.comm == NULL) return;
    if (begun == ended || begun != peers->seen) {
        peers->seen = begun;
        peers->seen_ns = now_ns;
    }
    const int is_late = now_ns - peers->seen_ns > peers->timeout_us * 1000;
    if (words->verdict == FIG_PEERS_FINE) {
        if (words->lost == 0 && !is_late) return;
        words->rank = (uint32_t)peers->count;
        words->verdict = words->lost != 0 ? FIG_PEERS_LOST : FIG_PEERS_LATE;
    }
    fig_cuda_nccl_abort(&peers->nccl);
}

/* ---- What a kernel left -------------------------------------------------------------------- */

/* If another rank has stopped NCCL, the words that NCCL leaves do not hold a valid place. */
static int is_place(const fig_cuda_peers *peers, const fig_peers_place *place) {
    return place->exec < peers->exec_count;
}

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
    if (verdict == FIG_PEERS_APART && is_place(peers, &peers->words->theirs))
        return tell_apart(peers);
    if (verdict == FIG_PEERS_LATE && peers->words->rank == (uint32_t)peers->count)
        return fig_fail(FIG_TIMEOUT,
                        "rank %" PRId32 " waited for others in a collective for %" PRId64 " us",
                        peers->rank, peers->timeout_us);
    if (verdict == FIG_PEERS_LATE)
        return fig_fail(FIG_TIMEOUT, "rank %u did not come to a collective within %" PRId64 " us",
                        peers->words->rank, peers->timeout_us);
    FIG_TRY(fig_ranks_check(peers->ranks));
    return fig_fail(FIG_LOST, "the group of ranks is lost");
}

fig_status fig_cuda_peers_look(const fig_cuda_peers *peers) {
    if (peers->words == NULL) return FIG_OK;
    const uint32_t verdict = *(volatile uint32_t *)&peers->words->verdict;
    if (verdict == FIG_PEERS_FINE) return FIG_OK;
    if (peers->told) return FIG_LOST;
    if (verdict == FIG_PEERS_LATE) return FIG_TIMEOUT;
    const int is_apart = verdict == FIG_PEERS_APART && is_place(peers, &peers->words->theirs);
    return is_apart ? FIG_INVALID : FIG_LOST;
}

fig_status fig_cuda_peers_check(fig_cuda_peers *peers) {
    if (peers->words == NULL) return FIG_OK;
    /* The verdict is read first: a kernel writes it last, after the words that explain it. */
    const uint32_t verdict = *(volatile uint32_t *)&peers->words->verdict;
    if (verdict == FIG_PEERS_FINE) return FIG_OK;
    if (peers->told) return fig_fail(FIG_LOST, "the group of ranks is lost");
    peers->told = 1;
    const fig_status status = tell(peers, verdict);
    if (verdict != FIG_PEERS_LOST) fig_ranks_abort(peers->ranks, fig_message());
    return status;
}
