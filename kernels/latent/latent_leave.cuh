/* latent_leave.cuh: writes the results of pieces over a latent cache, and merges those of cut
 * segments.
 *
 * A thread of a warpgroup has two vectors, 8 apart. Of each vector it has 16 packs of four sums,
 * those of dimensions d, d + 1, d + 8 and d + 9. Packs lie in a partial in the order
 *
 *     [half of V][16 dimensions][quarter of 8 dimensions]
 *
 * so a quad of lanes writes 64 bytes. Words are their own flags, as in partials.cuh. The blocks
 * that share a merge take whole vectors; 128 threads have a vector, a pack each. Under
 * FIG_ATTENTION_APART the block whose piece is the last to finish merges all vectors.
 *
 * Invariant: partials, sums and counters are zeros before and after a launch. The same plan gives
 * the same bits. */
#ifndef FIG_KERNELS_LATENT_LEAVE_CUH
#define FIG_KERNELS_LATENT_LEAVE_CUH

#include "kernels/latent/latent_ring.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

enum {
    FIG_LATENT_LEAVE_SUMS = 128, /* of a thread */
    FIG_LATENT_LEAVE_PACKS = FIG_LATENT_DIM / FIG_PARTIALS_PACK,
    FIG_LATENT_LEAVE_TRIP = 8,    /* pieces that one round trip loads */
    FIG_LATENT_LEAVE_ABREAST = 2, /* vectors that one round trip loads */
    FIG_LATENT_LEAVE_HALVES = 2
};
static_assert((int)FIG_LATENT_LEAVE_PACKS == (int)FIG_LATENT_RING_GROUP, "a thread has a pack");

/* Returns the first dimension of a pack; the others are 1, 8 and 9 further on. */
static __device__ __forceinline__ int32_t fig_latent_leave_dim(int32_t pack) {
    return pack / 4 * 16 + pack % 4 * 2;
}

/* Names all vectors of a group of a row. */
static __device__ __forceinline__ fig_partials_place
fig_latent_leave_place(const fig_attention_params &of, int32_t row, int32_t group) {
    const fig_plan_queries queries = fig_pieces_queries(of, row);
    fig_partials_place place = {row, group};
    place.base = queries.first;
    place.kv_head = group;
    place.ratio = of.q_heads / of.kv_heads;
    place.count = queries.count * place.ratio;
    place.vectors = of.split.row_tokens * place.ratio;
    place.v_scale = 1;
    return place;
}

template <int32_t DTYPE>
static __device__ __forceinline__ uint32_t fig_latent_leave_pair(float low, float high) {
    uint32_t pair;
    if (DTYPE == FIG_BF16) {
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    } else {
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    }
    return pair;
}

/* ---- The end of a piece */

/* Writes half a vector to out, 16 bytes a lane: each quad of lanes turns 4 x 4 words. All lanes of
 * the warp take part; is_kept: this lane's vector is one. h: 0 for the lane's first vector, 1 for
 * its second one. */
template <int32_t DTYPE>
static __device__ __forceinline__ void
fig_latent_leave_row(uint16_t *to, const float (&sums)[FIG_LATENT_LEAVE_SUMS], int32_t h,
                     float scale, int32_t is_kept) {
    const int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP;
    const int32_t is_odd = lane & 1, is_high = lane & 2;
#pragma unroll
    for (int32_t i = 0; i < FIG_LATENT_LEAVE_SUMS; i += 16) {
        uint32_t words[4];
#pragma unroll
        for (int32_t j = 0; j < 4; j++)
            words[j] = fig_latent_leave_pair<DTYPE>(sums[i + 4 * j + 2 * h] * scale,
                                                    sums[i + 4 * j + 2 * h + 1] * scale);
#pragma unroll
        for (int32_t j = 0; j < 4; j += 2) {
            const uint32_t other =
                __shfl_xor_sync(0xffffffffu, is_odd ? words[j] : words[j + 1], 1);
            words[j] = is_odd ? other : words[j];
            words[j + 1] = is_odd ? words[j + 1] : other;
        }
#pragma unroll
        for (int32_t j = 0; j < 2; j++) {
            const uint32_t other =
                __shfl_xor_sync(0xffffffffu, is_high ? words[j] : words[j + 2], 2);
            words[j] = is_high ? other : words[j];
            words[j + 2] = is_high ? words[j + 2] : other;
        }
        if (is_kept)
            *(uint4 *)(to + i / 4 * 8 + lane % 4 * 8) =
                make_uint4(words[0], words[1], words[2], words[3]);
    }
}

