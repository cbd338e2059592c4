/* cmd_bench.c: figraph bench; each of its parts times one thing. */
#include <figraph.h>

#include "tools/figraph/bench/bench_parts.h"
#include "tools/figraph/commands/commands.h"

static const fig_command *const parts[] = {&fig_bench_attention,
                                           &fig_bench_step,
                                           &fig_bench_ops,
                                           &fig_bench_replay,
                                           &fig_bench_allreduce,
                                           &fig_bench_compare,
                                           NULL};

const fig_command fig_cmd_bench = {
    .name = "bench",
    .summary = "time attention, whole steps, single operations, replays or all-reduces",
    .example = "figraph bench attention --kv 8x2048",
    .parts = parts,
};
