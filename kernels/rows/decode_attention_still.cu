/* decode_attention_still.cu: runs the first launch of decode_attention on a GPU if the node neither
 * rotates nor normalises: stores k and v in the cache. q and k stay as they are.
 *
 * A thread stores 16 bytes of k or v, of one token or of several in turn (fig_params_abreast()). A
 * token has as many blocks as its vectors need. In a server, other kernels and the weights have
 * displaced this kernel's code and the plan from all caches. So the time is that of the trips to
 * memory that depend on each other, and of instructions that run for the first time. Each thread
 * looks at another row of the plan, so a token's row takes one trip and not one for each step of a
 * binary search. Invariant: nothing outside the cache is written, whatever the page table holds. */
#include "kernels/common/decode_attention.h"
#include "kernels/common/store.cuh"

enum { THREADS = FIG_DECODE_STILL_THREADS, SECTOR_BYTES = 32 };

/* A thread's vector. */
typedef struct own_vector {
    const uint8_t *from;
    int32_t is_there, is_v;
    int32_t head, element; /* of k or v; the element is the vector's first */
} own_vector;

/* Returns a / b, rounded down, for a below 2^21. An exact division has five times as many
 * instructions. */
static __device__ __forceinline__ int32_t quotient_of(int32_t a, int32_t b) {
    return __float2int_rd(__fdividef((float)a + 0.5f, (float)b));
}

static __device__ __forceinline__ own_vector vector_of(const fig_decode_attention_params *p,
                                                       const fig_append_kv_params *append,
                                                       int32_t token) {
    const int32_t unit = fig_store_unit(append);
    const int32_t vectors = p->head_dim * unit / FIG_VECTOR_BYTES;
    const int32_t number = (int32_t)(blockIdx.y * THREADS + threadIdx.x);
    const int32_t head = quotient_of(number, vectors);
    own_vector own;
    own.is_v = head >= p->kv_heads;
    own.is_there = head < 2 * p->kv_heads;
    own.head = head - (own.is_v ? p->kv_heads : 0);
    own.element = (number - head * vectors) * (FIG_VECTOR_BYTES / unit);
    const fig_row_strides strides = own.is_v ? p->v_strides : p->k_strides;
    const int64_t at = token * strides.row + own.head * strides.head + own.element;
    own.from = (const uint8_t *)(own.is_v ? p->v : p->k) + at * unit;
    return own;
}

/* Prefetches the plan up to the begins of rows. Lengths, positions and sequences are row_limit
 * numbers each, rounded up, and come one after the other; the begins are a few numbers more. */
static __device__ __forceinline__ void prefetch_plan(const fig_decode_attention_params *p) {
    const uint32_t at = threadIdx.x * SECTOR_BYTES;
    const uint32_t begins = p->rows.queries_offset;
    const uint32_t last = begins != 0 ? begins : p->sequences_offset;
    if (at < last + p->positions_offset - p->lengths_offset) fig_block_prefetch(p->plan + at);
}

/* Returns the scale of the thread's head in the cache. */
static __device__ __forceinline__ float scale_of(const fig_store_side *side, int32_t head) {
    if (side->scale == NULL) return 1.0f;
    const float *scale = side->scale + (side->scales > 1 ? head : 0);
    return __int_as_float(fig_vector_fetch_number((const int32_t *)scale));
}

/* Returns the place of the block's token in a packed program. The thread that looks at the token's
 * row finds the place for all. A token past the step's last is in no row. */
