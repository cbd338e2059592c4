/* attention_short.cuh: computes attention over short rows. Each kv head of a row has a cluster of
 * blocks.
 *
 * If a step reads few bytes, the latency of its longest path decides its time. So no block here
 * waits for results in global memory. A row's tokens are dealt in turns: in each turn of the
 * cluster each warp gets 16 tokens. The warp copies them to shared memory some turns ahead, as
 * soon as it knows their page. It computes their weights from K. Then all warps of the block add
 * up V of all the block's tokens, each warp for its own dimensions:
 *
 *     logits [16 tokens][8 vectors] = K [16][head_dim] * q [head_dim][8]
 *     sums [16 dimensions][8 vectors] += V^T [16][tokens of the block's turn] * weights [tokens][8]
 *
 * A fragment may hold a head's numbers in any order, if q has the same order. Lane (g, t) = (lane
 * / 4, lane % 4) has the 16-byte chunks t, t + 4, .. of tokens g and g + 8, and the same chunks of
 * vector g of q. Each sum is sent to the block of the cluster that writes it to out; a barrier in
 * that block's shared memory counts the bytes.
 *
 * Premises, checked by the family: one token per row, at most 8 vectors per kv head, a cache of
 * q's 16-bit type or of 8-bit codes, pages of a multiple of 16 tokens, workers = rows * kv heads *
 * BLOCKS. The rest of the split is ignored. Invariant: as for all attention; and a block does not
 * end while other blocks send to it, because it waits for everything they send. */
#ifndef FIG_KERNELS_ATTENTION_SHORT_CUH
#define FIG_KERNELS_ATTENTION_SHORT_CUH

#include "kernels/strips/attention_q.cuh"
#include "kernels/strips/short_turn.cuh"

/* Holds the shared memory of a block. An element of the inbox is a lane's sums of rows g and g + 8
 * of a tile, for vector 2t and then 2t + 1. */
template <class form> struct fig_short_shared {
    fig_short_stage<form> stages[form::STAGES];
    uint4 weights[FIG_SHORT_ABREAST][form::WARPS][FIG_BLOCK_WARP]; /* fig_warps_weights */
    float4 inbox[form::BLOCKS][form::ROWS][4];                     /* [from][row][t] */
    fig_partials_sum sums[form::WARPS][FIG_GEOMETRY_VECTORS];
    fig_partials_sum inbox_sums[form::BLOCKS][FIG_GEOMETRY_VECTORS]; /* [from][vector] */
    uint64_t came;                                                   /* the inbox's barrier */
};

/* Holds the sums of the lane's vectors over all turns so far. */
template <class form> struct fig_short_seen {
    float values[form::OWN_TILES][4];
    fig_partials_sum sums[2];
};

/* ---- The cluster */

/* Announces that the block's barrier exists. Before a block sends, it waits for this announcement
 * of the other blocks. */
static __device__ __forceinline__ void fig_short_arrive(void) {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

static __device__ __forceinline__ void fig_short_meet(void) {
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
}

/* Returns the address, in another block's shared memory, of an object at the same place as *own. */
static __device__ __forceinline__ uint32_t fig_short_of(const void *own, int32_t rank) {
    uint32_t theirs;
    asm("mapa.shared::cluster.u32 %0, %1, %2;"
        : "=r"(theirs)
        : "r"(fig_fragment_shared(own)), "r"(rank));
    return theirs;
}

static __device__ __forceinline__ void fig_short_send(uint32_t to, uint32_t barrier, float4 x) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], "
                 "{%1, %2, %3, %4}, [%5];" ::"r"(to),
                 "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w), "r"(barrier)
                 : "memory");
}

static __device__ __forceinline__ void fig_short_send(uint32_t to, uint32_t barrier,
                                                      fig_partials_sum x) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, "
                 "[%3];" ::"r"(to),
                 "f"(x.greatest), "f"(x.weights), "r"(barrier)
                 : "memory");
}

