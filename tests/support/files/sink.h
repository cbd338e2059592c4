/* sink.h: collects the text that a print function writes.
 *
 * Invariant: the text is NUL-terminated after each write. If it would not fit, the test fails. */
#ifndef FIG_TESTS_SUPPORT_SINK_H
#define FIG_TESTS_SUPPORT_SINK_H

#include <stddef.h>

typedef struct fig_sink {
    char text[1 << 16];
    size_t count;
} fig_sink;

/* Is a fig_write_callback. user: a fig_sink whose count was 0 at the beginning. */
void fig_sink_take(void *user, const char *bytes, size_t count);

#endif
