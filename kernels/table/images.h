/* images.h: gives access to the compiled kernels that the library contains.
 *
 * An image holds the entries of one family of an operation, for the chips of one path. The engine
 * loads them. Invariant: a library built with nvcc has an image or a template of every family for
 * each path on which the family serves any launch; a library built without nvcc has neither. */
#ifndef FIG_KERNELS_IMAGES_H
#define FIG_KERNELS_IMAGES_H

#include "kernels/table/table.h"

typedef enum fig_image_path {
    FIG_IMAGE_PLAIN = 0, /* machine code for 8.0 and 9.0, and PTX of 8.0 for later chips */
    /* only for 9.0, with the features that only 9.0 has; edges may be programmatic */
    FIG_IMAGE_HOPPER,
    FIG_IMAGE_PATH_COUNT
} fig_image_path;

/* Exports a symbol from libfigraph_kernels.so, which holds the images of a shared library. */
#define FIG_KERNELS_API __attribute__((visibility("default")))

/* Returns the compute capability whose features every kernel of the path may use. */
FIG_KERNELS_API int32_t fig_images_capability(fig_image_path path);

typedef struct fig_image {
    const void *bytes; /* a fatbin; NULL: there is none */
    size_t count;
    const uint8_t *sha256; /* [32] SHA-256 of the bytes, computed when the library was built */
} fig_image;

/* Returns an image. family: the family's index in the operation's row. */
FIG_KERNELS_API fig_image fig_images_of(fig_op op, uint32_t family, fig_image_path path);
/* Returns the template of a family that has no image: a zstd frame of PTX, with all entries of the
 * family and a mark in place of the score. planner/scores/score_ptx.h completes it. */
FIG_KERNELS_API fig_image fig_images_template(fig_op op, uint32_t family, fig_image_path path);

/* A source of images: fig_images_of, or a function of a test. */
typedef fig_image (*fig_image_source)(fig_op op, uint32_t family, fig_image_path path);

/* An image that replaces the library's own. */
typedef struct fig_image_given {
    fig_op op;
    uint32_t family;
    fig_image_path path;
    fig_image image;
} fig_image_given;

/* Code that a driver has compiled of the PTX of a score. */
typedef struct fig_image_compiled {
    uint8_t ptx[32];            /* SHA-256 of the PTX */
    int32_t compute_capability; /* of the GPU that the code is for */
    int32_t driver;  /* the driver, as a version of CUDA; older ones may refuse the code */
    char family[16]; /* the name of the family, followed by zeros */
    fig_image image;
} fig_image_compiled;

typedef struct fig_image_set {
    fig_image_given *images; /* [count] */
    uint32_t count;
    uint32_t compiled_count;
    fig_image_compiled *compiled; /* [compiled_count] */
} fig_image_set;

#endif
