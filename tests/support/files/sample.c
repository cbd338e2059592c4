/* sample.c: makes the small specs and programs from which tests of graphs/ start. */
#include "tests/support/files/sample.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "graphs/record/program.h"
#include "tests/support/apart.h"

fig_spec fig_sample_spec(void) {
    return (fig_spec){.size = sizeof(fig_spec),
                      .dtype = FIG_F16,
                      .layers = 2,
                      .q_heads = 8,
                      .kv_heads = 2,
                      .head_dim = 64,
                      .ffn_width = 32,
                      .page_size = 16,
                      .batch_limit = 6,
                      .kv_limit = 200,
                      .sequence_limit = 9};
}

fig_program *fig_sample_program(const fig_spec *spec) {
    fig_program *program;
    if (fig_program_create(&program, spec) != FIG_OK) fail_msg("%s", fig_message());
    return program;
}

fig_program *fig_sample_step(const fig_spec *spec) {
    fig_program *program = fig_sample_program(spec);
    fig_program_decode_step(program);
    if (fig_program_finish(program) != FIG_OK) fail_msg("%s", fig_message());
    return program;
}

fig_program *fig_sample_apart(const fig_spec *spec) {
    fig_program *program = fig_sample_program(spec);
    fig_apart_decode_step(program);
    if (fig_program_finish(program) != FIG_OK) fail_msg("%s", fig_message());
    return program;
}

static fig_graphs *lower_finished(fig_program *program, const fig_lower_options *options) {
    fig_graphs *graphs;
    if (fig_graphs_lower(&graphs, program, options) != FIG_OK) fail_msg("%s", fig_message());
    fig_program_destroy(program);
    return graphs;
}

fig_graphs *fig_sample_lower(const fig_spec *spec, const fig_lower_options *options) {
    return lower_finished(fig_sample_step(spec), options);
}

fig_graphs *fig_sample_finish(fig_program *program, const fig_lower_options *options) {
    if (fig_program_finish(program) != FIG_OK) fail_msg("%s", fig_message());
    return lower_finished(program, options);
}

fig_graphs *fig_sample_graphs(void) {
    const fig_spec spec = fig_sample_spec();
    return fig_sample_lower(&spec, NULL);
}

fig_program *fig_sample_mixture(void) {
    const fig_spec spec = fig_sample_spec();
    fig_program *program = fig_sample_program(&spec);
    fig_apart_decode_step(program);
    const fig_tensor read = fig_program_find(program, "out.0");
    const fig_tensor temp =
        fig_program_tensor(program, FIG_OPTIONS(fig_tensor_info, .name = "temp", .dtype = FIG_F32,
                                                .rank = 2, .dims = {FIG_DIM_BATCH, 40}));
    fig_call(program, FIG_OPTIONS(fig_call_op, .call = "gemm", .reads = &read, .read_count = 1,
                                  .writes = &temp, .write_count = 1, .tag = 9, .bytes = "abc",
                                  .byte_count = 3));
    if (fig_program_finish(program) != FIG_OK) fail_msg("%s", fig_message());
    return program;
}

/* Adds a bound tensor of any shape. The dims determine its rank. */
static fig_tensor tensor(fig_program *program, const char *name, fig_tensor_info info) {
    info.size = sizeof info;
    info.name = name;
    info.role = FIG_ROLE_BOUND;
    while (info.rank < 4 && info.dims[info.rank] != 0)
        info.rank++;
    return fig_program_tensor(program, &info);
}

#define TENSOR(program, name, ...) tensor(program, name, (fig_tensor_info){__VA_ARGS__})

fig_spec fig_sample_breadth_spec(void) {
    fig_spec spec = fig_sample_spec();
    spec.kv_dtype = FIG_E4M3;
    spec.activation = FIG_GELU_TANH;
    spec.kv_layout = FIG_HND;
    spec.kv_scales = 1;
    spec.row_tokens = 2;
    spec.soft_cap = 30;
    spec.window = 40;
    spec.window_layers[0] = 1;
    spec.qk_norm_epsilon = 1e-5f;
    spec.rope.rotary_dim = 32;
    return spec;
}

/* Records operations that the standard step does not have, on the tensors of its layers. */
static void record_attention(fig_program *program, fig_tensor out, fig_tensor lse) {
    const fig_tensor sinks = TENSOR(program, "sinks", .dtype = FIG_F32, .dims = {8});
    const fig_tensor alibi = TENSOR(program, "alibi", .dtype = FIG_F32, .dims = {8});
    const fig_cache cache = {.k = fig_program_find(program, "k_cache.1"),
                             .v = fig_program_find(program, "v_cache.1"),
                             .page_table = fig_program_find(program, "page_table"),
                             .v_scale = fig_program_find(program, "v_scale.1")};
    fig_attention(program,
                  FIG_OPTIONS(fig_attention_op, .q = fig_program_find(program, "q.1"), .out = out,
                              .lse = lse, .cache = cache, .sinks = sinks, .alibi = alibi));
}

static void record_packed_rope(fig_program *program, fig_tensor q, fig_tensor k) {
    const fig_rope_spec interleaved = {.interleaved = 1};
    const fig_tensor indptr = TENSOR(program, "indptr", .dtype = FIG_I32, .dims = {4});
    const fig_tensor offsets = TENSOR(program, "offsets", .dtype = FIG_I32, .dims = {3});
    const fig_tensor cos_sin = TENSOR(program, "cos_sin", .dtype = FIG_F32, .dims = {300, 64});
    fig_rope(program, FIG_OPTIONS(fig_rope_op, .q = q, .k = k, .indptr = indptr, .offsets = offsets,
                                  .cos_sin = cos_sin, .rope = &interleaved));
}

