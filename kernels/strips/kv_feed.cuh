/* kv_feed.cuh: fills the ring with a worker's strips, in order, and describes each strip in a note.
 *
 * kv_piece.cuh walks along the split. Tokens come from the cache to the ring in two ways. If the
 * page size is a multiple of 16 tokens, the bulk copy engine moves one box per 16 tokens.
 * Otherwise kv_copy.cuh copies them. Both ways bring the same bytes. A warp may also load tokens
 * that no vector sees, but it never reads a page that the row does not have. Zeros take the place
 * of such a page.
 *
 * Before fig_block_wait, if the launch allows early reads, the warps read the plan and start the
 * loads of older tokens. Tokens that the step itself appends are loaded after the wait, and only
 * prefetched into L2 before it. Invariant: every slot is filled once and completely, and whole
 * warps call all functions. */
#ifndef FIG_KERNELS_KV_FEED_CUH
#define FIG_KERNELS_KV_FEED_CUH

#include "kernels/strips/kv_copy.cuh"
#include "kernels/strips/kv_machine.cuh"

/* ---- By the bulk copy engine */

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
/* Orders the threads' writes to a slot, made before its release, before the engine's writes to the
 * same slot. */
static __device__ __forceinline__ void fig_feed_order_writes(const fig_ring &ring) {
    if (ring.newest >> ring.slot & 1) fig_feed_order_engines();
}

static __device__ __forceinline__ void fig_feed_mark(int32_t is_newest, fig_ring *ring) {
    const uint32_t slot = 1u << ring->slot;
    ring->newest = is_newest ? ring->newest | slot : ring->newest & ~slot;
}

/* Describes the place of 16 tokens: their page, as a coordinate of K's map and of V's map, and the
 * first token within the page. */
typedef struct fig_feed_block {
    int32_t k_page, v_page, token;
} fig_feed_block;

/* Returns the page number, or 0 if the page is outside the cache. */
static __device__ __forceinline__ int32_t fig_feed_known(int32_t page, int64_t pages) {
    return page < 0 || page >= pages ? 0 : page;
}

/* Returns the place of the 16 tokens at `token`. The place is empty if these tokens are past the
 * piece. */
static __device__ __forceinline__ fig_feed_block fig_feed_block_at(const fig_attention_params &p,
                                                                   const fig_feed_piece &of,
                                                                   int32_t token) {
    fig_feed_block block = {-1, -1, 0};
    if (token >= of.tokens.end) return block;
    const fig_feed_place place = fig_feed_place_of(of, token);
    block.k_page = fig_feed_known(place.page, p.k_pages);
    block.v_page = fig_feed_known(place.page, p.v_pages);
    block.token = place.token;
    return block;
}

/* Sends the lane's block of a strip, for one side. The compiler turns this function into a loop
 * over the lanes. A loop is faster than a straight run of boxes, because the first pass through
 * shorter code starts sooner. If a box has one column, the columns of a side lie apart. */
template <class form>
static __device__ __forceinline__ void
fig_feed_send(const fig_attention_params &p, const fig_ring &ring, int32_t side, uint32_t offset,
              const fig_feed_block &block, int32_t kv_head, uint64_t policy) {
#pragma unroll
    for (int32_t box = 0; box < form::BOXES; box++)
        fig_feed_box(
            fig_ring_side(ring, side) + offset + (uint32_t)box * (ring.side_bytes / form::BOXES),
            side == FIG_RING_K ? &p.k_map : &p.v_map, block.token, box, kv_head,
            side == FIG_RING_K ? block.k_page : block.v_page, fig_ring_full(ring, side), policy);
}

/* Prefetches a block into L2, as fig_block_prefetch does. */
template <class form>
static __device__ __forceinline__ void
fig_feed_prefetch(const fig_attention_params &p, const fig_feed_block &block, int32_t kv_head) {
#pragma unroll
    for (int32_t box = 0; box < form::BOXES; box++)
        fig_feed_bring_boxes(&p.k_map, &p.v_map, block.token, box, kv_head, block.k_page,
                             block.v_page);
}

/* Returns the lane's block of the next strip, from the 32 blocks that the warp already knows. */
template <class form>
static __device__ __forceinline__ fig_feed_block fig_feed_down(const fig_feed_block &block) {
    const int32_t BLOCKS = form::STRIP / FIG_RING_TOKENS;
    const fig_feed_block down = {__shfl_down_sync(0xffffffffu, block.k_page, BLOCKS),
                                 __shfl_down_sync(0xffffffffu, block.v_page, BLOCKS),
                                 __shfl_down_sync(0xffffffffu, block.token, BLOCKS)};
    return down;
}

