/* images.c: finds the image of a family of an operation.
 *
 * Owns the table from family and path to the symbols of images.S. Invariant: both come from one
 * list, operations.h. */
#include "kernels/table/images.h"

#include <assert.h>

#include "kernels/table/operations.h"

/* The layout that images.S writes. */
typedef struct fig_image_data {
    uint64_t count, reserved; /* 0: the library was built without nvcc */
    uint8_t sha256[32];       /* SHA-256 of the bytes */
    unsigned char bytes[];    /* [count] */
} fig_image_data;
static_assert(sizeof(fig_image_data) % 16 == 0, "fatbins want to be aligned to 16");

#define OPERATION(number, OP, name, reference, check, families) families

#define DECLARE_HOPPER(file) extern const fig_image_data fig_images_##file##_hopper;
#define DECLARE_ALL(file)                                                                          \
    extern const fig_image_data fig_images_##file##_plain;                                         \
    DECLARE_HOPPER(file)
#define DECLARE_TEXT_HOPPER(file) DECLARE_HOPPER(file)
#define DECLARE_TEXT_ALL(file) DECLARE_ALL(file)
#define DECLARE(OP, KIND, kind, file, PATHS) DECLARE_##PATHS(file)
FIG_OPERATIONS(OPERATION, DECLARE)

/* NULL: the family never serves on this path */
typedef const fig_image_data *images_of_paths[FIG_IMAGE_PATH_COUNT];

#define OF_ALL(file) {&fig_images_##file##_plain, &fig_images_##file##_hopper},
#define OF_HOPPER(file) {NULL, &fig_images_##file##_hopper},
#define NONE(file) {NULL, NULL},
#define IMAGES_ALL OF_ALL
#define IMAGES_HOPPER OF_HOPPER
#define IMAGES_TEXT_ALL NONE
#define IMAGES_TEXT_HOPPER NONE
#define IMAGES(OP, KIND, kind, file, PATHS) IMAGES_##PATHS(file)
#define ROW(number, OP, name, reference, check, families) [number] = {families},
static const images_of_paths table[FIG_OP_KERNEL_COUNT][FIG_FAMILY_LIMIT] = {
    FIG_OPERATIONS(ROW, IMAGES)};

#define TEXTS_ALL NONE
#define TEXTS_HOPPER NONE
#define TEXTS_TEXT_ALL OF_ALL
#define TEXTS_TEXT_HOPPER OF_HOPPER
#define TEXTS(OP, KIND, kind, file, PATHS) TEXTS_##PATHS(file)
static const images_of_paths templates[FIG_OP_KERNEL_COUNT][FIG_FAMILY_LIMIT] = {
    FIG_OPERATIONS(ROW, TEXTS)};

int32_t fig_images_capability(fig_image_path path) {
    return path == FIG_IMAGE_HOPPER ? 90 : 80;
}

static fig_image find(const images_of_paths (*rows)[FIG_FAMILY_LIMIT], fig_op op, uint32_t family,
                      fig_image_path path) {
    const fig_image_data *data = NULL; /* an operation outside the table has no image */
    if ((unsigned)op < FIG_OP_KERNEL_COUNT && family < FIG_FAMILY_LIMIT &&
        (unsigned)path < FIG_IMAGE_PATH_COUNT)
        data = rows[op][family][path];
    if (data == NULL || data->count == 0) return (fig_image){NULL, 0, NULL};
    return (fig_image){data->bytes, (size_t)data->count, data->sha256};
}

fig_image fig_images_of(fig_op op, uint32_t family, fig_image_path path) {
    return find(table, op, family, path);
}

fig_image fig_images_template(fig_op op, uint32_t family, fig_image_path path) {
    return find(templates, op, family, path);
}
