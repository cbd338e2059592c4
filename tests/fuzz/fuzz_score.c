/* fuzz_score.c: checks that a score, with or without a mask, is the same after it was printed and
 * parsed, or read and made, and that it reads nothing outside its arrays. */
#include <stdlib.h>
#include <string.h>

#include "include/figraph_scores.h"
#include "tests/fuzz/fuzz.h"

enum { MODE_TEXT, MODE_NODES, MODE_MASK, MODE_COUNT };
enum { ELEMENT_LIMIT = 4096 };

static int is_same(const fig_score *a, const fig_score *b) {
    fig_score_parts x = {.size = sizeof x}, y = {.size = sizeof y};
    if (fig_score_read(a, &x) != FIG_OK || fig_score_read(b, &y) != FIG_OK) abort();
    return x.node_count == y.node_count && x.array_count == y.array_count &&
           x.weights == y.weights && strcmp(fig_score_text(a), fig_score_text(b)) == 0 &&
           x.mask_node_count == y.mask_node_count &&
           (x.mask_node_count == 0 ||
            memcmp(x.mask_nodes, y.mask_nodes, (size_t)x.mask_node_count * sizeof *x.mask_nodes) ==
                0) &&
           memcmp(x.nodes, y.nodes, (size_t)x.node_count * sizeof *x.nodes) == 0 &&
           memcmp(x.arrays, y.arrays, (size_t)x.array_count * sizeof *x.arrays) == 0;
}

static void make_again(const fig_score *score) {
    fig_score_parts parts = {.size = sizeof parts};
    fig_score *again;
    if (fig_score_read(score, &parts) != FIG_OK) abort();
    if (fig_score_create(&again, &parts) != FIG_OK || !is_same(score, again)) abort();
    fig_score_destroy(again);
    if (fig_score_parse(&again, fig_score_text(score)) != FIG_OK || !is_same(score, again)) abort();
    fig_score_destroy(again);
}

/* Each array has a block of its own, so that a sanitizer sees a read outside it. */
static void evaluate(const fig_score *score) {
    static const int32_t numbers[] = {0, 1, -1, 7, 4095, INT32_MAX, INT32_MIN};
    fig_score_parts parts = {.size = sizeof parts};
    void *memory[FIG_SCORE_ARRAY_LIMIT] = {NULL};
    const void *arrays[FIG_SCORE_ARRAY_LIMIT];
    int32_t counts[FIG_SCORE_ARRAY_LIMIT];
    if (fig_score_read(score, &parts) != FIG_OK) abort();
    for (int32_t i = 0; i < parts.array_count; i++)
        if (parts.arrays[i].count > ELEMENT_LIMIT) return;
    for (int32_t i = 0; i < parts.array_count; i++) {
        counts[i] = parts.arrays[i].count > 0 ? parts.arrays[i].count : 3;
        memory[i] = calloc((size_t)counts[i], parts.arrays[i].dtype == FIG_BF16 ? 2 : 4);
        if (memory[i] == NULL) abort();
        arrays[i] = memory[i];
    }
    for (size_t n = 0; n < sizeof numbers / sizeof numbers[0]; n++) {
        float scores[] = {0.0f, 1.5f, -1e30f};
        const fig_score_place place = {.size = sizeof place,
                                       .q_pos = numbers[n],
                                       .kv_pos = numbers[n],
                                       .kv_length = numbers[n],
                                       .head = numbers[n],
                                       .kv_head = numbers[n],
                                       .row = numbers[n],
                                       .arrays = arrays,
                                       .counts = counts};
        if (fig_score_evaluate(score, &place, scores, 3) != FIG_OK) abort();
    }
    for (int32_t i = 0; i < parts.array_count; i++)
        free(memory[i]);
}

static fig_status make(fig_score **score, const uint8_t *bytes, size_t count) {
    fig_score_array arrays[FIG_SCORE_ARRAY_LIMIT + 1];
    fig_score_node nodes[FIG_SCORE_NODE_LIMIT + 1];
    fig_score_parts parts = {.size = sizeof parts, .arrays = arrays, .nodes = nodes};
    *score = NULL;
    if (count < 2) return FIG_INVALID;
    const int32_t of_mask = bytes[0] >> 4; /* the last nodes */
    parts.weights = bytes[0] & 15;
    parts.array_count = bytes[1] % (FIG_SCORE_ARRAY_LIMIT + 2);
    bytes += 2;
    count -= 2;
    if ((size_t)parts.array_count * sizeof *arrays > count) return FIG_INVALID;
    memcpy(arrays, bytes, (size_t)parts.array_count * sizeof *arrays);
    bytes += (size_t)parts.array_count * sizeof *arrays;
    count -= (size_t)parts.array_count * sizeof *arrays;
    if (count > sizeof nodes) count = sizeof nodes;
    parts.node_count = (int32_t)(count / sizeof *nodes);
    memcpy(nodes, bytes, (size_t)parts.node_count * sizeof *nodes);
    if (parts.node_count > of_mask) {
        parts.node_count -= of_mask;
        parts.mask_node_count = of_mask;
        parts.mask_nodes = nodes + parts.node_count;
    }
    return fig_score_create(score, &parts);
}

int fig_fuzz_score(const uint8_t *bytes, size_t count) {
    fig_score *score = NULL;
    if (count == 0) return 0;
    if (bytes[0] % MODE_COUNT == MODE_NODES) {
        if (make(&score, bytes + 1, count - 1) != FIG_OK) return 0;
    } else {
        char *text = calloc(1, count);
        if (text == NULL) abort();
        memcpy(text, bytes + 1, count - 1);
        const fig_status status = bytes[0] % MODE_COUNT == MODE_MASK
                                      ? fig_score_parse_mask(&score, text, NULL)
                                      : fig_score_parse(&score, text);
        free(text);
        if (status != FIG_OK) return 0;
    }
    make_again(score);
    evaluate(score);
    fig_score_destroy(score);
    return 0;
}
