/* partials.cuh: what a piece of a cut segment leaves for the blocks that merge it, and the way back
 * from there, without fence, atomic or second trip.
 *
 * Every word of a partial is its own flag: a word of zeros is one that has not come yet, so +0 is
 * left as -0, which adds the same to a sum that begins at +0. Whoever merges reads until all words
 * are there and puts zeros back. Four words come and go at once: of one vector the dimensions that
 * one lane holds in two neighbouring sums of a fragment.
 *
 * Relied on: a block waits for blocks of lower number and, where a merge is shared, for at most
 * FIG_PARTIALS_PARTS - 1 of higher number. Those of lower number have started before it: every GPU
 * seen starts blocks in order, though CUDA does not promise it; and as many of higher number start
 * as soon as any SM is free. So the wait has an end, and a launch that reaches it fails. Where
 * other launches may run beside this one (FIG_ATTENTION_APART) the last to finish a segment merges
 * it, and waits for nobody.
 *
 * Invariant: partials are zeros before and after a launch; the same plan gives the same bits; and
 * where every tile is a piece, pieces that see nothing, before or behind, change none. */
#ifndef FIG_KERNELS_PARTIALS_CUH
#define FIG_KERNELS_PARTIALS_CUH

#include "kernels/form.h"
#include "kernels/kv_ring.cuh"
#include "kernels/pieces.cuh"

enum {
    FIG_PARTIALS_PACK = 4,              /* floats that come and go at once */
    FIG_PARTIALS_PARTS = 4,             /* blocks that share a merge */
    FIG_PARTIALS_LOOKS_LIMIT = 1 << 22, /* seconds */
};

/* The greatest logit that nobody has seen: no number is below it. */
#define FIG_PARTIALS_NONE (-3.402823466e38f)

/* A vector's sum of weights, relative to its greatest logit. */
typedef struct fig_partials_sum {
    float greatest, weights;
} fig_partials_sum;

/* What one warp has of a group's vectors: `count` from `first` on, and of their dimensions the
 * share'th part of every shares. Lane n knows what becomes of vector n. */
typedef struct fig_partials_place {
    int32_t row, group;
    int32_t kv_head;      /* of the cache */
    int32_t ratio;        /* q heads of a kv head */
    int32_t first, count; /* vectors [query][q head] of the kv head */
    int32_t index;        /* of the first, among the group's vectors */
    int32_t vectors;      /* of a group */
    int32_t share, barrier;
    float v_scale;
} fig_partials_place;

static __device__ __forceinline__ float fig_partials_power(float x) {
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
}

/* ---- Words */

static __device__ __forceinline__ uint32_t fig_partials_word(float x) {
    const uint32_t word = __float_as_uint(x);
    return word == 0 ? 0x80000000u : word;
}

static __device__ __forceinline__ void fig_partials_store(float *to, uint4 words) {
    asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(words.x),
                 "r"(words.y), "r"(words.z), "r"(words.w)
                 : "memory");
}

static __device__ __forceinline__ void fig_partials_store(float *to, uint2 words) {
    asm volatile("st.relaxed.gpu.global.v2.u32 [%0], {%1, %2};" ::"l"(to), "r"(words.x),
                 "r"(words.y)
                 : "memory");
}

static __device__ __forceinline__ void fig_partials_load(uint2 *words, const float *from) {
    asm volatile("ld.relaxed.gpu.global.v2.u32 {%0, %1}, [%2];"
                 : "=r"(words->x), "=r"(words->y)
                 : "l"(from)
                 : "memory");
}

static __device__ __forceinline__ void fig_partials_load(uint4 *words, const float *from) {
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words->x), "=r"(words->y), "=r"(words->z), "=r"(words->w)
                 : "l"(from)
                 : "memory");
}

static __device__ __forceinline__ uint4 fig_partials_words(float4 x) {
    return make_uint4(fig_partials_word(x.x), fig_partials_word(x.y), fig_partials_word(x.z),
                      fig_partials_word(x.w));
}

