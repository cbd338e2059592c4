/* test_step.c: a step is taken or refused as a whole, by the field, the row and the limit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "graphs/step.h"
#include "planner/spec.h"
#include "tests/support/sample.h"

/* 6 rows, 200 tokens, 9 sequences. */
enum { SEQUENCES = 9 };
static uint32_t stamp_words[SEQUENCES];
static fig_step_stamps stamps = {stamp_words, 0};

/* Against a program of this spec whose first node is `first`. */
static fig_status check_of(const fig_spec *spec, fig_op first, const fig_step *step,
                           fig_plan_step *plan) {
    const fig_node node = {.op = (uint16_t)first};
    fig_program_view program = {.nodes = &node, .node_count = 1};
    assert_int_equal(fig_spec_resolve(spec, &program.spec), FIG_OK);
    return fig_step_check(&program, step, &stamps, plan);
}

static fig_status check_into(const fig_step *step, fig_plan_step *plan) {
    const fig_spec spec = fig_sample_spec();
    return check_of(&spec, FIG_OP_CALL, step, plan);
}

static fig_status check(const fig_step *step) {
    fig_plan_step plan;
    memset(&plan, 0xff, sizeof plan);
    const fig_status status = check_into(step, &plan);
    if (status != FIG_OK) {
        const fig_plan_step nothing = {0};
        assert_memory_equal(&plan, &nothing, sizeof plan);
    }
    return status;
}

#define STEP(...) check(FIG_OPTIONS(fig_step, __VA_ARGS__))

static const int32_t lengths[] = {1, 200, 0, 7, 0, 3};

static void a_sound_step_is_handed_on(void **state) {
    (void)state;
    static const int32_t positions[] = {0, 1000000, 3, 3, 3, 3}, sequences[] = {8, 0, 8, 1, 0, 2};
    fig_plan_step plan;
    assert_int_equal(check_into(FIG_OPTIONS(fig_step, .rows = 6, .kv_lengths = lengths,
                                            .positions = positions, .sequences = sequences),
                                &plan),
                     FIG_OK);
    assert_int_equal(plan.rows, 6);
    assert_ptr_equal(plan.lengths, lengths);
    assert_ptr_equal(plan.positions, positions);
    assert_ptr_equal(plan.sequences, sequences);
    assert_int_equal(STEP(.rows = 6, .kv_lengths = lengths), FIG_OK);
}

static void no_rows_are_a_step(void **state) {
    (void)state;
    assert_int_equal(STEP(.rows = 0), FIG_OK);
    assert_int_equal(check(NULL), FIG_OK);
}

static void unsound_steps_are_refused(void **state) {
    (void)state;
    static const int32_t negative[] = {1, -1}, long_row[] = {1, 201}, ones[] = {1, 1, 1};
    static const int32_t below[] = {0, -1}, above[] = {0, 9}, twice[] = {4, 5, 4};
    FIG_SAMPLE_REFUSES(STEP(.rows = -1, .kv_lengths = lengths), FIG_INVALID, "rows is -1");
    FIG_SAMPLE_REFUSES(STEP(.rows = 7, .kv_lengths = lengths), FIG_TOO_LARGE, "rows is 7, limit 6");
    FIG_SAMPLE_REFUSES(STEP(.rows = 1), FIG_INVALID, "kv_lengths is NULL for 1 rows");
    FIG_SAMPLE_REFUSES(STEP(.rows = 2, .kv_lengths = negative), FIG_INVALID, "kv_lengths[1] is -1");
    FIG_SAMPLE_REFUSES(STEP(.rows = 2, .kv_lengths = long_row), FIG_TOO_LARGE,
                       "kv_lengths[1] is 201, limit 200");
    FIG_SAMPLE_REFUSES(STEP(.rows = 2, .kv_lengths = ones, .positions = below), FIG_INVALID,
                       "positions[1] is -1");
    FIG_SAMPLE_REFUSES(STEP(.rows = 2, .kv_lengths = ones, .sequences = below), FIG_INVALID,
                       "sequences[1] is -1, limits 0 to 8");
    FIG_SAMPLE_REFUSES(STEP(.rows = 2, .kv_lengths = ones, .sequences = above), FIG_INVALID,
                       "sequences[1] is 9, limits 0 to 8");
    FIG_SAMPLE_REFUSES(STEP(.rows = 3, .kv_lengths = ones, .sequences = twice), FIG_INVALID,
                       "sequences[2] is 4, which an earlier row is");
    FIG_SAMPLE_REFUSES(check(&(fig_step){.rows = 1}), FIG_INVALID, "fig_step: size is 0");
}

