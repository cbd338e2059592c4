/* many_leave.cuh: writes the results of pieces of many vectors, and merges those of cut segments.
 *
 * If both warpgroups have the vectors of a piece, each passes half of its sums to the other through
 * shared memory, and writes the other half of the dims. A pack of a partial (partials.cuh) holds
 * what a thread has of a vector in two neighbouring blocks of 8 dims. All warps of a block merge
 * its part of a segment, several vectors each at once, since the pieces of one are few and each
 * takes a trip to memory. Invariant: that of partials.cuh. */
#ifndef FIG_KERNELS_MANY_LEAVE_CUH
#define FIG_KERNELS_MANY_LEAVE_CUH

#include "kernels/many/many_form.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

enum { FIG_MANY_ABREAST = 2 }; /* vectors that a warp merges at once */

/* ---- The end of a piece */

/* Adds the other warpgroup's sums of half `HALF` of the dims to those of this one, and leaves the
 * other half to it. sheet: the piece's. Warps whose vectors do not exist only meet the others. */
template <class form, int32_t HALF>
static __device__ __forceinline__ void fig_many_join(const fig_many_seat &seat, int32_t count,
                                                     int32_t sheet, fig_many_seen<form> *seen) {
    constexpr int32_t COUNT = form::DIM / 16; /* blocks of 8 dims of a half */
    const int32_t is_idle = (seat.row & -16) >= count;
    fig_many_desk *desk = fig_many_desk_of<form>();
    float4 *places[] = {(float4 *)(void *)fig_many_sheet<form>(sheet) + seat.thread,
                        (float4 *)(void *)fig_many_sheet<form>(FIG_MANY_SHEETS) + seat.thread};
    /* All warps have taken q from the sheet, and the sums of the last piece from the tray. */
    fig_ring_meet(FIG_MANY_BOTH, FIG_MANY_GROUPS * FIG_MANY_GROUP_THREADS);
    if (!is_idle) {
#pragma unroll
        for (int32_t j = 0; j < COUNT; j++) {
            const float *sums = seen->sums + 4 * ((1 - HALF) * COUNT + j);
            places[HALF][j * FIG_MANY_GROUP_THREADS] =
                make_float4(sums[0], sums[1], sums[2], sums[3]);
        }
#pragma unroll
        for (int32_t h = 0; h < 2; h++)
            if (seat.quad == 0)
                desk->sums[HALF][seat.row + 8 * h] = {seen->greatest[h], seen->weights[h]};
    }
    fig_ring_meet(FIG_MANY_BOTH, FIG_MANY_GROUPS * FIG_MANY_GROUP_THREADS);
    if (is_idle) return;
    float own[2], others[2];
#pragma unroll
    for (int32_t h = 0; h < 2; h++) {
        const fig_partials_sum other = desk->sums[1 - HALF][seat.row + 8 * h];
        const float greatest = fmaxf(seen->greatest[h], other.greatest);
        own[h] = fig_wide_exp2(seen->greatest[h] - greatest);
        others[h] = fig_wide_exp2(other.greatest - greatest);
        seen->greatest[h] = greatest;
        seen->weights[h] = seen->weights[h] * own[h] + other.weights * others[h];
    }
#pragma unroll
    for (int32_t j = 0; j < COUNT; j++) {
        float *sums = seen->sums + 4 * (HALF * COUNT + j);
        const float4 other = places[1 - HALF][j * FIG_MANY_GROUP_THREADS];
        sums[0] = fmaf(other.x, others[0], sums[0] * own[0]);
        sums[1] = fmaf(other.y, others[0], sums[1] * own[0]);
        sums[2] = fmaf(other.z, others[1], sums[2] * own[1]);
        sums[3] = fmaf(other.w, others[1], sums[3] * own[1]);
    }
}

/* Writes COUNT blocks of 8 dims of the thread's vectors, from block FIRST on: to out if the piece
 * is whole (`partial` is below 0), and otherwise to its partial. */
