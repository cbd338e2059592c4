/* reference_step.c: see reference_step.h. Inputs after the last row are ordinary numbers too. If a
 * kernel works outside its rows, this changes an output; a further NaN would go unnoticed. */
#include "tests/support/kernels/reference_step.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/place.h"
#include "tests/support/worst.h"
#include "tools/figraph/truth/truth.h"

enum { MANY_ROWS = 530 };

int32_t fig_reference_step_draw(fig_reference_step *step, int32_t low, int32_t high) {
    return fig_random_range(&step->random, low, high);
}

static void draw_row(fig_reference_step *step, int32_t row, int given) {
    int32_t multiple = step->rows.multiple;
    int idle = fig_reference_step_draw(step, 0, 3) == 0;
    step->sequences[row] = row;
    step->lengths[row] = idle ? 0 : fig_reference_step_draw(step, multiple, multiple + 100);
    step->positions[row] = idle ? 0 : step->lengths[row] - 1;
    if (given) step->positions[row] = fig_reference_step_draw(step, 0, 1 << 20);
}

void fig_reference_step_open(fig_reference_step *step, uint64_t seed, int number) {
    static const int32_t dtypes[] = {FIG_F32, FIG_F16, FIG_BF16};
    memset(step, 0, sizeof *step);
    step->seed = seed;
    step->number = number;
    step->random = fig_random_seed(seed + (uint64_t)number);
    step->dtype = dtypes[fig_reference_step_draw(step, 0, 2)];
    step->unit = fig_reference_unit(&step->random, step->dtype);
    int32_t batch = fig_reference_step_draw(step, 1, FIG_TWIN_STEP_LIMIT);
    int32_t rows = fig_reference_step_draw(step, 0, batch);
    step->rows.multiple =
        fig_reference_step_draw(step, 0, 1) ? 1 : fig_reference_step_draw(step, 1, 8);
    /* Kernels treat rows differently if a launch has room for many rows. */
    if (number % 50 == 49) batch += MANY_ROWS / step->rows.multiple;
    step->rows.row_limit = batch * step->rows.multiple;
    step->tokens = rows * step->rows.multiple;
    int given = fig_reference_step_draw(step, 0, 1);
    for (int32_t row = 0; row < rows; row++)
        draw_row(step, row, given);
    step->shape.row_limit = batch;
    fig_plan_step plan = {.rows = rows,
                          .lengths = step->lengths,
                          .positions = given ? step->positions : NULL,
                          .sequences = step->sequences};
    step->plan = fig_reference_plan(&step->shape, &plan);
}

void fig_reference_step_close(fig_reference_step *step) {
    fig_place_free(step->plan);
}

int32_t fig_reference_step_width(fig_reference_step *step, int32_t limit) {
    int32_t unit = limit < step->unit ? 1 : (int32_t)step->unit;
    return unit * fig_reference_step_draw(step, 1, limit / unit);
}

int64_t fig_reference_step_stride(fig_reference_step *step, int64_t width) {
    return fig_reference_stride(&step->random, step->unit, width);
}

fig_row_strides fig_reference_step_strides(fig_reference_step *step, int32_t heads,
                                           int32_t head_dim) {
    int64_t head = fig_reference_step_stride(step, head_dim);
    return (fig_row_strides){.row = fig_reference_step_stride(step, heads * head), .head = head};
}

fig_reference_array fig_reference_step_array(fig_reference_step *step, int64_t stride,
                                             float deviation) {
    fig_reference_array array =
        fig_reference_array_make(step->dtype, step->rows.row_limit * stride);
    if (deviation > 0) fig_reference_array_fill(&array, 0, array.count, &step->random, deviation);
    fig_reference_array_keep(&array);
    return array;
}

void fig_reference_step_allow(const fig_reference_step *step, fig_reference_array *array,
                              fig_row_strides strides, int32_t heads, int32_t head_dim) {
    for (int32_t row = 0; row < step->tokens; row++)
        for (int32_t head = 0; head < heads; head++)
            fig_reference_array_allow(array, row * strides.row + head * strides.head, head_dim);
}

double fig_reference_step_tolerance(const fig_reference_step *step, double want, double lost) {
    return 0.5 * truth_ulp((fig_dtype)step->dtype, fabs(want) + lost) + lost;
}

void fig_reference_step_expect(const fig_reference_step *step, const char *name, int64_t index,
                               double got, double want, double tolerance) {
    if (got == want || (isnan(got) && isnan(want))) return;
    fig_worst_note(name, (fig_dtype)step->dtype, fabs(got - want), tolerance);
    if (fabs(got - want) <= tolerance) return;
    fail_msg("%s, element %lld: got %.9g, want %.9g within %.3g; step %d of seed 0x%llx", name,
             (long long)index, got, want, tolerance, step->number, (unsigned long long)step->seed);
}
