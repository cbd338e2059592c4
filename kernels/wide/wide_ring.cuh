/* wide_ring.cuh: lays out a block's shared memory: queries, a ring of tiles of K and V, barriers.
 *
 *     [queries of warpgroup 0 and 1][stages][K and V of a tile][barriers, notes]
 *
 * The filling warp and both multiplying warpgroups number the tiles alike. A warpgroup passes over
 * the tiles of items that only the other one processes, and the filling warp releases them in its
 * stead. So a warpgroup may be several rounds of the ring ahead of the filling warp, and one phase
 * bit does not distinguish the fillings of a stage. It then first waits until the filling warp has
 * begun the round. Owns the layout and the position in the ring. Invariant: a stage is filled again
 * only after every warp that processes its tile has released it. */
#ifndef FIG_KERNELS_WIDE_RING_CUH
#define FIG_KERNELS_WIDE_RING_CUH

#include "kernels/wide/wide_tile.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

enum {
    FIG_WIDE_GROUPS = 2,      /* warpgroups that multiply */
    FIG_WIDE_GROUP_WARPS = 4, /* warps of a warpgroup */
    FIG_WIDE_READERS = FIG_WIDE_GROUPS * FIG_WIDE_GROUP_WARPS,
    FIG_WIDE_END = -1,   /* flags of the note after the last item */
    FIG_WIDE_FEW = 16,   /* vectors whose members lie in shared memory: those of one warp */
    FIG_WIDE_ASKERS = 3, /* warps that load queries */
    FIG_WIDE_ROWS = 32   /* rows in a warpgroup's list */
};

/* Named barriers: the turns at the tensor cores, and the threads of each warpgroup. */
enum { FIG_WIDE_TURNS = 1, FIG_WIDE_OWN = 3 };

/* Holds the type and the sizes of an instance. */
template <int32_t DTYPE, int32_t DIMS> struct fig_wide_form {
    typedef typename fig_wide_tag<DTYPE>::type tag;
    static constexpr int32_t TYPE = DTYPE;
    static constexpr int32_t DIM = DIMS;
    static constexpr int32_t TILE = fig_wide_tile(DIMS);
    static constexpr float LIFT = 0.0f; /* weights are rounded in any case */
    static constexpr int32_t COLUMN = 2 * fig_wide_column(DIMS); /* bytes */
    static constexpr int32_t COLUMNS = fig_wide_columns(DIMS);
    static constexpr int32_t BLOCK = FIG_WIDE_BLOCK * COLUMN; /* bytes of 8 tokens of a column */
    static constexpr int32_t GROUP_APART = COLUMNS * BLOCK, COLUMN_APART = BLOCK;
    static constexpr int32_t SIDE = fig_wide_side_bytes(DIMS);
    static constexpr int32_t QUERIES = fig_wide_q_bytes(DIMS);
    static constexpr int32_t Q_COLUMN = FIG_STRIPS_HALF * COLUMN; /* bytes of a column of queries */
    static constexpr int32_t STAGES = fig_wide_stages(DIMS);
    static constexpr int32_t RING = FIG_WIDE_GROUPS * QUERIES; /* offsets in shared memory */
    static constexpr int32_t STATE = RING + STAGES * 2 * SIDE;
    /* If registers hold the queries, the products read a third less from shared memory, and the
     * next queries can be loaded early. The sums of 256 dims leave no registers for queries. */
    static constexpr int32_t HOLDS_QUERIES = DIMS <= 128;
    /* Tiles that are on their way at once before the preceding launch has ended: 64 KB. */
    static constexpr int32_t PACE = SIDE > (1 << 14) ? 1 : (1 << 15) / SIDE;
    /* Arrivals of a warp that loads queries. If registers hold them, no product reads them from
     * shared memory, so the lanes need not wait for their copies: each arrives when its own are
     * done, beside lane 0 for what the warp has written. */
    static constexpr int32_t ARRIVALS = HOLDS_QUERIES ? 1 + FIG_BLOCK_WARP : 1;
    /* With two stages, the copy engine has too little to do unless K of a tile is sent before V of
     * the tile before it. With three it makes no difference. */
    static constexpr int32_t SENDS_K_AHEAD = STAGES < 3;
    /* Exponentials wait for the product of the tile before with V if dims are few: then the other
     * warpgroup's turn at the tensor cores comes sooner. */
    static constexpr int32_t WAITS_FOR_V = DIMS <= 128;
};

/* Tells a warpgroup its next item. */
struct fig_wide_note {
    fig_strips_item item;
    int32_t skip; /* tiles before the item's, which only the other warpgroup processes */
    int32_t reserved[3];
};

