/* fetch.cu: make the next plan the device's.
 *
 * plan = plan number state->number + 1, unpacked; or the last one, its rows grown by a launch; or,
 * where there is none, one of zero rows. One block. What costs time is waiting: a load of the
 * device's own memory takes half a microsecond, one of the ring, over the bus, a whole one. So all
 * threads load the state and, before they know whether it is there, a part each of the slot behind
 * it, the whole of 16 KB at once, and a plan that was taken ahead costs one wait:
 *
 *     state, pieces of the slot behind it -> (tag -> pieces of a slot of the ring) -> plan
 *
 * Only where it was not does what stands in brackets come between, and of a short plan tag and
 * pieces come at one glance. Where it goes each thread then finds by itself, for sections are whole
 * pieces of 16 bytes in a slot and in the plan. Slots, the state and the plan are 16-byte aligned,
 * and no two pages of a plan are the same entry. Invariant: that of fetch.c; nothing is written
 * before the plan was found sound, complete and whole. */
#include "kernels/block.cuh"
#include "kernels/fetch.cuh"

enum {
    THREADS = 256,
    WARPS = THREADS / FIG_BLOCK_WARP,
    IN_FLIGHT = 4, /* pieces of a thread */
    ROUND = IN_FLIGHT * THREADS,
    HEAD_PIECES = sizeof(fig_plan_head) / FIG_FETCH_PIECE,
    SUM_PIECE = offsetof(fig_plan_head, checksum) / FIG_FETCH_PIECE, /* its second half */
    GLANCE_ROWS = 16 /* of more most plans are longer than a glance shows */
};
static_assert(FIG_PLAN_SHORT_BYTES == FIG_BLOCK_WARP * FIG_FETCH_PIECE, "a piece for each lane");

/* ---- What the host is told */

/* After a barrier behind which nobody reads the slot. */
static __device__ void tell(const fig_fetch_params &p, uint64_t number, uint64_t replays) {
    __syncthreads();
    if (threadIdx.x == 0) fig_fetch_tell(p.words, number, replays);
}

static __device__ void miss(const fig_fetch_params &p) {
    if (threadIdx.x != 0) return;
    ((fig_plan_head *)p.plan)->rows = 0;
    fig_fetch_miss(p.words);
}

/* A store to the words costs their way over the bus at the kernel's end: none where another tells.
 */
static __device__ void finish(const fig_fetch_params &p, uint64_t number, uint64_t replays) {
    if (threadIdx.x == 0) p.state->replays = replays;
    if (p.tells) tell(p, number, replays);
}

/* ---- Pieces of a slot */

/* Pieces first, first + THREADS, ..; those at or past count stay as they are. */
static __device__ __forceinline__ void load(const uint4 *slot, uint32_t first, uint32_t count,
                                            uint4 (&pieces)[IN_FLIGHT]) {
#pragma unroll
    for (uint32_t i = 0; i < IN_FLIGHT; i++)
        if (first + i * THREADS < count) pieces[i] = fig_fetch_piece(slot + first + i * THREADS);
}

static __device__ __forceinline__ void store(uint4 *slot, uint32_t first, uint32_t count,
                                             const uint4 (&pieces)[IN_FLIGHT]) {
#pragma unroll
    for (uint32_t i = 0; i < IN_FLIGHT; i++)
        if (first + i * THREADS < count) slot[first + i * THREADS] = pieces[i];
}

/* Brings the next piece to the front. What is done with each is code once that way, not as often as
 * there are registers to name: the kernel runs once a step, and its code is waited for too. */
static __device__ __forceinline__ void move_up(uint4 (&pieces)[IN_FLIGHT]) {
#pragma unroll
    for (uint32_t i = 1; i < IN_FLIGHT; i++)
        pieces[i - 1] = pieces[i];
}

/* Of the words of piece number `piece`. */
static __device__ uint64_t terms_of(uint32_t piece, uint4 words) {
    const uint32_t n = 4 * piece, own[] = {words.x, words.y, words.z, words.w};
    uint64_t sum = 0;
#pragma unroll
    for (uint32_t i = 0; i < 4; i++)
        if (fig_plan_is_summed(n + i)) sum += fig_plan_term(n + i, own[i]);
    return sum;
}

