/* append_kv.c: append_kv on the host, a block as a GPU runs it.
 *
 * Writes k and v of a query token, all heads, where that token stands in its row's sequence: the
 * row's last at length - 1, those before it right before that. Where the plan says how many of a
 * row's queries are tokens, those before the last so many are left out. One block per token. Where
 * the cache has the dtype of k and v, bits are copied; else x / scale is converted, and saturates.
 * Invariant: nothing outside the cache is written, whatever the page table says. */
#include "kernels/twins.h"

#include <string.h>

#include "kernels/cache.h"
#include "kernels/numeric.h"

enum { THREADS = 128, HEAD_DIM_LIMIT = 256 };

/* One of k and v. */
typedef struct kv_side {
    const void *in;
    void *cache;
    const float *scale; /* [scales] */
    fig_row_strides in_strides;
    fig_cache_strides cache_strides;
    int64_t pages;
    int32_t scales;
} kv_side;

/* One query token. */
typedef struct token_place {
    fig_cache_sequence sequence;
    int64_t row;   /* of k and v */
    int32_t token; /* of the sequence */
} token_place;

void fig_append_kv_shape(const void *params, fig_launch_shape *shape) {
    const fig_append_kv_params *p = params;
    uint32_t rows = (uint32_t)p->rows.row_limit;
    *shape = (fig_launch_shape){.grid = {rows, 1, 1}, .block = {THREADS, 1, 1}};
}

static void copy_head(const fig_append_kv_params *p, const kv_side *x, int64_t from, int64_t to) {
    int64_t unit = fig_numeric_bytes(p->dtype);
    memcpy((uint8_t *)x->cache + to * unit, (const uint8_t *)x->in + from * unit,
           (size_t)(p->head_dim * unit));
}

static void convert_head(const fig_append_kv_params *p, const kv_side *x, int64_t from, int64_t to,
                         float scale) {
    float vector[HEAD_DIM_LIMIT];
    fig_numeric_load_row(vector, p->head_dim, x->in, p->dtype, from);
    for (int32_t i = 0; i < p->head_dim; i++)
        vector[i] /= scale;
    fig_numeric_store_row(x->cache, p->kv_dtype, to, vector, p->head_dim);
}

static void append(const fig_append_kv_params *p, const kv_side *x, const token_place *place) {
    int32_t page = fig_cache_page(&place->sequence, place->token);
    if (page < 0 || page >= x->pages) return;
    int64_t at = fig_cache_offset(&x->cache_strides, &place->sequence, page, place->token);
    for (int32_t head = 0; head < p->kv_heads; head++) {
        int64_t from = place->row * x->in_strides.row + head * x->in_strides.head;
        int64_t to = at + head * x->cache_strides.head;
        if (p->dtype == p->kv_dtype) {
            copy_head(p, x, from, to);
        } else {
            convert_head(p, x, from, to, fig_cache_scale(x->scale, x->scales, head));
        }
    }
}

/* How many of a row's queries are tokens. */
static int32_t tokens_of(const fig_append_kv_params *p, int32_t row) {
    const fig_plan_head *head = (const fig_plan_head *)(const void *)p->plan;
    if (p->tokens_offset == 0 || !(head->sections & FIG_PLAN_HAS_TOKENS)) return p->rows.multiple;
    return ((const int32_t *)(const void *)(p->plan + p->tokens_offset))[row];
}

void fig_append_kv_twin(const void *params, const uint32_t block[3]) {
    const fig_append_kv_params *p = params;
    assert(p->head_dim <= HEAD_DIM_LIMIT && p->rows.multiple >= 1);
    int32_t row = (int32_t)block[0] / p->rows.multiple;
    int32_t query = (int32_t)block[0] % p->rows.multiple;
    if ((int32_t)block[0] >= fig_params_rows(&p->rows, p->plan)) return;
    int32_t length = ((const int32_t *)(p->plan + p->lengths_offset))[row];
    int32_t number = ((const int32_t *)(p->plan + p->sequences_offset))[row];
    token_place place = {.row = block[0], .token = length - p->rows.multiple + query};
    if (place.token < 0) return; /* an idle row's stand before it begins */
    if (query < p->rows.multiple - tokens_of(p, row)) return;
    place.sequence = fig_cache_sequence_of(p->page_table, p->table_stride, number, p->page_size);
    kv_side k = {p->k,       p->k_cache, p->k_scale, p->k_strides, p->k_cache_strides,
                 p->k_pages, p->k_scales};
    kv_side v = {p->v,       p->v_cache, p->v_scale, p->v_strides, p->v_cache_strides,
                 p->v_pages, p->v_scales};
    append(p, &k, &place);
    append(p, &v, &place);
}