/* Writes the thread's half of vector `number` to its partial. */
static __device__ __forceinline__ void
fig_latent_leave_partial(const fig_attention_params &of, const fig_partials_place &place,
                         int32_t partial, int32_t number, int32_t half,
                         const float (&sums)[FIG_LATENT_LEAVE_SUMS], int32_t h,
                         fig_partials_sum sum) {
    const int32_t quarter = (int32_t)threadIdx.x % 4;
    const int64_t at = fig_partials_at(place, partial) + number;
    float *to = of.partials + at * FIG_LATENT_DIM + half * FIG_LATENT_RING_HALF_DIMS +
                quarter * FIG_PARTIALS_PACK;
#pragma unroll
    for (int32_t i = 0; i < FIG_LATENT_LEAVE_SUMS; i += 8)
        fig_partials_store(to + i * 2, fig_partials_words(make_float4(
                                           sums[i + 2 * h], sums[i + 2 * h + 1],
                                           sums[i + 4 + 2 * h], sums[i + 4 + 2 * h + 1])));
    if (half == 0 && quarter == 0)
        fig_partials_store(of.sums + 2 * at, make_uint2(fig_partials_word(sum.greatest),
                                                        fig_partials_word(sum.weights)));
}

/* Writes the result of a piece: to out if the piece is whole, and otherwise to its partial. row:
 * the thread's first vector. half: the half of V that the warpgroup has. */
template <int32_t DTYPE>
static __device__ __forceinline__ void
fig_latent_leave(const fig_attention_params &of, const fig_partials_place &place, int32_t partial,
                 int32_t row, int32_t half, const float (&sums)[FIG_LATENT_LEAVE_SUMS],
                 const fig_partials_sum (&sum)[2]) {
    /* The vectors of a warp past the last one leave nothing. */
    if ((row & -16) >= place.count) return;
#pragma unroll
    for (int32_t h = 0; h < 2; h++) {
        const int32_t number = row + 8 * h, is_kept = number < place.count;
        if (partial >= 0) {
            if (is_kept)
                fig_latent_leave_partial(of, place, partial, number, half, sums, h, sum[h]);
            continue;
        }
        const fig_partials_way way = fig_partials_way_of(of, place, is_kept ? number : 0);
        const fig_pieces_end end = fig_partials_end_of(way, sum[h]);
        fig_latent_leave_row<DTYPE>((uint16_t *)of.out + way.out + half * FIG_LATENT_RING_HALF_DIMS,
                                    sums, h, end.scale, is_kept);
        if (is_kept && half == 0 && threadIdx.x % 4 == 0 && of.lse != NULL)
            of.lse[way.lse] = end.lse;
    }
}

/* ---- Merges */

/* A thread's pack of a vector, and the sum of the vector's weights. */
typedef struct fig_latent_leave_pack {
    float4 joined;
    fig_partials_sum sum;
} fig_latent_leave_pack;

/* The vectors that a thread merges side by side. If there is only one, it is merged twice, and
 * only the first result counts. */
typedef struct fig_latent_leave_abreast {
    int32_t number[FIG_LATENT_LEAVE_ABREAST];
    int32_t count;
} fig_latent_leave_abreast;

typedef struct fig_latent_leave_loaded {
    uint4 values[FIG_LATENT_LEAVE_ABREAST][FIG_LATENT_LEAVE_TRIP];
    uint2 sums[FIG_LATENT_LEAVE_ABREAST][FIG_LATENT_LEAVE_TRIP];
} fig_latent_leave_loaded;

/* If it waits in vain, ends the launch with an error by a store to address 0. With a trap instead,
 * the assembler would give the products too few registers. */
