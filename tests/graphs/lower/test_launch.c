/* test_launch.c: tests that params hold the values of the tensors, the spec and the bucket, and
 * that each field that only binding can fill in is zero and has a relocation.
 *
 * The expected params of one program are written out by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "graphs/lower/launch.h"
#include "graphs/lower/lower.h"
#include "graphs/record/program.h"
#include "tests/support/files/sample.h"
#include "tests/support/ranks/turns.h"

/* The sample's step, lowered for the host in a bucket of 4 rows and 100 tokens. */
typedef struct ground {
    fig_program *program;
    const fig_program_view *view;
    fig_split_classes classes;
    fig_bucket_shape shape;
    fig_workspace workspace;
    uint8_t params[FIG_PARAMS_LIMIT];
    fig_reloc relocs[128];
    fig_launch launch;
} ground;

static void ground_make(ground *g, fig_program *program, int32_t variant) {
    memset(g, 0, sizeof *g);
    g->program = program;
    g->view = fig_program_view_of(program);
    g->shape.caps = (fig_bucket){4, 100};
    g->shape.variant = variant;
    assert_int_equal(fig_split_classes_find(g->view, &g->classes), FIG_OK);
    const fig_lower_target target = fig_sample_target("host");
    assert_int_equal(fig_lower_shape(g->view, &target, 5, &g->shape), FIG_OK);
    assert_int_equal(fig_workspace_init(&g->workspace, g->view, &g->shape, 1), FIG_OK);
}

static void ground_finish(ground *g) {
    fig_workspace_finish(&g->workspace);
    fig_program_destroy(g->program);
}

static void fill(ground *g, fig_op op, uint32_t node) {
    fig_launch_memo memo = {.count = 0};
    const fig_launch_source common = {g->view, &g->classes, &g->workspace, NULL, &memo};
    const fig_launch_source bucket = {g->view, &g->classes, NULL, &g->shape, NULL};
    g->launch = (fig_launch){.op = op,
                             .node = node,
                             .node_count = node != UINT32_MAX,
                             .params = 32,
                             .split_class = UINT32_MAX};
    if (fig_kernel_table[op].split) g->launch.split_class = 0;
    memset(g->params, 0, sizeof g->params);
    fig_launch_fill(&g->launch, &common, g->params, g->relocs);
    fig_launch_fill_bucket(&g->launch, &bucket, 0, g->params);
}

static uint32_t id_of(const ground *g, const char *name) {
    const fig_tensor tensor = fig_program_find(g->program, name);
    if (tensor.id == 0) fail_msg("no tensor %s", name);
    return tensor.id;
}

#define OFFSET(type, field) (uint32_t)(32 + offsetof(type, field))

static void assert_relocs(const ground *g, const fig_reloc *expected, uint32_t count) {
    assert_int_equal(g->launch.reloc_count, count);
    for (uint32_t i = 0; i < count; i++) {
        const fig_reloc *own = &g->relocs[i], *right = &expected[i];
        if (memcmp(own, right, sizeof *own) != 0)
            fail_msg(
                "relocation %u: offset %u kind %u item %u symbol %u addend %llu, not offset %u "
                "kind %u item %u symbol %u addend %llu",
                i, own->offset, own->kind, own->item, own->symbol, (unsigned long long)own->addend,
                right->offset, right->kind, right->item, right->symbol,
                (unsigned long long)right->addend);
    }
}

/* Returns the part of a bucket's shape that params hold: all except its limits. */
static fig_plan_shape shared_shape(const ground *g) {
    fig_plan_shape shape = g->shape.plan;
    for (int32_t i = 0; i < shape.class_count; i++) {
        assert_true(shape.splits[i].tile_limit > 0);
        shape.splits[i].tile_limit = 0;
    }
    return shape;
}

