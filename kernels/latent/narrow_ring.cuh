/* narrow_ring.cuh: lays out the shared memory of a block of the warpgroup kernel over latents for
 * groups of few vectors.
 *
 * One warp loads tiles and describes pieces; two warpgroups multiply. If the cache holds codes
 * (FIG_NARROW_RING_CODES), the warp loads them to stages of their own, and other warps convert them
 * into the ring. Chunk n of the worker's stretch, counted over its tiles, is in place n % CHUNKS of
 * the ring. Of a tile's nine chunks, warpgroup 0 reads chunks 0 to 3 and the last one, and
 * warpgroup 1 chunks 4 to 7. Every place has barriers of its own, so the ring holds 2.4 to 2.8
 * tiles, where a ring of whole tiles would hold two; beside the stages of codes, 1.9 or 1.6.
 *
 * In the kernel for clusters (FIG_NARROW_RING_CLUSTERS), an inbox follows the state: results that
 * the blocks of the cluster have sent to this one.
 *
 * Owns the layout and the barriers. Invariant: the warpgroup that reads a chunk releases it. */
#ifndef FIG_KERNELS_NARROW_RING_CUH
#define FIG_KERNELS_NARROW_RING_CUH

#include "kernels/latent/latent_narrow.h"
#include "kernels/latent/latent_ring.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* Bytes of the stages for codes, bytes of the inbox for each vector, the arrivals that fill a place
 * of the ring, and the number of a tile's place that holds chunk 0. A ring beside stages or an
 * inbox may be a place short of two tiles. So the chunk that is free first, the one under RoPE, is
 * the first there: the last chunk of a tile, which takes its place, does not wait for the end of
 * the previous tile. */
#if defined FIG_NARROW_RING_CODES
enum {
    FIG_NARROW_RING_STAGES_BYTES = FIG_LATENT_NARROW_CODES_BYTES,
    FIG_NARROW_RING_INBOX_BYTES = 0,
    FIG_NARROW_RING_FILLERS = FIG_LATENT_WIDE_TILE / FIG_LATENT_NARROW_CODES_TOKENS,
    FIG_NARROW_RING_FIRST = 1
};
#elif defined FIG_NARROW_RING_CLUSTERS
enum {
    FIG_NARROW_RING_STAGES_BYTES = 0,
    FIG_NARROW_RING_INBOX_BYTES = FIG_LATENT_NARROW_RESULT_BYTES,
    FIG_NARROW_RING_FILLERS = 1,
    FIG_NARROW_RING_FIRST = 1
};
#else
enum {
    FIG_NARROW_RING_STAGES_BYTES = 0,
    FIG_NARROW_RING_INBOX_BYTES = 0,
    FIG_NARROW_RING_FILLERS = 1,
    FIG_NARROW_RING_FIRST = 0
};
#endif

/* VECTORS: 16 or 32, the vectors that the products have room for. A unit is eight of them. Each
 * warpgroup computes the weights of half of the units. */
template <int32_t VECTORS> struct fig_narrow_ring_form {
    static constexpr int32_t UNITS = VECTORS / 8, HALF = UNITS / 2;
    static constexpr int32_t OTHER =
        FIG_NARROW_RING_STAGES_BYTES + VECTORS * FIG_NARROW_RING_INBOX_BYTES;
    static constexpr int32_t CHUNKS = FIG_LATENT_NARROW_CHUNKS(VECTORS, OTHER);
    static constexpr int32_t TILES = CHUNKS / FIG_LATENT_WIDE_CHUNKS; /* whole tiles */
    static constexpr int32_t Q_CHUNK_BYTES = VECTORS * 128;
    static constexpr int32_t Q_AT = CHUNKS * FIG_LATENT_WIDE_CHUNK_BYTES;
    static constexpr int32_t WEIGHTS_AT = Q_AT + FIG_LATENT_WIDE_CHUNKS * Q_CHUNK_BYTES;
    static constexpr int32_t LOGITS_AT = WEIGHTS_AT + VECTORS * 128;
    static constexpr int32_t STATE_AT = LOGITS_AT + VECTORS * FIG_LATENT_WIDE_TILE * 4;
    static constexpr int32_t STAGES_AT = STATE_AT + FIG_LATENT_NARROW_STATE_BYTES;
    static constexpr int32_t INBOX_AT = STAGES_AT;
    static_assert(STAGES_AT + OTHER <= FIG_LATENT_NARROW_BYTES, "a block's");
};

