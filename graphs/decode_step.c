/* decode_step.c: the standard step, as any user of the recorder could write it.
 *
 * Owns the names that callers bind by. Invariant: it uses the public recorder alone, but for a look
 * at the spec. */
#include "graphs/decode_step.h"

#include <inttypes.h>
#include <stdio.h>

#include "graphs/program.h"
#include "planner/spec.h"
#include "planner/status.h"

/* "q.7". */
typedef struct layer_name {
    char text[FIG_NAME_LIMIT + 1];
} layer_name;

static layer_name name_of(const char *stem, int32_t layer) {
    layer_name name;
    snprintf(name.text, sizeof name.text, "%s.%" PRId32, stem, layer);
    return name;
}

/* "q", 7: q.7, the caller's. The rank follows from the dims. */
static fig_tensor layer_tensor(fig_program *program, const char *stem, int32_t layer,
                               fig_tensor_info info) {
    const layer_name name = name_of(stem, layer);
    info.size = sizeof info;
    info.name = name.text;
    info.role = FIG_ROLE_BOUND;
    while (info.rank < 4 && info.dims[info.rank] != 0)
        info.rank++;
    return fig_program_tensor(program, &info);
}

/* [rows][heads][head_dim] */
static fig_tensor rows(fig_program *program, const char *name, int32_t layer, int64_t heads) {
    const fig_spec *spec = &fig_program_view_of(program)->spec;
    return layer_tensor(program, name, layer,
                        (fig_tensor_info){.dtype = spec->dtype,
                                          .dims = {FIG_DIM_BATCH, heads, spec->head_dim},
                                          .multiple = spec->row_tokens});
}

/* [rows][width], ffn_rows for each token. */
static fig_tensor ffn_rows(fig_program *program, const char *name, int32_t layer, int64_t width) {
    const fig_spec *spec = &fig_program_view_of(program)->spec;
    return layer_tensor(program, name, layer,
                        (fig_tensor_info){.dtype = spec->dtype,
                                          .dims = {FIG_DIM_BATCH, width},
                                          .multiple = spec->row_tokens * spec->ffn_rows});
}

static fig_tensor vector(fig_program *program, const char *name, int32_t layer, fig_dtype dtype,
                         int64_t count) {
    return layer_tensor(program, name, layer, (fig_tensor_info){.dtype = dtype, .dims = {count}});
}

static fig_tensor page_table(fig_program *program, const char *name) {
    const fig_spec *spec = &fig_program_view_of(program)->spec;
    if (spec->page_size == 0) return (fig_tensor){0};
    return fig_program_tensor(
        program,
        FIG_OPTIONS(fig_tensor_info, .name = name, .role = FIG_ROLE_STATE, .dtype = FIG_I32,
                    .rank = 2, .dims = {spec->sequence_limit, fig_spec_sequence_pages(spec)}));
}

/* 1: some layers have a window and others see all. */
static int has_both_classes(const fig_spec *spec) {
    for (int32_t layer = 1; layer < spec->layers; layer++)
        if (fig_spec_layer_window(spec, layer) != fig_spec_layer_window(spec, 0)) return 1;
    return 0;
}

static fig_cache layer_cache(fig_program *program, int32_t layer, fig_tensor table) {
    const fig_spec *spec = &fig_program_view_of(program)->spec;
    const fig_tensor_info pages = {
        .dtype = spec->kv_dtype,
        .dims = {FIG_DIM_PAGES, fig_spec_page_tokens(spec), spec->kv_heads, spec->head_dim},
        .layout = spec->kv_layout};
    const int64_t scales = spec->kv_scales ? spec->kv_heads : 1;
    fig_cache cache = {.page_table = table};
    cache.k = layer_tensor(program, "k_cache", layer, pages);
    cache.v = layer_tensor(program, "v_cache", layer, pages);
    if (spec->kv_dtype == FIG_E4M3 || spec->kv_dtype == FIG_E5M2) {
        cache.k_scale = vector(program, "k_scale", layer, FIG_F32, scales);
        cache.v_scale = vector(program, "v_scale", layer, FIG_F32, scales);
    }
    return cache;
}