static __device__ __forceinline__ fig_store_place packed_place_of(const fig_append_kv_params *p,
                                                                  int32_t number,
                                                                  fig_store_place *found) {
    const int32_t *starts = (const int32_t *)(p->plan + p->rows.queries_offset) + 1;
    const int32_t *lengths = (const int32_t *)(p->plan + p->lengths_offset);
    const int32_t *sequences = (const int32_t *)(p->plan + p->sequences_offset);
    const int32_t rows = fig_vector_fetch_common(&((const fig_plan_head *)p->plan)->rows);
    fig_store_token token;
    token.number = 0;
    token.page_share = __fdividef(1.0f, (float)p->page_size);
    int32_t is_found = 0;
#pragma unroll 1
    for (int32_t first = 0; first < rows && !is_found; first += THREADS) {
        const int32_t row = first + (int32_t)threadIdx.x;
        int32_t is_own = 0;
        if (row < rows) {
            const int32_t begin = fig_vector_fetch_common(starts + row);
            const int32_t end = fig_vector_fetch_common(starts + row + 1);
            const fig_store_words words = {1, fig_vector_fetch_common(lengths + row),
                                           fig_vector_fetch_common(sequences + row), 0};
            is_own = begin <= number && number < end;
            token.before_end = end - number;
            if (is_own) *found = fig_store_find(p, &token, &words);
        }
        is_found = __syncthreads_or(is_own);
    }
    const fig_store_place none = {0, 0, 0};
    return is_found ? *found : none;
}

static __device__ __forceinline__ fig_store_place place_of(const fig_append_kv_params *p,
                                                           int32_t number) {
    const fig_store_token token = fig_store_token_of(p, number);
    const fig_store_words words = fig_store_read(p, &token);
    return fig_store_find(p, &token, &words);
}

/* Returns the codes of a vector. The code of a word exists only once, because most of the time of
 * straight code would be its way from memory. */
static __device__ __forceinline__ uint2 codes_of(uint4 x, int32_t dtype, int32_t kv_dtype,
                                                 float scale) {
    uint2 codes = make_uint2(0, 0);
#pragma unroll 1
    for (int32_t i = 0; i < 4; i++) {
        const uint32_t pair = fig_store_codes(x.x, dtype, kv_dtype, scale);
        codes.x = __funnelshift_r(codes.x, codes.y, 16);
        codes.y = codes.y >> 16 | pair << 16;
        x = make_uint4(x.y, x.z, x.w, 0);
    }
    return codes;
}

/* Stores the thread's vector of a token. */
static __device__ __forceinline__ void store_vector(const fig_decode_attention_params *p,
                                                    const fig_append_kv_params *append,
                                                    int32_t token, fig_store_place *found) {
    const own_vector own = vector_of(p, append, token);
    const fig_store_side side = fig_store_side_of(append, own.is_v);
    uint4 x = make_uint4(0, 0, 0, 0);
    float scale = 1.0f;
    fig_block_enter(p->early_reads & FIG_EARLY_READS_ON);
    if (own.is_there) {
        x = fig_vector_fetch(own.from);
        scale = scale_of(&side, own.head);
    }
    const fig_store_place place = p->rows.queries_offset != 0
                                      ? packed_place_of(append, token, found)
                                      : place_of(append, token);
    const fig_store_heads heads = fig_store_in(&side, &place);
    if (!own.is_there || heads.to == NULL) return;
    uint8_t *to = heads.to + own.head * heads.stride + own.element * fig_store_kv_unit(append);
    if (p->dtype == p->kv_dtype) {
        *(uint4 *)to = x;
    } else {
        *(uint2 *)to = codes_of(x, p->dtype, p->kv_dtype, scale);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    fig_kernel_decode_attention_still(const __grid_constant__ fig_decode_attention_params p) {
    __shared__ fig_store_place found;
    prefetch_plan(&p);
    const fig_append_kv_params append = fig_decode_attention_append(&p);
    const int32_t abreast = fig_params_abreast(&p.rows);
    int32_t token = (int32_t)blockIdx.x;
#pragma unroll 1
    for (;;) {
        store_vector(&p, &append, token, &found);
        token += abreast;
        if (token >= p.rows.row_limit || token >= fig_params_rows(&p.rows, p.plan)) return;
        __syncthreads();
    }
}
