/* test_measure.c: tests the results of fig_engine_measure(), its effects on the engine and its
 * refusals, and the event marks that it uses. */
#include "engine/engine.h"

#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "include/figraph_unstable.h"
#include "tests/support/kernels/decode.h"
#include "tests/support/driver/fake_cuda.h"
#include "tests/support/fault.h"
#include "tests/support/gate.h"
#include "tests/support/place.h"

enum { ROWS = 3, KV_LIMIT = 256 };

static const int32_t lengths[ROWS] = {17, 0, 40}, few[ROWS] = {2, 0, 3};
static const fig_step three_rows = {.size = sizeof three_rows, .rows = ROWS, .kv_lengths = lengths};
static const fig_step few_tokens = {.size = sizeof few_tokens, .rows = ROWS, .kv_lengths = few};

static fig_engine_options options_of(fig_device device) {
    fig_engine_options options = fig_place_host_only("both devices are tried on any machine");
    options.device = device;
    return options;
}

/* ---- On two devices ------------------------------------------------------------------------ */

/* A decode step in an engine on the host or on the fake driver. */
typedef struct bench {
    fig_fake_cuda *fake; /* NULL: on the host */
    fig_decode decode;
    const fig_step *step;
    fig_engine *engine;
} bench;

static const fig_bucket buckets[] = {{4, 64}, {4, KV_LIMIT}};
static const fig_decode_options decode_options = {.dtype = FIG_F16,
                                                  .layers = 2,
                                                  .page_size = 16,
                                                  .batch_limit = 4,
                                                  .kv_limit = KV_LIMIT,
                                                  .buckets = buckets,
                                                  .bucket_count = 2};

static void open_engine(bench *b, const fig_engine_options *options) {
    fig_random random = fig_random_seed(7);
    if (fig_engine_open(&b->engine, b->decode.graphs, options) != FIG_OK)
        fail_msg("%s", fig_message());
    fig_decode_bind(&b->decode, b->engine);
    for (int32_t row = 0; row < ROWS; row++)
        fig_decode_prefill(&b->decode, row, b->step->kv_lengths[row], &random);
    fig_decode_fill(&b->decode, &random);
}

/* layers: 1 for tests that open many engines, whose steps have few tokens. */
static void open_bench(bench *b, fig_device device, int32_t layers) {
    fig_decode_options options = decode_options;
    options.layers = layers;
    options.kv_limit = layers == 1 ? 64 : KV_LIMIT;
    if (layers == 1) options.bucket_count = 1;
    memset(b, 0, sizeof *b);
    b->step = layers == 1 ? &few_tokens : &three_rows;
    b->fake = device == FIG_DEVICE_CUDA ? fig_fake_cuda_install() : NULL;
    fig_decode_open(&b->decode, &options);
}

static void remove_fake(const fig_fake_cuda *fake) {
    const int64_t held = fake->held, unsafe = fake->unsafe;
    fig_fake_cuda_remove();
    assert_int_equal(held, 0);
    assert_int_equal(unsafe, 0);
}

static void close_bench(bench *b) {
    fig_decode_close(&b->decode);
    if (b->fake != NULL) remove_fake(b->fake);
}

/* Checks that the engine is idle, that nothing is staged, and that the next step is right. */
static void check_usable(bench *b) {
    fig_random random = fig_random_seed(9);
    fig_progress progress = {.size = sizeof progress};
    assert_int_equal(b->engine->staged, b->engine->launched);
    assert_int_equal(fig_engine_poll(b->engine, &progress), FIG_OK);
    assert_int_equal(progress.completed, progress.launched);
    assert_int_equal(fig_engine_launch(b->engine), FIG_ORDER);
    fig_decode_fill(&b->decode, &random);
    if (fig_engine_step(b->engine, b->step) != FIG_OK) fail_msg("%s", fig_message());
    if (fig_engine_wait(b->engine, FIG_HANG_US) != FIG_OK) fail_msg("%s", fig_message());
    fig_decode_check(&b->decode, b->step);
}

