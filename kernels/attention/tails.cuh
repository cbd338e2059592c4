/* tails.cuh: merges the results of tails with those of the prefixes before them.
 *
 * The tail of a row is its tokens after those that its groups share (planner/plans/plan.h). The
 * launch for strips multiplies the shared ones and leaves its results in slots of the vector. The
 * last slot is for the tail. Whichever warp of either launch comes last merges all results. If that
 * is a warp of this launch, the tail's result stays in registers. wide_slots.cuh is the other side:
 * it owns the slots and their counters, and wide_leave.cuh how a vector lies in a slot.
 *
 * Eight lanes have a vector, so a warp merges four vectors at once. A lane has pairs of packs:
 * packs 8 i + 2 q and the next one, of which the slot's float4 number 8 i + q holds the first
 * halves, and number 8 i + q + 4 the second.
 *
 * Invariant: the bits of a merged vector do not depend on which warp merges, so the products and
 * their order are those of fig_wide_merge_slots(). */
#ifndef FIG_KERNELS_TAILS_CUH
#define FIG_KERNELS_TAILS_CUH

#include "kernels/attention/partials.cuh"
#include "kernels/common/fragment.cuh"

enum {
    FIG_TAILS_LANES = 8,                                  /* of a vector */
    FIG_TAILS_VECTORS = FIG_BLOCK_WARP / FIG_TAILS_LANES, /* of a warp at once */
    FIG_TAILS_STATES = 4,                                 /* states that a lane has in flight */
    FIG_TAILS_LOADS = 2                                   /* slots that it has in flight */
};

/* A lane's part of a vector. */
template <class form> struct fig_tails_part {
    static constexpr int32_t PAIRS = form::HEAD_DIM / 64; /* pairs of packs */
    int64_t first;                                        /* index of the vector's slot 0 */
    int32_t n;        /* the vector's number in the place; -1: none */
    int32_t at, pair; /* the lane's first float4 of a slot; its first pack */
    float4 of[PAIRS][2];
    fig_partials_sum sum;
};

/* Returns the lane's part of vectors [n, n + 4) of the place, without sums. A row with a tail has a
 * single query token. */
template <class form>
static __device__ __forceinline__ fig_tails_part<form>
fig_tails_part_of(const fig_partials_place &place, int32_t n, int32_t end) {
    const int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP, own = lane % FIG_TAILS_LANES;
    fig_tails_part<form> part;
    n += lane / FIG_TAILS_LANES;
    part.n = n < end ? n : -1;
    part.first =
        place.tail.first + place.kv_head * place.ratio + place.first + (n < end ? n : end - 1);
    part.at = own / 4 * 8 * fig_tails_part<form>::PAIRS + own % 4;
    part.pair = own / 4 * 8 * fig_tails_part<form>::PAIRS + own % 4 * 2;
    return part;
}

/* Returns the counter of the part's vector. */
template <class form>
static __device__ __forceinline__ uint32_t *fig_tails_counter(const fig_attention_params &p,
                                                              const fig_partials_place &place,
                                                              const fig_tails_part<form> &part) {
    return p.slots.counters + place.tail.counter + (part.first - place.tail.first);
}

/* Returns how many results of the part's vector have been left so far, at least. */
template <class form>
static __device__ __forceinline__ uint32_t fig_tails_look(const fig_attention_params &p,
                                                          const fig_partials_place &place,
                                                          const fig_tails_part<form> &part) {
    return fig_machine_look(fig_tails_counter<form>(p, place, part));
}

/* Returns the address of the lane's float4 `number` in a slot. */
template <class form>
static __device__ __forceinline__ float4 *fig_tails_address(const fig_attention_params &p,
                                                            const fig_tails_part<form> &part,
                                                            int32_t slot, int32_t number) {
    const int64_t vector = part.first + (int64_t)slot * p.q_heads;
    return (float4 *)(p.slots.partials + vector * form::HEAD_DIM) + part.at + number;
}

