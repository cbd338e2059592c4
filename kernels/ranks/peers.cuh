/* peers.cuh: pushes packets between GPUs, waits for them, and ends a wait that fails.
 *
 * A block begins with fig_peers_open(), which reads constant data while the preceding launch ends,
 * and continues with fig_peers_enter() after its wait. A block pushes its whole message before it
 * waits for the message of any other rank. A rank therefore waits only until another rank's data
 * has crossed the wires, never until that rank's own waits end. The first blocks move messages.
 * The blocks after them send this rank's place to the other ranks and compare it with theirs. So
 * no message waits for the comparison, and ranks at different places stop. Every wait ends: with
 * its packet, with the time limit, or because another wait has failed. Invariant: if a block takes
 * a packet, all tags of the packet are of this epoch. */
#ifndef FIG_KERNELS_PEERS_CUH
#define FIG_KERNELS_PEERS_CUH

#include "kernels/common/block.cuh"
#include "kernels/common/params.h"
#include "kernels/common/vector.cuh"

enum {
    FIG_PEERS_LOOK_SPINS = 256, /* polls between two checks for a reason to stop */
    FIG_PEERS_ASK_NS = 1 << 20  /* time between two reads of the host's word, across the bus */
};

/* The duration of a wait. */
typedef struct fig_peers_wait {
    uint64_t began_ns, asked_ns; /* 0 until its first check */
} fig_peers_wait;

/* The data of a launch, in shared memory. */
typedef struct fig_peers_view {
    uint8_t *inboxes[FIG_PEERS_LIMIT];
    fig_peers *peers;
    fig_peers_words *words;
    uint64_t timeout_ns, slot_bytes;
    int32_t rank, count;
} fig_peers_view;

/* A thread's data about its epoch. */
typedef struct fig_peers_epoch {
    const fig_peers_view *view;
    uint32_t tag;
} fig_peers_epoch;

static __device__ __forceinline__ uint64_t fig_peers_time_ns(void) {
    uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

/* Reads the data of the launch. All threads of the block call this before the wait. While the
 * engine lives, nothing that is read here changes: fig_engine_open() wrote it on the host. */
static __device__ __forceinline__ void fig_peers_open(fig_peers *peers, fig_peers_view *view) {
    const int32_t thread = (int32_t)threadIdx.x;
    if (thread < FIG_PEERS_LIMIT)
        view->inboxes[thread] = ((uint8_t *volatile *)peers->inboxes)[thread];
    if (thread == 0) {
        view->peers = peers;
        view->words = peers->words;
        view->timeout_ns = peers->timeout_ns;
        view->slot_bytes = peers->slot_bytes;
        view->rank = peers->rank;
        view->count = peers->count;
    }
    __syncthreads();
}

/* Returns the tag that follows the previous epoch's tag. It is never 0, and its lowest bit changes
 * each time. */
static __device__ __forceinline__ uint32_t fig_peers_next_tag(uint32_t epoch) {
    return epoch == UINT32_MAX ? 2 : epoch + 1;
}

/* Begins an epoch, after the wait. Each thread reads the epoch itself, so no thread waits for
 * another. */
static __device__ __forceinline__ fig_peers_epoch fig_peers_enter(const fig_peers_view *view) {
    const int32_t *epoch = (const int32_t *)&view->peers->epochs[blockIdx.x];
    fig_peers_epoch entered = {view, fig_peers_next_tag((uint32_t)fig_vector_fetch_number(epoch))};
    return entered;
}

/* Ends an epoch. All threads of the block call this at the end, after they have read the epoch. */
static __device__ __forceinline__ void fig_peers_leave(const fig_peers_epoch &e) {
    __syncthreads();
    if (threadIdx.x == 0) e.view->peers->epochs[blockIdx.x] = e.tag;
}

/* Returns the slot for messages of rank `from` in the inbox of rank `of`. */
static __device__ __forceinline__ uint8_t *fig_peers_slot(const fig_peers_epoch &e, int32_t of,
                                                          int32_t from) {
    const uint64_t slot = (uint64_t)(e.tag & 1) * (uint32_t)e.view->count + (uint32_t)from;
    return e.view->inboxes[of] + slot * e.view->slot_bytes;
}

/* Writes packets 2 * i and 2 * i + 1 of the slot, which hold one vector. Each half of a packet
 * arrives whole. */
static __device__ __forceinline__ void fig_peers_write(uint8_t *packets, int64_t i, uint4 vector,
                                                       uint32_t tag) {
    uint8_t *to = packets + i * (2 * FIG_PEERS_PACKET_BYTES);
    asm volatile("st.volatile.global.v4.u32 [%0], {%1, %3, %2, %3};"
                 :
                 : "l"(to), "r"(vector.x), "r"(vector.y), "r"(tag)
                 : "memory");
    asm volatile("st.volatile.global.v4.u32 [%0], {%1, %3, %2, %3};"
                 :
                 : "l"(to + FIG_PEERS_PACKET_BYTES), "r"(vector.z), "r"(vector.w), "r"(tag)
                 : "memory");
}

static __device__ __forceinline__ uint4 fig_peers_look(const uint8_t *packet) {
    uint4 seen;
    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(seen.x), "=r"(seen.y), "=r"(seen.z), "=r"(seen.w)
                 : "l"(packet)
                 : "memory");
    return seen;
}

