/* attention_warps.cuh: computes split-K decode attention on tensor cores, in the warps that empty
 * the ring.
 *
 * A block is one worker of the split. Its first warps read strips, and its last warps bring them.
 * Warps that share a head's tokens merge their sums in shared memory at the end of a piece. From
 * shared memory the result goes to out or, if the segment is cut, to its partial.
 * attention_strip.cuh processes a strip, kv_feed.cuh brings strips from the cache, kv_ring.cuh
 * holds the ring and partials.cuh merges. Invariant: every reading warp takes all notes of the
 * ring, in their order. */
#ifndef FIG_KERNELS_ATTENTION_WARPS_CUH
#define FIG_KERNELS_ATTENTION_WARPS_CUH

#include "kernels/strips/attention_q.cuh"

/* ---- The end of a piece */

/* Returns a pack of one of the lane's vectors: four of the vector's dimensions. */
template <class form>
static __device__ __forceinline__ float4 fig_warps_pack(const fig_warps_seen<form> &seen,
                                                        int32_t pack, int32_t n) {
    const int32_t next = 2 * pack + 1 < form::TILES ? 2 * pack + 1 : 0;
    const float *even = seen.values[2 * pack], *odd = seen.values[next];
    if (2 * pack + 1 < form::TILES) return make_float4(even[n], even[n + 2], odd[n], odd[n + 2]);
    return make_float4(even[n], even[n + 2], 0, 0);
}

/* Returns the rotation of a vector's packs within each group of 8 in the join. The rotation makes
 * lanes of different columns use different banks. */
static __device__ __forceinline__ int32_t fig_warps_join_turn(int32_t n) {
    return n & 6;
}

/* Waits for the other warps that share the head's tokens. */
template <class form>
static __device__ __forceinline__ void fig_warps_meet(const fig_warps_role &role) {
    if (role.shares > 1) {
        fig_ring_meet(fig_warps_meeting(role), role.shares * FIG_BLOCK_WARP);
    } else {
        __syncwarp();
    }
}

/* Waits for the other warps that share the tokens of a strip. */
template <class form>
static __device__ __forceinline__ void fig_warps_meet_parts(const fig_warps_role &role) {
#ifdef FIG_PIECES_PACKED
    if (form::SHARES > 1) {
        fig_ring_meet(1 + role.number, form::SHARES * FIG_BLOCK_WARP);
    } else {
        __syncwarp();
    }
#else
    fig_warps_meet<form>(role);
#endif
}

/* Returns the bytes of a warp's part of the join. */
template <class form>
static __device__ __forceinline__ int32_t fig_warps_share_bytes(const fig_attention_params &p,
                                                                int32_t vectors) {
    if (!form::TURNS) return fig_geometry_join_bytes(form::HEAD_DIM, vectors);
    return fig_geometry_share_bytes(form::HEAD_DIM, vectors, p.split.row_tokens, form::SHARES);
}

/* Describes the join, where the shares of the warp's vectors are merged. */
typedef struct fig_warps_join {
    /* Share 0; fig_warps_share_at() gives the places of the others. A share is [vector][packs], and
     * its sums follow it: [vector]. */
    uint8_t *shares;
    int32_t vectors, share_bytes;
#ifdef FIG_PIECES_PACKED
    /* log2 of the shares that lie side by side, and bytes from them to the next ones */
    int32_t parts_power, turn_bytes;
#endif
} fig_warps_join;

template <class form>
static __device__ __forceinline__ fig_warps_join fig_warps_join_of(const fig_attention_params &p,
                                                                   const fig_warps_role &role,
                                                                   uint8_t *joins) {
    fig_warps_join join;
    join.vectors = fig_warps_head_vectors(p, role);
    join.share_bytes = fig_warps_share_bytes<form>(p, join.vectors);
#ifdef FIG_PIECES_PACKED
    const int32_t parts = form::SHARES;
    const int32_t number = role.first / FIG_GEOMETRY_VECTORS * p.heads_per_worker + role.head;
    join.shares = joins + number * parts * join.share_bytes;
    join.parts_power = 31 - __clz(parts);
    join.turn_bytes = role.sets * p.heads_per_worker * parts * join.share_bytes;
#else
    join.shares = joins + role.number * role.shares * join.share_bytes;
#endif
    return join;
}

