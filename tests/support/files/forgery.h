/* forgery.h: takes a .fig file apart, so that a test can change it, and puts it together again.
 *
 * It contains a second writer, simpler than the library's. This writer writes and hashes any
 * sections, sound or not, so that a test can make a file as a fault or a forger would. */
#ifndef FIG_TESTS_SUPPORT_FORGERY_H
#define FIG_TESTS_SUPPORT_FORGERY_H

#include <stddef.h>

#include "graphs/files/sections.h"

typedef struct fig_forgery_section {
    /* The writer sets offset and stored_bytes, and unless `forged` is 1 also raw_bytes. */
    fig_file_section entry;
    uint8_t *raw; /* [raw_bytes] */
    size_t raw_bytes;
    int forged; /* 1: the writer keeps entry.raw_bytes as it is */
} fig_forgery_section;

typedef struct fig_forgery {
    fig_forgery_section sections[FIG_FILE_SECTION_LIMIT];
    uint32_t count;
    uint32_t maker;
} fig_forgery;

/* Takes apart a sound file. */
void fig_forgery_open(fig_forgery *image, const uint8_t *bytes, size_t count);
/* Takes apart any bytes. If they are not a file with sections, or a section has more than
 * `raw_limit` bytes, returns 0 and the image is empty. Does not check hashes. */
int fig_forgery_try(fig_forgery *image, const uint8_t *bytes, size_t count, size_t raw_limit);
void fig_forgery_close(fig_forgery *image);
/* Inserts a copy of a section before section `index`. */
void fig_forgery_insert(fig_forgery *image, uint32_t index, const fig_forgery_section *section);
void fig_forgery_remove(fig_forgery *image, uint32_t index);
/* Gives a section `raw_bytes` bytes. Added bytes are 0. */
void fig_forgery_resize(fig_forgery *image, uint32_t index, size_t raw_bytes);
/* Returns the file with correct hashes. zstd writes its frames at this level; at level 0 they are
 * not compressed. The caller frees the file. */
uint8_t *fig_forgery_write(const fig_forgery *image, int level, size_t *count);

/* Corrects the hashes in the header of a file that was changed in place. */
void fig_forgery_seal(uint8_t *bytes, size_t count);

#endif
