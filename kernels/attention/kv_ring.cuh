/* kv_ring.cuh: passes strips of K and V through a ring in shared memory, with notes from the warps
 * that fill it to the warps that empty it.
 *
 * A slot holds a strip of the cache and a note that describes it. Warps fill and release the K and
 * the V of a slot separately. The bulk copy engine writes blocks of one head and 16 tokens, in
 * whole columns of 128 bytes, or of 64 bytes if a token is no multiple of 128:
 *
 *     [K, V][16 tokens][head][column][token][8 chunks of 16 bytes, or 4]
 *
 * Within a column, chunk c of token t lies at position c ^ t % 8, or c ^ t / 2 % 4, where the
 * engine's swizzle puts it. Thus 8 chunks of one token lie in different banks, and so does one
 * chunk of 8 tokens. The copy family's copies of 16 bytes keep the order of the cache. If a token
 * has an even number of chunks, one unused chunk follows it, again to avoid bank conflicts:
 *
 *     [K, V][token][head][chunk]
 *
 * Owns the barriers and the position of both sides in the ring. Invariant: one side of a slot is
 * full when all its bytes have arrived, and empty when every reading warp has released it, whether
 * or not that warp read it. */
#ifndef FIG_KERNELS_KV_RING_CUH
#define FIG_KERNELS_KV_RING_CUH

#include "kernels/common/barriers.cuh"
#include "kernels/common/block.cuh"
#include "kernels/common/fragment.cuh"

enum {
    FIG_RING_TOKENS = 16, /* tokens of a block of the cache */
    FIG_RING_CHUNK = 16,  /* bytes */
    FIG_RING_SLOT_LIMIT = 32
};

/* Returns the offset, within a column of a block, of a token's chunk. COLUMN: bytes of a token. */
template <int32_t COLUMN>
static __device__ __forceinline__ int32_t fig_ring_chunk_at(int32_t token, int32_t chunk) {
    return token * COLUMN + ((chunk ^ (COLUMN == 128 ? token % 8 : token / 2 % 4)) << 4);
}

/* Returns the address of two neighbouring chunks, number `pair` of their token. pairs: the address
 * of number 0. */
template <int32_t COLUMN>
static __device__ __forceinline__ uint32_t fig_ring_pair_at(uint32_t pairs, int32_t pair) {
    const int32_t COUNT = COLUMN / (2 * FIG_RING_CHUNK); /* pairs in a column */
    return (pairs ^ (uint32_t)(pair % COUNT * 2 * FIG_RING_CHUNK)) +
           (uint32_t)(pair / COUNT * COLUMN * FIG_RING_TOKENS);
}

/* The kinds of slots. */
enum {
    FIG_RING_FIRST = 1,  /* first strip of a piece */
    FIG_RING_LAST = 2,   /* last strip of a piece */
    FIG_RING_EDGE = 4,   /* some vector does not see some of its tokens */
    FIG_RING_MERGE = 8,  /* no strip: a merge of a segment */
    FIG_RING_END = 16,   /* no strip: the worker has finished */
    FIG_RING_NEWEST = 32 /* some of its tokens belong to the current step */
};

typedef struct fig_ring_note {
    int32_t flags;
    int32_t row, group;
    int32_t token; /* first token of the strip; in a merge note: the block's part of the merge */
    /* tokens of the piece; in a merge note: its first and last piece, both included */
    int32_t first, end;
    int32_t length;  /* from fig_split_full_length(); in a merge note: the number of parts */
    int32_t partial; /* the piece's partial, or the first one of a merge; -1: the piece is whole */
} fig_ring_note;
static_assert(sizeof(fig_ring_note) == 32, "read by two loads");

typedef struct fig_ring_barriers {
    uint64_t full[2], empty[2]; /* [K, V] */
} fig_ring_barriers;

/* The state of the ring follows the slots in shared memory. */
typedef struct fig_ring_state {
    fig_ring_barriers barriers[FIG_RING_SLOT_LIMIT];
    fig_ring_note notes[FIG_RING_SLOT_LIMIT];
    uint32_t is_last; /* 1: the finished piece was its segment's last */
} fig_ring_state;

