/* partials.cuh: passes partials of a cut segment to the blocks that merge it, without a fence, an
 * atomic or a second round trip.
 *
 * Every word of a partial is its own flag: a word that is zero has not arrived yet. A value of +0
 * is therefore stored as -0, which adds the same to a sum that begins at +0. A merging block reads
 * until all words have arrived, and puts zeros back. Words travel in packs of four. A pack has the
 * dimensions of one vector that one lane holds in two neighbouring sums of a fragment.
 *
 * This code relies on the order in which blocks start. A block waits for workers of lower number
 * and, where a merge is shared, for at most FIG_PARTIALS_PARTS - 1 workers of higher number. Every
 * GPU tested starts blocks in the order of their numbers, though CUDA does not promise that order.
 * Therefore only a few blocks wait for blocks that have not started (merges.h), and the missing
 * blocks start as soon as any SM is free. An engine's stream runs one such launch at a time. If so
 * many launches may run side by side that no SM is left free, a run sets one of two flags.
 * FIG_ATTENTION_IN_ORDER makes fewer blocks wait. Under FIG_ATTENTION_APART no block waits: the
 * last block to finish a segment merges the segment. If a wait still lasts seconds, the launch
 * traps before it writes a wrong result, and the driver reports an error.
 *
 * Invariant: partials are zeros before and after a launch. The same plan gives the same bits. Where
 * every tile is a piece, extra pieces that see nothing, before or after the others, change no
 * bit. */
#ifndef FIG_KERNELS_PARTIALS_CUH
#define FIG_KERNELS_PARTIALS_CUH

#include "kernels/attention/geometry.h"
#include "kernels/attention/kv_ring.cuh"
#include "kernels/attention/merges.h"
#include "kernels/attention/pieces.cuh"
#include "kernels/common/machine.cuh"

enum {
    FIG_PARTIALS_PACK = 4, /* floats of a pack, moved at once */
    FIG_PARTIALS_PARTS = FIG_MERGES_PARTS,
    FIG_PARTIALS_TRIP = 4,              /* pieces that one round trip loads */
    FIG_PARTIALS_LOOKS_LIMIT = 1 << 22, /* reads before a trap; they take seconds */
};

/* Stands for the greatest logit of no tokens. It is the lowest finite number. */
#define FIG_PARTIALS_NONE (-3.402823466e38f)

/* Holds a vector's sum of weights, relative to its greatest logit. */
typedef struct fig_partials_sum {
    float greatest, weights;
} fig_partials_sum;

/* Names the vectors of a group that one warp has: `count` vectors, beginning with `first`. */
typedef struct fig_partials_place {
    int32_t row, group;
    int32_t base;         /* first row of q and out that belongs to this row of the plan */
    int32_t kv_head;      /* number in the cache */
    int32_t ratio;        /* q heads of a kv head */
    int32_t first, count; /* range among the kv head's vectors [query][q head] */
    int32_t index;        /* index of the first vector among the group's */
    int32_t vectors;      /* number of vectors in a group */
    float v_scale;
#ifdef FIG_PIECES_SCORED
    int32_t kv_length; /* tokens of the row */
#endif
#ifdef FIG_PIECES_TAILS
    fig_plan_tail tail; /* of the row */
#endif
} fig_partials_place;

/* ---- Words */

static __device__ __forceinline__ uint32_t fig_partials_word(float x) {
    const uint32_t word = __float_as_uint(x);
    return word == 0 ? 0x80000000u : word;
}

static __device__ __forceinline__ uint4 fig_partials_words(float4 x) {
    return make_uint4(fig_partials_word(x.x), fig_partials_word(x.y), fig_partials_word(x.z),
                      fig_partials_word(x.w));
}

/* ---- Places */

static __device__ __forceinline__ fig_pieces_vector
fig_partials_vector(const fig_partials_place &place, int32_t n) {
    const int32_t of_head = place.first + n;
    const int32_t query = fig_geometry_divide(of_head, place.ratio);
    fig_pieces_vector vector = {(int64_t)place.base + query,
                                place.kv_head * place.ratio + of_head - query * place.ratio};
    return vector;
}

/* Returns the index of the place's first vector in a partial. */
static __device__ __forceinline__ int64_t fig_partials_at(const fig_partials_place &place,
                                                          int32_t partial) {
    return (int64_t)partial * place.vectors + place.index;
}

/* Returns the first dimension of a pack. The next function returns the distance from it to the
 * pack's dimension i. A fragment of 8-bit codes holds neighbouring dimensions; a fragment of 16-bit
 * values holds dimensions 8 apart. */
