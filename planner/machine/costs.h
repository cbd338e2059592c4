/* costs.h: the costs of attention's variants on the machines that were measured.
 *
 * The table has the coefficients of fig_variant's cost model: one row for each machine, variant and
 * size of a cached value. Invariant: for h200 and cached values of 2 bytes there is a row for every
 * variant that any machine may offer. */
#ifndef FIG_PLANNER_COSTS_H
#define FIG_PLANNER_COSTS_H

#include "planner/machine/traits.h"

/* Finds the variant by its name and fills in its costs. A machine that was not measured gets the
 * costs of h200; a size that was not measured gets those of 2 bytes. */
void fig_costs_take(const char *machine, int32_t value_bytes, fig_variant *variant);

#endif
