/* scored_family.c: decides which families of attention with a score serve a launch.
 *
 * The families:
 *     bulk    tensor cores; K and V loaded by the bulk copy engine; compiled for the score
 *     copy    tensor cores; K and V loaded by copies of 16 bytes; compiled for the score
 *     plain   plain cores, which interpret the score's nodes: everything else
 * The first two have the tiles of the families of attention with these names, and their
 * requirements (attention_family.c). Invariant: without FIG_SCORED_COMPILES only `plain` serves. */
#include "kernels/table/reference_kernels.h"

#include <string.h>

#include "kernels/table/entry.h"

/* Returns what keeps a score from being compiled, or NULL. */
static const char *refuses_score(const fig_scored_attention_params *p) {
    if ((p->attention.flags & FIG_SCORED_COMPILES) == 0) return "an engine that compiles scores";
    if (p->score.mask_node_count > 0) return "a score without a mask";
    return NULL;
}

const char *fig_scored_family_bulk_refuses(const void *params, const fig_traits *traits) {
    const char *refusal = refuses_score(params);
    return refusal != NULL ? refusal : fig_attention_family_bulk_refuses(params, traits);
}

const char *fig_scored_family_copy_refuses(const void *params, const fig_traits *traits) {
    const char *refusal = refuses_score(params);
    return refusal != NULL ? refusal : fig_attention_family_copy_refuses(params, traits);
}

/* The entries differ from those of attention in one word of the name. */
static void rename_entry(char name[FIG_ENTRY_BYTES]) {
    static const char attention[] = "fig_kernel_attention_", scored[] = "fig_kernel_scored_";
    char rest[FIG_ENTRY_BYTES];
    fig_entry_name own = {name, name};
    memcpy(rest, name + strlen(attention), strlen(name) - strlen(attention) + 1);
    fig_entry_put(&own, scored);
    fig_entry_put(&own, rest);
}

void fig_scored_family_bulk_entry(const void *params, char name[FIG_ENTRY_BYTES]) {
    fig_attention_family_bulk_entry(params, name);
    rename_entry(name);
}

void fig_scored_family_copy_entry(const void *params, char name[FIG_ENTRY_BYTES]) {
    fig_attention_family_copy_entry(params, name);
    rename_entry(name);
}
