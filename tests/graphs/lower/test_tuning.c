/* test_tuning.c: tests that records of variants' costs are sound and sorted, and are used only on
 * the machine where they were measured. In a file they are kept, and no byte of them is trusted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "graphs/graphs.h"
#include "include/figraph_tune.h"
#include "include/figraph_unstable.h"
#include "tests/support/files/capture.h"
#include "tests/support/fault.h"
#include "tests/support/files/forgery.h"
#include "tests/support/files/sample.h"
#include "tests/support/files/sink.h"
#include "tools/figraph/inspect/inspect_print.h"

enum { COUNT = 4 };

static fig_tune_costs costs_of(int32_t variant, int32_t start_ns) {
    return (fig_tune_costs){.size = sizeof(fig_tune_costs),
                            .variant = variant,
                            .start_ns = start_ns,
                            .bytes_per_us = 30000,
                            .piece_ns = 100 + variant,
                            .segment_ns = 500};
}

/* Captures a preset for an h200 and tunes it so that a variant costs more the higher its number
 * is. */
static fig_graphs *tuned_graphs(void) {
    fig_graphs *graphs = fig_capture_preset("llama-3.1-8b", 1, "h200"), *tuned;
    fig_tune_costs costs[COUNT];
    for (int32_t v = 0; v < COUNT; v++)
        costs[v] = costs_of(v, 1000 + 1000 * v);
    if (fig_graphs_tune(&tuned, graphs, costs, COUNT) != FIG_OK) fail_msg("%s", fig_message());
    fig_graphs_destroy(graphs);
    return tuned;
}

static fig_tune_info info_of(const fig_graphs *graphs) {
    fig_tune_info info = {.size = sizeof info};
    assert_int_equal(fig_graphs_tune_info(graphs, &info), FIG_OK);
    return info;
}

static fig_tune_variant variant_of(const fig_graphs *graphs, int32_t variant) {
    fig_tune_variant info = {.size = sizeof info};
    assert_int_equal(fig_graphs_tune_variant(graphs, 0, variant, &info), FIG_OK);
    return info;
}

static fig_graphs *parse(const uint8_t *bytes, size_t count) {
    fig_graphs *graphs;
    if (fig_graphs_parse(&graphs, bytes, count) != FIG_OK) fail_msg("%s", fig_message());
    return graphs;
}

/* ---- Records that are used */

static void records_stand_for_the_machines_costs_and_decide_what_is_offered(void **state) {
    (void)state;
    fig_graphs *plain = fig_capture_preset("llama-3.1-8b", 1, "h200"), *tuned = tuned_graphs();
    assert_int_equal(info_of(plain).used, 0);
    assert_int_equal(info_of(tuned).used, COUNT);
    for (int32_t v = 0; v < COUNT; v++) {
        const fig_tune_variant was = variant_of(plain, v), is = variant_of(tuned, v);
        assert_false(was.is_tuned);
        assert_true(is.is_tuned && is.serves);
        assert_int_equal(is.start_ns, 1000 + 1000 * v);
        assert_int_equal(is.piece_ns, 100 + v);
        assert_int_equal(is.heads, was.heads);
        assert_int_equal(is.tile_tokens, was.tile_tokens);
        assert_string_equal(is.name, was.name);
    }
    /* A variant whose every step costs more than another variant's is never offered. */
    fig_tune_costs costs[COUNT];
    fig_graphs *one;
    for (int32_t v = 0; v < COUNT; v++)
        costs[v] = costs_of(v, v == 2 ? 1 : 90000000);
    assert_int_equal(fig_graphs_tune(&one, tuned, costs, COUNT), FIG_OK);
    for (uint32_t i = 0; i < one->bucket_count; i++)
        assert_int_equal(one->buckets[i].variant, 2);
    assert_int_equal(info_of(one).used, COUNT);
    fig_graphs_destroy(one);
    fig_graphs_destroy(plain);
    fig_graphs_destroy(tuned);
}

