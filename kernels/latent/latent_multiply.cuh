/* latent_multiply.cuh: multiplies the tiles of a latent cache on two warpgroups, piece by piece.
 *
 * The vectors of a group, at most 64, are the rows of both products. Their sums, 64 x 512, take all
 * registers of two warpgroups, so each has them for half of V's dimensions. The warpgroups own
 * tiles in turn. The owner computes the logits and the weights of its tile, multiplies the weights,
 * from registers, by its half of V, and leaves them in shared memory for the other warpgroup. While
 * one warpgroup computes weights, the products of the other run.
 *
 *     warpgroup 0   q k 0 | weights 0, half of V | V of 1 | q k 2 | weights 2 ..
 *     warpgroup 1   q k 1 | V of 0 | weights 1, half of V | V of 2 | q k 3 ..
 *
 * AHEAD 1: a warpgroup issues the logits of its next tile before it waits for the other one's
 * weights, so its products run while the other one computes weights. The tile after the next one
 * must then arrive soon, so the loading warp prefetches it into L2. AHEAD saves time if products
 * limit the speed, and costs time if memory does.
 *
 *     warpgroup 0   q k 0 | weights 0, half of V | q k 2 | V of 1 | weights 2 ..
 *
 * Weights are relative to a reference, which is raised only when a logit passes it by 2^8. Both
 * warpgroups take the same references in the order of the tiles. They add up the weights of their
 * own tiles, and exchange these sums at the end of a piece.
 *
 * Invariant: the same products are in flight on every path to a place in the code. Otherwise the
 * assembler would add a wait after each product. Tokens that no query of the piece sees are zeros
 * when V is multiplied. */
#ifndef FIG_KERNELS_LATENT_MULTIPLY_CUH
#define FIG_KERNELS_LATENT_MULTIPLY_CUH

#include "kernels/latent/latent_leave.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

#define FIG_LATENT_MULTIPLY_GROWTH 8.0f   /* in powers of two; sums in f32 lose nothing by it */
#define FIG_LATENT_MULTIPLY_NONE (-1e30f) /* the reference before the first token */

template <int32_t DTYPE> struct fig_latent_multiply_tag { typedef fig_wgmma_f16 type; };
template <> struct fig_latent_multiply_tag<FIG_BF16> { typedef fig_wgmma_bf16 type; };

/* Holds values that do not change from piece to piece. */
typedef struct fig_latent_multiply_place {
    int32_t group; /* the warpgroup */
    int32_t thread, warp, lane;
    int32_t row; /* the thread's first vector; the second one is 8 further on */
    float scale;
} fig_latent_multiply_place;

/* Holds a thread's state, in registers. */
typedef struct fig_latent_multiply_work {
    float sums[FIG_LATENT_LEAVE_SUMS]; /* for the warpgroup's half of V */
    float logits[32];
    float greatest[2], weights[2];
    /* tokens [low, high) that each of the two vectors sees, counted from the piece's first one */
    int32_t low[2], high[2];
    int32_t seen_first, seen_end; /* tokens that some vector sees */
    int32_t all_first, all_end;   /* tokens that all vectors see */
    int32_t begin, end;           /* tiles of the piece, counted over the worker's pieces */
} fig_latent_multiply_work;

/* ---- The ring */

/* Returns the stage of the warpgroup's own tiles, or of the other one's: own tiles have the
 * warpgroup's parity. */
static __device__ __forceinline__ int32_t fig_latent_multiply_stage(int32_t group, int32_t is_own) {
    static_assert((int)FIG_LATENT_WIDE_STAGES == (int)FIG_LATENT_WIDE_GROUPS, "a stage each");
    return is_own ? group : 1 - group;
}

/* Keeps the compiler from moving uses of the logits before this call, which follows the wait for
 * their product. */
static __device__ __forceinline__ void fig_latent_multiply_pin(fig_latent_multiply_work *work) {
#pragma unroll
    for (int32_t i = 0; i < 32; i++)
        fig_latent_machine_pin(work->logits[i]);
}

/* Waits for all products. */
static __device__ __forceinline__ void fig_latent_multiply_settle(fig_latent_multiply_work *work) {
    fig_wgmma_wait<0>(work->sums);
    fig_latent_multiply_pin(work);
}

