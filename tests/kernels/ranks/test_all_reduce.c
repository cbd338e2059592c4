/* test_all_reduce.c: tests that sums over ranks, with and without a norm after them, equal
 * float64's up to rounding, and that gathered rows are the ranks' bytes unchanged.
 *
 * A sum with a norm must give the same bits as the two launches that it replaces. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "include/figraph_unstable.h"
#include "kernels/common/numeric.h"
#include "kernels/table/families.h"
#include "tests/support/kernels/reference_step.h"
#include "tests/support/place.h"
#include "tools/figraph/truth/truth.h"

enum { CASES = 200, RANK_LIMIT = 9, WIDTH_LIMIT = 700 };

static uint64_t seed;

typedef struct all_reduce_case {
    fig_reference_step step;
    fig_reference_array parts[RANK_LIMIT], residual, out, weight;
    const void *addresses[RANK_LIMIT];
    fig_peers peers;
    int32_t width;
} all_reduce_case;

static void open_case(all_reduce_case *c, int number) {
    fig_reference_step *step = &c->step;
    memset(c, 0, sizeof *c);
    fig_reference_step_open(step, seed, number);
    c->width = 8 * fig_reference_step_draw(step, 1, WIDTH_LIMIT / 8);
    c->peers.count = fig_reference_step_draw(step, 1, RANK_LIMIT);
    c->peers.parts = c->addresses;
    for (int32_t r = 0; r < c->peers.count; r++) {
        c->parts[r] = fig_reference_step_array(step, c->width, number % 7 == 0 ? 100.0f : 1.0f);
        c->addresses[r] = c->parts[r].data;
    }
    c->out = fig_reference_step_array(step, c->width, 0);
    c->residual = fig_reference_step_array(step, c->width, 2);
    c->weight = fig_reference_array_make(step->dtype, c->width);
    fig_reference_array_fill(&c->weight, 0, c->width, &step->random, 1);
    fig_reference_array_keep(&c->weight);
    fig_reference_step_allow(step, &c->out, (fig_row_strides){c->width, 0}, 1, c->width);
    fig_reference_step_allow(step, &c->residual, (fig_row_strides){c->width, 0}, 1, c->width);
}

static void close_case(all_reduce_case *c) {
    fig_reference_array_check(&c->out, "out");
    fig_reference_array_check(&c->residual, "residual");
    fig_reference_array_check(&c->weight, "weight");
    for (int32_t r = 0; r < c->peers.count; r++) {
        fig_reference_array_check(&c->parts[r], "part");
        fig_reference_array_free(&c->parts[r]);
    }
    fig_reference_array_free(&c->out);
    fig_reference_array_free(&c->residual);
    fig_reference_array_free(&c->weight);
    fig_reference_step_close(&c->step);
}

static fig_all_reduce_params params_of(all_reduce_case *c, void *out, void *residual) {
    return (fig_all_reduce_params){.in = c->parts[0].data,
                                   .weight = residual != NULL ? c->weight.data : NULL,
                                   .out = out,
                                   .residual = residual,
                                   .plan = c->step.plan,
                                   .peers = &c->peers,
                                   .rows = c->step.rows,
                                   .width = c->width,
                                   .dtype = c->step.dtype,
                                   .epsilon = 1e-5f,
                                   .weight_offset = 0.5f};
}

static int32_t row_count(const all_reduce_case *c) {
    return fig_params_rows(&c->step.rows, c->step.plan);
}

/* Each addition in f32 may be off by half a unit in the last place of f32, and the final rounding
 * by half a unit of the dtype. */
static void check_sum(const all_reduce_case *c, int64_t at) {
    const fig_dtype dtype = (fig_dtype)c->step.dtype;
    double want = 0, lost = 0;
    for (int32_t r = 0; r < c->peers.count; r++) {
        want += truth_load(c->parts[r].data, dtype, at);
        lost += 0.5 * truth_ulp(FIG_F32, want);
    }
    fig_reference_step_expect(&c->step, "all_reduce", at, truth_load(c->out.data, dtype, at), want,
                              fig_reference_step_tolerance(&c->step, want, lost));
}

