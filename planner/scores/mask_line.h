/* mask_line.h: finds the tiles of a row that its mask shows: a stretch with at most one hole.
 *
 * The host leaves the other tiles off the row's line (split.h), and a kernel turns the number of a
 * tile on the line back into a token. No plan holds the stretch: the host and the kernel compute
 * it from the row's length and the nodes of the mask. The stretch covers everything that some query
 * token and head of the row sees in some launch under the plan. These are the places of the row. A
 * place whose mask reads neither the query nor the head stands for all of them. If several holes
 * are common to all places joined so far, the widest one is kept, so the result depends on the
 * order of joins: 32 places at a time, as the lanes of a warp join them.
 *
 *     tiles of the row   0 1 2 3 4 5 6 7 8 9       first 0, hole 2, hole_end 7, end 10
 *     shown              x x . . . . . x x x
 *     tiles on the line  0 1           2 3 4
 *
 * Owns the arithmetic; mask_lines.h plans whole steps with it. Invariant: a row that is not idle
 * has a tile on the line even if its mask shows nothing, so that a worker writes its output. Read
 * by nvcc. */
#ifndef FIG_PLANNER_MASK_LINE_H
#define FIG_PLANNER_MASK_LINE_H

#include "planner/scores/mask_value.h"
#include "planner/split/split.h"

/* Bits of fig_score_code.line. */
enum {
    FIG_MASK_LINE_KNOWN = 1,    /* no range reads an array */
    FIG_MASK_LINE_BY_QUERY = 2, /* a range reads q_pos */
    FIG_MASK_LINE_BY_HEAD = 4   /* a range reads head or kv_head */
};

/* The most places that are evaluated for a row, and the number of places that are joined at a time.
 * All tiles of a row with more places are on the line. */
enum { FIG_MASK_LINE_PLACES = 64, FIG_MASK_LINE_LANES = 32 };

/* Tiles of a row, counted from token 0; none if first is end. */
typedef struct fig_mask_tiles {
    int32_t first, end;
    int32_t hole, hole_end; /* the tiles between that nobody sees; equal if there are none */
} fig_mask_tiles;

/* A row that is not idle. */
typedef struct fig_mask_row {
    int32_t row, queries;
    int32_t length;            /* at the first launch under the plan */
    int32_t launches, growth;  /* growth: tokens by which the length grows from launch to launch */
    int32_t heads, ratio;      /* q heads, in all and of a kv head */
    const void *const *arrays; /* of the score; NULL: the code has no node that reads one */
} fig_mask_row;

/* Returns the number of the row's places, or 0 if they are too many. */
FIG_BOTH int32_t fig_mask_line_places(const fig_score_code *code, const fig_mask_row *row) {
    int64_t places = row->launches;
    if (code->line & FIG_MASK_LINE_BY_QUERY) places *= row->queries;
    if (code->line & FIG_MASK_LINE_BY_HEAD) places *= row->heads;
    return places <= FIG_MASK_LINE_PLACES ? (int32_t)places : 0;
}

/* Returns the stretch of both, with the widest hole that both have, or the first of several. */
FIG_BOTH fig_mask_tiles fig_mask_line_join(fig_mask_tiles a, fig_mask_tiles b) {
    if (a.first == a.end) return b;
    if (b.first == b.end) return a;
    fig_mask_tiles both = {fig_size_min(a.first, b.first), a.end > b.end ? a.end : b.end, 0, 0};
    const int32_t begins[2][3] = {{both.first, a.hole, a.end}, {both.first, b.hole, b.end}};
    const int32_t ends[2][3] = {{a.first, a.hole_end, both.end}, {b.first, b.hole_end, both.end}};
    for (int32_t i = 0; i < 3; i++) {
        for (int32_t j = 0; j < 3; j++) {
            const int32_t begin = begins[0][i] > begins[1][j] ? begins[0][i] : begins[1][j];
            const int32_t end = fig_size_min(ends[0][i], ends[1][j]);
            const int32_t wider = end - begin - (both.hole_end - both.hole);
            if (end <= begin || wider < 0 || (wider == 0 && begin > both.hole)) continue;
            both.hole = begin;
            both.hole_end = end;
        }
    }
    return both;
}

/* Returns the tiles of tokens [first, end). */
FIG_BOTH fig_mask_tiles fig_mask_line_of_tokens(const fig_split_shape *shape, int32_t first,
                                                int32_t end) {
    fig_mask_tiles tiles = {0, 0, 0, 0};
    if (first >= end) return tiles;
    tiles.first = first / shape->tile_tokens;
    tiles.end = (end - 1) / shape->tile_tokens + 1;
    return tiles;
}

