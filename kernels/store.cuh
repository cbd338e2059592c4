/* store.cuh: a query token's k and v on their way into the cache.
 *
 * cache[page][token][head] = x[token][head], bit for bit where the dtypes are one; else x has 16
 * bits, the cache 8, and x / scale is converted, saturating. Leaves to the kernels where x comes
 * from and which thread has what of it. Invariant: nothing outside the cache is written, whatever
 * the page table says. */
#ifndef FIG_KERNELS_STORE_CUH
#define FIG_KERNELS_STORE_CUH

#include "kernels/block.cuh"
#include "kernels/cache.h"
#include "kernels/vector.cuh"

/* A query token of the step, and where in the plan its row is described. */
typedef struct fig_store_token {
    const int32_t *length, *sequence;
    const int32_t *tokens; /* of its row; NULL: no plan says, since each row has one */
    int32_t number;
    int32_t before_end; /* it is the row's last token where this is 1 */
} fig_store_token;

/* Where it stands. */
typedef struct fig_store_place {
    fig_cache_sequence sequence;
    int32_t token, page; /* of the sequence; as its table has it */
} fig_store_place;

/* One of k and v in the cache: head 0 of a token, and how far its heads are apart. */
typedef struct fig_store_heads {
    uint8_t *to;    /* NULL: in no page of the cache */
    int64_t stride; /* bytes */
    const float *scale;
    int32_t scales;
} fig_store_heads;

/* Bytes of an element of k and v, and of the cache. */
static __device__ __forceinline__ int32_t fig_store_unit(const fig_append_kv_params *p) {
    return p->dtype == FIG_F32 ? 4 : 2;
}
static __device__ __forceinline__ int32_t fig_store_kv_unit(const fig_append_kv_params *p) {
    return p->dtype == p->kv_dtype ? fig_store_unit(p) : 1;
}

static __device__ __forceinline__ fig_store_token fig_store_token_of(const fig_append_kv_params *p,
                                                                     int32_t number) {
    const int32_t row = number / p->rows.multiple;
    fig_store_token token;
    token.length = (const int32_t *)(p->plan + p->lengths_offset) + row;
    token.sequence = (const int32_t *)(p->plan + p->sequences_offset) + row;
    token.tokens = NULL;
    if (p->tokens_offset != 0) token.tokens = (const int32_t *)(p->plan + p->tokens_offset) + row;
    fig_block_prefetch(token.length);
    fig_block_prefetch(token.sequence);
    token.number = number;
    token.before_end = p->rows.multiple - number % p->rows.multiple;
    return token;
}

/* 1: the plan says that the query is none of its row's tokens, and holds no token. */
static __device__ __forceinline__ int32_t fig_store_is_skipped(const fig_append_kv_params *p,
                                                               const fig_store_token *token) {
    if (token->tokens == NULL) return 0;
    const uint32_t sections = ((const fig_plan_head *)p->plan)->sections;
    const int32_t tokens = fig_vector_fetch_number(token->tokens);
    return (sections & FIG_PLAN_HAS_TOKENS) && token->before_end > tokens;
}

/* 0: the step has no such token, or it would stand before its sequence begins, as an idle row's do.
 * What the plan says is read at once, whether it is the step's or not; what follows from it only
 * where it is, since a sequence's number that nobody wrote lies in no table. */
static __device__ __forceinline__ int32_t fig_store_find(const fig_append_kv_params *p,
                                                         const fig_store_token *token,
                                                         fig_store_place *place) {
    const int32_t rows = fig_params_rows(&p->rows, p->plan);
    const int32_t sequence = fig_vector_fetch_number(token->sequence);
    const int32_t is_skipped = fig_store_is_skipped(p, token);
    place->token = fig_vector_fetch_number(token->length) - token->before_end;
    if (is_skipped) return 0;
    if (token->number >= rows || place->token < 0) return 0;
    place->sequence = fig_cache_sequence_of(p->page_table, p->table_stride, sequence, p->page_size);
    place->page = fig_cache_page(&place->sequence, place->token);
    return 1;
}

static __device__ __forceinline__ uint8_t *fig_store_at(const fig_append_kv_params *p,
                                                        const fig_store_place *place, void *cache,
                                                        const fig_cache_strides *strides,
                                                        int64_t pages) {
    const int64_t at = fig_cache_offset(strides, &place->sequence, place->page, place->token);
    if (place->page < 0 || place->page >= pages) return NULL;
    return (uint8_t *)cache + at * fig_store_kv_unit(p);
}

static __device__ __forceinline__ fig_store_heads fig_store_k(const fig_append_kv_params *p,
                                                              const fig_store_place *place) {
    fig_store_heads heads;
    heads.to = fig_store_at(p, place, p->k_cache, &p->k_cache_strides, p->k_pages);
    heads.stride = p->k_cache_strides.head * fig_store_kv_unit(p);
    heads.scale = p->k_scale;
    heads.scales = p->k_scales;
    return heads;
}

