/* serve_trace.h: reads or generates the requests of figraph serve, with arrival times and lengths.
 *
 * Owns the list. Invariant: arrival times never decrease; each request has at least one prompt
 * token and one output token, and both together do not exceed the given limit. */
#ifndef FIG_TOOLS_SERVE_TRACE_H
#define FIG_TOOLS_SERVE_TRACE_H

#include <stdint.h>

enum { FIG_SERVE_REQUEST_LIMIT = 1000000 };

typedef struct fig_serve_request {
    int64_t arrival_ns;     /* a whole number of microseconds, so that a file keeps it */
    int32_t prompt, output; /* tokens */
} fig_serve_request;

typedef struct fig_serve_trace { /* starts zeroed */
    fig_serve_request *requests; /* [count] */
    int32_t count, capacity;
} fig_serve_trace;

/* The most tokens of one request; `why` ends the message that refuses more. */
typedef struct fig_serve_limit {
    int32_t tokens;
    const char *why;
} fig_serve_limit;

/* Reads arrival_s,prompt_tokens,output_tokens. Returns FIG_EXIT_*; the message names the line. */
int fig_serve_trace_read(fig_serve_trace *trace, const char *path, const fig_serve_limit *limit);

/* Generated requests: lengths like those of chats, and independent (Poisson) arrivals. */
typedef struct fig_serve_mix {
    int32_t count;
    double rate; /* requests per second; 0: all arrive at once */
    uint64_t seed;
    int32_t token_limit; /* >= 2 */
} fig_serve_mix;
int fig_serve_trace_make(fig_serve_trace *trace, const fig_serve_mix *mix);

int fig_serve_trace_write(const fig_serve_trace *trace, const char *path);
void fig_serve_trace_finish(fig_serve_trace *trace);

/* The tokens of the longest request, of all prompts and of all outputs. */
typedef struct fig_serve_totals {
    int32_t longest;
    int64_t prompt, output;
} fig_serve_totals;
fig_serve_totals fig_serve_trace_totals(const fig_serve_trace *trace);

#endif