template <class form> static __device__ __forceinline__ int32_t fig_partials_dim(int32_t pack) {
    const int32_t lane = pack % 8;
    return pack / 8 * 32 + (form::VALUE_BYTES == 1 ? 2 * lane : lane);
}

template <class form> static __device__ constexpr int32_t fig_partials_apart(int32_t i) {
    return i / 2 * 16 + (form::VALUE_BYTES == 1 ? 1 : 8) * (i % 2);
}

static __device__ __forceinline__ void fig_partials_write_number(uint16_t *to, int32_t dtype,
                                                                 float x) {
    if (dtype == FIG_BF16) {
        *(__nv_bfloat16 *)to = __float2bfloat16_rn(x);
    } else {
        *(__half *)to = __float2half_rn(x);
    }
}

/* Holds the destination of a vector, and the factors that apply to its result. */
typedef struct fig_partials_way {
    int64_t out, lse;
    float sink, scale; /* sink: in base 2; -inf if there is none */
#ifdef FIG_PIECES_SCORED
    uint32_t weights; /* fig_score_weights */
#endif
} fig_partials_way;

/* Returns the way of vector n of the place. */
static __device__ __forceinline__ fig_partials_way
fig_partials_way_of(const fig_attention_params &p, const fig_partials_place &place, int32_t n) {
    const fig_pieces_vector vector = fig_partials_vector(place, n);
    fig_partials_way way;
    way.out = vector.row * p.out_strides.row + vector.q_head * p.out_strides.head;
    way.lse = vector.row * p.lse_stride + vector.q_head;
    way.sink = p.sinks == NULL ? -INFINITY : p.sinks[vector.q_head] * FIG_NUMERIC_LOG2_E;
    way.scale = place.v_scale;
#ifdef FIG_PIECES_SCORED
    way.weights = fig_pieces_scored(p).score.weights;
#endif
    return way;
}

/* Returns the final factors of a vector, with its sink and the scale of V: out = values * scale. */
static __device__ __forceinline__ fig_pieces_end fig_partials_end_of(const fig_partials_way &way,
                                                                     fig_partials_sum sum) {
    const float greatest = fmaxf(sum.greatest, way.sink);
    const float shrink = fig_machine_exp2(sum.greatest - greatest);
    const float weights = sum.weights * shrink + fig_machine_exp2(way.sink - greatest);
    const float log2 = fig_machine_log2(weights);
    fig_pieces_end end = {weights == 0 ? 0 : __fdividef(way.scale * shrink, weights),
                          greatest + log2};
#ifdef FIG_PIECES_SCORED
    if (way.weights != FIG_SCORE_SOFTMAX) end.scale = way.scale * exp2f(sum.greatest);
#endif
    return end;
}

/* Writes a vector's pack to out; the first pack also writes the LSE. */
template <class form>
static __device__ __forceinline__ void
fig_partials_write_out(const fig_attention_params &p, const fig_partials_way &way, int32_t pack,
                       float4 values, fig_pieces_end end) {
    const float x[] = {values.x, values.y, values.z, values.w};
    const int32_t dtype = form::VALUE_BYTES == 1 ? p.dtype : form::KV_DTYPE;
    const int32_t first = fig_partials_dim<form>(pack);
    uint16_t *to = (uint16_t *)p.out + way.out + first;
#pragma unroll
    for (int32_t i = 0; i < FIG_PARTIALS_PACK; i++) {
        const int32_t apart = fig_partials_apart<form>(i);
        if (form::PARTIAL_DIMS == form::HEAD_DIM || first + apart < form::HEAD_DIM)
            fig_partials_write_number(to + apart, dtype, x[i] * end.scale);
    }
    if (pack == 0 && p.lse != NULL) p.lse[way.lse] = end.lse;
}

/* Writes a vector's pack to a partial; the first pack also writes the sum. */
template <class form>
static __device__ __forceinline__ void fig_partials_leave(const fig_attention_params &p, int64_t at,
                                                          int32_t pack, float4 values,
                                                          fig_partials_sum sum) {
    fig_machine_store(p.partials + at * form::PARTIAL_DIMS + pack * FIG_PARTIALS_PACK,
                      fig_partials_words(values));
    if (pack == 0)
        fig_machine_store(p.sums + 2 * at, make_uint2(fig_partials_word(sum.greatest),
                                                      fig_partials_word(sum.weights)));
}

/* ---- Merge */

/* Names the pieces of a segment: all of them, or every step-th piece. Piece 0 is in first_partial,
 * piece n > 0 in next_partial + n * step. */
