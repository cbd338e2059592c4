/* wide_rows.cuh: keeps and merges the results of rows that share prefixes.
 *
 * The own tokens of such a row are a strip of few vectors, which one warp holds. Beside them there
 * are results of the prefixes, in slots (wide_slots.cuh), which come at any time. So the warp only
 * stores its results in their slots and notes the row in a list; it counts nothing and waits for
 * nothing. When the warpgroup has no more items, all of its warps merge the rows of the list: a
 * lane looks whether all other results of a vector have come, then a warp merges two whole vectors
 * at once, with many slots on their way.
 *
 * Invariant: only the warpgroup merges the vectors of its list, because no other warp finds them
 * complete without their own results. If the others do not come soon, the warpgroup counts its own
 * results after all, and the warp that counts last merges. Both merges give a vector the same bits
 * (fig_wide_merge_slots()). */
#ifndef FIG_KERNELS_WIDE_ROWS_CUH
#define FIG_KERNELS_WIDE_ROWS_CUH

#include "kernels/wide/wide_slots.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* Stores the results of a row in their slots and notes the row. The first warp calls this
 * function; it has all vectors. */
template <class form>
static __device__ __forceinline__ void
fig_wide_keep_row(const fig_prompt_attention_params &p, const fig_wide_way &way,
                  const float (&sums)[form::DIM / 2], const float (&greatest)[2],
                  const float (&weights)[2], int32_t row, int32_t quad, int32_t lane,
                  fig_wide_row *note) {
    fig_wide_slots slots[2];
    int32_t is_vector[2];
    fig_wide_find_slots(p, way, row, slots, is_vector);
    fig_wide_store_slots<form>(p, slots, is_vector, sums, greatest, weights, quad);
    if (lane == 0) *note = {way.query, (int16_t)way.head, (int16_t)way.count};
}

/* Returns the slots of vector number `vector` of all rows of the list; slots.slots is 0 if there
 * are fewer. */
static __device__ __forceinline__ fig_wide_slots
fig_wide_listed_slots(const fig_prompt_attention_params &p, const fig_wide_row *rows, int32_t count,
                      int32_t first_slot, int32_t vector) {
    fig_wide_slots slots = {};
    int32_t number = 0;
#pragma unroll 1
    while (number < count && vector >= rows[number].count)
        vector -= rows[number++].count;
    if (number == count) return slots;
    fig_wide_way way = {};
    way.members = fig_strips_members(fig_params_strips(&p)) + rows[number].query;
    way.head = rows[number].head;
    way.first_slot = first_slot;
    return fig_wide_slots_of(p, way, vector);
}

/* Waits until all other results of the lane's vector have come, but not for long. Returns 1 if they
 * have. */
static __device__ __forceinline__ int32_t
fig_wide_await_others(const fig_prompt_attention_params &p, const fig_wide_slots &slots) {
    const int32_t is_vector = slots.slots > 0;
    int32_t is_ready = 0;
#pragma unroll 1
    for (int32_t look = 0; look < FIG_WIDE_LOOKS_FOR_OTHERS; look++) {
        if (is_vector && !is_ready) is_ready = fig_wide_lacks_one(p, slots);
        if (!__any_sync(0xffffffffu, is_vector && !is_ready)) return is_ready;
    }
    fig_wide_order_memory();
    if (is_vector && !is_ready) is_ready = fig_wide_count_slot(p, slots);
    fig_wide_order_memory();
    return is_ready;
}

enum { FIG_WIDE_MERGES = 2 }; /* vectors that a warp merges at once */

/* A vector that a warp merges. */
struct fig_wide_vector {
    int64_t first;
    int32_t last, query, q_head; /* last: the number of its own slot */
};

/* Returns the vector of a lane. */
static __device__ __forceinline__ fig_wide_vector fig_wide_vector_of(const fig_wide_slots &slots,
                                                                     int32_t lane) {
    fig_wide_vector vector;
    vector.first = __shfl_sync(0xffffffffu, slots.first, lane);
    vector.last = __shfl_sync(0xffffffffu, slots.slots, lane) - 1;
    vector.query = __shfl_sync(0xffffffffu, slots.query, lane);
    vector.q_head = __shfl_sync(0xffffffffu, slots.q_head, lane);
    return vector;
}

/* Loads the states of slots [first, first + 32), one for each lane. */
static __device__ __forceinline__ float2 fig_wide_load_states(const float2 *states, int32_t stride,
                                                              int32_t first, int32_t last,
                                                              int32_t lane) {
    const int32_t slot = first + lane;
    if (slot > last) return make_float2(FIG_WIDE_NONE, 0.0f);
    return __ldcg(states + (int64_t)slot * stride);
}