static void a_step_is_served_by_what_records_make_the_cheapest(void **state) {
    (void)state;
    static const int32_t lengths[] = {4096, 4096, 4096, 4096};
    const fig_step step = {.size = sizeof step, .rows = 4, .kv_lengths = lengths};
    fig_graphs *plain = fig_capture_preset("llama-3.1-8b", 1, "h200"), *tuned;
    for (int32_t cheapest = 0; cheapest < COUNT; cheapest++) {
        fig_tune_costs costs[COUNT];
        fig_plan_report report = {.size = sizeof report};
        for (int32_t v = 0; v < COUNT; v++)
            costs[v] = costs_of(v, v == cheapest ? 1 : 90000000);
        assert_int_equal(fig_graphs_tune(&tuned, plain, costs, COUNT), FIG_OK);
        assert_int_equal(fig_graphs_plan(tuned, &step, &report), FIG_OK);
        assert_int_equal(report.heads, variant_of(plain, cheapest).heads);
        fig_graphs_destroy(tuned);
    }
    fig_graphs_destroy(plain);
}

static void records_of_other_machines_or_libraries_are_kept_but_not_used(void **state) {
    (void)state;
    static const struct {
        const char *what;
        int32_t foreign, stale;
    } cases[] = {{"name", COUNT, 0},    {"capability", COUNT, 0}, {"SMs", COUNT, 0},
                 {"version", 0, COUNT}, {"heads", 0, COUNT},      {"tile", 0, COUNT}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fig_graphs *graphs = tuned_graphs(), *plain = fig_capture_preset("llama-3.1-8b", 1, "h200");
        uint8_t *bytes, *again;
        size_t count, again_count;
        for (uint32_t r = 0; r < graphs->target.tuning.count; r++) {
            fig_tuned *record = &graphs->target.tuning.records[r];
            if (i == 0) record->machine[3] = '1';
            if (i == 1) record->compute_capability = 91;
            if (i == 2) record->sm_count = 131;
            if (i == 3) record->maker++;
            if (i == 4) record->variant.heads = 16;
            if (i == 5) record->variant.tile_tokens *= 2;
        }
        assert_int_equal(fig_graphs_write(graphs, &bytes, &count), FIG_OK);
        fig_graphs *loaded = parse(bytes, count);
        const fig_tune_info info = info_of(loaded);
        if (info.foreign != cases[i].foreign || info.stale != cases[i].stale || info.used != 0)
            fail_msg("%s: %d used, %d foreign, %d stale", cases[i].what, (int)info.used,
                     (int)info.foreign, (int)info.stale);
        for (int32_t v = 0; v < COUNT; v++)
            assert_int_equal(variant_of(loaded, v).start_ns, variant_of(plain, v).start_ns);
        assert_int_equal(fig_graphs_write(loaded, &again, &again_count), FIG_OK);
        assert_int_equal(again_count, count);
        assert_memory_equal(again, bytes, count);
        free(again);
        free(bytes);
        fig_graphs_destroy(loaded);
        fig_graphs_destroy(plain);
        fig_graphs_destroy(graphs);
    }
}

/* Tuning again replaces this machine's own records and keeps those of other machines. */
static void tuning_anew_replaces_the_machines_own_records(void **state) {
    (void)state;
    fig_graphs *graphs = tuned_graphs(), *again;
    const fig_tune_costs costs = costs_of(1, 7);
    for (int i = 0; i < 2; i++)
        graphs->target.tuning.records[i].sm_count = 78;
    fig_tuning_sort(&graphs->target.tuning);
    assert_int_equal(fig_graphs_tune(&again, graphs, &costs, 1), FIG_OK);
    assert_int_equal(info_of(again).used, 1);
    assert_int_equal(info_of(again).foreign, 2);
    assert_int_equal(variant_of(again, 1).start_ns, 7);
    assert_false(variant_of(again, 0).is_tuned);
    fig_graphs_destroy(graphs);
    fig_graphs_destroy(again);
    graphs = fig_capture_preset("tutorial", 1, "host");
    assert_int_equal(fig_graphs_tune(&again, graphs, NULL, 0), FIG_OK);
    assert_int_equal(info_of(again).used, 0);
    assert_memory_equal(again->content_id, graphs->content_id, 32);
    fig_graphs_destroy(graphs);
    fig_graphs_destroy(again);
}

