/* attention_strip.cuh: processes a strip of the cache within one warp, on tensor cores.
 *
 * out = sum over tokens of 2^(l - m) v / sum of 2^(l - m), where l is the logit in base 2 and m is
 * near the greatest l. The cache is the left operand of every product, 16 tokens or 16 dimensions
 * at a time. The vectors that share a kv head are the right operand, 8 to a warp:
 *
 *     logits  [16 tokens][8 vectors]  = K [16][head_dim] * q   [head_dim][8]
 *     sums   [head_dim][8 vectors]  += V^T [head_dim][16] * weights [16][8]
 *
 * Logits thus become weights in the registers that hold them, and one exchange between lanes
 * transposes them. A weight is the sum of two numbers of the cache's 16-bit type (f16 over 8-bit
 * codes): the weight rounded down, and the remainder. Together they keep full precision. Both are
 * positive, or both are 0, because an infinite V must not produce inf - inf or 0 * inf. m rises
 * only when a logit exceeds m by 2^8, so most strips need no rescaling. If the cache has 8-bit
 * codes, q is f16, scaled by a power of two to less than 2^15.
 *
 * kv_feed.cuh brings the strips, and attention_warps.cuh handles the sums of a piece. Invariant: a
 * token that a vector does not see may hold any bytes. No lane reads its logit, and V is masked for
 * each query separately, because NaN times 0 is not 0. */
#ifndef FIG_KERNELS_ATTENTION_STRIP_CUH
#define FIG_KERNELS_ATTENTION_STRIP_CUH

#include "kernels/strips/attention_logits.cuh"

/* ---- Logits */

/* Returns the shared address of a load's chunks, laid out as in kv_ring.cuh. `block` is that of
 * load 0. For codes in an odd number of tiles, the last load has a single chunk, and the bytes
 * after it are not the warp's. The lane loads that chunk twice and ignores the second copy. */
template <class form>
static __device__ __forceinline__ uint32_t fig_warps_load_at(uint32_t block, int32_t load) {
    if (form::VALUE_BYTES == 1 && 2 * load + 1 == form::TILES) block -= threadIdx.x / 16 % 2 * 16;
    if (!form::IS_BULK) return block + (uint32_t)(load * 32);
    return fig_ring_pair_at<form::COLUMN>(block, load);
}

/* Computes the products of one block: [16 tokens][8 vectors]. It uses several chains of sums,
 * because each product waits for the one before it in its chain. */
template <class form>
static __device__ __forceinline__ void fig_warps_multiply_k(const fig_warps_seen<form> &seen,
                                                            uint32_t block, float (&products)[4]) {
    const int32_t CHAINS = form::VALUE_BYTES == 2 && form::READS_EARLY ? 4 : 2;
    float sums[CHAINS][4] = {{0}};
#pragma unroll
    for (int32_t load = 0; load < form::LOADS; load++) {
        uint32_t k[4];
        fig_fragment_load(k, fig_warps_load_at<form>(block, load));
        if (form::VALUE_BYTES == 2) {
            fig_fragment_multiply<form::DTYPE>(sums[load % CHAINS], k[0], k[1], k[2], k[3],
                                               seen.q[load][0], seen.q[load][1]);
            continue;
        }
        const int32_t next = 2 * load + 1 < form::TILES ? 2 * load + 1 : 0;
        uint32_t low[4], high[4];
#pragma unroll
        for (int32_t i = 0; i < 4; i++)
            fig_fragment_widen<form::KV_DTYPE>(k[i], &low[i], &high[i]);
        fig_fragment_multiply<form::DTYPE>(sums[0], low[0], low[1], high[0], high[1],
                                           seen.q[2 * load][0], seen.q[2 * load][1]);
        if (2 * load + 1 < form::TILES)
            fig_fragment_multiply<form::DTYPE>(sums[1], low[2], low[3], high[2], high[3],
                                               seen.q[next][0], seen.q[next][1]);
    }
#pragma unroll
    for (int32_t i = 0; i < 4; i++)
        products[i] = sums[0][i] + sums[1][i];
#pragma unroll
    for (int32_t i = 0; i < 4; i++)
        if (CHAINS == 4) products[i] += sums[CHAINS - 2][i] + sums[CHAINS - 1][i];
}

