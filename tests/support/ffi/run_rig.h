/* run_rig.h: records programs of one or a few operations, and runs them on the device under test.
 *
 * A test begins a rig, adds tensors, records, opens, fills memory and runs. Each tensor's memory is
 * poisoned until it is filled. It ends exactly with the tensor's last byte, so that a read past the
 * end is noticed. Invariant: a function that runs something returns after the run has ended. */
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
    void *blocks[FIG_RUN_RIG_TENSOR_LIMIT]; /* from place.h; NULL: the tensor has no memory */
    int32_t count;
    int32_t multiple; /* a new tensor has this many rows per row; 0: 1 */
    void *scratch;
    uint64_t scratch_bytes;
    fig_run run; /* the next run; a test sets rows, kv_length and so on */
} fig_run_rig;

void fig_run_rig_begin(fig_run_rig *rig, const fig_spec *spec, uint64_t seed);
/* Adds a bound tensor. A 0 ends the dims. */
fig_tensor fig_run_rig_tensor(fig_run_rig *rig, const char *name, fig_dtype dtype,
                              const int64_t dims[4]);
/* Finishes and lowers the program. */
void fig_run_rig_lower(fig_run_rig *rig);
void fig_run_rig_open(fig_run_rig *rig); /* opens a runner; lowers before that if it was not done */
void fig_run_rig_close(fig_run_rig *rig);

/* Gives tensor number `index` memory for `elements` elements, beginning `skew` elements after a
 * 64-byte boundary. The memory is poisoned. Returns its address. */
void *fig_run_rig_memory(fig_run_rig *rig, int32_t index, int64_t elements, int64_t skew);
/* Does the same, and fills the memory with normally distributed numbers. */
void *fig_run_rig_fill(fig_run_rig *rig, int32_t index, int64_t elements, int64_t skew);
void fig_run_rig_strides(fig_run_rig *rig, int32_t index, int64_t a, int64_t b, int64_t c);

/* Gives the run `bytes` bytes of poisoned scratch. UINT64_MAX: as many as the run can best use. */
void fig_run_rig_scratch(fig_run_rig *rig, uint64_t bytes);
/* Runs rig->run to its end. */
fig_status fig_run_rig_run(fig_run_rig *rig);
fig_status fig_run_rig_plan(fig_run_rig *rig);
/* Stores a value, rounded to the dtype, in memory of the rig. */
void fig_run_rig_store(void *array, fig_dtype dtype, int64_t index, double value);

#endif