/* Sends the boxes of a piece. Each lane knows one of 32 blocks. When the blocks of a strip have
 * been sent, the others move down to lower lanes. When half of the 32 blocks have been sent, each
 * lane looks up its block of the next 32; a look-up only at the end would delay the next strip. */
template <class form>
static __device__ __forceinline__ void fig_feed_send_piece(const fig_attention_params &p,
                                                           const fig_feed_piece &of, fig_ring *ring,
                                                           int32_t *has_waited) {
    const int32_t BLOCKS = form::STRIP / FIG_RING_TOKENS, WINDOW = FIG_BLOCK_WARP * FIG_RING_TOKENS;
    const int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP, mine = lane * FIG_RING_TOKENS;
    const uint32_t offset = (uint32_t)lane * (ring->side_bytes / (BLOCKS * form::BOXES));
    const int32_t first_new = of.length - p.split.row_tokens;
    const uint64_t policy = fig_machine_policy_once();
    int32_t token = of.tokens.first & -FIG_RING_TOKENS, sent = 0; /* sent: how many of the 32 */
    fig_feed_block block = fig_feed_block_at(p, of, token + mine), ahead = block;
    do {
        const int32_t is_newest = token + form::STRIP > first_new;
        const int32_t is_late = !form::TURNS && !*has_waited && is_newest;
        const int32_t is_new = is_late && token + mine + FIG_RING_TOKENS > first_new;
#pragma unroll
        for (int32_t side = 0; side < 2; side++) {
            fig_ring_wait_empty(*ring, side);
            if (form::TURNS) fig_feed_order_writes(*ring);
            if (lane < BLOCKS && !is_new)
                fig_feed_send<form>(p, *ring, side, offset, block, of.kv_head, policy);
            __syncwarp();
        }
        if (is_late) { /* Tokens that the step itself appends are sent after the wait. */
            if (lane < BLOCKS && is_new) fig_feed_prefetch<form>(p, block, of.kv_head);
            __syncwarp();
            fig_feed_wait(has_waited);
#pragma unroll
            for (int32_t side = 0; side < 2; side++)
                if (lane < BLOCKS && is_new)
                    fig_feed_send<form>(p, *ring, side, offset, block, of.kv_head, policy);
            __syncwarp();
        }
        if (form::TURNS) fig_feed_mark(is_newest, ring);
        fig_ring_next(ring);
        token += form::STRIP;
        sent += BLOCKS;
        block = fig_feed_down<form>(block);
        if (sent == FIG_BLOCK_WARP / 2) ahead = fig_feed_block_at(p, of, token + WINDOW / 2 + mine);
        if (sent == FIG_BLOCK_WARP) {
            sent = 0;
            block = ahead;
        }
    } while (token < of.tokens.end);
}

/* Writes the notes of a piece's strips, and sets the number of bytes for which the readers wait. */
template <class form>
static __device__ __forceinline__ void
fig_feed_tell_piece(const fig_attention_params &p, const fig_feed_piece &of, fig_ring *ring) {
    const int32_t is_teller = threadIdx.x % FIG_BLOCK_WARP == 0;
    const int32_t first_new = of.length - p.split.row_tokens;
    const int32_t partial = fig_feed_partial(p, of);
    int32_t token = of.tokens.first & -FIG_RING_TOKENS;
    do {
        fig_ring_note note = fig_feed_note(of, partial, token, form::STRIP);
        if (token + form::STRIP > first_new) note.flags |= FIG_RING_NEWEST;
        fig_ring_wait_empty(*ring, FIG_RING_K);
        if (is_teller) {
            fig_ring_write(*ring, note);
            fig_feed_expect(fig_ring_full(*ring, FIG_RING_K), ring->side_bytes);
        }
        fig_ring_wait_empty(*ring, FIG_RING_V);
        if (is_teller) fig_feed_expect(fig_ring_full(*ring, FIG_RING_V), ring->side_bytes);
        __syncwarp();
        fig_ring_next(ring);
        token += form::STRIP;
    } while (token < of.tokens.end);
}
#endif

/* ---- A worker */

/* Returns the number of arrivals that fill a side. */
template <class form> static __device__ constexpr int32_t fig_feed_full_count(void) {
    return form::IS_BULK ? 1 : fig_copy_full_count<form>();
}

