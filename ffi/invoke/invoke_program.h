/* invoke_program.h: runs a recorded program, or one of its segments, with a caller's arrays.
 *
 * Tensors are numbered as in fig_graphs_tensor. A tensor that the segment's nodes read is an
 * argument, and a tensor that they write is a result. A tensor that they both read and write is an
 * argument and a result in the same memory. The tensors of all layers, q.0, q.1 and so on, may come
 * as one array: with many layers, hundreds of separate arrays would cost the caller more than the
 * step itself. Invariant: when the program runs, every tensor that the segment uses is bound. */
#ifndef FIG_FFI_INVOKE_PROGRAM_H
#define FIG_FFI_INVOKE_PROGRAM_H

#include "ffi/array.h"
#include "graphs/record/program.h"

/* The largest number of tensors of a program; a call keeps their bindings on its stack. */
enum { FIG_INVOKE_TENSOR_LIMIT = 1024 };

typedef struct fig_invoke_program {
    fig_device device;
    int32_t ordinal;
    int64_t segment;         /* from 1, in recorded order; 0: all nodes */
    int64_t rows, kv_length; /* negative rows: taken from the arrays */
    int64_t tokens;          /* for a packed program: its query tokens; 0: taken from the arrays */
    fig_array plan, scratch; /* may be absent */
    void *stream;
    int loads_only;
    /* Set by fig_invoke_program_begin(): */
    const fig_graphs *graphs;
    const char *segment_name; /* NULL: all nodes */
    int32_t tensor_count;
    uint32_t ids[FIG_INVOKE_TENSOR_LIMIT];   /* [tensor_count] ids in the program */
    uint8_t access[FIG_INVOKE_TENSOR_LIMIT]; /* [tensor_count] FIG_ACCESS_*; 0: not used */
    uint8_t is_bound[FIG_INVOKE_TENSOR_LIMIT];
    fig_binding bindings[FIG_INVOKE_TENSOR_LIMIT];
} fig_invoke_program;

/* content: as in fig_registry_find_content(). If loads_only is set, tensors are ignored. */
fig_status fig_invoke_program_begin(fig_invoke_program *program, int64_t content);
const char *fig_invoke_program_name(const fig_invoke_program *program, int32_t tensor);
/* Returns 1 if the segment uses the tensor and no array is bound to the tensor yet. */
int fig_invoke_program_wants(const fig_invoke_program *program, int32_t tensor);
/* Binds an array to a tensor. The array must have the tensor's dtype and dims, in the order of its
 * layout, and the same number of rows as the other arrays. An array with an additional first dim
 * holds the tensors of all layers with this name, and that dim counts the layers. Each of these
 * tensors that the segment uses is then bound to its part of the array. */
fig_status fig_invoke_program_bind(fig_invoke_program *program, int32_t tensor,
                                   const fig_array *array);
fig_status fig_invoke_program_run(const fig_invoke_program *program);

#endif
