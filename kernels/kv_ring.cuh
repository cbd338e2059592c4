/* kv_ring.cuh: strips of K and V on their way through shared memory, and what the block that fills
 * the ring tells the warps that empty it.
 *
 * A slot is a strip of the cache and a note that says what it is; K and V of it come and go by
 * themselves. What the bulk copy engine brings lies in blocks, each of one head of 16 tokens in
 * whole columns of 128 bytes:
 *
 *     [K, V][16 tokens][head][column][token][8 chunks of 16 bytes]
 *
 * and chunk c of token t lies at c ^ t % 8 of its column, as its 128-byte swizzle leaves it, so
 * that neither 8 tokens nor 8 chunks of one meet in a bank. What is copied by 16 bytes lies as in a
 * cache, with one chunk more behind a token where its chunks are an even number, for the same end:
 *
 *     [K, V][token][head][chunk]
 *
 * Owns the barriers and both sides' way around the ring. Invariant: a slot is full when its bytes
 * are there, and empty when every warp that reads it has read it. */
#ifndef FIG_KERNELS_KV_RING_CUH
#define FIG_KERNELS_KV_RING_CUH

#include "kernels/block.cuh"
#include "kernels/fragment.cuh"

enum {
    FIG_RING_TOKENS = 16,                    /* of a block */
    FIG_RING_CHUNK = 16,                     /* bytes */
    FIG_RING_COLUMN = 128 * FIG_RING_TOKENS, /* bytes of a column of a block */
    FIG_RING_SLOT_LIMIT = 32
};

/* What lies in a slot. */
enum {
    FIG_RING_FIRST = 1,  /* strip of a piece */
    FIG_RING_LAST = 2,   /* strip of a piece */
    FIG_RING_EDGE = 4,   /* some of its tokens are unseen by some vector */
    FIG_RING_MERGE = 8,  /* no strip: a segment to be merged */
    FIG_RING_END = 16,   /* no strip: the worker is done */
    FIG_RING_NEWEST = 32 /* some of its tokens are the step's own */
};

typedef struct fig_ring_note {
    int32_t flags;
    int32_t row, group;
    int32_t token;      /* first of the strip; of a merge which part of it is the block's */
    int32_t first, end; /* tokens of the piece; of a merge the numbers of its pieces, the last one
                           too */
    int32_t length;     /* of the row; of a merge its parts */
    int32_t partial;    /* of the piece, or of the first of a merge; -1: it is whole */
} fig_ring_note;
static_assert(sizeof(fig_ring_note) == 32, "read by two loads");

typedef struct fig_ring_barriers {
    uint64_t full[2], empty[2]; /* of K, of V */
} fig_ring_barriers;

/* Behind the slots in shared memory. */
typedef struct fig_ring_state {
    fig_ring_barriers barriers[FIG_RING_SLOT_LIMIT];
    fig_ring_note notes[FIG_RING_SLOT_LIMIT];
    uint32_t is_last; /* of a segment to be finished, the piece just seen */
} fig_ring_state;

/* Where one side stands. */
typedef struct fig_ring {
    fig_ring_state *state;
    uint32_t slots;              /* shared address of the first */
    uint32_t side_bytes;         /* of K or of V of a strip */
    uint32_t tokens_bytes;       /* of 16 tokens of it */
    int32_t strip;               /* tokens */
    int32_t slot_count, readers; /* readers: warps */
    int32_t slot;
    uint32_t phase;  /* whose end it waits for next */
    uint32_t newest; /* slots, by bits, that whoever reads has written to */
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

static __device__ __forceinline__ void fig_ring_barrier_init(uint64_t *barrier, int32_t count) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(fig_fragment_shared(barrier)),
                 "r"(count)
                 : "memory");
}

/* The barriers at which warps that read, and others that fill, meet a ring that has been made. Two,
 * since bar.sync is for warps that come to one and the same instruction. */
enum { FIG_RING_MADE_TO_READ = 0, FIG_RING_MADE_TO_FILL = 14 };

/* By one thread, since barriers are made one by one. full_count: arrivals that fill a side; other
 * warps see them behind FIG_RING_MADE_TO_*. */
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

static __device__ __forceinline__ void fig_ring_arrive(uint32_t barrier) {
    asm volatile("{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }" ::"r"(barrier)
                 : "memory");
}

static __device__ __forceinline__ void fig_ring_wait(uint32_t barrier, uint32_t phase) {
    uint32_t is_over = 0;
    while (!is_over) {
#if __CUDA_ARCH__ >= 900
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2, 0x989680;\n"
                     "selp.u32 %0, 1, 0, p; }"
                     : "=r"(is_over)
                     : "r"(barrier), "r"(phase)
                     : "memory");
#else
        asm volatile("{ .reg .pred p; .reg .b64 state; .reg .b32 parity;\n"
                     "mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(is_over)
                     : "r"(barrier), "r"(phase)
                     : "memory");
#endif
    }
}

/* For whoever fills: until the side is empty. */
static __device__ __forceinline__ void fig_ring_wait_empty(const fig_ring &ring, int32_t side) {
    fig_ring_wait(fig_fragment_shared(&ring.state->barriers[ring.slot].empty[side]),
                  ring.phase ^ 1);
}

/* For whoever reads, by whole warps. */
static __device__ __forceinline__ void fig_ring_wait_full(const fig_ring &ring, int32_t side) {
    fig_ring_wait(fig_ring_full(ring, side), ring.phase);
    __syncwarp();
}

static __device__ __forceinline__ void fig_ring_release(const fig_ring &ring, int32_t side) {
    __syncwarp();
    if (threadIdx.x % FIG_BLOCK_WARP == 0)
        fig_ring_arrive(fig_fragment_shared(&ring.state->barriers[ring.slot].empty[side]));
}

/* A barrier of some warps of the block, by its number: all that wait there at once do so in one
 * place of the code. */
static __device__ __forceinline__ void fig_ring_meet(int32_t barrier, int32_t threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

/* Says there that the warp has come, and does not wait for the others. */
static __device__ __forceinline__ void fig_ring_pass(int32_t barrier, int32_t threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

static __device__ __forceinline__ fig_ring_note fig_ring_read(const fig_ring &ring) {
    fig_ring_note note;
    const int4 *from = (const int4 *)&ring.state->notes[ring.slot];
    ((int4 *)&note)[0] = from[0];
    ((int4 *)&note)[1] = from[1];
    return note;
}

/* By one lane. */
static __device__ __forceinline__ void fig_ring_write(const fig_ring &ring,
                                                      const fig_ring_note &note) {
    int4 *to = (int4 *)&ring.state->notes[ring.slot];
    to[0] = ((const int4 *)&note)[0];
    to[1] = ((const int4 *)&note)[1];
}

#endif
