/* sharing.h: finds the rows of a step that begin with the same pages, for engines.
 *
 * The engine's copy of the page table (table_mirrors.h) shows which rows share pages.
 * planner/prefixes chooses the groups, and strips of the step's second launch read the pages of a
 * group once. The strips find these pages through the page table entries of one row of the group:
 * this row lends its entries to the other rows. So the caller may not change these entries until
 * the step is launched. Invariant: nothing allocates after fig_sharing_init(), and the groups of a
 * step are computed from the entries that the step will find on the device. */
#ifndef FIG_ENGINE_SHARING_H
#define FIG_ENGINE_SHARING_H

#include "engine/plans/table_mirrors.h"
#include "graphs/shared_rows.h"

/* The reads of the groups of a step, and what they save. */
typedef struct fig_sharing_counts {
    int64_t groups;
    fig_prefix_reads tokens;
} fig_sharing_counts;

/* The numbers of the plans that fig_sharing_note() needs. Plans are numbered as they are staged. */
typedef struct fig_sharing_plans {
    uint64_t number; /* the plan of the step */
    uint64_t first;  /* the oldest plan that still waits for a launch */
} fig_sharing_plans;

/* The entries that a sequence lends, or that any sequence lends. */
typedef struct fig_sharing_lent {
    uint64_t last;  /* the last plan in which they are lent; 0: none */
    uint64_t plans; /* bit i: they are lent in plan last - i; older plans wait for no launch */
    int32_t count;  /* how many, from the first entry on */
    int32_t in_run; /* how many in each plan of the run; 0: the sequence has no part in it */
} fig_sharing_lent;

/* Successive plans in which the same rows lend the same entries. Only the first of them is noted
 * row by row; the others are added when somebody asks. */
typedef struct fig_sharing_run {
    uint64_t first, last; /* 0: there is no run */
    int is_alone;         /* 1: when some plan behind the first was staged, no other plan waited */
    fig_sharing_counts counts; /* of each plan */
} fig_sharing_run;

typedef struct fig_sharing {
    const fig_table_mirrors *mirrors;
    const char *off; /* the reason why steps of this engine never have groups; NULL: they may */
    int always;      /* 1: groups are made even if their step takes longer */
    uint32_t table;  /* the tensor number of the page table; 0: none */
    int32_t sequence_limit;  /* that of steps; the table may have more rows */
    fig_strips_shape strips; /* how the class that shares cuts strips */
    uint64_t version;        /* version of the table's copy when groups were last found */
    fig_prefixes prefixes;
    fig_strip_group *groups; /* [batch_limit] */
    fig_plan_groups found;   /* the groups of the step that is being staged */
    fig_sharing_lent *lent;  /* [sequence_limit] */
    fig_sharing_lent of_any; /* only `last` and `plans` are used */
    int32_t shared_limit;    /* the limit of query tokens with which groups were last taken */
    int is_kept;             /* 1: the groups found last are those of the step before */
    int is_noted;            /* 1: a plan with the groups found last was noted */
    int is_new;              /* 1: the groups found last may differ from those found before */
    fig_sharing_run run;
} fig_sharing;

/* share: fig_engine_options.share. FIG_NOMEM. fig_sharing_finish() accepts a zeroed struct. */
fig_status fig_sharing_init(fig_sharing *sharing, const fig_table_mirrors *mirrors, int32_t share);
void fig_sharing_finish(fig_sharing *sharing);

/* Returns the reason why a step that is staged now has no groups, or NULL if it may have some. */
const char *fig_sharing_refuse(const fig_sharing *sharing);
/* Returns 1 if the step for which groups were last looked for has some. */
static inline int fig_sharing_had_groups(const fig_sharing *sharing) {
    return sharing->found.count > 0;
}
/* Finds the groups of a step in a bucket of this shape. If its plans have no strips, finds those
 * that a bucket with strips would have. Returns NULL if there are none. The result is valid until
 * the next call. */
const fig_plan_groups *fig_sharing_find(fig_sharing *sharing, const fig_plan_shape *shape,
                                        const fig_plan_step *step);
/* Records which sequences lend entries in plan plans->number. step->groups may be NULL. Returns the
 * reads of the groups. */
fig_sharing_counts fig_sharing_note(fig_sharing *sharing, const fig_plan_step *step,
                                    const fig_sharing_plans *plans);
/* Forgets what was recorded for plan `number`, the newest one: it was taken back. O(sequences) */
void fig_sharing_forget_plan(fig_sharing *sharing, uint64_t number);
/* Forgets what all plans lend of tensor t: it has other memory now, which no staged step reads.
 * O(sequences) */
void fig_sharing_forget_table(fig_sharing *sharing, uint32_t t);

/* Returns 1 if setting these pages would change entries that a row lends in plan `first` or a later
 * one. */
int fig_sharing_is_changed(const fig_sharing *sharing, const fig_pages *pages, uint64_t first);
/* Returns 1 if some row lends entries of tensor t in plan `first` or a later one. */
static inline int fig_sharing_lends(const fig_sharing *sharing, uint32_t t, uint64_t first) {
    return t == sharing->table && sharing->of_any.last >= first;
}

#endif
