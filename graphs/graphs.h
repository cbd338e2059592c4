/* graphs.h: a finished program with its buckets, as a file holds it and an engine runs it.
 *
 * Graphs do not change after they are made, so engines on several threads may share them. Launches
 * are not kept: lowering is cheap and pure, so a reader of a bucket's launches lowers the bucket
 * again. */
#ifndef FIG_GRAPHS_GRAPHS_H
#define FIG_GRAPHS_GRAPHS_H

#include "graphs/files/codec.h"
#include "graphs/record/program.h"
#include "planner/scores/mask_lines.h"

/* The limit on launches in all buckets together, which bounds the time to read a file. */
enum { FIG_LAUNCH_LIMIT = 1 << 20 };

/* The limits and the default of the number of slots in an engine's ring of plans. */
enum { FIG_SLOT_LEAST = 2, FIG_SLOT_LIMIT = 64, FIG_SLOT_DEFAULT = 4 };

/* The bytes of the pinned memory for page-table entries that are copied ahead of plans. */
enum { FIG_GRAPHS_BULK_BYTES = 256 << 10 };

struct fig_graphs {
    fig_program *program;
    fig_lower_target target;
    fig_codec_maker maker;
    fig_bucket_shape *buckets; /* [bucket_count] */
    uint64_t *digests;         /* [bucket_count] digests of the launches that this library lowers */
    uint64_t *made_digests;    /* [bucket_count] digests of the launches that the maker lowered */
    uint32_t bucket_count;
    fig_workspace workspace; /* shared by all buckets */
    fig_lower_common common; /* shared by the lowerings of all buckets */
    uint32_t *exec_buckets;  /* [exec_count] the last bucket of each exec */
    uint32_t exec_count;     /* the number of buckets with different launches */
    uint64_t plan_bytes;     /* the largest plan of any bucket */
    uint8_t content_id[32];
    fig_notes notes;
    fig_archive archive;      /* the records of the maker's images */
    uint32_t changed_kernels; /* bit op: set if the maker's row differs from this library's */
    int32_t ranks;            /* above 1: these graphs are one rank's share and are never saved */
    fig_spec model;           /* the spec of the whole model; with 1 rank, the graphs' own spec */
};

/* Lists the limits on query tokens of all buckets, including repeats. The caller frees *queries. */
fig_status fig_graphs_queries(const fig_graphs *graphs, int32_t **queries, int32_t *count);

/* Returns the limit on page-table entries that one plan may change: two for each row of a step,
 * plus 64. */
uint32_t fig_graphs_page_limit(const fig_graphs *graphs);
/* Returns the bytes of a ring slot: the largest plan and its pages, rounded up to a multiple of
 * 64. */
uint32_t fig_graphs_slot_bytes(const fig_graphs *graphs);
/* Returns the index of the class in which rows of a step may share tokens, or -1 if there is
 * none. */
int32_t fig_graphs_sharer(const fig_graphs *graphs);
/* Returns the limits for a record of the device's plan that can hold any step. They point into the
 * graphs. */
fig_plan_held_limits fig_graphs_held_limits(const fig_graphs *graphs);

/* As fig_graphs_archive(), with these compiled scores in place of those that the graphs carry.
 * NULL: with those. */
fig_status fig_archiving_save(const fig_graphs *graphs, const char *path,
                              const fig_archive_options *options, const fig_embedded *compiled);

/* Makes room for the masks that the planner knows, for any step. FIG_NOMEM. */
fig_status fig_graphs_mask_lines(const fig_graphs *graphs, fig_mask_lines *lines);

/* Estimates the bytes of device memory that one exec takes. */
uint64_t fig_memory_exec_bytes(const fig_graphs *graphs);

/* The inputs of lowering that are not public options. */
typedef struct fig_graphs_choice {
    int32_t variant;          /* variant of all buckets; -1: all variants that each bucket offers */
    const fig_tuning *tuning; /* NULL: no records */
} fig_graphs_choice;
fig_status fig_graphs_make(fig_graphs **graphs, const fig_program *program,
                           const fig_lower_options *options, const fig_graphs_choice *choice);
/* Makes graphs from their parts. Takes ownership of the parts, even on failure, and leaves zeros in
 * *parts. The buckets must be sorted, and none may occur twice. made_digests must be NULL unless
 * the parts come from a file. */
fig_status fig_graphs_assemble(fig_graphs **graphs, fig_codec_parts *parts);
/* Writes the bytes of a file. The caller frees *bytes. */
fig_status fig_graphs_write(const fig_graphs *graphs, uint8_t **bytes, size_t *count);

#endif
