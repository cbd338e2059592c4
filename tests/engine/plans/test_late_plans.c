/* test_late_plans.c: tests that no step runs behind a damaged plan without that plan's page table
 * entries, and that the engine reports every step that ran no rows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "engine/replay.h"
#include "tests/support/gate.h"
#include "tests/support/hang.h"
#include "tests/support/kernels/decode.h"
#include "tests/support/place.h"

enum { ROWS = 3, KV_LIMIT = 64, PAGE = 4, LEAST = 64, MOST = 512 };

static const char damaged_one[] = "1 plan arrived damaged, and 1 step ran no rows for it; the next "
                                  "plan carries their page table entries again";
static const char behind_it[] = "1 step ran no rows, staged before it was known that an earlier "
                                "plan had arrived damaged";

static const fig_decode_options small = {
    .dtype = FIG_F32, .layers = 1, .page_size = PAGE, .batch_limit = ROWS, .kv_limit = KV_LIMIT};

typedef struct bench {
    fig_decode decode;
    fig_engine *engine;
} bench;

static void must(fig_status status) {
    if (status != FIG_OK) fail_msg("%s", fig_message());
}

static void open_bench_of(bench *b, const fig_decode_options *options) {
    memset(b, 0, sizeof *b);
    fig_decode_open(&b->decode, options);
    must(fig_place_open(&b->engine, b->decode.graphs));
    fig_decode_bind(&b->decode, b->engine);
    b->engine->check_plans = 1;
}

static void open_bench(bench *b) {
    open_bench_of(b, &small);
}

static void close_bench(bench *b) {
    fig_engine_close(b->engine);
    fig_decode_close(&b->decode);
}

static void set_page(bench *b, int32_t sequence, int32_t page) {
    must(fig_engine_set_pages(b->engine, FIG_OPTIONS(fig_pages, .sequence = sequence, .first = 1,
                                                     .count = 1, .pages = &page)));
}

static int32_t read_page(bench *b, int32_t sequence) {
    int32_t page;
    must(fig_engine_read(b->engine,
                         FIG_OPTIONS(fig_span, .name = "page_table",
                                     .offset = (size_t)(sequence * KV_LIMIT / PAGE + 1) * 4,
                                     .bytes = sizeof page),
                         &page));
    return page;
}

static void stage(bench *b) {
    static const int32_t lengths[ROWS] = {5, 6, 7};
    must(fig_engine_stage(b->engine, FIG_OPTIONS(fig_step, .rows = ROWS, .kv_lengths = lengths)));
}

static fig_plan_head *newest(bench *b) {
    const fig_ring *ring = &b->engine->ring;
    return (void *)(ring->slots + (ring->next - 2) % ring->slot_count * ring->slot_bytes);
}

static void damage_newest(bench *b) {
    uint8_t *slot = (uint8_t *)newest(b);
    slot[newest(b)->bytes - 1] ^= 1;
}

static void check_status(bench *b, fig_status status, const char *sentence) {
    fig_engine *engine = b->engine;
    fig_progress progress = {.size = sizeof progress};
    must(engine->api->stream_wait(engine->dev, engine->stream, FIG_HANG_US));
    must(fig_engine_poll(engine, &progress));
    assert_int_equal(progress.fault, status);
    assert_int_equal(fig_engine_wait(b->engine, FIG_HANG_US), status);
    assert_string_equal(fig_message(), sentence);
    assert_int_equal(fig_engine_wait(b->engine, FIG_HANG_US), FIG_OK);
}

static void check_wait(bench *b, const char *sentence) {
    check_status(b, FIG_DRIVER, sentence);
}

/* The second step would read and write page 9 of sequence 1 through an older entry. */
static void a_step_staged_behind_a_damaged_plan_runs_no_rows(void **state) {
    (void)state;
    bench b;
    open_bench(&b);
    set_page(&b, 1, 3);
    stage(&b), must(fig_engine_launch(b.engine));
    must(fig_engine_wait(b.engine, FIG_HANG_US));
    set_page(&b, 1, 9);
    stage(&b), damage_newest(&b);
    stage(&b);
    must(fig_engine_launch(b.engine)), must(fig_engine_launch(b.engine));
    check_wait(&b, "1 plan arrived damaged, and 2 steps ran no rows for it; the next plan carries "
                   "their page table entries again");
    assert_int_equal(fig_gate_stats(b.engine).missed, 2);
    stage(&b), must(fig_engine_launch(b.engine));
    must(fig_engine_wait(b.engine, FIG_HANG_US));
    assert_int_equal(fig_gate_stats(b.engine).missed, 2);
    assert_int_equal(read_page(&b, 1), 9);
    close_bench(&b);
}

