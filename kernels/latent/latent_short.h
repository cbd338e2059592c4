/* latent_short.h: decides which rows of a latent cache are short, and how large their clusters are.
 *
 * Each group of heads of a short row has a cluster of blocks (latent_short.cu). nvcc and gcc both
 * read this file. Invariant: the file holds only constants and arithmetic. */
#ifndef FIG_KERNELS_LATENT_SHORT_H
#define FIG_KERNELS_LATENT_SHORT_H

#include "kernels/attention/geometry.h"

enum {
    FIG_LATENT_SHORT_BLOCKS = 16, /* of the largest cluster */
    FIG_LATENT_SHORT_TILES = 4,   /* most tiles of a block */
    /* clusters of the largest size that surely run at once; see fig_geometry_short_holds() */
    FIG_LATENT_SHORT_LARGEST = 4
};

/* Returns 1 if a kernel exists for clusters with this number of blocks. */
FIG_BOTH int32_t fig_latent_short_has(int32_t blocks) {
    return blocks == 2 || blocks == 4 || blocks == 8 || blocks == FIG_LATENT_SHORT_BLOCKS;
}

/* Returns 1 if a machine of `sm_count` SMs runs the clusters of all segments at once. A block fills
 * an SM, and the GPU places a cluster within one GPC, so larger clusters leave more SMs idle: on
 * 132 SMs in GPCs of 14 to 18, at least 13 clusters of 8 run, 29 of 4 and 66 of 2. */
FIG_BOTH int32_t fig_latent_short_fits(int64_t segments, int32_t blocks, int32_t sm_count) {
    if (blocks == FIG_LATENT_SHORT_BLOCKS)
        return segments <= FIG_LATENT_SHORT_LARGEST && fig_geometry_short_holds(blocks, sm_count);
    if (blocks == 8) return segments * blocks <= sm_count * 3 / 4;
    return segments * blocks <= (blocks == 4 ? sm_count * 7 / 8 : sm_count);
}

/* Chooses how many blocks the cluster of each segment has: as many as fit while more than half of
 * them have tiles. Returns 0 if a segment with this number of tiles is not short. */
FIG_BOTH int32_t fig_latent_short_blocks(int64_t segments, int32_t tiles, int32_t sm_count) {
    int32_t blocks = FIG_LATENT_SHORT_BLOCKS;
    while (blocks > 1 &&
           (blocks / 2 >= tiles || !fig_latent_short_fits(segments, blocks, sm_count)))
        blocks /= 2;
    return blocks > 1 && tiles <= blocks * FIG_LATENT_SHORT_TILES ? blocks : 0;
}

#endif
