/* test_horizon.c: compares steps that share one plan for several launches, and steps after plans
 * were taken back, with float64 and with the same steps staged one by one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "tests/support/kernels/decode.h"
#include "tests/support/gate.h"
#include "tests/support/place.h"

/* With sanitizers, reference kernels take many times as long. */
#ifdef FIG_CHECK_THREADS /* builds with sanitizers define it */
enum { CASES = 2 };
#else
enum { CASES = 4 };
#endif
enum { ROWS = 4, KV_LIMIT = 300, LAUNCHES = 6 };

static const fig_decode_options plain = {
    .dtype = FIG_BF16, .layers = 2, .page_size = 16, .batch_limit = ROWS, .kv_limit = KV_LIMIT};
/* Under a horizon, the tiles of a row with a window are counted from the window's first place. */
static const fig_decode_options windowed = {.dtype = FIG_F16,
                                            .layers = 3,
                                            .page_size = 8,
                                            .batch_limit = ROWS,
                                            .kv_limit = KV_LIMIT,
                                            .window = 70,
                                            .window_layers = 2,
                                            .soft_cap = 30};
static const fig_decode_options several = {.dtype = FIG_F16,
                                           .kv_dtype = FIG_E4M3,
                                           .layers = 2,
                                           .page_size = 16,
                                           .batch_limit = ROWS,
                                           .kv_limit = KV_LIMIT,
                                           .row_tokens = 3,
                                           .window = 33,
                                           .window_layers = 1};
static const fig_decode_options fixed = {
    .dtype = FIG_F32, .layers = 2, .batch_limit = ROWS, .kv_limit = 1100, .deterministic = 1};

static void must(fig_status status) {
    if (status != FIG_OK) fail_msg("%s", fig_message());
}

static fig_engine *open_engine(fig_decode *decode, const fig_decode_options *options) {
    fig_engine *engine;
    fig_decode_open(decode, options);
    must(fig_place_open(&engine, decode->graphs));
    fig_decode_bind(decode, engine);
    return engine;
}

static void close_engine(fig_decode *decode, fig_engine *engine) {
    fig_engine_close(engine);
    fig_decode_close(decode);
}

/* Returns the step that launch n of a horizon runs. */
static fig_step grown(const int32_t *lengths, int32_t tokens, int n, int32_t now[ROWS]) {
    for (int row = 0; row < ROWS; row++)
        now[row] = lengths[row] > 0 ? lengths[row] + n * tokens : 0;
    return (fig_step){.size = sizeof(fig_step), .rows = ROWS, .kv_lengths = now};
}

typedef enum way { AHEAD, ONE_BY_ONE } way;

/* Runs LAUNCHES steps. After each, compares its outputs with the truth and with `seen`, the outputs
 * of the other way. */
static void run(fig_decode *decode, fig_engine *engine, const int32_t *lengths, way by,
                uint8_t **seen) {
    const int32_t tokens = decode->spec.row_tokens;
    int32_t now[ROWS];
    fig_engine_stats before = fig_gate_stats(engine), after;
    for (int n = 0; n < LAUNCHES; n++) {
        fig_random random = fig_random_seed(100 + (uint64_t)n);
        fig_step step = grown(lengths, tokens, n, now);
        fig_decode_fill(decode, &random);
        step.horizon = LAUNCHES - n;
        if (by == ONE_BY_ONE || n == 0) must(fig_engine_stage(engine, &step));
        if (n == 0) after = fig_gate_stats(engine);
        must(fig_engine_launch(engine));
        must(fig_engine_wait(engine, FIG_HANG_US));
        fig_decode_check(decode, &step);
        if (seen[n] == NULL) {
            seen[n] = malloc(decode->memory_bytes);
            assert_non_null(seen[n]);
            memcpy(seen[n], decode->memory, decode->memory_bytes);
        }
        assert_memory_equal(decode->memory, seen[n], decode->memory_bytes);
        if (by == ONE_BY_ONE && n + 1 < LAUNCHES) must(fig_engine_take_back(engine));
    }
    if (by == ONE_BY_ONE) return;
    assert_true(after.uploaded_bytes > before.uploaded_bytes);
    assert_int_equal(fig_gate_stats(engine).uploaded_bytes, after.uploaded_bytes);
    assert_int_equal(fig_engine_launch(engine), FIG_ORDER);
}

