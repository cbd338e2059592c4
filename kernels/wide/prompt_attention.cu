/* prompt_attention.cu: computes attention of rows with many query tokens, without tensor cores.
 *
 *     out[i][h] = sum over the tokens t that query i sees of softmax(l[i][h])[t] * v[t]
 *     l[i][h][t] = cap(q[i][h] . k[t] * sm_scale + alibi[h] * (t - position of i))
 *
 * A value of an 8-bit cache is the stored number times a scale. One block is one worker of the
 * strips (planner/plans/strips.h). It processes its items in order, in halves of 64 vectors.
 * Four threads share a vector and hold its queries and sums in registers. All threads together load
 * 8 tokens of K and V at a time to shared memory, in f32. The last block to finish a piece of half
 * a strip merges the pieces in their order. Premises: the launch has one block per worker of the
 * strips; head_dim is a multiple of 16. Invariant: a token that a query does not see is skipped, so
 * any bytes may lie there. */
#include "kernels/attention/logit.h"
#include "kernels/common/block.cuh"
#include "kernels/common/cache.h"
#include "kernels/common/numeric.h"
#include "planner/plans/strips.h"
#include "planner/spec/head_dims.h"

enum { THREADS = 256, TEAM = 4, TOKENS = 8, PACK = 4, SPAN = TEAM * PACK };
#define MINUS_INFINITY __int_as_float((int32_t)0xff800000u)

/* Holds tokens of one kv head: [token][dim]. */
template <int32_t DIM> struct shared_tokens {
    float4 k[TOKENS][DIM / PACK], v[TOKENS][DIM / PACK];
};

/* Holds a thread's part of a vector: dims [16 * j + 4 * quarter, 16 * j + 4 * quarter + 4) for each
 * j. */
