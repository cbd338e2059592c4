/* fuzz_step.c: graphs of a .fig file that was accepted are bound on the host, and run a step. */
#include "tests/fuzz/fuzz.h"
#include "tests/support/stranger.h"

int fig_fuzz_step(const uint8_t *bytes, size_t count) {
    fig_graphs *graphs;
    if (fig_graphs_parse(&graphs, bytes, count) != FIG_OK) return 0;
    fig_stranger_step(graphs);
    fig_graphs_destroy(graphs);
    return 0;
}
