/* attention.c: split-K decode attention and its merge on the host, a block as a GPU runs it.
 *
 * out = sum over tokens of 2^(l - m) v / sum of 2^(l - m), where l = q.k * sm_scale * log2(e) and m
 * is the greatest l. One block is one worker of the split: it walks its stretch of the line piece
 * by piece, each kv head of the group by itself, each tile in turn, all in f32. A piece that is a
 * whole segment goes straight to out; else it goes to its partial, and the block that finds itself
 * the last of the segment's to finish merges the pieces in the order of their workers. Invariant:
 * which block merges changes no bit, and a counter is 0 unless its segment is half done. */
#include "kernels/twins.h"

#include <math.h>
#include <string.h>

#include "kernels/cache.h"
#include "kernels/numeric.h"
#include "planner/spec.h"

/* LANES: sums that a dot product keeps side by side, so that a compiler that may not reorder a sum
 * still makes vectors of it. They divide HEAD_DIM_LIMIT; a head is padded with zeros to them. */
enum { THREADS = 128, HEAD_DIM_LIMIT = 256, LANES = 16 };

/* What one q head has seen: sums of weight * v and of weights, which are relative to its greatest
 * logit so far. */
typedef struct seen_so_far {
    float values[HEAD_DIM_LIMIT];
    float greatest, weights;
} seen_so_far;

/* One kv head of one row, and the q heads that share it. */
typedef struct kv_head_work {
    fig_cache_sequence sequence;
    int32_t row, kv_head, ratio;
    float q[FIG_GROUP_LIMIT][HEAD_DIM_LIMIT]; /* padded with zeros */
    seen_so_far seen[FIG_GROUP_LIMIT];
} kv_head_work;

/* K or V. */
typedef struct cache_side {
    const void *base;
    const fig_cache_strides *strides;
    int64_t pages;
} cache_side;

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

/* Turns logits into weights relative to the greatest so far, which may change the sums there are.
 *  */
static void weigh(seen_so_far *seen, int32_t head_dim, float *logits, int32_t count) {
    float greatest = seen->greatest;
    for (int32_t t = 0; t < count; t++)
        greatest = logits[t] > greatest ? logits[t] : greatest;
    float shrink = exp2f(seen->greatest - greatest);
    for (int32_t i = 0; i < head_dim; i++)
        seen->values[i] *= shrink;
    seen->greatest = greatest;
    seen->weights *= shrink;
    for (int32_t t = 0; t < count; t++) {
        logits[t] = exp2f(logits[t] - greatest);
        seen->weights += logits[t];
    }
}

static void load_token(const fig_attention_params *p, const cache_side *cache,
                       const kv_head_work *head, int32_t token, float *vector) {
    int32_t page = fig_cache_page(&head->sequence, token);
    if (page < 0 || page >= cache->pages) page = 0;
    int64_t offset = fig_cache_offset(cache->strides, &head->sequence, page, token) +
                     head->kv_head * cache->strides->head;
    fig_numeric_load_row(vector, p->head_dim, cache->base, p->dtype, offset);
}

/* Tokens [first, first + count), at most a tile. Each K and V is widened once for all q heads. */
static void see_tile(const fig_attention_params *p, kv_head_work *head, int32_t first,
                     int32_t count) {
    float logits[FIG_GROUP_LIMIT][FIG_TILE_TOKENS_LIMIT], vector[HEAD_DIM_LIMIT] = {0};
    float scale = p->sm_scale * FIG_NUMERIC_LOG2_E;
    cache_side k = {p->k_cache, &p->k_cache_strides, p->k_pages};
    cache_side v = {p->v_cache, &p->v_cache_strides, p->v_pages};
    for (int32_t t = 0; t < count; t++) {
        load_token(p, &k, head, first + t, vector);
        for (int32_t i = 0; i < head->ratio; i++)
            logits[i][t] = dot(head->q[i], vector, p->head_dim) * scale;
    }
    for (int32_t i = 0; i < head->ratio; i++)
        weigh(&head->seen[i], p->head_dim, logits[i], count);
    for (int32_t t = 0; t < count; t++) {
        load_token(p, &v, head, first + t, vector);
        for (int32_t i = 0; i < head->ratio; i++)
            add_scaled(head->seen[i].values, vector, logits[i][t], p->head_dim);
    }
}

/* All tiles of a piece, for a head whose row, kv_head, ratio and sequence are set. */
static void see_piece(const fig_attention_params *p, kv_head_work *head,
                      const fig_split_piece *piece, int32_t length) {
    for (int32_t i = 0; i < head->ratio; i++) {
        int64_t q_head = head->kv_head * head->ratio + i;
        int64_t offset = head->row * p->q_strides.row + q_head * p->q_strides.head;
        memset(head->q[i], 0, sizeof head->q[i]);
        fig_numeric_load_row(head->q[i], p->head_dim, p->q, p->dtype, offset);
        memset(&head->seen[i], 0, sizeof head->seen[i]);
        head->seen[i].greatest = -INFINITY;
    }
    for (int32_t tile = piece->tile; tile < piece->tile_end; tile++) {
        int32_t first = tile * p->split.tile_tokens;
        see_tile(p, head, first, fig_size_min(p->split.tile_tokens, length - first));
    }
}

