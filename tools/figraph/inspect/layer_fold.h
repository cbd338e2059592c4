/* layer_fold.h: finds the parts of a program that are equal in every layer, to show them once.
 *
 * The functions are pure and serve only readers: no stored or lowered data depends on them.
 * Invariant: parts that fold are equal except for the number at the end of the names of their
 * tensors and segments. */
#ifndef FIG_TOOLS_LAYER_FOLD_H
#define FIG_TOOLS_LAYER_FOLD_H

#include <figraph_inspect.h>

enum { FIG_FOLD_NONE = -1 };

/* "q.7" has a stem of 1 byte and number 7; a name without a number is all stem. */
typedef struct fig_layer_fold_name {
    uint32_t stem_bytes;
    int32_t number; /* FIG_FOLD_NONE if the name has no number */
} fig_layer_fold_name;
fig_layer_fold_name fig_layer_fold_split(const char *name);

/* Tensor `first` and count - 1 others whose names continue its number. */
typedef struct fig_layer_fold_tensors {
    uint32_t first; /* id */
    uint32_t count;
} fig_layer_fold_tensors;
/* Groups all tensors, in the order of each group's first tensor. The caller frees *groups. */
fig_status fig_layer_fold_group(const fig_inspection *view, fig_layer_fold_tensors **groups,
                                uint32_t *group_count);

/* Returns the number of nodes from `node` on that have the same layer. */
uint32_t fig_layer_fold_block(const fig_inspection *view, uint32_t node);
/* Returns 1 if the `count` nodes at a, which are whole blocks of consecutive layers, equal the
 * `count` nodes right after them except for the layers' numbers. */
int fig_layer_fold_repeats(const fig_inspection *view, uint32_t a, uint32_t count);

#endif