/* Returns the offset of a share. A warp's share lies at the same place in all pieces. */
static __device__ __forceinline__ int32_t fig_warps_share_at(const fig_warps_join &join,
                                                             int32_t share) {
#ifdef FIG_PIECES_PACKED
    const int32_t turn = share >> join.parts_power, part = share - (turn << join.parts_power);
    return turn * join.turn_bytes + part * join.share_bytes;
#else
    return share * join.share_bytes;
#endif
}

static __device__ __forceinline__ float4 *fig_warps_packs(const fig_warps_join &join,
                                                          int32_t share) {
    return (float4 *)(join.shares + fig_warps_share_at(join, share));
}

template <class form>
static __device__ __forceinline__ fig_partials_sum *fig_warps_sums(const fig_warps_join &join,
                                                                   int32_t share) {
    return (fig_partials_sum *)(join.shares + fig_warps_share_at(join, share) +
                                join.vectors * form::PARTIAL_DIMS * 4);
}

template <class form>
static __device__ __forceinline__ void fig_warps_leave_share(const fig_warps_role &role,
                                                             const fig_warps_seen<form> &seen,
                                                             const fig_warps_join &join) {
    float weights[2] = {seen.weights[0], seen.weights[1]};
#pragma unroll
    for (int32_t apart = 4; apart < FIG_BLOCK_WARP; apart *= 2) {
        weights[0] += __shfl_xor_sync(0xffffffffu, weights[0], apart);
        weights[1] += __shfl_xor_sync(0xffffffffu, weights[1], apart);
    }
#pragma unroll
    for (int32_t i = 0; i < 2; i++) {
        const int32_t n = 2 * role.column + i;
        float4 *packs = fig_warps_packs(join, role.share) + n * form::OF_VECTOR;
        packs += role.row ^ fig_warps_join_turn(n);
        if (n >= role.count) continue;
#pragma unroll
        for (int32_t pack = 0; pack < form::PACKS; pack++)
            packs[pack * 8] = fig_warps_pack<form>(seen, pack, i);
        if (role.row == 0)
            fig_warps_sums<form>(join, role.share)[n] = {seen.greatest[i], weights[i]};
    }
}

/* Holds a vector's pack and the vector's sum, both merged over all shares. */
typedef struct fig_warps_joined {
    float4 values;
    fig_partials_sum sum;
} fig_warps_joined;

template <class form>
static __device__ __forceinline__ fig_warps_joined fig_warps_join_pack(const fig_warps_role &role,
                                                                       const fig_warps_join &join,
                                                                       int32_t n, int32_t pack) {
    const int32_t at = n * form::OF_VECTOR + (pack ^ fig_warps_join_turn(n));
    fig_warps_joined of = {make_float4(0, 0, 0, 0), {FIG_PARTIALS_NONE, 0}};
    fig_partials_sum sums[form::SHARES_AT_ONCE];
    float4 values[form::SHARES_AT_ONCE];
#ifdef FIG_PIECES_PACKED
    /* Registers do not suffice for eight shares at once. */
#pragma unroll 1
    for (int32_t s = form::SHARES_AT_ONCE; s < role.shares; s++)
        of.sum.greatest = fmaxf(of.sum.greatest, fig_warps_sums<form>(join, s)[n].greatest);
#endif
#pragma unroll
    for (int32_t s = 0; s < form::SHARES_AT_ONCE; s++) {
        if (s >= role.shares) break;
        sums[s] = fig_warps_sums<form>(join, s)[n];
        values[s] = fig_warps_packs(join, s)[at];
        of.sum.greatest = fmaxf(of.sum.greatest, sums[s].greatest);
    }
#pragma unroll
    for (int32_t s = 0; s < form::SHARES_AT_ONCE; s++) {
        if (s >= role.shares) break;
        const float shrink = fig_machine_exp2(sums[s].greatest - of.sum.greatest);
        of.sum.weights = fmaf(sums[s].weights, shrink, of.sum.weights);
        of.values.x = fmaf(values[s].x, shrink, of.values.x);
        of.values.y = fmaf(values[s].y, shrink, of.values.y);
        of.values.z = fmaf(values[s].z, shrink, of.values.z);
        of.values.w = fmaf(values[s].w, shrink, of.values.w);
    }
#ifdef FIG_PIECES_PACKED
#pragma unroll 1
    for (int32_t s = form::SHARES_AT_ONCE; s < role.shares; s++) {
        const fig_partials_sum sum = fig_warps_sums<form>(join, s)[n];
        const float4 x = fig_warps_packs(join, s)[at];
        const float shrink = fig_machine_exp2(sum.greatest - of.sum.greatest);
        of.sum.weights = fmaf(sum.weights, shrink, of.sum.weights);
        of.values = {fmaf(x.x, shrink, of.values.x), fmaf(x.y, shrink, of.values.y),
                     fmaf(x.z, shrink, of.values.z), fmaf(x.w, shrink, of.values.w)};
    }
#endif
    return of;
}

