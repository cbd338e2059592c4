/* many_desk.cuh: brings the queries of each piece to the desk, while the piece before it is read.
 *
 * Two warps walk along the worker's pieces as kv_feed.cuh does. A piece takes one sheet if the
 * warpgroups have the same vectors, and one for each otherwise. Each vector of a sheet lies in
 * columns of 128 bytes, swizzled, as the products want it. Readers release the sheets of a piece
 * when it has ended. Invariant: no address outside the row's query tokens is read, and nothing that
 * the step writes before the wait. */
#ifndef FIG_KERNELS_MANY_DESK_CUH
#define FIG_KERNELS_MANY_DESK_CUH

#include "kernels/many/many_form.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

enum {
    FIG_MANY_BRINGERS = FIG_MANY_FILLERS - FIG_GEOMETRY_BULK_FILLERS, /* warps */
    FIG_MANY_BRINGER_THREADS = FIG_MANY_BRINGERS * FIG_BLOCK_WARP
};

/* Counts the sheets that have been taken, on either side of the desk. */
typedef struct fig_many_sheets {
    int32_t taken;
} fig_many_sheets;

/* Returns the number of the i-th next sheet. */
static __device__ __forceinline__ int32_t fig_many_next_sheet(const fig_many_sheets &sheets,
                                                              int32_t i) {
    return (sheets.taken + i) % FIG_MANY_SHEETS;
}

/* Returns the phase of that sheet's barriers. */
static __device__ __forceinline__ uint32_t fig_many_sheet_phase(const fig_many_sheets &sheets,
                                                                int32_t i) {
    return (uint32_t)((sheets.taken + i) / FIG_MANY_SHEETS % 2);
}

/* Makes the desk. One thread of the first reading warp calls it. */
static __device__ __forceinline__ void fig_many_make_desk(fig_many_desk *desk) {
#pragma unroll
    for (int32_t i = 0; i < FIG_MANY_SHEETS; i++) {
        fig_ring_barrier_init(&desk->full[i], FIG_MANY_BRINGERS);
        fig_ring_barrier_init(&desk->empty[i], FIG_MANY_READERS);
    }
}

/* ---- Bringing */

/* Copies a chunk of 16 bytes, word by word if it does not begin at a multiple of 16 bytes. */
static __device__ __forceinline__ void fig_many_copy_chunk(uint32_t to, uint64_t from,
                                                           int32_t is_whole) {
    if (is_whole) {
        fig_wide_copy(to, from);
        return;
    }
#pragma unroll
    for (int32_t word = 0; word < FIG_RING_CHUNK; word += 4)
        fig_wide_copy_word(to + (uint32_t)word, from + (uint64_t)word);
}

/* Copies the vectors of a place, at most 64, to a sheet. */
template <class form>
static __device__ __forceinline__ void fig_many_bring_vectors(const fig_attention_params &p,
                                                              const fig_partials_place &place,
                                                              uint32_t sheet, int32_t thread) {
    const uint64_t places =
        (uint64_t)p.q | (uint64_t)p.q_strides.row * 2 | (uint64_t)p.q_strides.head * 2;
    const int32_t CHUNKS = form::DIM * 2 / FIG_RING_CHUNK; /* chunks of a vector */
    const int32_t OF_COLUMN = form::COLUMN / FIG_RING_CHUNK;
#pragma unroll 4
    for (int32_t i = thread; i < place.count * CHUNKS; i += FIG_MANY_BRINGER_THREADS) {
        const int32_t n = i / CHUNKS, chunk = i % CHUNKS;
        const fig_pieces_vector vector = fig_partials_vector(place, n);
        const uint16_t *q =
            (const uint16_t *)p.q + vector.row * p.q_strides.row + vector.q_head * p.q_strides.head;
        fig_many_copy_chunk(
            sheet + (uint32_t)(chunk / OF_COLUMN * form::Q_COLUMN +
                               fig_ring_chunk_at<form::COLUMN>(n, chunk % OF_COLUMN)),
            (uint64_t)(q + chunk * (FIG_RING_CHUNK / 2)), places % FIG_RING_CHUNK == 0);
    }
    fig_wide_await_copies();
    __syncwarp();
}

