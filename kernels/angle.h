/* angle.h: where a query token stands, and how far a position turns each pair of a head, for rope's
 * twin and its kernel alike.
 *
 * angle = position * frequency, as figraph.h defines both. Leaves sines and cosines to its callers.
 * Invariant: the frequency is a double from params alone, so that it is the same wherever a token
 * stands. */
#ifndef FIG_KERNELS_ANGLE_H
#define FIG_KERNELS_ANGLE_H

#ifndef __CUDACC__
#include <math.h>
#endif

#include "kernels/params.h"

#define FIG_ANGLE_TAU 6.283185307179586

/* One of an array of FIG_I32 or FIG_I64. */
FIG_BOTH int64_t fig_angle_integer(const void *array, int32_t dtype, int32_t i) {
    return dtype == FIG_I64 ? ((const int64_t *)array)[i] : ((const int32_t *)array)[i];
}

/* The last i of which indptr[i] <= row: the segment that holds the row, since those before it that
 * begin there too are empty; -1: the row is before the first; segments: behind the last. */
FIG_BOTH int32_t fig_angle_segment(const fig_rope_params *p, int32_t row) {
    int32_t low = -1, high = p->segments + 1;
    while (high - low > 1) {
        int32_t middle = low + (high - low) / 2;
        if (fig_angle_integer(p->indptr, p->packed_dtype, middle) <= row) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

/* 0: the token is in no segment, and stands nowhere. */
FIG_BOTH int fig_angle_position(const fig_rope_params *p, int32_t row, int64_t *position) {
    *position = 0;
    if (p->indptr != NULL) {
        int32_t segment = fig_angle_segment(p, row);
        if (segment < 0 || segment >= p->segments) return 0;
        *position = fig_angle_integer(p->offsets, p->packed_dtype, segment) + row -
                    fig_angle_integer(p->indptr, p->packed_dtype, segment);
    } else if (p->positions == NULL) {
        int32_t before_last = p->rows.multiple - 1 - row % p->rows.multiple;
        const int32_t *last = (const int32_t *)(p->plan + p->positions_offset);
        *position = (int64_t)last[row / p->rows.multiple] - before_last;
        if (*position < 0) *position = 0; /* of an idle row */
    } else {
        *position = fig_angle_integer(p->positions, p->positions_dtype, row);
    }
    return 1;
}

/* Radians per position of pair i: theta^(-2 i / rotary_dim), by way of logarithms, since pow takes
 * a GPU twice as long and is no nearer here. Llama 3 keeps short waves, stretches long ones by its
 * factor, and between the two shifts evenly in frequency from one to the other. */
FIG_BOTH double fig_angle_frequency(const fig_rope_terms *rope, int32_t i) {
    double frequency = exp2(i * (-2.0 / rope->rotary_dim) * log2((double)rope->theta));
    if (rope->llama3_factor > 0) {
        double waves = rope->llama3_context * frequency / FIG_ANGLE_TAU; /* in the old context */
        double kept = (waves - rope->llama3_low) / (rope->llama3_high - rope->llama3_low);
        kept = fmin(fmax(kept, 0.0), 1.0);
        frequency = kept * frequency + (1.0 - kept) * frequency / rope->llama3_factor;
    }
    return frequency / rope->scale;
}

#ifndef __CUDACC__
/* So that a kernel finds a frequency by a few products. */
static inline fig_angle_product fig_angle_product_of(const fig_rope_terms *rope) {
    fig_angle_product product = {.offset = 1, .least = 1};
    for (int32_t k = 0; k < FIG_ANGLE_POWERS; k++)
        product.powers[k] = exp2((1 << k) * (-2.0 / rope->rotary_dim) * log2((double)rope->theta));
    if (rope->llama3_factor > 0) {
        const double range = (double)rope->llama3_high - rope->llama3_low;
        product.slope = rope->llama3_context / FIG_ANGLE_TAU / range;
        product.offset = -rope->llama3_low / range;
        product.least = 1.0 / rope->llama3_factor;
    }
    product.more = (1 - product.least) / rope->scale;
    product.least /= rope->scale;
    return product;
}
#endif

FIG_BOTH double fig_angle_of_product(const fig_angle_product *product, int32_t pair) {
    double frequency = 1;
    for (int32_t k = 0; k < FIG_ANGLE_POWERS; k++)
        frequency *= pair >> k & 1 ? product->powers[k] : 1;
    double kept = product->slope * frequency + product->offset;
    kept = kept < 0 ? 0 : kept > 1 ? 1 : kept;
    return frequency * (product->least + product->more * kept);
}

#endif