static fig_status measure(fig_engine *engine, const fig_step *step, int32_t steps,
                          fig_measured *measured) {
    const fig_measure_options options = {.size = sizeof options, .step = step, .steps = steps};
    *measured = (fig_measured){.size = sizeof *measured, .step_ns = -1, .bare_ns = -1};
    return fig_engine_measure(engine, &options, measured);
}

static void refuse(fig_engine *engine, const fig_step *step, int32_t steps, fig_status status,
                   const char *sentence) {
    fig_measured measured;
    assert_int_equal(measure(engine, step, steps, &measured), status);
    assert_string_equal(fig_message(), sentence);
    assert_int_equal(engine->staged, engine->launched);
}

static void check_figures(const fig_measured *m) {
    const double times[] = {m->step_ns, m->fetched_ns, m->waited_ns, m->resident_ns, m->bare_ns};
    assert_true(m->check_ns >= 0 && m->choose_ns >= 0);
    assert_true(m->plan_ns > 0 && m->launch_ns > 0 && m->bare_launch_ns > 0);
    assert_true(m->step_ns >= m->launch_ns + m->plan_ns / 4);
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        assert_true(times[i] > 0 && times[i] < 1e9 * FIG_HANG_S);
    /* Negative if the noise exceeds the gap. */
    assert_true(isfinite(m->gap_ns + m->empty_gap_ns));
    assert_true(m->result_ns > m->step_ns / 4 && m->empty_result_ns > 0);
}

static void measure_on(fig_device device) {
    static bench b;
    fig_measured measured;
    open_bench(&b, device, 2);
    const fig_engine_options options = options_of(device);
    open_engine(&b, &options);
    if (measure(b.engine, &three_rows, 40, &measured) != FIG_OK) fail_msg("%s", fig_message());
    check_figures(&measured);
    assert_int_equal(measured.bucket, 1);
    /* Two layers, a fetch and a look-ahead. On a GPU, attention's node takes a single launch. */
    assert_int_equal(measured.launches, 2 * (device == FIG_DEVICE_HOST ? 3 : 2) + 2);
    check_usable(&b);
    fig_engine_close(b.engine);
    close_bench(&b);
}

static void figures_are_sane_and_the_engine_is_usable_on_both_devices(void **state) {
    (void)state;
    measure_on(FIG_DEVICE_HOST);
    measure_on(FIG_DEVICE_CUDA);
}

/* Tries rings from the least depth to one that is deeper than the host device's queue. */
static void a_ring_of_any_size_serves(void **state) {
    (void)state;
    static bench b;
    open_bench(&b, FIG_DEVICE_HOST, 1);
    const int32_t slots[] = {FIG_SLOT_LEAST, 3, FIG_SLOT_LIMIT};
    for (size_t i = 0; i < sizeof slots / sizeof *slots; i++) {
        fig_measured measured;
        fig_engine_options options = options_of(FIG_DEVICE_HOST);
        options.slots = slots[i];
        open_engine(&b, &options);
        if (measure(b.engine, b.step, 100, &measured) != FIG_OK) fail_msg("%s", fig_message());
        fig_engine_stats stats = fig_gate_stats(b.engine);
        assert_int_equal(stats.busy, 0);
        assert_int_equal(stats.missed, 0);
        check_usable(&b);
        fig_engine_close(b.engine);
    }
    close_bench(&b);
}

/* ---- Faults -------------------------------------------------------------------------------- */

/* Returns NULL if the fault comes before everything is bound. Another test covers such faults. */
static fig_engine *try_open(const bench *b, const fig_engine_options *options) {
    fig_engine *engine;
    const int32_t entries = b->decode.spec.sequence_limit * b->decode.sequence_pages;
    const fig_span table = {
        .size = sizeof table, .name = "page_table", .bytes = (size_t)entries * 4};
    fig_status status = fig_engine_open(&engine, b->decode.graphs, options);
    for (int i = 0; status == FIG_OK && i < FIG_DECODE_K_SCALE; i++) {
        const fig_binding binding = fig_decode_binding(&b->decode, 0, (fig_decode_kind)i);
        status = fig_engine_bind(engine, &binding);
    }
    if (status == FIG_OK) status = fig_engine_write(engine, &table, b->decode.page_table);
    if (status == FIG_OK) return engine;
    fig_engine_close(engine);
    return NULL;
}

