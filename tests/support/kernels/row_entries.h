/* row_entries.h: the kernels that work row by row and have two entries in one image.
 *
 * One is named after the operation; the other has a suffix behind that name, and serves packed
 * programs or buckets of many rows. Invariant: only the family `general` of an operation has
 * both. */
#ifndef FIG_TESTS_SUPPORT_ROW_ENTRIES_H
#define FIG_TESTS_SUPPORT_ROW_ENTRIES_H

#include <string.h>

#include "kernels/table/families.h"

/* Returns the suffix of the second entry, or NULL if the family has no such pair of entries. */
static inline const char *fig_row_entries_suffix(fig_op op, uint32_t family) {
    if (strcmp(fig_families_of(op, family)->name, "general") != 0) return NULL;
    switch (op) {
    case FIG_OP_GATED:
    case FIG_OP_RMS_NORM: return "_long";
    case FIG_OP_APPEND_KV:
    case FIG_OP_DECODE_ATTENTION:
    case FIG_OP_LATENT_DECODE: return "_packed";
    default: return NULL;
    }
}

/* Returns 1 if the name is that of one of the two entries. Premise: there is a suffix. */
static inline int fig_row_entries_hold(fig_op op, uint32_t family, const char *name) {
    static const char start[] = "fig_kernel_";
    const char *of = fig_kernel_table[op].name, *behind = name + sizeof start - 1 + strlen(of);
    if (strncmp(name, start, sizeof start - 1) != 0) return 0;
    if (strncmp(name + sizeof start - 1, of, strlen(of)) != 0) return 0;
    return *behind == '\0' || strcmp(behind, fig_row_entries_suffix(op, family)) == 0;
}

#endif
