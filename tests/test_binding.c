/* test_binding.c: what may stand behind a tensor, and how bytes get there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/decode.h"
#include "tests/support/gate.h"

static void check_message(const char *sentence) {
    assert_string_equal(fig_message(), sentence);
}

static const fig_decode_options small_decode = {
    .dtype = FIG_F32, .layers = 1, .page_size = 16, .batch_limit = 4, .kv_limit = 128};

/* ---- Bindings ------------------------------------------------------------------------------ */

static void an_unbound_tensor_is_named_before_anything_is_staged(void **state) {
    (void)state;
    fig_decode decode;
    fig_engine *engine;
    static const int32_t one[] = {1};
    const fig_step step = {.size = sizeof step, .rows = 1, .kv_lengths = one};
    fig_random random = fig_random_seed(1);
    fig_decode_open(&decode, &small_decode);
    assert_int_equal(fig_engine_open(&engine, decode.graphs, NULL), FIG_OK);
    for (int kind = 0; kind < FIG_DECODE_KIND_COUNT; kind++) {
        char sentence[64];
        const fig_binding binding = fig_decode_binding(&decode, 0, (fig_decode_kind)kind);
        fig_span span = {.size = sizeof span, .name = binding.name, .bytes = 1};
        snprintf(sentence, sizeof sentence, "tensor %s is not bound", binding.name);
        assert_int_equal(fig_engine_step(engine, &step), FIG_UNBOUND);
        check_message(sentence);
        assert_int_equal(fig_engine_prepare(engine), FIG_UNBOUND);
        assert_int_equal(fig_engine_read(engine, &span, sentence), FIG_UNBOUND);
        assert_int_equal(fig_engine_bind(engine, &binding), FIG_OK);
    }
    assert_int_equal(fig_gate_progress(engine).staged, 0);
    fig_decode_bind(&decode, engine);
    fig_decode_fill(&decode, &random);
    assert_int_equal(fig_engine_step(engine, &step), FIG_OK);
    assert_int_equal(fig_engine_wait(engine, FIG_GATE_BOUND_US), FIG_OK);
    fig_decode_check(&decode, &step);
    fig_engine_close(engine);
    fig_decode_close(&decode);
}

static void refuse(fig_engine *engine, const fig_binding *binding, const char *sentence) {
    assert_int_equal(fig_engine_bind(engine, binding), FIG_INVALID);
    check_message(sentence);
}

static void a_wrong_binding_leaves_the_one_before_in_force(void **state) {
    (void)state;
    fig_decode decode;
    fig_engine *engine;
    static _Alignas(16) float other[4 * 4 * 64 + 4];
    static const int32_t ones[] = {1, 1, 1, 1};
    const fig_step step = {.size = sizeof step, .rows = 4, .kv_lengths = ones};
    fig_random random = fig_random_seed(2);
    fig_decode_open(&decode, &small_decode);
    assert_int_equal(fig_engine_open(&engine, decode.graphs, NULL), FIG_OK);
    fig_decode_bind(&decode, engine);
    fig_binding wrong = {.size = sizeof wrong, .name = "q.0", .bytes = 4 * 4 * 64 * 4};
    wrong.address = (uint8_t *)other + 4;
    assert_int_equal(fig_engine_bind(engine, &wrong), FIG_INVALID);
    assert_non_null(strstr(fig_message(), "tensor q.0: address 0x"));
    assert_non_null(strstr(fig_message(), "it must be a multiple of 16"));
    wrong.address = other;
    wrong.bytes = 4095;
    refuse(engine, &wrong, "tensor q.0: bytes is 4095, it must be 4096 or more");
    wrong.bytes = sizeof other;
    memcpy(wrong.strides, (int64_t[4]){256, 64, 2, 0}, sizeof wrong.strides);
    refuse(engine, &wrong, "tensor q.0: strides[2] is 2, the last must be 1");
    memcpy(wrong.strides, (int64_t[4]){256, 0, 1, 0}, sizeof wrong.strides);
    refuse(engine, &wrong, "tensor q.0: strides[1] is 0, it must be positive");
    memcpy(wrong.strides, (int64_t[4]){-256, 64, 1, 0}, sizeof wrong.strides);
    refuse(engine, &wrong, "tensor q.0: strides[0] is -256, it must be positive");
    memcpy(wrong.strides, (int64_t[4]){255, 64, 1, 0}, sizeof wrong.strides);
    refuse(engine, &wrong, "tensor q.0: strides[0] is 255, it must step over 256 elements");
    memcpy(wrong.strides, (int64_t[4]){256, 63, 1, 0}, sizeof wrong.strides);
    refuse(engine, &wrong, "tensor q.0: strides[1] is 63, it must step over 64 elements");
    memcpy(wrong.strides, (int64_t[4]){INT64_MAX, 64, 1, 0}, sizeof wrong.strides);
    assert_int_equal(fig_engine_bind(engine, &wrong), FIG_INVALID);
    memcpy(wrong.strides, (int64_t[4]){258, 64, 1, 0}, sizeof wrong.strides);
    wrong.bytes = (3 * 258 + 256) * 4 - 1;
    refuse(engine, &wrong, "tensor q.0: bytes is 4119, it must be 4120 or more");
    wrong.name = "q.1";
    refuse(engine, &wrong, "the program has no tensor q.1");
    wrong.name = NULL;
    refuse(engine, &wrong, "the program has no tensor NULL");
    fig_binding cache = fig_decode_binding(&decode, 0, FIG_DECODE_K_CACHE);
    cache.bytes = 16 * 2 * 64 * 4 - 1;
    refuse(engine, &cache, "tensor k_cache.0: bytes is 8191, which holds 0 of 1 pages");
    cache.address = NULL;
    cache.bytes = 0;
    refuse(engine, &cache, "tensor k_cache.0: bytes is 0, which holds 0 of 1 pages");
    memcpy(cache.strides, (int64_t[4]){2047, 128, 64, 1}, sizeof cache.strides);
    refuse(engine, &cache, "tensor k_cache.0: strides[0] is 2047, it must step over 2048 elements");
    fig_decode_fill(&decode, &random);
    assert_int_equal(fig_engine_step(engine, &step), FIG_OK);
    assert_int_equal(fig_engine_wait(engine, FIG_GATE_BOUND_US), FIG_OK);
    fig_decode_check(&decode, &step);
    fig_engine_close(engine);
    fig_decode_close(&decode);
}

