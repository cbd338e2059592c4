/* golden.h: runs a file of an earlier library with inputs that depend on the file alone.
 *
 * Uses only the public header, so that the earlier library could run the same steps. Its results
 * are stored beside the file. If the library refuses a call, the test ends with the library's
 * message. */
#ifndef FIG_TESTS_GOLDEN_H
#define FIG_TESTS_GOLDEN_H

#include "include/figraph.h"

enum { FIG_GOLDEN_TENSOR_LIMIT = 64 };

typedef struct fig_golden_tensor {
    fig_tensor_info info;
    int64_t count;         /* how many numbers the tensor has */
    size_t number_bytes;   /* the bytes of one number */
    uint8_t *given, *made; /* [count] each: before the steps, and after them */
} fig_golden_tensor;

typedef struct fig_golden {
    fig_graphs *graphs;
    fig_engine *engine;
    fig_golden_tensor tensors[FIG_GOLDEN_TENSOR_LIMIT]; /* [tensor_count], page tables excluded */
    int32_t tensor_count;
} fig_golden;

/* Loads the file, runs two steps on the host device, and reads all tensors back. */
void fig_golden_run(fig_golden *golden, const char *path);
void fig_golden_close(fig_golden *golden);

#endif