/* If some logit exceeds its vector's m by 2^8, sets the m of every vector to its greatest logit.
 * `greatest` is m - LIFT. In the first strip of a piece there are no sums to rescale. */
template <class form>
static __device__ __forceinline__ void fig_warps_raise(const float (&logits)[form::STEPS][4],
                                                       int32_t is_first,
                                                       fig_warps_seen<form> *seen) {
    const float lift = form::LIFT, few = 8 + lift;
    int32_t passes = 0;
#pragma unroll
    for (int32_t s = 0; s < form::STEPS; s++)
#pragma unroll
        for (int32_t i = 0; i < 4; i++)
            passes |= logits[s][i] > seen->greatest[i % 2] + few;
    if (!__any_sync(0xffffffffu, passes)) return;
    float shrink[2];
#pragma unroll
    for (int32_t n = 0; n < 2; n++) {
        float greatest = seen->greatest[n] + lift;
#pragma unroll
        for (int32_t s = 0; s < form::STEPS; s++)
            greatest = fmaxf(greatest, fmaxf(logits[s][n], logits[s][n + 2]));
#pragma unroll
        for (int32_t apart = 4; apart < FIG_BLOCK_WARP; apart *= 2)
            greatest = fmaxf(greatest, __shfl_xor_sync(0xffffffffu, greatest, apart));
        greatest -= lift;
        shrink[n] = fig_machine_exp2(seen->greatest[n] - greatest);
        seen->greatest[n] = greatest;
        seen->weights[n] *= shrink[n];
    }
    if (is_first) return;
#pragma unroll
    for (int32_t m = 0; m < form::TILES; m++)
#pragma unroll
        for (int32_t i = 0; i < 4; i++)
            seen->values[m][i] *= shrink[i % 2];
}

/* ---- Sums */

/* Holds the weights of 16 tokens and 8 vectors, as the right operand of a product. */
typedef struct fig_warps_weights {
    uint32_t below[2], rest[2];
} fig_warps_weights;

/* Returns the remainder of a weight after rounding down. It is positive unless the weight is 0. */
template <int32_t DTYPE>
static __device__ __forceinline__ float fig_warps_rest(float weight, float below) {
    const float least = DTYPE == FIG_BF16 ? 1.17549435e-38f : 5.96046448e-8f;
    return fminf(fmaxf(weight - below, least), weight);
}

/* Splits the weights of two tokens. half: 1 if these are the tokens 8 further on. */
template <class form>
static __device__ __forceinline__ void fig_warps_round(float first, float second, int32_t half,
                                                       fig_warps_weights *weights) {
    const uint32_t pair = fig_fragment_pair_below<form::DTYPE>(first, second);
    const float2 below = fig_warps_widen_q(form::DTYPE, pair);
    const uint32_t rest = fig_fragment_pair<form::DTYPE>(
        fig_warps_rest<form::DTYPE>(first, below.x), fig_warps_rest<form::DTYPE>(second, below.y));
    weights->below[half] = fig_fragment_turn(pair);
    weights->rest[half] = fig_fragment_turn(rest);
}

/* Holds the warp's part of a strip of V, in the cache's format. It lies in registers if enough
 * registers are free, and in shared memory otherwise. */
template <class form> struct fig_warps_v {
    uint32_t block, apart;
    uint32_t ahead[form::IS_AHEAD ? form::STEPS : 1][form::IS_AHEAD ? form::LOADS : 1][4];
};

