/* fitting.h: fits a machine's way to read the cache to the kernels of a split class. */
#ifndef FIG_GRAPHS_FITTING_H
#define FIG_GRAPHS_FITTING_H

#include "graphs/lower/lower.h"
#include "graphs/lower/split_classes.h"

/* Changes *variant, which is the candidate with a number of heads that divides those of the class,
 * so that the kernels of the class can serve it, and with the costs of its tiles. */
void fig_fitting_fit(const fig_split_class *own, const fig_lower_target *target,
                     const fig_variant *candidate, fig_variant *variant);

#endif
