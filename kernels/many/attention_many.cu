/* attention_many.cu: computes split-K attention of rows of many query tokens, on warpgroups.
 *
 * A block is one worker of the split. Two warpgroups read strips (many_strip.cuh), two warps bring
 * strips (kv_feed.cuh), and two bring queries (many_desk.cuh). With up to 64 vectors of a kv head,
 * the warpgroups take turns at the strips, so that each strip is read from shared memory once for
 * all vectors; with more, each has up to 64 vectors, and reads all strips. many_leave.cuh writes
 * results and merges. Invariant: every reading warp takes all notes of the ring, in their order. */
#include "kernels/many/many_desk.cuh"
#include "kernels/many/many_leave.cuh"
#include "kernels/many/many_strip.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* Reads the next note. The shuffle tells the compiler that the flags are the same in all lanes;
 * products after a branch on them would otherwise run one after the other. */
static __device__ __forceinline__ fig_ring_note read_note(const fig_ring &ring) {
    fig_ring_note note = fig_warps_read(ring);
    note.flags = fig_wide_same(note.flags);
    return note;
}

/* Processes all strips of a piece or, if warpgroups take turns, every second one, and passes the
 * others. note: that of the piece's first strip, which stands at the ring. Moves past the piece.
 * The last product with V runs while the warpgroup waits for the strip that it passes. */
template <class form>
static __device__ __forceinline__ void see_strips(const fig_many_seat &seat,
                                                  const fig_many_share &share, fig_ring_note note,
                                                  fig_ring *ring, fig_many_seen<form> *seen) {
    int32_t is_last = 0;
    if (share.takes_turns && seat.group == 1) {
        is_last = note.flags & FIG_RING_LAST;
        fig_warps_pass_strip(*ring);
        fig_ring_next(ring);
        if (!is_last) note = read_note(*ring);
    }
    while (!is_last) {
        fig_many_see_strip<form, 0>(*ring, note, seat, share, seen);
        while (!share.takes_turns && (note.flags & FIG_RING_LAST) == 0) {
            fig_ring_next(ring);
            note = read_note(*ring);
            fig_many_see_strip<form, 1>(*ring, note, seat, share, seen);
        }
        fig_many_product_v<form>(*ring, seen);
        fig_ring_next(ring);
        const int32_t has_next = (note.flags & FIG_RING_LAST) == 0;
        if (has_next) {
            note = read_note(*ring);
            fig_ring_release(*ring, FIG_RING_K);
        }
        fig_many_settle<form>(*ring, seen);
        if (!has_next) break;
        is_last = note.flags & FIG_RING_LAST;
        fig_ring_wait_full(*ring, FIG_RING_V); /* as in fig_warps_pass_strip() */
        fig_ring_release(*ring, FIG_RING_V);
        fig_ring_next(ring);
        if (!is_last) note = read_note(*ring);
    }
}

/* Processes a piece and leaves its result. Its queries are, or will be, on the desk. */
template <class form>
static __device__ __forceinline__ void
see_piece(const fig_attention_params &p, const fig_many_seat &seat, int32_t row, int32_t group,
          fig_ring *ring, fig_many_sheets *sheets) {
    const fig_plan_queries queries = fig_many_await_piece<form>(*sheets);
    fig_many_share share = fig_many_share_of(p, seat, fig_many_place(p, row, group, queries));
    fig_many_seen<form> seen;
    fig_many_take_q<form>(seat, share, *sheets, seen.q);
#pragma unroll
    for (int32_t i = 0; i < form::DIM / 2; i++)
        seen.sums[i] = 0.0f;
#pragma unroll
    for (int32_t h = 0; h < 2; h++) {
        seen.greatest[h] = FIG_WIDE_NONE;
        seen.weights[h] = 0.0f;
    }
    const fig_ring_note note = read_note(*ring);
    fig_many_look(p, note, queries.count, seat.row, &share);
    see_strips<form>(seat, share, note, ring, &seen);
    fig_many_leave<form>(p, seat, share, fig_many_next_sheet(*sheets, 0), note.partial, &seen);
    fig_many_release_piece<form>(share, sheets);
}

