/* attention_logits.cuh: turns the products of a strip into logits, on tensor cores.
 *
 * logit.h has the formulas. Invariant: a token that a vector does not see gets the logit -inf. */
#ifndef FIG_KERNELS_ATTENTION_LOGITS_CUH
#define FIG_KERNELS_ATTENTION_LOGITS_CUH

#include "kernels/strips/attention_form.cuh"
#ifdef FIG_PIECES_SCORED
#include "kernels/strips/attention_scored.cuh"
#endif

template <class form>
static __device__ __forceinline__ void
fig_warps_hide_unseen(const fig_attention_params &p, const fig_ring_note &note,
                      const fig_warps_seen<form> &seen, int32_t token, float (&logits)[4]) {
#pragma unroll
    for (int32_t i = 0; i < 4; i++) {
        const fig_strip_range range = fig_warps_sees(p, note, seen.query[i % 2]);
        const int32_t at = token + i / 2 * 8;
        if (at < range.first || at >= range.end) logits[i] = -INFINITY;
    }
}

#ifdef FIG_PIECES_SCORED

/* Turns products into scores, for the warp's part of a strip from `token` on. */
template <class form>
static __device__ __forceinline__ void
fig_warps_scale(const fig_attention_params &p, const fig_ring_note &note,
                const fig_warps_role &role, const fig_partials_place &place,
                const fig_warps_seen<form> &seen, int32_t token, float (&logits)[form::STEPS][4]) {
#pragma unroll
    for (int32_t s = 0; s < form::STEPS; s++) {
        const int32_t mine = token + s * FIG_RING_TOKENS + role.row;
#pragma unroll
        for (int32_t i = 0; i < 4; i++)
            logits[s][i] *= seen.scale[i % 2];
        fig_scored_replace<form>(p, note, role, place, seen, mine, logits[s]);
        if (note.flags & FIG_RING_EDGE) fig_warps_hide_unseen<form>(p, note, seen, mine, logits[s]);
    }
}

#else

/* Adds ALiBi and applies the soft cap. Logit i belongs to token `token` + i / 2 * 8 and vector i %
 * 2. The loop is not unrolled: most models skip this code, so it should be short. */
template <class form>
static __device__ __forceinline__ void
fig_warps_cap(const fig_attention_params &p, const fig_ring_note &note,
              const fig_partials_place &place, const fig_warps_role &role,
              const fig_warps_seen<form> &seen, int32_t token, float (&logits)[4]) {
#pragma unroll 1
    for (int32_t i = 0; i < 4; i++) {
        const int32_t n = fig_size_min(2 * role.column + i % 2, role.count - 1);
        const float low = i % 2 ? logits[1] : logits[0], high = i % 2 ? logits[3] : logits[2];
        float logit = (i / 2 ? high : low) * (1 / FIG_NUMERIC_LOG2_E);
        if (p.alibi != NULL) {
            const int32_t query = i % 2 ? seen.query[1] : seen.query[0];
            const int32_t behind = token + i / 2 * 8 - fig_warps_position(p, note, query);
            const float slope = p.alibi[fig_partials_vector(place, n).q_head];
            logit = fig_logit_lean(logit, slope, behind);
        }
        logit = fig_logit_finish(logit, p.soft_cap);
#pragma unroll
        for (int32_t j = 0; j < 4; j++)
            logits[j] = i == j ? logit : logits[j];
    }
}

/* Turns products into logits, for the warp's part of a strip from `token` on. One branch skips the
 * rare cases, so the common steps form one straight run of instructions. */
template <class form>
static __device__ __forceinline__ void
fig_warps_scale(const fig_attention_params &p, const fig_ring_note &note,
                const fig_warps_role &role, const fig_partials_place &place,
                const fig_warps_seen<form> &seen, int32_t token, float (&logits)[form::STEPS][4]) {
    const int32_t is_capped = p.alibi != NULL || p.soft_cap > 0;
#pragma unroll
    for (int32_t s = 0; s < form::STEPS; s++)
#pragma unroll
        for (int32_t i = 0; i < 4; i++)
            logits[s][i] *= seen.scale[i % 2];
    if (__builtin_expect(!is_capped && (note.flags & FIG_RING_EDGE) == 0, 1)) return;
#pragma unroll
    for (int32_t s = 0; s < form::STEPS; s++) {
        const int32_t mine = token + s * FIG_RING_TOKENS + role.row;
        if (is_capped) fig_warps_cap<form>(p, note, place, role, seen, mine, logits[s]);
        if (note.flags & FIG_RING_EDGE) fig_warps_hide_unseen<form>(p, note, seen, mine, logits[s]);
    }
}

#endif

#endif
