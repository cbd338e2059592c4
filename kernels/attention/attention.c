/* attention.c: computes split-K decode attention and its merge on the host, block by block as a GPU
 * does.
 *
 * out = sum over tokens of 2^(l - m) v / sum of 2^(l - m), where l is the logit in base 2 and m the
 * greatest l. One block is one worker of the split. It walks its stretch of the line piece by
 * piece, takes the kv heads of the group one after the other, and reads each tile in strips of at
 * most STRIP tokens. All arithmetic is in f32. The result of a piece that is a whole segment goes
 * straight to out. Otherwise it goes to the piece's partial, and the last block to finish a piece
 * of the segment merges all pieces in their order.
 *
 * Invariant: the output bits do not depend on which block merges. Partials, sums and counters are 0
 * except while their segment is half done. A token that a query does not see is skipped, not
 * multiplied by a weight of zero, so any bytes may lie there. */
#include "kernels/table/reference_kernels.h"

#include <math.h>
#include <string.h>

#include "kernels/attention/attention_turn.h"
#include "kernels/attention/logit.h"
#include "kernels/attention/pieces.h"
#include "kernels/common/cache.h"
#include "kernels/common/lanes.h"
#include "kernels/common/numeric.h"
#include "kernels/common/seen_tiles.h"
#include "planner/spec/spec.h"

enum {
    THREADS = 128,
    HEAD_DIM_LIMIT = 256,
    STRIP = 64,
    AT_ONCE = 16 /* vectors; they fit the stack of any thread */
};

/* Holds the state of one vector: the sum of weight * v and the sum of weights. Both are relative to
 * the greatest logit so far. */
typedef struct seen_so_far {
    float values[HEAD_DIM_LIMIT];
    float greatest, weights;
} seen_so_far;

/* Describes one kv head of one row and some of the vectors [query][q head] that share the head:
 * `vectors` of them, starting with number `first`. The sums of different vectors are
 * independent. */
typedef struct kv_head_work {
    fig_cache_sequence sequence;
    int32_t row, length, kv_head;
    int32_t first_token;  /* no query sees older tokens: others multiply them for several rows */
    fig_mask_tiles tiles; /* those of the row on its line; without a mask, only `first` is set */
    fig_plan_queries queries; /* the rows of q and out that belong to this row of the plan */
    int32_t ratio, first, vectors;
    float scale; /* factor for a product with K as the cache stores it */
    float q[AT_ONCE][HEAD_DIM_LIMIT];
    seen_so_far seen[AT_ONCE];
    fig_mask_sight sights[AT_ONCE]; /* tokens that each vector sees; set only if there is a mask */
} kv_head_work;

/* Tokens [first, end) of a sequence. */
typedef struct token_range {
    int32_t first, end;
} token_range;

/* K or V. */
typedef struct cache_side {
    const void *base;
    const fig_cache_strides *strides;
    int64_t pages;
} cache_side;

void fig_attention_shape(const void *params, fig_launch_shape *shape) {
    const fig_attention_params *p = params;
    uint32_t workers = (uint32_t)p->split.workers;
    *shape = (fig_launch_shape){.grid = {workers, 1, 1}, .block = {THREADS, 1, 1}};
}

/* ---- Tokens */

/* Returns the position of a query of the row. */
static int32_t position_of(const fig_attention_params *p, const kv_head_work *head, int32_t query) {
    (void)p;
    return head->length - head->queries.count + query;
}

static int has_mask(const fig_attention_params *p) {
    const fig_scored_attention_params *scored = fig_pieces_scored(p);
    return scored != NULL && scored->score.mask_node_count > 0;
}

/* Returns the first token that the window and the row's tail leave to a query. */
static int32_t low_of(const fig_attention_params *p, const kv_head_work *head, int32_t query) {
    const int32_t low = position_of(p, head, query) + 1 - p->split.window;
    return p->split.window == 0 || low < head->first_token ? head->first_token : low;
}

/* Returns the part of `tokens` that a query sees or, with a mask, that its mask may show. An empty
 * part begins and ends at the first token that the query could see. */
static token_range seen_of(const fig_attention_params *p, const kv_head_work *head, int32_t query,
                           token_range tokens) {
    const int32_t low = low_of(p, head, query);
    const int32_t end = has_mask(p) ? head->length : position_of(p, head, query) + 1;
    token_range seen = {fig_size_min(tokens.first > low ? tokens.first : low, tokens.end),
                        fig_size_min(tokens.end, end)};
    if (seen.end < seen.first) seen.end = seen.first;
    return seen;
}

