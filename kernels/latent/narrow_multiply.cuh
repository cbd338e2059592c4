/* narrow_multiply.cuh: multiplies the tiles of a latent cache by few vectors, on two warpgroups,
 * piece by piece.
 *
 * The 64 tokens of a tile are the rows of k q^T, and the dimensions of V are the rows of the sums,
 * V^T w^T; vectors are the columns of both. The warpgroups divide the dimensions, so that each
 * reads its own chunks of a tile alone. A warpgroup thus has halves of all logits. It passes those
 * of half of the vectors to the other warpgroup, and computes the weights of the other vectors:
 *
 *     k q^T of half of the dimensions | exchange | weights of half of the vectors | exchange | V
 *
 * Weights are relative to a reference: the logit of the piece's first token. The references rise
 * only when a logit passes its reference by a large power of two, which costs two more barriers.
 *
 * Invariant: tokens that no query of the piece sees are zeros when V is multiplied. */
#ifndef FIG_KERNELS_NARROW_MULTIPLY_CUH
#define FIG_KERNELS_NARROW_MULTIPLY_CUH

#include "kernels/latent/narrow_leave.cuh"
#include "kernels/latent/narrow_products.cuh"
#include "kernels/latent/narrow_ring.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

#define FIG_NARROW_MULTIPLY_NONE (-1e30f) /* the reference before the first token */

/* GROWTH: a logit may pass its reference by this power of two. In f16, weights must stay finite. In
 * bf16, their sums must, after a partial has multiplied them by up to 2^78. */
template <int32_t DTYPE> struct fig_narrow_multiply_tag {
    typedef fig_wgmma_f16 type;
    static constexpr float GROWTH = 8;
};
template <> struct fig_narrow_multiply_tag<FIG_BF16> {
    typedef fig_wgmma_bf16 type;
    static constexpr float GROWTH = 24;
};

/* Holds a thread's state, in registers. `own` counts the units whose weights it computes. */
template <int32_t VECTORS> struct fig_narrow_multiply_work {
    static constexpr int32_t HALF = fig_narrow_ring_form<VECTORS>::HALF;
    fig_narrow_leave_sums<VECTORS> sums;
    float logits[VECTORS / 2];
    float seen[HALF][4];     /* [own unit] logits of all dimensions, scaled */
    float greatest[HALF][2]; /* [own unit][vector] references */
    float weights[HALF][2];  /* sums over the thread's tokens of earlier tiles */
    float fresh[HALF][2];    /* sums over those of this tile */
    /* tokens [low, high) that each of these vectors sees, counted from the piece's first one */
    int32_t low[HALF][2], high[HALF][2];
    int32_t seen_first, seen_end; /* tokens that some vector sees */
    int32_t first;                /* first token of the tile, counted from the piece's first one */
    int32_t turn;                 /* parity of the tile's number */
    float scale;
    fig_narrow_leave_thread at;
    fig_narrow_ring_place place; /* of the tile's first chunk */
};

static __device__ __forceinline__ void fig_narrow_multiply_meet() {
    fig_ring_meet(FIG_LATENT_RING_ALL, FIG_LATENT_RING_READERS);
}

/* ---- Products */

/* Returns the place of chunk i of the warpgroup's half of the tile. */
template <int32_t VECTORS>
static __device__ __forceinline__ fig_narrow_ring_place
fig_narrow_multiply_chunk(const fig_narrow_multiply_work<VECTORS> &work, int32_t i) {
    return fig_narrow_ring_behind<VECTORS>(work.place, work.at.half * FIG_NARROW_LEAVE_CHUNKS + i +
                                                           FIG_NARROW_RING_FIRST);
}

