/* attention_warps.cuh: split-K decode attention on tensor cores, by the warps that empty the ring.
 *
 * A block is one worker of the split: warps that read strips, and behind them those that bring
 * them. Warps that share a head's tokens meet at a piece's end in shared memory; from there it goes
 * to out or, where its segment is cut, to its partial. Leaves a strip to attention_strip.cuh, the
 * way from the cache to kv_feed.cuh, the ring to kv_ring.cuh and the merge to partials.cuh.
 * Invariant: all warps that read take every note of the ring, in its order. */
#ifndef FIG_KERNELS_ATTENTION_WARPS_CUH
#define FIG_KERNELS_ATTENTION_WARPS_CUH

#include "kernels/attention_strip.cuh"

/* ---- The end of a piece */

/* The dimensions 4 to a pack that a lane has of one of its vectors. */
template <class form>
static __device__ __forceinline__ float4 fig_warps_pack(const fig_warps_seen<form> &seen,
                                                        int32_t pack, int32_t n) {
    const int32_t next = 2 * pack + 1 < form::TILES ? 2 * pack + 1 : 0;
    const float *even = seen.values[2 * pack], *odd = seen.values[next];
    if (2 * pack + 1 < form::TILES) return make_float4(even[n], even[n + 2], odd[n], odd[n + 2]);
    return make_float4(even[n], even[n + 2], 0, 0);
}

/* Where a vector's pack lies in the join: so that lanes of other columns meet other banks. */
static __device__ __forceinline__ int32_t fig_warps_join_at(int32_t n, int32_t pack) {
    return pack ^ (n / 2 * 2 & 7);
}

/* Each share's vectors, and their sums behind them: [share][vector][packs], [vector]. */
template <class form>
static __device__ __forceinline__ void fig_warps_leave_share(const fig_warps_role &role,
                                                             const fig_warps_seen<form> &seen,
                                                             int32_t vectors, uint8_t *share) {
    const int32_t OF_VECTOR = form::PARTIAL_DIMS / FIG_PARTIALS_PACK;
    float weights[2] = {seen.weights[0], seen.weights[1]};
#pragma unroll
    for (int32_t apart = 4; apart < FIG_BLOCK_WARP; apart *= 2) {
        weights[0] += __shfl_xor_sync(0xffffffffu, weights[0], apart);
        weights[1] += __shfl_xor_sync(0xffffffffu, weights[1], apart);
    }
#pragma unroll
    for (int32_t i = 0; i < 2; i++) {
        const int32_t n = 2 * role.column + i;
        float4 *packs = (float4 *)share + n * OF_VECTOR;
        if (n >= role.count) continue;
#pragma unroll
        for (int32_t pack = 0; pack < form::PACKS; pack++)
            packs[fig_warps_join_at(n, pack * 8 + role.row)] = fig_warps_pack<form>(seen, pack, i);
        if (role.row == 0)
            ((float2 *)((float4 *)share + vectors * OF_VECTOR))[n] =
                make_float2(seen.greatest[i], weights[i]);
    }
    if (role.shares > 1) {
        fig_ring_meet(1 + role.number, role.shares * FIG_BLOCK_WARP);
    } else {
        __syncwarp();
    }
}

/* What lane n makes of its vector's shares: by how much each shrinks, and their sum. */
template <class form> struct fig_warps_shares {
    float shrink[form::SHARE_LIMIT];
    fig_partials_sum sum;
};

template <class form>
static __device__ __forceinline__ fig_warps_shares<form>
fig_warps_shares_of(const fig_warps_role &role, const uint8_t *shares, int32_t vectors,
                    int32_t share_bytes) {
    const int32_t n = min(role.lane, role.count - 1);
    fig_warps_shares<form> of;
    float weights[form::SHARE_LIMIT];
    of.sum = {FIG_PARTIALS_NONE, 0};
#pragma unroll
    for (int32_t s = 0; s < form::SHARE_LIMIT; s++) {
        if (s >= role.shares) break;
        const uint8_t *sums = shares + s * share_bytes + vectors * form::PARTIAL_DIMS * 4;
        const float2 sum = ((const float2 *)sums)[n];
        of.shrink[s] = sum.x;
        weights[s] = sum.y;
        of.sum.greatest = fmaxf(of.sum.greatest, sum.x);
    }
#pragma unroll
    for (int32_t s = 0; s < form::SHARE_LIMIT; s++) {
        if (s >= role.shares) break;
        of.shrink[s] = fig_partials_power(of.shrink[s] - of.sum.greatest);
        of.sum.weights = fmaf(weights[s], of.shrink[s], of.sum.weights);
    }
    return of;
}

