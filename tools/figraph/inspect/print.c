/* print.c: passes text and JSON to a caller's function, piece by piece.
 *
 * Owns columns, commas and escapes. Invariant: `column` is the place of the next byte in its
 * line. */
#include "tools/figraph/inspect/print.h"

#include <assert.h>
#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE_BYTES = 512, DEPTH_LIMIT = 63, BROKEN_DEPTH = 2, CELL_GAP = 2 };

/* ---- Text */

static void emit(fig_print *print, const char *bytes, size_t count) {
    for (size_t i = 0; i < count; i++)
        print->column = bytes[i] == '\n' ? 0 : print->column + 1;
    if (count > 0) print->write(print->user, bytes, count);
}

static void emit_text(fig_print *print, const char *text) {
    emit(print, text, strlen(text));
}

void fig_print_text(fig_print *print, const char *format, ...) {
    char piece[PIECE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(piece, sizeof piece, format, arguments);
    va_end(arguments);
    assert(length >= 0 && length < PIECE_BYTES);
    if (length < 0) piece[0] = '\0';
    emit_text(print, piece);
}

static void pad_to(fig_print *print, uint32_t column) {
    while (print->column < column)
        emit_text(print, " ");
}

void fig_print_raw(fig_print *print, const char *text) {
    emit_text(print, text);
}

/* Reserves a column for the comma that the next word may begin with: if the line breaks there,
 * the comma stays on the old line. */
void fig_print_word(fig_print *print, uint32_t indent, const char *word) {
    if (print->column > indent && print->column + strlen(word) >= print->columns) {
        if (*word == ',') emit(print, word++, 1);
        word += strspn(word, " ");
        emit_text(print, "\n");
    }
    pad_to(print, indent);
    emit_text(print, word);
}

/* Returns the bytes up to the next space. A space within a number, such as "131 072", does not
 * count. */
static size_t word_bytes(const char *word) {
    size_t bytes = strcspn(word, " ");
    while (bytes > 0 && word[bytes] == ' ' && isdigit((unsigned char)word[bytes - 1]) &&
           isdigit((unsigned char)word[bytes + 1]))
        bytes += 1 + strcspn(word + bytes + 1, " ");
    return bytes;
}

/* Reserves a column for a comma, like fig_print_word(). */
void fig_print_words(fig_print *print, uint32_t indent, const char *format, ...) {
    char piece[PIECE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(piece, sizeof piece, format, arguments);
    va_end(arguments);
    assert(length >= 0 && length < PIECE_BYTES);
    if (length < 0) piece[0] = '\0';
    for (const char *word = piece; *word != '\0';) {
        const int parted = *word == ' ';
        word += parted;
        const size_t bytes = word_bytes(word);
        if (parted && print->column + 1 + bytes >= print->columns) {
            emit_text(print, "\n");
            pad_to(print, indent);
        } else if (parted) {
            emit_text(print, " ");
        }
        emit(print, word, bytes);
        word += bytes;
    }
}

void fig_print_cell(fig_print *print, uint32_t name_columns, const char *name, const char *value) {
    const size_t length = name_columns + CELL_GAP + strlen(value);
    uint32_t start = FIG_PRINT_INDENT;
    while (print->column > 0 && start < print->column + CELL_GAP)
        start += FIG_PRINT_CELL;
    if (print->column > 0 && start + length > print->columns) {
        emit_text(print, "\n");
        start = FIG_PRINT_INDENT;
    }
    pad_to(print, start);
    emit_text(print, name);
    pad_to(print, start + name_columns + CELL_GAP);
    emit_text(print, value);
}

void fig_print_end_line(fig_print *print) {
    if (print->column > 0) emit_text(print, "\n");
}

/* Replaces the locale's decimal sign, which may have several bytes, by a point. */
static void set_point(char *text) {
    char *to = text;
    for (const char *from = text; *from != '\0'; from++) {
        if (strchr("0123456789+-einfa", *from) != NULL) {
            *to++ = *from;
        } else if (to == text || to[-1] != '.') {
            *to++ = '.';
        }
    }
    *to = '\0';
}

const char *fig_print_float(char text[FIG_PRINT_NUMBER], float value) {
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(text, FIG_PRINT_NUMBER, "%.*g", digits, (double)value);
        if (strtof(text, NULL) == value) break;
    }
    set_point(text);
    return text;
}

const char *fig_print_count(char text[FIG_PRINT_NUMBER], uint64_t count) {
    char digits[FIG_PRINT_NUMBER];
    const int length = snprintf(digits, sizeof digits, "%" PRIu64, count);
    char *to = text;
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0) *to++ = ' ';
        *to++ = digits[i];
    }
    *to = '\0';
    return text;
}

