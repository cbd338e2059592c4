/* score_cache.h: keeps compiled scores in a folder, for later processes.
 *
 * An entry is one file, named after its key: the SHA-256 of everything that decides the code. The
 * file repeats the key and has the SHA-256 of the code. Invariant: code is returned only if the
 * folder is one that nobody but the user (or root) may write, and the file, once open, is no link,
 * has this user (or root) as its owner and only writer, names the wanted key, and has the code
 * whose hash it names. Any other file counts as absent. */
#ifndef FIG_GRAPHS_SCORE_CACHE_H
#define FIG_GRAPHS_SCORE_CACHE_H

#include "include/figraph.h"

enum { FIG_SCORE_CACHE_KEY_BYTES = 32, FIG_SCORE_CACHE_CODE_LIMIT = 64 << 20 };

/* Returns FIG_INVALID if the path is no folder, others may write in it, or everybody may rename
 * what lies in a folder above it; the message names the folder. */
fig_status fig_score_cache_check(const char *folder);
/* Sets *code to the code of the key, which the caller frees, or to NULL if there is no sound entry.
 * Only a folder that fig_score_cache_check() refuses, or a lack of memory, is a failure. */
fig_status fig_score_cache_read(const char *folder, const uint8_t key[FIG_SCORE_CACHE_KEY_BYTES],
                                uint8_t **code, size_t *count);
/* Writes an entry, in the place of whatever has its name. Two processes may write one entry at
 * once: the file is then one of the two. */
fig_status fig_score_cache_write(const char *folder, const uint8_t key[FIG_SCORE_CACHE_KEY_BYTES],
                                 const uint8_t *code, size_t count);

#endif
