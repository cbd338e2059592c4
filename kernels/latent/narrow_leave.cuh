/* narrow_leave.cuh: writes the results of pieces over a latent cache if dimensions are the rows of
 * the products, and chooses the way in which latent_leave.cuh merges those of cut segments.
 *
 * A thread has the sums of dimensions 64 i + 16 w + 8 e + l of its warpgroup's half of V, for
 * i = 0 .. 3 and e = 0, 1, where w is its warp and l its lane / 4. Of each unit of 8 vectors, it
 * has vectors 2 q and 2 q + 1, where q is its number in its quad. Eight pairs of them are turned
 * round, 8 x 8 at a time, and the thread then has dimensions 64 i + 16 w + 8 e + 2 q and the next
 * one, of vector l. A partial has 2 KB of room for a vector:
 *
 *     bytes    0 .. 1023                               1024 .. 1087
 *     f16      [half of V][warp][2][quarter][8]        f32 [half of V][warp]{greatest, weights}
 *
 * The 8 values of a pack belong to two values of i and two of e. As in latent_leave.cuh, they are
 * sums divided by a power of two, which the lanes of a warp share.
 *
 * Invariant: that of latent_leave.cuh. */
#ifndef FIG_KERNELS_NARROW_LEAVE_CUH
#define FIG_KERNELS_NARROW_LEAVE_CUH

#include "kernels/latent/latent_leave.cuh"
#include "kernels/latent/narrow_ring.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

enum {
    FIG_NARROW_LEAVE_CHUNKS = 4, /* chunks of a half of V */
    FIG_NARROW_LEAVE_UNIT = 8    /* vectors of a unit */
};

/* Lays out the packs of a vector; see fig_latent_leave_form. A crew handles LOTS lots at once, and
 * PIECES pieces of each in a round trip. */
template <int32_t LOTS, int32_t PIECES> struct fig_narrow_leave_form {
    static constexpr int32_t ABREAST = LOTS, TRIP = PIECES;
    static __device__ __forceinline__ int32_t dim(int32_t pack) {
        const int32_t half = pack / FIG_BLOCK_WARP, warp = pack / 8 % 4;
        const int32_t chunk = pack / 4 % 2 * 2 + pack / 2 % 2;
        return half * FIG_LATENT_RING_HALF_DIMS + chunk * 64 + warp * 16 + pack % 2 * 8;
    }
    static __device__ __forceinline__ int32_t sum(int32_t pack) {
        return pack / 8;
    }
    static __device__ __forceinline__ int32_t clears(int32_t pack) {
        return pack % 8 == 0;
    }
};

/* A thread's sums. */
template <int32_t VECTORS> struct fig_narrow_leave_sums {
    float values[FIG_NARROW_LEAVE_CHUNKS][VECTORS / 2];
};

/* The thread's place: its warpgroup, its warp in that and its lane. */
typedef struct fig_narrow_leave_thread {
    int32_t half, warp, lane;
} fig_narrow_leave_thread;

/* Returns a vector's reference and its sum of weights. */
template <int32_t VECTORS>
static __device__ __forceinline__ fig_partials_sum
fig_narrow_leave_sum(const fig_narrow_ring_state<VECTORS> *state, int32_t vector) {
    const float(&weights)[FIG_LATENT_RING_WARPS][VECTORS] = state->weights;
    return {state->greatest[vector],
            weights[0][vector] + weights[1][vector] + (weights[2][vector] + weights[3][vector])};
}

/* Returns the number of the pack of which the thread writes 16 bytes. side: 0 or 1. */
static __device__ __forceinline__ int32_t fig_narrow_leave_pack(const fig_narrow_leave_thread &at,
                                                                int32_t side) {
    return at.half * FIG_BLOCK_WARP + at.warp * 8 + side * 4 + at.lane % 4;
}

/* Scales the sums of a unit, rounds them and turns them round. words: [side][word]. */
template <int32_t DTYPE, int32_t VECTORS>
static __device__ __forceinline__ void
fig_narrow_leave_words(const fig_narrow_leave_sums<VECTORS> &sums, int32_t unit,
                       const float (&scale)[2], uint32_t (&words)[2][4]) {
#pragma unroll
    for (int32_t i = 0; i < FIG_NARROW_LEAVE_CHUNKS; i++)
#pragma unroll
        for (int32_t e = 0; e < 2; e++)
            words[i / 2][i % 2 * 2 + e] = fig_latent_machine_across(
                fig_fragment_pair<DTYPE>(sums.values[i][4 * unit + 2 * e] * scale[0],
                                         sums.values[i][4 * unit + 2 * e + 1] * scale[1]));
}

