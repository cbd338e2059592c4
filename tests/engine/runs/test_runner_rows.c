/* test_runner_rows.c: compares runs of row operations with float64: any number of rows, any width,
 * any strides, without scratch. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/support/ffi/run_rig.h"
#include "tests/support/kernels/reference.h"
#include "tests/support/place.h"
#include "tools/figraph/truth/truth.h"

enum { WIDTH_LIMIT = 4096, HEADS_LIMIT = 8 };

static uint64_t seed;

static const fig_spec *spec_of(fig_dtype dtype) {
    static fig_spec spec;
    spec = (fig_spec){.size = sizeof spec, .dtype = dtype};
    return &spec;
}

static void expect(double got, double want, double tolerance, const char *what, int64_t index) {
    if (fabs(got - want) <= tolerance) return;
    fail_msg("%s: element %lld is %.9g, wanted %.9g within %.3g; seed 0x%llx", what,
             (long long)index, got, want, tolerance, (unsigned long long)seed);
}

/* Returns half a unit of the dtype plus the error that f32 arithmetic may add. */
static double tolerance_of(fig_dtype dtype, double want, double magnitude) {
    return 0.51 * truth_ulp(dtype, want) + 2e-6 * magnitude;
}

/* ---- Gated */

typedef struct gated_case {
    fig_dtype dtype;
    int32_t rows, width;
    int64_t skew, in_stride, out_stride; /* strides 0: contiguous */
} gated_case;

static void expect_gated(const gated_case *c) {
    fig_run_rig rig;
    fig_run_rig_begin(&rig, spec_of(c->dtype), seed);
    const fig_tensor in = fig_run_rig_tensor(&rig, "in", c->dtype,
                                             (int64_t[4]){FIG_DIM_BATCH, 2 * (int64_t)c->width});
    const fig_tensor out =
        fig_run_rig_tensor(&rig, "out", c->dtype, (int64_t[4]){FIG_DIM_BATCH, c->width});
    fig_silu_and_mul(rig.program, FIG_OPTIONS(fig_gated_op, .in = in, .out = out));
    fig_run_rig_open(&rig);
    const int64_t from = c->in_stride != 0 ? c->in_stride : 2 * c->width;
    const int64_t to = c->out_stride != 0 ? c->out_stride : c->width;
    const void *x = fig_run_rig_fill(&rig, 0, (c->rows - 1) * from + 2 * c->width, c->skew);
    const void *y = fig_run_rig_memory(&rig, 1, (c->rows - 1) * to + c->width, c->skew);
    if (c->in_stride != 0) fig_run_rig_strides(&rig, 0, from, 1, 0);
    if (c->out_stride != 0) fig_run_rig_strides(&rig, 1, to, 1, 0);
    rig.run.rows = c->rows;
    if (fig_run_rig_run(&rig) != FIG_OK) fail_msg("%s", fig_message());
    for (int32_t row = 0; row < c->rows; row += 1 + c->rows / 50) {
        double want[WIDTH_LIMIT];
        truth_gated(&(truth_gated_args){.in = {x, c->dtype, from, 0},
                                        .activation = FIG_SILU,
                                        .row = row,
                                        .width = c->width},
                    want);
        for (int32_t i = 0; i < c->width; i++)
            expect(truth_load(y, c->dtype, row * to + i), want[i],
                   tolerance_of(c->dtype, want[i], fabs(want[i]) * 4), "gated", row * to + i);
    }
    fig_run_rig_close(&rig);
}

