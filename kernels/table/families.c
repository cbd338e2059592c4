/* families.c: chooses the kernel family that serves a launch.
 *
 * Invariant: the families are tried in the table's order, and the search stops at the first that
 * serves. */
#include "kernels/table/families.h"

#include <assert.h>
#include <string.h>

#include "kernels/table/entry.h"

const fig_family *fig_families_of(fig_op op, uint32_t index) {
    uint32_t count;
    const fig_family *families = fig_table_families(op, &count);
    return index < count ? &families[index] : NULL;
}

void fig_families_entry(fig_op op, uint32_t index, const void *params, char name[FIG_ENTRY_BYTES]) {
    const fig_family *family = fig_families_of(op, index);
    assert(family != NULL);
    memset(name, 0, FIG_ENTRY_BYTES);
    if (family->entry != NULL) {
        family->entry(params, name);
    } else {
        fig_entry_write(name, fig_kernel_table[op].name, "");
    }
}

/* Returns NULL if the family serves. The last family of an operation has no `refuses` function. */
static const char *refusal_of(const fig_family *family, const void *params,
                              const fig_traits *traits) {
    return family->refuses != NULL ? family->refuses(params, traits) : NULL;
}

static void describe(fig_op op, uint32_t index, const void *params, const fig_traits *traits,
                     fig_family_choice *choice) {
    const fig_family *family = fig_families_of(op, index);
    choice->family = index;
    family->shape(params, &choice->shape);
    if (family->shared != NULL) choice->shape.shared_bytes = family->shared(params, traits);
    fig_families_entry(op, index, params, choice->entry);
}

int fig_families_may_serve(fig_op op, uint32_t index, const void *params, const fig_traits *traits,
                           fig_family_choice *choice) {
    const fig_family *family = fig_families_of(op, index);
    memset(choice, 0, sizeof *choice);
    if (family == NULL || refusal_of(family, params, traits) != NULL) return 0;
    describe(op, index, params, traits, choice);
    return 1;
}

void fig_families_choose(fig_op op, const void *params, const fig_traits *traits,
                         fig_family_choice *choice) {
    uint32_t count;
    const fig_family *families = fig_table_families(op, &count);
    assert(count >= 1 && count <= FIG_FAMILY_LIMIT && families[count - 1].refuses == NULL);
    memset(choice, 0, sizeof *choice);
    for (uint32_t i = 0; i < count; i++) {
        choice->family = i;
        choice->refusals[i] = refusal_of(&families[i], params, traits);
        if (choice->refusals[i] == NULL) break;
    }
    describe(op, choice->family, params, traits, choice);
}

int fig_families_alike(const fig_family_choice *a, const fig_family_choice *b) {
    return a->family == b->family && memcmp(&a->shape, &b->shape, sizeof a->shape) == 0 &&
           strcmp(a->entry, b->entry) == 0;
}
