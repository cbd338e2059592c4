/* store.cuh: stores a query token's k and v in the cache.
 *
 * cache[page][token][head] = x[token][head], bit for bit if the dtypes are equal. Otherwise x has
 * 16 bits, the cache has 8, and x / scale is converted with saturation. The kernels decide the
 * source of x and each thread's part of it. Invariant: nothing outside the cache is written,
 * whatever the page table holds. */
#ifndef FIG_KERNELS_STORE_CUH
#define FIG_KERNELS_STORE_CUH

#include "kernels/common/block.cuh"
#include "kernels/common/cache.h"
#include "kernels/common/vector.cuh"

/* A query token of the step, and the plan's entries for its row. */
typedef struct fig_store_token {
    const int32_t *length, *sequence;
    /* tokens of the row; NULL: plans have no such section, because each row has one token */
    const int32_t *tokens;
    /* In a packed program, `row` and before_end are 0 until fig_store_locate() sets them. */
    int32_t number, row;
    int32_t before_end; /* tokens from this one to the row's last, both included */
    float page_share;   /* 1 / tokens of a page */
} fig_store_token;

/* The plan's data about the token. */
typedef struct fig_store_words {
    int32_t rows, length, sequence; /* rows: rows of the step */
    int32_t is_skipped;             /* 1: this place of the row has no token */
} fig_store_words;

/* The token's place in the cache. */
typedef struct fig_store_place {
    int32_t stands; /* 1: the token has a place; 0: the other fields are unset */
    int32_t page, rest;
} fig_store_place;

/* K or V in the cache: head 0 of page 0, and the strides in bytes. */
typedef struct fig_store_side {
    uint8_t *base;
    int64_t page, token, head;
    int64_t pages;
    const float *scale;
    int32_t scales;
} fig_store_side;

/* The heads of a token. */
typedef struct fig_store_heads {
    uint8_t *to;    /* NULL: no page of the cache holds the token */
    int64_t stride; /* in bytes */
    const float *scale;
    int32_t scales;
} fig_store_heads;

/* Returns the bytes of an element of k and v. The next function returns those of the cache. */
static __device__ __forceinline__ int32_t fig_store_unit(const fig_append_kv_params *p) {
    return p->dtype == FIG_F32 ? 4 : 2;
}
static __device__ __forceinline__ int32_t fig_store_kv_unit(const fig_append_kv_params *p) {
    return p->dtype == p->kv_dtype ? fig_store_unit(p) : 1;
}

/* Loads a number of the plan or the page table behind the wait. In a packed program, thousands of
 * blocks may load the same few numbers. Otherwise few blocks do, and a trip to L2 is shorter than
 * one that fills L1, too. */
static __device__ __forceinline__ int32_t fig_store_fetch(const fig_append_kv_params *p,
                                                          const int32_t *from) {
    if (p->rows.queries_offset != 0) return fig_vector_fetch_common(from);
    return fig_vector_fetch_number(from);
}

/* Prefetches an address that is the same in all threads of the block. */
static __device__ __forceinline__ void fig_store_prefetch(const fig_append_kv_params *p,
                                                          const void *address) {
    if (p->rows.queries_offset == 0 || threadIdx.x == 0) fig_block_prefetch(address);
}

/* ---- Before the wait */