template <class form, int32_t FIRST, int32_t COUNT>
static __device__ __forceinline__ void
fig_many_write(const fig_attention_params &p, const fig_many_seat &seat,
               const fig_partials_place &place, int32_t partial, const fig_many_seen<form> &seen) {
#pragma unroll
    for (int32_t h = 0; h < 2; h++) {
        const int32_t n = seat.row + 8 * h;
        if (n >= place.count) continue;
        const float *sums = seen.sums + 2 * h;
        const fig_partials_sum sum = {seen.greatest[h] == FIG_WIDE_NONE ? FIG_PARTIALS_NONE
                                                                        : seen.greatest[h],
                                      seen.weights[h]};
        if (partial >= 0) {
            const int64_t at = fig_partials_at(place, partial) + n;
#pragma unroll
            for (int32_t j = FIRST; j < FIRST + COUNT; j += 2)
                fig_partials_leave<form>(
                    p, at, j / 2 * 4 + seat.quad,
                    make_float4(sums[4 * j], sums[4 * j + 1], sums[4 * j + 4], sums[4 * j + 5]),
                    sum);
            continue;
        }
        const fig_partials_way way = fig_partials_way_of(p, place, n);
        const fig_pieces_end end = fig_partials_end_of(way, sum);
        uint32_t *to = (uint32_t *)(void *)((uint16_t *)p.out + way.out) + seat.quad;
#pragma unroll
        for (int32_t j = FIRST; j < FIRST + COUNT; j++)
            to[4 * j] =
                fig_fragment_pair<form::TYPE>(sums[4 * j] * end.scale, sums[4 * j + 1] * end.scale);
        if (FIRST == 0 && seat.quad == 0 && p.lse != NULL) p.lse[way.lse] = end.lse;
    }
}

/* Ends a piece. sheet: its first. */
template <class form>
static __device__ __forceinline__ void fig_many_leave(const fig_attention_params &p,
                                                      const fig_many_seat &seat,
                                                      const fig_many_share &share, int32_t sheet,
                                                      int32_t partial, fig_many_seen<form> *seen) {
    constexpr int32_t HALF = form::DIM / 16;
    fig_wide_add_weights(seen->weights);
    if (share.takes_turns && seat.group == 0)
        fig_many_join<form, 0>(seat, share.place.count, sheet, seen);
    if (share.takes_turns && seat.group == 1)
        fig_many_join<form, 1>(seat, share.place.count, sheet, seen);
    if (!share.takes_turns || seat.group == 0)
        fig_many_write<form, 0, HALF>(p, seat, share.place, partial, *seen);
    if (!share.takes_turns || seat.group == 1)
        fig_many_write<form, HALF, HALF>(p, seat, share.place, partial, *seen);
}

/* ---- A merge */

/* Writes the lane's pack of a merged vector. */
template <class form>
static __device__ __forceinline__ void
fig_many_write_pack(const fig_attention_params &p, const fig_partials_place &place, int32_t n,
                    int32_t pack, const fig_partials_pack &of) {
    const fig_partials_way way = fig_partials_way_of(p, place, n);
    const fig_pieces_end end = fig_partials_end_of(way, of.sum);
    uint32_t *to = (uint32_t *)(void *)((uint16_t *)p.out + way.out) + pack / 4 * 8 + pack % 4;
    to[0] = fig_fragment_pair<form::TYPE>(of.joined.x * end.scale, of.joined.y * end.scale);
    to[4] = fig_fragment_pair<form::TYPE>(of.joined.z * end.scale, of.joined.w * end.scale);
    if (pack == 0 && p.lse != NULL) p.lse[way.lse] = end.lse;
}

/* What a warp merges at once: the pieces of several vectors, or lots of the pieces of one. */
typedef struct fig_many_lots {
    fig_partials_segment pieces[FIG_MANY_ABREAST];
    fig_partials_pack packs[FIG_MANY_ABREAST];
} fig_many_lots;

/* Loads a trip of all lots and waits until it has arrived. A lot without further pieces loads
 * nothing: its pieces are zeros again. */
template <class form>
static __device__ __forceinline__ void
fig_many_await(const fig_many_lots &lots, int32_t piece,
               fig_partials_loaded (&loaded)[FIG_MANY_ABREAST]) {
#pragma unroll 1
    for (int32_t looks = 0;; looks++) {
        uint32_t least = ~0u;
#pragma unroll
        for (int32_t v = 0; v < FIG_MANY_ABREAST; v++)
            if (piece < lots.pieces[v].pieces)
                fig_partials_load<form>(lots.pieces[v], lots.packs[v], piece, &loaded[v]);
#pragma unroll
        for (int32_t v = 0; v < FIG_MANY_ABREAST; v++)
            if (piece < lots.pieces[v].pieces) least = fig_partials_least(loaded[v], least);
        if (!__any_sync(0xffffffffu, least == 0)) return;
        if (looks == FIG_PARTIALS_LOOKS_LIMIT) __trap();
    }
}

