/* append_kv.c: append_kv on the host, a block as a GPU runs it.
 *
 * Writes row r's k and v, all heads, as token length - 1 of the row's sequence. One block per row;
 * bits are copied, not converted. Invariant: nothing outside the cache is written, whatever the
 * page table says. */
#include "kernels/twins.h"

#include <string.h>

#include "kernels/cache.h"
#include "kernels/numeric.h"

enum { THREADS = 128 };

/* One of k and v. */
typedef struct kv_side {
    const void *in;
    void *cache;
    fig_row_strides in_strides;
    fig_cache_strides cache_strides;
    int64_t pages;
} kv_side;

void fig_append_kv_shape(const void *params, fig_launch_shape *shape) {
    const fig_append_kv_params *p = params;
    *shape = (fig_launch_shape){.grid = {(uint32_t)p->row_limit, 1, 1}, .block = {THREADS, 1, 1}};
}

static void append(const fig_append_kv_params *p, const kv_side *x, int32_t row, int32_t token) {
    const int32_t *sequences = (const int32_t *)(p->plan + p->sequences_offset);
    fig_cache_sequence sequence =
        fig_cache_sequence_of(p->page_table, p->table_stride, sequences[row], p->page_size);
    int32_t page = fig_cache_page(&sequence, token);
    if (page < 0 || page >= x->pages) return;
    int64_t element_bytes = fig_numeric_bytes(p->dtype);
    int64_t at = fig_cache_offset(&x->cache_strides, &sequence, page, token);
    for (int32_t head = 0; head < p->kv_heads; head++) {
        int64_t from = row * x->in_strides.row + head * x->in_strides.head;
        int64_t to = at + head * x->cache_strides.head;
        memcpy((uint8_t *)x->cache + to * element_bytes,
               (const uint8_t *)x->in + from * element_bytes,
               (size_t)(p->head_dim * element_bytes));
    }
}

void fig_append_kv_twin(const void *params, const uint32_t block[3]) {
    const fig_append_kv_params *p = params;
    int32_t row = (int32_t)block[0];
    if (row >= ((const fig_plan_head *)p->plan)->rows) return;
    int32_t length = ((const int32_t *)(p->plan + p->lengths_offset))[row];
    if (length <= 0) return;
    kv_side k = {p->k, p->k_cache, p->k_strides, p->k_cache_strides, p->k_pages};
    kv_side v = {p->v, p->v_cache, p->v_strides, p->v_cache_strides, p->v_pages};
    append(p, &k, row, length - 1);
    append(p, &v, row, length - 1);
}