template <int32_t VECTORS> struct fig_narrow_ring_state {
    uint64_t full[fig_narrow_ring_form<VECTORS>::CHUNKS];
    uint64_t empty[fig_narrow_ring_form<VECTORS>::CHUNKS];
    uint64_t noted[FIG_LATENT_RING_NOTES];
    uint64_t early; /* a tile that is sent before the wait */
#ifdef FIG_NARROW_RING_CLUSTERS
    uint64_t given; /* results from the blocks of the cluster */
#endif
#ifdef FIG_NARROW_RING_CODES
    /* of the stages; ends: 1 if there is no further tile */
    uint64_t loaded[FIG_LATENT_NARROW_CODES_STAGES], converted[FIG_LATENT_NARROW_CODES_STAGES];
    int32_t ends[FIG_LATENT_NARROW_CODES_STAGES];
#endif
    alignas(16) fig_latent_ring_note notes[FIG_LATENT_RING_NOTES];
    fig_latent_ring_merge merges[FIG_LATENT_RING_MERGES];
    float greatest[VECTORS];                    /* references of the weights */
    float shrink[VECTORS];                      /* factors of the sums when references rise */
    float first[VECTORS];                       /* halves of the logits of a piece's first token */
    float most[FIG_LATENT_RING_WARPS][VECTORS]; /* greatest logits of the warps' tokens */
    float weights[FIG_LATENT_RING_WARPS][VECTORS]; /* sums over them, at the end of a piece */
    int32_t passes[2];                             /* 1: a logit passes its reference; by turns */
    uint32_t is_last;
};
static_assert(sizeof(fig_narrow_ring_state<FIG_LATENT_NARROW_VECTORS>) <=
                  FIG_LATENT_NARROW_STATE_BYTES,
              "the state's room");
static_assert(sizeof(fig_narrow_ring_state<FIG_LATENT_NARROW_FEW>) <= FIG_LATENT_NARROW_STATE_BYTES,
              "the state's room");

template <int32_t VECTORS> struct fig_narrow_ring {
    uint32_t base; /* shared address of place 0 */
    fig_narrow_ring_state<VECTORS> *state;
};

/* A place in the ring, and the phase of its barriers. */
typedef struct fig_narrow_ring_place {
    int32_t number;
    uint32_t phase;
} fig_narrow_ring_place;

/* Returns the place `chunks` chunks, less than a ring, behind another one. */
template <int32_t VECTORS>
static __device__ __forceinline__ fig_narrow_ring_place
fig_narrow_ring_behind(fig_narrow_ring_place place, int32_t chunks) {
    place.number += chunks;
    if (place.number < fig_narrow_ring_form<VECTORS>::CHUNKS) return place;
    place.number -= fig_narrow_ring_form<VECTORS>::CHUNKS;
    place.phase ^= 1;
    return place;
}

/* Returns the place of a chunk of the tile whose places begin at `tile`. */
template <int32_t VECTORS>
static __device__ __forceinline__ fig_narrow_ring_place
fig_narrow_ring_of(const fig_narrow_ring_place &tile, int32_t chunk) {
    const int32_t number = chunk + FIG_NARROW_RING_FIRST;
    return fig_narrow_ring_behind<VECTORS>(tile, number < FIG_LATENT_WIDE_CHUNKS ? number : 0);
}

template <int32_t VECTORS>
static __device__ __forceinline__ uint32_t
fig_narrow_ring_chunk(const fig_narrow_ring<VECTORS> &ring, int32_t place) {
    return ring.base + (uint32_t)(place * (int32_t)FIG_LATENT_WIDE_CHUNK_BYTES);
}

/* Returns the memory of the tiles, which lies before q and the state. */
template <int32_t VECTORS>
static __device__ __forceinline__ void *
fig_latent_ring_tiles(fig_narrow_ring_state<VECTORS> *state) {
    return (uint8_t *)state - fig_narrow_ring_form<VECTORS>::STATE_AT;
}

/* Initialises the barriers. One warp calls this function. */
template <int32_t VECTORS>
static __device__ __forceinline__ void fig_narrow_ring_init(fig_narrow_ring_state<VECTORS> *state) {
    const int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP;
    static_assert(fig_narrow_ring_form<VECTORS>::CHUNKS <= (int32_t)FIG_BLOCK_WARP, "a lane each");
    if (lane < fig_narrow_ring_form<VECTORS>::CHUNKS) {
        fig_ring_barrier_init(&state->full[lane], FIG_NARROW_RING_FILLERS);
        fig_ring_barrier_init(&state->empty[lane], FIG_LATENT_RING_WARPS);
    }
    if (lane < FIG_LATENT_RING_NOTES) fig_ring_barrier_init(&state->noted[lane], 1);
    if (lane == 0) fig_ring_barrier_init(&state->early, 1);
#ifdef FIG_NARROW_RING_CLUSTERS
    if (lane == 0) fig_ring_barrier_init(&state->given, 1);
#endif
#ifdef FIG_NARROW_RING_CODES
    if (lane < FIG_LATENT_NARROW_CODES_STAGES) {
        fig_ring_barrier_init(&state->loaded[lane], 1);
        fig_ring_barrier_init(&state->converted[lane], FIG_LATENT_NARROW_CONVERTERS);
    }
#endif
    if (lane < 2) state->passes[lane] = 0;
    fig_latent_machine_show_barriers();
}

#endif
#endif
