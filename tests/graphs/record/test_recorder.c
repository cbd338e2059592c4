/* test_recorder.c: tests that each call records its node with the tensors in their places and with
 * all defaults filled in. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "graphs/record/program.h"
#include "tests/support/files/sample.h"

static fig_program *begin(void) {
    const fig_spec spec = fig_sample_spec();
    return fig_sample_program(&spec);
}

static fig_status end(fig_program *program) {
    const fig_status status = fig_program_finish(program);
    fig_program_destroy(program);
    return status;
}

static void rope_is_in_place_and_follows_the_spec_by_default(void **state) {
    (void)state;
    fig_program *program = begin();
    const fig_tensor q = fig_sample_rows(program, "q", 8, 64),
                     k = fig_sample_rows(program, "k", 2, 64);
    const fig_tensor out = fig_sample_rows(program, "out", 8, 64);
    fig_rope(program, FIG_OPTIONS(fig_rope_op, .q = q, .k = k));
    const fig_rope_spec own = {.interleaved = 1, .rotary_dim = 20, .theta = 5000};
    fig_rope(program, FIG_OPTIONS(fig_rope_op, .q = q, .k = k, .q_out = out, .rope = &own));
    const fig_program_view *view = fig_program_view_of(program);
    assert_int_equal(view->node_count, 2);
    const uint32_t *first = view->operands, *second = view->operands + view->nodes[1].operand;
    assert_int_equal(first[FIG_ROPE_Q_OUT], q.id);
    assert_int_equal(first[FIG_ROPE_K_OUT], k.id);
    assert_int_equal(first[FIG_ROPE_POSITIONS], 0);
    assert_int_equal(second[FIG_ROPE_Q_OUT], out.id);
    fig_rope_terms stored;
    memcpy(&stored, view->attributes, sizeof stored);
    assert_memory_equal(&stored, &view->spec.rope, sizeof stored);
    memcpy(&stored, view->attributes + view->nodes[1].attribute, sizeof stored);
    assert_int_equal(stored.interleaved, 1);
    assert_int_equal(stored.rotary_dim, 20);
    assert_true(stored.theta == 5000.0f && stored.scale == 1.0f);
    assert_int_equal(end(program), FIG_OK);
}

/* Records a node as a call of a newer library would, with operands and attributes that this one
 * does not know. */
static void a_node_ends_after_its_last_operand_but_not_before_format_1s_row(void **state) {
    (void)state;
    fig_program *program = begin();
    const fig_tensor in = fig_program_tensor(
        program, FIG_OPTIONS(fig_tensor_info, .name = "in", .role = FIG_ROLE_BOUND,
                             .dtype = FIG_F32, .rank = 2, .dims = {FIG_DIM_BATCH, 48}));
    const fig_tensor out = fig_program_tensor(
        program, FIG_OPTIONS(fig_tensor_info, .name = "out", .role = FIG_ROLE_BOUND,
                             .dtype = FIG_F32, .rank = 2, .dims = {FIG_DIM_BATCH, 24}));
    const uint32_t operands[] = {in.id, out.id, 0, 0};
    const fig_gated_attributes attributes[3] = {{FIG_SILU}, {0}, {0}};
    fig_program_node(program, FIG_OP_GATED, operands, 4, attributes, sizeof attributes);
    const fig_node *node = &fig_program_view_of(program)->nodes[0];
    assert_int_equal(node->operand_count, 2);
    assert_int_equal(node->attribute_bytes, sizeof attributes[0]);
    assert_int_equal(end(program), FIG_OK);
}

/* With a table the node is longer. Of the terms it keeps only those that tell which pairs
 * rotate. */