/* Ends all waits. The first block to call it reports the reason to the host. */
static __device__ void fig_peers_abort(const fig_peers_view *view, fig_peers_verdict verdict,
                                       int32_t rank, const fig_peers_place *places) {
    if (atomicExch(&view->peers->aborted, 1u) != 0) return;
    volatile fig_peers_words *words = view->words;
    words->rank = (uint32_t)rank;
    for (int32_t i = 0; i < 8; i++)
        ((volatile uint32_t *)&words->mine)[i] = places != NULL ? ((const uint32_t *)places)[i] : 0;
    __threadfence_system();
    words->verdict = verdict;
}

/* Returns 1 in exactly one of the lanes that execute this together. */
static __device__ __forceinline__ int fig_peers_speaks_for_warp(void) {
    return threadIdx.x % FIG_BLOCK_WARP == (uint32_t)__ffs((int)__activemask()) - 1;
}

/* Returns 1 if a wait for `rank` must stop. The host's word is across the bus. If all threads of a
 * launch read the word, the bus would be busy for longer than `rank` is late, and `rank` would then
 * find this rank late. So only one lane of a warp reads the word, and only rarely. */
static __device__ __noinline__ int fig_peers_stops(const fig_peers_view *view, int32_t rank,
                                                   fig_peers_wait *wait) {
    const uint64_t now = fig_peers_time_ns();
    if (*(volatile uint32_t *)&view->peers->aborted != 0) return 1;
    if (wait->began_ns == 0) wait->began_ns = wait->asked_ns = now;
    if (now - wait->asked_ns < FIG_PEERS_ASK_NS) return 0;
    wait->asked_ns = now;
    if (fig_peers_speaks_for_warp() && *(volatile uint32_t *)&view->words->lost != 0) {
        fig_peers_abort(view, FIG_PEERS_LOST, rank, NULL);
        return 1;
    }
    if (now - wait->began_ns < view->timeout_ns) return 0;
    fig_peers_abort(view, FIG_PEERS_LATE, rank, NULL);
    return 1;
}

/* Returns 1 if all halves of both packets are of this epoch. */
static __device__ __forceinline__ int fig_peers_is_due(uint4 first, uint4 second, uint32_t tag) {
    return first.y == tag && first.w == tag && second.y == tag && second.w == tag;
}

/* Waits for vector i from rank `from` and returns it. The lanes that arrive here together poll
 * until each has its own vector. If each lane went on by itself, the warp would repeat the
 * following work once per arrival time. */
