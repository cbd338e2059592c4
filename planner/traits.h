/* traits.h: the machines that graphs are lowered for, and what one worker may read at once there.
 *
 * Owns the measured figures that the choice of variant rests on. Invariant: a variant's row never
 * changes meaning, since a file stores its index. */
#ifndef FIG_PLANNER_TRAITS_H
#define FIG_PLANNER_TRAITS_H

#include "planner/split.h"
#include "include/figraph.h"

/* The time of a step's attention, for a choice between variants and not for promises:
 *     start + tiles of the fullest worker * bytes of a tile / rate
 *           + pieces of the longest row * piece + segments of a worker * segment */
typedef struct fig_variant {
    const char *name;
    int32_t heads; /* kv heads that a worker reads at once, at most; they divide kv_heads */
    int32_t tile_tokens;
    int32_t workers_per_sm;
    int32_t start_ns, bytes_per_us, piece_ns, segment_ns;
} fig_variant;

enum { FIG_VARIANT_COUNT = 2 };
extern const fig_variant fig_variant_table[FIG_VARIANT_COUNT];

fig_status fig_traits_check(const fig_traits *traits);

#endif