/* The warp adds in 32 bits at once, so by parts that leave room for the sum of its lanes. */
static __device__ uint64_t warp_sum(uint64_t x) {
    const uint32_t BITS = 27, PART = (1u << BITS) - 1;
    uint64_t sum = 0;
#pragma unroll
    for (uint32_t shift = 0; shift < 64; shift += BITS)
        sum += (uint64_t)__reduce_add_sync(0xffffffffu, (uint32_t)(x >> shift) & PART) << shift;
    return sum;
}

static __device__ uint64_t block_sum(uint64_t x) {
    __shared__ uint64_t sums[WARPS];
    x = warp_sum(x);
    if (threadIdx.x % FIG_BLOCK_WARP == 0) sums[threadIdx.x / FIG_BLOCK_WARP] = x;
    __syncthreads();
    x = 0;
    for (int32_t i = 0; i < WARPS; i++)
        x += sums[i];
    return x;
}

/* Called by one warp, whose lanes each ask for a piece of the slot at once: 1 where that was all of
 * plan `number`, as it was published. The host may write while they look, and what they see has no
 * order; but pieces of which one is not yet, or is no more, the plan's have another sum. */
static __device__ int glance(const fig_fetch_params &p, const uint4 *slot, uint64_t number,
                             uint4 *piece) {
    const uint32_t lane = threadIdx.x, all = 0xffffffffu;
    if (lane < p.slot_bytes / FIG_FETCH_PIECE) *piece = fig_fetch_piece(slot + lane);
    const uint64_t first = piece->x | (uint64_t)piece->y << 32;
    const uint64_t second = piece->z | (uint64_t)piece->w << 32;
    const uint64_t tag = __shfl_sync(all, first, 0), told = __shfl_sync(all, second, SUM_PIECE);
    const uint32_t count = fig_plan_tag_bytes(tag, p.slot_bytes) / FIG_FETCH_PIECE;
    const uint64_t sum = warp_sum(lane < count ? terms_of(lane, *piece) : 0);
    return fig_plan_tag_number(tag) == number && count <= FIG_BLOCK_WARP &&
           sum + fig_plan_number_term(number) == told;
}

/* ---- Is it any good */

/* *places: of a head that is. */
static __device__ int is_sound(const fig_fetch_params &p, const fig_plan_head &head,
                               uint64_t number, fig_plan_places *places) {
    if (head.tag != fig_plan_tag(number, head.bytes)) return 0;
    if (head.rows < 0 || head.rows > p.shape.row_limit || head.horizon < 1) return 0;
    if (head.page_count > p.slot_bytes / sizeof(fig_plan_page)) return 0;
    if (!fig_plan_has_places(&p.shape, &head)) return 0;
    *places = fig_plan_places_of(&p.shape, &head);
    return places->bytes == head.bytes && head.bytes <= p.slot_bytes;
}

static __device__ int is_complete(const fig_fetch_state &state, const fig_plan_head &head) {
    const uint32_t splits = head.sections & FIG_PLAN_HAS_LENGTHS ? FIG_PLAN_HAS_SPLITS : 0;
    const uint32_t all = FIG_PLAN_HAS_SEQUENCES | splits;
    if ((head.sections & all) == all) return 1;
    return state.held == head.exec + 1 && state.rows == head.rows;
}

/* pieces: the first round. Those past it are brought behind the state on the way, so that what was
 * summed is what is used; each thread reads there what it wrote itself. `*slot`: where they lie
 * from here on. */
static __device__ int is_whole(const fig_fetch_params &p, const fig_plan_head &head,
                               uint64_t number, const uint4 **slot,
                               const uint4 (&pieces)[IN_FLIGHT]) {
    const uint32_t count = head.bytes / FIG_FETCH_PIECE;
    uint4 *ahead = fig_fetch_slot_ahead(p.state), round[IN_FLIGHT];
    uint64_t sum = 0;
#pragma unroll
    for (uint32_t i = 0; i < IN_FLIGHT; i++)
        round[i] = pieces[i];
    for (uint32_t first = threadIdx.x; first < count; first += ROUND) {
        if (first >= ROUND) {
            load(*slot, first, count, round);
            store(ahead, first, count, round);
        }
#pragma unroll 1
        for (uint32_t n = first; n < first + ROUND && n < count; n += THREADS, move_up(round))
            sum += terms_of(n, round[0]);
    }
    *slot = ahead;
    return block_sum(sum) + fig_plan_number_term(number) == head.checksum;
}

