/* test_twins.c: silu_and_mul, rope and append_kv against float64, over random shapes, strides and
 * dtypes; attention has test_attention.c.
 *
 * Outputs are poisoned, so that what a twin leaves out shows as NaN; inputs are numbers past the
 * last row too, so that what it writes beside its rows shows as a change. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/numeric.h"
#include "tests/support/twin.h"
#include "tools/figraph/truth.h"

enum { CASES = 300, ROW_LIMIT = 6, HEAD_LIMIT = 5 };

static const int32_t dtypes[] = {FIG_F32, FIG_F16, FIG_BF16};
static uint64_t seed;

/* What every case has: its rows and their plan. */
typedef struct twin_step {
    fig_random random;
    int32_t dtype, row_limit, rows;
    int32_t lengths[ROW_LIMIT], positions[ROW_LIMIT], sequences[ROW_LIMIT];
    fig_plan_shape shape;
    uint8_t *plan;
} twin_step;

static int32_t draw(twin_step *step, int32_t low, int32_t high) {
    return fig_random_range(&step->random, low, high);
}

/* Up to `length_limit` tokens in a row, a quarter of the rows idle; sequences a random choice of
 * [0, 2 * ROW_LIMIT) without repeats. */
static void open_step(twin_step *step, int number, int32_t length_limit) {
    memset(step, 0, sizeof *step);
    step->random = fig_random_seed(seed + (uint64_t)number);
    step->dtype = dtypes[draw(step, 0, 2)];
    step->row_limit = draw(step, 1, ROW_LIMIT);
    step->rows = draw(step, 0, step->row_limit);
    for (int32_t r = 0; r < step->rows; r++) {
        step->lengths[r] = draw(step, 0, 3) == 0 ? 0 : draw(step, 1, length_limit);
        step->positions[r] = draw(step, 0, 1) ? draw(step, 0, 100) : draw(step, 0, 1 << 20);
        step->sequences[r] = 2 * r + draw(step, 0, 1);
    }
}

static void write_plan(twin_step *step, int with_positions) {
    step->shape.row_limit = step->row_limit;
    step->plan = fig_twin_plan(
        &step->shape, &(fig_plan_step){.rows = step->rows,
                                       .lengths = step->lengths,
                                       .positions = with_positions ? step->positions : NULL,
                                       .sequences = step->sequences});
}

/* Whose rounding: half a unit of the dtype, on top of what f32 may have lost before it. */
static double tolerance_of(const twin_step *step, double want, double lost) {
    return 0.5 * truth_ulp((fig_dtype)step->dtype, fabs(want) + lost) + lost;
}

static void check(const char *name, int64_t index, double got, double want, double tolerance) {
    if (fabs(got - want) <= tolerance) return;
    fail_msg("%s, element %lld: got %.9g, want %.9g within %.3g; seed 0x%llx", name,
             (long long)index, got, want, tolerance, (unsigned long long)seed);
}

/* ---- silu_and_mul */

/* f32 errs by a few units in the product, and where exp(-x) is infinite it gives 0 for what is
 * below 1e-36 per unit of the other factor. */