static void compare(const fig_decode_options *options, const int32_t lengths[ROWS]) {
    fig_decode decode;
    uint8_t *seen[LAUNCHES] = {NULL};
    fig_engine *engine = open_engine(&decode, options);
    fig_random random = fig_random_seed(7);
    for (int32_t sequence = 0; sequence < ROWS; sequence++)
        fig_decode_prefill(&decode, sequence, lengths[sequence], &random);
    uint8_t *start = malloc(decode.memory_bytes);
    assert_non_null(start);
    memcpy(start, decode.memory, decode.memory_bytes);
    run(&decode, engine, lengths, AHEAD, seen);
    memcpy(decode.memory, start, decode.memory_bytes);
    run(&decode, engine, lengths, ONE_BY_ONE, seen);
    const fig_progress progress = fig_gate_progress(engine);
    assert_int_equal(progress.launched, 2 * LAUNCHES);
    assert_int_equal(progress.completed, 2 * LAUNCHES);
    assert_int_equal(progress.staged, 2 * LAUNCHES);
    for (int n = 0; n < LAUNCHES; n++)
        free(seen[n]);
    free(start);
    close_engine(&decode, engine);
}

static void a_horizon_is_its_steps_taken_one_by_one(void **state) {
    (void)state;
    static const int32_t lengths[][ROWS] = {
        {1, 1, 1, 1}, {14, 0, 130, 62}, {0, 0, 0, 0}, {250, 64, 63, 60}};
    for (int i = 0; i < CASES; i++) {
        compare(&plain, lengths[i]);
        compare(&windowed, lengths[i]);
    }
}

static void horizons_are_right_for_several_tokens_and_fixed_splits(void **state) {
    (void)state;
    compare(&several, (const int32_t[ROWS]){3, 0, 130, 31});
    if (CASES > 2) compare(&fixed, (const int32_t[ROWS]){510, 1, 0, 1020});
}

static void lengths_on_the_device_are_read_by_every_launch(void **state) {
    (void)state;
    fig_decode decode;
    fig_decode_options options = windowed;
    options.reads_lengths = 1;
    fig_engine *engine = open_engine(&decode, &options);
    fig_random random = fig_random_seed(9);
    int32_t lengths[ROWS] = {5, 120, 0, 299};
    for (int32_t sequence = 0; sequence < ROWS; sequence++)
        fig_decode_prefill(&decode, sequence, lengths[sequence], &random);
    for (int n = 0; n < LAUNCHES; n++) {
        fig_step step = {.size = sizeof step, .rows = ROWS, .kv_lengths = lengths};
        fig_decode_fill(&decode, &random);
        fig_step given = fig_decode_step(&decode, &step);
        given.horizon = LAUNCHES;
        if (n == 0) must(fig_engine_stage(engine, &given));
        must(fig_engine_launch(engine));
        must(fig_engine_wait(engine, FIG_HANG_US));
        fig_decode_check(&decode, &step);
        lengths[0] += 1;
        lengths[1] += n % 2;
        lengths[2] = n == 3 ? 0 : 1;
    }
    assert_int_equal(fig_engine_launch(engine), FIG_ORDER);
    close_engine(&decode, engine);
}

