/* fuzz_trace.c: checks that an accepted trace of requests keeps its header's promises, and that it
 * is the same after it was written and read again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/figraph/serve/serve_trace.h"
#include "tests/fuzz/fuzz.h"

enum { TOKENS = 1000 };

static void check(const fig_serve_trace *trace) {
    int64_t before = 0;
    for (int32_t i = 0; i < trace->count; i++) {
        const fig_serve_request *of = &trace->requests[i];
        if (of->arrival_ns < before || of->arrival_ns % 1000 != 0) abort();
        if (of->prompt < 1 || of->output < 1 || of->prompt + of->output > TOKENS) abort();
        before = of->arrival_ns;
    }
}

static void write_again(const fig_serve_trace *trace, const fig_serve_limit *limit) {
    const char *path = fig_fuzz_place_bytes((const uint8_t *)"", 0);
    fig_serve_trace again = {0};
    if (fig_serve_trace_write(trace, path) != 0) abort();
    if (fig_serve_trace_read(&again, path, limit) != 0) abort();
    if (again.count != trace->count) abort();
    if (memcmp(again.requests, trace->requests, (size_t)trace->count * sizeof *trace->requests) !=
        0)
        abort();
    fig_serve_trace_finish(&again);
}

int fig_fuzz_trace(const uint8_t *bytes, size_t count) {
    static FILE *nowhere;
    const fig_serve_limit limit = {TOKENS, "that is all"};
    fig_serve_trace trace = {0};
    FILE *kept = stderr;
    if (nowhere == NULL && (nowhere = fopen("/dev/null", "w")) == NULL) abort();
    stderr = nowhere; /* the program prints its refusals to stderr */
    if (fig_serve_trace_read(&trace, fig_fuzz_place_bytes(bytes, count), &limit) == 0) {
        check(&trace);
        write_again(&trace, &limit);
    }
    stderr = kept;
    fig_serve_trace_finish(&trace);
    return 0;
}