/* Issues the product k q^T of one chunk, once it has arrived. IS_FIRST 1: sets the logits. */
template <int32_t DTYPE, int32_t IS_FIRST, int32_t VECTORS>
static __device__ __forceinline__ void
fig_narrow_multiply_column(const fig_narrow_ring<VECTORS> &ring,
                           fig_narrow_multiply_work<VECTORS> *work,
                           const fig_narrow_ring_place &place, int32_t chunk) {
    typedef fig_narrow_ring_form<VECTORS> form;
    const typename fig_narrow_multiply_tag<DTYPE>::type tag = {};
    fig_latent_ring_wait(&ring.state->full[place.number], place.phase);
    fig_wgmma_begin();
    const uint64_t k = fig_wgmma_matrix(fig_narrow_ring_chunk(ring, place.number), 128, 1024, 16);
    const uint64_t q = fig_wgmma_matrix(
        ring.base + (uint32_t)(form::Q_AT + chunk * form::Q_CHUNK_BYTES), 128, 1024, 16);
#pragma unroll
    for (int32_t j = 0; j < 4; j++) {
        if (IS_FIRST && j == 0) {
            fig_narrow_products_set(tag, work->logits, k, q);
        } else {
            fig_narrow_products_along(tag, work->logits, k + 2 * j, q + 2 * j);
        }
    }
}

/* Computes the warpgroup's halves of the tile's logits, and releases the last chunk. */
template <int32_t DTYPE, int32_t VECTORS>
static __device__ __forceinline__ void
fig_narrow_multiply_logits(const fig_narrow_ring<VECTORS> &ring,
                           fig_narrow_multiply_work<VECTORS> *work) {
    const int32_t half = work->at.half;
    const fig_narrow_ring_place last =
        fig_narrow_ring_of<VECTORS>(work->place, FIG_LATENT_RING_LAST);
    fig_narrow_multiply_column<DTYPE, 1>(ring, work, fig_narrow_multiply_chunk(*work, 0),
                                         half * FIG_NARROW_LEAVE_CHUNKS);
#pragma unroll
    for (int32_t i = 1; i < FIG_NARROW_LEAVE_CHUNKS; i++)
        fig_narrow_multiply_column<DTYPE, 0>(ring, work, fig_narrow_multiply_chunk(*work, i),
                                             half * FIG_NARROW_LEAVE_CHUNKS + i);
    if (half == 0) fig_narrow_multiply_column<DTYPE, 0>(ring, work, last, FIG_LATENT_RING_LAST);
    fig_wgmma_commit();
    fig_narrow_products_wait();
    fig_narrow_products_pin(work->logits);
    if (half == 0 && work->at.lane == 0)
        fig_ring_arrive(fig_fragment_shared(&ring.state->empty[last.number]));
}

/* Adds the tile to the sums, and releases the warpgroup's chunks. */
template <int32_t DTYPE, int32_t VECTORS>
static __device__ __forceinline__ void
fig_narrow_multiply_values(const fig_narrow_ring<VECTORS> &ring,
                           fig_narrow_multiply_work<VECTORS> *work) {
    typedef fig_narrow_ring_form<VECTORS> form;
    const typename fig_narrow_multiply_tag<DTYPE>::type tag = {};
    const uint64_t weights =
        fig_wgmma_matrix(ring.base + (uint32_t)form::WEIGHTS_AT, 128, 1024, 16);
    fig_wgmma_begin();
#pragma unroll
    for (int32_t i = 0; i < FIG_NARROW_LEAVE_CHUNKS; i++) {
        const int32_t place = fig_narrow_multiply_chunk(*work, i).number;
        const uint64_t v = fig_wgmma_matrix(fig_narrow_ring_chunk(ring, place), 128, 1024,
                                            FIG_LATENT_WIDE_CHUNK_BYTES);
#pragma unroll
        for (int32_t j = 0; j < 4; j++)
            fig_narrow_products_turned(tag, work->sums.values[i], v + 128 * j, weights + 2 * j);
    }
    fig_wgmma_commit();
    fig_narrow_products_wait();
#pragma unroll
    for (int32_t i = 0; i < FIG_NARROW_LEAVE_CHUNKS; i++)
        fig_narrow_products_pin(work->sums.values[i]);
    if (work->at.lane != 0) return;
#pragma unroll
    for (int32_t i = 0; i < FIG_NARROW_LEAVE_CHUNKS; i++)
        fig_ring_arrive(
            fig_fragment_shared(&ring.state->empty[fig_narrow_multiply_chunk(*work, i).number]));
}