static void sums_are_float64s_rounded_once(void **state) {
    (void)state;
    for (int number = 0; number < CASES; number++) {
        all_reduce_case c;
        open_case(&c, number);
        const fig_all_reduce_params params = params_of(&c, c.out.data, NULL);
        fig_reference_launch(FIG_OP_ALL_REDUCE, &params, &c.step.random);
        for (int64_t at = 0; at < (int64_t)row_count(&c) * c.width; at++)
            check_sum(&c, at);
        close_case(&c);
    }
}

/* The order of additions matters: in f32, (2^24 + 1) - 2^24 is 0, but (2^24 - 2^24) + 1 is 1. */
static void ranks_are_added_up_in_their_order(void **state) {
    (void)state;
    float first[8], second[8], third[8], out[8];
    const void *parts[] = {first, second, third};
    fig_peers peers = {.parts = parts, .count = 3};
    const fig_all_reduce_params params = {
        .out = out, .peers = &peers, .rows = {1, 1}, .width = 8, .dtype = FIG_F32};
    for (int i = 0; i < 8; i++) {
        first[i] = 16777216.0f;
        second[i] = 1.0f;
        third[i] = -16777216.0f;
    }
    fig_kernel_table[FIG_OP_ALL_REDUCE].reference(&params, (uint32_t[3]){0, 0, 0});
    assert_true(out[0] == 0.0f && out[7] == 0.0f);
    parts[1] = third;
    parts[2] = second;
    fig_kernel_table[FIG_OP_ALL_REDUCE].reference(&params, (uint32_t[3]){0, 0, 0});
    assert_true(out[0] == 1.0f && out[7] == 1.0f);
}

static void a_sum_with_a_norm_equals_two_launches(void **state) {
    (void)state;
    for (int number = 0; number < CASES; number++) {
        all_reduce_case c;
        open_case(&c, number);
        const size_t bytes = (size_t)c.out.count * (size_t)fig_numeric_bytes(c.step.dtype);
        uint8_t *out = malloc(bytes), *residual = malloc(bytes);
        memcpy(out, c.out.data, bytes);
        memcpy(residual, c.residual.data, bytes);
        const fig_all_reduce_params joined = params_of(&c, c.out.data, c.residual.data);
        const fig_all_reduce_params alone = params_of(&c, out, NULL);
        const fig_rms_norm_params norm = {.in = out,
                                          .weight = c.weight.data,
                                          .out = out,
                                          .residual = residual,
                                          .plan = c.step.plan,
                                          .in_stride = c.width,
                                          .out_stride = c.width,
                                          .residual_stride = c.width,
                                          .rows = c.step.rows,
                                          .width = c.width,
                                          .dtype = c.step.dtype,
                                          .epsilon = 1e-5f,
                                          .weight_offset = 0.5f};
        fig_reference_launch(FIG_OP_ALL_REDUCE, &joined, &c.step.random);
        fig_reference_launch(FIG_OP_ALL_REDUCE, &alone, &c.step.random);
        fig_reference_launch(FIG_OP_RMS_NORM, &norm, &c.step.random);
        assert_memory_equal(c.out.data, out, bytes);
        assert_memory_equal(c.residual.data, residual, bytes);
        free(out);
        free(residual);
        close_case(&c);
    }
}

static void rows_are_gathered_rank_behind_rank(void **state) {
    (void)state;
    for (int number = 0; number < CASES; number++) {
        all_reduce_case c;
        open_case(&c, number);
        const size_t unit = (size_t)fig_numeric_bytes(c.step.dtype);
        const size_t row_bytes = (size_t)c.width * unit;
        const size_t rows = (size_t)c.step.rows.row_limit, count = (size_t)c.peers.count;
        uint8_t *out = malloc(rows * row_bytes * count + 1);
        memset(out, 0x5a, rows * row_bytes * count);
        const fig_all_gather_params params = {.in = c.parts[0].data,
                                              .out = out,
                                              .plan = c.step.plan,
                                              .peers = &c.peers,
                                              .rows = c.step.rows,
                                              .width = c.width,
                                              .dtype = c.step.dtype};
        fig_reference_launch(FIG_OP_ALL_GATHER, &params, &c.step.random);
        for (size_t row = 0; row < rows; row++) {
            for (size_t r = 0; r < count; r++) {
                const uint8_t *got = out + (row * count + r) * row_bytes;
                const uint8_t *from = (const uint8_t *)c.parts[r].data + row * row_bytes;
                if (row < (size_t)row_count(&c)) assert_memory_equal(got, from, row_bytes);
                if (row >= (size_t)row_count(&c)) assert_int_equal(got[0], 0x5a);
            }
        }
        free(out);
        close_case(&c);
    }
}

