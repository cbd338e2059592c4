/* golden.h: a file of an earlier library, run with numbers that follow from the file alone.
 *
 * By the public header, so that the library of then could run the same steps: what it made of these
 * inputs is beside the file. Whatever is refused ends the test with its sentence. */
#ifndef FIG_TESTS_GOLDEN_H
#define FIG_TESTS_GOLDEN_H

#include "include/figraph.h"

enum { FIG_GOLDEN_TENSOR_LIMIT = 64 };

typedef struct fig_golden_tensor {
    fig_tensor_info info;
    int64_t count;         /* of numbers */
    size_t number_bytes;   /* of one */
    uint8_t *given, *made; /* [count] before the steps, and after them */
} fig_golden_tensor;

typedef struct fig_golden {
    fig_graphs *graphs;
    fig_engine *engine;
    fig_golden_tensor tensors[FIG_GOLDEN_TENSOR_LIMIT]; /* [tensor_count] but for page tables */
    int32_t tensor_count;
} fig_golden;

/* Loads the file, runs two steps on the host device, and reads all tensors back. */
void fig_golden_run(fig_golden *golden, const char *path);
void fig_golden_close(fig_golden *golden);

#endif