/* Waits for the logits, but not for the product with V that was issued behind them. */
static __device__ __forceinline__ void fig_latent_multiply_await(fig_latent_multiply_work *work) {
    fig_latent_machine_await_all_but_one();
    fig_latent_multiply_pin(work);
}

/* Releases the warpgroup's chunks of a tile, each by a lane of its own. If the other warpgroup owns
 * the tile, also releases its last chunk. */
static __device__ __forceinline__ void fig_latent_multiply_release(const fig_latent_ring &ring,
                                                                   int32_t group, int32_t is_own) {
    const int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP;
    const int32_t chunk = lane < FIG_LATENT_RING_HALF ? FIG_LATENT_RING_HALF * group + lane
                                                      : (int32_t)FIG_LATENT_RING_LAST;
    if (lane < FIG_LATENT_RING_HALF + !is_own)
        fig_latent_ring_release(ring, fig_latent_multiply_stage(group, is_own), chunk);
}

/* Writes zeros over those tokens of the warpgroup's half of V that no vector sees. Their weights
 * are 0, but their bytes may be NaN. All threads of the warpgroup call this function. */
static __device__ __forceinline__ void
fig_latent_multiply_clear(const fig_latent_ring &ring, const fig_latent_multiply_place &at,
                          const fig_latent_multiply_work &work, int32_t tile, int32_t is_own) {
    const int32_t first = (tile - work.begin) * FIG_LATENT_WIDE_TILE;
    const int32_t low = work.seen_first - first, high = work.seen_end - first;
    const int32_t stage = fig_latent_multiply_stage(at.group, is_own);
    const int32_t pieces = 8; /* of a token in a chunk */
    const uint32_t v = fig_latent_ring_chunk(ring, stage, FIG_LATENT_RING_HALF * at.group);
    if (low <= 0 && high >= FIG_LATENT_WIDE_TILE) return;
        /* This thread has not yet seen all chunks arrive, if the other warpgroup owns the tile. */
#pragma unroll 1
    for (int32_t i = 0; i < FIG_LATENT_RING_HALF; i++)
        fig_latent_ring_wait(&ring.state->full[stage][FIG_LATENT_RING_HALF * at.group + i],
                             (uint32_t)(tile / FIG_LATENT_WIDE_STAGES & 1));
#pragma unroll 1
    for (int32_t i = at.thread; i < FIG_LATENT_WIDE_TILE * FIG_LATENT_RING_HALF * pieces;
         i += FIG_LATENT_RING_GROUP) {
        const int32_t token = i / pieces % FIG_LATENT_WIDE_TILE;
        if (token < low || token >= high) fig_latent_machine_clear(v + (uint32_t)i * 16);
    }
    fig_latent_machine_publish();
    fig_ring_meet(FIG_LATENT_RING_OWN + at.group, FIG_LATENT_RING_GROUP);
}

/* ---- Products */

/* Issues the product q k^T of a tile, chunk by chunk as the chunks arrive. RELEASES 1: the product
 * with V of the preceding tile, which the other warpgroup owns, is in flight; that tile is released
 * as soon as the product has ended. */
template <int32_t DTYPE, int32_t RELEASES>
static __device__ __forceinline__ void
fig_latent_multiply_logits(const fig_latent_ring &ring, const fig_latent_multiply_place &at,
                           fig_latent_multiply_work *work, int32_t tile) {
    const typename fig_latent_multiply_tag<DTYPE>::type tag = {};
    const int32_t stage = fig_latent_multiply_stage(at.group, 1);
    const uint32_t phase = (uint32_t)(tile / FIG_LATENT_WIDE_STAGES & 1);
#pragma unroll
    for (int32_t i = 0; i < FIG_LATENT_WIDE_CHUNKS; i++) {
        const int32_t chunk = fig_latent_ring_turn(at.group, i);
        fig_latent_ring_wait(&ring.state->full[stage][chunk], phase);
        fig_wgmma_begin();
        const uint64_t q = fig_wgmma_matrix(fig_latent_ring_q(ring, chunk), 128, 1024, 16);
        const uint64_t k =
            fig_wgmma_matrix(fig_latent_ring_chunk(ring, stage, chunk), 128, 1024, 16);
#pragma unroll
        for (int32_t j = 0; j < 4; j++) {
            if (i + j == 0) {
                fig_wgmma_set(tag, work->logits, q, k);
            } else {
                fig_wgmma_along(tag, work->logits, q + 2 * j, k + 2 * j, 1);
            }
        }
        fig_wgmma_commit();
        if (RELEASES && i == FIG_LATENT_RING_HALF - 1) {
            fig_wgmma_wait<FIG_LATENT_RING_HALF>(work->sums);
            fig_latent_multiply_release(ring, at.group, 0);
        }
    }
}

