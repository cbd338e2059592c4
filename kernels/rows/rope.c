/* rope.c: runs rope on the host, block by block as a GPU does.
 *
 * The kernel rotates each pair (x, y) among the first rotary_dim values of a head by
 * angle(position, i), as figraph.h defines it: x cos - y sin, y cos + x sin. A block processes some
 * heads of a token, or of a few tokens if there are many. The angle is a double, because at
 * position 1M f32 errs by 0.02. All else is f32: the angle's sine and cosine, the rotation, and the
 * RMSNorm of the whole head that may precede the rotation. The result is rounded to the dtype once,
 * at the end. Invariant: a head is read whole before it is written, so out may be the same tensor
 * as in. Values that are neither rotated nor normalised keep their bits. */
#include "kernels/table/reference_kernels.h"

#include <math.h>
#include <string.h>

#include "kernels/common/angle.h"
#include "kernels/rows/rope.h"

void fig_rope_shape(const void *params, fig_launch_shape *shape) {
    const fig_rope_params *p = params;
    const int32_t blocks = fig_heads_blocks(p->q_heads + p->k_heads, p->head_dim, p->dtype);
    const int32_t groups =
        fig_size_ceil_div(p->rows.row_limit, fig_heads_abreast(p->rows.row_limit));
    *shape = (fig_launch_shape){.grid = {(uint32_t)(groups * blocks), 1, 1},
                                .block = {FIG_HEADS_THREADS, 1, 1}};
}

/* ---- Angles */

static void compute_turns(const fig_rope_params *p, int64_t position, fig_rope_turns *turn) {
    const fig_rope_table *table = &p->angles.table;
    for (int32_t i = 0; i < p->rope.rotary_dim / 2; i++) {
        double angle = (double)position * table->frequencies[i];
        turn->cosine[i] = (float)cos(angle) * (float)table->factor;
        turn->sine[i] = (float)sin(angle) * (float)table->factor;
    }
}

/* Reads cosines and sines from the table. For a position outside the table it reads the nearest row
 * inside, so nothing beside the table is read. */
static void read_turns(const fig_rope_params *p, int64_t position, fig_rope_turns *turn) {
    int32_t half = p->rope.rotary_dim / 2;
    if (position >= p->cos_sin_rows) position = p->cos_sin_rows - 1;
    if (position < 0) position = 0;
    const float *row = p->cos_sin + position * p->cos_sin_stride;
    memcpy(turn->cosine, row, (size_t)half * sizeof *row);
    memcpy(turn->sine, row + half, (size_t)half * sizeof *row);
}

/* ---- Heads */

static void normalise(const fig_rope_params *p, const void *weights, float *values) {
    float weight[FIG_HEADS_DIM_LIMIT];
    double sum = 0;
    for (int32_t i = 0; i < p->head_dim; i++)
        sum += (double)values[i] * (double)values[i];
    float scale = (float)(1.0 / sqrt(sum / p->head_dim + (double)p->norm_epsilon));
    fig_numeric_load_row(weight, p->head_dim, weights, p->dtype, 0);
    for (int32_t i = 0; i < p->head_dim; i++)
        values[i] *= scale * weight[i];
}

static void turn_pairs(const fig_rope_terms *rope, const fig_rope_turns *turn, float *values) {
    int32_t half = rope->rotary_dim / 2;
    int32_t step = rope->interleaved ? 2 : 1; /* distance from pair to pair */
    int32_t apart = rope->interleaved ? 1 : half;
    for (int32_t i = 0; i < half; i++) {
        float *first = values + i * step, *second = first + apart;
        float a = *first, b = *second;
        *first = a * turn->cosine[i] - b * turn->sine[i];
        *second = b * turn->cosine[i] + a * turn->sine[i];
    }
}

void fig_rope_turn_head(const fig_rope_params *p, const fig_rope_turns *turns, const void *norm,
                        const void *from, int64_t in, void *to, int64_t out) {
    float values[FIG_HEADS_DIM_LIMIT];
    const int32_t changed = norm != NULL ? p->head_dim : p->rope.rotary_dim;
    const size_t unit = (size_t)fig_numeric_bytes(p->dtype);
    assert(p->head_dim <= FIG_HEADS_DIM_LIMIT && p->rope.rotary_dim <= p->head_dim);
    fig_numeric_load_row(values, changed, from, p->dtype, in);
    if (norm != NULL) normalise(p, norm, values);
    turn_pairs(&p->rope, turns, values);
    fig_numeric_store_row(to, p->dtype, out, values, changed);
    if (to == from) return;
    memcpy((uint8_t *)to + (size_t)(out + changed) * unit,
           (const uint8_t *)from + (size_t)(in + changed) * unit,
           (size_t)(p->head_dim - changed) * unit);
}

int fig_rope_find_turns(const fig_rope_params *p, int32_t token, fig_rope_turns *turns) {
    int64_t position;
    if (!fig_angle_position(p, token, &position)) return 0;
    if (p->cos_sin != NULL) {
        read_turns(p, position, turns);
    } else {
        compute_turns(p, position, turns);
    }
    return 1;
}

static void turn_heads(const fig_rope_params *p, const fig_heads_part *part, int32_t token) {
    fig_rope_turns turns;
    if (!fig_rope_find_turns(p, token, &turns)) return;
    for (int32_t number = part->first; number < part->end; number++) {
        const int is_k = number >= p->q_heads;
        const int32_t head = is_k ? number - p->q_heads : number;
        const fig_row_strides in = is_k ? p->k_strides : p->q_strides;
        const fig_row_strides out = is_k ? p->k_out_strides : p->q_out_strides;
        fig_rope_turn_head(p, &turns, is_k ? p->k_norm : p->q_norm, is_k ? p->k : p->q,
                           token * in.row + head * in.head, is_k ? p->k_out : p->q_out,
                           token * out.row + head * out.head);
    }
}

void fig_rope_reference(const void *params, const uint32_t block[3]) {
    const fig_rope_params *p = params;
    const fig_heads_part part =
        fig_heads_part_of(p->q_heads + p->k_heads, p->head_dim, p->dtype, block[0]);
    const int32_t abreast = fig_heads_abreast(p->rows.row_limit), first = part.group * abreast;
    const int32_t rows = fig_params_rows(&p->rows, p->plan);
    for (int32_t token = first; token < first + abreast && token < rows; token++)
        turn_heads(p, &part, token);
}
