/* narrow_codes.cuh: loads tiles of a latent cache of codes, and converts them into the ring of
 * narrow_ring.cuh.
 *
 * One warp walks along the worker's stretch, writes notes, and copies tokens as they are, half a
 * tile to a stage. Nine warps turn the codes into values of bf16, scaled and rounded, and write
 * them to the chunks of the ring, as boxes of a 16-bit cache would arrive. Each of these warps has
 * one chunk of every tile, so that it waits for few fences. Eight lanes with neighbouring tokens
 * read and write different banks.
 *
 * Invariant: tokens that the step appends are read after the wait for the previous launch. Tokens
 * that no query of the piece sees keep what the stage held before. */
#ifndef FIG_KERNELS_NARROW_CODES_CUH
#define FIG_KERNELS_NARROW_CODES_CUH

#include "kernels/latent/latent_feed.cuh"
#include "kernels/latent/narrow_ring.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

enum {
    FIG_NARROW_CODES_HALVES = FIG_NARROW_RING_FILLERS,            /* of a tile */
    FIG_NARROW_CODES_ROUNDS = FIG_LATENT_NARROW_CODES_TOKENS / 8, /* of eight tokens of a warp */
    FIG_NARROW_CODES_PACK = 16 /* bytes that a lane loads or stores at once */
};
static_assert(FIG_LATENT_NARROW_CONVERTERS == (int)FIG_LATENT_WIDE_CHUNKS, "a chunk each");
static_assert(FIG_LATENT_NARROW_CODES_TOKENS <= (int)FIG_BLOCK_WARP, "a lane has at most one run");

/* The number of a half, counted over the worker's tiles, selects its stage. */
template <int32_t VECTORS>
static __device__ __forceinline__ uint32_t
fig_narrow_codes_stage(const fig_narrow_ring<VECTORS> &ring, int32_t half) {
    return ring.base +
           (uint32_t)(fig_narrow_ring_form<VECTORS>::STAGES_AT +
                      half % FIG_LATENT_NARROW_CODES_STAGES *
                          (FIG_LATENT_NARROW_CODES_TOKENS * (int32_t)FIG_LATENT_CODES_BYTES));
}

/* Returns the phase that a barrier of the half's stage ends when the half has passed it. */
static __device__ __forceinline__ uint32_t fig_narrow_codes_phase(int32_t half) {
    return (uint32_t)(half / FIG_LATENT_NARROW_CODES_STAGES & 1);
}

/* ---- Loading */

/* A run of tokens of a half that follow each other in the cache. */
typedef struct fig_narrow_codes_run {
    const uint8_t *from;
    uint32_t place, bytes; /* place: in the stage. bytes: 0 if no token of the run is needed */
} fig_narrow_codes_run;

/* Returns the part within [first, end) of the run of `run` tokens at `at`. token: the half's first
 * token. */
static __device__ __forceinline__ fig_narrow_codes_run
fig_narrow_codes_find(const fig_latent_attention_params &p, const fig_feed_piece &piece,
                      int32_t token, int32_t first, int32_t end, int32_t at, int32_t run) {
    const int32_t begin = max(at, first), count = fig_size_min(at + run, end) - begin;
    fig_narrow_codes_run found = {NULL, 0, 0};
    if (count <= 0) return found;
    fig_feed_place place = fig_feed_place_of(piece, begin);
    if (place.page < 0 || place.page >= p.k_pages) place.page = 0;
    found.from = (const uint8_t *)p.k_cache + place.page * p.k_cache_strides.page +
                 place.token * p.k_cache_strides.token;
    found.place = (uint32_t)((begin - token) * FIG_LATENT_CODES_BYTES);
    found.bytes = (uint32_t)(count * FIG_LATENT_CODES_BYTES);
    return found;
}

/* Loads half a tile to the next stage. The lane's page number is loaded before the wait for the
 * stage. way->tile counts halves. */
template <int32_t VECTORS>
static __device__ __forceinline__ void
fig_narrow_codes_half(const fig_latent_attention_params &p, const fig_narrow_ring<VECTORS> &ring,
                      const fig_feed_piece &piece, int32_t token, fig_latent_feed_way *way) {
    const int32_t stage = way->tile % FIG_LATENT_NARROW_CODES_STAGES, box = way->box;
    const int32_t first = max(token, piece.tokens.first);
    const int32_t end = fig_size_min(token + FIG_LATENT_NARROW_CODES_TOKENS, piece.tokens.end);
    const uint64_t *loaded = &ring.state->loaded[stage];
    const uint32_t to = fig_narrow_codes_stage(ring, way->tile);
    const int32_t at = token + (int32_t)threadIdx.x % FIG_BLOCK_WARP * box;
    const fig_narrow_codes_run run = fig_narrow_codes_find(p, piece, token, first, end, at, box);
    fig_latent_ring_wait(&ring.state->converted[stage], fig_narrow_codes_phase(way->tile) ^ 1);
    if (threadIdx.x % FIG_BLOCK_WARP == 0) {
        ring.state->ends[stage] = 0;
        fig_latent_machine_expect(loaded, (uint32_t)(max(end - first, 0) * FIG_LATENT_CODES_BYTES));
    }
    __syncwarp();
    if (at < end && run.bytes > 0)
        fig_latent_machine_copy(to + run.place, run.from, run.bytes, loaded, way->policy);
    __syncwarp();
    way->tile++;
}

