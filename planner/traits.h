/* traits.h: the machines that graphs are lowered for, and what one worker may read at once there.
 *
 * What that costs is costs.h's. Invariant: a machine's candidates are only ever added to, since a
 * file may say no more than the number of one. */
#ifndef FIG_PLANNER_TRAITS_H
#define FIG_PLANNER_TRAITS_H

#include "planner/split.h"
#include "include/figraph.h"

/* What one worker of a split class reads at once, and what that costs. The time of a step's
 * attention, for a choice between variants and not for promises:
 *     start + tiles of the fullest worker * bytes of a tile / rate
 *           + pieces of the longest row * piece + segments of a worker * segment */
typedef struct fig_variant {
    char name[12]; /* NUL-terminated */
    int32_t heads; /* kv heads that a worker reads at once: of a candidate the most, in a bucket as
                      many as divide its kv_heads */
    int32_t tile_tokens; /* of a candidate as a token of one head has 256 bytes of K */
    int32_t workers_per_sm;
    int32_t stages; /* tiles that a worker has room for; 0: as many as its kernel likes */
    int32_t start_ns, bytes_per_us, piece_ns, segment_ns;
} fig_variant;
static_assert(sizeof(fig_variant) == 44, "file format");

enum { FIG_VARIANT_LIMIT = 16 };
/* Candidates of a machine, 1 to FIG_VARIANT_LIMIT. */
int32_t fig_traits_variant_count(const fig_traits *traits);
/* One of them, from 0, with what it costs where a number of the cache has so many bytes. */
fig_variant fig_traits_variant(const fig_traits *traits, int32_t number, int32_t value_bytes);
/* FIG_INVALID names what no kernel could be built for. */
fig_status fig_traits_check_variant(const fig_variant *variant);

/* Of what a file or a caller says of a machine, which need not be one that kernels run on. */
fig_status fig_traits_check(const fig_traits *traits);
/* Kernels are compiled for 8.0 and later. */
enum { FIG_TRAITS_CAPABILITY_LEAST = 80 };

#endif
