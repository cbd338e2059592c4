/* shared_rows.h: finds the groups of a step whose rows a caller describes, without an engine.
 *
 * An engine finds groups in its copy of the page table (engine/plans/sharing.h). A caller who only
 * plans has no pages, and names for each row an earlier row that has the same leading pages. Such
 * forks make a table of the same form, in which groups are found with the same costs. The reasons
 * why rows never share, and the limit on their query tokens, serve engines too. Invariant: the
 * groups are those that an engine finds for the first step over such pages. */
#ifndef FIG_GRAPHS_SHARED_ROWS_H
#define FIG_GRAPHS_SHARED_ROWS_H

#include "graphs/graphs.h"
#include "planner/prefixes/prefix_groups.h"

/* Returns why the program, the machine or the option rules out groups. NULL: they do not. The page
 * table may still rule them out. share: fig_engine_options.share. */
const char *fig_shared_rows_refuse(const fig_graphs *graphs, int32_t share);
/* Returns 1 if groups are made even if their step takes longer. */
int fig_shared_rows_always(const fig_graphs *graphs, int32_t share);
/* Returns the most query tokens that the rows of all groups may have together, for a step that
 * takes a bucket of this shape or, if its plans have no strips, one with strips. */
int32_t fig_shared_rows_limit(const fig_plan_shape *shape);

/* The fields of fig_plan_report that describe rows which begin with the same pages. */
typedef struct fig_shared_forks {
    const int32_t *sources, *lengths; /* [rows]; both may be NULL */
    int32_t share;
} fig_shared_forks;

typedef struct fig_shared_rows {
    const char *off; /* the reason why the step can have no groups; NULL: it may have some */
    fig_strips_shape strips;
    fig_page_order order; /* of the rows, not of sequences */
    fig_prefixes prefixes;
    fig_prefixes_costs costs;
    fig_strip_group *groups; /* [rows] */
    fig_plan_groups found;
} fig_shared_rows;

/* Checks the forks and makes their table. FIG_INVALID: a fork is out of range; the message names
 * it. FIG_NOMEM. Without forks, fig_shared_rows_find() finds nothing. fig_shared_rows_finish()
 * accepts a zeroed struct. */
fig_status fig_shared_rows_init(fig_shared_rows *shared, const fig_graphs *graphs,
                                const fig_plan_step *step, const fig_shared_forks *forks);
void fig_shared_rows_finish(fig_shared_rows *shared);

/* Finds the groups of the step in a bucket of this shape. Returns NULL if there are none. The
 * result is valid until the next call. */
const fig_plan_groups *fig_shared_rows_find(fig_shared_rows *shared, const fig_plan_shape *shape,
                                            const fig_plan_step *step);
/* Returns the reason why the last search found no groups. The text is static. */
const char *fig_shared_rows_why(const fig_shared_rows *shared);

/* Sets *serves to 1 if the launches of a bucket can read tails (plan.h), with tensors as aligned as
 * those that an engine allocates. FIG_NOMEM. */
fig_status fig_shared_rows_serve_tails(const fig_graphs *graphs, const fig_bucket_shape *shape,
                                       int32_t *serves);

#endif
