/* test_append.c: enqueues the segments of a step one by one, outside a capture, on the device under
 * test. test_append_capture.c tests captures. */
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

static const fig_bucket buckets[] = {{2, 64}, {4, 64}, {4, 128}};
static const fig_decode_options small = {.dtype = FIG_F16,
                                         .layers = 2,
                                         .page_size = 16,
                                         .batch_limit = 4,
                                         .kv_limit = 128,
                                         .buckets = buckets,
                                         .bucket_count = 3,
                                         .deterministic = 1}; /* gives one variant per size */

static void check_message(const char *sentence) {
    assert_string_equal(fig_message(), sentence);
}

static fig_status append(fig_engine *engine, const char *segment, int32_t bucket) {
    return fig_engine_append(engine, FIG_OPTIONS(fig_append, .segment = segment, .bucket = bucket));
}

static void must_append(fig_engine *engine, const char *segment, int32_t bucket) {
    if (append(engine, segment, bucket) != FIG_OK) fail_msg("%s: %s", segment, fig_message());
}

static void must_wait(fig_engine *engine) {
    if (fig_engine_wait(engine, FIG_HANG_US) != FIG_OK) fail_msg("%s", fig_message());
}

static fig_engine *open_engine(fig_decode *decode, const fig_decode_options *options) {
    fig_engine *engine;
    fig_decode_open(decode, options);
    if (fig_place_open(&engine, decode->graphs) != FIG_OK) fail_msg("%s", fig_message());
    fig_decode_bind(decode, engine);
    return engine;
}

/* ---- Results ------------------------------------------------------------------------------- */

typedef enum way { STEP, WHOLE, SEGMENTS } way;

/* Runs the same step from the same memory, enqueued in one of three ways. */
static void run(fig_decode *decode, fig_engine *engine, const uint8_t *start, const fig_step *step,
                way by) {
    static const char *const segments[] = {"fetch", "act.0", "attn.0", "act.1", "attn.1"};
    memcpy(decode->memory, start, decode->memory_bytes);
    assert_int_equal(fig_engine_stage(engine, step), FIG_OK);
    if (by == STEP) assert_int_equal(fig_engine_launch(engine), FIG_OK);
    if (by == WHOLE) must_append(engine, NULL, step->bucket);
    for (int i = 0; by == SEGMENTS && i < 5; i++)
        must_append(engine, segments[i], step->bucket);
    must_wait(engine);
}

static void compare_ways(const fig_decode_options *options) {
    static const int32_t growing[][4] = {{1, 1, 0, 1}, {17, 2, 0, 60}, {64, 33, 1, 20}};
    fig_decode decode;
    fig_random random = fig_random_seed(11);
    fig_engine *engine = open_engine(&decode, options);
    uint8_t *want = malloc(decode.memory_bytes), *start = malloc(decode.memory_bytes);
    assert_true(want != NULL && start != NULL);
    for (int i = 0; i < 3; i++) {
        fig_step plain = {.size = sizeof plain, .rows = 4, .kv_lengths = growing[i]};
        for (int32_t sequence = 0; sequence < 4; sequence++)
            fig_decode_prefill(&decode, sequence, growing[i][sequence], &random);
        fig_decode_fill(&decode, &random);
        memcpy(start, decode.memory, decode.memory_bytes);
        fig_step step = fig_decode_step(&decode, &plain);
        step.bucket = (int32_t)decode.graphs->bucket_count;
        if (options->reads_lengths) step.token_limit = 4 * 128;
        run(&decode, engine, start, &step, STEP);
        memcpy(want, decode.memory, decode.memory_bytes);
        fig_decode_check(&decode, &plain);
        for (way by = WHOLE; by <= SEGMENTS; by++) {
            run(&decode, engine, start, &step, by);
            assert_memory_equal(decode.memory, want, decode.memory_bytes);
        }
    }
    const fig_progress progress = fig_gate_progress(engine);
    assert_int_equal(progress.staged, 9);
    assert_int_equal(progress.launched, 9);
    assert_int_equal(progress.completed, 9);
    assert_int_equal(fig_gate_stats(engine).launched, 9);
    free(want);
    free(start);
    fig_engine_close(engine);
    fig_decode_close(&decode);
}

static void a_step_by_segments_is_the_step_bit_for_bit(void **state) {
    (void)state;
    fig_decode_options options = small;
    compare_ways(&options);
    options.deterministic = 0;
    compare_ways(&options);
    options.reads_lengths = 1;
    compare_ways(&options);
}

/* ---- Order --------------------------------------------------------------------------------- */

static void wrong_names_are_refused(void **state) {
    (void)state;
    fig_decode decode;
    fig_engine *engine = open_engine(&decode, &small);
    assert_int_equal(append(engine, "fetch", 0), FIG_INVALID);
    check_message("append: bucket is 0, limits 1 to 3");
    assert_int_equal(append(engine, "fetch", 4), FIG_INVALID);
    check_message("append: bucket is 4, limits 1 to 3");
    assert_int_equal(append(engine, "attn.2", 1), FIG_INVALID);
    check_message("append: the program has no segment attn.2");
    assert_int_equal(append(engine, "", 1), FIG_INVALID);
    assert_int_equal(fig_engine_append(engine, NULL), FIG_INVALID);
    if (fig_place_device() == FIG_DEVICE_HOST) {
        void *const on = &decode;
        const fig_append given = {.size = sizeof given, .bucket = 1, .stream = &on};
        assert_int_equal(fig_engine_append(engine, &given), FIG_INVALID);
        assert_non_null(strstr(fig_message(), "it must be NULL"));
    }
    fig_engine_close(engine);
    fig_decode_close(&decode);
}

