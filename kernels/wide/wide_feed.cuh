/* wide_feed.cuh: loads K, V and queries to shared memory through the bulk copy engine.
 *
 * One warp fills the ring with the tiles of all items of the worker. It waits only for free space
 * in the ring, so the first tiles of the next item arrive while the last ones of this item are
 * multiplied. Another warp loads the queries of each warpgroup and describes the warpgroup's next
 * item in a note. A box is placed outside the cache's map, and so reads as zeros, if no query of
 * the item sees its tokens or the sequence does not have them.
 *
 * Invariant: if the launch allows early reads, an item's tokens from `fresh` on are read only after
 * the wait for the previous launch. */
#ifndef FIG_KERNELS_WIDE_FEED_CUH
#define FIG_KERNELS_WIDE_FEED_CUH

#include "kernels/wide/wide_ring.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* Returns 1 if the launch may read the plan, and older tokens, before the wait. */
static __device__ __forceinline__ int32_t fig_wide_is_early(const fig_prompt_attention_params &p) {
    return (p.flags & FIG_ATTENTION_EARLY) != 0;
}

/* The items of a worker: [item, end). */
struct fig_wide_stretch {
    const fig_strips_item *items;
    int32_t item, end;
};

static __device__ __forceinline__ fig_wide_stretch
fig_wide_stretch_of(const fig_prompt_attention_params &p) {
    const uint8_t *strips = fig_params_strips(&p);
    fig_wide_stretch stretch = {NULL, 0, 0};
    if (strips == NULL) return stretch;
    stretch.items = fig_strips_items(strips, p.workers);
    stretch.item = fig_strips_ranges(strips)[blockIdx.x];
    stretch.end = fig_strips_ranges(strips)[blockIdx.x + 1];
    return stretch;
}

/* Returns 1 if the block may exit before the wait: it has no items, and another block of the launch
 * waits. The last block always waits, so the launch ends only after those in front of it: a graph
 * may leave out an edge that this launch implies (engine/graph/cuda_lanes.c). */
static __device__ __forceinline__ int32_t fig_wide_is_idle(const fig_prompt_attention_params &p) {
    if (p.strips_offset == 0 || !fig_wide_is_early(p) || blockIdx.x + 1 == gridDim.x) return 0;
    const fig_wide_stretch stretch = fig_wide_stretch_of(p);
    return stretch.item >= stretch.end;
}

/* Returns word i of an item in lane i of the warp. Items and page tables are loaded as data that
 * may change: an earlier launch may write them until this launch has waited. */
static __device__ __forceinline__ int32_t fig_wide_item_word(const fig_strips_item *items,
                                                             int32_t item, int32_t end) {
    const int32_t words = sizeof(fig_strips_item) / sizeof(int32_t);
    const int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP;
    return lane < words && item < end ? ((const int32_t *)(items + item))[lane] : 0;
}

#define FIG_WIDE_WORD(word, field)                                                                 \
    __shfl_sync(0xffffffffu, word, (int32_t)(offsetof(fig_strips_item, field) / sizeof(int32_t)))

/* Returns the heads of an item from the word of its slot, which they share. */
static __device__ __forceinline__ int32_t fig_wide_heads_of(int32_t word) {
    static_assert(offsetof(fig_strips_item, heads) == offsetof(fig_strips_item, slot) + 2, "");
    static_assert(offsetof(fig_strips_item, slot) % sizeof(int32_t) == 0, "the lower half");
    return word >> 16;
}

/* Describes how boxes make up the tiles of a launch. */
struct fig_wide_boxes {
    int32_t tokens;    /* tokens of a box */
    int32_t per_tile;  /* boxes of a tile */
    int32_t is_column; /* 1: a box has one column and at most 4 tokens */
    /* steps in a map's coordinates, from head to head and from page to page */
    int32_t columns_of_head, pages_of_page;
};

