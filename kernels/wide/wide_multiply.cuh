/* wide_multiply.cuh: multiplies 64 query vectors by the tiles of all items, in one warpgroup.
 *
 * One loop runs over the tiles of all items. It issues the product of a tile with K together with
 * the product of the previous tile with V, even if the previous tile belongs to another item. That
 * item's sums are then written while the other warpgroup uses the tensor cores. The two warpgroups
 * take turns on the tensor cores, so the exponentials of one run beside the products of the other:
 *
 *     warpgroup 0   Q K1, W0 V0 |  softmax of 1  | Q K2, W1 V1 | ...
 *     warpgroup 1   softmax     |  Q K1, W0 V0   | softmax     | ...
 *
 * wide_tile.cuh processes a tile. Weights are rounded to the cache's type for their product with V.
 *
 * Invariant: the bits of a row depend on its own queries, its tokens and where its strip is cut,
 * and on no other row of the tile. Premise: V is finite for all tokens of a sequence, because V of
 * a token that a query does not see is multiplied by 0. Past the end of the sequence any bytes may
 * lie. */
#ifndef FIG_KERNELS_WIDE_MULTIPLY_CUH
#define FIG_KERNELS_WIDE_MULTIPLY_CUH

#include "kernels/wide/wide_rows.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* Reads the note of the next item. skip: see fig_wide_note. */
template <class form>
static __device__ __forceinline__ fig_strips_item
fig_wide_read_note(const fig_wide_memory<form> &memory, int32_t group, int32_t *skip) {
    const int4 *from = (const int4 *)&memory.state->notes[group].item;
    fig_strips_item item;
    *skip = fig_wide_same(memory.state->notes[group].skip);
#pragma unroll
    for (int32_t i = 0; i < (int32_t)(sizeof item / sizeof(int4)); i++)
        ((int4 *)&item)[i] = from[i];
    item.tile = fig_wide_same(item.tile);
    item.tiles = fig_wide_same(item.tiles);
    item.flags = fig_wide_same(item.flags);
    item.limit = fig_wide_same(item.limit);
    item.queries = fig_wide_same(item.queries);
    item.first_token = fig_wide_same(item.first_token);
    item.end = fig_wide_same(item.end);
    item.slot = fig_wide_same(item.slot);
    return item;
}

/* before: number of the strip's queries that precede those of the warpgroup. few: the members of
 * an item of few vectors. first_slot: see fig_wide_place. */
static __device__ __forceinline__ fig_wide_way fig_wide_way_of(const fig_prompt_attention_params &p,
                                                               const fig_strips_item &item,
                                                               const fig_strips_member *few,
                                                               int32_t before, int32_t warp,
                                                               int32_t first_slot) {
    fig_wide_way way;
    way.is_shared = fig_wide_same(item.flags & FIG_STRIPS_IS_SHARED);
    way.ends = fig_wide_same(item.flags & (FIG_STRIPS_IS_SHARED | FIG_STRIPS_LONE));
    way.is_last = fig_wide_same(item.flags & FIG_STRIPS_IS_LAST);
    way.is_row = fig_wide_same(way.is_shared && !(item.flags & FIG_STRIPS_IS_PREFIX) &&
                               item.queries * p.ratio <= FIG_WIDE_FEW && item.pieces == 1);
    way.query = item.query + before;
    way.slot = item.slot;
    way.first_slot = first_slot;
    way.head = item.head;
    way.first = before * p.ratio;
    way.count = fig_size_min(item.queries - before, p.half) * p.ratio;
    way.strip = item.queries * p.ratio;
    way.pieces = item.pieces;
    way.piece = item.pieces > 1 ? (item.partial - item.first_partial) / way.strip : 0;
    way.first_partial = item.first_partial;
    way.counter = item.counter + (before > 0 ? FIG_STRIPS_ARRIVALS / 2 : 0) + warp;
    way.members = few;
    if (way.is_shared && way.count > FIG_WIDE_FEW)
        way.members = fig_strips_members(fig_params_strips(&p)) + way.query;
    return way;
}

/* Returns the tokens that the thread's rows see. before: as in fig_wide_way_of(). */
static __device__ __forceinline__ fig_wide_sight fig_wide_sight_of(const fig_strips_item &item,
                                                                   int32_t window, int32_t ratio,
                                                                   int32_t before, int32_t row) {
    fig_wide_sight sight;
#pragma unroll
    for (int32_t h = 0; h < 2; h++) {
        sight.high[h] = fig_strips_limit(&item, before + (row + 8 * h) / ratio);
        sight.low[h] = fig_strips_floor(&item, window, sight.high[h]);
        sight.high[h] = fig_size_min(sight.high[h], item.end - 1);
    }
    return sight;
}

