/* attention.c: split-K decode attention and its merge on the host, a block as a GPU runs it.
 *
 * out = sum over tokens of 2^(l - m) v / sum of 2^(l - m), where l is the logit in base 2 and m the
 * greatest l. One block is one worker of the split: it walks its stretch of the line piece by
 * piece, each kv head of the group by itself, each tile in strips of at most STRIP tokens, all in
 * f32. A piece that is a whole segment goes straight to out; else it goes to its partial, and the
 * block that finds itself the last of the segment's to finish merges the pieces in their order.
 * Invariant: which block merges changes no bit, and partials, sums and counters are 0 unless their
 * segment is half done; a token that a query does not see is not multiplied by a weight of zero but
 * left out, so that whatever lies there does no harm. */
#include "kernels/twins.h"

#include <math.h>
#include <string.h>

#include "kernels/attention_turn.h"
#include "kernels/cache.h"
#include "kernels/numeric.h"
#include "planner/spec.h"

/* LANES: sums that a dot product keeps side by side, so that a compiler that may not reorder a sum
 * still makes vectors of it. They divide every head_dim. */
enum {
    THREADS = 128,
    HEAD_DIM_LIMIT = 256,
    LANES = 16,
    STRIP = 64,
    VECTOR_LIMIT = FIG_GROUP_LIMIT * FIG_ROW_TOKENS_LIMIT
};

/* What one vector has seen: sums of weight * v and of weights, which are relative to its greatest
 * logit so far. */
typedef struct seen_so_far {
    float values[HEAD_DIM_LIMIT];
    float greatest, weights;
} seen_so_far;

