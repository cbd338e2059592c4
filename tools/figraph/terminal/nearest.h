/* nearest.h: finds the known word that is nearest to a misspelt one. */
#ifndef FIG_TOOLS_NEAREST_H
#define FIG_TOOLS_NEAREST_H

#include <stdint.h>

/* Returns the name of index 0, 1 and so on; NULL past the last. */
typedef const char *(*fig_nearest_names)(const void *of, int32_t index);

/* Returns the name that differs least from `word`, ignoring case; the first of equally near names.
 * NULL: no name is near enough. */
const char *fig_nearest(const char *word, fig_nearest_names names, const void *of);

/* Writes "; did you mean replay?", or "" if no name is near, and returns `text`. */
enum { FIG_NEAREST_BYTES = 96 };
const char *fig_nearest_ask(char text[FIG_NEAREST_BYTES], const char *word, fig_nearest_names names,
                            const void *of);

#endif
