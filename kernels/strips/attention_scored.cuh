/* attention_scored.cuh: marks the place where a score takes the place of a logit, on tensor cores.
 *
 * Only templates include this file: PTX of the attention kernels that the library completes at run
 * time, once for each score (graphs/scores/score_ptx.c). Inline assembly goes verbatim into PTX, so
 * one instruction with a comment marks the place and names the registers of the terms. As it
 * stands, the instruction makes the score `score`, so a template is a valid program too. Invariant:
 * the operands have the order of the terms in figraph_scores.h. */
#ifndef FIG_KERNELS_ATTENTION_SCORED_CUH
#define FIG_KERNELS_ATTENTION_SCORED_CUH

#include "kernels/strips/attention_form.cuh"

/* Returns the score in base 2. The constant is log2(e). */
static __device__ __forceinline__ float fig_scored_logit(float logit, int32_t q_pos, int32_t kv_pos,
                                                         int32_t kv_length, int32_t head,
                                                         int32_t kv_head, int32_t row) {
    float score;
    asm("mul.rn.f32 %0, %1, 0f3FB8AA3B; // fig_score %0 %1 %2 %3 %4 %5 %6 %7"
        : "=f"(score)
        : "f"(logit), "r"(q_pos), "r"(kv_pos), "r"(kv_length), "r"(head), "r"(kv_head), "r"(row));
    return score;
}

/* Replaces the logits of 16 tokens by scores. Logit i belongs to token `token` + i / 2 * 8 and
 * vector i % 2. A lane without a vector computes a score that nobody reads. */
template <class form>
static __device__ __forceinline__ void
fig_scored_replace(const fig_attention_params &p, const fig_ring_note &note,
                   const fig_warps_role &role, const fig_partials_place &place,
                   const fig_warps_seen<form> &seen, int32_t token, float (&logits)[4]) {
    const int32_t heads[] = {
        fig_partials_vector(place, fig_size_min(2 * role.column, role.count - 1)).q_head,
        fig_partials_vector(place, fig_size_min(2 * role.column + 1, role.count - 1)).q_head};
#pragma unroll
    for (int32_t i = 0; i < 4; i++)
        logits[i] = fig_scored_logit(logits[i], fig_warps_position(p, note, seen.query[i % 2]),
                                     token + i / 2 * 8, place.kv_length, heads[i % 2],
                                     place.kv_head, place.row);
}

/* The tokens of a step that its vectors do not see, as ballots over the warp: word i has the lanes
 * whose logit i is -inf. */
typedef struct fig_scored_hidden {
    uint32_t lanes[4];
} fig_scored_hidden;

static __device__ __forceinline__ fig_scored_hidden fig_scored_hidden_of(const float (&logits)[4]) {
    fig_scored_hidden hidden;
#pragma unroll
    for (int32_t i = 0; i < 4; i++)
        hidden.lanes[i] = __ballot_sync(0xffffffffu, logits[i] == -INFINITY);
    return hidden;
}

/* The 16 tokens of one vector: bit 4 t of `low` is set if the vector does not see token t, and bit
 * 4 t of `high` if it does not see token t + 8. */
typedef struct fig_scored_mask {
    uint32_t low, high;
} fig_scored_mask;

static __device__ __forceinline__ fig_scored_mask
fig_scored_mask_of(const fig_scored_hidden &hidden, int32_t vector) {
    const int32_t odd = vector % 2, column = vector / 2;
    const fig_scored_mask mask = {(odd ? hidden.lanes[1] : hidden.lanes[0]) >> column & 0x11111111u,
                                  (odd ? hidden.lanes[3] : hidden.lanes[2]) >> column &
                                      0x11111111u};
    return mask;
}

static __device__ __forceinline__ int32_t fig_scored_is_same(fig_scored_mask a, fig_scored_mask b) {
    return a.low == b.low && a.high == b.high;
}

/* Returns all ones in each half of the word whose token is seen: tokens 2 column and 2 column + 1
 * of eight. */
static __device__ __forceinline__ uint32_t fig_scored_pair(uint32_t hidden, int32_t column) {
    const uint32_t pair = hidden >> (8 * column);
    return (pair & 1u ? 0 : 0xffffu) | (pair & 16u ? 0 : 0xffff0000u);
}

#endif
