/* test_program.c: tests that everything recorded is either kept or refused, that the first refusal
 * is kept, and that a copy equals its original. test_restore.c tests arrays from files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "graphs/record/program.h"
#include "planner/spec/spec.h"
#include "planner/status.h"
#include "tests/support/fault.h"
#include "tests/support/files/sample.h"

/* ---- Recording ------------------------------------------------------------------------------- */

static fig_program *begin(void) {
    const fig_spec spec = fig_sample_spec();
    return fig_sample_program(&spec);
}

static fig_status end(fig_program *program) {
    const fig_status status = fig_program_finish(program);
    fig_program_destroy(program);
    return status;
}

/* Adds a node that uses the tensor, since a program needs at least one node. */
static void touch(fig_program *program, fig_tensor tensor) {
    fig_call(program,
             FIG_OPTIONS(fig_call_op, .call = "touch", .writes = &tensor, .write_count = 1));
}

static fig_status record_tensor(const fig_tensor_info *info) {
    fig_program *program = begin();
    const fig_tensor tensor = fig_program_tensor(program, info);
    touch(program, tensor);
    const fig_status status = end(program);
    assert_int_equal(tensor.id == 0, status != FIG_OK);
    return status;
}

#define TENSOR(...) record_tensor(FIG_OPTIONS(fig_tensor_info, .name = "t", __VA_ARGS__))

static void sound_tensors_are_kept(void **state) {
    (void)state;
    assert_int_equal(TENSOR(.dtype = FIG_F32, .rank = 1, .dims = {1}), FIG_OK);
    assert_int_equal(TENSOR(.dtype = FIG_I64, .rank = 4, .dims = {FIG_DIM_BATCH, 2, 3, 4}), FIG_OK);
    assert_int_equal(TENSOR(.role = FIG_ROLE_BOUND, .dtype = FIG_BF16, .rank = 2,
                            .dims = {FIG_DIM_PAGES, 9, 1, 1}),
                     FIG_OK);
    assert_int_equal(TENSOR(.dtype = FIG_F16, .rank = 1, .dims = {INT64_C(1) << 45}), FIG_OK);
    assert_int_equal(TENSOR(.dtype = FIG_E4M3, .rank = 1, .dims = {FIG_DIM_BATCH}, .multiple = 64),
                     FIG_OK);
    assert_int_equal(TENSOR(.dtype = FIG_F16, .rank = 1, .dims = {7}, .multiple = 1), FIG_OK);
    assert_int_equal(TENSOR(.role = FIG_ROLE_STATE, .dtype = FIG_E5M2, .rank = 4,
                            .dims = {FIG_DIM_PAGES, 2, 3, 4}, .multiple = 2, .layout = FIG_HND),
                     FIG_OK);
}

