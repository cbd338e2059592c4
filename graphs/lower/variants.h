/* variants.h: the ways in which a program's classes can read the cache on a machine.
 *
 * A machine has candidates, and a candidate has up to four forms (fig_bucket_form). With n
 * candidates, variant v below n is candidate v for all rows that are not chunks, variant n + v is
 * candidate v for singles, 2n + v for ones and 4n + v for drafts. Variant 3n is for strips: then no
 * row is read by the workers of a split, so there is only one such variant.
 *
 * Only programs whose rows may be chunks have the second form: there most other rows are decode
 * rows, and in the first form a worker has room for rows of up to FIG_NARROW_TOKENS_LIMIT query
 * tokens. All packed programs have the third form if the host knows their lengths. Its buckets have
 * no strips and no launches for chunks, and their kernels are those of programs that are not
 * packed. Such programs have strips and drafts, too, if rows may be chunks. Owns the fitting of
 * candidates to classes; fitting.h has its rules. */
#ifndef FIG_GRAPHS_VARIANTS_H
#define FIG_GRAPHS_VARIANTS_H

#include "graphs/lower/lower.h"
#include "graphs/lower/split_classes.h"

enum { FIG_VARIANTS_FORMS = FIG_FORM_DRAFTS + 1 };

/* The variants, fitted to each class. Each is looked up only once for all buckets, because a file
 * may hold many tuning records. A zeroed table is empty. */
typedef struct fig_variants_table {
    int known[FIG_VARIANT_LIMIT];
    fig_variant of[FIG_VARIANT_LIMIT][FIG_CLASS_LIMIT];
} fig_variants_table;

fig_bucket_form fig_variants_form(const fig_lower_target *target, int32_t variant);
/* Returns 1 if the program has the variant on the machine. */
int fig_variants_has(const fig_program_view *view, const fig_split_classes *classes,
                     const fig_lower_target *target, int32_t variant);
/* Returns one past the largest number of the program's variants on the machine. */
int32_t fig_variants_count(const fig_program_view *view, const fig_split_classes *classes,
                           const fig_lower_target *target);
/* Returns the first of the variants that tune measures, as many as the machine has candidates. They
 * are those for singles, if the program has any: most steps take one of these, or one for ones,
 * which has the same costs. */
int32_t fig_variants_first_tuned(const fig_program_view *view, const fig_split_classes *classes,
                                 const fig_lower_target *target);
/* Returns the class at `index` as the variant serves it. */
fig_split_class fig_variants_class(const fig_split_classes *classes, int32_t index,
                                   const fig_lower_target *target, int32_t variant);
/* Returns the variant, fitted to the class at `index`. */
fig_variant fig_variants_resolve(const fig_split_classes *classes, int32_t index,
                                 const fig_lower_target *target, int32_t variant);
/* Returns 1 if the variant is for singles, and its blocks without work would hold up a launch for
 * chunks. No bucket offers such a variant. */
int fig_variants_ends_late(const fig_split_classes *classes, const fig_lower_target *target,
                           int32_t variant);
/* Returns 1 if workers read the cache in the same way. */
int fig_variants_read_alike(const fig_variant *a, const fig_variant *b);
/* Sets the variants of a shape from its variant number. FIG_INVALID: the program has no such
 * variant. */
fig_status fig_variants_take(const fig_program_view *view, const fig_split_classes *classes,
                             const fig_lower_target *target, fig_variants_table *table,
                             fig_bucket_shape *shape);

/* Returns 1 if the variant is worth a bucket: the program has it, and for this program it reads the
 * cache differently from every lower-numbered variant of the same form. */
int fig_variants_serves(const fig_program_view *view, const fig_lower_target *target,
                        int32_t variant);
/* Finds the variants that a bucket of a normalised list offers, as bit n for variant n; see
 * planner/plans/offer.h. */
fig_status fig_variants_offer(const fig_program_view *view, const fig_lower_target *target,
                              const fig_bucket *buckets, int32_t index, uint32_t *offered);

#endif
