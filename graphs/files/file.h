/* file.h: a whole file read, or replaced in one piece.
 *
 * Knows bytes and paths, not what they mean. Every sentence names the path. Invariant: at any
 * moment, even if the machine stops, a path is the old file or the new one. */
#ifndef FIG_GRAPHS_FILE_H
#define FIG_GRAPHS_FILE_H

#include "include/figraph.h"

/* *bytes is the caller's to free. FIG_IO: not a regular file, or a call failed; FIG_TOO_LARGE:
 * more than `limit` bytes. */
fig_status fig_file_read(const char *path, size_t limit, uint8_t **bytes, size_t *count);
/* Beside it, flushed, renamed; symbolic links are followed, owner and mode of what is replaced are
 * kept. Other hard links of it keep the old bytes, since no file's bytes change in one piece.
 * FIG_IO: something that is no regular file stands there, or a call failed; then no file is left
 * beside it. A process that is killed may leave one, which the next save in the directory takes
 * away. */
fig_status fig_file_write(const char *path, const uint8_t *bytes, size_t count);

#endif
