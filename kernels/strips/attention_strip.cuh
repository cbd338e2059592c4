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

#include "kernels/strips/attention_turn.cuh"
#include "kernels/strips/kv_feed.cuh"
#include "kernels/attention/logit.h"
#include "kernels/attention/partials.cuh"

/* Holds the compile-time parameters of an instance. */
template <int32_t KV, int32_t DIMS, int32_t SHARE_COUNT, int32_t BULK, int32_t TURNING>
struct fig_warps_form {
    static constexpr int32_t KV_DTYPE = KV;
    static constexpr int32_t HEAD_DIM = DIMS;
    static constexpr int32_t SHARES = SHARE_COUNT; /* 0: read from the launch */
    static constexpr int32_t SHARE_LIMIT = SHARE_COUNT > 0 ? SHARE_COUNT : FIG_GEOMETRY_SHARE_LIMIT;
    /* 1: pieces are short, so latency counts, and registers are free for reducing it. */
    static constexpr int32_t READS_EARLY = SHARE_COUNT == FIG_GEOMETRY_SHARE_LIMIT;
    static constexpr int32_t IS_BULK = BULK;
    /* 1: applies RoPE to q and k, which arrive without it, and appends k and v */
    static constexpr int32_t TURNS = TURNING;
    static constexpr int32_t DTYPE = fig_fragment_dtype(KV);
    /* Log2 of the factor by which weights exceed 2^(l - m): f16 spans 2^-24 to 2^16. */
    static constexpr int32_t LIFT = DTYPE == FIG_F16 ? 7 : 0;
    static constexpr int32_t VALUE_BYTES = KV == FIG_F16 || KV == FIG_BF16 ? 2 : 1;
    static constexpr int32_t CHUNKS = DIMS * VALUE_BYTES / FIG_RING_CHUNK;
    static constexpr int32_t ROW_BYTES = DIMS * VALUE_BYTES;
    static constexpr int32_t COLUMN = fig_geometry_column(VALUE_BYTES, DIMS);
    static constexpr int32_t BLOCK_BYTES = fig_geometry_block_bytes(VALUE_BYTES, DIMS);
    static constexpr int32_t FILLERS = BULK ? FIG_GEOMETRY_BULK_FILLERS : FIG_GEOMETRY_COPY_FILLERS;
    static constexpr int32_t STEPS = fig_geometry_steps(VALUE_BYTES, DIMS);
    static constexpr int32_t SHARE_TOKENS = FIG_RING_TOKENS * STEPS;
    static constexpr int32_t STRIP = SHARE_TOKENS * SHARE_COUNT;
    static constexpr int32_t TILES = DIMS / 16; /* tiles of 16 dimensions */
    static constexpr int32_t TILES_OF_LOAD = 2 / VALUE_BYTES;
    static constexpr int32_t LOADS = (TILES + TILES_OF_LOAD - 1) / TILES_OF_LOAD;
    static constexpr int32_t PARTIAL_DIMS = fig_geometry_partial_dims(DIMS);
    static constexpr int32_t PACKS = PARTIAL_DIMS / 32; /* packs of a vector that one lane holds */
    static constexpr int32_t OF_VECTOR = PARTIAL_DIMS / FIG_PARTIALS_PACK; /* packs of a vector */
    /* 1: V is read before logits become weights, so that conversions fill the waits. */
    static constexpr int32_t IS_AHEAD = VALUE_BYTES == 1 && DIMS <= 128 && BULK;
    static_assert(DIMS % 16 == 0 && DIMS <= 256, "head_dim");
};

/* Describes the part of a worker's work that one warp does. */
typedef struct fig_warps_role {
    int32_t lane, row, column; /* row and column in a fragment: lane / 4, lane % 4 */
    int32_t shares, share;
    int32_t head;           /* index among the worker's heads */
    int32_t first, count;   /* vectors of the head */
    int32_t ratio, vectors; /* q heads of a kv head; vectors of all heads of a worker */
    int32_t number;         /* index of the group of warps with these vectors */
} fig_warps_role;

/* Holds the state of a warp's vectors. A lane has two of the vectors: columns 2t and 2t + 1. */
template <class form> struct fig_warps_seen {
    uint32_t q[form::TILES][2];
    float values[form::TILES][4];
    float weights[2]; /* sums over only the lane's rows */
    float greatest[2];
    float scale[2]; /* factor from a product to a logit in base 2 */
    int32_t query[2];
};

/* Returns the number of warps that share a head's tokens if a head has `vectors` vectors. */
template <class form>
static __device__ __forceinline__ int32_t fig_warps_shares(const fig_attention_params &p,
                                                           int32_t vectors) {
    return form::SHARES > 0 ? form::SHARES
                            : fig_geometry_shares(fig_geometry_sets(p.heads_per_worker, vectors));
}

