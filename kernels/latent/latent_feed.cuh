/* latent_feed.cuh: loads tiles of a latent cache through the bulk copy engine, and describes pieces
 * and merges for the warpgroups that multiply.
 *
 * One warp walks along the worker's stretch. It waits only for free chunks, so the first tiles of
 * the next piece arrive while the last ones of this piece are multiplied. It describes the worker's
 * part of a merge at the end, when the divisions that this needs delay nothing. If no query of the
 * piece sees the tokens of a box, the box is placed outside the cache's map, where it reads as
 * zeros. Workers are in order: block n is worker n.
 *
 * Invariant: if the launch allows early reads, tokens that the step appends are read after the wait
 * for the previous launch; what was read of them before is overwritten. */
#ifndef FIG_KERNELS_LATENT_FEED_CUH
#define FIG_KERNELS_LATENT_FEED_CUH

#include "kernels/latent/latent_ring.cuh"
#include "kernels/strips/kv_piece.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* Returns the launch as one of attention, for the code that walks along a split. */
static __device__ __forceinline__ fig_attention_params
fig_latent_feed_walk(const fig_latent_attention_params &p) {
    fig_attention_params of = fig_latent_attention_pieces(&p);
    of.page_table = p.page_table;
    of.table_stride = p.table_stride;
    of.page_size = p.page_size;
    of.k_pages = p.k_pages;
    of.flags = p.flags | FIG_ATTENTION_IN_ORDER;
    return of;
}

/* Returns 1 if the launch may read the plan, and older tokens, before the wait. */
static __device__ __forceinline__ int32_t
fig_latent_feed_is_early(const fig_latent_attention_params &p) {
    return (p.flags & FIG_ATTENTION_EARLY) != 0;
}

/* The largest number of tokens that are copied again after the wait, one after the other. */
enum { FIG_LATENT_FEED_NEWEST = 2 };

/* The loading warp's place in the work. */
typedef struct fig_latent_feed_way {
    int32_t tile;       /* tiles sent so far */
    int32_t note;       /* notes written so far */
    int32_t has_waited; /* 1: the wait for the previous launch is over */
    int32_t box, boxes; /* tokens of a box, boxes of a tile */
    uint64_t policy;
} fig_latent_feed_way;

/* ---- Tiles */

/* Returns the policy for tokens. If another group of heads reads them too, they stay in L2 as long
 * as other data. */
static __device__ __forceinline__ uint64_t fig_latent_feed_policy(int32_t groups) {
    if (groups == 1) return fig_machine_policy_once();
    return fig_machine_policy_usual();
}

/* Returns the place in the cache of the lane's box of the tile that begins at `token`. Page -1
 * reads as zeros. */
static __device__ __forceinline__ fig_feed_place
fig_latent_feed_place(const fig_attention_params &of, const fig_feed_piece &piece,
                      const fig_latent_feed_way &way, int32_t token) {
    const int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP, at = token + lane * way.box;
    fig_feed_place place = {-1, 0};
    if (lane >= way.boxes || at >= piece.tokens.end || at + way.box <= piece.tokens.first)
        return place;
    /* A box begins at or before its first seen token, and never in an earlier page. */
    place = fig_feed_place_of(piece, max(at, piece.tokens.first));
    place.token &= -way.box;
    if (place.page < 0 || place.page >= of.k_pages) place.page = 0;
    return place;
}

static __device__ __forceinline__ void
fig_latent_feed_send(const fig_latent_attention_params &p, uint32_t to, int32_t column,
                     const fig_feed_place &place, const uint64_t *barrier, uint64_t policy) {
#if FIG_LATENT_RING_SENDERS == 1
    fig_latent_machine_send(to, &p.k_map, column, place.token, place.page, barrier, policy);
#else
    fig_latent_machine_send_both(to, &p.k_map, column, place.token, place.page, barrier, policy);
#endif
}

