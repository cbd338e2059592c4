/* columns.h: how wide a line may be, and words laid out in lines of that width. */
#ifndef FIG_TOOLS_COLUMNS_H
#define FIG_TOOLS_COLUMNS_H

/* What COLUMNS says, else the terminal that stdout is; 80 where it is none. From 40 to 200. */
int fig_columns(void);

/* The same for a table, which is as wide as it likes where nobody says. */
int fig_columns_of_table(void);

/* Columns that a text takes: its characters, of as many bytes as UTF-8 makes them. */
int fig_columns_of(const char *text);

/* Prints the words of `text` and ends the line. The cursor stands at column `at`; further lines
 * begin at column `indent`. */
void fig_columns_words(int at, int indent, const char *text);

/* Prints paragraphs, which an empty line parts; other line breaks are spaces. */
void fig_columns_paragraphs(const char *text);

#endif
