/* many_form.cuh: describes an instance of attention over rows of many query tokens, and the state
 * that a thread of it keeps.
 *
 * A strip lies in a slot as the products of warpgroups want it: in columns of 128 bytes, swizzled,
 * each with all tokens of the strip. Owns the layout of shared memory (many.h) and the reader's
 * place in it. Invariant: nothing here depends on the tokens of a strip. */
#ifndef FIG_KERNELS_MANY_FORM_CUH
#define FIG_KERNELS_MANY_FORM_CUH

#define FIG_PIECES_PACKED 1
#include "kernels/strips/readers.cuh"
#include "kernels/wide/wide_tile.cuh"
#include "kernels/attention/many.h"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* Named barriers beside those of the ring: one for each warpgroup, one for both, and one for the
 * desk. */
enum { FIG_MANY_OWN = 1, FIG_MANY_BOTH = 3, FIG_MANY_DESK_MADE = 4 };

/* Registers per thread. Together the 12 warps use no more than the 168 per thread that they start
 * with. */
enum { FIG_MANY_FILL_REGISTERS = 56, FIG_MANY_READ_REGISTERS = 224 };

/* Holds the type and the sizes of an instance, for kv_feed.cuh and partials.cuh, then for
 * wide_tile.cuh. */
template <int32_t DTYPE, int32_t DIMS> struct fig_many_form {
    static constexpr int32_t KV_DTYPE = DTYPE;
    static constexpr int32_t HEAD_DIM = DIMS;
    static constexpr int32_t VALUE_BYTES = 2;
    static constexpr int32_t TURNS = 0;
    static constexpr int32_t IS_BULK = 1;
    static constexpr int32_t FILLERS = FIG_MANY_FILLERS;
    static constexpr int32_t STRIP = fig_many_strip(DIMS);
    static constexpr int32_t BOXES = DIMS * 2 / FIG_MANY_COLUMN;
    static constexpr int32_t PARTIAL_DIMS = fig_geometry_partial_dims(DIMS);
    static constexpr int32_t OF_VECTOR = PARTIAL_DIMS / FIG_PARTIALS_PACK; /* packs of a vector */

    typedef typename fig_wide_tag<DTYPE>::type tag;
    static constexpr int32_t TYPE = DTYPE;
    static constexpr int32_t DIM = DIMS;
    static constexpr int32_t TILE = STRIP;
    static constexpr float LIFT = DTYPE == FIG_F16 ? 7.0f : 0.0f;
    static constexpr int32_t COLUMN = FIG_MANY_COLUMN;
    static constexpr int32_t COLUMNS = BOXES;
    static constexpr int32_t GROUP_APART = 8 * COLUMN;
    static constexpr int32_t COLUMN_APART = TILE * COLUMN;
    static constexpr int32_t Q_COLUMN = FIG_MANY_GROUP_VECTORS * COLUMN;
    static constexpr int32_t HOLDS_QUERIES = 1;
    static_assert(PARTIAL_DIMS == DIMS, "a partial without gaps");
};

/* Names a thread's place among those that read. It holds vectors `row` and row + 8 of its
 * warpgroup. */
typedef struct fig_many_seat {
    int32_t group, thread, warp; /* thread: in the warpgroup; warp: in the block */
    int32_t lane, quad, row;     /* quad: the lane's number in its quad */
} fig_many_seat;

/* The vectors of a piece. If a warpgroup can hold all of them, both do, and take turns at the
 * strips; otherwise the second one has those that the first cannot hold. */
typedef struct fig_many_share {
    fig_partials_place place; /* of the warpgroup's vectors */
    int32_t takes_turns;
    float scale, rate, cap; /* from a product to a logit in base 2; cap 0: none */
    fig_wide_sight sight;   /* tokens that the thread's two vectors see */
    fig_strip_range by_all; /* tokens that every query of the row sees */
} fig_many_share;

/* Holds the state of a thread's vectors, in registers. */
template <class form> struct fig_many_seen {
    uint32_t q[form::DIM / 4];
    float sums[form::DIM / 2];
    float greatest[2], weights[2];
    /* weights whose product with V is not issued yet, in two parts; open: the slot of that V */
    uint32_t below[form::TILE / 4], rest[form::TILE / 4];
    int32_t open;
};

static __device__ __forceinline__ fig_many_seat fig_many_seat_of(void) {
    fig_many_seat seat;
    seat.warp = fig_block_warp();
    seat.group = seat.warp / (FIG_MANY_READERS / FIG_MANY_GROUPS);
    seat.thread = (int32_t)threadIdx.x % FIG_MANY_GROUP_THREADS;
    seat.lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP;
    seat.quad = seat.lane % 4;
    seat.row = seat.warp % (FIG_MANY_READERS / FIG_MANY_GROUPS) * 16 + seat.lane / 4;
    return seat;
}

/* ---- Shared memory */

static __device__ __forceinline__ uint8_t *fig_many_shared(void) {
    extern __shared__ __align__(FIG_MANY_ALIGNMENT) uint8_t shared[];
    return shared;
}

/* Returns the address of a sheet; number FIG_MANY_SHEETS is the tray. */
template <class form> static __device__ __forceinline__ uint8_t *fig_many_sheet(int32_t number) {
    return fig_many_shared() + number * fig_many_sheet_bytes(form::DIM);
}