/* Describes the vectors of a place that go from the join to a partial or, if `partial` is below 0,
 * to out. */
typedef struct fig_warps_left {
    fig_partials_range range;
    int32_t partial;
    fig_partials_way way; /* destination in out of the lane's first vector */
} fig_warps_left;

/* Returns the first pack of these vectors that the lane writes. */
template <class form>
static __device__ __forceinline__ int32_t fig_warps_first(const fig_warps_role &role,
                                                          fig_partials_range range) {
    return range.first * form::OF_VECTOR + role.share * FIG_BLOCK_WARP + role.lane;
}

/* Returns the destination of that pack in out. The destination is known before the sums are, and
 * before the shares are merged. */
template <class form>
static __device__ __forceinline__ fig_partials_way
fig_warps_first_way(const fig_attention_params &p, const fig_warps_role &role,
                    const fig_partials_place &place, fig_partials_range range) {
    const int32_t first = fig_warps_first<form>(role, range);
    return fig_partials_way_of(p, place,
                               min(first, range.end * form::OF_VECTOR - 1) / form::OF_VECTOR);
}

#ifdef FIG_PIECES_TAILS

/* Does what fig_warps_finish() does, for a row with a tail. */
template <class form>
static __device__ __forceinline__ void
fig_warps_finish_tail(const fig_attention_params &p, const fig_warps_role &role,
                      const fig_partials_place &place, const fig_warps_join &join,
                      fig_partials_range range) {
    const int32_t step = role.shares * FIG_TAILS_VECTORS;
    int32_t n = range.first + role.share * FIG_TAILS_VECTORS, has_met = 0;
#pragma unroll 1
    for (; n < range.end || !has_met; n += step) {
        fig_tails_part<form> part = fig_tails_part_of<form>(place, n, range.end);
        const uint32_t counted = fig_tails_look<form>(p, place, part);
        if (!has_met) fig_warps_meet<form>(role);
        has_met = 1;
        if (n >= range.end) break;
        const int32_t own = part.n < 0 ? range.first : part.n;
#pragma unroll
        for (int32_t i = 0; i < fig_tails_part<form>::PAIRS; i++)
#pragma unroll
            for (int32_t j = 0; j < 2; j++) {
                const fig_warps_joined of =
                    fig_warps_join_pack<form>(role, join, own, part.pair + 8 * i + j);
                part.of[i][j] = of.values;
                part.sum = of.sum;
            }
        fig_tails_end<form>(p, place, counted, &part);
    }
    __syncwarp();
}

#endif

/* Returns 1 if results of the place's row go to slots. */
template <class form>
static __device__ __forceinline__ int32_t fig_warps_has_tail(const fig_partials_place &place) {
#ifdef FIG_PIECES_TAILS
    return form::VALUE_BYTES == 2 && place.tail.slots > 0;
#else
    return 0;
#endif
}

