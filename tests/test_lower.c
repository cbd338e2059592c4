/* test_lower.c: a bucket's split has the workers that its machine and its tiles allow, its launches
 * keep the order that data and shared workspace ask for, and the same program gives the same bytes.
 *
 * The dumber truth about order is the closure of all causes, pair by pair. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "graphs/lower.h"
#include "planner/bounds.h"
#include "tests/support/fault.h"
#include "tests/support/random.h"
#include "tests/support/sample.h"

enum { NODE_CAPACITY = 24, PROGRAM_COUNT = 300 };

static fig_status shape_for(const fig_program *program, const fig_lower_target *target,
                            const fig_bucket *caps, int32_t variant, fig_bucket_shape *shape) {
    memset(shape, 0xff, sizeof *shape);
    shape->caps = *caps;
    shape->variant = variant;
    return fig_lower_shape(fig_program_view_of(program), target, 3, shape);
}

/* Every byte of the params, the workspace and the launches of one bucket. */
typedef struct ground {
    fig_bucket_shape shape;
    fig_workspace workspace;
    fig_lower_order order;
    fig_lower_source source;
    fig_lowered lowered;
} ground;

static void ground_make(ground *g, const fig_program *program) {
    const fig_lower_target target = fig_sample_target("host");
    const fig_bucket caps = {4, 100};
    const fig_program_view *view = fig_program_view_of(program);
    assert_int_equal(shape_for(program, &target, &caps, 0, &g->shape), FIG_OK);
    assert_int_equal(fig_workspace_init(&g->workspace, view, &g->shape, 1), FIG_OK);
    assert_int_equal(fig_lower_order_init(&g->order, view), FIG_OK);
    g->source = (fig_lower_source){view, &g->order, &g->workspace};
    if (fig_lower_bucket(&g->source, &g->shape, &g->lowered) != FIG_OK)
        fail_msg("%s", fig_message());
}

static void ground_finish(ground *g) {
    fig_lower_finish(&g->lowered);
    fig_lower_order_finish(&g->order);
    fig_workspace_finish(&g->workspace);
}

/* ---- Shape ----------------------------------------------------------------------------------- */

/* 2 kv heads; variant 0 reads one in tiles of 16 KB, variant 1 both, 8 KB; a GPU's worker 64 KB. */
static void workers_are_the_machines_or_the_tiles(void **state) {
    (void)state;
    static const struct {
        const char *traits;
        fig_bucket caps;
        int32_t variant, groups, tile_tokens, workers, tile_limit;
    } cases[] = {
        {"host", {1, 1}, 0, 2, 64, 2, 2},     {"host", {1, 1}, 1, 1, 16, 1, 1},
        {"host", {1, 200}, 0, 2, 64, 8, 8},   {"h200", {1, 200}, 0, 2, 64, 2, 8},
        {"h200", {1, 200}, 1, 1, 16, 2, 13},  {"h200", {6, 200}, 0, 2, 64, 12, 48},
        {"h200", {6, 200}, 1, 1, 16, 10, 78}, {"a100", {6, 200}, 0, 2, 64, 12, 48},
        {"host", {6, 200}, 1, 1, 16, 8, 78},
    };
    const fig_spec spec = fig_sample_spec();
    fig_program *program = fig_sample_step(&spec);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const fig_lower_target target = fig_sample_target(cases[i].traits);
        fig_bucket_shape shape;
        assert_int_equal(shape_for(program, &target, &cases[i].caps, cases[i].variant, &shape),
                         FIG_OK);
        const fig_split_shape expected = {.row_limit = cases[i].caps.batch,
                                          .groups = cases[i].groups,
                                          .tile_tokens = cases[i].tile_tokens,
                                          .workers = cases[i].workers,
                                          .row_tokens = 1,
                                          .tile_limit = cases[i].tile_limit};
        if (memcmp(&shape.plan.splits[0], &expected, sizeof expected) != 0)
            fail_msg("case %zu: groups %d, tiles of %d, %d workers", i, shape.plan.splits[0].groups,
                     shape.plan.splits[0].tile_tokens, shape.plan.splits[0].workers);
        assert_int_equal(shape.token_bytes[0], 2 * (2 / cases[i].groups) * 64 * 2);
        assert_int_equal(shape.plan.exec, 3);
        assert_int_equal(shape.plan.row_limit, cases[i].caps.batch);
        assert_int_equal(shape.plan.class_count, 1);
        assert_true(shape.plan.layout.bytes > sizeof(fig_plan_head));
    }
    fig_program_destroy(program);
}

