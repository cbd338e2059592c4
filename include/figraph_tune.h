/* figraph_tune.h: measured costs of the variants of attention, kept with graphs.
 *
 * Each size of bucket is lowered in variants. A step uses the variant for which a model predicts
 * the shortest time. If all rows of the step have the same length, the model is
 *
 *     start + bytes of the fullest worker / rate + pieces * piece + segments * segment
 *
 * If the rows differ in length, the model is
 *
 *     start + max(bytes' / rate, units * tile / 16) + pieces * piece
 *
 * Here bytes' is the bytes of the fullest worker, minus half a tile for each of its segments. A
 * segment is one row and head group; with n tiles it has once + 16 n units. The figure `once` also
 * decides where a step whose rows differ in length is cut.
 *
 * The figures come from a table of machines, or from records that graphs hold. `figraph tune` makes
 * records: it lowers the program in one variant at a time, times steps, fits the figures and calls
 * fig_graphs_tune(). A record is used only on the machine that it names, and only by the version of
 * the library that measured it. Other records are kept but not used. */
#ifndef FIGRAPH_TUNE_H
#define FIGRAPH_TUNE_H

#include <figraph.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A class of attention: nodes that are split alike. Classes are numbered from 0 in the order of
 * their first nodes. */
typedef struct fig_tune_class {
    uint32_t size; /* sizeof(fig_tune_class) */
    /* The number of query heads. */
    int32_t q_heads;
    /* The number of KV heads; for a latent cache, as in fig_inspect_class. */
    int32_t kv_heads;
    /* The number of elements of each head. */
    int32_t head_dim;
    /* The number of query tokens of each row. 1 if rows may be chunks, and steps without drafts
     * have variants of their own (fig_bucket_info.row_queries): then only these are measured. */
    int32_t row_tokens;
    /* The number of tokens that a query sees. 0: all. */
    int32_t window;
    /* Bytes of one number of the cache. */
    int32_t value_bytes;
} fig_tune_class;
/* Describes a class. FIG_INVALID: split_class is past the last. */
FIG_API fig_status fig_graphs_tune_class(const fig_graphs *graphs, int32_t split_class,
                                         fig_tune_class *info);

/* The figures of the model for one class in one variant. Each *_ns is 0 to 10^8. */
typedef struct fig_tune_costs {
    uint32_t size; /* sizeof(fig_tune_costs) */
    /* The class, from 0. */
    int32_t split_class;
    /* The variant, from 0, among those that are measured. */
    int32_t variant;
    /* `start`: the time that attention takes even if it reads almost nothing. */
    int32_t start_ns;
    /* `rate`: bytes that the fullest worker reads in a microsecond, 1 to 10^8. */
    int32_t bytes_per_us;
    /* `piece`: the time that each piece of the longest row adds, because pieces must be merged. */
    int32_t piece_ns;
    /* `segment`: the time that each segment of a worker adds. */
    int32_t segment_ns;
    /* `once`: how much longer the first tile of a segment takes than its other tiles, in units:
     * sixteenths of tile_ns, up to 2^14. A worker pays it for each segment that it begins or
     * continues. If `once` or tile_ns is 0, both are taken from the table. */
    int32_t once;
    /* `tile`: the time of each further tile of a segment while the memory is not saturated. */
    int32_t tile_ns;
} fig_tune_costs;

/* One variant, with the figures that the model uses for it. */
typedef struct fig_tune_variant {
    uint32_t size; /* sizeof(fig_tune_variant) */
    /* The name, such as "head". */
    char name[12];
    /* The number of KV heads that a worker reads at a time; for a latent cache, as in
     * fig_bucket_info. */
    int32_t heads;
    /* The number of tokens that a worker reads at a time. */
    int32_t tile_tokens;
    /* As in fig_tune_costs. */
    int32_t start_ns;
    /* As in fig_tune_costs. */
    int32_t bytes_per_us;
    /* As in fig_tune_costs. */
    int32_t piece_ns;
    /* As in fig_tune_costs. */
    int32_t segment_ns;
    /* 1: the four figures above come from a record. 0: they come from the table. */
    int32_t is_tuned;
    /* 1: buckets may use the variant. 0: no bucket uses it, because a variant with a smaller number
     * reads the same tiles. */
    int32_t serves;
    /* As in fig_tune_costs. If the record has 0 in `once` or tile_ns, the value comes from the
     * table. */
    int32_t once;
    /* As in fig_tune_costs. If the record has 0 in `once` or tile_ns, the value comes from the
     * table. */
    int32_t tile_ns;
} fig_tune_variant;
/* Describes a variant for a class. FIG_INVALID: split_class or variant is past the last. */
FIG_API fig_status fig_graphs_tune_variant(const fig_graphs *graphs, int32_t split_class,
                                           int32_t variant, fig_tune_variant *info);

/* The work of one step in one variant: the numbers that the model multiplies by its figures. */
typedef struct fig_tune_work {
    uint32_t size; /* sizeof(fig_tune_work) */
    /* The number of bytes that the fullest worker reads. */
    int64_t bytes;
    /* The number of pieces of the longest row. */
    int64_t pieces;
    /* The number of segments of one worker. */
    int64_t segments;
    /* The number of units of the fullest worker. 0: the step is cut by tiles, so units do not
     * count. */
    int64_t units;
} fig_tune_work;
/* Computes the work of a step for the class and variant in *of. The step must give kv_lengths.
 * FIG_INVALID: class, variant or step is wrong. FIG_TOO_LARGE: rows or lengths exceed the graphs'
 * spec. */
FIG_API fig_status fig_graphs_tune_work(const fig_graphs *graphs, const fig_tune_costs *of,
                                        const fig_step *step, fig_tune_work *work);

/* Lowers as fig_graphs_lower() does, but each bucket only in the given variant. */
FIG_API fig_status fig_graphs_lower_variant(fig_graphs **graphs, const fig_program *program,
                                            const fig_lower_options *options, int32_t variant);

/* Copies graphs with new records for the machine that they are lowered for. The new records replace
 * all earlier ones for that machine, and the variants of each bucket are chosen again. costs:
 * [count], each class and variant at most once. The caller owns *tuned. FIG_INVALID: the graphs are
 * deterministic, or a figure is out of range. */
FIG_API fig_status fig_graphs_tune(fig_graphs **tuned, const fig_graphs *graphs,
                                   const fig_tune_costs *costs, int32_t count);

/* The numbers of records that graphs hold. */
typedef struct fig_tune_info {
    uint32_t size; /* sizeof(fig_tune_info) */
    /* The number of records that the model uses. */
    int32_t used;
    /* The number of records for other machines. */
    int32_t foreign;
    /* The number of records for this machine that are out of date: another version of the library
     * measured them, or the variant has changed since. */
    int32_t stale;
} fig_tune_info;
/* Counts the records. */
FIG_API fig_status fig_graphs_tune_info(const fig_graphs *graphs, fig_tune_info *info);

#ifdef __cplusplus
}
#endif
#endif