/* Returns the tiles of what one place sees. A window hides the least from the first query. */
FIG_BOTH fig_mask_tiles fig_mask_line_at(const fig_score_code *code, const fig_split_shape *shape,
                                         const fig_mask_row *row, int32_t place) {
    const int32_t heads = code->line & FIG_MASK_LINE_BY_HEAD ? row->heads : 1;
    const int32_t queries = code->line & FIG_MASK_LINE_BY_QUERY ? row->queries : 1;
    const int32_t head = place % heads, query = place / heads % queries;
    const int32_t length = row->length + place / heads / queries * row->growth;
    const int32_t position = length - row->queries + query;
    const int32_t low = shape->window == 0 ? 0 : position + 1 - shape->window;
    fig_score_inputs inputs;
    inputs.arrays = row->arrays;
    inputs.terms[FIG_SCORE_SCORE] = 0;
    inputs.terms[FIG_SCORE_KV_POS] = 0;
    inputs.terms[FIG_SCORE_Q_POS] = (uint32_t)position;
    inputs.terms[FIG_SCORE_KV_LENGTH] = (uint32_t)length;
    inputs.terms[FIG_SCORE_HEAD] = (uint32_t)head;
    inputs.terms[FIG_SCORE_KV_HEAD] = (uint32_t)(head / row->ratio);
    inputs.terms[FIG_SCORE_ROW] = (uint32_t)row->row;
    const fig_mask_sight sight = fig_mask_value_of(code, &inputs, low > 0 ? low : 0);
    return fig_mask_line_join(fig_mask_line_of_tokens(shape, sight.first, sight.end),
                              fig_mask_line_of_tokens(shape, sight.second, sight.last_end));
}

/* Returns all tiles of the row that its window touches, as they are on the line of a row without a
 * mask. */
FIG_BOTH fig_mask_tiles fig_mask_line_whole(const fig_split_shape *shape, const fig_mask_row *row) {
    const int32_t full = fig_split_full_length(shape, row->length, row->queries);
    return fig_mask_line_of_tokens(shape, fig_split_first_token(shape, full),
                                   row->length + (row->launches - 1) * row->growth);
}

/* Returns the row's tiles on the line, from the stretch of all its places. */
FIG_BOTH fig_mask_tiles fig_mask_line_finish(const fig_split_shape *shape, const fig_mask_row *row,
                                             fig_mask_tiles seen) {
    if (seen.first < seen.end) return seen;
    seen = fig_mask_line_whole(shape, row);
    seen.first = seen.end - 1;
    return seen;
}

FIG_BOTH int32_t fig_mask_line_count(const fig_mask_tiles *tiles) {
    return tiles->end - tiles->first - (tiles->hole_end - tiles->hole);
}

/* Returns the tile that has number n on the row's line. */
FIG_BOTH int32_t fig_mask_line_tile(const fig_mask_tiles *tiles, int32_t n) {
    const int32_t tile = tiles->first + n;
    return tile >= tiles->hole ? tile + (tiles->hole_end - tiles->hole) : tile;
}

#ifdef __CUDACC__
/* Returns the row's tiles on the line. All lanes of a warp call this and get the same result. */
static __device__ __noinline__ fig_mask_tiles fig_mask_line_of(const fig_score_code *code,
                                                               const fig_split_shape *shape,
                                                               const fig_mask_row *row) {
    const int32_t places = fig_mask_line_places(code, row), lane = (int32_t)threadIdx.x % 32;
    fig_mask_tiles seen = {0, 0, 0, 0};
    if (places == 0) return fig_mask_line_whole(shape, row);
    for (int32_t first = 0; first < places; first += FIG_MASK_LINE_LANES) {
        fig_mask_tiles own = {0, 0, 0, 0};
        if (first + lane < places) own = fig_mask_line_at(code, shape, row, first + lane);
        for (int32_t apart = FIG_MASK_LINE_LANES / 2; apart > 0; apart /= 2) {
            fig_mask_tiles other;
            other.first = __shfl_down_sync(0xffffffffu, own.first, (uint32_t)apart);
            other.end = __shfl_down_sync(0xffffffffu, own.end, (uint32_t)apart);
            other.hole = __shfl_down_sync(0xffffffffu, own.hole, (uint32_t)apart);
            other.hole_end = __shfl_down_sync(0xffffffffu, own.hole_end, (uint32_t)apart);
            if (lane < apart) own = fig_mask_line_join(own, other);
        }
        own.first = __shfl_sync(0xffffffffu, own.first, 0);
        own.end = __shfl_sync(0xffffffffu, own.end, 0);
        own.hole = __shfl_sync(0xffffffffu, own.hole, 0);
        own.hole_end = __shfl_sync(0xffffffffu, own.hole_end, 0);
        seen = fig_mask_line_join(seen, own);
    }
    return fig_mask_line_finish(shape, row, seen);
}
#else
/* Returns the row's tiles on the line. */
static inline fig_mask_tiles fig_mask_line_of(const fig_score_code *code,
                                              const fig_split_shape *shape,
                                              const fig_mask_row *row) {
    const int32_t places = fig_mask_line_places(code, row);
    fig_mask_tiles seen = {0, 0, 0, 0}, lanes[FIG_MASK_LINE_LANES];
    if (places == 0) return fig_mask_line_whole(shape, row);
    for (int32_t first = 0; first < places; first += FIG_MASK_LINE_LANES) {
        const int32_t count = fig_size_min(places - first, FIG_MASK_LINE_LANES);
        for (int32_t lane = 0; lane < count; lane++)
            lanes[lane] = fig_mask_line_at(code, shape, row, first + lane);
        for (int32_t apart = FIG_MASK_LINE_LANES / 2; apart > 0; apart /= 2)
            for (int32_t lane = 0; lane < apart && lane + apart < count; lane++)
                lanes[lane] = fig_mask_line_join(lanes[lane], lanes[lane + apart]);
        seen = fig_mask_line_join(seen, lanes[0]);
    }
    return fig_mask_line_finish(shape, row, seen);
}
#endif

#endif