/* ---- Places */

static __device__ __forceinline__ fig_pieces_vector
fig_partials_vector(const fig_attention_params &p, const fig_partials_place &place, int32_t n) {
    const int32_t of_head = place.first + n;
    const int32_t query = fig_form_divide(of_head, place.ratio);
    fig_pieces_vector vector = {(int64_t)place.row * p.split.row_tokens + query,
                                place.kv_head * place.ratio + of_head - query * place.ratio};
    return vector;
}

/* Of the place's first vector, in a partial. */
static __device__ __forceinline__ int64_t fig_partials_at(const fig_partials_place &place,
                                                          int32_t partial) {
    return (int64_t)partial * place.vectors + place.index;
}

/* The first dimension of a pack, and how far from it its i-th is: 8 bits' codes of a fragment lie
 * side by side, those of 16 bits 8 apart. */
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

/* What becomes of a vector: where it goes, and what joins its sums there. */
typedef struct fig_partials_way {
    int64_t out, lse;
    float sink, scale; /* sink: in base 2, -inf where there is none */
} fig_partials_way;

/* Of the place's vector n. */
static __device__ __forceinline__ fig_partials_way
fig_partials_way_of(const fig_attention_params &p, const fig_partials_place &place, int32_t n) {
    const fig_pieces_vector vector = fig_partials_vector(p, place, n);
    fig_partials_way way;
    way.out = vector.row * p.out_strides.row + vector.q_head * p.out_strides.head;
    way.lse = vector.row * p.lse_stride + vector.q_head;
    way.sink = p.sinks == NULL ? -INFINITY : p.sinks[vector.q_head] * FIG_NUMERIC_LOG2_E;
    way.scale = place.v_scale;
    return way;
}

/* Joins the sink and V's scale, once: out = values * scale. */
static __device__ __forceinline__ fig_pieces_end fig_partials_end_of(const fig_partials_way &way,
                                                                     fig_partials_sum sum) {
    const float greatest = fmaxf(sum.greatest, way.sink);
    const float shrink = fig_partials_power(sum.greatest - greatest);
    const float weights = sum.weights * shrink + fig_partials_power(way.sink - greatest);
    float log2;
    asm("lg2.approx.f32 %0, %1;" : "=f"(log2) : "f"(weights));
    fig_pieces_end end = {weights == 0 ? 0 : __fdividef(way.scale * shrink, weights),
                          greatest + log2};
    return end;
}

/* A vector's pack; its first brings the LSE. */
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

/* A piece's pack; the vector's first brings its sum. */
template <class form>
static __device__ __forceinline__ void fig_partials_leave(const fig_attention_params &p, int64_t at,
                                                          int32_t pack, float4 values,
                                                          fig_partials_sum sum) {
    fig_partials_store(p.partials + at * form::PARTIAL_DIMS + pack * FIG_PARTIALS_PACK,
                       fig_partials_words(values));
    if (pack == 0)
        fig_partials_store(p.sums + 2 * at, make_uint2(fig_partials_word(sum.greatest),
                                                       fig_partials_word(sum.weights)));
}

/* ---- Merge */

/* Pieces of a segment, or every so many of them: the n-th goes to first_partial where n is 0, else
 * to next_partial + n * step. */
typedef struct fig_partials_segment {
    int32_t first_partial, next_partial, step;
    int32_t pieces, vectors; /* vectors: of the group */
} fig_partials_segment;

static __device__ __forceinline__ int32_t fig_partials_of(const fig_partials_segment &segment,
                                                          int32_t piece) {
    return piece == 0 ? segment.first_partial : segment.next_partial + piece * segment.step;
}

/* Of a note to merge. */
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