static __device__ __forceinline__ fig_store_token fig_store_token_of(const fig_append_kv_params *p,
                                                                     int32_t number) {
    const int32_t is_packed = p->rows.queries_offset != 0;
    const int32_t row = is_packed ? 0 : number / p->rows.multiple;
    fig_store_token token;
    token.length = (const int32_t *)(p->plan + p->lengths_offset) + row;
    token.sequence = (const int32_t *)(p->plan + p->sequences_offset) + row;
    token.tokens = NULL;
    if (p->tokens_offset != 0) token.tokens = (const int32_t *)(p->plan + p->tokens_offset) + row;
    fig_store_prefetch(p, token.length);
    fig_store_prefetch(p, token.sequence);
    token.number = number;
    token.before_end = is_packed ? 0 : p->rows.multiple - number % p->rows.multiple;
    token.row = row;
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

/* Finds the row of a packed program's token in the plan. */
static __device__ __forceinline__ void fig_store_locate(const fig_append_kv_params *p,
                                                        fig_store_token *token) {
    if (p->rows.queries_offset == 0) return;
    const fig_params_query query = fig_params_query_of(&p->rows, p->plan, token->number);
    token->length += query.row;
    token->sequence += query.row;
    token->row = query.row;
    token->before_end = query.before_end;
}

/* Issues all loads at once, without knowing whether the step has the token. This is safe because
 * the plan has room for every row of its bucket. */
static __device__ __forceinline__ fig_store_words fig_store_read(const fig_append_kv_params *p,
                                                                 const fig_store_token *token) {
    const fig_plan_head *head = (const fig_plan_head *)p->plan;
    fig_store_words words;
    words.length = fig_store_fetch(p, token->length);
    words.sequence = fig_store_fetch(p, token->sequence);
    words.rows = fig_store_fetch(p, &head->rows) * p->rows.multiple;
    if (p->rows.queries_offset != 0) words.rows = fig_params_rows(&p->rows, p->plan);
    words.is_skipped = 0;
    if (token->tokens != NULL && p->rows.queries_offset == 0)
        words.is_skipped = (head->sections & FIG_PLAN_HAS_TOKENS) != 0 &&
                           token->before_end > fig_store_fetch(p, token->tokens);
    return words;
}

/* Loads the page number only if the step has the token and the token is not before the start of its
 * sequence, as in an idle row. Otherwise the sequence number might be unset and name no table. The
 * page is found by a multiplication, whose result is off by at most one for a token below 2^22. */
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
        place.page = fig_store_fetch(p, p->page_table + words->sequence * p->table_stride + index);
    return place;
}

static __device__ __forceinline__ fig_store_heads fig_store_in(const fig_store_side *side,
                                                               const fig_store_place *place) {
    fig_store_heads heads = {NULL, side->head, side->scale, side->scales};
    if (place->stands && place->page >= 0 && place->page < side->pages)
        heads.to = side->base + place->page * side->page + place->rest * side->token;
    return heads;
}

/* Returns 1 if every converted vector is one aligned word, for every token of both K and V. */
static __device__ __forceinline__ int32_t fig_store_takes_vectors(const fig_append_kv_params *p) {
    const fig_cache_strides k = p->k_cache_strides, v = p->v_cache_strides;
    const uint64_t all =
        (uint64_t)p->k_cache | (uint64_t)p->v_cache |
        (uint64_t)((k.page | k.token | k.head | v.page | v.token | v.head) * fig_store_kv_unit(p));
    return all % (p->dtype == p->kv_dtype ? FIG_VECTOR_BYTES : FIG_VECTOR_BYTES / 2) == 0;
}

/* ---- Codes of 8 bits */

/* Divides x by scale. This is not inlined, because a copy at each use would be long. */
static __device__ __noinline__ float fig_store_divided(float x, float scale) {
    return x / scale;
}

/* Returns x / scale with the same rounding as a division, but without the function calls of a
 * division. A quotient that is corrected twice is exact unless a correction overflows or loses bits
 * below the smallest number. With the scales allowed here, this happens only for an x so large that
 * fp8 saturates, or so small that x becomes 0 in fp8. */
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
    return copysignf(quotient, x); /* a correction would turn -0 into 0 */
}

/* Divides two 16-bit numbers by scale and converts them to neighbouring 8-bit codes. A NaN keeps
 * its sign, which both the quotient and the GPU's conversion would lose. */
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

/* Returns the codes of a vector. */
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

/* Stores a vector that begins at number `element` of the head. Premise:
 * fig_store_takes_vectors(). */
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

/* Stores an element. code: the element in the dtype of k and v. */
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