/* The token, the query's position and the q head of one logit. */
typedef struct logit_place {
    int32_t token, position, q_head; /* position: of the query */
} logit_place;

static fig_score_inputs inputs_of(const fig_scored_attention_params *p, const kv_head_work *head,
                                  const logit_place *place) {
    fig_score_inputs inputs = {.arrays = p->arrays};
    inputs.terms[FIG_SCORE_Q_POS] = (uint32_t)place->position;
    inputs.terms[FIG_SCORE_KV_POS] = (uint32_t)place->token;
    inputs.terms[FIG_SCORE_KV_LENGTH] = (uint32_t)head->length;
    inputs.terms[FIG_SCORE_HEAD] = (uint32_t)place->q_head;
    inputs.terms[FIG_SCORE_KV_HEAD] = (uint32_t)head->kv_head;
    inputs.terms[FIG_SCORE_ROW] = (uint32_t)head->row;
    return inputs;
}

static float score_of(const fig_scored_attention_params *p, const kv_head_work *head,
                      const logit_place *place, float logit) {
    fig_score_inputs inputs = inputs_of(p, head, place);
    inputs.terms[FIG_SCORE_SCORE] = fig_score_value_bits(logit);
    return fig_logit_of_score(fig_score_value_of(&p->score, &inputs), p->score.weights);
}

/* Returns the logit in base 2. */
static float logit_of(const fig_attention_params *p, const kv_head_work *head,
                      const logit_place *place, float product) {
    float logit = product * head->scale;
    if (fig_pieces_scored(p) != NULL) return score_of(fig_pieces_scored(p), head, place, logit);
    if (p->alibi != NULL)
        logit = fig_logit_lean(logit, p->alibi[place->q_head], place->token - place->position);
    return fig_logit_finish(logit, p->soft_cap);
}

/* Turns logits into weights relative to the greatest logit so far. A new greatest logit rescales
 * the existing sums. */
static void weigh(seen_so_far *seen, int32_t head_dim, float *logits, int32_t count) {
    float greatest = seen->greatest, weights = 0;
    for (int32_t t = 0; t < count; t++)
        greatest = logits[t] > greatest ? logits[t] : greatest;
    float shrink = fig_sums_shrink(seen->greatest, greatest);
    fig_lanes_scale(seen->values, shrink, head_dim);
    seen->greatest = greatest;
    for (int32_t t = 0; t < count; t++) {
        logits[t] = fig_sums_shrink(logits[t], greatest);
        weights += logits[t];
    }
    seen->weights = seen->weights * shrink + weights;
}

static void load_token(const fig_attention_params *p, const cache_side *cache,
                       const kv_head_work *head, int32_t token, float *vector) {
    int32_t page = fig_cache_page(&head->sequence, token);
    if (page < 0 || page >= cache->pages) page = 0;
    int64_t offset = fig_cache_offset(cache->strides, &head->sequence, page, token) +
                     head->kv_head * cache->strides->head;
    fig_numeric_load_row(vector, p->head_dim, cache->base, p->kv_dtype, offset);
}

static int32_t query_of(const kv_head_work *head, int32_t n) {
    return (head->first + n) / head->ratio;
}

static int32_t q_head_of(const kv_head_work *head, int32_t n) {
    return head->kv_head * head->ratio + (head->first + n) % head->ratio;
}

/* Returns 1 if the mask hides the token from a vector. */
static int is_hidden(const fig_attention_params *p, const kv_head_work *head, int32_t n,
                     int32_t token) {
    return has_mask(p) && !fig_mask_value_sees(&head->sights[n], token);
}

/* Returns 1 if the masks of all vectors hide the token, which then must not be read. */
static int is_unread(const fig_attention_params *p, const kv_head_work *head, int32_t token) {
    for (int32_t n = 0; n < head->vectors; n++)
        if (!is_hidden(p, head, n, token)) return 0;
    return 1;
}

/* Processes at most STRIP tokens. Each K and V is widened to f32 once for all vectors. A token that
 * a mask hides has the logit -inf, so its weight is 0. */
