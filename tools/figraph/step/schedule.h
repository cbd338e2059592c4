/* schedule.h: decides the rows of each step of a replay, and their lengths.
 *
 * It imitates a serving loop. A row's sequence grows by one token per step; with several query
 * tokens per row, all but one count as rejected. Sequences join while others run. When a sequence
 * reaches the kv limit it ends, its row idles for one step, and a new sequence begins. Invariant:
 * the lengths depend only on the seed and the options, so a caller may run a schedule in advance to
 * size caches. */
#ifndef FIG_TOOLS_SCHEDULE_H
#define FIG_TOOLS_SCHEDULE_H

#include <figraph.h>

#include "tools/figraph/step/synthetic.h"
#include "tools/figraph/terminal/lengths.h"

typedef struct fig_schedule_options {
    const fig_graphs *graphs;
    int32_t rows, steps;
    const fig_lengths *start; /* [rows]; NULL: sequences join one by one, with lengths such
                                 that the step outgrows a bucket before the end */
    uint64_t seed;
} fig_schedule_options;

typedef struct fig_schedule {
    int32_t row_limit, kv_limit;
    int32_t least;    /* the fewest tokens of a busy row's sequence: as many as a row that is no
                         chunk may have query tokens */
    int32_t *grown;   /* [row_limit] tokens of each row's sequence */
    int32_t *joins;   /* [row_limit] the step at which the row's sequence begins */
    int32_t *lengths; /* [row_limit] the lengths of the current step */
    int32_t *queries; /* [row_limit] the query tokens of each row */
    int is_packed;    /* 1: `queries` are drawn, 1 to row_tokens for a busy row */
    int32_t row_tokens, query_limit; /* the most of a row and, in a packed program, of a step */
    int32_t step;                    /* the number of the next step */
    int32_t rows;                    /* the rows of the current step */
    int pauses;                      /* 1: each row idles at one step of 16 */
} fig_schedule;

/* Returns the most query tokens of a packed program's row that is not a chunk. */
int32_t fig_schedule_narrow(const fig_spec *spec);
/* Returns the fewest tokens of a busy row's sequence. A row that is a chunk has more. */
int32_t fig_schedule_least(const fig_spec *spec);
/* Returns FIG_EXIT_*; finish frees everything, also after a failed init. */
int fig_schedule_init(fig_schedule *schedule, const fig_schedule_options *options);
void fig_schedule_finish(fig_schedule *schedule);
/* Returns the number of query tokens of the current step. */
int32_t fig_schedule_count(const fig_schedule *schedule);
/* Returns the place of a query token of the current step: its row, and its number in the row. */
typedef struct fig_schedule_query {
    int32_t row, number;
} fig_schedule_query;
fig_schedule_query fig_schedule_find(const fig_schedule *schedule, int32_t number);
/* Moves on to the next step: fills lengths, queries and rows. */
void fig_schedule_advance(fig_schedule *schedule);

#endif
