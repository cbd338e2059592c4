/* families.h: chooses the kernel family that serves a launch, its entry and its resources.
 *
 * Only families.c reads a row's list of families. Invariant: the answer follows only from the
 * params and the traits, so a second question about the same launch has the same answer. */
#ifndef FIG_KERNELS_FAMILIES_H
#define FIG_KERNELS_FAMILIES_H

#include "kernels/table/table.h"

/* The family chosen for one launch, and the shape of that launch. */
typedef struct fig_family_choice {
    uint32_t family;                        /* index in the operation's list */
    const char *refusals[FIG_FAMILY_LIMIT]; /* [family] why each earlier family does not serve */
    fig_launch_shape shape;
    char entry[FIG_ENTRY_BYTES];
} fig_family_choice;

/* Chooses the first family that serves the launch. op: an operation with a kernel. params: the
 * operation's params. Before anything is bound, their addresses, strides and extents are 0. */
void fig_families_choose(fig_op op, const void *params, const fig_traits *traits,
                         fig_family_choice *choice);
/* Returns 1 if the family with this index accepts such a launch, even if an earlier family would
 * also serve it. *choice then describes how the family would serve; its refusals are NULL. */
int fig_families_may_serve(fig_op op, uint32_t index, const void *params, const fig_traits *traits,
                           fig_family_choice *choice);
/* Returns 1 if the launches of `a` and `b` differ only in their params, so that a launch made for
 * `a` may be given the params of `b`. */
int fig_families_alike(const fig_family_choice *a, const fig_family_choice *b);

/* Returns the family with this index, or NULL if the operation has none. */
const fig_family *fig_families_of(fig_op op, uint32_t index);
/* Writes the name of the entry for such a launch. */
void fig_families_entry(fig_op op, uint32_t index, const void *params, char name[FIG_ENTRY_BYTES]);

#endif
