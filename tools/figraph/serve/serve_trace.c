/* serve_trace.c: reads requests from a CSV file, or generates them with ShareGPT's means.
 *
 * Generated lengths are lognormal with the means of ShareGPT's conversations and a long tail;
 * generated arrivals are a Poisson process. The loop applies the arrival times. */
#include "tools/figraph/serve/serve_trace.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/figraph/step/synthetic.h"
#include "tools/figraph/terminal/report.h"
#include "tools/figraph/terminal/text.h"

static const char header[] = "arrival_s,prompt_tokens,output_tokens";
enum { LINE_BYTES = 256 };
static const double ARRIVAL_LIMIT_S = 1e9;

/* A lognormal distribution, given by its mean and the spread of its logarithm. */
typedef struct lognormal {
    double mean, sigma;
} lognormal;
static const lognormal prompts = {220, 1.2}, outputs = {200, 0.9};

/* Adds a zeroed request at the end of the list; returns NULL after a refusal. */
static fig_serve_request *add(fig_serve_trace *trace) {
    if (trace->count == trace->capacity) {
        const int32_t capacity = trace->capacity > 0 ? 2 * trace->capacity : 64;
        fig_serve_request *more =
            realloc(trace->requests, (size_t)capacity * sizeof *trace->requests);
        if (more == NULL) {
            fig_report_refuse("serve: no memory for %d requests", capacity);
            return NULL;
        }
        trace->requests = more;
        trace->capacity = capacity;
    }
    fig_serve_request *request = &trace->requests[trace->count++];
    *request = (fig_serve_request){0};
    return request;
}

/* ---- Reading ----------------------------------------------------------------------------- */

/* Reads a line and cuts off its end, LF or CR LF. Returns 1; 0 if the file has ended; -1 if the
 * line is longer than any request, or holds a NUL, which would hide the rest of the line. */
static int read_line(FILE *file, char line[LINE_BYTES]) {
    int length = 0, c;
    while ((c = getc(file)) != EOF && c != '\n') {
        if (c == '\0' || length == LINE_BYTES - 1) return -1;
        line[length++] = (char)c;
    }
    if (c == EOF && (length == 0 || ferror(file))) return 0;
    if (length > 0 && line[length - 1] == '\r') length--;
    line[length] = '\0';
    return 1;
}

/* Skips the UTF-8 byte order mark that a spreadsheet may write and that no editor shows. */
static const char *behind_mark(const char *line) {
    static const char mark[] = "\xef\xbb\xbf";
    return strncmp(line, mark, strlen(mark)) == 0 ? line + strlen(mark) : line;
}

static int is_blank(const char *line) {
    return line[strspn(line, " ")] == '\0';
}

/* Returns 1 if only blank lines follow. */
static int is_at_end(FILE *file) {
    char line[LINE_BYTES];
    for (int got; (got = read_line(file, line)) != 0;)
        if (got < 0 || !is_blank(line)) return 0;
    return 1;
}

/* Reads a time and the comma after it, and moves *at past both. */
static int read_arrival(char **at, int64_t *ns) {
    char *end;
    const double seconds = strtod(*at, &end);
    const int sound =
        fig_text_is_decimal(*at) && *end == ',' && seconds >= 0 && seconds <= ARRIVAL_LIMIT_S;
    *ns = sound ? llround(seconds * 1e6) * 1000 : 0;
    *at = end + 1;
    return sound;
}

static int read_tokens(char **at, char behind, int32_t *tokens) {
    char *end;
    const long long value = strtoll(*at, &end, 10);
    const int sound =
        fig_text_is_decimal(*at) && *end == behind && value >= 1 && value <= INT32_MAX;
    *tokens = sound ? (int32_t)value : 0;
    *at = end + 1;
    return sound;
}

/* Returns the fault of a line, or "" if there is none. */
static const char *read_request(char *line, fig_serve_request *request) {
    char *at = line;
    if (!read_arrival(&at, &request->arrival_ns)) {
        return "arrival_s must be a number of seconds, 0 to 1e9, and a comma behind it";
    }
    if (!read_tokens(&at, ',', &request->prompt)) {
        return "prompt_tokens must be a whole number, 1 to 2147483647, and a comma behind it";
    }
    if (!read_tokens(&at, '\0', &request->output)) {
        return "output_tokens must be a whole number, 1 to 2147483647, and the last of the line";
    }
    return "";
}

typedef struct reader {
    FILE *file;
    const char *path;
    const fig_serve_limit *limit;
} reader;

static int read_requests(fig_serve_trace *trace, const reader *from) {
    char line[LINE_BYTES];
    int32_t number = 1;
    int64_t before_ns = 0;
    const int headed = read_line(from->file, line) == 1 && strcmp(behind_mark(line), header) == 0;
    if (!headed && !ferror(from->file)) {
        return fig_report_refuse("%s:1: the first line must be %s", from->path, header);
    }
    for (int got; number++, (got = read_line(from->file, line)) != 0;) {
        if (got < 0)
            return fig_report_refuse("%s:%d: the line is too long, or holds a NUL", from->path,
                                     number);
        if (trace->count == FIG_SERVE_REQUEST_LIMIT) {
            return fig_report_refuse("%s:%d: %d requests are the limit", from->path, number,
                                     FIG_SERVE_REQUEST_LIMIT);
        }
        if (is_blank(line)) {
            if (is_at_end(from->file)) break;
            return fig_report_refuse("%s:%d: the line is blank, and it is not the last", from->path,
                                     number);
        }
        fig_serve_request *request = add(trace);
        if (request == NULL) return FIG_EXIT_BAD;
        const char *wrong = read_request(line, request);
        if (*wrong != '\0') {
            return fig_report_refuse("%s:%d: \"%s\": %s", from->path, number, line, wrong);
        }
        if (request->arrival_ns < before_ns) {
            return fig_report_refuse(
                "%s:%d: arrival_s is %.10g, which is before %.10g, that of the line above",
                from->path, number, (double)request->arrival_ns / 1e9, (double)before_ns / 1e9);
        }
        before_ns = request->arrival_ns;
        if ((int64_t)request->prompt + request->output > from->limit->tokens) {
            return fig_report_refuse("%s:%d: prompt_tokens and output_tokens are %d and %d, their "
                                     "sum may be %d at most: %s",
                                     from->path, number, request->prompt, request->output,
                                     from->limit->tokens, from->limit->why);
        }
    }
    if (ferror(from->file)) return fig_report_refuse("%s: %s", from->path, strerror(errno));
    if (trace->count > 0) return FIG_EXIT_FINE;
    return fig_report_refuse("%s:2: there is no request", from->path);
}

