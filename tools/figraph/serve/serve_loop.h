/* serve_loop.h: requests served by one engine, or by one on each of several ranks, from the first
 * arrival to the last token. */
#ifndef FIG_TOOLS_SERVE_LOOP_H
#define FIG_TOOLS_SERVE_LOOP_H

#include <figraph_ranks.h>

#include "tools/figraph/serve/serve_trace.h"

typedef struct fig_serve_options {
    const fig_graphs *graphs; /* of a program without calls, whose lengths the host knows */
    const fig_serve_trace *trace;
    fig_device device;
    int32_t ordinal;    /* cuda: which GPU */
    fig_ranks *ranks;   /* that serve the same requests in step; NULL: none beside this one */
    int has_sums;       /* 1: fig_source_lower has put sums over ranks beside the standard step */
    int32_t page_count; /* of the caches; a dense one has a page for each sequence */
    int32_t horizon;    /* most steps of one plan, >= 1 */
    int fast;           /* 1: the clock jumps to the next arrival where nothing runs */
    int check;          /* 1: plans carry checksums, page tables are compared in the end */
    int live;           /* 1: a line on stderr, where that is a terminal */
} fig_serve_options;

/* Times in ns, as the host sees steps end. */
typedef struct fig_serve_result {
    fig_device device;
    int32_t rows_most, pages_most;
    int64_t done, tokens, rows; /* requests; tokens made; rows of all steps */
    int64_t plans, preemptions;
    int64_t steps, ns;
    fig_histogram step;    /* from its launch, or the end of the one before, to its end */
    fig_histogram between; /* from a row's step to its next, preempted or not */
    fig_histogram first;   /* from an arrival to the end of the request's first step */
    fig_engine_stats stats;
} fig_serve_result;

/* Returns FIG_EXIT_*: FAILED where a step did not run as it was planned. */
int fig_serve_run(const fig_serve_options *options, fig_serve_result *result);

#endif