template <class form>
static __device__ __forceinline__ fig_warps_role fig_warps_role_of(const fig_attention_params &p) {
    fig_warps_role role;
    const int32_t warp = fig_block_warp();
    role.ratio = fig_geometry_divide(p.q_heads, p.kv_heads);
    const int32_t vectors = role.ratio * p.split.row_tokens;
    role.vectors = vectors * p.heads_per_worker;
    role.lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP;
    role.row = role.lane / 4;
    role.column = role.lane % 4;
    role.shares = fig_warps_shares<form>(p, vectors);
    role.number = form::SHARES > 0 ? warp / role.shares : fig_geometry_divide(warp, role.shares);
    role.share = warp - role.number * role.shares;
    const int32_t turn = fig_geometry_divide(role.number, p.heads_per_worker);
    role.head = role.number - turn * p.heads_per_worker;
    role.first = turn * FIG_GEOMETRY_VECTORS;
    role.count = fig_size_min(FIG_GEOMETRY_VECTORS, vectors - role.first);
    return role;
}

/* Returns the number of a head's vectors that have a place in the join. */
static __device__ __forceinline__ int32_t fig_warps_head_vectors(const fig_attention_params &p,
                                                                 const fig_warps_role &role) {
    return fig_size_min(FIG_GEOMETRY_VECTORS, role.ratio * p.split.row_tokens);
}

/* Loads the scale of V when a piece begins. The compiler would load it where the piece ends. */
static __device__ __forceinline__ float fig_warps_v_scale(const fig_attention_params &p,
                                                          int32_t kv_head) {
    float scale = 1;
    if (p.v_scale == NULL) return scale;
    asm volatile("ld.global.f32 %0, [%1];"
                 : "=f"(scale)
                 : "l"(&p.v_scale[p.v_scales > 1 ? kv_head : 0]));
    return scale;
}

static __device__ __forceinline__ fig_partials_place fig_warps_place(const fig_attention_params &p,
                                                                     const fig_warps_role &role,
                                                                     int32_t row, int32_t group) {
    fig_partials_place place;
    place.row = row;
    place.group = group;
    place.base = row * p.split.row_tokens;
    place.kv_head = group * p.heads_per_worker + role.head;
    place.ratio = role.ratio;
    place.first = role.first;
    place.count = role.count;
    place.index = role.head * role.ratio * p.split.row_tokens + role.first;
    place.vectors = role.vectors;
    place.v_scale = 1;
    return place;
}

/* Converts two neighbouring numbers of q to f32. */
static __device__ __forceinline__ float2 fig_warps_widen_q(int32_t dtype, uint32_t pair) {
    if (dtype == FIG_BF16)
        return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u));
    return __half22float2(*(const __half2 *)&pair);
}

template <class form>
static __device__ __forceinline__ void fig_warps_begin(const fig_warps_role &role,
                                                       fig_warps_seen<form> *seen) {
#pragma unroll
    for (int32_t m = 0; m < form::TILES; m++)
#pragma unroll
        for (int32_t i = 0; i < 4; i++)
            seen->values[m][i] = 0;
#pragma unroll
    for (int32_t i = 0; i < 2; i++) {
        seen->greatest[i] = FIG_PARTIALS_NONE;
        seen->weights[i] = 0;
        seen->query[i] = fig_geometry_divide(
            role.first + fig_size_min(2 * role.column + i, role.count - 1), role.ratio);
    }
}

/* ---- Logits */

/* Returns the position of a query. */
static __device__ __forceinline__ int32_t fig_warps_position(const fig_attention_params &p,
                                                             const fig_ring_note &note,
                                                             int32_t query) {
    return note.length - p.split.row_tokens + query;
}

static __device__ __forceinline__ fig_strip_range fig_warps_sees(const fig_attention_params &p,
                                                                 const fig_ring_note &note,
                                                                 int32_t query) {
    const int32_t end = fig_warps_position(p, note, query) + 1, window = p.split.window;
    const int32_t first = window > 0 && end > window ? end - window : 0;
    fig_strip_range seen = {max(first, note.first), min(end, note.end)};
    return seen;
}

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

/* Adds ALiBi and applies the soft cap. Logit i belongs to token `token` + i / 2 * 8 and vector i %
 * 2. The loop is not unrolled: most models skip this code, so it should be short. */
template <class form>
static __device__ __forceinline__ void
fig_warps_cap(const fig_attention_params &p, const fig_ring_note &note,
              const fig_partials_place &place, const fig_warps_role &role,
              const fig_warps_seen<form> &seen, int32_t token, float (&logits)[4]) {
#pragma unroll 1
    for (int32_t i = 0; i < 4; i++) {
        const int32_t n = fig_size_min(2 * role.column + i % 2, role.count - 1);
        const float low = i % 2 ? logits[1] : logits[0], high = i % 2 ? logits[3] : logits[2];
        float logit = (i / 2 ? high : low) * (1 / FIG_NUMERIC_LOG2_E);
        if (p.alibi != NULL) {
            const int32_t query = i % 2 ? seen.query[1] : seen.query[0];
            const int32_t behind = token + i / 2 * 8 - fig_warps_position(p, note, query);
            const float slope = p.alibi[fig_partials_vector(place, n).q_head];
            logit = fig_logit_lean(logit, slope, behind);
        }
        logit = fig_logit_finish(logit, p.soft_cap);
#pragma unroll
        for (int32_t j = 0; j < 4; j++)
            logits[j] = i == j ? logit : logits[j];
    }
}