/* What the shares of these vectors have seen meets in shared memory, and goes on from there. */
template <class form>
static __device__ __forceinline__ void
fig_warps_end(const fig_attention_params &p, const fig_warps_role &role,
              const fig_partials_place &place, const fig_ring_note &note,
              const fig_warps_seen<form> &seen, uint8_t *join) {
    const int32_t OF_VECTOR = form::PARTIAL_DIMS / FIG_PARTIALS_PACK;
    const int32_t vectors = fig_warps_head_vectors(p, role);
    const int32_t share_bytes = fig_form_join_bytes(form::HEAD_DIM, vectors);
    const uint8_t *shares = join + role.number * role.shares * share_bytes;
    fig_warps_leave_share<form>(role, seen, vectors,
                                join + (role.number * role.shares + role.share) * share_bytes);
    const fig_warps_shares<form> of = fig_warps_shares_of<form>(role, shares, vectors, share_bytes);
    fig_partials_way ways = {0, 0, 0, 0};
    fig_pieces_end ends = {0, 0};
    if (note.partial < 0) {
        ways = fig_partials_way_of(p, place);
        ends = fig_partials_end_of(ways, of.sum);
    }
    const int32_t count = role.count * OF_VECTOR;
#pragma unroll 1
    for (int32_t first = role.share * FIG_BLOCK_WARP; first < count;
         first += role.shares * FIG_BLOCK_WARP) {
        const int32_t i = min(first + role.lane, count - 1), n = i / OF_VECTOR;
        const int32_t pack = i % OF_VECTOR, at = n * OF_VECTOR + fig_warps_join_at(n, pack);
        const int32_t is_mine = first + role.lane < count;
        float4 all = make_float4(0, 0, 0, 0);
#pragma unroll
        for (int32_t s = 0; s < form::SHARE_LIMIT; s++) {
            if (s >= role.shares) break;
            const float4 x = ((const float4 *)(shares + s * share_bytes))[at];
            const float shrink = __shfl_sync(0xffffffffu, of.shrink[s], n);
            all.x = fmaf(x.x, shrink, all.x);
            all.y = fmaf(x.y, shrink, all.y);
            all.z = fmaf(x.z, shrink, all.z);
            all.w = fmaf(x.w, shrink, all.w);
        }
        if (note.partial < 0) {
            const fig_partials_way way = fig_partials_way_of_lane(ways, n);
            const fig_pieces_end end = {__shfl_sync(0xffffffffu, ends.scale, n),
                                        __shfl_sync(0xffffffffu, ends.lse, n)};
            if (is_mine) fig_partials_write_out<form>(p, way, pack, all, end);
        } else {
            const fig_partials_sum sum = {__shfl_sync(0xffffffffu, of.sum.greatest, n),
                                          __shfl_sync(0xffffffffu, of.sum.weights, n)};
            const int64_t vector = fig_partials_at(place, note.partial) + n;
            if (is_mine) fig_partials_leave<form>(p, vector, pack, all, sum);
        }
    }
    if (role.shares > 1) {
        fig_ring_meet(1 + role.number, role.shares * FIG_BLOCK_WARP);
    } else {
        __syncwarp();
    }
}

/* ---- A worker */

enum { FIG_WARPS_BARRIER = 15 }; /* of all warps that empty the ring; the shares' are 1 to 8 */

/* Counts a piece as finished, for all warps that empty the ring: the last of its segment gets 1,
 * sees what the others have left, and leaves 0. */
static __device__ __forceinline__ uint32_t fig_warps_is_last(const fig_attention_params &p,
                                                             const fig_ring &ring,
                                                             const fig_ring_note &note) {
    const int32_t threads = ring.readers * FIG_BLOCK_WARP;
    __threadfence();
    fig_ring_meet(FIG_WARPS_BARRIER, threads);
    if (threadIdx.x == 0) {
        uint32_t *counter = &p.counters[fig_split_segment(&p.split, note.row, note.group)];
        const uint32_t last = (uint32_t)(note.end - note.first);
        ring.state->is_last = atomicInc(counter, last) == last;
    }
    fig_ring_meet(FIG_WARPS_BARRIER, threads);
    __threadfence();
    return ring.state->is_last;
}

template <class form>
static __device__ __forceinline__ void
fig_warps_merge(const fig_attention_params &p, const fig_warps_role &role, const fig_ring &ring,
                const fig_ring_note &note) {
    if ((p.flags & FIG_ATTENTION_APART) != 0 && !fig_warps_is_last(p, ring, note)) return;
    const fig_partials_segment segment = {note.partial, p.split.fixed ? note.first : note.first - 1,
                                          note.end - note.first + 1, role.vectors};
    fig_partials_merge<form>(p, fig_warps_place(p, role, note.row, note.group), segment);
}

