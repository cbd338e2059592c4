/* test_mask_plans.c: tests engines whose planner knows masks: classes, plans and what is computed.
 *
 * The nodes of a program attend to one cache. The truth is the same program with the masks written
 * as scores, which the planner does not know. Page 0 of the cache is NaN, and page numbers of
 * hidden tokens lead there. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "engine/engine.h"
#include "graphs/graphs.h"
#include "graphs/record/program.h"
#include "include/figraph_inspect.h"
#include "include/figraph_scores.h"
#include "tests/support/fault.h"
#include "tests/support/random.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

enum {
    ROWS = 4,
    Q_HEADS = 4,
    KV_HEADS = 2,
    HEAD_DIM = 64,
    KV_LIMIT = 1024,
    PAGE = 16,
    ROW_PAGES = KV_LIMIT / PAGE,
    PAGES = 1 + ROWS * ROW_PAGES,
    NODES = 5,
    VECTORS = ROWS * 2 * Q_HEADS * HEAD_DIM
};

/* A mask, and the same as a score. */
typedef struct variant {
    const char *mask, *score;
} variant;

static const variant none = {NULL, NULL};
static const variant doubled = {"score * 2.0", "score * 2.0"};
static const variant recent = {"see q_pos - 99:q_pos + 1; score",
                               "select((kv_pos > q_pos - 100) & (kv_pos <= q_pos), score, -inf)"};
static const variant stream = {
    "see 0:4, q_pos - 99:q_pos + 1; score",
    "select(((kv_pos < 4) | (kv_pos > q_pos - 100)) & (kv_pos <= q_pos), score, -inf)"};
static const variant local = {"see q_pos // 128 * 128:q_pos + 1; score",
                              "select(kv_pos // 128 == q_pos // 128, score, -inf)"};
static const variant scaled = {
    "see 0:4, q_pos - 99:q_pos + 1; score * 0.5",
    "select(((kv_pos < 4) | (kv_pos > q_pos - 100)) & (kv_pos <= q_pos), score * 0.5, -inf)"};
static const variant by_head = {
    "see head * 100:min(head * 100 + 60, q_pos + 1), q_pos - 30:q_pos + 1; score",
    "select((kv_pos >= head * 100) & (kv_pos < head * 100 + 60) | (kv_pos >= q_pos - 30) & "
    "(kv_pos <= q_pos), score, -inf)"};
static const variant half = {"see kv_length // 2:q_pos + 1; score",
                             "select((kv_pos >= kv_length // 2), score, -inf)"};

/* What a test's program is like; zeros: the plainest one. */
typedef struct form {
    const variant *nodes[NODES];
    int32_t row_tokens; /* 0: 1 */
    int32_t packed, deterministic, window;
    int32_t device; /* 1: the device reads the lengths */
} form;

static struct {
    float q[VECTORS], out[NODES][VECTORS];
    float k[PAGES][PAGE][KV_HEADS][HEAD_DIM], v[PAGES][PAGE][KV_HEADS][HEAD_DIM];
    int32_t table[ROWS][ROW_PAGES], lengths[ROWS];
} memory;

static void must(fig_status status) {
    if (status != FIG_OK) fail_msg("%s", fig_message());
}

static fig_tensor declare(fig_program *program, fig_tensor_info info) {
    info.size = sizeof info;
    info.role = FIG_ROLE_BOUND;
    while (info.rank < 4 && info.dims[info.rank] != 0)
        info.rank++;
    return fig_program_tensor(program, &info);
}

static int32_t row_tokens_of(const form *of) {
    return of->row_tokens > 0 ? of->row_tokens : 1;
}