/* One kv head of one row, and the vectors that share it: [query][q head]. */
typedef struct kv_head_work {
    fig_cache_sequence sequence;
    int32_t row, length, kv_head;
    int32_t length_before; /* that the row's tiles are counted from */
    int32_t ratio, vectors;
    float scale; /* of a product with K as it is stored */
    float q[VECTOR_LIMIT][HEAD_DIM_LIMIT];
    seen_so_far seen[VECTOR_LIMIT];
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

/* One q head of one row of q and out. */
typedef struct vector_place {
    int64_t row; /* row_tokens for each row of the plan */
    int32_t q_head;
} vector_place;

/* Where in a step a worker stands. */
typedef struct worker_place {
    const int32_t *lengths, *sequences; /* [rows] */
    fig_split_line line;
    int32_t worker;
} worker_place;

void fig_attention_shape(const void *params, fig_launch_shape *shape) {
    const fig_attention_params *p = params;
    uint32_t workers = (uint32_t)p->split.workers;
    *shape = (fig_launch_shape){.grid = {workers, 1, 1}, .block = {THREADS, 1, 1}};
}

static worker_place place_of(const fig_attention_params *p, int32_t worker) {
    int32_t rows = ((const fig_plan_head *)p->plan)->rows;
    const int32_t *prefix = (const int32_t *)(p->plan + p->prefix_offset);
    return (worker_place){.lengths = (const int32_t *)(p->plan + p->lengths_offset),
                          .sequences = (const int32_t *)(p->plan + p->sequences_offset),
                          .line = fig_split_line_of(&p->split, prefix, rows),
                          .worker = worker};
}

static float dot(const float *a, const float *b, int32_t count) {
    float lanes[LANES] = {0}, sum = 0;
    for (int32_t i = 0; i < count; i += LANES)
        for (int32_t lane = 0; lane < LANES; lane++)
            lanes[lane] += a[i + lane] * b[i + lane];
    for (int32_t lane = 0; lane < LANES; lane++)
        sum += lanes[lane];
    return sum;
}

static void add_scaled(float *restrict to, const float *restrict from, float scale, int32_t count) {
    for (int32_t i = 0; i < count; i++)
        to[i] += from[i] * scale;
}

/* By how much a sum shrinks whose greatest logit was `from` and becomes `to`: to nothing where it
 * had none, which -inf - -inf would not say. */
static float shrink_of(float from, float to) {
    return from == -INFINITY ? 0 : exp2f(from - to);
}

/* ---- Tokens */

/* Where a query of the row stands. */
static int32_t position_of(const fig_attention_params *p, const kv_head_work *head, int32_t query) {
    return head->length - p->split.row_tokens + query;
}

/* Those of `tokens` that a query sees; none: it begins and ends at the first that it could. */
static token_range seen_of(const fig_attention_params *p, const kv_head_work *head, int32_t query,
                           token_range tokens) {
    int32_t position = position_of(p, head, query);
    int32_t low = p->split.window == 0 ? 0 : position + 1 - p->split.window;
    token_range seen = {fig_size_min(tokens.first > low ? tokens.first : low, tokens.end),
                        fig_size_min(tokens.end, position + 1)};
    if (seen.end < seen.first) seen.end = seen.first;
    return seen;
}

/* In base 2. behind: tokens from the query to the token, none or fewer. */
static float logit_of(const fig_attention_params *p, const kv_head_work *head, int32_t q_head,
                      float product, int32_t behind) {
    float logit = product * head->scale;
    if (p->alibi != NULL) logit += p->alibi[q_head] * (float)behind;
    if (p->soft_cap > 0) logit = p->soft_cap * tanhf(logit / p->soft_cap);
    return logit * FIG_NUMERIC_LOG2_E;
}

/* Turns logits into weights relative to the greatest so far, which may change the sums there are.
 *  */
static void weigh(seen_so_far *seen, int32_t head_dim, float *logits, int32_t count) {
    float greatest = seen->greatest, weights = 0;
    for (int32_t t = 0; t < count; t++)
        greatest = logits[t] > greatest ? logits[t] : greatest;
    float shrink = shrink_of(seen->greatest, greatest);
    for (int32_t i = 0; i < head_dim; i++)
        seen->values[i] *= shrink;
    seen->greatest = greatest;
    for (int32_t t = 0; t < count; t++) {
        logits[t] = shrink_of(logits[t], greatest);
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

/* At most STRIP tokens. Each K and V is widened once for all vectors. */
static void see_strip(const fig_attention_params *p, kv_head_work *head, token_range tokens) {
    float logits[VECTOR_LIMIT][STRIP], vector[HEAD_DIM_LIMIT];
    token_range seen[FIG_ROW_TOKENS_LIMIT];
    cache_side k = {p->k_cache, &p->k_cache_strides, p->k_pages};
    cache_side v = {p->v_cache, &p->v_cache_strides, p->v_pages};
    for (int32_t query = 0; query < p->split.row_tokens; query++)
        seen[query] = seen_of(p, head, query, tokens);
    /* The first query sees furthest back, and nobody further. */
    for (int32_t token = seen[0].first; token < tokens.end; token++) {
        load_token(p, &k, head, token, vector);
        for (int32_t n = 0; n < head->vectors; n++) {
            int32_t query = n / head->ratio, q_head = head->kv_head * head->ratio + n % head->ratio;
            if (token < seen[query].first || token >= seen[query].end) continue;
            logits[n][token - tokens.first] =
                logit_of(p, head, q_head, dot(head->q[n], vector, p->head_dim),
                         token - position_of(p, head, query));
        }
    }
    for (int32_t n = 0; n < head->vectors; n++) {
        token_range range = seen[n / head->ratio];
        weigh(&head->seen[n], p->head_dim, logits[n] + (range.first - tokens.first),
              range.end - range.first);
    }
    for (int32_t token = seen[0].first; token < tokens.end; token++) {
        load_token(p, &v, head, token, vector);
        for (int32_t n = 0; n < head->vectors; n++) {
            token_range range = seen[n / head->ratio];
            if (token < range.first || token >= range.end) continue;
            add_scaled(head->seen[n].values, vector, logits[n][token - tokens.first], p->head_dim);
        }
    }
}

/* ---- Pieces */

static vector_place vector_of(const fig_attention_params *p, const kv_head_work *head, int32_t n) {
    return (vector_place){.row = (int64_t)head->row * p->split.row_tokens + n / head->ratio,
                          .q_head = head->kv_head * head->ratio + n % head->ratio};
}

static void load_q(const fig_attention_params *p, vector_place place, float *vector) {
    int64_t offset = place.row * p->q_strides.row + place.q_head * p->q_strides.head;
    if (fig_attention_turn_is_on(p)) {
        fig_attention_turn_q(p, (int32_t)place.row, place.q_head, vector);
    } else {
        fig_numeric_load_row(vector, p->head_dim, p->q, p->dtype, offset);
    }
}

/* All tiles of a piece, for a head that is known but for its vectors. */
static void see_piece(const fig_attention_params *p, kv_head_work *head,
                      const fig_split_piece *piece) {
    for (int32_t n = 0; n < head->vectors; n++) {
        load_q(p, vector_of(p, head, n), head->q[n]);
        memset(head->seen[n].values, 0, (size_t)p->head_dim * sizeof(float));
        head->seen[n].greatest = -INFINITY;
        head->seen[n].weights = 0;
    }
    int32_t tile_tokens = p->split.tile_tokens;
    int32_t origin = fig_split_first_tile_token(&p->split, head->length_before);
    if (fig_attention_turn_is_on(p))
        fig_attention_turn_append(p, head->row, head->kv_head, origin + piece->tile * tile_tokens,
                                  origin + piece->tile_end * tile_tokens);
    for (int32_t tile = piece->tile; tile < piece->tile_end; tile++) {
        int32_t first = origin + tile * tile_tokens;
        int32_t count = fig_size_min(tile_tokens, head->length - first);
        for (int32_t done = 0; done < count; done += STRIP) {
            int32_t strip = fig_size_min(STRIP, count - done);
            see_strip(p, head, (token_range){first + done, first + done + strip});
        }
    }
}

static void write_vector(const fig_attention_params *p, vector_place place, const float *values,
                         float lse) {
    int64_t offset = place.row * p->out_strides.row + place.q_head * p->out_strides.head;
    fig_numeric_store_row(p->out, p->dtype, offset, values, p->head_dim);
    if (p->lse != NULL) p->lse[place.row * p->lse_stride + place.q_head] = lse;
}

/* What all tokens gave one vector, its sink and V's scale joined here, once. */
static void write_out(const fig_attention_params *p, vector_place place, seen_so_far *seen) {
    int32_t kv_head = place.q_head / (p->q_heads / p->kv_heads);
    float greatest = seen->greatest, weights = seen->weights, shrink = 1;
    if (p->sinks != NULL) {
        float sink = p->sinks[place.q_head] * FIG_NUMERIC_LOG2_E;
        greatest = fmaxf(greatest, sink);
        shrink = shrink_of(seen->greatest, greatest);
        weights = weights * shrink + shrink_of(sink, greatest);
    }
    float scale = fig_cache_scale(p->v_scale, p->v_scales, kv_head);
    scale = weights == 0 ? 0 : scale * shrink / weights;
    for (int32_t i = 0; i < p->head_dim; i++)
        seen->values[i] *= scale;
    write_vector(p, place, seen->values, greatest + log2f(weights));
}

/* Which vector of partials, and which pair of sums: that of a vector of the group. */
static int64_t partial_of(const fig_attention_params *p, int32_t partial, int32_t query,
                          int32_t group_head) {
    int32_t group_heads = p->q_heads / p->kv_heads * p->heads_per_worker;
    return ((int64_t)partial * p->split.row_tokens + query) * group_heads + group_head;
}

static void write_partial(const fig_attention_params *p, int64_t index, const seen_so_far *seen) {
    memcpy(p->partials + index * p->head_dim, seen->values,
           (size_t)p->head_dim * sizeof *p->partials);
    p->sums[index * 2] = seen->greatest;
    p->sums[index * 2 + 1] = seen->weights;
}

/* Joins the pieces of a cut segment for one vector of its group. */
static void merge(const fig_attention_params *p, const fig_split_piece *piece, int32_t query,
                  int32_t group_head, seen_so_far *all) {
    *all = (seen_so_far){.greatest = -INFINITY};
    for (int32_t n = piece->first; n <= piece->last; n++) {
        int32_t partial = fig_split_partial(&p->split, piece, n);
        int64_t index = partial_of(p, partial, query, group_head);
        all->greatest = fmaxf(all->greatest, p->sums[index * 2]);
    }
    for (int32_t n = piece->first; n <= piece->last; n++) {
        int32_t partial = fig_split_partial(&p->split, piece, n);
        int64_t index = partial_of(p, partial, query, group_head);
        float scale = shrink_of(p->sums[index * 2], all->greatest);
        add_scaled(all->values, p->partials + index * p->head_dim, scale, p->head_dim);
        all->weights += p->sums[index * 2 + 1] * scale;
    }
}

/* Leaves zeros, as they were before the launch. */
static void clear_partials(const fig_attention_params *p, const fig_split_piece *piece) {
    int32_t group_heads = p->q_heads / p->kv_heads * p->heads_per_worker;
    size_t vectors = (size_t)group_heads * (size_t)p->split.row_tokens;
    for (int32_t n = piece->first; n <= piece->last; n++) {
        int64_t index = partial_of(p, fig_split_partial(&p->split, piece, n), 0, 0);
        memset(p->partials + index * p->head_dim, 0,
               vectors * (size_t)p->head_dim * sizeof *p->partials);
        memset(p->sums + index * 2, 0, vectors * 2 * sizeof *p->sums);
    }
}

static void merge_segment(const fig_attention_params *p, const fig_split_piece *piece) {
    int32_t group_heads = p->q_heads / p->kv_heads * p->heads_per_worker;
    for (int32_t query = 0; query < p->split.row_tokens; query++) {
        for (int32_t i = 0; i < group_heads; i++) {
            seen_so_far all;
            vector_place place = {(int64_t)piece->row * p->split.row_tokens + query,
                                  piece->group * group_heads + i};
            merge(p, piece, query, i, &all);
            write_out(p, place, &all);
        }
    }
    clear_partials(p, piece);
}

/* Counts a piece as finished, as atomicInc does: 1 for the last of its segment, which leaves 0. */
static int is_last(const fig_attention_params *p, const fig_split_piece *piece) {
    uint32_t *counter = &p->counters[fig_split_segment(&p->split, piece->row, piece->group)];
    uint32_t before = *counter, last = (uint32_t)(piece->last - piece->first);
    *counter = before >= last ? 0 : before + 1;
    return before == last;
}

/* head: memory of the worker's, large enough to be worth keeping as it is between pieces. */
static void do_piece(const fig_attention_params *p, const worker_place *place,
                     const fig_split_piece *piece, kv_head_work *head) {
    int whole = piece->first == piece->last;
    head->row = piece->row;
    head->length = place->lengths[piece->row];
    head->length_before =
        fig_plan_length_before((const fig_plan_head *)(const void *)p->plan, head->length);
    head->ratio = p->q_heads / p->kv_heads;
    head->vectors = head->ratio * p->split.row_tokens;
    head->sequence = fig_cache_sequence_of(p->page_table, p->table_stride,
                                           place->sequences[piece->row], p->page_size);
    for (int32_t i = 0; i < p->heads_per_worker; i++) {
        head->kv_head = piece->group * p->heads_per_worker + i;
        head->scale = p->sm_scale * fig_cache_scale(p->k_scale, p->k_scales, head->kv_head);
        see_piece(p, head, piece);
        for (int32_t n = 0; n < head->vectors; n++) {
            if (whole) {
                write_out(p, vector_of(p, head, n), &head->seen[n]);
                continue;
            }
            int32_t partial = fig_split_partial(&p->split, piece, piece->number);
            int32_t group_head = i * head->ratio + n % head->ratio;
            write_partial(p, partial_of(p, partial, n / head->ratio, group_head), &head->seen[n]);
        }
    }
    if (!whole && is_last(p, piece)) merge_segment(p, piece);
}

/* Rows of length 0 are not on the line: each belongs to one worker by its number. Zeros and -inf,
 * whatever the sinks. */
static void write_idle_rows(const fig_attention_params *p, const worker_place *place) {
    static const float zeros[HEAD_DIM_LIMIT];
    for (int32_t row = place->worker; row < place->line.rows; row += p->split.workers) {
        if (place->lengths[row] > 0) continue;
        for (int32_t query = 0; query < p->split.row_tokens; query++) {
            vector_place vector = {.row = (int64_t)row * p->split.row_tokens + query};
            for (; vector.q_head < p->q_heads; vector.q_head++)
                write_vector(p, vector, zeros, -INFINITY);
        }
    }
}

void fig_attention_twin(const void *params, const uint32_t block[3]) {
    const fig_attention_params *p = params;
    assert(p->head_dim <= HEAD_DIM_LIMIT && p->head_dim % LANES == 0);
    assert(p->q_heads / p->kv_heads <= FIG_GROUP_LIMIT);
    assert(p->split.row_tokens >= 1 && p->split.row_tokens <= FIG_ROW_TOKENS_LIMIT);
    if (((const fig_plan_head *)p->plan)->rows == 0) return;
    worker_place place = place_of(p, (int32_t)block[0]);
    fig_split_start start = ((const fig_split_start *)(p->plan + p->starts_offset))[place.worker];
    kv_head_work head;
    write_idle_rows(p, &place);
    while (start.count > 0) {
        fig_split_piece piece = fig_split_take(&p->split, &place.line, &start);
        do_piece(p, &place, &piece, &head);
    }
}