/* Sends a note without a strip. */
template <class form>
static __device__ __forceinline__ void fig_feed_say(const fig_ring_note &note, int32_t filler,
                                                    fig_ring *ring) {
    const int32_t is_teller = filler == FIG_FEED_TELLER && threadIdx.x % FIG_BLOCK_WARP == 0;
    for (int32_t side = 0; side < 2; side++) {
        fig_ring_wait_empty(*ring, side);
        if (is_teller && side == FIG_RING_K) fig_ring_write(*ring, note);
        __syncwarp();
        if constexpr (form::IS_BULK == 0) {
            fig_copy_fill(fig_ring_full(*ring, side), is_teller);
        } else if (is_teller) {
            fig_ring_arrive(fig_ring_full(*ring, side));
        }
    }
    fig_ring_next(ring);
}

/* Writes the output of those rows of length 0 that belong to the worker: zeros and an LSE of -inf,
 * with or without sinks. Such rows are not on the line, so the row number decides which worker
 * writes them. */
static __device__ __noinline__ void fig_feed_idle_rows(const fig_attention_params &p) {
    const int32_t *lengths = (const int32_t *)(p.plan + p.lengths_offset);
    const int32_t rows = ((const fig_plan_head *)p.plan)->rows;
    const int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP;
    for (int32_t row = (int32_t)blockIdx.x; row < rows; row += p.split.workers) {
        if (lengths[row] > 0) continue;
        const fig_plan_queries queries =
            fig_plan_queries_of(p.plan, p.queries_offset, p.split.row_tokens, row);
        for (int32_t n = 0; n < queries.count * p.q_heads; n++) {
            const int64_t at = (int64_t)queries.first + n / p.q_heads;
            const int32_t head = n % p.q_heads;
            uint16_t *out = (uint16_t *)p.out + at * p.out_strides.row + head * p.out_strides.head;
            for (int32_t dim = lane; dim < p.head_dim; dim += FIG_BLOCK_WARP)
                out[dim] = 0;
            if (lane == 0 && p.lse != NULL) p.lse[at * p.lse_stride + head] = -INFINITY;
        }
    }
}

#ifdef FIG_PIECES_PACKED
/* Returns 1 if the block may exit before the wait: it has neither pieces nor rows of length 0, and
 * another block of the launch waits. Its SM then serves the next launch. The last block always
 * waits, so the launch ends only after those in front of it: a graph may leave out an edge that
 * this launch implies (engine/graph/cuda_lanes.c). If many workers of a spread line read, no block
 * exits early: the blocks behind it would take its SM, and readers would meet on SMs that share a
 * port to memory. */
static __device__ __forceinline__ int32_t fig_feed_is_idle(const fig_attention_params &p) {
    const int32_t *lengths = (const int32_t *)(p.plan + p.lengths_offset);
    const int32_t row =
        (int32_t)blockIdx.x + (int32_t)threadIdx.x % FIG_BLOCK_WARP * p.split.workers;
    if (blockIdx.x + 1 == gridDim.x || p.split.workers * FIG_BLOCK_WARP < p.split.row_limit)
        return 0;
    const fig_plan_head *head = (const fig_plan_head *)p.plan;
    const fig_split_start *starts = (const fig_split_start *)(p.plan + p.starts_offset);
    const int32_t is_busy = fig_feed_start(p).count > 0 || (row < head->rows && lengths[row] == 0);
    if ((head->sections & FIG_PLAN_BY_UNITS) && starts[p.split.workers / 4].count > 0) return 0;
    return __any_sync(0xffffffffu, is_busy) == 0;
}
#endif

/* Fills one filler's part of each of the worker's strips. */
template <class form>
static __device__ __forceinline__ void fig_feed_strips(const fig_attention_params &p,
                                                       const fig_feed_plan &plan, int32_t filler,
                                                       fig_ring *ring, int32_t *has_waited) {
    fig_split_start start = plan.start;
    while (start.count > 0) {
        const fig_feed_piece of = fig_feed_piece_of(p, plan, start);
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
        if constexpr (form::IS_BULK != 0) fig_feed_tell_piece<form>(p, of, ring);
#endif
        if constexpr (form::IS_BULK == 0) fig_copy_piece<form>(p, of, filler, ring, has_waited);
        fig_feed_pass(p, plan, of, &start);
    }
}

/* Announces the merges of the worker. Except in fixed splits, all merges belong to the segment of
 * the worker's first piece. Any later segment begins in the worker's stretch; if it also ends
 * there, it is whole. If no block may wait for another block (FIG_ATTENTION_APART), the function
 * announces every cut piece, because this block may be the last to finish. */
