/* pieces.c: see pieces.h. */
#include "kernels/attention/pieces.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "kernels/common/cache.h"
#include "kernels/common/numeric.h"

fig_pieces_worker fig_pieces_worker_of(const fig_attention_params *p, int32_t worker) {
    int32_t rows = ((const fig_plan_head *)p->plan)->rows;
    const int32_t *prefix = (const int32_t *)(p->plan + p->prefix_offset);
    const fig_split_start *starts = (const fig_split_start *)(p->plan + p->starts_offset);
    fig_split_line line = fig_split_line_of(&p->split, prefix, rows);
    const uint32_t by_units = ((const fig_plan_head *)p->plan)->sections & FIG_PLAN_BY_UNITS;
    if (by_units && !p->split.fixed) line.starts = starts;
    return (fig_pieces_worker){.lengths = (const int32_t *)(p->plan + p->lengths_offset),
                               .sequences = (const int32_t *)(p->plan + p->sequences_offset),
                               .line = line,
                               .worker = worker};
}

fig_plan_queries fig_pieces_queries(const fig_attention_params *p, int32_t row) {
    return fig_plan_queries_of(p->plan, p->queries_offset, p->split.row_tokens, row);
}

const fig_scored_attention_params *fig_pieces_scored(const fig_attention_params *p) {
    return p->flags & FIG_ATTENTION_SCORED ? (const fig_scored_attention_params *)(const void *)p
                                           : NULL;
}

static void add_scaled(float *restrict to, const float *restrict from, float scale, int32_t count) {
    for (int32_t i = 0; i < count; i++)
        to[i] += from[i] * scale;
}

static void write_vector(const fig_attention_params *p, fig_pieces_vector vector,
                         const float *values, float lse) {
    int64_t offset = vector.row * p->out_strides.row + vector.q_head * p->out_strides.head;
    fig_numeric_store_row(p->out, p->dtype, offset, values, p->head_dim);
    if (p->lse != NULL) p->lse[vector.row * p->lse_stride + vector.q_head] = lse;
}

/* Only this function applies the sink and the scale of V. */
static void write_out(const fig_attention_params *p, fig_pieces_vector vector, fig_sums *sums) {
    const int32_t kv_head = vector.q_head / (p->q_heads / p->kv_heads);
    const float *sink = p->sinks != NULL ? &p->sinks[vector.q_head] : NULL;
    const fig_scored_attention_params *scored = fig_pieces_scored(p);
    float scale = fig_sums_finish(sink, fig_cache_scale(p->v_scale, p->v_scales, kv_head), sums);
    if (scored != NULL && scored->score.weights != FIG_SCORE_SOFTMAX)
        scale *= sums->weights * exp2f(sums->greatest);
    for (int32_t i = 0; i < p->head_dim; i++)
        sums->values[i] *= scale;
    write_vector(p, vector, sums->values, sums->greatest + log2f(sums->weights));
}

void fig_pieces_end(const fig_attention_params *p, int32_t row, fig_pieces_vector vector,
                    fig_sums *sums) {
    const fig_plan_tail tail = fig_plan_tail_of(p->plan, p->slots.tails_offset, row);
    if (tail.slots == 0) {
        write_out(p, vector, sums);
        return;
    }
    const fig_sums_store slots = {p->slots.partials, p->slots.sums, p->head_dim};
    const int64_t first = tail.first + vector.q_head;
    uint32_t *counter = p->slots.counters + tail.counter + vector.q_head;
    fig_sums_keep(&slots, first + (int64_t)(tail.slots - 1) * p->q_heads, sums);
    if (++*counter < (uint32_t)tail.slots) return;
    *counter = 0;
    float values[FIG_PIECES_DIM_LIMIT] = {0};
    fig_sums all = {values, -INFINITY, 0};
    for (int32_t slot = 0; slot < tail.slots; slot++)
        fig_sums_add(&slots, first + (int64_t)slot * p->q_heads, &all);
    write_out(p, vector, &all);
}