static fig_program *begin(const form *of, fig_cache *cache) {
    const int32_t row_tokens = row_tokens_of(of);
    const fig_spec spec = {.size = sizeof spec,
                           .dtype = FIG_F32,
                           .q_heads = Q_HEADS,
                           .kv_heads = KV_HEADS,
                           .head_dim = HEAD_DIM,
                           .page_size = PAGE,
                           .batch_limit = ROWS,
                           .kv_limit = KV_LIMIT,
                           .row_tokens = row_tokens,
                           .query_limit = of->packed ? ROWS * row_tokens : 0};
    fig_program *program;
    must(fig_program_create(&program, &spec));
    if (of->device)
        fig_program_read_lengths(program,
                                 declare(program, (fig_tensor_info){.name = "lengths",
                                                                    .dtype = FIG_I32,
                                                                    .dims = {FIG_DIM_BATCH}}),
                                 (fig_tensor){0});
    *cache = (fig_cache){
        .k = declare(program, (fig_tensor_info){.name = "k_cache",
                                                .dtype = FIG_F32,
                                                .dims = {FIG_DIM_PAGES, PAGE, KV_HEADS, HEAD_DIM}}),
        .v = declare(program, (fig_tensor_info){.name = "v_cache",
                                                .dtype = FIG_F32,
                                                .dims = {FIG_DIM_PAGES, PAGE, KV_HEADS, HEAD_DIM}}),
        .page_table = declare(
            program,
            (fig_tensor_info){.name = "page_table", .dtype = FIG_I32, .dims = {ROWS, ROW_PAGES}})};
    return program;
}

/* Records a node for each variant, with its mask or, as the truth, with its score. */
static fig_graphs *lower(const form *of, int is_truth) {
    fig_cache cache;
    fig_program *program = begin(of, &cache);
    fig_tensor_info rows = {
        .name = "q",
        .dtype = FIG_F32,
        .dims = {of->packed ? FIG_DIM_QUERIES : FIG_DIM_BATCH, Q_HEADS, HEAD_DIM},
        .multiple = of->packed ? 1 : row_tokens_of(of)};
    const fig_tensor q = declare(program, rows);
    fig_graphs *graphs;
    for (int32_t n = 0; n < NODES && of->nodes[n] != NULL; n++) {
        const char *text = is_truth ? of->nodes[n]->score : of->nodes[n]->mask;
        fig_score *score = NULL;
        char name[16];
        if (text != NULL) must(fig_score_parse(&score, text));
        snprintf(name, sizeof name, "out.%d", (int)n);
        rows.name = name;
        fig_attention(program, FIG_OPTIONS(fig_attention_op, .q = q, .out = declare(program, rows),
                                           .cache = cache, .score = score, .window = of->window));
        fig_score_destroy(score);
    }
    must(fig_program_finish(program));
    must(fig_graphs_lower(&graphs, program,
                          FIG_OPTIONS(fig_lower_options, .deterministic = of->deterministic)));
    fig_program_destroy(program);
    return graphs;
}

static void bind(fig_engine *engine, const char *name, void *address, uint64_t bytes) {
    must(fig_engine_bind(
        engine, FIG_OPTIONS(fig_binding, .name = name, .address = address, .bytes = bytes)));
}

static fig_engine *open_engine(const form *of, const fig_graphs *graphs) {
    fig_engine *engine;
    must(fig_engine_open(&engine, graphs,
                         FIG_OPTIONS(fig_engine_options, .device = FIG_DEVICE_HOST)));
    bind(engine, "q", memory.q, sizeof memory.q);
    bind(engine, "k_cache", memory.k, sizeof memory.k);
    bind(engine, "v_cache", memory.v, sizeof memory.v);
    bind(engine, "page_table", memory.table, sizeof memory.table);
    if (of->device) bind(engine, "lengths", memory.lengths, sizeof memory.lengths);
    for (int32_t n = 0; n < NODES && of->nodes[n] != NULL; n++) {
        char name[16];
        snprintf(name, sizeof name, "out.%d", (int)n);
        bind(engine, name, memory.out[n], sizeof memory.out[n]);
    }
    return engine;
}