/* Returns 1 if the n-th device call failed and belonged to the measuring. */
static int fail_at_call(bench *b) {
    fig_measured measured;
    const fig_status status = measure(b->engine, b->step, 1, &measured);
    if (status != FIG_OK) {
        if (strstr(fig_message(), "failed as asked") == NULL) fail_msg("%s", fig_message());
        assert_true(measured.step_ns == 0 && measured.bare_ns == 0);
    }
    check_usable(b);
    fig_engine_close(b->engine);
    return status != FIG_OK;
}

/* Fails each device call that measuring makes. The last one waits on an idle device. */
static void every_device_call_may_fail(void **state) {
    (void)state;
    static bench b;
    int failures = 0, failed = 1;
    fig_engine_options options = options_of(FIG_DEVICE_HOST);
    open_bench(&b, FIG_DEVICE_HOST, 1);
    open_engine(&b, &options); /* makes the page table that try_open() writes */
    fig_engine_close(b.engine);
    options.slots = 2;
    for (int64_t n = 1; failed; n++) {
        options.test = FIG_OPTIONS(fig_test_options, .fail_at_call = n);
        b.engine = try_open(&b, &options);
        if (b.engine == NULL) continue;
        failed = fail_at_call(&b);
        failures += failed;
    }
    assert_true(failures > 120);
    close_bench(&b);
}

/* Fails the driver's calls below the device interface: events, edges, and calls that free. */
static void every_call_of_the_driver_may_fail(void **state) {
    (void)state;
    static bench b;
    int failures = 0;
    fig_measured measured;
    open_bench(&b, FIG_DEVICE_CUDA, 1);
    for (int64_t n = 1;; n += FIG_FAULT_STRIDE) {
        const fig_engine_options options = options_of(FIG_DEVICE_CUDA);
        open_engine(&b, &options);
        assert_int_equal(fig_engine_prepare(b.engine, 0), FIG_OK);
        b.fake->fail_with = FIG_CU_OUT_OF_MEMORY;
        b.fake->fail_at = b.fake->calls + n, b.fake->failed = NULL;
        const fig_status status = measure(b.engine, b.step, 1, &measured);
        b.fake->fail_at = 0;
        failures += status != FIG_OK;
        check_usable(&b);
        fig_engine_close(b.engine);
        if (b.fake->failed == NULL) break;
    }
    assert_true(failures * FIG_FAULT_STRIDE > 250);
    close_bench(&b);
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    static bench b;
    open_bench(&b, FIG_DEVICE_HOST, 1);
    for (int64_t n = 1;; n++) {
        fig_measured measured;
        const fig_engine_options options = options_of(FIG_DEVICE_HOST);
        open_engine(&b, &options);
        fig_fault_arm(n);
        const fig_status status = measure(b.engine, b.step, 1, &measured);
        const int64_t seen = fig_fault_disarm();
        assert_int_equal(status, seen >= n ? FIG_NOMEM : FIG_OK);
        check_usable(&b);
        fig_engine_close(b.engine);
        if (seen < n) break;
    }
    close_bench(&b);
}

/* ---- Steps of a measurement ---------------------------------------------------------------- */

/* What a callback saw of the steps. The callback runs on the device's thread, so it only counts and
 * does not assert. */
typedef struct watch {
    fig_gate gate;
    const int32_t *given; /* [2] */
    /* The first 1 + 7 * steps plans are the host's: 3 a step in each of two loops, and 1 a
     * result. */
    uint64_t steps;
    int calls, plans, wrong_rows, wrong_lengths, not_whole, not_waited, out_of_turn, longest;
    int64_t launched; /* how many steps were launched */
    uint64_t tag;
    int32_t lengths[FIG_GATE_ROWS];
    float before; /* x[0] as the previous call left it; 0: there was no call */
} watch;

