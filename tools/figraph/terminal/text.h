/* text.h: text that others chose: file names, words of a command line, lines of a trace. */
#ifndef FIG_TOOLS_TEXT_H
#define FIG_TOOLS_TEXT_H

/* Bytes of the UTF-8 character at `text`; 0: these bytes are none. */
int fig_text_character(const char *text);
/* Of a character: 1: a terminal may obey it instead of showing it. */
int fig_text_is_control(const char *text);
/* What a terminal may be shown: controls and bytes that are no UTF-8 become '?', in place. */
void fig_text_clean(char *text);

/* 1: up to its end or a comma it is written as people write a number: digits first, a minus sign
 * apart, and nothing but digits, '.', and an exponent. */
int fig_text_is_decimal(const char *text);

#endif
