/* trusted.h: a list of images of kernels that may be loaded, from a file.
 *
 * As `figraph inspect --images` and sha256sum print: SHA-256 in hex at the head of each line. */
#ifndef FIG_TOOLS_TRUSTED_H
#define FIG_TOOLS_TRUSTED_H

#include <figraph_archive.h>

enum { FIG_TRUSTED_LIMIT = 256, FIG_TRUSTED_HEX = 64 };

typedef struct fig_trusted {
    char hex[FIG_TRUSTED_LIMIT][FIG_TRUSTED_HEX + 1];
    const char *images[FIG_TRUSTED_LIMIT]; /* into hex */
    fig_trust trust;                       /* points here: the struct is not copied */
} fig_trusted;

/* Returns FIG_EXIT_*. about: the command and the option, for the sentence. */
int fig_trusted_read(fig_trusted *trusted, const char *path, const char *about);

#endif