/* ---- From slot to plan */

/* Where on the device lies what lies at this offset of a slot; no page. Absent sections begin where
 * the next one does, which then decides. */
static __device__ uint32_t place_of(const fig_plan_layout &layout, const fig_plan_places &places,
                                    uint32_t offset) {
    uint32_t moved = 0;
    if (offset >= places.lengths) moved = layout.lengths - places.lengths;
    if (offset >= places.sequences) moved = layout.sequences - places.sequences;
    if (offset >= places.positions) moved = layout.positions - places.positions;
    if (offset >= places.tokens) moved = layout.tokens - places.tokens;
#pragma unroll
    for (int32_t i = 0; i < FIG_CLASS_LIMIT; i++) {
        if (offset >= places.prefix[i]) moved = layout.prefix[i] - places.prefix[i];
        if (offset >= places.starts[i]) moved = layout.starts[i] - places.starts[i];
    }
    return offset + moved;
}

/* Of four rows, as far as there are so many. */
static __device__ void store_positions(int32_t *positions, int32_t rows, uint4 lengths) {
    const int32_t last[] = {
        fig_plan_last_token((int32_t)lengths.x), fig_plan_last_token((int32_t)lengths.y),
        fig_plan_last_token((int32_t)lengths.z), fig_plan_last_token((int32_t)lengths.w)};
#pragma unroll
    for (int32_t i = 0; i < 4; i++)
        if (i < rows) positions[i] = last[i];
}

static __device__ void place(const fig_fetch_params &p, const fig_plan_head &head,
                             const fig_plan_places &places, uint32_t offset, uint4 piece) {
    const fig_plan_layout &layout = p.shape.layout;
    if (offset >= places.pages) {
        const uint64_t address = piece.x | (uint64_t)piece.y << 32;
        *(int32_t *)address = (int32_t)piece.z;
        return;
    }
    *(uint4 *)(p.plan + place_of(layout, places, offset)) = piece;
    if (head.sections & FIG_PLAN_HAS_POSITIONS) return;
    if (offset < places.lengths || offset >= places.sequences) return;
    const int32_t row = (int32_t)(offset - places.lengths) / (int32_t)sizeof(int32_t);
    store_positions((int32_t *)(p.plan + layout.positions) + row, head.rows - row, piece);
}

/* pieces: the first round, and used up. */
static __device__ void unpack(const fig_fetch_params &p, const fig_plan_head &head,
                              const fig_plan_places &places, const uint4 *slot,
                              uint4 (&pieces)[IN_FLIGHT]) {
    const uint32_t count = head.bytes / FIG_FETCH_PIECE;
    for (uint32_t first = threadIdx.x; first < count; first += ROUND) {
        if (first >= ROUND) load(slot, first, count, pieces);
#pragma unroll 1
        for (uint32_t n = first; n < first + ROUND && n < count; n += THREADS, move_up(pieces))
            place(p, head, places, n * FIG_FETCH_PIECE, pieces[0]);
    }
}

/* ---- Taking a plan, and growing it */

static __device__ void tear(const fig_fetch_params &p, uint64_t number, uint64_t replays) {
    if (threadIdx.x == 0) {
        p.state->held = 0;
        p.state->replays = replays;
        fig_fetch_count(&p.words->torn);
    }
    miss(p);
    tell(p, number, replays);
}

