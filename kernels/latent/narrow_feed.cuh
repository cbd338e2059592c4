/* narrow_feed.cuh: loads tiles of a latent cache into a ring of chunks, and describes pieces and
 * merges for the warpgroups that multiply.
 *
 * latent_feed.cuh walks along the worker's stretch, finds the places of tokens and writes notes;
 * this file moves the tiles. Invariant: that of latent_feed.cuh. */
#ifndef FIG_KERNELS_NARROW_FEED_CUH
#define FIG_KERNELS_NARROW_FEED_CUH

#include "kernels/latent/latent_feed.cuh"
#include "kernels/latent/narrow_ring.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* The distance from a tile's first chunk to its last one, which may lie before it. */
#define FIG_NARROW_FEED_LAST_APART                                                                 \
    ((uint32_t)(((FIG_NARROW_RING_FIRST > 0 ? 0 : FIG_LATENT_RING_LAST) - FIG_NARROW_RING_FIRST) * \
                (int32_t)FIG_LATENT_WIDE_CHUNK_BYTES))

/* The loading warp's place in the work. */
typedef struct fig_narrow_feed_way {
    fig_latent_feed_way of;
    fig_narrow_ring_place next; /* the place of the next chunk */
} fig_narrow_feed_way;

/* Returns the chunk of a tile that the tile's place `number` holds. */
static __device__ __forceinline__ int32_t fig_narrow_feed_chunk(int32_t number) {
    return number >= FIG_NARROW_RING_FIRST ? number - FIG_NARROW_RING_FIRST
                                           : (int32_t)FIG_LATENT_RING_LAST;
}

/* Sends the lane's box of a chunk to a place of the ring. */
template <int32_t VECTORS>
static __device__ __forceinline__ void
fig_narrow_feed_send(const fig_latent_attention_params &p, const fig_narrow_ring<VECTORS> &ring,
                     int32_t number, int32_t chunk, const fig_feed_place &place,
                     const uint64_t *barrier, const fig_latent_feed_way &way) {
    const int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP;
    if (lane < way.boxes)
        fig_latent_feed_send(p,
                             fig_narrow_ring_chunk(ring, number) +
                                 (uint32_t)(lane * way.box * FIG_LATENT_WIDE_COLUMN * 2),
                             chunk * FIG_LATENT_WIDE_COLUMN, place, barrier, way.policy);
}

/* Sends a tile, chunk by chunk as places become free. `place` is that of the lane's box. */
template <int32_t VECTORS>
static __device__ __forceinline__ void
fig_narrow_feed_tile(const fig_latent_attention_params &p, const fig_narrow_ring<VECTORS> &ring,
                     const fig_feed_place &place, fig_narrow_feed_way *way) {
#pragma unroll 1
    for (int32_t i = 0; i < FIG_LATENT_WIDE_CHUNKS; i++) {
        const int32_t number = way->next.number, chunk = fig_narrow_feed_chunk(i);
        fig_latent_ring_wait(&ring.state->empty[number], way->next.phase ^ 1);
        if (threadIdx.x % FIG_BLOCK_WARP == 0)
            fig_latent_machine_expect(&ring.state->full[number], FIG_LATENT_WIDE_CHUNK_BYTES);
        __syncwarp();
        fig_narrow_feed_send(p, ring, number, chunk, place, &ring.state->full[number], way->of);
        way->next = fig_narrow_ring_behind<VECTORS>(way->next, 1);
    }
    __syncwarp();
    way->of.tile++;
}

/* Sends a tile before the wait, although the step may append tokens to it, and copies those tokens
 * again after the wait. The tile's places must not have been used before. */