/* Writes zeros over those tokens of the warpgroup's half of V that no vector sees. Their weights
 * are 0, but their bytes may be NaN. The logits of such tokens are not used, so other warps may
 * still read them. The caller publishes the zeros. */
template <int32_t VECTORS>
static __device__ __forceinline__ void
fig_narrow_multiply_clear(const fig_narrow_ring<VECTORS> &ring,
                          const fig_narrow_multiply_work<VECTORS> &work) {
    const int32_t low = work.seen_first - work.first, high = work.seen_end - work.first;
    const int32_t pieces = 8; /* of a token in a chunk */
    if (low <= 0 && high >= FIG_LATENT_WIDE_TILE) return;
#pragma unroll 1
    for (int32_t chunk = 0; chunk < FIG_NARROW_LEAVE_CHUNKS; chunk++) {
        const uint32_t v =
            fig_narrow_ring_chunk(ring, fig_narrow_multiply_chunk(work, chunk).number);
#pragma unroll 1
        for (int32_t i = (int32_t)threadIdx.x % FIG_LATENT_RING_GROUP;
             i < FIG_LATENT_WIDE_TILE * pieces; i += FIG_LATENT_RING_GROUP) {
            const int32_t token = i / pieces;
            if (token < low || token >= high) fig_latent_machine_clear(v + (uint32_t)i * 16);
        }
    }
}

/* ---- Logits and weights */

/* Returns sum e of unit `unit` of a warpgroup's own units. The choice between registers is not an
 * index, which would put them into memory. */
template <int32_t VECTORS>
static __device__ __forceinline__ float
fig_narrow_multiply_of_half(const fig_narrow_multiply_work<VECTORS> &work, int32_t half,
                            int32_t unit, int32_t e) {
    const float low = work.logits[4 * unit + e];
    const float high = work.logits[4 * (fig_narrow_ring_form<VECTORS>::HALF + unit) + e];
    return half == 0 ? low : high;
}

/* Passes the halves of the other warpgroup's logits to it, adds up those of this one, and sets the
 * logits of tokens that a vector does not see to -inf. If the tile is the first of the piece, also
 * sets the references. */
template <int32_t VECTORS>
static __device__ __forceinline__ void
fig_narrow_multiply_exchange(const fig_narrow_ring<VECTORS> &ring,
                             fig_narrow_multiply_work<VECTORS> *work) {
    typedef fig_narrow_ring_form<VECTORS> form;
    const int32_t half = work->at.half, lane = work->at.lane, quarter = lane % 4;
    const int32_t thread = (int32_t)threadIdx.x % FIG_LATENT_RING_GROUP;
    float4 *halves = (float4 *)((uint8_t *)ring.state - form::STATE_AT + form::LOGITS_AT);
    float *first = ring.state->first;
#pragma unroll
    for (int32_t i = 0; i < form::HALF; i++) {
        halves[(half * form::HALF + i) * FIG_LATENT_RING_GROUP + thread] =
            make_float4(fig_narrow_multiply_of_half(*work, 1 - half, i, 0),
                        fig_narrow_multiply_of_half(*work, 1 - half, i, 1),
                        fig_narrow_multiply_of_half(*work, 1 - half, i, 2),
                        fig_narrow_multiply_of_half(*work, 1 - half, i, 3));
        if (work->first == 0 && thread < 4) {
            const int32_t vector = (half * form::HALF + i) * 8 + 2 * thread;
            first[vector] = fig_narrow_multiply_of_half(*work, half, i, 0);
            first[vector + 1] = fig_narrow_multiply_of_half(*work, half, i, 1);
        }
    }
    fig_narrow_multiply_meet();
    const int32_t row = work->first + work->at.warp * 16 + lane / 4;
#pragma unroll
    for (int32_t i = 0; i < form::HALF; i++) {
        const float4 *others = halves + ((1 - half) * form::HALF + i) * FIG_LATENT_RING_GROUP;
        const float4 other = others[thread];
        const float sums[] = {other.x, other.y, other.z, other.w};
#pragma unroll
        for (int32_t e = 0; e < 4; e++) {
            const int32_t token = row + e / 2 * 8, n = e % 2;
            const float logit =
                (fig_narrow_multiply_of_half(*work, half, i, e) + sums[e]) * work->scale;
            work->seen[i][e] =
                token >= work->low[i][n] && token < work->high[i][n] ? logit : -INFINITY;
        }
        if (work->first == 0) {
            const float4 other_first = others[quarter];
            const float *own_first = first + (half * form::HALF + i) * 8 + 2 * quarter;
            const float logits[] = {(own_first[0] + other_first.x) * work->scale,
                                    (own_first[1] + other_first.y) * work->scale};
#pragma unroll
            for (int32_t n = 0; n < 2; n++)
                work->greatest[i][n] = work->low[i][n] <= 0 && work->high[i][n] > 0
                                           ? logits[n]
                                           : FIG_NARROW_MULTIPLY_NONE;
        }
    }
}