/* Makes the barrier that counts all bytes sent to the block. */
static __device__ __forceinline__ void fig_short_begin(uint64_t *barrier, int32_t bytes) {
    if (threadIdx.x == 0) {
        asm volatile(
            "mbarrier.init.shared.b64 [%0], 1;\n"
            "fence.mbarrier_init.release.cluster;\n"
            "{ .reg .b64 state; mbarrier.arrive.expect_tx.shared.b64 state, [%0], %1; }" ::"r"(
                fig_fragment_shared(barrier)),
            "r"(bytes)
            : "memory");
    }
    __syncwarp();
    fig_short_arrive();
}

/* Waits until all bytes that the barrier counts have arrived, from all blocks. */
static __device__ __forceinline__ void fig_short_await(uint64_t *barrier) {
    uint32_t is_over = 0;
    while (!is_over)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, "
                     "[%1], 0, 0x989680;\n"
                     "selp.u32 %0, 1, 0, p; }"
                     : "=r"(is_over)
                     : "r"(fig_fragment_shared(barrier))
                     : "memory");
}

/* ---- A turn */

/* Loads vector g of q, or another vector if vector g does not exist. A chunk of codes needs two
 * neighbouring chunks of q. */
template <class form>
static __device__ __forceinline__ void fig_short_load_q(const uint4 *from,
                                                        uint32_t (&q)[form::TILES][2]) {
#pragma unroll
    for (int32_t i = 0; i < form::TILES / 2; i++) {
        const uint4 chunk =
            from[i / form::TILES_OF_LOAD * 4 * form::TILES_OF_LOAD + i % form::TILES_OF_LOAD];
        q[2 * i][0] = chunk.x;
        q[2 * i][1] = chunk.y;
        q[2 * i + 1][0] = chunk.z;
        q[2 * i + 1][1] = chunk.w;
    }
}

/* Loads the warp's 16 tokens of K as the left operand, in the same order as the lane's q. Codes are
 * converted to DTYPE. */
template <class form, int32_t DTYPE>
static __device__ __forceinline__ void fig_short_load_k(const fig_short_stage<form> &stage,
                                                        const fig_warps_role &role,
                                                        uint32_t (&tiles)[form::TILES][4]) {
    const uint4(*k)[form::OF_ROW] = &stage.k[fig_block_warp() * FIG_RING_TOKENS + role.row];
#pragma unroll
    for (int32_t i = 0; i < form::OF_LANE; i++) {
        const int32_t at = fig_short_k_at<form>(role.row, role.column + 4 * i);
        const uint4 low = k[0][at], high = k[8][at];
        const uint32_t words[4][2] = {
            {low.x, high.x}, {low.y, high.y}, {low.z, high.z}, {low.w, high.w}};
#pragma unroll
        for (int32_t j = 0; j < 4; j++) {
            uint32_t(&tile)[4] = tiles[(4 * i + j) / (2 / form::TILES_OF_LOAD)];
            if constexpr (form::VALUE_BYTES == 2) {
                tile[j % 2 * 2] = words[j][0];
                tile[j % 2 * 2 + 1] = words[j][1];
            } else {
                fig_fragment_widen_as<form::KV_DTYPE, DTYPE>(words[j][0], &tile[0], &tile[2]);
                fig_fragment_widen_as<form::KV_DTYPE, DTYPE>(words[j][1], &tile[1], &tile[3]);
            }
        }
    }
}

/* Computes products, [16 tokens][8 vectors]. It uses several chains of sums, because each product
 * waits for the product before it in its chain. */
