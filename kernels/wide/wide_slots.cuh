/* wide_slots.cuh: leaves the results of vectors in shared strips, and merges them.
 *
 * Several strips have results of such a vector: the pieces of the prefixes that its row shares, and
 * the strip of the row's own tokens. Each result lies in a slot, and a counter of the vector tells
 * how many slots are full. The warp that fills the last slot merges all of them. A row's own result
 * has the last slot. If the row has few vectors, its warpgroup merges them (wide_rows.cuh). If it
 * has many, their warp mostly ends after all others, since workers process prefixes first. Then
 * this warp merges the others with the results in its registers, and fills no slot.
 *
 * Invariant: the bits of a merged vector do not depend on which warp merges. */
#ifndef FIG_KERNELS_WIDE_SLOTS_CUH
#define FIG_KERNELS_WIDE_SLOTS_CUH

#include "kernels/wide/wide_leave.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* How often a warp looks whether the results of others have come: some 50 us. */
enum { FIG_WIDE_LOOKS_FOR_OTHERS = 64 };

/* A vector of a shared strip: the results of its query token and q head. */
struct fig_wide_slots {
    int64_t first;       /* the partial of slot 0 */
    int32_t stride;      /* from slot to slot */
    int32_t slot, slots; /* the piece's own, and how many there are */
    int32_t query, q_head;
    int32_t counter;
};

/* vector: of the warpgroup's part of the strip. */
static __device__ __forceinline__ fig_wide_slots
fig_wide_slots_of(const fig_prompt_attention_params &p, const fig_wide_way &way, int32_t vector) {
    const int32_t query = vector / p.ratio, q_heads = p.ratio * p.kv_heads;
    const fig_strips_member own = way.members[query];
    fig_wide_slots slots;
    slots.q_head = way.head * p.ratio + vector - query * p.ratio;
    slots.first = way.first_slot + (int64_t)own.first_slot * q_heads + slots.q_head;
    slots.stride = q_heads;
    slots.slot = own.slot + way.slot;
    slots.slots = own.slots;
    slots.query = own.query;
    slots.counter = fig_strips_slot_counters(p.workers) + own.token * q_heads + slots.q_head;
    return slots;
}

/* Finds the slots of the thread's two vectors. One that does not exist gets those of vector 0. */
static __device__ __forceinline__ void fig_wide_find_slots(const fig_prompt_attention_params &p,
                                                           const fig_wide_way &way, int32_t row,
                                                           fig_wide_slots (&slots)[2],
                                                           int32_t (&is_vector)[2]) {
#pragma unroll
    for (int32_t h = 0; h < 2; h++) {
        is_vector[h] = row + 8 * h < way.count;
        slots[h] = fig_wide_slots_of(p, way, is_vector[h] ? row + 8 * h : 0);
    }
}

/* Returns 1 if all results of the vector but one have been left. */
static __device__ __forceinline__ int32_t fig_wide_lacks_one(const fig_prompt_attention_params &p,
                                                             const fig_wide_slots &slots) {
    return fig_wide_acquire(p.counters + slots.counter) == (uint32_t)slots.slots - 1;
}

/* Counts the result of a vector. Returns 1 if it was the last one. */
static __device__ __forceinline__ int32_t fig_wide_count_slot(const fig_prompt_attention_params &p,
                                                              const fig_wide_slots &slots) {
    return atomicAdd(p.counters + slots.counter, 1u) == (uint32_t)slots.slots - 1;
}

/* Returns the greatest logit of all results before the last slot, and `greatest`. The four threads
 * of the vector load a quarter of the states each. most: the largest `last` of the warp. */
static __device__ __forceinline__ float fig_wide_greatest(const fig_prompt_attention_params &p,
                                                          const fig_wide_slots &slots, int32_t last,
                                                          int32_t most, float greatest,
                                                          int32_t quad) {
    const float2 *from = (const float2 *)p.sums + slots.first;
#pragma unroll 1
    for (int32_t first = 0; first < most; first += 4) {
        const int32_t slot = first + quad;
        if (slot < last) greatest = fmaxf(greatest, __ldcg(from + (int64_t)slot * slots.stride).x);
    }
    greatest = fmaxf(greatest, __shfl_xor_sync(0xffffffffu, greatest, 1));
    return fmaxf(greatest, __shfl_xor_sync(0xffffffffu, greatest, 2));
}

/* Merges all results of the thread's vector, of which `sums`, `greatest` and `weights` hold the
 * last one, and writes them to out if is_last. The last one comes first in the sums, so that it can
 * stay in its registers. h: which of the thread's two vectors. Four threads have the vector. All
 * lanes of the warp run the same loops: after a loop that only some lanes run, products would not
 * overlap. */