template <class form>
static __device__ __forceinline__ void
fig_warps_hide_unseen(const fig_attention_params &p, const fig_ring_note &note,
                      const fig_warps_seen<form> &seen, int32_t token, float (&logits)[4]) {
#pragma unroll
    for (int32_t i = 0; i < 4; i++) {
        const fig_strip_range range = fig_warps_sees(p, note, seen.query[i % 2]);
        const int32_t at = token + i / 2 * 8;
        if (at < range.first || at >= range.end) logits[i] = -INFINITY;
    }
}

/* Turns products into logits, for the warp's part of a strip from `token` on. One branch skips the
 * rare cases, so the common steps form one straight run of instructions. */
template <class form>
static __device__ __forceinline__ void
fig_warps_scale(const fig_attention_params &p, const fig_ring_note &note,
                const fig_warps_role &role, const fig_partials_place &place,
                const fig_warps_seen<form> &seen, int32_t token, float (&logits)[form::STEPS][4]) {
    const int32_t is_capped = p.alibi != NULL || p.soft_cap > 0;
#pragma unroll
    for (int32_t s = 0; s < form::STEPS; s++)
#pragma unroll
        for (int32_t i = 0; i < 4; i++)
            logits[s][i] *= seen.scale[i % 2];
    if (__builtin_expect(!is_capped && (note.flags & FIG_RING_EDGE) == 0, 1)) return;
#pragma unroll
    for (int32_t s = 0; s < form::STEPS; s++) {
        const int32_t mine = token + s * FIG_RING_TOKENS + role.row;
        if (is_capped) fig_warps_cap<form>(p, note, place, role, seen, mine, logits[s]);
        if (note.flags & FIG_RING_EDGE) fig_warps_hide_unseen<form>(p, note, seen, mine, logits[s]);
    }
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
        shrink[n] = fig_partials_power(seen->greatest[n] - greatest);
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
            x[i] = fig_partials_power(logits[s][i] - seen->greatest[i % 2]);
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
    if (__builtin_expect(note.flags & FIG_RING_EDGE, 0)) {
        asm volatile("" ::: "memory");
        fig_warps_weigh<form>(logits, weights, seen);
#pragma unroll
        for (int32_t s = 0; s < form::STEPS; s++)
            fig_warps_add_seen<form>(p, note, role, v, s, token, weights[s], seen);
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
                   (uint32_t)(role.share * form::STEPS) * ring.tokens_bytes +
                   (uint32_t)role.head * head_bytes;
    blocks.token = note.token + role.share * form::STEPS * FIG_RING_TOKENS;
    return blocks;
}

/* Waits for V. If there are enough registers, also loads V. */
template <class form>
static __device__ __forceinline__ void
fig_warps_bring_v(const fig_attention_params &p, const fig_ring &ring, const fig_ring_note &note,
                  const fig_warps_role &role, const fig_turn<form> &turn, fig_warps_v<form> *v) {
    const fig_warps_blocks blocks = fig_warps_blocks_of<form>(ring, note, role, FIG_RING_V);
    v->block = blocks.first + fig_warps_row_of_v<form>(role, blocks.apart);
    v->apart = blocks.apart;
    fig_ring_wait_full(ring, FIG_RING_V);
    if constexpr (form::TURNS)
        if (note.flags & FIG_RING_NEWEST)
            fig_turn_replace<form>(p, note, 1, blocks.token, blocks.first, blocks.apart, turn);
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
    if constexpr (form::TURNS)
        if (note.flags & FIG_RING_NEWEST)
            fig_turn_replace<form>(p, note, 0, token, blocks.first, blocks.apart, *turn);
    float logits[form::STEPS][4];
    fig_warps_v<form> v;
#pragma unroll
    for (int32_t s = 0; s < form::STEPS; s++)
        fig_warps_multiply_k<form>(*seen, k + (uint32_t)s * blocks.apart, logits[s]);
    fig_ring_release(ring, FIG_RING_K);
    if (form::IS_AHEAD) fig_warps_bring_v<form>(p, ring, note, role, *turn, &v);
    fig_warps_scale<form>(p, note, role, place, *seen, token, logits);
    fig_warps_raise<form>(logits, note.flags & FIG_RING_FIRST, seen);
    if (!form::IS_AHEAD) fig_warps_bring_v<form>(p, ring, note, role, *turn, &v);
    fig_warps_add_strip<form>(p, note, role, v, token, logits, seen);
    fig_ring_release(ring, FIG_RING_V);
    if constexpr (form::TURNS)
        if (note.flags & FIG_RING_NEWEST)
            fig_turn_append<form>(p, note, place.kv_head, token, turn);
}

#endif