static void the_fetch_knows_the_ring_and_the_shape_of_its_plan(void **state) {
    (void)state;
    ground g;
    const fig_spec spec = fig_sample_spec();
    ground_make(&g, fig_sample_apart(&spec), 0);
    fill(&g, FIG_OP_FETCH, UINT32_MAX);
    const fig_fetch_params expected = {.shape = shared_shape(&g)};
    assert_int_equal(expected.shape.exec, 5);
    assert_memory_equal(g.params, &expected, sizeof expected);
#define AT(field, reloc)                                                                           \
    { .offset = OFFSET(fig_fetch_params, field), .kind = reloc }
    const fig_reloc relocs[] = {
        AT(ring, FIG_RELOC_RING),
        AT(plan, FIG_RELOC_PLAN),
        AT(state, FIG_RELOC_RING_STATE),
        AT(words, FIG_RELOC_RING_WORDS),
        AT(slot_count, FIG_RELOC_RING_SLOTS),
        AT(slot_bytes, FIG_RELOC_RING_BYTES),
    };
#undef AT
    assert_relocs(&g, relocs, sizeof relocs / sizeof relocs[0]);
    ground_finish(&g);
}

#define AT(field, reloc, id, dim)                                                                  \
    { .offset = OFFSET(PARAMS, field), .kind = reloc, .item = dim, .symbol = id }
#define ADDRESS(field, id) AT(field, FIG_RELOC_ADDRESS, id, 0)
#define STRIDE(field, id, dim) AT(field, FIG_RELOC_STRIDE, id, dim)
#define EXTENT(field, id) AT(field, FIG_RELOC_EXTENT, id, 0)

#define PARAMS fig_gated_params
static void gated_is_filled(void **state) {
    (void)state;
    ground g;
    const fig_spec spec = fig_sample_spec();
    ground_make(&g, fig_sample_apart(&spec), 0);
    fill(&g, FIG_OP_GATED, 0);
    const fig_gated_params expected = {.rows = {4, 1}, .width = 32, .dtype = FIG_F16};
    const uint32_t in = id_of(&g, "gate_up.0"), out = id_of(&g, "act.0");
    const fig_reloc relocs[] = {
        ADDRESS(in, in),          ADDRESS(out, out),          AT(plan, FIG_RELOC_PLAN, 0, 0),
        STRIDE(in_stride, in, 0), STRIDE(out_stride, out, 0),
    };
    assert_memory_equal(g.params, &expected, sizeof expected);
    assert_relocs(&g, relocs, sizeof relocs / sizeof relocs[0]);
    ground_finish(&g);
}
#undef PARAMS

#define PARAMS fig_rope_params
static void rope_is_filled_and_absent_positions_are_zero(void **state) {
    (void)state;
    ground g;
    fig_spec spec = fig_sample_spec();
    const fig_rope_terms terms = {1, 48, 5000, 2, 8, 1, 4, 4096};
    memcpy(&spec.rope, &terms, sizeof terms);
    ground_make(&g, fig_sample_apart(&spec), 0);
    fill(&g, FIG_OP_ROPE, 1);
    const fig_rope_params expected = {.rope = terms,
                                      .angles = fig_turns_of(&terms),
                                      .positions_offset = g.shape.plan.layout.positions,
                                      .rows = {4, 1},
                                      .q_heads = 8,
                                      .k_heads = 2,
                                      .head_dim = 64,
                                      .dtype = FIG_F16};
    const uint32_t q = id_of(&g, "q.0"), k = id_of(&g, "k.0");
    const fig_reloc relocs[] = {
        ADDRESS(q, q),
        ADDRESS(k, k),
        ADDRESS(q_out, q),
        ADDRESS(k_out, k),
        AT(plan, FIG_RELOC_PLAN, 0, 0),
        STRIDE(q_strides.row, q, 0),
        STRIDE(q_strides.head, q, 1),
        STRIDE(k_strides.row, k, 0),
        STRIDE(k_strides.head, k, 1),
        STRIDE(q_out_strides.row, q, 0),
        STRIDE(q_out_strides.head, q, 1),
        STRIDE(k_out_strides.row, k, 0),
        STRIDE(k_out_strides.head, k, 1),
    };
    assert_memory_equal(g.params, &expected, sizeof expected);
    assert_relocs(&g, relocs, sizeof relocs / sizeof relocs[0]);
    ground_finish(&g);
}
#undef PARAMS