/* Sends a tile, chunk by chunk as they become free. `place` is that of the lane's box. */
static __device__ __forceinline__ void fig_latent_feed_tile(const fig_latent_attention_params &p,
                                                            const fig_latent_ring &ring,
                                                            const fig_feed_place &place,
                                                            fig_latent_feed_way *way) {
    const int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP;
    const int32_t stage = way->tile % FIG_LATENT_WIDE_STAGES;
    const uint32_t phase = (uint32_t)(way->tile / FIG_LATENT_WIDE_STAGES & 1) ^ 1;
#pragma unroll 1
    for (int32_t i = 0; i < FIG_LATENT_WIDE_CHUNKS; i++) {
        const int32_t chunk = fig_latent_ring_turn(stage, i);
        const uint64_t *full = &ring.state->full[stage][chunk];
        /* Where the other block loads the chunk, it has waited for `empty`, and the chunk before
         * need only have come. */
        const int32_t is_sender = fig_latent_ring_sender(stage, chunk) == fig_latent_ring_rank();
        fig_latent_ring_wait(is_sender ? &ring.state->empty[stage][chunk] : full, phase);
        if (lane == 0) fig_latent_machine_expect(full, FIG_LATENT_WIDE_CHUNK_BYTES);
        __syncwarp();
        if (is_sender && lane < way->boxes)
            fig_latent_feed_send(p,
                                 fig_latent_ring_chunk(ring, stage, chunk) +
                                     (uint32_t)(lane * way->box * FIG_LATENT_WIDE_COLUMN * 2),
                                 chunk * FIG_LATENT_WIDE_COLUMN, place, full, way->policy);
    }
    __syncwarp();
    way->tile++;
}

/* Those tokens of a tile sent early that are copied again: at most FIG_LATENT_FEED_NEWEST. */
typedef struct fig_latent_feed_fresh {
    const uint16_t *from[FIG_LATENT_FEED_NEWEST]; /* the lane's first 16 bytes of each */
    int32_t first, count;                         /* first: counted from the tile's first token */
} fig_latent_feed_fresh;

/* Finds those tokens of the tile at `token` that the step may append. The page numbers are loaded
 * before the wait, so that only the tokens are loaded after it. Under a horizon, the tile may begin
 * behind the row's last token; then there are none. */
static __device__ __forceinline__ fig_latent_feed_fresh fig_latent_feed_find(
    const fig_latent_attention_params &p, const fig_feed_piece &piece, int32_t token) {
    const int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP;
    const int32_t first = max(token, piece.length - p.split.row_tokens);
    const int32_t end = fig_size_min(piece.tokens.end, token + FIG_LATENT_WIDE_TILE);
    fig_latent_feed_fresh fresh;
    fresh.first = first - token;
    fresh.count = end - first;
#pragma unroll
    for (int32_t n = 0; n < FIG_LATENT_FEED_NEWEST; n++) {
        const int32_t at = max(fig_size_min(first + n, end - 1), piece.tokens.first);
        fig_feed_place place = fig_feed_place_of(piece, at);
        if (place.page < 0 || place.page >= p.k_pages) place.page = 0;
        fresh.from[n] = (const uint16_t *)p.k_cache + place.page * p.k_cache_strides.page +
                        place.token * p.k_cache_strides.token + lane * 8;
        fig_block_prefetch(fresh.from[n]);
    }
    return fresh;
}

/* Overwrites a token in a tile that was sent early, 16 bytes at a time, once the tile has arrived.
 * to: the address of the tile's first chunk. last_apart: the distance from it to the last chunk.
 * row: the token's number in the tile. */
template <class ring_of>
static __device__ __forceinline__ void fig_latent_feed_token(const ring_of &ring,
                                                             const uint16_t *from, uint32_t to,
                                                             uint32_t last_apart, int32_t row) {
    const int32_t PACKS = FIG_LATENT_KEY_DIM / 8, OF_CHUNK = FIG_LATENT_WIDE_COLUMN / 8;
    const int32_t LOADS = (PACKS + FIG_BLOCK_WARP - 1) / FIG_BLOCK_WARP;
    const int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP;
    uint4 words[LOADS];
    /* A lane that has no last pack copies its first one again. */
    const int32_t last = lane + (LOADS - 1) * FIG_BLOCK_WARP < PACKS ? LOADS - 1 : 0;
#pragma unroll
    for (int32_t i = 0; i < LOADS; i++)
        fig_machine_load(&words[i],
                         (const float *)from + (i < LOADS - 1 ? i : last) * FIG_BLOCK_WARP * 4);
    fig_latent_ring_wait(&ring.state->early, 0);
    /* A warp's packs of a token are four chunks, and the rest. */
    to += (uint32_t)(lane / OF_CHUNK * FIG_LATENT_WIDE_CHUNK_BYTES +
                     row * FIG_LATENT_WIDE_COLUMN * 2 + ((lane ^ row) % OF_CHUNK) * 16);
#pragma unroll
    for (int32_t i = 0; i < LOADS - 1; i++)
        fig_machine_store_chunk(
            to + (uint32_t)(i * (FIG_BLOCK_WARP / OF_CHUNK * (int32_t)FIG_LATENT_WIDE_CHUNK_BYTES)),
            words[i]);
    fig_machine_store_chunk(to + (last > 0 ? last_apart : 0), words[LOADS - 1]);
}

