/* append_kv.cu: k and v of a query token, all heads, to where it stands in its row's sequence.
 *
 * cache[page][token][head] = k[row][head], bit for bit where the dtypes are one; else k has 16
 * bits, the cache 8, and k / scale is converted, saturating. One block per query token. Where
 * addresses, strides and head_dim allow, 16 bytes of k and of v at a time, else an element.
 * Invariant: nothing outside the cache is written, whatever the page table says. */
#include "kernels/block.cuh"
#include "kernels/cache.h"
#include "kernels/numeric.h"
#include "kernels/vector.cuh"

enum { THREADS = 128 };

/* One of k and v. */
typedef struct kv_side {
    const void *in;
    void *cache;
    const float *scale; /* [scales] */
    fig_row_strides in_strides;
    fig_cache_strides cache_strides;
    int64_t pages;
    int32_t scales;
} kv_side;

/* One query token. */
typedef struct token_place {
    fig_cache_sequence sequence;
    int64_t row;         /* of k and v */
    int32_t token, page; /* of the sequence; as its table has it */
} token_place;

/* Heads of a query token on one side; head strides are in bytes. */
typedef struct token_heads {
    const uint8_t *from;
    uint8_t *to; /* NULL: in no page of the cache */
    int64_t from_stride, to_stride;
    const float *scale;
    int32_t scales;
} token_heads;

/* Bytes of an element of k and v, and of the cache. */
static __device__ __forceinline__ int32_t unit_of(const fig_append_kv_params *p) {
    return p->dtype == FIG_F32 ? 4 : 2;
}
static __device__ __forceinline__ int32_t kv_unit_of(const fig_append_kv_params *p) {
    return p->dtype == p->kv_dtype ? unit_of(p) : 1;
}

static __device__ __forceinline__ token_heads heads_of(const fig_append_kv_params *p,
                                                       const kv_side *x, const token_place *place) {
    const int64_t unit = unit_of(p), kv_unit = kv_unit_of(p);
    const int64_t at =
        fig_cache_offset(&x->cache_strides, &place->sequence, place->page, place->token);
    const int32_t is_there = place->page >= 0 && place->page < x->pages;
    token_heads heads;
    heads.from = (const uint8_t *)x->in + place->row * x->in_strides.row * unit;
    heads.to = is_there ? (uint8_t *)x->cache + at * kv_unit : NULL;
    heads.from_stride = x->in_strides.head * unit;
    heads.to_stride = x->cache_strides.head * kv_unit;
    heads.scale = x->scale;
    heads.scales = x->scales;
    return heads;
}

/* 1: every head begins and ends at a vector's edge, and what becomes of one is one word. */
static __device__ __forceinline__ int32_t is_in_vectors(const fig_append_kv_params *p,
                                                        const token_heads *heads) {
    const int32_t unit = unit_of(p), kv_unit = kv_unit_of(p);
    const uint64_t from =
        (uint64_t)heads->from | (uint64_t)heads->from_stride | (uint64_t)(p->head_dim * unit);
    const uint64_t to = (uint64_t)heads->to | (uint64_t)heads->to_stride;
    return from % FIG_VECTOR_BYTES == 0 &&
           to % (unit == kv_unit ? FIG_VECTOR_BYTES : FIG_VECTOR_BYTES / 2) == 0;
}

/* Of k or v divided by scale. A NaN is not divided: a GPU's quotient would forget its sign. */
static __device__ __forceinline__ uint32_t code_of(const fig_append_kv_params *p, uint32_t bits,
                                                   float scale) {
    float x = fig_vector_of_half(p->dtype, bits);
    x = x != x ? x : x / scale;
    return p->kv_dtype == FIG_E4M3 ? fig_numeric_e4m3(x) : fig_numeric_e5m2(x);
}

/* The codes of two neighbours, who lie in a word as they lie in memory. */
static __device__ __forceinline__ uint32_t codes_of(const fig_append_kv_params *p, uint32_t pair,
                                                    float scale) {
    return code_of(p, pair & 0xffffu, scale) | code_of(p, pair >> 16, scale) << 8;
}