static __device__ __forceinline__ uint4 fig_peers_read(const fig_peers_epoch &e,
                                                       const uint8_t *packets, int64_t i,
                                                       int32_t from) {
    const uint8_t *at = packets + i * (2 * FIG_PEERS_PACKET_BYTES);
    const uint32_t lanes = __activemask();
    fig_peers_wait wait = {0, 0};
    uint4 first, second;
    for (uint32_t spins = 1;; spins++) {
        first = fig_peers_look(at);
        second = fig_peers_look(at + FIG_PEERS_PACKET_BYTES);
        const int is_due = fig_peers_is_due(first, second, e.tag);
        if (__all_sync(lanes, is_due)) break;
        if (spins % FIG_PEERS_LOOK_SPINS != 0) continue;
        if (__any_sync(lanes, !is_due && fig_peers_stops(e.view, from, &wait))) break;
    }
    return make_uint4(first.x, first.z, second.x, second.z);
}

/* Sends vector i of this rank's message to one other rank. */
static __device__ __forceinline__ void fig_peers_send(const fig_peers_epoch &e, int32_t to,
                                                      int64_t i, uint4 vector) {
    fig_peers_write(fig_peers_slot(e, to, e.view->rank) + FIG_PEERS_HEAD_BYTES, i, vector, e.tag);
}

/* Sends vector i of this rank's message to every other rank. */
static __device__ __forceinline__ void fig_peers_push(const fig_peers_epoch &e, int64_t i,
                                                      uint4 vector) {
    const fig_peers_view *view = e.view;
    for (int32_t apart = 1; apart < view->count; apart++)
        fig_peers_send(e, (view->rank + apart) % view->count, i, vector);
}

/* Receives vector i of the message of rank `from`, which must be another rank. */
static __device__ __forceinline__ uint4 fig_peers_take(const fig_peers_epoch &e, int32_t from,
                                                       int64_t i) {
    return fig_peers_read(e, fig_peers_slot(e, e.view->rank, from) + FIG_PEERS_HEAD_BYTES, i, from);
}

static __device__ __forceinline__ int fig_peers_is_same_place(const fig_peers_place &a,
                                                              const fig_peers_place &b) {
    return a.step == b.step && a.exec == b.exec && a.node == b.node && a.rows == b.rows;
}

/* Returns 1 if this block moves no message. */
static __device__ __forceinline__ int fig_peers_speaks(void) {
    return blockIdx.x >= FIG_PEERS_BLOCKS;
}

static __device__ __forceinline__ void fig_peers_speak_with(const fig_peers_epoch &e, int32_t rank,
                                                            const fig_peers_place &place) {
    const fig_peers_view *view = e.view;
    fig_peers_write(fig_peers_slot(e, rank, view->rank), 0,
                    make_uint4(place.step, place.exec, place.node, place.rows), e.tag);
    const uint4 seen = fig_peers_read(e, fig_peers_slot(e, view->rank, rank), 0, rank);
    const fig_peers_place places[2] = {place, {seen.x, seen.y, seen.z, seen.w}};
    if (*(volatile uint32_t *)&view->peers->aborted != 0) return;
    if (!fig_peers_is_same_place(places[0], places[1]))
        fig_peers_abort(view, FIG_PEERS_APART, rank, places);
}

/* Does all work of a block that moves no message. In the first of these blocks, thread r exchanges
 * places with rank r. */
static __device__ __forceinline__ void fig_peers_speak(const fig_peers_epoch &e,
                                                       const fig_peers_place &place) {
    const int32_t rank = (int32_t)threadIdx.x;
    if (blockIdx.x == FIG_PEERS_BLOCKS && rank < e.view->count && rank != e.view->rank)
        fig_peers_speak_with(e, rank, place);
    fig_peers_leave(e);
}

/* Returns this rank's place. */
static __device__ __forceinline__ fig_peers_place fig_peers_place_of(const uint8_t *plan,
                                                                     const fig_fetch_state *state,
                                                                     uint32_t node, int32_t rows) {
    fig_peers_place place = {0, 0, node, (uint32_t)rows};
    if (state != NULL) place.step = (uint32_t) * (const volatile uint64_t *)&state->replays;
    if (plan != NULL) place.exec = ((const volatile fig_plan_head *)plan)->exec;
    return place;
}

#endif
