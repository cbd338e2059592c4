/* emit.c: prints JSON on stdout.
 *
 * Each field and object has its own line; the numbers of an array share one. The commands choose
 * the fields. Nothing here checks for write errors: fig_report_close() finds them. */
#include "tools/figraph/terminal/emit.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/figraph/terminal/text.h"

static void print_string(const char *text) {
    putchar('"');
    for (const char *c = text; *c != '\0';) {
        int bytes = fig_text_character(c);
        if (bytes == 0) {
            fputs("\\ufffd", stdout);
        } else if (*c == '"' || *c == '\\') {
            printf("\\%c", *c);
        } else if (fig_text_is_control(c)) {
            printf("\\u%04x", (unsigned)(unsigned char)c[bytes - 1]);
        } else {
            fwrite(c, 1, (size_t)bytes, stdout);
        }
        c += bytes > 0 ? bytes : 1;
    }
    putchar('"');
}

/* The comma, the line break and the key before a value. */
static void begin_value(fig_emit *emit, const char *key, int on_a_line) {
    if (emit->filled) putchar(',');
    if (emit->depth > 0 && on_a_line) {
        printf("\n%*s", 2 * emit->depth, "");
    } else if (emit->filled) {
        putchar(' ');
    }
    emit->filled = 1;
    if (key == NULL) return;
    print_string(key);
    fputs(": ", stdout);
}

static int in_object(const fig_emit *emit) {
    return emit->depth > 0 && emit->brackets[emit->depth - 1] == '}';
}

static void open_bracket(fig_emit *emit, const char *key, const char brackets[2]) {
    assert(emit->depth < FIG_EMIT_DEPTH_LIMIT);
    begin_value(emit, key, 1);
    putchar(brackets[0]);
    emit->brackets[emit->depth++] = brackets[1];
    emit->filled = 0;
}

void fig_emit_object(fig_emit *emit, const char *key) {
    open_bracket(emit, key, "{}");
}

void fig_emit_array(fig_emit *emit, const char *key) {
    open_bracket(emit, key, "[]");
}

void fig_emit_close(fig_emit *emit) {
    assert(emit->depth > 0);
    int on_a_line = in_object(emit) && emit->filled;
    char bracket = emit->brackets[--emit->depth];
    if (on_a_line) printf("\n%*s", 2 * emit->depth, "");
    putchar(bracket);
    emit->filled = 1;
    if (emit->depth == 0) putchar('\n');
}

void fig_emit_text(fig_emit *emit, const char *key, const char *value) {
    begin_value(emit, key, in_object(emit));
    print_string(value);
}

void fig_emit_integer(fig_emit *emit, const char *key, int64_t value) {
    begin_value(emit, key, in_object(emit));
    printf("%" PRId64, value);
}

void fig_emit_number(fig_emit *emit, const char *key, double value) {
    begin_value(emit, key, in_object(emit));
    if (isfinite(value)) {
        printf("%.9g", value);
    } else {
        fputs("null", stdout);
    }
}

void fig_emit_float(fig_emit *emit, const char *key, float value) {
    char text[32] = "null";
    begin_value(emit, key, in_object(emit));
    for (int digits = 6; isfinite(value) && digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)value);
        if (strtof(text, NULL) == value) break;
    }
    fputs(text, stdout);
}

void fig_emit_truth(fig_emit *emit, const char *key, int value) {
    begin_value(emit, key, in_object(emit));
    fputs(value ? "true" : "false", stdout);
}
