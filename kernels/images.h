/* images.h: the compiled kernels, as bytes of the library.
 *
 * An image holds the entries of one family of an operation, for the chips of its path. Leaves
 * loading to the engine. Invariant: a library made with nvcc has an image of every family for each
 * path on which the family does not refuse every launch, and one made without has none. */
#ifndef FIG_KERNELS_IMAGES_H
#define FIG_KERNELS_IMAGES_H

#include "kernels/table.h"

typedef enum fig_image_path {
    FIG_IMAGE_PLAIN = 0, /* machine code for 8.0 and 9.0, and PTX of 8.0 for what came later */
    FIG_IMAGE_HOPPER,    /* 9.0 alone, with what only it can do; its edges may be programmatic */
    FIG_IMAGE_PATH_COUNT
} fig_image_path;

/* The compute capability whose features every kernel of the path may use. */
int32_t fig_images_capability(fig_image_path path);

typedef struct fig_image {
    const void *bytes; /* a fatbin; NULL: there is none */
    size_t count;
    const uint8_t *sha256; /* [32] of the bytes, known since the library was built */
} fig_image;

/* family: its index in the operation's row. */
fig_image fig_images_of(fig_op op, uint32_t family, fig_image_path path);

/* Who has such images: fig_images_of, or a test. */
typedef fig_image (*fig_image_source)(fig_op op, uint32_t family, fig_image_path path);

/* An image that stands in the place of the library's own. */
typedef struct fig_image_given {
    fig_op op;
    uint32_t family;
    fig_image_path path;
    fig_image image;
} fig_image_given;

typedef struct fig_image_set {
    fig_image_given *images; /* [count] */
    uint32_t count;
} fig_image_set;

#endif
