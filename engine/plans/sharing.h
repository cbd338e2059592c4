/* sharing.h: finds the rows of a step that begin with the same pages, for engines.
 *
 * The copy of the page table (table_mirrors.h) tells which rows share pages, planner/prefixes
 * chooses the groups, and strips of the step's second launch read a group's pages once. One row of
 * a group lends its entries of the page table to all of its rows, so until the step is launched,
 * nobody may change these entries. Invariant: nothing allocates after fig_sharing_init(), and the
 * groups of a step follow from the table that the step will find on the device. */
#ifndef FIG_ENGINE_SHARING_H
#define FIG_ENGINE_SHARING_H

#include "engine/plans/table_mirrors.h"
#include "graphs/graphs.h"
#include "planner/prefixes/prefix_groups.h"

/* What the groups of a step do. */
typedef struct fig_sharing_counts {
    int64_t groups;
    int64_t read;  /* kv tokens that strips of groups read, for each kv head */
    int64_t saved; /* kv tokens that the rows would have read besides */
} fig_sharing_counts;

/* Numbers of plans. */
typedef struct fig_sharing_plans {
    uint64_t number; /* the plan of the step */
    uint64_t first;  /* the oldest plan that has launches left */
} fig_sharing_plans;

typedef struct fig_sharing {
    const fig_table_mirrors *mirrors;
    const char *off; /* why no step of this engine has groups; NULL: one may have */
    uint32_t table;  /* the page table; 0: none */
    int32_t sequence_limit;
    fig_strips_shape strips; /* of the class that shares */
    uint64_t version;        /* of the table's copy from which groups were found */
    fig_prefixes prefixes;
    fig_strip_group *groups; /* [batch_limit] */
    fig_plan_groups found;   /* the step's */
    /* [sequence_limit] the last plan in which the sequence lends entries, and how many */
    uint64_t *lent_in;
    int32_t *lent;
    uint64_t last; /* the last plan with groups */
} fig_sharing;

/* share: that of fig_engine_options. FIG_NOMEM. fig_sharing_finish() accepts a zeroed struct. */
fig_status fig_sharing_init(fig_sharing *sharing, const fig_table_mirrors *mirrors, int32_t share);
void fig_sharing_finish(fig_sharing *sharing);

/* Returns why a step that is staged now has no groups, or NULL if it may have some. */
const char *fig_sharing_refuse(const fig_sharing *sharing);
/* Finds the groups of a step in a bucket of this shape. Returns NULL if it has none. The result
 * holds until the next call. */
const fig_plan_groups *fig_sharing_find(fig_sharing *sharing, const fig_plan_shape *shape,
                                        const fig_plan_step *step);
/* Notes that plan `number` has the step's groups, which may be NULL. */
fig_sharing_counts fig_sharing_note(fig_sharing *sharing, const fig_plan_step *step,
                                    const fig_sharing_plans *plans);

/* Returns 1 if the call changes entries that a row lends in plan `first` or a later one. */
int fig_sharing_is_changed(const fig_sharing *sharing, const fig_pages *pages, uint64_t first);
/* Returns 1 if some row lends entries of tensor t in plan `first` or a later one. */
static inline int fig_sharing_lends(const fig_sharing *sharing, uint32_t t, uint64_t first) {
    return t == sharing->table && sharing->last >= first;
}

#endif