template <class form>
static __device__ __forceinline__ fig_wide_boxes
fig_wide_boxes_of(const fig_prompt_attention_params &p) {
    fig_wide_boxes boxes;
    boxes.tokens = fig_wide_box(p.page_size, form::DIM);
    boxes.is_column = boxes.tokens < FIG_WIDE_BLOCK;
    boxes.per_tile = form::TILE / boxes.tokens * (boxes.is_column ? form::COLUMNS : 1);
    boxes.columns_of_head = fig_wide_head_columns(&p.k_cache_strides, p.kv_heads, form::DIM);
    boxes.pages_of_page = boxes.columns_of_head > 0 ? 1 : p.kv_heads;
    return boxes;
}

/* Describes an item for the filling warp. */
struct fig_wide_source {
    const int32_t *pages;   /* the sequence's page numbers */
    int32_t head, low, end; /* no query sees tokens outside [low, end) */
};

/* Returns the page of box `box` of the tile at `token`, or -1 if the box reads as zeros. */
template <class form>
static __device__ __forceinline__ int32_t fig_wide_page_of(const fig_prompt_attention_params &p,
                                                           const fig_wide_boxes &boxes,
                                                           const fig_wide_source &source,
                                                           int32_t token, int32_t box) {
    const int32_t at = token + (boxes.is_column ? box / form::COLUMNS : box) * boxes.tokens;
    if (box >= boxes.per_tile || at >= source.end || at + boxes.tokens <= source.low) return -1;
    return source.pages[at / p.page_size];
}

template <class form>
static __device__ __forceinline__ void
fig_wide_send(const fig_prompt_attention_params &p, const fig_wide_boxes &boxes,
              const fig_wide_source &source, int32_t token, int32_t box, int32_t page,
              const fig_tensor_map *map, int64_t pages, uint32_t to, const uint64_t *barrier) {
    const int32_t number = boxes.is_column ? box / form::COLUMNS : box;
    const int32_t column = boxes.is_column ? box % form::COLUMNS : 0;
    const int32_t in_tile = number * boxes.tokens, in_page = (token + in_tile) % p.page_size;
    fig_wide_box_place place;
    if (box >= boxes.per_tile) return;
    if (page != -1) {
        if (page < 0 || page >= pages) page = 0;
        page = page * boxes.pages_of_page + (boxes.pages_of_page > 1 ? source.head : 0);
    }
    place.page = page;
    place.column = source.head * boxes.columns_of_head + column;
    place.block = boxes.is_column ? 0 : in_page / FIG_WIDE_BLOCK;
    place.token = boxes.is_column ? in_page : 0;
    to += (uint32_t)(in_tile / FIG_WIDE_BLOCK * form::COLUMNS + column) * form::BLOCK +
          (uint32_t)(in_tile % FIG_WIDE_BLOCK) * form::COLUMN;
    fig_wide_box_send(to, map, place, barrier);
}

/* Sends one side of a tile. `page` is the page of the lane's first box. Only small pages give a
 * lane further boxes, whose pages this function looks up itself. */
template <class form>
static __device__ __forceinline__ void
fig_wide_send_side(const fig_prompt_attention_params &p, const fig_wide_boxes &boxes,
                   const fig_wide_source &source, int32_t token, int32_t page, int32_t is_v,
                   uint32_t to, const uint64_t *barrier) {
    const int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP;
    const fig_tensor_map *map = is_v ? &p.v_map : &p.k_map;
    const int64_t pages = is_v ? p.v_pages : p.k_pages;
    if (lane == 0) fig_wide_expect(barrier, form::SIDE);
    __syncwarp();
    fig_wide_send<form>(p, boxes, source, token, lane, page, map, pages, to, barrier);
#pragma unroll 1
    for (int32_t box = lane + FIG_BLOCK_WARP; box < boxes.per_tile; box += FIG_BLOCK_WARP)
        fig_wide_send<form>(p, boxes, source, token, box,
                            fig_wide_page_of<form>(p, boxes, source, token, box), map, pages, to,
                            barrier);
    __syncwarp();
}

/* Waits until one side of a stage is empty. If only one warpgroup processes the tile, releases it
 * for the other one. */