static int set_up(void **state) {
    fig_random random = fig_random_seed(5);
    (void)state;
    for (int32_t i = 0; i < VECTORS; i++)
        memory.q[i] = fig_random_float(&random);
    for (int32_t i = 0; i < PAGES * PAGE * KV_HEADS * HEAD_DIM; i++) {
        (&memory.k[0][0][0][0])[i] =
            i < PAGE * KV_HEADS * HEAD_DIM ? NAN : fig_random_float(&random);
        (&memory.v[0][0][0][0])[i] =
            i < PAGE * KV_HEADS * HEAD_DIM ? NAN : fig_random_float(&random);
    }
    return 0;
}

/* Gives every row its pages. */
static void set_pages(void) {
    for (int32_t r = 0; r < ROWS; r++)
        for (int32_t page = 0; page < ROW_PAGES; page++)
            memory.table[r][page] = 1 + page * ROWS + r;
}

/* Makes the pages from `first` to end - 1 of a row lead outside the cache. */
static void hide_pages(int32_t row, int32_t first, int32_t end) {
    for (int32_t page = first; page < end; page++)
        memory.table[row][page] = INT32_MAX;
}

static fig_step step_of(const form *of, const int32_t *lengths) {
    return (fig_step){
        .size = sizeof(fig_step), .rows = ROWS, .kv_lengths = of->device ? NULL : lengths};
}

static void run(fig_engine *engine, const fig_step *step, float *out) {
    memset(memory.out, 0x7f, sizeof memory.out);
    must(fig_engine_stage(engine, step));
    for (int32_t launch = 0; launch < (step->horizon > 1 ? step->horizon : 1); launch++)
        must(fig_engine_launch(engine));
    must(fig_engine_wait(engine, -1));
    memcpy(out, memory.out, sizeof memory.out);
    assert_int_not_equal(memcmp(&memory.out[0][0], "\x7f\x7f\x7f\x7f", 4), 0);
}

static void assert_near(const float *a, const float *b, const char *what) {
    for (int32_t i = 0; i < NODES * VECTORS; i++)
        if (!(fabsf(a[i] - b[i]) <= 1e-5f) && memcmp(&a[i], &b[i], sizeof *a) != 0)
            fail_msg("%s: element %d is %g, not %g", what, (int)i, (double)a[i], (double)b[i]);
}

static float found[NODES * VECTORS], wanted[NODES * VECTORS];

/* Runs the step in both programs and compares. */
static void compare(const form *of, const fig_step *step, const char *what) {
    fig_graphs *graphs = lower(of, 0), *truth = lower(of, 1);
    fig_engine *engine = open_engine(of, graphs), *other = open_engine(of, truth);
    run(engine, step, found);
    run(other, step, wanted);
    assert_near(found, wanted, what);
    fig_engine_close(engine);
    fig_engine_close(other);
    fig_graphs_destroy(graphs);
    fig_graphs_destroy(truth);
}

static int32_t class_count_of(const form *of, uint32_t masks[FIG_CLASS_LIMIT]) {
    fig_graphs *graphs = lower(of, 0);
    const fig_split_classes classes = graphs->common.classes;
    for (int32_t i = 0; i < classes.count; i++)
        masks[i] = classes.of[i].mask;
    fig_graphs_destroy(graphs);
    return classes.count;
}

/* ---- Classes */

static void a_mask_is_a_part_of_the_key_of_a_class(void **state) {
    const form of = {.nodes = {&none, &stream, &local, &scaled, &none}};
    uint32_t masks[FIG_CLASS_LIMIT];
    (void)state;
    assert_int_equal(class_count_of(&of, masks), 3);
    assert_int_equal(masks[0], 0);
    assert_int_equal(masks[1], 1); /* of stream and scaled */
    assert_int_equal(masks[2], 2);
}

static void a_program_with_too_many_masks_keeps_one_line(void **state) {
    const form of = {.nodes = {&recent, &stream, &local, &by_head, &half}};
    uint32_t masks[FIG_CLASS_LIMIT];
    const int32_t lengths[ROWS] = {700, 1, 0, 300};
    (void)state;
    assert_int_equal(class_count_of(&of, masks), 1);
    assert_int_equal(masks[0], 0);
    set_pages();
    const fig_step step = step_of(&of, lengths);
    compare(&of, &step, "too many masks");
}