static void a_dense_cache_needs_a_page_for_each_sequence(void **state) {
    (void)state;
    fig_decode decode;
    fig_engine *engine;
    fig_decode_options options = small_decode;
    options.page_size = 0;
    fig_decode_open(&decode, &options);
    assert_int_equal(fig_engine_open(&engine, decode.graphs, NULL), FIG_OK);
    fig_binding cache = fig_decode_binding(&decode, 0, FIG_DECODE_V_CACHE);
    cache.bytes -= 4;
    refuse(engine, &cache, "tensor v_cache.0: bytes is 458748, which holds 6 of 7 pages");
    cache.bytes += 4;
    assert_int_equal(fig_engine_bind(engine, &cache), FIG_OK);
    fig_engine_close(engine);
    fig_decode_close(&decode);
}

static void a_temp_is_nobodys_to_bind_or_read(void **state) {
    (void)state;
    fig_gate g;
    float buffer[8];
    fig_gate_open(&g, NULL);
    assert_int_equal(fig_gate_bind(g.engine, "up", g.act, sizeof g.act), FIG_INVALID);
    check_message("tensor up: FIG_TEMP, its contents are a step's own");
    const fig_span span = {.size = sizeof span, .name = "up", .bytes = sizeof buffer};
    assert_int_equal(fig_engine_read(g.engine, &span, buffer), FIG_INVALID);
    assert_int_equal(fig_engine_write(g.engine, &span, buffer), FIG_INVALID);
    fig_gate_close(&g);
}

static void an_output_that_lies_on_another_tensor_is_refused(void **state) {
    (void)state;
    fig_decode decode;
    fig_engine *engine;
    fig_decode_open(&decode, &small_decode);
    assert_int_equal(fig_engine_open(&engine, decode.graphs, NULL), FIG_OK);
    fig_decode_bind(&decode, engine);
    assert_int_equal(fig_engine_prepare(engine), FIG_OK);
    fig_binding v = fig_decode_binding(&decode, 0, FIG_DECODE_V);
    fig_binding act = fig_decode_binding(&decode, 0, FIG_DECODE_ACT);
    fig_binding gate_up = fig_decode_binding(&decode, 0, FIG_DECODE_GATE_UP);
    void *const own_act = act.address, *const own_v = v.address;
    act.address = (uint8_t *)gate_up.address + gate_up.bytes - 16;
    assert_int_equal(fig_engine_bind(engine, &act), FIG_OK);
    assert_int_equal(fig_engine_prepare(engine), FIG_INVALID);
    check_message("tensor act.0: lies on tensor gate_up.0, and a node writes the first");
    act.address = own_act;
    assert_int_equal(fig_engine_bind(engine, &act), FIG_OK);
    v.address = decode.tensors[0][FIG_DECODE_Q].address + 16; /* what is read lies inside */
    assert_int_equal(fig_engine_bind(engine, &v), FIG_OK);
    assert_int_equal(fig_engine_prepare(engine), FIG_INVALID);
    check_message("tensor v.0: lies on tensor q.0, and a node writes the second");
    v.address = own_v;
    assert_int_equal(fig_engine_bind(engine, &v), FIG_OK);
    assert_int_equal(fig_engine_prepare(engine), FIG_OK);
    gate_up.address = own_v; /* both are only read */
    assert_int_equal(fig_engine_bind(engine, &gate_up), FIG_OK);
    assert_int_equal(fig_engine_prepare(engine), FIG_OK);
    fig_engine_close(engine);
    fig_decode_close(&decode);
}

