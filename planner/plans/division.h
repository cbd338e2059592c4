/* division.h: divides a machine's workers between the rows and the chunks of a step.
 *
 * If a step holds both, its attention has two launches. Decode rows wait for memory and chunks for
 * the tensor cores, but a block of either launch fills an SM. Without a division, both launches use
 * every SM, one after the other. With one, some workers read rows while the others process chunks:
 *
 *     SM       not divided         divided
 *     0        rows | chunks       rows
 *     1        rows | chunks       chunks
 *     2        rows | chunks       chunks
 *
 * A worker reads far more than its share of memory's bandwidth if few workers read, so few are
 * enough. Owns the estimate of both times. Invariant: with no division, plans are as if this file
 * did not exist. */
#ifndef FIG_PLANNER_DIVISION_H
#define FIG_PLANNER_DIVISION_H

#include "planner/plans/strip_groups.h"

/* How fast a class of a bucket reads rows. All zeros: the machine is not divided. */
typedef struct fig_division_pace {
    int32_t tile_bytes;   /* bytes of a tile of the split */
    int32_t readers;      /* workers of the split */
    int64_t of_worker;    /* bytes in a us that a worker reads while few others read */
    int64_t of_all;       /* bytes in a us that any number of workers reads beside chunks */
    int64_t of_all_apart; /* bytes in a us that all workers read without chunks */
    int32_t serves_tails; /* 1: rows in groups may have tails (plan.h) */
} fig_division_pace;

/* The work of a step in one class. */
typedef struct fig_division_work {
    int64_t tiles;                      /* on the line of the split, in all head groups */
    const fig_strips_segment *segments; /* [count] the chunks */
    int32_t count;
} fig_division_work;

/* The shared prefixes of a step, in all kv heads. */
typedef struct fig_division_prefixes {
    int64_t strips, units; /* units: of their tiles */
    int64_t once;          /* of their pieces, if each strip were one piece */
    int64_t tails;         /* of the step, in all head groups */
} fig_division_prefixes;

/* Returns the number of workers that read rows while the others of `strips` process chunks, or 0 if
 * each launch had better use the whole machine. O(count + workers) */
int32_t fig_division_readers(const fig_division_pace *pace, const fig_strips_shape *strips,
                             const fig_division_work *work);

/* Adds the prefix of a group whose rows have `queries` query tokens. */
void fig_division_add_prefix(const fig_strips_shape *strips, const fig_strip_group *group,
                             int32_t queries, fig_division_prefixes *prefixes);
/* Returns the number of workers that read rows and tails, of `tiles` tiles in all head groups,
 * while the others multiply prefixes. 0: each launch had better use the whole machine. O(workers)
 */
int32_t fig_division_tail_readers(const fig_division_pace *pace, const fig_strips_shape *strips,
                                  const fig_division_prefixes *prefixes, int64_t tiles);
/* Returns 1 if a step whose rows are all in groups had better leave `tokens` tokens of tails to the
 * launch for rows that are not chunks. token_bytes: of K and V of a token, in all heads. */
int fig_division_is_for_tails(int64_t tokens, int64_t token_bytes);

#endif