/* Returns by how many powers of two the sums of the thread's vector n, 0 or 1, of a unit are
 * multiplied. */
template <int32_t VECTORS>
static __device__ __forceinline__ int32_t
fig_narrow_leave_lift(const fig_narrow_leave_sums<VECTORS> &sums, int32_t unit, int32_t n) {
    float most = 0;
#pragma unroll
    for (int32_t i = 0; i < FIG_NARROW_LEAVE_CHUNKS; i++)
        most = fmaxf(most, fmaxf(fabsf(sums.values[i][4 * unit + n]),
                                 fabsf(sums.values[i][4 * unit + 2 + n])));
#pragma unroll
    for (int32_t apart = 4; apart < FIG_BLOCK_WARP; apart *= 2)
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, apart));
    return FIG_LATENT_LEAVE_EXPONENT -
           max((int32_t)(__float_as_uint(most) >> 23), (int32_t)FIG_LATENT_LEAVE_EXPONENT_LEAST);
}

/* Hands the thread's part of a unit to a receiver: the sums of weights of its vectors, then the
 * values of one vector, 16 bytes at a time. count: vectors of the piece. */
template <class receiver, int32_t VECTORS>
static __device__ __forceinline__ void
fig_narrow_leave_hand(const receiver &to, int32_t count, const fig_narrow_leave_thread &at,
                      const fig_narrow_leave_sums<VECTORS> &sums, int32_t unit,
                      const fig_narrow_ring_state<VECTORS> *state) {
    const int32_t first = unit * FIG_NARROW_LEAVE_UNIT;
    float scale[2];
    uint32_t words[2][4];
#pragma unroll
    for (int32_t n = 0; n < 2; n++) {
        const int32_t vector = first + at.lane % 4 * 2 + n;
        const int32_t lift = fig_narrow_leave_lift(sums, unit, n);
        scale[n] = __uint_as_float((uint32_t)(127 + lift) << 23);
        const fig_partials_sum sum = fig_narrow_leave_sum(state, vector);
        if (at.lane < 4 && vector < count)
            receiver::take_sum(to, vector, at.half * 4 + at.warp,
                               {sum.greatest - (float)lift, sum.weights * scale[n]});
    }
    fig_narrow_leave_words<FIG_F16>(sums, unit, scale, words);
    const int32_t vector = first + at.lane / 4;
    if (vector >= count) return;
#pragma unroll
    for (int32_t side = 0; side < 2; side++)
        receiver::take_pack(to, vector, fig_narrow_leave_pack(at, side), words[side]);
}

/* Writes to a partial of the launch. */
typedef struct fig_narrow_leave_partial {
    const fig_attention_params &of;
    int64_t first; /* the partial's first vector */
    static __device__ __forceinline__ void take_sum(const fig_narrow_leave_partial &to,
                                                    int32_t vector, int32_t warp,
                                                    fig_partials_sum sum) {
        fig_machine_store(
            fig_latent_leave_vector(to.of, to.first + vector) + FIG_LATENT_LEAVE_SUMS_AT + warp * 2,
            make_uint2(fig_partials_word(sum.greatest), fig_partials_word(sum.weights)));
    }
    static __device__ __forceinline__ void take_pack(const fig_narrow_leave_partial &to,
                                                     int32_t vector, int32_t pack,
                                                     uint32_t (&words)[4]) {
#pragma unroll
        for (int32_t i = 0; i < 4; i++)
            words[i] = words[i] == 0 ? 0x80000000u : words[i];
        fig_machine_store(fig_latent_leave_vector(to.of, to.first + vector) + pack * 4,
                          make_uint4(words[0], words[1], words[2], words[3]));
    }
} fig_narrow_leave_partial;

/* Writes the thread's part of a unit to out. */
template <int32_t DTYPE, int32_t VECTORS>
static __device__ __forceinline__ void
fig_narrow_leave_out(const fig_attention_params &of, const fig_partials_place &place,
                     const fig_narrow_leave_thread &at, const fig_narrow_leave_sums<VECTORS> &sums,
                     int32_t unit, const fig_narrow_ring_state<VECTORS> *state) {
    const int32_t first = unit * FIG_NARROW_LEAVE_UNIT, row = first + at.lane / 4;
    float scale[2];
    uint32_t words[2][4];
#pragma unroll
    for (int32_t n = 0; n < 2; n++) {
        const int32_t number = first + at.lane % 4 * 2 + n, is_kept = number < place.count;
        const fig_partials_way way = fig_partials_way_of(of, place, is_kept ? number : 0);
        const fig_pieces_end end = fig_partials_end_of(way, fig_narrow_leave_sum(state, number));
        scale[n] = end.scale;
        if (is_kept && at.half == 0 && at.warp == 0 && at.lane < 4 && of.lse != NULL)
            of.lse[way.lse] = end.lse;
    }
    fig_narrow_leave_words<DTYPE>(sums, unit, scale, words);
    const fig_partials_way way = fig_partials_way_of(of, place, row < place.count ? row : 0);
#pragma unroll
    for (int32_t side = 0; side < 2; side++) {
        const uint4 turned = fig_latent_leave_turn(words[side]);
        if (row < place.count)
            *(uint4 *)((uint16_t *)of.out + way.out +
                       fig_narrow_leave_form<1, 1>::dim(fig_narrow_leave_pack(at, side))) = turned;
    }
}

