/* append_kv.cu: stores all heads of a query token's k and v at its position in the row's sequence.
 *
 * store.cuh does the stores. There is one block per query token, or per several tokens that it
 * handles in turn (fig_params_abreast()); the token's k and v are in flight while the block looks
 * up the token's place. If addresses, strides and head_dim allow vectors, the block moves 16 bytes
 * of k and of v at a time, otherwise single elements. Invariant: nothing outside the cache is
 * written, whatever the page table holds. */
#include "kernels/common/store.cuh"

enum { THREADS = 128 };

/* The k or v of a query token; the stride from head to head is in bytes. */
typedef struct heads_in {
    const uint8_t *from;
    int64_t stride;
} heads_in;

static __device__ __forceinline__ heads_in heads_of(const fig_append_kv_params *p, const void *in,
                                                    const fig_row_strides *strides,
                                                    int32_t number) {
    const int32_t unit = fig_store_unit(p);
    heads_in heads;
    heads.from = (const uint8_t *)in + number * strides->row * unit;
    heads.stride = strides->head * unit;
    return heads;
}

static __device__ __forceinline__ const uint8_t *vector_of(const heads_in *heads, int32_t i,
                                                           int32_t vectors) {
    return heads->from + i / vectors * heads->stride + i % vectors * FIG_VECTOR_BYTES;
}

/* Moves vectors of k and v. Each thread's first vectors are in flight before the thread knows their
 * destination. For each later pair of vectors, both are loaded before either is stored. */
static __device__ __forceinline__ void append_vectors(const fig_append_kv_params *p, int32_t number,
                                                      const heads_in *k_in, const heads_in *v_in) {
    fig_store_token token = fig_store_token_of(p, number);
    const fig_store_side k_side = fig_store_side_of(p, 0), v_side = fig_store_side_of(p, 1);
    const int32_t vectors = p->head_dim * fig_store_unit(p) / FIG_VECTOR_BYTES;
    const int32_t lanes = FIG_VECTOR_BYTES / fig_store_unit(p), count = p->kv_heads * vectors;
    int32_t i = (int32_t)threadIdx.x;
    const uint8_t *k_from = vector_of(k_in, i, vectors), *v_from = vector_of(v_in, i, vectors);
    uint4 k_vector, v_vector;
    if (i < count) fig_block_prefetch(k_from);
    if (i < count) fig_block_prefetch(v_from);
    fig_block_wait();
    fig_block_trigger();
    if (i < count) {
        k_vector = fig_vector_fetch(k_from);
        v_vector = fig_vector_fetch(v_from);
    }
    fig_store_locate(p, &token);
    const fig_store_words words = fig_store_read(p, &token);
    const fig_store_place place = fig_store_find(p, &token, &words);
    if (!place.stands) return;
    const fig_store_heads k = fig_store_in(&k_side, &place), v = fig_store_in(&v_side, &place);
#pragma unroll 1
    while (i < count) {
        fig_store_vector(p, &k, i / vectors, i % vectors * lanes, k_vector);
        fig_store_vector(p, &v, i / vectors, i % vectors * lanes, v_vector);
        i += THREADS;
        if (i >= count) return;
        k_vector = fig_vector_fetch(vector_of(k_in, i, vectors));
        v_vector = fig_vector_fetch(vector_of(v_in, i, vectors));
    }
}

static __device__ __forceinline__ uint32_t code_of(const heads_in *heads, int32_t head,
                                                   int32_t element, int32_t unit) {
    const uint8_t *from = heads->from + head * heads->stride + element * unit;
    if (unit == 2) return *(const uint16_t *)from;
    return *(const uint32_t *)from;
}

static __device__ __forceinline__ void append_elements(const fig_append_kv_params *p,
                                                       int32_t number, const heads_in *k_in,
                                                       const heads_in *v_in) {
    fig_store_token token = fig_store_token_of(p, number);
    const fig_store_side k_side = fig_store_side_of(p, 0), v_side = fig_store_side_of(p, 1);
    const int32_t unit = fig_store_unit(p);
    fig_block_wait();
    fig_block_trigger();
    fig_store_locate(p, &token);
    const fig_store_words words = fig_store_read(p, &token);
    const fig_store_place place = fig_store_find(p, &token, &words);
    if (!place.stands) return;
    const fig_store_heads k = fig_store_in(&k_side, &place), v = fig_store_in(&v_side, &place);
#pragma unroll 1
    for (int32_t i = (int32_t)threadIdx.x; i < p->kv_heads * p->head_dim; i += THREADS) {
        const int32_t head = i / p->head_dim, element = i % p->head_dim;
        fig_store_element(p, &k, head, element, code_of(k_in, head, element, unit));
        fig_store_element(p, &v, head, element, code_of(v_in, head, element, unit));
    }
}

/* Returns 1 if every head begins and ends at a multiple of the vector size, both in k and v and in
 * the cache. */
static __device__ __forceinline__ int32_t has_vectors(const fig_append_kv_params *p,
                                                      const heads_in *k_in, const heads_in *v_in) {
    const uint64_t from = (uint64_t)k_in->from | (uint64_t)k_in->stride | (uint64_t)v_in->from |
                          (uint64_t)v_in->stride | (uint64_t)(p->head_dim * fig_store_unit(p));
    return from % FIG_VECTOR_BYTES == 0 && fig_store_takes_vectors(p);
}

static __device__ __forceinline__ void append_token(const fig_append_kv_params *p, int32_t number) {
    const heads_in k = heads_of(p, p->k, &p->k_strides, number);
    const heads_in v = heads_of(p, p->v, &p->v_strides, number);
    if (has_vectors(p, &k, &v)) {
        append_vectors(p, number, &k, &v);
    } else {
        append_elements(p, number, &k, &v);
    }
}

static __device__ __forceinline__ void append_tokens(const fig_append_kv_params *p) {
    int32_t number = (int32_t)blockIdx.x;
#pragma unroll 1
    do {
        append_token(p, number);
        number += fig_params_abreast(&p->rows);
    } while (number < fig_params_rows(&p->rows, p->plan));
}

static __device__ __forceinline__ void append_token_of(fig_append_kv_params p) {
    p.rows.queries_offset = 0;
    append_token(&p, (int32_t)blockIdx.x);
}

/* The code for packed programs would cost others some of the time, so each has an entry. */
#define ENTRY(name, call)                                                                          \
    extern "C" __global__ void __launch_bounds__(THREADS)                                          \
        fig_kernel_##name(const __grid_constant__ fig_append_kv_params p) {                        \
        call;                                                                                      \
    }
ENTRY(append_kv, append_token_of(p))
ENTRY(append_kv_packed, append_tokens(&p))