/* Scales the sums from the old references to `next`. */
static __device__ __forceinline__ void fig_latent_multiply_scale(fig_latent_multiply_work *work,
                                                                 const float (&next)[2]) {
    const float low = fig_machine_exp2(work->greatest[0] - next[0]);
    const float high = fig_machine_exp2(work->greatest[1] - next[1]);
    work->greatest[0] = next[0];
    work->greatest[1] = next[1];
    work->weights[0] *= low;
    work->weights[1] *= high;
#pragma unroll
    for (int32_t i = 0; i < FIG_LATENT_LEAVE_SUMS; i += 4) {
        work->sums[i] *= low;
        work->sums[i + 1] *= low;
        work->sums[i + 2] *= high;
        work->sums[i + 3] *= high;
    }
}

/* Issues the product of the other warpgroup's weights and this warpgroup's half of V. IS_FIRST 1:
 * the tile is the first of the piece, so the sums are zeros, and logits of the next tile are in
 * flight. LOGITS 1: logits are in flight although the tile is not the first. */
template <int32_t DTYPE, int32_t IS_FIRST, int32_t LOGITS>
static __device__ __forceinline__ void
fig_latent_multiply_other(const fig_latent_ring &ring, const fig_latent_multiply_place &at,
                          fig_latent_multiply_work *work, int32_t tile) {
    const typename fig_latent_multiply_tag<DTYPE>::type tag = {};
    const int32_t stage = fig_latent_multiply_stage(at.group, 0);
    const fig_latent_ring_state *state = ring.state;
    fig_latent_ring_wait(&state->weighed[stage], (uint32_t)(tile / FIG_LATENT_WIDE_STAGES & 1));
    if (IS_FIRST) {
        work->greatest[0] = state->greatest[stage][at.row];
        work->greatest[1] = state->greatest[stage][at.row + 8];
    } else if (fig_latent_ring_same(state->grows[stage][at.warp])) {
        const float next[2] = {state->greatest[stage][at.row], state->greatest[stage][at.row + 8]};
        if (LOGITS) fig_latent_multiply_settle(work);
        fig_latent_multiply_scale(work, next);
    }
    fig_latent_multiply_clear(ring, at, *work, tile, 0);
    const uint64_t p =
        fig_wgmma_matrix(fig_latent_ring_chunk(ring, stage, FIG_LATENT_RING_LAST), 128, 1024, 16);
    const uint64_t v =
        fig_wgmma_matrix(fig_latent_ring_chunk(ring, stage, FIG_LATENT_RING_HALF * at.group), 128,
                         1024, FIG_LATENT_WIDE_CHUNK_BYTES);
    fig_wgmma_begin();
#pragma unroll
    for (int32_t j = 0; j < 4; j++)
        fig_wgmma_across_s(tag, work->sums, p + 2 * j, v + 128 * j, 1);
    fig_wgmma_commit();
}

/* ---- Weights */

/* Sets the logits of tokens that a vector does not see to -inf. */
static __device__ __forceinline__ void fig_latent_multiply_mask(const fig_latent_multiply_place &at,
                                                                fig_latent_multiply_work *work,
                                                                int32_t tile) {
    const int32_t first = (tile - work->begin) * FIG_LATENT_WIDE_TILE;
    if (first >= work->all_first && first + FIG_LATENT_WIDE_TILE <= work->all_end) return;
#pragma unroll
    for (int32_t h = 0; h < 2; h++) {
        const int32_t low = work->low[h] - first - at.lane % 4 * 2;
        const int32_t high = work->high[h] - first - at.lane % 4 * 2;
#pragma unroll
        for (int32_t j = 0; j < 8; j++)
#pragma unroll
            for (int32_t e = 0; e < 2; e++)
                if (8 * j + e < low || 8 * j + e >= high)
                    work->logits[4 * j + 2 * h + e] = -INFINITY;
    }
}

