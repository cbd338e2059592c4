/* serve_batch.h: who runs, who waits, and whose each page is; no engine and no clock.
 *
 *     trace      0 1 2 3 4 5 | 6 7 8 | 9 ...
 *                ran or run  | came  | still to come: `next` and `arrived` are the two borders
 *     preempted  [5 4]         a stack: they came before 6 and are the first to join again
 *     rows       [0 3 2]       compact: a row that leaves is replaced by the last
 *
 * Requests are served in the order in which they came, and where pages run out who came last gives
 * its own up. Invariant: of those preempted and those running, the former came last, the top of the
 * stack first; so the oldest is never preempted, and everyone ends. */
#ifndef FIG_TOOLS_SERVE_BATCH_H
#define FIG_TOOLS_SERVE_BATCH_H

#include "tools/figraph/serve/serve_pages.h"
#include "tools/figraph/serve/serve_trace.h"

typedef struct fig_serve_batch {
    const fig_serve_trace *trace;
    fig_serve_pages pages;
    int32_t row_limit;
    int32_t row_tokens; /* of a row in a step; serve takes all of them for accepted */
    int32_t rows;
    int32_t *lengths;   /* [row_limit], `rows` of them: tokens, those of the next step included */
    int32_t *requests;  /* [row_limit], likewise */
    int32_t *sequences; /* [row_limit]: each once; those from `rows` on are nobody's */
    int32_t *made;      /* [trace->count] tokens of its output */
    int32_t *preempted; /* [row_limit], preempted_count of them */
    int32_t preempted_count;
    int32_t next, arrived;
    int64_t preemptions;
} fig_serve_batch;

typedef struct fig_serve_batch_options {
    const fig_serve_trace *trace;  /* the caller's; each request alone fits the pages */
    fig_serve_pages_options pages; /* as many sequences as rows */
    int32_t row_tokens;
} fig_serve_batch_options;

/* Returns FIG_EXIT_*; finish takes a zeroed struct. */
int fig_serve_batch_init(fig_serve_batch *batch, const fig_serve_batch_options *options);
void fig_serve_batch_finish(fig_serve_batch *batch);

/* Those that have come by then stand in line. */
void fig_serve_batch_arrive(fig_serve_batch *batch, int64_t now_ns);
int32_t fig_serve_batch_waiting(const fig_serve_batch *batch);
/* 1: there are a row and pages for the first in line, and a page is left for each who runs and will
 * need one. */
int fig_serve_batch_can_join(const fig_serve_batch *batch);
/* It can: its pages are given, and *change is what the engine is to be told. */
void fig_serve_batch_join(fig_serve_batch *batch, fig_pages *change);
/* Who came last gives up row and pages, and is the first in line; there is a row. */
void fig_serve_batch_preempt(fig_serve_batch *batch);

/* Steps, `most` of them at most, that can be planned at once: before them no row ends, and pages
 * for all are free. At least 1, of which the pages are given already. */
int32_t fig_serve_batch_horizon(const fig_serve_batch *batch, int32_t most);
/* A step was launched: rows grow, and those that have made all of their output leave. Returns how
 * many tokens of outputs it makes. */
int32_t fig_serve_batch_advance(fig_serve_batch *batch);

#endif
