/* cache_folder.h: the folder in which the user keeps compiled scores, if a caller names no other.
 *
 * This file finds and makes the folder; score_cache.h checks it and owns what lies in it.
 * Invariant: a folder that this file makes can be written by its user alone. */
#ifndef FIG_GRAPHS_CACHE_FOLDER_H
#define FIG_GRAPHS_CACHE_FOLDER_H

#include <limits.h>

#include "include/figraph.h"

/* Sets path to `named`. FIG_SCORE_CACHE_DEFAULT stands for figraph/scores in the cache folder of
 * the XDG Base Directory Specification; if there is no such folder, it is made. FIG_INVALID: the
 * environment names no cache folder, or fig_score_cache_check() refuses the folder. FIG_IO: it
 * cannot be made. No other thread may set variables of the environment meanwhile. */
fig_status fig_cache_folder_find(const char *named, char path[PATH_MAX]);
/* The same, but allocates *path, which the caller frees. If `named` is NULL, so is *path. */
fig_status fig_cache_folder_take(const char *named, char **path);

#endif