template <class form, int32_t DTYPE>
static __device__ __forceinline__ void fig_short_multiply_k(const uint32_t (&k)[form::TILES][4],
                                                            const uint32_t (&q)[form::TILES][2],
                                                            float (&products)[4]) {
    float sums[4][4] = {{0}};
#pragma unroll
    for (int32_t i = 0; i < form::TILES; i++)
        fig_fragment_multiply<DTYPE>(sums[i % 4], k[i][0], k[i][1], k[i][2], k[i][3], q[i][0],
                                     q[i][1]);
#pragma unroll
    for (int32_t i = 0; i < 4; i++)
        products[i] = sums[0][i] + sums[1][i] + (sums[2][i] + sums[3][i]);
}

template <class form, int32_t DTYPE, int32_t TURNS>
static __device__ __forceinline__ void
fig_short_load_turns(const fig_short_shared<form> &shared, int32_t turn, const fig_warps_role &role,
                     uint32_t (&k)[TURNS][form::TILES][4]) {
#pragma unroll
    for (int32_t i = 0; i < TURNS; i++)
        fig_short_load_k<form, DTYPE>(shared.stages[(turn + i) % form::STAGES], role, k[i]);
}

template <class form, int32_t DTYPE, int32_t TURNS>
static __device__ __forceinline__ void
fig_short_multiply_turns(const uint32_t (&k)[TURNS][form::TILES][4],
                         const uint32_t (&q)[form::TILES][2], float (&products)[TURNS][4]) {
#pragma unroll
    for (int32_t i = 0; i < TURNS; i++)
        fig_short_multiply_k<form, DTYPE>(k[i], q, products[i]);
}

/* Computes the products of turns that are processed together. For a single turn of codes, K is
 * converted to q's type, because q arrives last. For several turns, q is converted once, to f16.
 * All conversions of K come before the first use of q; the barrier keeps the compiler from delaying
 * them. */
template <class form, int32_t TURNS>
static __device__ __forceinline__ void
fig_short_multiply(const fig_attention_params &p, const fig_short_shared<form> &shared,
                   const fig_short_way &way, int32_t turn, const fig_warps_role &role,
                   fig_warps_seen<form> *with, float (&products)[TURNS][4]) {
    const int32_t is_codes = form::VALUE_BYTES == 1;
    const int32_t as_bf16 = is_codes && TURNS == 1 && way.turns == 1 && p.dtype == FIG_BF16;
    uint32_t k[TURNS][form::TILES][4];
    if (as_bf16) {
        fig_short_load_turns<form, FIG_BF16, TURNS>(shared, turn, role, k);
    } else {
        fig_short_load_turns<form, form::DTYPE, TURNS>(shared, turn, role, k);
    }
    if (is_codes) __syncwarp();
    if (as_bf16) return fig_short_multiply_turns<form, FIG_BF16, TURNS>(k, with->q, products);
    if constexpr (is_codes)
        if (turn == 0) fig_warps_halve_q<form>(p, role, with);
    fig_short_multiply_turns<form, form::DTYPE, TURNS>(k, with->q, products);
}

/* Computes the logits, in base 2, of tokens `token` and token + 8. The logit of an unseen token is
 * -inf. */
template <class form>
static __device__ __forceinline__ void
fig_short_scale(const fig_attention_params &p, const fig_short_row &row, int32_t token,
                const fig_warps_role &role, const fig_warps_seen<form> &seen, float (&logits)[4]) {
#pragma unroll
    for (int32_t i = 0; i < 4; i++) {
        logits[i] *= seen.scale[i % 2];
        if (form::VALUE_BYTES == 1) logits[i] *= row.k_scale;
    }
    if (__builtin_expect(p.alibi != NULL || p.soft_cap > 0, 0)) {
        fig_ring_note note = {0};
        note.length = row.length;
        const fig_partials_place place = fig_warps_place(p, role, row.row, row.kv_head);
        fig_warps_cap<form>(p, note, place, role, seen, token, logits);
    }
#pragma unroll
    for (int32_t i = 0; i < 4; i++) {
        const int32_t at = token + i / 2 * 8;
        if (at < row.seen.first || at >= row.seen.end) logits[i] = -INFINITY;
    }
}