static void a_plan_of_the_device_knows_no_mask(void **state) {
    const form of = {.nodes = {&stream, &local}, .device = 1};
    uint32_t masks[FIG_CLASS_LIMIT];
    (void)state;
    assert_int_equal(class_count_of(&of, masks), 1);
    assert_int_equal(masks[0], 0);
    set_pages();
    for (int32_t r = 0; r < ROWS; r++)
        memory.lengths[r] = 1000 - 300 * r;
    fig_step step = step_of(&of, NULL);
    step.token_limit = ROWS * KV_LIMIT;
    compare(&of, &step, "a plan of the device");
}

/* Nodes of different numbers of q heads would see different tiles where a mask reads the head. */
static void nodes_of_a_class_with_a_mask_have_as_many_heads(void **state) {
    static const char *const texts[] = {"see 0:head * 9; score", "score * 2.0"};
    (void)state;
    for (int32_t i = 0; i < 2; i++) {
        const form of = {.nodes = {NULL}};
        fig_cache cache;
        fig_program *program = begin(&of, &cache);
        fig_split_classes classes;
        fig_score *score;
        must(fig_score_parse(&score, texts[i]));
        for (int32_t n = 0; n < 2; n++) {
            fig_tensor_info rows = {.name = n == 0 ? "q" : "more",
                                    .dtype = FIG_F32,
                                    .dims = {FIG_DIM_BATCH, Q_HEADS << n, HEAD_DIM}};
            const fig_tensor q = declare(program, rows);
            rows.name = n == 0 ? "out" : "more_out";
            fig_attention(program,
                          FIG_OPTIONS(fig_attention_op, .q = q, .out = declare(program, rows),
                                      .cache = cache, .score = score));
        }
        must(fig_program_finish(program));
        must(fig_split_classes_find(fig_program_view_of(program), &classes));
        assert_int_equal(classes.count, i == 0 ? 2 : 1);
        fig_score_destroy(score);
        fig_program_destroy(program);
    }
}

/* ---- Steps */

static void every_step_is_computed_from_what_is_seen(void **state) {
    static const form forms[] = {
        {.nodes = {&stream}},
        {.nodes = {&doubled, &stream}},
        {.nodes = {&none, &local, &stream, &scaled, &half}},
        {.nodes = {&by_head, &recent}, .window = 150},
        {.nodes = {&by_head, &stream, &none}, .row_tokens = 2},
        {.nodes = {&stream, &local}, .row_tokens = 2, .packed = 1},
        {.nodes = {&stream, &half, &local}, .deterministic = 1},
    };
    fig_random random = fig_random_seed(6);
    (void)state;
    set_pages();
    for (size_t i = 0; i < COUNT(forms); i++) {
        for (int32_t n = 0; n < 6; n++) {
            int32_t lengths[ROWS], queries[ROWS];
            for (int32_t r = 0; r < ROWS; r++) {
                queries[r] = fig_random_range(&random, 0, 2);
                lengths[r] = fig_random_range(&random, 0, 4) == 0
                                 ? 0
                                 : fig_random_range(&random, 2, KV_LIMIT);
            }
            fig_step step = step_of(&forms[i], lengths);
            char what[64];
            snprintf(what, sizeof what, "step %d of form %d", (int)n, (int)i);
            if (forms[i].packed) step.query_counts = queries;
            compare(&forms[i], &step, what);
        }
    }
}

