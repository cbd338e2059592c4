/* diff.h: compares two graphs. A difference that several layers or buckets share is reported
 * once. */
#ifndef FIG_TOOLS_DIFF_H
#define FIG_TOOLS_DIFF_H

#include <figraph.h>

typedef struct fig_difference {
    int32_t times;       /* the number of differences that share this entry */
    const char *subject; /* "tensor k_cache.N": N stands for the number of each layer */
    const char *where;   /* the first of these subjects: "tensor k_cache.0" */
    const char *field;   /* "dtype"; NULL: only one of the graphs has the subject */
    /* the field's values in graphs a and b, for the first subject; NULL: that graph lacks the field
     * or the subject. If only one graph has the subject, its value is "" */
    const char *a, *b;
} fig_difference;
typedef void (*fig_differ_callback)(void *user, const fig_difference *difference);

/* Reports each difference in the facts of the two graphs: first the subjects that only one of
 * them has, then the fields of subjects that both have. The strings passed to the callback are
 * valid only during that call. Two buckets are compared with each other if they have the same
 * limits and their workers read the same number of heads and tokens at once. On failure
 * failure.h has the message. */
fig_status fig_diff_graphs(const fig_graphs *a, const fig_graphs *b, fig_differ_callback differ,
                           void *user);

#endif