static void a_horizon_past_a_limit_is_refused(void **state) {
    (void)state;
    fig_decode decode;
    fig_engine *engine = open_engine(&decode, &plain);
    const int32_t lengths[ROWS] = {1, 0, 295, 2};
    fig_step step = {.size = sizeof step, .rows = ROWS, .kv_lengths = lengths, .horizon = -1};
    assert_int_equal(fig_engine_stage(engine, &step), FIG_INVALID);
    assert_string_equal(fig_message(), "step: horizon is -1, it must be at least 0");
    step.horizon = 7;
    assert_int_equal(fig_engine_stage(engine, &step), FIG_TOO_LARGE);
    assert_string_equal(fig_message(), "step: kv_lengths[2] is 295 and grows by 6 within the "
                                       "horizon, limit 300");
    step.horizon = INT32_MAX;
    assert_int_equal(fig_engine_stage(engine, &step), FIG_TOO_LARGE);
    assert_string_equal(fig_message(), "step: horizon is 2147483647, limit 300");
    step.horizon = 6;
    must(fig_engine_stage(engine, &step));
    assert_int_equal(fig_gate_progress(engine).staged, 6);
    close_engine(&decode, engine);
}

/* ---- Taking back --------------------------------------------------------------------------- */

static void run_one(fig_decode *decode, fig_engine *engine, const int32_t *lengths) {
    fig_random random = fig_random_seed(5);
    const fig_step step = {.size = sizeof step, .rows = ROWS, .kv_lengths = lengths};
    fig_decode_fill(decode, &random);
    must(fig_engine_step(engine, &step));
    must(fig_engine_wait(engine, FIG_HANG_US));
    fig_decode_check(decode, &step);
}

static void the_last_staged_step_is_taken_back(void **state) {
    (void)state;
    fig_decode decode;
    fig_engine *engine = open_engine(&decode, &plain);
    const int32_t lengths[3][ROWS] = {{1, 1, 1, 1}, {2, 0, 0, 1}, {2, 2, 2, 2}};
    fig_step step = {.size = sizeof step, .rows = ROWS};
    assert_int_equal(fig_engine_take_back(engine), FIG_ORDER);
    assert_string_equal(fig_message(), "take back: nothing is staged");
    for (int i = 0; i < 3; i++) {
        step.kv_lengths = lengths[i];
        must(fig_engine_stage(engine, &step));
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(fig_gate_progress(engine).staged, 3 - i);
        must(fig_engine_take_back(engine));
    }
    const fig_engine_stats stats = fig_gate_stats(engine);
    assert_int_equal(stats.uploaded_bytes, 0);
    assert_int_equal(stats.taken_back, 3);
    assert_int_equal(stats.last_bucket, 0);
    assert_int_equal(fig_engine_launch(engine), FIG_ORDER);
    run_one(&decode, engine, lengths[0]);
    run_one(&decode, engine, lengths[2]);
    close_engine(&decode, engine);
}

/* The look-ahead kernel of the first step prefetches the second step's plan before the host takes
 * that plan back. */
static void a_prefetched_plan_is_taken_back_too(void **state) {
    (void)state;
    fig_decode decode;
    fig_engine *engine = open_engine(&decode, &plain);
    static const int32_t first[ROWS] = {40, 3, 1, 0}, second[ROWS] = {41, 0, 0, 9},
                         third[ROWS] = {41, 4, 2, 0};
    fig_random random = fig_random_seed(3);
    fig_step step = {.size = sizeof step, .rows = ROWS, .kv_lengths = first};
    for (int32_t sequence = 0; sequence < ROWS; sequence++)
        fig_decode_prefill(&decode, sequence, first[sequence], &random);
    fig_decode_fill(&decode, &random);
    must(fig_engine_stage(engine, &step));
    fig_step ahead = step;
    ahead.kv_lengths = second;
    must(fig_engine_stage(engine, &ahead));
    must(fig_engine_launch(engine));
    must(fig_engine_wait(engine, FIG_HANG_US));
    fig_decode_check(&decode, &step);
    must(fig_engine_take_back(engine));
    run_one(&decode, engine, third);
    assert_int_equal(fig_gate_stats(engine).missed, 0);
    close_engine(&decode, engine);
}

