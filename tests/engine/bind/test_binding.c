/* test_binding.c: tests which memory can be bound to a tensor, and how bytes are copied to it. */
#include "engine/engine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/kernels/decode.h"
#include "tests/support/gate.h"
#include "tests/support/place.h"

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
    assert_int_equal(fig_place_open(&engine, decode.graphs), FIG_OK);
    for (int kind = 0; kind < FIG_DECODE_K_SCALE; kind++) {
        char sentence[64];
        const fig_binding binding = fig_decode_binding(&decode, 0, (fig_decode_kind)kind);
        fig_span span = {.size = sizeof span, .name = binding.name, .bytes = 1};
        snprintf(sentence, sizeof sentence, "tensor %s is not bound", binding.name);
        assert_int_equal(fig_engine_step(engine, &step), FIG_UNBOUND);
        check_message(sentence);
        assert_int_equal(fig_engine_prepare(engine, 0), FIG_UNBOUND);
        assert_int_equal(fig_engine_read(engine, &span, sentence), FIG_UNBOUND);
        assert_int_equal(fig_engine_bind(engine, &binding), FIG_OK);
    }
    assert_int_equal(fig_gate_progress(engine).staged, 0);
    fig_decode_bind(&decode, engine);
    fig_decode_fill(&decode, &random);
    assert_int_equal(fig_engine_step(engine, &step), FIG_OK);
    assert_int_equal(fig_engine_wait(engine, FIG_HANG_US), FIG_OK);
    fig_decode_check(&decode, &step);
    fig_engine_close(engine);
    fig_decode_close(&decode);
}

static void refuse(fig_engine *engine, const fig_binding *binding, const char *sentence) {
    assert_int_equal(fig_engine_bind(engine, binding), FIG_INVALID);
    check_message(sentence);
}

static void a_wrong_binding_leaves_the_previous_one_in_force(void **state) {
    (void)state;
    fig_decode decode;
    fig_engine *engine;
    const size_t other_bytes = (4 * 4 * 64 + 4) * sizeof(float);
    uint8_t *other = fig_place_allocate(other_bytes);
    static const int32_t ones[] = {1, 1, 1, 1};
    const fig_step step = {.size = sizeof step, .rows = 4, .kv_lengths = ones};
    fig_random random = fig_random_seed(2);
    fig_decode_open(&decode, &small_decode);
    assert_int_equal(fig_place_open(&engine, decode.graphs), FIG_OK);
    fig_decode_bind(&decode, engine);
    fig_binding wrong = {.size = sizeof wrong, .name = "q.0", .bytes = 4 * 4 * 64 * 4};
    wrong.address = other + 4;
    assert_int_equal(fig_engine_bind(engine, &wrong), FIG_INVALID);
    assert_non_null(strstr(fig_message(), "tensor q.0: address 0x"));
    assert_non_null(strstr(fig_message(), "it must be a multiple of 16"));
    wrong.address = other;
    wrong.bytes = 4095;
    refuse(engine, &wrong, "tensor q.0: bytes is 4095, it must be 4096 or more");
    wrong.bytes = other_bytes;
    memcpy(wrong.strides, (int64_t[4]){256, 64, 2, 0}, sizeof wrong.strides);
    refuse(engine, &wrong, "tensor q.0: strides[2] is 2, the last must be 1");
    memcpy(wrong.strides, (int64_t[4]){256, 0, 1, 0}, sizeof wrong.strides);
    refuse(engine, &wrong, "tensor q.0: strides[1] is 0, it must be positive");
    memcpy(wrong.strides, (int64_t[4]){-256, 64, 1, 0}, sizeof wrong.strides);
    refuse(engine, &wrong, "tensor q.0: strides[0] is -256, it must be positive");
    memcpy(wrong.strides, (int64_t[4]){255, 64, 1, 0}, sizeof wrong.strides);
    refuse(engine, &wrong, "tensor q.0: strides[0] is 255, it must be 256 or more");
    memcpy(wrong.strides, (int64_t[4]){256, 63, 1, 0}, sizeof wrong.strides);
    refuse(engine, &wrong, "tensor q.0: strides[1] is 63, it must be 64 or more");
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
    refuse(engine, &cache, "tensor k_cache.0: strides[0] is 2047, it must be 2048 or more");
    fig_decode_fill(&decode, &random);
    assert_int_equal(fig_engine_step(engine, &step), FIG_OK);
    assert_int_equal(fig_engine_wait(engine, FIG_HANG_US), FIG_OK);
    fig_decode_check(&decode, &step);
    fig_engine_close(engine);
    fig_decode_close(&decode);
    fig_place_free(other);
}