/* Loads tiles of V^T, with unseen tokens masked to 0. `low` masks tokens 2t and 2t + 1, `high` the
 * tokens 8 further on. */
template <class form>
static __device__ __forceinline__ void
fig_warps_tiles_of_v(const fig_warps_v<form> &v, int32_t step, int32_t load, uint32_t low,
                     uint32_t high, uint32_t (&tiles)[form::TILES_OF_LOAD][4]) {
    uint32_t chunks[4];
    if constexpr (form::IS_AHEAD) {
#pragma unroll
        for (int32_t i = 0; i < 4; i++)
            chunks[i] = v.ahead[step][load][i];
    } else {
        const uint32_t block = v.block + (uint32_t)step * v.apart;
        fig_fragment_load_turned(chunks, fig_warps_load_at<form>(block, load));
    }
    if constexpr (form::VALUE_BYTES == 2) {
#pragma unroll
        for (int32_t i = 0; i < 4; i++)
            tiles[0][i] = chunks[i] & (i < 2 ? low : high);
    } else {
#pragma unroll
        for (int32_t i = 0; i < 2; i++) {
            fig_fragment_widen_apart<form::KV_DTYPE>(chunks[2 * i] & low, &tiles[i][0],
                                                     &tiles[i][1]);
            fig_fragment_widen_apart<form::KV_DTYPE>(chunks[2 * i + 1] & high, &tiles[i][2],
                                                     &tiles[i][3]);
        }
    }
}

/* Adds the product of a tile of V^T and weights. */
template <class form>
static __device__ __forceinline__ void
fig_warps_add_tile(const uint32_t (&tile)[4], const fig_warps_weights &weights, float (&sums)[4]) {
    fig_fragment_multiply<form::DTYPE>(sums, tile[0], tile[1], tile[2], tile[3], weights.below[0],
                                       weights.below[1]);
    fig_fragment_multiply<form::DTYPE>(sums, tile[0], tile[1], tile[2], tile[3], weights.rest[0],
                                       weights.rest[1]);
}

template <class form>
static __device__ __forceinline__ void
fig_warps_add_values(const fig_warps_v<form> &v, int32_t step, const fig_warps_weights &weights,
                     fig_warps_seen<form> *seen) {
#pragma unroll
    for (int32_t load = 0; load < form::LOADS; load++) {
        uint32_t tiles[form::TILES_OF_LOAD][4];
        fig_warps_tiles_of_v<form>(v, step, load, ~0u, ~0u, tiles);
#pragma unroll
        for (int32_t i = 0; i < form::TILES_OF_LOAD; i++) {
            const int32_t tile = load * form::TILES_OF_LOAD + i;
            if (tile < form::TILES) fig_warps_add_tile<form>(tiles[i], weights, seen->values[tile]);
        }
    }
}

/* Returns the mask of two tokens. The low half is all ones if a query sees `token`, and the high
 * half is all ones if the query sees the next token. */
static __device__ __forceinline__ uint32_t fig_warps_mask(fig_strip_range range, int32_t token) {
    const uint32_t low = token >= range.first && token < range.end ? 0xffffu : 0;
    const uint32_t high = token + 1 >= range.first && token + 1 < range.end ? 0xffff0000u : 0;
    return low | high;
}

#ifdef FIG_PIECES_SCORED

/* Returns 1 if some vector of the warp does not see some token of the strip. */
template <class form>
static __device__ __forceinline__ int32_t fig_warps_hides(const float (&logits)[form::STEPS][4]) {
    int32_t hides = 0;
#pragma unroll
    for (int32_t s = 0; s < form::STEPS; s++)
#pragma unroll
        for (int32_t i = 0; i < 4; i++)
            hides |= logits[s][i] == -INFINITY;
    return __any_sync(0xffffffffu, hides);
}

/* Adds V of a step, once for all vectors that see the same tokens, and keeps only the sums of those
 * vectors. A score may hide any token from any vector, so a query's vectors may differ. */
