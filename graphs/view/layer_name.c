/* layer_name.c: splits a name like "q.7" into a stem and a layer number. */
#include "graphs/view/layer_name.h"

#include <stdlib.h>
#include <string.h>

enum { DIGITS_LIMIT = 6 };

fig_layer_name fig_layer_name_split(const char *name) {
    const fig_layer_name whole = {(uint32_t)strlen(name), FIG_LAYER_NONE};
    const char *dot = strrchr(name, '.');
    if (dot == NULL) return whole;
    const char *digits = dot + 1;
    const size_t length = strlen(digits);
    /* "q.07" names no layer: stem and number joined again would read "q.7". */
    if (length == 0 || length > DIGITS_LIMIT || (length > 1 && digits[0] == '0')) return whole;
    if (strspn(digits, "0123456789") != length) return whole;
    return (fig_layer_name){(uint32_t)(dot - name), (int32_t)strtol(digits, NULL, 10)};
}
