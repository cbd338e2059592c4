/* tuning.h: the costs of variants as figraph tune measured them.
 *
 * A record describes one candidate of one machine for one split class, and holds only for the
 * library version that measured it. Records of other versions stay in the file unused. Owns the
 * checks of records and the choice among records. Invariant: records are sorted and none occurs
 * twice. */
#ifndef FIG_GRAPHS_TUNING_H
#define FIG_GRAPHS_TUNING_H

#include "planner/machine/traits.h"

typedef struct fig_tuned {
    char machine[16]; /* the name of the machine's traits */
    int32_t compute_capability, sm_count;
    uint32_t maker; /* FIG_VERSION of the library whose kernels were measured */
    int32_t split_class, number;
    fig_variant variant;
} fig_tuned;
static_assert(sizeof(fig_tuned) == 88, "file format");
/* The size of a record in files where every record has 0 in the variant's last fields, `once` and
 * tile_ns. */
enum { FIG_TUNED_BYTES_LEAST = sizeof(fig_tuned) - sizeof(fig_variant) + FIG_VARIANT_BYTES_LEAST };
static_assert((int)FIG_TUNED_BYTES_LEAST == 80, "file format");

enum { FIG_TUNING_LIMIT = 1024 };

typedef struct fig_tuning {
    fig_tuned *records; /* [count] */
    uint32_t count;
} fig_tuning;

void fig_tuning_sort(fig_tuning *tuning);
/* Checks the records. FIG_INVALID: the message names the first record that is invalid or out of
 * order. */
fig_status fig_tuning_check(const fig_tuning *tuning);
/* Copies the records. May fail with FIG_NOMEM. finish accepts a zeroed struct. */
fig_status fig_tuning_clone(fig_tuning *copy, const fig_tuning *tuning);
void fig_tuning_finish(fig_tuning *tuning);

/* Returns the record that this library measured on that machine, or NULL if there is none. */
const fig_tuned *fig_tuning_find(const fig_tuning *tuning, const fig_traits *traits,
                                 int32_t split_class, int32_t number);
/* Returns 1 if the record was measured on the machine with those traits. */
int fig_tuning_is_of(const fig_tuned *tuned, const fig_traits *traits);
/* Returns 1 if the measured variant reads the cache in the same way as `resolved`, the candidate
 * fitted to the class. */
int fig_tuning_fits(const fig_tuned *tuned, const fig_variant *resolved);

#endif