template <class form>
static __device__ __forceinline__ void fig_feed_merges(const fig_attention_params &p,
                                                       const fig_feed_plan &plan, int32_t filler,
                                                       fig_ring *ring) {
    const int32_t is_apart = (p.flags & FIG_ATTENTION_APART) != 0;
    fig_split_start start = plan.start;
    const fig_split_line line = fig_feed_line(p, plan);
    while (start.count > 0) {
        const fig_feed_row row = fig_feed_row_of(plan, start.row);
        const int32_t row_tiles = row.next_prefix - row.prefix;
        fig_split_piece piece =
            fig_split_piece_of_worker(&p.split, &line, plan.worker, row.prefix, row_tiles, &start);
        if (piece.tile > 0 || piece.tile_end < row_tiles) {
            const int32_t segment = row.prefix * p.split.groups + start.group * row_tiles;
            int32_t begins = fig_split_begin(&line, piece.first) == segment;
            if (fig_feed_is_by_units(p)) {
                const int32_t ends = fig_feed_ends(p, piece.row, piece.group);
                piece.first = ends & (FIG_WORKER_LIMIT - 1);
                piece.last = ends >> FIG_FEED_WORKER_BITS & (FIG_WORKER_LIMIT - 1);
                begins = ends >> 2 * FIG_FEED_WORKER_BITS;
            }
            const int32_t parts = fig_feed_parts(p, piece, begins);
            const int32_t part = is_apart ? 0 : piece.last - piece.number;
            if (part < parts)
                fig_feed_say<form>(fig_feed_merge_note(p, piece, part, parts), filler, ring);
        }
        if (!p.split.fixed && !is_apart) return;
        fig_split_pass(&p.split, &line, &start);
    }
}

/* Returns the number of threads of the reading warps and of the warp that makes the ring. */
template <class form> static __device__ __forceinline__ int32_t fig_feed_ring_threads(void) {
    return (int32_t)blockDim.x - (form::FILLERS - 1) * FIG_BLOCK_WARP;
}

/* Makes the ring or waits for it. The teller makes the ring and waits for no other warp; the other
 * fillers wait for the ring. */
template <class form>
static __device__ __forceinline__ void fig_feed_make_ring(const fig_ring &ring, int32_t filler) {
    const int32_t fillers = form::FILLERS * FIG_BLOCK_WARP;
    if (filler != FIG_FEED_TELLER) {
        fig_ring_meet(FIG_RING_MADE_TO_FILL, fillers);
        return;
    }
    if (threadIdx.x % FIG_BLOCK_WARP == 0)
        fig_ring_init(ring.state, ring.slot_count, fig_feed_full_count<form>(), ring.readers);
    __syncwarp();
    fig_ring_pass(FIG_RING_MADE_TO_READ, fig_feed_ring_threads<form>());
    fig_ring_pass(FIG_RING_MADE_TO_FILL, fillers);
}

/* Runs the warp that sends boxes. The path from the plan to the first box is short, because the
 * whole block waits for that box. */
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
template <class form>
static __device__ __forceinline__ void fig_feed_sender(const fig_attention_params &p, fig_ring ring,
                                                       const fig_feed_plan &plan, int32_t filler,
                                                       int32_t has_waited) {
    fig_feed_prefetch_maps(p);
    fig_feed_make_ring<form>(ring, filler);
    fig_split_start start = plan.start;
    while (start.count > 0) {
        const fig_feed_piece of = fig_feed_piece_of(p, plan, start);
        fig_feed_send_piece<form>(p, of, &ring, &has_waited);
        fig_feed_pass(p, plan, of, &start);
    }
    fig_feed_wait(&has_waited);
}
#endif

/* Runs a filling warp. `filler` is its number among the fillers. */
template <class form>
static __device__ void fig_feed_worker(const fig_attention_params &p, fig_ring ring,
                                       const fig_feed_plan &plan, int32_t filler,
                                       int32_t has_waited) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    if constexpr (form::IS_BULK != 0)
        if (filler != FIG_FEED_TELLER)
            return fig_feed_sender<form>(p, ring, plan, filler, has_waited);
#endif
    fig_feed_make_ring<form>(ring, filler);
    fig_feed_strips<form>(p, plan, filler, &ring, &has_waited);
    fig_feed_merges<form>(p, plan, filler, &ring);
    const fig_ring_note end = {FIG_RING_END};
    fig_feed_say<form>(end, filler, &ring);
    fig_feed_wait(&has_waited);
    if (filler == FIG_FEED_TELLER) fig_feed_idle_rows(p);
    if (!form::IS_BULK) asm volatile("cp.async.wait_all;" ::: "memory");
}

#endif
