/* test_tails.c: tests how the reference kernel ends the vectors of rows with tails, whichever of
 * the two launches comes last. On the host, steps run the launch for strips last. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/attention/pieces.h"

enum { DIM = 64, HEADS = 2, SLOTS = 3, ROWS = 2, HEAD = 1, TAILS = 64 };

/* Row 1 has a tail, whose slots begin with vector 4, and whose counters with number 5. */
static struct ground {
    _Alignas(16) uint8_t plan[TAILS + ROWS * sizeof(fig_plan_tail)];
    float partials[16][DIM], sums[16][2], out[ROWS][HEADS][DIM], lse[ROWS][HEADS], own[DIM];
    uint32_t counters[8];
    fig_attention_params params;
} g;

static int64_t slot_of(int32_t slot) {
    return 4 + slot * HEADS + HEAD;
}

static void open_ground(void) {
    memset(&g, 0, sizeof g);
    fig_plan_head *head = (fig_plan_head *)(void *)g.plan;
    fig_plan_tail *tails = (fig_plan_tail *)(void *)(g.plan + TAILS);
    *head = (fig_plan_head){.rows = ROWS, .sections = FIG_PLAN_BY_TAILS};
    tails[1] = (fig_plan_tail){.first_token = 16, .first = 4, .counter = 5, .slots = SLOTS};
    g.params = (fig_attention_params){.out = g.out,
                                      .lse = &g.lse[0][0],
                                      .plan = g.plan,
                                      .out_strides = {HEADS * DIM, DIM},
                                      .lse_stride = HEADS,
                                      .q_heads = HEADS,
                                      .kv_heads = 1,
                                      .head_dim = DIM,
                                      .dtype = FIG_F32,
                                      .slots = {.partials = &g.partials[0][0],
                                                .sums = &g.sums[0][0],
                                                .counters = g.counters,
                                                .tails_offset = TAILS}};
    for (int32_t i = 0; i < DIM; i++)
        g.own[i] = (float)i - 20;
}

static void end_row(int32_t row) {
    fig_sums sums = {g.own, 3.0f, 5.0f};
    fig_pieces_end(&g.params, row, (fig_pieces_vector){.row = row, .q_head = HEAD}, &sums);
}

static void a_result_that_is_not_the_last_one_is_left(void **state) {
    (void)state;
    open_ground();
    end_row(1);
    for (int32_t i = 0; i < DIM; i++) {
        assert_true(g.partials[slot_of(SLOTS - 1)][i] == (float)i - 20);
        assert_true(g.out[1][HEAD][i] == 0);
    }
    assert_true(g.sums[slot_of(SLOTS - 1)][0] == 3.0f && g.sums[slot_of(SLOTS - 1)][1] == 5.0f);
    assert_int_equal(g.counters[5 + HEAD], 1);
}

static void the_last_result_is_merged_with_the_others(void **state) {
    (void)state;
    open_ground();
    double due[DIM], weights = 5;
    for (int32_t i = 0; i < DIM; i++)
        due[i] = (float)i - 20;
    for (int32_t slot = 0; slot < SLOTS - 1; slot++) {
        const double by = exp2(slot + 1 - 3.0);
        g.sums[slot_of(slot)][0] = (float)slot + 1;
        g.sums[slot_of(slot)][1] = 2;
        weights += 2 * by;
        for (int32_t i = 0; i < DIM; i++)
            due[i] += (g.partials[slot_of(slot)][i] = (float)(slot * 7 - i)) * by;
    }
    g.counters[5 + HEAD] = SLOTS - 1;
    end_row(1);
    assert_int_equal(g.counters[5 + HEAD], 0);
    for (int32_t i = 0; i < DIM; i++)
        assert_true(fabs(g.out[1][HEAD][i] - due[i] / weights) < 1e-5);
    assert_true(fabs(g.lse[1][HEAD] - (3 + log2(weights))) < 1e-5);
}

static void a_row_without_a_tail_has_its_result_at_once(void **state) {
    (void)state;
    for (int32_t n = 0; n < 3; n++) { /* another row; no list in the plan; none in any plan */
        open_ground();
        if (n == 1) ((fig_plan_head *)(void *)g.plan)->sections = 0;
        if (n == 2) g.params.slots.tails_offset = 0;
        end_row(n > 0);
        for (int32_t i = 0; i < DIM; i++)
            assert_true(fabsf(g.out[n > 0][HEAD][i] - ((float)i - 20) / 5) < 1e-6f);
        assert_int_equal(g.counters[5 + HEAD], 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_result_that_is_not_the_last_one_is_left),
        cmocka_unit_test(the_last_result_is_merged_with_the_others),
        cmocka_unit_test(a_row_without_a_tail_has_its_result_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