/* The state of the desk. Loading warps fill a sheet; every reading warp empties it. */
typedef struct fig_many_desk {
    uint64_t full[FIG_MANY_SHEETS], empty[FIG_MANY_SHEETS];
    fig_plan_queries queries[FIG_MANY_SHEETS]; /* [sheet] those of the row */
    /* sums of weights that the warpgroups exchange */
    fig_partials_sum sums[FIG_MANY_GROUPS][FIG_MANY_GROUP_VECTORS];
} fig_many_desk;
static_assert(sizeof(fig_many_desk) <= FIG_MANY_DESK_BYTES, "the desk's room");

template <class form> static __device__ __forceinline__ fig_many_desk *fig_many_desk_of(void) {
    return (fig_many_desk *)(void *)fig_many_sheet<form>(FIG_MANY_SHEETS + 1);
}

template <class form> static __device__ __forceinline__ fig_ring fig_many_ring(void) {
    uint8_t *slots = fig_many_shared() + fig_many_front_bytes(form::DIM);
    static_assert(fig_many_front_bytes(form::DIM) % FIG_MANY_ALIGNMENT == 0, "swizzled slots");
    fig_ring ring;
    ring.slots = fig_fragment_shared(slots);
    ring.side_bytes = (uint32_t)fig_many_side_bytes(form::DIM);
    ring.tokens_bytes = ring.side_bytes / (form::STRIP / FIG_RING_TOKENS);
    ring.strip = form::STRIP;
    ring.slot_count = fig_many_slots(form::DIM);
    ring.readers = FIG_MANY_READERS;
    ring.slot = 0;
    ring.phase = 0;
    ring.newest = 0;
    ring.state =
        (fig_ring_state *)(void *)(slots + (uint32_t)(2 * ring.slot_count) * ring.side_bytes);
    return ring;
}

/* ---- Vectors */

/* Returns the place of all vectors of a row with these query tokens. */
static __device__ __forceinline__ fig_partials_place fig_many_place(
    const fig_attention_params &p, int32_t row, int32_t group, const fig_plan_queries &queries) {
    fig_partials_place place;
    place.row = row;
    place.group = group;
    place.base = queries.first;
    place.kv_head = group;
    place.ratio = fig_geometry_divide(p.q_heads, p.kv_heads);
    place.first = 0;
    place.count = queries.count * place.ratio;
    place.index = 0;
    place.vectors = place.ratio * p.split.row_tokens;
    place.v_scale = fig_warps_scale_of(p.v_scale, p.v_scales, group);
    return place;
}

/* Returns 1 if both warpgroups have the vectors of such a place. Where every tile is a piece, the
 * bits of a vector may not depend on the number of the row's query tokens, and so not on whether
 * warpgroups take turns. */
static __device__ __forceinline__ int32_t fig_many_takes_turns(const fig_attention_params &p,
                                                               const fig_partials_place &all) {
    return (p.split.fixed ? all.vectors : all.count) <= FIG_MANY_GROUP_VECTORS;
}

/* Sets which tokens of a piece the thread's vectors see, and which every query of the row sees. A
 * vector that does not exist sees what the last one sees. queries: number of the row's. */
static __device__ __forceinline__ void fig_many_look(const fig_attention_params &p,
                                                     const fig_ring_note &note, int32_t queries,
                                                     int32_t row, fig_many_share *share) {
    const fig_partials_place &place = share->place;
#pragma unroll
    for (int32_t h = 0; h < 2; h++) {
        const int32_t n = place.first + max(min(row + 8 * h, place.count - 1), 0);
        const fig_strip_range seen = fig_warps_sees(p, note, fig_geometry_divide(n, place.ratio));
        share->sight.low[h] = seen.first;
        share->sight.high[h] = seen.end - 1;
    }
    share->by_all.first = fig_warps_sees(p, note, queries - 1).first;
    share->by_all.end = fig_warps_sees(p, note, 0).end;
}

/* Returns the warpgroup's share of a piece, without what its vectors see. */
static __device__ __forceinline__ fig_many_share fig_many_share_of(const fig_attention_params &p,
                                                                   const fig_many_seat &seat,
                                                                   const fig_partials_place &all) {
    fig_many_share share;
    share.place = all;
    share.takes_turns = fig_wide_same(fig_many_takes_turns(p, all));
    share.place.first = share.takes_turns ? 0 : seat.group * FIG_MANY_GROUP_VECTORS;
    share.place.index = share.place.first;
    share.place.count = max(min(all.count - share.place.first, (int32_t)FIG_MANY_GROUP_VECTORS), 0);
    const float scale = p.sm_scale * fig_cache_scale(p.k_scale, p.k_scales, all.kv_head);
    share.cap = p.soft_cap * FIG_NUMERIC_LOG2_E;
    share.rate = p.soft_cap > 0.0f ? scale * 2.0f * FIG_NUMERIC_LOG2_E / p.soft_cap : 0.0f;
    share.scale = p.soft_cap > 0.0f ? 1.0f : scale * FIG_NUMERIC_LOG2_E;
    return share;
}

#endif
#endif