static void any_rows_of_any_width_lie_anywhere(void **state) {
    (void)state;
    static const gated_case cases[] = {
        {FIG_BF16, 1, 8, 0, 0, 0},       {FIG_F16, 1, 1, 0, 0, 0},
        {FIG_F32, 3, 7, 1, 0, 0},        {FIG_BF16, 5, 13, 3, 31, 17},
        {FIG_F16, 2049, 64, 0, 0, 0},    {FIG_BF16, 1500, 10, 1, 0, 11},
        {FIG_F32, 1025, 24, 0, 52, 0},   {FIG_BF16, 2, 4095, 5, 0, 0},
        {FIG_BF16, 3, 2048, 0, 4104, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        expect_gated(&cases[i]);
}

/* ---- RMSNorm */

static void a_norm_takes_rows_that_no_vector_fits(void **state) {
    (void)state;
    for (int n = 0; n < 12; n++) {
        fig_run_rig rig;
        const fig_dtype dtype = n % 3 == 0 ? FIG_F32 : n % 3 == 1 ? FIG_F16 : FIG_BF16;
        fig_run_rig_begin(&rig, spec_of(dtype), seed + (uint64_t)n);
        const int32_t rows = n == 4 ? 1300 : fig_random_range(&rig.random, 1, 9);
        const int32_t width = fig_random_range(&rig.random, 1, 700);
        const int64_t skew = fig_random_range(&rig.random, 0, 3);
        const int64_t dims[4] = {FIG_DIM_BATCH, width};
        const fig_tensor in = fig_run_rig_tensor(&rig, "in", dtype, dims);
        const fig_tensor weight = fig_run_rig_tensor(&rig, "weight", dtype, (int64_t[4]){width});
        const fig_tensor out = fig_run_rig_tensor(&rig, "out", dtype, dims);
        fig_rms_norm(rig.program,
                     FIG_OPTIONS(fig_rms_norm_op, .in = in, .weight = weight, .out = out));
        fig_run_rig_open(&rig);
        const void *x = fig_run_rig_fill(&rig, 0, (int64_t)rows * width, skew);
        const void *w = fig_run_rig_fill(&rig, 1, width, skew);
        const void *y = fig_run_rig_memory(&rig, 2, (int64_t)rows * width, skew);
        rig.run.rows = rows;
        assert_int_equal(fig_run_rig_run(&rig), FIG_OK);
        for (int32_t row = 0; row < rows; row++) {
            double want[WIDTH_LIMIT];
            truth_rms_norm(&(truth_rms_norm_args){.x = {x, dtype, width, 0},
                                                  .weight = w,
                                                  .epsilon = (double)1e-6f,
                                                  .row = row,
                                                  .width = width},
                           want);
            for (int32_t i = 0; i < width; i++)
                expect(truth_load(y, dtype, (int64_t)row * width + i), want[i],
                       tolerance_of(dtype, want[i], fabs(want[i])), "rms_norm", i);
        }
        fig_run_rig_close(&rig);
    }
}

/* ---- RoPE */

/* How a run gets the positions of its rows. */
typedef enum rope_way { POSITIONS, PACKED, WAYS } rope_way;

typedef struct rope_case {
    fig_dtype dtype, integers;
    rope_way way;
    int32_t rows, q_heads, k_heads, head_dim;
    int in_place; /* 1: in place, in views of one packed array [rows][q and k heads][head_dim] */
    int64_t skew;
} rope_case;

static int64_t position_of(const rope_case *c, int32_t row) {
    if (c->way == POSITIONS) return 1000 + 7 * (int64_t)row;
    /* two segments of consecutive positions */
    return row < c->rows / 2 ? 50 + row : 90000 + row - c->rows / 2;
}

/* Records RoPE. Tensors 0 and 1 are q and k, 2 and 3 their results; the last one or two give the
 * positions. */
static void record_rope(fig_run_rig *rig, const rope_case *c) {
    fig_rope_op op = {.size = sizeof op};
    const int64_t q[4] = {FIG_DIM_BATCH, c->q_heads, c->head_dim};
    const int64_t k[4] = {FIG_DIM_BATCH, c->k_heads, c->head_dim};
    op.q = fig_run_rig_tensor(rig, "q", c->dtype, q);
    op.k = fig_run_rig_tensor(rig, "k", c->dtype, k);
    op.q_out = fig_run_rig_tensor(rig, "q_out", c->dtype, q);
    op.k_out = fig_run_rig_tensor(rig, "k_out", c->dtype, k);
    op.rope = &(fig_rope_spec){.interleaved = c->rows % 2};
    if (c->way == POSITIONS) {
        op.positions =
            fig_run_rig_tensor(rig, "positions", c->integers, (int64_t[4]){FIG_DIM_BATCH});
    } else {
        op.indptr = fig_run_rig_tensor(rig, "indptr", c->integers, (int64_t[4]){3});
        op.offsets = fig_run_rig_tensor(rig, "offsets", c->integers, (int64_t[4]){2});
    }
    fig_rope(rig->program, &op);
    fig_run_rig_open(rig);
}

static void fill_positions(fig_run_rig *rig, const rope_case *c) {
    if (c->way == POSITIONS) {
        void *positions = fig_run_rig_memory(rig, 4, c->rows, 0);
        for (int32_t row = 0; row < c->rows; row++)
            fig_run_rig_store(positions, c->integers, row, (double)position_of(c, row));
        return;
    }
    void *indptr = fig_run_rig_memory(rig, 4, 3, 0), *offsets = fig_run_rig_memory(rig, 5, 2, 0);
    const double ends[] = {0, c->rows / 2, c->rows}, at[] = {50, 90000};
    for (int i = 0; i < 3; i++)
        fig_run_rig_store(indptr, c->integers, i, ends[i]);
    for (int i = 0; i < 2; i++)
        fig_run_rig_store(offsets, c->integers, i, at[i]);
}

static void expect_heads(const rope_case *c, const void *before, const void *after, int64_t stride,
                         int32_t heads) {
    for (int32_t row = 0; row < c->rows; row++) {
        for (int32_t head = 0; head < heads; head++) {
            double want[TRUTH_HEAD_DIM_LIMIT];
            const truth_rope_args args = {.x = {before, c->dtype, stride, c->head_dim},
                                          .rope = {.interleaved = c->rows % 2,
                                                   .rotary_dim = c->head_dim,
                                                   .theta = 10000,
                                                   .scale = 1},
                                          .row = row,
                                          .position = position_of(c, row),
                                          .head = head,
                                          .head_dim = c->head_dim};
            truth_rope(&args, want);
            for (int32_t i = 0; i < c->head_dim; i++)
                expect(truth_load(after, c->dtype, row * stride + head * c->head_dim + i), want[i],
                       tolerance_of(c->dtype, want[i], 4), "rope", i);
        }
    }
}

static void expect_rope(const rope_case *c) {
    fig_run_rig rig;
    fig_run_rig_begin(&rig, spec_of(c->dtype), seed);
    record_rope(&rig, c);
    fill_positions(&rig, c);
    const size_t item = c->dtype == FIG_F32 ? 4 : 2;
    const int64_t q_row = (int64_t)c->q_heads * c->head_dim;
    const int64_t row = q_row + (int64_t)c->k_heads * c->head_dim;
    uint8_t *packed = fig_run_rig_fill(&rig, 0, c->rows * row, c->skew);
    uint8_t *before = malloc((size_t)(c->rows * row) * item);
    assert_non_null(before);
    memcpy(before, packed, (size_t)(c->rows * row) * item);
    const uint64_t k_at = (uint64_t)q_row * item;
    fig_binding *b = rig.bindings;
    b[1].address = packed + k_at;
    b[1].bytes = b[0].bytes - k_at;
    if (c->in_place) {
        b[2] = b[0], b[3] = b[1];
        b[2].name = "q_out", b[3].name = "k_out";
    } else {
        fig_run_rig_memory(&rig, 2, c->rows * row, c->skew);
        b[3].address = (uint8_t *)b[2].address + k_at;
        b[3].bytes = b[2].bytes - k_at;
    }
    for (int32_t i = 0; i < 4; i++)
        fig_run_rig_strides(&rig, i, row, c->head_dim, 1);
    rig.run.rows = c->rows;
    if (fig_run_rig_run(&rig) != FIG_OK) fail_msg("%s", fig_message());
    expect_heads(c, before, b[2].address, row, c->q_heads);
    expect_heads(c, before + k_at, b[3].address, row, c->k_heads);
    free(before);
    fig_run_rig_close(&rig);
}

static void rope_turns_views_of_packed_rows_and_takes_integers_of_either_width(void **state) {
    (void)state;
    static const rope_case cases[] = {
        {FIG_F16, FIG_I32, POSITIONS, 3, 4, 2, 64, 1, 0},
        {FIG_F16, FIG_I64, POSITIONS, 1100, 2, 1, 16, 0, 0},
        {FIG_BF16, FIG_I32, PACKED, 6, 4, 2, 128, 1, 3},
        {FIG_BF16, FIG_I64, PACKED, 7, 4, 1, 128, 0, 1},
        {FIG_F32, FIG_I64, PACKED, 10, 3, 3, 6, 1, 1},
        {FIG_F32, FIG_I64, POSITIONS, 2, 1, 1, 2, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        expect_rope(&cases[i]);
}

/* ---- Nothing else */

/* The number of rows is the run's own, not a bucket's or another run's. A run without rows does
 * nothing. */
static void no_row_behind_the_last_is_touched(void **state) {
    (void)state;
    fig_run_rig rig;
    fig_run_rig_begin(&rig, spec_of(FIG_F32), seed);
    const fig_tensor in = fig_run_rig_tensor(&rig, "in", FIG_F32, (int64_t[4]){FIG_DIM_BATCH, 8});
    const fig_tensor out = fig_run_rig_tensor(&rig, "out", FIG_F32, (int64_t[4]){FIG_DIM_BATCH, 4});
    fig_gelu_and_mul(rig.program, FIG_OPTIONS(fig_gated_op, .in = in, .out = out));
    fig_run_rig_open(&rig);
    fig_run_rig_fill(&rig, 0, 5 * 8, 0);
    const float *y = fig_run_rig_memory(&rig, 1, 5 * 4, 0);
    for (int32_t rows = 0; rows <= 5; rows++) {
        rig.run.rows = rows;
        assert_int_equal(fig_run_rig_run(&rig), FIG_OK);
        for (int32_t i = 0; i < 20; i++)
            assert_true((isnan(y[i]) != 0) == (i >= rows * 4));
    }
    rig.run.rows = INT32_MAX;
    assert_int_equal(fig_run_rig_run(&rig), FIG_INVALID);
    assert_non_null(strstr(fig_message(), "tensor in: bytes is 160"));
    fig_run_rig_close(&rig);
}

/* One node writes a temporary tensor that the next node reads. The tensor is in scratch, which
 * holds other contents before. */
static void temps_lie_in_scratch(void **state) {
    (void)state;
    fig_run_rig rig;
    fig_run_rig_begin(&rig, spec_of(FIG_BF16), seed);
    const fig_tensor in =
        fig_run_rig_tensor(&rig, "in", FIG_BF16, (int64_t[4]){FIG_DIM_BATCH, 4 * 10});
    const fig_tensor out =
        fig_run_rig_tensor(&rig, "out", FIG_BF16, (int64_t[4]){FIG_DIM_BATCH, 10});
    const fig_tensor temp = fig_program_tensor(
        rig.program, FIG_OPTIONS(fig_tensor_info, .name = "temp", .dtype = FIG_BF16, .rank = 2,
                                 .dims = {FIG_DIM_BATCH, 20}));
    fig_silu_and_mul(rig.program, FIG_OPTIONS(fig_gated_op, .in = in, .out = temp));
    fig_silu_and_mul(rig.program, FIG_OPTIONS(fig_gated_op, .in = temp, .out = out));
    fig_run_rig_open(&rig);
    fig_run_rig_fill(&rig, 0, 1300 * 40, 0);
    const uint16_t *y = fig_run_rig_memory(&rig, 1, 1300 * 10, 0);
    rig.run.rows = 1300;
    assert_int_equal(fig_run_rig_run(&rig), FIG_INVALID);
    assert_non_null(strstr(fig_message(), "scratch_bytes is 0, it must be 52480"));
    fig_run_rig_scratch(&rig, UINT64_MAX);
    assert_int_equal(fig_run_rig_run(&rig), FIG_OK);
    for (int32_t i = 0; i < 13000; i++)
        assert_true(truth_load(y, FIG_BF16, i) < 100);
    fig_run_rig_close(&rig);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_rows_of_any_width_lie_anywhere),
        cmocka_unit_test(a_norm_takes_rows_that_no_vector_fits),
        cmocka_unit_test(rope_turns_views_of_packed_rows_and_takes_integers_of_either_width),
        cmocka_unit_test(no_row_behind_the_last_is_touched),
        cmocka_unit_test(temps_lie_in_scratch),
    };
    seed = fig_reference_seed(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
