/* failure.c: see failure.h. */
#include "tools/figraph/inspect/failure.h"

#include <stdarg.h>
#include <stdio.h>

static char sentence[512];

fig_status fig_failure(fig_status status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    return status;
}

fig_status fig_failure_of_library(fig_status status) {
    return status == FIG_OK ? FIG_OK : fig_failure(status, "%s", fig_message());
}

const char *fig_failure_message(void) {
    return sentence;
}
