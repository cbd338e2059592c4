/* images.h: the compiled kernels, as bytes of the library.
 *
 * An image holds one operation's entry, fig_kernel_<name of its row>, for the chips of its path.
 * Leaves loading to the engine. Invariant: a library has every image or, made without nvcc, none.
 */
#ifndef FIG_KERNELS_IMAGES_H
#define FIG_KERNELS_IMAGES_H

#include "kernels/table.h"

typedef enum fig_image_path {
    FIG_IMAGE_PLAIN = 0, /* machine code for 8.0 and 9.0, and PTX of 8.0 for what came later */
    FIG_IMAGE_HOPPER,    /* 9.0 alone, with what only it can do; its edges may be programmatic */
    FIG_IMAGE_PATH_COUNT
} fig_image_path;

typedef struct fig_image {
    const void *bytes; /* a fatbin; NULL: there is none */
    size_t count;
} fig_image;

fig_image fig_images_of(fig_op op, fig_image_path path);

#endif
