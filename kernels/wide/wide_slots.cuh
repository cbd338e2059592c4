/* wide_slots.cuh: leaves the results of vectors in shared strips, and merges them.
 *
 * Several strips have results of such a vector: those of the prefixes that its row shares, and that
 * of the row's own tokens. Each result lies in a slot, and a counter of the vector tells which one
 * came last; whoever left that one merges all slots, in their order. The warps of a warpgroup merge
 * at once if they have many vectors. A row of few query tokens fills only a part of one warp's
 * vectors, while the other warps wait, and a merge takes as long as the products of some tiles. So
 * this warp orders the merge from a warp of the filling warpgroup and goes on.
 *
 * Invariant: the bits of a merged vector do not depend on which warp merges. */
#ifndef FIG_KERNELS_WIDE_SLOTS_CUH
#define FIG_KERNELS_WIDE_SLOTS_CUH

#include "kernels/wide/wide_leave.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* A vector of a shared strip: the results of its query token and q head. */
struct fig_wide_slots {
    int64_t first;       /* the partial of slot 0 */
    int32_t stride;      /* from slot to slot */
    int32_t slot, slots; /* the strip's own, and how many there are */
    int32_t query, q_head;
    int32_t counter;
};

/* vector: of the strip's vectors from those of query token `member` on. head: the kv head. */
static __device__ __forceinline__ fig_wide_slots fig_wide_slots_of(
    const fig_prompt_attention_params &p, int32_t member, int32_t head, int32_t vector) {
    const uint8_t *strips = fig_params_strips(&p);
    const fig_strips_head *of = (const fig_strips_head *)(const void *)strips;
    const int32_t query = vector / p.ratio;
    const fig_strips_member own = fig_strips_members(strips)[member + query];
    fig_wide_slots slots;
    slots.q_head = head * p.ratio + vector - query * p.ratio;
    slots.first = fig_strips_slot(of, &own, 0, slots.q_head);
    slots.stride = p.ratio * p.kv_heads;
    slots.slot = own.slot;
    slots.slots = own.slots;
    slots.query = own.query;
    slots.counter = fig_strips_slot_counter(of, &own, slots.q_head);
    return slots;
}

/* Counts the result of a vector. Returns 1 if it was the last one. A fence before orders the
 * results before the count, and one behind it orders reads of the other results behind. */
static __device__ __forceinline__ int32_t fig_wide_count_slot(const fig_prompt_attention_params &p,
                                                              const fig_wide_slots &slots) {
    uint32_t *counter = p.counters + slots.counter;
    if (atomicAdd(counter, 1u) != (uint32_t)slots.slots - 1) return 0;
    *counter = 0;
    return 1;
}

/* ---- Merges by the warps of a warpgroup */

/* The states of a vector's results, and its state after their merge. */
struct fig_wide_slot_states {
    float shrink[FIG_STRIPS_SLOT_LIMIT]; /* the factor of each result's sums; 0: no such result */
    float greatest, weights;
};

/* Loads the states of all results at once, for a load takes longer than all the arithmetic. */
static __device__ __forceinline__ fig_wide_slot_states fig_wide_slot_states_of(
    const fig_prompt_attention_params &p, const fig_wide_slots &slots, int32_t last) {
    fig_wide_slot_states states;
    float2 loaded[FIG_STRIPS_SLOT_LIMIT];
#pragma unroll
    for (int32_t i = 0; i < FIG_STRIPS_SLOT_LIMIT; i++)
        loaded[i] =
            __ldcg((const float2 *)p.sums + slots.first + fig_size_min(i, last) * slots.stride);
    states.greatest = FIG_WIDE_NONE;
#pragma unroll
    for (int32_t i = 0; i < FIG_STRIPS_SLOT_LIMIT; i++)
        states.greatest = fmaxf(states.greatest, loaded[i].x);
    states.weights = 0.0f;
#pragma unroll
    for (int32_t i = 0; i < FIG_STRIPS_SLOT_LIMIT; i++) {
        states.shrink[i] = i <= last ? fig_wide_exp2(loaded[i].x - states.greatest) : 0.0f;
        states.weights = __fmaf_rn(loaded[i].y, states.shrink[i], states.weights);
    }
    return states;
}

/* Merges all results of the thread's vector and writes them to out if is_last. Four threads have
 * the vector. All lanes of the warp run the same loops: after a loop that only some lanes run,
 * products would not overlap. The warp's sums lie in slots by then, so their registers are free. */
