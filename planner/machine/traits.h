/* traits.h: describes the machines for which graphs are lowered, and the ways to read the cache on
 * each.
 *
 * costs.h has the costs. Invariant: candidates of a machine are only ever added at the end, because
 * a file may name a candidate by its number alone. */
#ifndef FIG_PLANNER_TRAITS_H
#define FIG_PLANNER_TRAITS_H

#include "include/figraph.h"
#include "planner/split/units.h"

/* A way in which the workers of a split class may read the cache: how much a worker reads at once,
 * and the costs of doing so. The costs give an estimate of the time of a step's attention, used
 * only to choose between variants:
 *     start + tiles of the fullest worker * bytes of a tile / rate
 *           + pieces of the longest row * piece + segments of a worker * segment
 * If rows differ in length, a second estimate may be larger, and then it is used instead. It
 * assumes that all workers have equal units (units.h):
 *     start + units of a worker * tile / 16 + pieces of the longest row * piece  */
typedef struct fig_variant {
    char name[12]; /* NUL-terminated */
    /* Number of kv heads that a worker reads at once. In a candidate this is the maximum; in a
     * bucket, the largest divisor of the class's kv_heads that is at most this maximum. */
    int32_t heads;
    int32_t tile_tokens; /* in a candidate: for a token that has 256 bytes of K per head */
    int32_t workers_per_sm;
    /* Tiles that a worker holds at once; 0: the kernel decides. Over a latent cache, 1: rows that
     * are short enough have clusters of workers. */
    int32_t stages;
    int32_t start_ns, bytes_per_us, piece_ns, segment_ns;
    int32_t once;    /* see units.h; in a candidate, for the token that tile_tokens assumes */
    int32_t tile_ns; /* time of a tile while memory is not saturated; in a candidate, like `once` */
} fig_variant;
static_assert(sizeof(fig_variant) == 52, "file format");
enum { FIG_VARIANT_BYTES_LEAST = 44 }; /* size in files that omit the last two fields */

enum { FIG_VARIANT_LIMIT = 20 };
/* Returns the number of a machine's candidates, 1 to FIG_VARIANT_LIMIT. */
int32_t fig_traits_variant_count(const fig_traits *traits);
/* Returns candidate `number`, counted from 0, with its costs for a cache of value_bytes bytes per
 * value. */
fig_variant fig_traits_variant(const fig_traits *traits, int32_t number, int32_t value_bytes);
/* Fails with FIG_INVALID and names the field if no kernel can serve this variant. */
fig_status fig_traits_check_variant(const fig_variant *variant);

/* Checks traits from a file or a caller. The machine that they describe need not be one that
 * kernels support. */
fig_status fig_traits_check(const fig_traits *traits);
/* Kernels are compiled for 8.0 and later. */
enum { FIG_TRAITS_CAPABILITY_LEAST = 80 };

#endif
