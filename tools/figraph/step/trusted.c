/* trusted.c: reads a file that lists the kernel images that may be loaded. */
#include "tools/figraph/step/trusted.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tools/figraph/terminal/report.h"

enum { LINE_BYTES = 512 };

/* Returns 1 if the line's SHA-256 was added; 0 if the line does not begin with one. */
static int take_line(fig_trusted *trusted, const char *line) {
    char *hex = trusted->hex[trusted->trust.image_count];
    if (strspn(line, "0123456789abcdef") != FIG_TRUSTED_HEX) return 0;
    memcpy(hex, line, FIG_TRUSTED_HEX);
    hex[FIG_TRUSTED_HEX] = '\0';
    trusted->images[trusted->trust.image_count++] = hex;
    return 1;
}

static int read_lines(fig_trusted *trusted, FILE *file, const char *path, const char *about) {
    char line[LINE_BYTES];
    while (fgets(line, sizeof line, file) != NULL) {
        const int32_t count = trusted->trust.image_count;
        if (count == FIG_TRUSTED_LIMIT)
            return fig_report_refuse("%s: %s: more than %d lines", about, path, FIG_TRUSTED_LIMIT);
        if (!take_line(trusted, line))
            return fig_report_refuse("%s: %s: line %d does not begin with a SHA-256, of 64 digits "
                                     "and small letters",
                                     about, path, (int)count + 1);
    }
    if (ferror(file)) return fig_report_refuse("%s: %s: %s", about, path, strerror(errno));
    return FIG_EXIT_FINE;
}

int fig_trusted_read(fig_trusted *trusted, const char *path, const char *about) {
    trusted->trust = (fig_trust){.size = sizeof trusted->trust, .images = trusted->images};
    FILE *file = fopen(path, "r");
    if (file == NULL) return fig_report_refuse("%s: %s: %s", about, path, strerror(errno));
    const int code = read_lines(trusted, file, path, about);
    fclose(file);
    return code;
}
