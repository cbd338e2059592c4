/* ptx_text.c: a text that grows.
 *
 * Invariant: the bytes end in a NUL, which `count` leaves out. */
#include "planner/scores/ptx_text.h"

#include <assert.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int reserve(fig_ptx_text *text, size_t more) {
    if (text->is_short) return 0;
    if (text->count + more < text->capacity) return 1;
    const size_t capacity = 2 * (text->count + more) + 256;
    char *bytes = realloc(text->bytes, capacity);
    text->is_short = bytes == NULL;
    if (bytes == NULL) return 0;
    text->bytes = bytes;
    text->capacity = capacity;
    return 1;
}

void fig_ptx_text_put(fig_ptx_text *text, const char *bytes, size_t count) {
    if (!reserve(text, count)) return;
    memcpy(text->bytes + text->count, bytes, count);
    text->count += count;
    text->bytes[text->count] = '\0';
}

void fig_ptx_text_say(fig_ptx_text *text, const char *format, ...) {
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    const int count = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    assert(count >= 0 && (size_t)count < sizeof line);
    fig_ptx_text_put(text, line, (size_t)count);
}

void fig_ptx_text_finish(fig_ptx_text *text) {
    free(text->bytes);
    *text = (fig_ptx_text){0};
}