template <class form>
static __device__ __forceinline__ void
fig_warps_finish(const fig_attention_params &p, const fig_warps_role &role,
                 const fig_partials_place &place, const fig_warps_join &join,
                 const fig_warps_left &left) {
    const int32_t end = left.range.end * form::OF_VECTOR;
    int32_t i = fig_warps_first<form>(role, left.range);
#ifdef FIG_PIECES_TAILS
    if (left.partial < 0 && fig_warps_has_tail<form>(place))
        return fig_warps_finish_tail<form>(p, role, place, join, left.range);
#endif
    fig_partials_way way = left.way;
    fig_warps_meet<form>(role);
#pragma unroll 1
    while (i < end) {
        const int32_t n = i / form::OF_VECTOR, pack = i % form::OF_VECTOR;
        const fig_warps_joined of = fig_warps_join_pack<form>(role, join, n, pack);
        i += role.shares * FIG_BLOCK_WARP;
        if (left.partial < 0) {
            fig_partials_write_out<form>(p, way, pack, of.values, fig_partials_end_of(way, of.sum));
            if (i < end) way = fig_partials_way_of(p, place, i / form::OF_VECTOR);
        } else {
            fig_partials_leave<form>(p, fig_partials_at(place, left.partial) + n, pack, of.values,
                                     of.sum);
        }
    }
    __syncwarp();
}

/* ---- A merge */

/* Merges the pieces of a vector. The result goes to out or, if other warps have some of the pieces,
 * to the join. */
template <class form>
static __device__ __forceinline__ void
fig_warps_merge_vector(const fig_attention_params &p, const fig_warps_role &role,
                       const fig_partials_place &place, const fig_partials_segment &pieces,
                       const fig_warps_join &join, int32_t n, int32_t is_alone) {
    const fig_partials_way way = fig_partials_way_of(p, place, n);
#pragma unroll 1
    for (int32_t first = 0; first < form::OF_VECTOR; first += FIG_BLOCK_WARP) {
        const int32_t pack = first + role.lane;
        fig_partials_pack of = fig_partials_pack_of<form>(p, place, n, pack);
        fig_partials_join<form>(p, pieces, &of);
        if (pack >= form::OF_VECTOR) continue;
        if (is_alone) {
            const fig_pieces_end end = fig_partials_end_of(way, of.sum);
            fig_partials_write_out<form>(p, way, pack, of.joined, end);
            continue;
        }
        fig_warps_packs(join, role.share)[n * form::OF_VECTOR + (pack ^ fig_warps_join_turn(n))] =
            of.joined;
        if (pack == 0) fig_warps_sums<form>(join, role.share)[n] = of.sum;
    }
}

/* Does the block's part of a merge. Each warp merges whole vectors, so no other warp reads the sums
 * of these vectors. If there are only one or two vectors and more pieces than one trip loads,
 * several warps divide the pieces of a vector and merge their results as at the end of a piece.
 * They do not divide the pieces if each tile is a piece, because then the order of pieces must not
 * change. */
template <class form>
static __device__ __forceinline__ fig_warps_left fig_warps_merge(
    const fig_attention_params &p, const fig_warps_role &role, const fig_partials_place &place,
    const fig_ring &ring, const fig_ring_note &note, const fig_warps_join &join) {
    fig_warps_left left = {{0, 0}, -1, {0, 0, 0, 0}};
    if ((p.flags & FIG_ATTENTION_APART) != 0 && !fig_warps_is_last(p, ring, note)) return left;
    const fig_partials_segment segment = fig_partials_segment_of(p, note, role.vectors);
    const fig_partials_range range = fig_partials_part(place.count, note.token, note.length);
    const int32_t vectors = range.end - range.first;
    int32_t spread = role.shares; /* number of warps that each begin with a vector */
    if (role.shares == FIG_GEOMETRY_SHARE_LIMIT && !p.split.fixed &&
        segment.pieces > FIG_PARTIALS_TRIP)
        spread = vectors <= 1 ? 1 : vectors == 2 ? 2 : role.shares;
#ifdef FIG_PIECES_TAILS
    /* The results of a tail are joined once more, by warps that merge them with those of slots. */
    const int32_t has_tail = fig_warps_has_tail<form>(place);
    if (has_tail) spread = role.shares;
#else
    const int32_t has_tail = 0;
#endif
    const int32_t is_alone = spread == role.shares && !has_tail;
    const int32_t of_vector = spread == role.shares ? 1 : role.shares / spread;
    const int32_t mine = spread == role.shares ? role.share : role.share % spread;
    const fig_partials_segment pieces =
        fig_partials_every(segment, spread == role.shares ? 0 : role.share / spread, of_vector);
    if (!is_alone) {
        fig_warps_meet<form>(role); /* The join of the previous piece has been read. */
        left.range = range;
        left.way = fig_warps_first_way<form>(p, role, place, range);
    }
#pragma unroll 1
    for (int32_t n = is_alone ? mine : 0; n < vectors; n += is_alone ? role.shares : 1) {
        fig_partials_segment own = pieces;
        if (!is_alone && (has_tail ? n % spread : n) != mine) own.pieces = 0;
        fig_warps_merge_vector<form>(p, role, place, own, join, range.first + n, is_alone);
    }
    return left;
}