/* After the first plan, the plans for the host's samples come in groups of three. The first plan of
 * a group has two launches. The host waits for its first launch and for the launch of the second
 * plan, and stages nothing while it waits. */
static int is_waited_for(const fig_engine *engine, int64_t at) {
    fig_engine_stats stats = {.size = sizeof stats};
    if (at < 0 || at % 3 == 2) return 1;
    fig_hang_pause(200);
    fig_engine_read_stats(engine, &stats);
    return stats.staged == 1 + at / 3 * 4 + 2 + at % 3;
}

/* A new plan has a new tag. Each call also changes x, so `act` at the next call shows whether all
 * nodes after this call ran before that one. */
static int32_t look(void *user, const fig_call_args *args) {
    watch *w = user;
    const fig_engine *engine = w->gate.engine;
    const uint8_t *plan = engine->plan.device;
    const fig_plan_head *head = (const void *)plan;
    const int32_t *now = (const void *)(plan + engine->graphs->buckets[0].plan.layout.lengths);
    const uint32_t all = FIG_PLAN_HAS_LENGTHS | FIG_PLAN_HAS_SEQUENCES | FIG_PLAN_HAS_SPLITS;
    const uint64_t number = fig_plan_tag_number(head->tag);
    const int first = head->tag != w->tag, host = number <= 1 + 7 * w->steps;
    const int waits = number > 1 + 3 * w->steps && number <= 1 + 6 * w->steps;
    w->calls++;
    w->plans += first;
    w->wrong_rows += args->rows != 2;
    w->not_whole += !host && (head->sections & all) != all;
    w->not_waited += waits && first && !is_waited_for(engine, (int64_t)number - 2);
    for (int32_t row = 0; row < 2; row++) {
        w->wrong_lengths +=
            host ? (now[row] == w->lengths[row]) == first : now[row] != w->given[row];
        if (now[row] > w->longest) w->longest = now[row];
    }
    memcpy(w->lengths, now, 2 * sizeof *now);
    w->tag = head->tag;
    const double x = (double)w->before, due = x / (1 + exp(-x)) * x * (FIG_GATE_WIDTH + 1);
    if (x != 0 && !(fabs((double)w->gate.act[0] - due) <= 1e-4 * fabs(due))) w->out_of_turn++;
    w->before = 0.5f + (float)(w->calls % 7) * 0.125f;
    w->gate.x[0] = w->before;
    return fig_gate_callback(&w->gate, args);
}

static void watch_measuring(watch *w, const int32_t *given, int32_t steps, uint64_t shuffle) {
    const fig_step step = {.size = sizeof step, .rows = 2, .kv_lengths = given};
    fig_engine_options options = fig_gate_options();
    fig_measured measured;
    memset(w, 0, sizeof *w);
    w->given = given;
    w->steps = (uint64_t)steps;
    options.test = FIG_OPTIONS(fig_test_options, .shuffle = shuffle);
    fig_gate_open(&w->gate, &options);
    assert_int_equal(fig_engine_register(w->gate.engine, "gemm", look, w), FIG_OK);
    if (measure(w->gate.engine, &step, steps, &measured) != FIG_OK) fail_msg("%s", fig_message());
    w->launched = fig_gate_stats(w->gate.engine).launched;
    assert_int_equal(w->wrong_rows, 0);
    fig_gate_close(&w->gate);
}

/* The lengths change from plan to plan only, so that they stay below the limit. */
static void every_length_changes_in_every_step_of_the_host(void **state) {
    (void)state;
    static watch w;
    for (int32_t left = 1; left < FIG_GATE_KV; left *= 8) {
        const int32_t given[] = {30, FIG_GATE_KV - left};
        watch_measuring(&w, given, 70, 0);
        assert_int_equal(w.wrong_lengths, 0);
        assert_int_equal(w.longest, given[1] + (left < 63 ? left : 63));
    }
}

static void host_samples_begin_when_the_device_is_idle(void **state) {
    (void)state;
    static watch w;
    watch_measuring(&w, lengths, 70, 0);
    assert_int_equal(w.not_waited, 0);
}

