/* test_launch.c: params say of tensors, spec and bucket what they are, and what is known at bind
 * alone is zero beside its relocation.
 *
 * The dumber truth is each struct written out by hand for one program. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "graphs/launch.h"
#include "graphs/lower.h"
#include "tests/support/sample.h"

/* A bucket of 4 rows and 100 tokens, lowered for the host, of the sample's step. */
typedef struct ground {
    fig_program *program;
    const fig_program_view *view;
    fig_classes classes;
    fig_bucket_shape shape;
    fig_workspace workspace;
    uint8_t params[FIG_PARAMS_LIMIT];
    fig_reloc relocs[128];
    fig_launch launch;
} ground;

static void ground_make(ground *g, fig_program *program, int32_t variant) {
    fig_traits traits;
    memset(g, 0, sizeof *g);
    g->program = program;
    g->view = fig_program_view_of(program);
    g->shape.caps = (fig_bucket){4, 100};
    g->shape.variant = variant;
    assert_int_equal(fig_classes_find(g->view, &g->classes), FIG_OK);
    assert_int_equal(fig_traits_named(&traits, "host"), FIG_OK);
    assert_int_equal(fig_lower_shape(g->view, &traits, 5, &g->shape), FIG_OK);
    assert_int_equal(fig_workspace_init(&g->workspace, g->view, &g->shape, 1), FIG_OK);
}

static void ground_finish(ground *g) {
    fig_workspace_finish(&g->workspace);
    fig_program_destroy(g->program);
}

static void fill(ground *g, fig_op op, uint32_t node) {
    const fig_launch_source source = {g->view, &g->classes, &g->workspace, &g->shape};
    g->launch = (fig_launch){.op = op, .node = node, .params = 32, .split_class = UINT32_MAX};
    if (fig_kernel_table[op].split) g->launch.split_class = 0;
    memset(g->params, 0, sizeof g->params);
    fig_launch_fill(&g->launch, &source, g->params, g->relocs);
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

static void the_fetch_knows_the_ring_and_the_bucket(void **state) {
    (void)state;
    ground g;
    const fig_spec spec = fig_sample_spec();
    ground_make(&g, fig_sample_step(&spec), 0);
    fill(&g, FIG_OP_FETCH, UINT32_MAX);
    const fig_fetch_params expected = {.bucket = 5, .plan_bytes = g.shape.plan.layout.bytes};
    assert_memory_equal(g.params, &expected, sizeof expected);
#define AT(field, reloc)                                                                           \
    { .offset = OFFSET(fig_fetch_params, field), .kind = reloc }
    const fig_reloc relocs[] = {
        AT(ring, FIG_RELOC_RING),
        AT(plan, FIG_RELOC_PLAN),
        AT(cursor, FIG_RELOC_RING_CURSOR),
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

#define PARAMS fig_silu_and_mul_params
static void silu_and_mul_is_filled(void **state) {
    (void)state;
    ground g;
    const fig_spec spec = fig_sample_spec();
    ground_make(&g, fig_sample_step(&spec), 0);
    fill(&g, FIG_OP_SILU_AND_MUL, 0);
    const fig_silu_and_mul_params expected = {.row_limit = 4, .width = 32, .dtype = FIG_F16};
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
    spec.rope = (fig_rope_spec){1, 5000, 2, 8, 1, 4, 4096};
    ground_make(&g, fig_sample_step(&spec), 0);
    fill(&g, FIG_OP_ROPE, 1);
    const fig_rope_params expected = {.rope = spec.rope,
                                      .positions_offset = g.shape.plan.layout.positions,
                                      .row_limit = 4,
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
    ground_make(&g, fig_sample_step(&spec), 0);
    fill(&g, FIG_OP_APPEND_KV, 6);
    const fig_append_kv_params expected = {.lengths_offset = g.shape.plan.layout.lengths,
                                           .sequences_offset = g.shape.plan.layout.sequences,
                                           .row_limit = 4,
                                           .page_size = 16,
                                           .kv_heads = 2,
                                           .head_dim = 64,
                                           .dtype = FIG_F16};
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
    ground_make(&g, fig_sample_step(&spec), 1);
    fill(&g, FIG_OP_ATTENTION, 3);
    const fig_plan_layout *layout = &g.shape.plan.layout;
    const fig_attention_params expected = {.split = {4, 1, 16, 8},
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
                                           .sm_scale = 0.125f};
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_fetch_knows_the_ring_and_the_bucket),
        cmocka_unit_test(silu_and_mul_is_filled),
        cmocka_unit_test(rope_is_filled_and_absent_positions_are_zero),
        cmocka_unit_test(append_kv_is_filled),
        cmocka_unit_test(attention_is_filled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
