/* report.c: prints refusals, numbers and the progress line, and closes stdout.
 *
 * Owns the form of all messages; the commands decide their content. Invariant: nothing else writes
 * to stderr. */
#include "tools/figraph/terminal/report.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <figraph_tune.h>

#include "tools/figraph/terminal/text.h"

enum { SENTENCE_LIMIT = 1024 };
static const int64_t SECOND_NS = 1000000000;
static const int64_t REDRAW_NS = 100000000;

/* Names that a shell passed may hold line breaks and escapes; a sentence may not. They may also be
 * long; since the fault comes at the end of a sentence, a long one loses its middle. */
static void print_sentence(const char *format, va_list list) {
    static const char between[] = " ... ";
    char sentence[SENTENCE_LIMIT], *whole = NULL;
    va_list again;
    va_copy(again, list);
    const int bytes = vsnprintf(sentence, sizeof sentence, format, list);
    if (bytes >= SENTENCE_LIMIT) whole = malloc((size_t)bytes + 1);
    if (whole != NULL) {
        const size_t head = SENTENCE_LIMIT / 2, tail = sizeof sentence - head - sizeof between;
        vsnprintf(whole, (size_t)bytes + 1, format, again);
        snprintf(sentence + head, sizeof sentence - head, "%s%s", between,
                 whole + (size_t)bytes - tail);
    }
    va_end(again);
    free(whole);
    fig_text_clean(sentence);
    fprintf(stderr, "figraph: %s\n", sentence);
}

int fig_report_refuse(const char *format, ...) {
    va_list list;
    va_start(list, format);
    print_sentence(format, list);
    va_end(list);
    return FIG_EXIT_BAD;
}

int fig_report_failure(const char *format, ...) {
    va_list list;
    va_start(list, format);
    print_sentence(format, list);
    va_end(list);
    return FIG_EXIT_FAILED;
}

int fig_report_status(const char *about) {
    const char *sentence = fig_message();
    if (about == NULL || strstr(sentence, about) != NULL) return fig_report_refuse("%s", sentence);
    return fig_report_refuse("%s: %s", about, sentence);
}

void fig_report_name(const char *name) {
    char shown[SENTENCE_LIMIT];
    snprintf(shown, sizeof shown, "%s", name);
    fig_text_clean(shown);
    fputs(shown, stdout);
}

const char *fig_report_number(char text[FIG_REPORT_NUMBER], int64_t value) {
    char digits[FIG_REPORT_NUMBER];
    int count = snprintf(digits, sizeof digits, "%" PRIu64, (uint64_t)(value < 0 ? -value : value));
    char *to = text;
    if (value < 0) *to++ = '-';
    for (int i = 0; i < count; i++) {
        if (i > 0 && (count - i) % 3 == 0) *to++ = ' ';
        *to++ = digits[i];
    }
    *to = '\0';
    return text;
}

const char *fig_report_count(char text[FIG_REPORT_COUNT], int64_t count, const char *noun) {
    char number[FIG_REPORT_NUMBER];
    snprintf(text, FIG_REPORT_COUNT, "%s %s%s", fig_report_number(number, count), noun,
             count == 1 ? "" : "s");
    return text;
}

const char *fig_report_dtype(fig_dtype dtype) {
    switch (dtype) {
    case FIG_F32: return "f32";
    case FIG_F16: return "f16";
    case FIG_BF16: return "bf16";
    case FIG_E4M3: return "e4m3";
    case FIG_E5M2: return "e5m2";
    case FIG_I32: return "i32";
    case FIG_I64: return "i64";
    }
    return "?";
}

const char *fig_report_activation(fig_activation activation) {
    switch (activation) {
    case FIG_SILU: return "silu";
    case FIG_GELU: return "gelu";
    case FIG_GELU_TANH: return "gelu_tanh";
    case FIG_SWIGLU_LIMITED: return "swiglu_limited";
    }
    return "?";
}

int32_t fig_report_group_heads(const fig_graphs *graphs) {
    fig_graphs_info info = {.size = sizeof info};
    fig_tune_class first = {.size = sizeof first};
    if (fig_graphs_read_info(graphs, &info) != FIG_OK || info.spec->latent_dim == 0 ||
        fig_graphs_tune_class(graphs, 0, &first) != FIG_OK)
        return 0;
    return first.q_heads / first.kv_heads;
}

int32_t fig_report_heads(const fig_graphs *graphs, const fig_bucket_info *info) {
    const int32_t group_heads = fig_report_group_heads(graphs);
    return group_heads > 0 ? group_heads * info->heads : info->heads;
}

/* Containers often set no locale although their terminals show UTF-8. So the output is plain ASCII
 * only if the environment names the locale C or POSIX. */
int fig_report_wide(void) {
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = getenv(names[i]);
        if (value == NULL || *value == '\0') continue;
        return strcmp(value, "C") != 0 && strcmp(value, "POSIX") != 0;
    }
    return 1;
}

int64_t fig_report_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * SECOND_NS + now.tv_nsec;
}

void fig_report_begin(fig_report_progress *progress, const char *what, int64_t total) {
    assert(total >= 0);
    *progress = (fig_report_progress){
        .what = what,
        .total = total,
        .began_ns = fig_report_now_ns(),
        .terminal = isatty(STDERR_FILENO),
    };
}

/* Returns 1 if the line must be drawn again. */
static int is_due(fig_report_progress *progress, int64_t now) {
    return progress->terminal && now - progress->began_ns >= SECOND_NS &&
           now - progress->drawn_ns >= REDRAW_NS;
}

void fig_report_draw(fig_report_progress *progress, const char *format, ...) {
    const int64_t now = fig_report_now_ns();
    va_list list;
    if (!is_due(progress, now)) return;
    va_start(list, format);
    fputc('\r', stderr);
    vfprintf(stderr, format, list);
    fputs("\033[K", stderr);
    va_end(list);
    fflush(stderr);
    progress->drawn_ns = now;
    progress->shown = 1;
}

void fig_report_advance(fig_report_progress *progress, int64_t done) {
    const double seconds = (double)(fig_report_now_ns() - progress->began_ns) / (double)SECOND_NS;
    fig_report_draw(progress, "%s %" PRId64 " of %" PRId64 ", %.0f s", progress->what, done,
                    progress->total, seconds);
}

void fig_report_end(fig_report_progress *progress) {
    if (!progress->shown) return;
    fputs("\r\033[K", stderr);
    fflush(stderr);
    progress->shown = 0;
}

void fig_report_part(const fig_report_progress *progress, int64_t done) {
    if (progress->terminal || progress->total < 2) return;
    fprintf(stderr, "figraph: %s %" PRId64 " of %" PRId64 "\n", progress->what, done + 1,
            progress->total);
    fflush(stderr);
}

int fig_report_close(int code) {
    int failed = ferror(stdout);
    errno = 0;
    if (fclose(stdout) != 0) failed = 1;
    if (!failed) return code;
    return fig_report_refuse("stdout: %s", errno != 0 ? strerror(errno) : "a write failed");
}