/* Stores the warp's weights of some turns, relative to the warp's greatest logits, for all warps to
 * use. */
template <class form, int32_t TURNS>
static __device__ __forceinline__ void fig_short_weigh(const float (&logits)[TURNS][4],
                                                       const fig_warps_role &role, int32_t warp,
                                                       fig_short_shared<form> *shared) {
    fig_partials_sum sums[2];
    float x[TURNS][4];
#pragma unroll
    for (int32_t n = 0; n < 2; n++) {
        float greatest = FIG_PARTIALS_NONE;
#pragma unroll
        for (int32_t i = 0; i < 2 * TURNS; i++)
            greatest = fmaxf(greatest, logits[i / 2][i % 2 * 2 + n]);
#pragma unroll
        for (int32_t apart = 4; apart < FIG_BLOCK_WARP; apart *= 2)
            greatest = fmaxf(greatest, __shfl_xor_sync(0xffffffffu, greatest, apart));
        sums[n].greatest = greatest - form::LIFT;
        sums[n].weights = 0;
#pragma unroll
        for (int32_t i = 0; i < 2 * TURNS; i++) {
            float &weight = x[i / 2][i % 2 * 2 + n];
            weight = fig_machine_exp2(logits[i / 2][i % 2 * 2 + n] - sums[n].greatest);
            sums[n].weights += weight;
        }
    }
#pragma unroll
    for (int32_t i = 0; i < TURNS; i++) {
        fig_warps_weights weights;
        fig_warps_round<form>(x[i][0], x[i][1], 0, &weights);
        fig_warps_round<form>(x[i][2], x[i][3], 1, &weights);
        shared->weights[i][warp][role.lane] =
            make_uint4(weights.below[0], weights.below[1], weights.rest[0], weights.rest[1]);
    }
#pragma unroll
    for (int32_t n = 0; n < 2; n++) {
#pragma unroll
        for (int32_t apart = 4; apart < FIG_BLOCK_WARP; apart *= 2)
            sums[n].weights += __shfl_xor_sync(0xffffffffu, sums[n].weights, apart);
        if (role.row == 0) shared->sums[warp][2 * role.column + n] = sums[n];
    }
}

/* Computes the factors for each warp's sums and for the sums so far: [vector 2t or 2t + 1]. */
template <class form>
static __device__ __forceinline__ void
fig_short_join(const fig_short_shared<form> &shared, int32_t n, int32_t vector,
               float (&shrink)[form::WARPS], fig_short_seen<form> *seen) {
    fig_partials_sum sums[form::WARPS], *all = &seen->sums[n];
    float greatest = all->greatest;
#pragma unroll
    for (int32_t w = 0; w < form::WARPS; w++) {
        sums[w] = shared.sums[w][vector];
        greatest = fmaxf(greatest, sums[w].greatest);
    }
    const float own = fig_machine_exp2(all->greatest - greatest);
    all->greatest = greatest;
    all->weights *= own;
#pragma unroll
    for (int32_t w = 0; w < form::WARPS; w++) {
        shrink[w] = fig_machine_exp2(sums[w].greatest - greatest);
        all->weights = fmaf(sums[w].weights, shrink[w], all->weights);
    }
#pragma unroll
    for (int32_t i = 0; i < form::OWN_TILES; i++) {
        seen->values[i][n] *= own;
        seen->values[i][n + 2] *= own;
    }
}

/* Loads V^T of 16 dimensions, tile `number` of the head, as the left operand for warp w's tokens.
 * For caches of codes, a load also brings the same tile of warp w + 1's tokens, and rows g and g +
 * 8 of a tile are dimensions 2g and 2g + 1. */