static void inspection_tells_what_is_used_and_what_is_not(void **state) {
    (void)state;
    fig_graphs *graphs = tuned_graphs();
    fig_sink text = {"", 0}, json = {"", 0};
    const fig_print_options options = {.format = FIG_PRINT_JSON};
    const fig_print_options wide = {.columns = 200};
    graphs->target.tuning.records[0].sm_count = 78;
    graphs->target.tuning.records[2].maker--;
    assert_int_equal(fig_inspect_print(graphs, &wide, fig_sink_take, &text), FIG_OK);
    assert_non_null(
        strstr(text.text, "\n  tuned       costs of variants measured for this file: 2;"));
    assert_non_null(strstr(text.text, "of another machine, not used: 1"));
    assert_non_null(strstr(text.text, "of another version, not used: 1"));
    assert_int_equal(fig_inspect_print(graphs, &options, fig_sink_take, &json), FIG_OK);
    const char *tuning = strstr(json.text, "\"tuning\": {");
    assert_non_null(tuning);
    assert_non_null(strstr(tuning, "\"used\": 2,"));
    assert_non_null(strstr(tuning, "\"foreign\": 1,"));
    assert_non_null(strstr(tuning, "\"stale\": 1\n"));
    fig_graphs_destroy(graphs);
    graphs = fig_capture_preset("llama-3.1-8b", 1, "h200");
    text.count = 0;
    assert_int_equal(fig_inspect_print(graphs, NULL, fig_sink_take, &text), FIG_OK);
    assert_null(strstr(text.text, "tuned"));
    fig_graphs_destroy(graphs);
}

/* ---- Refusals */

static void invalid_costs_are_refused(void **state) {
    (void)state;
    fig_graphs *graphs = fig_capture_preset("tutorial", 1, "host"), *tuned;
    fig_tune_costs costs[2] = {costs_of(0, 1), costs_of(1, 1)};
    costs[1].variant = 0;
    FIG_SAMPLE_REFUSES(fig_graphs_tune(&tuned, graphs, costs, 2), FIG_INVALID,
                       "record 1 does not come after the one before");
    costs[1].variant = 2;
    FIG_SAMPLE_REFUSES(fig_graphs_tune(&tuned, graphs, costs, 2), FIG_INVALID, "variant is 2");
    costs[1] = costs_of(1, 1);
    costs[1].split_class = 1;
    FIG_SAMPLE_REFUSES(fig_graphs_tune(&tuned, graphs, costs, 2), FIG_INVALID, "split_class is 1");
    costs[1] = costs_of(1, -1);
    FIG_SAMPLE_REFUSES(fig_graphs_tune(&tuned, graphs, costs, 2), FIG_INVALID, "start_ns is -1");
    costs[1] = costs_of(1, 1);
    costs[1].bytes_per_us = 0;
    FIG_SAMPLE_REFUSES(fig_graphs_tune(&tuned, graphs, costs, 2), FIG_INVALID, "bytes_per_us is 0");
    costs[0].size = 0;
    FIG_SAMPLE_REFUSES(fig_graphs_tune(&tuned, graphs, costs, 2), FIG_INVALID, "size is 0");
    FIG_SAMPLE_REFUSES(fig_graphs_tune(&tuned, graphs, NULL, 2), FIG_INVALID, "count is 2");
    FIG_SAMPLE_REFUSES(fig_graphs_tune(&tuned, graphs, costs, -1), FIG_INVALID, "count is -1");
    assert_null(tuned);
    fig_graphs_destroy(graphs);
    graphs = fig_capture_breadth();
    costs[0] = costs_of(0, 1);
    FIG_SAMPLE_REFUSES(fig_graphs_tune(&tuned, graphs, costs, 1), FIG_INVALID, "deterministic");
    fig_graphs_destroy(graphs);
}