/* Sends a tile before the wait, although the step may append tokens to it, and copies those tokens
 * again after the wait. The tile is thus loaded while the previous launch still runs. The tile's
 * stage must not have been used before. */
static __device__ __forceinline__ void
fig_latent_feed_newest(const fig_latent_attention_params &p, const fig_latent_ring &ring,
                       const fig_feed_piece &piece, const fig_feed_place &place, int32_t token,
                       fig_latent_feed_way *way) {
    const int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP;
    const int32_t stage = way->tile % FIG_LATENT_WIDE_STAGES;
    const uint32_t to = fig_latent_ring_chunk(ring, stage, 0);
    if (lane == 0) fig_latent_machine_expect(&ring.state->early, FIG_LATENT_WIDE_SIDE_BYTES);
    __syncwarp();
#pragma unroll 1
    for (int32_t chunk = 0; chunk < FIG_LATENT_WIDE_CHUNKS && lane < way->boxes; chunk++) {
        if (fig_latent_ring_sender(stage, chunk) != fig_latent_ring_rank()) continue;
        fig_latent_feed_send(p,
                             to + (uint32_t)(chunk * FIG_LATENT_WIDE_CHUNK_BYTES +
                                             lane * way->box * FIG_LATENT_WIDE_COLUMN * 2),
                             chunk * FIG_LATENT_WIDE_COLUMN, place, &ring.state->early,
                             way->policy);
    }
    __syncwarp();
    const fig_latent_feed_fresh fresh = fig_latent_feed_find(p, piece, token);
    fig_feed_wait(&way->has_waited);
#pragma unroll
    for (int32_t n = 0; n < FIG_LATENT_FEED_NEWEST; n++)
        if (n < fresh.count)
            fig_latent_feed_token(ring, fresh.from[n], to,
                                  FIG_LATENT_RING_LAST * FIG_LATENT_WIDE_CHUNK_BYTES,
                                  fresh.first + n);
    fig_latent_ring_wait(&ring.state->early, 0); /* needed even if no token is copied again */
    fig_latent_machine_publish();
    __syncwarp();
    if (lane < FIG_LATENT_WIDE_CHUNKS)
        fig_ring_arrive(fig_fragment_shared(&ring.state->full[stage][lane]));
    __syncwarp();
    way->tile++;
}

/* ---- Notes */

template <class ring_of>
static __device__ __forceinline__ void fig_latent_feed_say(const ring_of &ring,
                                                           const fig_latent_ring_note &note,
                                                           fig_latent_feed_way *way) {
    const int32_t at = way->note++ % FIG_LATENT_RING_NOTES;
    if (threadIdx.x % FIG_BLOCK_WARP == 0) {
        int4 *to = (int4 *)&ring.state->notes[at];
#pragma unroll
        for (int32_t i = 0; i < (int32_t)(sizeof note / sizeof *to); i++)
            to[i] = ((const int4 *)&note)[i];
        fig_ring_arrive(fig_fragment_shared(&ring.state->noted[at]));
    }
    __syncwarp();
}

static __device__ __forceinline__ fig_latent_ring_note
fig_latent_feed_note(const fig_attention_params &of, const fig_feed_piece &piece, int32_t token) {
    fig_latent_ring_note note;
    note.tiles = piece.tiles;
    note.row = piece.start.row;
    note.group = piece.start.group;
    note.token = token;
    note.first = piece.tokens.first;
    note.end = piece.tokens.end;
    note.length = piece.length;
    note.partial = fig_feed_partial(of, piece);
    note.all_first = piece.seen_by_all.first;
    note.all_end = piece.seen_by_all.end;
    note.unused[0] = note.unused[1] = 0;
    return note;
}

/* ---- Merges */

/* Returns the number of blocks that share the merge of a segment: those of its last pieces. The
 * owner of the first piece takes part only if its stretch begins with that piece; otherwise it
 * takes part in the merge of an earlier segment. */