static void a_table_takes_the_place_of_terms(void **state) {
    (void)state;
    fig_program *program = begin();
    const fig_tensor q = fig_sample_rows(program, "q", 8, 64),
                     k = fig_sample_rows(program, "k", 2, 64);
    const fig_rope_spec own = {.interleaved = 1, .rotary_dim = 4, .theta = 5000, .scale = 2};
    const fig_rope_table table = {.frequencies = {1, 0.25}}, none = {.factor = 0};
    fig_rope(program, FIG_OPTIONS(fig_rope_op, .q = q, .k = k, .rope = &own, .rope_table = &table));
    fig_rope(program, FIG_OPTIONS(fig_rope_op, .q = q, .k = k, .rope = &own, .rope_table = &none));
    const fig_program_view *view = fig_program_view_of(program);
    const fig_rope_terms bare = {.interleaved = 1, .rotary_dim = 4};
    fig_rope_node_attributes stored;
    assert_int_equal(view->nodes[0].attribute_bytes, sizeof stored);
    memcpy(&stored, view->attributes, sizeof stored);
    assert_memory_equal(&stored.turn.rope, &bare, sizeof bare);
    assert_true(stored.reserved == 0 && stored.table.factor == 1);
    assert_memory_equal(stored.table.frequencies, table.frequencies, sizeof table.frequencies);
    assert_int_equal(view->nodes[1].attribute_bytes, sizeof(fig_rope_attributes));
    assert_int_equal(end(program), FIG_OK);
}

/* A plain node has a table without frequencies, whatever RoPE the spec has. */
static void a_plain_node_turns_nothing(void **state) {
    (void)state;
    static const fig_rope_table still = {.factor = 1}, table = {.frequencies = {1}};
    static const fig_rope_spec own = {.theta = 5000};
    for (int wrong = 0; wrong <= 5; wrong++) {
        fig_spec spec = fig_sample_spec();
        spec.rope = (fig_rope_spec){.interleaved = 1, .rotary_dim = 32};
        fig_program *program = fig_sample_program(&spec);
        const fig_tensor at = fig_program_tensor(
            program, FIG_OPTIONS(fig_tensor_info, .name = "at", .role = FIG_ROLE_BOUND,
                                 .dtype = FIG_I32, .rank = 1, .dims = {FIG_DIM_BATCH}));
        fig_decode_attention_op op = {.size = sizeof op, .plain = wrong == 5 ? 2 : 1};
        op.q = fig_sample_rows(program, "q", 8, 64);
        op.k = fig_sample_rows(program, "k", 2, 64);
        op.v = fig_sample_rows(program, "v", 2, 64);
        op.out = fig_sample_rows(program, "out", 8, 64);
        op.cache = fig_sample_cache(program, "cache", 2, 64);
        if (wrong == 1) op.rope = &own;
        if (wrong == 2) op.rope_table = &table;
        if (wrong == 3) op.positions = at;
        if (wrong == 4) op.cos_sin = at;
        fig_decode_attention(program, &op);
        if (wrong > 0) {
            static const char *const names[] = {"rope is there", "rope_table is there",
                                                "positions is there", "cos_sin is there",
                                                "plain is 2, it must be 0 or 1"};
            FIG_SAMPLE_REFUSES(end(program), FIG_INVALID, names[wrong - 1]);
            continue;
        }
        const fig_program_view *view = fig_program_view_of(program);
        const fig_rope_terms bare = {.rotary_dim = 64};
        fig_decode_attention_attributes stored;
        assert_int_equal(view->nodes[0].attribute_bytes, sizeof stored);
        memcpy(&stored, view->attributes + view->nodes[0].attribute, sizeof stored);
        assert_memory_equal(&stored.rope.rope, &bare, sizeof bare);
        assert_memory_equal(&stored.table, &still, sizeof still);
        if (end(program) != FIG_OK) fail_msg("%s", fig_message());
    }
}

static void a_table_that_lacks_frequencies_of_pairs_is_refused(void **state) {
    (void)state;
    static const fig_rope_table table = {.frequencies = {1, 0.25}};
    fig_program *program = begin();
    const fig_tensor q = fig_sample_rows(program, "q", 8, 64),
                     k = fig_sample_rows(program, "k", 2, 64);
    fig_rope(program, FIG_OPTIONS(fig_rope_op, .q = q, .k = k, .rope_table = &table));
    FIG_SAMPLE_REFUSES(end(program), FIG_INVALID, "rope table: frequencies[2] is 0");
}

/* By default all dims of a head rotate. If the spec's rotary_dim is set, that number of dims
 * rotates in heads of any size. */
