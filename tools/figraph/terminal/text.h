/* text.h: checks and cleans text from outside: file names, command lines, lines of a trace. */
#ifndef FIG_TOOLS_TEXT_H
#define FIG_TOOLS_TEXT_H

/* Returns the number of bytes of the UTF-8 character at `text`; 0: the bytes are not UTF-8. */
int fig_text_character(const char *text);
/* Returns 1 if the character is a control character, which a terminal may execute instead of
 * showing. */
int fig_text_is_control(const char *text);
/* Replaces control characters and bytes that are not UTF-8 by '?', in place. */
void fig_text_clean(char *text);

/* Returns 1 if the text, up to a comma or its end, is a decimal number. It has an optional minus
 * sign, then a digit, then only digits, '.' and an exponent. */
int fig_text_is_decimal(const char *text);

#endif