static void a_fetch_comes_first_and_finds_its_buckets_step(void **state) {
    (void)state;
    static const int32_t lengths[] = {1, 1};
    fig_decode decode;
    fig_engine *engine = open_engine(&decode, &small);
    fig_step step = {.size = sizeof step, .rows = 2, .kv_lengths = lengths, .bucket = 2};
    assert_int_equal(append(engine, "attn.0", 2), FIG_ORDER);
    check_message("append: segment attn.0 comes before \"fetch\" in this engine");
    assert_int_equal(append(engine, "fetch", 2), FIG_ORDER);
    check_message("append: nothing is staged");
    assert_int_equal(append(engine, NULL, 2), FIG_ORDER);
    check_message("append: nothing is staged");
    assert_int_equal(fig_engine_stage(engine, &step), FIG_OK);
    assert_int_equal(append(engine, "fetch", 1), FIG_ORDER);
    check_message("append: bucket is 1, the step staged longest ago is of bucket 2");
    must_append(engine, "fetch", 2);
    assert_int_equal(append(engine, "attn.0", 1), FIG_ORDER);
    check_message("append: segment attn.0 of bucket 1, the fetch before it is of bucket 2");
    must_append(engine, "attn.0", 2);
    must_append(engine, "attn.1", 2);
    assert_int_equal(fig_engine_launch(engine), FIG_ORDER);
    check_message("launch: nothing is staged");
    must_wait(engine);
    fig_engine_close(engine);
    fig_decode_close(&decode);
}

static void a_bind_between_segments_is_seen_by_the_next(void **state) {
    (void)state;
    static const int32_t lengths[] = {1, 1};
    fig_decode decode;
    fig_random random = fig_random_seed(5);
    fig_engine *engine = open_engine(&decode, &small);
    const fig_step plain = {.size = sizeof plain, .rows = 2, .kv_lengths = lengths};
    fig_step step = plain;
    step.bucket = 1;
    fig_binding moved = fig_decode_binding(&decode, 0, FIG_DECODE_ACT);
    const fig_binding back = moved;
    moved.address = fig_place_allocate(moved.bytes);
    fig_decode_fill(&decode, &random);
    assert_int_equal(fig_engine_stage(engine, &step), FIG_OK);
    must_append(engine, "fetch", 1);
    must_append(engine, "act.0", 1);
    must_append(engine, "attn.0", 1);
    must_wait(engine);
    assert_int_equal(fig_engine_bind(engine, &moved), FIG_OK);
    must_append(engine, "act.0", 1);
    must_wait(engine);
    assert_memory_equal(moved.address, back.address, (size_t)2 * FIG_DECODE_FFN * 2);
    assert_int_equal(fig_engine_bind(engine, &back), FIG_OK);
    assert_int_equal(fig_engine_stage(engine, &step), FIG_OK);
    assert_int_equal(fig_engine_bind(engine, &moved), FIG_OK);
    assert_int_equal(append(engine, "fetch", 1), FIG_ORDER);
    check_message("prepare: 1 step staged with earlier bindings must be launched first");
    assert_int_equal(fig_engine_launch(engine), FIG_OK);
    must_wait(engine);
    fig_engine_close(engine);
    fig_place_free(moved.address);
    fig_decode_close(&decode);
}

/* ---- Buckets by name ----------------------------------------------------------------------- */

static void a_step_goes_to_the_bucket_that_it_names(void **state) {
    (void)state;
    static const int32_t lengths[] = {100, 100, 100};
    fig_decode decode;
    fig_engine *engine = open_engine(&decode, &small);
    fig_step step = {.size = sizeof step, .rows = 2, .kv_lengths = lengths};
    fig_plan_report report = {.size = sizeof report};
    step.bucket = 3;
    assert_int_equal(fig_engine_step(engine, &step), FIG_OK);
    assert_int_equal(fig_gate_stats(engine).last_bucket, 3);
    assert_int_equal(fig_graphs_plan(decode.graphs, &step, &report), FIG_OK);
    assert_int_equal(report.bucket, 3);
#define REFUSED(status, sentence)                                                                  \
    do {                                                                                           \
        assert_int_equal(fig_engine_stage(engine, &step), status);                                 \
        check_message(sentence);                                                                   \
        assert_int_equal(fig_graphs_plan(decode.graphs, &step, &report), status);                  \
        check_message(sentence);                                                                   \
    } while (0)
    step.bucket = 1;
    REFUSED(FIG_TOO_LARGE, "step: kv_lengths sum to 200 tokens, bucket 1 takes 128");
    step.rows = 3;
    REFUSED(FIG_TOO_LARGE, "step: rows is 3, bucket 1 takes 2");
    step.bucket = 4;
    REFUSED(FIG_INVALID, "step: bucket is 4, limits 0 to 3");
    step.bucket = -1;
    REFUSED(FIG_INVALID, "step: bucket is -1, limits 0 to 3");
#undef REFUSED
    step.bucket = 0;
    assert_int_equal(fig_engine_step(engine, &step), FIG_OK);
    assert_int_equal(fig_gate_progress(engine).staged, 2);
    must_wait(engine);
    fig_engine_close(engine);
    fig_decode_close(&decode);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_by_segments_is_the_step_bit_for_bit),
        cmocka_unit_test(wrong_names_are_refused),
        cmocka_unit_test(a_fetch_comes_first_and_finds_its_buckets_step),
        cmocka_unit_test(a_bind_between_segments_is_seen_by_the_next),
        cmocka_unit_test(a_step_goes_to_the_bucket_that_it_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