static __device__ __forceinline__ void fig_latent_leave_end_if(int32_t is_vain) {
    asm volatile("{ .reg .pred p; .reg .b64 none; mov.b64 none, 0; setp.ne.b32 p, %0, 0;\n"
                 "@p st.global.u32 [none], 0; }" ::"r"(is_vain)
                 : "memory");
}

/* Returns the address of the thread's pack of a vector in partial 0. */
static __device__ __forceinline__ float *fig_latent_leave_values(const fig_attention_params &of,
                                                                 int32_t number, int32_t pack) {
    return of.partials + (int64_t)number * FIG_LATENT_DIM + pack * FIG_PARTIALS_PACK;
}

/* Loads the pieces of one trip, beginning with piece `first`, and waits until they have arrived. No
 * load is conditional: a position past the last piece loads `first` again. */
static __device__ __forceinline__ void
fig_latent_leave_await(const fig_attention_params &of, const fig_partials_segment &segment,
                       const fig_latent_leave_abreast &vectors, int32_t pack, int32_t first,
                       int32_t step, fig_latent_leave_loaded *loaded) {
    uint32_t least;
#pragma unroll 1
    for (int32_t looks = 0;; looks++) {
        least = ~0u;
#pragma unroll
        for (int32_t i = 0; i < FIG_LATENT_LEAVE_TRIP; i++) {
            const int32_t piece = first + i * step < segment.pieces ? first + i * step : first;
            const int64_t vector = (int64_t)fig_partials_of(segment, piece) * segment.vectors;
#pragma unroll
            for (int32_t v = 0; v < FIG_LATENT_LEAVE_ABREAST; v++) {
                const int32_t number = vectors.number[v];
                fig_partials_load(&loaded->values[v][i], fig_latent_leave_values(of, number, pack) +
                                                             vector * FIG_LATENT_DIM);
                fig_partials_load(&loaded->sums[v][i], of.sums + 2 * number + vector * 2);
            }
        }
#pragma unroll
        for (int32_t i = 0; i < FIG_LATENT_LEAVE_TRIP * FIG_LATENT_LEAVE_ABREAST; i++) {
            const int32_t v = i % FIG_LATENT_LEAVE_ABREAST, at = i / FIG_LATENT_LEAVE_ABREAST;
            const uint4 words = loaded->values[v][at];
            least = min(least, min(min(words.x, words.y), min(words.z, words.w)));
            least = min(least, min(loaded->sums[v][at].x, loaded->sums[v][at].y));
        }
        if (!__any_sync(0xffffffffu, least == 0)) return;
        fig_latent_leave_end_if(looks == FIG_PARTIALS_LOOKS_LIMIT);
    }
}

static __device__ __forceinline__ void fig_latent_leave_scale(fig_latent_leave_pack *pack,
                                                              float greatest) {
    const float shrink = fig_partials_power(pack->sum.greatest - greatest);
    pack->sum.greatest = greatest;
    pack->sum.weights *= shrink;
    pack->joined.x *= shrink;
    pack->joined.y *= shrink;
    pack->joined.z *= shrink;
    pack->joined.w *= shrink;
}

static __device__ __forceinline__ void fig_latent_leave_add(fig_latent_leave_pack *pack,
                                                            float4 values, fig_partials_sum sum) {
    const float weight = fig_partials_power(sum.greatest - pack->sum.greatest);
    pack->sum.weights = fmaf(sum.weights, weight, pack->sum.weights);
    pack->joined.x = fmaf(values.x, weight, pack->joined.x);
    pack->joined.y = fmaf(values.y, weight, pack->joined.y);
    pack->joined.z = fmaf(values.z, weight, pack->joined.z);
    pack->joined.w = fmaf(values.w, weight, pack->joined.w);
}