static __device__ __forceinline__ void fig_wide_begin(const uint64_t *empty,
                                                      const fig_wide_turn &turn, int32_t is_lone) {
    fig_wide_wait(empty, ~turn.round & 1);
    if (is_lone && threadIdx.x % FIG_BLOCK_WARP == 0) fig_wide_arrive(empty, FIG_WIDE_GROUP_WARPS);
}

/* A tile whose V is to be sent. */
struct fig_wide_load {
    fig_wide_source source;
    int32_t token, page; /* the tile's first token; the page of the lane's first box */
    int32_t is_lone;     /* 1: only one warpgroup processes the tile */
    fig_wide_turn turn;
};

template <class form>
static __device__ __forceinline__ void
fig_wide_load_v(const fig_prompt_attention_params &p, const fig_wide_memory<form> &memory,
                const fig_wide_boxes &boxes, const fig_wide_load &load) {
    const int32_t stage = load.turn.stage;
    fig_wide_begin(&memory.state->v_empty[stage], load.turn, load.is_lone);
    if (threadIdx.x % FIG_BLOCK_WARP == 0)
        *(volatile uint32_t *)&memory.state->begun[stage] = load.turn.round + 1;
    fig_wide_send_side<form>(p, boxes, load.source, load.token, load.page, 1,
                             fig_wide_v<form>(memory, stage), &memory.state->v_full[stage]);
}

/* Lets few bytes be on their way until the preceding launch has ended. If lanes copy the queries,
 * these copies of 16 bytes would come behind all tiles that were sent before. */
template <class form>
static __device__ __forceinline__ void fig_wide_pace(const fig_wide_memory<form> &memory,
                                                     const fig_wide_turn &turn) {
    const fig_wide_state<form::STAGES> *state = memory.state;
    if (turn.round > 0 || turn.stage < form::PACE) return;
    fig_wide_wait(&(form::SENDS_K_AHEAD ? state->k_full : state->v_full)[turn.stage - form::PACE],
                  0);
}

/* Fills the ring with the tiles of the worker's items. If K is sent ahead, K of a tile is sent
 * before V of the tile before it, because its place is empty much earlier: a warpgroup releases K
 * after one product, and V after the next tile's. */