static void copies_of_the_nodes_come_one_after_another(void **state) {
    (void)state;
    static watch w;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        watch_measuring(&w, lengths, 32, seed);
        assert_int_equal(w.out_of_turn, 0);
    }
}

/* Counts what the head comment of engine/measure.c lists: batches of 16 replays, each after an exec
 * of its own and a chain of 8, and the host's steps, with one more for each warm-up. */
static void a_batch_holds_what_the_head_comment_says(void **state) {
    (void)state;
    static watch w;
    watch_measuring(&w, lengths, 5, 0);
    assert_int_equal(w.calls, (1 + 1 + 8) + 5 * 9 + 4 * (8 + 1 + 16) + 2 * (8 + 1) + 5);
    assert_int_equal(w.launched, 1 + 5 * 9 + (17 + 17 + 4) + 5);
    assert_int_equal(w.plans, 1 + 5 * 7 + (17 + 5) + 5);
    assert_int_equal(w.not_whole, 0);
}

/* 256 tokens fill bucket {4, 64}. With one more token the step takes the other bucket, as all steps
 * of a loop do except the first. */
static void a_step_that_fills_its_bucket_is_measured_in_the_next(void **state) {
    (void)state;
    static bench b;
    const int32_t full[] = {64, 64, 64, 64}, last[] = {KV_LIMIT - 1, 1};
    const fig_step step = {.size = sizeof step, .rows = 4, .kv_lengths = full};
    const fig_step at_end = {.size = sizeof step, .rows = 2, .kv_lengths = last};
    fig_step named = step;
    fig_bucket_info info = {.size = sizeof info};
    fig_measured measured;
    open_bench(&b, FIG_DEVICE_HOST, 2);
    const fig_engine_options options = options_of(FIG_DEVICE_HOST);
    open_engine(&b, &options);
    assert_int_equal(measure(b.engine, &step, 3, &measured), FIG_OK);
    assert_int_equal(fig_graphs_bucket(b.decode.graphs, measured.bucket, &info), FIG_OK);
    assert_int_equal(info.bucket.kv, KV_LIMIT);
    named.bucket = 1;
    refuse(b.engine, &named, 3, FIG_TOO_LARGE,
           "step: kv_lengths sum to 260 tokens, bucket 1 takes 256");
    assert_int_equal(measure(b.engine, &at_end, 3, &measured), FIG_TOO_LARGE);
    assert_non_null(
        strstr(fig_message(), "holds the step with 1 token more in each row, but not with 2"));
    assert_null(strstr(fig_message(), "measure: bucket 1 "));
    check_usable(&b);
    fig_engine_close(b.engine);
    close_bench(&b);
}

/* Two plans in a ring of two arrive damaged: the steps were launched but fetched nothing. */
static void launches_that_found_no_plan_before_are_not_waited_for(void **state) {
    (void)state;
    fig_gate g;
    fig_measured measured;
    const fig_step step = fig_gate_step(2);
    fig_gate_open(&g, FIG_OPTIONS(fig_engine_options, .slots = 2, .check_plans = 1));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(fig_gate_stage(&g, 3), FIG_OK);
        g.engine->ring.slots[(size_t)i * g.engine->ring.slot_bytes + sizeof(fig_plan_head)] ^= 1;
        assert_int_equal(fig_engine_launch(g.engine), FIG_OK);
        assert_int_equal(fig_engine_wait(g.engine, FIG_HANG_US), FIG_DRIVER);
    }
    const clock_t begin = clock();
    if (measure(g.engine, &step, 3, &measured) != FIG_OK) fail_msg("%s", fig_message());
    assert_true((clock() - begin) / CLOCKS_PER_SEC < 5); /* otherwise each step polls a second */
    fig_gate_close(&g);
}

/* ---- Refusals ------------------------------------------------------------------------------ */