/* ---- A worker */

/* Holds the state of a worker on its way through its pieces. */
template <class form> struct fig_warps_way {
    fig_ring ring;
    fig_warps_join join;
    fig_turn<form> turn;
    int32_t has_waited;
};

/* Loads q and the scales of codes; returns the scales. Prefetches the first piece's q into L2
 * before the wait. For this it computes the address of q before the wait, too. */
template <class form>
static __device__ __forceinline__ fig_warps_scales fig_warps_bring_q(
    const fig_attention_params &p, const fig_warps_role &role, const fig_partials_place &place,
    fig_warps_way<form> *way, fig_warps_seen<form> *seen) {
    fig_warps_rows<form> rows = fig_warps_rows_of_q<form>(p, role, place);
    if (!way->has_waited) {
        for (int32_t i = 0; i < fig_warps_rows<form>::LOADS; i++)
            fig_block_prefetch(rows.from[i]);
        fig_block_wait();
    }
    fig_warps_ask_q<form>(p, &rows);
    const fig_warps_scales scales = fig_warps_scales_of(p, place.kv_head);
    fig_warps_meet<form>(role); /* The join of the previous piece has been read. */
    const int32_t share = form::SHARES > 0 ? role.share - FIG_WARPS_PART(role) : role.share;
    uint32_t *q = (uint32_t *)fig_warps_packs(way->join, share);
    fig_warps_leave_q<form>(rows, q);
    fig_warps_meet_parts<form>(role);
    fig_warps_load_q<form>(role, q, seen);
    fig_warps_meet_parts<form>(role); /* q occupies bytes that a share will overwrite. */
    return scales;
}

#ifdef FIG_PIECES_PACKED

/* Leaves all strips of a piece to other warps. */
template <class form>
static __device__ __forceinline__ fig_warps_left fig_warps_pass_piece(fig_warps_way<form> *way) {
    fig_ring_note note;
    if (!way->has_waited) fig_block_wait();
    way->has_waited = 1;
    do {
        note = fig_warps_read(way->ring);
        fig_warps_pass_strip(way->ring);
        fig_ring_next(&way->ring);
    } while ((note.flags & FIG_RING_LAST) == 0);
    const fig_warps_left left = {{0, 0}, note.partial, {0, 0, 0, 0}};
    return left;
}

#endif

/* Processes all strips of a piece. */
template <class form>
static __device__ __forceinline__ fig_warps_left fig_warps_see_piece(const fig_attention_params &p,
                                                                     const fig_warps_role &role,
                                                                     fig_partials_place *place,
                                                                     fig_warps_way<form> *way) {
    fig_warps_seen<form> seen;
    fig_warps_scales scales;
    fig_ring_note note;
#ifdef FIG_PIECES_PACKED
    int32_t strip = 0;
    if (role.turn >= role.turns) return fig_warps_pass_piece<form>(way);
#endif
    if constexpr (form::TURNS) {
        if (way->has_waited) fig_warps_meet<form>(role); /* The last join has been read. */
        scales = fig_turn_begin<form>(p, place->row, place->kv_head, way->has_waited, &way->turn,
                                      seen.q);
    } else {
        scales = fig_warps_bring_q<form>(p, role, *place, way, &seen);
    }
    way->has_waited = 1;
    place->v_scale = scales.v;
    fig_warps_take_q<form>(p, role, *place, scales.k, &seen);
    fig_warps_begin<form>(role, &seen);
    fig_warps_left left = {{0, place->count}, -1, {0, 0, 0, 0}};
    if (form::READS_EARLY) left.way = fig_warps_first_way<form>(p, role, *place, left.range);
    do {
        note = fig_warps_read(way->ring);
#ifdef FIG_PIECES_PACKED
        if (!fig_warps_has_turn(role, strip++))
            fig_warps_pass_strip(way->ring);
        else
#endif
            fig_warps_see_strip<form>(p, way->ring, note, role, *place, &way->turn, &seen);
        fig_ring_next(&way->ring);
    } while ((note.flags & FIG_RING_LAST) == 0);
    if constexpr (form::TURNS) fig_warps_meet<form>(role); /* The newest tokens have been read. */
    fig_warps_leave_share<form>(role, seen, way->join);
    left.partial = note.partial;
    if (!form::READS_EARLY && left.partial < 0)
        left.way = fig_warps_first_way<form>(p, role, *place, left.range);
    return left;
}