static void a_dense_cache_needs_a_page_for_each_sequence(void **state) {
    (void)state;
    fig_decode decode;
    fig_engine *engine;
    fig_decode_options options = small_decode;
    options.page_size = 0;
    fig_decode_open(&decode, &options);
    assert_int_equal(fig_place_open(&engine, decode.graphs), FIG_OK);
    fig_binding cache = fig_decode_binding(&decode, 0, FIG_DECODE_V_CACHE);
    cache.bytes -= 4;
    refuse(engine, &cache, "tensor v_cache.0: bytes is 458748, which holds 6 of 7 pages");
    cache.bytes += 4;
    assert_int_equal(fig_engine_bind(engine, &cache), FIG_OK);
    fig_engine_close(engine);
    fig_decode_close(&decode);
}

static void a_temp_can_be_neither_bound_nor_read(void **state) {
    (void)state;
    fig_gate g;
    float buffer[8];
    fig_gate_open(&g, NULL);
    assert_int_equal(fig_gate_bind(g.engine, "up", g.act, sizeof g.act), FIG_INVALID);
    check_message("tensor up: role is FIG_ROLE_TEMP, only steps use it");
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
    assert_int_equal(fig_place_open(&engine, decode.graphs), FIG_OK);
    fig_decode_bind(&decode, engine);
    assert_int_equal(fig_engine_prepare(engine, 0), FIG_OK);
    fig_binding v = fig_decode_binding(&decode, 0, FIG_DECODE_V);
    fig_binding act = fig_decode_binding(&decode, 0, FIG_DECODE_ACT);
    fig_binding gate_up = fig_decode_binding(&decode, 0, FIG_DECODE_GATE_UP);
    void *const own_act = act.address, *const own_v = v.address;
    act.address = (uint8_t *)gate_up.address + gate_up.bytes - 16;
    assert_int_equal(fig_engine_bind(engine, &act), FIG_OK);
    assert_int_equal(fig_engine_prepare(engine, 0), FIG_INVALID);
    check_message("tensor act.0: overlaps tensor gate_up.0, and a node writes the first");
    act.address = own_act;
    assert_int_equal(fig_engine_bind(engine, &act), FIG_OK);
    /* The bytes that a node reads from v lie within q. */
    v.address = decode.tensors[0][FIG_DECODE_Q].address + 16;
    assert_int_equal(fig_engine_bind(engine, &v), FIG_OK);
    assert_int_equal(fig_engine_prepare(engine, 0), FIG_INVALID);
    check_message("tensor v.0: overlaps tensor q.0, and a node writes the second");
    v.address = own_v;
    assert_int_equal(fig_engine_bind(engine, &v), FIG_OK);
    assert_int_equal(fig_engine_prepare(engine, 0), FIG_OK);
    gate_up.address = own_v; /* no node writes gate_up or v */
    assert_int_equal(fig_engine_bind(engine, &gate_up), FIG_OK);
    assert_int_equal(fig_engine_prepare(engine, 0), FIG_OK);
    fig_engine_close(engine);
    fig_decode_close(&decode);
}

/* ---- Forms --------------------------------------------------------------------------------- */

enum { FORM_ROWS = 5, FORM_QUERIES = 3, FORM_PAGE = 4, FORM_HEADS = 2, FORM_DIM = 64 };

/* Opens an engine with several queries per row and fp8 pages in HND order. */
static fig_engine *open_form(fig_graphs **graphs) {
    fig_program *program;
    fig_engine *engine;
    const fig_spec spec = {.size = sizeof spec,
                           .dtype = FIG_BF16,
                           .kv_dtype = FIG_E4M3,
                           .q_heads = FORM_HEADS,
                           .kv_heads = FORM_HEADS,
                           .head_dim = FORM_DIM,
                           .page_size = FORM_PAGE,
                           .kv_layout = FIG_HND,
                           .kv_scales = 1,
                           .batch_limit = FORM_ROWS,
                           .kv_limit = 64,
                           .row_tokens = FORM_QUERIES};
    assert_int_equal(fig_program_create(&program, &spec), FIG_OK);
    fig_program_decode_step(program);
    if (fig_program_finish(program) != FIG_OK) fail_msg("%s", fig_message());
    if (fig_graphs_lower(graphs, program,
                         FIG_OPTIONS(fig_lower_options, .traits = fig_place_traits())) != FIG_OK)
        fail_msg("%s", fig_message());
    fig_program_destroy(program);
    assert_int_equal(fig_place_open(&engine, *graphs), FIG_OK);
    return engine;
}