static __device__ __forceinline__ int32_t fig_latent_feed_parts(const fig_attention_params &of,
                                                                uint32_t flags,
                                                                const fig_split_piece &piece,
                                                                int32_t begins) {
    const int32_t pieces = piece.last - piece.first; /* without the first piece */
    const int32_t vectors = of.q_heads / of.kv_heads * of.split.row_tokens;
    const int32_t limit = (flags & FIG_ATTENTION_IN_ORDER ? (int32_t)FIG_MERGES_PARTS
                                                          : (int32_t)FIG_LATENT_WIDE_PARTS) /
                          FIG_FEED_BLOCKS; /* each of which may wait */
    if (flags & FIG_ATTENTION_APART) return 1;
    return fig_size_min(fig_size_min(limit, vectors), begins ? pieces + 1 : pieces);
}

/* Describes the part that the worker takes in the merge of the segment to which the piece at
 * `start` belongs. Returns a merge of 0 parts if it takes none. */
static __device__ __forceinline__ fig_latent_ring_merge
fig_latent_feed_merge(const fig_attention_params &of, uint32_t flags, const fig_feed_plan &plan,
                      const fig_split_start &start) {
    fig_latent_ring_merge merge = {0};
    const fig_split_line line = fig_feed_line(of, plan);
    const fig_feed_row row = fig_feed_row_of(plan, start.row);
    const int32_t row_tiles = row.next_prefix - row.prefix;
    fig_split_piece piece =
        fig_split_piece_of_worker(&of.split, &line, plan.worker, row.prefix, row_tiles, &start);
    if (piece.tile == 0 && piece.tile_end == row_tiles) return merge;
    const int32_t segment = row.prefix * of.split.groups + start.group * row_tiles;
    int32_t begins = fig_split_begin(&line, piece.first) == segment;
    if (fig_feed_is_by_units(of)) {
        const int32_t ends = fig_feed_ends(of, piece.row, piece.group);
        piece.first = ends & (FIG_WORKER_LIMIT - 1);
        piece.last = ends >> FIG_FEED_WORKER_BITS & (FIG_WORKER_LIMIT - 1);
        begins = ends >> 2 * FIG_FEED_WORKER_BITS;
    }
    merge.part = flags & FIG_ATTENTION_APART ? 0 : piece.last - piece.number;
    merge.parts = fig_latent_feed_parts(of, flags, piece, begins);
    if (merge.part >= merge.parts) merge.parts = 0;
    merge.row = piece.row;
    merge.group = piece.group;
    merge.first = piece.first;
    merge.last = piece.last;
    merge.partial = fig_split_partial(&of.split, &piece, piece.first);
    return merge;
}

/* Writes the worker's merges. `first` and `last` are the starts of its first and its last piece;
 * equal places: it has one piece. */
template <class ring_of>
static __device__ __forceinline__ void
fig_latent_feed_merges(const fig_attention_params &of, uint32_t flags, const ring_of &ring,
                       const fig_feed_plan &plan, const fig_split_start &last) {
    const fig_split_start first = plan.start;
    const int32_t is_one = first.row == last.row && first.group == last.group;
    fig_latent_ring_merge merges[FIG_LATENT_RING_MERGES] = {{0}, {0}};
    if (first.count > 0) merges[0] = fig_latent_feed_merge(of, flags, plan, first);
    if (flags & FIG_ATTENTION_APART && !is_one)
        merges[1] = fig_latent_feed_merge(of, flags, plan, last);
    if (threadIdx.x % FIG_BLOCK_WARP == 0) {
        ring.state->merges[0] = merges[0];
        ring.state->merges[1] = merges[1];
    }
    __syncwarp();
}

/* ---- A worker */

/* Prefetches the lane's box of a tile into L2. If two groups of heads, or two blocks, read the same
 * tokens, each prefetches half of them. If tokens lie far apart, it does nothing: most of the range
 * would be other data. */
static __device__ __forceinline__ void fig_latent_feed_ask(const fig_latent_attention_params &p,
                                                           const fig_feed_place &place,
                                                           const fig_latent_feed_way &way,
                                                           int32_t reader) {
    const int32_t tokens = way.box / 2;
    if (place.page < 0 || p.k_cache_strides.token > 2 * FIG_LATENT_KEY_DIM) return;
    const uint16_t *from = (const uint16_t *)p.k_cache + place.page * p.k_cache_strides.page +
                           (place.token + reader % 2 * tokens) * p.k_cache_strides.token;
    const uint32_t bytes =
        (uint32_t)((tokens - 1) * (int32_t)p.k_cache_strides.token + FIG_LATENT_KEY_DIM) * 2;
    fig_latent_machine_bring(from, bytes);
}