/* The layer's own tokens of a row; the window counts from the first query of the row. */
static void a_class_brings_its_window_and_row_tokens(void **state) {
    (void)state;
    fig_program *program = fig_sample_breadth();
    const fig_lower_target target = fig_sample_target("host");
    fig_bucket_shape shape;
    assert_int_equal(shape_for(program, &target, &(fig_bucket){6, 200}, 1, &shape), FIG_OK);
    assert_int_equal(shape.plan.class_count, 2);
    for (int i = 0; i < 2; i++) {
        const fig_split_shape *split = &shape.plan.splits[i];
        assert_int_equal(split->window, i == 0 ? 40 : 0);
        assert_int_equal(split->row_tokens, 2);
        assert_int_equal(split->fixed, 0);
        /* 41 tokens touch at most four tiles of 16, or 200 thirteen. */
        assert_int_equal(split->tile_limit, 6 * (i == 0 ? 4 : 13));
        assert_int_equal(split->tile_limit,
                         split->groups * fig_bounds_tiles(split, INT64_C(6) * 200, 200));
        assert_int_equal(shape.token_bytes[i], 2 * 2 * 64 * 1);
    }
    fig_program_destroy(program);
}

/* Tiles, heads and what a tile holds are the same in every bucket and on every machine. */
static void a_deterministic_split_is_fixed_and_alike_in_every_bucket(void **state) {
    (void)state;
    static const fig_bucket caps[] = {{1, 100}, {1, 200}, {6, 100}, {6, 200}};
    static const char *const machines[] = {"host", "h200", "a100"};
    const fig_spec spec = fig_sample_spec();
    fig_program *program = fig_sample_step(&spec);
    const fig_program_view *view = fig_program_view_of(program);
    for (int i = 0; i < 12; i++) {
        fig_lower_target target = fig_sample_target(machines[i / 4]);
        fig_bucket_shape shape;
        target.deterministic = 1;
        assert_int_equal(shape_for(program, &target, &caps[i % 4], 0, &shape), FIG_OK);
        const fig_split_shape *split = &shape.plan.splits[0];
        assert_int_equal(split->fixed, 1);
        assert_int_equal(split->tile_tokens, FIG_FIXED_TILE_TOKENS);
        assert_int_equal(split->groups, 2);
        assert_int_equal(split->tile_limit, 2 * caps[i % 4].batch);
        assert_int_equal(fig_split_partial_limit(split), split->tile_limit);
        assert_int_equal(fig_lower_variant_serves(view, &target, 0), 1);
        assert_int_equal(fig_lower_variant_serves(view, &target, 1), 0);
        FIG_SAMPLE_REFUSES(shape_for(program, &target, &caps[i % 4], 1, &shape), FIG_INVALID,
                           "variant is 1, it must be 0 where splits are fixed");
    }
    fig_program_destroy(program);
}

/* A bucket that no row of two tokens fits in still has a grid. */
static void a_bucket_of_no_tile_has_a_worker(void **state) {
    (void)state;
    fig_program *program = fig_sample_breadth();
    const fig_lower_target target = fig_sample_target("host");
    fig_bucket_shape shape;
    assert_int_equal(shape_for(program, &target, &(fig_bucket){1, 1}, 0, &shape), FIG_OK);
    assert_int_equal(shape.plan.splits[0].tile_limit, 0);
    assert_int_equal(shape.plan.splits[0].workers, 1);
    fig_program_destroy(program);
}

static void a_machine_of_a_thousand_places_is_used_whole(void **state) {
    (void)state;
    fig_spec spec = fig_sample_spec();
    spec.batch_limit = 1024;
    spec.kv_limit = 4096;
    fig_program *program = fig_sample_step(&spec);
    fig_lower_target target = fig_sample_target("h200");
    fig_bucket_shape shape;
    target.traits.sm_count = 1024;
    assert_int_equal(shape_for(program, &target, &(fig_bucket){1024, 4096}, 0, &shape), FIG_OK);
    assert_int_equal(shape.plan.splits[0].workers, FIG_WORKER_LIMIT);
    target.traits.sm_count = 100000;
    assert_int_equal(shape_for(program, &target, &(fig_bucket){1024, 4096}, 0, &shape), FIG_OK);
    assert_int_equal(shape.plan.splits[0].workers, FIG_WORKER_LIMIT);
    fig_program_destroy(program);
}

