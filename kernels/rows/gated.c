/* gated.c: runs silu_and_mul, gelu_and_mul, gelu_tanh_and_mul and swiglu_limited on the host, block
 * by block as a GPU does.
 *
 * out[r][c] = activation(in[r][c]) * in[r][width + c], in f32, rounded once; swiglu_limited bounds
 * both halves of `in` and adds 1 to the second. A block processes one stretch of a row. Each
 * activation is x times a fraction. The fraction is computed directly, never as 1 minus a number
 * near 1, so a negative x loses no digits. Invariant: a stretch is processed in pieces, so the
 * stack does not grow with the stretch. */
#include "kernels/table/reference_kernels.h"

#include <math.h>

#include "kernels/rows/gated.h"
#include "kernels/table/entry.h"

enum { PIECE = 256 };

#define ROOT_HALF 0.70710678118654752f
#define TWICE_ROOT_2_OVER_PI 1.5957691216057308f

void fig_gated_shape(const void *params, fig_launch_shape *shape) {
    const fig_gated_params *p = params;
    const uint32_t blocks = (uint32_t)(fig_params_abreast(&p->rows) * fig_gated_stretches(p));
    const uint32_t threads = (uint32_t)fig_gated_threads(p);
    *shape = (fig_launch_shape){.grid = {blocks, 1, 1}, .block = {threads, 1, 1}};
}

void fig_gated_entry(const void *params, char name[FIG_ENTRY_BYTES]) {
    const fig_gated_params *p = params;
    fig_entry_write(name, "gated", fig_entry_long(&p->rows));
}

static float silu(float x) {
    return x / (1.0f + expf(-x));
}

/* (1 + erf(y)) / 2 is erfc(-y) / 2. */
static float gelu(float x) {
    return 0.5f * x * erfcf(-x * ROOT_HALF);
}

/* (1 + tanh(y)) / 2 is 1 / (1 + exp(-2 y)). */
static float gelu_tanh(float x) {
    float twice = TWICE_ROOT_2_OVER_PI * (x + 0.044715f * x * x * x);
    return x / (1.0f + expf(-twice));
}

/* Applies swiglu's limit. A NaN stays a NaN. */
static float swiglu(float x) {
    const float most = FIG_GATED_LIMIT;
    if (x > most) x = most;
    return x / (1.0f + expf(-FIG_GATED_SLOPE * x));
}

static void activate(int32_t activation, float *row, int32_t count) {
    switch (activation) {
    case FIG_SILU:
        for (int32_t i = 0; i < count; i++)
            row[i] = silu(row[i]);
        break;
    case FIG_GELU:
        for (int32_t i = 0; i < count; i++)
            row[i] = gelu(row[i]);
        break;
    case FIG_SWIGLU_LIMITED:
        for (int32_t i = 0; i < count; i++)
            row[i] = swiglu(row[i]);
        break;
    default:
        for (int32_t i = 0; i < count; i++)
            row[i] = gelu_tanh(row[i]);
        break;
    }
}

static void gate_part(const fig_gated_params *p, const fig_gated_part *part) {
    const int64_t in = part->row * p->in_stride + part->first;
    const int64_t out = part->row * p->out_stride + part->first;
    for (int32_t first = 0; first < part->count; first += PIECE) {
        float gate[PIECE], up[PIECE];
        int32_t count = fig_size_min(PIECE, part->count - first);
        fig_numeric_load_row(gate, count, p->in, p->dtype, in + first);
        fig_numeric_load_row(up, count, p->in, p->dtype, in + p->width + first);
        activate(p->activation, gate, count);
        for (int32_t i = 0; i < count; i++)
            gate[i] *= fig_gated_beside(up[i], p->activation);
        fig_numeric_store_row(p->out, p->dtype, out + first, gate, count);
    }
}

void fig_gated_reference(const void *params, const uint32_t block[3]) {
    const fig_gated_params *p = params;
    fig_gated_part part = fig_gated_part_of(p, fig_gated_threads(p), block[0]);
    const int32_t rows = fig_params_rows(&p->rows, p->plan), abreast = fig_params_abreast(&p->rows);
    for (; part.row < rows; part.row += abreast)
        gate_part(p, &part);
}
