/* schedule.h: which rows a replay stages at each step, and how long each is.
 *
 * As in a serving loop: a row's sequence grows by a token a step, where a row has several query
 * tokens as if all but one were rejected; sequences join while others run; one that reaches the kv
 * limit ends, its row idles for a step, and another begins. Invariant: the lengths follow from the
 * seed and what was asked for, so one may run a schedule ahead to size caches. */
#ifndef FIG_TOOLS_SCHEDULE_H
#define FIG_TOOLS_SCHEDULE_H

#include <figraph.h>

#include "tools/figraph/step/synthetic.h"
#include "tools/figraph/terminal/lengths.h"

typedef struct fig_schedule_options {
    const fig_graphs *graphs;
    int32_t rows, steps;
    const fig_lengths *start; /* [rows]; NULL: sequences join by and by, and lengths are made up so
                                 that the step outgrows a bucket before the end */
    uint64_t seed;
} fig_schedule_options;

typedef struct fig_schedule {
    int32_t row_limit, kv_limit;
    int32_t least;    /* tokens of a row that is not idle: its queries are tokens too */
    int32_t *grown;   /* [row_limit]: tokens of each row's sequence */
    int32_t *joins;   /* [row_limit]: the step at which it begins */
    int32_t *lengths; /* [row_limit]: of the step that was last advanced to */
    int32_t step;     /* the next one */
    int32_t rows;     /* of that step */
    int pauses;       /* 1: each row idles at one step of 16 */
} fig_schedule;

/* Returns FIG_EXIT_*; finish frees what was made, of a failed init too. */
int fig_schedule_init(fig_schedule *schedule, const fig_schedule_options *options);
void fig_schedule_finish(fig_schedule *schedule);
/* Moves on to the next step: fills lengths and rows. */
void fig_schedule_advance(fig_schedule *schedule);

#endif