/* Keeps this test on the host, where it tests the reference kernel. On GPUs, ranks exchange data
 * through each other's memory, which tests/gpu tests. */
static int stay_on_the_host(void **state) {
    (void)state;
    fig_place_hold_host();
    return 0;
}

static int leave_the_host(void **state) {
    (void)state;
    fig_place_release_host();
    return 0;
}

/* ---- Choice of the kernel */

static void check_choice(int32_t rows, const void *weight, uint32_t routes, const char *family,
                         const char *entry) {
    const fig_all_reduce_params params = {.weight = weight,
                                          .rows = {rows, 1},
                                          .width = 4096,
                                          .dtype = FIG_BF16,
                                          .ranks = 4,
                                          .routes = routes};
    const fig_traits traits = {.size = sizeof traits, .compute_capability = 90};
    fig_family_choice choice;
    fig_families_choose(FIG_OP_ALL_REDUCE, &params, &traits, &choice);
    assert_string_equal(fig_families_of(FIG_OP_ALL_REDUCE, choice.family)->name, family);
    assert_string_equal(choice.entry, entry);
    assert_int_equal(choice.shape.grid[0], FIG_PEERS_GRID);
    assert_int_equal(choice.shape.grid[0] % FIG_PEERS_TEAM_LIMIT, 0);
    assert_true(choice.shape.block[0] % 32 == 0 && choice.shape.block[0] <= 512);
}

/* Tests rows of 8 KB on four ranks. Before binding, nothing is known about the group. */
static void the_message_size_decides_the_route(void **state) {
    (void)state;
    enum { ALL = FIG_ROUTE_ONE_SHOT | FIG_ROUTE_TWO_SHOT | FIG_ROUTE_NCCL };
    static const uint16_t weight;
    check_choice(512, NULL, 0, "one_shot", "fig_kernel_all_reduce_alone");
    check_choice(1, NULL, ALL, "one_shot", "fig_kernel_all_reduce_alone");
    check_choice(64, NULL, ALL, "two_shot", "fig_kernel_all_reduce_alone");
    check_choice(64, NULL, FIG_ROUTE_ONE_SHOT, "one_shot", "fig_kernel_all_reduce_alone");
    check_choice(4096, NULL, ALL, "nccl", "fig_kernel_all_reduce_nccl_end");
    check_choice(1, NULL, FIG_ROUTE_NCCL, "nccl", "fig_kernel_all_reduce_nccl_end");
    check_choice(1, &weight, ALL, "one_shot", "fig_kernel_all_reduce_norm_8");
    check_choice(17, &weight, ALL, "two_shot", "fig_kernel_all_reduce_norm_4");
    check_choice(64, &weight, ALL, "two_shot", "fig_kernel_all_reduce_norm_2");
    check_choice(65, &weight, ALL, "two_shot", "fig_kernel_all_reduce_norm_1");
}

int main(int argc, char **argv) {
    seed = fig_reference_seed(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_float64s_rounded_once),
        cmocka_unit_test(ranks_are_added_up_in_their_order),
        cmocka_unit_test(a_sum_with_a_norm_equals_two_launches),
        cmocka_unit_test(rows_are_gathered_rank_behind_rank),
        cmocka_unit_test(the_message_size_decides_the_route),
    };
    return cmocka_run_group_tests(tests, stay_on_the_host, leave_the_host);
}