static void silu_and_mul_is_float64_s_within_its_rounding(void **state) {
    (void)state;
    for (int n = 0; n < CASES; n++) {
        twin_step step;
        double want[600];
        open_step(&step, n, 100);
        write_plan(&step, 0);
        int32_t width = draw(&step, 1, 600);
        int64_t in_stride = 2 * width + draw(&step, 0, 9), out_stride = width + draw(&step, 0, 9);
        fig_twin_array in = fig_twin_array_make(step.dtype, step.row_limit * in_stride);
        fig_twin_array out = fig_twin_array_make(step.dtype, step.row_limit * out_stride);
        float deviation = n % 10 == 0 ? 50.0f : 3.0f;
        fig_twin_array_fill(&in, 0, in.count, &step.random, deviation);
        for (int32_t r = 0; r < step.rows; r++)
            fig_twin_array_allow(&out, r * out_stride, width);
        fig_silu_and_mul_params params = {.in = in.data,
                                          .out = out.data,
                                          .plan = step.plan,
                                          .in_stride = in_stride,
                                          .out_stride = out_stride,
                                          .row_limit = step.row_limit,
                                          .width = width,
                                          .dtype = step.dtype};
        fig_twin_launch(FIG_OP_SILU_AND_MUL, &params, &step.random);
        truth_rows rows = {in.data, (fig_dtype)step.dtype, in_stride, 0};
        for (int32_t r = 0; r < step.rows; r++) {
            truth_silu_and_mul(&rows, r, width, want);
            for (int32_t i = 0; i < width; i++) {
                double got = truth_load(out.data, (fig_dtype)step.dtype, r * out_stride + i);
                double up = truth_load(in.data, rows.dtype, r * in_stride + width + i);
                double lost = 4 * truth_ulp(FIG_F32, want[i]) + 1e-36 * fabs(up);
                check("silu_and_mul", r * width + i, got, want[i],
                      tolerance_of(&step, want[i], lost));
            }
        }
        fig_twin_array_check(&out, "silu_and_mul out");
        fig_twin_array_free(&in);
        fig_twin_array_free(&out);
        free(step.plan);
    }
}

/* ---- rope */

typedef struct rope_side {
    fig_twin_array in, out;
    fig_row_strides in_strides, out_strides;
    int32_t heads, in_place;
} rope_side;

static fig_row_strides draw_strides(twin_step *step, int32_t heads, int32_t head_dim) {
    int64_t head = head_dim + draw(step, 0, 5);
    return (fig_row_strides){.row = heads * head + draw(step, 0, 5), .head = head};
}

static void open_side(twin_step *step, rope_side *side, int32_t head_dim) {
    side->heads = draw(step, 1, HEAD_LIMIT);
    side->in_place = draw(step, 0, 1);
    side->in_strides = draw_strides(step, side->heads, head_dim);
    side->out_strides = draw_strides(step, side->heads, head_dim);
    if (side->in_place) side->out_strides = side->in_strides;
    side->in = fig_twin_array_make(step->dtype, step->row_limit * side->in_strides.row);
    side->out = fig_twin_array_make(step->dtype, step->row_limit * side->out_strides.row);
    fig_twin_array_fill(&side->in, 0, side->in.count, &step->random, 1);
    for (int32_t r = 0; r < step->rows; r++) {
        for (int32_t h = 0; h < side->heads; h++) {
            int64_t to = r * side->out_strides.row + h * side->out_strides.head;
            fig_twin_array_allow(side->in_place ? &side->in : &side->out, to, head_dim);
        }
    }
    fig_twin_array_keep(&side->in); /* what truth reads, should the twin write over it */
}

static fig_rope_spec draw_rope(twin_step *step) {
    static const float thetas[] = {1e4f, 5e5f, 1e6f};
    fig_rope_spec rope = {.interleaved = draw(step, 0, 1), .theta = thetas[draw(step, 0, 2)]};
    rope.scale = draw(step, 0, 1) ? 1.0f : 4.0f;
    if (draw(step, 0, 1)) return rope;
    rope.llama3_factor = 8;
    rope.llama3_low = 1;
    rope.llama3_high = 4;
    rope.llama3_context = 8192;
    return rope;
}