template <class form>
static __device__ __forceinline__ void fig_wide_feed_cache(const fig_prompt_attention_params &p,
                                                           const fig_wide_memory<form> &memory,
                                                           const fig_wide_stretch &stretch) {
    const fig_strips_item *items = stretch.items;
    const fig_wide_boxes boxes = fig_wide_boxes_of<form>(p);
    const int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP, end = stretch.end;
    int32_t item = stretch.item, number = 0, has_waited = !fig_wide_is_early(p),
            word = fig_wide_item_word(items, item, end);
    fig_wide_turn turn = {};
    fig_wide_load late = {}; /* a tile whose V is to be sent */
    int32_t is_late = 0;     /* 1: there is one */
#pragma unroll 1
    while (item < end) {
        const int32_t next = fig_wide_item_word(items, item + 1, end);
        const int32_t limit = FIG_WIDE_WORD(word, limit), flags = FIG_WIDE_WORD(word, flags);
        const int32_t fresh = FIG_WIDE_WORD(word, fresh), tiles = FIG_WIDE_WORD(word, tiles);
        const int32_t sequence = FIG_WIDE_WORD(word, sequence);
        int32_t token = FIG_WIDE_WORD(word, tile) * form::TILE;
        fig_wide_source source;
        source.pages = p.page_table + sequence * p.table_stride;
        source.head = FIG_WIDE_WORD(word, head) + number;
        source.end = FIG_WIDE_WORD(word, end);
        source.low = FIG_WIDE_WORD(word, first_token);
        if (p.window > 0 && flags & FIG_STRIPS_IS_CAUSAL && limit + 1 - p.window > source.low)
            source.low = limit + 1 - p.window;
        /* Page of the lane's first box of this tile, and of the next tile. */
        int32_t page = fig_wide_page_of<form>(p, boxes, source, token, lane);
        int32_t ahead = fig_wide_page_of<form>(p, boxes, source, token + form::TILE, lane);
#pragma unroll 1
        for (int32_t t = 0; t < tiles; t++, token += form::TILE) {
            if (!has_waited && token + form::TILE > fresh) {
                fig_block_wait();
                has_waited = 1;
            }
            if (!has_waited && flags & FIG_STRIPS_IS_SHARED) fig_wide_pace<form>(memory, turn);
            const int32_t later =
                fig_wide_page_of<form>(p, boxes, source, token + 2 * form::TILE, lane);
            fig_wide_begin(&memory.state->k_empty[turn.stage], turn, flags & FIG_STRIPS_LONE);
            fig_wide_send_side<form>(p, boxes, source, token, page, 0,
                                     fig_wide_k<form>(memory, turn.stage),
                                     &memory.state->k_full[turn.stage]);
            if constexpr (form::SENDS_K_AHEAD) {
                if (is_late) fig_wide_load_v<form>(p, memory, boxes, late);
                late = {source, token, page, flags & FIG_STRIPS_LONE, turn};
                is_late = 1;
            } else {
                /* As above. Through the function, ptxas orders the loop otherwise, which makes
                 * head_dim 64 a percent slower. */
                fig_wide_begin(&memory.state->v_empty[turn.stage], turn, flags & FIG_STRIPS_LONE);
                if (lane == 0)
                    *(volatile uint32_t *)&memory.state->begun[turn.stage] = turn.round + 1;
                fig_wide_send_side<form>(p, boxes, source, token, page, 1,
                                         fig_wide_v<form>(memory, turn.stage),
                                         &memory.state->v_full[turn.stage]);
            }
            page = ahead;
            ahead = later;
            fig_wide_advance<form>(&turn);
        }
        if (++number < fig_wide_heads_of(FIG_WIDE_WORD(word, slot))) continue;
        number = 0;
        item++;
        word = next;
    }
    if constexpr (form::SENDS_K_AHEAD)
        if (is_late) fig_wide_load_v<form>(p, memory, boxes, late);
}

/* Sends the queries of one warpgroup. If the strip is not full, also sends queries of tokens after
 * the strip; their results are discarded. */
template <class form>
static __device__ __forceinline__ void fig_wide_send_q(const fig_prompt_attention_params &p,
                                                       uint32_t to, int32_t head, int32_t query,
                                                       const uint64_t *barrier) {
    const int32_t ratio = p.ratio;
    if constexpr (form::ARRIVALS > 1) fig_wide_arrive(barrier, form::ARRIVALS - 1);
    fig_wide_expect(barrier, (uint32_t)(p.half * ratio * form::COLUMNS * form::COLUMN));
#pragma unroll 1
    for (int32_t column = 0; column < form::COLUMNS; column++)
        fig_wide_column_send(to + (uint32_t)column * form::Q_COLUMN, &p.q_map, head * ratio, query,
                             column, barrier);
}

/* The vectors of one warpgroup's queries that one of the asking warps copies. */
struct fig_wide_part_of_q {
    int32_t begin, count; /* of the warpgroup's vectors */
};

/* Few vectors are copied by the first asking warp alone. */
static __device__ __forceinline__ fig_wide_part_of_q
fig_wide_q_part(const fig_prompt_attention_params &p, int32_t queries, int32_t asker) {
    const int32_t all = fig_size_min(queries, p.half) * p.ratio;
    const int32_t is_few = all <= FIG_WIDE_FEW;
    const int32_t most = is_few ? all : (all + FIG_WIDE_ASKERS - 1) / FIG_WIDE_ASKERS;
    fig_wide_part_of_q part;
    part.begin = is_few && asker > 0 ? all : most * asker;
    part.count = fig_size_min(part.begin + most, all) - part.begin;
    static_assert((FIG_STRIPS_HALF + FIG_WIDE_ASKERS - 1) / FIG_WIDE_ASKERS <= FIG_BLOCK_WARP,
                  "a lane has one vector");
    return part;
}

/* Returns the query token of the lane's vector, in the items of shared segments. queries: those of
 * the strip from the warpgroup's first on. */