template <class form>
static __device__ __forceinline__ void fig_wide_merge_slots(const fig_prompt_attention_params &p,
                                                            const fig_wide_slots &slots,
                                                            int32_t is_last, int32_t quad) {
    constexpr int32_t PAIRS = form::DIM / 8, CHUNK = PAIRS < 16 ? PAIRS : 16;
    const int32_t last = is_last ? slots.slots - 1 : 0;
    const int32_t is_short = (int32_t)__reduce_max_sync(0xffffffffu, (uint32_t)last) < 2;
    const fig_wide_slot_states states = fig_wide_slot_states_of(p, slots, last);
    const fig_wide_result result = fig_wide_result_of(p, slots.query, slots.q_head, states.greatest,
                                                      states.weights, is_last ? quad : -1);
#pragma unroll 1
    for (int32_t chunk = 0; chunk < PAIRS; chunk += CHUNK) {
        float2 sums[CHUNK] = {};
#pragma unroll
        for (int32_t slot = 0; slot < FIG_STRIPS_SLOT_LIMIT; slot++) {
            const int64_t at = slots.first + fig_size_min(slot, last) * slots.stride;
            const float2 *from = (const float2 *)(p.partials + at * form::DIM) + 4 * chunk + quad;
            if (slot >= 2 && is_short) continue; /* most vectors have two results */
#pragma unroll
            for (int32_t j = 0; j < CHUNK; j++) {
                const float2 loaded = __ldcg(from + 4 * j);
                sums[j].x = __fmaf_rn(loaded.x, states.shrink[slot], sums[j].x);
                sums[j].y = __fmaf_rn(loaded.y, states.shrink[slot], sums[j].y);
            }
        }
        if (!is_last) continue;
        uint32_t *to = (uint32_t *)((uint16_t *)p.out + result.at) + 4 * chunk + quad;
#pragma unroll
        for (int32_t j = 0; j < CHUNK; j++)
            to[4 * j] =
                fig_wide_pack<form::TYPE>(sums[j].x * result.scale, sums[j].y * result.scale);
    }
}

/* Counts the results of the warp's 16 vectors and merges those that are complete. */
template <class form>
static __device__ __forceinline__ void fig_wide_end_slots(const fig_prompt_attention_params &p,
                                                          const fig_wide_way &way, int32_t row,
                                                          int32_t quad, int32_t lane) {
    fig_wide_slots slots[2];
    int32_t is_last[2] = {};
    __threadfence();
    __syncwarp();
#pragma unroll
    for (int32_t h = 0; h < 2; h++) {
        const int32_t vector = row + 8 * h;
        slots[h] = fig_wide_slots_of(p, ~way.query, way.head, vector < way.count ? vector : 0);
        if (vector < way.count && quad == 0) is_last[h] = fig_wide_count_slot(p, slots[h]);
    }
    __threadfence();
#pragma unroll
    for (int32_t h = 0; h < 2; h++) {
        is_last[h] = __shfl_sync(0xffffffffu, is_last[h], lane & ~3);
        if (__any_sync(0xffffffffu, is_last[h]))
            fig_wide_merge_slots<form>(p, slots[h], is_last[h], quad);
        __syncwarp();
    }
}

/* ---- Merges by order */

/* Merges all results of a vector. A lane has pairs of elements, WIDTH of them at a time: more would
 * not fit the registers of the filling warpgroup. */
template <class form>
static __device__ __forceinline__ void fig_wide_merge_vector(const fig_prompt_attention_params &p,
                                                             const fig_wide_slots &slots,
                                                             int32_t lane) {
    constexpr int32_t PAIRS = form::DIM / 2, WIDTH = form::DIM == 128 ? 2 : 1;
    const int64_t own = slots.first + fig_size_min(lane, slots.slots - 1) * slots.stride;
#pragma unroll 1
    for (int32_t pair = lane; pair - lane < PAIRS; pair += WIDTH * FIG_BLOCK_WARP) {
        float2 loaded[FIG_STRIPS_SLOT_LIMIT][WIDTH], sums[WIDTH] = {};
        const float2 state = __ldcg((const float2 *)p.sums + own);
        const float2 *from = (const float2 *)(p.partials + slots.first * form::DIM) + pair;
#pragma unroll
        for (int32_t slot = 0; slot < FIG_STRIPS_SLOT_LIMIT; slot++) {
            if (slot >= slots.slots) break;
#pragma unroll
            for (int32_t i = 0; i < WIDTH; i++)
                if (pair + i * FIG_BLOCK_WARP < PAIRS)
                    loaded[slot][i] =
                        __ldcg(from + slot * slots.stride * PAIRS + i * FIG_BLOCK_WARP);
        }
        float greatest = fmaxf(state.x, __shfl_xor_sync(0xffffffffu, state.x, 1)), weights = 0.0f;
        greatest = fmaxf(greatest, __shfl_xor_sync(0xffffffffu, greatest, 2));
        greatest = __shfl_sync(0xffffffffu, greatest, 0);
        const float shrink = fig_wide_exp2(state.x - greatest);
#pragma unroll
        for (int32_t slot = 0; slot < FIG_STRIPS_SLOT_LIMIT; slot++) {
            if (slot >= slots.slots) break;
            const float by = __shfl_sync(0xffffffffu, shrink, slot);
            weights = __fmaf_rn(__shfl_sync(0xffffffffu, state.y, slot), by, weights);
#pragma unroll
            for (int32_t i = 0; i < WIDTH; i++) {
                sums[i].x = __fmaf_rn(loaded[slot][i].x, by, sums[i].x);
                sums[i].y = __fmaf_rn(loaded[slot][i].y, by, sums[i].y);
            }
        }
        const fig_wide_result result =
            fig_wide_result_of(p, slots.query, slots.q_head, greatest, weights, lane);
        uint32_t *to = (uint32_t *)((uint16_t *)p.out + result.at) + pair;
#pragma unroll
        for (int32_t i = 0; i < WIDTH; i++)
            if (pair + i * FIG_BLOCK_WARP < PAIRS)
                to[i * FIG_BLOCK_WARP] =
                    fig_wide_pack<form::TYPE>(sums[i].x * result.scale, sums[i].y * result.scale);
    }
}

