/* narrow_cluster.cuh: divides a row's tiles among the blocks of a cluster, and merges the blocks'
 * results in shared memory.
 *
 * Every group of heads of a row has a cluster. Each block multiplies an equal stretch of the row's
 * tiles, and sends its results to the inboxes of the blocks that merge them: vector n belongs to
 * block n % BLOCKS. An inbox holds them as [vector of the block][block], and each as a partial does
 * (narrow_leave.cuh). So no result passes through memory, and no block waits for a block outside
 * its cluster. The plan gives lengths and sequences; its starts are not used.
 *
 * Invariant: a block ends only when all that others send it has come. */
#ifndef FIG_KERNELS_NARROW_CLUSTER_CUH
#define FIG_KERNELS_NARROW_CLUSTER_CUH

#include "kernels/latent/narrow_feed.cuh"
#include "kernels/latent/narrow_leave.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* ---- Loading */

/* Describes the block's part of its row's merge. parts: the blocks that have tiles. */
static __device__ __forceinline__ fig_latent_ring_merge
fig_narrow_cluster_merge(const fig_latent_attention_params &p, const fig_feed_plan &plan,
                         int32_t blocks, int32_t *tiles) {
    fig_latent_ring_merge merge = {0};
    const int32_t segment = (int32_t)blockIdx.x / blocks;
    merge.part = (int32_t)blockIdx.x % blocks;
    merge.row = fig_geometry_divide(segment, p.split.groups);
    merge.group = segment - merge.row * p.split.groups;
    *tiles = 0;
    if (merge.row < plan.rows) {
        const fig_feed_row row = fig_feed_row_of(plan, merge.row);
        *tiles = row.next_prefix - row.prefix;
    }
    merge.parts = fig_size_min(*tiles, blocks);
    return merge;
}

/* Loads the tiles of the block. One warp calls this function. */
template <int32_t BLOCKS, int32_t VECTORS>
static __device__ __forceinline__ void
fig_narrow_cluster_feed(const fig_latent_attention_params &p,
                        const fig_narrow_ring<VECTORS> &ring) {
    const fig_attention_params of = fig_latent_feed_walk(p);
    fig_narrow_feed_way way = fig_narrow_feed_begin(p);
    const fig_feed_plan plan = fig_feed_read_plan(of);
    int32_t tiles;
    const fig_latent_ring_merge merge = fig_narrow_cluster_merge(p, plan, BLOCKS, &tiles);
    const int32_t least = tiles / BLOCKS, more = tiles % BLOCKS;
    const fig_split_start start = {merge.row, merge.group,
                                   merge.part * least + fig_size_min(merge.part, more),
                                   least + (merge.part < more)};
    if (start.count > 0)
        fig_narrow_feed_piece(p, of, ring, plan, fig_feed_piece_of(of, plan, start), &way);
    if (threadIdx.x % FIG_BLOCK_WARP == 0) ring.state->merges[0] = merge;
    __syncwarp();
    fig_feed_wait(&way.of.has_waited);
    const fig_latent_ring_note end = {0};
    fig_latent_feed_say(ring, end, &way.of);
}

/* ---- Results */

template <int32_t VECTORS>
static __device__ __forceinline__ uint8_t *
fig_narrow_cluster_inbox(fig_narrow_ring_state<VECTORS> *state) {
    return (uint8_t *)fig_latent_ring_tiles(state) + fig_narrow_ring_form<VECTORS>::INBOX_AT;
}

/* Sends a block's results to the inboxes of the cluster, whose blocks have all begun. */
template <int32_t BLOCKS> struct fig_narrow_cluster_sender {
    uint32_t inbox, barrier; /* shared addresses, the same in every block */
    int32_t rank;
    static __device__ __forceinline__ uint32_t place_of(const fig_narrow_cluster_sender &to,
                                                        int32_t vector) {
        return fig_latent_machine_of(to.inbox + (uint32_t)((vector / BLOCKS * BLOCKS + to.rank) *
                                                           (int32_t)FIG_LATENT_NARROW_RESULT_BYTES),
                                     vector % BLOCKS);
    }
    static __device__ __forceinline__ void take_sum(const fig_narrow_cluster_sender &to,
                                                    int32_t vector, int32_t warp,
                                                    fig_partials_sum sum) {
        fig_latent_machine_give(
            place_of(to, vector) + (uint32_t)(FIG_LATENT_NARROW_SUMS_AT + warp * 8),
            fig_latent_machine_of(to.barrier, vector % BLOCKS),
            make_uint2(__float_as_uint(sum.greatest), __float_as_uint(sum.weights)));
    }
    static __device__ __forceinline__ void take_pack(const fig_narrow_cluster_sender &to,
                                                     int32_t vector, int32_t pack,
                                                     const uint32_t (&words)[4]) {
        fig_latent_machine_give(place_of(to, vector) + (uint32_t)(pack * 16),
                                fig_latent_machine_of(to.barrier, vector % BLOCKS),
                                make_uint4(words[0], words[1], words[2], words[3]));
    }
};