/* Holds a thread's state, in registers. */
template <class form> struct fig_wide_work {
    float logits[form::TILE / 2], sums[form::DIM / 2];
    float greatest[2], weights[2], shrink[2];
    uint32_t narrow[form::TILE / 4]; /* weights, rounded for their product with V */
    uint32_t q[form::HOLDS_QUERIES ? form::DIM / 4 : 1];
    fig_wide_turn next, last;
    fig_wide_way way;
    int32_t is_open; /* 1: the product of the weights at `last` with V is not issued yet */
    int32_t is_sum;  /* 1: that product is added to the sums; 0: it replaces them */
    int32_t rows;    /* in the list of rows to merge */
    int32_t tail;    /* first row of that tile past the end of the sequence */
};

/* Holds values that do not change from tile to tile. */
struct fig_wide_place {
    int32_t group, thread, lane, quad, warp, row;
    uint32_t q_at;
    float scale, rate, cap; /* cap 0: none */
    int32_t first_slot;     /* index in the partials of the first vector of slots */
};

/* Describes the warpgroup's item. */
struct fig_wide_part {
    int32_t is_pair, first, end;   /* tiles */
    int32_t mask_from, mask_until; /* tiles in [mask_until, mask_from) need no mask */
    fig_wide_sight sight;
};

static __device__ __forceinline__ fig_wide_place
fig_wide_place_of(const fig_prompt_attention_params &p, int32_t group) {
    fig_wide_place at;
    at.group = group;
    at.thread = (int32_t)threadIdx.x & 127;
    at.lane = at.thread & 31;
    at.quad = at.lane & 3;
    at.warp = fig_wide_same(at.thread >> 5);
    at.row = at.warp * 16 + (at.lane >> 2);
    at.cap = p.soft_cap * FIG_NUMERIC_LOG2_E;
    at.rate = p.soft_cap > 0.0f ? p.sm_scale * 2.0f * FIG_NUMERIC_LOG2_E / p.soft_cap : 0.0f;
    at.scale = p.soft_cap > 0.0f ? 1.0f : p.sm_scale * FIG_NUMERIC_LOG2_E;
    const fig_strips_head *strips = (const fig_strips_head *)(const void *)fig_params_strips(&p);
    at.first_slot = strips != NULL ? strips->partial_vectors : 0;
    return at;
}

/* before: number of the strip's queries that precede those of the warpgroup. */
template <class form>
static __device__ __forceinline__ fig_wide_part fig_wide_part_of(const fig_strips_item &item,
                                                                 int32_t window, int32_t ratio,
                                                                 int32_t before, int32_t row) {
    const int32_t high = fig_strips_limit(&item, item.queries - 1);
    fig_wide_part part;
    part.is_pair = !(item.flags & FIG_STRIPS_LONE);
    part.first = item.tile;
    part.end = item.tile + item.tiles;
    part.mask_from = (item.limit + 1) / form::TILE;
    part.mask_until = (fig_strips_floor(&item, window, high) + form::TILE - 1) / form::TILE;
    part.sight = fig_wide_sight_of(item, window, ratio, before, row);
    return part;
}

/* Issues the product of the weights of the previous tile with its V. */
template <class form>
static __device__ __forceinline__ void fig_wide_issue_v(const fig_wide_memory<form> &memory,
                                                        fig_wide_work<form> *work) {
    fig_wide_wait(&memory.state->v_full[work->last.stage], work->last.round & 1);
    fig_wgmma_begin();
    fig_wide_product_v<form>(work->sums, work->narrow, fig_wide_v<form>(memory, work->last.stage),
                             work->is_sum);
}

/* Ends the previous item if its sums cannot be written beside the next products: computes its last
 * product, merges the pieces of its strip if this piece is the last to finish, and writes the
 * result. Results of a row that shares prefixes are only kept, as long as the list has room. Sets
 * the sums to zeros, because otherwise a later product would wait for values that only some warps
 * changed. */
