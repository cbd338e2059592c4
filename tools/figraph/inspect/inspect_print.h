/* inspect_print.h: prints graphs as text, JSON, a page or a drawing. */
#ifndef FIG_TOOLS_INSPECT_PRINT_H
#define FIG_TOOLS_INSPECT_PRINT_H

#include "tools/figraph/inspect/print.h"

/* Formats for people, and formats for programs that follow the library's versions. */
typedef enum fig_print_format {
    FIG_PRINT_TEXT = 0,
    FIG_PRINT_JSON,
    FIG_PRINT_HTML, /* one page that needs nothing else */
    FIG_PRINT_SVG,  /* a drawing of a bucket's launches */
    FIG_PRINT_DOT   /* the same for Graphviz */
} fig_print_format;

typedef struct fig_print_options {
    fig_print_format format;
    /* 0: the summary; else the launches of this bucket. HTML shows both. For 0, HTML and
     * drawings take the bucket of the step, or the last bucket */
    int32_t bucket;
    int32_t columns;     /* the width of a line of text, 40 to 1000; 0: 80 */
    int32_t all_buckets; /* 1: the summary as text has a line for each bucket, not for each batch */
    const fig_step *step; /* for HTML: the step whose split is shown; NULL: none is */
    /* for HTML: the file name in the heading; NULL: the heading has only the model */
    const char *file;
} fig_print_options;

/* options: NULL means all zeros. If the call is refused, failure.h has the message. */
fig_status fig_inspect_print(const fig_graphs *graphs, const fig_print_options *options,
                             fig_write_callback write, void *user);

#endif
