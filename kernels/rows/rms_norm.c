/* rms_norm.c: runs rms_norm and add_rms_norm on the host, block by block as a GPU does.
 *
 * out = x / sqrt(mean(x^2) + epsilon) * (weight + weight_offset), in f32, rounded once. Without a
 * residual, x is `in`. With a residual, x is residual + in, which the kernel first rounds to the
 * dtype and stores in the residual. There is one block per row. Squares are added up in double,
 * because a row may be a million wide. Invariant: a row is processed in stretches, and each
 * stretch is read before it is written, so out may be the same tensor as in. */
#include "kernels/table/reference_kernels.h"

#include <math.h>

#include "kernels/common/numeric.h"
#include "kernels/table/entry.h"

enum { WARP = 32, WARP_LIMIT = 16, VECTOR_BYTES = 16, STRETCH = 256, MANY_ROWS = 512 };

/* Gives a block whole warps, with two vectors of the row per thread, up to the largest block. With
 * many rows a thread has four vectors, because the fixed work of a thread then limits the speed. */
void fig_rms_norm_shape(const void *params, fig_launch_shape *shape) {
    const fig_rms_norm_params *p = params;
    const int32_t vectors = p->width * fig_numeric_bytes(p->dtype) / VECTOR_BYTES;
    const int32_t of_warp = WARP * (p->rows.row_limit < MANY_ROWS ? 2 : 4);
    const int32_t warps = fig_size_min(1 + (vectors - 1) / of_warp, WARP_LIMIT);
    *shape = (fig_launch_shape){.grid = {(uint32_t)fig_params_abreast(&p->rows), 1, 1},
                                .block = {(uint32_t)(warps * WARP), 1, 1}};
}

void fig_rms_norm_entry(const void *params, char name[FIG_ENTRY_BYTES]) {
    const fig_rms_norm_params *p = params;
    fig_entry_write(name, "rms_norm", fig_entry_long(&p->rows));
}

static void add_to_residual(const fig_rms_norm_params *p, int32_t row) {
    int64_t in = row * p->in_stride, kept = row * p->residual_stride;
    for (int32_t first = 0; first < p->width; first += STRETCH) {
        float sum[STRETCH], more[STRETCH];
        int32_t count = fig_size_min(STRETCH, p->width - first);
        fig_numeric_load_row(sum, count, p->residual, p->dtype, kept + first);
        fig_numeric_load_row(more, count, p->in, p->dtype, in + first);
        for (int32_t i = 0; i < count; i++)
            sum[i] += more[i];
        fig_numeric_store_row(p->residual, p->dtype, kept + first, sum, count);
    }
}

/* Returns the mean square. x: element `at` and the next width - 1 elements. */
static double mean_square(const fig_rms_norm_params *p, const void *x, int64_t at) {
    double sum = 0;
    for (int32_t first = 0; first < p->width; first += STRETCH) {
        float stretch[STRETCH];
        int32_t count = fig_size_min(STRETCH, p->width - first);
        fig_numeric_load_row(stretch, count, x, p->dtype, at + first);
        for (int32_t i = 0; i < count; i++)
            sum += (double)stretch[i] * (double)stretch[i];
    }
    return sum / p->width;
}

static void norm_row(const fig_rms_norm_params *p, int32_t row) {
    if (p->residual != NULL) add_to_residual(p, row);
    const void *x = p->residual != NULL ? p->residual : p->in;
    int64_t at = row * (p->residual != NULL ? p->residual_stride : p->in_stride);
    int64_t out = row * p->out_stride;
    float scale = (float)(1.0 / sqrt(mean_square(p, x, at) + (double)p->epsilon));
    for (int32_t first = 0; first < p->width; first += STRETCH) {
        float stretch[STRETCH], weight[STRETCH];
        int32_t count = fig_size_min(STRETCH, p->width - first);
        fig_numeric_load_row(stretch, count, x, p->dtype, at + first);
        fig_numeric_load_row(weight, count, p->weight, p->dtype, first);
        for (int32_t i = 0; i < count; i++)
            stretch[i] *= scale * (weight[i] + p->weight_offset);
        fig_numeric_store_row(p->out, p->dtype, out + first, stretch, count);
    }
}

void fig_rms_norm_reference(const void *params, const uint32_t block[3]) {
    const fig_rms_norm_params *p = params;
    const int32_t rows = fig_params_rows(&p->rows, p->plan), abreast = fig_params_abreast(&p->rows);
    for (int32_t row = (int32_t)block[0]; row < rows; row += abreast)
        norm_row(p, row);
}
