/* latent_ring.cuh: lays out the shared memory of a block of the warpgroup kernel over latents.
 *
 * One warp loads tiles and describes pieces; two warpgroups multiply. Tile k of the worker's
 * stretch is in stage k % 2 and belongs to warpgroup k % 2, which computes its weights. Every chunk
 * has barriers of its own. Chunks 0 to 3 are the half of V of warpgroup 0, and chunks 4 to 7 the
 * half of warpgroup 1. Both warpgroups read all chunks for the logits of their own tiles. The last
 * chunk holds the values under RoPE until the owner of the tile has computed its logits; from then
 * on it holds the weights for the other warpgroup.
 *
 * Owns the layout and the barriers. Invariant: the warpgroup that a chunk of V belongs to releases
 * it, after the logits that need it. The warpgroup that does not own the tile releases the last
 * chunk. */
#ifndef FIG_KERNELS_LATENT_RING_CUH
#define FIG_KERNELS_LATENT_RING_CUH

/* FIG_LATENT_RING_PAIR: two blocks of a cluster share a worker. They have different vectors of its
 * groups and read the same tiles, so each chunk is loaded once, into both rings at the same place.
 * The blocks take turns at loading chunks. Then the barrier `empty` of a chunk counts, in the block
 * that loads it, the warps of both blocks. A test runs such blocks alone, each as the only
 * sender. */
#ifdef FIG_LATENT_RING_PAIR
#define FIG_FEED_BLOCKS 2
#ifndef FIG_LATENT_RING_SENDERS
#define FIG_LATENT_RING_SENDERS 2
#endif
#else
#define FIG_LATENT_RING_SENDERS 1
#endif

#include "kernels/attention/partials.cuh"
#include "kernels/common/block.cuh"
#include "kernels/latent/latent_machine.cuh"
#include "kernels/latent/latent_wide.h"
#include "kernels/wide/wgmma.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

enum {
    FIG_LATENT_RING_NOTES = 4,
    FIG_LATENT_RING_GROUP = 128,                         /* threads of a warpgroup */
    FIG_LATENT_RING_READERS = 2 * FIG_LATENT_RING_GROUP, /* threads that multiply */
    FIG_LATENT_RING_LAST = FIG_LATENT_WIDE_CHUNKS - 1,   /* the chunk under RoPE */
    FIG_LATENT_RING_HALF = FIG_LATENT_RING_LAST / 2,     /* chunks of a warpgroup's half of V */
    FIG_LATENT_RING_HALF_DIMS = FIG_LATENT_DIM / 2,
    FIG_LATENT_RING_WARPS = 4, /* warps of a warpgroup */
    FIG_LATENT_RING_RELEASES = FIG_LATENT_RING_WARPS * FIG_LATENT_RING_SENDERS
};

/* Named barriers. */
enum { FIG_LATENT_RING_ALL = 1, FIG_LATENT_RING_OWN = 2 /* and 3, by the warpgroup */ };

/* Describes a piece. The last note only says that the work has ended. */
typedef struct fig_latent_ring_note {
    int32_t tiles; /* 0: the end */
    int32_t row, group;
    int32_t token;      /* first token of the first tile */
    int32_t first, end; /* tokens that some query of the row sees, among those of the piece */
    int32_t length;     /* from fig_split_full_length() */
    int32_t partial;    /* -1: the piece is whole */
    /* tokens of the piece that every query of the row sees */
    int32_t all_first, all_end;
    int32_t unused[2];
} fig_latent_ring_note;
static_assert(sizeof(fig_latent_ring_note) % 16 == 0, "read by whole loads");

/* Describes the worker's part of a merge. */
typedef struct fig_latent_ring_merge {
    int32_t parts; /* 0: none */
    int32_t part;
    int32_t row, group;
    int32_t first, last; /* numbers of the segment's pieces */
    int32_t partial;     /* the partial of the first piece */
    int32_t unused;
} fig_latent_ring_merge;

/* The merge of the segment of the worker's first piece, and that of its last piece. */
enum { FIG_LATENT_RING_MERGES = 2 };

typedef struct fig_latent_ring_state {
    uint64_t full[FIG_LATENT_WIDE_STAGES][FIG_LATENT_WIDE_CHUNKS];
    uint64_t empty[FIG_LATENT_WIDE_STAGES][FIG_LATENT_WIDE_CHUNKS];
    uint64_t weighed[FIG_LATENT_WIDE_STAGES]; /* the last chunk holds the weights */
    uint64_t noted[FIG_LATENT_RING_NOTES];
    uint64_t early, unused_barrier; /* a tile that is sent before the wait */
    fig_latent_ring_note notes[FIG_LATENT_RING_NOTES];
    fig_latent_ring_merge merges[FIG_LATENT_RING_MERGES];
    float greatest[FIG_LATENT_WIDE_STAGES][FIG_LATENT_WIDE_VECTORS];
    float sums[2][FIG_LATENT_WIDE_GROUPS][FIG_LATENT_WIDE_VECTORS]; /* of weights, at the end */
    int32_t grows[FIG_LATENT_WIDE_STAGES][FIG_LATENT_RING_WARPS];
    uint32_t is_last, unused[3];
} fig_latent_ring_state;
static_assert(sizeof(fig_latent_ring_state) <= FIG_LATENT_WIDE_STATE_BYTES, "the state's room");

typedef struct fig_latent_ring {
    uint32_t base; /* shared address of stage 0 */
    fig_latent_ring_state *state;
} fig_latent_ring;

