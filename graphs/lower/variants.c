/* variants.c: the ways in which a program's classes can read the cache on a machine.
 *
 * Invariant: that of lower.c. */
#include "graphs/lower/variants.h"

#include <inttypes.h>
#include <stdlib.h>

#include "graphs/lower/fitting.h"
#include "kernels/attention/geometry.h"
#include "planner/plans/offer.h"
#include "planner/status.h"

/* Returns 1 if variants for rows of at most one query token help the class: its rows then have
 * fewer sets of vectors, so a worker may read more kv heads at once. */
static int helps(const fig_split_class *own) {
    const int32_t ratio = own->q_heads / own->kv_heads;
    return own->is_packed && own->latent_bytes == 0 && own->value_bytes <= 2 &&
           fig_geometry_heads(ratio) > 0 &&
           fig_geometry_sets(1, ratio) < fig_geometry_sets(1, ratio * own->row_tokens);
}

/* Returns 1 if the program has variants for rows of at most one query token. If only the device
 * knows the query tokens, no step could choose such a variant. */
static int has_singles(const fig_program_view *view, const fig_split_classes *classes,
                       const fig_lower_target *target) {
    if (!classes->has_chunks || fig_program_view_reads_lengths(view) || target->deterministic ||
        target->traits.compute_capability < FIG_GEOMETRY_CAPABILITY)
        return 0;
    for (int32_t i = 0; i < classes->count; i++)
        if (helps(&classes->of[i])) return 1;
    return 0;
}

/* Returns 1 if the program has variants for ones. Fixed splits serve every step of a program in the
 * same way. */
static int has_ones(const fig_program_view *view, const fig_split_classes *classes,
                    const fig_lower_target *target) {
    int are_packed = classes->count > 0;
    for (int32_t i = 0; i < classes->count; i++)
        are_packed &= classes->of[i].is_packed;
    return are_packed && !fig_program_view_reads_lengths(view) && !target->deterministic;
}

/* Returns 1 if the program has the variant for strips. */
static int has_strips(const fig_program_view *view, const fig_split_classes *classes,
                      const fig_lower_target *target) {
    int have_chunks = classes->has_chunks;
    for (uint32_t n = 0; n < view->node_count; n++)
        if (fig_program_view_is_split(view, &view->nodes[n]))
            have_chunks &= fig_kernel_table[view->nodes[n].op].beside != 0;
    return have_chunks && has_ones(view, classes, target);
}

fig_bucket_form fig_variants_form(const fig_lower_target *target, int32_t variant) {
    return (fig_bucket_form)(variant / fig_traits_variant_count(&target->traits));
}

int fig_variants_has(const fig_program_view *view, const fig_split_classes *classes,
                     const fig_lower_target *target, int32_t variant) {
    const int32_t of_form = fig_traits_variant_count(&target->traits);
    if (variant < 0) return 0;
    switch (fig_variants_form(target, variant)) {
    case FIG_FORM_ANY: return 1;
    case FIG_FORM_SINGLES: return has_singles(view, classes, target);
    case FIG_FORM_ONES: return has_ones(view, classes, target);
    case FIG_FORM_DRAFTS: return classes->has_chunks && has_ones(view, classes, target);
    case FIG_FORM_STRIPS: return variant % of_form == 0 && has_strips(view, classes, target);
    default: return 0;
    }
}

int32_t fig_variants_count(const fig_program_view *view, const fig_split_classes *classes,
                           const fig_lower_target *target) {
    int32_t count = FIG_VARIANTS_FORMS * fig_traits_variant_count(&target->traits);
    while (!fig_variants_has(view, classes, target, count - 1))
        count--;
    return count;
}

int32_t fig_variants_first_tuned(const fig_program_view *view, const fig_split_classes *classes,
                                 const fig_lower_target *target) {
    return has_singles(view, classes, target) ? fig_traits_variant_count(&target->traits) : 0;
}

