/* scored_prompt.cu: computes attention of chunks with a score on any GPU, without tensor cores.
 *
 *     out[i][h] = sum over the tokens t that query i sees of softmax(l[i][h])[t] * v[t]
 *     l[i][h][t] = score(q[i][h] . k[t] * sm_scale)
 *
 * The params hold the nodes of the score and of its mask; prompt_score.h evaluates them. One block
 * is one worker of the strips (planner/plans/strips.h). It processes its items in order, in halves
 * of at most 64 vectors. Four threads share a vector and hold its queries and sums in registers.
 * All threads together load 8 tokens of K and V at a time to shared memory, in f32, unless the mask
 * hides them from all vectors of the half. Each of the four threads evaluates the score of two of
 * the tokens. The last block to finish a piece of half a strip merges the pieces in their order.
 *
 * Instances differ in the dims for which registers have room, and loops over dims stop at head_dim:
 * an instance for each head_dim would make the images of the library too large. Premises: the
 * launch has one block per worker of the strips; head_dim is a multiple of 16; no segment is
 * shared. Invariant: a token that a query does not see is skipped, so any bytes may lie there. */
#include "kernels/common/block.cuh"
#include "kernels/common/cache.h"
#include "kernels/wide/prompt_score.h"

enum { THREADS = 256, TEAM = 4, TOKENS = 8, PACK = 4, SPAN = TEAM * PACK };
enum { ROUNDS = TOKENS / TEAM }; /* tokens whose score a thread evaluates at a time */
static_assert(ROUNDS == 2, "the two logits of a thread change places");
#define MINUS_INFINITY __int_as_float((int32_t)0xff800000u)
#define ALL_LANES 0xffffffffu

/* Holds tokens of one kv head: [token][dim]. */
template <int32_t DIMS> struct shared_tokens {
    float4 k[TOKENS][DIMS / PACK], v[TOKENS][DIMS / PACK];
};

/* Holds a thread's part of a vector: dims [16 * j + 4 * quarter, 16 * j + 4 * quarter + 4) for each
 * j. */
template <int32_t DIMS> struct vector_state {
    float4 q[DIMS / SPAN], sums[DIMS / SPAN];
    float greatest, weights;
};

/* The query of a thread's vector. */
struct vector_query {
    fig_score_inputs inputs;
    fig_mask_sight sight; /* no tokens if the half has no such vector */
    float scale;          /* of a logit: sm_scale and that of K */
};

static __device__ __forceinline__ float shrink_of(float from, float to) {
    return from == MINUS_INFINITY ? 0.0f : exp2f(from - to);
}

static __device__ __forceinline__ void scale_by(float4 *x, float f) {
    x->x *= f;
    x->y *= f;
    x->z *= f;
    x->w *= f;
}

static __device__ __forceinline__ void add_scaled(float4 *to, const float4 &x, float f) {
    to->x += x.x * f;
    to->y += x.y * f;
    to->z += x.z * f;
    to->w += x.w * f;
}

/* Returns four values of an array. A call, because 16 copies of the code would be large. */
static __device__ __noinline__ float4 load_four(const void *array, int32_t dtype, int64_t at) {
    return make_float4(fig_numeric_load(array, dtype, at), fig_numeric_load(array, dtype, at + 1),
                       fig_numeric_load(array, dtype, at + 2),
                       fig_numeric_load(array, dtype, at + 3));
}

static __device__ __noinline__ void store_four(void *array, int32_t dtype, int64_t at, float4 x) {
    fig_numeric_store(array, dtype, at, x.x);
    fig_numeric_store(array, dtype, at + 1, x.y);
    fig_numeric_store(array, dtype, at + 2, x.z);
    fig_numeric_store(array, dtype, at + 3, x.w);
}

/* Loads tokens [token, token + TOKENS) of the item to shared memory. Tokens from item.end on become
 * zeros. */
template <int32_t DIMS>
static __device__ __forceinline__ void load_tokens(const fig_prompt_attention_params &p,
                                                   const fig_strips_item &item, int32_t token,
                                                   shared_tokens<DIMS> *shared) {
    const fig_cache_sequence sequence =
        fig_cache_sequence_of(p.page_table, p.table_stride, item.sequence, p.page_size);
    const int32_t packs = p.head_dim / PACK;
#pragma unroll 1
    for (int32_t i = (int32_t)threadIdx.x; i < 2 * TOKENS * packs; i += THREADS) {
        const int32_t is_v = i >= TOKENS * packs, of = i % (TOKENS * packs);
        const int32_t t = of / packs, pack = of % packs, at = token + t;
        const fig_cache_strides &strides = is_v ? p.v_cache_strides : p.k_cache_strides;
        float4 value = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (at < item.end) {
            int32_t page = fig_cache_page(&sequence, at);
            if (page < 0 || page >= (is_v ? p.v_pages : p.k_pages)) page = 0;
            value = load_four(is_v ? p.v_cache : p.k_cache, p.kv_dtype,
                              fig_cache_offset(&strides, &sequence, page, at) +
                                  item.head * strides.head + pack * PACK);
        }
        if (is_v)
            shared->v[t][pack] = value;
        else
            shared->k[t][pack] = value;
    }
}

