/* launch_output.c: reads two pipes of each rank, and writes to stdout and stderr.
 *
 * Invariant: that of launch_output.h. A write is at most PIPE_BUF bytes long and follows a poll()
 * that reports the descriptor writable. So the write does not wait, although stdout may be shared
 * and blocking. */
#include "tools/launch/launch_output.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    LINE_BYTES = 8192, /* bytes of an unfinished line that are kept for a rank */
    /* bytes that wait for the reader of the launcher's output; beyond this the ranks wait */
    PENDING_LIMIT = 1 << 18
};

typedef struct stream {
    int from; /* -1: the stream has ended */
    int sink;
    size_t used;
    char line[LINE_BYTES];
} stream;

typedef struct sink {
    int to;
    int error;   /* of a write that failed; 0: none did */
    char *bytes; /* [capacity]; bytes [first, used) wait */
    size_t first, used, capacity;
} sink;

struct fig_launch_output {
    int32_t count;
    int width;       /* digits of the last rank's number */
    int plain;       /* 1: lines of stdout are printed unchanged */
    stream *streams; /* [2 * count] */
    sink sinks[2];   /* stdout, stderr */
};

fig_launch_output *fig_launch_output_open(int32_t count, int plain) {
    fig_launch_output *out = calloc(1, sizeof *out);
    stream *streams = calloc(2 * (size_t)count, sizeof *streams);
    if (out == NULL || streams == NULL) {
        free(out);
        free(streams);
        return NULL;
    }
    *out = (fig_launch_output){.count = count, .plain = plain, .streams = streams};
    out->width = snprintf(NULL, 0, "%" PRId32, count - 1);
    out->sinks[0].to = STDOUT_FILENO;
    out->sinks[1].to = STDERR_FILENO;
    for (int32_t i = 0; i < 2 * count; i++) {
        streams[i].from = -1;
        streams[i].sink = i % 2;
    }
    return out;
}

void fig_launch_output_close(fig_launch_output *output) {
    if (output == NULL) return;
    for (int32_t i = 0; i < 2 * output->count; i++)
        if (output->streams[i].from >= 0) close(output->streams[i].from);
    free(output->sinks[0].bytes);
    free(output->sinks[1].bytes);
    free(output->streams);
    free(output);
}

void fig_launch_output_take(fig_launch_output *output, int32_t rank, fig_launch_pipes pipes) {
    fcntl(pipes.out, F_SETFL, O_NONBLOCK);
    fcntl(pipes.err, F_SETFL, O_NONBLOCK);
    output->streams[2 * rank].from = pipes.out;
    output->streams[2 * rank + 1].from = pipes.err;
}

/* ---- Lines --------------------------------------------------------------------------------- */

static void append(sink *to, const char *bytes, size_t count) {
    if (to->error != 0) return;
    if (to->used + count > to->capacity && to->first > 0) {
        memmove(to->bytes, to->bytes + to->first, to->used - to->first);
        to->used -= to->first;
        to->first = 0;
    }
    if (to->used + count > to->capacity) {
        const size_t capacity = 2 * (to->used + count);
        char *larger = realloc(to->bytes, capacity);
        if (larger == NULL) return; /* only this line is lost */
        to->bytes = larger;
        to->capacity = capacity;
    }
    memcpy(to->bytes + to->used, bytes, count);
    to->used += count;
}

void fig_launch_output_say(fig_launch_output *output, const char *line) {
    static const char name[] = "figraph-launch: ";
    append(&output->sinks[1], name, sizeof name - 1);
    append(&output->sinks[1], line, strlen(line));
    append(&output->sinks[1], "\n", 1);
}

static void tell_line(fig_launch_output *output, const stream *of, const char *line, size_t bytes) {
    char prefix[32];
    const int32_t rank = (int32_t)(of - output->streams) / 2;
    const int length = snprintf(prefix, sizeof prefix, "[%*" PRId32 "] ", output->width, rank);
    sink *to = &output->sinks[of->sink];
    if (of->sink == 1 || !output->plain) append(to, prefix, (size_t)length);
    append(to, line, bytes);
    append(to, "\n", 1);
}