static void unsound_tensors_are_refused(void **state) {
    (void)state;
    FIG_SAMPLE_REFUSES(TENSOR(.role = (fig_role)3, .dtype = FIG_F32, .rank = 1, .dims = {1}),
                       FIG_INVALID, "tensor t: role is 3, limits 0 to 2");
    FIG_SAMPLE_REFUSES(TENSOR(.role = (fig_role)256, .dtype = FIG_F32, .rank = 1, .dims = {1}),
                       FIG_INVALID, "tensor t: role is 256");
    FIG_SAMPLE_REFUSES(TENSOR(.dtype = (fig_dtype)6, .rank = 1, .dims = {1}), FIG_INVALID,
                       "tensor t: dtype is 6");
    FIG_SAMPLE_REFUSES(TENSOR(.dtype = (fig_dtype)(256 + FIG_F32), .rank = 1, .dims = {1}),
                       FIG_INVALID, "tensor t: dtype is 257");
    FIG_SAMPLE_REFUSES(TENSOR(.dtype = FIG_F32), FIG_INVALID, "tensor t: rank is 0");
    FIG_SAMPLE_REFUSES(TENSOR(.dtype = FIG_F32, .rank = 5, .dims = {1, 1, 1, 1}), FIG_INVALID,
                       "tensor t: rank is 5, limits 1 to 4");
    FIG_SAMPLE_REFUSES(TENSOR(.dtype = FIG_F32, .rank = 257, .dims = {1}), FIG_INVALID,
                       "tensor t: rank is 257");
    FIG_SAMPLE_REFUSES(TENSOR(.dtype = FIG_F32, .rank = 2, .dims = {1}), FIG_INVALID,
                       "tensor t: dims[1] is 0, it must be positive");
    FIG_SAMPLE_REFUSES(TENSOR(.dtype = FIG_F32, .rank = 2, .dims = {1, FIG_DIM_BATCH}), FIG_INVALID,
                       "tensor t: dims[1] is -1");
    FIG_SAMPLE_REFUSES(TENSOR(.dtype = FIG_F32, .rank = 1, .dims = {FIG_DIM_QUERIES}), FIG_INVALID,
                       "tensor t: dims[0] is FIG_DIM_QUERIES, but the spec's query_limit is 0");
    FIG_SAMPLE_REFUSES(TENSOR(.dtype = FIG_F32, .rank = 1, .dims = {-4}), FIG_INVALID,
                       "tensor t: dims[0] is -4");
    FIG_SAMPLE_REFUSES(TENSOR(.dtype = FIG_F32, .rank = 1, .dims = {1, 2}), FIG_INVALID,
                       "tensor t: dims[1] is 2 past rank 1");
    FIG_SAMPLE_REFUSES(TENSOR(.dtype = FIG_F32, .rank = 1, .dims = {FIG_DIM_PAGES}), FIG_INVALID,
                       "FIG_ROLE_TEMP");
    FIG_SAMPLE_REFUSES(TENSOR(.dtype = FIG_F32, .rank = 1, .dims = {(INT64_C(1) << 44) + 1}),
                       FIG_TOO_LARGE, "tensor t: more than 70368744177664 bytes");
    FIG_SAMPLE_REFUSES(
        TENSOR(.dtype = FIG_F32, .rank = 4, .dims = {INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX}),
        FIG_TOO_LARGE, "tensor t: more than");
    FIG_SAMPLE_REFUSES(
        TENSOR(.dtype = FIG_F32, .rank = 1, .dims = {FIG_DIM_BATCH}, .multiple = 129), FIG_INVALID,
        "tensor t: multiple is 129, limits 1 to 128");
    FIG_SAMPLE_REFUSES(TENSOR(.dtype = FIG_F32, .rank = 1, .dims = {FIG_DIM_BATCH}, .multiple = -1),
                       FIG_INVALID, "tensor t: multiple is -1, limits 1 to 128");
    FIG_SAMPLE_REFUSES(TENSOR(.dtype = FIG_F32, .rank = 1, .dims = {6}, .multiple = 2), FIG_INVALID,
                       "tensor t: multiple is 2, but dims[0] is 6 and not symbolic");
    FIG_SAMPLE_REFUSES(
        TENSOR(.dtype = FIG_F32, .rank = 4, .dims = {1, 1, 1, 1}, .layout = (fig_kv_layout)2),
        FIG_INVALID, "tensor t: layout is 2, limits 0 to 1");
    FIG_SAMPLE_REFUSES(
        TENSOR(.dtype = FIG_F32, .rank = 4, .dims = {1, 1, 1, 1}, .layout = (fig_kv_layout)256),
        FIG_INVALID, "tensor t: layout is 256");
    FIG_SAMPLE_REFUSES(TENSOR(.dtype = FIG_F32, .rank = 3, .dims = {1, 1, 1}, .layout = FIG_HND),
                       FIG_INVALID, "tensor t: layout is FIG_HND and rank 3, it must be 4");
    FIG_SAMPLE_REFUSES(TENSOR(.dtype = FIG_F32, .rank = 2,
                              .dims = {FIG_DIM_BATCH, (INT64_C(1) << 44) / 6 / 64 + 1},
                              .multiple = 64),
                       FIG_TOO_LARGE, "tensor t: more than 70368744177664 bytes");
    FIG_SAMPLE_REFUSES(record_tensor(FIG_OPTIONS(fig_tensor_info, .name = "a/b")), FIG_INVALID,
                       "\"a/b\"");
    FIG_SAMPLE_REFUSES(record_tensor(FIG_OPTIONS(fig_tensor_info, .rank = 1)), FIG_INVALID,
                       "name is NULL");
    FIG_SAMPLE_REFUSES(record_tensor(&(fig_tensor_info){.name = "t"}), FIG_INVALID,
                       "fig_tensor_info: size is 0");
}

