/* fuzz_parse.c: parses a .fig file. An accepted file is saved, parsed again and printed. */
#include <stdlib.h>
#include <string.h>

#include "graphs/graphs.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/files/stranger.h"

/* Checks that the saved graphs equal the loaded ones. */
static void save_again(const fig_graphs *graphs) {
    fig_graphs *again;
    uint8_t *bytes;
    size_t count;
    if (fig_graphs_write(graphs, &bytes, &count) != FIG_OK) abort();
    if (fig_graphs_parse(&again, bytes, count) != FIG_OK) abort();
    if (memcmp(graphs->content_id, again->content_id, sizeof graphs->content_id) != 0) abort();
    fig_graphs_destroy(again);
    free(bytes);
}

int fig_fuzz_parse(const uint8_t *bytes, size_t count) {
    fig_graphs *graphs;
    const fig_status status = fig_graphs_parse(&graphs, bytes, count);
    if (status == FIG_FORMAT || status == FIG_STALE) return 0;
    if (status != FIG_OK) abort();
    save_again(graphs);
    /* Printing takes as long as a hundred parses, so only some files are printed. */
    if (graphs->content_id[0] % 32 == 0) fig_stranger_use(graphs);
    fig_graphs_destroy(graphs);
    return 0;
}