template <class form>
static __device__ __forceinline__ void fig_short_load_v(const fig_short_stage<form> &stage,
                                                        int32_t lane, int32_t w, int32_t number,
                                                        uint32_t (&tiles)[form::TILES_OF_LOAD][4]) {
    if constexpr (form::VALUE_BYTES == 2) {
        const int32_t token = lane % 8 + lane / 16 * 8;
        const int32_t at = fig_short_v_at<form>(token, 2 * number + lane / 8 % 2);
        fig_fragment_load_turned(tiles[0],
                                 fig_fragment_shared(&stage.v[w * FIG_RING_TOKENS + token][at]));
    } else {
        const int32_t at = fig_short_v_at<form>(lane % 8, number);
        uint32_t codes[4];
        fig_fragment_load_turned(codes,
                                 fig_fragment_shared(&stage.v[w * FIG_RING_TOKENS + lane][at]));
#pragma unroll
        for (int32_t i = 0; i < 2; i++) {
            fig_fragment_widen_apart<form::KV_DTYPE>(codes[2 * i], &tiles[i][0], &tiles[i][1]);
            fig_fragment_widen_apart<form::KV_DTYPE>(codes[2 * i + 1], &tiles[i][2], &tiles[i][3]);
        }
    }
}

/* Adds all tokens of a stage to the sums of the warp's dimensions. weights_of: one per warp. */
template <class form>
static __device__ __forceinline__ void
fig_short_multiply_v(const fig_short_stage<form> &stage, const uint4 (*weights_of)[FIG_BLOCK_WARP],
                     const fig_warps_role &role, int32_t warp,
                     float (&sums)[form::WARPS][form::OWN_TILES][4]) {
#pragma unroll
    for (int32_t w = 0; w < form::WARPS; w += form::TILES_OF_LOAD) {
        fig_warps_weights weights[form::TILES_OF_LOAD];
#pragma unroll
        for (int32_t n = 0; n < form::TILES_OF_LOAD; n++) {
            const uint4 x = weights_of[w + n][role.lane];
            weights[n].below[0] = x.x;
            weights[n].below[1] = x.y;
            weights[n].rest[0] = x.z;
            weights[n].rest[1] = x.w;
        }
#pragma unroll
        for (int32_t i = 0; i < form::OWN_TILES; i++) {
            uint32_t tiles[form::TILES_OF_LOAD][4];
            fig_short_load_v<form>(stage, role.lane, w, warp * form::OWN_TILES + i, tiles);
#pragma unroll
            for (int32_t n = 0; n < form::TILES_OF_LOAD; n++)
                fig_warps_add_tile<form>(tiles[n], weights[n], sums[w + n][i]);
        }
    }
}

/* Adds the tokens that the warps have weighed in turns that are processed together. */
template <class form, int32_t TURNS>
static __device__ __forceinline__ void fig_short_add(const fig_short_shared<form> &shared,
                                                     int32_t turn, const fig_warps_role &role,
                                                     int32_t warp, fig_short_seen<form> *seen) {
    float shrink[2][form::WARPS], sums[form::WARPS][form::OWN_TILES][4] = {{{0}}};
#pragma unroll
    for (int32_t i = 0; i < TURNS && fig_short_owns<form>(warp); i++)
        fig_short_multiply_v<form>(shared.stages[(turn + i) % form::STAGES], shared.weights[i],
                                   role, warp, sums);
#pragma unroll
    for (int32_t n = 0; n < 2; n++)
        fig_short_join<form>(shared, n, 2 * role.column + n, shrink[n], seen);
#pragma unroll
    for (int32_t w = 0; w < form::WARPS; w++)
#pragma unroll
        for (int32_t i = 0; i < form::OWN_TILES; i++)
#pragma unroll
            for (int32_t j = 0; j < 4; j++)
                seen->values[i][j] = fmaf(sums[w][i][j], shrink[j % 2][w], seen->values[i][j]);
}

/* ---- The end */