/* Adds up the thread's pack of all blocks' results of a vector, which lie one behind the other. */
static __device__ __forceinline__ fig_latent_leave_pack
fig_narrow_cluster_join(const uint8_t *results, int32_t parts, int32_t pack) {
    fig_latent_leave_pack joined = {{0}, {FIG_PARTIALS_NONE, 0}};
    const uint8_t *sums =
        results + FIG_LATENT_NARROW_SUMS_AT + fig_narrow_leave_form<1, 1>::sum(pack) * 8;
#pragma unroll 4
    for (int32_t i = 0; i < parts; i++)
        joined.sum.greatest =
            fmaxf(joined.sum.greatest, *(const float *)(sums + i * FIG_LATENT_NARROW_RESULT_BYTES));
#pragma unroll 4
    for (int32_t i = 0; i < parts; i++) {
        const float2 sum = *(const float2 *)(sums + i * FIG_LATENT_NARROW_RESULT_BYTES);
        float values[FIG_LATENT_LEAVE_PACK];
        fig_latent_leave_unpack(
            *(const uint4 *)(results + i * FIG_LATENT_NARROW_RESULT_BYTES + pack * 16), values);
        fig_latent_leave_add(&joined, values, {sum.x, sum.y});
    }
    return joined;
}

/* How the pieces of a launch of clusters end; see fig_narrow_leave_through_memory. */
template <int32_t BLOCKS> struct fig_narrow_cluster_ending {
    template <int32_t DTYPE, int32_t VECTORS>
    static __device__ __forceinline__ void
    leave(const fig_attention_params &of, const fig_partials_place &place, int32_t partial,
          const fig_narrow_leave_thread &at, const fig_narrow_leave_sums<VECTORS> &sums,
          fig_narrow_ring_state<VECTORS> *state) {
        if (partial < 0) return fig_narrow_leave_whole<DTYPE>(of, place, at, sums, state);
        const fig_narrow_cluster_sender<BLOCKS> to = {
            fig_fragment_shared(fig_narrow_cluster_inbox(state)),
            fig_fragment_shared(&state->given), (int32_t)blockIdx.x % BLOCKS};
        fig_narrow_leave_cut(to, place.count, at, sums, state);
    }
    template <int32_t DTYPE, int32_t VECTORS>
    static __device__ __forceinline__ void merge(const fig_attention_params &of, uint32_t,
                                                 fig_narrow_ring_state<VECTORS> *state) {
        const fig_latent_ring_merge merge = state->merges[0];
        const fig_partials_place place = fig_latent_leave_place(of, merge.row, merge.group);
        const int32_t own = (place.count - merge.part + BLOCKS - 1) / BLOCKS;
        const int32_t crew = (int32_t)threadIdx.x / FIG_LATENT_LEAVE_PACKS;
        const int32_t pack = (int32_t)threadIdx.x % FIG_LATENT_LEAVE_PACKS;
        const uint8_t *inbox = fig_narrow_cluster_inbox(state);
        if (merge.parts <= 1 || own <= 0) return;
        if (threadIdx.x == 0)
            fig_latent_machine_expect(
                &state->given,
                (uint32_t)(own * merge.parts * (int32_t)FIG_LATENT_NARROW_RESULT_BYTES));
        fig_latent_machine_await_given(&state->given);
#pragma unroll 1
        for (int32_t n = crew; n < own; n += FIG_LATENT_LEAVE_CREWS) {
            const fig_latent_leave_pack joined = fig_narrow_cluster_join(
                inbox + n * BLOCKS * FIG_LATENT_NARROW_RESULT_BYTES, merge.parts, pack);
            fig_latent_leave_write<DTYPE, fig_narrow_leave_form<1, 1>>(
                of, place, n * BLOCKS + merge.part, pack, joined);
        }
    }
};

#endif
#endif