/* pieces: the first round of the slot behind the state. */
static __device__ void take(const fig_fetch_params &p, const fig_fetch_state &state,
                            uint4 (&pieces)[IN_FLIGHT]) {
    __shared__ uint64_t tag;
    __shared__ int is_seen;
    __shared__ uint4 head_pieces[HEAD_PIECES];
    const uint64_t next = state.number + 1;
    const uint4 *slot = fig_fetch_slot_ahead(p.state);
    int32_t owes_sum = 0; /* 1: a short plan of the ring that the glance did not believe */
    if (state.ahead != next) {
        slot = fig_fetch_slot(p.ring, next, p.slot_count, p.slot_bytes);
        if (threadIdx.x < FIG_BLOCK_WARP) {
            const int is_short = p.shape.row_limit <= GLANCE_ROWS;
            const int seen = is_short && glance(p, slot, next, &pieces[0]);
            /* Partner: the release in fig_ring_publish. Only what has been published is read on. */
            if (threadIdx.x == 0 && !seen) tag = fig_fetch_acquire((const uint64_t *)slot);
            if (threadIdx.x == 0) is_seen = seen;
        }
        __syncthreads();
        if (!is_seen && fig_plan_tag_number(tag) != next) return miss(p);
        const uint32_t bytes = is_seen ? 0 : fig_plan_tag_bytes(tag, p.slot_bytes);
        load(slot, threadIdx.x, bytes / FIG_FETCH_PIECE, pieces);
        owes_sum = !is_seen;
    }
    if (threadIdx.x < HEAD_PIECES) head_pieces[threadIdx.x] = pieces[0];
    __syncthreads(); /* all have read the state, too, which is written below */
    const fig_plan_head head = *(const fig_plan_head *)head_pieces;
    if (head.exec != p.shape.exec) return miss(p);
    fig_plan_places places;
    const int sound = is_sound(p, head, next, &places);
    const int is_summed = (head.sections & FIG_PLAN_HAS_CHECKSUM) != 0 ||
                          (owes_sum && head.bytes <= FIG_PLAN_SHORT_BYTES);
    if (threadIdx.x == 0) {
        p.state->number = next;
        p.state->left = sound ? head.horizon - 1 : 0;
    }
    if (!sound || !is_complete(state, head) ||
        (is_summed && !is_whole(p, head, next, &slot, pieces)))
        return tear(p, next, state.replays + 1);
    unpack(p, head, places, slot, pieces);
    if (threadIdx.x == 0) {
        p.state->held = head.exec + 1;
        p.state->rows = head.rows;
    }
    finish(p, next, state.replays + 1);
}

static __device__ void grow(const fig_fetch_params &p, const fig_fetch_state &state) {
    fig_plan_head *head = (fig_plan_head *)p.plan;
    int32_t *lengths = (int32_t *)(p.plan + p.shape.layout.lengths);
    int32_t *positions = (int32_t *)(p.plan + p.shape.layout.positions);
    const int is_held = state.held == p.shape.exec + 1;
    __syncthreads(); /* all have read the state */
    if (!is_held) miss(p);
    if (!is_held && state.held != 0) return;
    if (is_held) {
        const int32_t row_tokens = head->row_tokens;
        for (int32_t row = (int32_t)threadIdx.x; row < state.rows && row_tokens > 0;
             row += THREADS) {
            const int32_t length = lengths[row], position = positions[row];
            if (length == 0) continue;
            lengths[row] = length + row_tokens;
            positions[row] = position + row_tokens;
        }
        if (threadIdx.x == 0) {
            head->rows = state.rows;
            head->advanced += row_tokens;
        }
    }
    if (threadIdx.x == 0) p.state->left = state.left - 1;
    finish(p, state.number, state.replays + 1);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    fig_kernel_fetch(const __grid_constant__ fig_fetch_params p) {
    fig_block_wait();
    fig_block_trigger();
    if (p.shape.exec >= FIG_FETCH_FORGET) {
        if (threadIdx.x == 0 && p.shape.exec == FIG_FETCH_DROP) p.state->left = 0;
        if (threadIdx.x == 0) p.state->ahead = 0;
        return;
    }
    uint4 pieces[IN_FLIGHT];
    const fig_fetch_state state = *p.state;
    load(fig_fetch_slot_ahead(p.state), threadIdx.x, p.slot_bytes / FIG_FETCH_PIECE, pieces);
    if (state.left > 0) {
        grow(p, state);
    } else {
        take(p, state, pieces);
    }
}