/* Leaves the warp's sums of weights, those of the tile included, for both warpgroups. */
template <int32_t VECTORS>
static __device__ __forceinline__ void
fig_narrow_multiply_tell_weights(const fig_narrow_multiply_work<VECTORS> &work,
                                 fig_narrow_ring_state<VECTORS> *state) {
    typedef fig_narrow_ring_form<VECTORS> form;
#pragma unroll
    for (int32_t i = 0; i < form::HALF; i++)
#pragma unroll
        for (int32_t n = 0; n < 2; n++) {
            float sum = work.weights[i][n] + work.fresh[i][n];
#pragma unroll
            for (int32_t apart = 4; apart < FIG_BLOCK_WARP; apart *= 2)
                sum += __shfl_xor_sync(0xffffffffu, sum, apart);
            if (work.at.lane < 4)
                state->weights[work.at.warp]
                              [(work.at.half * form::HALF + i) * 8 + 2 * work.at.lane + n] = sum;
        }
}

/* Leaves the weights of the warpgroup's vectors for both warpgroups, rounded, as [vector][token].
 * In the last tile of a piece, also leaves the sums of weights. The caller publishes both. */
template <int32_t DTYPE, int32_t VECTORS>
static __device__ __forceinline__ void
fig_narrow_multiply_weigh(const fig_narrow_ring<VECTORS> &ring,
                          fig_narrow_multiply_work<VECTORS> *work, int32_t is_last) {
    typedef fig_narrow_ring_form<VECTORS> form;
#pragma unroll
    for (int32_t i = 0; i < form::HALF; i++) {
        float weights[4];
#pragma unroll
        for (int32_t e = 0; e < 4; e++)
            weights[e] = fig_machine_exp2(work->seen[i][e] - work->greatest[i][e % 2]);
        work->fresh[i][0] = weights[0] + weights[2];
        work->fresh[i][1] = weights[1] + weights[3];
        const int32_t vector = (work->at.half * form::HALF + i) * 8 + work->at.lane % 8;
        const int32_t tokens = 2 * work->at.warp + work->at.lane / 8 % 2; /* eight of them */
        fig_latent_machine_store_turned(
            ring.base + (uint32_t)(form::WEIGHTS_AT + vector * 128 + (tokens ^ (vector & 7)) * 16),
            fig_fragment_pair<DTYPE>(weights[0], weights[1]),
            fig_fragment_pair<DTYPE>(weights[2], weights[3]));
    }
    if (is_last) fig_narrow_multiply_tell_weights(*work, ring.state);
}

/* Leaves the references of the warpgroup's vectors for both warpgroups. One warp calls this
 * function; its first quad writes. */
template <int32_t VECTORS>
static __device__ __forceinline__ void
fig_narrow_multiply_tell(const fig_narrow_multiply_work<VECTORS> &work, float *to) {
    typedef fig_narrow_ring_form<VECTORS> form;
    if (work.at.lane >= 4) return;
#pragma unroll
    for (int32_t i = 0; i < form::HALF; i++)
#pragma unroll
        for (int32_t n = 0; n < 2; n++)
            to[(work.at.half * form::HALF + i) * 8 + 2 * work.at.lane + n] = work.greatest[i][n];
}

