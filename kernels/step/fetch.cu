/* fetch.cu: makes the next plan the device's plan.
 *
 * The plan becomes one of three: plan number state->number + 1, unpacked; the last plan with its
 * rows grown by one launch; or, if there is no plan, one of zero rows. One block runs. Its time is
 * latency: a load from the device's own memory takes half a microsecond, and a load from the ring,
 * over the bus, a whole microsecond. So all threads load the state. Before a thread knows whether
 * the slot after the state is filled, it also loads a part of that slot, 16 KB for all threads
 * together. A prefetched plan thus costs one wait:
 *
 *     state, pieces of the slot after it -> (tag -> pieces of a slot of the ring) -> plan
 *
 * The part in brackets is only needed if the plan was not prefetched; for a short plan, tag and
 * pieces come in one glance. Each thread then computes the destination of its own pieces, because
 * sections are whole pieces of 16 bytes both in a slot and in the plan. Slots, the state and the
 * plan are 16-byte aligned, and no two pages of a plan go to the same entry. Invariant: that of
 * fetch.c; also, nothing is written before the plan is found sound, complete and whole. */
#include "kernels/common/block.cuh"
#include "kernels/step/fetch.cuh"

enum {
    THREADS = 256,
    WARPS = THREADS / FIG_BLOCK_WARP,
    IN_FLIGHT = 4, /* pieces of a thread */
    ROUND = IN_FLIGHT * THREADS,
    HEAD_PIECES = sizeof(fig_plan_head) / FIG_FETCH_PIECE,
    /* the checksum is the second half of this piece */
    SUM_PIECE = offsetof(fig_plan_head, checksum) / FIG_FETCH_PIECE,
    GLANCE_ROWS = 16 /* with more rows, most plans are longer than a glance reads */
};
static_assert(FIG_PLAN_SHORT_BYTES == FIG_BLOCK_WARP * FIG_FETCH_PIECE, "a piece for each lane");

/* ---- Reports to the host */

/* Reports to the host, after all threads have read the slot. */
static __device__ void tell(const fig_fetch_params &p, uint64_t number, uint64_t replays) {
    __syncthreads();
    if (threadIdx.x == 0) fig_fetch_tell(p.words, number, replays);
}

static __device__ void miss(const fig_fetch_params &p) {
    if (threadIdx.x != 0) return;
    ((fig_plan_head *)p.plan)->rows = 0;
    fig_fetch_miss(p.words);
}

/* Ends the fetch. A store to the words costs a trip over the bus at the end of the kernel, so this
 * function makes no such store if a look ahead reports. */
static __device__ void finish(const fig_fetch_params &p, uint64_t number, uint64_t replays) {
    if (threadIdx.x == 0) p.state->replays = replays;
    if (p.tells) tell(p, number, replays);
}

/* ---- Pieces of a slot */

/* Loads pieces first, first + THREADS, ..; pieces at or past `count` stay unchanged. */
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

/* Moves the next piece to the front. The code for a piece then exists once, instead of once per
 * register. This matters because the kernel runs once per step, and loading its code adds latency,
 * too. */
static __device__ __forceinline__ void move_up(uint4 (&pieces)[IN_FLIGHT]) {
#pragma unroll
    for (uint32_t i = 1; i < IN_FLIGHT; i++)
        pieces[i - 1] = pieces[i];
}

/* Returns the sum of the checksum terms of piece number `piece`. */
static __device__ uint64_t terms_of(uint32_t piece, uint4 words) {
    const uint32_t n = 4 * piece, own[] = {words.x, words.y, words.z, words.w};
    uint64_t sum = 0;
#pragma unroll
    for (uint32_t i = 0; i < 4; i++)
        if (fig_plan_is_summed(n + i)) sum += fig_plan_term(n + i, own[i]);
    return sum;
}

/* Returns the sum of x over the warp. The warp's add instruction takes 32-bit numbers, so x is
 * added in parts so small that the sum over all lanes does not overflow. */
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

/* Loads all pieces of the slot at once. One warp calls this. Returns 1 if all the pieces are those
 * of plan `number`, as published. The host may write meanwhile, and the loads are not ordered among
 * themselves. But if one piece does not yet, or no longer, belong to the plan, the checksum
 * differs. */
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

/* ---- Checks of a plan */

/* Returns 1 if the head is sound, and then sets *places. */
static __device__ int is_sound(const fig_fetch_params &p, const fig_plan_head &head,
                               uint64_t number, fig_plan_places *places) {
    if (!fig_plan_is_tagged(&head, number, p.slot_bytes)) return 0;
    if (head.rows < 0 || head.rows > p.shape.row_limit || head.horizon < 1) return 0;
    if (head.page_count > p.slot_bytes / sizeof(fig_plan_page)) return 0;
    if (!fig_plan_has_places(&p.shape, &head)) return 0;
    *places = fig_plan_places_of(&p.shape, &head);
    return places->bytes == head.bytes;
}