/* What all tokens of a row gave one q head; no weights at all: zeros and -inf. */
static void write_out(const fig_attention_params *p, int32_t row, int32_t q_head,
                      seen_so_far *seen) {
    float scale = seen->weights == 0 ? 0 : 1.0f / seen->weights;
    for (int32_t i = 0; i < p->head_dim; i++)
        seen->values[i] *= scale;
    int64_t offset = row * p->out_strides.row + q_head * p->out_strides.head;
    fig_numeric_store_row(p->out, p->dtype, offset, seen->values, p->head_dim);
    if (p->lse == NULL) return;
    p->lse[row * p->lse_stride + q_head] = seen->greatest + log2f(seen->weights);
}

/* Which vector of partials, and which pair of sums: that of a q head, counted in its group. */
static int64_t partial_of(const fig_attention_params *p, int32_t partial, int32_t q_head) {
    int32_t group_heads = p->q_heads / p->kv_heads * p->heads_per_worker;
    return (int64_t)partial * group_heads + q_head;
}

static void write_partial(const fig_attention_params *p, int64_t index, const seen_so_far *seen) {
    memcpy(p->partials + index * p->head_dim, seen->values,
           (size_t)p->head_dim * sizeof *p->partials);
    p->sums[index * 2] = seen->greatest;
    p->sums[index * 2 + 1] = seen->weights;
}

/* Joins the pieces of a cut segment for one q head, counted in its group. */
static void merge(const fig_attention_params *p, const fig_split_piece *piece, int32_t q_head,
                  seen_so_far *all) {
    *all = (seen_so_far){.greatest = -INFINITY};
    for (int32_t w = piece->first_worker; w <= piece->last_worker; w++) {
        int64_t index = partial_of(p, fig_split_partial(&p->split, piece, w), q_head);
        all->greatest = fmaxf(all->greatest, p->sums[index * 2]);
    }
    for (int32_t w = piece->first_worker; w <= piece->last_worker; w++) {
        int64_t index = partial_of(p, fig_split_partial(&p->split, piece, w), q_head);
        float scale = exp2f(p->sums[index * 2] - all->greatest);
        add_scaled(all->values, p->partials + index * p->head_dim, scale, p->head_dim);
        all->weights += p->sums[index * 2 + 1] * scale;
    }
}

/* Counts a piece as finished, as atomicInc does: 1 for the last of its segment, which leaves 0. */
static int is_last(const fig_attention_params *p, const fig_split_piece *piece) {
    uint32_t *counter = &p->counters[fig_split_segment(&p->split, piece->row, piece->group)];
    uint32_t before = *counter, last = (uint32_t)(piece->last_worker - piece->first_worker);
    *counter = before >= last ? 0 : before + 1;
    return before == last;
}

static void do_piece(const fig_attention_params *p, const worker_place *place,
                     const fig_split_piece *piece) {
    int whole = piece->first_worker == piece->last_worker;
    int32_t first_head = piece->group * p->heads_per_worker;
    kv_head_work head = {.row = piece->row, .ratio = p->q_heads / p->kv_heads};
    head.sequence = fig_cache_sequence_of(p->page_table, p->table_stride,
                                          place->sequences[piece->row], p->page_size);
    for (int32_t n = 0; n < p->heads_per_worker; n++) {
        head.kv_head = first_head + n;
        see_piece(p, &head, piece, place->lengths[piece->row]);
        for (int32_t i = 0; i < head.ratio; i++) {
            if (whole) {
                write_out(p, piece->row, head.kv_head * head.ratio + i, &head.seen[i]);
                continue;
            }
            int32_t partial = fig_split_partial(&p->split, piece, place->worker);
            write_partial(p, partial_of(p, partial, n * head.ratio + i), &head.seen[i]);
        }
    }
    if (whole || !is_last(p, piece)) return;
    for (int32_t i = 0; i < p->heads_per_worker * head.ratio; i++) {
        seen_so_far all;
        merge(p, piece, i, &all);
        write_out(p, piece->row, first_head * head.ratio + i, &all);
    }
}

/* Rows of length 0 are not on the line: each belongs to one worker by its number. */
static void write_idle_rows(const fig_attention_params *p, const worker_place *place) {
    for (int32_t row = place->worker; row < place->line.rows; row += p->split.workers) {
        if (place->lengths[row] > 0) continue;
        for (int32_t q_head = 0; q_head < p->q_heads; q_head++) {
            seen_so_far nothing = {.greatest = -INFINITY};
            write_out(p, row, q_head, &nothing);
        }
    }
}

void fig_attention_twin(const void *params, const uint32_t block[3]) {
    const fig_attention_params *p = params;
    assert(p->head_dim <= HEAD_DIM_LIMIT);
    assert(p->q_heads / p->kv_heads <= FIG_GROUP_LIMIT);
    assert(p->split.tile_tokens <= FIG_TILE_TOKENS_LIMIT);
    if (((const fig_plan_head *)p->plan)->rows == 0) return;
    worker_place place = place_of(p, (int32_t)block[0]);
    fig_split_start start = ((const fig_split_start *)(p->plan + p->starts_offset))[place.worker];
    write_idle_rows(p, &place);
    while (start.count > 0) {
        fig_split_piece piece = fig_split_take(&p->split, &place.line, &start);
        do_piece(p, &place, &piece);
    }
}
