/* fuzz_step.c: binds the graphs of an accepted .fig file on the host, and runs a step. */
#include "tests/fuzz/fuzz.h"
#include "tests/support/files/stranger.h"

int fig_fuzz_step(const uint8_t *bytes, size_t count) {
    fig_graphs *graphs;
    if (fig_graphs_parse(&graphs, bytes, count) != FIG_OK) return 0;
    fig_stranger_step(graphs);
    fig_graphs_destroy(graphs);
    return 0;
}