static void memory_of_the_engines_is_zeroed_and_counted(void **state) {
    (void)state;
    fig_gate g;
    uint8_t bytes[64];
    fig_gate_open(&g, NULL);
    assert_int_equal(fig_gate_stats(g.engine).owned_bytes, 0);
    assert_int_equal(fig_gate_bind(g.engine, "x", NULL, 4096), FIG_OK);
    assert_int_equal(fig_gate_stats(g.engine).owned_bytes, 4096);
    assert_int_equal(fig_gate_bind(g.engine, "x", NULL, 0), FIG_OK); /* the tensor's own size */
    assert_int_equal(fig_gate_stats(g.engine).owned_bytes, sizeof g.x);
    memset(bytes, 0xee, sizeof bytes);
    const fig_span span = {.size = sizeof span, .name = "x", .bytes = sizeof bytes};
    assert_int_equal(fig_engine_read(g.engine, &span, bytes), FIG_OK);
    for (size_t i = 0; i < sizeof bytes; i++)
        assert_int_equal(bytes[i], 0);
    assert_int_equal(fig_engine_write(g.engine, &span, g.x), FIG_OK);
    fig_gate_run(&g, 4);
    fig_gate_wait(&g);
    fig_gate_check(g.x, g.act, 4);
    fig_engine_stats stats = fig_gate_stats(g.engine);
    assert_true(stats.workspace_bytes >= FIG_GATE_ROWS * 2 * FIG_GATE_WIDTH * sizeof(float));
    assert_true(stats.pinned_bytes > 0 && stats.uploaded_bytes > 0);
    fig_gate_close(&g);
}

static void a_tensor_that_no_node_names_moves_no_launch(void **state) {
    (void)state;
    fig_gate g;
    float number = 1;
    fig_gate_open(&g, NULL);
    assert_int_equal(fig_gate_stage(&g, 4), FIG_OK);
    const fig_span span = {.size = sizeof span, .name = "spare", .bytes = sizeof number};
    assert_int_equal(fig_engine_read(g.engine, &span, &number), FIG_OK);
    assert_true(number == 0);
    assert_int_equal(fig_gate_bind(g.engine, "spare", NULL, 0), FIG_OK);
    assert_int_equal(fig_gate_stage(&g, 4), FIG_OK);
    assert_int_equal(fig_gate_stats(g.engine).prepares, 1);
    fig_gate_close(&g);
}

/* ---- Bytes in and out ---------------------------------------------------------------------- */

static void a_span_outside_its_tensor_is_refused(void **state) {
    (void)state;
    fig_gate g;
    uint8_t bytes[80] = {0};
    fig_gate_open(&g, NULL);
    fig_span span = {.size = sizeof span, .name = "x", .offset = 60, .bytes = 5};
    assert_int_equal(fig_engine_read(g.engine, &span, bytes), FIG_INVALID);
    check_message("tensor x: 5 bytes from 60 of 64");
    assert_int_equal(fig_engine_write(g.engine, &span, bytes), FIG_INVALID);
    span.offset = SIZE_MAX;
    assert_int_equal(fig_engine_read(g.engine, &span, bytes), FIG_INVALID);
    span.offset = 60, span.bytes = 4;
    assert_int_equal(fig_engine_read(g.engine, &span, NULL), FIG_INVALID);
    assert_int_equal(fig_engine_read(g.engine, &span, bytes), FIG_OK);
    assert_memory_equal(bytes, (uint8_t *)g.x + 60, 4);
    span.name = "y";
    assert_int_equal(fig_engine_read(g.engine, &span, bytes), FIG_INVALID);
    check_message("the program has no tensor y");
    fig_gate_close(&g);
}

static fig_status set(fig_engine *engine, int32_t sequence, int32_t first, int32_t count,
                      const int32_t *pages) {
    return fig_engine_set_pages(engine, FIG_OPTIONS(fig_pages, .sequence = sequence, .first = first,
                                                    .count = count, .pages = pages));
}