/* Writes the part to the tail's slot. Other blocks read it, so it goes to L2. */
template <class form>
static __device__ __forceinline__ void fig_tails_store(const fig_attention_params &p,
                                                       const fig_partials_place &place,
                                                       const fig_tails_part<form> &part) {
    const int32_t slot = place.tail.slots - 1;
    if (part.n < 0) return;
#pragma unroll
    for (int32_t i = 0; i < fig_tails_part<form>::PAIRS; i++) {
        const float4 a = part.of[i][0], b = part.of[i][1];
        __stcg(fig_tails_address<form>(p, part, slot, 8 * i), make_float4(a.x, b.x, a.y, b.y));
        __stcg(fig_tails_address<form>(p, part, slot, 8 * i + 4), make_float4(a.z, b.z, a.w, b.w));
    }
    if (threadIdx.x % FIG_TAILS_LANES == 0)
        __stcg((float2 *)p.slots.sums + part.first + (int64_t)slot * p.q_heads,
               make_float2(part.sum.greatest, part.sum.weights));
}

/* Adds the lane's float4s of a slot, each times `by`. */
template <class form>
static __device__ __forceinline__ void
fig_tails_add(const float4 (&loaded)[2 * fig_tails_part<form>::PAIRS], float by,
              fig_tails_part<form> *part) {
#pragma unroll
    for (int32_t i = 0; i < fig_tails_part<form>::PAIRS; i++) {
        float4 *a = &part->of[i][0], *b = &part->of[i][1];
        const float4 low = loaded[2 * i], high = loaded[2 * i + 1];
        *a = make_float4(__fmaf_rn(low.x, by, a->x), __fmaf_rn(low.z, by, a->y),
                         __fmaf_rn(high.x, by, a->z), __fmaf_rn(high.z, by, a->w));
        *b = make_float4(__fmaf_rn(low.y, by, b->x), __fmaf_rn(low.w, by, b->y),
                         __fmaf_rn(high.y, by, b->z), __fmaf_rn(high.w, by, b->w));
    }
}

/* Scales the part to the greatest logit of all slots. */
template <class form>
static __device__ __forceinline__ void fig_tails_raise(const fig_attention_params &p,
                                                       const fig_partials_place &place,
                                                       fig_tails_part<form> *part) {
    const float2 *states = (const float2 *)p.slots.sums + part->first;
    const int32_t others = place.tail.slots - 1;
    float greatest = part->sum.greatest;
#pragma unroll 1
    for (int32_t slot = 0; slot < others; slot += FIG_TAILS_STATES) {
        float seen[FIG_TAILS_STATES];
#pragma unroll
        for (int32_t i = 0; i < FIG_TAILS_STATES; i++)
            seen[i] = __ldcg(states + (int64_t)min(slot + i, others - 1) * p.q_heads).x;
#pragma unroll
        for (int32_t i = 0; i < FIG_TAILS_STATES; i++)
            greatest = fmaxf(greatest, seen[i]);
    }
    const float by = fig_machine_exp2(part->sum.greatest - greatest);
    part->sum.greatest = greatest;
    part->sum.weights *= by;
#pragma unroll
    for (int32_t i = 0; i < fig_tails_part<form>::PAIRS; i++)
#pragma unroll
        for (int32_t j = 0; j < 2; j++) {
            const float4 of = part->of[i][j];
            part->of[i][j] = make_float4(of.x * by, of.y * by, of.z * by, of.w * by);
        }
}

