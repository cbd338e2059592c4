/* attention_strip.cuh: what a warp makes of a strip of the cache on tensor cores.
 *
 * out = sum over tokens of 2^(l - m) v / sum of 2^(l - m), where l is the logit in base 2 and m
 * near the greatest l. The cache is the left side of every product, 16 tokens or 16 dimensions at a
 * time, and the vectors that share a kv head are the right side, 8 to a warp:
 *
 *     logits  [16 tokens][8 vectors]  = K [16][head_dim] * q   [head_dim][8]
 *     sums   [head_dim][8 vectors]  += V^T [head_dim][16] * weights [16][8]
 *
 * so that logits become weights where they lie, and turn by one exchange of lanes. Weights are two
 * numbers of the cache's 16 bits (f16 over 8 bits), the one next below and what that leaves, so
 * that they count in full. Neither is below 0 and neither is 0 alone, as an infinite V must meet no
 * inf - inf and no 0 * inf. m rises only where a logit passes it by 2^8, so that most strips shrink
 * nothing. Under codes of 8 bits q is f16 times the power of two that brings its largest number
 * below 2^15.
 *
 * Leaves the way from the cache to kv_feed.cuh, and a piece's sums to attention_warps.cuh.
 * Invariant: a token that a vector does not see does no harm, whatever lies there: its logit is not
 * looked at, and V is cleared of it for each query by itself, as NaN times 0 is not 0. */
#ifndef FIG_KERNELS_ATTENTION_STRIP_CUH
#define FIG_KERNELS_ATTENTION_STRIP_CUH

#include "kernels/attention_turn.cuh"
#include "kernels/kv_feed.cuh"
#include "kernels/partials.cuh"

/* What an instance is compiled for. */
template <int32_t KV, int32_t DIMS, int32_t SHARE_COUNT, int32_t BULK, int32_t TURNING>
struct fig_warps_form {
    static constexpr int32_t KV_DTYPE = KV;
    static constexpr int32_t HEAD_DIM = DIMS;
    static constexpr int32_t SHARES = SHARE_COUNT; /* 0: as many as the launch has */
    static constexpr int32_t SHARE_LIMIT = SHARE_COUNT > 0 ? SHARE_COUNT : FIG_FORM_SHARE_LIMIT;
    /* 1: a piece is short and waited for, and registers are left for what shortens its way. */
    static constexpr int32_t HASTENS = SHARE_COUNT == FIG_FORM_SHARE_LIMIT;
    static constexpr int32_t IS_BULK = BULK;
    static constexpr int32_t TURNS = TURNING; /* 1: q comes as it is, and k and v with it */
    static constexpr int32_t DTYPE = fig_fragment_dtype(KV);
    /* Powers of two by which weights are larger than 2^(l - m): f16 ends at 2^-24, and at 2^16. */
    static constexpr int32_t LIFT = DTYPE == FIG_F16 ? 7 : 0;
    static constexpr int32_t VALUE_BYTES = KV == FIG_F16 || KV == FIG_BF16 ? 2 : 1;
    static constexpr int32_t CHUNKS = DIMS * VALUE_BYTES / FIG_RING_CHUNK;
    static constexpr int32_t ROW_BYTES = DIMS * VALUE_BYTES;
    static constexpr int32_t BLOCK_BYTES = fig_form_block_bytes(VALUE_BYTES, DIMS);
    static constexpr int32_t FILLERS = BULK ? FIG_FORM_BULK_FILLERS : FIG_FORM_COPY_FILLERS;
    static constexpr int32_t STEPS = fig_form_steps(VALUE_BYTES, DIMS);
    static constexpr int32_t SHARE_TOKENS = FIG_RING_TOKENS * STEPS;
    static constexpr int32_t STRIP = SHARE_TOKENS * SHARE_COUNT;
    static constexpr int32_t TILES = DIMS / 16; /* of 16 dimensions */
    static constexpr int32_t TILES_OF_LOAD = 2 / VALUE_BYTES;
    static constexpr int32_t LOADS = (TILES + TILES_OF_LOAD - 1) / TILES_OF_LOAD;
    static constexpr int32_t PARTIAL_DIMS = fig_form_partial_dims(DIMS);
    static constexpr int32_t PACKS = PARTIAL_DIMS / 32; /* that a lane has of a vector */
    static constexpr int32_t OF_VECTOR = PARTIAL_DIMS / FIG_PARTIALS_PACK; /* packs */
    /* 1: V is read before logits are weights, which has its conversions fill the waits between.
     * Registers for that are there where heads are not long, and no warp copies. */
    static constexpr int32_t IS_AHEAD = VALUE_BYTES == 1 && DIMS <= 128 && BULK;
    static_assert(DIMS % 16 == 0 && DIMS <= 256, "head_dim");
};