/* Tells the converting warps that there is no further tile. */
template <int32_t VECTORS>
static __device__ __forceinline__ void fig_narrow_codes_end(const fig_narrow_ring<VECTORS> &ring,
                                                            const fig_latent_feed_way &way) {
    const int32_t stage = way.tile % FIG_LATENT_NARROW_CODES_STAGES;
    fig_latent_ring_wait(&ring.state->converted[stage], fig_narrow_codes_phase(way.tile) ^ 1);
    if (threadIdx.x % FIG_BLOCK_WARP == 0) {
        ring.state->ends[stage] = 1;
        fig_ring_arrive(fig_fragment_shared(&ring.state->loaded[stage]));
    }
    __syncwarp();
}

/* Loads all tiles of the worker. One warp calls this function. */
template <int32_t VECTORS>
static __device__ __forceinline__ void fig_narrow_codes_feed(const fig_latent_attention_params &p,
                                                             const fig_narrow_ring<VECTORS> &ring) {
    const fig_attention_params of = fig_latent_feed_walk(p);
    const int32_t is_dense = p.k_cache_strides.token == FIG_LATENT_CODES_BYTES;
    fig_latent_feed_way way = {};
    way.box = is_dense ? fig_size_min(fig_latent_wide_box(p.page_size),
                                      (int32_t)FIG_LATENT_NARROW_CODES_TOKENS)
                       : 1;
    way.policy = fig_latent_feed_policy(p.split.groups);
    if (!fig_latent_feed_is_early(p)) fig_feed_wait(&way.has_waited);
    const fig_feed_plan plan = fig_feed_read_plan(of);
    fig_split_start start = plan.start, last = start;
#pragma unroll 1
    while (start.count > 0) {
        const fig_feed_piece piece = fig_feed_piece_of(of, plan, start);
        const int32_t fresh = piece.length - p.split.row_tokens;
        int32_t token = piece.start.tile * FIG_LATENT_WIDE_TILE;
        last = start;
        if (p.split.window > 0) token += fig_feed_origin(of, piece.length - plan.advanced);
        fig_latent_feed_say(ring, fig_latent_feed_note(of, piece, token), &way);
#pragma unroll 1
        for (int32_t i = 0; i < piece.tiles * FIG_NARROW_CODES_HALVES; i++) {
            if (token + FIG_LATENT_NARROW_CODES_TOKENS > fresh) fig_feed_wait(&way.has_waited);
            fig_narrow_codes_half(p, ring, piece, token, &way);
            token += FIG_LATENT_NARROW_CODES_TOKENS;
        }
        fig_feed_pass(of, plan, piece, &start);
    }
    fig_narrow_codes_end(ring, way);
    fig_latent_feed_merges(of, p.flags, ring, plan, last);
    fig_feed_wait(&way.has_waited);
    const fig_latent_ring_note end = {0};
    fig_latent_feed_say(ring, end, &way);
}

/* ---- Converting */

/* Returns 8 codes as values of bf16. */
static __device__ __forceinline__ uint4 fig_narrow_codes_values(uint32_t low, uint32_t high,
                                                                float scale) {
    uint32_t halves[4], pairs[4];
    fig_latent_machine_codes(low, &halves[0], &halves[1]);
    fig_latent_machine_codes(high, &halves[2], &halves[3]);
#pragma unroll
    for (int32_t i = 0; i < 4; i++) {
        const float2 two = fig_latent_machine_floats(halves[i]);
        pairs[i] = fig_fragment_pair<FIG_BF16>(two.x * scale, two.y * scale);
    }
    return make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
}

/* Stores pack `pack` of a token's row of a chunk, swizzled. */
static __device__ __forceinline__ void fig_narrow_codes_store(uint32_t chunk, int32_t token,
                                                              int32_t pack, uint4 words) {
    fig_machine_store_chunk(
        chunk + (uint32_t)(token * 128 + ((pack ^ token) & 7) * FIG_NARROW_CODES_PACK), words);
}

