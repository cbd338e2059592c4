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
    float page_share;   /* 1 / tokens of a page */
} fig_store_token;

/* What the plan says of it. */
typedef struct fig_store_words {
    int32_t rows, length, sequence; /* rows: that the step has */
    int32_t is_skipped;             /* 1: it is none of its row's tokens, and holds none */
} fig_store_words;

/* Where it stands. */
typedef struct fig_store_place {
    int32_t stands; /* 0: nowhere, and the rest is unset */
    int32_t page, rest;
} fig_store_place;

/* One of k and v in the cache: head 0 of page 0, and how far things are apart, in bytes. */
typedef struct fig_store_side {
    uint8_t *base;
    int64_t page, token, head;
    int64_t pages;
    const float *scale;
    int32_t scales;
} fig_store_side;

/* The heads of a token. */
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

/* ---- Before the wait */

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
    token.page_share = __fdividef(1.0f, (float)p->page_size);
    return token;
}

static __device__ __forceinline__ fig_store_side fig_store_side_of(const fig_append_kv_params *p,
                                                                   int32_t is_v) {
    const fig_cache_strides strides = is_v ? p->v_cache_strides : p->k_cache_strides;
    const int32_t unit = fig_store_kv_unit(p);
    fig_store_side side;
    side.base = (uint8_t *)(is_v ? p->v_cache : p->k_cache);
    side.page = strides.page * unit;
    side.token = strides.token * unit;
    side.head = strides.head * unit;
    side.pages = is_v ? p->v_pages : p->k_pages;
    side.scale = is_v ? p->v_scale : p->k_scale;
    side.scales = is_v ? p->v_scales : p->k_scales;
    return side;
}

/* ---- Behind the wait */

/* All of it on its way at once, whether the step has the token or not: the plan has room for every
 * row of its bucket. */
static __device__ __forceinline__ fig_store_words fig_store_read(const fig_append_kv_params *p,
                                                                 const fig_store_token *token) {
    const fig_plan_head *head = (const fig_plan_head *)p->plan;
    fig_store_words words;
    words.length = fig_vector_fetch_number(token->length);
    words.sequence = fig_vector_fetch_number(token->sequence);
    words.rows = fig_vector_fetch_number(&head->rows) * p->rows.multiple;
    words.is_skipped = 0;
    if (token->tokens != NULL)
        words.is_skipped = (head->sections & FIG_PLAN_HAS_TOKENS) != 0 &&
                           token->before_end > fig_vector_fetch_number(token->tokens);
    return words;
}

/* A page's number is asked for only where the step has the token, and it stands behind the begin of
 * its sequence, as an idle row's do not: a sequence's number that nobody wrote lies in no table.
 * The page is found by a product, which errs by one at most where a token is below 2^22. */
static __device__ __forceinline__ fig_store_place fig_store_find(const fig_append_kv_params *p,
                                                                 const fig_store_token *token,
                                                                 const fig_store_words *words) {
    const int32_t number = words->length - token->before_end;
    int32_t index = (int32_t)((float)number * token->page_share);
    fig_store_place place;
    place.rest = number - index * p->page_size;
    if (place.rest < 0) index--;
    if (place.rest >= p->page_size) index++;
    place.rest = number - index * p->page_size;
    place.stands = token->number < words->rows && number >= 0 && !words->is_skipped;
    place.page = words->sequence;
    if (place.stands && p->page_table != NULL)
        place.page =
            fig_vector_fetch_number(p->page_table + words->sequence * p->table_stride + index);
    return place;
}

static __device__ __forceinline__ fig_store_heads fig_store_in(const fig_store_side *side,
                                                               const fig_store_place *place) {
    fig_store_heads heads = {NULL, side->head, side->scale, side->scales};
    if (place->stands && place->page >= 0 && place->page < side->pages)
        heads.to = side->base + place->page * side->page + place->rest * side->token;
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
    quotient = fmaf(fmaf(-scale, quotient, x), inverse, quotient);
    return copysignf(quotient, x); /* what a correction adds to -0 makes it 0 */
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
    const uint32_t signs =
        (low != low ? pair >> 8 & 0x80u : 0) | (high != high ? pair >> 16 & 0x8000u : 0);
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