static void idle_rows_may_share_a_sequence_but_not_leave_the_limits(void **state) {
    (void)state;
    static const int32_t idle[] = {1, 0, 0}, same[] = {4, 4, 4}, beyond[] = {4, 9, 4};
    assert_int_equal(STEP(.rows = 3, .kv_lengths = idle, .sequences = same), FIG_OK);
    FIG_SAMPLE_REFUSES(STEP(.rows = 3, .kv_lengths = idle, .sequences = beyond), FIG_INVALID,
                       "sequences[1] is 9");
}

/* A spec may hold fewer sequences than rows: those past them must be idle. */
static void rows_without_a_sequence_of_their_own_are_idle(void **state) {
    (void)state;
    fig_spec spec = fig_sample_spec();
    fig_plan_step plan;
    spec.sequence_limit = 2;
    static const int32_t idle[] = {1, 1, 0}, busy[] = {1, 1, 1};
    assert_int_equal(
        check_of(&spec, FIG_OP_CALL, FIG_OPTIONS(fig_step, .rows = 3, .kv_lengths = idle), &plan),
        FIG_OK);
    FIG_SAMPLE_REFUSES(
        check_of(&spec, FIG_OP_CALL, FIG_OPTIONS(fig_step, .rows = 3, .kv_lengths = busy), &plan),
        FIG_INVALID, "row 2 is a sequence beyond the limit of 2");
}

static void a_row_has_a_token_for_each_of_its_queries(void **state) {
    (void)state;
    fig_spec spec = fig_sample_spec();
    fig_plan_step plan;
    spec.row_tokens = 4;
    static const int32_t enough[] = {4, 0, 200}, short_row[] = {4, 3};
    assert_int_equal(
        check_of(&spec, FIG_OP_CALL, FIG_OPTIONS(fig_step, .rows = 3, .kv_lengths = enough), &plan),
        FIG_OK);
    FIG_SAMPLE_REFUSES(check_of(&spec, FIG_OP_CALL,
                                FIG_OPTIONS(fig_step, .rows = 2, .kv_lengths = short_row), &plan),
                       FIG_INVALID,
                       "kv_lengths[1] is 3, it must be 0 or at least the spec's row_tokens, 4");
}

static fig_status check_on_device(const fig_step *step, fig_plan_step *plan) {
    const fig_spec spec = fig_sample_spec();
    return check_of(&spec, FIG_OP_PLAN, step, plan);
}

#define DEVICE_STEP(...) check_on_device(FIG_OPTIONS(fig_step, __VA_ARGS__), &plan)

/* 6 rows of 200 tokens at most. */
static void lengths_on_the_device_leave_rows_sequences_and_a_token_limit(void **state) {
    (void)state;
    static const int32_t sequences[] = {8, 0, 3};
    fig_plan_step plan;
    assert_int_equal(DEVICE_STEP(.rows = 3, .sequences = sequences), FIG_OK);
    assert_int_equal(plan.rows, 3);
    assert_null(plan.lengths);
    assert_null(plan.positions);
    assert_ptr_equal(plan.sequences, sequences);
    assert_int_equal(plan.token_limit, 600);
    assert_int_equal(DEVICE_STEP(.rows = 3, .token_limit = 599), FIG_OK);
    assert_int_equal(plan.token_limit, 599);
    assert_int_equal(DEVICE_STEP(.rows = 3, .token_limit = INT64_MAX), FIG_OK);
    assert_int_equal(plan.token_limit, 600);
    assert_int_equal(DEVICE_STEP(.rows = 0), FIG_OK);
}

