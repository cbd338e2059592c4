/* columns.c: finds how wide a line may be, and wraps words to that width.
 *
 * Invariant: a line is wider than fig_columns() only if it holds a single word that is wider. */
#include "tools/figraph/terminal/columns.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* Lines longer than MOST are hard to read. */
enum { LEAST = 40, USUAL = 80, MOST = 200 };

/* Returns 0 if neither COLUMNS nor a terminal gives a width. */
static int told_columns(void) {
    const char *told = getenv("COLUMNS");
    struct winsize window;
    long columns = told != NULL ? strtol(told, NULL, 10) : 0;
    if (columns <= 0 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0) columns = window.ws_col;
    if (columns <= 0) return 0;
    return columns < LEAST ? LEAST : columns > MOST ? MOST : (int)columns;
}

int fig_columns(void) {
    const int told = told_columns();
    return told > 0 ? told : USUAL;
}

int fig_columns_of_table(void) {
    const int told = told_columns();
    return told > 0 ? told : INT_MAX;
}

static int columns_of(const char *text, size_t bytes) {
    int columns = 0;
    for (size_t i = 0; i < bytes; i++)
        columns += (text[i] & 0xc0) != 0x80;
    return columns;
}

int fig_columns_of(const char *text) {
    return columns_of(text, strlen(text));
}

/* Returns the bytes up to the next space. A space within a number, such as "131 072", does not
 * count. */
static size_t word_bytes(const char *word) {
    size_t bytes = strcspn(word, " \n");
    while (bytes > 0 && word[bytes] == ' ' && isdigit((unsigned char)word[bytes - 1]) &&
           isdigit((unsigned char)word[bytes + 1]))
        bytes += 1 + strcspn(word + bytes + 1, " \n");
    return bytes;
}

/* Prints the words of [text, end). */
static void print_words(int at, int indent, const char *text, const char *end) {
    const int most = fig_columns();
    int column = at;
    for (int first = 1; text < end; first = 0) {
        const size_t bytes = word_bytes(text);
        const int columns = columns_of(text, bytes);
        if (!first && column + 1 + columns > most) {
            printf("\n%*s", indent, "");
            column = indent;
        } else if (!first) {
            column += printf(" ");
        }
        printf("%.*s", (int)bytes, text);
        column += columns;
        text += bytes;
        text += strspn(text, " \n");
    }
    putchar('\n');
}

void fig_columns_words(int at, int indent, const char *text) {
    print_words(at, indent, text, text + strlen(text));
}

void fig_columns_paragraphs(const char *text) {
    for (;;) {
        const char *end = strstr(text, "\n\n");
        print_words(0, 0, text, end != NULL ? end : text + strlen(text));
        if (end == NULL) return;
        putchar('\n');
        text = end + 2;
    }
}