/* Writes the result of a whole piece to out. */
template <int32_t DTYPE, int32_t VECTORS>
static __device__ __forceinline__ void
fig_narrow_leave_whole(const fig_attention_params &of, const fig_partials_place &place,
                       const fig_narrow_leave_thread &at,
                       const fig_narrow_leave_sums<VECTORS> &sums,
                       const fig_narrow_ring_state<VECTORS> *state) {
#pragma unroll
    for (int32_t unit = 0; unit < VECTORS / FIG_NARROW_LEAVE_UNIT; unit++)
        if (unit * FIG_NARROW_LEAVE_UNIT < place.count)
            fig_narrow_leave_out<DTYPE>(of, place, at, sums, unit, state);
}

/* Hands the result of a piece that is not whole to a receiver. */
template <class receiver, int32_t VECTORS>
static __device__ __forceinline__ void
fig_narrow_leave_cut(const receiver &to, int32_t count, const fig_narrow_leave_thread &at,
                     const fig_narrow_leave_sums<VECTORS> &sums,
                     const fig_narrow_ring_state<VECTORS> *state) {
#pragma unroll
    for (int32_t unit = 0; unit < VECTORS / FIG_NARROW_LEAVE_UNIT; unit++)
        if (unit * FIG_NARROW_LEAVE_UNIT < count)
            fig_narrow_leave_hand(to, count, at, sums, unit, state);
}

/* Does the block's part of a merge; see fig_latent_leave_merge(). Most segments have few pieces,
 * and a block has few vectors of them. So the number of pieces decides how a thread's loads are
 * divided among pieces and vectors, and most merges take half the loads of the last way. */
template <int32_t DTYPE, class state_of>
static __device__ __forceinline__ void
fig_narrow_leave_merge(const fig_attention_params &of, uint32_t flags,
                       const fig_latent_ring_merge &merge, state_of *state) {
    const int32_t pieces = merge.last - merge.first + 1;
    if (pieces <= 2) {
        fig_latent_leave_merge<DTYPE, fig_narrow_leave_form<4, 2>>(of, flags, merge, state);
    } else if (pieces <= 4) {
        fig_latent_leave_merge<DTYPE, fig_narrow_leave_form<2, 4>>(of, flags, merge, state);
    } else if (pieces <= 32) {
        fig_latent_leave_merge<DTYPE, fig_narrow_leave_form<1, 8>>(of, flags, merge, state);
    } else {
        fig_latent_leave_merge<DTYPE, fig_narrow_leave_form<2, 8>>(of, flags, merge, state);
    }
}

/* How the pieces of a launch end if other blocks merge them through memory. A launch whose pieces
 * end otherwise has another such type (narrow_cluster.cuh). */
typedef struct fig_narrow_leave_through_memory {
    /* Writes the result of a piece: to out if the piece is whole, and otherwise to its partial. */
    template <int32_t DTYPE, int32_t VECTORS>
    static __device__ __forceinline__ void
    leave(const fig_attention_params &of, const fig_partials_place &place, int32_t partial,
          const fig_narrow_leave_thread &at, const fig_narrow_leave_sums<VECTORS> &sums,
          fig_narrow_ring_state<VECTORS> *state) {
        if (partial < 0) {
            fig_narrow_leave_whole<DTYPE>(of, place, at, sums, state);
        } else {
            const fig_narrow_leave_partial to = {of, fig_partials_at(place, partial)};
            fig_narrow_leave_cut(to, place.count, at, sums, state);
        }
    }
    /* Does the block's part of the merges, once both warpgroups have done all products. */
    template <int32_t DTYPE, int32_t VECTORS>
    static __device__ __forceinline__ void merge(const fig_attention_params &of, uint32_t flags,
                                                 fig_narrow_ring_state<VECTORS> *state) {
#pragma unroll 1
        for (int32_t i = 0; i < FIG_LATENT_RING_MERGES; i++)
            fig_narrow_leave_merge<DTYPE>(of, flags, state->merges[i], state);
    }
} fig_narrow_leave_through_memory;

#endif
#endif
