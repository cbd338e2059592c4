/* append_kv.c: runs append_kv on the host, block by block as a GPU does.
 *
 * The kernel writes all heads of a query token's k and v at the token's position in its row's
 * sequence. The last query of a row is at length - 1, and the others are directly before it. If
 * the plan gives the number of tokens of a row, the kernel writes only that number of queries, the
 * last ones. There is one block per token. If the cache has the dtype of k and v, bits are copied;
 * otherwise x / scale is converted with saturation. Invariant: nothing outside the cache is
 * written, whatever the page table holds. */
#include "kernels/table/reference_kernels.h"

#include <string.h>

#include "kernels/rows/append_kv.h"
#include "kernels/common/numeric.h"
#include "kernels/table/entry.h"

enum { THREADS = 128, HEAD_DIM_LIMIT = 256 };

/* K or V in the cache. */
typedef struct kv_side {
    void *cache;
    const float *scale; /* [scales] */
    fig_cache_strides strides;
    int64_t pages;
    int32_t scales;
} kv_side;

void fig_append_kv_shape(const void *params, fig_launch_shape *shape) {
    const fig_append_kv_params *p = params;
    uint32_t rows = (uint32_t)fig_params_abreast(&p->rows);
    *shape = (fig_launch_shape){.grid = {rows, 1, 1}, .block = {THREADS, 1, 1}};
}

void fig_append_kv_entry(const void *params, char name[FIG_ENTRY_BYTES]) {
    const fig_append_kv_params *p = params;
    fig_entry_write(name, "append_kv", fig_entry_packed(&p->rows));
}

/* Returns the number of a row's queries that are tokens. */
static int32_t tokens_of(const fig_append_kv_params *p, int32_t row) {
    const fig_plan_head *head = (const fig_plan_head *)(const void *)p->plan;
    if (p->tokens_offset == 0 || !(head->sections & FIG_PLAN_HAS_TOKENS)) return p->rows.multiple;
    return ((const int32_t *)(const void *)(p->plan + p->tokens_offset))[row];
}

int fig_append_kv_find(const fig_append_kv_params *p, int32_t number, fig_append_kv_place *place) {
    const fig_params_query query = fig_params_query_of(&p->rows, p->plan, number);
    const int32_t length = ((const int32_t *)(p->plan + p->lengths_offset))[query.row];
    const int32_t sequence = ((const int32_t *)(p->plan + p->sequences_offset))[query.row];
    place->token = length - query.before_end;
    if (place->token < 0) return 0; /* the tokens of an idle row would be before its start */
    if (p->rows.queries_offset == 0 && query.before_end > tokens_of(p, query.row)) return 0;
    place->sequence = fig_cache_sequence_of(p->page_table, p->table_stride, sequence, p->page_size);
    return 1;
}

static void convert_head(const fig_append_kv_params *p, const void *from, int64_t at, float scale,
                         void *cache, int64_t to) {
    float vector[HEAD_DIM_LIMIT];
    assert(p->head_dim <= HEAD_DIM_LIMIT);
    fig_numeric_load_row(vector, p->head_dim, from, p->dtype, at);
    for (int32_t i = 0; i < p->head_dim; i++)
        vector[i] /= scale;
    fig_numeric_store_row(cache, p->kv_dtype, to, vector, p->head_dim);
}

void fig_append_kv_store(const fig_append_kv_params *p, const fig_append_kv_place *place, int is_v,
                         int32_t head, const void *from, int64_t at) {
    const kv_side x =
        is_v ? (kv_side){p->v_cache, p->v_scale, p->v_cache_strides, p->v_pages, p->v_scales}
             : (kv_side){p->k_cache, p->k_scale, p->k_cache_strides, p->k_pages, p->k_scales};
    const int32_t page = fig_cache_page(&place->sequence, place->token);
    const int64_t unit = fig_numeric_bytes(p->dtype);
    if (page < 0 || page >= x.pages) return;
    const int64_t to =
        fig_cache_offset(&x.strides, &place->sequence, page, place->token) + head * x.strides.head;
    if (p->dtype != p->kv_dtype) {
        convert_head(p, from, at, fig_cache_scale(x.scale, x.scales, head), x.cache, to);
        return;
    }
    memcpy((uint8_t *)x.cache + to * unit, (const uint8_t *)from + at * unit,
           (size_t)(p->head_dim * unit));
}

static void append_token(const fig_append_kv_params *p, int32_t number) {
    fig_append_kv_place place;
    if (!fig_append_kv_find(p, number, &place)) return;
    for (int32_t head = 0; head < p->kv_heads; head++) {
        fig_append_kv_store(p, &place, 0, head, p->k,
                            number * p->k_strides.row + head * p->k_strides.head);
        fig_append_kv_store(p, &place, 1, head, p->v,
                            number * p->v_strides.row + head * p->v_strides.head);
    }
}

void fig_append_kv_reference(const void *params, const uint32_t block[3]) {
    const fig_append_kv_params *p = params;
    const int32_t rows = fig_params_rows(&p->rows, p->plan), abreast = fig_params_abreast(&p->rows);
    assert(p->rows.multiple >= 1);
    for (int32_t number = (int32_t)block[0]; number < rows; number += abreast)
        append_token(p, number);
}
