/* split_classes.h: groups the attention nodes of a program that are split alike.
 *
 * Attention nodes with the same number of kv heads, the same window and the same number of query
 * tokens per row form a class: one split and one workspace serve all of them. If rows may be
 * chunks, the nodes of a class also have equal numbers of q heads and equal head_dims, because
 * these decide the strips. If all q heads share a latent cache, groups of q heads stand for kv
 * heads, and in every variant a worker reads for one group at a time. If the planner knows the
 * masks of scores, the nodes of a class also have the same mask and equal numbers of q heads,
 * because both decide which tiles are on the line. It knows no mask of a program whose lengths the
 * device reads, since the device then makes the plan, and no mask of a program that would need too
 * many classes. Owns the maximum needs of each class, and the number of heads that a variant reads
 * at once. Invariant: classes are numbered in the order of their first nodes. */
#ifndef FIG_GRAPHS_SPLIT_CLASSES_H
#define FIG_GRAPHS_SPLIT_CLASSES_H

#include "graphs/view/program_view.h"
#include "planner/split/split.h"

typedef struct fig_split_class {
    int32_t kv_heads, window, row_tokens;   /* the key of the class; row_tokens ignores chunks */
    int32_t q_heads, head_dim, value_bytes; /* the maximum over its nodes */
    /* another part of the key: the bytes of a token, if one vector holds K and V of all heads; 0:
     * each kv head has its own K and V */
    int32_t latent_bytes;
    int32_t is_packed;    /* 1: in every node, a row may have fewer query tokens than row_tokens */
    int32_t may_be_short; /* 1: every node of the class has a kernel for short rows */
    /* 1: every node of the class has a kernel for rows of many query tokens, whose worker reads one
     * head */
    int32_t is_many;
    /* 1: the chunks of every node run on warpgroups, over pages of a multiple of 16 tokens, so the
     * planner knows how long they take beside rows (planner/plans/division.h) */
    int32_t may_divide;
    /* The page table that every node of the class reads, if rows may share tokens. They may if
     * attention treats a token in the same way for each row, and if the kernel for chunks runs on
     * warpgroups. 0: rows may not share tokens. */
    uint32_t shared_table;
    uint32_t mask; /* a score that has the mask of every node; 0: the planner knows no mask */
    /* another part of the key: 1: rows may be chunks, and every node has a mask, so the strips of a
     * chunk reach to the end of its row; 0: no node of such a program has one */
    int32_t is_masked;
} fig_split_class;

typedef struct fig_split_classes {
    fig_split_class of[FIG_CLASS_LIMIT];
    /* [count] The same classes, as they would be if the program were not packed and its rows had
     * one query token each. Buckets of ones are shaped by them. */
    fig_split_class ones[FIG_CLASS_LIMIT];
    /* [count] The same classes, as they would be if no row could be a chunk. Buckets of drafts are
     * shaped by them. */
    fig_split_class drafts[FIG_CLASS_LIMIT];
    int32_t count;
    int32_t has_chunks;  /* fig_program_view_has_chunks() of the program */
    int32_t knows_masks; /* 1: masks are a part of the key */
} fig_split_classes;

/* Finds the classes of a program. FIG_UNSUPPORTED: there are too many classes; the message names
 * the first node that needs one more. */
fig_status fig_split_classes_find(const fig_program_view *view, fig_split_classes *classes);
/* Returns the index of the node's class, or UINT32_MAX if the node is not split. */
uint32_t fig_split_classes_index(const fig_split_classes *classes, const fig_program_view *view,
                                 const fig_node *node);
/* Returns the number of kv heads that a worker reads at once: the largest divisor of kv_heads that
 * is at most `most`. */
int32_t fig_split_classes_heads(const fig_split_class *split_class, int32_t most);

#endif
