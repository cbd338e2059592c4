/* capture.c: makes the graphs from which tests of files and of inspection start.
 *
 * If the library refuses a call, the test ends with the library's message. */
#include "tests/support/files/capture.h"

#include <stdio.h>
#include <stdlib.h>

#include "graphs/graphs.h"
#include "include/figraph_tune.h"
#include "tests/support/files/sample.h"

static void must(fig_status status) {
    if (status == FIG_OK) return;
    fprintf(stderr, "capture: %s: %s\n", fig_status_name(status), fig_message());
    exit(1);
}

fig_graphs *fig_capture_preset(const char *preset, int32_t layers, const char *traits) {
    fig_spec spec = {.size = sizeof spec};
    fig_traits machine = {.size = sizeof machine};
    fig_program *program;
    fig_graphs *graphs;
    must(fig_spec_preset(&spec, preset));
    spec.layers = layers;
    must(fig_program_create(&program, &spec));
    fig_program_decode_step(program);
    must(fig_program_finish(program));
    must(fig_traits_named(&machine, traits));
    must(fig_graphs_lower(&graphs, program, FIG_OPTIONS(fig_lower_options, .traits = &machine)));
    fig_program_destroy(program);
    return graphs;
}

/* Adds a tensor "x", or "q.1" in layer 1. The dims determine its rank. */
static fig_tensor tensor(fig_program *program, const char *stem, int32_t layer,
                         fig_tensor_info info) {
    char name[32];
    snprintf(name, sizeof name, "%s.%d", stem, (int)layer);
    info.size = sizeof info;
    info.name = layer < 0 ? stem : name;
    while (info.rank < 4 && info.dims[info.rank] != 0)
        info.rank++;
    return fig_program_tensor(program, &info);
}

static fig_tensor rows(fig_program *program, const char *stem, int32_t layer, fig_role role,
                       int64_t heads, int64_t head_dim) {
    return tensor(program, stem, layer,
                  (fig_tensor_info){
                      .role = role, .dtype = FIG_BF16, .dims = {FIG_DIM_BATCH, heads, head_dim}});
}

static fig_tensor cache(fig_program *program, const char *stem, int32_t layer) {
    return tensor(program, stem, layer,
                  (fig_tensor_info){.role = FIG_ROLE_STATE,
                                    .dtype = FIG_BF16,
                                    .dims = {FIG_DIM_PAGES, 16, 2, 64}});
}

static void record_call(fig_program *program, const char *call, fig_tensor read,
                        fig_tensor written) {
    fig_call(program, FIG_OPTIONS(fig_call_op, .call = call, .reads = &read, .read_count = 1,
                                  .writes = &written, .write_count = 1, .tag = UINT64_MAX,
                                  .bytes = "weights", .byte_count = 7));
}

/* x -> gemm -> silu_and_mul -> project -> x, and q, k, v -> rope -> append_kv -> attention. */
static void record_layer(fig_program *program, int32_t layer, fig_tensor x, fig_tensor positions,
                         fig_tensor page_table) {
    const fig_tensor up = rows(program, "up", layer, FIG_ROLE_TEMP, 128, 0);
    const fig_tensor act = rows(program, "act", layer, FIG_ROLE_TEMP, 64, 0);
    const fig_tensor q = rows(program, "q", layer, FIG_ROLE_BOUND, 8, 64);
    const fig_tensor k = rows(program, "k", layer, FIG_ROLE_BOUND, 2, 64);
    const fig_tensor v = rows(program, "v", layer, FIG_ROLE_BOUND, 2, 64);
    const fig_tensor out = rows(program, "out", layer, FIG_ROLE_BOUND, 8, 64);
    const fig_tensor lse = tensor(
        program, "lse", layer,
        (fig_tensor_info){.role = FIG_ROLE_BOUND, .dtype = FIG_F32, .dims = {FIG_DIM_BATCH, 8}});
    const fig_cache caches = {.k = cache(program, "k_cache", layer),
                              .v = cache(program, "v_cache", layer),
                              .page_table = page_table};
    fig_program_layer(program, layer);
    record_call(program, "gemm", x, up);
    fig_silu_and_mul(program, FIG_OPTIONS(fig_gated_op, .in = up, .out = act));
    fig_rope(program, FIG_OPTIONS(fig_rope_op, .q = q, .k = k, .positions = positions));
    fig_append_kv(program, FIG_OPTIONS(fig_append_kv_op, .k = k, .v = v, .cache = caches));
    fig_attention(program,
                  FIG_OPTIONS(fig_attention_op, .q = q, .out = out, .lse = lse, .cache = caches));
    record_call(program, "project", act, x);
}