/* Raises all references to the greatest logits so far, and scales the sums. Both warpgroups call
 * this function, if some logit passes its reference. */
template <int32_t DTYPE, int32_t VECTORS>
static __device__ __forceinline__ void
fig_narrow_multiply_raise(const fig_narrow_ring<VECTORS> &ring,
                          fig_narrow_multiply_work<VECTORS> *work, int32_t is_last) {
    typedef fig_narrow_ring_form<VECTORS> form;
    fig_narrow_ring_state<VECTORS> *state = ring.state;
    const int32_t lane = work->at.lane;
#pragma unroll
    for (int32_t i = 0; i < form::HALF; i++)
#pragma unroll
        for (int32_t n = 0; n < 2; n++) {
            float most = fmaxf(work->seen[i][n], work->seen[i][2 + n]);
#pragma unroll
            for (int32_t apart = 4; apart < FIG_BLOCK_WARP; apart *= 2)
                most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, apart));
            if (lane < 4)
                state->most[work->at.warp][(work->at.half * form::HALF + i) * 8 + 2 * lane + n] =
                    most;
        }
    fig_narrow_multiply_meet();
    if (threadIdx.x == 0) state->passes[work->turn] = 0;
#pragma unroll
    for (int32_t i = 0; i < form::HALF; i++)
#pragma unroll
        for (int32_t n = 0; n < 2; n++) {
            const int32_t vector = (work->at.half * form::HALF + i) * 8 + 2 * (lane % 4) + n;
            const float before = work->greatest[i][n];
            work->greatest[i][n] =
                fmaxf(fmaxf(before, fmaxf(state->most[0][vector], state->most[1][vector])),
                      fmaxf(state->most[2][vector], state->most[3][vector]));
            const float shrink = fig_machine_exp2(before - work->greatest[i][n]);
            work->weights[i][n] *= shrink;
            if (work->at.warp == 0 && lane < 4) state->shrink[vector] = shrink;
        }
    if (work->at.warp == 0) fig_narrow_multiply_tell(*work, state->greatest);
    fig_narrow_multiply_weigh<DTYPE>(ring, work, is_last);
    fig_latent_machine_publish();
    fig_narrow_multiply_meet();
#pragma unroll
    for (int32_t i = 0; i < VECTORS / 2; i++) {
        const float shrink = state->shrink[i / 4 * 8 + 2 * (lane % 4) + i % 2];
#pragma unroll
        for (int32_t chunk = 0; chunk < FIG_NARROW_LEAVE_CHUNKS; chunk++)
            work->sums.values[chunk][i] *= shrink;
    }
}

/* Computes the weights of a tile whose halves of logits have been computed. */
template <int32_t DTYPE, int32_t VECTORS>
static __device__ __forceinline__ void
fig_narrow_multiply_weights(const fig_narrow_ring<VECTORS> &ring,
                            fig_narrow_multiply_work<VECTORS> *work, int32_t is_last) {
    typedef fig_narrow_ring_form<VECTORS> form;
    int32_t passes = 0;
    fig_narrow_multiply_exchange(ring, work);
#pragma unroll
    for (int32_t i = 0; i < form::HALF; i++)
#pragma unroll
        for (int32_t e = 0; e < 4; e++)
            passes |= work->seen[i][e] >
                      work->greatest[i][e % 2] + fig_narrow_multiply_tag<DTYPE>::GROWTH;
    if (passes) ring.state->passes[work->turn] = 1;
    if (work->first == 0 && work->at.warp == 0)
        fig_narrow_multiply_tell(*work, ring.state->greatest);
    fig_narrow_multiply_weigh<DTYPE>(ring, work, is_last);
    fig_narrow_multiply_clear(ring, *work);
    fig_latent_machine_publish();
    fig_narrow_multiply_meet();
    if (*(const volatile int32_t *)&ring.state->passes[work->turn])
        fig_narrow_multiply_raise<DTYPE>(ring, work, is_last);
#pragma unroll
    for (int32_t i = 0; i < form::HALF; i++)
#pragma unroll
        for (int32_t n = 0; n < 2; n++)
            work->weights[i][n] += work->fresh[i][n];
}