static void work_is_of_steps_within_the_spec(void **state) {
    (void)state;
    static const int32_t lengths[] = {512, 0, 600};
    fig_graphs *graphs = fig_capture_preset("tutorial", 1, "host");
    fig_tune_costs of = costs_of(0, 1);
    fig_tune_work work = {.size = sizeof work};
    fig_step step = {.size = sizeof step, .rows = 1, .kv_lengths = lengths};
    assert_int_equal(fig_graphs_tune_work(graphs, &of, &step, &work), FIG_OK);
    /* There are 8 workers and 4 heads with 8 tiles each. A tile has 64 tokens of 256 bytes of K and
     * V. */
    assert_int_equal(work.bytes, 4 * 64 * 256);
    assert_int_equal(work.pieces, 2);
    assert_int_equal(work.segments, 1);
    step.rows = 2;
    FIG_SAMPLE_REFUSES(fig_graphs_tune_work(graphs, &of, &step, &work), FIG_TOO_LARGE,
                       "row 1 has 0 tokens");
    step.rows = 9;
    FIG_SAMPLE_REFUSES(fig_graphs_tune_work(graphs, &of, &step, &work), FIG_TOO_LARGE,
                       "rows is 9, limits 1 to 8");
    step = (fig_step){.size = sizeof step, .rows = 1, .kv_lengths = &lengths[2]};
    FIG_SAMPLE_REFUSES(fig_graphs_tune_work(graphs, &of, &step, &work), FIG_TOO_LARGE,
                       "row 0 has 600 tokens, limits 1 to 512");
    step.kv_lengths = NULL;
    FIG_SAMPLE_REFUSES(fig_graphs_tune_work(graphs, &of, &step, &work), FIG_INVALID, "kv_lengths");
    of.variant = 9;
    FIG_SAMPLE_REFUSES(fig_graphs_tune_work(graphs, &of, &step, &work), FIG_INVALID,
                       "variant is 9, limits 0 to 1");
    fig_tune_class info = {.size = sizeof info};
    assert_int_equal(fig_graphs_tune_class(graphs, 0, &info), FIG_OK);
    assert_int_equal(info.q_heads, 16);
    assert_int_equal(info.kv_heads, 4);
    assert_int_equal(info.value_bytes, 2);
    FIG_SAMPLE_REFUSES(fig_graphs_tune_class(graphs, 1, &info), FIG_INVALID,
                       "split_class is 1, the graphs have 1");
    fig_graphs_destroy(graphs);
}

static void a_single_variant_is_lowered_on_request(void **state) {
    (void)state;
    const fig_spec spec = fig_sample_spec();
    fig_program *program = fig_sample_step(&spec);
    fig_graphs *graphs;
    for (int32_t v = 0; v < 2; v++) {
        assert_int_equal(fig_graphs_lower_variant(&graphs, program, NULL, v), FIG_OK);
        assert_int_equal(graphs->bucket_count, 8);
        for (uint32_t i = 0; i < graphs->bucket_count; i++)
            assert_int_equal(graphs->buckets[i].variant, v);
        fig_graphs_destroy(graphs);
    }
    FIG_SAMPLE_REFUSES(fig_graphs_lower_variant(&graphs, program, NULL, 2), FIG_INVALID,
                       "variant is 2");
    FIG_SAMPLE_REFUSES(fig_graphs_lower_variant(&graphs, program, NULL, -1), FIG_INVALID,
                       "variant is -1");
    assert_null(graphs);
    fig_program_destroy(program);
}

/* ---- A hostile file */

typedef struct forgery {
    const char *what;
    size_t at, width;
    uint64_t value;
    fig_status status;
    const char *said;
} forgery;
#define RECORD(item, field)                                                                        \
    (item) * FIG_TUNED_BYTES_LEAST + offsetof(fig_tuned, field), sizeof(((fig_tuned *)0)->field)