/* Converts half a chunk of the latent. first: the half's first token in the tile. All loads come
 * before the stores. */
static __device__ __forceinline__ void fig_narrow_codes_chunk(uint32_t stage, uint32_t to,
                                                              int32_t chunk, int32_t first) {
    const int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP, pack = lane / 8;
    const int32_t of_scale = FIG_LATENT_SCALE_DIM / FIG_LATENT_WIDE_COLUMN;
    const uint32_t from = stage + (uint32_t)(lane % 8 * FIG_LATENT_CODES_BYTES);
    float scales[FIG_NARROW_CODES_ROUNDS];
    uint4 codes[FIG_NARROW_CODES_ROUNDS];
#pragma unroll
    for (int32_t round = 0; round < FIG_NARROW_CODES_ROUNDS; round++) {
        const uint32_t of = from + (uint32_t)(round * 8 * FIG_LATENT_CODES_BYTES);
        scales[round] = fig_latent_machine_load_scale(
            of + (uint32_t)(FIG_LATENT_SCALES_AT + chunk / of_scale * 4));
        codes[round] = fig_machine_load_chunk(
            of + (uint32_t)(chunk * FIG_LATENT_WIDE_COLUMN + pack * FIG_NARROW_CODES_PACK));
    }
#pragma unroll
    for (int32_t round = 0; round < FIG_NARROW_CODES_ROUNDS; round++) {
        const int32_t token = first + lane % 8 + 8 * round;
        const uint4 words = codes[round];
        fig_narrow_codes_store(to, token, 2 * pack,
                               fig_narrow_codes_values(words.x, words.y, scales[round]));
        fig_narrow_codes_store(to, token, 2 * pack + 1,
                               fig_narrow_codes_values(words.z, words.w, scales[round]));
    }
}

/* Copies half of the values under RoPE, which are bf16. */
static __device__ __forceinline__ void fig_narrow_codes_rope(uint32_t stage, uint32_t to,
                                                             int32_t first) {
    const int32_t TOKENS = FIG_LATENT_NARROW_CODES_TOKENS, COPIES = 4;
    const int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP;
#pragma unroll 1
    for (int32_t token = lane % 8; token < TOKENS; token += 8 * COPIES / 2) {
        uint4 words[COPIES];
#pragma unroll
        for (int32_t i = 0; i < COPIES; i++)
            words[i] = fig_machine_load_chunk(
                stage +
                (uint32_t)((token + i / 2 * 8) * FIG_LATENT_CODES_BYTES + FIG_LATENT_ROPE_AT +
                           (lane / 8 + i % 2 * 4) * FIG_NARROW_CODES_PACK));
#pragma unroll
        for (int32_t i = 0; i < COPIES; i++)
            fig_narrow_codes_store(to, first + token + i / 2 * 8, lane / 8 + i % 2 * 4, words[i]);
    }
}

/* Converts one chunk of all tiles of the worker. Each converting warp calls this function. */
template <int32_t VECTORS>
static __device__ __forceinline__ void
fig_narrow_codes_convert(const fig_narrow_ring<VECTORS> &ring, int32_t chunk) {
    fig_narrow_ring_place place = fig_narrow_ring_of<VECTORS>({0, 0}, chunk);
#pragma unroll 1
    for (int32_t half = 0;; half++) {
        const int32_t at = half % FIG_LATENT_NARROW_CODES_STAGES;
        const int32_t first =
            half % FIG_NARROW_CODES_HALVES * (int32_t)FIG_LATENT_NARROW_CODES_TOKENS;
        const uint32_t stage = fig_narrow_codes_stage(ring, half);
        const uint32_t to = fig_narrow_ring_chunk(ring, place.number);
        fig_latent_ring_wait(&ring.state->loaded[at], fig_narrow_codes_phase(half));
        if (*(const volatile int32_t *)&ring.state->ends[at]) return;
        if (first == 0) fig_latent_ring_wait(&ring.state->empty[place.number], place.phase ^ 1);
        if (chunk < FIG_LATENT_RING_LAST)
            fig_narrow_codes_chunk(stage, to, chunk, first);
        else
            fig_narrow_codes_rope(stage, to, first);
        fig_latent_machine_publish();
        __syncwarp();
        if ((int32_t)threadIdx.x % FIG_BLOCK_WARP == 0) {
            fig_ring_arrive(fig_fragment_shared(&ring.state->full[place.number]));
            fig_ring_arrive(fig_fragment_shared(&ring.state->converted[at]));
        }
        if (first > 0) place = fig_narrow_ring_behind<VECTORS>(place, FIG_LATENT_WIDE_CHUNKS);
    }
}

#endif
#endif
