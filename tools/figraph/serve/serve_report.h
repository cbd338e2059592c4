/* serve_report.h: prints the results of figraph serve as text or JSON. */
#ifndef FIG_TOOLS_SERVE_REPORT_H
#define FIG_TOOLS_SERVE_REPORT_H

#include "tools/figraph/serve/serve_loop.h"

typedef struct fig_serve_report {
    const fig_serve_options *options;
    const fig_serve_result *result;
    const char *name; /* the name of the preset or the file */
    int is_file;      /* 1: `name` is a file */
    int32_t ranks;    /* the number of ranks that served */
    int32_t page_tokens;
    uint64_t page_bytes; /* in all layers */
    int passed;
} fig_serve_report;

void fig_serve_report_print(const fig_serve_report *report);
void fig_serve_report_emit(const fig_serve_report *report);

#endif
