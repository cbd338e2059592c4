/* archive.h: the images of kernels that a file records and may embed.
 *
 * This file decides which images are recorded and which may be loaded; sections.c places them in
 * the file. Embedded images stay compressed until a caller trusts them. Invariant: no image leaves
 * this file unless it has its recorded hash and that hash is trusted. */
#ifndef FIG_GRAPHS_ARCHIVE_H
#define FIG_GRAPHS_ARCHIVE_H

#include "graphs/files/embedded.h"

enum {
    FIG_ARCHIVE_IMAGE_LIMIT = 256,
    FIG_ARCHIVE_CODE_LIMIT = 32 << 20 /* bytes of all images together */
};

/* The record of one kernel image of the maker, the library that made the graphs. Section IMAG
 * stores such records. */
typedef struct fig_archive_image {
    uint32_t op;
    int32_t compute_capability; /* 80 or 90 */
    char family[16];            /* the family's name, followed by zeros */
    uint64_t bytes;
    uint8_t sha256[32];
} fig_archive_image;
static_assert(sizeof(fig_archive_image) == 64, "file format");

/* The records of images, and the images if they are embedded. A zeroed struct holds neither. */
typedef struct fig_archive {
    fig_archive_image *images; /* [image_count] sorted by op, family and compute capability */
    uint32_t image_count;
    /* [stored_bytes] a zstd frame of all images, each at a multiple of 16. NULL if the images are
     * not embedded. */
    uint8_t *code;
    size_t stored_bytes;
    uint32_t code_bytes; /* the size of the frame's content */
    fig_embedded compiled;
} fig_archive;

/* Checks that a maker could have recorded `archive`. FIG_INVALID: the message names the first
 * violation. Of the code, only the size is checked. */
fig_status fig_archive_check(const fig_archive *archive);
fig_status fig_archive_clone(fig_archive *clone, const fig_archive *archive);
void fig_archive_finish(fig_archive *archive); /* accepts a zeroed struct */

/* Replaces the records by records of the source's images. Only operations whose bit is set in `ops`
 * get records. */
fig_status fig_archive_record(fig_archive *archive, uint32_t ops, fig_image_source source);
/* Embeds the images of the source, which must be the recorded images. */
fig_status fig_archive_embed(fig_archive *archive, fig_image_source source);

/* Returns 1 if the source has an image of the same operation, family and capability with the same
 * hash. */
int fig_archive_is_own(const fig_archive_image *image, fig_image_source source);
/* Returns the name of the image's operation, such as "attention", or "unknown" if this library has
 * no such operation. */
const char *fig_archive_operation(const fig_archive_image *image);
void fig_archive_hex(const uint8_t sha256[32], char text[65]);

/* The images that the caller trusts, and their memory. */
typedef struct fig_archive_admitted {
    fig_image_set set;
    uint8_t *code, *compiled_code;
} fig_archive_admitted;
fig_status fig_archive_admit(const fig_archive *archive, const fig_trust *trust,
                             fig_image_source source, fig_archive_admitted *admitted);
void fig_archive_admitted_finish(fig_archive_admitted *admitted);

#endif