static void record_activation(fig_program *program, int32_t layer) {
    const fig_spec *spec = &fig_program_view_of(program)->spec;
    if (spec->ffn_width == 0) return;
    const fig_tensor gate_up = ffn_rows(program, "gate_up", layer, 2 * (int64_t)spec->ffn_width);
    const fig_tensor act = ffn_rows(program, "act", layer, spec->ffn_width);
    const fig_gated_op *op = FIG_OPTIONS(fig_gated_op, .in = gate_up, .out = act);
    fig_program_segment(program, name_of("act", layer).text);
    switch (spec->activation) {
    case FIG_SILU: fig_silu_and_mul(program, op); return;
    case FIG_GELU: fig_gelu_and_mul(program, op); return;
    case FIG_GELU_TANH: fig_gelu_tanh_and_mul(program, op); return;
    case FIG_SWIGLU_LIMITED: fig_swiglu_limited(program, op); return;
    }
}

/* Without RoPE there is nothing to be fused with: the keys are appended as they come. */
static void record_plain_attention(fig_program *program, const fig_decode_attention_op *op) {
    fig_append_kv(program,
                  FIG_OPTIONS(fig_append_kv_op, .k = op->k, .v = op->v, .cache = op->cache));
    fig_attention(program,
                  FIG_OPTIONS(fig_attention_op, .q = op->q, .out = op->out, .cache = op->cache,
                              .sinks = op->sinks, .window = op->window, .soft_cap = op->soft_cap));
}

static void record_attention(fig_program *program, int32_t layer, fig_tensor table,
                             fig_decode_step_attention attention) {
    const fig_spec *spec = &fig_program_view_of(program)->spec;
    const fig_spec_turns turns = fig_spec_layer_rope(spec, layer);
    fig_decode_attention_op op = {.size = sizeof op,
                                  .rope = turns.rope,
                                  .rope_table = turns.table,
                                  .window = fig_spec_layer_window(spec, layer),
                                  .soft_cap = spec->soft_cap};
    fig_program_segment(program, name_of("attn", layer).text);
    op.q = rows(program, "q", layer, spec->q_heads);
    op.k = rows(program, "k", layer, spec->kv_heads);
    op.v = rows(program, "v", layer, spec->kv_heads);
    op.out = rows(program, "out", layer, spec->q_heads);
    op.cache = layer_cache(program, layer, table);
    if (spec->qk_norm_epsilon > 0.0f) {
        op.q_norm = vector(program, "q_norm", layer, spec->dtype, spec->head_dim);
        op.k_norm = vector(program, "k_norm", layer, spec->dtype, spec->head_dim);
    }
    if (spec->sinks) op.sinks = vector(program, "sinks", layer, FIG_F32, spec->q_heads);
    if (fig_spec_layer_turns(spec, layer)) {
        attention(program, &op);
    } else {
        record_plain_attention(program, &op);
    }
}

void fig_decode_step_record(fig_program *program, fig_decode_step_attention attention) {
    if (!fig_program_recording(program)) return;
    const fig_spec *spec = &fig_program_view_of(program)->spec;
    if (spec->q_heads == 0) {
        fig_program_refuse(program, fig_fail(FIG_INVALID, "decode_step: the spec has no heads"));
        return;
    }
    const fig_tensor table = page_table(program, "page_table");
    const fig_tensor window_table =
        has_both_classes(spec) ? page_table(program, "page_table.window") : table;
    for (int32_t layer = 0; layer < spec->layers; layer++) {
        fig_program_layer(program, layer);
        record_activation(program, layer);
        record_attention(program, layer,
                         fig_spec_layer_window(spec, layer) > 0 ? window_table : table, attention);
    }
    fig_program_layer(program, -1);
    fig_program_segment(program, NULL);
}

void fig_program_decode_step(fig_program *program) {
    fig_decode_step_record(program, fig_decode_attention);
}
