/* fitting.h: adapts a machine's way of reading the cache to the kernels of a split class. */
#ifndef FIG_GRAPHS_FITTING_H
#define FIG_GRAPHS_FITTING_H

#include "graphs/lower/lower.h"
#include "graphs/lower/split_classes.h"

/* Changes *variant so that the kernels of the class can serve it, and adapts its costs to its
 * tiles. On entry, *variant is a candidate whose number of heads divides that of the class. */
void fig_fitting_fit(const fig_split_class *own, const fig_lower_target *target,
                     const fig_variant *candidate, fig_variant *variant);

/* Corrects the launch and merge costs of a variant over a latent cache, once the number of workers
 * of a bucket is known. is_short: 1 if the workers are blocks of clusters, which merge their own
 * results. */
void fig_fitting_place(const fig_split_class *own, const fig_traits *traits, int32_t workers,
                       int32_t is_short, fig_variant *variant);

#endif