/* Loads one piece. AHEAD 1: also prefetches the tile after the next one into L2. */
template <int32_t AHEAD>
static __device__ __forceinline__ void
fig_latent_feed_piece(const fig_latent_attention_params &p, const fig_attention_params &of,
                      const fig_latent_ring &ring, const fig_feed_plan &plan,
                      const fig_feed_piece &piece, fig_latent_feed_way *way) {
    const int32_t tile = FIG_LATENT_WIDE_TILE, fresh = piece.length - p.split.row_tokens;
    int32_t token = piece.start.tile * tile;
    if (p.split.window > 0) token += fig_feed_origin(of, piece.length - plan.advanced);
    fig_latent_feed_say(ring, fig_latent_feed_note(of, piece, token), way);
    fig_feed_place place = fig_latent_feed_place(of, piece, *way, token);
    fig_feed_place next = {-1, 0};
    if (AHEAD) next = fig_latent_feed_place(of, piece, *way, token + tile);
#pragma unroll 1
    for (int32_t i = 0; i < piece.tiles; i++, token += tile) {
        const fig_feed_place after =
            fig_latent_feed_place(of, piece, *way, token + (1 + AHEAD) * tile);
        if (!AHEAD) next = after;
        const int32_t is_early = !way->has_waited && way->tile < FIG_LATENT_WIDE_STAGES &&
                                 p.split.row_tokens <= FIG_LATENT_FEED_NEWEST;
        if (token + tile > fresh && is_early) {
            fig_latent_feed_newest(p, ring, piece, place, token, way);
        } else {
            if (token + tile > fresh) fig_feed_wait(&way->has_waited);
            fig_latent_feed_tile(p, ring, place, way);
        }
        if (AHEAD) fig_latent_feed_ask(p, after, *way, piece.start.group + fig_latent_ring_rank());
        place = next;
        next = after;
    }
}

/* Loads all tiles of the worker. One warp calls this function. */
template <int32_t AHEAD>
static __device__ __forceinline__ void fig_latent_feed(const fig_latent_attention_params &p,
                                                       const fig_latent_ring &ring) {
    const fig_attention_params of = fig_latent_feed_walk(p);
    fig_latent_feed_way way = {0};
    fig_latent_machine_bring_map(&p.k_map);
    way.box = fig_latent_wide_box(p.page_size);
    way.boxes = FIG_LATENT_WIDE_TILE / way.box;
    way.policy = fig_latent_feed_policy(p.split.groups);
    if (!fig_latent_feed_is_early(p)) fig_feed_wait(&way.has_waited);
    const fig_feed_plan plan = fig_feed_read_plan(of);
    fig_split_start start = plan.start, last = start;
#pragma unroll 1
    while (start.count > 0) {
        const fig_feed_piece piece = fig_feed_piece_of(of, plan, start);
        last = start;
        fig_latent_feed_piece<AHEAD>(p, of, ring, plan, piece, &way);
        fig_feed_pass(of, plan, piece, &start);
    }
    fig_feed_wait(&way.has_waited);
    fig_latent_feed_merges(of, p.flags, ring, plan, last);
    const fig_latent_ring_note end = {0};
    fig_latent_feed_say(ring, end, &way);
}

/* Writes the output of those rows of length 0 that belong to the worker: zeros and an LSE of -inf,
 * with or without sinks. Such rows are not on the line, so the row number decides which worker
 * writes them. One warp calls this function. */
static __device__ __forceinline__ void
fig_latent_feed_idle_rows(const fig_latent_attention_params &p) {
    const int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP;
    fig_block_wait();
    const int32_t *lengths = (const int32_t *)(p.plan + p.lengths_offset);
    const int32_t rows = ((const fig_plan_head *)p.plan)->rows;
#pragma unroll 1
    for (int32_t row = fig_feed_team(); row < rows; row += p.split.workers) {
        if (lengths[row] > 0) continue;
        const fig_plan_queries queries =
            fig_plan_queries_of(p.plan, p.queries_offset, p.split.row_tokens, row);
#pragma unroll 1
        for (int32_t n = 0; n < queries.count * p.q_heads; n++) {
            const int64_t at = (int64_t)queries.first + n / p.q_heads;
            const int32_t head = n % p.q_heads;
            uint16_t *out = (uint16_t *)p.out + at * p.out_strides.row + head * p.out_strides.head;
            for (int32_t dim = lane; dim < FIG_LATENT_DIM; dim += FIG_BLOCK_WARP)
                out[dim] = 0;
            if (lane == 0 && p.lse != NULL) p.lse[at * p.lse_stride + head] = -INFINITY;
        }
    }
}

#endif
#endif