static __device__ __forceinline__ uint32_t fig_latent_ring_chunk(const fig_latent_ring &ring,
                                                                 int32_t stage, int32_t chunk) {
    return ring.base + (uint32_t)((stage * FIG_LATENT_WIDE_CHUNKS + chunk) *
                                  (int32_t)FIG_LATENT_WIDE_CHUNK_BYTES);
}

static __device__ __forceinline__ uint32_t fig_latent_ring_q(const fig_latent_ring &ring,
                                                             int32_t chunk) {
    return fig_latent_ring_chunk(ring, FIG_LATENT_WIDE_STAGES, chunk);
}

/* Returns the memory of the tiles, which lies before q and the state. */
static __device__ __forceinline__ void *fig_latent_ring_tiles(fig_latent_ring_state *state) {
    return (uint8_t *)state - (FIG_LATENT_WIDE_STAGES + 1) * FIG_LATENT_WIDE_SIDE_BYTES;
}

/* Returns the number of the i-th chunk in which a tile is loaded and read. The first half belongs
 * to the tile's owner, which releases it first. */
static __device__ __forceinline__ int32_t fig_latent_ring_turn(int32_t owner, int32_t i) {
    return i == FIG_LATENT_RING_LAST ? i
                                     : (i + FIG_LATENT_RING_HALF * owner) % FIG_LATENT_RING_LAST;
}

/* Returns the rank, in the cluster, of the block that loads a chunk. */
static __device__ __forceinline__ int32_t fig_latent_ring_sender(int32_t stage, int32_t chunk) {
    return (stage + chunk) % FIG_LATENT_RING_SENDERS;
}

static __device__ __forceinline__ int32_t fig_latent_ring_rank() {
    return (int32_t)blockIdx.x % FIG_LATENT_RING_SENDERS;
}

/* Releases a chunk for the block that loads the next one to its place. */
static __device__ __forceinline__ void fig_latent_ring_release(const fig_latent_ring &ring,
                                                               int32_t stage, int32_t chunk) {
    const uint32_t empty = fig_fragment_shared(&ring.state->empty[stage][chunk]);
    if (FIG_LATENT_RING_SENDERS == 1) {
        fig_ring_arrive(empty);
    } else {
        fig_latent_machine_arrive(
            fig_latent_machine_of(empty, fig_latent_ring_sender(stage, chunk)));
    }
}

/* Waits for a phase of a barrier. A build that defines FIG_LATENT_LOOKS gives up after that number
 * of tries of up to 10 ms each. Its results are then wrong, but the kernel ends. */
static __device__ __forceinline__ void fig_latent_ring_wait(const uint64_t *barrier,
                                                            uint32_t phase) {
    const uint32_t address = fig_fragment_shared(barrier);
#ifdef FIG_LATENT_LOOKS
    uint32_t is_over = 0;
    for (int32_t look = 0; look < FIG_LATENT_LOOKS && !is_over; look++)
        is_over = fig_latent_machine_try(address, phase);
#else
    fig_ring_wait(address, phase);
#endif
}

/* Returns x, which is the same in all lanes, so that the compiler knows it. */
static __device__ __forceinline__ int32_t fig_latent_ring_same(int32_t x) {
    return __shfl_sync(0xffffffffu, x, 0);
}

/* Returns note `number` once it has been written. state: that of a ring of either kernel. */
template <class state>
static __device__ __forceinline__ fig_latent_ring_note fig_latent_ring_read(const state *of,
                                                                            int32_t number) {
    const int32_t at = number % FIG_LATENT_RING_NOTES;
    fig_latent_ring_note note;
    fig_latent_ring_wait(&of->noted[at], (uint32_t)(number / FIG_LATENT_RING_NOTES & 1));
    const int4 *from = (const int4 *)&of->notes[at];
#pragma unroll
    for (int32_t i = 0; i < (int32_t)(sizeof note / sizeof *from); i++)
        ((int4 *)&note)[i] = from[i];
    note.tiles = fig_latent_ring_same(note.tiles);
    note.row = fig_latent_ring_same(note.row);
    note.group = fig_latent_ring_same(note.group);
    note.token = fig_latent_ring_same(note.token);
    note.first = fig_latent_ring_same(note.first);
    note.end = fig_latent_ring_same(note.end);
    note.length = fig_latent_ring_same(note.length);
    note.partial = fig_latent_ring_same(note.partial);
    note.all_first = fig_latent_ring_same(note.all_first);
    note.all_end = fig_latent_ring_same(note.all_end);
    return note;
}

/* Initialises the barriers. One thread calls this function. */
static __device__ __forceinline__ void fig_latent_ring_init(fig_latent_ring_state *state) {
#pragma unroll 1
    for (int32_t chunk = 0; chunk < FIG_LATENT_WIDE_CHUNKS; chunk++) {
        for (int32_t stage = 0; stage < FIG_LATENT_WIDE_STAGES; stage++) {
            fig_ring_barrier_init(&state->full[stage][chunk], 1);
            fig_ring_barrier_init(&state->empty[stage][chunk], FIG_LATENT_RING_RELEASES);
        }
    }
    for (int32_t stage = 0; stage < FIG_LATENT_WIDE_STAGES; stage++)
        fig_ring_barrier_init(&state->weighed[stage], FIG_LATENT_RING_WARPS);
    for (int32_t note = 0; note < FIG_LATENT_RING_NOTES; note++)
        fig_ring_barrier_init(&state->noted[note], 1);
    fig_ring_barrier_init(&state->early, 1);
    fig_latent_machine_show_barriers();
}

#endif
#endif