/* Carries out the orders of a warpgroup, in one warp, until the last one. */
template <class form>
static __device__ __forceinline__ void fig_wide_merge_orders(const fig_prompt_attention_params &p,
                                                             const fig_wide_memory<form> &memory,
                                                             int32_t group) {
    const int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP;
#pragma unroll 1
    for (uint32_t phase = 0;; phase ^= 1) {
        fig_wide_wait(&memory.state->order_full[group], phase);
        const fig_wide_order order = memory.state->orders[group];
        __syncwarp();
        fig_wide_release(&memory.state->order_empty[group]);
        if (order.count == 0) break;
        const fig_wide_slots mine =
            fig_wide_slots_of(p, order.member, order.head, fig_size_min(lane, order.count - 1));
        int32_t is_last = 0;
        __threadfence();
        if (lane < order.count) is_last = fig_wide_count_slot(p, mine);
        __threadfence();
#pragma unroll 1
        for (uint32_t left = __ballot_sync(0xffffffffu, is_last); left != 0; left &= left - 1) {
            const int32_t from = __ffs((int32_t)left) - 1;
            fig_wide_slots slots = mine;
            slots.first = (int64_t)__shfl_sync(0xffffffffu, (uint64_t)mine.first, from);
            slots.slots = __shfl_sync(0xffffffffu, mine.slots, from);
            slots.query = __shfl_sync(0xffffffffu, mine.query, from);
            slots.q_head = __shfl_sync(0xffffffffu, mine.q_head, from);
            fig_wide_merge_vector<form>(p, slots, lane);
        }
    }
}

/* Orders the merge of `count` vectors, or with 0 ends the work of the warp that merges. */
template <class form>
static __device__ __forceinline__ void fig_wide_order_merge(const fig_wide_memory<form> &memory,
                                                            const fig_wide_way &way, int32_t count,
                                                            int32_t group, uint32_t *phase) {
    fig_wide_wait(&memory.state->order_empty[group], *phase);
    if (threadIdx.x % FIG_BLOCK_WARP == 0) {
        memory.state->orders[group] = {~way.query, way.head, count, 0};
        fig_ring_arrive(fig_fragment_shared(&memory.state->order_full[group]));
    }
    *phase ^= 1;
    __syncwarp();
}

/* ---- */

/* Leaves the results of a warp's vectors of a shared strip in their slots. Four threads hold a
 * vector. order: the phase of the warpgroup's orders. */
template <class form>
static __device__ __forceinline__ void
fig_wide_leave_slots(const fig_prompt_attention_params &p, const fig_wide_memory<form> &memory,
                     const fig_wide_way &way, const float (&sums)[form::DIM / 2],
                     const float (&greatest)[2], const float (&weights)[2], int32_t row,
                     int32_t quad, int32_t lane, int32_t group, uint32_t *order) {
#pragma unroll
    for (int32_t h = 0; h < 2; h++) {
        const int32_t vector = row + 8 * h;
        if (vector >= way.count) continue;
        const fig_wide_slots slots = fig_wide_slots_of(p, ~way.query, way.head, vector);
        const int64_t at = slots.first + slots.slot * slots.stride;
        float2 *to = (float2 *)(p.partials + at * form::DIM) + quad;
#pragma unroll
        for (int32_t j = 0; j < form::DIM / 8; j++)
            __stcg(to + 4 * j, make_float2(sums[4 * j + 2 * h], sums[4 * j + 2 * h + 1]));
        if (quad == 0) __stcg((float2 *)p.sums + at, make_float2(greatest[h], weights[h]));
    }
    __syncwarp();
    if (fig_wide_same(way.count) <= FIG_WIDE_ORDER_LIMIT)
        fig_wide_order_merge<form>(memory, way, way.count, group, order);
    else
        fig_wide_end_slots<form>(p, way, row, quad, lane);
}

#endif
#endif
