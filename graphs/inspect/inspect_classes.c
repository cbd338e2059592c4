/* inspect_classes.c: the attention classes of graphs, and which layers each has, for people.
 *
 * Invariant: each layer of a class is named once, by itself or within a run. */
#include "graphs/inspect/inspect_classes.h"

#include <inttypes.h>
#include <stdio.h>

enum { INDENT = 14 }; /* of a list of layers that goes on */

/* ---- Classes */

/* Layers that follow each other at an even distance. */
typedef struct layer_run {
    int32_t first, last, step; /* step 0: there is one */
} layer_run;

static int joins(layer_run *run, int32_t layer) {
    if (layer == run->last) return 1;
    if (run->step != 0 && layer != run->last + run->step) return 0;
    run->step = layer - run->last;
    run->last = layer;
    return run->step > 0;
}

/* "3..5", "0, 2", or "0, 2, ..., 40". */
static void print_run(fig_print *print, const char *before, const layer_run *run) {
    char text[3 * FIG_PRINT_NUMBER];
    int used = snprintf(text, sizeof text, "%s%" PRId32, before, run->first);
    if (run->step == 1) snprintf(text + used, sizeof text - (size_t)used, "..%" PRId32, run->last);
    if (run->step > 1 && run->last == run->first + run->step)
        snprintf(text + used, sizeof text - (size_t)used, ", %" PRId32, run->last);
    if (run->step > 1 && run->last > run->first + run->step)
        snprintf(text + used, sizeof text - (size_t)used, ", %" PRId32 ", ..., %" PRId32,
                 run->first + run->step, run->last);
    fig_print_word(print, INDENT, text);
}

/* Of a class's nodes, whose layers do not fall. */
static uint32_t layer_count(const fig_inspect_summary *summary, uint32_t index) {
    const fig_program_view *view = summary->view;
    int32_t last = -1;
    uint32_t count = 0;
    for (uint32_t n = 0; n < view->node_count; n++) {
        const int32_t layer = view->nodes[n].layer;
        if (fig_split_classes_index(&summary->classes, view, &view->nodes[n]) != index) continue;
        count += layer >= 0 && layer != last;
        last = layer;
    }
    return count;
}

/* Those of the class's nodes, as far as they have one. */
static void print_layers(fig_print *print, const fig_inspect_summary *summary, uint32_t index) {
    const fig_program_view *view = summary->view;
    layer_run run = {-1, -1, 0};
    const char *before = layer_count(summary, index) == 1 ? " layer " : " layers ";
    for (uint32_t n = 0; n < view->node_count; n++) {
        const int32_t layer = view->nodes[n].layer;
        if (fig_split_classes_index(&summary->classes, view, &view->nodes[n]) != index) continue;
        if (layer < 0 || (run.first >= 0 && joins(&run, layer))) continue;
        if (run.first >= 0) {
            print_run(print, before, &run);
            before = ", ";
        }
        run = (layer_run){layer, layer, 0};
    }
    if (run.first >= 0) print_run(print, before, &run);
}

void fig_inspect_classes_print(fig_print *print, const fig_inspect_summary *summary) {
    fig_print_text(print, "\nattention classes: %" PRId32 "\n", summary->classes.count);
    for (int32_t i = 0; i < summary->classes.count; i++) {
        const fig_split_class *own = &summary->classes.of[i];
        char text[FIG_PRINT_NUMBER];
        fig_print_text(print, "  %" PRId32 " kv heads for %" PRId32 " q heads of %" PRId32,
                       own->kv_heads, own->q_heads, own->head_dim);
        if (own->window > 0)
            fig_print_text(print, ", window %s", fig_print_count(text, (uint64_t)own->window));
        if (own->window == 0) fig_print_text(print, ", all tokens");
        if (own->row_tokens > 1)
            fig_print_text(print, ", %" PRId32 " queries a row", own->row_tokens);
        fig_print_text(print, ":");
        print_layers(print, summary, (uint32_t)i);
        fig_print_end_line(print);
    }
}

/* ---- Buckets */
