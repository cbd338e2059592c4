/* partials.cuh: what a piece of a cut segment leaves for the block that merges it, and the merge,
 * without fence, atomic or second trip.
 *
 * Every word of a partial is its own flag: it is stored as its bitwise complement, and so a word of
 * zeros is one that has not come yet. Only a NaN with all bits set would read so, and it is stored
 * as the one beside it. The merger reads until all words are there and puts zeros back. Four words
 * come and go at once: of one vector the dimensions that one lane holds in two neighbouring sums of
 * a fragment.
 *
 * Relied on: a block waits for blocks of lower number alone, and those have started before it.
 * Every GPU seen starts them in order, though CUDA does not promise it; so the wait has an end, and
 * a launch that reaches it fails. Where other launches may run beside this one
 * (FIG_ATTENTION_APART) the last to finish a segment merges it, and waits for nobody.
 *
 * Invariant: partials are zeros before and after a launch; pieces are joined in their order, so
 * that the same plan gives the same bits. */
#ifndef FIG_KERNELS_PARTIALS_CUH
#define FIG_KERNELS_PARTIALS_CUH

#include "kernels/form.h"
#include "kernels/kv_ring.cuh"
#include "kernels/pieces.cuh"

enum {
    FIG_PARTIALS_PACK = 4,              /* floats that come and go at once */
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

static __device__ __forceinline__ uint32_t fig_partials_hide(float x) {
    return max(~__float_as_uint(x), 1u);
}

static __device__ __forceinline__ float fig_partials_show(uint32_t word) {
    return __uint_as_float(~word);
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

static __device__ __forceinline__ uint4 fig_partials_hide(float4 x) {
    return make_uint4(fig_partials_hide(x.x), fig_partials_hide(x.y), fig_partials_hide(x.z),
                      fig_partials_hide(x.w));
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

/* The first dimension of a pack, and how far apart its four are: 8 bits' codes of a fragment lie
 * side by side, those of 16 bits 8 apart. */
template <class form>
static __device__ __forceinline__ int32_t fig_partials_dim(int32_t pack, int32_t i) {
    const int32_t tile = 2 * (pack / 8) + i / 2, lane = pack % 8;
    return 16 * tile + (form::VALUE_BYTES == 1 ? 2 * lane + i % 2 : lane + 8 * (i % 2));
}

static __device__ __forceinline__ void fig_partials_write_number(void *out, int32_t dtype,
                                                                 int64_t offset, float x) {
    if (dtype == FIG_BF16) {
        ((__nv_bfloat16 *)out)[offset] = __float2bfloat16_rn(x);
    } else {
        ((__half *)out)[offset] = __float2half_rn(x);
    }
}

/* What becomes of a vector: where it goes, and what joins its sums there. */
typedef struct fig_partials_way {
    int64_t out, lse;
    float sink, scale; /* sink: in base 2, -inf where there is none */
} fig_partials_way;

/* Of lane n's vector, for lanes that have one. */
static __device__ __forceinline__ fig_partials_way
fig_partials_way_of(const fig_attention_params &p, const fig_partials_place &place) {
    const int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP;
    const fig_pieces_vector vector = fig_partials_vector(p, place, min(lane, place.count - 1));
    fig_partials_way way;
    way.out = vector.row * p.out_strides.row + vector.q_head * p.out_strides.head;
    way.lse = vector.row * p.lse_stride + vector.q_head;
    way.sink = p.sinks == NULL ? -INFINITY : p.sinks[vector.q_head] * FIG_NUMERIC_LOG2_E;
    way.scale = place.v_scale;
    return way;
}

static __device__ __forceinline__ fig_partials_way
fig_partials_way_of_lane(const fig_partials_way &way, int32_t n) {
    fig_partials_way other;
    other.out = __shfl_sync(0xffffffffu, way.out, n);
    other.lse = __shfl_sync(0xffffffffu, way.lse, n);
    other.sink = __shfl_sync(0xffffffffu, way.sink, n);
    other.scale = __shfl_sync(0xffffffffu, way.scale, n);
    return other;
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
#pragma unroll
    for (int32_t i = 0; i < FIG_PARTIALS_PACK; i++) {
        const int32_t dim = fig_partials_dim<form>(pack, i);
        if (form::PARTIAL_DIMS == form::HEAD_DIM || dim < form::HEAD_DIM)
            fig_partials_write_number(p.out, dtype, way.out + dim, x[i] * end.scale);
    }
    if (pack == 0 && p.lse != NULL) p.lse[way.lse] = end.lse;
}

/* A piece's pack; the vector's first brings its sum. */
template <class form>
static __device__ __forceinline__ void fig_partials_leave(const fig_attention_params &p, int64_t at,
                                                          int32_t pack, float4 values,
                                                          fig_partials_sum sum) {
    fig_partials_store(p.partials + at * form::PARTIAL_DIMS + pack * FIG_PARTIALS_PACK,
                       fig_partials_hide(values));
    if (pack == 0)
        fig_partials_store(p.sums + 2 * at, make_uint2(fig_partials_hide(sum.greatest),
                                                       fig_partials_hide(sum.weights)));
}

/* ---- Merge */

/* A segment's pieces. */
typedef struct fig_partials_segment {
    int32_t first_partial, next_partial; /* the second piece's is next_partial + 1 */
    int32_t pieces, vectors;             /* vectors: of the group */
} fig_partials_segment;

/* A lane's packs of a merge, and what they have become so far. */
template <int32_t PACKS> struct fig_partials_packs {
    const float *values[PACKS]; /* in partial 0 */
    const float *sums[PACKS];
    float4 joined[PACKS];
    fig_partials_sum sum[PACKS];
};

static __device__ __forceinline__ int32_t fig_partials_of(const fig_partials_segment &segment,
                                                          int32_t piece) {
    return piece == 0 ? segment.first_partial : segment.next_partial + piece;
}

template <int32_t PACKS, int32_t PIECES> struct fig_partials_loaded {
    uint4 values[PIECES][PACKS];
    uint2 sums[PIECES][PACKS];
};

/* PIECES pieces from `first` on, in one round trip: no load is conditional, as a predicate would
 * have the compiler wait between them. Beyond the last piece it comes once more. */
template <class form, int32_t PACKS, int32_t PIECES>
static __device__ __forceinline__ void
fig_partials_await(const fig_attention_params &p, const fig_partials_segment &segment,
                   const fig_partials_packs<PACKS> &packs, int32_t first,
                   fig_partials_loaded<PACKS, PIECES> *loaded) {
    const int64_t vectors = segment.vectors;
    uint32_t least;
    for (int32_t looks = 0;; looks++) {
#pragma unroll
        for (int32_t i = 0; i < PIECES; i++) {
            const int32_t piece = min(first + i, segment.pieces - 1);
            const int64_t vector = fig_partials_of(segment, piece) * vectors;
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

/* Adds those pieces one by one, so that how many come at once changes no bit, nor one that has seen
 * nothing; and puts zeros in their place. */
template <class form, int32_t PACKS, int32_t PIECES>
static __device__ __forceinline__ void
fig_partials_add(const fig_attention_params &p, const fig_partials_segment &segment,
                 const fig_partials_loaded<PACKS, PIECES> &loaded, int32_t first,
                 const int32_t (&is_mine)[PACKS], fig_partials_packs<PACKS> *packs) {
    const int64_t vectors = segment.vectors;
#pragma unroll
    for (int32_t j = 0; j < PACKS; j++) {
        float4 joined = packs->joined[j];
        fig_partials_sum sum = packs->sum[j];
#pragma unroll
        for (int32_t i = 0; i < PIECES; i++) {
            if (first + i >= segment.pieces) break;
            const uint4 words = loaded.values[i][j];
            const float own = fig_partials_show(loaded.sums[i][j].x);
            const float greatest = fmaxf(sum.greatest, own);
            const float shrink = fig_partials_power(sum.greatest - greatest);
            const float weight = fig_partials_power(own - greatest);
            sum.greatest = greatest;
            sum.weights =
                fmaf(fig_partials_show(loaded.sums[i][j].y), weight, sum.weights * shrink);
            joined.x = fmaf(fig_partials_show(words.x), weight, joined.x * shrink);
            joined.y = fmaf(fig_partials_show(words.y), weight, joined.y * shrink);
            joined.z = fmaf(fig_partials_show(words.z), weight, joined.z * shrink);
            joined.w = fmaf(fig_partials_show(words.w), weight, joined.w * shrink);
            const int64_t vector = fig_partials_of(segment, first + i) * vectors;
            if (is_mine[j])
                fig_partials_store((float *)packs->values[j] + vector * form::PARTIAL_DIMS,
                                   make_uint4(0, 0, 0, 0));
        }
        packs->joined[j] = joined;
        packs->sum[j] = sum;
    }
}

template <class form, int32_t PACKS, int32_t PIECES>
static __device__ __forceinline__ void
fig_partials_join(const fig_attention_params &p, const fig_partials_segment &segment,
                  const int32_t (&is_mine)[PACKS], fig_partials_packs<PACKS> *packs) {
    fig_partials_loaded<PACKS, PIECES> loaded;
#pragma unroll 1
    for (int32_t first = 0; first < segment.pieces; first += PIECES) {
        fig_partials_await<form, PACKS, PIECES>(p, segment, *packs, first, &loaded);
        fig_partials_add<form, PACKS, PIECES>(p, segment, loaded, first, is_mine, packs);
    }
}

/* The sums are every share's to read, so they are put back when all have. */
template <class form>
static __device__ __forceinline__ void
fig_partials_clear_sums(const fig_attention_params &p, const fig_partials_place &place,
                        const fig_partials_segment &segment) {
    const int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP;
    if (form::SHARES > 1) {
        fig_ring_meet(place.barrier, form::SHARES * FIG_BLOCK_WARP);
    } else {
        __syncwarp();
    }
    if (place.share != 0) return;
    for (int32_t i = lane; i < segment.pieces * FIG_FORM_VECTORS; i += FIG_BLOCK_WARP) {
        const int32_t n = i % FIG_FORM_VECTORS;
        const int32_t partial = fig_partials_of(segment, i / FIG_FORM_VECTORS);
        if (n < place.count)
            fig_partials_store(p.sums + 2 * (fig_partials_at(place, partial) + n),
                               make_uint2(0, 0));
    }
}

/* All pieces of a segment, for the warp's vectors and its share of their dimensions. */
template <class form>
static __device__ __forceinline__ void fig_partials_merge(const fig_attention_params &p,
                                                          const fig_partials_place &place,
                                                          const fig_partials_segment &segment) {
    const int32_t PACKS = form::MERGE_PACKS, OF_VECTOR = form::PARTIAL_DIMS / FIG_PARTIALS_PACK;
    const int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP;
    const int32_t count = place.count * OF_VECTOR, stride = form::SHARES * FIG_BLOCK_WARP;
#pragma unroll 1
    for (int32_t first = place.share * FIG_BLOCK_WARP; first < count; first += PACKS * stride) {
        fig_partials_packs<PACKS> packs;
        int32_t is_mine[PACKS], pack[PACKS];
#pragma unroll
        for (int32_t j = 0; j < PACKS; j++) {
            const int32_t mine = first + lane + j * stride;
            is_mine[j] = mine < count;
            pack[j] = is_mine[j] ? mine : min(first + lane, count - 1);
            const int64_t at = fig_partials_at(place, 0) + pack[j] / OF_VECTOR;
            packs.values[j] =
                p.partials + at * form::PARTIAL_DIMS + pack[j] % OF_VECTOR * FIG_PARTIALS_PACK;
            packs.sums[j] = p.sums + at * 2;
            packs.joined[j] = make_float4(0, 0, 0, 0);
            packs.sum[j] = {FIG_PARTIALS_NONE, 0};
        }
        if (segment.pieces <= 2) {
            fig_partials_join<form, PACKS, 2>(p, segment, is_mine, &packs);
        } else {
            fig_partials_join<form, PACKS, form::MERGE_PIECES>(p, segment, is_mine, &packs);
        }
        const fig_partials_way ways = fig_partials_way_of(p, place);
#pragma unroll
        for (int32_t j = 0; j < PACKS; j++) {
            const fig_partials_way way = fig_partials_way_of_lane(ways, pack[j] / OF_VECTOR);
            const fig_pieces_end end = fig_partials_end_of(way, packs.sum[j]);
            if (is_mine[j])
                fig_partials_write_out<form>(p, way, pack[j] % OF_VECTOR, packs.joined[j], end);
        }
    }
    fig_partials_clear_sums<form>(p, place, segment);
}

#endif