typedef struct fig_partials_segment {
    int32_t first_partial, next_partial, step;
    int32_t pieces, vectors; /* vectors: number of vectors in the group */
} fig_partials_segment;

static __device__ __forceinline__ int32_t fig_partials_of(const fig_partials_segment &segment,
                                                          int32_t piece) {
    return piece == 0 ? segment.first_partial : segment.next_partial + piece * segment.step;
}

/* Returns the segment of a merge note. */
static __device__ __forceinline__ fig_partials_segment
fig_partials_segment_of(const fig_attention_params &p, const fig_ring_note &note, int32_t vectors) {
    fig_partials_segment segment;
    segment.first_partial = note.partial;
    segment.next_partial = p.split.fixed ? note.first : note.first - 1;
    segment.step = 1;
    segment.pieces = note.end - note.first + 1;
    segment.vectors = vectors;
    return segment;
}

/* Returns every step-th piece of the segment, starting with piece `from`. `from` is below
 * `step`. */
static __device__ __forceinline__ fig_partials_segment
fig_partials_every(const fig_partials_segment &segment, int32_t from, int32_t step) {
    fig_partials_segment every = segment;
    every.first_partial = fig_partials_of(segment, from);
    every.next_partial = segment.next_partial + from * segment.step;
    every.step = segment.step * step;
    every.pieces = fig_geometry_divide(segment.pieces - from + step - 1, step);
    return every;
}

/* Names the vectors of a place that belong to one part of a merge. */
typedef struct fig_partials_range {
    int32_t first, end;
} fig_partials_range;

static __device__ __forceinline__ fig_partials_range fig_partials_part(int32_t vectors,
                                                                       int32_t part,
                                                                       int32_t parts) {
    const int32_t of_part = fig_geometry_divide(vectors + parts - 1, parts);
    const fig_partials_range range = {fig_size_min(part * of_part, vectors),
                                      fig_size_min(part * of_part + of_part, vectors)};
    return range;
}

/* Holds a lane's pack of a vector, and the pack's result so far. No other warp reads the vector's
 * sums. clears_sums: this warp does not read them again either, so it may clear them. */
typedef struct fig_partials_pack {
    float *values, *sums; /* addresses in partial 0 */
    int32_t clears_sums;
    float4 joined;
    fig_partials_sum sum;
} fig_partials_pack;

template <class form>
static __device__ __forceinline__ fig_partials_pack fig_partials_pack_of(
    const fig_attention_params &p, const fig_partials_place &place, int32_t n, int32_t pack) {
    const int32_t OF_VECTOR = form::PARTIAL_DIMS / FIG_PARTIALS_PACK, vector = place.index + n;
    fig_partials_pack of;
    of.values = p.partials + (int64_t)vector * form::PARTIAL_DIMS +
                fig_size_min(pack, OF_VECTOR - 1) * FIG_PARTIALS_PACK;
    of.sums = p.sums + vector * 2;
    of.clears_sums = pack / FIG_BLOCK_WARP == (OF_VECTOR - 1) / FIG_BLOCK_WARP;
    of.joined = make_float4(0, 0, 0, 0);
    of.sum = {FIG_PARTIALS_NONE, 0};
    return of;
}

typedef struct fig_partials_loaded {
    uint4 values[FIG_PARTIALS_TRIP];
    uint2 sums[FIG_PARTIALS_TRIP];
} fig_partials_loaded;

/* Loads the pieces of one trip, beginning with piece `first`. No load is conditional, because the
 * compiler would make predicated loads wait for each other. A position past the last piece loads
 * the last piece again. */
template <class form>
static __device__ __forceinline__ void
fig_partials_load(const fig_partials_segment &segment, const fig_partials_pack &pack, int32_t first,
                  fig_partials_loaded *loaded) {
#pragma unroll
    for (int32_t i = 0; i < FIG_PARTIALS_TRIP; i++) {
        const int32_t piece = min(first + i, segment.pieces - 1);
        const int32_t partial = i == 0 ? fig_partials_of(segment, piece)
                                       : segment.next_partial + piece * segment.step;
        const int64_t vector = (int64_t)partial * segment.vectors;
        fig_machine_load(&loaded->values[i], pack.values + vector * form::PARTIAL_DIMS);
        fig_machine_load(&loaded->sums[i], pack.sums + vector * 2);
    }
}

/* Returns the least of the words of a trip, or `least` if that is less. It is 0 if a word has not
 * arrived. */
