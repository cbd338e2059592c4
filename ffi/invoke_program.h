/* invoke_program.h: a run of a recorded program, or of a segment of it, with a caller's arrays.
 *
 * Tensors go by their number in fig_graphs_tensor. What nodes of the segment do with one says
 * whether it is an argument, a result, or both in one memory; one that they do not name is neither.
 * Tensors of layers, q.0, q.1 and so on, may come as one array: a caller with many layers then asks
 * for a step with a few arrays in place of hundreds, which cost it more than the step itself.
 * Invariant: at run, every tensor that is named was bound. */
#ifndef FIG_FFI_INVOKE_PROGRAM_H
#define FIG_FFI_INVOKE_PROGRAM_H

#include "ffi/array.h"
#include "graphs/program.h"

/* Tensors of one program: bindings of all lie on the stack of a call. */
enum { FIG_INVOKE_TENSOR_LIMIT = 1024 };

typedef struct fig_invoke_program {
    fig_device device;
    int32_t ordinal;
    int64_t segment;         /* counts from 1, in the order recorded; 0: all nodes */
    int64_t rows, kv_length; /* rows: below 0: as its arrays say */
    fig_array plan, scratch; /* absent: none */
    void *stream;
    int loads_only;
    /* begin's: */
    const fig_graphs *graphs;
    const char *segment_name; /* NULL: all nodes */
    int32_t tensor_count;
    uint32_t ids[FIG_INVOKE_TENSOR_LIMIT];   /* [tensor_count] of the program */
    uint8_t access[FIG_INVOKE_TENSOR_LIMIT]; /* [tensor_count] FIG_ACCESS_*; 0: not named */
    uint8_t is_bound[FIG_INVOKE_TENSOR_LIMIT];
    fig_binding bindings[FIG_INVOKE_TENSOR_LIMIT];
} fig_invoke_program;

/* content: as fig_registry_find_content has it. With loads_only no tensor is looked at. */
fig_status fig_invoke_program_begin(fig_invoke_program *program, int64_t content);
const char *fig_invoke_program_name(const fig_invoke_program *program, int32_t tensor);
/* 1: it is named, and no array was bound for it yet. */
int fig_invoke_program_wants(const fig_invoke_program *program, int32_t tensor);
/* dtype and dims are the tensor's, in the order of its layout; rows are the same in all. With one
 * dim more, in front, it is of all tensors that are named alike but for the layer, which it counts:
 * those that the segment names are bound, each to its own part. */
fig_status fig_invoke_program_bind(fig_invoke_program *program, int32_t tensor,
                                   const fig_array *array);
fig_status fig_invoke_program_run(const fig_invoke_program *program);

#endif
