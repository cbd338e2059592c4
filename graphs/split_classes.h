/* split_classes.h: which nodes of a program are split alike.
 *
 * Attention nodes of as many kv heads, one window and as many query tokens of a row form a class:
 * one split and one workspace serve all of them. Owns what a class needs at most and the heads that
 * a variant reads of it. Invariant: classes are numbered by their first node. */
#ifndef FIG_GRAPHS_SPLIT_CLASSES_H
#define FIG_GRAPHS_SPLIT_CLASSES_H

#include "graphs/program_view.h"
#include "planner/split.h"

typedef struct fig_split_class {
    int32_t kv_heads, window, row_tokens;   /* its key */
    int32_t q_heads, head_dim, value_bytes; /* the most of any of its nodes */
    int32_t may_be_short; /* 1: for all of them there are kernels for short rows */
} fig_split_class;

typedef struct fig_split_classes {
    fig_split_class of[FIG_CLASS_LIMIT];
    int32_t count;
} fig_split_classes;

/* FIG_UNSUPPORTED names the first node of a class too many. */
fig_status fig_split_classes_find(const fig_program_view *view, fig_split_classes *classes);
/* The class of a node; UINT32_MAX where it is not split. */
uint32_t fig_split_classes_index(const fig_split_classes *classes, const fig_program_view *view,
                                 const fig_node *node);
/* Kv heads that a worker reads at once: `most` or fewer, as many as divide kv_heads. */
int32_t fig_split_classes_heads(const fig_split_class *split_class, int32_t most);

#endif