static __device__ __forceinline__ uint32_t fig_partials_least(const fig_partials_loaded &loaded,
                                                              uint32_t least) {
#pragma unroll
    for (int32_t i = 0; i < FIG_PARTIALS_TRIP; i++) {
        const uint4 words = loaded.values[i];
        const uint2 sums = loaded.sums[i];
        least = min(least, min(min(words.x, words.y), min(words.z, words.w)));
        least = min(least, min(sums.x, sums.y));
    }
    return least;
}

/* Loads the pieces of one trip, and waits until they have arrived. */
template <class form>
static __device__ __forceinline__ void
fig_partials_await(const fig_partials_segment &segment, const fig_partials_pack &pack,
                   int32_t first, fig_partials_loaded *loaded) {
#pragma unroll 1
    for (int32_t looks = 0;; looks++) {
        fig_partials_load<form>(segment, pack, first, loaded);
        if (!__any_sync(0xffffffffu, fig_partials_least(*loaded, ~0u) == 0)) return;
        if (looks == FIG_PARTIALS_LOOKS_LIMIT) __trap();
    }
}

/* Adds the pieces in their order and puts zeros in their place. A sum is rescaled only if its
 * greatest logit changes. */
template <class form>
static __device__ __forceinline__ void fig_partials_add(const fig_partials_segment &segment,
                                                        const fig_partials_loaded &loaded,
                                                        int32_t first, fig_partials_pack *pack) {
    float4 joined = pack->joined;
    fig_partials_sum sum = pack->sum;
    float greatest = sum.greatest;
#pragma unroll
    for (int32_t i = 0; i < FIG_PARTIALS_TRIP; i++)
        greatest = fmaxf(greatest, __uint_as_float(loaded.sums[i].x));
    const float shrink = fig_machine_exp2(sum.greatest - greatest);
    sum.greatest = greatest;
    sum.weights *= shrink;
    joined.x *= shrink;
    joined.y *= shrink;
    joined.z *= shrink;
    joined.w *= shrink;
#pragma unroll
    for (int32_t i = 0; i < FIG_PARTIALS_TRIP; i++) {
        if (first + i >= segment.pieces) break;
        const uint4 words = loaded.values[i];
        const uint2 own = loaded.sums[i];
        const float weight = fig_machine_exp2(__uint_as_float(own.x) - greatest);
        sum.weights = fmaf(__uint_as_float(own.y), weight, sum.weights);
        joined.x = fmaf(__uint_as_float(words.x), weight, joined.x);
        joined.y = fmaf(__uint_as_float(words.y), weight, joined.y);
        joined.z = fmaf(__uint_as_float(words.z), weight, joined.z);
        joined.w = fmaf(__uint_as_float(words.w), weight, joined.w);
        const int64_t vector = (int64_t)fig_partials_of(segment, first + i) * segment.vectors;
        fig_machine_store(pack->values + vector * form::PARTIAL_DIMS, make_uint4(0, 0, 0, 0));
        if (pack->clears_sums) fig_machine_store(pack->sums + vector * 2, make_uint2(0, 0));
    }
    pack->joined = joined;
    pack->sum = sum;
}

/* Finds the greatest logit of all pieces. For this it waits until every piece has arrived. */
static __device__ __forceinline__ void
fig_partials_find_greatest(const fig_partials_segment &segment, fig_partials_pack *pack) {
#pragma unroll 1
    for (int32_t piece = 0; piece < segment.pieces; piece++) {
        const int64_t vector = (int64_t)fig_partials_of(segment, piece) * segment.vectors;
        uint2 words;
        int32_t looks = 0;
        do {
            if (looks++ == FIG_PARTIALS_LOOKS_LIMIT) __trap();
            fig_machine_load(&words, pack->sums + vector * 2);
        } while (words.x == 0);
        pack->sum.greatest = fmaxf(pack->sum.greatest, __uint_as_float(words.x));
    }
    __syncwarp();
}

/* Merges all pieces of the segment. If every tile is a piece and there are more pieces than one
 * trip loads, it finds the greatest logit first. Then the output bits do not depend on the grouping
 * of pieces into trips. */
template <class form>
static __device__ __forceinline__ void fig_partials_join(const fig_attention_params &p,
                                                         const fig_partials_segment &segment,
                                                         fig_partials_pack *pack) {
    fig_partials_loaded loaded;
    if (p.split.fixed && segment.pieces > FIG_PARTIALS_TRIP)
        fig_partials_find_greatest(segment, pack);
#pragma unroll 1
    for (int32_t first = 0; first < segment.pieces; first += FIG_PARTIALS_TRIP) {
        fig_partials_await<form>(segment, *pack, first, &loaded);
        fig_partials_add<form>(segment, loaded, first, pack);
    }
}

#endif