static __device__ __forceinline__ int32_t fig_wide_find_query(const fig_prompt_attention_params &p,
                                                              const fig_strips_member *members,
                                                              int32_t queries, int32_t asker) {
    const int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP;
    const fig_wide_part_of_q part = fig_wide_q_part(p, queries, asker);
    return lane < part.count ? members[(part.begin + lane) / p.ratio].query : 0;
}

/* Copies the queries of one warpgroup from the tokens of members, and lays them out as the copy
 * engine would. All lanes of the warp take part. A lane has the address of a vector, and all copies
 * are in flight at once. Vectors that do not exist keep what memory holds: no other row's bits
 * depend on them, and nobody writes their results. query: of the lane's vector. few: receives the
 * members if there are few. */
template <class form>
static __device__ __forceinline__ void
fig_wide_gather_q(const fig_prompt_attention_params &p, uint32_t to, int32_t head,
                  const fig_strips_member *members, int32_t queries, int32_t query,
                  const fig_strips_member *few, int32_t asker, const uint64_t *barrier) {
    constexpr int32_t PIECES = form::DIM / 8, OF_COLUMN = form::COLUMN / 16; /* of 16 bytes */
    const int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP, ratio = p.ratio;
    const fig_wide_part_of_q part = fig_wide_q_part(p, queries, asker);
    const int32_t own = part.begin + lane;
    const int64_t at = query * p.q_strides.row + (head * ratio + own % ratio) * p.q_strides.head;
    const uint64_t address = (uint64_t)((const uint16_t *)p.q + at);
#pragma unroll 4
    for (int32_t i = lane; i - lane < part.count * PIECES; i += FIG_BLOCK_WARP) {
        const int32_t vector = i / PIECES, piece = i % PIECES;
        const uint64_t from = __shfl_sync(0xffffffffu, address, vector % FIG_BLOCK_WARP);
        /* The engine's swizzle: bits 4 and up of the place within 8 rows of 128 bytes. */
        uint32_t place = (uint32_t)((part.begin + vector) * form::COLUMN + piece % OF_COLUMN * 16);
        place ^= (place >> 7 & (uint32_t)(OF_COLUMN - 1)) << 4;
        place += (uint32_t)(piece / OF_COLUMN) * form::Q_COLUMN;
        if (vector < part.count) fig_wide_copy(to + place, from + (uint64_t)piece * 16);
    }
    if (asker == 0 && queries * ratio <= FIG_WIDE_FEW && lane < queries)
        fig_wide_copy(fig_fragment_shared(few + lane), (uint64_t)(members + lane));
    if constexpr (form::HOLDS_QUERIES) {
        fig_wide_arrive_copied(barrier);
    } else {
        fig_wide_await_copies();
        fig_wide_order_engines();
    }
    __syncwarp();
    if (lane == 0) fig_ring_arrive(fig_fragment_shared(barrier));
}

/* Writes a note on one head of an item for a warpgroup. All lanes of the warp take part. */
template <class form>
static __device__ __forceinline__ void
fig_wide_write_note(const fig_wide_memory<form> &memory, int32_t group, int32_t word, int32_t head,
                    int32_t flags, int32_t skip) {
    const int32_t words = sizeof(fig_strips_item) / sizeof(int32_t);
    const int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP;
    volatile int32_t *to = (volatile int32_t *)&memory.state->notes[group];
    if (lane == offsetof(fig_strips_item, head) / sizeof(int32_t)) word = head;
    if (lane == offsetof(fig_strips_item, flags) / sizeof(int32_t)) word = flags;
    if (lane == words) word = skip;
    if (lane <= words) to[lane] = word;
    __syncwarp();
}

