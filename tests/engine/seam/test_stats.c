/* test_stats.c: compares an engine's counters with the test's own sums, and reads them from another
 * thread while steps are made. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "tests/support/gate.h"
#include "tests/support/place.h"
#include "tests/support/steps/race.h"

enum { HEAD_BYTES = 64, PAGE_ENTRY_BYTES = 16, START_BYTES = 16 };

static fig_graphs *graphs;
static fig_race race; /* only the race's engine is used */

static int set_up(void **state) {
    (void)state;
    graphs = fig_race_graphs();
    return graphs == NULL;
}

static int tear_down(void **state) {
    (void)state;
    fig_graphs_destroy(graphs);
    return 0;
}

static fig_engine *open_engine(void) {
    fig_engine_options options = fig_place_options();
    if (!fig_race_open(&race, graphs, &options, 1)) fail_msg("%s", race.sentence);
    return race.engine;
}

static fig_engine_stats read_stats(const fig_engine *engine) {
    fig_engine_stats stats = {.size = sizeof stats};
    fig_engine_read_stats(engine, &stats);
    return stats;
}

/* Runs one step to its end in bucket n; 0: any bucket. */
static void step_in(fig_engine *engine, int32_t bucket, int32_t rows, const int32_t *lengths,
                    const int32_t *positions) {
    const fig_step step = {.size = sizeof step,
                           .rows = rows,
                           .kv_lengths = lengths,
                           .positions = positions,
                           .bucket = bucket};
    if (fig_engine_step(engine, &step) != FIG_OK) fail_msg("%s", fig_message());
    if (fig_engine_wait(engine, FIG_HANG_US) != FIG_OK) fail_msg("%s", fig_message());
}

/* ---- Bytes --------------------------------------------------------------------------------- */

static int64_t padded(int64_t bytes) {
    return (bytes + 15) / 16 * 16;
}

/* Returns the bytes of a section with one number per row. */
static int64_t rows_bytes(int64_t rows) {
    return padded(4 * rows);
}

static int64_t split_bytes(int32_t bucket, int64_t rows) {
    fig_bucket_info info = {.size = sizeof info};
    assert_int_equal(fig_graphs_bucket(graphs, bucket, &info), FIG_OK);
    assert_true(info.workers > 0);
    return rows_bytes(rows + 1) + START_BYTES * info.workers;
}

/* Returns the bytes that the engine sent since the last call. */
static int64_t sent(fig_engine *engine, int64_t *before) {
    const int64_t all = read_stats(engine).uploaded_bytes, more = all - *before;
    *before = all;
    return more;
}

static void uploaded_bytes_are_those_of_the_sections_that_travel(void **state) {
    (void)state;
    fig_engine *engine = open_engine();
    static const int32_t first[] = {5, 50, 100, 9, 1}, grown[] = {6, 51, 101, 10, 2};
    static const int32_t crossed[] = {7, 52, 102, 128, 3}, stands[] = {9, 8, 7, 6, 5};
    int64_t before = 0;
    fig_bucket_info info = {.size = sizeof info};
    int32_t bucket = 1;
    assert_int_equal(fig_graphs_bucket(graphs, bucket, &info), FIG_OK);
    while (info.bucket.batch < 5)
        assert_int_equal(fig_graphs_bucket(graphs, ++bucket, &info), FIG_OK);
    assert_int_equal(sent(engine, &before), 0); /* the page entries were sent ahead or still wait */

    step_in(engine, bucket, 5, first, NULL);
    const int64_t lengths = HEAD_BYTES + rows_bytes(5), splits = split_bytes(bucket, 5);
    assert_int_equal(sent(engine, &before), lengths + rows_bytes(5) + splits);
    step_in(engine, bucket, 5, grown, NULL); /* no row has grown into another tile */
    assert_int_equal(sent(engine, &before), lengths);
    assert_int_equal(read_stats(engine).reused_splits, 1);
    step_in(engine, bucket, 5, grown, stands);
    assert_int_equal(sent(engine, &before), lengths + rows_bytes(5));
    assert_int_equal(read_stats(engine).reused_splits, 2);
    /* Row 3 alone grows into another tile, if tiles have fewer than 128 tokens. */
    const int crosses = 128 > info.tile_tokens;
    step_in(engine, bucket, 5, crossed, NULL);
    assert_int_equal(sent(engine, &before), lengths + (crosses ? splits : 0));
    step_in(engine, bucket, 4, crossed, NULL); /* with fewer rows, the whole split is sent */
    assert_int_equal(sent(engine, &before),
                     HEAD_BYTES + 2 * rows_bytes(4) + split_bytes(bucket, 4));
    assert_int_equal(read_stats(engine).reused_splits, 2 + !crosses);
    step_in(engine, bucket, 0, crossed, NULL);
    assert_int_equal(sent(engine, &before), HEAD_BYTES + split_bytes(bucket, 0));
    fig_race_close(&race);
}

