/* print.h: text, markup and JSON to a caller's function, piece by piece.
 *
 * Owns columns, commas and escapes; what is said is inspect's. It takes no memory and cannot fail.
 * Invariant: whatever the strings hold, JSON comes out valid, and numbers have a point whatever the
 * program's locale. */
#ifndef FIG_GRAPHS_PRINT_H
#define FIG_GRAPHS_PRINT_H

#include "include/figraph_unstable.h"

enum {
    FIG_PRINT_INDENT = 7, /* of a launch's params */
    FIG_PRINT_CELL = 36,  /* columns of a cell: two of them fit 80 */
    FIG_PRINT_NUMBER = 32 /* bytes that hold any number or size */
};

/* Zeroed but for write, user and columns. */
typedef struct fig_print {
    fig_write_callback write;
    void *user;
    uint32_t columns; /* of a line of text */
    uint32_t column;
    uint32_t depth;  /* JSON brackets open */
    uint64_t filled; /* bit d: the bracket at depth d holds something */
} fig_print;

/* One piece of at most 511 bytes. */
__attribute__((format(printf, 2, 3))) void fig_print_text(fig_print *print, const char *format,
                                                          ...);
/* As it is, however long. Names and words of ours hold nothing that markup would mind. */
void fig_print_raw(fig_print *print, const char *text);
/* A word of a list: starts a line of its own, indented, where it would pass the last column. */
void fig_print_word(fig_print *print, uint32_t indent, const char *word);
/* Words of a sentence that goes on: each of them likewise. */
__attribute__((format(printf, 3, 4))) void fig_print_words(fig_print *print, uint32_t indent,
                                                           const char *format, ...);
/* "name   value" in a grid of cells, as many a line as fit; names take `name_columns`, and a long
 * cell takes the place of two. */
void fig_print_cell(fig_print *print, uint32_t name_columns, const char *name, const char *value);
void fig_print_end_line(fig_print *print); /* nothing where a line has just ended */

/* The shortest decimals that read back as `value`; "52 736"; "52.7 KiB". `text` is returned. */
const char *fig_print_float(char text[FIG_PRINT_NUMBER], float value);
const char *fig_print_count(char text[FIG_PRINT_NUMBER], uint64_t count);
const char *fig_print_bytes(char text[FIG_PRINT_NUMBER], uint64_t bytes);

/* JSON. `key` is NULL in an array and at the top. bracket: '{' or '['; down to the second bracket
 * each value has its own line. */
void fig_print_open(fig_print *print, const char *key, char bracket);
void fig_print_close(fig_print *print, char bracket); /* '}' or ']' */
void fig_print_string(fig_print *print, const char *key, const char *value);
void fig_print_integer(fig_print *print, const char *key, int64_t value);
void fig_print_real(fig_print *print, const char *key, float value);    /* null where not finite */
void fig_print_double(fig_print *print, const char *key, double value); /* likewise */
void fig_print_truth(fig_print *print, const char *key, int value);     /* true or false */
void fig_print_null(fig_print *print, const char *key);
/* A string of hex digits, two a byte. */
void fig_print_hex(fig_print *print, const char *key, const void *bytes, size_t count);
/* "0x1f": numbers that a JSON reader may not hold whole. */
void fig_print_word64(fig_print *print, const char *key, uint64_t value);

#endif
