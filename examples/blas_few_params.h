/* blas_few_params.h: what blas_few.c tells blas_few.cu, and how both cut a product.
 *
 * A unit is 8 rows of the weights, so 8 numbers of each row of y. A block has neighbouring units
 * and takes them in groups, whose sums its warps hold; over each group it goes once along the
 * depth, in steps. What a step needs of the weights and of x fills a slot of a ring in shared
 * memory, piece by piece: 64 numbers of 8 rows are a kilobyte, as the tensor maps cut them. */
#ifndef EXAMPLES_BLAS_FEW_PARAMS_H
#define EXAMPLES_BLAS_FEW_PARAMS_H

#include <stdint.h>

enum {
    BLAS_FEW_UNIT = 8,
    BLAS_FEW_PIECE = 64, /* numbers */
    BLAS_FEW_PIECE_BYTES = 1024,
    BLAS_FEW_PIECES = 2, /* of a unit in a step */
    BLAS_FEW_STEP = BLAS_FEW_PIECES * BLAS_FEW_PIECE,
    BLAS_FEW_GROUP_LIMIT = 10,
    BLAS_FEW_SLOT_LIMIT = 16,
    BLAS_FEW_WARPS = 8, /* that multiply; one more fills */
    BLAS_FEW_THREADS = 32 * (BLAS_FEW_WARPS + 1),
    BLAS_FEW_PARTS = 2 * BLAS_FEW_PIECES, /* of a step, each added up by warps of its own */
    BLAS_FEW_SUM_STRIDE = BLAS_FEW_GROUP_LIMIT * BLAS_FEW_UNIT + 4,
    BLAS_FEW_ROOM_BYTES = 220 << 10 /* so that no SM gets two blocks while others have none */
};

/* The driver's. */
typedef struct blas_few_map {
    uint64_t words[16];
} __attribute__((aligned(64))) blas_few_map;

typedef struct blas_few_params {
    blas_few_map w, w_less, x; /* w_less: of groups that have a unit less */
    uint16_t *y;               /* [rows][y_stride] */
    int32_t rows, y_stride;
    int32_t blocks, each, more;   /* units of a block; the first `more` blocks have one more */
    int32_t groups, group, steps; /* of a block; units of a group, or one less; of a group */
    int32_t x_units, slots;       /* x_units: 8 rows each, 1, 2 or 4 */
    float scale;
} blas_few_params;

#endif