template <class form>
static __device__ __forceinline__ void
fig_warps_add_apart(const fig_warps_role &role, const fig_warps_v<form> &v, int32_t step,
                    const float (&logits)[4], const fig_warps_weights &weights,
                    fig_warps_seen<form> *seen) {
    const fig_scored_hidden hidden = fig_scored_hidden_of(logits);
    int32_t waits[2] = {2 * role.column < role.count, 2 * role.column + 1 < role.count};
#pragma unroll 1
    for (;;) {
        const uint32_t even = __ballot_sync(0xffffffffu, waits[0]);
        const uint32_t odd = __ballot_sync(0xffffffffu, waits[1]);
        if ((even | odd) == 0) return;
        const int32_t next = even != 0 ? 2 * ((__ffs((int32_t)even) - 1) % 4)
                                       : 2 * ((__ffs((int32_t)odd) - 1) % 4) + 1;
        const fig_scored_mask mask = fig_scored_mask_of(hidden, next);
        int32_t takes[2];
#pragma unroll
        for (int32_t i = 0; i < 2; i++) {
            takes[i] = waits[i] &&
                       fig_scored_is_same(mask, fig_scored_mask_of(hidden, 2 * role.column + i));
            waits[i] = waits[i] && !takes[i];
        }
#pragma unroll
        for (int32_t load = 0; load < form::LOADS; load++) {
            uint32_t tiles[form::TILES_OF_LOAD][4];
            fig_warps_tiles_of_v<form>(v, step, load, fig_scored_pair(mask.low, role.column),
                                       fig_scored_pair(mask.high, role.column), tiles);
#pragma unroll
            for (int32_t i = 0; i < form::TILES_OF_LOAD; i++) {
                const int32_t tile = load * form::TILES_OF_LOAD + i;
                if (tile >= form::TILES) continue;
                float(&values)[4] = seen->values[tile];
                float sums[4] = {values[0], values[1], values[2], values[3]};
                fig_warps_add_tile<form>(tiles[i], weights, sums);
#pragma unroll
                for (int32_t n = 0; n < 4; n++)
                    values[n] = takes[n % 2] ? sums[n] : values[n];
            }
        }
    }
}

#else

/* Adds V for each query separately, and keeps only the sums of that query's vectors. */
template <class form>
static __device__ __forceinline__ void
fig_warps_add_seen(const fig_attention_params &p, const fig_ring_note &note,
                   const fig_warps_role &role, const fig_warps_v<form> &v, int32_t step,
                   int32_t first_token, const fig_warps_weights &weights,
                   fig_warps_seen<form> *seen) {
    const int32_t last = role.first + role.count - 1;
    const int32_t token = first_token + step * FIG_RING_TOKENS + 2 * role.column;
#pragma unroll 1
    for (int32_t query = fig_geometry_divide(role.first, role.ratio);
         query <= fig_geometry_divide(last, role.ratio); query++) {
        const fig_strip_range range = fig_warps_sees(p, note, query);
        const uint32_t low = fig_warps_mask(range, token);
        const uint32_t high = fig_warps_mask(range, token + 8);
#pragma unroll
        for (int32_t load = 0; load < form::LOADS; load++) {
            uint32_t tiles[form::TILES_OF_LOAD][4];
            fig_warps_tiles_of_v<form>(v, step, load, low, high, tiles);
#pragma unroll
            for (int32_t i = 0; i < form::TILES_OF_LOAD; i++) {
                const int32_t tile = load * form::TILES_OF_LOAD + i;
                if (tile >= form::TILES) continue;
                float(&values)[4] = seen->values[tile];
                float sums[4] = {values[0], values[1], values[2], values[3]};
                fig_warps_add_tile<form>(tiles[i], weights, sums);
#pragma unroll
                for (int32_t n = 0; n < 4; n++)
                    values[n] = seen->query[n % 2] == query ? sums[n] : values[n];
            }
        }
    }
}