static __device__ __forceinline__ fig_store_heads fig_store_v(const fig_append_kv_params *p,
                                                              const fig_store_place *place) {
    fig_store_heads heads;
    heads.to = fig_store_at(p, place, p->v_cache, &p->v_cache_strides, p->v_pages);
    heads.stride = p->v_cache_strides.head * fig_store_kv_unit(p);
    heads.scale = p->v_scale;
    heads.scales = p->v_scales;
    return heads;
}

/* 1: what becomes of a vector is one word and lies at a multiple of its size, on either side and
 * wherever the token stands. */
static __device__ __forceinline__ int32_t fig_store_takes_vectors(const fig_append_kv_params *p) {
    const fig_cache_strides k = p->k_cache_strides, v = p->v_cache_strides;
    const uint64_t all =
        (uint64_t)p->k_cache | (uint64_t)p->v_cache |
        (uint64_t)((k.page | k.token | k.head | v.page | v.token | v.head) * fig_store_kv_unit(p));
    return all % (p->dtype == p->kv_dtype ? FIG_VECTOR_BYTES : FIG_VECTOR_BYTES / 2) == 0;
}

/* ---- Codes of 8 bits */

/* Once, not at each use. */
static __device__ __noinline__ float fig_store_divided(float x, float scale) {
    return x / scale;
}

/* x / scale as a division rounds it, without the calls of one. A quotient that was corrected twice
 * is as near as any, where nothing on the way overflows or loses bits below the least number: with
 * scales like these that needs an x so large that fp8 saturates or so small that it is 0 there. */
static __device__ __forceinline__ float fig_store_quotient(float x, float scale) {
    const float limit = 0x1p66f;
    float inverse;
    if (!(scale >= 0x1p-48f && scale <= 0x1p48f)) return fig_store_divided(x, scale);
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(scale));
    inverse = fmaf(fmaf(-scale, inverse, 1.0f), inverse, inverse);
    x = fminf(fmaxf(x, -limit), limit);
    float quotient = x * inverse;
    quotient = fmaf(fmaf(-scale, quotient, x), inverse, quotient);
    return fmaf(fmaf(-scale, quotient, x), inverse, quotient);
}

/* Two numbers of 16 bits divided by scale, as neighbours of 8 bits. A NaN keeps its sign, which
 * neither a quotient nor the GPU's conversion would. */
static __device__ __forceinline__ uint32_t fig_store_codes(uint32_t pair, int32_t dtype,
                                                           int32_t kv_dtype, float scale) {
    const float low = fig_vector_of_half(dtype, pair & 0xffffu);
    const float high = fig_vector_of_half(dtype, pair >> 16);
    const float x = low != low ? low : fig_store_quotient(low, scale);
    const float y = high != high ? high : fig_store_quotient(high, scale);
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    const uint32_t signs = (pair >> 8 & 0x80u) | (pair >> 16 & 0x8000u);
    uint16_t codes;
    if (kv_dtype == FIG_E4M3) {
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(y), "f"(x));
    } else {
        asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(y), "f"(x));
    }
    return codes | signs;
#else
    if (kv_dtype == FIG_E4M3) return fig_numeric_e4m3(x) | fig_numeric_e4m3(y) << 8;
    return fig_numeric_e5m2(x) | fig_numeric_e5m2(y) << 8;
#endif
}

/* Those of a vector. */
static __device__ __forceinline__ uint2 fig_store_codes_of(uint4 x, int32_t dtype, int32_t kv_dtype,
                                                           float scale) {
    uint2 codes;
    codes.x = fig_store_codes(x.x, dtype, kv_dtype, scale) |
              fig_store_codes(x.y, dtype, kv_dtype, scale) << 16;
    codes.y = fig_store_codes(x.z, dtype, kv_dtype, scale) |
              fig_store_codes(x.w, dtype, kv_dtype, scale) << 16;
    return codes;
}

/* ---- Stores */

/* `element`: of the head, where the vector begins; the cache takes vectors. */
static __device__ __forceinline__ void fig_store_vector(const fig_append_kv_params *p,
                                                        const fig_store_heads *heads, int32_t head,
                                                        int32_t element, uint4 x) {
    uint8_t *to = heads->to + head * heads->stride + element * fig_store_kv_unit(p);
    if (heads->to == NULL) return;
    if (p->dtype == p->kv_dtype) {
        *(uint4 *)to = x;
        return;
    }
    const float scale = fig_cache_scale(heads->scale, heads->scales, head);
    *(uint2 *)to = fig_store_codes_of(x, p->dtype, p->kv_dtype, scale);
}

/* code: the element's, of the dtype of k and v. */
static __device__ __forceinline__ void fig_store_element(const fig_append_kv_params *p,
                                                         const fig_store_heads *heads, int32_t head,
                                                         int32_t element, uint32_t code) {
    uint8_t *to = heads->to + head * heads->stride;
    if (heads->to == NULL) return;
    if (p->dtype != p->kv_dtype) {
        const float scale = fig_cache_scale(heads->scale, heads->scales, head);
        to[element] = (uint8_t)fig_store_codes(code, p->dtype, p->kv_dtype, scale);
    } else if (p->dtype == FIG_F32) {
        ((uint32_t *)to)[element] = code;
    } else {
        ((uint16_t *)to)[element] = (uint16_t)code;
    }
}

#endif