static void a_rope_turns_the_whole_head_by_default(void **state) {
    (void)state;
    for (int32_t rotary_dim = 0; rotary_dim <= 32; rotary_dim += 32) {
        fig_spec spec = fig_sample_spec();
        spec.rope.rotary_dim = rotary_dim;
        fig_program *program = fig_sample_program(&spec);
        const fig_tensor q = fig_sample_rows(program, "q", 8, 96);
        const fig_tensor k = fig_sample_rows(program, "k", 2, 96);
        fig_rope(program, FIG_OPTIONS(fig_rope_op, .q = q, .k = k));
        fig_rope_attributes stored;
        memcpy(&stored, fig_program_view_of(program)->attributes, sizeof stored);
        assert_int_equal(stored.rope.rotary_dim, rotary_dim == 0 ? 96 : 32);
        assert_int_equal(end(program), FIG_OK);
    }
}

/* The stored epsilon is the call's, else the spec's, else 1e-6. Without norms it is 0. */
static void norms_of_heads_have_an_epsilon(void **state) {
    (void)state;
    static const struct {
        float given, specs;
        int norms;
        float stored;
    } cases[] = {
        {0, 0, 1, 1e-6f}, {0, 1e-5f, 1, 1e-5f}, {1e-4f, 1e-5f, 1, 1e-4f}, {0, 1e-5f, 0, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fig_spec spec = fig_sample_spec();
        spec.qk_norm_epsilon = cases[i].specs;
        fig_program *program = fig_sample_program(&spec);
        const fig_tensor q = fig_sample_rows(program, "q", 8, 64);
        const fig_tensor k = fig_sample_rows(program, "k", 2, 64);
        fig_tensor norm = {0};
        if (cases[i].norms)
            norm = fig_program_tensor(program, FIG_OPTIONS(fig_tensor_info, .name = "norm",
                                                           .role = FIG_ROLE_BOUND, .dtype = FIG_F16,
                                                           .rank = 1, .dims = {64}));
        fig_rope(program, FIG_OPTIONS(fig_rope_op, .q = q, .k = k, .q_norm = norm, .k_norm = norm,
                                      .norm_epsilon = cases[i].given));
        fig_rope_attributes stored;
        memcpy(&stored, fig_program_view_of(program)->attributes, sizeof stored);
        if (stored.norm_epsilon != cases[i].stored)
            fail_msg("case %zu: epsilon %g", i, (double)stored.norm_epsilon);
        assert_int_equal(end(program), FIG_OK);
    }
}

static void activations_share_an_operation(void **state) {
    (void)state;
    fig_program *program = begin();
    fig_tensor_info info = {.size = sizeof info,
                            .name = "in",
                            .role = FIG_ROLE_BOUND,
                            .dtype = FIG_F32,
                            .rank = 2,
                            .dims = {FIG_DIM_BATCH, 16}};
    fig_gated_op op = {.size = sizeof op, .in = fig_program_tensor(program, &info)};
    info.name = "out";
    info.dims[1] = 8;
    op.out = fig_program_tensor(program, &info);
    fig_silu_and_mul(program, &op);
    fig_gelu_and_mul(program, &op);
    fig_gelu_tanh_and_mul(program, &op);
    const fig_program_view *view = fig_program_view_of(program);
    for (uint32_t n = 0; n < 3; n++) {
        fig_gated_attributes stored;
        assert_int_equal(view->nodes[n].op, FIG_OP_GATED);
        memcpy(&stored, view->attributes + view->nodes[n].attribute, sizeof stored);
        assert_int_equal(stored.activation, (int32_t)(FIG_SILU + n));
    }
    assert_int_equal(end(program), FIG_OK);
}

/* The fused and the plain norm differ only in the residual. */
static fig_status norm_with(void (*call)(fig_program *, const fig_rms_norm_op *), int residual,
                            float epsilon, fig_rms_norm_attributes *stored) {
    fig_program *program = begin();
    fig_tensor_info info = {.size = sizeof info,
                            .name = "x",
                            .role = FIG_ROLE_BOUND,
                            .dtype = FIG_F32,
                            .rank = 2,
                            .dims = {FIG_DIM_BATCH, 7}};
    fig_rms_norm_op op = {.size = sizeof op, .epsilon = epsilon, .weight_offset = 1};
    op.in = op.out = fig_program_tensor(program, &info);
    info.name = "residual";
    if (residual) op.residual = fig_program_tensor(program, &info);
    info.name = "weight";
    info.rank = 1;
    info.dims[0] = 7;
    info.dims[1] = 0;
    op.weight = fig_program_tensor(program, &info);
    call(program, &op);
    const fig_program_view *view = fig_program_view_of(program);
    memset(stored, 0, sizeof *stored);
    if (view->node_count == 1) {
        memcpy(stored, view->attributes, sizeof *stored);
        assert_int_equal(view->operands[FIG_RMS_NORM_RESIDUAL], op.residual.id);
    }
    return end(program);
}

static void only_add_rms_norm_takes_a_residual(void **state) {
    (void)state;
    fig_rms_norm_attributes stored;
    assert_int_equal(norm_with(fig_rms_norm, 0, 0, &stored), FIG_OK);
    assert_true(stored.epsilon == 1e-6f && stored.weight_offset == 1.0f);
    assert_int_equal(norm_with(fig_add_rms_norm, 1, 0.25f, &stored), FIG_OK);
    assert_true(stored.epsilon == 0.25f);
    FIG_SAMPLE_REFUSES(norm_with(fig_rms_norm, 1, 0, &stored), FIG_INVALID,
                       "residual is tensor 2, it is only for fig_add_rms_norm");
    FIG_SAMPLE_REFUSES(norm_with(fig_add_rms_norm, 0, 0, &stored), FIG_INVALID,
                       "add_rms_norm: residual is absent");
}

/* Cap and window are the node's own. The spec's values apply to the standard step only. */
static void attention_sees_all_tokens_by_default(void **state) {
    (void)state;
    fig_spec spec = fig_sample_spec();
    spec.window = 40;
    spec.soft_cap = 30;
    fig_program *program = fig_sample_program(&spec);
    fig_sample_attention(program, "plain", &(fig_sample_heads){8, 2, 64});
    const fig_cache cache = {.k = fig_program_find(program, "k_plain"),
                             .v = fig_program_find(program, "v_plain")};
    fig_attention(program, FIG_OPTIONS(fig_attention_op, .q = fig_program_find(program, "q_plain"),
                                       .out = fig_program_find(program, "out_plain"),
                                       .cache = cache, .window = 7, .soft_cap = 20));
    const fig_program_view *view = fig_program_view_of(program);
    for (uint32_t n = 0; n < 2; n++) {
        fig_attention_attributes stored;
        memcpy(&stored, view->attributes + view->nodes[n].attribute, sizeof stored);
        assert_int_equal(stored.window, n == 0 ? 0 : 7);
        assert_true(stored.soft_cap == (n == 0 ? 0.0f : 20.0f));
        assert_true(stored.sm_scale == 0.125f);
    }
    assert_int_equal(end(program), FIG_OK);
}

/* Each of the caller's tensors must be at its own place in the node. */
static void operands_stand_where_the_table_has_them(void **state) {
    (void)state;
    fig_program *program = fig_sample_breadth();
    const fig_program_view *view = fig_program_view_of(program);
    static const struct {
        fig_op op;
        int nth;
        uint32_t operand;
        const char *name;
    } places[] = {
        {FIG_OP_PLAN, 0, FIG_PLAN_IN_LENGTHS, "lengths"},
        {FIG_OP_PLAN, 0, FIG_PLAN_IN_POSITIONS, "positions"},
        {FIG_OP_ROPE, 0, FIG_ROPE_Q_NORM, "q_norm.0"},
        {FIG_OP_ROPE, 0, FIG_ROPE_K_NORM, "k_norm.0"},
        {FIG_OP_ROPE, 2, FIG_ROPE_INDPTR, "indptr"},
        {FIG_OP_ROPE, 2, FIG_ROPE_OFFSETS, "offsets"},
        {FIG_OP_ROPE, 2, FIG_ROPE_COS_SIN, "cos_sin"},
        {FIG_OP_APPEND_KV, 1, FIG_APPEND_K_SCALE, "k_scale.1"},
        {FIG_OP_APPEND_KV, 1, FIG_APPEND_V_SCALE, "v_scale.1"},
        {FIG_OP_ATTENTION, 0, FIG_ATTENTION_K_SCALE, "k_scale.0"},
        {FIG_OP_ATTENTION, 2, FIG_ATTENTION_K_SCALE, ""},
        {FIG_OP_ATTENTION, 2, FIG_ATTENTION_V_SCALE, "v_scale.1"},
        {FIG_OP_ATTENTION, 2, FIG_ATTENTION_SINKS, "sinks"},
        {FIG_OP_ATTENTION, 2, FIG_ATTENTION_ALIBI, "alibi"},
        {FIG_OP_ATTENTION, 2, FIG_ATTENTION_LSE, "lse_a"},
        {FIG_OP_MERGE_STATES, 0, FIG_MERGE_OUT_A, "out.0"},
        {FIG_OP_MERGE_STATES, 0, FIG_MERGE_LSE_A, "lse_a"},
        {FIG_OP_MERGE_STATES, 0, FIG_MERGE_OUT_B, "out.1"},
        {FIG_OP_MERGE_STATES, 0, FIG_MERGE_LSE_B, "lse_b"},
        {FIG_OP_MERGE_STATES, 0, FIG_MERGE_OUT, "q.0"},
        {FIG_OP_MERGE_STATES, 0, FIG_MERGE_LSE, "lse"},
        {FIG_OP_RMS_NORM, 1, FIG_RMS_NORM_WEIGHT, "weight"},
        {FIG_OP_RMS_NORM, 1, FIG_RMS_NORM_RESIDUAL, "y"},
    };
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        int seen = 0;
        uint32_t n = 0;
        while (view->nodes[n].op != places[i].op || seen++ != places[i].nth)
            n++;
        const uint32_t id = view->operands[view->nodes[n].operand + places[i].operand];
        const char *name = id == 0 ? "" : fig_program_view_tensor_name(view, id);
        if (strcmp(name, places[i].name) != 0)
            fail_msg("place %zu: %s, not %s", i, name, places[i].name);
    }
    fig_program_destroy(program);
}