fig_split_class fig_variants_class(const fig_split_classes *classes, int32_t index,
                                   const fig_lower_target *target, int32_t variant) {
    const fig_bucket_form form = fig_variants_form(target, variant);
    fig_split_class own = classes->of[index];
    if (form == FIG_FORM_ONES) return classes->ones[index];
    if (form == FIG_FORM_DRAFTS) return classes->drafts[index];
    if (form != FIG_FORM_SINGLES || !own.is_packed) return own;
    own.row_tokens = 1;
    own.is_many = 0;
    return own;
}

fig_variant fig_variants_resolve(const fig_split_classes *classes, int32_t index,
                                 const fig_lower_target *target, int32_t variant) {
    const fig_split_class own = fig_variants_class(classes, index, target, variant);
    const int32_t of_form = fig_traits_variant_count(&target->traits), number = variant % of_form;
    const fig_variant candidate = fig_traits_variant(&target->traits, number, own.value_bytes);
    fig_variant fitted = candidate;
    fitted.heads = fig_split_classes_heads(&own, fitted.heads);
    fig_fitting_fit(&own, target, &candidate, &fitted);
    /* Tune measures programs of ones, and gives the times to singles. */
    const int32_t measured =
        fig_variants_form(target, variant) == FIG_FORM_ONES ? variant - of_form : variant;
    const fig_tuned *tuned = fig_tuning_find(&target->tuning, &target->traits, index, measured);
    if (tuned == NULL || !fig_tuning_fits(tuned, &fitted)) return fitted;
    const fig_variant of_table = fitted;
    fitted = tuned->variant;
    if (fitted.once == 0 || fitted.tile_ns == 0) {
        fitted.once = of_table.once;
        fitted.tile_ns = of_table.tile_ns;
    }
    return fitted;
}

/* `packed`, whose blocks without work exit early, has no instance for 3 or 4 sets of warps over
 * 16-bit values. The launch for chunks would wait for the blocks of `bulk`. */
static int ends_late(const fig_split_class *own, const fig_variant *fitted) {
    const int32_t vectors = own->q_heads / own->kv_heads * own->row_tokens;
    return own->value_bytes == 2 &&
           fig_geometry_shares(fig_geometry_sets(fitted->heads, vectors)) == 2;
}

int fig_variants_ends_late(const fig_split_classes *classes, const fig_lower_target *target,
                           int32_t variant) {
    if (target->traits.compute_capability != FIG_GEOMETRY_CAPABILITY_OF_BULK ||
        fig_variants_form(target, variant) != FIG_FORM_SINGLES)
        return 0;
    for (int32_t i = 0; i < classes->count; i++) {
        const fig_split_class own = fig_variants_class(classes, i, target, variant);
        const fig_variant fitted = fig_variants_resolve(classes, i, target, variant);
        if (ends_late(&own, &fitted)) return 1;
    }
    return 0;
}

int fig_variants_read_alike(const fig_variant *a, const fig_variant *b) {
    return a->heads == b->heads && a->tile_tokens == b->tile_tokens &&
           a->workers_per_sm == b->workers_per_sm && a->stages == b->stages;
}

fig_status fig_variants_take(const fig_program_view *view, const fig_split_classes *classes,
                             const fig_lower_target *target, fig_variants_table *table,
                             fig_bucket_shape *shape) {
    const int32_t count = fig_variants_count(view, classes, target), variant = shape->variant;
    if (variant < 0 || variant >= count)
        return fig_fail(FIG_INVALID, "bucket: variant is %" PRId32 ", limits 0 to %" PRId32,
                        variant, count - 1);
    if (!fig_variants_has(view, classes, target, variant))
        return fig_fail(FIG_INVALID,
                        "bucket: variant is %" PRId32
                        ", which only programs have whose rows may be chunks",
                        variant);
    assert(count <= FIG_VARIANT_LIMIT);
    for (int32_t i = 0; i < classes->count && !table->known[variant]; i++)
        table->of[variant][i] = fig_variants_resolve(classes, i, target, variant);
    table->known[variant] = 1;
    for (int32_t i = 0; i < classes->count; i++)
        shape->variants[i] = table->of[variant][i];
    return FIG_OK;
}