/* Returns q.k of the thread's vector and a token, in all four threads of the vector. */
template <int32_t DIMS>
static __device__ __forceinline__ float product_of(const float4 *k, int32_t spans,
                                                   const vector_state<DIMS> &state) {
    const int32_t quarter = (int32_t)threadIdx.x % TEAM;
    float product = 0.0f;
#pragma unroll
    for (int32_t j = 0; j < DIMS / SPAN; j++) {
        if (j >= spans) break;
        const float4 x = k[j * TEAM + quarter], q = state.q[j];
        product += q.x * x.x + q.y * x.y + q.z * x.z + q.w * x.w;
    }
    product += __shfl_xor_sync(ALL_LANES, product, 1);
    return product + __shfl_xor_sync(ALL_LANES, product, 2);
}

/* Turns the thread's products, of tokens token + quarter + 4 * round, into logits in base 2; that
 * of a token that the vector does not see becomes -inf. Returns a bit for each of the 8 tokens, in
 * all four threads of the vector: 1 if the vector sees the token. */
static __device__ __forceinline__ uint32_t find_logits(const fig_scored_prompt_params &p,
                                                       int32_t token, vector_query *query,
                                                       float (&logits)[ROUNDS]) {
    const int32_t quarter = (int32_t)threadIdx.x % TEAM;
    uint32_t seen = 0;
#pragma unroll 1
    for (int32_t round = 0; round < ROUNDS; round++) {
        const int32_t t = round * TEAM + quarter;
        float logit = MINUS_INFINITY;
        if (fig_mask_value_sees(&query->sight, token + t)) {
            logit = fig_prompt_score_logit(&p, &query->inputs, token + t, logits[0] * query->scale);
            if (!fig_prompt_score_hides(&p, logit)) seen |= 1u << t;
        }
        logits[0] = logits[1];
        logits[1] = logit;
    }
    seen |= __shfl_xor_sync(ALL_LANES, seen, 1);
    return seen | __shfl_xor_sync(ALL_LANES, seen, 2);
}

/* Adds the tokens in shared memory to the thread's vector. All lanes of a warp call this. */
template <int32_t DIMS>
static __device__ __forceinline__ void see_tokens(const fig_scored_prompt_params &p,
                                                  const shared_tokens<DIMS> &shared, int32_t token,
                                                  vector_query *query, vector_state<DIMS> *state) {
    const int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP, quarter = lane % TEAM;
    const int32_t spans = p.attention.head_dim / SPAN;
    float logits[ROUNDS];
#pragma unroll
    for (int32_t round = 0; round < ROUNDS; round++) {
        logits[round] = 0.0f;
#pragma unroll 1
        for (int32_t n = 0; n < TEAM; n++) {
            const float product = product_of<DIMS>(shared.k[round * TEAM + n], spans, *state);
            if (n == quarter) logits[round] = product;
        }
    }
    const uint32_t seen = find_logits(p, token, query, logits);
    float greatest = fmaxf(state->greatest, fmaxf(logits[0], logits[1]));
    greatest = fmaxf(greatest, __shfl_xor_sync(ALL_LANES, greatest, 1));
    greatest = fmaxf(greatest, __shfl_xor_sync(ALL_LANES, greatest, 2));
    const float shrink = shrink_of(state->greatest, greatest);
    state->greatest = greatest;
    state->weights *= shrink;
#pragma unroll
    for (int32_t j = 0; j < DIMS / SPAN; j++)
        if (j < spans) scale_by(&state->sums[j], shrink);
#pragma unroll
    for (int32_t round = 0; round < ROUNDS; round++) {
#pragma unroll 1
        for (int32_t n = 0; n < TEAM; n++) {
            const int32_t t = round * TEAM + n;
            const float logit = __shfl_sync(ALL_LANES, logits[round], lane - quarter + n);
            if (seen >> t & 1) {
                const float weight = shrink_of(logit, greatest);
                state->weights += weight;
#pragma unroll
                for (int32_t j = 0; j < DIMS / SPAN; j++)
                    if (j < spans)
                        add_scaled(&state->sums[j], shared.v[t][j * TEAM + quarter], weight);
            }
            __syncwarp();
        }
    }
}