template <class form>
static __device__ __forceinline__ void
fig_wide_merge_slots(const fig_prompt_attention_params &p, const fig_wide_slots &slots,
                     int32_t is_last, float (&sums)[form::DIM / 2], int32_t h, float greatest,
                     float weights, int32_t quad) {
    constexpr int32_t PAIRS = form::DIM / 8;
    constexpr int32_t PARTS = form::DIM / 16, CHUNK = PARTS < 8 ? PARTS : 8;
    constexpr int32_t AT_ONCE = form::DIM > 128 ? 1 : 3; /* more would not fit the registers */
    const int32_t last = is_last ? slots.slots - 1 : 0;
    const int32_t most = (int32_t)__reduce_max_sync(0xffffffffu, (uint32_t)last);
    const float all = fig_wide_greatest(p, slots, last, most, greatest, quad);
    const float own = fig_wide_exp2(greatest - all);
    weights *= own;
#pragma unroll
    for (int32_t j = 0; j < PAIRS; j++) {
        sums[4 * j + 2 * h] *= own;
        sums[4 * j + 2 * h + 1] *= own;
    }
#pragma unroll 1
    for (int32_t slot = 0; slot < most; slot += AT_ONCE) {
#pragma unroll
        for (int32_t chunk = 0; chunk < PARTS; chunk += CHUNK) {
            float2 states[AT_ONCE];
            float4 loaded[AT_ONCE][CHUNK];
#pragma unroll
            for (int32_t i = 0; i < AT_ONCE; i++) {
                const int32_t one = fig_size_min(slot + i, last > 0 ? last - 1 : 0);
                const int64_t at = slots.first + (int64_t)one * slots.stride;
                const float4 *from = (const float4 *)(p.partials + at * form::DIM) + quad;
                states[i] = __ldcg((const float2 *)p.sums + at);
#pragma unroll
                for (int32_t j = 0; j < CHUNK; j++)
                    loaded[i][j] = __ldcg(from + 4 * (chunk + j));
            }
#pragma unroll
            for (int32_t i = 0; i < AT_ONCE; i++) {
                const float by = slot + i < last ? fig_wide_exp2(states[i].x - all) : 0.0f;
                if (chunk == 0) weights = __fmaf_rn(states[i].y, by, weights);
#pragma unroll
                for (int32_t j = 0; j < CHUNK; j++) {
                    float *const mine = sums + 8 * (chunk + j) + 2 * h;
                    mine[0] = __fmaf_rn(loaded[i][j].x, by, mine[0]);
                    mine[1] = __fmaf_rn(loaded[i][j].y, by, mine[1]);
                    mine[4] = __fmaf_rn(loaded[i][j].z, by, mine[4]);
                    mine[5] = __fmaf_rn(loaded[i][j].w, by, mine[5]);
                }
            }
        }
    }
    const fig_wide_result result =
        fig_wide_result_of(p, slots.query, slots.q_head, all, weights, is_last ? quad : -1);
    if (!is_last) return;
    uint32_t *to = (uint32_t *)((uint16_t *)p.out + result.at) + quad;
#pragma unroll
    for (int32_t j = 0; j < PAIRS; j++)
        to[4 * j] = fig_fragment_pair<form::TYPE>(sums[4 * j + 2 * h] * result.scale,
                                                  sums[4 * j + 2 * h + 1] * result.scale);
}

/* Writes the results of a warp's vectors to their slots. */
template <class form>
static __device__ __forceinline__ void
fig_wide_store_slots(const fig_prompt_attention_params &p, const fig_wide_slots (&slots)[2],
                     const int32_t (&is_vector)[2], const float (&sums)[form::DIM / 2],
                     const float (&greatest)[2], const float (&weights)[2], int32_t quad) {
#pragma unroll
    for (int32_t h = 0; h < 2; h++) {
        if (!is_vector[h]) continue;
        const int64_t at = slots[h].first + (int64_t)slots[h].slot * slots[h].stride;
        fig_wide_store_partial<form>(p, at, sums, h, quad);
        if (quad == 0) __stcg((float2 *)p.sums + at, make_float2(greatest[h], weights[h]));
    }
    __syncwarp();
}