#endif

/* ---- A strip */

/* Returns the offset, within a block, of the lane's chunk of a row. */
template <class form>
static __device__ __forceinline__ uint32_t fig_warps_chunk_at(int32_t token, int32_t chunk,
                                                              uint32_t block_bytes) {
    if (form::IS_BULK) return (uint32_t)fig_ring_chunk_at<form::COLUMN>(token, chunk);
    return (uint32_t)token * (block_bytes / FIG_RING_TOKENS) + (uint32_t)(chunk << 4);
}

template <class form>
static __device__ __forceinline__ uint32_t fig_warps_row_of_k(const fig_warps_role &role,
                                                              uint32_t block_bytes) {
    return fig_warps_chunk_at<form>(role.lane % 16, role.lane / 16, block_bytes);
}

/* Returns the offset of the lane's chunk for a load of V. The transposing load swaps the two middle
 * 8 x 8 blocks of 16-bit values, but not those of pairs of codes. */
template <class form>
static __device__ __forceinline__ uint32_t fig_warps_row_of_v(const fig_warps_role &role,
                                                              uint32_t block_bytes) {
    if (form::VALUE_BYTES == 1) return fig_warps_row_of_k<form>(role, block_bytes);
    return fig_warps_chunk_at<form>(role.lane % 8 + role.lane / 16 * 8, role.lane / 8 % 2,
                                    block_bytes);
}

/* Turns a strip's logits into weights. */
template <class form>
static __device__ __forceinline__ void fig_warps_weigh(const float (&logits)[form::STEPS][4],
                                                       fig_warps_weights (&weights)[form::STEPS],
                                                       fig_warps_seen<form> *seen) {
#pragma unroll
    for (int32_t s = 0; s < form::STEPS; s++) {
        float x[4];
#pragma unroll
        for (int32_t i = 0; i < 4; i++)
            x[i] = fig_machine_exp2(logits[s][i] - seen->greatest[i % 2]);
        seen->weights[0] += x[0] + x[2];
        seen->weights[1] += x[1] + x[3];
        fig_warps_round<form>(x[0], x[1], 0, &weights[s]);
        fig_warps_round<form>(x[2], x[3], 1, &weights[s]);
    }
}

/* Adds V of a strip. Each of the two branches turns logits into weights. The common branch is then
 * one straight run of instructions, and conversions in it fill the waits for weights. The empty asm
 * statement keeps the compiler from moving the shared part out of the branches. */
template <class form>
static __device__ __forceinline__ void
fig_warps_add_strip(const fig_attention_params &p, const fig_ring_note &note,
                    const fig_warps_role &role, const fig_warps_v<form> &v, int32_t token,
                    const float (&logits)[form::STEPS][4], fig_warps_seen<form> *seen) {
    fig_warps_weights weights[form::STEPS];
#ifdef FIG_PIECES_SCORED
    const int32_t hides = fig_warps_hides<form>(logits);
#else
    const int32_t hides = note.flags & FIG_RING_EDGE;
#endif
    if (__builtin_expect(hides, 0)) {
        asm volatile("" ::: "memory");
        fig_warps_weigh<form>(logits, weights, seen);
#pragma unroll
        for (int32_t s = 0; s < form::STEPS; s++) {
#ifdef FIG_PIECES_SCORED
            fig_warps_add_apart<form>(role, v, s, logits[s], weights[s], seen);
#else
            fig_warps_add_seen<form>(p, note, role, v, s, token, weights[s], seen);
#endif
        }
        return;
    }
    fig_warps_weigh<form>(logits, weights, seen);
#pragma unroll
    for (int32_t s = 0; s < form::STEPS; s++)
        fig_warps_add_values<form>(v, s, weights[s], seen);
}

