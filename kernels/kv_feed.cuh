/* kv_feed.cuh: fills the ring with a worker's strips, in their order, and says what each is.
 *
 * Leaves the worker's way along the split to kv_piece.cuh. Two ways lead from the cache to the
 * ring: by the bulk copy engine, one box for each 16 tokens, where pages are whole ones of those;
 * or by the copies of kv_copy.cuh. Both leave the same bytes. What a vector does not see may be
 * brought along, and a page that the row does not have is never read: zeros come in its place.
 *
 * Before fig_block_wait, where the launch allows it, the plan is read and old tokens are on their
 * way; those that the step itself appends come after it. Invariant: every slot is filled once and
 * whole, and all functions are called by whole warps. */
#ifndef FIG_KERNELS_KV_FEED_CUH
#define FIG_KERNELS_KV_FEED_CUH

#include "kernels/kv_copy.cuh"

/* ---- By the bulk copy engine */

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
static __device__ __forceinline__ uint64_t fig_feed_once(void) {
    uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

static __device__ __forceinline__ void fig_feed_box(uint32_t to, const void *map, int32_t token,
                                                    int32_t head, int32_t page, uint32_t barrier,
                                                    uint64_t policy) {
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".L2::cache_hint [%0], [%1, {%2, %3, %2, %4, %5}], [%6], %7;" ::"r"(to),
                 "l"(map), "r"(0), "r"(token), "r"(head), "r"(page), "r"(barrier), "l"(policy)
                 : "memory");
}

static __device__ __forceinline__ void fig_feed_expect(uint32_t barrier, uint32_t bytes) {
    asm volatile(
        "{ .reg .b64 state; mbarrier.arrive.expect_tx.shared.b64 state, [%0], %1; }" ::"r"(barrier),
        "r"(bytes)
        : "memory");
}

/* Where 16 tokens lie: their page, as a coordinate of K's map and of V's, and the first of it. */
typedef struct fig_feed_block {
    int32_t k_page, v_page, token;
} fig_feed_block;

/* A page number outside the cache reads as page 0. */
static __device__ __forceinline__ int32_t fig_feed_known(int32_t page, int64_t pages) {
    return page < 0 || page >= pages ? 0 : page;
}

/* Of the 16 tokens from `token` on; those behind the piece lie nowhere. */
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

/* 1 for one lane of the warp, which the compiler knows to be alone. */
static __device__ __forceinline__ int32_t fig_feed_is_alone(void) {
    uint32_t is_alone;
    asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }"
                 : "=r"(is_alone));
    return (int32_t)is_alone;
}

/* One side of a strip, by one lane: boxes side by side would each be elected for themselves. */
template <int32_t BLOCKS>
static __device__ __forceinline__ void
fig_feed_boxes(const fig_ring &ring, int32_t side, const void *map, int32_t kv_head,
               const int32_t (&pages)[BLOCKS], const int32_t (&tokens)[BLOCKS], uint64_t policy) {
    const uint32_t block_bytes = ring.side_bytes / BLOCKS;
#pragma unroll
    for (int32_t block = 0; block < BLOCKS; block++)
        fig_feed_box(fig_ring_side(ring, side) + (uint32_t)block * block_bytes, map, tokens[block],
                     kv_head, pages[block], fig_ring_full(ring, side), policy);
}

/* A strip's blocks: 32 are known to a lane each. */
template <class form>
static __device__ __forceinline__ void
fig_feed_bulk_piece(const fig_attention_params &p, const fig_split_line &line,
                    const fig_feed_piece &of, fig_ring *ring, int32_t *has_waited) {
    const int32_t BLOCKS = form::STRIP / FIG_RING_TOKENS;
    const int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP;
    const int32_t window = FIG_BLOCK_WARP * FIG_RING_TOKENS;
    const int32_t origin = of.tokens.first & -FIG_RING_TOKENS;
    const uint64_t policy = fig_feed_once();
    fig_feed_block here = fig_feed_block_at(p, of, origin + lane * FIG_RING_TOKENS);
    fig_feed_block ahead = fig_feed_block_at(p, of, origin + window + lane * FIG_RING_TOKENS);
    int32_t token = origin, partial = -1;
    do {
        if (!*has_waited && token + form::STRIP > of.length - p.split.row_tokens) {
            fig_block_wait();
            *has_waited = 1;
        }
        const int32_t from = (token - origin) / FIG_RING_TOKENS % FIG_BLOCK_WARP;
        int32_t k_pages[BLOCKS], v_pages[BLOCKS], tokens[BLOCKS];
#pragma unroll
        for (int32_t block = 0; block < BLOCKS; block++) {
            k_pages[block] = __shfl_sync(0xffffffffu, here.k_page, from + block);
            v_pages[block] = __shfl_sync(0xffffffffu, here.v_page, from + block);
            tokens[block] = __shfl_sync(0xffffffffu, here.token, from + block);
        }
        fig_ring_wait_empty(*ring, FIG_RING_K);
        if (fig_feed_is_alone())
            fig_feed_boxes(*ring, FIG_RING_K, &p.k_map, of.kv_head, k_pages, tokens, policy);
        fig_ring_wait_empty(*ring, FIG_RING_V);
        if (fig_feed_is_alone())
            fig_feed_boxes(*ring, FIG_RING_V, &p.v_map, of.kv_head, v_pages, tokens, policy);
        /* The first bytes are on their way before the piece's neighbours are looked for. */
        if (token == origin) partial = fig_feed_partial(p, line, of);
        if (lane == 0) {
            fig_ring_write(*ring, fig_feed_note(of, partial, token, form::STRIP));
            fig_feed_expect(fig_ring_full(*ring, FIG_RING_K), ring->side_bytes);
            fig_feed_expect(fig_ring_full(*ring, FIG_RING_V), ring->side_bytes);
        }
        __syncwarp();
        fig_ring_next(ring);
        token += form::STRIP;
        if ((token - origin) % window == 0) {
            here = ahead;
            ahead = fig_feed_block_at(p, of, token + window + lane * FIG_RING_TOKENS);
        }
    } while (token < of.tokens.end);
}
#endif