/* ---- A piece */

/* The packs of q that a thread copies. All of them belong to one vector. */
template <int32_t VECTORS> struct fig_narrow_multiply_packs {
    static constexpr int32_t COUNT = FIG_LATENT_KEY_DIM / 8; /* of a vector */
    static constexpr int32_t SHARES = FIG_LATENT_RING_READERS / VECTORS;
    static constexpr int32_t LOADS = (COUNT + SHARES - 1) / SHARES;
    static_assert(SHARES % 8 == 0, "a thread's packs lie at the same place of a chunk");
    static_assert(FIG_LATENT_DIM / 8 % SHARES == 0, "a load is of the latent or of the rest");
};

/* The thread's first pack of the latent part of q, and of the rest of q. */
typedef struct fig_narrow_multiply_vector {
    const uint16_t *latent, *rope; /* NULL: the thread's vector does not exist */
} fig_narrow_multiply_vector;

/* Returns the addresses of the thread's first packs of q. */
template <int32_t VECTORS>
static __device__ __forceinline__ fig_narrow_multiply_vector
fig_narrow_multiply_q(const fig_latent_attention_params &p, const fig_partials_place &place) {
    const int32_t SHARES = fig_narrow_multiply_packs<VECTORS>::SHARES;
    const int32_t vector = (int32_t)threadIdx.x / SHARES, share = (int32_t)threadIdx.x % SHARES;
    fig_narrow_multiply_vector q = {NULL, NULL};
    if (vector >= place.count) return q;
    const fig_pieces_vector from = fig_partials_vector(place, vector);
    const fig_latent_q_rope rope = fig_latent_q_rope_of(&p, from.row, from.q_head);
    q.latent = (const uint16_t *)p.q + from.row * p.q_strides.row + from.q_head * p.q_strides.head +
               share * 8;
    q.rope = (const uint16_t *)rope.array + rope.at + share * 8;
    return q;
}

/* Copies q of the piece's vectors, swizzled; vectors that do not exist are zeros. All loads of a
 * thread are in flight at once. Both warpgroups call this function. */
template <int32_t VECTORS>
static __device__ __forceinline__ void
fig_narrow_multiply_load_q(const fig_narrow_multiply_vector &q,
                           const fig_narrow_ring<VECTORS> &ring) {
    typedef fig_narrow_ring_form<VECTORS> form;
    typedef fig_narrow_multiply_packs<VECTORS> packs;
    const int32_t SHARES = packs::SHARES;
    const int32_t vector = (int32_t)threadIdx.x / SHARES, share = (int32_t)threadIdx.x % SHARES;
    uint4 loaded[packs::LOADS];
#pragma unroll
    for (int32_t i = 0; i < packs::LOADS; i++) {
        const int32_t at = i * SHARES * 8, behind = at - FIG_LATENT_DIM;
        loaded[i] = make_uint4(0, 0, 0, 0);
        if (q.latent != NULL && share + i * SHARES < packs::COUNT)
            loaded[i] = *(const uint4 *)(behind < 0 ? q.latent + at : q.rope + behind);
    }
    const uint32_t to = ring.base + (uint32_t)(form::Q_AT + share / 8 * form::Q_CHUNK_BYTES +
                                               vector * 128 + ((share ^ vector) & 7) * 16);
#pragma unroll
    for (int32_t i = 0; i < packs::LOADS; i++)
        if (share + i * SHARES < packs::COUNT)
            fig_machine_store_chunk(to + (uint32_t)(i * (SHARES / 8) * form::Q_CHUNK_BYTES),
                                    loaded[i]);
    fig_latent_machine_publish();
    fig_narrow_multiply_meet();
}

