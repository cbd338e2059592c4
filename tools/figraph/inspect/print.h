/* print.h: passes text, markup and JSON to a caller's function, piece by piece.
 *
 * Owns columns, commas and escapes; inspect_*.c decides the content. It allocates no memory and
 * cannot fail. Invariant: whatever the strings hold, the JSON is valid, and numbers have a
 * decimal point whatever the program's locale. */
#ifndef FIG_TOOLS_PRINT_H
#define FIG_TOOLS_PRINT_H

#include <figraph.h>

typedef void (*fig_write_callback)(void *user, const char *bytes, size_t count);

enum {
    FIG_PRINT_INDENT = 7,  /* the indent of a launch's params */
    FIG_PRINT_CELL = 36,   /* columns of a cell: two of them fit 80 */
    FIG_PRINT_NUMBER = 32, /* bytes that hold any number or size */
    FIG_PRINT_RANGE = 80   /* bytes that hold a range with its noun */
};

/* Zero all fields except write, user and columns. */
typedef struct fig_print {
    fig_write_callback write;
    void *user;
    uint32_t columns; /* the width of a line of text */
    uint32_t column;
    uint32_t depth;  /* the number of open JSON brackets */
    uint64_t filled; /* bit d: the bracket at depth d holds something */
} fig_print;

/* Prints one piece of at most 511 bytes. */
__attribute__((format(printf, 2, 3))) void fig_print_text(fig_print *print, const char *format,
                                                          ...);
/* Prints text unchanged, of any length. The program's own names and words hold no markup. */
void fig_print_raw(fig_print *print, const char *text);
/* Prints a word of a list. If the word would pass the last column, it begins a new, indented
 * line. */
void fig_print_word(fig_print *print, uint32_t indent, const char *word);
/* Prints the words of a sentence, each like fig_print_word(). */
__attribute__((format(printf, 3, 4))) void fig_print_words(fig_print *print, uint32_t indent,
                                                           const char *format, ...);
/* Prints "name   value" in a grid of cells, several to a line. Names take `name_columns`, and a
 * long cell takes the place of two. */
void fig_print_cell(fig_print *print, uint32_t name_columns, const char *name, const char *value);
void fig_print_end_line(fig_print *print); /* does nothing at the start of a line */

/* Write into `text` and return it: the shortest decimals that read back as `value`; a count such
 * as "52 736"; a size such as "52.7 KiB". */
const char *fig_print_float(char text[FIG_PRINT_NUMBER], float value);
const char *fig_print_count(char text[FIG_PRINT_NUMBER], uint64_t count);
const char *fig_print_bytes(char text[FIG_PRINT_NUMBER], uint64_t bytes);
/* Writes a range with its noun, such as "layer 2" or, if between is "..", "layers 2..31". Without a
 * noun, "2" or "2..31". */
const char *fig_print_range(char text[FIG_PRINT_RANGE], const char *noun, const uint32_t range[2],
                            const char *between);

/* JSON. `key` is NULL in an array and at the top. bracket: '{' or '['. Values within the first
 * two levels of brackets each get their own line. */
void fig_print_open(fig_print *print, const char *key, char bracket);
void fig_print_close(fig_print *print, char bracket); /* '}' or ']' */
void fig_print_string(fig_print *print, const char *key, const char *value);
void fig_print_integer(fig_print *print, const char *key, int64_t value);
void fig_print_real(fig_print *print, const char *key, float value);    /* null if not finite */
void fig_print_double(fig_print *print, const char *key, double value); /* null if not finite */
void fig_print_truth(fig_print *print, const char *key, int value);     /* true or false */
void fig_print_null(fig_print *print, const char *key);
/* Prints bytes as a string of hex digits, two for each byte. */
void fig_print_hex(fig_print *print, const char *key, const void *bytes, size_t count);
/* Prints "0x1f", for numbers that a JSON reader may round. */
void fig_print_word64(fig_print *print, const char *key, uint64_t value);

#endif