/* Of the segment every step-th piece, from one of the first so many on. */
static __device__ __forceinline__ fig_partials_segment
fig_partials_every(const fig_partials_segment &segment, int32_t from, int32_t step) {
    fig_partials_segment every = segment;
    every.first_partial = fig_partials_of(segment, from);
    every.next_partial = segment.next_partial + from * segment.step;
    every.step = segment.step * step;
    every.pieces = (segment.pieces - from + step - 1) / step;
    return every;
}

/* Of a place's packs those that one part of a merge has, in whole vectors, as sums are. */
typedef struct fig_partials_range {
    int32_t first, end;
} fig_partials_range;

template <class form>
static __device__ __forceinline__ fig_partials_range fig_partials_part(int32_t vectors,
                                                                       int32_t part,
                                                                       int32_t parts) {
    const int32_t OF_VECTOR = form::PARTIAL_DIMS / FIG_PARTIALS_PACK;
    const int32_t of_part = fig_form_divide(vectors + parts - 1, parts);
    const fig_partials_range range = {fig_size_min(part * of_part, vectors) * OF_VECTOR,
                                      fig_size_min(part * of_part + of_part, vectors) * OF_VECTOR};
    return range;
}

/* A lane's packs of a merge, and what they have become so far. */
template <int32_t PACKS> struct fig_partials_packs {
    const float *values[PACKS]; /* in partial 0 */
    const float *sums[PACKS];
    int32_t is_mine[PACKS];    /* no other lane has it */
    int32_t clears_sum[PACKS]; /* by this lane, once it has been read: no other warp reads it */
    float4 joined[PACKS];
    fig_partials_sum sum[PACKS];
};

/* A lane's packs, of those of a place's vectors that begin at `first`; its next are `stride`
 * further. Behind the last it has the last again. is_alone: no other warp reads these pieces. */
template <class form, int32_t PACKS>
static __device__ __forceinline__ void
fig_partials_begin(const fig_attention_params &p, const fig_partials_place &place, int32_t first,
                   int32_t stride, int32_t end, int32_t is_alone,
                   fig_partials_packs<PACKS> *packs) {
    const int32_t OF_VECTOR = form::PARTIAL_DIMS / FIG_PARTIALS_PACK;
    const int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP;
#pragma unroll
    for (int32_t j = 0; j < PACKS; j++) {
        const int32_t mine = first + lane + j * stride, pack = min(mine, end - 1);
        packs->values[j] =
            p.partials + (int64_t)place.index * form::PARTIAL_DIMS + pack * FIG_PARTIALS_PACK;
        packs->sums[j] = p.sums + (place.index + pack / OF_VECTOR) * 2;
        packs->is_mine[j] = mine < end;
        packs->clears_sum[j] = is_alone && mine < end && pack % OF_VECTOR == 0;
        packs->joined[j] = make_float4(0, 0, 0, 0);
        packs->sum[j] = {FIG_PARTIALS_NONE, 0};
    }
}

template <int32_t PACKS, int32_t PIECES> struct fig_partials_loaded {
    uint4 values[PIECES][PACKS];
    uint2 sums[PIECES][PACKS];
};

/* PIECES pieces from `first` on, in one round trip: no load is conditional, as a predicate would
 * have the compiler wait between them. Beyond the last piece it comes once more. */
template <class form, int32_t PACKS, int32_t PIECES>
static __device__ __forceinline__ void
fig_partials_await(const fig_partials_segment &segment, const fig_partials_packs<PACKS> &packs,
                   int32_t first, fig_partials_loaded<PACKS, PIECES> *loaded) {
    uint32_t least;
    for (int32_t looks = 0;; looks++) {
#pragma unroll
        for (int32_t i = 0; i < PIECES; i++) {
            const int32_t piece = min(first + i, segment.pieces - 1);
            const int32_t partial = i == 0 ? fig_partials_of(segment, piece)
                                           : segment.next_partial + piece * segment.step;
            const int64_t vector = (int64_t)partial * segment.vectors;
#pragma unroll
            for (int32_t j = 0; j < PACKS; j++) {
                fig_partials_load(&loaded->values[i][j],
                                  packs.values[j] + vector * form::PARTIAL_DIMS);
                fig_partials_load(&loaded->sums[i][j], packs.sums[j] + vector * 2);
            }
        }
        least = ~0u;
#pragma unroll
        for (int32_t i = 0; i < PIECES; i++) {
#pragma unroll
            for (int32_t j = 0; j < PACKS; j++) {
                const uint4 words = loaded->values[i][j];
                const uint2 sums = loaded->sums[i][j];
                least = min(least, min(min(words.x, words.y), min(words.z, words.w)));
                least = min(least, min(sums.x, sums.y));
            }
        }
        if (!__any_sync(0xffffffffu, least == 0)) return;
        if (looks == FIG_PARTIALS_LOOKS_LIMIT) __trap();
    }
}