#define PARAMS fig_append_kv_params
static void append_kv_is_filled(void **state) {
    (void)state;
    ground g;
    const fig_spec spec = fig_sample_spec();
    ground_make(&g, fig_sample_apart(&spec), 0);
    fill(&g, FIG_OP_APPEND_KV, 6);
    const fig_append_kv_params expected = {.lengths_offset = g.shape.plan.layout.lengths,
                                           .sequences_offset = g.shape.plan.layout.sequences,
                                           .rows = {4, 1},
                                           .page_size = 16,
                                           .kv_heads = 2,
                                           .head_dim = 64,
                                           .dtype = FIG_F16,
                                           .kv_dtype = FIG_F16};
    const uint32_t k = id_of(&g, "k.1"), v = id_of(&g, "v.1"), table = id_of(&g, "page_table");
    const uint32_t k_cache = id_of(&g, "k_cache.1"), v_cache = id_of(&g, "v_cache.1");
    const fig_reloc relocs[] = {
        ADDRESS(k, k),
        ADDRESS(v, v),
        ADDRESS(k_cache, k_cache),
        ADDRESS(v_cache, v_cache),
        ADDRESS(page_table, table),
        AT(plan, FIG_RELOC_PLAN, 0, 0),
        STRIDE(k_strides.row, k, 0),
        STRIDE(k_strides.head, k, 1),
        STRIDE(v_strides.row, v, 0),
        STRIDE(v_strides.head, v, 1),
        STRIDE(k_cache_strides.page, k_cache, 0),
        STRIDE(k_cache_strides.token, k_cache, 1),
        STRIDE(k_cache_strides.head, k_cache, 2),
        STRIDE(v_cache_strides.page, v_cache, 0),
        STRIDE(v_cache_strides.token, v_cache, 1),
        STRIDE(v_cache_strides.head, v_cache, 2),
        STRIDE(table_stride, table, 0),
        EXTENT(k_pages, k_cache),
        EXTENT(v_pages, v_cache),
    };
    assert_memory_equal(g.params, &expected, sizeof expected);
    assert_relocs(&g, relocs, sizeof relocs / sizeof relocs[0]);
    ground_finish(&g);
}
#undef PARAMS

#define PARAMS fig_attention_params
#define WORKSPACE(field, where)                                                                    \
    { .offset = OFFSET(PARAMS, field), .kind = FIG_RELOC_WORKSPACE, .addend = where }
static void attention_is_filled(void **state) {
    (void)state;
    ground g;
    const fig_spec spec = fig_sample_spec();
    ground_make(&g, fig_sample_apart(&spec), 1);
    fill(&g, FIG_OP_ATTENTION, 3);
    const fig_plan_layout *layout = &g.shape.plan.layout;
    const fig_attention_params expected = {.split = {4, 1, 16, 8, 0, 1, 0, 0},
                                           .lengths_offset = layout->lengths,
                                           .sequences_offset = layout->sequences,
                                           .prefix_offset = layout->prefix[0],
                                           .starts_offset = layout->starts[0],
                                           .q_heads = 8,
                                           .kv_heads = 2,
                                           .head_dim = 64,
                                           .heads_per_worker = 2,
                                           .page_size = 16,
                                           .dtype = FIG_F16,
                                           .kv_dtype = FIG_F16,
                                           .sm_scale = 0.125f,
                                           .turn = {.positions_offset = layout->positions}};
    const uint32_t q = id_of(&g, "q.0"), out = id_of(&g, "out.0"), table = id_of(&g, "page_table");
    const uint32_t k_cache = id_of(&g, "k_cache.0"), v_cache = id_of(&g, "v_cache.0");
    const fig_reloc relocs[] = {
        ADDRESS(q, q),
        ADDRESS(k_cache, k_cache),
        ADDRESS(v_cache, v_cache),
        ADDRESS(out, out),
        ADDRESS(page_table, table),
        AT(plan, FIG_RELOC_PLAN, 0, 0),
        WORKSPACE(partials, g.workspace.partials[0]),
        WORKSPACE(sums, g.workspace.sums[0]),
        WORKSPACE(counters, g.workspace.counters[0]),
        STRIDE(q_strides.row, q, 0),
        STRIDE(q_strides.head, q, 1),
        STRIDE(out_strides.row, out, 0),
        STRIDE(out_strides.head, out, 1),
        STRIDE(k_cache_strides.page, k_cache, 0),
        STRIDE(k_cache_strides.token, k_cache, 1),
        STRIDE(k_cache_strides.head, k_cache, 2),
        STRIDE(v_cache_strides.page, v_cache, 0),
        STRIDE(v_cache_strides.token, v_cache, 1),
        STRIDE(v_cache_strides.head, v_cache, 2),
        STRIDE(table_stride, table, 0),
        EXTENT(k_pages, k_cache),
        EXTENT(v_pages, v_cache),
    };
    assert_memory_equal(g.params, &expected, sizeof expected);
    assert_relocs(&g, relocs, sizeof relocs / sizeof relocs[0]);
    ground_finish(&g);
}
#undef PARAMS

