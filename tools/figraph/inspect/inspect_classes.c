/* inspect_classes.c: prints the attention classes of graphs and the layers of each, for people.
 *
 * Invariant: each layer of a class is named once, by itself or within a run. */
#include "tools/figraph/inspect/inspect_classes.h"

#include <inttypes.h>
#include <stdio.h>

enum { INDENT = 14 }; /* columns before the second and later lines of a list of layers */

/* ---- Classes */

/* Layers at equal distances from each other. */
typedef struct layer_run {
    int32_t first, last, step; /* step 0: the run has one layer */
} layer_run;

static int joins(layer_run *run, int32_t layer) {
    if (layer == run->last) return 1;
    if (run->step != 0 && layer != run->last + run->step) return 0;
    run->step = layer - run->last;
    run->last = layer;
    return run->step > 0;
}

/* Prints "3..5", "0, 2", or "0, 2, ..., 40". */
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

/* Counts the layers of a class's nodes; the nodes are in order of their layers. */
static uint32_t layer_count(const fig_inspect_summary *summary, uint32_t index) {
    const fig_inspection *view = summary->view;
    int32_t last = -1;
    uint32_t count = 0;
    for (uint32_t n = 0; n < view->node_count; n++) {
        const int32_t layer = view->nodes[n].layer;
        if (view->nodes[n].split_class != (int32_t)index) continue;
        count += layer >= 0 && layer != last;
        last = layer;
    }
    return count;
}

/* Prints the layers of the class's nodes; nodes without a layer are skipped. */
static void print_layers(fig_print *print, const fig_inspect_summary *summary, uint32_t index) {
    const fig_inspection *view = summary->view;
    layer_run run = {-1, -1, 0};
    const char *before = layer_count(summary, index) == 1 ? " layer " : " layers ";
    for (uint32_t n = 0; n < view->node_count; n++) {
        const int32_t layer = view->nodes[n].layer;
        if (view->nodes[n].split_class != (int32_t)index) continue;
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
    fig_print_text(print, "\nattention classes: %" PRId32 "\n", summary->view->class_count);
    for (int32_t i = 0; i < summary->view->class_count; i++) {
        const fig_inspect_class *own = &summary->view->classes[i];
        char text[FIG_PRINT_NUMBER];
        if (summary->view->spec->latent_dim > 0) {
            fig_print_text(print, "  %" PRId32 " q heads of %" PRId32 " in groups of %" PRId32,
                           own->q_heads, own->head_dim, own->q_heads / own->kv_heads);
            fig_print_raw(print, " or more");
        } else {
            fig_print_text(print, "  %" PRId32 " kv heads for %" PRId32 " q heads of %" PRId32,
                           own->kv_heads, own->q_heads, own->head_dim);
        }
        if (own->window > 0)
            fig_print_text(print, ", window %s", fig_print_count(text, (uint64_t)own->window));
        if (own->window == 0) fig_print_text(print, ", all tokens");
        if (own->row_tokens > 1)
            fig_print_text(print, ", %" PRId32 " queries a row", own->row_tokens);
        if (summary->view->spec->query_limit > 0 &&
            summary->view->spec->row_tokens > own->row_tokens)
            fig_print_text(print, ", more as chunks");
        fig_print_text(print, ":");
        print_layers(print, summary, (uint32_t)i);
        fig_print_end_line(print);
    }
}

/* ---- Buckets */