/* Finds the query tokens of the lane's vectors in an item of a shared segment. */
static __device__ __forceinline__ void fig_wide_find_queries(const fig_prompt_attention_params &p,
                                                             int32_t flags, int32_t query,
                                                             int32_t queries, int32_t asker,
                                                             int32_t (&found)[FIG_WIDE_GROUPS]) {
    if ((flags & FIG_STRIPS_IS_SHARED) == 0) return;
    const fig_strips_member *members = fig_strips_members(fig_params_strips(&p)) + query;
#pragma unroll
    for (int32_t group = 0; group < FIG_WIDE_GROUPS; group++) {
        const int32_t before = flags & FIG_STRIPS_LONE ? 0 : group * p.half;
        found[group] = fig_wide_find_query(p, members + before, queries - before, asker);
    }
}

/* Sends the notes and the queries of the worker's items, then the note that ends the work. A
 * warpgroup that has no part in an item gets no note for it: its next note tells how many tiles to
 * pass over. Several warps call this function; the first one (asker 0) writes the notes. */
template <class form>
static __device__ __forceinline__ void
fig_wide_feed_queries(const fig_prompt_attention_params &p, const fig_wide_memory<form> &memory,
                      const fig_wide_stretch &stretch, int32_t asker) {
    const fig_strips_item *items = stretch.items;
    const int32_t half = p.half, end = stretch.end;
    const int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP;
    int32_t item = stretch.item, number = 0, skips[FIG_WIDE_GROUPS] = {};
    int32_t word = fig_wide_item_word(items, item, end);
    int32_t found[FIG_WIDE_GROUPS] = {}; /* query tokens of the lane's vectors */
    uint32_t phases[FIG_WIDE_GROUPS] = {1, 1};
    if (item < end)
        fig_wide_find_queries(p, FIG_WIDE_WORD(word, flags), FIG_WIDE_WORD(word, query),
                              FIG_WIDE_WORD(word, queries), asker, found);
    if (fig_wide_is_early(p)) fig_block_wait();
#pragma unroll 1
    while (item <= end) {
        const int32_t next = fig_wide_item_word(items, item + 1, end);
        const int32_t heads = fig_wide_heads_of(FIG_WIDE_WORD(word, slot));
        const int32_t all = FIG_WIDE_WORD(word, flags);
        const int32_t flags = item < end ? fig_strips_flags(all, heads, number) : FIG_WIDE_END;
        const int32_t query = FIG_WIDE_WORD(word, query);
        const int32_t head = FIG_WIDE_WORD(word, head) + number;
        const int32_t queries = FIG_WIDE_WORD(word, queries), tiles = FIG_WIDE_WORD(word, tiles);
        const int32_t is_lone = item < end && flags & FIG_STRIPS_LONE;
#pragma unroll
        for (int32_t group = 0; group < FIG_WIDE_GROUPS; group++) {
            uint64_t *const full = &memory.state->q_full[group];
            if (is_lone && group != ((flags & FIG_STRIPS_SECOND) != 0)) {
                skips[group] += tiles;
                continue;
            }
            fig_wide_wait(&memory.state->q_empty[group], phases[group]);
            phases[group] ^= 1;
            if (asker == 0)
                fig_wide_write_note<form>(memory, group, word, head, flags, skips[group]);
            skips[group] = 0;
            const int32_t before = is_lone ? 0 : group * half;
            const int32_t is_shared = item < end && flags & FIG_STRIPS_IS_SHARED;
            if (!is_shared && (item == end || asker > 0)) {
                if (lane == 0) fig_wide_arrive(full, form::ARRIVALS);
            } else if (is_shared) {
                fig_wide_gather_q<form>(p, fig_wide_q<form>(memory, group), head,
                                        fig_strips_members(fig_params_strips(&p)) + query + before,
                                        queries - before, found[group],
                                        memory.state->members[group][phases[group]], asker, full);
            } else if (lane == 0) {
                fig_wide_send_q<form>(p, fig_wide_q<form>(memory, group), head, query + before,
                                      full);
            }
            __syncwarp();
        }
        if (++number < heads) continue;
        number = 0;
        item++;
        word = next;
        if (item < end)
            fig_wide_find_queries(p, FIG_WIDE_WORD(word, flags), FIG_WIDE_WORD(word, query),
                                  FIG_WIDE_WORD(word, queries), asker, found);
    }
}

#endif
#endif
