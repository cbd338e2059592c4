/* status.c: keeps the thread's last message, and copies structs of callers that were compiled with
 * another version of the header.
 *
 * Owns the one buffer that fig_message() returns; leaves printing to programs. Invariant: the
 * message is one line, always terminated, and changes only when a call of this thread fails. */
#include "planner/status.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MESSAGE_BYTES = 512 };

static _Thread_local char last_message[MESSAGE_BYTES];

/* A name from a damaged file may hold any bytes, but a message is one line on a terminal. */
static void hide_control_characters(char *text) {
    for (; *text != '\0'; text++) {
        unsigned char byte = (unsigned char)*text;
        if (byte < 0x20 || byte == 0x7f) *text = '?';
    }
}

/* Formats into a separate buffer, because an argument may be the last message itself. */
__attribute__((format(printf, 2, 0))) static void put(const char *before, const char *format,
                                                      va_list arguments) {
    char text[MESSAGE_BYTES] = {0};
    const size_t start = strlen(before);
    memcpy(text, before, start);
    int length = vsnprintf(text + start, sizeof text - start, format, arguments);
    if (length < 0) text[start] = '\0';
    if (length >= (int)(sizeof text - start)) memcpy(text + MESSAGE_BYTES - 4, "...", 4);
    hide_control_characters(text);
    memcpy(last_message, text, sizeof text);
}

fig_status fig_fail(fig_status status, const char *format, ...) {
    assert(status != FIG_OK);
    va_list arguments;
    va_start(arguments, format);
    put("", format, arguments);
    va_end(arguments);
    return status;
}

fig_status fig_status_own_fault(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    put("a fault of libfigraph's own: ", format, arguments);
    va_end(arguments);
    return FIG_FAULT;
}

fig_status fig_status_relay(fig_status status, const char *sentence) {
    assert(sentence != NULL);
    return fig_fail(status, "%s", sentence);
}

static int is_size(uint32_t size) {
    return size >= sizeof size && size <= FIG_STATUS_SIZE_LIMIT;
}

static fig_status refuse_size(uint32_t size, const char *name) {
    return fig_fail(FIG_INVALID, "%s: size is %u, it must be sizeof(%s)", name, size, name);
}

fig_status fig_status_take_options(void *ours, size_t ours_bytes, const void *theirs,
                                   const char *name) {
    const uint32_t our_size = (uint32_t)ours_bytes;
    uint32_t size = 0;
    assert(ours != NULL && ours != theirs);
    assert(ours_bytes >= sizeof size && ours_bytes <= UINT32_MAX);
    memset(ours, 0, ours_bytes);
    memcpy(ours, &our_size, sizeof our_size);
    if (theirs == NULL) return FIG_OK;

    memcpy(&size, theirs, sizeof size);
    if (!is_size(size)) return refuse_size(size, name);
    /* Fields that only a newer header has are harmless if they all hold 0, the default. */
    const uint8_t *bytes = theirs;
    for (size_t i = ours_bytes; i < size; i++) {
        if (bytes[i] == 0) continue;
        return fig_fail(FIG_INVALID,
                        "%s: size is %u, this library knows %zu bytes and byte %zu is not 0", name,
                        size, ours_bytes, i);
    }
    memcpy(ours, theirs, size < ours_bytes ? size : ours_bytes);
    memcpy(ours, &our_size, sizeof our_size);
    return FIG_OK;
}

fig_status fig_status_give(void *theirs, const void *ours, size_t ours_bytes, const char *name) {
    uint32_t size;
    const size_t skip = sizeof size;
    if (theirs == NULL) return fig_fail(FIG_INVALID, "%s: NULL", name);
    memcpy(&size, theirs, sizeof size);
    if (!is_size(size)) return refuse_size(size, name);
    memset((uint8_t *)theirs + skip, 0, size - skip);
    if (size > ours_bytes) size = (uint32_t)ours_bytes;
    memcpy((uint8_t *)theirs + skip, (const uint8_t *)ours + skip, size - skip);
    return FIG_OK;
}

const char *fig_status_name(fig_status status) {
    switch (status) {
    case FIG_OK: return "FIG_OK";
    case FIG_INVALID: return "FIG_INVALID";
    case FIG_ORDER: return "FIG_ORDER";
    case FIG_TOO_LARGE: return "FIG_TOO_LARGE";
    case FIG_UNBOUND: return "FIG_UNBOUND";
    case FIG_UNSUPPORTED: return "FIG_UNSUPPORTED";
    case FIG_CALLBACK: return "FIG_CALLBACK";
    case FIG_BUSY: return "FIG_BUSY";
    case FIG_TIMEOUT: return "FIG_TIMEOUT";
    case FIG_IO: return "FIG_IO";
    case FIG_FORMAT: return "FIG_FORMAT";
    case FIG_STALE: return "FIG_STALE";
    case FIG_NOMEM: return "FIG_NOMEM";
    case FIG_NO_DEVICE: return "FIG_NO_DEVICE";
    case FIG_DRIVER: return "FIG_DRIVER";
    case FIG_LOST: return "FIG_LOST";
    case FIG_FAULT: return "FIG_FAULT";
    }
    return "no fig_status";
}

int32_t fig_status_is_retryable(fig_status status) {
    return status / 10 == 2;
}

const char *fig_message(void) {
    return last_message;
}

int32_t fig_version(void) {
    return FIG_VERSION;
}