static void bytes_are_those_of_all_rows_or_of_one_page(void **state) {
    (void)state;
    fig_program *program = begin();
    const fig_program_view *view = fig_program_view_of(program);
    const fig_tensor rows = fig_sample_rows(program, "rows", 3, 5);
    const fig_cache cache = fig_sample_cache(program, "cache", 2, 64);
    const fig_tensor fixed =
        fig_program_tensor(program, FIG_OPTIONS(fig_tensor_info, .name = "fixed", .dtype = FIG_I64,
                                                .rank = 2, .dims = {7, 11}));
    const fig_tensor several = fig_program_tensor(
        program, FIG_OPTIONS(fig_tensor_info, .name = "several", .dtype = FIG_E5M2, .rank = 2,
                             .dims = {FIG_DIM_BATCH, 11}, .multiple = 3));
    const fig_tensor pages = fig_program_tensor(
        program,
        FIG_OPTIONS(fig_tensor_info, .name = "pages", .role = FIG_ROLE_BOUND, .dtype = FIG_E4M3,
                    .rank = 2, .dims = {FIG_DIM_PAGES, 11}, .multiple = 2));
    assert_int_equal(fig_program_view_tensor_bytes(view, several.id), 6 * 3 * 11);
    assert_int_equal(fig_program_view_tensor_bytes(view, pages.id), 2 * 11);
    assert_int_equal(fig_program_view_extent(&view->tensors[several.id - 1], 5), 15);
    assert_int_equal(fig_program_view_extent(&view->tensors[fixed.id - 1], 5), 7);
    assert_int_equal(fig_program_view_tensor_bytes(view, rows.id), 6 * 3 * 5 * 2);
    assert_int_equal(fig_program_view_tensor_bytes(view, cache.k.id), 200 * 2 * 64 * 2);
    assert_int_equal(fig_program_view_tensor_bytes(view, fixed.id), 7 * 11 * 8);
    fig_program_destroy(program);
}

static void ten_thousand_tensors_are_found_by_name(void **state) {
    (void)state;
    enum { COUNT = 10000 };
    fig_program *program = begin();
    char name[32];
    /* "touch" names a call, not a tensor. */
    touch(program, fig_sample_rows(program, "first", 1, 8));
    for (int i = 0; i < COUNT; i++) {
        snprintf(name, sizeof name, "t.%d", i);
        assert_int_equal(fig_sample_rows(program, name, 1, 8).id, i + 2);
    }
    assert_int_equal(fig_program_find(program, "t.0").id, 2);
    assert_int_equal(fig_program_find(program, "t.9999").id, COUNT + 1);
    assert_int_equal(fig_program_find(program, "t.10000").id, 0);
    assert_int_equal(fig_program_find(program, "touch").id, 0);
    assert_int_equal(fig_program_find(program, NULL).id, 0);
    assert_int_equal(fig_sample_rows(program, "touch", 1, 8).id, COUNT + 2);
    assert_int_equal(fig_program_find(program, "touch").id, COUNT + 2);
    assert_int_equal(fig_sample_rows(program, "t.77", 1, 8).id, 0);
    FIG_SAMPLE_REFUSES(end(program), FIG_INVALID, "tensor t.77: name is taken by tensor 79");
}

static void the_first_failure_stays(void **state) {
    (void)state;
    fig_program *program = begin();
    touch(program, fig_sample_rows(program, "a", 1, 8));
    fig_program_layer(program, 2);
    assert_int_equal(fig_sample_rows(program, "b", 1, 8).id, 0);
    touch(program, (fig_tensor){77});
    fig_program_decode_step(program);
    assert_int_equal(fig_program_view_of(program)->tensor_count, 1);
    assert_int_equal(fig_program_view_of(program)->node_count, 1);
    fig_fail(FIG_NOMEM, "of another call");
    FIG_SAMPLE_REFUSES(fig_program_finish(program), FIG_INVALID,
                       "program: layer is 2, limits -1 to 1");
    fig_fail(FIG_NOMEM, "of another call");
    assert_int_equal(fig_program_refuse(program, FIG_NOMEM), FIG_INVALID);
    fig_program *clone = program;
    FIG_SAMPLE_REFUSES(fig_program_clone(&clone, program), FIG_INVALID, "layer is 2");
    assert_null(clone);
    fig_program_destroy(program);
}