static const fig_bound_place *place_of(fig_engine *engine, const char *name) {
    return &engine->bindings.tensors[fig_program_find(engine->graphs->program, name).id - 1].place;
}

static uint8_t *memory; /* [1 << 17], shared by all tensors that a form binds */

static uint8_t *at(size_t offset) {
    return memory + offset;
}

static void rows_are_counted_with_all_their_queries(void **state) {
    (void)state;
    fig_graphs *graphs;
    fig_engine *engine = open_form(&graphs);
    const size_t bytes = FORM_ROWS * FORM_QUERIES * FORM_HEADS * FORM_DIM * 2;
    char sentence[96];
    assert_int_equal(fig_gate_bind(engine, "q.0", at(0), bytes - 1), FIG_INVALID);
    snprintf(sentence, sizeof sentence, "tensor q.0: bytes is %zu, it must be %zu or more",
             bytes - 1, bytes);
    check_message(sentence);
    assert_int_equal(fig_gate_bind(engine, "q.0", at(0), bytes), FIG_OK);
    assert_int_equal(place_of(engine, "q.0")->extent, FORM_ROWS * FORM_QUERIES);
    assert_int_equal(fig_gate_bind(engine, "k_scale.0", at(0), 4 * FORM_HEADS - 1), FIG_INVALID);
    check_message("tensor k_scale.0: bytes is 7, it must be 8 or more");
    fig_engine_close(engine);
    fig_graphs_destroy(graphs);
}

static void without_strides_the_layout_decides_their_order(void **state) {
    (void)state;
    fig_graphs *graphs;
    fig_engine *engine = open_form(&graphs);
    const size_t page = FORM_PAGE * FORM_HEADS * FORM_DIM; /* one byte per number */
    static const int64_t heads_first[] = {FORM_PAGE * FORM_HEADS * FORM_DIM, FORM_DIM,
                                          FORM_PAGE * FORM_DIM, 1};
    assert_int_equal(fig_gate_bind(engine, "k_cache.0", at(0), page - 1), FIG_INVALID);
    check_message("tensor k_cache.0: bytes is 511, which holds 0 of 1 pages");
    assert_int_equal(fig_gate_bind(engine, "k_cache.0", at(0), 7 * page + 511), FIG_OK);
    assert_int_equal(place_of(engine, "k_cache.0")->extent, 7);
    assert_memory_equal(place_of(engine, "k_cache.0")->strides, heads_first, sizeof heads_first);
    fig_engine_close(engine);
    fig_graphs_destroy(graphs);
}

static fig_status bind_cache(fig_engine *engine, size_t offset, size_t bytes,
                             const int64_t strides[4]) {
    fig_binding binding = {
        .size = sizeof binding, .name = "v_cache.0", .address = at(offset), .bytes = bytes};
    memcpy(binding.strides, strides, sizeof binding.strides);
    return fig_engine_bind(engine, &binding);
}

/* The number of pages follows from the bytes and the strides. It does not matter which dim has the
 * largest stride. */
static void pages_are_counted_whatever_the_strides(void **state) {
    (void)state;
    enum { PAGE = FORM_PAGE * FORM_HEADS * FORM_DIM };
    static const struct {
        int64_t strides[4];
        size_t bytes;
        int64_t pages; /* 0: the binding is refused */
    } table[] = {
        /* [pages][2][token][head][dim]: the pool ends with the second half of its last page. */
        {{2 * PAGE, 128, 64, 1}, 2 * PAGE * 9 - PAGE, 9},
        {{2 * PAGE, 128, 64, 1}, 2 * PAGE * 9 - PAGE - 1, 8},
        {{2 * PAGE, 64, 256, 1}, PAGE, 1},
        /* [head][pages][token][dim]: the second head begins after 10 pages of the first. */
        {{256, 64, 2560, 1}, 2560 + 10 * 256, 10},
        {{256, 64, 2560, 1}, 2560 + 10 * 256 - 1, 9},
        {{256, 64, 2560, 1}, 1 << 16, 10},
        {{256, 64, 2561, 1}, 1 << 16, 10},
        {{256, 64, 2559, 1}, 1 << 16, 9},
        /* [token][pages][head][dim] */
        {{128, 128 * 20, 64, 1}, 1 << 16, 20},
        {{128, 128 * 20, 64, 1}, 3 * 128 * 20 + 128 * 6, 6},
        /* a page that overlaps itself */
        {{127, 128 * 20, 64, 1}, 1 << 16, 0},
        {{256, 64, 255, 1}, 1 << 16, 0},
    };
    fig_graphs *graphs;
    fig_engine *engine = open_form(&graphs);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        fig_status status = bind_cache(engine, 0, table[i].bytes, table[i].strides);
        if ((status == FIG_OK) != (table[i].pages > 0) ||
            (status == FIG_OK && place_of(engine, "v_cache.0")->extent != table[i].pages))
            fail_msg("binding %zu: %s, %lld pages of %lld", i, fig_status_name(status),
                     (long long)place_of(engine, "v_cache.0")->extent, (long long)table[i].pages);
    }
    fig_engine_close(engine);
    fig_graphs_destroy(graphs);
}