/* Returns the greatest logit of all results of the vector. mine: of the lane's slot. */
static __device__ __forceinline__ float fig_wide_row_greatest(const float2 *states, int32_t stride,
                                                              int32_t last, float mine,
                                                              int32_t lane) {
#pragma unroll 1
    for (int32_t slot = lane + FIG_BLOCK_WARP; slot <= last; slot += FIG_BLOCK_WARP)
        mine = fmaxf(mine, __ldcg(states + (int64_t)slot * stride).x);
#pragma unroll
    for (int32_t mask = FIG_BLOCK_WARP / 2; mask > 0; mask /= 2)
        mine = fmaxf(mine, __shfl_xor_sync(0xffffffffu, mine, mask));
    return mine;
}

/* Loads the lane's chunks of the results in slots [slot, slot + AT_ONCE). Behind the last slot, its
 * own again: a load under a condition would wait for the one before. */
template <class form, int32_t AT_ONCE, int32_t PARTS>
static __device__ __forceinline__ void
fig_wide_load_chunks(const float4 *from, int32_t stride, int32_t slot, int32_t last,
                     const int32_t (&chunks)[PARTS], float4 (&loaded)[AT_ONCE][PARTS]) {
#pragma unroll
    for (int32_t n = 0; n < AT_ONCE; n++) {
        const int64_t at = (int64_t)fig_size_min(slot + n, last) * stride;
#pragma unroll
        for (int32_t j = 0; j < PARTS; j++)
            loaded[n][j] = __ldcg(from + at * (form::DIM / 4) + chunks[j]);
    }
}

/* A vector while it is merged. */
template <int32_t PARTS> struct fig_wide_merging {
    const float4 *from;   /* the partial of slot 0 */
    const float2 *states; /* its state */
    float2 own, mine;     /* states: of its own slot; of the lane's */
    float all, weights;
    float4 sums[PARTS];
};

/* Adds the results in slots [slot, slot + AT_ONCE) before `last`. */
template <int32_t AT_ONCE, int32_t PARTS>
static __device__ __forceinline__ void fig_wide_add_chunks(int32_t slot, int32_t last,
                                                           const float4 (&loaded)[AT_ONCE][PARTS],
                                                           fig_wide_merging<PARTS> *of) {
#pragma unroll
    for (int32_t n = 0; n < AT_ONCE; n++) {
        const int32_t from_lane = (slot + n) % FIG_BLOCK_WARP;
        const float x = __shfl_sync(0xffffffffu, of->mine.x, from_lane);
        const float y = __shfl_sync(0xffffffffu, of->mine.y, from_lane);
        const float by = slot + n < last ? fig_wide_exp2(x - of->all) : 0.0f;
        of->weights = __fmaf_rn(y, by, of->weights);
#pragma unroll
        for (int32_t j = 0; j < PARTS; j++) {
            of->sums[j].x = __fmaf_rn(loaded[n][j].x, by, of->sums[j].x);
            of->sums[j].y = __fmaf_rn(loaded[n][j].y, by, of->sums[j].y);
            of->sums[j].z = __fmaf_rn(loaded[n][j].z, by, of->sums[j].z);
            of->sums[j].w = __fmaf_rn(loaded[n][j].w, by, of->sums[j].w);
        }
    }
}

/* Writes a merged vector to out. */
template <class form, int32_t PARTS>
static __device__ __forceinline__ void
fig_wide_write_row(const fig_prompt_attention_params &p, const fig_wide_vector &vector,
                   const fig_wide_merging<PARTS> &of, int32_t lane) {
    const fig_wide_result result =
        fig_wide_result_of(p, vector.query, vector.q_head, of.all, of.weights, lane);
    uint32_t *const to = (uint32_t *)((uint16_t *)p.out + result.at);
    const float by = result.scale;
#pragma unroll
    for (int32_t j = 0; j < PARTS; j++) {
        const int32_t chunk = lane + j * FIG_BLOCK_WARP, at = chunk / 4 * 8 + chunk % 4;
        if (chunk >= form::DIM / 4) continue;
        to[at] = fig_fragment_pair<form::TYPE>(of.sums[j].x * by, of.sums[j].y * by);
        to[at + 4] = fig_fragment_pair<form::TYPE>(of.sums[j].z * by, of.sums[j].w * by);
    }
}

/* Merges all results of two vectors and writes them to out. A lane has 4 dims, or 8 of 256: chunk
 * `lane` of 16 bytes, in the order of a partial. The loads of all vectors' first slots are on their
 * way before the first value is used. */