/* ---- Breadth: nodes that the sample's standard step does not have */

static uint32_t node_of(const ground *g, fig_op op, int nth) {
    uint32_t n = 0;
    while (g->view->nodes[n].op != op || nth-- > 0)
        n++;
    return n;
}

#define PARAMS fig_plan_params
static void a_plan_is_made_by_the_buckets_own_shape(void **state) {
    (void)state;
    ground g;
    ground_make(&g, fig_sample_breadth(), 0);
    fill(&g, FIG_OP_PLAN, 0);
    const fig_plan_params expected = {.shape = shared_shape(&g), .kv_limit = 200};
    const fig_reloc relocs[] = {
        ADDRESS(lengths, id_of(&g, "lengths")),
        ADDRESS(positions, id_of(&g, "positions")),
        AT(plan, FIG_RELOC_PLAN, 0, 0),
        AT(words, FIG_RELOC_RING_WORDS, 0, 0),
    };
    assert_int_equal(g.shape.plan.class_count, 2);
    assert_memory_equal(g.params, &expected, sizeof expected);
    assert_relocs(&g, relocs, sizeof relocs / sizeof relocs[0]);
    ground_finish(&g);
}
#undef PARAMS

#define PARAMS fig_rms_norm_params
static void a_norm_is_filled_with_and_without_a_residual(void **state) {
    (void)state;
    ground g;
    ground_make(&g, fig_sample_breadth(), 0);
    const uint32_t x = id_of(&g, "x"), y = id_of(&g, "y"), weight = id_of(&g, "weight");
    fig_rms_norm_params expected = {
        .rows = {4, 1}, .width = 7, .dtype = FIG_BF16, .epsilon = 1e-6f, .weight_offset = 0};
    const fig_reloc plain[] = {
        ADDRESS(in, x),          ADDRESS(weight, weight),
        ADDRESS(out, x),         AT(plan, FIG_RELOC_PLAN, 0, 0),
        STRIDE(in_stride, x, 0), STRIDE(out_stride, x, 0),
    };
    fill(&g, FIG_OP_RMS_NORM, node_of(&g, FIG_OP_RMS_NORM, 0));
    assert_memory_equal(g.params, &expected, sizeof expected);
    assert_relocs(&g, plain, sizeof plain / sizeof plain[0]);
    const fig_reloc added[] = {
        ADDRESS(in, x),           ADDRESS(weight, weight),        ADDRESS(out, x),
        ADDRESS(residual, y),     AT(plan, FIG_RELOC_PLAN, 0, 0), STRIDE(in_stride, x, 0),
        STRIDE(out_stride, x, 0), STRIDE(residual_stride, y, 0),
    };
    expected.epsilon = 1e-5f;
    expected.weight_offset = 1;
    fill(&g, FIG_OP_RMS_NORM, node_of(&g, FIG_OP_RMS_NORM, 1));
    assert_memory_equal(g.params, &expected, sizeof expected);
    assert_relocs(&g, added, sizeof added / sizeof added[0]);
    ground_finish(&g);
}
#undef PARAMS

#define PARAMS fig_merge_states_params
static void merge_states_is_filled(void **state) {
    (void)state;
    ground g;
    ground_make(&g, fig_sample_breadth(), 0);
    const uint32_t a = id_of(&g, "out.0"), b = id_of(&g, "out.1"), out = id_of(&g, "q.0");
    const uint32_t lse_a = id_of(&g, "lse_a"), lse_b = id_of(&g, "lse_b"), lse = id_of(&g, "lse");
    const fig_merge_states_params expected = {
        .rows = {8, 2}, .heads = 8, .head_dim = 64, .dtype = FIG_F16};
    const fig_reloc relocs[] = {
        ADDRESS(out_a, a),
        ADDRESS(out_b, b),
        ADDRESS(lse_a, lse_a),
        ADDRESS(lse_b, lse_b),
        ADDRESS(out, out),
        ADDRESS(lse, lse),
        AT(plan, FIG_RELOC_PLAN, 0, 0),
        STRIDE(out_a_strides.row, a, 0),
        STRIDE(out_a_strides.head, a, 1),
        STRIDE(out_b_strides.row, b, 0),
        STRIDE(out_b_strides.head, b, 1),
        STRIDE(out_strides.row, out, 0),
        STRIDE(out_strides.head, out, 1),
        STRIDE(lse_a_stride, lse_a, 0),
        STRIDE(lse_b_stride, lse_b, 0),
        STRIDE(lse_stride, lse, 0),
    };
    fill(&g, FIG_OP_MERGE_STATES, node_of(&g, FIG_OP_MERGE_STATES, 0));
    assert_memory_equal(g.params, &expected, sizeof expected);
    assert_relocs(&g, relocs, sizeof relocs / sizeof relocs[0]);
    ground_finish(&g);
}
#undef PARAMS