/* Any of its rows may have tokens, so no two share a sequence. */
static void what_the_device_reads_the_host_does_not_give(void **state) {
    (void)state;
    static const int32_t ones[] = {1, 1, 1}, twice[] = {4, 5, 4}, beyond[] = {4, 9, 5};
    fig_plan_step plan;
    FIG_SAMPLE_REFUSES(DEVICE_STEP(.rows = 3, .kv_lengths = ones), FIG_INVALID,
                       "kv_lengths must be NULL, the program reads lengths");
    FIG_SAMPLE_REFUSES(DEVICE_STEP(.rows = 3, .positions = ones), FIG_INVALID,
                       "positions must be NULL");
    FIG_SAMPLE_REFUSES(DEVICE_STEP(.rows = 3, .token_limit = -1), FIG_INVALID, "token_limit is -1");
    FIG_SAMPLE_REFUSES(DEVICE_STEP(.rows = 3, .sequences = twice), FIG_INVALID,
                       "sequences[2] is 4, which an earlier row is");
    FIG_SAMPLE_REFUSES(DEVICE_STEP(.rows = 3, .sequences = beyond), FIG_INVALID,
                       "sequences[1] is 9");
    FIG_SAMPLE_REFUSES(DEVICE_STEP(.rows = 7), FIG_TOO_LARGE, "rows is 7, limit 6");
    FIG_SAMPLE_REFUSES(STEP(.rows = 3, .kv_lengths = ones, .token_limit = 5), FIG_INVALID,
                       "token_limit is 5, it is for programs that read lengths on the device");
}

/* One step after another names the same sequences, and when the numbers begin again no stamp of old
 * is taken for one of this step. */
static void stamps_last_over_their_wrap(void **state) {
    (void)state;
    static const int32_t ones[] = {1, 1, 1}, sequences[] = {4, 5, 6}, twice[] = {4, 5, 4};
    memset(stamp_words, 0, sizeof stamp_words);
    stamps.last = 0;
    static const int32_t rare[] = {7};
    assert_int_equal(STEP(.rows = 1, .kv_lengths = ones, .sequences = rare), FIG_OK);
    assert_int_equal(stamp_words[7], 1);
    stamps.last = UINT32_MAX;
    assert_int_equal(STEP(.rows = 1, .kv_lengths = ones, .sequences = rare), FIG_OK);
    for (uint32_t round = 0; round < 8; round++) {
        if (round == 3) stamps.last = UINT32_MAX - 2;
        assert_int_equal(STEP(.rows = 3, .kv_lengths = ones, .sequences = sequences), FIG_OK);
        FIG_SAMPLE_REFUSES(STEP(.rows = 3, .kv_lengths = ones, .sequences = twice), FIG_INVALID,
                           "sequences[2] is 4");
        assert_true(stamps.last != 0);
    }
    assert_true(stamps.last < 16);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sound_step_is_handed_on),
        cmocka_unit_test(no_rows_are_a_step),
        cmocka_unit_test(unsound_steps_are_refused),
        cmocka_unit_test(idle_rows_may_share_a_sequence_but_not_leave_the_limits),
        cmocka_unit_test(rows_without_a_sequence_of_their_own_are_idle),
        cmocka_unit_test(a_row_has_a_token_for_each_of_its_queries),
        cmocka_unit_test(lengths_on_the_device_leave_rows_sequences_and_a_token_limit),
        cmocka_unit_test(what_the_device_reads_the_host_does_not_give),
        cmocka_unit_test(stamps_last_over_their_wrap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
