/* bench_parts.h: the parts of figraph bench. */
#ifndef FIG_TOOLS_BENCH_PARTS_H
#define FIG_TOOLS_BENCH_PARTS_H

#include "tools/figraph/terminal/arguments.h"

extern const fig_command fig_bench_attention, fig_bench_step, fig_bench_ops, fig_bench_replay,
    fig_bench_compare, fig_bench_allreduce;

#endif
