/* whole_attention.cu: computes attention over few tokens in one launch, without plan or scratch.
 * The host knows the number of tokens.
 *
 *     out[r][h] = sum over t < length of softmax(q[r][h] . k[r][t] * sm_scale)[t] * v[r][t]
 *
 * A cluster of blocks serves four q heads of a kv head of a row. Its warps take tokens in turn.
 * Neighbouring lanes of a warp hold neighbouring 16 bytes of a token's head, and every lane keeps
 * its own sum. Sums are merged in the warp, then in the block, then in the cluster. The blocks of
 * the cluster read each other's shared memory, and each writes a part of out. Premises:
 * fig_whole_attention_refuses() returns NULL. Invariant: no thread reads or writes global memory
 * before the wait. */
#include "kernels/attention/whole_attention.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/common/block.cuh"
#include "kernels/common/numeric.h"
#include "planner/spec/head_dims.h"

enum {
    BLOCKS = FIG_WHOLE_ATTENTION_BLOCKS,
    HEADS = FIG_WHOLE_ATTENTION_HEADS,
    WARPS = FIG_WHOLE_ATTENTION_WARPS,
    THREADS = WARPS * FIG_BLOCK_WARP,
    VECTOR = 8, /* 16-bit numbers in 16 bytes */
    TURNS = 2   /* tokens that a lane loads at once */
};
#define NONE (-3.402823466e38f) /* the greatest logit of no tokens */

/* Holds the state of one q head: the greatest logit, in base 2, the sum of weights and the sums of
 * values. */
struct whole_sum {
    float greatest, weights;
    float values[VECTOR];
};

static __device__ __forceinline__ void split(uint32_t word, __half2, float2 *two) {
    *two = __half22float2(*reinterpret_cast<const __half2 *>(&word));
}
static __device__ __forceinline__ void split(uint32_t word, __nv_bfloat162, float2 *two) {
    *two = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162 *>(&word));
}

static __device__ __forceinline__ void store(__half *to, float x) {
    *to = __float2half_rn(x);
}
static __device__ __forceinline__ void store(__nv_bfloat16 *to, float x) {
    *to = __float2bfloat16_rn(x);
}

template <class pair>
static __device__ __forceinline__ void unpack(const uint4 &from, float to[VECTOR]) {
    const uint32_t words[] = {from.x, from.y, from.z, from.w};
#pragma unroll
    for (int32_t i = 0; i < VECTOR / 2; i++) {
        float2 two;
        split(words[i], pair(), &two);
        to[2 * i] = two.x;
        to[2 * i + 1] = two.y;
    }
}

static __device__ __forceinline__ float power(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

static __device__ __forceinline__ void cluster_meet(void) {
    asm volatile("barrier.cluster.arrive.release.aligned;\n"
                 "barrier.cluster.wait.acquire.aligned;" ::
                     : "memory");
}

/* Returns the value of the same variable in the shared memory of block `rank` of the cluster. */
static __device__ __forceinline__ float read_of(const float *own, uint32_t rank) {
    const uint32_t address = (uint32_t)__cvta_generic_to_shared(own);
    uint32_t theirs;
    float x;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(theirs) : "r"(address), "r"(rank));
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(x) : "r"(theirs) : "memory");
    return x;
}

/* Adds a token; if is_seen is 0, the token has no effect. */
static __device__ __forceinline__ void see(whole_sum &sum, float logit, const float v[VECTOR],
                                           int32_t is_seen) {
    const float greatest = is_seen ? fmaxf(sum.greatest, logit) : sum.greatest;
    const float shrink = power(sum.greatest - greatest);
    const float weight = is_seen ? power(logit - greatest) : 0.0f;
    sum.greatest = greatest;
    sum.weights = fmaf(sum.weights, shrink, weight);
#pragma unroll
    for (int32_t i = 0; i < VECTOR; i++)
        sum.values[i] = fmaf(sum.values[i], shrink, weight * v[i]);
}

/* Merges the sum with the sum of the lane `apart` lanes away. */
static __device__ __forceinline__ void join_lane(whole_sum &sum, int32_t apart) {
    const float theirs = __shfl_xor_sync(0xffffffffu, sum.greatest, apart);
    const float greatest = fmaxf(sum.greatest, theirs);
    const float shrink = power(sum.greatest - greatest);
    sum.greatest = greatest;
    sum.weights *= shrink;
    sum.weights += __shfl_xor_sync(0xffffffffu, sum.weights, apart);
#pragma unroll
    for (int32_t i = 0; i < VECTOR; i++) {
        sum.values[i] *= shrink;
        sum.values[i] += __shfl_xor_sync(0xffffffffu, sum.values[i], apart);
    }
}