/* Which part of a worker's work is a warp's. */
typedef struct fig_warps_role {
    int32_t lane, row, column; /* of a fragment: lane / 4, lane % 4 */
    int32_t shares, share;
    int32_t head;           /* of the worker's */
    int32_t first, count;   /* vectors of the head */
    int32_t ratio, vectors; /* q heads of a kv head; vectors of a worker's heads */
    int32_t number;         /* of the warps that share these vectors */
} fig_warps_role;

/* What a warp's vectors have seen. A lane has two of them: columns 2t and 2t + 1. */
template <class form> struct fig_warps_seen {
    uint32_t q[form::TILES][2];
    float values[form::TILES][4];
    float weights[2]; /* sums, of the lane's rows alone */
    float greatest[2];
    float scale[2]; /* of a product, to a logit in base 2 */
    int32_t query[2];
};

/* Warps that share a head's tokens, of so many vectors each. */
template <class form>
static __device__ __forceinline__ int32_t fig_warps_shares(const fig_attention_params &p,
                                                           int32_t vectors) {
    return form::SHARES > 0 ? form::SHARES
                            : fig_form_shares(fig_form_sets(p.heads_per_worker, vectors));
}

template <class form>
static __device__ __forceinline__ fig_warps_role fig_warps_role_of(const fig_attention_params &p) {
    fig_warps_role role;
    const int32_t warp = fig_block_warp();
    role.ratio = fig_form_divide(p.q_heads, p.kv_heads);
    const int32_t vectors = role.ratio * p.split.row_tokens;
    role.vectors = vectors * p.heads_per_worker;
    role.lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP;
    role.row = role.lane / 4;
    role.column = role.lane % 4;
    role.shares = fig_warps_shares<form>(p, vectors);
    role.number = form::SHARES > 0 ? warp / role.shares : fig_form_divide(warp, role.shares);
    role.share = warp - role.number * role.shares;
    const int32_t turn = fig_form_divide(role.number, p.heads_per_worker);
    role.head = role.number - turn * p.heads_per_worker;
    role.first = turn * FIG_FORM_VECTORS;
    role.count = fig_size_min(FIG_FORM_VECTORS, vectors - role.first);
    return role;
}

/* Vectors of a head that have a place in the join. */
static __device__ __forceinline__ int32_t fig_warps_head_vectors(const fig_attention_params &p,
                                                                 const fig_warps_role &role) {
    return fig_size_min(FIG_FORM_VECTORS, role.ratio * p.split.row_tokens);
}

/* V's, which ends a piece: asked for when it begins, where the compiler would wait until then. */
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
    place.kv_head = group * p.heads_per_worker + role.head;
    place.ratio = role.ratio;
    place.first = role.first;
    place.count = role.count;
    place.index = role.head * role.ratio * p.split.row_tokens + role.first;
    place.vectors = role.vectors;
    place.v_scale = 1;
    return place;
}

/* Two neighbouring numbers of q as f32. */
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
        seen->query[i] = fig_form_divide(
            role.first + fig_size_min(2 * role.column + i, role.count - 1), role.ratio);
    }
}

