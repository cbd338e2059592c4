/* run_rig.h: programs of one or a few operations, and runs of them on the device that tests run on.
 *
 * A test makes a rig, adds tensors, records, opens, fills memory and runs. A tensor's memory is
 * poison until it is filled, and ends where its bytes end, so that what is read behind it is seen.
 * Invariant: when a run returns it has ended. */
#ifndef FIG_TESTS_SUPPORT_RUN_RIG_H
#define FIG_TESTS_SUPPORT_RUN_RIG_H

#include "include/figraph_runner.h"
#include "tests/support/random.h"

enum { FIG_RUN_RIG_TENSOR_LIMIT = 24 };

typedef struct fig_run_rig {
    fig_program *program;
    fig_graphs *graphs;
    fig_runner *runner;
    fig_random random;
    fig_binding bindings[FIG_RUN_RIG_TENSOR_LIMIT];
    fig_dtype dtypes[FIG_RUN_RIG_TENSOR_LIMIT];
    void *blocks[FIG_RUN_RIG_TENSOR_LIMIT]; /* of place.h; NULL: the tensor has none */
    int32_t count;
    void *scratch;
    uint64_t scratch_bytes;
    fig_run run; /* of the next; rows, kv_length and more are a test's to set */
} fig_run_rig;

void fig_run_rig_begin(fig_run_rig *rig, const fig_spec *spec, uint64_t seed);
/* Bound, of that shape; dims end with 0. */
fig_tensor fig_run_rig_tensor(fig_run_rig *rig, const char *name, fig_dtype dtype,
                              const int64_t dims[4]);
/* Finishes the program and lowers it; then opens a runner. */
void fig_run_rig_lower(fig_run_rig *rig);
void fig_run_rig_open(fig_run_rig *rig); /* does the first part too, where it was not done */
void fig_run_rig_close(fig_run_rig *rig);

/* Gives tensor number `index` so many elements, `skew` of them behind a 64-byte boundary; returns
 * where they lie. They are poison. */
void *fig_run_rig_memory(fig_run_rig *rig, int32_t index, int64_t elements, int64_t skew);
/* The same full of normal numbers. */
void *fig_run_rig_fill(fig_run_rig *rig, int32_t index, int64_t elements, int64_t skew);
void fig_run_rig_strides(fig_run_rig *rig, int32_t index, int64_t a, int64_t b, int64_t c);

/* Scratch of so many bytes, full of poison; UINT64_MAX: the best. */
void fig_run_rig_scratch(fig_run_rig *rig, uint64_t bytes);
/* Runs rig->run, to its end. */
fig_status fig_run_rig_run(fig_run_rig *rig);
fig_status fig_run_rig_plan(fig_run_rig *rig);
/* Of memory that the rig gave, rounded to the dtype. */
void fig_run_rig_store(void *array, fig_dtype dtype, int64_t index, double value);

#endif