/* Locates the warp's part of one side of the next strip in the ring. */
typedef struct fig_warps_blocks {
    uint32_t first, apart; /* shared address of the first block, and distance to the next one */
    int32_t token;         /* first token of the first block */
} fig_warps_blocks;

template <class form>
static __device__ __forceinline__ fig_warps_blocks fig_warps_blocks_of(const fig_ring &ring,
                                                                       const fig_ring_note &note,
                                                                       const fig_warps_role &role,
                                                                       int32_t side) {
    const uint32_t head_bytes = form::IS_BULK ? form::BLOCK_BYTES : form::ROW_BYTES;
    fig_warps_blocks blocks;
    blocks.apart = ring.tokens_bytes;
    blocks.first = fig_ring_side(ring, side) +
                   (uint32_t)(FIG_WARPS_PART(role) * form::STEPS) * ring.tokens_bytes +
                   (uint32_t)role.head * head_bytes;
    blocks.token = note.token + FIG_WARPS_PART(role) * form::STEPS * FIG_RING_TOKENS;
    return blocks;
}

/* Waits for V. If there are enough registers, also loads V. */
template <class form>
static __device__ __forceinline__ void
fig_warps_bring_v(const fig_ring &ring, const fig_ring_note &note, const fig_warps_role &role,
                  fig_warps_v<form> *v) {
    const fig_warps_blocks blocks = fig_warps_blocks_of<form>(ring, note, role, FIG_RING_V);
    v->block = blocks.first + fig_warps_row_of_v<form>(role, blocks.apart);
    v->apart = blocks.apart;
    fig_ring_wait_full(ring, FIG_RING_V);
    if constexpr (form::IS_AHEAD) {
#pragma unroll
        for (int32_t s = 0; s < form::STEPS; s++)
#pragma unroll
            for (int32_t load = 0; load < form::LOADS; load++)
                fig_fragment_load_turned(
                    v->ahead[s][load],
                    fig_warps_load_at<form>(v->block + (uint32_t)s * v->apart, load));
    }
}

/* Processes the warp's part of the next strip in the ring. */
template <class form>
static __device__ __forceinline__ void
fig_warps_see_strip(const fig_attention_params &p, const fig_ring &ring, const fig_ring_note &note,
                    const fig_warps_role &role, const fig_partials_place &place,
                    fig_turn<form> *turn, fig_warps_seen<form> *seen) {
    const fig_warps_blocks blocks = fig_warps_blocks_of<form>(ring, note, role, FIG_RING_K);
    const uint32_t k = blocks.first + fig_warps_row_of_k<form>(role, blocks.apart);
    const int32_t token = blocks.token;
    if constexpr (form::TURNS) {
        if (note.flags & FIG_RING_NEWEST) {
            const fig_warps_blocks of_v = fig_warps_blocks_of<form>(ring, note, role, FIG_RING_V);
            const fig_turn_part part = {token, blocks.first, of_v.first, blocks.apart};
            fig_ring_wait_full(ring, FIG_RING_V);
            fig_turn_replace<form>(p, note, place.kv_head, part, turn);
        }
    }
    float logits[form::STEPS][4];
    fig_warps_v<form> v;
#pragma unroll
    for (int32_t s = 0; s < form::STEPS; s++)
        fig_warps_multiply_k<form>(*seen, k + (uint32_t)s * blocks.apart, logits[s]);
    fig_ring_release(ring, FIG_RING_K);
    if (form::IS_AHEAD) fig_warps_bring_v<form>(ring, note, role, &v);
    fig_warps_scale<form>(p, note, role, place, *seen, token, logits);
    fig_warps_raise<form>(logits, note.flags & FIG_RING_FIRST, seen);
    if (!form::IS_AHEAD) fig_warps_bring_v<form>(ring, note, role, &v);
    fig_warps_add_strip<form>(p, note, role, v, token, logits, seen);
    fig_ring_release(ring, FIG_RING_V);
}

#endif