static void finishing_freezes(void **state) {
    (void)state;
    fig_program *clone, *program = begin();
    touch(program, fig_sample_rows(program, "a", 1, 8));
    FIG_SAMPLE_REFUSES(fig_program_clone(&clone, program), FIG_ORDER, "program: not finished");
    assert_int_equal(fig_program_finish(program), FIG_OK);
    touch(program, (fig_tensor){1});
    FIG_SAMPLE_REFUSES(fig_program_finish(program), FIG_ORDER, "recorded into after finish");
    assert_int_equal(fig_program_view_of(program)->node_count, 1);
    fig_program_destroy(program);
}

static void a_program_has_a_node(void **state) {
    (void)state;
    fig_program *program = begin();
    fig_sample_rows(program, "a", 1, 8);
    FIG_SAMPLE_REFUSES(end(program), FIG_INVALID, "no node was recorded");
    FIG_SAMPLE_REFUSES(fig_program_finish(NULL), FIG_INVALID, "program: NULL");
    assert_int_equal(fig_sample_rows(NULL, "a", 1, 8).id, 0);
    fig_program_decode_step(NULL);
    fig_program_destroy(NULL);
}

static void an_unsound_spec_makes_no_program(void **state) {
    (void)state;
    fig_spec spec = fig_sample_spec();
    spec.head_dim = 72;
    fig_program *program = begin(), *refused = program;
    FIG_SAMPLE_REFUSES(fig_program_create(&refused, &spec), FIG_INVALID, "head_dim is 72");
    assert_null(refused);
    fig_program_destroy(program);
}

static void tensors_and_nodes_end_at_their_limits(void **state) {
    (void)state;
    fig_program *program = begin();
    char name[32];
    for (int i = 0; i < FIG_TENSOR_LIMIT; i++) {
        snprintf(name, sizeof name, "t.%d", i);
        assert_int_equal(fig_sample_rows(program, name, 1, 8).id, i + 1);
    }
    for (int i = 0; i < FIG_NODE_LIMIT; i++)
        touch(program, (fig_tensor){(uint32_t)i % 7 + 1});
    fig_program *clone;
    assert_int_equal(fig_program_finish(program), FIG_OK);
    assert_int_equal(fig_program_clone(&clone, program), FIG_OK);
    assert_int_equal(fig_program_view_of(clone)->edge_count, FIG_NODE_LIMIT - 7);
    fig_program_destroy(clone);
    fig_program_destroy(program);

    program = begin();
    for (int i = 0; i <= FIG_NODE_LIMIT; i++)
        fig_call(program, FIG_OPTIONS(fig_call_op, .call = "c"));
    FIG_SAMPLE_REFUSES(end(program), FIG_TOO_LARGE, "8192 nodes and 1 more, limit 8192");
    program = begin();
    for (int i = 0; i <= FIG_TENSOR_LIMIT; i++) {
        snprintf(name, sizeof name, "t.%d", i);
        fig_sample_rows(program, name, 1, 8);
    }
    FIG_SAMPLE_REFUSES(end(program), FIG_TOO_LARGE, "16384 tensors and 1 more, limit 16384");
}

static void nodes_carry_their_layer(void **state) {
    (void)state;
    fig_program *program = begin();
    const fig_tensor a = fig_sample_rows(program, "a", 1, 8);
    touch(program, a);
    fig_program_layer(program, 1);
    touch(program, a);
    fig_program_layer(program, -1);
    touch(program, a);
    const fig_node *nodes = fig_program_view_of(program)->nodes;
    assert_int_equal(nodes[0].layer, -1);
    assert_int_equal(nodes[1].layer, 1);
    assert_int_equal(nodes[2].layer, -1);
    fig_program_layer(program, -2);
    FIG_SAMPLE_REFUSES(end(program), FIG_INVALID, "layer is -2, limits -1 to 1");
}

/* ---- Segments -------------------------------------------------------------------------------- */