template <int32_t VECTORS>
static __device__ __forceinline__ void
fig_narrow_feed_newest(const fig_latent_attention_params &p, const fig_narrow_ring<VECTORS> &ring,
                       const fig_feed_piece &piece, const fig_feed_place &place, int32_t token,
                       fig_narrow_feed_way *way) {
    const int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP, first = way->next.number;
    if (lane == 0) fig_latent_machine_expect(&ring.state->early, FIG_LATENT_WIDE_SIDE_BYTES);
    __syncwarp();
#pragma unroll 1
    for (int32_t i = 0; i < FIG_LATENT_WIDE_CHUNKS; i++)
        fig_narrow_feed_send(p, ring, first + i, fig_narrow_feed_chunk(i), place,
                             &ring.state->early, way->of);
    __syncwarp();
    const fig_latent_feed_fresh fresh = fig_latent_feed_find(p, piece, token);
    fig_feed_wait(&way->of.has_waited);
#pragma unroll
    for (int32_t n = 0; n < FIG_LATENT_FEED_NEWEST; n++)
        if (n < fresh.count)
            fig_latent_feed_token(ring, fresh.from[n],
                                  fig_narrow_ring_chunk(ring, first + FIG_NARROW_RING_FIRST),
                                  FIG_NARROW_FEED_LAST_APART, fresh.first + n);
    fig_latent_ring_wait(&ring.state->early, 0); /* needed even if no token is copied again */
    fig_latent_machine_publish();
    __syncwarp();
    if (lane < FIG_LATENT_WIDE_CHUNKS)
        fig_ring_arrive(fig_fragment_shared(&ring.state->full[first + lane]));
    __syncwarp();
    way->next = fig_narrow_ring_behind<VECTORS>(way->next, FIG_LATENT_WIDE_CHUNKS);
    way->of.tile++;
}

/* Loads one piece. */
template <int32_t VECTORS>
static __device__ __forceinline__ void
fig_narrow_feed_piece(const fig_latent_attention_params &p, const fig_attention_params &of,
                      const fig_narrow_ring<VECTORS> &ring, const fig_feed_plan &plan,
                      const fig_feed_piece &piece, fig_narrow_feed_way *way) {
    const int32_t tile = FIG_LATENT_WIDE_TILE, fresh = piece.length - p.split.row_tokens;
    int32_t token = piece.start.tile * tile;
    if (p.split.window > 0) token += fig_feed_origin(of, piece.length - plan.advanced);
    fig_latent_feed_say(ring, fig_latent_feed_note(of, piece, token), &way->of);
    fig_feed_place place = fig_latent_feed_place(of, piece, way->of, token);
#pragma unroll 1
    for (int32_t i = 0; i < piece.tiles; i++, token += tile) {
        const fig_feed_place next = fig_latent_feed_place(of, piece, way->of, token + tile);
        const int32_t is_early = !way->of.has_waited &&
                                 way->of.tile < fig_narrow_ring_form<VECTORS>::TILES &&
                                 p.split.row_tokens <= FIG_LATENT_FEED_NEWEST;
        if (token + tile > fresh && is_early) {
            fig_narrow_feed_newest(p, ring, piece, place, token, way);
        } else {
            if (token + tile > fresh) fig_feed_wait(&way->of.has_waited);
            fig_narrow_feed_tile(p, ring, place, way);
        }
        place = next;
    }
}

/* Begins the loading warp's way. */
static __device__ __forceinline__ fig_narrow_feed_way
fig_narrow_feed_begin(const fig_latent_attention_params &p) {
    fig_narrow_feed_way way = {};
    fig_latent_machine_bring_map(&p.k_map);
    way.of.box = fig_latent_wide_box(p.page_size);
    way.of.boxes = FIG_LATENT_WIDE_TILE / way.of.box;
    way.of.policy = fig_latent_feed_policy(p.split.groups);
    if (!fig_latent_feed_is_early(p)) fig_feed_wait(&way.of.has_waited);
    return way;
}

/* Loads all tiles of the worker. One warp calls this function. */
template <int32_t VECTORS>
static __device__ __forceinline__ void fig_narrow_feed(const fig_latent_attention_params &p,
                                                       const fig_narrow_ring<VECTORS> &ring) {
    const fig_attention_params of = fig_latent_feed_walk(p);
    fig_narrow_feed_way way = fig_narrow_feed_begin(p);
    const fig_feed_plan plan = fig_feed_read_plan(of);
    fig_split_start start = plan.start, last = start;
#pragma unroll 1
    while (start.count > 0) {
        const fig_feed_piece piece = fig_feed_piece_of(of, plan, start);
        last = start;
        fig_narrow_feed_piece(p, of, ring, plan, piece, &way);
        fig_feed_pass(of, plan, piece, &start);
    }
    fig_latent_feed_merges(of, p.flags, ring, plan, last);
    fig_feed_wait(&way.of.has_waited);
    const fig_latent_ring_note end = {0};
    fig_latent_feed_say(ring, end, &way.of);
}

#endif
#endif