static void the_rest_of_a_horizon_is_taken_back(void **state) {
    (void)state;
    fig_decode decode;
    fig_engine *engine = open_engine(&decode, &windowed);
    int32_t lengths[ROWS] = {90, 0, 20, 7}, next[ROWS] = {92, 22, 0, 9};
    fig_random random = fig_random_seed(3);
    for (int32_t sequence = 0; sequence < ROWS; sequence++)
        fig_decode_prefill(&decode, sequence, lengths[sequence] + 2, &random);
    fig_step step = {.size = sizeof step, .rows = ROWS, .kv_lengths = lengths, .horizon = 5};
    fig_decode_fill(&decode, &random);
    must(fig_engine_stage(engine, &step));
    must(fig_engine_launch(engine));
    must(fig_engine_launch(engine));
    assert_int_equal(fig_gate_progress(engine).staged, 5);
    must(fig_engine_take_back(engine));
    assert_int_equal(fig_gate_progress(engine).staged, 2);
    assert_int_equal(fig_gate_stats(engine).taken_back, 3);
    assert_int_equal(fig_engine_launch(engine), FIG_ORDER);
    must(fig_engine_wait(engine, FIG_HANG_US));
    fig_decode_prefill(&decode, 1, next[1], &random);
    run_one(&decode, engine, next);
    assert_int_equal(fig_gate_stats(engine).missed, 0);
    close_engine(&decode, engine);
}

/* Takes steps back and stages them again at random; every launched step must be right. */
static void taking_back_at_random_leaves_the_truth(void **state) {
    (void)state;
    fig_decode decode;
    fig_engine *engine = open_engine(&decode, &plain);
    fig_random random = fig_random_seed(21);
    int32_t lengths[ROWS] = {0};
    for (int n = 0; n < fig_place_cases(30 * CASES); n++) {
        int32_t other[ROWS];
        fig_step step = {.size = sizeof step, .rows = fig_random_range(&random, 1, ROWS)};
        for (int row = 0; row < ROWS; row++)
            other[row] = fig_random_range(&random, 0, KV_LIMIT - 4);
        for (int row = 0; row < step.rows; row++)
            lengths[row] = lengths[row] >= KV_LIMIT - 4 ? 1 : lengths[row] + 1;
        for (int wrong = fig_random_range(&random, 0, 2); wrong > 0; wrong--) {
            step.kv_lengths = other;
            step.horizon = fig_random_range(&random, 0, 4);
            must(fig_engine_stage(engine, &step));
        }
        while (fig_gate_progress(engine).staged > fig_gate_progress(engine).launched)
            must(fig_engine_take_back(engine));
        step.kv_lengths = lengths;
        fig_decode_fill(&decode, &random);
        must(fig_engine_stage(engine, &step));
        must(fig_engine_launch(engine));
        /* staged while the step before is in flight */
        if (fig_random_range(&random, 0, 1)) must(fig_engine_stage(engine, &step));
        must(fig_engine_wait(engine, FIG_HANG_US));
        step.horizon = 0;
        fig_decode_check(&decode, &step);
        if (fig_gate_progress(engine).staged > fig_gate_progress(engine).launched &&
            fig_random_range(&random, 0, 1))
            must(fig_engine_take_back(engine));
    }
    assert_int_equal(fig_gate_stats(engine).missed, 0);
    close_engine(&decode, engine);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_horizon_is_its_steps_taken_one_by_one),
        cmocka_unit_test(horizons_are_right_for_several_tokens_and_fixed_splits),
        cmocka_unit_test(lengths_on_the_device_are_read_by_every_launch),
        cmocka_unit_test(a_horizon_past_a_limit_is_refused),
        cmocka_unit_test(the_last_staged_step_is_taken_back),
        cmocka_unit_test(a_prefetched_plan_is_taken_back_too),
        cmocka_unit_test(the_rest_of_a_horizon_is_taken_back),
        cmocka_unit_test(taking_back_at_random_leaves_the_truth),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