static void record_norms(fig_program *program) {
    const fig_tensor x = TENSOR(program, "x", .dtype = FIG_BF16, .dims = {FIG_DIM_BATCH, 7});
    const fig_tensor y = TENSOR(program, "y", .dtype = FIG_BF16, .dims = {FIG_DIM_BATCH, 7});
    const fig_tensor weight = TENSOR(program, "weight", .dtype = FIG_BF16, .dims = {7});
    fig_rms_norm(program, FIG_OPTIONS(fig_rms_norm_op, .in = x, .weight = weight, .out = x));
    fig_add_rms_norm(program, FIG_OPTIONS(fig_rms_norm_op, .in = x, .weight = weight, .out = x,
                                          .residual = y, .epsilon = 1e-5f, .weight_offset = 1));
}

static void record_rest(fig_program *program) {
    static const char *const names[] = {"lse_a", "lse_b", "lse"};
    const fig_tensor a = fig_program_find(program, "out.0"), b = fig_program_find(program, "out.1");
    fig_tensor lse[3];
    for (int i = 0; i < 3; i++)
        lse[i] =
            TENSOR(program, names[i], .dtype = FIG_F32, .dims = {FIG_DIM_BATCH, 8}, .multiple = 2);
    record_attention(program, a, lse[0]);
    fig_merge_states(program, FIG_OPTIONS(fig_merge_states_op, .out_a = a, .lse_a = lse[0],
                                          .out_b = b, .lse_b = lse[1],
                                          .out = fig_program_find(program, "q.0"), .lse = lse[2]));
    record_packed_rope(program, a, b);
    record_norms(program);
}

fig_program *fig_sample_breadth(void) {
    const fig_spec spec = fig_sample_breadth_spec();
    fig_program *program = fig_sample_program(&spec);
    const fig_tensor_info rows = {.dtype = FIG_I32, .dims = {FIG_DIM_BATCH}};
    const fig_tensor lengths = tensor(program, "lengths", rows);
    const fig_tensor positions = tensor(program, "positions", rows);
    fig_program_read_lengths(program, lengths, positions);
    fig_apart_decode_step(program);
    record_rest(program);
    fig_call(program, FIG_OPTIONS(fig_call_op, .call = "sample"));
    if (fig_program_finish(program) != FIG_OK) fail_msg("%s", fig_message());
    return program;
}

fig_lower_target fig_sample_target(const char *traits) {
    fig_lower_target target = {.traits.size = sizeof target.traits};
    if (fig_traits_named(&target.traits, traits) != FIG_OK) fail_msg("%s", fig_message());
    return target;
}

fig_tensor fig_sample_rows(fig_program *program, const char *name, int64_t heads,
                           int64_t head_dim) {
    return fig_program_tensor(program,
                              FIG_OPTIONS(fig_tensor_info, .name = name, .role = FIG_ROLE_BOUND,
                                          .dtype = FIG_F16, .rank = 3,
                                          .dims = {FIG_DIM_BATCH, heads, head_dim}));
}

fig_cache fig_sample_cache(fig_program *program, const char *name, int64_t heads,
                           int64_t head_dim) {
    char k_name[FIG_NAME_LIMIT + 1], v_name[FIG_NAME_LIMIT + 1];
    fig_tensor_info info = {.size = sizeof info,
                            .name = k_name,
                            .role = FIG_ROLE_STATE,
                            .dtype = FIG_F16,
                            .rank = 4,
                            .dims = {FIG_DIM_PAGES, 0, heads, head_dim}};
    fig_cache cache = {.k = {0}};
    info.dims[1] = fig_program_view_of(program)->spec.kv_limit;
    snprintf(k_name, sizeof k_name, "k_%s", name);
    snprintf(v_name, sizeof v_name, "v_%s", name);
    cache.k = fig_program_tensor(program, &info);
    info.name = v_name;
    cache.v = fig_program_tensor(program, &info);
    return cache;
}

void fig_sample_attention(fig_program *program, const char *name, const fig_sample_heads *heads) {
    char q_name[FIG_NAME_LIMIT + 1], out_name[FIG_NAME_LIMIT + 1];
    snprintf(q_name, sizeof q_name, "q_%s", name);
    snprintf(out_name, sizeof out_name, "out_%s", name);
    const fig_tensor q = fig_sample_rows(program, q_name, heads->q, heads->head_dim);
    const fig_tensor out = fig_sample_rows(program, out_name, heads->q, heads->head_dim);
    const fig_cache cache = fig_sample_cache(program, name, heads->kv, heads->head_dim);
    fig_attention(program, FIG_OPTIONS(fig_attention_op, .q = q, .out = out, .cache = cache));
}

void fig_sample_check(fig_status status, fig_status expected, const char *part, int line) {
    if (status != expected)
        fail_msg("line %d: %s (\"%s\"), not %s", line, fig_status_name(status), fig_message(),
                 fig_status_name(expected));
    if (strstr(fig_message(), part) == NULL)
        fail_msg("line %d: \"%s\" does not say \"%s\"", line, fig_message(), part);
}
