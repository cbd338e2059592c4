/* serve_trace.h: the requests of figraph serve: when each comes, how much it asks and is told.
 *
 * Owns the list, read from a CSV file or made up. Invariant: arrivals do not fall; a request has at
 * least one token of each kind and no more of both than the limit it was made or read under. */
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

/* Most tokens of one request; `why` ends the sentence that refuses more. */
typedef struct fig_serve_limit {
    int32_t tokens;
    const char *why;
} fig_serve_limit;

/* Reads arrival_s,prompt_tokens,output_tokens. Returns FIG_EXIT_*; a sentence names the line. */
int fig_serve_trace_read(fig_serve_trace *trace, const char *path, const fig_serve_limit *limit);

/* Lengths as people's chats with a model have them, and arrivals as of people who do not know of
 * each other. */
typedef struct fig_serve_mix {
    int32_t count;
    double rate; /* requests a second; 0: all are there at once */
    uint64_t seed;
    int32_t token_limit; /* >= 2 */
} fig_serve_mix;
int fig_serve_trace_make(fig_serve_trace *trace, const fig_serve_mix *mix);

int fig_serve_trace_write(const fig_serve_trace *trace, const char *path);
void fig_serve_trace_finish(fig_serve_trace *trace);

/* Tokens of the longest request; of all prompts; of all outputs. */
typedef struct fig_serve_totals {
    int32_t longest;
    int64_t prompt, output;
} fig_serve_totals;
fig_serve_totals fig_serve_trace_totals(const fig_serve_trace *trace);

#endif