static void an_unsound_rope_is_refused(void **state) {
    (void)state;
    fig_program *program = begin();
    const fig_tensor q = fig_sample_rows(program, "q", 8, 64),
                     k = fig_sample_rows(program, "k", 2, 64);
    const fig_rope_spec own = {.theta = -1};
    fig_rope(program, FIG_OPTIONS(fig_rope_op, .q = q, .k = k, .rope = &own));
    FIG_SAMPLE_REFUSES(end(program), FIG_INVALID, "theta is -1");
}

/* Other structs contain a cache by value, so a newer header may give its reserved room to new
 * fields. */
static void reserved_room_is_refused_by_name(void **state) {
    (void)state;
    fig_program *program = begin();
    const fig_tensor k = fig_sample_rows(program, "k", 2, 64);
    fig_cache cache = fig_sample_cache(program, "cache", 2, 64);
    cache.reserved[2] = k;
    fig_append_kv(program, FIG_OPTIONS(fig_append_kv_op, .k = k, .v = k, .cache = cache));
    FIG_SAMPLE_REFUSES(end(program), FIG_INVALID, "append_kv: cache: reserved[2] is tensor 1");
    program = begin();
    const fig_tensor q = fig_sample_rows(program, "q", 8, 64);
    cache = fig_sample_cache(program, "cache", 2, 64);
    cache.reserved[0] = q;
    fig_attention(program, FIG_OPTIONS(fig_attention_op, .q = q, .out = q, .cache = cache));
    FIG_SAMPLE_REFUSES(end(program), FIG_INVALID, "attention: cache: reserved[0] is tensor 1");
    program = begin();
    const fig_rope_spec own = {.reserved = {0, 0, 0, 7}};
    const fig_tensor rows = fig_sample_rows(program, "q", 8, 64);
    fig_rope(program, FIG_OPTIONS(fig_rope_op, .q = rows, .k = rows, .rope = &own));
    FIG_SAMPLE_REFUSES(end(program), FIG_INVALID, "rope: reserved[3] is 7, it must be 0");
}