/* Binds every tensor except v_cache.0, each to its own memory. Returns the bytes used; the pool
 * begins after them. */
static size_t bind_rest(fig_engine *engine) {
    static const char *const names[] = {"q.0", "k.0", "v.0", "out.0", "k_scale.0", "v_scale.0"};
    size_t end = 0;
    for (int i = 0; i < 6; i++) {
        size_t bytes = i < 4 ? FORM_ROWS * FORM_QUERIES * FORM_HEADS * FORM_DIM * 2 : 64;
        assert_int_equal(fig_gate_bind(engine, names[i], at(end), bytes), FIG_OK);
        end += (bytes + 63) / 64 * 64;
    }
    return end;
}

static void views_of_one_pool_may_interleave_but_not_meet(void **state) {
    (void)state;
    enum { PAGE = FORM_PAGE * FORM_HEADS * FORM_DIM, PAGES = 12 };
    static const int64_t pairs[] = {2 * PAGE, 64, 256, 1};
    fig_graphs *graphs;
    fig_engine *engine = open_form(&graphs);
    const size_t pool = bind_rest(engine), bytes = (2 * PAGES - 1) * PAGE;
    fig_binding k = {.size = sizeof k, .name = "k_cache.0", .address = at(pool), .bytes = bytes};
    memcpy(k.strides, pairs, sizeof k.strides);
    assert_int_equal(fig_engine_bind(engine, &k), FIG_OK);
    for (size_t shift = 0; shift <= 2 * PAGE; shift += 16) {
        assert_int_equal(bind_cache(engine, pool + shift, bytes, pairs), FIG_OK);
        fig_status status = fig_engine_prepare(engine, 0);
        if (status != (shift == PAGE ? FIG_OK : FIG_INVALID))
            fail_msg("V %zu bytes behind K: %s", shift, fig_status_name(status));
        if (status != FIG_OK)
            assert_non_null(strstr(fig_message(), ", and a node writes the first"));
    }
    check_message("tensor v_cache.0: overlaps tensor k_cache.0, and a node writes the first");
    fig_engine_close(engine);
    fig_graphs_destroy(graphs);
}