/* ---- Logits */

/* Where a query stands, and what it sees of a piece. */
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

/* Where a load's chunks lie, as kv_ring.cuh says: `block` is where those of the first do. Of codes
 * in an odd number of tiles the last load has one chunk alone, and no more than that is the warp's
 * to read: it comes twice, and the second is not looked at. */
template <class form>
static __device__ __forceinline__ uint32_t fig_warps_load_at(uint32_t block, int32_t load) {
    if (form::VALUE_BYTES == 1 && 2 * load + 1 == form::TILES) block -= threadIdx.x / 16 % 2 * 16;
    if (!form::IS_BULK) return block + (uint32_t)(load * 32);
    return (block ^ (uint32_t)(load % 4 * 32)) + (uint32_t)(load / 4 * FIG_RING_COLUMN);
}

/* One block: [16 tokens][8 vectors]. Sums side by side, as each waits for itself. */
template <class form>
static __device__ __forceinline__ void fig_warps_multiply_k(const fig_warps_seen<form> &seen,
                                                            uint32_t block, float (&products)[4]) {
    const int32_t CHAINS = form::VALUE_BYTES == 2 && form::HASTENS ? 4 : 2;
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

/* Of token i / 2 * 8 further on than `token` and vector i % 2. Rolled, and each chosen, since few
 * models have them and code that is passed by should be short. */
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
            logit += p.alibi[fig_partials_vector(p, place, n).q_head] * (float)behind;
        }
        if (p.soft_cap > 0) logit = p.soft_cap * tanhf(logit / p.soft_cap);
#pragma unroll
        for (int32_t j = 0; j < 4; j++)
            logits[j] = i == j ? logit * FIG_NUMERIC_LOG2_E : logits[j];
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

/* Products to logits: of the warp's part of a strip, from `token` on. What few strips and models
 * have stands behind one branch, so that all steps are one row of instructions. */
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

/* Where some logit has passed its vector's m by 2^8, every vector's m becomes its greatest.
 * `greatest` is LIFT below m. A piece's first strip has nothing to shrink. */
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

/* 16 tokens' weights of 8 vectors, as the right side of a product. */
typedef struct fig_warps_weights {
    uint32_t below[2], rest[2];
} fig_warps_weights;

/* What a weight leaves: more than 0, but of 0 itself. */
template <int32_t DTYPE>
static __device__ __forceinline__ float fig_warps_rest(float weight, float below) {
    const float least = DTYPE == FIG_BF16 ? 1.17549435e-38f : 5.96046448e-8f;
    return fminf(fmaxf(weight - below, least), weight);
}

/* A pair of weights, of tokens that are 8 * half further on than others. */
template <class form>
static __device__ __forceinline__ void fig_warps_round(float first, float second, int32_t half,
                                                       fig_warps_weights *weights) {
    const uint32_t pair = fig_fragment_pair_below<form::DTYPE>(first, second);
    const float2 below = fig_warps_widen_q(form::DTYPE, pair);
    const uint32_t rest =
        fig_fragment_pair<form::DTYPE>(fig_warps_rest<form::DTYPE>(first, below.x),
                                       fig_warps_rest<form::DTYPE>(second, below.y));
    weights->below[half] = fig_fragment_turn(pair);
    weights->rest[half] = fig_fragment_turn(rest);
}

/* The warp's part of a strip of V as it is stored: in registers or, where there are not enough of
 * them, in shared memory. */
template <class form> struct fig_warps_v {
    uint32_t block, apart;
    uint32_t ahead[form::IS_AHEAD ? form::STEPS : 1][form::IS_AHEAD ? form::LOADS : 1][4];
};

/* A load's tiles of V^T, cleared of tokens by masks: of tokens 2t and 2t + 1, and of 8 further. */
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