template <class form>
static __device__ __forceinline__ void
fig_wide_merge_rows(const fig_prompt_attention_params &p,
                    const fig_wide_vector (&vectors)[FIG_WIDE_MERGES], int32_t lane) {
    constexpr int32_t CHUNKS = form::DIM / 4;
    constexpr int32_t PARTS = (CHUNKS + FIG_BLOCK_WARP - 1) / FIG_BLOCK_WARP;
    constexpr int32_t AT_ONCE = 8 / PARTS; /* divides 32 */
    const int32_t stride = p.ratio * p.kv_heads;
    fig_wide_merging<PARTS> of[FIG_WIDE_MERGES];
    float4 loaded[FIG_WIDE_MERGES][AT_ONCE][PARTS];
    int32_t most = 0, chunks[PARTS];
#pragma unroll
    for (int32_t j = 0; j < PARTS; j++)
        chunks[j] = fig_size_min(lane + j * FIG_BLOCK_WARP, CHUNKS - 1);
#pragma unroll
    for (int32_t i = 0; i < FIG_WIDE_MERGES; i++) {
        const int32_t last = vectors[i].last;
        const int64_t own = (int64_t)last * stride;
        most = last > most ? last : most;
        of[i].from = (const float4 *)(p.partials + vectors[i].first * form::DIM);
        of[i].states = (const float2 *)p.sums + vectors[i].first;
        of[i].mine = fig_wide_load_states(of[i].states, stride, 0, last, lane);
        of[i].own = __ldcg(of[i].states + own);
#pragma unroll
        for (int32_t j = 0; j < PARTS; j++)
            of[i].sums[j] = __ldcg(of[i].from + own * CHUNKS + chunks[j]);
        fig_wide_load_chunks<form>(of[i].from, stride, 0, last, chunks, loaded[i]);
    }
#pragma unroll
    for (int32_t i = 0; i < FIG_WIDE_MERGES; i++) {
        of[i].all =
            fig_wide_row_greatest(of[i].states, stride, vectors[i].last, of[i].mine.x, lane);
        const float by = fig_wide_exp2(of[i].own.x - of[i].all);
        of[i].weights = of[i].own.y * by;
#pragma unroll
        for (int32_t j = 0; j < PARTS; j++)
            of[i].sums[j] = make_float4(of[i].sums[j].x * by, of[i].sums[j].y * by,
                                        of[i].sums[j].z * by, of[i].sums[j].w * by);
    }
#pragma unroll 1
    for (int32_t slot = 0;;) {
#pragma unroll
        for (int32_t i = 0; i < FIG_WIDE_MERGES; i++)
            fig_wide_add_chunks(slot, vectors[i].last, loaded[i], &of[i]);
        slot += AT_ONCE;
        if (slot >= most) break;
#pragma unroll
        for (int32_t i = 0; i < FIG_WIDE_MERGES; i++) {
            if (slot % FIG_BLOCK_WARP == 0)
                of[i].mine =
                    fig_wide_load_states(of[i].states, stride, slot, vectors[i].last, lane);
            fig_wide_load_chunks<form>(of[i].from, stride, slot, vectors[i].last, chunks,
                                       loaded[i]);
        }
    }
#pragma unroll
    for (int32_t i = 0; i < FIG_WIDE_MERGES; i++)
        fig_wide_write_row<form>(p, vectors[i], of[i], lane);
}

/* Merges the rows of the warpgroup's list. */
template <class form>
static __device__ __forceinline__ void
fig_wide_end_rows(const fig_prompt_attention_params &p, const fig_wide_row *rows, int32_t count,
                  int32_t first_slot, int32_t group, int32_t warp, int32_t lane) {
    constexpr int32_t APART = FIG_WIDE_GROUP_WARPS;
    if (count == 0) return;
    fig_ring_meet(FIG_WIDE_OWN + group, FIG_WIDE_GROUP_WARPS * FIG_BLOCK_WARP);
#pragma unroll 1
    for (int32_t first = warp;; first += FIG_BLOCK_WARP * APART) {
        const fig_wide_slots slots =
            fig_wide_listed_slots(p, rows, count, first_slot, first + lane * APART);
        const int32_t is_ready = fig_wide_await_others(p, slots);
        if (is_ready) p.counters[slots.counter] = 0;
#pragma unroll 1
        for (int32_t i = 0; i < FIG_BLOCK_WARP; i += 2) {
            if (__shfl_sync(0xffffffffu, slots.slots, i) == 0) break;
            const int32_t has_one = __shfl_sync(0xffffffffu, is_ready, i);
            const int32_t has_two = __shfl_sync(0xffffffffu, is_ready, i + 1);
            if (!has_one && !has_two) continue;
            const fig_wide_vector vectors[FIG_WIDE_MERGES] = {
                fig_wide_vector_of(slots, has_one ? i : i + 1),
                fig_wide_vector_of(slots, has_two ? i + 1 : i)};
            fig_wide_merge_rows<form>(p, vectors, lane);
        }
        if (!__all_sync(0xffffffffu, slots.slots > 0)) return;
    }
}

#endif
#endif
