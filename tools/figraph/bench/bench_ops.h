/* bench_ops.h: describes one line of figraph bench ops and compares its numbers with float64.
 *
 * Invariant: a checked rig holds one launch, which uses the set of tensors with number 0. */
#ifndef FIG_TOOLS_BENCH_OPS_H
#define FIG_TOOLS_BENCH_OPS_H

#include "tools/figraph/bench/bench_rig.h"

enum {
    FIG_BENCH_Q_HEADS = 32,
    FIG_BENCH_KV_HEADS = 8,
    FIG_BENCH_HEAD_DIM = 128,
    FIG_BENCH_PAGE = 16
};

typedef enum fig_bench_op {
    FIG_BENCH_SILU,
    FIG_BENCH_GELU,
    FIG_BENCH_GELU_TANH,
    FIG_BENCH_RMS_NORM,
    FIG_BENCH_ROPE,
    FIG_BENCH_APPEND,
    FIG_BENCH_BOTH
} fig_bench_op;

/* width: of the output; for operations on heads it is heads * head_dim. */
typedef struct fig_bench_size {
    fig_bench_op op;
    const char *name; /* the printed name of the operation */
    int32_t width, rows;
} fig_bench_size;

/* Runs the launch for rows of unequal lengths and compares the first and the last with float64.
 * The spec gives the number of query tokens in a row of the step. Returns FIG_EXIT_*. */
int fig_bench_ops_check(fig_bench_rig *rig, const fig_bench_size *of, const fig_spec *spec);

#endif