template <int32_t DIM> struct vector_state {
    float4 q[DIM / SPAN], sums[DIM / SPAN];
    float greatest, weights;
    float scale, slope; /* of a logit: sm_scale and that of K; ALiBi's */
    int32_t low, high;  /* tokens that the query sees */
    int32_t position;   /* of the query */
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

static __device__ __forceinline__ float widen(uint16_t code, int32_t dtype) {
    return dtype == FIG_BF16 ? fig_numeric_of_bf16(code) : fig_numeric_of_f16(code);
}

static __device__ __forceinline__ float widen_code(uint8_t code, int32_t dtype) {
    return dtype == FIG_E4M3 ? fig_numeric_of_e4m3(code) : fig_numeric_of_e5m2(code);
}

static __device__ __forceinline__ float4 load_four(const void *array, int32_t dtype, int64_t at) {
    const uint8_t *codes = (const uint8_t *)array + at;
    if (dtype == FIG_F32) {
        const float *wide = (const float *)array + at;
        return make_float4(wide[0], wide[1], wide[2], wide[3]);
    }
    if (dtype == FIG_E4M3 || dtype == FIG_E5M2)
        return make_float4(widen_code(codes[0], dtype), widen_code(codes[1], dtype),
                           widen_code(codes[2], dtype), widen_code(codes[3], dtype));
    const uint16_t *from = (const uint16_t *)array + at;
    return make_float4(widen(from[0], dtype), widen(from[1], dtype), widen(from[2], dtype),
                       widen(from[3], dtype));
}

static __device__ __forceinline__ void store_one(void *array, int32_t dtype, int64_t at, float x) {
    if (dtype == FIG_F32)
        ((float *)array)[at] = x;
    else
        ((uint16_t *)array)[at] = dtype == FIG_BF16 ? fig_numeric_bf16(x) : fig_numeric_f16(x);
}

/* Loads tokens [token, token + TOKENS) of the item to shared memory. Tokens outside [low, end)
 * become zeros. */
template <int32_t DIM>
static __device__ __forceinline__ void load_tokens(const fig_prompt_attention_params &p,
                                                   const fig_strips_item &item, int32_t token,
                                                   int32_t low, shared_tokens<DIM> *shared) {
    const fig_cache_sequence sequence =
        fig_cache_sequence_of(p.page_table, p.table_stride, item.sequence, p.page_size);
    for (int32_t i = (int32_t)threadIdx.x; i < 2 * TOKENS * DIM / PACK; i += THREADS) {
        const int32_t is_v = i >= TOKENS * DIM / PACK, of = i % (TOKENS * DIM / PACK);
        const int32_t t = of / (DIM / PACK), pack = of % (DIM / PACK), at = token + t;
        const fig_cache_strides &strides = is_v ? p.v_cache_strides : p.k_cache_strides;
        float4 value = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (at >= low && at < item.end) {
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

/* Adds the tokens in shared memory to the thread's vector. The four threads of a vector see the
 * same tokens. */
template <int32_t DIM>
static __device__ __forceinline__ void see_tokens(const fig_prompt_attention_params &p,
                                                  const shared_tokens<DIM> &shared, int32_t token,
                                                  vector_state<DIM> *state) {
    const int32_t quarter = (int32_t)threadIdx.x % TEAM;
    float logits[TOKENS], greatest = state->greatest;
#pragma unroll
    for (int32_t t = 0; t < TOKENS; t++) {
        float product = 0.0f;
#pragma unroll
        for (int32_t j = 0; j < DIM / SPAN; j++) {
            const float4 k = shared.k[t][j * TEAM + quarter], q = state->q[j];
            product += q.x * k.x + q.y * k.y + q.z * k.z + q.w * k.w;
        }
        product += __shfl_xor_sync(0xffffffffu, product, 1);
        product += __shfl_xor_sync(0xffffffffu, product, 2);
        const int32_t is_seen = token + t >= state->low && token + t <= state->high;
        const float logit =
            fig_logit_lean(product * state->scale, state->slope, token + t - state->position);
        logits[t] = is_seen ? fig_logit_finish(logit, p.soft_cap) : MINUS_INFINITY;
        greatest = fmaxf(greatest, logits[t]);
    }
    const float shrink = shrink_of(state->greatest, greatest);
    state->greatest = greatest;
    state->weights *= shrink;
#pragma unroll
    for (int32_t j = 0; j < DIM / SPAN; j++)
        scale_by(&state->sums[j], shrink);
#pragma unroll
    for (int32_t t = 0; t < TOKENS; t++) {
        if (token + t < state->low || token + t > state->high) continue;
        const float weight = shrink_of(logits[t], greatest);
        state->weights += weight;
#pragma unroll
        for (int32_t j = 0; j < DIM / SPAN; j++)
            add_scaled(&state->sums[j], shared.v[t][j * TEAM + quarter], weight);
    }
}

/* Returns the packed query token of query `query` of the item. */
static __device__ __forceinline__ int64_t query_of(const fig_prompt_attention_params &p,
                                                   const fig_strips_item &item, int32_t query) {
    if (!(item.flags & FIG_STRIPS_IS_SHARED)) return item.query + query;
    return fig_strips_members(fig_params_strips(&p))[item.query + query].query;
}

/* Writes the final result of a vector of the item. */
template <int32_t DIM>
static __device__ __forceinline__ void write_out(const fig_prompt_attention_params &p,
                                                 const fig_strips_item &item, int32_t vector,
                                                 const vector_state<DIM> &state) {
    const int32_t ratio = p.ratio, quarter = (int32_t)threadIdx.x % TEAM;
    const int64_t query = query_of(p, item, vector / ratio);
    const int32_t head = item.head * ratio + vector % ratio;
    float greatest = state.greatest, weights = state.weights, shrink = 1.0f;
    if (p.sinks != NULL) {
        const float sink = p.sinks[head] * FIG_NUMERIC_LOG2_E;
        greatest = fmaxf(greatest, sink);
        shrink = shrink_of(state.greatest, greatest);
        weights = weights * shrink + shrink_of(sink, greatest);
    }
    const float v_scale = fig_cache_scale(p.v_scale, p.v_scales, item.head);
    const float scale = weights == 0.0f ? 0.0f : v_scale * shrink / weights;
    const int64_t at = query * p.out_strides.row + head * p.out_strides.head + quarter * PACK;
#pragma unroll
    for (int32_t j = 0; j < DIM / SPAN; j++) {
        const float4 x = state.sums[j];
        store_one(p.out, p.dtype, at + j * SPAN, x.x * scale);
        store_one(p.out, p.dtype, at + j * SPAN + 1, x.y * scale);
        store_one(p.out, p.dtype, at + j * SPAN + 2, x.z * scale);
        store_one(p.out, p.dtype, at + j * SPAN + 3, x.w * scale);
    }
    if (p.lse != NULL && quarter == 0)
        p.lse[query * p.lse_stride + head] = greatest + log2f(weights);
}

template <int32_t DIM> static __device__ __forceinline__ void clear(vector_state<DIM> *state) {
    state->greatest = MINUS_INFINITY;
    state->weights = 0.0f;
#pragma unroll
    for (int32_t j = 0; j < DIM / SPAN; j++)
        state->sums[j] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
}

/* Writes the thread's part of its vector to vector `at` of the partials. */
template <int32_t DIM>
static __device__ __forceinline__ void store_partial(const fig_prompt_attention_params &p,
                                                     int64_t at, const vector_state<DIM> &state) {
    const int32_t quarter = (int32_t)threadIdx.x % TEAM;
#pragma unroll
    for (int32_t j = 0; j < DIM / SPAN; j++)
        __stcg((float4 *)(p.partials + at * DIM) + j * TEAM + quarter, state.sums[j]);
    if (quarter == 0) __stcg((float2 *)p.sums + at, make_float2(state.greatest, state.weights));
}

/* Merges vector `at` of the partials into the thread's vector. */
template <int32_t DIM>
static __device__ __forceinline__ void add_partial(const fig_prompt_attention_params &p, int64_t at,
                                                   vector_state<DIM> *state) {
    const int32_t quarter = (int32_t)threadIdx.x % TEAM;
    const float2 sums = __ldcg((const float2 *)p.sums + at);
    const float4 *values = (const float4 *)(p.partials + at * DIM) + quarter;
    const float greatest = fmaxf(state->greatest, sums.x);
    const float old = shrink_of(state->greatest, greatest);
    const float own = shrink_of(sums.x, greatest);
    state->greatest = greatest;
    state->weights = state->weights * old + sums.y * own;
#pragma unroll
    for (int32_t j = 0; j < DIM / SPAN; j++) {
        scale_by(&state->sums[j], old);
        add_scaled(&state->sums[j], __ldcg(values + j * TEAM), own);
    }
}

/* Merges the pieces of the thread's vector, in the order of the line. */
template <int32_t DIM>
static __device__ __forceinline__ void merge(const fig_prompt_attention_params &p,
                                             const fig_strips_item &item, int32_t vector,
                                             vector_state<DIM> *state) {
    const int32_t strip = item.queries * p.ratio;
    int64_t at = (int64_t)item.first_partial + vector;
    clear<DIM>(state);
    for (int32_t piece = 0; piece < item.pieces; piece++, at += strip)
        add_partial<DIM>(p, at, state);
}

/* Leaves the result of a vector of a shared strip in its slot. Returns 1, in all threads of the
 * team, if it was the last of the vector's results; *state is then the merge of all of them. Warps
 * that have other vectors do not wait. */
template <int32_t DIM>
static __device__ __forceinline__ int32_t leave_slot(const fig_prompt_attention_params &p,
                                                     const fig_strips_item &item, int32_t vector,
                                                     vector_state<DIM> *state) {
    const fig_strips_head *head = (const fig_strips_head *)(const void *)fig_params_strips(&p);
    const int32_t query = vector / p.ratio, lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP;
    const int32_t q_head = item.head * p.ratio + vector % p.ratio;
    const uint32_t team = 0xfu << (lane & ~(TEAM - 1));
    const fig_strips_member member = fig_strips_members(fig_params_strips(&p))[item.query + query];
    int32_t is_last = 0;
    store_partial<DIM>(p, fig_strips_slot(head, &member, member.slot + item.slot, q_head), *state);
    __syncwarp(team);
    if (lane % TEAM == 0) {
        uint32_t *counter = p.counters + fig_strips_slot_counter(head, &member, q_head);
        __threadfence();
        is_last = atomicAdd(counter, 1u) == (uint32_t)member.slots - 1;
        __threadfence();
        if (is_last) *counter = 0;
    }
    if (!__shfl_sync(team, is_last, lane & ~(TEAM - 1))) return 0;
    clear<DIM>(state);
    for (int32_t slot = 0; slot < member.slots; slot++)
        add_partial<DIM>(p, fig_strips_slot(head, &member, slot, q_head), state);
    return 1;
}

/* Writes the thread's partial and counts the piece as finished. Returns 1 in all threads of the
 * block if the piece was the last one of the strip to finish. */
template <int32_t DIM>
static __device__ __forceinline__ int32_t leave(const fig_prompt_attention_params &p,
                                                const fig_strips_item &item, int32_t vector,
                                                int32_t exists, uint32_t *counter,
                                                const vector_state<DIM> &state) {
    int32_t is_last = 0;
    if (exists) store_partial<DIM>(p, (int64_t)item.partial + vector, state);
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        is_last = atomicAdd(counter, 1u) == (uint32_t)item.pieces - 1;
        __threadfence();
        if (is_last) *counter = 0;
    }
    return __syncthreads_or(is_last);
}

/* Processes one half of an item. */
template <int32_t DIM>
static __device__ __forceinline__ void do_half(const fig_prompt_attention_params &p,
                                               const fig_strips_item &item, int32_t half,
                                               shared_tokens<DIM> *shared) {
    const int32_t ratio = p.ratio, quarter = (int32_t)threadIdx.x % TEAM;
    const int32_t room = p.half * ratio, number = (int32_t)threadIdx.x / TEAM;
    const int32_t vector = half * room + number;
    const int32_t exists = number < room && vector < item.queries * ratio;
    const int32_t query = exists ? vector / ratio : 0;
    const int32_t tile = p.tile_tokens;
    vector_state<DIM> state;
    state.position = fig_strips_limit(&item, query);
    state.high = exists ? state.position : -1;
    state.scale = p.sm_scale * fig_cache_scale(p.k_scale, p.k_scales, item.head);
    state.slope = p.alibi != NULL ? p.alibi[item.head * ratio + vector % ratio] : 0.0f;
    state.low = fig_strips_floor(&item, p.window, state.high);
    state.high = fig_size_min(state.high, item.end - 1);
    clear<DIM>(&state);
    const int64_t q_at = query_of(p, item, query) * p.q_strides.row +
                         (item.head * ratio + vector % ratio) * p.q_strides.head + quarter * PACK;
#pragma unroll
    for (int32_t j = 0; j < DIM / SPAN; j++)
        state.q[j] = exists ? load_four(p.q, p.dtype, q_at + j * SPAN) : state.sums[j];
    const int32_t low = fig_strips_floor(&item, p.window, item.limit);
    const int32_t end = fig_size_min((item.tile + item.tiles) * tile, item.end);
    for (int32_t token = item.tile * tile; token < end; token += TOKENS) {
        __syncthreads();
        load_tokens<DIM>(p, item, token, low, shared);
        __syncthreads();
        see_tokens<DIM>(p, *shared, token, &state);
    }
    if (item.partial >= 0) {
        uint32_t *counter = p.counters + item.counter + half * (FIG_STRIPS_ARRIVALS / 2);
        if (!leave<DIM>(p, item, vector, exists, counter, state)) return;
        if (exists) merge<DIM>(p, item, vector, &state);
    }
    if (!exists) return;
    if (item.flags & FIG_STRIPS_IS_SHARED && !leave_slot<DIM>(p, item, vector, &state)) return;
    write_out<DIM>(p, item, vector, state);
}

template <int32_t DIM>
static __device__ __forceinline__ void attend(const fig_prompt_attention_params &p) {
    __shared__ shared_tokens<DIM> shared;
    fig_block_enter(0);
    const uint8_t *strips = fig_params_strips(&p);
    if (strips == NULL) return;
    const int32_t end = fig_strips_ranges(strips)[blockIdx.x + 1];
    for (int32_t i = fig_strips_ranges(strips)[blockIdx.x]; i < end; i++) {
        fig_strips_item item = fig_strips_items(strips, p.workers)[i];
        for (int32_t number = 0; number < item.heads; number++, item.head++) {
            do_half<DIM>(p, item, 0, &shared);
            if (!(item.flags & FIG_STRIPS_LONE)) do_half<DIM>(p, item, 1, &shared);
        }
    }
}

#define INSTANCE(wide, codes, short_wide, short_codes, whole, none, dims)                          \
    extern "C" __global__ void __launch_bounds__(THREADS) fig_kernel_prompt_attention_##dims(      \
        const __grid_constant__ fig_prompt_attention_params p) {                                   \
        attend<dims>(p);                                                                           \
    }
FIG_HEAD_DIMS(INSTANCE, )