static __device__ int is_complete(const fig_fetch_params &p, const fig_fetch_state &state,
                                  const fig_plan_head &head) {
    const uint32_t all = fig_plan_all_sections(&p.shape, &head);
    if ((head.sections & all) == all) return 1;
    return state.held == head.exec + 1 && state.rows == head.rows;
}

/* Returns 1 if the checksum matches. pieces: the first round. Later rounds are copied to the slot
 * after the state while they are summed, so the bytes that are summed are the bytes that are used.
 * Each thread later reads only its own copies. Sets `*slot` to the place of the bytes. */
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

/* Returns the offset, in the device's plan, of the bytes at `offset` of a slot. These bytes must
 * belong to a section, not to the pages. An absent section has the same offset as the next section,
 * so the next one decides. */
static __device__ uint32_t place_of(const fig_plan_shape &shape, const fig_plan_places &places,
                                    uint32_t offset) {
    const fig_plan_layout &layout = shape.layout;
    uint32_t moved = 0;
    if (offset >= places.lengths) moved = layout.lengths - places.lengths;
    if (offset >= places.sequences) moved = layout.sequences - places.sequences;
    if (offset >= places.positions) moved = layout.positions - places.positions;
    if (offset >= places.tokens) moved = layout.tokens - places.tokens;
    if (offset >= places.queries) moved = layout.queries - places.queries;
#pragma unroll
    for (int32_t i = 0; i < FIG_CLASS_LIMIT; i++) {
        if (offset >= places.prefix[i]) moved = layout.prefix[i] - places.prefix[i];
        if (offset >= places.starts[i]) moved = layout.starts[i] - places.starts[i];
    }
    if (offset >= places.strips) moved = fig_plan_strips_place(&shape) - places.strips;
    return offset + moved;
}

/* Stores the positions of up to four rows. */
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
    *(uint4 *)(p.plan + place_of(p.shape, places, offset)) = piece;
    if (head.sections & FIG_PLAN_HAS_POSITIONS) return;
    if (offset < places.lengths || offset >= places.sequences) return;
    const int32_t row = (int32_t)(offset - places.lengths) / (int32_t)sizeof(int32_t);
    store_positions((int32_t *)(p.plan + layout.positions) + row, head.rows - row, piece);
}

/* Unpacks a plan. pieces: the first round; this call changes them. */
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

/* ---- Taking and growing a plan */

/* Discards plan `number` and counts it in `word`. torn: damaged plans so far. */
static __device__ void discard(const fig_fetch_params &p, uint64_t number, uint64_t replays,
                               uint32_t torn, uint64_t *word) {
    if (threadIdx.x == 0) {
        p.state->held = 0;
        p.state->torn = torn;
        p.state->replays = replays;
        fig_fetch_count(word);
    }
    miss(p);
    tell(p, number, replays);
}

/* Takes the next plan. pieces: the first round of the slot after the state. */
static __device__ void take(const fig_fetch_params &p, const fig_fetch_state &state,
                            uint4 (&pieces)[IN_FLIGHT]) {
    __shared__ uint64_t tag;
    __shared__ int is_seen;
    __shared__ uint4 head_pieces[HEAD_PIECES];
    const uint64_t next = state.number + 1;
    const uint4 *slot = fig_fetch_slot_ahead(p.state);
    int32_t owes_sum = 0; /* 1: a short plan of the ring whose glance failed */
    if (state.ahead != next) {
        slot = fig_fetch_slot(p.ring, next, p.slot_count, p.slot_bytes);
        if (threadIdx.x < FIG_BLOCK_WARP) {
            const int is_short = p.shape.row_limit <= GLANCE_ROWS;
            const int seen = is_short && glance(p, slot, next, &pieces[0]);
            /* Partner: the release in fig_ring_publish. The rest is read only after publication. */
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
    __syncthreads(); /* all threads have also read the state, which is written below */
    const fig_plan_head head = *(const fig_plan_head *)head_pieces;
    const int is_own = head.exec == p.shape.exec;
    fig_plan_places places;
    const int sound =
        is_own ? is_sound(p, head, next, &places) : fig_plan_is_tagged(&head, next, p.slot_bytes);
    const int is_summed = (head.sections & FIG_PLAN_HAS_CHECKSUM) != 0 ||
                          ((owes_sum || !is_own) && head.bytes <= FIG_PLAN_SHORT_BYTES);
    const int whole = sound && (!is_summed || is_whole(p, head, next, &slot, pieces));
    if (whole && !is_own) return miss(p);
    if (threadIdx.x == 0) {
        p.state->number = next;
        p.state->left = sound && is_own ? head.horizon - 1 : 0;
    }
    if (whole && fig_plan_is_late(&head, state.torn))
        return discard(p, next, state.replays + 1, state.torn, &p.words->late);
    if (!whole || !is_complete(p, state, head))
        return discard(p, next, state.replays + 1, state.torn + 1, &p.words->torn);
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
    __syncthreads(); /* all threads have read the state */
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
