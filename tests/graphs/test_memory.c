/* test_memory.c: tests that the memory reported for graphs is the memory that an engine takes.
 *
 * An engine is opened for comparison. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "graphs/graphs.h"
#include "tests/support/files/capture.h"
#include "tests/support/fault.h"
#include "tests/support/files/sample.h"

static fig_memory_info memory_of(const fig_graphs *graphs, int32_t slots) {
    fig_memory_info info = {.size = sizeof info};
    if (fig_graphs_memory(graphs, slots, &info) != FIG_OK) fail_msg("%s", fig_message());
    return info;
}

/* Pinned memory holds 64 bytes of words, the slots, and 256 KiB for pages. The device holds the
 * plan, 64 bytes for its progress, and a slot for the prefetched plan. */
static void an_engine_takes_the_reported_memory(void **state) {
    (void)state;
    static const int32_t slots[] = {0, 2, 7, 64};
    fig_graphs *graphs[] = {fig_capture_mixed(), fig_capture_breadth(),
                            fig_capture_preset("llama-3.1-8b", 2, "h200")};
    for (int g = 0; g < 3; g++) {
        for (int i = 0; i < 4; i++) {
            const fig_memory_info said = memory_of(graphs[g], slots[i]);
            fig_engine_stats stats = {.size = sizeof stats};
            fig_engine *engine;
            if (fig_engine_open(&engine, graphs[g],
                                FIG_OPTIONS(fig_engine_options, .device = FIG_DEVICE_HOST,
                                            .slots = slots[i])) != FIG_OK)
                fail_msg("%s", fig_message());
            fig_engine_read_stats(engine, &stats);
            assert_int_equal(said.workspace_bytes, stats.workspace_bytes);
            assert_int_equal(said.pinned_bytes, stats.pinned_bytes);
            const uint64_t slot_count = slots[i] != 0 ? (uint64_t)slots[i] : 4;
            const uint64_t slot = (stats.pinned_bytes - 64 - (256 << 10)) / slot_count;
            assert_int_equal(said.plan_bytes, graphs[g]->plan_bytes + 64 + slot);
            assert_true(slot >= graphs[g]->plan_bytes && slot % 64 == 0);
            fig_engine_close(engine);
        }
        fig_graphs_destroy(graphs[g]);
    }
}

static fig_graphs *lower(fig_program *program) {
    static const fig_bucket bucket[] = {{6, 200}};
    fig_graphs *graphs;
    if (fig_graphs_lower(&graphs, program,
                         FIG_OPTIONS(fig_lower_options, .buckets = bucket, .bucket_count = 1,
                                     .deterministic = 1)) != FIG_OK)
        fail_msg("%s", fig_message());
    fig_program_destroy(program);
    return graphs;
}

/* Two layers of 2 kv heads of 64, in f16 or fp8. In breadth, a third node reads one of the caches,
 * which adds nothing. */
static void a_token_is_counted_once_in_each_cache(void **state) {
    (void)state;
    const fig_spec spec = fig_sample_spec();
    fig_graphs *plain = lower(fig_sample_step(&spec)), *breadth = lower(fig_sample_breadth());
    assert_int_equal(memory_of(plain, 0).token_bytes, 2 * 2 * 2 * 64 * 2);
    assert_int_equal(memory_of(breadth, 0).token_bytes, 2 * 2 * 2 * 64 * 1);
    fig_graphs_destroy(plain);
    fig_graphs_destroy(breadth);
}

/* The engine allocates the page table unless the caller binds it. The caller allocates the
 * pages. */
static void the_state_s_size_is_known_before_anything_is_bound(void **state) {
    (void)state;
    const fig_spec spec = fig_sample_spec();
    fig_graphs *graphs = lower(fig_sample_step(&spec)), *mixed = fig_capture_mixed();
    assert_int_equal(memory_of(graphs, 0).state_bytes, 9 * 13 * 4);
    assert_int_equal(memory_of(mixed, 0).state_bytes, 4 * 8 * 4);
    fig_graphs_destroy(graphs);
    fig_graphs_destroy(mixed);
}

/* The memory of 4, 40 and 400 kernels was measured. The estimate must be within a tenth of it. */
static void execs_are_estimated_from_their_launches(void **state) {
    (void)state;
    static const struct {
        int32_t kernels;
        double kib;
    } measured[] = {{4, 82}, {40, 205}, {400, 1311}};
    for (int i = 0; i < 3; i++) {
        const fig_spec spec = fig_sample_spec();
        fig_program *program = fig_sample_program(&spec);
        for (int32_t n = 1; n < measured[i].kernels; n++)
            fig_call(program, FIG_OPTIONS(fig_call_op, .call = "c"));
        if (fig_program_finish(program) != FIG_OK) fail_msg("%s", fig_message());
        fig_graphs *graphs = lower(program);
        const double kib = (double)memory_of(graphs, 0).exec_bytes / 1024;
        if (kib < measured[i].kib * 0.9 || kib > measured[i].kib * 1.1)
            fail_msg("%d kernels: %g KiB, measured %g", measured[i].kernels, kib, measured[i].kib);
        fig_graphs_destroy(graphs);
    }
}

static void slots_and_memory_have_limits(void **state) {
    (void)state;
    fig_graphs *graphs = fig_capture_mixed();
    fig_memory_info info = {.size = sizeof info, .token_bytes = 9};
    FIG_SAMPLE_REFUSES(fig_graphs_memory(graphs, 1, &info), FIG_INVALID,
                       "slots is 1, limits 2 to 64");
    assert_int_equal(info.token_bytes, 0);
    FIG_SAMPLE_REFUSES(fig_graphs_memory(graphs, 65, &info), FIG_INVALID, "slots is 65");
    FIG_SAMPLE_REFUSES(fig_graphs_memory(graphs, -1, &info), FIG_INVALID, "slots is -1");
    info.size = 0;
    FIG_SAMPLE_REFUSES(fig_graphs_memory(graphs, 2, &info), FIG_INVALID, "size is 0");
    info.size = sizeof info;
    fig_fault_arm(1);
    const fig_status status = fig_graphs_memory(graphs, 2, &info);
    assert_int_equal(fig_fault_disarm(), 1);
    FIG_SAMPLE_REFUSES(status, FIG_NOMEM, "memory: ");
    fig_graphs_destroy(graphs);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_engine_takes_the_reported_memory),
        cmocka_unit_test(a_token_is_counted_once_in_each_cache),
        cmocka_unit_test(the_state_s_size_is_known_before_anything_is_bound),
        cmocka_unit_test(execs_are_estimated_from_their_launches),
        cmocka_unit_test(slots_and_memory_have_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