/* Adds them in their order and puts zeros in their place; nothing shrinks whose greatest logit was
 * the greatest already. */
template <class form, int32_t PACKS, int32_t PIECES>
static __device__ __forceinline__ void
fig_partials_add(const fig_partials_segment &segment,
                 const fig_partials_loaded<PACKS, PIECES> &loaded, int32_t first,
                 fig_partials_packs<PACKS> *packs) {
#pragma unroll
    for (int32_t j = 0; j < PACKS; j++) {
        float4 joined = packs->joined[j];
        fig_partials_sum sum = packs->sum[j];
        float greatest = sum.greatest;
#pragma unroll
        for (int32_t i = 0; i < PIECES; i++)
            greatest = fmaxf(greatest, __uint_as_float(loaded.sums[i][j].x));
        const float shrink = fig_partials_power(sum.greatest - greatest);
        sum.greatest = greatest;
        sum.weights *= shrink;
        joined.x *= shrink;
        joined.y *= shrink;
        joined.z *= shrink;
        joined.w *= shrink;
#pragma unroll
        for (int32_t i = 0; i < PIECES; i++) {
            if (first + i >= segment.pieces) break;
            const uint4 words = loaded.values[i][j];
            const uint2 own = loaded.sums[i][j];
            const float weight = fig_partials_power(__uint_as_float(own.x) - greatest);
            sum.weights = fmaf(__uint_as_float(own.y), weight, sum.weights);
            joined.x = fmaf(__uint_as_float(words.x), weight, joined.x);
            joined.y = fmaf(__uint_as_float(words.y), weight, joined.y);
            joined.z = fmaf(__uint_as_float(words.z), weight, joined.z);
            joined.w = fmaf(__uint_as_float(words.w), weight, joined.w);
            const int64_t vector = (int64_t)fig_partials_of(segment, first + i) * segment.vectors;
            if (packs->is_mine[j])
                fig_partials_store((float *)packs->values[j] + vector * form::PARTIAL_DIMS,
                                   make_uint4(0, 0, 0, 0));
            if (packs->clears_sum[j])
                fig_partials_store((float *)packs->sums[j] + vector * 2, make_uint2(0, 0));
        }
        packs->joined[j] = joined;
        packs->sum[j] = sum;
    }
}

/* The greatest logit of all pieces, of packs of the lane; waits until each has come. */
template <int32_t PACKS>
static __device__ __forceinline__ void
fig_partials_find_greatest(const fig_partials_segment &segment, fig_partials_packs<PACKS> *packs) {
#pragma unroll 1
    for (int32_t piece = 0; piece < segment.pieces; piece++) {
        const int64_t vector = (int64_t)fig_partials_of(segment, piece) * segment.vectors;
#pragma unroll
        for (int32_t j = 0; j < PACKS; j++) {
            uint2 words;
            int32_t looks = 0;
            do
                fig_partials_load(&words, packs->sums[j] + vector * 2);
            while (words.x == 0 && ++looks < FIG_PARTIALS_LOOKS_LIMIT);
            packs->sum[j].greatest = fmaxf(packs->sum[j].greatest, __uint_as_float(words.x));
        }
    }
    __syncwarp();
}