static const forgery forgeries[] = {
    {"name", RECORD(0, machine), 0x3b, FIG_FORMAT, "section VARI: traits: name"},
    {"name left over", offsetof(fig_tuned, machine) + 9, 1, 'x', FIG_FORMAT,
     "machine is not followed by zeros"},
    {"capability", RECORD(1, compute_capability), 5000, FIG_FORMAT, "compute_capability is 5000"},
    {"SMs", RECORD(1, sm_count), 0, FIG_FORMAT, "sm_count is 0"},
    {"class", RECORD(2, split_class), 4, FIG_FORMAT, "split_class is 4, limits 0 to 3"},
    {"class below", RECORD(2, split_class), UINT64_MAX, FIG_FORMAT, "split_class is -1"},
    {"number", RECORD(3, number), 20, FIG_FORMAT, "variant is 20, limits 0 to 19"},
    {"order", RECORD(0, number), 1, FIG_FORMAT, "record 1 does not come after"},
    {"heads", RECORD(0, variant.heads), 0, FIG_FORMAT, "heads is 0"},
    {"tile", RECORD(0, variant.tile_tokens), 1 << 20, FIG_FORMAT, "tile_tokens is 1048576"},
    {"rate", RECORD(0, variant.bytes_per_us), 0, FIG_FORMAT, "bytes_per_us is 0"},
    {"cost", RECORD(0, variant.piece_ns), INT32_MAX, FIG_FORMAT, "piece_ns is 2147483647"},
    {"variant's name", RECORD(0, variant.name), 0x0a, FIG_FORMAT, "its name is not a word"},
    {"no class of these", RECORD(3, split_class), 3, FIG_OK, ""},
    {"no number of these", RECORD(3, number), 9, FIG_OK, ""},
    {"another cost", RECORD(0, variant.piece_ns), 12345, FIG_OK, ""},
};

static void a_record_that_says_something_else_is_refused(void **state) {
    (void)state;
    fig_graphs *made = tuned_graphs(), *graphs;
    uint8_t *sound;
    size_t sound_count;
    assert_int_equal(fig_graphs_write(made, &sound, &sound_count), FIG_OK);
    for (size_t i = 0; i < sizeof forgeries / sizeof forgeries[0]; i++) {
        const forgery *f = &forgeries[i];
        fig_forgery image;
        size_t count;
        fig_forgery_open(&image, sound, sound_count);
        /* VARI is the last section before the library's records of its kernels, if there are
         * any. */
        const uint32_t last = image.count - 1 - (made->archive.image_count > 0);
        assert_memory_equal(image.sections[last].entry.name, "VARI", 4);
        assert_int_equal(image.sections[last].raw_bytes, COUNT * FIG_TUNED_BYTES_LEAST);
        memcpy(image.sections[last].raw + f->at, &f->value, f->width < 8 ? f->width : 8);
        uint8_t *bytes = fig_forgery_write(&image, 1, &count);
        const fig_status status = fig_graphs_parse(&graphs, bytes, count);
        if (status != f->status)
            fail_msg("%s: %s (%s)", f->what, fig_status_name(status), fig_message());
        if (status != FIG_OK && strstr(fig_message(), f->said) == NULL)
            fail_msg("%s: \"%s\"", f->what, fig_message());
        fig_graphs_destroy(graphs);
        free(bytes);
        fig_forgery_close(&image);
    }
    free(sound);
    fig_graphs_destroy(made);
}

/* Returns section VARI of the written graphs. */
static fig_forgery_section *records_of(fig_forgery *image, const uint8_t *bytes, size_t count) {
    uint32_t index = 0;
    fig_forgery_open(image, bytes, count);
    while (memcmp(image->sections[index].entry.name, "VARI", 4) != 0)
        index++;
    return &image->sections[index];
}

static void expect_refused(const fig_forgery *image, const char *said) {
    fig_graphs *graphs;
    size_t count;
    uint8_t *bytes = fig_forgery_write(image, 1, &count);
    FIG_SAMPLE_REFUSES(fig_graphs_parse(&graphs, bytes, count), FIG_FORMAT, said);
    free(bytes);
}

