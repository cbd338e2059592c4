/* session.h: opens an engine for any standard step and binds tensors of synthetic data.
 *
 * Owns the engine, the page table, and a host copy (a mirror) of every tensor. Invariant: a mirror
 * equals the device's tensor wherever figraph.h defines the contents, except that the mirror of an
 * output holds the values that were last read. */
#ifndef FIG_TOOLS_SESSION_H
#define FIG_TOOLS_SESSION_H

#include <figraph_archive.h>
#include <figraph_scores.h>

#include "tools/figraph/step/compiled.h"
#include "tools/figraph/step/schedule.h"

typedef enum fig_session_kind {
    FIG_SESSION_GATE_UP,
    FIG_SESSION_ACT,
    FIG_SESSION_Q,
    FIG_SESSION_K,
    FIG_SESSION_V,
    FIG_SESSION_K_CACHE,
    FIG_SESSION_V_CACHE,
    FIG_SESSION_OUT,
    FIG_SESSION_Q_NORM,
    FIG_SESSION_K_NORM,
    FIG_SESSION_K_SCALE,
    FIG_SESSION_V_SCALE,
    FIG_SESSION_SINKS,
    FIG_SESSION_LATENT,
    FIG_SESSION_LATENT_NORM,
    FIG_SESSION_Q_ROPE, /* the last values of each head; without it, q has them */
    FIG_SESSION_ARRAY,      /* an array of the step's score, which all layers read */
    FIG_SESSION_PAGE_TABLE, /* this kind and all below belong to no layer */
    FIG_SESSION_WINDOW_TABLE,
    FIG_SESSION_KIND_COUNT
} fig_session_kind;

typedef struct fig_session_tensor {
    fig_tensor_info info;
    fig_session_kind kind;
    int32_t layer;
    int64_t count;    /* the size of dims[0] in the mirror */
    size_t row_bytes; /* the bytes of one index of dims[0] */
    uint8_t *mirror;  /* [count][row_bytes]; NULL for a page table */
} fig_session_tensor;

typedef struct fig_session {
    const fig_graphs *graphs;
    fig_graphs_info info;
    fig_score *score; /* the score of attention in every layer; NULL: none */
    fig_engine *engine;
    fig_session_tensor *tensors; /* [tensor_count] */
    int32_t tensor_count;
    int32_t *places; /* [layers][FIG_SESSION_KIND_COUNT]: index into tensors; -1: none */
    int32_t page_tokens, sequence_pages, sequence_count;
    int32_t *sequences;             /* [row] the sequence that the row continues */
    int32_t *page_order;            /* [page_count] a random order, used from the front */
    int32_t *page_table;            /* [sequence_count][sequence_pages] */
    int32_t *held;                  /* [sequence_count] pages of the sequence in the table */
    int32_t page_count, pages_used; /* pages of the caches */
    fig_synthetic synthetic;
} fig_session;

typedef struct fig_session_options {
    const fig_graphs *graphs;
    fig_device device;
    const fig_trust *trust; /* the file's kernels that may run; NULL: the library's own */
    fig_compiled compiled;
    fig_schedule_options
        schedule; /* the steps to replay, for which the caches must be large enough */
} fig_session_options;

/* Returns FIG_EXIT_*; refuses a program that is not the standard step, see standard.h. close frees
 * everything, also after a failed open. */
int fig_session_open(fig_session *session, const fig_session_options *options);
void fig_session_close(fig_session *session);

/* Finds a tensor of a layer; NULL: the step does not have it. */
fig_session_tensor *fig_session_find(const fig_session *session, int32_t layer,
                                     fig_session_kind kind);

/* Finds the tensor of an array of the score. */
const fig_session_tensor *fig_session_array(const fig_session *session, const char *name);

/* Returns the number of the tensor's rows in the schedule's current step. */
int32_t fig_session_rows(const fig_schedule *schedule, const fig_session_tensor *tensor);

/* Call it before a step. Gives every sequence the pages that it grows into, filled with synthetic
 * tokens, and gives every input fresh rows. */
int fig_session_feed(fig_session *session, const fig_schedule *schedule);

/* Call it before a timed step. Prepares only the bucket of this step, because a file may have
 * thousands of buckets. */
int fig_session_prepare(fig_session *session, const fig_step *step);

/* Reads a range of a tensor's bytes into `to`, which may be its mirror. */
int fig_session_read(fig_session *session, const fig_session_tensor *tensor, size_t offset,
                     size_t bytes, void *to);

#endif