/* f32 rounds two products, their sum, a sine and a cosine. */
static void check_side(const twin_step *step, const rope_side *side, const fig_rope_params *p,
                       const int32_t *positions) {
    const fig_twin_array *out = side->in_place ? &side->in : &side->out;
    double want[TRUTH_HEAD_DIM_LIMIT];
    truth_rope_args args = {.rope = p->rope, .head_dim = p->head_dim};
    args.x = (truth_rows){side->in.before, (fig_dtype)step->dtype, side->in_strides.row,
                          side->in_strides.head};
    for (args.row = 0; args.row < step->rows; args.row++) {
        for (args.head = 0; args.head < side->heads; args.head++) {
            int64_t offset = args.row * side->out_strides.row + args.head * side->out_strides.head;
            args.position = positions[args.row];
            truth_rope(&args, want);
            for (int32_t i = 0; i < p->head_dim; i++) {
                double got = truth_load(out->data, (fig_dtype)step->dtype, offset + i);
                int32_t other = p->rope.interleaved ? i ^ 1 : (i + p->head_dim / 2) % p->head_dim;
                double length = hypot(want[i], want[other]);
                check("rope", offset + i, got, want[i],
                      tolerance_of(step, want[i], 0x1p-22 * length));
            }
        }
    }
    fig_twin_array_check(&side->in, "rope in");
    fig_twin_array_check(&side->out, "rope out");
}

/* In three forms: the plan's own positions, those of an i32 tensor and those of an i64 one. */
static void rope_is_float64_s_within_its_rounding_up_to_position_1m(void **state) {
    (void)state;
    static const int32_t head_dims[] = {2, 64, 80, 96, 128, 256};
    for (int n = 0; n < CASES; n++) {
        twin_step step;
        rope_side q = {0}, k = {0};
        open_step(&step, n, 100);
        int32_t form = draw(&step, 0, 2), head_dim = head_dims[draw(&step, 0, 5)];
        write_plan(&step, form == 0);
        open_side(&step, &q, head_dim);
        open_side(&step, &k, head_dim);
        fig_twin_array positions = fig_twin_array_make(form == 2 ? FIG_I64 : FIG_I32, ROW_LIMIT);
        for (int32_t r = 0; r < step.rows; r++)
            fig_twin_array_set(&positions, r, step.positions[r]);
        fig_rope_params params = {.q = q.in.data,
                                  .k = k.in.data,
                                  .q_out = q.in_place ? q.in.data : q.out.data,
                                  .k_out = k.in_place ? k.in.data : k.out.data,
                                  .positions = form == 0 ? NULL : positions.data,
                                  .plan = step.plan,
                                  .q_strides = q.in_strides,
                                  .k_strides = k.in_strides,
                                  .q_out_strides = q.out_strides,
                                  .k_out_strides = k.out_strides,
                                  .rope = draw_rope(&step),
                                  .positions_offset = step.shape.layout.positions,
                                  .row_limit = step.row_limit,
                                  .q_heads = q.heads,
                                  .k_heads = k.heads,
                                  .head_dim = head_dim,
                                  .dtype = step.dtype,
                                  .positions_dtype = form == 0 ? 0 : positions.dtype};
        fig_twin_launch(FIG_OP_ROPE, &params, &step.random);
        check_side(&step, &q, &params, step.positions);
        check_side(&step, &k, &params, step.positions);
        fig_twin_array_free(&q.in);
        fig_twin_array_free(&q.out);
        fig_twin_array_free(&k.in);
        fig_twin_array_free(&k.out);
        fig_twin_array_free(&positions);
        free(step.plan);
    }
}

/* One head of one f32 row at a position past 32 bits, which an i64 tensor can say. */
static void a_position_past_32_bits_is_not_cut(void **state) {
    (void)state;
    twin_step step;
    open_step(&step, 0, 1);
    step.rows = step.row_limit = 1;
    step.lengths[0] = 1;
    write_plan(&step, 0);
    float x[4] = {1, 2, 3, 4}, y[4] = {0}, z[4] = {0};
    int64_t position = (1ll << 32) + 5;
    fig_row_strides strides = {4, 4};
    fig_rope_params params = {.q = x,
                              .k = x,
                              .q_out = y,
                              .k_out = z,
                              .positions = &position,
                              .plan = step.plan,
                              .q_strides = strides,
                              .k_strides = strides,
                              .q_out_strides = strides,
                              .k_out_strides = strides,
                              .rope = {.theta = 1e4f, .scale = 1},
                              .row_limit = 1,
                              .q_heads = 1,
                              .k_heads = 1,
                              .head_dim = 4,
                              .dtype = FIG_F32,
                              .positions_dtype = FIG_I64};
    fig_twin_launch(FIG_OP_ROPE, &params, NULL);
    truth_rope_args args = {.x = {x, FIG_F32, 4, 4}, .rope = params.rope, .head_dim = 4};
    double want[4];
    args.position = position;
    truth_rope(&args, want);
    for (int i = 0; i < 4; i++)
        check("rope", i, (double)y[i], want[i], 4e-6);
    free(step.plan);
}