/* Adds one vector's pieces of a trip, and writes zeros over its values. */
static __device__ __forceinline__ void
fig_latent_leave_add_trip(const fig_partials_segment &segment,
                          const uint4 (&values)[FIG_LATENT_LEAVE_TRIP],
                          const uint2 (&sums)[FIG_LATENT_LEAVE_TRIP], int32_t first, int32_t step,
                          float *cleared, fig_latent_leave_pack *pack) {
    float greatest = pack->sum.greatest;
#pragma unroll
    for (int32_t i = 0; i < FIG_LATENT_LEAVE_TRIP; i++)
        greatest = fmaxf(greatest, __uint_as_float(sums[i].x));
    fig_latent_leave_scale(pack, greatest);
#pragma unroll
    for (int32_t i = 0; i < FIG_LATENT_LEAVE_TRIP; i++) {
        if (first + i * step >= segment.pieces) break;
        const uint4 words = values[i];
        const fig_partials_sum sum = {__uint_as_float(sums[i].x), __uint_as_float(sums[i].y)};
        fig_latent_leave_add(pack,
                             make_float4(__uint_as_float(words.x), __uint_as_float(words.y),
                                         __uint_as_float(words.z), __uint_as_float(words.w)),
                             sum);
        const int64_t vector =
            (int64_t)fig_partials_of(segment, first + i * step) * segment.vectors;
        fig_partials_store(cleared + vector * FIG_LATENT_DIM, make_uint4(0, 0, 0, 0));
    }
}

/* Merges every step-th piece of the segment, from piece `from` on, and writes zeros over what it
 * has read, except over the sums. */
static __device__ __forceinline__ void
fig_latent_leave_join(const fig_attention_params &of, const fig_partials_segment &segment,
                      const fig_latent_leave_abreast &vectors, int32_t pack, int32_t from,
                      int32_t step, fig_latent_leave_pack (&results)[FIG_LATENT_LEAVE_ABREAST]) {
    fig_latent_leave_loaded loaded;
#pragma unroll
    for (int32_t v = 0; v < FIG_LATENT_LEAVE_ABREAST; v++) {
        results[v].joined = make_float4(0, 0, 0, 0);
        results[v].sum = {FIG_PARTIALS_NONE, 0};
    }
#pragma unroll 1
    for (int32_t first = from; first < segment.pieces; first += FIG_LATENT_LEAVE_TRIP * step) {
        fig_latent_leave_await(of, segment, vectors, pack, first, step, &loaded);
#pragma unroll
        for (int32_t v = 0; v < FIG_LATENT_LEAVE_ABREAST; v++)
            fig_latent_leave_add_trip(segment, loaded.values[v], loaded.sums[v], first, step,
                                      fig_latent_leave_values(of, vectors.number[v], pack),
                                      &results[v]);
    }
}

template <int32_t DTYPE>
static __device__ __forceinline__ void
fig_latent_leave_write(const fig_attention_params &of, const fig_partials_place &place,
                       int32_t number, int32_t pack, const fig_latent_leave_pack &result) {
    const fig_partials_way way = fig_partials_way_of(of, place, number);
    const fig_pieces_end end = fig_partials_end_of(way, result.sum);
    uint16_t *to = (uint16_t *)of.out + way.out + fig_latent_leave_dim(pack);
    const float4 x = result.joined;
    *(uint32_t *)to = fig_latent_leave_pair<DTYPE>(x.x * end.scale, x.y * end.scale);
    *(uint32_t *)(to + 8) = fig_latent_leave_pair<DTYPE>(x.z * end.scale, x.w * end.scale);
    if (pack == 0 && of.lse != NULL) of.lse[way.lse] = end.lse;
}

/* Merges a single vector. Each of the two warpgroups takes every second piece of it. */
template <int32_t DTYPE>
static __device__ __forceinline__ void
fig_latent_leave_lone(const fig_attention_params &of, const fig_partials_place &place,
                      const fig_partials_segment &segment, int32_t number, int32_t half,
                      int32_t pack, fig_latent_ring_state *state) {
    const fig_latent_leave_abreast vectors = {{number, number}, 1};
    fig_latent_leave_pack results[FIG_LATENT_LEAVE_ABREAST];
    fig_latent_leave_join(of, segment, vectors, pack, half, FIG_LATENT_LEAVE_HALVES, results);
    if (half != 0) {
        state->joined[pack] = results[0].joined;
        state->joined_sums[pack] = make_float2(results[0].sum.greatest, results[0].sum.weights);
    }
    fig_ring_meet(FIG_LATENT_RING_ALL, FIG_LATENT_RING_READERS);
    if (half != 0) return;
    const float2 words = state->joined_sums[pack];
    const fig_partials_sum other = {words.x, words.y};
    fig_latent_leave_scale(&results[0], fmaxf(results[0].sum.greatest, other.greatest));
    fig_latent_leave_add(&results[0], state->joined[pack], other);
    fig_latent_leave_write<DTYPE>(of, place, number, pack, results[0]);
}