static fig_status set_pages(fig_engine *engine, int32_t sequence, int32_t count) {
    return fig_engine_set_pages(engine, FIG_OPTIONS(fig_pages, .sequence = sequence, .count = count,
                                                    .pages = race.table[sequence]));
}

static void few_pages_count_with_the_plan_and_many_ahead_of_it(void **state) {
    (void)state;
    fig_engine *engine = open_engine();
    static const int32_t lengths[] = {5, 6};
    int64_t before = 0;
    /* Opening sets the pages of every sequence. */
    const int64_t ahead = 4 * FIG_RACE_SEQUENCES * FIG_RACE_SEQUENCE_PAGES;
    assert_int_equal(read_stats(engine).page_bytes, ahead);
    step_in(engine, 1, 2, lengths, NULL);
    sent(engine, &before);
    assert_int_equal(set_pages(engine, 3, 5), FIG_OK);
    assert_int_equal(set_pages(engine, 4, 2), FIG_OK);
    /* an entry that is set twice waits only once */
    assert_int_equal(set_pages(engine, 3, 5), FIG_OK);
    assert_int_equal(sent(engine, &before), 0);
    step_in(engine, 1, 2, lengths, NULL);
    assert_int_equal(sent(engine, &before), HEAD_BYTES + rows_bytes(2) + 7 * PAGE_ENTRY_BYTES);
    assert_int_equal(read_stats(engine).page_bytes, ahead);
    assert_int_equal(set_pages(engine, 3, FIG_RACE_SEQUENCE_PAGES), FIG_OK);
    assert_int_equal(read_stats(engine).page_bytes, ahead + 4 * FIG_RACE_SEQUENCE_PAGES);
    step_in(engine, 1, 2, lengths, NULL);
    assert_int_equal(sent(engine, &before), HEAD_BYTES + rows_bytes(2));
    fig_race_close(&race);
}

/* ---- Steps --------------------------------------------------------------------------------- */

static void a_plan_taken_back_counts_as_taken_back_and_sent_nothing(void **state) {
    (void)state;
    fig_engine *engine = open_engine();
    static const int32_t lengths[] = {5, 6};
    const fig_step one = {.size = sizeof one, .rows = 2, .kv_lengths = lengths, .bucket = 1};
    fig_step four = one;
    four.horizon = 4;
    four.bucket = 2;
    step_in(engine, 1, 2, lengths, NULL);
    const fig_engine_stats begun = read_stats(engine);
    assert_int_equal(begun.last_bucket, 1);
    assert_int_equal(fig_engine_stage(engine, &four), FIG_OK);
    fig_engine_stats stats = read_stats(engine);
    assert_int_equal(stats.staged, 5);
    assert_int_equal(stats.launched, 1);
    assert_int_equal(stats.last_bucket, 2);
    assert_int_equal(fig_engine_take_back(engine), FIG_OK); /* takes the whole plan back */
    stats = read_stats(engine);
    assert_int_equal(stats.staged, 1);
    assert_int_equal(stats.taken_back, 4);
    assert_int_equal(stats.uploaded_bytes, begun.uploaded_bytes);
    assert_int_equal(stats.last_bucket, 1);
    assert_int_equal(fig_engine_stage(engine, &four), FIG_OK);
    assert_int_equal(fig_engine_launch(engine), FIG_OK);
    /* takes back three of the plan's four launches */
    assert_int_equal(fig_engine_take_back(engine), FIG_OK);
    stats = read_stats(engine);
    assert_int_equal(stats.staged, 2);
    assert_int_equal(stats.launched, 2);
    assert_int_equal(stats.taken_back, 4 + 3);
    assert_true(stats.uploaded_bytes > begun.uploaded_bytes);
    assert_int_equal(stats.last_bucket, 2);
    assert_int_equal(fig_engine_wait(engine, FIG_HANG_US), FIG_OK);
    fig_race_close(&race);
}