/* A record without these figures has the same bytes as before the figures existed. */
static void a_record_stores_the_cost_of_a_segment_if_it_has_one(void **state) {
    (void)state;
    fig_graphs *made = tuned_graphs(), *grown, *again;
    fig_tune_costs costs[COUNT];
    const fig_tune_variant of_table = variant_of(made, 2);
    fig_forgery image;
    uint8_t *bytes;
    size_t count;
    assert_true(of_table.is_tuned && of_table.once > 0 && of_table.tile_ns > 0);
    assert_int_equal(fig_graphs_write(made, &bytes, &count), FIG_OK);
    assert_int_equal(records_of(&image, bytes, count)->entry.item_bytes, 80);
    free(bytes);
    fig_forgery_close(&image);
    for (int32_t v = 0; v < COUNT; v++) {
        costs[v] = costs_of(v, 1000);
        if (v != 2) continue;
        costs[v].once = 57;
        costs[v].tile_ns = 640;
    }
    assert_int_equal(fig_graphs_tune(&grown, made, costs, COUNT), FIG_OK);
    assert_int_equal(fig_graphs_write(grown, &bytes, &count), FIG_OK);
    again = parse(bytes, count);
    assert_int_equal(variant_of(again, 2).once, 57);
    assert_int_equal(variant_of(again, 2).tile_ns, 640);
    assert_int_equal(variant_of(again, 0).once, variant_of(made, 0).once);
    for (uint32_t i = 0; i < again->bucket_count; i++)
        if (again->buckets[i].variant == 2 && !again->buckets[i].is_short[0])
            assert_int_equal(again->buckets[i].plan.once[0], 57);
    fig_forgery_section *records = records_of(&image, bytes, count);
    assert_int_equal(records->entry.item_bytes, sizeof(fig_tuned));
    fig_tuned *record = (fig_tuned *)(void *)records->raw;
    record[2].variant.once = FIG_UNITS_ONCE_LIMIT + 1;
    expect_refused(&image, "variant: once is 16385, limits 0 to 16384");
    record[2].variant.once = record[2].variant.tile_ns = 0;
    expect_refused(&image, "item_bytes is 88, no record needs more than 80");
    free(bytes);
    fig_forgery_close(&image);
    fig_graphs_destroy(again);
    fig_graphs_destroy(grown);
    fig_graphs_destroy(made);
}

static void each_call_that_fails_is_reported(void **state) {
    (void)state;
    fig_graphs *graphs = tuned_graphs();
    const fig_tune_costs costs = costs_of(1, 7);
    fig_status status = FIG_NOMEM;
    for (int call = 1; status != FIG_OK; call++) {
        fig_graphs *again;
        assert_true(call < 1000);
        fig_fault_arm(call);
        status = fig_graphs_tune(&again, graphs, &costs, 1);
        fig_fault_disarm();
        if (status != FIG_OK) assert_int_equal(status, FIG_NOMEM);
        assert_true((again != NULL) == (status == FIG_OK));
        fig_graphs_destroy(again);
    }
    fig_graphs_destroy(graphs);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_stand_for_the_machines_costs_and_decide_what_is_offered),
        cmocka_unit_test(a_step_is_served_by_what_records_make_the_cheapest),
        cmocka_unit_test(records_of_other_machines_or_libraries_are_kept_but_not_used),
        cmocka_unit_test(tuning_anew_replaces_the_machines_own_records),
        cmocka_unit_test(inspection_tells_what_is_used_and_what_is_not),
        cmocka_unit_test(invalid_costs_are_refused),
        cmocka_unit_test(work_is_of_steps_within_the_spec),
        cmocka_unit_test(a_single_variant_is_lowered_on_request),
        cmocka_unit_test(a_record_that_says_something_else_is_refused),
        cmocka_unit_test(a_record_stores_the_cost_of_a_segment_if_it_has_one),
        cmocka_unit_test(each_call_that_fails_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