/* Raises the references if some logit passes them, or if the tile is the first of the piece, and
 * passes the references on to the other warpgroup. AHEAD 1: first waits for the product with V of
 * the preceding tile. */
template <int32_t AHEAD>
static __device__ __forceinline__ void
fig_latent_multiply_raise(const fig_latent_ring &ring, const fig_latent_multiply_place &at,
                          fig_latent_multiply_work *work, int32_t tile) {
    const int32_t stage = fig_latent_multiply_stage(at.group, 1);
    float most[2] = {work->logits[0], work->logits[2]};
#pragma unroll
    for (int32_t j = 0; j < 8; j++) {
        most[0] = fmaxf(most[0], fmaxf(work->logits[4 * j], work->logits[4 * j + 1]));
        most[1] = fmaxf(most[1], fmaxf(work->logits[4 * j + 2], work->logits[4 * j + 3]));
    }
    most[0] *= at.scale;
    most[1] *= at.scale;
    const int32_t grows =
        __any_sync(0xffffffffu, tile == work->begin ||
                                    most[0] > work->greatest[0] + FIG_LATENT_MULTIPLY_GROWTH ||
                                    most[1] > work->greatest[1] + FIG_LATENT_MULTIPLY_GROWTH);
    if (AHEAD) {
        fig_wgmma_wait<0>(work->sums);
        if (tile > work->begin) fig_latent_multiply_release(ring, at.group, 0);
    }
    if (grows) {
#pragma unroll
        for (int32_t h = 0; h < 2; h++) {
            most[h] = fmaxf(most[h], __shfl_xor_sync(0xffffffffu, most[h], 1));
            most[h] = fmaxf(most[h], __shfl_xor_sync(0xffffffffu, most[h], 2));
            most[h] = fmaxf(most[h], work->greatest[h]);
        }
        fig_latent_multiply_scale(work, most);
        if (at.lane % 4 == 0) {
            ring.state->greatest[stage][at.row] = most[0];
            ring.state->greatest[stage][at.row + 8] = most[1];
        }
    }
    if (at.lane == 0) ring.state->grows[stage][at.warp] = grows;
}

/* Turns logits into weights, rounded for their products, and adds them up. */
template <int32_t DTYPE>
static __device__ __forceinline__ void
fig_latent_multiply_weigh(const fig_latent_multiply_place &at, fig_latent_multiply_work *work,
                          uint32_t (&weights)[16]) {
#pragma unroll
    for (int32_t j = 0; j < 8; j++)
#pragma unroll
        for (int32_t h = 0; h < 2; h++) {
            const float x =
                fig_machine_exp2(fmaf(work->logits[4 * j + 2 * h], at.scale, -work->greatest[h]));
            const float y = fig_machine_exp2(
                fmaf(work->logits[4 * j + 2 * h + 1], at.scale, -work->greatest[h]));
            work->weights[h] += x + y;
            weights[2 * j + h] = fig_fragment_pair<DTYPE>(x, y);
        }
}

/* Leaves the weights where the tile's last chunk was. */
static __device__ __forceinline__ void
fig_latent_multiply_share(const fig_latent_ring &ring, const fig_latent_multiply_place &at,
                          int32_t stage, const uint32_t (&weights)[16]) {
    const int32_t row = at.warp * 16 + at.lane % 16;
    const uint32_t to = fig_latent_ring_chunk(ring, stage, FIG_LATENT_RING_LAST) +
                        (uint32_t)row * FIG_LATENT_WIDE_COLUMN * 2;
#pragma unroll
    for (int32_t j = 0; j < 4; j++)
        fig_latent_machine_store_matrices(
            to + (uint32_t)(((2 * j + at.lane / 16) ^ (row & 7)) * 16), weights + 4 * j);
    fig_latent_machine_publish();
    __syncwarp();
    if (at.lane == 0) fig_ring_arrive(fig_fragment_shared(&ring.state->weighed[stage]));
}