/* Brings the queries of a piece of a row. */
template <class form>
static __device__ __forceinline__ void
fig_many_bring_piece(const fig_attention_params &p, int32_t row, int32_t group, int32_t thread,
                     fig_many_sheets *sheets) {
    fig_many_desk *desk = fig_many_desk_of<form>();
    const fig_plan_queries queries =
        fig_plan_queries_of(p.plan, p.queries_offset, p.split.row_tokens, row);
    const fig_partials_place all = fig_many_place(p, row, group, queries);
    const int32_t count = fig_many_takes_turns(p, all) ? 1 : FIG_MANY_GROUPS;
#pragma unroll 1
    for (int32_t i = 0; i < count; i++) {
        const int32_t sheet = fig_many_next_sheet(*sheets, i);
        fig_partials_place place = all;
        place.first = i * FIG_MANY_GROUP_VECTORS;
        place.count = min(all.count - place.first, (int32_t)FIG_MANY_GROUP_VECTORS);
        fig_ring_wait(fig_fragment_shared(&desk->empty[sheet]),
                      fig_many_sheet_phase(*sheets, i) ^ 1);
        if (thread == 0) desk->queries[sheet] = queries;
        fig_many_bring_vectors<form>(p, place, fig_fragment_shared(fig_many_sheet<form>(sheet)),
                                     thread);
        if (thread % FIG_BLOCK_WARP == 0) fig_ring_arrive(fig_fragment_shared(&desk->full[sheet]));
        __syncwarp();
    }
    sheets->taken += count;
}

/* Runs a warp that brings queries. bringer: its number among them. */
template <class form>
static __device__ __forceinline__ void fig_many_bring(const fig_attention_params &p,
                                                      int32_t bringer, int32_t has_waited) {
    const int32_t thread = bringer * FIG_BLOCK_WARP + (int32_t)threadIdx.x % FIG_BLOCK_WARP;
    const fig_feed_plan plan = fig_feed_read_plan(p);
    fig_split_start start = plan.start;
    fig_many_sheets sheets = {0};
    fig_ring_pass(FIG_RING_MADE_TO_FILL, FIG_MANY_FILLERS * FIG_BLOCK_WARP);
    fig_ring_meet(FIG_MANY_DESK_MADE, FIG_BLOCK_WARP + FIG_MANY_BRINGER_THREADS);
    if (!has_waited) fig_block_wait();
    while (start.count > 0) {
        const fig_feed_piece of = fig_feed_piece_of(p, plan, start);
        fig_many_bring_piece<form>(p, start.row, start.group, thread, &sheets);
        fig_feed_pass(p, plan, of, &start);
    }
}

/* ---- Reading */

/* Waits for the queries of the next piece, and returns those of its row. */
template <class form>
static __device__ __forceinline__ fig_plan_queries
fig_many_await_piece(const fig_many_sheets &sheets) {
    const fig_many_desk *desk = fig_many_desk_of<form>();
    const int32_t sheet = fig_many_next_sheet(sheets, 0);
    fig_ring_wait(fig_fragment_shared(&desk->full[sheet]), fig_many_sheet_phase(sheets, 0));
    __syncwarp();
    return desk->queries[sheet];
}

/* Loads the vectors of the warpgroup's share to the registers of the threads that multiply them.
 * Vectors that do not exist become zeros: in the sheet, old sums may have their place. */
template <class form>
static __device__ __forceinline__ void fig_many_take_q(const fig_many_seat &seat,
                                                       const fig_many_share &share,
                                                       const fig_many_sheets &sheets, uint32_t *q) {
    const fig_many_desk *desk = fig_many_desk_of<form>();
    const int32_t i = share.takes_turns ? 0 : seat.group, sheet = fig_many_next_sheet(sheets, i);
    fig_ring_wait(fig_fragment_shared(&desk->full[sheet]), fig_many_sheet_phase(sheets, i));
    __syncwarp();
    fig_wide_load_q<form>(q, fig_fragment_shared(fig_many_sheet<form>(sheet)), seat.warp % 4,
                          seat.lane);
#pragma unroll
    for (int32_t j = 0; j < form::DIM / 4; j++)
        if (seat.row + 8 * (j % 2) >= share.place.count) q[j] = 0;
}

/* Releases the sheets of a piece. */
template <class form>
static __device__ __forceinline__ void fig_many_release_piece(const fig_many_share &share,
                                                              fig_many_sheets *sheets) {
    fig_many_desk *desk = fig_many_desk_of<form>();
    const int32_t count = share.takes_turns ? 1 : FIG_MANY_GROUPS;
    __syncwarp();
    if (threadIdx.x % FIG_BLOCK_WARP == 0)
        for (int32_t i = 0; i < count; i++)
            fig_ring_arrive(fig_fragment_shared(&desk->empty[fig_many_next_sheet(*sheets, i)]));
    sheets->taken += count;
}

#endif
#endif