static __device__ __forceinline__ fig_ring_note fig_warps_read(const fig_ring &ring) {
    fig_ring_wait_full(ring, FIG_RING_K);
    return fig_ring_read(ring);
}

/* All strips of a piece, of which `note` is the first. */
template <class form>
static __device__ __forceinline__ void
fig_warps_see_piece(const fig_attention_params &p, const fig_warps_role &role, int32_t row,
                    int32_t group, fig_ring *ring, uint8_t *join) {
    fig_warps_seen<form> seen;
    const fig_partials_place place = fig_warps_place(p, role, row, group);
    fig_ring_note note;
    fig_warps_load_q<form>(p, role, place, &seen);
    fig_warps_begin<form>(role, &seen);
    do {
        note = fig_warps_read(*ring);
        fig_warps_see_strip<form>(p, *ring, note, role, place, &seen);
        fig_ring_next(ring);
    } while ((note.flags & FIG_RING_LAST) == 0);
    fig_warps_end<form>(p, role, place, note, seen, join);
}

/* Empties the ring until the worker is done. The first piece is the plan's, so that its q is on
 * its way before its strip has come. */
template <class form>
static __device__ void fig_warps_worker(const fig_attention_params &p, const fig_warps_role &role,
                                        fig_ring ring, const fig_split_start &start,
                                        uint8_t *join) {
    int32_t row = start.row, group = start.group, is_piece = start.count > 0;
    for (;;) {
        if (is_piece) fig_warps_see_piece<form>(p, role, row, group, &ring, join);
        const fig_ring_note note = fig_warps_read(ring);
        row = note.row;
        group = note.group;
        is_piece = (note.flags & (FIG_RING_MERGE | FIG_RING_END)) == 0;
        if (is_piece) continue;
        /* Nobody is to fill V's side again before all have filled it. */
        fig_ring_wait_full(ring, FIG_RING_V);
        if (note.flags & FIG_RING_END) return;
        fig_warps_merge<form>(p, role, ring, note);
        fig_ring_release(ring, FIG_RING_K);
        fig_ring_release(ring, FIG_RING_V);
        fig_ring_next(&ring);
    }
}

/* A block: warps that read, and behind them those that fill. */
template <class form>
static __device__ __forceinline__ void fig_warps_attend(const fig_attention_params &p) {
    extern __shared__ uint8_t fig_warps_shared[];
    const int32_t is_early = (p.flags & FIG_ATTENTION_EARLY) != 0;
    fig_feed_plan plan = fig_feed_read_plan(p);
    const fig_warps_role role = fig_warps_role_of<form>(p);
    const int32_t threads = (int32_t)blockDim.x - form::FILLERS * FIG_BLOCK_WARP;
    uint32_t shared_bytes;
    asm("mov.u32 %0, %dynamic_smem_size;" : "=r"(shared_bytes));
    fig_ring ring;
    ring.slots = fig_fragment_shared(fig_warps_shared);
    ring.tokens_bytes = (uint32_t)fig_form_tokens_bytes(form::VALUE_BYTES, form::HEAD_DIM,
                                                        p.heads_per_worker, form::IS_BULK);
    ring.strip = role.shares * form::SHARE_TOKENS;
    ring.side_bytes = (uint32_t)(role.shares * form::STEPS) * ring.tokens_bytes;
    ring.readers = threads / FIG_BLOCK_WARP;
    const int32_t join_bytes =
        ring.readers * fig_form_join_bytes(form::HEAD_DIM, fig_warps_head_vectors(p, role));
    ring.slot_count = fig_form_divide((int32_t)shared_bytes - FIG_FORM_STATE_BYTES - join_bytes,
                                      (int32_t)(2 * ring.side_bytes));
    ring.slot = 0;
    ring.phase = 0;
    uint8_t *behind = fig_warps_shared + (uint32_t)(2 * ring.slot_count) * ring.side_bytes;
    ring.state = (fig_ring_state *)behind;
    if (threadIdx.x == 0)
        fig_ring_init(ring.state, ring.slot_count, fig_feed_full_count<form>(), ring.readers);
    __syncthreads();
    if ((int32_t)threadIdx.x >= threads) {
        const int32_t filler = ((int32_t)threadIdx.x - threads) / FIG_BLOCK_WARP;
        fig_feed_worker<form>(p, ring, plan, filler);
        return;
    }
    fig_block_wait();
    if (!is_early) plan = fig_feed_read_plan(p);
    fig_warps_worker<form>(p, role, ring, fig_feed_start(plan), behind + FIG_FORM_STATE_BYTES);
}

#endif