static void caps_beyond_the_spec_are_refused(void **state) {
    (void)state;
    const fig_spec spec = fig_sample_spec();
    fig_program *program = fig_sample_step(&spec);
    const fig_lower_target target = fig_sample_target("host");
    fig_bucket_shape shape;
    FIG_SAMPLE_REFUSES(shape_for(program, &target, &(fig_bucket){0, 1}, 0, &shape), FIG_INVALID,
                       "batch is 0, limits 1 to 6");
    FIG_SAMPLE_REFUSES(shape_for(program, &target, &(fig_bucket){7, 1}, 0, &shape), FIG_INVALID,
                       "batch is 7, limits 1 to 6");
    FIG_SAMPLE_REFUSES(shape_for(program, &target, &(fig_bucket){6, 0}, 0, &shape), FIG_INVALID,
                       "kv is 0, limits 1 to 200");
    FIG_SAMPLE_REFUSES(shape_for(program, &target, &(fig_bucket){6, 201}, 0, &shape), FIG_INVALID,
                       "kv is 201, limits 1 to 200");
    FIG_SAMPLE_REFUSES(shape_for(program, &target, &(fig_bucket){6, 1}, -1, &shape), FIG_INVALID,
                       "variant is -1");
    FIG_SAMPLE_REFUSES(shape_for(program, &target, &(fig_bucket){6, 1}, 2, &shape), FIG_INVALID,
                       "variant is 2, limits 0 to 1");
    fig_program_destroy(program);
}

/* The spec bounds its own heads; a program may have attention over more. */
static void a_line_that_an_int_cannot_count_is_refused(void **state) {
    (void)state;
    fig_spec spec = fig_sample_spec();
    spec.batch_limit = 1024;
    spec.kv_limit = 1 << 20;
    fig_program *program = fig_sample_program(&spec);
    fig_sample_attention(program, "wide", &(fig_sample_heads){256, 256, 64});
    if (fig_program_finish(program) != FIG_OK) fail_msg("%s", fig_message());
    const fig_lower_target target = fig_sample_target("h200");
    fig_bucket_shape shape;
    FIG_SAMPLE_REFUSES(shape_for(program, &target, &(fig_bucket){1024, 1 << 20}, 0, &shape),
                       FIG_TOO_LARGE, "bucket 1024 x 1048576: 4294967296 tiles in 256 head groups");
    assert_int_equal(shape_for(program, &target, &(fig_bucket){1024, 1 << 18}, 0, &shape), FIG_OK);
    FIG_SAMPLE_REFUSES(shape_for(program, &target, &(fig_bucket){1024, 1 << 20}, 1, &shape),
                       FIG_TOO_LARGE, "2147483648 tiles");
    fig_program_destroy(program);
}

static fig_program *record_calls_alone(void) {
    const fig_spec spec = fig_sample_spec();
    fig_program *program = fig_sample_program(&spec);
    fig_call(program, FIG_OPTIONS(fig_call_op, .call = "c"));
    assert_int_equal(fig_program_finish(program), FIG_OK);
    return program;
}

/* 2 kv heads. */
static void records_of_a_callers_own_shape_a_bucket_in_place_of_the_machines(void **state) {
    (void)state;
    const fig_spec spec = fig_sample_spec();
    fig_program *program = fig_sample_step(&spec);
    const fig_program_view *view = fig_program_view_of(program);
    const fig_lower_target target = fig_sample_target("h200");
    fig_variant own = {.name = "mine",
                       .heads = 2,
                       .tile_tokens = 32,
                       .workers_per_sm = 2,
                       .stages = 5,
                       .bytes_per_us = 1};
    fig_bucket_shape shape = {.caps = {6, 200}, .variant = 9};
    assert_int_equal(fig_lower_shape_of(view, &target, 3, &own, &shape), FIG_OK);
    assert_int_equal(shape.variant, 9);
    assert_memory_equal(&shape.variants[0], &own, sizeof own);
    assert_int_equal(shape.plan.splits[0].groups, 1);
    assert_int_equal(shape.plan.splits[0].tile_tokens, 32);
    own.heads = 3;
    FIG_SAMPLE_REFUSES(fig_lower_shape_of(view, &target, 3, &own, &shape), FIG_INVALID,
                       "variant mine reads 3 of 2 kv heads");
    fig_program_destroy(program);
}

