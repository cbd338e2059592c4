/* merge_states.c: runs merge_states on the host, block by block as a GPU does.
 *
 * out = (2^(lse_a - m) a + 2^(lse_b - m) b) / (2^(lse_a - m) + 2^(lse_b - m)) with m the greater
 * lse, in f32, rounded once. One block per row merges all heads. Invariant: a side that saw no
 * token has lse -inf. It is skipped, not multiplied by zero, so any bytes may lie there. */
#include "kernels/table/reference_kernels.h"

#include <math.h>

#include "kernels/common/numeric.h"

enum { THREADS = 128, HEAD_DIM_LIMIT = 256 };

void fig_merge_states_shape(const void *params, fig_launch_shape *shape) {
    const fig_merge_states_params *p = params;
    uint32_t rows = (uint32_t)p->rows.row_limit;
    *shape = (fig_launch_shape){.grid = {rows, 1, 1}, .block = {THREADS, 1, 1}};
}

/* Returns the weight of a side, relative to the greater lse. */
static float weight_of(float lse, float greatest) {
    return lse == -INFINITY ? 0 : exp2f(lse - greatest);
}

static void add_weighted(const fig_merge_states_params *p, const void *side, int64_t at,
                         float weight, float *sum) {
    float values[HEAD_DIM_LIMIT];
    if (weight == 0) return;
    fig_numeric_load_row(values, p->head_dim, side, p->dtype, at);
    for (int32_t i = 0; i < p->head_dim; i++)
        sum[i] += values[i] * weight;
}

static void merge_head(const fig_merge_states_params *p, int32_t row, int32_t head) {
    float sum[HEAD_DIM_LIMIT] = {0};
    float lse_a = p->lse_a[row * p->lse_a_stride + head];
    float lse_b = p->lse_b[row * p->lse_b_stride + head];
    float greatest = lse_a > lse_b ? lse_a : lse_b;
    float weight_a = weight_of(lse_a, greatest), weight_b = weight_of(lse_b, greatest);
    float weights = weight_a + weight_b;
    float scale = weights == 0 ? 0 : 1.0f / weights;
    add_weighted(p, p->out_a, row * p->out_a_strides.row + head * p->out_a_strides.head,
                 weight_a * scale, sum);
    add_weighted(p, p->out_b, row * p->out_b_strides.row + head * p->out_b_strides.head,
                 weight_b * scale, sum);
    fig_numeric_store_row(p->out, p->dtype, row * p->out_strides.row + head * p->out_strides.head,
                          sum, p->head_dim);
    if (p->lse != NULL) p->lse[row * p->lse_stride + head] = greatest + log2f(weights);
}

void fig_merge_states_reference(const void *params, const uint32_t block[3]) {
    const fig_merge_states_params *p = params;
    int32_t row = (int32_t)block[0];
    assert(p->head_dim <= HEAD_DIM_LIMIT);
    if (row >= fig_params_rows(&p->rows, p->plan)) return;
    for (int32_t head = 0; head < p->heads; head++)
        merge_head(p, row, head);
}