static void assert_segment(const fig_program *program, const char *name, uint32_t node,
                           uint32_t node_count) {
    const fig_program_view *view = fig_program_view_of(program);
    fig_segment segment;
    if (!fig_program_view_find_segment(view, name, &segment)) fail_msg("no segment %s", name);
    assert_string_equal(view->strings + segment.name, name);
    assert_int_equal(segment.node, node);
    assert_int_equal(segment.node_count, node_count);
}

/* Tensors and calls may have the same names as segments. */
static void a_segment_holds_the_nodes_recorded_under_it(void **state) {
    (void)state;
    fig_program *program = begin();
    fig_segment segment = {1, 2, 3};
    const fig_tensor a = fig_sample_rows(program, "a", 1, 8);
    assert_int_equal(fig_program_view_find_segment(fig_program_view_of(program), "a", &segment), 0);
    touch(program, a);
    fig_program_segment(program, "a");
    touch(program, a);
    touch(program, a);
    fig_program_segment(program, "touch");
    touch(program, a);
    fig_program_segment(program, NULL);
    touch(program, a);
    fig_program_segment(program, "last");
    touch(program, a);
    assert_int_equal(fig_program_finish(program), FIG_OK);
    assert_int_equal(fig_program_view_of(program)->segment_count, 3);
    assert_segment(program, "a", 1, 2);
    assert_segment(program, "touch", 3, 1);
    assert_segment(program, "last", 5, 1);
    assert_int_equal(fig_program_view_find_segment(fig_program_view_of(program), "b", &segment), 0);
    assert_int_equal(segment.name + segment.node + segment.node_count, 0);
    assert_int_equal(fig_program_find(program, "last").id, 0);
    assert_int_equal(fig_program_find(program, "a").id, a.id);
    fig_program_destroy(program);
}

/* The strings must not keep the name of such a segment either, since it would change the content
 * id. */
static void a_segment_that_no_node_follows_is_not_there(void **state) {
    (void)state;
    uint32_t string_bytes[2];
    for (int named = 0; named < 2; named++) {
        fig_program *program = begin();
        const fig_tensor a = fig_sample_rows(program, "a", 1, 8);
        if (named) fig_program_segment(program, "none");
        if (named) fig_program_segment(program, NULL);
        touch(program, a);
        if (named) fig_program_segment(program, "before");
        fig_program_segment(program, "some");
        touch(program, a);
        if (named) fig_program_segment(program, "behind");
        assert_int_equal(fig_program_finish(program), FIG_OK);
        assert_segment(program, "some", 1, 1);
        assert_int_equal(fig_program_view_of(program)->segment_count, 1);
        string_bytes[named] = fig_program_view_of(program)->string_bytes;
        fig_program_destroy(program);
    }
    assert_int_equal(string_bytes[0], string_bytes[1]);
}

/* Begins up to three segments in turn, and records a node in each except the first. */
static fig_status give_names(const char *first, const char *second, const char *third) {
    fig_program *program = begin();
    const fig_tensor a = fig_sample_rows(program, "a", 1, 8);
    fig_program_segment(program, first);
    fig_program_segment(program, second);
    touch(program, a);
    fig_program_segment(program, third);
    touch(program, a);
    return end(program);
}

static void a_segments_name_is_sound_and_given_once(void **state) {
    (void)state;
    assert_int_equal(give_names("a", "b", "c"), FIG_OK);
    assert_int_equal(give_names(NULL, NULL, NULL), FIG_OK);
    FIG_SAMPLE_REFUSES(give_names("a", "b", "b"), FIG_INVALID,
                       "segment b: the name was given before");
    FIG_SAMPLE_REFUSES(give_names("a", "b", "a"), FIG_INVALID,
                       "segment a: the name was given before");
    FIG_SAMPLE_REFUSES(give_names("a", "a", NULL), FIG_INVALID,
                       "segment a: the name was given before");
    FIG_SAMPLE_REFUSES(give_names("", NULL, NULL), FIG_INVALID, "segment: name \"\" is not");
    FIG_SAMPLE_REFUSES(give_names("fetch", NULL, NULL), FIG_INVALID, "segment fetch: ");
    FIG_SAMPLE_REFUSES(give_names("a/b", NULL, NULL), FIG_INVALID, "segment: name \"a/b\"");
}