/* ---- A worker */

/* A note without a strip. */
template <class form>
static __device__ __forceinline__ void fig_feed_say(const fig_ring_note &note, int32_t is_second,
                                                    fig_ring *ring) {
    const int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP;
    for (int32_t side = is_second; side < (form::IS_BULK ? 2 : is_second + 1); side++) {
        fig_ring_wait_empty(*ring, side);
        if (lane == 0 && side == FIG_RING_K) fig_ring_write(*ring, note);
        __syncwarp();
        if (!form::IS_BULK) {
            fig_feed_fill_after_copies(fig_ring_full(*ring, side));
        } else if (lane == 0) {
            fig_ring_arrive(fig_ring_full(*ring, side));
        }
    }
    fig_ring_next(ring);
}

static __device__ __forceinline__ fig_ring_note fig_feed_merge_note(const fig_attention_params &p,
                                                                    const fig_split_piece &piece) {
    fig_ring_note note = {FIG_RING_MERGE, piece.row, piece.group};
    note.first = piece.first;
    note.end = piece.last;
    note.partial = fig_split_partial(&p.split, &piece, piece.first);
    return note;
}

/* Rows of length 0 are not on the line: each belongs to one worker by its number. Zeros and -inf,
 * whatever the sinks. */
static __device__ __noinline__ void fig_feed_idle_rows(const fig_attention_params &p) {
    const int32_t *lengths = (const int32_t *)(p.plan + p.lengths_offset);
    const int32_t rows = ((const fig_plan_head *)p.plan)->rows;
    const int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP;
    for (int32_t row = (int32_t)blockIdx.x; row < rows; row += p.split.workers) {
        if (lengths[row] > 0) continue;
        for (int32_t n = 0; n < p.split.row_tokens * p.q_heads; n++) {
            const int64_t at = (int64_t)row * p.split.row_tokens + n / p.q_heads;
            const int32_t head = n % p.q_heads;
            uint16_t *out = (uint16_t *)p.out + at * p.out_strides.row + head * p.out_strides.head;
            for (int32_t dim = lane; dim < p.head_dim; dim += FIG_BLOCK_WARP)
                out[dim] = 0;
            if (lane == 0 && p.lse != NULL) p.lse[at * p.lse_stride + head] = -INFINITY;
        }
    }
}

/* The worker's strips, and where no block waits for another the note that a piece is done. */
template <class form>
static __device__ __forceinline__ void fig_feed_strips(const fig_attention_params &p,
                                                       const fig_feed_plan &plan, int32_t is_second,
                                                       fig_ring *ring, int32_t *has_waited) {
    fig_split_start start = fig_feed_start(plan);
    const fig_split_line line = fig_feed_line(p, plan);
    while (start.count > 0) {
        const fig_feed_piece of = fig_feed_piece_of(p, plan, start);
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
        if (form::IS_BULK) fig_feed_bulk_piece<form>(p, line, of, ring, has_waited);
#endif
        if (!form::IS_BULK) fig_feed_copy_piece<form>(p, line, of, is_second, ring, has_waited);
        if (p.flags & FIG_ATTENTION_APART) {
            const fig_split_piece piece = fig_split_piece_at(&p.split, &line, &start);
            if (piece.first != piece.last)
                fig_feed_say<form>(fig_feed_merge_note(p, piece), is_second, ring);
        }
        fig_split_pass(&p.split, &line, &start);
    }
}

/* The segments that the worker merges: those whose last piece is its own. But for fixed splits that
 * is its first piece alone: a later segment begins in the worker's stretch, and where it ends there
 * too it is whole. */
template <class form>
static __device__ __forceinline__ void fig_feed_merges(const fig_attention_params &p,
                                                       const fig_feed_plan &plan, int32_t is_second,
                                                       fig_ring *ring) {
    fig_split_start start = fig_feed_start(plan);
    const fig_split_line line = fig_feed_line(p, plan);
    while (start.count > 0) {
        const fig_split_piece piece = fig_split_piece_at(&p.split, &line, &start);
        if (piece.first != piece.last && piece.number == piece.last)
            fig_feed_say<form>(fig_feed_merge_note(p, piece), is_second, ring);
        if (!p.split.fixed) return;
        fig_split_pass(&p.split, &line, &start);
    }
}

/* The first warp behind those that read: K and, in bulk, V; the second V. plan: known where it may
 * be read early. */
template <class form>
static __device__ void fig_feed_worker(const fig_attention_params &p, fig_ring ring,
                                       fig_feed_plan plan, int32_t is_second) {
    int32_t has_waited = (p.flags & FIG_ATTENTION_EARLY) == 0;
    if (has_waited) {
        fig_block_wait();
        plan = fig_feed_read_plan(p);
    }
    fig_feed_strips<form>(p, plan, is_second, &ring, &has_waited);
    if (!has_waited) fig_block_wait();
    if (!is_second) fig_block_trigger();
    if ((p.flags & FIG_ATTENTION_APART) == 0) fig_feed_merges<form>(p, plan, is_second, &ring);
    const fig_ring_note end = {FIG_RING_END};
    fig_feed_say<form>(end, is_second, &ring);
    if (!is_second) fig_feed_idle_rows(p);
    if (!form::IS_BULK) asm volatile("cp.async.wait_all;" ::: "memory");
}

#endif
