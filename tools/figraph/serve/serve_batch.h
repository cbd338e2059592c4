/* serve_batch.h: decides which requests run and which wait, without an engine or a clock.
 *
 *     trace      0 1 2 3 4 5 | 6 7 8 | 9 ...
 *                ran or run  | wait  | still to come: `next` and `arrived` are the two borders
 *     preempted  [5 4]         a stack: they came before 6 and are the first to join again
 *     rows       [0 3 2]       compact: the last row replaces a row that leaves
 *
 * With a budget of prompt tokens a request begins with an empty cache. A row then has the tokens of
 * its next step as query tokens: a chunk of its prompt, or the token that it made last. Rows that
 * decode always have theirs; the budget goes to prompts in order of arrival, and a row that gets
 * none rests. A preempted request computes its prompt and its output again.
 *
 * Requests are served in order of arrival. When pages run out, the running request that arrived
 * last gives up its pages. Invariant: every preempted request arrived after every running one, and
 * the top of the stack arrived first. So the oldest request is never preempted, and every request
 * ends. */
#ifndef FIG_TOOLS_SERVE_BATCH_H
#define FIG_TOOLS_SERVE_BATCH_H

#include "tools/figraph/serve/serve_pages.h"
#include "tools/figraph/serve/serve_trace.h"

typedef struct fig_serve_batch {
    const fig_serve_trace *trace;
    fig_serve_pages pages;
    int32_t row_limit;
    int32_t row_tokens; /* query tokens per row; serve counts all of them as accepted */
    int32_t rows;
    int32_t chunk;      /* the most prompt tokens of a step; 0: prompts count as cached */
    int32_t *lengths;   /* [row_limit], `rows` of them: tokens, including the next step's */
    int32_t *queries;   /* [row_limit], `rows` of them: query tokens of the next step */
    int32_t *requests;  /* [row_limit], `rows` of them: the requests of the rows */
    int32_t *sequences; /* [row_limit]: each sequence once; those from `rows` on are free */
    int32_t *cached;    /* [row_limit], `rows` of them: tokens in the cache; only with a chunk */
    int32_t *made;      /* [trace->count] output tokens made so far */
    int32_t *preempted; /* [row_limit], preempted_count of them */
    int32_t preempted_count;
    int32_t next, arrived;
    int64_t preemptions;
} fig_serve_batch;

typedef struct fig_serve_batch_options {
    const fig_serve_trace *trace;  /* owned by the caller; each request fits the pages */
    fig_serve_pages_options pages; /* as many sequences as rows */
    int32_t row_tokens;            /* with a chunk: the most query tokens of a row */
    int32_t chunk;
} fig_serve_batch_options;

/* Returns FIG_EXIT_*; finish also accepts a zeroed struct. */
int fig_serve_batch_init(fig_serve_batch *batch, const fig_serve_batch_options *options);
void fig_serve_batch_finish(fig_serve_batch *batch);

/* Puts all requests that have arrived by this time in line. */
void fig_serve_batch_arrive(fig_serve_batch *batch, int64_t now_ns);
int32_t fig_serve_batch_waiting(const fig_serve_batch *batch);
/* 1: there are a row and pages for the first request in line, and a page remains for each running
 * request that will need one. */
int fig_serve_batch_can_join(const fig_serve_batch *batch);
/* Lets the first request in line join, and gives it pages; call it only if
 * fig_serve_batch_can_join() returns 1. Pass *change to the engine.
 * */
void fig_serve_batch_join(fig_serve_batch *batch, fig_pages *change);
/* Takes row and pages from the running request that arrived last, which becomes the first in line.
 * At least one request must run. */
void fig_serve_batch_preempt(fig_serve_batch *batch);

/* Returns the number of steps, at most `most`, that one plan can serve: no row ends before the last
 * of them and there are enough free pages. At least 1, because the next step already has its
 * pages. */
int32_t fig_serve_batch_horizon(const fig_serve_batch *batch, int32_t most);
/* Call it before a step is planned: shares the budget of prompt tokens among the rows, and sets
 * lengths and queries. Returns the prompt tokens of the step. Without a budget it does nothing. */
int32_t fig_serve_batch_share(fig_serve_batch *batch);
/* The results of a launched step. */
typedef struct fig_serve_batch_made {
    int32_t tokens, rows; /* output tokens; rows that make output tokens */
} fig_serve_batch_made;
/* Call it after a launch: rows grow, and rows that have made all of their output leave. requests:
 * [row_limit] receives the requests of the rows that make output tokens. */
fig_serve_batch_made fig_serve_batch_advance(fig_serve_batch *batch, int32_t *requests);

#endif