/* Sets the state for a piece. */
template <int32_t VECTORS>
static __device__ __forceinline__ void
fig_narrow_multiply_begin(const fig_split_shape &split, const fig_latent_ring_note &note,
                          const fig_partials_place &place,
                          fig_narrow_multiply_work<VECTORS> *work) {
    typedef fig_narrow_ring_form<VECTORS> form;
    work->first = 0;
    work->seen_first = note.first - note.token;
    work->seen_end = note.end - note.token;
#pragma unroll
    for (int32_t i = 0; i < form::HALF; i++)
#pragma unroll
        for (int32_t n = 0; n < 2; n++) {
            const int32_t vector =
                (work->at.half * form::HALF + i) * 8 + 2 * (work->at.lane % 4) + n;
            const int32_t number = fig_size_min(vector, max(place.count, 1) - 1);
            const int32_t position =
                note.length - split.row_tokens + fig_geometry_divide(number, place.ratio);
            const int32_t low = split.window == 0 ? 0 : max(position + 1 - split.window, 0);
            work->low[i][n] = low - note.token;
            work->high[i][n] = position + 1 - note.token;
            work->weights[i][n] = 0;
        }
#pragma unroll
    for (int32_t i = 0; i < VECTORS / 2; i++) {
#pragma unroll
        for (int32_t chunk = 0; chunk < FIG_NARROW_LEAVE_CHUNKS; chunk++)
            work->sums.values[chunk][i] = 0;
    }
}

/* Does the work of a thread of the warpgroups that multiply. ending: how pieces end; see
 * fig_narrow_leave_through_memory. */
template <int32_t DTYPE, class ending, int32_t VECTORS>
static __device__ __forceinline__ void fig_narrow_multiply(const fig_latent_attention_params &p,
                                                           const fig_narrow_ring<VECTORS> &ring) {
    const fig_attention_params of = fig_latent_attention_pieces(&p);
    const int32_t thread = (int32_t)threadIdx.x;
    fig_narrow_multiply_work<VECTORS> work;
    work.at.lane = thread % FIG_BLOCK_WARP;
    work.at.half = fig_latent_ring_same(thread / FIG_LATENT_RING_GROUP);
    work.at.warp = fig_latent_ring_same(thread % FIG_LATENT_RING_GROUP / FIG_BLOCK_WARP);
    work.scale = p.sm_scale * FIG_NUMERIC_LOG2_E;
    work.place = {0, 0};
    work.turn = 0;
#pragma unroll 1
    for (int32_t number = 0;; number++) {
        const fig_latent_ring_note note = fig_latent_ring_read(ring.state, number);
        const fig_partials_place place = fig_latent_leave_place(of, note.row, note.group);
        const fig_narrow_multiply_vector q = fig_narrow_multiply_q<VECTORS>(p, place);
        if (number == 0) { /* The wait is before the reads of q and all writes. */
            if (q.latent != NULL && note.tiles > 0) fig_block_prefetch(q.latent);
            fig_block_wait();
        }
        if (note.tiles == 0) break;
        fig_narrow_multiply_load_q(q, ring);
        fig_narrow_multiply_begin(p.split, note, place, &work);
#pragma unroll 1
        for (int32_t tile = 0; tile < note.tiles; tile++) {
            fig_narrow_multiply_logits<DTYPE>(ring, &work);
            fig_narrow_multiply_weights<DTYPE>(ring, &work, tile + 1 == note.tiles);
            fig_narrow_multiply_values<DTYPE>(ring, &work);
            work.first += FIG_LATENT_WIDE_TILE;
            work.turn ^= 1;
            work.place = fig_narrow_ring_behind<VECTORS>(work.place, FIG_LATENT_WIDE_CHUNKS);
        }
        ending::template leave<DTYPE>(of, place, note.partial, work.at, work.sums, ring.state);
    }
    /* Merges use the memory of tiles, which products of the other warpgroup may still read. */
    fig_narrow_multiply_meet();
    ending::template merge<DTYPE>(of, p.flags, ring.state);
}

#endif
#endif