static void a_horizon_counts_as_all_of_its_steps_and_one_plan(void **state) {
    (void)state;
    fig_engine *engine = open_engine();
    static const int32_t lengths[] = {5, 6};
    const fig_step step = {
        .size = sizeof step, .rows = 2, .kv_lengths = lengths, .bucket = 1, .horizon = 5};
    assert_int_equal(fig_engine_stage(engine, &step), FIG_OK);
    for (int i = 0; i < 5; i++)
        assert_int_equal(fig_engine_launch(engine), FIG_OK);
    assert_int_equal(fig_engine_wait(engine, FIG_HANG_US), FIG_OK);
    const fig_engine_stats stats = read_stats(engine);
    assert_int_equal(stats.staged, 5);
    assert_int_equal(stats.launched, 5);
    assert_int_equal(stats.uploaded_bytes, HEAD_BYTES + 2 * rows_bytes(2) + split_bytes(1, 2));
    assert_int_equal(stats.host.count, 5);
    assert_int_equal(stats.period.count, 4);
    fig_race_close(&race);
}

static void a_replay_of_nothing_counts_as_missed(void **state) {
    (void)state;
    fig_engine *engine = open_engine();
    static const int32_t lengths[] = {5, 6};
    step_in(engine, 1, 2, lengths, NULL);
    for (int64_t n = 1; n <= 3; n++) {
        fig_dev_exec *exec = engine->execs.of[0].exec;
        assert_int_equal(engine->api->exec_launch(engine->dev, exec, engine->stream), FIG_OK);
        assert_int_equal(fig_engine_wait(engine, FIG_HANG_US), FIG_DRIVER);
        assert_int_equal(read_stats(engine).missed, n);
    }
    step_in(engine, 1, 2, lengths, NULL);
    const fig_engine_stats stats = read_stats(engine);
    assert_int_equal(stats.launched, 2);
    assert_int_equal(stats.missed, 3);
    fig_race_close(&race);
}

/* The callback of the first step is held up, so no plan but the first can have left the ring. */
static void a_refusal_for_lack_of_a_slot_counts_as_busy(void **state) {
    (void)state;
    fig_gate g;
    fig_engine_options options = fig_gate_options();
    options.slots = 3;
    fig_gate_open(&g, &options);
    g.held = 1;
    fig_gate_run(&g, 2);
    sem_wait(&g.entered);
    int staged = 1;
    while (fig_gate_stage(&g, 2) == FIG_OK)
        staged++;
    /* 3 if the first step's slot counts as free only when that step has ended */
    assert_in_range(staged, 3, 4);
    for (int64_t n = 2; n < 6; n++) {
        assert_int_equal(fig_gate_stage(&g, 2), FIG_BUSY);
        assert_int_equal(fig_gate_stats(g.engine).busy, n);
    }
    assert_int_equal(fig_gate_stats(g.engine).staged, staged);
    for (int i = 1; i < staged; i++)
        assert_int_equal(fig_engine_launch(g.engine), FIG_OK);
    for (int i = 0; i < staged; i++)
        sem_post(&g.leave);
    fig_gate_wait(&g);
    assert_int_equal(fig_gate_stats(g.engine).launched, staged);
    assert_int_equal(fig_gate_stats(g.engine).busy, 5);
    fig_gate_close(&g);
}

/* ---- Times --------------------------------------------------------------------------------- */

static int64_t in_bins(const fig_histogram *histogram) {
    int64_t count = 0;
    for (int32_t bin = 0; bin < FIG_HISTOGRAM_BINS; bin++)
        count += histogram->bins[bin];
    return count;
}

static void check_histogram(const fig_histogram *histogram, int64_t count) {
    assert_int_equal(histogram->count, count);
    assert_int_equal(in_bins(histogram), count);
    assert_true(histogram->least > 0 && histogram->least <= histogram->most);
    assert_true(histogram->sum >= histogram->least * count);
    assert_true(histogram->sum <= histogram->most * count);
}