/* Computes the weights of a tile that this warpgroup owns and whose logits have been computed, and
 * multiplies them by the warpgroup's half of V. */
template <int32_t DTYPE, int32_t AHEAD>
static __device__ __forceinline__ void
fig_latent_multiply_own(const fig_latent_ring &ring, const fig_latent_multiply_place &at,
                        fig_latent_multiply_work *work, int32_t tile) {
    const typename fig_latent_multiply_tag<DTYPE>::type tag = {};
    const int32_t stage = fig_latent_multiply_stage(at.group, 1);
    uint32_t weights[16];
    fig_latent_multiply_mask(at, work, tile);
    fig_latent_multiply_raise<AHEAD>(ring, at, work, tile);
    fig_latent_multiply_weigh<DTYPE>(at, work, weights);
    fig_latent_multiply_clear(ring, at, *work, tile, 1);
    const uint64_t v =
        fig_wgmma_matrix(fig_latent_ring_chunk(ring, stage, FIG_LATENT_RING_HALF * at.group), 128,
                         1024, FIG_LATENT_WIDE_CHUNK_BYTES);
    fig_wgmma_begin();
#pragma unroll
    for (int32_t j = 0; j < 4; j++)
        fig_wgmma_across(tag, work->sums, weights + 4 * j, v + 128 * j, 1);
    fig_wgmma_commit();
    /* After this barrier all four warps have used the last chunk for their logits. */
    fig_ring_meet(FIG_LATENT_RING_OWN + at.group, FIG_LATENT_RING_GROUP);
    fig_latent_multiply_share(ring, at, stage, weights);
    fig_wgmma_wait<0>(work->sums);
    fig_latent_multiply_release(ring, at.group, 1);
}

/* ---- A piece */

/* Copies q of the piece's vectors, swizzled; vectors past the last one are zeros. Four threads have
 * a vector, and all loads of a thread are in flight at once. Both warpgroups call this function. */
static __device__ __forceinline__ void
fig_latent_multiply_load_q(const fig_latent_attention_params &p, const fig_partials_place &place,
                           const fig_latent_ring &ring) {
    const int32_t SHARES = FIG_LATENT_RING_READERS / FIG_LATENT_WIDE_VECTORS;
    const int32_t LOADS = FIG_LATENT_KEY_DIM / 8 / SHARES; /* of 8 values */
    static_assert(FIG_LATENT_RING_READERS / FIG_LATENT_WIDE_VECTORS == 4, "half of 8 pieces");
    static_assert(FIG_LATENT_DIM % (SHARES * 8) == 0, "a load is of the latent or of the rest");
    const int32_t vector = (int32_t)threadIdx.x / SHARES, share = (int32_t)threadIdx.x % SHARES;
    uint4 loaded[LOADS];
#pragma unroll
    for (int32_t i = 0; i < LOADS; i++)
        loaded[i] = make_uint4(0, 0, 0, 0);
    if (vector < place.count) {
        const fig_pieces_vector from = fig_partials_vector(place, vector);
        const uint16_t *q = (const uint16_t *)p.q + from.row * p.q_strides.row +
                            from.q_head * p.q_strides.head + share * 8;
        const fig_latent_q_rope place_of_rope = fig_latent_q_rope_of(&p, from.row, from.q_head);
        const uint16_t *rope = (const uint16_t *)place_of_rope.array + place_of_rope.at + share * 8;
#pragma unroll
        for (int32_t i = 0; i < LOADS; i++) {
            const int32_t at = i * SHARES * 8, behind = at - FIG_LATENT_DIM;
            loaded[i] = *(const uint4 *)(behind < 0 ? q + at : rope + behind);
        }
    }
    /* A chunk takes two loads of each thread. They lie 64 bytes apart, and are swizzled too. */
    const uint32_t to =
        fig_latent_ring_q(ring, 0) + (uint32_t)(vector * 128 + ((share ^ vector) & 7) * 16);
#pragma unroll
    for (int32_t i = 0; i < LOADS; i++)
        fig_machine_store_chunk((to ^ (uint32_t)(i % 2 * 64)) +
                                    (uint32_t)(i / 2 * (int32_t)FIG_LATENT_WIDE_CHUNK_BYTES),
                                loaded[i]);
    fig_latent_machine_publish();
    fig_ring_meet(FIG_LATENT_RING_ALL, FIG_LATENT_RING_READERS);
}