template <class form>
static __device__ __forceinline__ void
fig_wide_flush(const fig_prompt_attention_params &p, const fig_wide_memory<form> &memory,
               const fig_wide_place &at, fig_wide_work<form> *work) {
    fig_wide_issue_v<form>(memory, work);
    fig_wgmma_commit();
    fig_wgmma_wait<0>(work->sums);
    fig_wide_release(&memory.state->v_empty[work->last.stage]);
    fig_wide_add_weights(work->weights);
    if (work->way.is_row && work->rows < FIG_WIDE_ROWS) {
        if (at.warp == 0)
            fig_wide_keep_row<form>(p, work->way, work->sums, work->greatest, work->weights, at.row,
                                    at.quad, at.lane, &memory.state->rows[at.group][work->rows]);
        work->rows++;
    } else if (at.warp * 16 < work->way.count &&
               fig_wide_climb<form>(p, work->way, work->sums, work->greatest, work->weights, at.row,
                                    at.quad, at.lane)) {
        if (!work->way.is_shared)
            fig_wide_write<form>(p, work->way, work->sums, work->greatest, work->weights, at.row,
                                 at.quad);
        else
            fig_wide_leave_slots<form>(p, work->way, work->sums, work->greatest, work->weights,
                                       at.row, at.quad, at.lane);
    }
    __syncwarp();
#pragma unroll
    for (int32_t i = 0; i < form::DIM / 2; i++)
        work->sums[i] = 0.0f;
    work->is_open = 0;
}

/* Passes the turn at the tensor cores on, and waits until at most LEFT products are under way. */
template <class form, int LEFT>
static __device__ __forceinline__ void fig_wide_await(const fig_wide_place &at, int32_t is_pair,
                                                      fig_wide_work<form> *work) {
    if (is_pair) fig_ring_pass(FIG_WIDE_TURNS + 1 - at.group, 256);
    fig_wgmma_wait<LEFT>(work->logits);
}

/* Issues the product of a tile with K and that of the previous tile with V, and waits for the
 * former. If WAITS_FOR_V, it waits for both: ptxas makes a group of its own of the second commit,
 * because a branch lies before it. */
template <class form>
static __device__ __forceinline__ void fig_wide_issue(const fig_wide_memory<form> &memory,
                                                      const fig_wide_place &at, int32_t is_pair,
                                                      fig_wide_work<form> *work) {
    fig_wide_wait(&memory.state->k_full[work->next.stage], work->next.round & 1);
    if (is_pair) fig_ring_meet(FIG_WIDE_TURNS + at.group, 256);
    fig_wgmma_begin();
    fig_wide_product_k<form>(work->logits, work->q, at.q_at,
                             fig_wide_k<form>(memory, work->next.stage));
    fig_wgmma_commit();
    if constexpr (form::WAITS_FOR_V) {
        if (work->is_open) fig_wide_issue_v<form>(memory, work);
        fig_wgmma_commit();
        fig_wide_await<form, 1>(at, is_pair, work);
    } else if (work->is_open) {
        fig_wide_issue_v<form>(memory, work);
        fig_wgmma_commit();
        fig_wide_await<form, 1>(at, is_pair, work);
    } else {
        fig_wide_await<form, 0>(at, is_pair, work);
    }
    fig_wide_release(&memory.state->k_empty[work->next.stage]);
}

/* Processes one tile. old: destination of the previous item's sums; that item's strip is whole. */
template <class form>
static __device__ __forceinline__ void
fig_wide_do_tile(const fig_prompt_attention_params &p, const fig_wide_memory<form> &memory,
                 const fig_wide_place &at, const fig_wide_part &part, const fig_wide_way &old,
                 int32_t tile, fig_wide_work<form> *work) {
    const int32_t is_first = tile == part.first;
    float old_greatest[2], old_weights[2];
    fig_wide_issue<form>(memory, at, part.is_pair, work);
    if (!form::HOLDS_QUERIES && tile + 1 == part.end)
        fig_wide_release(&memory.state->q_empty[at.group]);
    if (at.cap > 0.0f) fig_wide_cap<form>(work->logits, at.rate, at.cap);
    if (tile >= part.mask_from || tile < part.mask_until)
        fig_wide_mask<form>(work->logits, part.sight, tile * form::TILE + 2 * at.quad);
    if (is_first) {
#pragma unroll
        for (int32_t h = 0; h < 2; h++) {
            old_greatest[h] = work->greatest[h];
            old_weights[h] = work->weights[h];
            /* Rows that do not exist need no reference. */
            work->greatest[h] = at.row + 8 * h < work->way.count ? FIG_WIDE_NONE : 0.0f;
            work->weights[h] = 0.0f;
        }
    }
    const int32_t grows =
        fig_wide_weigh<form>(work->logits, work->greatest, work->weights, work->shrink, at.scale);
    fig_wgmma_wait<0>(work->sums);
    if (work->is_open) fig_wide_release(&memory.state->v_empty[work->last.stage]);
    if (is_first) {
        if (work->is_open) {
            fig_wide_add_weights(old_weights);
            fig_wide_write<form>(p, old, work->sums, old_greatest, old_weights, at.row, at.quad);
        }
    } else if (grows) {
#pragma unroll
        for (int32_t i = 0; i < form::DIM / 2; i++)
            work->sums[i] *= work->shrink[i / 2 % 2];
    }
#pragma unroll
    for (int32_t i = 0; i < form::TILE / 4; i++)
        work->narrow[i] =
            fig_fragment_pair<form::TYPE>(work->logits[2 * i], work->logits[2 * i + 1]);
    work->is_open = 1;
    work->is_sum = !is_first;
    work->last = work->next;
    fig_wide_advance<form>(&work->next);
}