/* Adds the results of all prefixes to the part, which then holds the sums of the whole row. */
template <class form>
static __device__ __forceinline__ void fig_tails_merge(const fig_attention_params &p,
                                                       const fig_partials_place &place,
                                                       fig_tails_part<form> *part) {
    constexpr int32_t NUMBERS = 2 * fig_tails_part<form>::PAIRS;
    const float2 *states = (const float2 *)p.slots.sums + part->first;
    const int32_t others = place.tail.slots - 1;
    fig_tails_raise<form>(p, place, part);
#pragma unroll 1
    for (int32_t slot = 0; slot < others; slot += FIG_TAILS_LOADS) {
        float4 loaded[FIG_TAILS_LOADS][NUMBERS];
        float2 state[FIG_TAILS_LOADS];
#pragma unroll
        for (int32_t i = 0; i < FIG_TAILS_LOADS; i++) {
            const int32_t one = min(slot + i, others - 1);
            state[i] = __ldcg(states + (int64_t)one * p.q_heads);
#pragma unroll
            for (int32_t j = 0; j < NUMBERS; j++)
                loaded[i][j] = __ldcg(fig_tails_address<form>(p, *part, one, 4 * j));
        }
#pragma unroll
        for (int32_t i = 0; i < FIG_TAILS_LOADS; i++) {
            if (slot + i >= others) break;
            const float by = fig_machine_exp2(state[i].x - part->sum.greatest);
            part->sum.weights = __fmaf_rn(state[i].y, by, part->sum.weights);
            fig_tails_add<form>(loaded[i], by, part);
        }
    }
}

/* Writes the result of a merged part. */
template <class form>
static __device__ __forceinline__ void fig_tails_write(const fig_attention_params &p,
                                                       const fig_partials_place &place,
                                                       const fig_tails_part<form> &part) {
    const fig_partials_way way = fig_partials_way_of(p, place, part.n);
    const fig_pieces_end end = fig_partials_end_of(way, part.sum);
    const float by = end.scale;
#pragma unroll
    for (int32_t i = 0; i < fig_tails_part<form>::PAIRS; i++) {
        const float4 a = part.of[i][0], b = part.of[i][1];
        const int32_t dim = (part.pair + 8 * i) / 8 * 32 + part.pair % 8;
        uint32_t *to = (uint32_t *)((uint16_t *)p.out + way.out + dim);
        to[0] = fig_fragment_pair<form::KV_DTYPE>(a.x * by, b.x * by);
        to[4] = fig_fragment_pair<form::KV_DTYPE>(a.y * by, b.y * by);
        to[8] = fig_fragment_pair<form::KV_DTYPE>(a.z * by, b.z * by);
        to[12] = fig_fragment_pair<form::KV_DTYPE>(a.w * by, b.w * by);
    }
    if (threadIdx.x % FIG_TAILS_LANES == 0 && p.lse != NULL) p.lse[way.lse] = end.lse;
}

/* Returns 1 in all lanes of a vector if its tail's result, which the part holds, was the last one;
 * otherwise leaves it in its slot. counted: the vector's counter as the lane saw it, which may have
 * grown. The fences order this result before its count, and counts before reads of others. */
template <class form>
static __device__ __forceinline__ int32_t fig_tails_is_last(const fig_attention_params &p,
                                                            const fig_partials_place &place,
                                                            const fig_tails_part<form> &part,
                                                            uint32_t counted) {
    const uint32_t others = (uint32_t)place.tail.slots - 1;
    const int32_t is_first = threadIdx.x % FIG_TAILS_LANES == 0 && part.n >= 0;
    uint32_t *counter = fig_tails_counter<form>(p, place, part);
    if (__any_sync(0xffffffffu, part.n >= 0 && counted < others)) {
        fig_tails_store<form>(p, place, part);
        __threadfence();
        __syncwarp();
        if (is_first) counted = atomicAdd(counter, 1u);
        counted = __shfl_sync(0xffffffffu, counted, (int32_t)threadIdx.x & -FIG_TAILS_LANES & 31);
    }
    const int32_t is_last = part.n >= 0 && counted == others;
    if (is_last && is_first) *counter = 0;
    return is_last;
}

/* Ends the row's vectors of a part, whose sums are those of the tail. */
template <class form>
static __device__ __forceinline__ void fig_tails_end(const fig_attention_params &p,
                                                     const fig_partials_place &place,
                                                     uint32_t counted, fig_tails_part<form> *part) {
    const int32_t is_last = fig_tails_is_last<form>(p, place, *part, counted);
    if (!__any_sync(0xffffffffu, is_last)) return;
    __threadfence();
    fig_tails_merge<form>(p, place, part);
    if (is_last) fig_tails_write<form>(p, place, *part);
    __syncwarp();
}

#endif
