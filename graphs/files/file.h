/* file.h: reads a whole file, or replaces one atomically.
 *
 * Reads and writes bytes without interpreting them. Every message names the path. Invariant: at any
 * moment, even if the machine crashes, the path names either the whole old file or the whole new
 * one. */
#ifndef FIG_GRAPHS_FILE_H
#define FIG_GRAPHS_FILE_H

#include <sys/stat.h>

#include "include/figraph.h"

/* Reads a whole file. The caller frees *bytes. FIG_IO: the path is not a regular file, or a system
 * call failed; FIG_TOO_LARGE: the file has more than `limit` bytes. */
fig_status fig_file_read(const char *path, size_t limit, uint8_t **bytes, size_t *count);
/* Does the same for a file that is_ours() accepts. What is judged is the open file, so nobody can
 * exchange it between the check and the reading. Also FIG_IO: is_ours() returned 0, or the path is
 * a symbolic link. */
fig_status fig_file_read_ours(const char *path, size_t limit,
                              int (*is_ours)(const struct stat *info), uint8_t **bytes,
                              size_t *count);
/* Writes a file beside the old file, flushes the new file and renames it to `path`. Follows
 * symbolic links, and keeps the owner and mode of the replaced file. Other hard links keep the old
 * bytes: only a name can be replaced atomically, not the bytes of a file. FIG_IO: the path is not a
 * regular file, or a system call failed; no temporary file is left then. A killed process may leave
 * a temporary file, which the next save in that directory removes. */
fig_status fig_file_write(const char *path, const uint8_t *bytes, size_t count);
/* Does the same, but only the process's user may read or write the new file, and a link, or
 * whatever else has the name and is no directory, is replaced and not followed. */
fig_status fig_file_write_private(const char *path, const uint8_t *bytes, size_t count);

#endif