static void without_attention_there_is_no_split_and_one_variant(void **state) {
    (void)state;
    fig_program *program = record_calls_alone();
    const fig_lower_target target = fig_sample_target("host");
    const fig_program_view *view = fig_program_view_of(program);
    ground g;
    ground_make(&g, program);
    assert_int_equal(g.shape.plan.class_count, 0);
    assert_int_equal(g.workspace.bytes, 0);
    assert_int_equal(g.lowered.launch_count, 2);
    assert_int_equal(fig_lower_variant_serves(view, &target, 0), 1);
    assert_int_equal(fig_lower_variant_serves(view, &target, 1), 0);
    ground_finish(&g);
    fig_program_destroy(program);

    /* One kv head leaves both variants one head, but tiles of another length. */
    for (int32_t kv_heads = 1; kv_heads <= 2; kv_heads++) {
        fig_spec spec = fig_sample_spec();
        spec.kv_heads = kv_heads;
        program = fig_sample_step(&spec);
        assert_int_equal(fig_lower_variant_serves(fig_program_view_of(program), &target, 1), 1);
        fig_program_destroy(program);
    }
}

static void a_class_too_many_is_not_shaped(void **state) {
    (void)state;
    const fig_spec spec = fig_sample_spec();
    fig_program *program = fig_sample_program(&spec);
    const fig_lower_target target = fig_sample_target("host");
    fig_bucket_shape shape;
    char name[16];
    for (int i = 0; i < 5; i++) {
        snprintf(name, sizeof name, "%d", i);
        fig_sample_attention(program, name, &(fig_sample_heads){16, 1 << i, 64});
    }
    assert_int_equal(fig_program_finish(program), FIG_OK);
    FIG_SAMPLE_REFUSES(shape_for(program, &target, &(fig_bucket){1, 1}, 0, &shape), FIG_UNSUPPORTED,
                       "node 4 (attention): 16 kv heads, window 0 and 1 tokens of a row");
    fig_program_destroy(program);
}

/* ---- Launches -------------------------------------------------------------------------------- */

/* Nodes of any kind on a few tensors, so that some meet and some do not. */
static fig_program *record_random(fig_random *random) {
    static const int64_t kv_heads[] = {1, 2, 4};
    const fig_spec spec = fig_sample_spec();
    fig_program *program = fig_sample_program(&spec);
    const int32_t count = fig_random_range(random, 1, NODE_CAPACITY - 1);
    fig_tensor tensors[4];
    char name[16];
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "t%d", i);
        tensors[i] = fig_sample_rows(program, name, 4, 64);
    }
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "c%d", i);
        fig_sample_cache(program, name, kv_heads[i], 64);
    }
    for (int32_t n = 0; n < count; n++) {
        const int32_t from = fig_random_range(random, 0, 3);
        const fig_tensor in = tensors[from];
        const fig_tensor out = tensors[(from + fig_random_range(random, 1, 3)) % 4];
        snprintf(name, sizeof name, "k_c%d", fig_random_range(random, 0, 2));
        const fig_tensor k = fig_program_find(program, name);
        name[0] = 'v';
        const fig_cache cache = {.k = k, .v = fig_program_find(program, name)};
        switch (fig_random_range(random, 0, 2)) {
        case 0:
            fig_attention(program,
                          FIG_OPTIONS(fig_attention_op, .q = in, .out = out, .cache = cache));
            break;
        case 1: fig_rope(program, FIG_OPTIONS(fig_rope_op, .q = in, .k = out)); break;
        default:
            fig_call(program,
                     FIG_OPTIONS(fig_call_op, .call = "c", .reads = &in, .read_count = 1,
                                 .writes = &out, .write_count = fig_random_range(random, 0, 1)));
        }
    }
    if (fig_program_finish(program) != FIG_OK) fail_msg("%s", fig_message());
    return program;
}