static void rows_grow_through_a_horizon(void **state) {
    static const form forms[] = {{.nodes = {&stream, &local, &by_head}},
                                 {.nodes = {&stream, &half}, .row_tokens = 2}};
    static const int32_t lengths[ROWS] = {100, 500, 0, 126};
    (void)state;
    set_pages();
    for (size_t i = 0; i < COUNT(forms); i++) {
        for (int32_t horizon = 2; horizon < 60; horizon += 19) {
            fig_step step = step_of(&forms[i], lengths);
            step.horizon = horizon;
            compare(&forms[i], &step, "a horizon");
        }
    }
}

/* The hidden pages of a stream, and those before a local chunk. */
static void hidden_pages_need_not_exist(void **state) {
    static const form streams = {.nodes = {&stream, &scaled}}, locals = {.nodes = {&local}};
    static const int32_t lengths[ROWS] = {1024, 900, 512, 700};
    const fig_step step = step_of(&streams, lengths);
    (void)state;
    for (int32_t i = 0; i < 2; i++) {
        const form *of = i == 0 ? &streams : &locals;
        fig_graphs *graphs = lower(of, 0), *truth = lower(of, 1);
        fig_engine *engine = open_engine(of, graphs), *other = open_engine(of, truth);
        set_pages();
        run(other, &step, wanted);
        for (int32_t r = 0; r < ROWS; r++) {
            const int32_t last = lengths[r] - 1;
            hide_pages(r, i == 0, i == 0 ? (last - 99) / PAGE : last / 128 * 128 / PAGE);
        }
        run(engine, &step, found);
        assert_near(found, wanted, "hidden pages");
        fig_engine_close(engine);
        fig_engine_close(other);
        fig_graphs_destroy(graphs);
        fig_graphs_destroy(truth);
    }
}

static void a_plan_report_counts_the_tiles_that_are_seen(void **state) {
    static const form forms[] = {{.nodes = {&half}}, {.nodes = {&stream}}};
    static const int32_t lengths[ROWS] = {1024, 1024, 1024, 1024};
    (void)state;
    for (size_t i = 0; i < COUNT(forms); i++) {
        fig_graphs *graphs = lower(&forms[i], 0), *truth = lower(&forms[i], 1);
        const fig_step step = step_of(&forms[i], lengths);
        int32_t row_tiles[ROWS + 1] = {0, 0, 0, 0, -1};
        fig_plan_report seen = {
            .size = sizeof seen, .row_capacity = ROWS + 1, .row_tiles = row_tiles};
        fig_plan_report all = {.size = sizeof all};
        must(fig_graphs_plan(graphs, &step, &seen));
        must(fig_graphs_plan(truth, &step, &all));
        const int32_t tiles = i == 0 ? 512 / seen.tile_tokens
                                     : 1 + (1023 / seen.tile_tokens - 924 / seen.tile_tokens + 1);
        assert_int_equal(all.tiles, ROWS * (KV_HEADS / all.heads) * 1024 / all.tile_tokens);
        assert_int_equal(seen.tiles, ROWS * (KV_HEADS / seen.heads) * tiles);
        for (int32_t r = 0; r < ROWS; r++)
            assert_int_equal(row_tiles[r], tiles);
        assert_int_equal(row_tiles[ROWS], -1);
        assert_int_equal(seen.plan_bytes, all.plan_bytes);
        assert_int_equal(seen.plan_bytes_limit, all.plan_bytes_limit);
        assert_int_equal(seen.partial_limit, all.partial_limit);
        assert_true(seen.tiles_most - seen.tiles_least <= 1);
        fig_graphs_destroy(graphs);
        fig_graphs_destroy(truth);
    }
}

