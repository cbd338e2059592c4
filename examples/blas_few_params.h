/* blas_few_params.h: defines the arguments of blas_few.cu, and how a product is cut.
 *
 * A unit is 8 rows of the weights, and so 8 numbers of each row of y. A block computes neighbouring
 * units in groups, and its warps hold the sums of one group. For each group the block goes once
 * along the depth, in steps. The weights and the part of x that a step needs fill one slot of a
 * ring in shared memory. The tensor maps cut them into pieces: 64 numbers of 8 rows, which are 1024
 * bytes. */
#ifndef EXAMPLES_BLAS_FEW_PARAMS_H
#define EXAMPLES_BLAS_FEW_PARAMS_H

#include <stdint.h>

enum {
    BLAS_FEW_UNIT = 8,
    BLAS_FEW_PIECE = 64, /* numbers of one row */
    BLAS_FEW_PIECE_BYTES = 1024,
    BLAS_FEW_PIECES = 2, /* pieces of a unit in one step */
    BLAS_FEW_STEP = BLAS_FEW_PIECES * BLAS_FEW_PIECE,
    BLAS_FEW_GROUP_LIMIT = 10,
    BLAS_FEW_SLOT_LIMIT = 16,
    BLAS_FEW_WARPS = 8, /* warps that multiply; one more warp fills the ring */
    BLAS_FEW_THREADS = 32 * (BLAS_FEW_WARPS + 1),
    /* parts that the depth of a step is cut into; each has its own warps */
    BLAS_FEW_PARTS = 2 * BLAS_FEW_PIECES,
    BLAS_FEW_SUM_STRIDE = BLAS_FEW_GROUP_LIMIT * BLAS_FEW_UNIT + 4,
    /* shared memory of a block; it is more than half of an SM's, so no SM gets two blocks while
     * others have none */
    BLAS_FEW_ROOM_BYTES = 220 << 10
};

/* A tensor map of the driver (CUtensorMap). */
typedef struct blas_few_map {
    uint64_t words[16];
} __attribute__((aligned(64))) blas_few_map;

typedef struct blas_few_params {
    blas_few_map w, w_less, x; /* w_less: the map for groups with one unit less */
    uint16_t *y;               /* [rows][y_stride] */
    int32_t rows, y_stride;
    int32_t blocks, each, more; /* each block has `each` units; the first `more` have one more */
    /* groups of a block; units of the largest groups; steps of a group */
    int32_t groups, group, steps;
    int32_t x_units, slots; /* x_units: the units of x, of 8 rows each: 1, 2 or 4 */
    float scale;
} blas_few_params;

#endif
