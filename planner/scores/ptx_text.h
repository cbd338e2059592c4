/* ptx_text.h: a text that grows.
 *
 * A failed append is remembered, so a writer checks the text once, at the end. Invariant: after
 * memory ran out, the text stays as it is. */
#ifndef FIG_PLANNER_PTX_TEXT_H
#define FIG_PLANNER_PTX_TEXT_H

#include <stddef.h>

/* All zeros: an empty text. */
typedef struct fig_ptx_text {
    char *bytes; /* [count], and a NUL */
    size_t count, capacity;
    int is_short; /* 1: memory ran out */
} fig_ptx_text;

void fig_ptx_text_put(fig_ptx_text *text, const char *bytes, size_t count);
void fig_ptx_text_say(fig_ptx_text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void fig_ptx_text_finish(fig_ptx_text *text); /* accepts a zeroed struct */

#endif
