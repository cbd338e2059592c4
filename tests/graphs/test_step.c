/* test_step.c: tests that a step is accepted or refused as a whole, and that a refusal names field,
 * row and limit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "graphs/step.h"
#include "planner/spec/spec.h"
#include "tests/support/files/sample.h"
#include "tests/support/random.h"

/* At most 6 rows of 200 tokens, and 9 sequences. */
enum { SEQUENCES = 9 };
static uint32_t stamp_words[SEQUENCES];
static int32_t known[6];
static fig_step_stamps stamps = {.of = stamp_words, .known = known};

/* Checks a step against a program of this spec whose first node is `first`. */
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

static void a_step_may_have_no_rows(void **state) {
    (void)state;
    assert_int_equal(STEP(.rows = 0), FIG_OK);
    assert_int_equal(check(NULL), FIG_OK);
}

static void unsound_steps_are_refused(void **state) {
    (void)state;
    static const int32_t negative[] = {1, -1}, long_row[] = {1, 201}, ones[] = {1, 1, 1};
    static const int32_t below[] = {0, -1}, above[] = {0, 9}, twice[] = {4, 5, 4};
    static const int32_t far[] = {INT32_MAX}, last[] = {FIG_POSITION_LIMIT};
    FIG_SAMPLE_REFUSES(STEP(.rows = -1, .kv_lengths = lengths), FIG_INVALID, "rows is -1");
    FIG_SAMPLE_REFUSES(STEP(.rows = 7, .kv_lengths = lengths), FIG_TOO_LARGE, "rows is 7, limit 6");
    FIG_SAMPLE_REFUSES(STEP(.rows = 1), FIG_INVALID, "kv_lengths is NULL for 1 rows");
    FIG_SAMPLE_REFUSES(STEP(.rows = 2, .kv_lengths = negative), FIG_INVALID, "kv_lengths[1] is -1");
    FIG_SAMPLE_REFUSES(STEP(.rows = 2, .kv_lengths = long_row), FIG_TOO_LARGE,
                       "kv_lengths[1] is 201, limit 200");
    FIG_SAMPLE_REFUSES(STEP(.rows = 2, .kv_lengths = ones, .positions = below), FIG_INVALID,
                       "positions[1] is -1");
    FIG_SAMPLE_REFUSES(STEP(.rows = 1, .kv_lengths = ones, .positions = far), FIG_TOO_LARGE,
                       "positions[0] is 2147483647 and grows by 0 within the horizon, limit "
                       "1073741824");
    FIG_SAMPLE_REFUSES(STEP(.rows = 1, .kv_lengths = ones, .positions = last, .horizon = 2),
                       FIG_TOO_LARGE, "positions[0] is 1073741824 and grows by 1");
    assert_int_equal(STEP(.rows = 1, .kv_lengths = ones, .positions = last), FIG_OK);
    FIG_SAMPLE_REFUSES(STEP(.rows = 2, .kv_lengths = ones, .sequences = below), FIG_INVALID,
                       "sequences[1] is -1, limits 0 to 8");
    FIG_SAMPLE_REFUSES(STEP(.rows = 2, .kv_lengths = ones, .sequences = above), FIG_INVALID,
                       "sequences[1] is 9, limits 0 to 8");
    FIG_SAMPLE_REFUSES(STEP(.rows = 3, .kv_lengths = ones, .sequences = twice), FIG_INVALID,
                       "sequences[2] is 4, which an earlier row names too");
    FIG_SAMPLE_REFUSES(check(&(fig_step){.rows = 1}), FIG_INVALID, "fig_step: size is 0");
}

static void idle_rows_may_share_a_sequence_but_not_leave_the_limits(void **state) {
    (void)state;
    static const int32_t idle[] = {1, 0, 0}, same[] = {4, 4, 4}, beyond[] = {4, 9, 4};
    assert_int_equal(STEP(.rows = 3, .kv_lengths = idle, .sequences = same), FIG_OK);
    FIG_SAMPLE_REFUSES(STEP(.rows = 3, .kv_lengths = idle, .sequences = beyond), FIG_INVALID,
                       "sequences[1] is 9");
}

