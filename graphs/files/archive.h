/* archive.h: the images of kernels that a file records, and may hold.
 *
 * Owns which images are recorded and whose may be loaded; their place in the file is sections.c's.
 * Images that are embedded stay compressed until a caller trusts them. Invariant: no byte of an
 * image leaves here unless its hash is the one recorded, and trusted. */
#ifndef FIG_GRAPHS_ARCHIVE_H
#define FIG_GRAPHS_ARCHIVE_H

#include "include/figraph_archive.h"
#include "kernels/images.h"

enum {
    FIG_ARCHIVE_IMAGE_LIMIT = 256,
    FIG_ARCHIVE_CODE_LIMIT = 32 << 20 /* bytes of all images */
};

/* An image of the maker's, as section IMAG has it. */
typedef struct fig_archive_image {
    uint32_t op;
    int32_t compute_capability; /* 80 or 90 */
    char family[16];            /* by name, zeros behind it */
    uint64_t bytes;
    uint8_t sha256[32];
} fig_archive_image;
static_assert(sizeof(fig_archive_image) == 64, "file format");

/* All zero, it is empty. */
typedef struct fig_archive {
    fig_archive_image *images; /* [image_count] sorted by op, family and compute capability */
    uint32_t image_count;
    uint8_t *code; /* [stored_bytes] a zstd frame of all images, each at a multiple of 16;
                                  NULL: none is embedded */
    size_t stored_bytes;
    uint32_t code_bytes; /* of the frame's content */
} fig_archive;

/* FIG_INVALID names what no maker records. The code is not looked at but for its size. */
fig_status fig_archive_check(const fig_archive *archive);
fig_status fig_archive_clone(fig_archive *clone, const fig_archive *archive);
void fig_archive_finish(fig_archive *archive); /* takes a zeroed one */

/* Records the images of the operations whose bit is set, in place of those recorded. */
fig_status fig_archive_record(fig_archive *archive, uint32_t ops, fig_image_source source);
/* Puts in the images as they are recorded, which are the source's. */
fig_status fig_archive_embed(fig_archive *archive, fig_image_source source);

/* 1: the source has an image of the place and hash. */
int fig_archive_is_own(const fig_archive_image *image, fig_image_source source);
/* "attention"; "unknown" where this library has no such kernel. */
const char *fig_archive_operation(const fig_archive_image *image);
void fig_archive_hex(const uint8_t sha256[32], char text[65]);

/* Images that were trusted, and their memory. finish takes a zeroed one. */
typedef struct fig_archive_admitted {
    fig_image_set set;
    uint8_t *code;
} fig_archive_admitted;
fig_status fig_archive_admit(const fig_archive *archive, const fig_trust *trust,
                             fig_image_source source, fig_archive_admitted *admitted);
void fig_archive_admitted_finish(fig_archive_admitted *admitted);

#endif