static fig_status attend_with(float sm_scale, float *stored) {
    fig_program *program = begin();
    const fig_tensor q = fig_sample_rows(program, "q", 8, 64);
    const fig_tensor out = fig_sample_rows(program, "out", 8, 64);
    const fig_cache cache = fig_sample_cache(program, "cache", 2, 64);
    fig_attention(program, FIG_OPTIONS(fig_attention_op, .q = q, .out = out, .cache = cache,
                                       .sm_scale = sm_scale));
    memcpy(stored, fig_program_view_of(program)->attributes, sizeof *stored);
    return end(program);
}

static void sm_scale_defaults_to_the_spec_s(void **state) {
    (void)state;
    float stored;
    assert_int_equal(attend_with(0, &stored), FIG_OK);
    assert_true(stored == 0.125f);
    assert_int_equal(attend_with(0.5f, &stored), FIG_OK);
    assert_true(stored == 0.5f);
    FIG_SAMPLE_REFUSES(attend_with(-0.5f, &stored), FIG_INVALID, "sm_scale is -0.5");
    FIG_SAMPLE_REFUSES(attend_with(INFINITY, &stored), FIG_INVALID, "sm_scale is inf");
    FIG_SAMPLE_REFUSES(attend_with(NAN, &stored), FIG_INVALID, "sm_scale is");
}

