/* images.c: which bytes of the library are the image of which family of an operation.
 *
 * Owns the table from family and path to what images.S has put there. Invariant: the families of an
 * operation stand here in the order of kernels/table.c, and each file named here has its row in
 * images.S. */
#include "kernels/images.h"

#include <assert.h>

/* As images.S lays it out. */
typedef struct fig_image_data {
    uint64_t count, reserved; /* count 0: built without nvcc */
    uint8_t sha256[32];       /* of the bytes */
    unsigned char bytes[];    /* [count] */
} fig_image_data;
static_assert(sizeof(fig_image_data) % 16 == 0, "fatbins want to be aligned to 16");

/* A family that serves on 9.0 alone is declared by DECLARE_HOPPER and stands as ROW_HOPPER; its row
 * of images.S is an image_hopper. */
#define DECLARE_HOPPER(file) extern const fig_image_data fig_images_##file##_hopper
#define ROW_HOPPER(file)                                                                           \
    { NULL, &fig_images_##file##_hopper }
#define DECLARE(file)                                                                              \
    extern const fig_image_data fig_images_##file##_plain, fig_images_##file##_hopper
#define ROW(file)                                                                                  \
    { &fig_images_##file##_plain, &fig_images_##file##_hopper } /* [fig_image_path] */

DECLARE(fetch);
DECLARE(gated);
DECLARE(rope);
DECLARE(append_kv);
DECLARE_HOPPER(attention_short_turn);
DECLARE_HOPPER(attention_turn);
DECLARE_HOPPER(attention_short);
DECLARE_HOPPER(attention_bulk);
DECLARE(attention_copy);
DECLARE(attention);
DECLARE(planning);
DECLARE(rms_norm);
DECLARE(merge_states);
DECLARE(look_ahead);
DECLARE(ceiling);
DECLARE(decode_attention);
DECLARE(all_reduce_nccl);
DECLARE(all_reduce_two_shot);
DECLARE(all_reduce);
DECLARE(all_gather_nccl);
DECLARE(all_gather);
DECLARE_HOPPER(whole_attention);

typedef const fig_image_data *images_of_paths[FIG_IMAGE_PATH_COUNT]; /* NULL: serves there never */

static const images_of_paths table[FIG_OP_KERNEL_COUNT][FIG_FAMILY_LIMIT] = {
    [FIG_OP_FETCH] = {ROW(fetch)},
    [FIG_OP_GATED] = {ROW(gated)},
    [FIG_OP_ROPE] = {ROW(rope)},
    [FIG_OP_APPEND_KV] = {ROW(append_kv)},
    [FIG_OP_ATTENTION] = {ROW_HOPPER(attention_short_turn), ROW_HOPPER(attention_turn),
                          ROW_HOPPER(attention_short), ROW_HOPPER(attention_bulk),
                          ROW(attention_copy), ROW(attention)},
    [FIG_OP_PLAN] = {ROW(planning)},
    [FIG_OP_RMS_NORM] = {ROW(rms_norm)},
    [FIG_OP_MERGE_STATES] = {ROW(merge_states)},
    [FIG_OP_LOOK_AHEAD] = {ROW(look_ahead)},
    [FIG_OP_CEILING] = {ROW(ceiling)},
    [FIG_OP_DECODE_ATTENTION] = {ROW(decode_attention)},
    [FIG_OP_ALL_REDUCE] = {ROW(all_reduce_nccl), ROW(all_reduce_two_shot), ROW(all_reduce)},
    [FIG_OP_ALL_GATHER] = {ROW(all_gather_nccl), ROW(all_gather)},
    [FIG_OP_WHOLE_ATTENTION] = {ROW_HOPPER(whole_attention)},
};

int32_t fig_images_capability(fig_image_path path) {
    return path == FIG_IMAGE_HOPPER ? 90 : 80;
}

fig_image fig_images_of(fig_op op, uint32_t family, fig_image_path path) {
    assert((unsigned)op < FIG_OP_KERNEL_COUNT && family < FIG_FAMILY_LIMIT);
    assert((unsigned)path < FIG_IMAGE_PATH_COUNT);
    const fig_image_data *data = table[op][family][path];
    if (data == NULL || data->count == 0) return (fig_image){NULL, 0, NULL};
    return (fig_image){data->bytes, (size_t)data->count, data->sha256};
}