/* Does the block's part of a merge, which the note describes. */
template <class form>
static __device__ __forceinline__ void merge(const fig_attention_params &p,
                                             const fig_many_seat &seat, const fig_ring_note &note,
                                             fig_ring *ring) {
    const fig_plan_queries queries =
        fig_plan_queries_of(p.plan, p.queries_offset, p.split.row_tokens, note.row);
    fig_many_merge<form>(p, seat, fig_many_place(p, note.row, note.group, queries), *ring, note);
    fig_ring_wait_full(*ring, FIG_RING_V); /* All fillers have announced the end. */
    fig_ring_release(*ring, FIG_RING_K);
    fig_ring_release(*ring, FIG_RING_V);
    fig_ring_next(ring);
}

/* Makes the desk, and waits until the ring has been made. */
template <class form> static __device__ __forceinline__ void open_desk(const fig_many_seat &seat) {
    if (seat.warp == 0) {
        if (seat.lane == 0) fig_many_make_desk(fig_many_desk_of<form>());
        __syncwarp();
        fig_ring_pass(FIG_MANY_DESK_MADE, FIG_BLOCK_WARP + FIG_MANY_BRINGER_THREADS);
    }
    fig_ring_meet(FIG_RING_MADE_TO_READ, fig_feed_ring_threads<form>());
}

/* Empties the ring until the worker is done. The first piece comes from the plan, not from a
 * note. */
template <class form>
static __device__ __forceinline__ void read_strips(const fig_attention_params &p,
                                                   int32_t has_waited) {
    const fig_split_start start = fig_feed_start(p);
    const fig_many_seat seat = fig_many_seat_of();
    const int32_t has_pieces = fig_wide_same(start.count > 0);
    fig_ring ring = fig_many_ring<form>();
    fig_many_sheets sheets = {0};
    fig_ring_note note = {has_pieces ? FIG_RING_FIRST : FIG_RING_END, start.row, start.group};
    open_desk<form>(seat);
    if (!has_waited) fig_block_wait();
    if (!has_pieces) note = read_note(ring);
    while ((note.flags & FIG_RING_END) == 0) {
        if (note.flags & FIG_RING_MERGE)
            merge<form>(p, seat, note, &ring);
        else
            see_piece<form>(p, seat, note.row, note.group, &ring, &sheets);
        note = read_note(ring);
    }
    fig_ring_wait_full(ring, FIG_RING_V);
}

template <class form> static __device__ __forceinline__ void attend(const fig_attention_params &p) {
    const int32_t filler = fig_block_warp() - FIG_MANY_READERS;
    const int32_t is_early = (p.flags & FIG_ATTENTION_EARLY) != 0;
    if (is_early) fig_block_trigger();
    if (is_early && fig_feed_is_idle(p)) return;
    if (!is_early) fig_block_wait();
    if (filler < 0) {
        fig_wide_take_registers<FIG_MANY_READ_REGISTERS>();
        read_strips<form>(p, !is_early);
        return;
    }
    fig_wide_keep_registers<FIG_MANY_FILL_REGISTERS>();
    if (!is_early) fig_block_trigger();
    if (filler < FIG_GEOMETRY_BULK_FILLERS) {
        const fig_feed_plan plan = fig_feed_read_plan(p);
        fig_feed_worker<form>(p, fig_many_ring<form>(), plan, filler, !is_early);
    } else {
        fig_many_bring<form>(p, filler - FIG_GEOMETRY_BULK_FILLERS, !is_early);
    }
}

#define INSTANCE(name, type, dims)                                                                 \
    extern "C" __global__ void __launch_bounds__(                                                  \
        (FIG_MANY_READERS + FIG_MANY_FILLERS) * FIG_BLOCK_WARP, 1)                                 \
        fig_kernel_attention_many_##name##_##dims(                                                 \
            const __grid_constant__ fig_attention_params p) {                                      \
        attend<fig_many_form<type, dims>>(p);                                                      \
    }
INSTANCE(f16, FIG_F16, 64)
INSTANCE(f16, FIG_F16, 128)
INSTANCE(bf16, FIG_BF16, 64)
INSTANCE(bf16, FIG_BF16, 128)

#endif
