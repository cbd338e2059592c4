/* file.h: a whole file read, or replaced in one piece.
 *
 * Knows bytes and paths, not what they mean. Every sentence names the path. Invariant: at any
 * moment, even if the machine stops, a path is the old file or the new one. */
#ifndef FIG_GRAPHS_FILE_H
#define FIG_GRAPHS_FILE_H

#include "include/figraph.h"

/* *bytes is the caller's to free. FIG_IO: not a regular file, or a call failed; FIG_FORMAT: more
 * than `limit` bytes. */
fig_status fig_file_read(const char *path, size_t limit, uint8_t **bytes, size_t *count);
/* Beside it, flushed, renamed. On failure no file is left beside it. */
fig_status fig_file_write(const char *path, const uint8_t *bytes, size_t count);

#endif
