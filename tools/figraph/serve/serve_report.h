/* serve_report.h: what figraph serve says in the end, to people and to programs. */
#ifndef FIG_TOOLS_SERVE_REPORT_H
#define FIG_TOOLS_SERVE_REPORT_H

#include "tools/figraph/serve/serve_loop.h"

typedef struct fig_serve_report {
    const fig_serve_options *options;
    const fig_serve_result *result;
    const char *name; /* of the preset or the file */
    int is_file;      /* 1: of the file */
    int32_t ranks;    /* that served */
    int32_t page_tokens;
    uint64_t page_bytes; /* in all layers */
    int passed;
} fig_serve_report;

void fig_serve_report_print(const fig_serve_report *report);
void fig_serve_report_emit(const fig_serve_report *report);

#endif
