/* text.c: checks and cleans text from outside: file names, command lines, lines of a trace.
 *
 * A terminal obeys ASCII's control characters and, in 8-bit or UTF-8 mode, those from 0x80 to 0x9f
 * as well. Invariant: nothing here depends on the locale. */
#include "tools/figraph/terminal/text.h"

#include <string.h>

/* Overlong forms and surrogates do not count as characters. */
int fig_text_character(const char *text) {
    const unsigned char *c = (const unsigned char *)text, lead = c[0];
    const int bytes = lead < 0x80 ? 1 : lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    if (lead > 0xf4) return 0;
    for (int i = 1; i < bytes; i++) {
        if ((c[i] & 0xc0) != 0x80) return 0;
    }
    if (lead == 0xe0 && c[1] < 0xa0) return 0;
    if (lead == 0xed && c[1] > 0x9f) return 0;
    if (lead == 0xf0 && c[1] < 0x90) return 0;
    if (lead == 0xf4 && c[1] > 0x8f) return 0;
    return bytes;
}

int fig_text_is_control(const char *text) {
    const unsigned char *c = (const unsigned char *)text;
    return c[0] < 0x20 || c[0] == 0x7f || (c[0] == 0xc2 && c[1] < 0xa0);
}

void fig_text_clean(char *text) {
    char *to = text;
    for (const char *c = text; *c != '\0';) {
        const int bytes = fig_text_character(c);
        if (bytes == 0 || fig_text_is_control(c)) {
            *to++ = '?';
            c += bytes == 0 ? 1 : bytes;
        } else {
            memmove(to, c, (size_t)bytes);
            to += bytes;
            c += bytes;
        }
    }
    *to = '\0';
}

int fig_text_is_decimal(const char *text) {
    const char first = text[text[0] == '-'];
    const char behind = text[strspn(text, "0123456789.eE+-")];
    return first >= '0' && first <= '9' && (behind == '\0' || behind == ',');
}
