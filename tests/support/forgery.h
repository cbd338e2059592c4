/* forgery.h: a .fig file taken apart, to be changed and put together again.
 *
 * A second and plainer writer than the library's: it hashes and places whatever it is given, sound
 * or not, so that a test can make the file that a fault, or a forger, would. */
#ifndef FIG_TESTS_SUPPORT_FORGERY_H
#define FIG_TESTS_SUPPORT_FORGERY_H

#include <stddef.h>

#include "graphs/files/sections.h"

typedef struct fig_forgery_section {
    fig_file_section entry; /* offset and stored_bytes are the writer's, raw_bytes unless forged */
    uint8_t *raw;           /* [raw_bytes] */
    size_t raw_bytes;
    int forged; /* 1: entry.raw_bytes is written as it is */
} fig_forgery_section;

typedef struct fig_forgery {
    fig_forgery_section sections[FIG_FILE_SECTION_LIMIT];
    uint32_t count;
    uint32_t maker;
} fig_forgery;

/* Of a sound file. */
void fig_forgery_open(fig_forgery *image, const uint8_t *bytes, size_t count);
/* Of any bytes; 0: they have not the form of a file with sections, or one is of more than
 * `raw_limit` bytes, and the image is empty. Hashes are not looked at. */
int fig_forgery_try(fig_forgery *image, const uint8_t *bytes, size_t count, size_t raw_limit);
void fig_forgery_close(fig_forgery *image);
/* Places a copy of a section before `index`. */
void fig_forgery_insert(fig_forgery *image, uint32_t index, const fig_forgery_section *section);
void fig_forgery_remove(fig_forgery *image, uint32_t index);
/* Room for `raw_bytes` in a section; bytes past those that were there are 0. */
void fig_forgery_resize(fig_forgery *image, uint32_t index, size_t raw_bytes);
/* The file, its hashes agreeing, its frames of this zstd level, 0: stored as they are; the caller's
 * to free. */
uint8_t *fig_forgery_write(const fig_forgery *image, int level, size_t *count);

/* Makes the header's check agree with a file of `count` bytes that was changed in place. */
void fig_forgery_seal(uint8_t *bytes, size_t count);

#endif
