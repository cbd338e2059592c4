/* trusted.h: reads a file that lists the kernel images that may be loaded.
 *
 * Each line begins with a SHA-256 in hex, as `figraph inspect --images` and sha256sum print it. */
#ifndef FIG_TOOLS_TRUSTED_H
#define FIG_TOOLS_TRUSTED_H

#include <figraph_archive.h>

enum { FIG_TRUSTED_LIMIT = 512, FIG_TRUSTED_HEX = 64 };

typedef struct fig_trusted {
    char hex[FIG_TRUSTED_LIMIT][FIG_TRUSTED_HEX + 1];
    const char *images[FIG_TRUSTED_LIMIT]; /* pointers into hex */
    fig_trust trust; /* points into this struct, which must therefore not be copied */
} fig_trusted;

/* Returns FIG_EXIT_*. about: the command and the option, which begin the message. */
int fig_trusted_read(fig_trusted *trusted, const char *path, const char *about);

#endif
