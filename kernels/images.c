/* images.c: which bytes of the library are the image of which operation.
 *
 * Owns the table from operation and path to what images.S has put there. Invariant: a new kernel
 * is a row here and one there, named as its file is. */
#include "kernels/images.h"

#include <assert.h>

/* As images.S lays it out. */
typedef struct fig_image_data {
    uint64_t count, reserved; /* count 0: built without nvcc */
    unsigned char bytes[];    /* [count] */
} fig_image_data;
static_assert(sizeof(fig_image_data) == 16, "bytes begin at 16, as fatbins want to be aligned");

#define DECLARE(file)                                                                              \
    extern const fig_image_data fig_images_##file##_plain, fig_images_##file##_hopper
#define ROW(file)                                                                                  \
    { &fig_images_##file##_plain, &fig_images_##file##_hopper } /* [fig_image_path] */

DECLARE(fetch);
DECLARE(gated);
DECLARE(rope);
DECLARE(append_kv);
DECLARE(attention);
DECLARE(planning);
DECLARE(rms_norm);
DECLARE(merge_states);
DECLARE(look_ahead);

static const fig_image_data *const table[FIG_OP_KERNEL_COUNT][FIG_IMAGE_PATH_COUNT] = {
    [FIG_OP_FETCH] = ROW(fetch),
    [FIG_OP_GATED] = ROW(gated),
    [FIG_OP_ROPE] = ROW(rope),
    [FIG_OP_APPEND_KV] = ROW(append_kv),
    [FIG_OP_ATTENTION] = ROW(attention),
    [FIG_OP_PLAN] = ROW(planning),
    [FIG_OP_RMS_NORM] = ROW(rms_norm),
    [FIG_OP_MERGE_STATES] = ROW(merge_states),
    [FIG_OP_LOOK_AHEAD] = ROW(look_ahead),
};

fig_image fig_images_of(fig_op op, fig_image_path path) {
    assert((unsigned)op < FIG_OP_KERNEL_COUNT);
    assert((unsigned)path < FIG_IMAGE_PATH_COUNT);
    const fig_image_data *data = table[op][path];
    return (fig_image){data->count > 0 ? data->bytes : NULL, (size_t)data->count};
}