/* Holds the state that a warp keeps about the ring, for a filler or a reader. */
typedef struct fig_ring {
    fig_ring_state *state;
    uint32_t slots;              /* shared address of the first slot */
    uint32_t side_bytes;         /* bytes of the K or the V of a strip */
    uint32_t tokens_bytes;       /* bytes of 16 tokens of one side */
    int32_t strip;               /* tokens of a strip */
    int32_t slot_count, readers; /* readers: warps that read */
    int32_t slot;
    uint32_t phase;  /* the barrier phase that this side waits for next */
    uint32_t newest; /* bit s: readers have written to slot s */
} fig_ring;

enum { FIG_RING_K, FIG_RING_V };

static __device__ __forceinline__ uint32_t fig_ring_side(const fig_ring &ring, int32_t side) {
    return ring.slots + (uint32_t)(2 * ring.slot + side) * ring.side_bytes;
}

static __device__ __forceinline__ uint32_t fig_ring_full(const fig_ring &ring, int32_t side) {
    return fig_fragment_shared(&ring.state->barriers[ring.slot].full[side]);
}

static __device__ __forceinline__ void fig_ring_next(fig_ring *ring) {
    if (++ring->slot < ring->slot_count) return;
    ring->slot = 0;
    ring->phase ^= 1;
}

/* Names the barriers at which the reading warps and the other filling warps wait until the ring
 * exists. The two groups have a barrier each, because all warps of one bar.sync must execute the
 * same instruction. */
enum { FIG_RING_MADE_TO_READ = 0, FIG_RING_MADE_TO_FILL = 14 };

/* Initialises the ring. One thread calls this function. full_count: number of arrivals that fill a
 * side. Other warps may use the barriers after FIG_RING_MADE_TO_*. */
static __device__ __forceinline__ void fig_ring_init(fig_ring_state *state, int32_t slot_count,
                                                     int32_t full_count, int32_t readers) {
#pragma unroll 1
    for (int32_t slot = 0; slot < slot_count; slot++) {
#pragma unroll
        for (int32_t side = 0; side < 2; side++) {
            fig_ring_barrier_init(&state->barriers[slot].full[side], full_count);
            fig_ring_barrier_init(&state->barriers[slot].empty[side], readers);
        }
    }
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}

/* Waits until the side is empty. A filler calls it. */
static __device__ __forceinline__ void fig_ring_wait_empty(const fig_ring &ring, int32_t side) {
    fig_ring_wait(fig_fragment_shared(&ring.state->barriers[ring.slot].empty[side]),
                  ring.phase ^ 1);
}

/* Waits until the side is full. A reader's whole warp calls it. */
static __device__ __forceinline__ void fig_ring_wait_full(const fig_ring &ring, int32_t side) {
    fig_ring_wait(fig_ring_full(ring, side), ring.phase);
    __syncwarp();
}

static __device__ __forceinline__ void fig_ring_release(const fig_ring &ring, int32_t side) {
    __syncwarp();
    if (threadIdx.x % FIG_BLOCK_WARP == 0)
        fig_ring_arrive(fig_fragment_shared(&ring.state->barriers[ring.slot].empty[side]));
}

static __device__ __forceinline__ fig_ring_note fig_ring_read(const fig_ring &ring) {
    fig_ring_note note;
    const int4 *from = (const int4 *)&ring.state->notes[ring.slot];
    ((int4 *)&note)[0] = from[0];
    ((int4 *)&note)[1] = from[1];
    return note;
}

/* Writes the note of a slot. One lane calls it. */
static __device__ __forceinline__ void fig_ring_write(const fig_ring &ring,
                                                      const fig_ring_note &note) {
    int4 *to = (int4 *)&ring.state->notes[ring.slot];
    to[0] = ((const int4 *)&note)[0];
    to[1] = ((const int4 *)&note)[1];
}

#endif