/* Holds the results for the q heads, first those of the block's warps, then those of the cluster's
 * blocks. */
template <int32_t DIM> struct whole_meeting {
    float values[WARPS][HEADS][DIM], joined[HEADS][DIM];
    float greatest[WARPS][HEADS], weights[WARPS][HEADS];
    float joined_greatest[HEADS], joined_weights[HEADS];
};

/* Holds a lane's part of the tokens that the lane loads from the cache. */
template <class number> struct whole_tokens {
    const number *k, *v;
    uint4 of_k[TURNS], of_v[TURNS]; /* loads in flight */
};

/* Starts the loads of a lane's tokens. A position past the last token loads the last token
 * again. */
template <class number>
static __device__ __forceinline__ void ask(const fig_whole_attention_params &p, int32_t token,
                                           int32_t i, whole_tokens<number> *tokens) {
    const int64_t at = min(token, p.length - 1);
    tokens->of_k[i] = *(const uint4 *)(tokens->k + at * p.k_cache_strides.token);
    tokens->of_v[i] = *(const uint4 *)(tokens->v + at * p.v_cache_strides.token);
}

template <class number, class pair>
static __device__ __forceinline__ void load_q(const fig_whole_attention_params &p,
                                              const fig_whole_attention_place &place, int32_t part,
                                              float of_q[HEADS][VECTOR]) {
    const number *q = (const number *)p.q + place.row * p.q_strides.row + part;
#pragma unroll
    for (int32_t h = 0; h < HEADS; h++) {
        const int64_t head = place.q_head + min(h, place.heads - 1);
        unpack<pair>(*(const uint4 *)(q + head * p.q_strides.head), of_q[h]);
#pragma unroll
        for (int32_t i = 0; i < VECTOR; i++)
            of_q[h][i] *= p.scale * FIG_NUMERIC_LOG2_E;
    }
}

/* Processes one token in each slot of the warp. */
template <class pair, int32_t LANES>
static __device__ __forceinline__ void see_token(const float of_q[HEADS][VECTOR], const uint4 &of_k,
                                                 const uint4 &of_v, int32_t is_seen,
                                                 whole_sum sums[HEADS]) {
    float k[VECTOR], v[VECTOR];
    unpack<pair>(of_k, k);
    unpack<pair>(of_v, v);
#pragma unroll
    for (int32_t h = 0; h < HEADS; h++) {
        float logit = 0;
#pragma unroll
        for (int32_t i = 0; i < VECTOR; i++)
            logit = fmaf(of_q[h][i], k[i], logit);
#pragma unroll
        for (int32_t apart = 1; apart < LANES; apart *= 2)
            logit += __shfl_xor_sync(0xffffffffu, logit, apart);
        see(sums[h], logit, v, is_seen);
    }
}

/* Merges the slots of each warp, then the warps of the block. */
template <int32_t DIM>
static __device__ __forceinline__ void join_block(whole_sum sums[HEADS],
                                                  whole_meeting<DIM> *meeting) {
    const int32_t LANES = DIM / VECTOR, warp = (int32_t)threadIdx.x / FIG_BLOCK_WARP;
    const int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP;
#pragma unroll
    for (int32_t h = 0; h < HEADS; h++) {
#pragma unroll
        for (int32_t apart = LANES; apart < FIG_BLOCK_WARP; apart *= 2)
            join_lane(sums[h], apart);
        if (lane >= LANES) continue;
#pragma unroll
        for (int32_t i = 0; i < VECTOR; i++)
            meeting->values[warp][h][lane * VECTOR + i] = sums[h].values[i];
        if (lane == 0) meeting->greatest[warp][h] = sums[h].greatest;
        if (lane == 0) meeting->weights[warp][h] = sums[h].weights;
    }
    __syncthreads();
    for (int32_t i = (int32_t)threadIdx.x; i < HEADS * DIM; i += THREADS) {
        const int32_t h = i / DIM, dim = i % DIM;
        float greatest = NONE, value = 0, weight = 0;
#pragma unroll
        for (int32_t w = 0; w < WARPS; w++)
            greatest = fmaxf(greatest, meeting->greatest[w][h]);
#pragma unroll
        for (int32_t w = 0; w < WARPS; w++) {
            const float shrink = power(meeting->greatest[w][h] - greatest);
            value = fmaf(meeting->values[w][h][dim], shrink, value);
            weight = fmaf(meeting->weights[w][h], shrink, weight);
        }
        meeting->joined[h][dim] = value;
        if (dim == 0) meeting->joined_greatest[h] = greatest;
        if (dim == 0) meeting->joined_weights[h] = weight;
    }
}

