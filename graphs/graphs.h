/* graphs.h: a finished program with its buckets: what a file stands for and an engine runs.
 *
 * Immutable once made, so engines on several threads may share one. Launches are not kept: lowering
 * is cheap and pure, and whoever needs a bucket's launches lowers it. */
#ifndef FIG_GRAPHS_GRAPHS_H
#define FIG_GRAPHS_GRAPHS_H

#include "graphs/files/codec.h"
#include "graphs/program.h"

/* Launches of all buckets; what bounds the time that reading a file may take. */
enum { FIG_LAUNCH_LIMIT = 1 << 18 };

/* An engine's ring of plans: how deep it may be, and is where nobody says. */
enum { FIG_SLOT_LEAST = 2, FIG_SLOT_LIMIT = 64, FIG_SLOT_DEFAULT = 4 };

/* Pages that travel ahead of plans pass through so much pinned memory. */
enum { FIG_GRAPHS_BULK_BYTES = 256 << 10 };

struct fig_graphs {
    fig_program *program;
    fig_lower_target target;
    fig_codec_maker maker;
    fig_bucket_shape *buckets; /* [bucket_count] */
    uint64_t *digests;         /* [bucket_count] of what this library lowers */
    uint64_t *made_digests;    /* [bucket_count] of what the maker lowered, or as digests */
    uint32_t bucket_count;
    fig_workspace workspace; /* of all buckets */
    fig_lower_common common; /* what all buckets are lowered from */
    uint32_t *exec_buckets;  /* [exec_count] the last bucket of those that share an exec */
    uint32_t exec_count;     /* buckets that lower to different launches */
    uint64_t plan_bytes;     /* the largest bucket's bound */
    uint8_t content_id[32];
    fig_notes notes;
    fig_archive archive;      /* of the maker's images */
    uint32_t changed_kernels; /* bit op: its row in the maker's table was another */
    int32_t ranks;            /* 1; above, these are the share of one of so many, and never saved */
    fig_spec model;           /* whose share they are; their own spec where ranks is 1 */
};

/* Entries of page tables that one plan may change: two for each row of a step, and some. */
uint32_t fig_graphs_page_limit(const fig_graphs *graphs);
/* Of a slot of the ring: the largest plan and its pages; a multiple of 64. */
uint32_t fig_graphs_slot_bytes(const fig_graphs *graphs);

/* Of the device, for one exec; estimated. */
uint64_t fig_memory_exec_bytes(const fig_graphs *graphs);

/* What lowering chooses by, beside its options. */
typedef struct fig_graphs_choice {
    int32_t variant;          /* of every bucket; -1: those that are worth having */
    const fig_tuning *tuning; /* NULL: none */
} fig_graphs_choice;
fig_status fig_graphs_make(fig_graphs **graphs, const fig_program *program,
                           const fig_lower_options *options, const fig_graphs_choice *choice);
/* Makes graphs of their parts, which it takes over, also where it fails: they are zeros then.
 * Buckets are sorted, without repeats. made_digests: NULL where the graphs are being made here. */
fig_status fig_graphs_assemble(fig_graphs **graphs, fig_codec_parts *parts);
/* The bytes of a file. *bytes is the caller's to free. */
fig_status fig_graphs_write(const fig_graphs *graphs, uint8_t **bytes, size_t *count);

#endif
