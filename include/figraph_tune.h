/* figraph_tune.h: what variants of attention cost, measured on a machine and kept with graphs.
 *
 * A step's bucket is offered in variants, and the cheapest is chosen by a model:
 *
 *     start + bytes of the fullest worker / rate + pieces * piece + segments * segment
 *
 * Its four figures come from a table of machines, or from records that graphs hold. To make those:
 * lower the program in one variant, time steps, fit the figures, call fig_graphs_tune. That is what
 * `figraph tune` does. A record is used where the graphs are for the machine that it names, by the
 * library version that measured it; any other is kept and not used. */
#ifndef FIGRAPH_TUNE_H
#define FIGRAPH_TUNE_H

#include <figraph.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Attention nodes that are split alike; numbered from 0 by their first node. */
typedef struct fig_tune_class {
    uint32_t size;
    int32_t q_heads, kv_heads, head_dim, row_tokens;
    int32_t window;      /* 0: none */
    int32_t value_bytes; /* of a number of the cache */
} fig_tune_class;
/* FIG_INVALID past the last. */
FIG_API fig_status fig_graphs_tune_class(const fig_graphs *graphs, int32_t split_class,
                                         fig_tune_class *info);

/* What the model says of a variant. */
typedef struct fig_tune_costs {
    uint32_t size;
    int32_t split_class, variant;                         /* both from 0 */
    int32_t start_ns, bytes_per_us, piece_ns, segment_ns; /* each 0 to 10^8, the rate from 1 */
} fig_tune_costs;

typedef struct fig_tune_variant {
    uint32_t size;
    char name[12];
    int32_t heads, tile_tokens; /* that a worker reads at once */
    int32_t start_ns, bytes_per_us, piece_ns, segment_ns;
    int32_t is_tuned; /* 1: those four are of a record */
    int32_t serves;   /* 0: a variant of a smaller number reads the same */
} fig_tune_variant;
/* FIG_INVALID past the last class or variant. */
FIG_API fig_status fig_graphs_tune_variant(const fig_graphs *graphs, int32_t split_class,
                                           int32_t variant, fig_tune_variant *info);

/* What the model knows of a step in a variant. */
typedef struct fig_tune_work {
    uint32_t size;
    int64_t bytes, pieces, segments;
} fig_tune_work;
/* The step has lengths. FIG_TOO_LARGE, FIG_INVALID: it is beyond the graphs' spec. */
FIG_API fig_status fig_graphs_tune_work(const fig_graphs *graphs, const fig_tune_costs *of,
                                        const fig_step *step, fig_tune_work *work);

/* As fig_graphs_lower, but each bucket in that variant alone. */
FIG_API fig_status fig_graphs_lower_variant(fig_graphs **graphs, const fig_program *program,
                                            const fig_lower_options *options, int32_t variant);

/* The same graphs with records of their own machine in place of those they had for it; buckets are
 * offered anew. costs: each class and variant once at most. FIG_INVALID: graphs are deterministic,
 * or which of the costs is none. */
FIG_API fig_status fig_graphs_tune(fig_graphs **tuned, const fig_graphs *graphs,
                                   const fig_tune_costs *costs, int32_t count);

/* Records that graphs hold. */
typedef struct fig_tune_info {
    uint32_t size;
    int32_t used, foreign, stale; /* foreign: of another machine; stale: of another version of the
                                     library, or of a variant that is another by now */
} fig_tune_info;
FIG_API fig_status fig_graphs_tune_info(const fig_graphs *graphs, fig_tune_info *info);

#ifdef __cplusplus
}
#endif
#endif