/* Lowers both buckets in both of the host's variants, even if a variant is never the cheaper
 * one. */
static fig_graphs *assemble(fig_program *program, const fig_bucket buckets[2]) {
    fig_codec_parts parts = {.program = program,
                             .bucket_count = 4,
                             .buckets = calloc(4, sizeof *parts.buckets),
                             .maker = fig_codec_maker_of(fig_program_view_of(program))};
    fig_graphs *graphs;
    if (parts.buckets == NULL) must(FIG_NOMEM);
    parts.target.traits.size = sizeof parts.target.traits;
    must(fig_traits_named(&parts.target.traits, "host"));
    for (int32_t i = 0; i < 4; i++)
        parts.buckets[i] = (fig_bucket_shape){.caps = buckets[i / 2], .variant = i % 2};
    must(fig_graphs_assemble(&graphs, &parts));
    return graphs;
}

fig_graphs *fig_capture_mixed(void) {
    const fig_bucket buckets[] = {{1, 128}, {4, 64}};
    const fig_spec spec = {.size = sizeof spec,
                           .dtype = FIG_BF16,
                           .layers = 2,
                           .q_heads = 8,
                           .kv_heads = 2,
                           .head_dim = 64,
                           .ffn_width = 64,
                           .page_size = 16,
                           .batch_limit = 4,
                           .kv_limit = 128};
    fig_program *program;
    must(fig_program_create(&program, &spec));
    const fig_tensor x = rows(program, "x", -1, FIG_ROLE_BOUND, 64, 0);
    const fig_tensor positions = tensor(
        program, "positions", -1,
        (fig_tensor_info){.role = FIG_ROLE_BOUND, .dtype = FIG_I64, .dims = {FIG_DIM_BATCH}});
    const fig_tensor page_table =
        tensor(program, "page_table", -1,
               (fig_tensor_info){.role = FIG_ROLE_STATE, .dtype = FIG_I32, .dims = {4, 8}});
    for (int32_t layer = 0; layer < spec.layers; layer++)
        record_layer(program, layer, x, positions, page_table);
    fig_program_layer(program, -1);
    fig_call(program, FIG_OPTIONS(fig_call_op, .call = "sample", .reads = &x, .read_count = 1));
    must(fig_program_finish(program));
    return assemble(program, buckets);
}

fig_graphs *fig_capture_tuned(void) {
    fig_graphs *graphs = fig_capture_preset("tutorial", 1, "host"), *tuned;
    const fig_tune_costs costs[] = {
        {.size = sizeof costs[0], .start_ns = 2000, .bytes_per_us = 30000, .piece_ns = 100},
        {.size = sizeof costs[0], .variant = 1, .start_ns = 3000, .bytes_per_us = 40000}};
    must(fig_graphs_tune(&tuned, graphs, costs, 2));
    fig_graphs_destroy(graphs);
    return tuned;
}

fig_graphs *fig_capture_breadth(void) {
    const fig_bucket buckets[] = {{2, 100}, {6, 200}};
    fig_program *program = fig_sample_breadth();
    fig_graphs *graphs;
    must(fig_graphs_lower(
        &graphs, program,
        FIG_OPTIONS(fig_lower_options, .buckets = buckets, .bucket_count = 2, .deterministic = 1)));
    fig_program_destroy(program);
    return graphs;
}