/* Sets the state for a piece whose first tile is the worker's tile number work->begin. */
static __device__ __forceinline__ void
fig_latent_multiply_begin(const fig_split_shape &split, const fig_latent_multiply_place &at,
                          const fig_latent_ring_note &note, const fig_partials_place &place,
                          fig_latent_multiply_work *work) {
    work->end = work->begin + note.tiles;
    work->seen_first = note.first - note.token;
    work->seen_end = note.end - note.token;
    work->all_first = note.all_first - note.token;
    work->all_end = note.all_end - note.token;
#pragma unroll
    for (int32_t h = 0; h < 2; h++) {
        const int32_t number = place.first + fig_size_min(at.row + 8 * h, max(place.count, 1) - 1);
        const int32_t position = note.length - split.row_tokens + number / place.ratio;
        const int32_t low = split.window == 0 ? 0 : max(position + 1 - split.window, 0);
        work->low[h] = low - note.token;
        work->high[h] = position + 1 - note.token;
        work->greatest[h] = FIG_LATENT_MULTIPLY_NONE;
        work->weights[h] = 0;
    }
#pragma unroll
    for (int32_t i = 0; i < FIG_LATENT_LEAVE_SUMS; i++)
        work->sums[i] = 0;
    fig_wgmma_wait<0>(work->sums);
}

/* Multiplies the warpgroup's tiles of a piece, from `first` on. A product is in flight. */
template <int32_t DTYPE>
static __device__ __forceinline__ void
fig_latent_multiply_in_turns(const fig_latent_ring &ring, const fig_latent_multiply_place &at,
                             fig_latent_multiply_work *work, int32_t first) {
    const int32_t begin = work->begin, end = work->end;
#pragma unroll 1
    for (int32_t tile = first; tile < end; tile += 2) {
        fig_latent_multiply_settle(work);
        if (tile == first && tile > begin) fig_latent_multiply_release(ring, at.group, 0);
        fig_latent_multiply_own<DTYPE, 0>(ring, at, work, tile);
        if (tile + 1 < end) fig_latent_multiply_other<DTYPE, 0, 0>(ring, at, work, tile + 1);
        if (tile + 2 < end) fig_latent_multiply_logits<DTYPE, 1>(ring, at, work, tile + 2);
    }
}

/* Does the same with AHEAD 1. The loop ends in its middle, because with a condition around the
 * logits, the products in flight would differ from path to path. */
template <int32_t DTYPE>
static __device__ __forceinline__ void
fig_latent_multiply_ahead(const fig_latent_ring &ring, const fig_latent_multiply_place &at,
                          fig_latent_multiply_work *work, int32_t first) {
    const int32_t end = work->end;
    if (first >= end) return;
    fig_latent_multiply_settle(work);
#pragma unroll 1
    for (int32_t tile = first;; tile += 2) {
        fig_latent_multiply_own<DTYPE, 1>(ring, at, work, tile);
        if (tile + 2 >= end) {
            if (tile + 1 < end) fig_latent_multiply_other<DTYPE, 0, 0>(ring, at, work, tile + 1);
            break;
        }
        fig_latent_multiply_logits<DTYPE, 0>(ring, at, work, tile + 2);
        fig_latent_multiply_other<DTYPE, 0, 1>(ring, at, work, tile + 1);
        fig_latent_multiply_await(work);
    }
}

/* Multiplies the tiles of a piece. GROUP: the warpgroup. The compiler then knows where chunks lie,
 * and issues products with fewer instructions between them. */