/* Every other launch reads what the second writes, and runs after it. */
static void a_plan_made_on_the_device_comes_before_all_but_its_fetch(void **state) {
    (void)state;
    fig_program *program = fig_sample_breadth();
    ground g;
    ground_make(&g, program);
    assert_int_equal(g.lowered.launches[1].op, FIG_OP_PLAN);
    assert_true(g.lowered.launch_count > 10);
    uint8_t *after = calloc(g.lowered.launch_count, 1);
    assert_non_null(after);
    after[1] = 1;
    for (uint32_t i = 0; i < g.lowered.edge_count; i++) {
        const fig_edge edge = g.lowered.edges[i];
        if (edge.from == 0) assert_int_equal(edge.to, 1); /* the rest is implied */
        after[edge.to] |= after[edge.from];
    }
    for (uint32_t i = 1; i < g.lowered.launch_count; i++) {
        if (!after[i]) fail_msg("launch %u does not wait for the plan", i);
    }
    free(after);
    ground_finish(&g);
    fig_program_destroy(program);
}

typedef uint8_t order[NODE_CAPACITY][NODE_CAPACITY]; /* [from][to]: 1, from comes first */

static void close_order(order pairs) {
    for (int middle = 0; middle < NODE_CAPACITY; middle++) {
        for (int from = 0; from < NODE_CAPACITY; from++) {
            for (int to = 0; to < NODE_CAPACITY; to++)
                pairs[from][to] |= pairs[from][middle] & pairs[middle][to];
        }
    }
}

/* All that asks for an order: the fetch, memory that two nodes touch, and a class's workspace. */
static void find_causes(const fig_program_view *view, const fig_lowered *lowered, order pairs) {
    for (uint32_t to = 1; to < lowered->launch_count; to++) {
        const fig_node *later = &view->nodes[to - 1];
        pairs[0][to] = 1;
        for (uint32_t from = 1; from < to; from++) {
            const fig_node *earlier = &view->nodes[from - 1];
            const uint32_t shared = lowered->launches[from].split_class;
            pairs[from][to] |= shared != UINT32_MAX && shared == lowered->launches[to].split_class;
            for (uint32_t a = 0; a < earlier->operand_count; a++) {
                for (uint32_t b = 0; b < later->operand_count; b++) {
                    const uint32_t tensor = view->operands[earlier->operand + a];
                    const uint32_t access =
                        fig_program_access(view, earlier, a) | fig_program_access(view, later, b);
                    pairs[from][to] |= tensor != 0 && (access & FIG_ACCESS_WRITE) &&
                                       tensor == view->operands[later->operand + b];
                }
            }
        }
    }
    close_order(pairs);
}

static void launches_keep_every_order_asked_for_and_no_other(void **state) {
    (void)state;
    static order causes, edges, without;
    fig_random random = fig_random_seed(31);
    for (int round = 0; round < PROGRAM_COUNT; round++) {
        fig_program *program = record_random(&random);
        ground g;
        ground_make(&g, program);
        const fig_lowered *lowered = &g.lowered;
        memset(causes, 0, sizeof causes);
        memset(edges, 0, sizeof edges);
        find_causes(fig_program_view_of(program), lowered, causes);
        for (uint32_t i = 0; i < lowered->edge_count; i++)
            edges[lowered->edges[i].from][lowered->edges[i].to] = 1;
        for (uint32_t i = 0; i < lowered->edge_count; i++) {
            const fig_edge edge = lowered->edges[i];
            memcpy(without, edges, sizeof without);
            without[edge.from][edge.to] = 0;
            close_order(without);
            if (without[edge.from][edge.to])
                fail_msg("round %d: edge %u to %u is implied", round, edge.from, edge.to);
        }
        close_order(edges);
        assert_memory_equal(edges, causes, sizeof edges);
        ground_finish(&g);
        fig_program_destroy(program);
    }
}