/* Divides the rows of lanes' sums among the cluster's blocks, tile by tile. */
template <class form>
static __device__ __forceinline__ void
fig_short_send_all(const fig_short_row &row, const fig_warps_role &role, int32_t warp,
                   const fig_short_seen<form> &seen, fig_short_shared<form> *shared) {
#pragma unroll
    for (int32_t i = 0; i < form::OWN_TILES && fig_short_owns<form>(warp); i++) {
        const int32_t number = (warp * form::OWN_TILES + i) * 8 + role.row;
        const int32_t to = number / form::ROWS;
        const float *x = seen.values[i];
        if (2 * role.column < row.vectors)
            fig_short_send(
                fig_short_of(&shared->inbox[row.rank][number % form::ROWS][role.column], to),
                fig_short_of(&shared->came, to), make_float4(x[0], x[2], x[1], x[3]));
    }
    /* All warps of a block have the same sums. Each warp has 8 rows of lanes. */
    const int32_t to = form::BLOCKS > 8 ? warp * 8 + role.row : role.row;
    if ((form::BLOCKS <= 8 && warp != 0) || to >= form::BLOCKS) return;
#pragma unroll
    for (int32_t n = 0; n < 2; n++)
        if (2 * role.column + n < row.vectors)
            fig_short_send(fig_short_of(&shared->inbox_sums[row.rank][2 * role.column + n], to),
                           fig_short_of(&shared->came, to), seen.sums[n]);
}

static __device__ __forceinline__ int32_t fig_short_bytes(int32_t vectors, int32_t rows,
                                                          int32_t blocks) {
    return blocks * ((vectors + 1) / 2 * rows * (int32_t)sizeof(float4) +
                     vectors * (int32_t)sizeof(fig_partials_sum));
}

/* Merges the sums of one vector from all blocks, in their order. A row of length 0 has an LSE of
 * -inf, with or without a sink. */
template <class form>
static __device__ __forceinline__ void
fig_short_write_vector(const fig_attention_params &p, const fig_short_row &row,
                       const fig_short_shared<form> &shared, int32_t number, int32_t vector) {
    const int32_t head = row.kv_head * row.vectors + vector;
    const int32_t at = row.rank * form::ROWS + number;
    const int32_t dim = at / 8 * 16 + at % 8 * form::TILES_OF_LOAD;
    uint16_t *out = (uint16_t *)p.out + row.row * p.out_strides.row + head * p.out_strides.head;
    fig_partials_way way = {0, 0, -INFINITY, row.v_scale};
    if (p.sinks != NULL) way.sink = p.sinks[head] * FIG_NUMERIC_LOG2_E;
    fig_partials_sum sums[form::BLOCKS], all = {FIG_PARTIALS_NONE, 0};
    const int32_t dtype = form::VALUE_BYTES == 1 ? p.dtype : form::DTYPE;
    float2 values = {0, 0};
#pragma unroll
    for (int32_t b = 0; b < form::BLOCKS; b++) {
        sums[b] = shared.inbox_sums[b][vector];
        all.greatest = fmaxf(all.greatest, sums[b].greatest);
    }
#pragma unroll
    for (int32_t b = 0; b < form::BLOCKS; b++) {
        const float2 x = ((const float2 *)&shared.inbox[b][number][vector / 2])[vector % 2];
        const float shrink = fig_machine_exp2(sums[b].greatest - all.greatest);
        all.weights = fmaf(sums[b].weights, shrink, all.weights);
        values.x = fmaf(x.x, shrink, values.x);
        values.y = fmaf(x.y, shrink, values.y);
    }
    fig_pieces_end end = {0, -INFINITY};
    if (row.length > 0) end = fig_partials_end_of(way, all);
    fig_partials_write_number(out + dim, dtype, values.x * end.scale);
    fig_partials_write_number(out + dim + fig_partials_apart<form>(1), dtype, values.y * end.scale);
    if (at == 0 && p.lse != NULL) p.lse[row.row * p.lse_stride + head] = end.lse;
}

/* Writes the block's part of the result. One thread merges one vector of one row of sums, and
 * neighbouring threads take neighbouring rows. */
