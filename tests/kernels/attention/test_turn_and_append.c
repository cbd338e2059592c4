/* test_turn_and_append.c: tests that decode_attention without `out` does rope and append_kv in one
 * launch, and refuses operands that only attention uses.
 *
 * Two programs run on the same inputs: one has a single node, the other has two. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "graphs/graphs.h"
#include "tests/support/place.h"
#include "tests/support/random.h"

enum { ROWS = 3, HEADS = 4, KV_HEADS = 2, HEAD_DIM = 64, PAGE = 16, PAGES = 8 };
enum { Q = HEADS * HEAD_DIM, KV = KV_HEADS * HEAD_DIM, CACHE = PAGES * PAGE * KV };
static const fig_spec spec = {.size = sizeof spec,
                              .dtype = FIG_F16,
                              .kv_dtype = FIG_F16,
                              .q_heads = HEADS,
                              .kv_heads = KV_HEADS,
                              .head_dim = HEAD_DIM,
                              .page_size = PAGE,
                              .batch_limit = 4,
                              .kv_limit = 32};
static const fig_bucket bucket = {4, 32};

/* The kinds of programs: one node; two nodes; and one node with an operand that it must not
 * have. */
typedef enum form { ONE_NODE, TWO_NODES, WITH_LSE, WITH_SINKS, WITH_ALIBI } form;

static fig_tensor add(fig_program *program, const char *name, fig_role role, int32_t heads) {
    return fig_program_tensor(program, FIG_OPTIONS(fig_tensor_info, .name = name, .role = role,
                                                   .dtype = FIG_F16, .rank = 3,
                                                   .dims = {FIG_DIM_BATCH, heads, HEAD_DIM}));
}

static fig_tensor add_cache(fig_program *program, const char *name) {
    return fig_program_tensor(program,
                              FIG_OPTIONS(fig_tensor_info, .name = name, .role = FIG_ROLE_BOUND,
                                          .dtype = FIG_F16, .rank = 4,
                                          .dims = {FIG_DIM_PAGES, PAGE, KV_HEADS, HEAD_DIM}));
}

/* Adds an f32 tensor [rows][heads], or [heads] if `rows` is 0. */
static fig_tensor add_words(fig_program *program, const char *name, int64_t rows) {
    const fig_tensor_info each = {.size = sizeof each,
                                  .name = name,
                                  .role = FIG_ROLE_BOUND,
                                  .dtype = FIG_F32,
                                  .rank = 1,
                                  .dims = {HEADS}};
    fig_tensor_info all = each;
    all.rank = 2;
    all.dims[0] = rows;
    all.dims[1] = HEADS;
    return fig_program_tensor(program, rows == 0 ? &each : &all);
}

static fig_program *record(form of) {
    fig_program *program;
    assert_int_equal(fig_program_create(&program, &spec), FIG_OK);
    const fig_tensor q = add(program, "q", FIG_ROLE_BOUND, HEADS);
    const fig_tensor k = add(program, "k", FIG_ROLE_BOUND, KV_HEADS);
    const fig_tensor v = add(program, "v", FIG_ROLE_BOUND, KV_HEADS);
    const fig_tensor table = fig_program_tensor(
        program, FIG_OPTIONS(fig_tensor_info, .name = "page_table", .role = FIG_ROLE_STATE,
                             .dtype = FIG_I32, .rank = 2, .dims = {4, 2}));
    const fig_cache cache = {.k = add_cache(program, "k_cache"),
                             .v = add_cache(program, "v_cache"),
                             .page_table = table};
    fig_decode_attention_op op = {.size = sizeof op, .q = q, .k = k, .v = v, .cache = cache};
    if (of == WITH_LSE) op.lse = add_words(program, "lse", FIG_DIM_BATCH);
    if (of == WITH_SINKS) op.sinks = add_words(program, "sinks", 0);
    if (of == WITH_ALIBI) op.alibi = add_words(program, "alibi", 0);
    if (of == TWO_NODES) {
        fig_rope(program, FIG_OPTIONS(fig_rope_op, .q = q, .k = k));
        fig_append_kv(program, FIG_OPTIONS(fig_append_kv_op, .k = k, .v = v, .cache = cache));
    } else {
        fig_decode_attention(program, &op);
    }
    return program;
}