/* Opens only a regular file, because opening a pipe would wait for its other end. Prints a sentence
 * on failure. */
static FILE *open_file(const char *path) {
    struct stat info;
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    FILE *file = NULL;
    if (fd >= 0 && fstat(fd, &info) == 0 && !S_ISREG(info.st_mode)) {
        fig_report_refuse("%s: not a regular file", path);
    } else if (fd < 0 || (file = fdopen(fd, "r")) == NULL) {
        fig_report_refuse("%s: %s", path, strerror(errno));
    }
    if (fd >= 0 && file == NULL) close(fd);
    return file;
}

int fig_serve_trace_read(fig_serve_trace *trace, const char *path, const fig_serve_limit *limit) {
    const reader from = {open_file(path), path, limit};
    if (from.file == NULL) return FIG_EXIT_BAD;
    const int code = read_requests(trace, &from);
    fclose(from.file);
    return code;
}

/* ---- Generating -------------------------------------------------------------------------- */

/* Returns a number strictly between 0 and 1, so its logarithm is finite. */
static double draw_part(fig_synthetic *synthetic) {
    enum { PARTS = 1 << 30 };
    return (fig_synthetic_below(synthetic, PARTS) + 0.5) / PARTS;
}

/* Draws a normal number by Box and Muller; e to its power is lognormal. */
static int32_t draw_tokens(fig_synthetic *synthetic, const lognormal *of, int32_t most) {
    const double turn = 6.283185307179586;
    const double radius = sqrt(-2 * log(draw_part(synthetic)));
    const double normal = radius * cos(turn * draw_part(synthetic));
    const double mu = log(of->mean) - of->sigma * of->sigma / 2;
    const double tokens = round(exp(mu + of->sigma * normal));
    return tokens < 1 ? 1 : tokens > most ? most : (int32_t)tokens;
}

int fig_serve_trace_make(fig_serve_trace *trace, const fig_serve_mix *mix) {
    fig_synthetic synthetic;
    double arrival_s = 0;
    assert(mix->token_limit >= 2 && mix->count <= FIG_SERVE_REQUEST_LIMIT);
    fig_synthetic_seed(&synthetic, mix->seed);
    for (int32_t i = 0; i < mix->count; i++) {
        fig_serve_request *request = add(trace);
        if (request == NULL) return FIG_EXIT_BAD;
        if (mix->rate > 0) arrival_s -= log(draw_part(&synthetic)) / mix->rate;
        if (arrival_s > ARRIVAL_LIMIT_S) arrival_s = ARRIVAL_LIMIT_S;
        request->arrival_ns = llround(arrival_s * 1e6) * 1000;
        request->prompt = draw_tokens(&synthetic, &prompts, mix->token_limit - 1);
        request->output = draw_tokens(&synthetic, &outputs, mix->token_limit - request->prompt);
    }
    return FIG_EXIT_FINE;
}

/* ---- Writing ----------------------------------------------------------------------------- */

int fig_serve_trace_write(const fig_serve_trace *trace, const char *path) {
    FILE *file = fopen(path, "w");
    if (file == NULL) return fig_report_refuse("%s: %s", path, strerror(errno));
    fprintf(file, "%s\n", header);
    for (int32_t i = 0; i < trace->count; i++) {
        const fig_serve_request *request = &trace->requests[i];
        const int64_t us = request->arrival_ns / 1000;
        fprintf(file, "%" PRId64 ".%06" PRId64 ",%d,%d\n", us / 1000000, us % 1000000,
                request->prompt, request->output);
    }
    struct stat status;
    const int is_file = fstat(fileno(file), &status) == 0 && S_ISREG(status.st_mode);
    const int failed = ferror(file);
    errno = 0;
    if (fclose(file) == 0 && !failed) return FIG_EXIT_FINE;
    const int code =
        fig_report_refuse("%s: %s", path, errno != 0 ? strerror(errno) : "a write failed");
    if (is_file) unlink(path); /* an incomplete trace could pass for a complete one */
    return code;
}

void fig_serve_trace_finish(fig_serve_trace *trace) {
    free(trace->requests);
    *trace = (fig_serve_trace){0};
}

fig_serve_totals fig_serve_trace_totals(const fig_serve_trace *trace) {
    fig_serve_totals totals = {0};
    for (int32_t i = 0; i < trace->count; i++) {
        const fig_serve_request *request = &trace->requests[i];
        const int32_t tokens = request->prompt + request->output;
        if (tokens > totals.longest) totals.longest = tokens;
        totals.prompt += request->prompt;
        totals.output += request->output;
    }
    return totals;
}
