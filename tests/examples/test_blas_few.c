/* test_blas_few.c: tests matrix products of few rows: which shapes are supported, how the work is
 * divided among blocks, and, on a GPU, the results.
 *
 * The results are compared with sums in double. If FIG_DEVICE is not a GPU, the last test compares
 * the host's products instead. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "examples/blas_few.h"
#include "tests/support/place.h"

enum { BLOCKS = 132 };

static const char *why(int32_t rows, int32_t depth, int32_t width, int32_t y_stride) {
    blas_few_params params;
    return blas_few_plan(
        &(blas_product){
            .rows = rows, .depth = depth, .width = width, .y_stride = y_stride, .scale = 1},
        BLOCKS, &params);
}

static void an_unsupported_product_is_refused_with_its_reason(void **unused) {
    (void)unused;
    assert_null(why(32, 8192, 8192, 8192));
    assert_string_equal(why(33, 8192, 8192, 8192), "it has more than 32 rows");
    assert_string_equal(why(8, 8196, 8192, 8192), "rows of its matrices do not lie at 16 bytes");
    assert_string_equal(why(8, 8192, 8196, 8196), "its width is no multiple of 8");
    assert_string_equal(why(8, 8192, 8192, 8193), "rows of y do not lie at 4 bytes");
}

static void where_it_was_not_opened_it_multiplies_nothing(void **unused) {
    (void)unused;
    assert_int_equal(blas_few_blocks(), 0);
    assert_int_not_equal(
        blas_few_multiply(&(blas_product){.rows = 1, .depth = 8, .width = 8}, NULL), 0);
}

/* Checks that the ring and the sums fit into shared memory, and that no group of columns is larger
 * than a slot. */
static void check_plan(int32_t rows, int32_t depth, int32_t width) {
    blas_few_params p;
    const blas_product product = {
        .rows = rows, .depth = depth, .width = width, .y_stride = width, .scale = 1};
    assert_null(blas_few_plan(&product, BLOCKS, &p));
    const int32_t slots = p.slots * BLAS_FEW_PIECES * (p.group + p.x_units) * BLAS_FEW_PIECE_BYTES;
    const int32_t sums = BLAS_FEW_PARTS * p.x_units * BLAS_FEW_UNIT * BLAS_FEW_SUM_STRIDE * 4;
    assert_true(slots + sums <= BLAS_FEW_ROOM_BYTES);
    assert_true(p.slots >= 2 && p.slots <= BLAS_FEW_SLOT_LIMIT);
    assert_true(p.group >= 1 && p.group <= BLAS_FEW_GROUP_LIMIT);
    assert_true(p.blocks >= 1 && p.blocks <= BLOCKS && p.each >= 1);
    assert_true(p.x_units * BLAS_FEW_UNIT >= rows);
    const int32_t units = p.blocks * p.each + p.more;
    assert_true(p.more >= 0 && p.more < p.blocks);
    assert_int_equal(units * BLAS_FEW_UNIT, width);
    assert_true(p.steps * BLAS_FEW_STEP >= depth && (p.steps - 1) * BLAS_FEW_STEP < depth);
    for (int32_t count = p.each; count <= p.each + (p.more > 0); count++)
        for (int32_t g = 0; g < p.groups; g++) { /* the kernel cuts the groups like this */
            const int32_t in = count * (g + 1) / p.groups - count * g / p.groups;
            assert_true(in == p.group || in == p.group - 1);
        }
}

static void every_plan_fits_its_room(void **unused) {
    (void)unused;
    const int32_t rows[] = {1, 8, 9, 16, 17, 32};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (int32_t width = 8; width < 4096; width += 8)
            check_plan(rows[i], 8 + width % 312, width);
        check_plan(rows[i], 8192, 57344);
        check_plan(rows[i], 28672, 8192);
    }
}

/* ---- Numbers ------------------------------------------------------------------------------- */

static double number_of(uint16_t bf16) {
    const uint32_t bits = (uint32_t)bf16 << 16;
    float number;
    memcpy(&number, &bits, sizeof number);
    return (double)number;
}

