/* reference_step.h: draws a random step for a kernel that works row by row, and checks its results.
 *
 * Owns the properties that all of these kernels have in common: rows and their plan, the dtype, and
 * the query tokens of a row. Invariant: a step depends only on the seed and its number, which a
 * failure prints. */
#ifndef FIG_TESTS_SUPPORT_REFERENCE_STEP_H
#define FIG_TESTS_SUPPORT_REFERENCE_STEP_H

#include "tests/support/kernels/reference.h"

enum { FIG_TWIN_STEP_LIMIT = 6 }; /* the most rows that a plan has */

typedef struct fig_reference_step {
    uint64_t seed;
    int number;
    fig_random random;
    int32_t dtype;  /* FIG_F32, FIG_F16 or FIG_BF16 */
    int64_t unit;   /* see fig_reference_unit() */
    fig_rows rows;  /* multiple: 1 to 8 */
    int32_t tokens; /* the number of rows that a kernel computes: the plan's rows times multiple */
    int32_t lengths[FIG_TWIN_STEP_LIMIT], sequences[FIG_TWIN_STEP_LIMIT];
    /* the position of each row's last token, as in the plan */
    int32_t positions[FIG_TWIN_STEP_LIMIT];
    fig_plan_shape shape;
    uint8_t *plan;
} fig_reference_step;

/* Draws a step with any number of rows up to the bucket's. A quarter of the rows are idle, and some
 * have positions up to 1M. close frees the plan. */
void fig_reference_step_open(fig_reference_step *step, uint64_t seed, int number);
void fig_reference_step_close(fig_reference_step *step);

int32_t fig_reference_step_draw(fig_reference_step *step, int32_t low, int32_t high);
/* Draws a width from 1 to limit, in whole units if the limit permits. */
int32_t fig_reference_step_width(fig_reference_step *step, int32_t limit);
/* Draws the number of elements from one row to the next. */
int64_t fig_reference_step_stride(fig_reference_step *step, int64_t width);
fig_row_strides fig_reference_step_strides(fig_reference_step *step, int32_t heads,
                                           int32_t head_dim);
/* Makes an array of row_limit rows. It holds normally distributed numbers, and a copy of them is
 * kept. If deviation is 0, it holds poison instead. */
fig_reference_array fig_reference_step_array(fig_reference_step *step, int64_t stride,
                                             float deviation);
/* Marks every head of the step's tokens as writable. */
void fig_reference_step_allow(const fig_reference_step *step, fig_reference_array *array,
                              fig_row_strides strides, int32_t heads, int32_t head_dim);

/* Returns half a unit of the dtype, plus the error `lost` that f32 may have before the rounding. */
double fig_reference_step_tolerance(const fig_reference_step *step, double want, double lost);
/* Compares two numbers. Two NaNs are equal. `name` begins with the kernel's name, under which the
 * worst error is noted. */
void fig_reference_step_expect(const fig_reference_step *step, const char *name, int64_t index,
                               double got, double want, double tolerance);

#endif
