/* twin_step.h: a random step for a kernel that works row by row, and the verdict on its results.
 *
 * Owns what all of them have: rows and their plan, the dtype, query tokens of a row. Invariant: a
 * step follows from the seed and its number, which a failure prints. */
#ifndef FIG_TESTS_SUPPORT_TWIN_STEP_H
#define FIG_TESTS_SUPPORT_TWIN_STEP_H

#include "tests/support/twin.h"

enum { FIG_TWIN_STEP_LIMIT = 6 }; /* rows of a plan */

typedef struct fig_twin_step {
    uint64_t seed;
    int number;
    fig_random random;
    int32_t dtype;  /* FIG_F32, FIG_F16 or FIG_BF16 */
    int64_t unit;   /* fig_twin_unit */
    fig_rows rows;  /* multiple: 1 to 8 */
    int32_t tokens; /* what a kernel does of row_limit: rows of the plan, times multiple */
    int32_t lengths[FIG_TWIN_STEP_LIMIT], sequences[FIG_TWIN_STEP_LIMIT];
    int32_t positions[FIG_TWIN_STEP_LIMIT]; /* of each row's last token, as the plan has them */
    fig_plan_shape shape;
    uint8_t *plan;
} fig_twin_step;

/* Of 0 rows to all that the bucket has, a quarter of them idle, and some of them in places up to
 * 1M. close frees the plan. */
void fig_twin_step_open(fig_twin_step *step, uint64_t seed, int number);
void fig_twin_step_close(fig_twin_step *step);

int32_t fig_twin_step_draw(fig_twin_step *step, int32_t low, int32_t high);
/* 1 to limit and, where it reaches one, whole units. */
int32_t fig_twin_step_width(fig_twin_step *step, int32_t limit);
/* Elements from row to row. */
int64_t fig_twin_step_stride(fig_twin_step *step, int64_t width);
fig_row_strides fig_twin_step_strides(fig_twin_step *step, int32_t heads, int32_t head_dim);
/* Of row_limit rows, full of normal numbers and kept; of poison where deviation is 0. */
fig_twin_array fig_twin_step_array(fig_twin_step *step, int64_t stride, float deviation);
/* Lets the kernel write each head of each of the step's tokens. */
void fig_twin_step_allow(const fig_twin_step *step, fig_twin_array *array, fig_row_strides strides,
                         int32_t heads, int32_t head_dim);

/* Half a unit of the dtype, on top of what f32 may have lost before it was rounded. */
double fig_twin_step_tolerance(const fig_twin_step *step, double want, double lost);
/* Two NaNs are equal. `name` begins with the kernel's, under which the worst error is noted. */
void fig_twin_step_expect(const fig_twin_step *step, const char *name, int64_t index, double got,
                          double want, double tolerance);

#endif