/* Prints complete lines, and a line that fills the buffer. */
static void tell_lines(fig_launch_output *output, stream *of) {
    size_t first = 0;
    for (;;) {
        const char *line = of->line + first;
        const char *end = memchr(line, '\n', of->used - first);
        if (end == NULL) break;
        tell_line(output, of, line, (size_t)(end - line));
        first = (size_t)(end - of->line) + 1;
    }
    memmove(of->line, of->line + first, of->used - first);
    of->used -= first;
    if (of->used < LINE_BYTES) return;
    tell_line(output, of, of->line, of->used);
    of->used = 0;
}

static void end_stream(fig_launch_output *output, stream *of) {
    if (of->from < 0) return;
    if (of->used > 0) tell_line(output, of, of->line, of->used);
    of->used = 0;
    close(of->from);
    of->from = -1;
}

void fig_launch_output_end(fig_launch_output *output) {
    for (int32_t i = 0; i < 2 * output->count; i++)
        end_stream(output, &output->streams[i]);
}

/* ---- Move ---------------------------------------------------------------------------------- */

static size_t pending(const sink *of) {
    return of->used - of->first;
}

static int is_heard(const fig_launch_output *output, const stream *of) {
    return of->from >= 0 && pending(&output->sinks[of->sink]) < PENDING_LIMIT;
}

int fig_launch_output_waits(const fig_launch_output *output, struct pollfd *waits) {
    int count = 0;
    for (int32_t i = 0; i < 2 * output->count; i++)
        if (is_heard(output, &output->streams[i]))
            waits[count++] = (struct pollfd){.fd = output->streams[i].from, .events = POLLIN};
    for (int i = 0; i < 2; i++)
        if (pending(&output->sinks[i]) > 0)
            waits[count++] = (struct pollfd){.fd = output->sinks[i].to, .events = POLLOUT};
    return count;
}

static int read_stream(fig_launch_output *output, stream *of) {
    const ssize_t got = read(of->from, of->line + of->used, LINE_BYTES - of->used);
    if (got > 0) {
        of->used += (size_t)got;
        tell_lines(output, of);
        return 1;
    }
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    end_stream(output, of);
    return 1;
}

/* Writes as much as the reader takes. If a write fails, as on a full disk, keeps the error and
 * drops the bytes. */
static void write_sink(sink *to) {
    const size_t count = pending(to) < PIPE_BUF ? pending(to) : PIPE_BUF;
    struct pollfd wait = {.fd = to->to, .events = POLLOUT};
    if (count == 0 || poll(&wait, 1, 0) != 1) return;
    const ssize_t sent = write(to->to, to->bytes + to->first, count);
    if (sent > 0) to->first += (size_t)sent;
    if (sent < 0 && errno != EAGAIN && errno != EINTR) {
        to->error = errno;
        to->first = to->used;
    }
    if (to->first == to->used) to->first = to->used = 0;
}

int fig_launch_output_move(fig_launch_output *output) {
    int moved = 0;
    for (int i = 0; i < 2; i++) {
        const size_t before = pending(&output->sinks[i]);
        write_sink(&output->sinks[i]);
        moved |= pending(&output->sinks[i]) != before;
    }
    for (int32_t i = 0; i < 2 * output->count; i++)
        if (is_heard(output, &output->streams[i]))
            moved |= read_stream(output, &output->streams[i]);
    return moved;
}

int fig_launch_output_is_open(const fig_launch_output *output) {
    for (int32_t i = 0; i < 2 * output->count; i++)
        if (output->streams[i].from >= 0) return 1;
    return 0;
}

int fig_launch_output_is_pending(const fig_launch_output *output) {
    return pending(&output->sinks[0]) + pending(&output->sinks[1]) > 0;
}

int fig_launch_output_error(const fig_launch_output *output) {
    return output->sinks[0].error;
}
