/* layers_record.h: records the decode step of whole layers of a model as a program. */
#ifndef EXAMPLES_LAYERS_RECORD_H
#define EXAMPLES_LAYERS_RECORD_H

#include <figraph.h>

/* A layer's matrix products. The tag of a call is LAYERS_MATRICES * layer + which. */
typedef enum layers_matrix {
    LAYERS_QKV,
    LAYERS_OUTPUT,
    LAYERS_GATE_UP,
    LAYERS_DOWN,
    LAYERS_MATRICES
} layers_matrix;

/* Records the step of the spec, with rows of `hidden` numbers. The program calls "embed" once and
 * "project" for each matrix product. The caller binds:
 *
 *     state                          [rows][hidden], the result of a step and the input of the next
 *     q, k, v                        the heads of a layer, all of which use the same memory
 *     k_cache.N, v_cache.N           [pages][page_size][kv_heads][head_dim]
 *     input_norm.N, post_norm.N, norm    [hidden], weights
 *
 * If there are several ranks, each records the same program for the spec of its own share. */
fig_status layers_record(fig_program **program, const fig_spec *spec, int32_t hidden);

#endif