/* ---- append_kv */

enum { PAGE_LIMIT = 48, TABLE_LIMIT = 8 };
static_assert(PAGE_LIMIT >= ROW_LIMIT * TABLE_LIMIT, "a page for each entry");

typedef struct append_side {
    fig_twin_array in, cache;
    fig_row_strides strides;
    fig_cache_strides cache_strides;
    int64_t pages;
} append_side;

static void open_append_side(twin_step *step, append_side *side, const fig_append_kv_params *p) {
    side->pages = draw(step, ROW_LIMIT, PAGE_LIMIT);
    side->strides = draw_strides(step, p->kv_heads, p->head_dim);
    side->cache_strides.head = p->head_dim + draw(step, 0, 3);
    side->cache_strides.token = p->kv_heads * side->cache_strides.head + draw(step, 0, 3);
    side->cache_strides.page = p->page_size * side->cache_strides.token + draw(step, 0, 3);
    side->in = fig_twin_array_make(step->dtype, step->row_limit * side->strides.row);
    side->cache = fig_twin_array_make(step->dtype, side->pages * side->cache_strides.page);
    fig_twin_array_fill(&side->in, 0, side->in.count, &step->random, 1);
    fig_twin_array_fill(&side->cache, 0, side->cache.count / 2, &step->random, 1);
    fig_twin_array_keep(&side->in);
    fig_twin_array_keep(&side->cache);
}

/* A page of one's own for each entry, and here and there a number that no page has. */
static void draw_table(twin_step *step, fig_twin_array *table) {
    static const int32_t outside[] = {-1, INT32_MIN, INT32_MAX, PAGE_LIMIT, PAGE_LIMIT + 1};
    int32_t next = 0;
    for (int32_t r = 0; r < step->rows; r++) {
        for (int32_t i = 0; i < TABLE_LIMIT; i++) {
            int32_t page = draw(step, 0, 3) > 0 ? next++ : outside[draw(step, 0, 4)];
            fig_twin_array_set(table, step->sequences[r] * (TABLE_LIMIT + 1) + i, page);
        }
    }
}

/* The bits of k where it says, and not a bit elsewhere. */
static void check_append_side(const twin_step *step, append_side *side,
                              const fig_append_kv_params *p) {
    size_t bytes = (size_t)(p->head_dim * fig_numeric_bytes(step->dtype));
    truth_cache cache = {.pages = side->pages,
                         .page_stride = side->cache_strides.page,
                         .token_stride = side->cache_strides.token,
                         .page_size = p->page_size,
                         .page_table = p->page_table,
                         .table_stride = p->table_stride};
    for (int32_t r = 0; r < step->rows; r++) {
        if (step->lengths[r] == 0) continue;
        int64_t at = truth_cache_offset(&cache, step->sequences[r], step->lengths[r] - 1);
        for (int32_t h = 0; at >= 0 && h < p->kv_heads; h++) {
            int64_t from = r * side->strides.row + h * side->strides.head;
            int64_t to = at + h * side->cache_strides.head;
            int64_t unit = fig_numeric_bytes(step->dtype);
            assert_memory_equal((char *)side->cache.data + to * unit,
                                (char *)side->in.before + from * unit, bytes);
            fig_twin_array_allow(&side->cache, to, p->head_dim);
        }
    }
    fig_twin_array_check(&side->in, "append_kv in");
    fig_twin_array_check(&side->cache, "append_kv cache");
}

