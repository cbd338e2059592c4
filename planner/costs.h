/* costs.h: what attention's variants cost on the machines that were measured.
 *
 * The figures of fig_variant's model, one row for each machine, size of the cache's numbers and
 * variant. Invariant: h200 has a row of 2 bytes for every candidate. */
#ifndef FIG_PLANNER_COSTS_H
#define FIG_PLANNER_COSTS_H

#include "planner/traits.h"

/* Fills in the costs of the variant of that name: a machine's or a size's that was not measured are
 * those of h200, and of 2 bytes. */
void fig_costs_take(const char *machine, int32_t value_bytes, fig_variant *variant);

#endif
