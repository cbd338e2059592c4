/* families.h: which family of kernels serves a launch, by what it is called and what it asks for.
 *
 * The only reader of a row's list of families. Invariant: the answer follows from the params and
 * the traits alone, so that whoever asks again about the same launch hears the same. */
#ifndef FIG_KERNELS_FAMILIES_H
#define FIG_KERNELS_FAMILIES_H

#include "kernels/table.h"

/* What was found for a launch. */
typedef struct fig_family_choice {
    uint32_t family;                        /* index into the operation's */
    const char *refusals[FIG_FAMILY_LIMIT]; /* [family] why those before it do not serve */
    fig_launch_shape shape;
    char entry[FIG_ENTRY_BYTES];
} fig_family_choice;

/* op is a kernel's; params: its own, where nothing is bound yet with addresses, strides and extents
 * 0. */
void fig_families_choose(fig_op op, const void *params, const fig_traits *traits,
                         fig_family_choice *choice);
/* 1: the family of that number does not refuse such a launch, whatever those before it say, and
 * *choice is how it would serve; its refusals are NULL. */
int fig_families_may_serve(fig_op op, uint32_t index, const void *params, const fig_traits *traits,
                           fig_family_choice *choice);
/* 1: a launch that was made for `a` may get the params of `b`, since nothing but those differs. */
int fig_families_alike(const fig_family_choice *a, const fig_family_choice *b);

/* NULL: the operation has no family of that number. */
const fig_family *fig_families_of(fig_op op, uint32_t index);
/* The name of the entry for such a launch. */
void fig_families_entry(fig_op op, uint32_t index, const void *params, char name[FIG_ENTRY_BYTES]);

#endif