static uint16_t *draw(size_t count) {
    static uint32_t state = 1;
    uint16_t *numbers = malloc(count * sizeof *numbers);
    for (size_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        numbers[i] = (uint16_t)(0x3f00u | (state >> 16 & 0x807fu)); /* 0.5 to 1, either sign */
    }
    return numbers;
}

static uint16_t *put(const blas *by, const uint16_t *numbers, size_t count) {
    uint16_t *there = by->allocate(count * sizeof *there);
    assert_non_null(there);
    assert_int_equal(by->move(there, numbers, count * sizeof *there), 0);
    return there;
}

/* Checks a product, and that the gaps between the rows of y are not written. */
static void check_product(const blas *by, int (*multiply)(const blas_product *, void *),
                          int32_t rows, int32_t depth, int32_t width) {
    const size_t stride = (size_t)width + 8, x_count = (size_t)rows * (size_t)depth;
    const size_t w_count = (size_t)width * (size_t)depth, y_count = (size_t)rows * stride;
    uint16_t *x = draw(x_count), *w = draw(w_count), *y = draw(y_count), *got = draw(y_count);
    uint16_t *const on[] = {put(by, x, x_count), put(by, w, w_count), put(by, y, y_count)};
    const blas_product product = {.x = on[0],
                                  .w = on[1],
                                  .y = on[2],
                                  .rows = rows,
                                  .depth = depth,
                                  .width = width,
                                  .y_stride = (int32_t)stride,
                                  .scale = 0.5f};
    for (int turn = 0; turn < 3; turn++) /* each may begin before the one in front has ended */
        assert_int_equal(multiply(&product, NULL), 0);
    assert_int_equal(by->wait(), 0);
    assert_int_equal(by->move(got, on[2], y_count * sizeof *got), 0);
    for (size_t i = 0; i < y_count; i++) {
        const size_t row = i / stride, column = i % stride;
        double due = 0, size = 0;
        for (size_t k = 0; column < (size_t)width && k < (size_t)depth; k++) {
            const double more = 0.5 * number_of(x[row * (size_t)depth + k]) *
                                number_of(w[column * (size_t)depth + k]);
            due += more;
            size += fabs(more);
        }
        const double off = fabs(number_of(got[i]) - due);
        if (column < (size_t)width ? !(off <= fabs(due) / 256 + size * 4e-6) : got[i] != y[i])
            fail_msg("%d x %d x %d: row %zu, %zu: %g, due %g", (int)rows, (int)depth, (int)width,
                     row, column, number_of(got[i]), due);
    }
    for (size_t i = 0; i < sizeof on / sizeof *on; i++)
        by->release(on[i]);
    free(x), free(w), free(y), free(got);
}

static void a_product_equals_the_product_in_double(void **unused) {
    (void)unused;
    const int on_gpu = fig_place_device() == FIG_DEVICE_CUDA;
    const blas *by = on_gpu ? &blas_cuda : &blas_host;
    const struct {
        int32_t rows, depth, width;
    } shapes[] = {{1, 8, 8},      {7, 64, 1056},   {8, 200, 1064}, {8, 640, 2120},
                  {9, 1000, 400}, {16, 128, 1600}, {17, 72, 1200}, {32, 2048, 64}};
    int32_t ordinal;
    /* blas_few is absent without a CUDA runtime, on a chip other than 9.0, or in a build without
     * nvcc. */
    if (by->open(0, &ordinal) != 0 || (on_gpu && blas_few_open() != 0)) skip();
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        check_product(by, on_gpu ? blas_few_multiply : by->multiply, shapes[i].rows,
                      shapes[i].depth, shapes[i].width);
    if (on_gpu) { /* on a host these sizes take too long */
        check_product(by, blas_few_multiply, 3, 512, 20000);
        check_product(by, blas_few_multiply, 8, 8192, 2120);
        check_product(by, blas_few_multiply, 32, 4096, 1280);
    }
    blas_few_close();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_unsupported_product_is_refused_with_its_reason),
        cmocka_unit_test(where_it_was_not_opened_it_multiplies_nothing),
        cmocka_unit_test(every_plan_fits_its_room),
        cmocka_unit_test(a_product_equals_the_product_in_double)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
