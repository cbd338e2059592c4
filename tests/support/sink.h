/* sink.h: where a test lets print go.
 *
 * Invariant: text is NUL-terminated after each write, and a test fails where it would not fit. */
#ifndef FIG_TESTS_SUPPORT_SINK_H
#define FIG_TESTS_SUPPORT_SINK_H

#include <stddef.h>

typedef struct fig_sink {
    char text[1 << 16];
    size_t count;
} fig_sink;

/* A fig_write_callback; user: a fig_sink whose count was 0 at first. */
void fig_sink_take(void *user, const char *bytes, size_t count);

#endif