static __device__ __forceinline__ uint4 vector_of(const token_heads *heads, int32_t head,
                                                  int32_t vector) {
    return ((const uint4 *)(heads->from + head * heads->from_stride))[vector];
}

static __device__ __forceinline__ void store_vector(const fig_append_kv_params *p,
                                                    const token_heads *heads, int32_t head,
                                                    int32_t vector, uint4 x) {
    uint8_t *to = heads->to + head * heads->to_stride;
    if (heads->to == NULL) return;
    if (p->dtype == p->kv_dtype) {
        ((uint4 *)to)[vector] = x;
        return;
    }
    const float scale = fig_cache_scale(heads->scale, heads->scales, head);
    uint2 codes;
    codes.x = codes_of(p, x.x, scale) | codes_of(p, x.y, scale) << 16;
    codes.y = codes_of(p, x.z, scale) | codes_of(p, x.w, scale) << 16;
    ((uint2 *)to)[vector] = codes;
}

static __device__ __forceinline__ void move_element(const fig_append_kv_params *p,
                                                    const token_heads *heads, int32_t head,
                                                    int32_t element) {
    const uint8_t *from = heads->from + head * heads->from_stride;
    uint8_t *to = heads->to + head * heads->to_stride;
    if (heads->to == NULL) return;
    if (p->dtype != p->kv_dtype) {
        const float scale = fig_cache_scale(heads->scale, heads->scales, head);
        to[element] = (uint8_t)code_of(p, ((const uint16_t *)from)[element], scale);
    } else if (p->dtype == FIG_F32) {
        ((uint32_t *)to)[element] = ((const uint32_t *)from)[element];
    } else {
        ((uint16_t *)to)[element] = ((const uint16_t *)from)[element];
    }
}

/* k and v of a turn are both on their way before either is stored. */
static __device__ __forceinline__ void append(const fig_append_kv_params *p, const token_heads *k,
                                              const token_heads *v) {
    if (is_in_vectors(p, k) && is_in_vectors(p, v)) {
        const int32_t vectors = p->head_dim * unit_of(p) / FIG_VECTOR_BYTES;
        for (int32_t i = (int32_t)threadIdx.x; i < p->kv_heads * vectors; i += THREADS) {
            const uint4 k_vector = vector_of(k, i / vectors, i % vectors);
            const uint4 v_vector = vector_of(v, i / vectors, i % vectors);
            store_vector(p, k, i / vectors, i % vectors, k_vector);
            store_vector(p, v, i / vectors, i % vectors, v_vector);
        }
        return;
    }
    for (int32_t i = (int32_t)threadIdx.x; i < p->kv_heads * p->head_dim; i += THREADS) {
        move_element(p, k, i / p->head_dim, i % p->head_dim);
        move_element(p, v, i / p->head_dim, i % p->head_dim);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    fig_kernel_append_kv(const __grid_constant__ fig_append_kv_params p) {
    fig_block_wait();
    fig_block_trigger();
    const int32_t row = (int32_t)blockIdx.x / p.rows.multiple;
    const int32_t query = (int32_t)blockIdx.x % p.rows.multiple;
    if ((int32_t)blockIdx.x >= fig_params_rows(&p.rows, p.plan)) return;
    const int32_t length = ((const int32_t *)(p.plan + p.lengths_offset))[row];
    const int32_t number = ((const int32_t *)(p.plan + p.sequences_offset))[row];
    token_place place;
    place.row = blockIdx.x;
    place.token = length - p.rows.multiple + query;
    if (place.token < 0) return; /* an idle row's stand before it begins */
    place.sequence = fig_cache_sequence_of(p.page_table, p.table_stride, number, p.page_size);
    place.page = fig_cache_page(&place.sequence, place.token);
    const kv_side k_side = {p.k,       p.k_cache, p.k_scale, p.k_strides, p.k_cache_strides,
                            p.k_pages, p.k_scales};
    const kv_side v_side = {p.v,       p.v_cache, p.v_scale, p.v_strides, p.v_cache_strides,
                            p.v_pages, p.v_scales};
    const token_heads k = heads_of(&p, &k_side, &place), v = heads_of(&p, &v_side, &place);
    append(&p, &k, &v);
}