static void append_kv_writes_the_last_token_of_a_row_and_nothing_else(void **state) {
    (void)state;
    for (int n = 0; n < CASES; n++) {
        twin_step step;
        append_side k = {0}, v = {0};
        open_step(&step, n, 1);
        int dense = draw(&step, 0, 2) == 0;
        fig_append_kv_params params = {.row_limit = step.row_limit,
                                       .page_size = draw(&step, 1, 9),
                                       .kv_heads = draw(&step, 1, 3),
                                       .head_dim = 8 * draw(&step, 1, 4),
                                       .dtype = step.dtype,
                                       .table_stride = dense ? 0 : TABLE_LIMIT + 1};
        for (int32_t r = 0; r < step.rows; r++)
            if (step.lengths[r] > 0)
                step.lengths[r] = draw(&step, 1, params.page_size * (dense ? 1 : TABLE_LIMIT));
        write_plan(&step, 0);
        fig_twin_array table = fig_twin_array_make(FIG_I32, 2 * ROW_LIMIT * (TABLE_LIMIT + 1));
        draw_table(&step, &table);
        open_append_side(&step, &k, &params);
        open_append_side(&step, &v, &params);
        params.k = k.in.data;
        params.v = v.in.data;
        params.k_cache = k.cache.data;
        params.v_cache = v.cache.data;
        params.page_table = dense ? NULL : table.data;
        params.plan = step.plan;
        params.k_strides = k.strides;
        params.v_strides = v.strides;
        params.k_cache_strides = k.cache_strides;
        params.v_cache_strides = v.cache_strides;
        params.k_pages = k.pages;
        params.v_pages = v.pages;
        params.lengths_offset = step.shape.layout.lengths;
        params.sequences_offset = step.shape.layout.sequences;
        fig_twin_launch(FIG_OP_APPEND_KV, &params, &step.random);
        check_append_side(&step, &k, &params);
        check_append_side(&step, &v, &params);
        fig_twin_array_free(&k.in);
        fig_twin_array_free(&k.cache);
        fig_twin_array_free(&v.in);
        fig_twin_array_free(&v.cache);
        fig_twin_array_free(&table);
        free(step.plan);
    }
}

/* ---- truth.c itself */

static void truth_and_the_kernels_read_every_16_bit_code_alike(void **state) {
    (void)state;
    for (uint32_t code = 0; code <= 0xffff; code++) {
        uint16_t bits = (uint16_t)code;
        double f16 = truth_load(&bits, FIG_F16, 0), bf16 = truth_load(&bits, FIG_BF16, 0);
        double got_f16 = (double)fig_numeric_of_f16(bits),
               got_bf16 = (double)fig_numeric_of_bf16(bits);
        assert_true(f16 == got_f16 || (isnan(f16) && isnan(got_f16)));
        assert_true(bf16 == got_bf16 || (isnan(bf16) && isnan(got_bf16)));
    }
}

static void truth_s_unit_is_what_separates_neighbouring_codes(void **state) {
    (void)state;
    for (uint16_t code = 0; code < 0x7bff; code++) {
        uint16_t codes[2] = {code, (uint16_t)(code + 1)};
        double low = truth_load(codes, FIG_F16, 0), high = truth_load(codes, FIG_F16, 1);
        assert_true(truth_ulp(FIG_F16, low) == high - low);
        low = truth_load(codes, FIG_BF16, 0), high = truth_load(codes, FIG_BF16, 1);
        assert_true(truth_ulp(FIG_BF16, -low) == high - low);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(silu_and_mul_is_float64_s_within_its_rounding),
        cmocka_unit_test(rope_is_float64_s_within_its_rounding_up_to_position_1m),
        cmocka_unit_test(a_position_past_32_bits_is_not_cut),
        cmocka_unit_test(append_kv_writes_the_last_token_of_a_row_and_nothing_else),
        cmocka_unit_test(truth_and_the_kernels_read_every_16_bit_code_alike),
        cmocka_unit_test(truth_s_unit_is_what_separates_neighbouring_codes),
    };
    seed = fig_twin_seed(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