/* Writes the final result of a vector of the item. */
template <int32_t DIMS>
static __device__ __forceinline__ void write_out(const fig_scored_prompt_params &scored,
                                                 const fig_strips_item &item, int32_t vector,
                                                 const vector_state<DIMS> &state) {
    const fig_prompt_attention_params &p = scored.attention;
    const int32_t ratio = p.ratio, quarter = (int32_t)threadIdx.x % TEAM;
    const int64_t query = item.query + vector / ratio;
    const int32_t head = item.head * ratio + vector % ratio;
    float greatest = state.greatest, weights = state.weights, shrink = 1.0f;
    if (p.sinks != NULL) {
        const float sink = p.sinks[head] * FIG_NUMERIC_LOG2_E;
        greatest = fmaxf(greatest, sink);
        shrink = shrink_of(state.greatest, greatest);
        weights = weights * shrink + shrink_of(sink, greatest);
    }
    float scale = fig_cache_scale(p.v_scale, p.v_scales, item.head);
    scale = weights == 0.0f ? 0.0f : scale * shrink / weights;
    scale *= fig_prompt_score_factor(&scored, greatest, weights);
    const int64_t at = query * p.out_strides.row + head * p.out_strides.head + quarter * PACK;
#pragma unroll
    for (int32_t j = 0; j < DIMS / SPAN; j++) {
        float4 x = state.sums[j];
        scale_by(&x, scale);
        if (j < p.head_dim / SPAN) store_four(p.out, p.dtype, at + j * SPAN, x);
    }
    if (p.lse != NULL && quarter == 0)
        p.lse[query * p.lse_stride + head] = greatest + log2f(weights);
}

template <int32_t DIMS> static __device__ __forceinline__ void clear(vector_state<DIMS> *state) {
    state->greatest = MINUS_INFINITY;
    state->weights = 0.0f;
#pragma unroll
    for (int32_t j = 0; j < DIMS / SPAN; j++)
        state->sums[j] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
}

/* Writes the thread's part of its vector to vector `at` of the partials. */
template <int32_t DIMS>
static __device__ __forceinline__ void store_partial(const fig_prompt_attention_params &p,
                                                     int64_t at, const vector_state<DIMS> &state) {
    const int32_t quarter = (int32_t)threadIdx.x % TEAM;
    float4 *values = (float4 *)(p.partials + at * p.head_dim) + quarter;
#pragma unroll
    for (int32_t j = 0; j < DIMS / SPAN; j++)
        if (j < p.head_dim / SPAN) __stcg(values + j * TEAM, state.sums[j]);
    if (quarter == 0) __stcg((float2 *)p.sums + at, make_float2(state.greatest, state.weights));
}

/* Merges the pieces of the thread's vector, in the order of the line. */
template <int32_t DIMS>
static __device__ __forceinline__ void merge(const fig_prompt_attention_params &p,
                                             const fig_strips_item &item, int32_t vector,
                                             vector_state<DIMS> *state) {
    const int32_t strip = item.queries * p.ratio, quarter = (int32_t)threadIdx.x % TEAM;
    int64_t at = (int64_t)item.first_partial + vector;
    clear<DIMS>(state);
#pragma unroll 1
    for (int32_t piece = 0; piece < item.pieces; piece++, at += strip) {
        const float2 sums = __ldcg((const float2 *)p.sums + at);
        const float4 *values = (const float4 *)(p.partials + at * p.head_dim) + quarter;
        const float greatest = fmaxf(state->greatest, sums.x);
        const float old = shrink_of(state->greatest, greatest);
        const float own = shrink_of(sums.x, greatest);
        state->greatest = greatest;
        state->weights = state->weights * old + sums.y * own;
#pragma unroll
        for (int32_t j = 0; j < DIMS / SPAN; j++) {
            if (j >= p.head_dim / SPAN) break;
            scale_by(&state->sums[j], old);
            add_scaled(&state->sums[j], __ldcg(values + j * TEAM), own);
        }
    }
}

/* Writes the thread's partial and counts the piece as finished. Returns 1 in all threads of the
 * block if the piece was the last one of the strip to finish. */