/* The second class of the program has a mask. */
static void an_engine_stages_the_plan_that_is_reported(void **state) {
    static const form of = {.nodes = {&none, &stream}};
    static const int32_t lengths[ROWS] = {1000, 30, 0, 400};
    int32_t row_tiles[ROWS];
    fig_plan_report report = {.size = sizeof report, .row_capacity = ROWS, .row_tiles = row_tiles};
    fig_graphs *graphs = lower(&of, 0);
    fig_engine *engine = open_engine(&of, graphs);
    const fig_step step = step_of(&of, lengths);
    const fig_inspection *inspection;
    (void)state;
    must(fig_inspection_open(&inspection, graphs, 0));
    must(fig_inspection_plan(inspection, &step, 1, &report));
    run(engine, &step, found);
    const uint8_t *plan = engine->plan.device;
    const fig_plan_head *head = (const void *)plan;
    const fig_plan_shape *shape = &graphs->buckets[report.bucket - 1].plan;
    const int32_t *prefix = (const void *)(plan + shape->layout.prefix[1]);
    assert_true(head->sections & FIG_PLAN_BY_MASKS);
    for (int32_t r = 0; r < ROWS; r++)
        assert_int_equal(prefix[r + 1] - prefix[r], row_tiles[r]);
    assert_true(row_tiles[0] < fig_split_tiles(&shape->splits[1], lengths[0]));
    fig_inspection_close(inspection);
    fig_engine_close(engine);
    fig_graphs_destroy(graphs);
}

static void each_failed_allocation_is_reported(void **state) {
    static const form of = {.nodes = {&stream}};
    static const int32_t lengths[ROWS] = {1000, 30, 0, 400};
    fig_graphs *graphs = lower(&of, 0);
    const fig_step step = step_of(&of, lengths);
    fig_plan_report report = {.size = sizeof report};
    (void)state;
    for (int64_t n = 1;; n++) {
        fig_fault_arm(n);
        const fig_status status = fig_graphs_plan(graphs, &step, &report);
        if (fig_fault_disarm() < n) break;
        assert_int_equal(status, FIG_NOMEM);
    }
    for (int64_t n = 1;; n++) {
        fig_engine *engine;
        fig_fault_arm(n);
        const fig_status status = fig_engine_open(
            &engine, graphs, FIG_OPTIONS(fig_engine_options, .device = FIG_DEVICE_HOST));
        const int64_t calls = fig_fault_disarm();
        fig_engine_close(engine);
        if (calls < n) break;
        assert_int_not_equal(status, FIG_OK);
    }
    fig_graphs_destroy(graphs);
}

/* The result bits of a row in a deterministic engine do not depend on the rows beside it. */
static void a_deterministic_row_keeps_its_bits(void **state) {
    static const form of = {.nodes = {&stream, &local}, .deterministic = 1};
    static const int32_t lengths[][ROWS] = {{800, 0, 0, 0}, {800, 1000, 3, 77}};
    static float bits[2][NODES * VECTORS];
    fig_graphs *graphs = lower(&of, 0);
    fig_engine *engine = open_engine(&of, graphs);
    (void)state;
    set_pages();
    for (int32_t i = 0; i < 2; i++) {
        const fig_step step = step_of(&of, lengths[i]);
        run(engine, &step, bits[i]);
    }
    for (int32_t n = 0; n < 2; n++)
        assert_memory_equal(bits[0] + n * VECTORS, bits[1] + n * VECTORS,
                            Q_HEADS * HEAD_DIM * sizeof(float));
    fig_engine_close(engine);
    fig_graphs_destroy(graphs);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mask_is_a_part_of_the_key_of_a_class),
        cmocka_unit_test(a_program_with_too_many_masks_keeps_one_line),
        cmocka_unit_test(a_plan_of_the_device_knows_no_mask),
        cmocka_unit_test(nodes_of_a_class_with_a_mask_have_as_many_heads),
        cmocka_unit_test(every_step_is_computed_from_what_is_seen),
        cmocka_unit_test(rows_grow_through_a_horizon),
        cmocka_unit_test(hidden_pages_need_not_exist),
        cmocka_unit_test(a_plan_report_counts_the_tiles_that_are_seen),
        cmocka_unit_test(an_engine_stages_the_plan_that_is_reported),
        cmocka_unit_test(each_failed_allocation_is_reported),
        cmocka_unit_test(a_deterministic_row_keeps_its_bits),
    };
    return cmocka_run_group_tests_name("mask plans", tests, set_up, NULL);
}