/* The step behind the damaged plan is launched after a wait has reported the damage. */
static void a_step_launched_after_the_report_is_reported_too(void **state) {
    (void)state;
    bench b;
    open_bench(&b);
    stage(&b), damage_newest(&b);
    set_page(&b, 2, 8);
    stage(&b);
    must(fig_engine_launch(b.engine));
    check_wait(&b, damaged_one);
    must(fig_engine_launch(b.engine));
    check_wait(&b, behind_it);
    stage(&b), must(fig_engine_launch(b.engine));
    must(fig_engine_wait(b.engine, FIG_HANG_US));
    assert_int_equal(read_page(&b, 2), 8);
    close_bench(&b);
}

/* The damage is reported between fig_step_check() and the claim of a slot, for which
 * fig_engine_stage() may wait. */
static void a_plan_is_whole_if_its_stamp_counts_a_new_damaged_plan(void **state) {
    static const int32_t lengths[ROWS] = {5, 6, 7};
    fig_plan_step planned;
    (void)state;
    bench b;
    open_bench(&b);
    stage(&b), must(fig_engine_launch(b.engine));
    must(fig_engine_wait(b.engine, FIG_HANG_US));
    must(fig_step_check(b.engine->program,
                        FIG_OPTIONS(fig_step, .rows = ROWS, .kv_lengths = lengths),
                        &b.engine->stamps, &planned));
    stage(&b), damage_newest(&b);
    must(fig_engine_launch(b.engine));
    check_wait(&b, damaged_one);
    const fig_engine_plan *damaged = fig_engine_plan_of(b.engine, b.engine->ring.next - 1);
    must(fig_replay_put(b.engine, &planned, (int32_t)damaged->bucket));
    must(fig_engine_launch(b.engine));
    must(fig_engine_wait(b.engine, FIG_HANG_US));
    assert_int_equal(fig_gate_stats(b.engine).missed, 1);
    close_bench(&b);
}

/* Stages a step for the smaller bucket. Every row is `length` tokens long. */
static void stage_on_device(bench *b, int32_t length) {
    const int32_t lengths[ROWS] = {length, length, length};
    const fig_step step = {.size = sizeof step, .rows = ROWS, .kv_lengths = lengths};
    fig_step given = fig_decode_step(&b->decode, &step);
    given.token_limit = ROWS * LEAST;
    must(fig_engine_stage(b->engine, &given));
}

/* If lengths are too large, the step runs no rows either, for another reason. */
static void a_poll_tells_damage_from_lengths_that_are_too_large(void **state) {
    (void)state;
    static const fig_bucket buckets[] = {{ROWS, LEAST}, {ROWS, MOST}};
    fig_decode_options options = small;
    bench b;
    options.reads_lengths = 1;
    options.kv_limit = MOST;
    options.buckets = buckets;
    options.bucket_count = 2;
    open_bench_of(&b, &options);
    stage_on_device(&b, 5), damage_newest(&b);
    stage_on_device(&b, 5);
    must(fig_engine_launch(b.engine));
    check_wait(&b, damaged_one);
    must(fig_engine_launch(b.engine));
    check_wait(&b, behind_it);
    stage_on_device(&b, MOST), must(fig_engine_launch(b.engine));
    check_status(&b, FIG_TOO_LARGE,
                 "1 step ran no rows: lengths on the device are more than the bucket holds, or "
                 "nothing was staged");
    close_bench(&b);
}

/* No launch ever asks for a plan of that bucket. */
static void a_plan_whose_bucket_is_damaged_does_not_stop_the_engine(void **state) {
    (void)state;
    bench b;
    open_bench(&b);
    set_page(&b, 0, 7);
    stage(&b);
    newest(&b)->exec ^= 64;
    must(fig_engine_launch(b.engine));
    check_wait(&b, damaged_one);
    for (uint32_t n = 0; n < 2 * b.engine->ring.slot_count; n++) {
        stage(&b), must(fig_engine_launch(b.engine));
        must(fig_engine_wait(b.engine, FIG_HANG_US));
    }
    assert_int_equal(read_page(&b, 0), 7);
    close_bench(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_staged_behind_a_damaged_plan_runs_no_rows),
        cmocka_unit_test(a_step_launched_after_the_report_is_reported_too),
        cmocka_unit_test(a_plan_is_whole_if_its_stamp_counts_a_new_damaged_plan),
        cmocka_unit_test(a_poll_tells_damage_from_lengths_that_are_too_large),
        cmocka_unit_test(a_plan_whose_bucket_is_damaged_does_not_stop_the_engine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