/* Writes the block's part of the result of the cluster. */
template <class number, int32_t DIM>
static __device__ __forceinline__ void write_out(const fig_whole_attention_params &p,
                                                 const fig_whole_attention_place &place,
                                                 int32_t rank, const whole_meeting<DIM> *meeting) {
    const int32_t of_block = HEADS * DIM / BLOCKS;
    const int32_t at = rank * of_block + (int32_t)threadIdx.x, h = at / DIM, dim = at % DIM;
    float greatest = NONE, value = 0, weight = 0, theirs[BLOCKS];
    if ((int32_t)threadIdx.x >= of_block || h >= place.heads) return;
#pragma unroll
    for (int32_t b = 0; b < BLOCKS; b++) {
        theirs[b] = read_of(&meeting->joined_greatest[h], (uint32_t)b);
        greatest = fmaxf(greatest, theirs[b]);
    }
#pragma unroll
    for (int32_t b = 0; b < BLOCKS; b++) {
        const float shrink = power(theirs[b] - greatest);
        value = fmaf(read_of(&meeting->joined[h][dim], (uint32_t)b), shrink, value);
        weight = fmaf(read_of(&meeting->joined_weights[h], (uint32_t)b), shrink, weight);
    }
    const int64_t head = place.q_head + h;
    number *out = (number *)p.out + place.row * p.out_strides.row + head * p.out_strides.head;
    store(out + dim, value / weight);
    if (dim == 0 && p.lse != NULL)
        p.lse[place.row * p.lse_stride + head] = greatest + log2f(weight);
}

template <class number, class pair, int32_t DIM>
static __device__ __forceinline__ void whole_attention(const fig_whole_attention_params &p) {
    /* lanes of a token; tokens of a turn */
    const int32_t LANES = DIM / VECTOR, TOKENS = FIG_BLOCK_WARP / LANES;
    __shared__ whole_meeting<DIM> meeting;
    const int32_t rank = (int32_t)blockIdx.x % BLOCKS;
    const fig_whole_attention_place place =
        fig_whole_attention_place_of(&p, (int32_t)blockIdx.x / BLOCKS);
    const int32_t warp = (int32_t)threadIdx.x / FIG_BLOCK_WARP;
    const int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP, part = lane % LANES * VECTOR;
    const int32_t step = WARPS * TOKENS, end = fig_whole_attention_first(&p, rank + 1);
    int32_t token = fig_whole_attention_first(&p, rank) + warp * TOKENS + lane / LANES;
    whole_tokens<number> tokens;
    whole_sum sums[HEADS];
    float of_q[HEADS][VECTOR];
    tokens.k = (const number *)p.k_cache + place.row * p.k_cache_strides.page +
               place.kv_head * p.k_cache_strides.head + part;
    tokens.v = (const number *)p.v_cache + place.row * p.v_cache_strides.page +
               place.kv_head * p.v_cache_strides.head + part;
    fig_block_wait();
    fig_block_trigger();
#pragma unroll
    for (int32_t i = 0; i < TURNS; i++)
        ask(p, token + i * step, i, &tokens);
    load_q<number, pair>(p, place, part, of_q);
#pragma unroll
    for (int32_t h = 0; h < HEADS; h++)
        sums[h] = {NONE, 0, {0}};
        /* The lanes of a warp leave the loop together: a turn begins with the token of the warp's
         * first slot. */
#pragma unroll 1
    for (; token - lane / LANES < end; token += TURNS * step) {
#pragma unroll
        for (int32_t i = 0; i < TURNS; i++) {
            const uint4 k = tokens.of_k[i], v = tokens.of_v[i];
            const int32_t at = token + i * step;
            ask(p, at + TURNS * step, i, &tokens);
            see_token<pair, LANES>(of_q, k, v, at < end, sums);
        }
    }
    join_block<DIM>(sums, &meeting);
    cluster_meet();
    write_out<number, DIM>(p, place, rank, &meeting);
    cluster_meet(); /* No block may end while another reads its shared memory. */
}

#define ENTRY(name, number, pair, dim)                                                             \
    extern "C" __global__ void __cluster_dims__(BLOCKS, 1, 1) __launch_bounds__(THREADS)           \
        fig_kernel_whole_attention_##name##_##dim(                                                 \
            const __grid_constant__ fig_whole_attention_params p) {                                \
        whole_attention<number, pair, dim>(p);                                                     \
    }
#define EACH(wide, codes, short_wide, short_codes, whole, name, number, pair, dim)                 \
    FIG_HEAD_DIMS_IF(whole, ENTRY(name, number, pair, dim))

FIG_HEAD_DIMS(EACH, f16, __half, __half2)
FIG_HEAD_DIMS(EACH, bf16, __nv_bfloat16, __nv_bfloat162)