static void a_segment_is_recorded_as_all_else_is(void **state) {
    (void)state;
    fig_program *program = begin();
    const fig_tensor a = fig_sample_rows(program, "a", 1, 8);
    fig_program_segment(program, "fetch");
    fig_program_segment(program, "b c");
    touch(program, a);
    assert_int_equal(fig_program_view_of(program)->node_count, 0);
    FIG_SAMPLE_REFUSES(end(program), FIG_INVALID, "segment fetch: ");
    program = begin();
    touch(program, fig_sample_rows(program, "a", 1, 8));
    assert_int_equal(fig_program_finish(program), FIG_OK);
    fig_program_segment(program, NULL);
    FIG_SAMPLE_REFUSES(fig_program_finish(program), FIG_ORDER, "recorded into after finish");
    fig_program_destroy(program);
}

static void the_node_that_makes_plans_is_of_no_segment(void **state) {
    (void)state;
    fig_program *program = begin();
    const fig_tensor lengths = fig_program_tensor(
        program, FIG_OPTIONS(fig_tensor_info, .name = "lengths", .role = FIG_ROLE_BOUND,
                             .dtype = FIG_I32, .rank = 1, .dims = {FIG_DIM_BATCH}));
    fig_program_segment(program, "all");
    fig_program_read_lengths(program, lengths, (fig_tensor){0});
    touch(program, fig_sample_rows(program, "a", 1, 8));
    assert_int_equal(fig_program_finish(program), FIG_OK);
    assert_segment(program, "all", 1, 1);
    fig_program_destroy(program);
}

static void every_node_may_be_a_segment(void **state) {
    (void)state;
    fig_program *program = begin();
    const fig_tensor a = fig_sample_rows(program, "a", 1, 8);
    for (int i = 0; i < FIG_SEGMENT_LIMIT; i++) {
        char name[32];
        snprintf(name, sizeof name, "s.%d", i);
        fig_program_segment(program, name);
        touch(program, a);
    }
    fig_program *clone;
    assert_int_equal(fig_program_finish(program), FIG_OK);
    assert_int_equal(fig_program_clone(&clone, program), FIG_OK);
    assert_int_equal(fig_program_view_of(clone)->segment_count, FIG_NODE_LIMIT);
    assert_segment(clone, "s.0", 0, 1);
    assert_segment(clone, "s.8191", 8191, 1);
    fig_program_destroy(clone);
    fig_program_destroy(program);
}

/* ---- The standard step ----------------------------------------------------------------------- */

/* If recorded as separate nodes, rope writes q and k in place, append reads k and v, and attention
 * reads q and the caches. A layer is then a chain of three nodes, and silu_and_mul is independent.
 * If recorded as one node, a layer has no edges of its own. */
static void the_standard_step_has_the_edges_of_its_data(void **state) {
    (void)state;
    const fig_spec spec = fig_sample_spec();
    fig_program *program = fig_sample_step(&spec);
    assert_int_equal(fig_program_view_of(program)->node_count, 4);
    assert_int_equal(fig_program_view_of(program)->edge_count, 0);
    fig_program_destroy(program);
    program = fig_sample_apart(&spec);
    const fig_program_view *view = fig_program_view_of(program);
    static const fig_edge expected[] = {{1, 2}, {2, 3}, {5, 6}, {6, 7}};
    assert_int_equal(view->node_count, 8);
    assert_int_equal(view->edge_count, 4);
    assert_memory_equal(view->edges, expected, sizeof expected);
    fig_program_destroy(program);
}

/* ---- Copies ---------------------------------------------------------------------------------- */

static void assert_same(const fig_program_view *a, const fig_program_view *b) {
    assert_memory_equal(&a->spec, &b->spec, sizeof a->spec);
    assert_int_equal(a->tensor_count, b->tensor_count);
    assert_int_equal(a->node_count, b->node_count);
    assert_int_equal(a->operand_count, b->operand_count);
    assert_int_equal(a->attribute_bytes, b->attribute_bytes);
    assert_int_equal(a->string_bytes, b->string_bytes);
    assert_int_equal(a->edge_count, b->edge_count);
    assert_int_equal(a->segment_count, b->segment_count);
    assert_memory_equal(a->tensors, b->tensors, a->tensor_count * sizeof *a->tensors);
    assert_memory_equal(a->nodes, b->nodes, a->node_count * sizeof *a->nodes);
    assert_memory_equal(a->operands, b->operands, a->operand_count * sizeof *a->operands);
    assert_memory_equal(a->attributes, b->attributes, a->attribute_bytes);
    assert_memory_equal(a->strings, b->strings, a->string_bytes);
    assert_memory_equal(a->edges, b->edges, a->edge_count * sizeof *a->edges);
    assert_memory_equal(a->segments, b->segments, a->segment_count * sizeof *a->segments);
}