static void the_engine_s_memory_is_zeroed_and_counted(void **state) {
    (void)state;
    fig_gate g;
    uint8_t bytes[64];
    fig_gate_open(&g, NULL);
    assert_int_equal(fig_gate_stats(g.engine).owned_bytes, 0);
    assert_int_equal(fig_gate_bind(g.engine, "x", NULL, 4096), FIG_OK);
    assert_int_equal(fig_gate_stats(g.engine).owned_bytes, 4096);
    assert_int_equal(fig_gate_bind(g.engine, "x", NULL, 0), FIG_OK); /* all bytes of the tensor */
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
    assert_int_equal(fig_place_open(&engine, decode.graphs), FIG_OK);
    const int32_t huge[] = {1, 2, 1000000};
    /* no cache is bound, so any page number is allowed */
    assert_int_equal(set(engine, 0, 0, 3, huge), FIG_OK);
    const fig_span span = {.size = sizeof span, .name = "page_table", .bytes = sizeof row};
    assert_int_equal(fig_engine_read(engine, &span, row), FIG_OK);
    assert_memory_equal(row, ((int32_t[8]){1, 2, 1000000}), sizeof row);
    assert_int_equal(fig_engine_write(engine, &span, zeros), FIG_OK);

    const fig_binding k = fig_decode_binding(&decode, 0, FIG_DECODE_K_CACHE);
    fig_binding v = fig_decode_binding(&decode, 0, FIG_DECODE_V_CACHE);
    /* the caches hold different numbers of pages, and the smaller number is the limit */
    v.bytes = 9 * 16 * 2 * 64 * 4;
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

static void pages_of_a_callers_strided_table_go_to_their_row(void **state) {
    (void)state;
    fig_decode decode;
    fig_engine *engine;
    enum { ROW = 12, BYTES = 7 * ROW * sizeof(int32_t) };
    int32_t *table = fig_place_allocate(BYTES);
    static const int32_t pages[] = {5, 6};
    memset(table, 0, BYTES);
    fig_decode_open(&decode, &small_decode);
    assert_int_equal(fig_place_open(&engine, decode.graphs), FIG_OK);
    assert_int_equal(
        fig_engine_bind(engine, FIG_OPTIONS(fig_binding, .name = "page_table", .address = table,
                                            .bytes = BYTES, .strides = {ROW, 1})),
        FIG_OK);
    assert_int_equal(set(engine, 6, 6, 2, pages), FIG_OK);
    assert_int_equal(table[6 * ROW + 6], 0); /* the entry reaches the table with a plan or a read */
    assert_int_equal(fig_engine_read(engine, FIG_OPTIONS(fig_span, .name = "page_table"), NULL),
                     FIG_OK);
    assert_int_equal(table[6 * ROW + 6], 5);
    assert_int_equal(table[6 * ROW + 7], 6);
    fig_engine_close(engine);
    fig_decode_close(&decode);
    fig_place_free(table);
}

static void pages_go_to_the_named_table_or_to_all(void **state) {
    (void)state;
    fig_decode decode;
    fig_engine *engine;
    int32_t all, window;
    fig_decode_options options = small_decode;
    options.layers = 2;
    options.window = 16;
    options.window_layers = 2;
    fig_decode_open(&decode, &options);
    assert_int_equal(fig_place_open(&engine, decode.graphs), FIG_OK);
    const fig_span span = {.size = sizeof span, .name = "page_table", .offset = 4, .bytes = 4};
    fig_span window_span = span;
    window_span.name = "page_table.window";
    fig_pages pages = {.size = sizeof pages, .first = 1, .count = 1, .pages = (int32_t[]){5}};
    assert_int_equal(fig_engine_set_pages(engine, &pages), FIG_OK);
    assert_int_equal(fig_engine_read(engine, &span, &all), FIG_OK);
    assert_int_equal(fig_engine_read(engine, &window_span, &window), FIG_OK);
    assert_int_equal(all, 5);
    assert_int_equal(window, 5);
    pages.table = "page_table.window";
    pages.pages = (int32_t[]){6};
    assert_int_equal(fig_engine_set_pages(engine, &pages), FIG_OK);
    assert_int_equal(fig_engine_read(engine, &span, &all), FIG_OK);
    assert_int_equal(fig_engine_read(engine, &window_span, &window), FIG_OK);
    assert_int_equal(all, 5);
    assert_int_equal(window, 6);
    pages.table = "q.0";
    assert_int_equal(fig_engine_set_pages(engine, &pages), FIG_INVALID);
    check_message("pages: the program has no page table called q.0");
    fig_engine_close(engine);
    fig_decode_close(&decode);
}

static void a_program_without_a_page_table_has_no_pages(void **state) {
    (void)state;
    fig_gate g;
    static const int32_t pages[] = {0};
    fig_gate_open(&g, NULL);
    assert_int_equal(set(g.engine, 0, 0, 1, pages), FIG_INVALID);
    check_message("pages: the program has no page table");
    fig_gate_close(&g);
}

static int open_memory(void **state) {
    (void)state;
    memory = fig_place_allocate(1 << 17);
    return memory == NULL;
}

static int close_memory(void **state) {
    (void)state;
    fig_place_free(memory);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_unbound_tensor_is_named_before_anything_is_staged),
        cmocka_unit_test(a_wrong_binding_leaves_the_previous_one_in_force),
        cmocka_unit_test(a_dense_cache_needs_a_page_for_each_sequence),
        cmocka_unit_test(a_temp_can_be_neither_bound_nor_read),
        cmocka_unit_test(an_output_that_lies_on_another_tensor_is_refused),
        cmocka_unit_test(rows_are_counted_with_all_their_queries),
        cmocka_unit_test(without_strides_the_layout_decides_their_order),
        cmocka_unit_test(pages_are_counted_whatever_the_strides),
        cmocka_unit_test(views_of_one_pool_may_interleave_but_not_meet),
        cmocka_unit_test(the_engine_s_memory_is_zeroed_and_counted),
        cmocka_unit_test(a_tensor_that_no_node_names_moves_no_launch),
        cmocka_unit_test(a_span_outside_its_tensor_is_refused),
        cmocka_unit_test(pages_are_checked_whole_before_any_is_written),
        cmocka_unit_test(pages_of_a_callers_strided_table_go_to_their_row),
        cmocka_unit_test(pages_go_to_the_named_table_or_to_all),
        cmocka_unit_test(a_program_without_a_page_table_has_no_pages),
    };
    return cmocka_run_group_tests(tests, open_memory, close_memory);
}
