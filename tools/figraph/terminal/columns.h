/* columns.h: finds the width of the terminal, and wraps text to it. */
#ifndef FIG_TOOLS_COLUMNS_H
#define FIG_TOOLS_COLUMNS_H

/* Returns the width from COLUMNS, or of the terminal on stdout, or 80; limited to 40..200. */
int fig_columns(void);

/* Returns the width for a table, which is unlimited if neither COLUMNS nor a terminal gives one. */
int fig_columns_of_table(void);

/* Returns the number of columns of a text: its UTF-8 characters. */
int fig_columns_of(const char *text);

/* Prints the words of `text` and ends the line. The cursor is at column `at`; further lines begin
 * at column `indent`. */
void fig_columns_words(int at, int indent, const char *text);

/* Prints paragraphs, separated by empty lines; other line breaks count as spaces. */
void fig_columns_paragraphs(const char *text);

#endif