/* A spec may have fewer sequences than rows. The rows after the last sequence must then be idle. */
static void rows_without_a_sequence_of_their_own_are_idle(void **state) {
    (void)state;
    fig_spec spec = fig_sample_spec();
    fig_plan_step plan;
    spec.sequence_limit = 2;
    static const int32_t idle[] = {1, 1, 0}, busy[] = {1, 1, 1};
    assert_int_equal(
        check_of(&spec, FIG_OP_CALL, FIG_OPTIONS(fig_step, .rows = 3, .kv_lengths = idle), &plan),
        FIG_OK);
    assert_int_equal(plan.sequence_limit, 2);
    FIG_SAMPLE_REFUSES(
        check_of(&spec, FIG_OP_CALL, FIG_OPTIONS(fig_step, .rows = 3, .kv_lengths = busy), &plan),
        FIG_INVALID, "row 2 needs a sequence of its own number, beyond the limit of 2");
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

static void a_row_has_one_token_at_least_and_no_more_than_the_spec_says(void **state) {
    (void)state;
    static const int32_t busy[] = {9, 0, 4}, fewer[] = {4, 77, 1}, all[] = {4, -1, 4};
    static const int32_t none[] = {4, 1, 0}, more[] = {5, 1, 1};
    fig_spec spec = fig_sample_spec();
    fig_plan_step plan;
    spec.row_tokens = 4;
    fig_step step = {.size = sizeof step, .rows = 3, .kv_lengths = busy};
    step.row_tokens = fewer; /* the value of an idle row is ignored */
    assert_int_equal(check_of(&spec, FIG_OP_CALL, &step, &plan), FIG_OK);
    assert_ptr_equal(plan.tokens, fewer);
    step.row_tokens = all; /* means the same as NULL */
    assert_int_equal(check_of(&spec, FIG_OP_CALL, &step, &plan), FIG_OK);
    assert_null(plan.tokens);
    step.row_tokens = none;
    FIG_SAMPLE_REFUSES(check_of(&spec, FIG_OP_CALL, &step, &plan), FIG_INVALID,
                       "step: row_tokens[2] is 0, limits 1 to 4");
    step.row_tokens = more;
    FIG_SAMPLE_REFUSES(check_of(&spec, FIG_OP_CALL, &step, &plan), FIG_INVALID,
                       "step: row_tokens[0] is 5, limits 1 to 4");
    step.row_tokens = fewer;
    step.horizon = 2;
    FIG_SAMPLE_REFUSES(check_of(&spec, FIG_OP_CALL, &step, &plan), FIG_INVALID,
                       "step: horizon is 2, it must be 1 where row_tokens is given");
    step.horizon = 1;
    step.kv_lengths = NULL; /* the host cannot tell which rows are idle, so no value is ignored */
    FIG_SAMPLE_REFUSES(check_of(&spec, FIG_OP_PLAN, &step, &plan), FIG_INVALID,
                       "step: row_tokens[1] is 77, limits 1 to 4");
}

/* At most 6 rows of at most 4 query tokens, and at most 17 query tokens in all. */
static fig_status check_packed(const fig_step *step, fig_op first, fig_plan_step *plan) {
    fig_spec spec = fig_sample_spec();
    spec.row_tokens = 4;
    spec.query_limit = 17;
    memset(plan, 0xff, sizeof *plan);
    return check_of(&spec, first, step, plan);
}

#define PACKED(...) check_packed(FIG_OPTIONS(fig_step, __VA_ARGS__), FIG_OP_CALL, &plan)

static void a_packed_row_has_as_many_queries_as_it_is_given(void **state) {
    (void)state;
    static const int32_t counts[] = {1, 4, 4, 0, 0, 3}, many[] = {4, 4, 4, 4, 1, 0};
    static const int32_t over[] = {4, 4, 4, 4, 2, 0}, negative[] = {-1, 1, 1, 1, 1, 1};
    static const int32_t five[] = {5, 1, 1, 1, 1, 1}, long_rows[] = {9, 9, 9, 9, 9, 9};
    static const int32_t two[] = {2, 1, 1, 1, 1, 1}, ones[] = {1, 1, 1, 1, 1, 1};
    fig_plan_step plan;
    /* The rows have {1, 200, 0, 7, 0, 3} tokens. Row 2 has queries but no tokens, so it is idle;
     * row 3 has no queries. */
    assert_int_equal(PACKED(.rows = 6, .kv_lengths = lengths, .query_counts = counts), FIG_OK);
    assert_ptr_equal(plan.queries, counts);
    assert_null(plan.tokens);
    assert_int_equal(PACKED(.rows = 6, .kv_lengths = long_rows, .query_counts = many), FIG_OK);
    assert_int_equal(PACKED(.rows = 6, .kv_lengths = long_rows, .query_counts = over),
                     FIG_TOO_LARGE);
    assert_int_equal(PACKED(.rows = 6, .kv_lengths = lengths, .query_counts = two), FIG_INVALID);
    assert_int_equal(PACKED(.rows = 6, .kv_lengths = long_rows, .query_counts = five), FIG_INVALID);
    assert_int_equal(PACKED(.rows = 6, .kv_lengths = long_rows, .query_counts = negative),
                     FIG_INVALID);
    assert_int_equal(PACKED(.rows = 6, .kv_lengths = long_rows, .query_counts = ones, .horizon = 2),
                     FIG_INVALID);
    /* Without counts, each row has 4 query tokens. */
    assert_int_equal(PACKED(.rows = 4, .kv_lengths = long_rows), FIG_OK);
    assert_null(plan.queries);
    assert_int_equal(PACKED(.rows = 4, .kv_lengths = long_rows, .horizon = 2), FIG_OK);
    assert_int_equal(PACKED(.rows = 5, .kv_lengths = long_rows), FIG_TOO_LARGE);
    assert_int_equal(PACKED(.rows = 4, .kv_lengths = ones), FIG_INVALID);
    assert_int_equal(PACKED(.rows = 4, .kv_lengths = long_rows, .row_tokens = ones), FIG_INVALID);
    assert_int_equal(STEP(.rows = 6, .kv_lengths = lengths, .query_counts = ones), FIG_INVALID);
    assert_int_equal(
        check_packed(FIG_OPTIONS(fig_step, .rows = 6, .query_counts = ones), FIG_OP_PLAN, &plan),
        FIG_INVALID);
    assert_int_equal(check_packed(FIG_OPTIONS(fig_step, .rows = 6), FIG_OP_PLAN, &plan), FIG_OK);
}

/* A row without queries is idle, so another row may have its sequence. */
static void a_row_without_queries_keeps_no_sequence(void **state) {
    (void)state;
    static const int32_t rows[] = {9, 9, 9}, sequences[] = {3, 3, 8};
    static const int32_t none[] = {0, 2, 1}, both[] = {1, 2, 1};
    fig_plan_step plan;
    assert_int_equal(
        PACKED(.rows = 3, .kv_lengths = rows, .sequences = sequences, .query_counts = none),
        FIG_OK);
    assert_int_equal(
        PACKED(.rows = 3, .kv_lengths = rows, .sequences = sequences, .query_counts = both),
        FIG_INVALID);
}

/* A sequence may have 200 tokens: one at the first launch, and one more at each further launch. */
static void a_horizon_reaches_as_far_as_a_sequence(void **state) {
    (void)state;
    static const int32_t rows[] = {1, 0, 190};
    fig_plan_step plan;
    static const int32_t sound[][2] = {{0, 1}, {1, 1}, {2, 2}, {11, 11}};
    for (size_t i = 0; i < sizeof sound / sizeof sound[0]; i++) {
        assert_int_equal(
            check_into(FIG_OPTIONS(fig_step, .rows = 3, .kv_lengths = rows, .horizon = sound[i][0]),
                       &plan),
            FIG_OK);
        assert_int_equal(plan.horizon, sound[i][1]);
        assert_int_equal(plan.row_tokens, 1);
        assert_int_equal(fig_plan_ahead(&plan), sound[i][1] - 1);
    }
    FIG_SAMPLE_REFUSES(STEP(.rows = 3, .kv_lengths = rows, .horizon = -1), FIG_INVALID,
                       "horizon is -1, it must be at least 0");
    FIG_SAMPLE_REFUSES(STEP(.rows = 3, .kv_lengths = rows, .horizon = 12), FIG_TOO_LARGE,
                       "kv_lengths[2] is 190 and grows by 11 within the horizon, limit 200");
    /* An idle row does not grow. */
    assert_int_equal(STEP(.rows = 2, .kv_lengths = rows, .horizon = 200), FIG_OK);
    FIG_SAMPLE_REFUSES(STEP(.rows = 2, .kv_lengths = rows, .horizon = 201), FIG_TOO_LARGE,
                       "horizon is 201, limit 200");
    FIG_SAMPLE_REFUSES(STEP(.rows = 2, .kv_lengths = rows, .horizon = INT32_MAX), FIG_TOO_LARGE,
                       "horizon is 2147483647, limit 200");
}

/* Rows grow by four. 1 + 49 * 4 tokens would fit, but a row has at least four tokens to begin
 * with. */
static void rows_of_several_queries_grow_by_as_many(void **state) {
    (void)state;
    static const int32_t rows[] = {4, 164};
    fig_spec spec = fig_sample_spec();
    fig_plan_step plan;
    spec.row_tokens = 4;
    const fig_step sound = {.size = sizeof sound, .rows = 2, .kv_lengths = rows, .horizon = 10};
    fig_step unsound = sound;
    assert_int_equal(check_of(&spec, FIG_OP_CALL, &sound, &plan), FIG_OK);
    assert_int_equal(fig_plan_ahead(&plan), 36);
    unsound.horizon = 11;
    FIG_SAMPLE_REFUSES(check_of(&spec, FIG_OP_CALL, &unsound, &plan), FIG_TOO_LARGE,
                       "kv_lengths[1] is 164 and grows by 40 within the horizon, limit 200");
    unsound.rows = 1;
    unsound.horizon = 50;
    assert_int_equal(check_of(&spec, FIG_OP_CALL, &unsound, &plan), FIG_OK);
    unsound.horizon = 51;
    FIG_SAMPLE_REFUSES(check_of(&spec, FIG_OP_CALL, &unsound, &plan), FIG_TOO_LARGE,
                       "horizon is 51, limit 50");
}

/* Returns the first fault of a row by the rules of figraph.h. 0: none; 1: in its length; 2: in its
 * sequence; 3: in its position. */
static int fault_of(const fig_spec *spec, const fig_step *step, int32_t ahead, int32_t row) {
    const int32_t length = step->kv_lengths != NULL ? step->kv_lengths[row] : 1;
    const int32_t sequence = step->sequences != NULL ? step->sequences[row] : row;
    if (step->kv_lengths != NULL) {
        if (length < 0 || (length > 0 && length < spec->row_tokens)) return 1;
        if (length > 0 && length + ahead > spec->kv_limit) return 1;
    }
    if (sequence < 0 || sequence >= spec->sequence_limit)
        if (length != 0 || step->sequences != NULL) return 2;
    for (int32_t other = 0; other < row && step->sequences != NULL && length != 0; other++) {
        const int busy = step->kv_lengths == NULL || step->kv_lengths[other] != 0;
        if (busy && step->sequences[other] == sequence) return 2;
    }
    if (step->positions == NULL) return 0;
    const int64_t last = (int64_t)step->positions[row] + (step->kv_lengths != NULL ? ahead : 0);
    return step->positions[row] < 0 || last > FIG_POSITION_LIMIT ? 3 : 0;
}

/* Draws numbers that are mostly sound, so that a step rarely has more than one faulty row. */
static int32_t draw_number(fig_random *random, int32_t low, int32_t high) {
    if (fig_random_range(random, 0, 30) > 0) return fig_random_range(random, low, high);
    return fig_random_range(random, 0, 1) ? low - 1 : high + fig_random_range(random, 0, 2);
}

/* The message names the first faulty row and its first fault. */
static void a_row_is_refused_just_where_something_is_wrong_with_it(void **state) {
    (void)state;
    static const char *const names[] = {"", "kv_lengths[", "sequences", "positions["};
    fig_random random = fig_random_seed(9);
    int refused[4] = {0};
    for (int draw = 0; draw < 50000; draw++) {
        int32_t rows_lengths[6], positions[6], sequences[6], row = 0, fault = 0;
        fig_spec spec = fig_sample_spec();
        spec.row_tokens = fig_random_range(&random, 1, 4);
        spec.sequence_limit = fig_random_range(&random, 4, SEQUENCES);
        const int on_device = fig_random_range(&random, 0, 4) == 0;
        fig_step step = {.size = sizeof step, .rows = fig_random_range(&random, 0, 6)};
        if (!on_device) step.kv_lengths = rows_lengths;
        if (fig_random_range(&random, 0, 1) && !on_device) step.positions = positions;
        if (fig_random_range(&random, 0, 1)) step.sequences = sequences;
        step.horizon = fig_random_range(&random, 0, 1) ? 0 : fig_random_range(&random, 1, 9);
        const int32_t ahead = step.horizon > 1 ? (step.horizon - 1) * spec.row_tokens : 0;
        for (int32_t r = 0; r < 6; r++) {
            const int idle = fig_random_range(&random, 0, 2) == 0;
            rows_lengths[r] = idle ? 0 : draw_number(&random, spec.row_tokens, 200 - ahead);
            positions[r] = draw_number(&random, 0, FIG_POSITION_LIMIT - ahead);
            sequences[r] = (r + draw) % spec.sequence_limit;
            if (fig_random_range(&random, 0, 9) == 0)
                sequences[r] = draw_number(&random, 0, spec.sequence_limit - 1);
        }
        while (row < step.rows && (fault = fault_of(&spec, &step, ahead, row)) == 0)
            row++;
        fig_plan_step plan;
        const fig_status status =
            check_of(&spec, on_device ? FIG_OP_PLAN : FIG_OP_CALL, &step, &plan);
        if ((status == FIG_OK) != (fault == 0))
            fail_msg("draw %d, row %d: fault %d, %s", draw, row, fault, fig_message());
        refused[fault]++;
        if (fault == 0) continue;
        char number[16];
        snprintf(number, sizeof number, "[%d] is", row);
        if (step.sequences == NULL && fault == 2) snprintf(number, sizeof number, "row %d", row);
        if (strstr(fig_message(), names[fault]) == NULL || strstr(fig_message(), number) == NULL)
            fail_msg("draw %d, row %d: fault %d, %s", draw, row, fault, fig_message());
    }
    for (int fault = 0; fault < 4; fault++)
        assert_true(refused[fault] > 500);
}

static fig_status check_on_device(const fig_step *step, fig_plan_step *plan) {
    const fig_spec spec = fig_sample_spec();
    return check_of(&spec, FIG_OP_PLAN, step, plan);
}

#define DEVICE_STEP(...) check_on_device(FIG_OPTIONS(fig_step, __VA_ARGS__), &plan)

/* The limits are 6 rows of 200 tokens. */
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

/* Each launch reads the lengths anew, so there may be any number of launches. */
static void lengths_on_the_device_do_not_grow_by_themselves(void **state) {
    (void)state;
    fig_plan_step plan;
    assert_int_equal(DEVICE_STEP(.rows = 3, .horizon = INT32_MAX), FIG_OK);
    assert_int_equal(plan.horizon, INT32_MAX);
    assert_int_equal(fig_plan_ahead(&plan), 0);
    assert_int_equal(plan.token_limit, 600);
    FIG_SAMPLE_REFUSES(DEVICE_STEP(.rows = 3, .horizon = -1), FIG_INVALID, "horizon is -1");
}

/* The check of sequences may be skipped only if the same sequences were found sound with all rows
 * awake. */
static void sequences_that_stay_are_still_checked_where_rows_wake_up(void **state) {
    (void)state;
    static const int32_t ones[] = {1, 1, 1, 1}, sleeping[] = {1, 0, 1, 1};
    static const int32_t twice[] = {4, 6, 5, 6}, sound[] = {4, 7, 5, 6}, other[] = {4, 7, 5, 4};
    for (int again = 0; again < 3; again++) {
        assert_int_equal(STEP(.rows = 4, .kv_lengths = sleeping, .sequences = twice), FIG_OK);
        FIG_SAMPLE_REFUSES(STEP(.rows = 4, .kv_lengths = ones, .sequences = twice), FIG_INVALID,
                           "sequences[3] is 6, which an earlier row names too");
        assert_int_equal(STEP(.rows = 4, .kv_lengths = ones, .sequences = sound), FIG_OK);
        assert_int_equal(STEP(.rows = 4, .kv_lengths = ones, .sequences = sound), FIG_OK);
        assert_int_equal(STEP(.rows = 4, .kv_lengths = sleeping, .sequences = sound), FIG_OK);
        assert_int_equal(STEP(.rows = 3, .kv_lengths = ones, .sequences = sound), FIG_OK);
        FIG_SAMPLE_REFUSES(STEP(.rows = 4, .kv_lengths = ones, .sequences = other), FIG_INVALID,
                           "sequences[3] is 4, which an earlier row names too");
    }
}

/* To the host, any row may have tokens, so no two rows may share a sequence. */
static void a_step_does_not_give_values_that_the_device_reads(void **state) {
    (void)state;
    static const int32_t ones[] = {1, 1, 1}, twice[] = {4, 5, 4}, beyond[] = {4, 9, 5};
    fig_plan_step plan;
    FIG_SAMPLE_REFUSES(DEVICE_STEP(.rows = 3, .kv_lengths = ones), FIG_INVALID,
                       "kv_lengths must be NULL, the program reads lengths");
    FIG_SAMPLE_REFUSES(DEVICE_STEP(.rows = 3, .positions = ones), FIG_INVALID,
                       "positions must be NULL");
    FIG_SAMPLE_REFUSES(DEVICE_STEP(.rows = 3, .token_limit = -1), FIG_INVALID, "token_limit is -1");
    FIG_SAMPLE_REFUSES(DEVICE_STEP(.rows = 3, .sequences = twice), FIG_INVALID,
                       "sequences[2] is 4, which an earlier row names too");
    FIG_SAMPLE_REFUSES(DEVICE_STEP(.rows = 3, .sequences = beyond), FIG_INVALID,
                       "sequences[1] is 9");
    FIG_SAMPLE_REFUSES(DEVICE_STEP(.rows = 7), FIG_TOO_LARGE, "rows is 7, limit 6");
    FIG_SAMPLE_REFUSES(STEP(.rows = 3, .kv_lengths = ones, .token_limit = 5), FIG_INVALID,
                       "token_limit is 5, it is for programs that read lengths on the device");
}

/* Steps name the same sequences repeatedly. After the stamp numbers wrap around, no old stamp may
 * count as the current step's. */
static void stamps_are_right_after_they_wrap_around(void **state) {
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
        cmocka_unit_test(a_step_may_have_no_rows),
        cmocka_unit_test(unsound_steps_are_refused),
        cmocka_unit_test(idle_rows_may_share_a_sequence_but_not_leave_the_limits),
        cmocka_unit_test(rows_without_a_sequence_of_their_own_are_idle),
        cmocka_unit_test(a_row_has_a_token_for_each_of_its_queries),
        cmocka_unit_test(a_row_has_one_token_at_least_and_no_more_than_the_spec_says),
        cmocka_unit_test(a_packed_row_has_as_many_queries_as_it_is_given),
        cmocka_unit_test(a_row_without_queries_keeps_no_sequence),
        cmocka_unit_test(a_horizon_reaches_as_far_as_a_sequence),
        cmocka_unit_test(rows_of_several_queries_grow_by_as_many),
        cmocka_unit_test(lengths_on_the_device_do_not_grow_by_themselves),
        cmocka_unit_test(a_row_is_refused_just_where_something_is_wrong_with_it),
        cmocka_unit_test(lengths_on_the_device_leave_rows_sequences_and_a_token_limit),
        cmocka_unit_test(a_step_does_not_give_values_that_the_device_reads),
        cmocka_unit_test(sequences_that_stay_are_still_checked_where_rows_wake_up),
        cmocka_unit_test(stamps_are_right_after_they_wrap_around),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
