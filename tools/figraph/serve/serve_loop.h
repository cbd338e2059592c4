/* serve_loop.h: serves requests with one engine per rank, from the first arrival to the last token.
 */
#ifndef FIG_TOOLS_SERVE_LOOP_H
#define FIG_TOOLS_SERVE_LOOP_H

#include <figraph_ranks.h>
#include <signal.h>

#include "tools/figraph/serve/serve_trace.h"
#include "tools/figraph/step/compiled.h"

typedef struct fig_serve_options {
    /* the graphs of a program without calls; the host knows its lengths */
    const fig_graphs *graphs;
    const fig_serve_trace *trace;
    fig_device device;
    int32_t ordinal; /* with CUDA: the number of the GPU */
    /* the ranks that serve the same requests in step; NULL: only this process */
    fig_ranks *ranks;
    int has_sums;       /* 1: fig_source_lower has added sums over ranks to the standard step */
    int32_t page_count; /* pages of each cache; a dense cache has one per sequence */
    int32_t horizon;    /* the largest number of steps of one plan, >= 1 */
    /* the most prompt tokens of a step, whose program is packed; 0: prompts count as cached */
    int32_t chunk;
    fig_compiled compiled;
    int fast; /* 1: the clock jumps to the next arrival if no request runs */
    /* 1: plans carry checksums, and page tables are compared at the end; with a chunk, each step
     * waits for its end and has every element of its outputs compared */
    int check;
    int live;                          /* 1: prints a line on stderr if that is a terminal */
    const volatile sig_atomic_t *stop; /* not 0: stop serving; NULL: nothing stops it */
} fig_serve_options;

/* Times are in ns, measured when the host sees a step end. */
typedef struct fig_serve_result {
    fig_device device;
    int32_t rows_most, pages_most;
    int64_t done, tokens, rows;          /* requests; tokens made; rows of all steps */
    int64_t prompt_tokens, prompt_steps; /* computed tokens; steps that computed some */
    int64_t compared;                    /* elements of outputs */
    int64_t plans, preemptions;
    int64_t steps, ns;
    int stopped;           /* 1: it was stopped before all requests were done */
    fig_histogram step;    /* from a step's launch, or the end of the step before, to its end */
    fig_histogram between; /* from one step of a request to its next, preempted or not */
    fig_histogram beside;  /* those of `between` whose later step also computed prompts */
    fig_histogram first;   /* from an arrival to the end of the step with the first token */
    fig_engine_stats stats;
} fig_serve_result;

/* Returns FIG_EXIT_*: FIG_EXIT_FAILED if a step did not run as it was planned. */
int fig_serve_run(const fig_serve_options *options, fig_serve_result *result);

#endif