/* All pieces of the segment, for the lane's packs. Where more come than one trip brings and each
 * tile is a piece, their greatest logit is found first, so that which come together decides no
 * bit. */
template <class form, int32_t PACKS, int32_t PIECES>
static __device__ __forceinline__ void fig_partials_join(const fig_attention_params &p,
                                                         const fig_partials_segment &segment,
                                                         fig_partials_packs<PACKS> *packs) {
    fig_partials_loaded<PACKS, PIECES> loaded;
    if (p.split.fixed && segment.pieces > PIECES) fig_partials_find_greatest(segment, packs);
#pragma unroll 1
    for (int32_t first = 0; first < segment.pieces; first += PIECES) {
        fig_partials_await<form, PACKS, PIECES>(segment, *packs, first, &loaded);
        fig_partials_add<form, PACKS, PIECES>(segment, loaded, first, packs);
    }
}

/* The sums are every share's to read, so they are put back when all have. */
template <class form>
static __device__ __forceinline__ void
fig_partials_clear_sums(const fig_attention_params &p, const fig_partials_place &place,
                        const fig_partials_segment &segment, const fig_partials_range &range) {
    const int32_t OF_VECTOR = form::PARTIAL_DIMS / FIG_PARTIALS_PACK;
    const int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP;
    const int32_t first = range.first / OF_VECTOR, end = range.end / OF_VECTOR;
    if (form::SHARES > 1) {
        fig_ring_meet(place.barrier, form::SHARES * FIG_BLOCK_WARP);
    } else {
        __syncwarp();
    }
    if (place.share != 0) return;
#pragma unroll 1
    for (int32_t i = lane; i < segment.pieces * FIG_FORM_VECTORS; i += FIG_BLOCK_WARP) {
        const int32_t n = i % FIG_FORM_VECTORS;
        const int32_t partial = fig_partials_of(segment, i / FIG_FORM_VECTORS);
        if (n >= first && n < end)
            fig_partials_store(p.sums + 2 * (fig_partials_at(place, partial) + n),
                               make_uint2(0, 0));
    }
}

/* All pieces of a segment, for packs of the warp's vectors and its share of these. */
template <class form>
static __device__ __forceinline__ void
fig_partials_merge(const fig_attention_params &p, const fig_partials_place &place,
                   const fig_partials_segment &segment, const fig_partials_range &range) {
    const int32_t PACKS = form::MERGE_PACKS, OF_VECTOR = form::PARTIAL_DIMS / FIG_PARTIALS_PACK;
    const int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP;
    const int32_t stride = form::SHARES * FIG_BLOCK_WARP;
#pragma unroll 1
    for (int32_t first = range.first + place.share * FIG_BLOCK_WARP; first < range.end;
         first += PACKS * stride) {
        fig_partials_packs<PACKS> packs;
        fig_partials_way way;
        fig_partials_begin<form, PACKS>(p, place, first, stride, range.end, 0, &packs);
        if (PACKS == 1)
            way = fig_partials_way_of(p, place, min(first + lane, range.end - 1) / OF_VECTOR);
        if (segment.pieces <= 2) {
            fig_partials_join<form, PACKS, 2>(p, segment, &packs);
        } else {
            fig_partials_join<form, PACKS, form::MERGE_PIECES>(p, segment, &packs);
        }
#pragma unroll
        for (int32_t j = 0; j < PACKS; j++) {
            const int32_t pack = first + lane + j * stride;
            if (pack >= range.end) continue;
            if (PACKS > 1) way = fig_partials_way_of(p, place, pack / OF_VECTOR);
            const fig_pieces_end end = fig_partials_end_of(way, packs.sum[j]);
            fig_partials_write_out<form>(p, way, pack % OF_VECTOR, packs.joined[j], end);
        }
    }
    fig_partials_clear_sums<form>(p, place, segment, range);
}

#endif