#ifdef FIG_PIECES_PACKED

/* Gives the warp its role in the note's piece. A merge has vectors of full rows, and so has every
 * piece of a fixed split, where the bits of a vector do not depend on its row's number of query
 * tokens. Warps that keep their vectors meet before they write to their joins. If the sets of warps
 * change, other warps will read a warp's share of the join, and a warp of the old set may still
 * read it, so all warps meet. All of them have read the same notes and agree on that. */
template <class form>
static __device__ __forceinline__ void
fig_warps_take_role(const fig_attention_params &p, const fig_warps_role &full,
                    const fig_ring_note &note, int32_t queries, fig_warps_role *role,
                    fig_warps_way<form> *way) {
    const int32_t sets = role->sets, turns = role->turns;
    const int32_t is_full = note.flags & FIG_RING_MERGE || p.split.fixed;
    *role = is_full ? full : fig_warps_role_in(p, full, queries);
    if (role->sets != sets || role->turns != turns)
        fig_ring_meet(FIG_WARPS_BARRIER, way->ring.readers * FIG_BLOCK_WARP);
    way->join =
        fig_warps_join_of<form>(p, *role, (uint8_t *)way->ring.state + FIG_GEOMETRY_STATE_BYTES);
}

#endif

/* Empties the ring until the worker is done. The first piece comes from the plan, not from a note,
 * so the piece's q is in flight before its strip arrives. */
template <class form>
static __device__ void fig_warps_worker(const fig_attention_params &p, const fig_warps_role &full,
                                        const fig_split_start &start, fig_warps_way<form> way) {
#ifdef FIG_PIECES_TAILS
    const fig_plan_tail *const tails = fig_feed_tails(p);
#endif
#ifdef FIG_PIECES_PACKED
    fig_warps_role role = full;
#else
    const fig_warps_role &role = full;
#endif
    if constexpr (form::TURNS)
        fig_turn_init<form>(way.join.shares, role.share, 1 + role.number, role.count, &way.turn);
    fig_ring_note note = {start.count > 0 ? FIG_RING_FIRST : FIG_RING_END, start.row, start.group};
    if (start.count == 0) {
        if (!way.has_waited) fig_block_wait();
        note = fig_warps_read(way.ring);
    }
    while ((note.flags & FIG_RING_END) == 0) {
#ifdef FIG_PIECES_PACKED
        const fig_plan_queries queries =
            fig_plan_queries_of(p.plan, p.queries_offset, p.split.row_tokens, note.row);
        fig_warps_take_role<form>(p, full, note, queries.count, &role, &way);
#endif
        fig_partials_place place = fig_warps_place(p, role, note.row, note.group);
#ifdef FIG_PIECES_TAILS
        place.tail = {0, 0, 0, 0};
        if (tails != NULL) place.tail = tails[note.row];
#endif
        if constexpr (!form::TURNS) fig_warps_narrow(p, role, &place);
        fig_warps_left left;
        if (note.flags & FIG_RING_MERGE) {
            place.v_scale = fig_warps_scale_of(p.v_scale, p.v_scales, place.kv_head);
            left = fig_warps_merge<form>(p, role, place, way.ring, note, way.join);
            fig_ring_wait_full(way.ring, FIG_RING_V); /* All fillers have announced the end. */
            fig_ring_release(way.ring, FIG_RING_K);
            fig_ring_release(way.ring, FIG_RING_V);
            fig_ring_next(&way.ring);
        } else {
            left = fig_warps_see_piece<form>(p, role, &place, &way);
        }
        if (left.range.first < left.range.end)
            fig_warps_finish<form>(p, role, place, way.join, left);
        if constexpr (form::TURNS) fig_turn_end<form>(p, place.kv_head, &way.turn);
        note = fig_warps_read(way.ring);
    }
    fig_ring_wait_full(way.ring, FIG_RING_V);
}