static void copies_are_equal_and_find_the_same_tensors(void **state) {
    (void)state;
    fig_program *copies[2], *program = fig_sample_mixture();
    const fig_program_view *view = fig_program_view_of(program);
    assert_int_equal(view->segment_count, 4);
    assert_int_equal(fig_program_clone(&copies[0], program), FIG_OK);
    assert_int_equal(fig_program_restore(&copies[1], view), FIG_OK);
    for (int i = 0; i < 2; i++) {
        assert_same(fig_program_view_of(copies[i]), view);
        assert_int_equal(fig_program_check(fig_program_view_of(copies[i])), FIG_OK);
        assert_int_equal(fig_program_find(copies[i], "k_cache.1").id,
                         fig_program_find(program, "k_cache.1").id);
        assert_int_equal(fig_program_find(copies[i], "gemm").id, 0);
        assert_int_equal(fig_program_finish(copies[i]), FIG_ORDER);
        fig_program_destroy(copies[i]);
    }
    fig_program_destroy(program);
}

/* ---- Faults ---------------------------------------------------------------------------------- */

static fig_status record_and_copy(void) {
    fig_program *program, *clone = NULL, *restored = NULL;
    const fig_spec spec = fig_sample_spec();
    fig_status status = fig_program_create(&program, &spec);
    if (status != FIG_OK) return status;
    fig_program_decode_step(program);
    fig_call(program, FIG_OPTIONS(fig_call_op, .call = "c"));
    status = fig_program_finish(program);
    if (status == FIG_OK) status = fig_program_clone(&clone, program);
    if (status == FIG_OK) status = fig_program_restore(&restored, fig_program_view_of(program));
    fig_program_destroy(restored);
    fig_program_destroy(clone);
    fig_program_destroy(program);
    return status;
}

static void each_allocation_that_fails_is_reported(void **state) {
    (void)state;
    int64_t n = 1;
    for (;; n++) {
        fig_fail(FIG_INVALID, "nothing");
        fig_fault_arm(n);
        const fig_status status = record_and_copy();
        const int64_t calls = fig_fault_disarm();
        if (calls < n) {
            assert_int_equal(status, FIG_OK);
            break;
        }
        FIG_SAMPLE_REFUSES(status, FIG_NOMEM, ": ");
        assert_string_not_equal(fig_message(), "nothing");
    }
    assert_true(n > 20);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sound_tensors_are_kept),
        cmocka_unit_test(unsound_tensors_are_refused),
        cmocka_unit_test(bytes_are_those_of_all_rows_or_of_one_page),
        cmocka_unit_test(ten_thousand_tensors_are_found_by_name),
        cmocka_unit_test(the_first_failure_stays),
        cmocka_unit_test(finishing_freezes),
        cmocka_unit_test(a_program_has_a_node),
        cmocka_unit_test(an_unsound_spec_makes_no_program),
        cmocka_unit_test(tensors_and_nodes_end_at_their_limits),
        cmocka_unit_test(nodes_carry_their_layer),
        cmocka_unit_test(a_segment_holds_the_nodes_recorded_under_it),
        cmocka_unit_test(a_segment_that_no_node_follows_is_not_there),
        cmocka_unit_test(a_segments_name_is_sound_and_given_once),
        cmocka_unit_test(a_segment_is_recorded_as_all_else_is),
        cmocka_unit_test(the_node_that_makes_plans_is_of_no_segment),
        cmocka_unit_test(every_node_may_be_a_segment),
        cmocka_unit_test(the_standard_step_has_the_edges_of_its_data),
        cmocka_unit_test(copies_are_equal_and_find_the_same_tensors),
        cmocka_unit_test(each_allocation_that_fails_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