int64_t fig_pieces_partial(const fig_attention_params *p, int32_t partial, int32_t query,
                           int32_t group_head) {
    int32_t group_heads = p->q_heads / p->kv_heads * p->heads_per_worker;
    return ((int64_t)partial * p->split.row_tokens + query) * group_heads + group_head;
}

void fig_pieces_write_partial(const fig_attention_params *p, int64_t index, const fig_sums *sums) {
    const fig_sums_store partials = {p->partials, p->sums, p->head_dim};
    fig_sums_keep(&partials, index, sums);
}

/* Merges the pieces of a cut segment for one vector of its group. all->values: zeros. */
static void merge(const fig_attention_params *p, const fig_split_piece *piece, int32_t query,
                  int32_t group_head, fig_sums *all) {
    for (int32_t n = piece->first; n <= piece->last; n++) {
        int32_t partial = fig_split_partial(&p->split, piece, n);
        int64_t index = fig_pieces_partial(p, partial, query, group_head);
        all->greatest = fmaxf(all->greatest, p->sums[index * 2]);
    }
    for (int32_t n = piece->first; n <= piece->last; n++) {
        int32_t partial = fig_split_partial(&p->split, piece, n);
        int64_t index = fig_pieces_partial(p, partial, query, group_head);
        float scale = fig_sums_shrink(p->sums[index * 2], all->greatest);
        add_scaled(all->values, p->partials + index * p->head_dim, scale, p->head_dim);
        all->weights += p->sums[index * 2 + 1] * scale;
    }
}

static void clear_partials(const fig_attention_params *p, const fig_split_piece *piece) {
    int32_t group_heads = p->q_heads / p->kv_heads * p->heads_per_worker;
    size_t vectors = (size_t)group_heads * (size_t)p->split.row_tokens;
    for (int32_t n = piece->first; n <= piece->last; n++) {
        int64_t index = fig_pieces_partial(p, fig_split_partial(&p->split, piece, n), 0, 0);
        memset(p->partials + index * p->head_dim, 0,
               vectors * (size_t)p->head_dim * sizeof *p->partials);
        memset(p->sums + index * 2, 0, vectors * 2 * sizeof *p->sums);
    }
}

int fig_pieces_is_last(const fig_attention_params *p, const fig_split_piece *piece) {
    uint32_t *counter = &p->counters[fig_split_segment(&p->split, piece->row, piece->group)];
    uint32_t before = *counter, last = (uint32_t)(piece->last - piece->first);
    *counter = before >= last ? 0 : before + 1;
    return before == last;
}

void fig_pieces_merge(const fig_attention_params *p, const fig_split_piece *piece) {
    int32_t group_heads = p->q_heads / p->kv_heads * p->heads_per_worker;
    const fig_plan_queries queries = fig_pieces_queries(p, piece->row);
    assert(p->head_dim <= FIG_PIECES_DIM_LIMIT);
    for (int32_t query = 0; query < queries.count; query++) {
        for (int32_t i = 0; i < group_heads; i++) {
            float values[FIG_PIECES_DIM_LIMIT] = {0};
            fig_sums all = {values, -INFINITY, 0};
            const fig_pieces_vector vector = {(int64_t)queries.first + query,
                                              piece->group * group_heads + i};
            merge(p, piece, query, i, &all);
            fig_pieces_end(p, piece->row, vector, &all);
        }
    }
    clear_partials(p, piece);
}

void fig_pieces_write_idle_rows(const fig_attention_params *p, const fig_pieces_worker *place) {
    static const float zeros[FIG_PIECES_DIM_LIMIT];
    assert(p->head_dim <= FIG_PIECES_DIM_LIMIT);
    for (int32_t row = place->worker; row < place->line.rows; row += p->split.workers) {
        if (place->lengths[row] > 0) continue;
        const fig_plan_queries queries = fig_pieces_queries(p, row);
        for (int32_t query = 0; query < queries.count; query++) {
            fig_pieces_vector vector = {.row = (int64_t)queries.first + query};
            for (; vector.q_head < p->q_heads; vector.q_head++)
                write_vector(p, vector, zeros, -INFINITY);
        }
    }
}