/* Loads the results of the last slots of a warp's vectors. */
template <class form>
static __device__ __forceinline__ void
fig_wide_load_slots(const fig_prompt_attention_params &p, const fig_wide_slots (&slots)[2],
                    float (&sums)[form::DIM / 2], float (&greatest)[2], float (&weights)[2],
                    int32_t quad) {
#pragma unroll
    for (int32_t h = 0; h < 2; h++) {
        const int64_t at = slots[h].first + (int64_t)(slots[h].slots - 1) * slots[h].stride;
        const float4 *from = (const float4 *)(p.partials + at * form::DIM) + quad;
        const float2 state = __ldcg((const float2 *)p.sums + at);
        greatest[h] = state.x;
        weights[h] = state.y;
#pragma unroll
        for (int32_t i = 0; i < form::DIM / 16; i++) {
            const float4 loaded = __ldcg(from + 4 * i);
            float *const mine = sums + 8 * i + 2 * h;
            mine[0] = loaded.x;
            mine[1] = loaded.y;
            mine[4] = loaded.z;
            mine[5] = loaded.w;
        }
    }
}

/* Finds the vectors of which only the last slot is missing, which is the warp's own. The warp has
 * no further work. It waits for the others, but not for long: they may not run before this block
 * ends. */
static __device__ __forceinline__ void fig_wide_find_last(const fig_prompt_attention_params &p,
                                                          const fig_wide_slots (&slots)[2],
                                                          const int32_t (&is_vector)[2],
                                                          int32_t quad, int32_t lane,
                                                          int32_t (&is_last)[2]) {
#pragma unroll 1
    for (int32_t look = 0; look < FIG_WIDE_LOOKS_FOR_OTHERS; look++) {
        int32_t is_missing = 0;
#pragma unroll
        for (int32_t h = 0; h < 2; h++) {
            if (is_vector[h] && quad == 0) is_last[h] = fig_wide_lacks_one(p, slots[h]);
            is_missing |= is_vector[h] && quad == 0 && !is_last[h];
        }
        if (!__any_sync(0xffffffffu, is_missing)) break;
    }
#pragma unroll
    for (int32_t h = 0; h < 2; h++)
        is_last[h] = __shfl_sync(0xffffffffu, is_last[h], lane & ~3);
}

/* Leaves the results of the vectors that are not complete in their slots, and counts them. The
 * fences order the results before the counts, and the counts before reads of other results. */
template <class form>
static __device__ __forceinline__ void
fig_wide_leave_results(const fig_prompt_attention_params &p, const fig_wide_slots (&slots)[2],
                       const int32_t (&is_vector)[2], const float (&sums)[form::DIM / 2],
                       const float (&greatest)[2], const float (&weights)[2], int32_t quad,
                       int32_t lane, int32_t (&is_last)[2]) {
    const int32_t is_left[2] = {is_vector[0] && !is_last[0], is_vector[1] && !is_last[1]};
    if (!__any_sync(0xffffffffu, is_left[0] | is_left[1])) return;
    fig_wide_store_slots<form>(p, slots, is_left, sums, greatest, weights, quad);
    fig_wide_order_memory();
#pragma unroll
    for (int32_t h = 0; h < 2; h++)
        if (is_left[h] && quad == 0) is_last[h] = fig_wide_count_slot(p, slots[h]);
#pragma unroll
    for (int32_t h = 0; h < 2; h++)
        is_last[h] = __shfl_sync(0xffffffffu, is_last[h], lane & ~3);
    if (__any_sync(0xffffffffu, is_last[0] | is_last[1])) fig_wide_order_memory();
}

/* Leaves the results of a warp's 16 vectors of a shared strip in their slots, and merges those
 * vectors that are complete. Four threads hold a vector. Changes the warp's sums. */
template <class form>
static __device__ __forceinline__ void
fig_wide_leave_slots(const fig_prompt_attention_params &p, const fig_wide_way &way,
                     float (&sums)[form::DIM / 2], float (&greatest)[2], float (&weights)[2],
                     int32_t row, int32_t quad, int32_t lane) {
    fig_wide_slots slots[2];
    int32_t is_vector[2], is_last[2] = {}, is_own = 1;
    fig_wide_find_slots(p, way, row, slots, is_vector);
#pragma unroll
    for (int32_t h = 0; h < 2; h++)
        is_own &= slots[h].slot == slots[h].slots - 1;
    is_own = __all_sync(0xffffffffu, is_own);
    if (is_own && way.is_last) fig_wide_find_last(p, slots, is_vector, quad, lane, is_last);
    fig_wide_leave_results<form>(p, slots, is_vector, sums, greatest, weights, quad, lane, is_last);
    if (!is_own && __any_sync(0xffffffffu, is_last[0] | is_last[1]))
        fig_wide_load_slots<form>(p, slots, sums, greatest, weights, quad);
#pragma unroll
    for (int32_t h = 0; h < 2; h++) {
        if (is_last[h] && quad == 0) p.counters[slots[h].counter] = 0;
        if (__any_sync(0xffffffffu, is_last[h]))
            fig_wide_merge_slots<form>(p, slots[h], is_last[h], sums, h, greatest[h], weights[h],
                                       quad);
    }
}

#endif
#endif