template <class form>
static __device__ __forceinline__ void fig_short_write(const fig_attention_params &p,
                                                       const fig_short_row &row,
                                                       const fig_short_shared<form> &shared) {
#pragma unroll 1
    for (int32_t i = (int32_t)threadIdx.x; i < form::ROWS * row.vectors; i += form::THREADS)
        fig_short_write_vector<form>(p, row, shared, i % form::ROWS, i / form::ROWS);
}

/* ---- A block */

/* Holds the operands of a warp: q, and the newest token if the warp loads that token again. */
template <class form> struct fig_short_eyes {
    fig_short_newest<form> newest;
    fig_warps_seen<form> with;
    int32_t late; /* turn of the newest token; -1: none */
};

/* Processes TURNS turns at once, from `turn` on, because latency dominates the work between two
 * barriers. */
template <class form, int32_t TURNS>
static __device__ __forceinline__ void
fig_short_see(const fig_attention_params &p, const fig_short_row &row, const fig_short_way &way,
              const fig_warps_role &role, int32_t turn, fig_short_eyes<form> *eyes,
              fig_short_shared<form> *shared, fig_short_seen<form> *seen) {
    const int32_t warp = fig_block_warp(), STRIDE = form::BLOCKS * form::TOKENS;
    float logits[TURNS][4];
    fig_short_wait<2 * (form::STAGES - TURNS) + 1>();
    if (eyes->late >= turn && eyes->late < turn + TURNS) {
        const int32_t token = row.length - 1 - way.first - eyes->late * STRIDE;
        fig_short_wait<0>();
        fig_short_put_newest<form>(eyes->newest, warp * FIG_RING_TOKENS + token,
                                   &shared->stages[eyes->late % form::STAGES]);
    }
    __syncwarp();
    fig_short_multiply<form, TURNS>(p, *shared, way, turn, role, &eyes->with, logits);
#pragma unroll
    for (int32_t i = 0; i < TURNS; i++) {
        const int32_t token = way.first + (turn + i) * STRIDE + role.row;
        fig_short_scale<form>(p, row, token, role, eyes->with, logits[i]);
    }
    fig_short_weigh<form, TURNS>(logits, role, warp, shared);
    fig_short_wait<2 * (form::STAGES - TURNS)>();
    __syncthreads();
    fig_short_add<form, TURNS>(*shared, turn, role, warp, seen);
}

/* Processes all turns of a row. */
template <class form>
static __device__ __forceinline__ void
fig_short_see_row(const fig_attention_params &p, const fig_short_row &row,
                  const fig_short_lane &lane, const fig_short_way &way, const fig_warps_role &role,
                  fig_short_eyes<form> *eyes, fig_short_shared<form> *shared,
                  fig_short_seen<form> *seen) {
    int32_t turn = 0;
#pragma unroll 1
    while (turn + FIG_SHORT_ABREAST <= way.turns) {
        fig_short_see<form, FIG_SHORT_ABREAST>(p, row, way, role, turn, eyes, shared, seen);
        turn += FIG_SHORT_ABREAST;
        if (turn == way.turns) return;
        __syncthreads();
#pragma unroll
        for (int32_t i = form::STAGES - FIG_SHORT_ABREAST; i < form::STAGES; i++)
            fig_short_ask_turn<form>(p, row, lane, way, turn + i, shared->stages);
    }
    fig_short_see<form, 1>(p, row, way, role, turn, eyes, shared, seen);
}

template <class form>
static __device__ __forceinline__ fig_warps_role fig_short_role_of(int32_t vectors) {
    fig_warps_role role = {(int32_t)threadIdx.x % FIG_BLOCK_WARP};
    role.row = role.lane / 4;
    role.column = role.lane % 4;
    role.shares = 1;
    role.count = role.ratio = role.vectors = vectors;
    return role;
}

/* Returns the first chunk of q for the lane. It belongs to vector g or, if there is no vector g, to
 * the last vector. */
