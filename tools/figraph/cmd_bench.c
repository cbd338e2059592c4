/* cmd_bench.c: figraph bench, whose parts time one thing each. */
#include <figraph.h>

#include "tools/figraph/bench_parts.h"
#include "tools/figraph/commands.h"

static const fig_command *const parts[] = {&fig_bench_attention, &fig_bench_step, &fig_bench_ops,
                                           &fig_bench_replay, NULL};

const fig_command fig_cmd_bench = {
    .name = "bench", .summary = "time this machine's attention, steps and parts", .parts = parts};