/* Merges the vectors of `range`. Each of the two warpgroups takes every second vector. */
template <int32_t DTYPE>
static __device__ __forceinline__ void
fig_latent_leave_vectors(const fig_attention_params &of, const fig_partials_place &place,
                         const fig_partials_segment &segment, fig_partials_range range,
                         int32_t half, int32_t pack, fig_latent_ring_state *state) {
    if (range.end - range.first == 1) {
        fig_latent_leave_lone<DTYPE>(of, place, segment, range.first, half, pack, state);
        return;
    }
#pragma unroll 1
    for (int32_t n = range.first + half; n < range.end;
         n += FIG_LATENT_LEAVE_HALVES * FIG_LATENT_LEAVE_ABREAST) {
        const int32_t next = n + FIG_LATENT_LEAVE_HALVES, has_next = next < range.end;
        const fig_latent_leave_abreast vectors = {{n, has_next ? next : n}, 1 + has_next};
        fig_latent_leave_pack results[FIG_LATENT_LEAVE_ABREAST];
        fig_latent_leave_join(of, segment, vectors, pack, 0, 1, results);
#pragma unroll
        for (int32_t v = 0; v < FIG_LATENT_LEAVE_ABREAST; v++)
            if (v < vectors.count)
                fig_latent_leave_write<DTYPE>(of, place, vectors.number[v], pack, results[v]);
    }
}

/* Counts the block's piece as finished. Returns 1 if it was the last one of its segment. */
static __device__ __forceinline__ int32_t
fig_latent_leave_is_last(const fig_attention_params &of, const fig_latent_ring_merge &merge,
                         fig_latent_ring_state *state) {
    __threadfence();
    fig_ring_meet(FIG_LATENT_RING_ALL, FIG_LATENT_RING_READERS);
    if (threadIdx.x == 0) {
        const uint32_t last = (uint32_t)(merge.last - merge.first);
        uint32_t *counter = &of.counters[fig_split_segment(&of.split, merge.row, merge.group)];
        state->is_last = atomicInc(counter, last) == last;
    }
    fig_ring_meet(FIG_LATENT_RING_ALL, FIG_LATENT_RING_READERS);
    const int32_t is_last = (int32_t)state->is_last;
    __threadfence();
    return is_last;
}

/* Does the block's part of a merge, once its pieces have left their partials. All threads of both
 * warpgroups call this function. */
template <int32_t DTYPE>
static __device__ __forceinline__ void
fig_latent_leave_merge(const fig_attention_params &of, uint32_t flags,
                       const fig_latent_ring_merge &merge, int32_t half, int32_t pack,
                       fig_latent_ring_state *state) {
    if (merge.parts == 0) return;
    if (flags & FIG_ATTENTION_APART && !fig_latent_leave_is_last(of, merge, state)) return;
    const fig_partials_place place = fig_latent_leave_place(of, merge.row, merge.group);
    const fig_partials_segment segment = {merge.partial, merge.first - 1, 1,
                                          merge.last - merge.first + 1, place.vectors};
    const fig_partials_range range = fig_partials_part(place.count, merge.part, merge.parts);
    fig_latent_leave_vectors<DTYPE>(of, place, segment, range, half, pack, state);
    fig_ring_meet(FIG_LATENT_RING_ALL, FIG_LATENT_RING_READERS); /* all have read the sums */
    const int32_t count = range.end - range.first;
#pragma unroll 1
    for (int32_t i = (int32_t)threadIdx.x; i < segment.pieces * count;
         i += FIG_LATENT_RING_READERS) {
        const int64_t vector = (int64_t)fig_partials_of(segment, i / count) * segment.vectors +
                               range.first + i % count;
        fig_partials_store(of.sums + 2 * vector, make_uint2(0, 0));
    }
}

#endif
#endif