static void a_call_stores_its_name_tag_and_bytes(void **state) {
    (void)state;
    fig_program *program = begin();
    const fig_tensor a = fig_sample_rows(program, "a", 1, 8),
                     b = fig_sample_rows(program, "b", 1, 8);
    const fig_tensor reads[] = {a, b}, writes[] = {b};
    fig_call(program, FIG_OPTIONS(fig_call_op, .call = "gemm", .reads = reads, .read_count = 2,
                                  .writes = writes, .write_count = 1, .tag = 7, .bytes = "xyz",
                                  .byte_count = 3));
    fig_call(program, FIG_OPTIONS(fig_call_op, .call = "gemm"));
    const fig_program_view *view = fig_program_view_of(program);
    fig_call_attributes call, second;
    memcpy(&call, view->attributes, sizeof call);
    memcpy(&second, view->attributes + view->nodes[1].attribute, sizeof second);
    assert_string_equal(view->strings + call.name, "gemm");
    assert_int_equal(second.name, call.name);
    assert_int_equal(call.tag, 7);
    assert_int_equal(call.byte_count, 3);
    assert_memory_equal(call.bytes, "xyz\0", 4);
    assert_int_equal(fig_program_view_access(view, &view->nodes[0], 1), FIG_ACCESS_READ);
    assert_int_equal(fig_program_view_access(view, &view->nodes[0], 2), FIG_ACCESS_WRITE);
    assert_int_equal(end(program), FIG_OK);
}

static fig_status call_with(const fig_call_op *op) {
    fig_program *program = begin();
    fig_sample_rows(program, "a", 1, 8);
    fig_call(program, op);
    return end(program);
}

static void unsound_calls_are_refused(void **state) {
    (void)state;
    static const fig_tensor twice[] = {{1}, {1}}, absent[] = {{0}}, foreign[] = {{2}};
    static const char bytes[257];
    FIG_SAMPLE_REFUSES(call_with(FIG_OPTIONS(fig_call_op, .tag = 1)), FIG_INVALID, "name is NULL");
    FIG_SAMPLE_REFUSES(call_with(FIG_OPTIONS(fig_call_op, .call = "a b")), FIG_INVALID, "a b");
    FIG_SAMPLE_REFUSES(
        call_with(FIG_OPTIONS(fig_call_op, .call = "c", .reads = twice, .read_count = 17)),
        FIG_INVALID, "read_count is 17, limits 0 to 16");
    FIG_SAMPLE_REFUSES(
        call_with(FIG_OPTIONS(fig_call_op, .call = "c", .writes = twice, .write_count = -1)),
        FIG_INVALID, "write_count is -1");
    FIG_SAMPLE_REFUSES(call_with(FIG_OPTIONS(fig_call_op, .call = "c", .read_count = 1)),
                       FIG_INVALID, "its array is NULL");
    FIG_SAMPLE_REFUSES(
        call_with(FIG_OPTIONS(fig_call_op, .call = "c", .bytes = bytes, .byte_count = 257)),
        FIG_INVALID, "byte_count is 257, limits 0 to 256");
    FIG_SAMPLE_REFUSES(
        call_with(FIG_OPTIONS(fig_call_op, .call = "c", .writes = twice, .write_count = 2)),
        FIG_INVALID, "node 0 (call): writes a twice");
    FIG_SAMPLE_REFUSES(
        call_with(FIG_OPTIONS(fig_call_op, .call = "c", .reads = absent, .read_count = 1)),
        FIG_INVALID, "tensor, operand 0, is absent");
    FIG_SAMPLE_REFUSES(
        call_with(FIG_OPTIONS(fig_call_op, .call = "c", .reads = foreign, .read_count = 1)),
        FIG_INVALID, "tensor is tensor 2, the program has 1");
    assert_int_equal(
        call_with(FIG_OPTIONS(fig_call_op, .call = "c", .reads = twice, .read_count = 2)), FIG_OK);
}