/* Returns 1 if the launch has a relocation of this kind at this byte. */
static int relocates(const ground *g, size_t offset, fig_reloc_kind kind, uint32_t symbol) {
    for (uint32_t i = 0; i < g->launch.reloc_count; i++) {
        const fig_reloc *reloc = &g->relocs[i];
        if (reloc->offset == 32 + offset) return reloc->kind == kind && reloc->symbol == symbol;
    }
    return 0;
}

static void several_queries_fp8_and_windows_reach_the_params(void **state) {
    (void)state;
    ground g;
    fig_rope_params rope;
    fig_append_kv_params append;
    fig_attention_params attention;
    ground_make(&g, fig_sample_breadth(), 0);
    fill(&g, FIG_OP_ROPE, node_of(&g, FIG_OP_ROPE, 0));
    memcpy(&rope, g.params, sizeof rope);
    assert_int_equal(rope.rows.row_limit, 8);
    assert_int_equal(rope.rows.multiple, 2);
    assert_int_equal(rope.rope.rotary_dim, 32);
    assert_true(rope.norm_epsilon == 1e-5f);
    assert_true(
        relocates(&g, offsetof(fig_rope_params, k_norm), FIG_RELOC_ADDRESS, id_of(&g, "k_norm.0")));
    fill(&g, FIG_OP_ROPE, node_of(&g, FIG_OP_ROPE, 2));
    memcpy(&rope, g.params, sizeof rope);
    assert_int_equal(rope.segments, 3);
    assert_int_equal(rope.cos_sin_rows, 300);
    assert_true(rope.norm_epsilon == 0);
    assert_true(relocates(&g, offsetof(fig_rope_params, cos_sin_stride), FIG_RELOC_STRIDE,
                          id_of(&g, "cos_sin")));
    fill(&g, FIG_OP_APPEND_KV, node_of(&g, FIG_OP_APPEND_KV, 0));
    memcpy(&append, g.params, sizeof append);
    assert_int_equal(append.rows.row_limit, 8);
    assert_int_equal(append.rows.multiple, 2);
    assert_int_equal(append.k_scales, 2);
    assert_int_equal(append.dtype, FIG_F16);
    assert_int_equal(append.kv_dtype, FIG_E4M3);
    fill(&g, FIG_OP_ATTENTION, node_of(&g, FIG_OP_ATTENTION, 0));
    memcpy(&attention, g.params, sizeof attention);
    const fig_plan_shape shared = shared_shape(&g);
    assert_memory_equal(&attention.split, &shared.splits[0], sizeof attention.split);
    assert_int_equal(attention.split.window, 40);
    assert_int_equal(attention.split.row_tokens, 2);
    assert_true(attention.soft_cap == 30.0f);
    assert_int_equal(attention.v_scales, 2);
    assert_int_equal(attention.kv_dtype, FIG_E4M3);
    assert_true(relocates(&g, offsetof(fig_attention_params, v_scale), FIG_RELOC_ADDRESS,
                          id_of(&g, "v_scale.0")));
    ground_finish(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_fetch_knows_the_ring_and_the_shape_of_its_plan),
        cmocka_unit_test(gated_is_filled),
        cmocka_unit_test(rope_is_filled_and_absent_positions_are_zero),
        cmocka_unit_test(append_kv_is_filled),
        cmocka_unit_test(attention_is_filled),
        cmocka_unit_test(a_plan_is_made_by_the_buckets_own_shape),
        cmocka_unit_test(a_norm_is_filled_with_and_without_a_residual),
        cmocka_unit_test(merge_states_is_filled),
        cmocka_unit_test(several_queries_fp8_and_windows_reach_the_params),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