static void pages_are_checked_whole_before_any_is_written(void **state) {
    (void)state;
    fig_decode decode;
    fig_engine *engine;
    int32_t row[8];
    static const int32_t zeros[8];
    fig_decode_open(&decode, &small_decode);
    assert_int_equal(fig_engine_open(&engine, decode.graphs, NULL), FIG_OK);
    const int32_t huge[] = {1, 2, 1000000};
    assert_int_equal(set(engine, 0, 0, 3, huge),
                     FIG_OK); /* no cache is bound that says otherwise */
    const fig_span span = {.size = sizeof span, .name = "page_table", .bytes = sizeof row};
    assert_int_equal(fig_engine_read(engine, &span, row), FIG_OK);
    assert_memory_equal(row, ((int32_t[8]){1, 2, 1000000}), sizeof row);
    assert_int_equal(fig_engine_write(engine, &span, zeros), FIG_OK);

    const fig_binding k = fig_decode_binding(&decode, 0, FIG_DECODE_K_CACHE);
    fig_binding v = fig_decode_binding(&decode, 0, FIG_DECODE_V_CACHE);
    v.bytes = 9 * 16 * 2 * 64 * 4; /* the smaller of both counts */
    assert_int_equal(fig_engine_bind(engine, &k), FIG_OK);
    assert_int_equal(fig_engine_bind(engine, &v), FIG_OK);
    const int32_t pages[] = {8, 0, 9}, negative[] = {8, -1};
    assert_int_equal(set(engine, 0, 0, 3, pages), FIG_INVALID);
    check_message("pages: pages[2] is 9, the caches hold 9");
    assert_int_equal(set(engine, 0, 0, 2, negative), FIG_INVALID);
    assert_int_equal(set(engine, 7, 0, 2, pages), FIG_INVALID);
    check_message("pages: sequence is 7, limit 6");
    assert_int_equal(set(engine, -1, 0, 2, pages), FIG_INVALID);
    assert_int_equal(set(engine, 0, 7, 2, pages), FIG_INVALID);
    check_message("pages: 2 entries from 7, a sequence has 8");
    assert_int_equal(set(engine, 0, -1, 2, pages), FIG_INVALID);
    assert_int_equal(set(engine, 0, 0, -2, pages), FIG_INVALID);
    assert_int_equal(set(engine, 0, 0, 2, NULL), FIG_INVALID);
    assert_int_equal(fig_engine_read(engine, &span, row), FIG_OK);
    assert_memory_equal(row, zeros, sizeof row);
    assert_int_equal(set(engine, 0, 6, 2, pages), FIG_OK);
    assert_int_equal(set(engine, 0, 3, 0, NULL), FIG_OK);
    assert_int_equal(fig_engine_read(engine, &span, row), FIG_OK);
    assert_memory_equal(row, ((int32_t[8]){0, 0, 0, 0, 0, 0, 8, 0}), sizeof row);
    fig_engine_close(engine);
    fig_decode_close(&decode);
}

static void pages_of_a_strided_table_of_the_callers_go_to_their_row(void **state) {
    (void)state;
    fig_decode decode;
    fig_engine *engine;
    static _Alignas(16) int32_t table[7][12];
    static const int32_t pages[] = {5, 6};
    memset(table, 0, sizeof table);
    fig_decode_open(&decode, &small_decode);
    assert_int_equal(fig_engine_open(&engine, decode.graphs, NULL), FIG_OK);
    assert_int_equal(
        fig_engine_bind(engine, FIG_OPTIONS(fig_binding, .name = "page_table", .address = table,
                                            .bytes = sizeof table, .strides = {12, 1})),
        FIG_OK);
    assert_int_equal(set(engine, 6, 6, 2, pages), FIG_OK);
    assert_int_equal(table[6][6], 5);
    assert_int_equal(table[6][7], 6);
    fig_engine_close(engine);
    fig_decode_close(&decode);
}

static void a_program_without_a_page_table_has_no_pages(void **state) {
    (void)state;
    fig_gate g;
    static const int32_t pages[] = {0};
    fig_gate_open(&g, NULL);
    assert_int_equal(set(g.engine, 0, 0, 1, pages), FIG_INVALID);
    check_message("the program has no tensor page_table");
    fig_gate_close(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_unbound_tensor_is_named_before_anything_is_staged),
        cmocka_unit_test(a_wrong_binding_leaves_the_one_before_in_force),
        cmocka_unit_test(a_dense_cache_needs_a_page_for_each_sequence),
        cmocka_unit_test(a_temp_is_nobodys_to_bind_or_read),
        cmocka_unit_test(an_output_that_lies_on_another_tensor_is_refused),
        cmocka_unit_test(memory_of_the_engines_is_zeroed_and_counted),
        cmocka_unit_test(a_tensor_that_no_node_names_moves_no_launch),
        cmocka_unit_test(a_span_outside_its_tensor_is_refused),
        cmocka_unit_test(pages_are_checked_whole_before_any_is_written),
        cmocka_unit_test(pages_of_a_strided_table_of_the_callers_go_to_their_row),
        cmocka_unit_test(a_program_without_a_page_table_has_no_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
