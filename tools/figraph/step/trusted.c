/* trusted.c: a list of images of kernels that may be loaded, from a file. */
#include "tools/figraph/step/trusted.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tools/figraph/terminal/report.h"

enum { LINE_BYTES = 512 };

static int take_line(fig_trusted *trusted, const char *line) {
    const size_t digits = strspn(line, "0123456789abcdef");
    const int32_t count = trusted->trust.image_count;
    if (digits != FIG_TRUSTED_HEX || count == FIG_TRUSTED_LIMIT) return 0;
    memcpy(trusted->hex[count], line, FIG_TRUSTED_HEX);
    trusted->hex[count][FIG_TRUSTED_HEX] = '\0';
    trusted->images[count] = trusted->hex[count];
    trusted->trust.image_count++;
    return 1;
}

int fig_trusted_read(fig_trusted *trusted, const char *path, const char *about) {
    char line[LINE_BYTES];
    int sound = 1;
    trusted->trust = (fig_trust){.size = sizeof trusted->trust, .images = trusted->images};
    FILE *file = fopen(path, "r");
    if (file == NULL) return fig_report_refuse("%s: %s: %s", about, path, strerror(errno));
    while (sound && fgets(line, sizeof line, file) != NULL)
        sound = take_line(trusted, line);
    fclose(file);
    if (sound) return FIG_EXIT_FINE;
    return fig_report_refuse("%s: %s: line %d does not begin with a SHA-256, or there are more "
                             "than %d",
                             about, path, (int)trusted->trust.image_count + 1, FIG_TRUSTED_LIMIT);
}