int fig_variants_serves(const fig_program_view *view, const fig_lower_target *target,
                        int32_t variant) {
    fig_split_classes classes;
    const int32_t candidates = fig_traits_variant_count(&target->traits);
    assert(variant >= 0 && variant < FIG_VARIANTS_FORMS * candidates);
    if (target->deterministic) return variant == 0;
    if (fig_split_classes_find(view, &classes) != FIG_OK) return 1;
    if (!fig_variants_has(view, &classes, target, variant)) return 0;
    if (fig_variants_ends_late(&classes, target, variant)) return 0;
    for (int32_t smaller = variant / candidates * candidates; smaller < variant; smaller++) {
        int alike = 1;
        for (int32_t i = 0; i < classes.count; i++) {
            const fig_variant own = fig_variants_resolve(&classes, i, target, variant);
            const fig_variant other = fig_variants_resolve(&classes, i, target, smaller);
            alike &= fig_variants_read_alike(&own, &other);
        }
        if (alike) return 0;
    }
    return 1;
}

/* Returns 1 if the launch of the split can read tails, and steps of the bucket may have tails that
 * are worth it. Prefixes of fewer rows than fill half a strip wait for memory, as tails do. */
static int may_have_tails(const fig_bucket_shape *bucket) {
    const fig_split_shape *split = &bucket->plan.splits[0];
    const int64_t tokens = (int64_t)bucket->caps.batch * bucket->caps.kv;
    return bucket->paces[0].serves_tails &&
           bucket->caps.batch > fig_strips_half(bucket->strips[0].ratio) &&
           fig_division_is_for_tails(tokens, (int64_t)bucket->token_bytes[0] * split->groups);
}

/* Adds the variants of one form that a bucket offers. */
static fig_status offer(const fig_program_view *view, const fig_lower_target *target,
                        const fig_bucket *buckets, int32_t index, int32_t form,
                        fig_bucket_shape *candidates, uint32_t *offered) {
    const int32_t of_form = fig_traits_variant_count(&target->traits);
    int32_t numbers[FIG_VARIANT_LIMIT], count = 0;
    const fig_bucket_shape size = {.caps = buckets[index]};
    if (form == FIG_FORM_ONES && !fig_lower_may_be_ones(&view->spec, &size)) return FIG_OK;
    for (int32_t n = form * of_form; n < (form + 1) * of_form; n++) {
        if (!fig_variants_serves(view, target, n)) continue;
        candidates[count] = size;
        candidates[count].variant = numbers[count] = n;
        FIG_TRY(fig_lower_shape(view, target, 0, &candidates[count]));
        count++;
    }
    if (count == 0) return FIG_OK;
    const fig_offer_range range = fig_offer_range_of(buckets, index, view->spec.kv_limit);
    const uint32_t chosen = fig_offer_choose(candidates, count, &range);
    if (chosen == 0) return fig_fail(FIG_NOMEM, "bucket: the costs of %d variants", count);
    for (int32_t i = 0; i < count; i++)
        if (chosen >> i & 1 || may_have_tails(&candidates[i]))
            *offered |= UINT32_C(1) << numbers[i];
    return FIG_OK;
}

/* Allocates the shapes of all variants, because they are too large for the stack of a small
 * thread. */
fig_status fig_variants_offer(const fig_program_view *view, const fig_lower_target *target,
                              const fig_bucket *buckets, int32_t index, uint32_t *offered) {
    fig_bucket_shape *candidates = calloc(FIG_VARIANT_LIMIT, sizeof *candidates);
    *offered = 0;
    if (candidates == NULL) return fig_fail(FIG_NOMEM, "bucket: %d shapes", FIG_VARIANT_LIMIT);
    fig_status status = FIG_OK;
    for (int32_t form = 0; form < FIG_VARIANTS_FORMS && status == FIG_OK; form++)
        status = offer(view, target, buckets, index, form, candidates, offered);
    free(candidates);
    return status;
}
