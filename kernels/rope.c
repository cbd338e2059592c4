/* rope.c: rope on the host, a block as a GPU runs it.
 *
 * Turns each pair (x, y) of a head by angle(position, i), as figraph.h defines it: x cos - y sin,
 * y cos + x sin. One block per row turns all heads of q and k. The angle is a double, since at
 * position 1M f32 errs by 0.02; its sine and cosine and the turn are f32, rounded once to the
 * dtype. Invariant: a head is read whole before it is written, so out may be in. */
#include "kernels/twins.h"

#include <math.h>

#include "kernels/numeric.h"

enum { THREADS = 128, HEAD_DIM_LIMIT = 256 };

#define TAU 6.283185307179586

/* The turn of every pair of a head. */
typedef struct turns {
    float cosine[HEAD_DIM_LIMIT / 2], sine[HEAD_DIM_LIMIT / 2];
} turns;

/* One of q and k. */
typedef struct vectors {
    const void *in;
    void *out;
    fig_row_strides in_strides, out_strides;
    int32_t heads;
} vectors;

void fig_rope_shape(const void *params, fig_launch_shape *shape) {
    const fig_rope_params *p = params;
    *shape = (fig_launch_shape){.grid = {(uint32_t)p->row_limit, 1, 1}, .block = {THREADS, 1, 1}};
}

static int64_t position_of(const fig_rope_params *p, int32_t row) {
    if (p->positions == NULL) return ((const int32_t *)(p->plan + p->positions_offset))[row];
    if (p->positions_dtype == FIG_I64) return ((const int64_t *)p->positions)[row];
    return ((const int32_t *)p->positions)[row];
}

/* Radians per position of pair i. Llama 3 keeps short waves, stretches long ones by its factor, and
 * between the two shifts evenly in frequency from one to the other. */
static double frequency_of(const fig_rope_spec *rope, int32_t i, int32_t head_dim) {
    double frequency = pow(rope->theta, -2.0 * i / head_dim);
    if (rope->llama3_factor > 0) {
        double waves = rope->llama3_context * frequency / TAU; /* in the original context */
        double kept = (waves - rope->llama3_low) / (rope->llama3_high - rope->llama3_low);
        kept = fmin(fmax(kept, 0.0), 1.0);
        frequency = kept * frequency + (1.0 - kept) * frequency / rope->llama3_factor;
    }
    return frequency / rope->scale;
}

static void turn_row(const fig_rope_params *p, const vectors *x, const turns *turn, int32_t row) {
    int32_t half = p->head_dim / 2;
    int32_t step = p->rope.interleaved ? 2 : 1; /* from pair to pair */
    int32_t apart = p->rope.interleaved ? 1 : half;
    for (int32_t head = 0; head < x->heads; head++) {
        float values[HEAD_DIM_LIMIT];
        int64_t in = row * x->in_strides.row + head * x->in_strides.head;
        int64_t out = row * x->out_strides.row + head * x->out_strides.head;
        fig_numeric_load_row(values, p->head_dim, x->in, p->dtype, in);
        for (int32_t i = 0; i < half; i++) {
            float *first = values + i * step, *second = first + apart;
            float a = *first, b = *second;
            *first = a * turn->cosine[i] - b * turn->sine[i];
            *second = b * turn->cosine[i] + a * turn->sine[i];
        }
        fig_numeric_store_row(x->out, p->dtype, out, values, p->head_dim);
    }
}

void fig_rope_twin(const void *params, const uint32_t block[3]) {
    const fig_rope_params *p = params;
    int32_t row = (int32_t)block[0];
    assert(p->head_dim <= HEAD_DIM_LIMIT);
    if (row >= ((const fig_plan_head *)p->plan)->rows) return;
    turns turn;
    double position = (double)position_of(p, row);
    for (int32_t i = 0; i < p->head_dim / 2; i++) {
        double angle = position * frequency_of(&p->rope, i, p->head_dim);
        turn.cosine[i] = (float)cos(angle);
        turn.sine[i] = (float)sin(angle);
    }
    vectors q = {p->q, p->q_out, p->q_strides, p->q_out_strides, p->q_heads};
    vectors k = {p->k, p->k_out, p->k_strides, p->k_out_strides, p->k_heads};
    turn_row(p, &q, &turn, row);
    turn_row(p, &k, &turn, row);
}