/* Returns the ring in the block's shared memory. The ring lies before the joins. */
template <class form>
static __device__ __forceinline__ fig_ring fig_warps_ring(const fig_attention_params &p,
                                                          uint8_t *shared, int32_t readers) {
    const int32_t vectors = fig_geometry_divide(p.q_heads, p.kv_heads) * p.split.row_tokens;
    const int32_t shares = fig_warps_shares<form>(p, vectors);
    const int32_t join_bytes =
        readers * fig_warps_share_bytes<form>(p, fig_size_min(FIG_GEOMETRY_VECTORS, vectors));
    uint32_t shared_bytes;
    asm("mov.u32 %0, %dynamic_smem_size;" : "=r"(shared_bytes));
    fig_ring ring;
    ring.slots = fig_fragment_shared(shared);
    ring.tokens_bytes = (uint32_t)fig_geometry_tokens_bytes(form::VALUE_BYTES, form::HEAD_DIM,
                                                            p.heads_per_worker, form::IS_BULK);
    ring.strip = shares * form::SHARE_TOKENS;
    ring.side_bytes = (uint32_t)(shares * form::STEPS) * ring.tokens_bytes;
    ring.readers = readers;
    ring.slot_count =
        fig_geometry_divide((int32_t)shared_bytes - FIG_GEOMETRY_STATE_BYTES - join_bytes,
                            (int32_t)(2 * ring.side_bytes));
    ring.slot = 0;
    ring.phase = 0;
    ring.newest = 0;
    ring.state = (fig_ring_state *)(shared + (uint32_t)(2 * ring.slot_count) * ring.side_bytes);
    return ring;
}

/* Runs a block: the warps that read, then the warps that fill. The first filling warp makes the
 * ring while its part of the plan is in flight, and waits for no other warp. With copies of 16
 * bytes, the compiler must not know that the warp's number is the same in all lanes. If it knows,
 * ptxas 13.0 addresses shared memory by a form of LDGSTS with one register and one uniform
 * register. A GPU of compute capability 9.0 rejects that form as an illegal instruction. */
template <class form>
static __device__ __forceinline__ void fig_warps_attend(const fig_attention_params &p) {
    extern __shared__ uint8_t fig_warps_shared[];
    const int32_t readers = (int32_t)blockDim.x / FIG_BLOCK_WARP - form::FILLERS;
    const int32_t warp = form::IS_BULK ? fig_block_warp() : (int32_t)threadIdx.x / FIG_BLOCK_WARP;
    const int32_t filler = warp - readers;
    const int32_t is_early = (p.flags & FIG_ATTENTION_EARLY) != 0;
    if (is_early) fig_block_trigger();
#ifdef FIG_PIECES_PACKED
    if (is_early && fig_feed_is_idle(p)) return;
#endif
    if (!is_early) fig_block_wait();
    if (filler >= 0) {
        if (!is_early) fig_block_trigger();
        const fig_feed_plan plan = fig_feed_read_plan(p);
        fig_feed_worker<form>(p, fig_warps_ring<form>(p, fig_warps_shared, readers), plan, filler,
                              !is_early);
        return;
    }
    const fig_split_start start = fig_feed_start(p);
    const fig_warps_role role = fig_warps_role_of<form>(p);
    const fig_ring ring = fig_warps_ring<form>(p, fig_warps_shared, readers);
    uint8_t *joins = (uint8_t *)ring.state + FIG_GEOMETRY_STATE_BYTES;
    fig_warps_way<form> way;
    way.ring = ring;
    way.join = fig_warps_join_of<form>(p, role, joins);
    way.has_waited = !is_early;
    fig_ring_meet(FIG_RING_MADE_TO_READ, fig_feed_ring_threads<form>());
    fig_warps_worker<form>(p, role, start, way);
}

#endif
