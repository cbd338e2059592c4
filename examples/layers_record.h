/* layers_record.h: the decode step of a model, whole layers of it, as a program. */
#ifndef EXAMPLES_LAYERS_RECORD_H
#define EXAMPLES_LAYERS_RECORD_H

#include <figraph.h>

/* A layer's matrix products. A call's tag is LAYERS_MATRICES * layer + which. */
typedef enum layers_matrix {
    LAYERS_QKV,
    LAYERS_OUTPUT,
    LAYERS_GATE_UP,
    LAYERS_DOWN,
    LAYERS_MATRICES
} layers_matrix;

/* Records the step of the spec, rows of `hidden` numbers. Calls are "embed", once, and "project".
 * To be bound are:
 *
 *     state                          [rows][hidden], what a step leaves and the next begins with
 *     q, k, v                        the heads of a layer, all of which use the same memory
 *     k_cache.N, v_cache.N           [pages][page_size][kv_heads][head_dim]
 *     input_norm.N, post_norm.N, norm    [hidden], weights
 *
 * On one rank of several the same program is recorded for the spec of its share. */
fig_status layers_record(fig_program **program, const fig_spec *spec, int32_t hidden);

#endif
