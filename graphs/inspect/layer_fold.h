/* layer_fold.h: what a program says once per layer, so that a reader is shown it once.
 *
 * Pure; for people only, nothing is stored or lowered by it. Invariant: what folds is equal but for
 * the number at the end of the names of its tensors and segments. */
#ifndef FIG_GRAPHS_LAYER_FOLD_H
#define FIG_GRAPHS_LAYER_FOLD_H

#include "graphs/program_view.h"

enum { FIG_FOLD_NONE = -1 };

/* "q.7" has a stem of 1 byte and number 7; a name without a number is all stem. */
typedef struct fig_layer_fold_name {
    uint32_t stem_bytes;
    int32_t number; /* FIG_FOLD_NONE */
} fig_layer_fold_name;
fig_layer_fold_name fig_layer_fold_split(const char *name);

/* Tensors `first`, and count - 1 more whose names go on counting from its number. */
typedef struct fig_layer_fold_tensors {
    uint32_t first; /* id */
    uint32_t count;
} fig_layer_fold_tensors;
/* *groups is the caller's to free: of all tensors, in the order of their first. */
fig_status fig_layer_fold_group(const fig_program_view *view, fig_layer_fold_tensors **groups,
                                uint32_t *group_count);

/* Nodes from `node` on that carry the same layer. */
uint32_t fig_layer_fold_block(const fig_program_view *view, uint32_t node);
/* 1: the `count` nodes at a, whole blocks of layers that follow each other, say the same of them as
 * the nodes right behind say of as many more layers. */
int fig_layer_fold_repeats(const fig_program_view *view, uint32_t a, uint32_t count);

#endif