/* The recorder counts the tensors itself, but a file may claim any number. */
static void a_call_writes_at_most_sixteen_tensors(void **state) {
    (void)state;
    for (uint32_t count = 16; count <= 17; count++) {
        fig_program *program = begin();
        uint32_t ids[17];
        char name[16];
        for (uint32_t i = 0; i < count; i++) {
            snprintf(name, sizeof name, "t%u", i);
            ids[i] = fig_sample_rows(program, name, 1, 8).id;
        }
        const fig_call_attributes call = {.name = fig_program_string(program, "c")};
        fig_program_node(program, FIG_OP_CALL, ids, count, &call, sizeof call);
        if (count == 16) assert_int_equal(end(program), FIG_OK);
        if (count == 17)
            FIG_SAMPLE_REFUSES(end(program), FIG_INVALID, "write_count is 17, limit 16");
    }
}

static void nothing_is_recorded_into_no_program(void **state) {
    (void)state;
    fig_program_read_lengths(NULL, (fig_tensor){0}, (fig_tensor){0});
    fig_silu_and_mul(NULL, NULL);
    fig_gelu_and_mul(NULL, NULL);
    fig_gelu_tanh_and_mul(NULL, NULL);
    fig_rms_norm(NULL, NULL);
    fig_add_rms_norm(NULL, NULL);
    fig_merge_states(NULL, NULL);
    fig_rope(NULL, NULL);
    fig_append_kv(NULL, NULL);
    fig_attention(NULL, NULL);
    fig_call(NULL, NULL);
    fig_program_layer(NULL, 0);
    fig_program_segment(NULL, "a");
    assert_int_equal(fig_program_string(NULL, "c"), 0);
}

static void a_refused_call_leaves_no_node(void **state) {
    (void)state;
    fig_program *program = begin();
    fig_call(program, FIG_OPTIONS(fig_call_op, .call = "not a name"));
    assert_int_equal(fig_program_view_of(program)->node_count, 0);
    assert_int_equal(fig_program_string(program, "c"), 0);
    FIG_SAMPLE_REFUSES(end(program), FIG_INVALID, "not a name");
    program = begin();
    fig_silu_and_mul(program, NULL);
    assert_int_equal(fig_sample_rows(program, "after", 1, 8).id, 0);
    FIG_SAMPLE_REFUSES(end(program), FIG_INVALID, "in, operand 0, is absent");
}

static void options_without_a_size_are_refused(void **state) {
    (void)state;
    fig_program *program = begin();
    fig_silu_and_mul(program, &(fig_gated_op){.size = 0});
    FIG_SAMPLE_REFUSES(end(program), FIG_INVALID, "fig_gated_op: size is 0");
    program = begin();
    fig_append_kv(program, &(fig_append_kv_op){.size = 2});
    FIG_SAMPLE_REFUSES(end(program), FIG_INVALID, "fig_append_kv_op: size is 2");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rope_is_in_place_and_follows_the_spec_by_default),
        cmocka_unit_test(a_node_ends_after_its_last_operand_but_not_before_format_1s_row),
        cmocka_unit_test(a_table_takes_the_place_of_terms),
        cmocka_unit_test(a_plain_node_turns_nothing),
        cmocka_unit_test(a_table_that_lacks_frequencies_of_pairs_is_refused),
        cmocka_unit_test(a_rope_turns_the_whole_head_by_default),
        cmocka_unit_test(norms_of_heads_have_an_epsilon),
        cmocka_unit_test(an_unsound_rope_is_refused),
        cmocka_unit_test(reserved_room_is_refused_by_name),
        cmocka_unit_test(activations_share_an_operation),
        cmocka_unit_test(only_add_rms_norm_takes_a_residual),
        cmocka_unit_test(sm_scale_defaults_to_the_spec_s),
        cmocka_unit_test(attention_sees_all_tokens_by_default),
        cmocka_unit_test(operands_stand_where_the_table_has_them),
        cmocka_unit_test(a_call_stores_its_name_tag_and_bytes),
        cmocka_unit_test(unsound_calls_are_refused),
        cmocka_unit_test(a_call_writes_at_most_sixteen_tensors),
        cmocka_unit_test(nothing_is_recorded_into_no_program),
        cmocka_unit_test(a_refused_call_leaves_no_node),
        cmocka_unit_test(options_without_a_size_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