static void launches_follow_the_nodes_and_params_the_launches(void **state) {
    (void)state;
    fig_random random = fig_random_seed(32);
    for (int round = 0; round < PROGRAM_COUNT; round++) {
        fig_program *program = record_random(&random);
        const fig_program_view *view = fig_program_view_of(program);
        ground g;
        ground_make(&g, program);
        uint32_t params = 0, relocs = 0;
        assert_int_equal(g.lowered.launch_count, view->node_count + 1);
        for (uint32_t i = 0; i < g.lowered.launch_count; i++) {
            const fig_launch *launch = &g.lowered.launches[i];
            const fig_op op = i == 0 ? FIG_OP_FETCH : (fig_op)view->nodes[i - 1].op;
            assert_int_equal(launch->op, op);
            assert_int_equal(launch->node_count, i > 0);
            if (i > 0) assert_int_equal(launch->node, i - 1);
            if (i > 0) assert_int_equal(g.lowered.node_launches[i - 1].first, i);
            if (i > 0) assert_int_equal(g.lowered.node_launches[i - 1].count, 1);
            assert_int_equal(launch->params, params);
            assert_int_equal(launch->params % 64, 0);
            assert_int_equal(launch->reloc, relocs);
            assert_int_equal(launch->split_class == UINT32_MAX, op != FIG_OP_ATTENTION);
            if (op == FIG_OP_CALL) assert_int_equal(launch->params_bytes + launch->reloc_count, 0);
            if (op != FIG_OP_CALL)
                assert_int_equal(launch->params_bytes, fig_kernel_table[op].params_bytes);
            params += (launch->params_bytes + 63) / 64 * 64;
            relocs += launch->reloc_count;
        }
        assert_int_equal(g.lowered.params_bytes, params);
        assert_int_equal(g.lowered.reloc_count, relocs);
        ground_finish(&g);
        fig_program_destroy(program);
    }
}

static uint32_t width_of(const fig_reloc *reloc) {
    return reloc->kind == FIG_RELOC_RING_SLOTS || reloc->kind == FIG_RELOC_RING_BYTES ? 4 : 8;
}

/* Params bound to two sets of places differ in the relocated words, all of them, and nowhere else.
 * Each launch's relocations lie in its own params. */
static void relocations_are_all_that_binding_changes(void **state) {
    (void)state;
    fig_random random = fig_random_seed(33);
    for (int round = 0; round < PROGRAM_COUNT; round++) {
        fig_program *program = record_random(&random);
        ground g;
        ground_make(&g, program);
        const fig_lowered *lowered = &g.lowered;
        uint8_t *bound[2], *relocated = calloc(1, lowered->params_bytes);
        for (int place = 0; place < 2; place++) {
            bound[place] = malloc(lowered->params_bytes);
            memcpy(bound[place], lowered->params, lowered->params_bytes);
        }
        for (uint32_t i = 0; i < lowered->launch_count; i++) {
            const fig_launch *launch = &lowered->launches[i];
            uint32_t end = launch->params;
            for (uint32_t r = launch->reloc; r < launch->reloc + launch->reloc_count; r++) {
                const fig_reloc *reloc = &lowered->relocs[r];
                assert_true(reloc->offset >= end); /* sorted, and apart */
                end = reloc->offset + width_of(reloc);
                assert_true(end <= launch->params + launch->params_bytes);
                memset(relocated + reloc->offset, 1, width_of(reloc));
                memset(bound[0] + reloc->offset, 0x11, width_of(reloc));
                memset(bound[1] + reloc->offset, 0xee, width_of(reloc));
            }
        }
        for (uint32_t i = 0; i < lowered->params_bytes; i++) {
            assert_int_equal(bound[0][i] != bound[1][i], relocated[i]);
            assert_true(!relocated[i] || lowered->params[i] == 0);
        }
        free(bound[0]);
        free(bound[1]);
        free(relocated);
        ground_finish(&g);
        fig_program_destroy(program);
    }
}

/* ---- Digest ---------------------------------------------------------------------------------- */

static void the_same_program_gives_the_same_bytes(void **state) {
    (void)state;
    const fig_spec spec = fig_sample_spec();
    fig_program *a = fig_sample_step(&spec), *b = fig_sample_step(&spec);
    ground g, h;
    ground_make(&g, a);
    ground_make(&h, b);
    assert_memory_equal(&g.shape, &h.shape, sizeof g.shape);
    assert_int_equal(g.lowered.params_bytes, h.lowered.params_bytes);
    assert_memory_equal(g.lowered.params, h.lowered.params, g.lowered.params_bytes);
    assert_true(fig_lower_digest(&g.lowered) == fig_lower_digest(&h.lowered));
    ground_finish(&g);
    ground_finish(&h);
    fig_program_destroy(a);
    fig_program_destroy(b);
}

