/* silu_and_mul.c: silu_and_mul on the host, a block as a GPU runs it.
 *
 * out[r][c] = in[r][c] / (1 + exp(-in[r][c])) * in[r][width + c], in f32, rounded once. One block
 * per row. Invariant: a row is done in stretches, so the stack does not grow with width. */
#include "kernels/twins.h"

#include <math.h>

#include "kernels/numeric.h"

enum { THREADS = 256, STRETCH = 256 };

void fig_silu_and_mul_shape(const void *params, fig_launch_shape *shape) {
    const fig_silu_and_mul_params *p = params;
    *shape = (fig_launch_shape){.grid = {(uint32_t)p->row_limit, 1, 1}, .block = {THREADS, 1, 1}};
}

void fig_silu_and_mul_twin(const void *params, const uint32_t block[3]) {
    const fig_silu_and_mul_params *p = params;
    int32_t row = (int32_t)block[0];
    if (row >= ((const fig_plan_head *)p->plan)->rows) return;
    int64_t in = row * p->in_stride, out = row * p->out_stride;
    for (int32_t first = 0; first < p->width; first += STRETCH) {
        float gate[STRETCH], up[STRETCH];
        int32_t count = fig_size_min(STRETCH, p->width - first);
        fig_numeric_load_row(gate, count, p->in, p->dtype, in + first);
        fig_numeric_load_row(up, count, p->in, p->dtype, in + p->width + first);
        for (int32_t i = 0; i < count; i++)
            gate[i] = gate[i] / (1.0f + expf(-gate[i])) * up[i];
        fig_numeric_store_row(p->out, p->dtype, out + first, gate, count);
    }
}
