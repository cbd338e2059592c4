/* session.h: an engine with made-up tensors bound, for any standard step.
 *
 * Owns the engine, the caller's side of every tensor (a mirror) and the page table. Invariant: a
 * mirror holds what the device's tensor does, as far as the contract of figraph.h tells; of an
 * output it holds what was last read. */
#ifndef FIG_TOOLS_SESSION_H
#define FIG_TOOLS_SESSION_H

#include <figraph_archive.h>

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
    FIG_SESSION_PAGE_TABLE, /* of no layer, as all from here on */
    FIG_SESSION_WINDOW_TABLE,
    FIG_SESSION_KIND_COUNT
} fig_session_kind;

typedef struct fig_session_tensor {
    fig_tensor_info info;
    fig_session_kind kind;
    int32_t layer;
    int64_t count;    /* of dims[0] in the mirror */
    size_t row_bytes; /* of one of dims[0] */
    uint8_t *mirror;  /* [count][row_bytes]; NULL for a page table */
} fig_session_tensor;

typedef struct fig_session {
    const fig_graphs *graphs;
    fig_graphs_info info;
    fig_engine *engine;
    fig_session_tensor *tensors; /* [tensor_count] */
    int32_t tensor_count;
    int32_t *places; /* [layers][FIG_SESSION_KIND_COUNT]: index into tensors; -1: none */
    int32_t page_tokens, sequence_pages, sequence_count;
    int32_t *sequences;             /* [row]: whose tokens */
    int32_t *page_order;            /* [page_count]: a random order, taken from the front */
    int32_t *page_table;            /* [sequence_count][sequence_pages] */
    int32_t *held;                  /* [sequence_count]: pages of it in the table */
    int32_t page_count, pages_used; /* of the caches */
    fig_synthetic synthetic;
} fig_session;

typedef struct fig_session_options {
    const fig_graphs *graphs;
    fig_device device;
    const fig_trust *trust; /* in kernels that the file holds; NULL: the library's own run */
    fig_schedule_options
        schedule; /* what will be replayed: caches are made as large as it asks for */
} fig_session_options;

/* Returns FIG_EXIT_*; a program that is not the standard step is refused, see standard.h. close
 * frees what was opened, of a failed open too. */
int fig_session_open(fig_session *session, const fig_session_options *options);
void fig_session_close(fig_session *session);

/* NULL where the step has none. */
fig_session_tensor *fig_session_find(const fig_session *session, int32_t layer,
                                     fig_session_kind kind);

/* Before a step: gives every sequence the pages it grows into, filled with made-up tokens, and
 * every input fresh rows. */
int fig_session_feed(fig_session *session, const fig_schedule *schedule);

/* Before a step that is timed: prepares the bucket that it takes, and no other, since a file may
 * have thousands. */
int fig_session_prepare(fig_session *session, const fig_step *step);

/* Reads a stretch of a tensor to `to`, which may be its mirror. */
int fig_session_read(fig_session *session, const fig_session_tensor *tensor, size_t offset,
                     size_t bytes, void *to);

#endif