static void see_strip(const fig_attention_params *p, kv_head_work *head, token_range tokens) {
    float logits[AT_ONCE][STRIP], vector[HEAD_DIM_LIMIT];
    token_range seen[FIG_ROW_TOKENS_LIMIT];
    cache_side k = {p->k_cache, &p->k_cache_strides, p->k_pages};
    cache_side v = {p->v_cache, &p->v_cache_strides, p->v_pages};
    for (int32_t query = 0; query < head->queries.count; query++)
        seen[query] = seen_of(p, head, query, tokens);
    /* The first query sees the oldest tokens. */
    for (int32_t token = seen[0].first; token < tokens.end; token++) {
        const int is_read = !is_unread(p, head, token);
        if (is_read) load_token(p, &k, head, token, vector);
        for (int32_t n = 0; n < head->vectors; n++) {
            const int32_t query = query_of(head, n);
            if (token < seen[query].first || token >= seen[query].end) continue;
            logits[n][token - tokens.first] = -INFINITY;
            if (!is_read || is_hidden(p, head, n, token)) continue;
            const logit_place place = {token, position_of(p, head, query), q_head_of(head, n)};
            logits[n][token - tokens.first] =
                logit_of(p, head, &place, fig_lanes_dot(head->q[n], vector, p->head_dim));
        }
    }
    for (int32_t n = 0; n < head->vectors; n++) {
        token_range range = seen[query_of(head, n)];
        weigh(&head->seen[n], p->head_dim, logits[n] + (range.first - tokens.first),
              range.end - range.first);
    }
    for (int32_t token = seen[0].first; token < tokens.end; token++) {
        if (is_unread(p, head, token)) continue;
        load_token(p, &v, head, token, vector);
        for (int32_t n = 0; n < head->vectors; n++) {
            token_range range = seen[query_of(head, n)];
            if (token < range.first || token >= range.end) continue;
            const float weight = logits[n][token - tokens.first];
            if (weight == 0 && fig_pieces_scored(p) != NULL) continue; /* its score may be -inf */
            fig_lanes_add(head->seen[n].values, vector, weight, p->head_dim);
        }
    }
}

/* ---- Pieces */

static fig_pieces_vector vector_of(const kv_head_work *head, int32_t n) {
    return (fig_pieces_vector){.row = (int64_t)head->queries.first + query_of(head, n),
                               .q_head = q_head_of(head, n)};
}

static void load_q(const fig_attention_params *p, fig_pieces_vector place, float *vector) {
    int64_t offset = place.row * p->q_strides.row + place.q_head * p->q_strides.head;
    if (fig_attention_turn_is_on(p)) {
        fig_attention_turn_q(p, (int32_t)place.row, place.q_head, vector);
    } else {
        fig_numeric_load_row(vector, p->head_dim, p->q, p->dtype, offset);
    }
}

/* If there is a mask, computes which tokens the vectors see. */
static void look(const fig_attention_params *p, kv_head_work *head) {
    if (!has_mask(p)) return;
    for (int32_t n = 0; n < head->vectors; n++) {
        const int32_t query = query_of(head, n);
        const logit_place place = {0, position_of(p, head, query), q_head_of(head, n)};
        const fig_score_inputs inputs = inputs_of(fig_pieces_scored(p), head, &place);
        head->sights[n] =
            fig_mask_value_of(&fig_pieces_scored(p)->score, &inputs, low_of(p, head, query));
    }
}

/* Processes all tiles of a piece. The caller has filled `head` except for its vectors. */
static void see_piece(const fig_attention_params *p, kv_head_work *head,
                      const fig_split_piece *piece) {
    for (int32_t n = 0; n < head->vectors; n++) {
        load_q(p, vector_of(head, n), head->q[n]);
        memset(head->seen[n].values, 0, (size_t)p->head_dim * sizeof(float));
        head->seen[n].greatest = -INFINITY;
        head->seen[n].weights = 0;
    }
    look(p, head);
    const int32_t tile_tokens = p->split.tile_tokens, origin = head->tiles.first * tile_tokens;
    if (fig_attention_turn_is_on(p) && head->first == 0)
        fig_attention_turn_append(p, head->row, head->kv_head, origin + piece->tile * tile_tokens,
                                  origin + piece->tile_end * tile_tokens);
    for (int32_t tile = piece->tile; tile < piece->tile_end; tile++) {
        int32_t first = fig_mask_line_tile(&head->tiles, tile) * tile_tokens;
        int32_t count = fig_size_min(tile_tokens, head->length - first);
        for (int32_t done = 0; done < count; done += STRIP) {
            int32_t strip = fig_size_min(STRIP, count - done);
            see_strip(p, head, (token_range){first + done, first + done + strip});
        }
    }
}