static void steps_that_cannot_be_measured_are_refused(void **state) {
    (void)state;
    fig_gate g;
    const int32_t none[2] = {0, 0}, last[2] = {4, FIG_GATE_KV};
    fig_gate_open(&g, NULL);
    fig_step step = fig_gate_step(2);
    refuse(g.engine, &step, -1, FIG_INVALID, "measure: steps is -1, limits 0 to 1000000");
    refuse(g.engine, &step, 1000001, FIG_INVALID, "measure: steps is 1000001, limits 0 to 1000000");
    step.horizon = 2;
    refuse(g.engine, &step, 1, FIG_INVALID, "measure: horizon is 2, it must be 0 or 1");
    step.horizon = 0;
    step.kv_lengths = none;
    refuse(g.engine, &step, 1, FIG_INVALID, "measure: rows is 2, and none of them has tokens");
    step.kv_lengths = last;
    refuse(g.engine, &step, 1, FIG_TOO_LARGE,
           "measure: kv_lengths[1] is 256, limit 255: rows grow by a token in every step");
    step.kv_lengths = NULL;
    refuse(g.engine, &step, 1, FIG_INVALID, "step: kv_lengths is NULL for 2 rows");
    step = fig_gate_step(-1);
    refuse(g.engine, &step, 1, FIG_INVALID, "step: rows is -1, it must be at least 0");
    step = fig_gate_step(0);
    refuse(g.engine, &step, 1, FIG_INVALID, "measure: rows is 0, and none of them has tokens");
    assert_int_equal(fig_engine_measure(g.engine, NULL, FIG_OPTIONS(fig_measured, .bucket = 0)),
                     FIG_INVALID);
    fig_gate_close(&g);
}

static void measuring_is_refused_while_a_step_is_staged(void **state) {
    (void)state;
    fig_gate g;
    fig_measured measured;
    fig_gate_open(&g, NULL);
    const fig_step step = fig_gate_step(2);
    assert_int_equal(fig_gate_stage(&g, 3), FIG_OK);
    assert_int_equal(measure(g.engine, &step, 1, &measured), FIG_ORDER);
    assert_string_equal(fig_message(),
                        "measure: the engine must be idle, and has 1 staged step to launch");
    assert_int_equal(fig_engine_launch(g.engine), FIG_OK);
    fig_gate_wait(&g);
    assert_int_equal(g.last.rows, 3);
    assert_int_equal(measure(g.engine, &step, 1, &measured), FIG_OK);
    fig_gate_close(&g);
}

/* The call during which a callback fails reports the failure once, and the engine goes on. */
static void a_callback_that_fails_fails_the_measuring(void **state) {
    (void)state;
    fig_gate g;
    fig_measured measured;
    fig_gate_open(&g, NULL);
    const fig_step step = fig_gate_step(2);
    g.answer = 3;
    assert_int_equal(measure(g.engine, &step, 2, &measured), FIG_CALLBACK);
    assert_true(measured.step_ns == 0);
    g.answer = 0;
    fig_gate_run(&g, 2);
    fig_gate_wait(&g);
    fig_gate_check(g.x, g.act, 2);
    fig_gate_close(&g);
}

static void lengths_on_the_device_are_refused(void **state) {
    (void)state;
    static fig_decode decode;
    fig_engine *engine;
    fig_decode_options options = decode_options;
    const fig_engine_options host = options_of(FIG_DEVICE_HOST);
    const fig_step step = {.size = sizeof step, .rows = 2};
    options.reads_lengths = 1;
    fig_decode_open(&decode, &options);
    assert_int_equal(fig_engine_open(&engine, decode.graphs, &host), FIG_OK);
    fig_decode_bind(&decode, engine);
    refuse(engine, &step, 1, FIG_UNSUPPORTED,
           "measure: the program reads lengths on the device, but measuring must change them "
           "in every step");
    fig_engine_close(engine);
    fig_decode_close(&decode);
}

/* ---- Marks --------------------------------------------------------------------------------- */