/* One kv head of a row that shares prefixes, as wide_rows.cuh keeps it. */
struct fig_wide_row {
    int32_t query; /* its first member */
    int16_t head, count;
};

/* Holds the state, which follows the ring. */
template <int32_t STAGES> struct fig_wide_state {
    uint64_t k_full[STAGES], k_empty[STAGES], v_full[STAGES], v_empty[STAGES];
    uint64_t q_full[FIG_WIDE_GROUPS], q_empty[FIG_WIDE_GROUPS];
    fig_wide_note notes[FIG_WIDE_GROUPS];
    /* The members of an item of few vectors, until it ends. Items use the two places in turn,
     * because the next note arrives before the item ends. */
    alignas(16) fig_strips_member members[FIG_WIDE_GROUPS][2][FIG_WIDE_FEW];
    fig_wide_row rows[FIG_WIDE_GROUPS][FIG_WIDE_ROWS];
    uint32_t begun[STAGES]; /* number of rounds in which filling the stage's V has begun */
};

/* Locates the block's shared memory, as a shared address and as a pointer to its state. */
template <class form> struct fig_wide_memory {
    uint32_t base;
    fig_wide_state<form::STAGES> *state;
};

/* Names a place in the ring. */
struct fig_wide_turn {
    int32_t stage;
    uint32_t round; /* its lowest bit is the phase of the stage's barriers */
};

template <class form> static __device__ __forceinline__ void fig_wide_advance(fig_wide_turn *turn) {
    if (++turn->stage < form::STAGES) return;
    turn->stage = 0;
    turn->round++;
}

/* Moves past the tiles that only the other warpgroup processes. */
template <class form>
static __device__ __forceinline__ void fig_wide_pass(fig_wide_turn *turn, int32_t tiles) {
    const int32_t stage = turn->stage + tiles;
    turn->stage = stage % form::STAGES;
    turn->round += (uint32_t)(stage / form::STAGES);
}

template <class form>
static __device__ __forceinline__ uint32_t fig_wide_k(const fig_wide_memory<form> &memory,
                                                      int32_t stage) {
    return memory.base + form::RING + (uint32_t)stage * 2 * form::SIDE;
}

template <class form>
static __device__ __forceinline__ uint32_t fig_wide_v(const fig_wide_memory<form> &memory,
                                                      int32_t stage) {
    return fig_wide_k<form>(memory, stage) + form::SIDE;
}

template <class form>
static __device__ __forceinline__ uint32_t fig_wide_q(const fig_wide_memory<form> &memory,
                                                      int32_t group) {
    return memory.base + (uint32_t)group * form::QUERIES;
}

/* Waits until the filling of tile `ahead` behind the turn has begun. ahead: less than STAGES. */
template <class form>
static __device__ __forceinline__ void fig_wide_await_begin(const fig_wide_memory<form> &memory,
                                                            fig_wide_turn turn, int32_t ahead) {
    fig_wide_pass<form>(&turn, ahead);
    const volatile uint32_t *begun = &memory.state->begun[turn.stage];
#ifdef FIG_WIDE_LOOKS
    for (int32_t look = 0; look < FIG_WIDE_LOOKS << 16; look++)
        if (fig_wide_same((int32_t)*begun) > (int32_t)turn.round) return;
#else
    while (fig_wide_same((int32_t)*begun) <= (int32_t)turn.round)
        ;
#endif
}

/* Releases what the warp has read. Lane 0 arrives for the warp. */
static __device__ __forceinline__ void fig_wide_release(const uint64_t *barrier) {
    if (threadIdx.x % FIG_BLOCK_WARP == 0) fig_ring_arrive(fig_fragment_shared(barrier));
}

/* Initialises the barriers. One thread calls this function. */
template <class form>
static __device__ __forceinline__ void fig_wide_init(const fig_wide_memory<form> &memory) {
    for (int32_t i = 0; i < form::STAGES; i++) {
        fig_ring_barrier_init(&memory.state->k_full[i], 1);
        fig_ring_barrier_init(&memory.state->v_full[i], 1);
        fig_ring_barrier_init(&memory.state->k_empty[i], FIG_WIDE_READERS);
        fig_ring_barrier_init(&memory.state->v_empty[i], FIG_WIDE_READERS);
        memory.state->begun[i] = 0;
    }
    for (int32_t i = 0; i < FIG_WIDE_GROUPS; i++) {
        fig_ring_barrier_init(&memory.state->q_full[i], FIG_WIDE_ASKERS * form::ARRIVALS);
        fig_ring_barrier_init(&memory.state->q_empty[i], FIG_WIDE_GROUP_WARPS);
    }
    fig_wide_show_barriers();
}

#endif
#endif