const char *fig_print_bytes(char text[FIG_PRINT_NUMBER], uint64_t bytes) {
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
    uint32_t unit = 0;
    char whole[FIG_PRINT_NUMBER];
    if (bytes < 10240) {
        snprintf(text, FIG_PRINT_NUMBER, "%s B", fig_print_count(whole, bytes));
        return text;
    }
    while (unit < 3 && bytes >> 10 >= 1024) {
        bytes >>= 10;
        unit++;
    }
    const uint64_t tenths = bytes / 1024 * 10 + bytes % 1024 * 10 / 1024;
    fig_print_count(whole, tenths / 10);
    snprintf(text, FIG_PRINT_NUMBER, "%.24s.%u %s", whole, (unsigned)(tenths % 10), units[unit]);
    return text;
}

const char *fig_print_range(char text[FIG_PRINT_RANGE], const char *noun, const uint32_t range[2],
                            const char *between) {
    const int is_one = range[0] == range[1];
    const size_t letters = strlen(noun);
    const int hisses = letters > 0 && noun[letters - 1] == 'h';
    const char *ending = letters == 0 ? "" : is_one ? " " : hisses ? "es " : "s ";
    int used = snprintf(text, FIG_PRINT_RANGE, "%.24s%s%" PRIu32, noun, ending, range[0]);
    if (!is_one)
        snprintf(text + used, FIG_PRINT_RANGE - (size_t)used, "%.8s%" PRIu32, between, range[1]);
    return text;
}

/* ---- JSON */

static void emit_quoted(fig_print *print, const char *text) {
    emit_text(print, "\"");
    for (; *text != '\0'; text++) {
        const unsigned char byte = (unsigned char)*text;
        /* Bytes outside ASCII are escaped one by one, because they may not be UTF-8. */
        if (byte == '"' || byte == '\\') {
            fig_print_text(print, "\\%c", byte);
        } else if (byte < 0x20 || byte >= 0x7f) {
            fig_print_text(print, "\\u%04x", byte);
        } else {
            emit(print, text, 1);
        }
    }
    emit_text(print, "\"");
}

static void begin_line(fig_print *print) {
    emit_text(print, "\n");
    pad_to(print, 2 * print->depth);
}

/* Writes everything that comes before a value: comma, line break and key. */
static void begin_value(fig_print *print, const char *key) {
    const uint64_t bit = UINT64_C(1) << print->depth;
    if (print->filled & bit) emit_text(print, print->depth > BROKEN_DEPTH ? ", " : ",");
    if (print->depth > 0 && print->depth <= BROKEN_DEPTH) begin_line(print);
    print->filled |= bit;
    if (key == NULL) return;
    emit_quoted(print, key);
    emit_text(print, ": ");
}

void fig_print_open(fig_print *print, const char *key, char bracket) {
    begin_value(print, key);
    emit(print, &bracket, 1);
    assert(print->depth < DEPTH_LIMIT);
    print->depth++;
    print->filled &= ~(UINT64_C(1) << print->depth);
}

void fig_print_close(fig_print *print, char bracket) {
    const int broken = print->depth <= BROKEN_DEPTH && (print->filled >> print->depth & 1);
    assert(print->depth > 0);
    print->depth--;
    if (broken) begin_line(print);
    emit(print, &bracket, 1);
    if (print->depth == 0) emit_text(print, "\n");
}

void fig_print_string(fig_print *print, const char *key, const char *value) {
    begin_value(print, key);
    emit_quoted(print, value);
}

void fig_print_integer(fig_print *print, const char *key, int64_t value) {
    begin_value(print, key);
    fig_print_text(print, "%" PRId64, value);
}

void fig_print_real(fig_print *print, const char *key, float value) {
    char text[FIG_PRINT_NUMBER];
    if (!isfinite(value)) {
        fig_print_null(print, key);
        return;
    }
    begin_value(print, key);
    emit_text(print, fig_print_float(text, value));
}

void fig_print_double(fig_print *print, const char *key, double value) {
    char text[FIG_PRINT_NUMBER];
    if (!isfinite(value)) {
        fig_print_null(print, key);
        return;
    }
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value) break;
    }
    set_point(text);
    begin_value(print, key);
    emit_text(print, text);
}

void fig_print_truth(fig_print *print, const char *key, int value) {
    begin_value(print, key);
    emit_text(print, value ? "true" : "false");
}

void fig_print_null(fig_print *print, const char *key) {
    begin_value(print, key);
    emit_text(print, "null");
}

void fig_print_hex(fig_print *print, const char *key, const void *bytes, size_t count) {
    const uint8_t *byte = bytes;
    begin_value(print, key);
    emit_text(print, "\"");
    for (size_t i = 0; i < count; i++)
        fig_print_text(print, "%02x", byte[i]);
    emit_text(print, "\"");
}

void fig_print_word64(fig_print *print, const char *key, uint64_t value) {
    begin_value(print, key);
    fig_print_text(print, "\"0x%" PRIx64 "\"", value);
}