/* A step that is refused or taken back is not counted; its time is added to the next step's. */
static void each_launch_has_a_time_and_each_but_the_first_a_period(void **state) {
    (void)state;
    fig_engine *engine = open_engine();
    static const int32_t lengths[] = {5, 6};
    const fig_step step = {.size = sizeof step, .rows = 2, .kv_lengths = lengths};
    assert_int_equal(read_stats(engine).host.count, 0);
    assert_int_equal(fig_engine_launch(engine), FIG_ORDER);
    for (int i = 0; i < 40; i++) {
        if (i % 4 == 0) {
            assert_int_equal(fig_engine_stage(engine, &step), FIG_OK);
            assert_int_equal(fig_engine_take_back(engine), FIG_OK);
        }
        step_in(engine, 0, 2, lengths, NULL);
    }
    const fig_engine_stats stats = read_stats(engine);
    check_histogram(&stats.host, 40);
    check_histogram(&stats.period, 39);
    /* a period includes the host's time of a step */
    assert_true(stats.period.sum >= stats.host.sum / 40);
    fig_race_close(&race);
}

/* ---- From another thread ------------------------------------------------------------------- */

typedef struct watcher {
    const fig_engine *engine;
    int done; /* atomic */
    int64_t looks, wrong;
} watcher;

/* Checks that the counters only grow and that none is torn. `launched` and `uploaded_bytes` of one
 * step may change at different moments. */
static void *watch(void *user) {
    watcher *w = user;
    fig_engine_stats last = read_stats(w->engine);
    while (!__atomic_load_n(&w->done, __ATOMIC_ACQUIRE)) {
        const fig_engine_stats stats = read_stats(w->engine);
        const int64_t launched = stats.launched, bytes = stats.uploaded_bytes;
        w->wrong += launched < last.launched || bytes < last.uploaded_bytes;
        w->wrong += bytes % 16 != 0 || stats.missed != 0 || stats.host.least < 0;
        last = stats;
        w->looks++;
    }
    return NULL;
}

static void another_thread_reads_whole_numbers_while_steps_are_made(void **state) {
    (void)state;
    enum { STEPS = 2000 };
    watcher w = {.engine = open_engine()};
    pthread_t thread;
    int32_t lengths[] = {1, 1};
    const fig_step step = {.size = sizeof step, .rows = 2, .kv_lengths = lengths};
    assert_int_equal(pthread_create(&thread, NULL, watch, &w), 0);
    for (int i = 0; i < STEPS; i++) {
        lengths[0] = 1 + i % FIG_RACE_KV;
        while (fig_engine_step(race.engine, &step) == FIG_BUSY)
            ;
    }
    assert_int_equal(fig_engine_wait(race.engine, FIG_HANG_US), FIG_OK);
    __atomic_store_n(&w.done, 1, __ATOMIC_RELEASE);
    pthread_join(thread, NULL);
    assert_true(w.looks > 0);
    assert_int_equal(w.wrong, 0);
    assert_int_equal(read_stats(race.engine).launched, STEPS);
    fig_race_close(&race);
}

static void stats_into_a_struct_without_a_size_are_refused(void **state) {
    (void)state;
    fig_engine *engine = open_engine();
    fig_engine_stats stats = {.staged = 7};
    assert_int_equal(fig_engine_read_stats(engine, &stats), FIG_INVALID);
    assert_int_equal(stats.staged, 7);
    stats.size = sizeof stats;
    assert_int_equal(fig_engine_read_stats(engine, &stats), FIG_OK);
    assert_int_equal(stats.staged, 0);
    fig_race_close(&race);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stats_into_a_struct_without_a_size_are_refused),
        cmocka_unit_test(uploaded_bytes_are_those_of_the_sections_that_travel),
        cmocka_unit_test(few_pages_count_with_the_plan_and_many_ahead_of_it),
        cmocka_unit_test(a_plan_taken_back_counts_as_taken_back_and_sent_nothing),
        cmocka_unit_test(a_horizon_counts_as_all_of_its_steps_and_one_plan),
        cmocka_unit_test(a_replay_of_nothing_counts_as_missed),
        cmocka_unit_test(a_refusal_for_lack_of_a_slot_counts_as_busy),
        cmocka_unit_test(each_launch_has_a_time_and_each_but_the_first_a_period),
        cmocka_unit_test(another_thread_reads_whole_numbers_while_steps_are_made),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