template <class form>
static __device__ __forceinline__ void fig_wide_begin_work(fig_wide_work<form> *work) {
    work->next = work->last = {};
    work->way = {};
    work->is_open = work->is_sum = work->rows = 0;
    work->tail = form::TILE;
    work->greatest[0] = work->greatest[1] = FIG_WIDE_NONE;
    work->weights[0] = work->weights[1] = 0.0f;
}

/* Processes the items of the worker, in the order of the notes. After tiles of the other warpgroup,
 * a tile's filling may not have begun, until the warpgroup has gone through all stages.
 *
 * An item of one warpgroup ends at once: the other one may wait for its last tile. If queries lie
 * in shared memory, every item does: this warpgroup's next note may wait for the end of the other
 * one's item, and that for a stage of this item's last tile. */
template <class form>
static __device__ __forceinline__ void fig_wide_multiply(const fig_prompt_attention_params &p,
                                                         const fig_wide_memory<form> &memory,
                                                         int32_t group) {
    const int32_t ratio = p.ratio;
    fig_wide_place at = fig_wide_place_of(p, group);
    fig_wide_work<form> work;
    uint32_t phase = 0;
    int32_t far = 0; /* the next tiles whose filling may not have begun */
    at.q_at = fig_wide_q<form>(memory, group);
    fig_wide_begin_work<form>(&work);
    if (group == 1) fig_ring_pass(FIG_WIDE_TURNS, 256);
    fig_block_wait();
#pragma unroll 1
    for (;;) {
        const int32_t ends = work.is_open && (!form::HOLDS_QUERIES || work.way.ends);
        fig_strips_item item = {};
        int32_t skip = 0;
        if (!ends) {
            fig_wide_wait(&memory.state->q_full[group], phase);
            item = fig_wide_read_note<form>(memory, group, &skip);
            phase ^= 1;
        }
        const int32_t is_pair = !(item.flags & FIG_STRIPS_LONE), is_end = item.flags < 0;
        if (work.is_open && work.tail < form::TILE) {
            fig_wide_wait(&memory.state->v_full[work.last.stage], work.last.round & 1);
            fig_wide_clear<form>(fig_wide_v<form>(memory, work.last.stage), work.tail, form::TILE,
                                 at.thread);
            fig_wide_show_clear(FIG_WIDE_OWN + group);
        }
        if (ends || (work.is_open && (is_end || skip > 0 || work.way.pieces > 1)))
            fig_wide_flush<form>(p, memory, at, &work);
        if (ends && form::HOLDS_QUERIES && work.way.is_last)
            break; /* the note that ends the work says no more */
        if (ends) continue;
        if (is_end) break;
        fig_wide_pass<form>(&work.next, skip);
        if (skip > 0) far = form::STAGES;
        const int32_t before = is_pair ? group * p.half : 0;
        const fig_wide_part part = fig_wide_part_of<form>(item, p.window, ratio, before, at.row);
        const fig_wide_way old = work.way;
        work.way = fig_wide_way_of(p, item, memory.state->members[group][phase ^ 1], before,
                                   at.warp, at.first_slot);
        if constexpr (form::HOLDS_QUERIES) {
            fig_wide_load_q<form>(work.q, at.q_at, at.warp, at.lane);
            /* These loads end before the copy engine overwrites the queries. Without the fence, a
             * release may overtake them, and some vectors then have parts of other queries. */
            fig_wide_order_engines();
            __syncwarp();
            fig_wide_release(&memory.state->q_empty[group]);
        }
        int32_t tile = part.first;
#pragma unroll 1
        while (tile < part.end) {
            int32_t stop = part.end;
            if (far > 0) {
                stop = fig_size_min(stop, tile + (is_pair && far > 1 ? far - 1 : 1));
                fig_wide_await_begin<form>(memory, work.next, stop - tile - 1);
                far -= stop - tile;
            }
#pragma unroll 1
            for (; tile < stop; tile++)
                fig_wide_do_tile<form>(p, memory, at, part, old, tile, &work);
        }
        work.tail = fig_size_min(item.end - (part.end - 1) * form::TILE, form::TILE);
    }
    fig_wide_end_rows<form>(p, memory.state->rows[group], work.rows, at.first_slot, group, at.warp,
                            at.lane);
}

#endif
#endif