template <class form>
static __device__ __forceinline__ const uint4 *
fig_short_q(const fig_attention_params &p, const fig_short_row &row, const fig_warps_role &role) {
    const int32_t head = row.kv_head * row.vectors + min(role.row, row.vectors - 1);
    return (const uint4 *)((const uint16_t *)p.q + row.row * p.q_strides.row +
                           head * p.q_strides.head) +
           role.column * form::TILES_OF_LOAD;
}

/* Loads q and the scales of codes, after the wait for earlier launches. No lane waits for the
 * scales before it needs them. */
template <class form>
static __device__ __forceinline__ void
fig_short_ask_q(const fig_attention_params &p, const uint4 *q, const fig_short_scales &scales,
                fig_short_row *row, fig_warps_seen<form> *with) {
    fig_short_load_q<form>(q, with->q);
    with->scale[0] = with->scale[1] = p.sm_scale * FIG_NUMERIC_LOG2_E;
    with->query[0] = with->query[1] = 0;
    row->k_scale = fig_short_load_scale(scales.k);
    row->v_scale = fig_short_load_scale(scales.v);
}

template <class form>
static __device__ __forceinline__ void fig_short_attend(const fig_attention_params &p) {
    extern __shared__ __align__(16) uint8_t fig_short_memory[];
    fig_short_shared<form> *shared = (fig_short_shared<form> *)fig_short_memory;
    if ((p.flags & FIG_ATTENTION_EARLY) == 0) fig_block_wait();
    fig_block_trigger();
    const int32_t rows = fig_vector_fetch_number(&((const fig_plan_head *)p.plan)->rows);
    fig_short_row row = fig_short_row_of<form>(p);
    const fig_warps_role role = fig_short_role_of<form>(row.vectors);
    fig_short_begin(&shared->came, fig_short_bytes(row.vectors, form::ROWS, form::BLOCKS));
    const fig_short_lane lane = fig_short_lane_of<form>(p, row);
    const uint4 *q = fig_short_q<form>(p, row, role);
    fig_short_eyes<form> eyes;
    fig_short_seen<form> seen = {{{0}}, {{FIG_PARTIALS_NONE, 0}, {FIG_PARTIALS_NONE, 0}}};
    fig_short_bound(p, rows, &row);
    const fig_short_way way = fig_short_way_of<form>(row);
#pragma unroll 1
    for (int32_t turn = 0; turn < form::STAGES; turn++)
        fig_short_ask_turn<form>(p, row, lane, way, turn, shared->stages);
    eyes.late = fig_short_late<form>(p, way);
    const int32_t is_late = eyes.late >= 0;
    const float *angles = NULL;
    if constexpr (form::TURNS) {
        if (is_late) fig_short_find_own<form>(p, row, &eyes.newest);
        angles = fig_short_make_angles<form>(p, row.position);
    } else {
        if (is_late) fig_short_find_newest<form>(p, row, &eyes.newest);
    }
    const fig_short_scales scales = fig_short_find_scales<form>(p, row);
    fig_block_wait();
    if (row.row >= rows) return;
    if (is_late) fig_short_load_newest<form>(&eyes.newest);
    fig_short_ask_q<form>(p, q, scales, &row, &eyes.with);
    if constexpr (form::TURNS) {
        if (is_late) fig_short_turn_newest<form>(p, row, angles, &eyes.newest);
        if (!fig_turn_is_plain(p)) fig_short_turn_q<form>(p, role.column, angles, eyes.with.q);
    }
    fig_short_see_row<form>(p, row, lane, way, role, &eyes, shared, &seen);
    fig_short_meet();
    fig_short_send_all<form>(row, role, fig_block_warp(), seen, shared);
    if (form::TURNS && is_late) fig_short_append_newest<form>(eyes.newest);
    fig_short_await(&shared->came);
    fig_short_write<form>(p, row, *shared);
}

#endif