/* Writes the result of the vectors to out or to the piece's partial. `number` is the index of their
 * kv head within the group. */
static void leave_piece(const fig_attention_params *p, const fig_split_piece *piece,
                        kv_head_work *head, int32_t number) {
    for (int32_t n = 0; n < head->vectors; n++) {
        seen_so_far *seen = &head->seen[n];
        fig_sums sums = {seen->values, seen->greatest, seen->weights};
        if (piece->first == piece->last) {
            fig_pieces_end(p, head->row, vector_of(head, n), &sums);
            continue;
        }
        const int32_t partial = fig_split_partial(&p->split, piece, piece->number);
        const int32_t group_head = number * head->ratio + (head->first + n) % head->ratio;
        fig_pieces_write_partial(p, fig_pieces_partial(p, partial, query_of(head, n), group_head),
                                 &sums);
    }
}

/* Returns the tiles of the row on its line. The caller has filled in the row. */
static fig_mask_tiles tiles_of(const fig_attention_params *p, const kv_head_work *head) {
    const fig_scored_attention_params *scored = fig_pieces_scored(p);
    const int32_t queries = head->queries.count;
    if (scored != NULL && fig_seen_tiles_are_masked(scored))
        return fig_seen_tiles_of(scored, head->row, head->length, queries);
    if (head->first_token > 0)
        return (fig_mask_tiles){.first = head->first_token / p->split.tile_tokens};
    const int32_t before =
        fig_plan_length_before((const fig_plan_head *)(const void *)p->plan, head->length);
    const int32_t full = fig_split_full_length(&p->split, before, queries);
    const int32_t origin = fig_split_first_tile_token(&p->split, full);
    return (fig_mask_tiles){.first = origin / p->split.tile_tokens};
}

/* Processes a piece. `head` is memory that the worker uses for all its pieces, because it is too
 * large to initialise for each piece. */
static void do_piece(const fig_attention_params *p, const fig_pieces_worker *place,
                     const fig_split_piece *piece, kv_head_work *head) {
    head->row = piece->row;
    head->length = place->lengths[piece->row];
    head->queries = fig_pieces_queries(p, piece->row);
    head->first_token = fig_plan_tail_of(p->plan, p->slots.tails_offset, piece->row).first_token;
    head->tiles = tiles_of(p, head);
    head->ratio = p->q_heads / p->kv_heads;
    head->sequence = fig_cache_sequence_of(p->page_table, p->table_stride,
                                           place->sequences[piece->row], p->page_size);
    const int32_t vectors = head->ratio * head->queries.count;
    for (int32_t i = 0; i < p->heads_per_worker; i++) {
        head->kv_head = piece->group * p->heads_per_worker + i;
        head->scale = p->sm_scale * fig_cache_scale(p->k_scale, p->k_scales, head->kv_head);
        for (head->first = 0; head->first < vectors; head->first += AT_ONCE) {
            head->vectors = fig_size_min(vectors - head->first, AT_ONCE);
            see_piece(p, head, piece);
            leave_piece(p, piece, head, i);
        }
    }
    if (piece->first != piece->last && fig_pieces_is_last(p, piece)) fig_pieces_merge(p, piece);
}

void fig_attention_reference(const void *params, const uint32_t block[3]) {
    const fig_attention_params *p = params;
    assert(p->head_dim <= HEAD_DIM_LIMIT && p->head_dim % FIG_LANES_COUNT == 0);
    assert(p->q_heads / p->kv_heads <= FIG_GROUP_LIMIT);
    assert(p->split.row_tokens >= 1 && p->split.row_tokens <= FIG_ROW_TOKENS_LIMIT);
    if (((const fig_plan_head *)p->plan)->rows == 0) return;
    const fig_pieces_worker place = fig_pieces_worker_of(p, (int32_t)block[0]);
    fig_split_start start = ((const fig_split_start *)(p->plan + p->starts_offset))[place.worker];
    kv_head_work head;
    fig_pieces_write_idle_rows(p, &place);
    while (start.count > 0) {
        fig_split_piece piece = fig_split_take(&p->split, &place.line, &start);
        do_piece(p, &place, &piece, &head);
    }
}
