/* tuning.h: what variants cost where figraph tune measured them.
 *
 * A record is of one machine, one split class and one candidate of that machine, and holds for the
 * library that measured it; what others measured stays in the file and is not used. Owns the check
 * of records and which of them count. Invariant: records are sorted and none is there twice. */
#ifndef FIG_GRAPHS_TUNING_H
#define FIG_GRAPHS_TUNING_H

#include "planner/traits.h"

typedef struct fig_tuned {
    char machine[16]; /* its traits' */
    int32_t compute_capability, sm_count;
    uint32_t maker; /* FIG_VERSION of the library whose kernels were measured */
    int32_t split_class, number;
    fig_variant variant;
} fig_tuned;
static_assert(sizeof(fig_tuned) == 80, "file format");

enum { FIG_TUNING_LIMIT = 1024 };

typedef struct fig_tuning {
    fig_tuned *records; /* [count] */
    uint32_t count;
} fig_tuning;

void fig_tuning_sort(fig_tuning *tuning);
/* FIG_INVALID names the first record that is none, or out of order. */
fig_status fig_tuning_check(const fig_tuning *tuning);
/* FIG_NOMEM. finish takes a zeroed one. */
fig_status fig_tuning_clone(fig_tuning *copy, const fig_tuning *tuning);
void fig_tuning_finish(fig_tuning *tuning);

/* The record of this library for that machine; NULL: there is none. */
const fig_tuned *fig_tuning_find(const fig_tuning *tuning, const fig_traits *traits,
                                 int32_t split_class, int32_t number);
/* 1: it was measured on that machine. */
int fig_tuning_is_of(const fig_tuned *tuned, const fig_traits *traits);
/* 1: it was measured of what the candidate has become for the class. */
int fig_tuning_fits(const fig_tuned *tuned, const fig_variant *resolved);

#endif