static void mark_and_pause(const fig_device_api *api) {
    fig_dev *dev;
    fig_dev_stream *stream;
    double ns;
    const fig_engine_options options = options_of(api->kind);
    assert_int_equal(api->open(&dev, &options), FIG_OK);
    assert_int_equal(api->stream_open(dev, &stream), FIG_OK);
    assert_int_equal(api->stream_mark(dev, stream, 0), FIG_OK);
    fig_hang_pause(3000);
    assert_int_equal(api->stream_mark(dev, stream, 1), FIG_OK);
    assert_int_equal(api->stream_between(dev, stream, &ns), FIG_OK);
    assert_true(ns >= 3e6 && ns < 1e9 * FIG_HANG_S);
    fig_hang_pause(3000);
    assert_int_equal(api->stream_mark(dev, stream, 0), FIG_OK); /* mark 0 moves after mark 1 */
    assert_int_equal(api->stream_between(dev, stream, &ns), FIG_OK);
    assert_true(ns <= -3e6 + 1);
    api->stream_close(dev, stream);
    api->close(dev);
}

static void marks_tell_the_time_between_them(void **state) {
    (void)state;
    mark_and_pause(&fig_device_host);
    const fig_fake_cuda *fake = fig_fake_cuda_install();
    mark_and_pause(&fig_device_cuda);
    remove_fake(fake);
}

static void a_mark_waits_for_what_was_launched_before_it(void **state) {
    (void)state;
    fig_gate g;
    double ns;
    fig_gate_open(&g, NULL);
    const fig_device_api *api = g.engine->api;
    g.held = 1;
    assert_int_equal(api->stream_mark(g.engine->dev, g.engine->stream, 0), FIG_OK);
    fig_gate_run(&g, 2);
    fig_gate_leave_later(&g);
    assert_int_equal(api->stream_mark(g.engine->dev, g.engine->stream, 1), FIG_OK);
    assert_int_equal(api->stream_between(g.engine->dev, g.engine->stream, &ns), FIG_OK);
    assert_true(ns >= 20e6);
    fig_gate_close(&g);
}

/* In a caller's capture, an event would become a node of the caller's graph. */
static void no_mark_is_set_in_a_capture(void **state) {
    (void)state;
    fig_dev *dev;
    fig_dev_stream *stream;
    const fig_device_api *api = &fig_device_cuda;
    const fig_fake_cuda *fake = fig_fake_cuda_install();
    fig_engine_options options = options_of(FIG_DEVICE_CUDA);
    fig_cu_stream theirs = fig_fake_cuda_stream_create(&fig_fake_cuda_primary);
    options.stream = (void *const *)&theirs;
    assert_int_equal(api->open(&dev, &options), FIG_OK);
    assert_int_equal(api->stream_open(dev, &stream), FIG_OK);
    assert_true(fig_fake_cuda_capture(theirs));
    assert_int_equal(api->stream_mark(dev, stream, 0), FIG_ORDER);
    fig_fake_cuda_drop(fig_fake_cuda_end(theirs));
    assert_int_equal(api->stream_mark(dev, stream, 0), FIG_OK);
    api->stream_close(dev, stream);
    api->close(dev);
    fig_fake_cuda_stream_destroy(theirs);
    remove_fake(fake);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figures_are_sane_and_the_engine_is_usable_on_both_devices),
        cmocka_unit_test(a_ring_of_any_size_serves),
        cmocka_unit_test(every_device_call_may_fail),
        cmocka_unit_test(every_call_of_the_driver_may_fail),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(every_length_changes_in_every_step_of_the_host),
        cmocka_unit_test(host_samples_begin_when_the_device_is_idle),
        cmocka_unit_test(copies_of_the_nodes_come_one_after_another),
        cmocka_unit_test(a_batch_holds_what_the_head_comment_says),
        cmocka_unit_test(a_step_that_fills_its_bucket_is_measured_in_the_next),
        cmocka_unit_test(launches_that_found_no_plan_before_are_not_waited_for),
        cmocka_unit_test(steps_that_cannot_be_measured_are_refused),
        cmocka_unit_test(measuring_is_refused_while_a_step_is_staged),
        cmocka_unit_test(a_callback_that_fails_fails_the_measuring),
        cmocka_unit_test(lengths_on_the_device_are_refused),
        cmocka_unit_test(marks_tell_the_time_between_them),
        cmocka_unit_test(a_mark_waits_for_what_was_launched_before_it),
        cmocka_unit_test(no_mark_is_set_in_a_capture),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