static void change_each_byte(const fig_lowered *lowered, void *array, size_t count) {
    const uint64_t digest = fig_lower_digest(lowered);
    uint8_t *bytes = array;
    for (size_t i = 0; i < count; i++) {
        bytes[i] ^= 1;
        if (fig_lower_digest(lowered) == digest) fail_msg("byte %zu of %zu is not seen", i, count);
        bytes[i] ^= 1;
    }
}

static void the_digest_sees_every_byte_and_count(void **state) {
    (void)state;
    const fig_spec spec = fig_sample_spec();
    fig_program *program = fig_sample_step(&spec);
    ground g;
    ground_make(&g, program);
    fig_lowered *lowered = &g.lowered;
    const uint64_t digest = fig_lower_digest(lowered);
    change_each_byte(lowered, lowered->launches, lowered->launch_count * sizeof(fig_launch));
    change_each_byte(lowered, g.order.edges, lowered->edge_count * sizeof(fig_edge));
    change_each_byte(lowered, lowered->relocs, lowered->reloc_count * sizeof(fig_reloc));
    change_each_byte(lowered, lowered->params, lowered->params_bytes);
    uint32_t *counts[] = {&lowered->launch_count, &lowered->edge_count, &lowered->reloc_count,
                          &lowered->params_bytes};
    for (int i = 0; i < 4; i++) {
        --*counts[i];
        assert_true(fig_lower_digest(lowered) != digest);
        ++*counts[i];
    }
    assert_true(fig_lower_digest(lowered) == digest);
    ground_finish(&g);
    fig_program_destroy(program);
}

static void each_allocation_that_fails_is_reported(void **state) {
    (void)state;
    const fig_spec spec = fig_sample_spec();
    fig_program *program = fig_sample_step(&spec);
    ground g;
    int64_t n = 1;
    ground_make(&g, program);
    for (;; n++) {
        fig_lowered lowered;
        memset(&lowered, 0xff, sizeof lowered);
        fig_fault_arm(n);
        const fig_status status = fig_lower_bucket(&g.source, &g.shape, &lowered);
        const int64_t calls = fig_fault_disarm();
        if (calls < n) {
            fig_lower_finish(&lowered);
            break;
        }
        FIG_SAMPLE_REFUSES(status, FIG_NOMEM, ": ");
        assert_null(lowered.launches);
        assert_int_equal(lowered.launch_count, 0);
    }
    assert_int_equal(n, 5);
    ground_finish(&g);
    fig_program_destroy(program);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(workers_are_the_machines_or_the_tiles),
        cmocka_unit_test(a_class_brings_its_window_and_row_tokens),
        cmocka_unit_test(a_deterministic_split_is_fixed_and_alike_in_every_bucket),
        cmocka_unit_test(a_bucket_of_no_tile_has_a_worker),
        cmocka_unit_test(a_machine_of_a_thousand_places_is_used_whole),
        cmocka_unit_test(caps_beyond_the_spec_are_refused),
        cmocka_unit_test(a_line_that_an_int_cannot_count_is_refused),
        cmocka_unit_test(records_of_a_callers_own_shape_a_bucket_in_place_of_the_machines),
        cmocka_unit_test(without_attention_there_is_no_split_and_one_variant),
        cmocka_unit_test(a_plan_made_on_the_device_comes_before_all_but_its_fetch),
        cmocka_unit_test(a_class_too_many_is_not_shaped),
        cmocka_unit_test(launches_keep_every_order_asked_for_and_no_other),
        cmocka_unit_test(launches_follow_the_nodes_and_params_the_launches),
        cmocka_unit_test(relocations_are_all_that_binding_changes),
        cmocka_unit_test(the_same_program_gives_the_same_bytes),
        cmocka_unit_test(the_digest_sees_every_byte_and_count),
        cmocka_unit_test(each_allocation_that_fails_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