template <int32_t DTYPE, int32_t AHEAD, int32_t GROUP>
static __device__ __forceinline__ void fig_latent_multiply_tiles(const fig_latent_ring &ring,
                                                                 fig_latent_multiply_place at,
                                                                 fig_latent_multiply_work *work) {
    const int32_t begin = work->begin, end = work->end, group = GROUP;
    at.group = GROUP;
    const int32_t first = begin + ((begin ^ group) & 1);
    if (first < end) fig_latent_multiply_logits<DTYPE, 0>(ring, at, work, first);
    if (first != begin) fig_latent_multiply_other<DTYPE, 1, 0>(ring, at, work, begin);
    if (AHEAD) {
        fig_latent_multiply_ahead<DTYPE>(ring, at, work, first);
    } else {
        fig_latent_multiply_in_turns<DTYPE>(ring, at, work, first);
    }
    fig_wgmma_wait<0>(work->sums);
    if (((end - 1) & 1) != group) fig_latent_multiply_release(ring, group, 0);
}

/* Adds up the weights of both warpgroups' tiles. number: the number of the piece. */
static __device__ __forceinline__ void fig_latent_multiply_join(const fig_latent_ring &ring,
                                                                const fig_latent_multiply_place &at,
                                                                fig_latent_multiply_work *work,
                                                                int32_t number,
                                                                fig_partials_sum (&sum)[2]) {
    float(&sums)[FIG_LATENT_WIDE_GROUPS][FIG_LATENT_WIDE_VECTORS] = ring.state->sums[number & 1];
#pragma unroll
    for (int32_t h = 0; h < 2; h++) {
        float own = work->weights[h];
        own += __shfl_xor_sync(0xffffffffu, own, 1);
        own += __shfl_xor_sync(0xffffffffu, own, 2);
        if (at.lane % 4 == 0) sums[at.group][at.row + 8 * h] = own;
    }
    fig_ring_meet(FIG_LATENT_RING_ALL, FIG_LATENT_RING_READERS);
#pragma unroll
    for (int32_t h = 0; h < 2; h++) {
        sum[h].greatest = work->greatest[h];
        sum[h].weights = sums[0][at.row + 8 * h] + sums[1][at.row + 8 * h];
    }
}

/* Does the work of a thread of the warpgroups that multiply. */
template <int32_t DTYPE, int32_t AHEAD>
static __device__ __forceinline__ void fig_latent_multiply(const fig_latent_attention_params &p,
                                                           const fig_latent_ring &ring) {
    const fig_attention_params of = fig_latent_attention_pieces(&p);
    fig_latent_multiply_place at;
    fig_latent_multiply_work work;
    at.thread = (int32_t)threadIdx.x % FIG_LATENT_RING_GROUP;
    at.lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP;
    at.group = fig_latent_ring_same((int32_t)threadIdx.x / FIG_LATENT_RING_GROUP);
    at.warp = fig_latent_ring_same(at.thread / FIG_BLOCK_WARP);
    at.row = at.warp * 16 + at.lane / 4;
    at.scale = p.sm_scale * FIG_NUMERIC_LOG2_E;
    fig_block_wait(); /* before the reads of q and all writes */
    work.begin = 0;
#pragma unroll 1
    for (int32_t number = 0;; number++) {
        const fig_latent_ring_note note = fig_latent_ring_read(ring.state, number);
        if (note.tiles == 0) break;
        const fig_partials_place place =
            fig_latent_leave_part(fig_latent_leave_place(of, note.row, note.group));
        fig_partials_sum sum[2];
        fig_latent_multiply_load_q(p, place, ring);
        fig_latent_multiply_begin(p.split, at, note, place, &work);
        if (at.group == 0) {
            fig_latent_multiply_tiles<DTYPE, AHEAD, 0>(ring, at, &work);
        } else {
            fig_latent_multiply_tiles<DTYPE, AHEAD, 1>(ring, at, &work);
        }
        fig_latent_multiply_join(ring, at, &work, number, sum);
        fig_latent_leave<DTYPE>(of, place, note.partial, at.row, at.group, work.sums, sum);
        work.begin = work.end;
    }
#pragma unroll 1
    for (int32_t i = 0; i < FIG_LATENT_RING_MERGES; i++)
        fig_latent_leave_merge_many<DTYPE>(of, p.flags, ring.state->merges[i], ring.state);
}

#endif
#endif