template <int32_t DIMS>
static __device__ __forceinline__ int32_t leave(const fig_prompt_attention_params &p,
                                                const fig_strips_item &item, int32_t vector,
                                                int32_t exists, uint32_t *counter,
                                                const vector_state<DIMS> &state) {
    int32_t is_last = 0;
    if (exists) store_partial<DIMS>(p, (int64_t)item.partial + vector, state);
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        is_last = atomicAdd(counter, 1u) == (uint32_t)item.pieces - 1;
        __threadfence();
        if (is_last) *counter = 0;
    }
    return __syncthreads_or(is_last);
}

/* Returns the query of vector `vector` of the item. */
static __device__ __forceinline__ vector_query query_of(const fig_scored_prompt_params &p,
                                                        const fig_strips_item &item, int32_t vector,
                                                        int32_t exists) {
    const int32_t ratio = p.attention.ratio;
    vector_query query;
    query.inputs = fig_prompt_score_inputs(&p, &item, exists ? vector / ratio : 0,
                                           item.head * ratio + vector % ratio);
    query.sight = fig_prompt_score_sight(&p, &query.inputs);
    if (!exists) query.sight.end = query.sight.last_end = 0;
    query.scale = p.attention.sm_scale *
                  fig_cache_scale(p.attention.k_scale, p.attention.k_scales, item.head);
    return query;
}

/* Processes one half of an item. */
template <int32_t DIMS>
static __device__ __forceinline__ void do_half(const fig_scored_prompt_params &scored,
                                               const fig_strips_item &item, int32_t half,
                                               shared_tokens<DIMS> *shared) {
    const fig_prompt_attention_params &p = scored.attention;
    const int32_t ratio = p.ratio, quarter = (int32_t)threadIdx.x % TEAM;
    const int32_t room = p.half * ratio, number = (int32_t)threadIdx.x / TEAM;
    const int32_t vector = half * room + number;
    const int32_t exists = number < room && vector < item.queries * ratio;
    vector_query query = query_of(scored, item, vector, exists);
    vector_state<DIMS> state;
    clear<DIMS>(&state);
    const int64_t q_at = (item.query + vector / ratio) * p.q_strides.row +
                         (item.head * ratio + vector % ratio) * p.q_strides.head + quarter * PACK;
#pragma unroll
    for (int32_t j = 0; j < DIMS / SPAN; j++) {
        state.q[j] = state.sums[j];
        if (exists && j < p.head_dim / SPAN) state.q[j] = load_four(p.q, p.dtype, q_at + j * SPAN);
    }
    const int32_t end = fig_size_min((item.tile + item.tiles) * p.tile_tokens, item.end);
    for (int32_t token = item.tile * p.tile_tokens; token < end; token += TOKENS) {
        const int32_t next = fig_mask_value_next(&query.sight, token);
        /* The vote also tells that all threads have read the last tokens. */
        if (!__syncthreads_or(next < token + TOKENS)) continue;
        load_tokens<DIMS>(p, item, token, shared);
        __syncthreads();
        if (__any_sync(ALL_LANES, next < token + TOKENS))
            see_tokens<DIMS>(scored, *shared, token, &query, &state);
    }
    if (item.partial >= 0) {
        uint32_t *counter = p.counters + item.counter + half * (FIG_STRIPS_ARRIVALS / 2);
        if (!leave<DIMS>(p, item, vector, exists, counter, state)) return;
        if (exists) merge<DIMS>(p, item, vector, &state);
    }
    if (exists) write_out<DIMS>(scored, item, vector, state);
}

template <int32_t DIMS>
static __device__ __forceinline__ void attend(const fig_scored_prompt_params &p) {
    __shared__ shared_tokens<DIMS> shared;
    fig_block_enter(0);
    const uint8_t *strips = fig_params_strips(&p.attention);
    if (strips == NULL) return;
    const int32_t end = fig_strips_ranges(strips)[blockIdx.x + 1];
    for (int32_t i = fig_strips_ranges(strips)[blockIdx.x]; i < end; i++) {
        fig_strips_item item = fig_strips_items(strips, p.attention.workers)[i];
        const int32_t halves = item.flags & FIG_STRIPS_LONE ? 1 : 2;
        for (int32_t number = 0; number < item.heads; number++, item.head++) {
#pragma unroll 1
            for (int32_t half = 0; half < halves; half++)
                do_half<DIMS>(p, item, half, &shared);
        }
    }
}

#define INSTANCE(dims)                                                                             \
    extern "C" __global__ void __launch_bounds__(THREADS)                                          \
        fig_kernel_scored_prompt_##dims(const __grid_constant__ fig_scored_prompt_params p) {      \
        attend<dims>(p);                                                                           \
    }
INSTANCE(128)
INSTANCE(256)