/* A tile of V^T times weights. */
template <class form>
static __device__ __forceinline__ void fig_warps_add_tile(const uint32_t (&tile)[4],
                                                          const fig_warps_weights &weights,
                                                          float (&sums)[4]) {
    fig_fragment_multiply<form::DTYPE>(sums, tile[0], tile[1], tile[2], tile[3], weights.below[0],
                                       weights.below[1]);
    fig_fragment_multiply<form::DTYPE>(sums, tile[0], tile[1], tile[2], tile[3], weights.rest[0],
                                       weights.rest[1]);
}

template <class form>
static __device__ __forceinline__ void
fig_warps_add_values(const fig_warps_v<form> &v, int32_t step,
                     const fig_warps_weights &weights, fig_warps_seen<form> *seen) {
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

/* All ones where a query sees a token: in the low half of a word, and of the next in the high. */
static __device__ __forceinline__ uint32_t fig_warps_mask(fig_strip_range range, int32_t token) {
    const uint32_t low = token >= range.first && token < range.end ? 0xffffu : 0;
    const uint32_t high = token + 1 >= range.first && token + 1 < range.end ? 0xffff0000u : 0;
    return low | high;
}

/* Each query by itself: of its vectors alone the sums are kept. */
template <class form>
static __device__ __forceinline__ void
fig_warps_add_seen(const fig_attention_params &p, const fig_ring_note &note,
                   const fig_warps_role &role, const fig_warps_v<form> &v, int32_t step,
                   int32_t first_token, const fig_warps_weights &weights,
                   fig_warps_seen<form> *seen) {
    const int32_t last = role.first + role.count - 1;
    const int32_t token = first_token + step * FIG_RING_TOKENS + 2 * role.column;
#pragma unroll 1
    for (int32_t query = fig_form_divide(role.first, role.ratio);
         query <= fig_form_divide(last, role.ratio); query++) {
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

/* Where the lane's chunk of a row lies within a block. */
template <class form>
static __device__ __forceinline__ uint32_t fig_warps_chunk_at(int32_t token, int32_t chunk,
                                                              uint32_t block_bytes) {
    if (form::IS_BULK) return (uint32_t)(token * 128 + ((chunk ^ token % 8) << 4));
    return (uint32_t)token * (block_bytes / FIG_RING_TOKENS) + (uint32_t)(chunk << 4);
}

template <class form>
static __device__ __forceinline__ uint32_t fig_warps_row_of_k(const fig_warps_role &role,
                                                              uint32_t block_bytes) {
    return fig_warps_chunk_at<form>(role.lane % 16, role.lane / 16, block_bytes);
}

/* Turned, blocks of 8 x 8 of two bytes come the other way round; of pairs of codes they do not. */
template <class form>
static __device__ __forceinline__ uint32_t fig_warps_row_of_v(const fig_warps_role &role,
                                                              uint32_t block_bytes) {
    if (form::VALUE_BYTES == 1) return fig_warps_row_of_k<form>(role, block_bytes);
    return fig_warps_chunk_at<form>(role.lane % 8 + role.lane / 16 * 8, role.lane / 8 % 2,
                                    block_bytes);
}

/* A strip's logits to its weights. */
template <class form>
static __device__ __forceinline__ void
fig_warps_weigh(const float (&logits)[form::STEPS][4],
                fig_warps_weights (&weights)[form::STEPS], fig_warps_seen<form> *seen) {
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

/* Adds V of a strip. Logits become weights on either way, and not before them, so that all that the
 * common one does is one row of instructions, in which conversions fill the waits for weights; the
 * empty statement keeps the compiler from taking out what both have. */
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

/* The warp's part of a side of the strip that the ring has next. */
typedef struct fig_warps_blocks {
    uint32_t first, apart; /* shared addresses of the first block, and from one to the next */
    int32_t token;         /* of the first */
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

/* Waits for V. */
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

/* The warp's part of the strip that the ring has next. */
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
