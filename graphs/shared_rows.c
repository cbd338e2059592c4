/* shared_rows.c: the reasons why rows never share, and the limit on their query tokens.
 *
 * Invariant: whatever these functions return follows from the graphs alone. */
#include "graphs/shared_rows.h"

const char *fig_shared_rows_refuse(const fig_graphs *graphs) {
    if (!fig_program_view_has_chunks(fig_program_view_of(graphs->program)))
        return "no row may be a chunk";
    if (graphs->target.deterministic) return "the graphs are deterministic";
    if (fig_graphs_sharer(graphs) >= 0) return NULL;
    for (int32_t i = 0; i < graphs->common.classes.count; i++)
        if (graphs->common.classes.of[i].shared_table != 0)
            return "the GPU has no kernel that would gain from it, or plans have no room for it";
    return "no attention can share tokens: each has a window, ALiBi, a score, scales, no page "
           "table, or a dtype or head_dim without a kernel that would gain from it";
}

/* The host has no second launch to wait for. */
int fig_shared_rows_always(const fig_graphs *graphs, int32_t share) {
    return share > 0 || graphs->target.traits.compute_capability == 0;
}

/* A step with groups takes a bucket with strips. Its limit is this one, or one that the query
 * tokens of the step do not reach. */
int32_t fig_shared_rows_limit(const fig_plan_shape *shape) {
    const int32_t rows = shape->row_limit;
    if (fig_plan_strips_room(shape) > 0) return fig_plan_shared_limit(shape);
    return rows > FIG_PLAN_SHARED_LEAST ? rows : (int32_t)FIG_PLAN_SHARED_LEAST;
}