/* Everything that the nodes read and write, allocated through place.h. */
typedef struct world {
    uint16_t q[4 * Q], k[4 * KV], v[4 * KV], k_cache[CACHE], v_cache[CACHE];
} world;

static void bind(fig_engine *engine, const char *name, void *address, size_t bytes) {
    const fig_binding binding = {
        .size = sizeof binding, .name = name, .address = address, .bytes = bytes};
    if (fig_engine_bind(engine, &binding) != FIG_OK) fail_msg("%s", fig_message());
}

/* Runs a step of three rows on *w; the second row is idle. Returns the number of its launches. */
static uint32_t run(form of, world *w) {
    static const int32_t lengths[ROWS] = {17, 0, 5}, pages[ROWS][2] = {{3, 6}, {0, 1}, {7, 2}};
    fig_program *program = record(of);
    fig_graphs *graphs;
    fig_engine *engine;
    assert_int_equal(fig_program_finish(program), FIG_OK);
    const fig_lower_options lower = {.size = sizeof lower, .buckets = &bucket, .bucket_count = 1};
    if (fig_graphs_lower(&graphs, program, &lower) != FIG_OK) fail_msg("%s", fig_message());
    if (fig_engine_open(&engine, graphs, NULL) != FIG_OK) fail_msg("%s", fig_message());
    bind(engine, "q", w->q, sizeof w->q);
    bind(engine, "k", w->k, sizeof w->k);
    bind(engine, "v", w->v, sizeof w->v);
    bind(engine, "k_cache", w->k_cache, sizeof w->k_cache);
    bind(engine, "v_cache", w->v_cache, sizeof w->v_cache);
    for (int32_t row = 0; row < ROWS; row++)
        fig_engine_set_pages(
            engine, FIG_OPTIONS(fig_pages, .sequence = row, .count = 2, .pages = pages[row]));
    const fig_step step = {.size = sizeof step, .rows = ROWS, .kv_lengths = lengths};
    if (fig_engine_step(engine, &step) != FIG_OK) fail_msg("%s", fig_message());
    if (fig_engine_wait(engine, -1) != FIG_OK) fail_msg("%s", fig_message());
    const uint32_t launches = graphs->common.launch_count;
    fig_engine_close(engine);
    fig_graphs_destroy(graphs);
    fig_program_destroy(program);
    return launches;
}

static void decode_attention_without_out_is_rope_and_append_in_one_launch(void **state) {
    (void)state;
    world *one = fig_place_allocate(sizeof *one), *two = fig_place_allocate(sizeof *two);
    world *before = fig_place_allocate(sizeof *before);
    fig_random random = fig_random_seed(5);
    assert_true(one != NULL && two != NULL && before != NULL);
    uint16_t *numbers = (uint16_t *)before;
    for (size_t i = 0; i < sizeof *before / sizeof *numbers; i++)
        numbers[i] = (uint16_t)fig_random_range(&random, 0x3800, 0x3fff); /* from 1/2 to 2 */
    memcpy(one, before, sizeof *one);
    memcpy(two, before, sizeof *two);
    assert_int_equal(run(ONE_NODE, one), 1 + 1); /* the fetch, and one launch */
    assert_int_equal(run(TWO_NODES, two), 1 + 2);
    assert_memory_equal(one, two, sizeof *one);
    assert_memory_not_equal(one->q, before->q, sizeof one->q);
    assert_memory_equal(one->k_cache + (6 * PAGE + 0) * KV, one->k, KV * sizeof *one->k);
    assert_memory_equal(one->v_cache + (7 * PAGE + 4) * KV, one->v + 2 * KV, KV * sizeof *one->v);
    fig_place_free(one);
    fig_place_free(two);
    fig_place_free(before);
}

static void operands_of_attention_need_an_out(void **state) {
    (void)state;
    static const struct {
        form of;
        const char *sentence;
    } cases[] = {{WITH_LSE, "node 0 (decode_attention): lse is given without out"},
                 {WITH_SINKS, "node 0 (decode_attention): sinks is given without out"},
                 {WITH_ALIBI, "node 0 (decode_attention): alibi is given without out"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fig_program *program = record(cases[i].of);
        assert_int_equal(fig_program_finish(program), FIG_INVALID);
        assert_string_equal(fig_message(), cases[i].sentence);
        fig_program_destroy(program);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decode_attention_without_out_is_rope_and_append_in_one_launch),
        cmocka_unit_test(operands_of_attention_need_an_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