/* Adds the other lots of a vector to the first one. */
static __device__ __forceinline__ void fig_many_join_lots(fig_many_lots *lots) {
    fig_partials_pack *all = &lots->packs[0];
#pragma unroll
    for (int32_t v = 1; v < FIG_MANY_ABREAST; v++) {
        const fig_partials_pack &of = lots->packs[v];
        const float greatest = fmaxf(all->sum.greatest, of.sum.greatest);
        const float own = fig_wide_exp2(all->sum.greatest - greatest);
        const float other = fig_wide_exp2(of.sum.greatest - greatest);
        all->sum = {greatest, all->sum.weights * own + of.sum.weights * other};
        all->joined.x = fmaf(of.joined.x, other, all->joined.x * own);
        all->joined.y = fmaf(of.joined.y, other, all->joined.y * own);
        all->joined.z = fmaf(of.joined.z, other, all->joined.z * own);
        all->joined.w = fmaf(of.joined.w, other, all->joined.w * own);
    }
}

/* Merges the pieces of `count` vectors, at most FIG_MANY_ABREAST, from vector `first` on. A place
 * without a vector repeats the first one, and its result is not used. A single vector of many
 * pieces takes half the trips if each place has a lot of its pieces; where every tile is a piece,
 * the order of pieces may not change. */
template <class form>
static __device__ __forceinline__ void
fig_many_merge_few(const fig_attention_params &p, const fig_many_seat &seat,
                   const fig_partials_place &place, const fig_partials_segment &segment,
                   int32_t first, int32_t count) {
    const int32_t has_trips = segment.pieces > FIG_PARTIALS_TRIP;
    const int32_t is_spread = count == 1 && has_trips && !p.split.fixed;
    fig_partials_loaded loaded[FIG_MANY_ABREAST];
    fig_many_lots lots;
#pragma unroll
    for (int32_t v = 0; v < FIG_MANY_ABREAST; v++) {
        lots.pieces[v] = is_spread ? fig_partials_every(segment, v, FIG_MANY_ABREAST) : segment;
        lots.packs[v] =
            fig_partials_pack_of<form>(p, place, first + (v < count ? v : 0), seat.lane);
        if (p.split.fixed && has_trips) fig_partials_find_greatest(segment, &lots.packs[v]);
    }
#pragma unroll 1
    for (int32_t piece = 0; piece < lots.pieces[0].pieces; piece += FIG_PARTIALS_TRIP) {
        fig_many_await<form>(lots, piece, loaded);
#pragma unroll
        for (int32_t v = 0; v < FIG_MANY_ABREAST; v++)
            fig_partials_add<form>(lots.pieces[v], loaded[v], piece, &lots.packs[v]);
    }
    if (is_spread) fig_many_join_lots(&lots);
#pragma unroll
    for (int32_t v = 0; v < FIG_MANY_ABREAST; v++)
        if (v < count && seat.lane < form::OF_VECTOR)
            fig_many_write_pack<form>(p, place, first + v, seat.lane, lots.packs[v]);
}

/* Does the block's part of a merge. place: that of all vectors of the row. */
template <class form>
static __device__ __forceinline__ void
fig_many_merge(const fig_attention_params &p, const fig_many_seat &seat,
               const fig_partials_place &place, const fig_ring &ring, const fig_ring_note &note) {
    if ((p.flags & FIG_ATTENTION_APART) != 0 && !fig_warps_is_last(p, ring, note)) return;
    const fig_partials_segment segment = fig_partials_segment_of(p, note, place.vectors);
    const fig_partials_range range = fig_partials_part(place.count, note.token, note.length);
    const int32_t abreast =
        range.end - range.first > FIG_MANY_READERS ? (int32_t)FIG_MANY_ABREAST : 1;
#pragma unroll 1
    for (int32_t n = range.first + seat.warp * abreast; n < range.end;
         n += FIG_MANY_READERS * abreast)
        fig_many_merge_few<form>(p, seat, place, segment, n, min(range.end - n, abreast));
}

#endif
#endif
