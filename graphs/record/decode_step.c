/* decode_step.c: records the standard step, as any user of the recorder could.
 *
 * Owns the tensor names that callers use to bind. Invariant: apart from reading the spec, this file
 * uses only the public recorder. */
#include "graphs/record/decode_step.h"

#include <inttypes.h>
#include <stdio.h>

#include "graphs/record/program.h"
#include "include/figraph_scores.h"
#include "kernels/latent/latent.h"
#include "planner/spec/spec.h"
#include "planner/status.h"

/* The function and the score with which the attention of each layer is recorded. */
typedef struct step_attention {
    fig_decode_step_attention record;
    const fig_score *score; /* NULL: none */
    int32_t has_q_rope;     /* 1: q over a latent cache is in two tensors */
} step_attention;

/* A name such as "q.7". */
typedef struct layer_name {
    char text[FIG_NAME_LIMIT + 1];
} layer_name;

static layer_name name_of(const char *stem, int32_t layer) {
    layer_name name;
    snprintf(name.text, sizeof name.text, "%s.%" PRId32, stem, layer);
    return name;
}

/* Declares a FIG_ROLE_BOUND tensor: stem "q" and layer 7 give "q.7". The rank follows from dims. */
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

/* Declares a tensor [rows][heads][width]; width 0: [rows][heads]. */
static fig_tensor rows(fig_program *program, const char *name, int32_t layer, int64_t heads,
                       int64_t width) {
    const fig_spec *spec = &fig_program_view_of(program)->spec;
    const int is_packed = spec->query_limit > 0;
    return layer_tensor(
        program, name, layer,
        (fig_tensor_info){.dtype = spec->dtype,
                          .dims = {is_packed ? FIG_DIM_QUERIES : FIG_DIM_BATCH, heads, width},
                          .multiple = is_packed ? 1 : spec->row_tokens});
}

/* Declares a tensor [rows][width], with as many rows for each token as the layer has. */
static fig_tensor ffn_rows(fig_program *program, const char *name, int32_t layer, int64_t width) {
    const fig_spec *spec = &fig_program_view_of(program)->spec;
    const int is_packed = spec->query_limit > 0;
    return layer_tensor(
        program, name, layer,
        (fig_tensor_info){.dtype = spec->dtype,
                          .dims = {is_packed ? FIG_DIM_QUERIES : FIG_DIM_BATCH, width},
                          .multiple = (is_packed ? 1 : spec->row_tokens) *
                                      fig_spec_layer_ffn(spec, layer).rows});
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

/* Returns 1 if some layers have a window and others see all tokens. */
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
    const int64_t width = fig_spec_layer_ffn(spec, layer).width;
    const fig_tensor gate_up = ffn_rows(program, "gate_up", layer, 2 * width);
    const fig_tensor act = ffn_rows(program, "act", layer, width);
    const fig_gated_op *op = FIG_OPTIONS(fig_gated_op, .in = gate_up, .out = act);
    fig_program_segment(program, name_of("act", layer).text);
    switch (spec->activation) {
    case FIG_SILU: fig_silu_and_mul(program, op); return;
    case FIG_GELU: fig_gelu_and_mul(program, op); return;
    case FIG_GELU_TANH: fig_gelu_tanh_and_mul(program, op); return;
    case FIG_SWIGLU_LIMITED: fig_swiglu_limited(program, op); return;
    }
}

static void record_attention(fig_program *program, int32_t layer, fig_tensor table,
                             const step_attention *attention) {
    const fig_spec *spec = &fig_program_view_of(program)->spec;
    const fig_spec_turns turns = fig_spec_layer_rope(spec, layer);
    fig_decode_attention_op op = {.size = sizeof op,
                                  .plain = !fig_spec_layer_turns(spec, layer),
                                  .window = fig_spec_layer_window(spec, layer),
                                  .soft_cap = spec->soft_cap,
                                  .score = attention->score};
    if (!op.plain) op.rope = turns.rope;
    if (!op.plain) op.rope_table = turns.table;
    fig_program_segment(program, name_of("attn", layer).text);
    op.q = rows(program, "q", layer, spec->q_heads, spec->head_dim);
    op.k = rows(program, "k", layer, spec->kv_heads, spec->head_dim);
    op.v = rows(program, "v", layer, spec->kv_heads, spec->head_dim);
    op.out = rows(program, "out", layer, spec->q_heads, spec->head_dim);
    op.cache = layer_cache(program, layer, table);
    if (spec->qk_norm_epsilon > 0.0f) {
        op.q_norm = vector(program, "q_norm", layer, spec->dtype, spec->head_dim);
        op.k_norm = vector(program, "k_norm", layer, spec->dtype, spec->head_dim);
    }
    if (spec->sinks) op.sinks = vector(program, "sinks", layer, FIG_F32, spec->q_heads);
    attention->record(program, &op);
}

/* Declares the latent cache of a layer and records its node. The cache has one vector, or the codes
 * of one vector, for each token. */
static void record_latent(fig_program *program, int32_t layer, fig_tensor table,
                          const step_attention *attention) {
    const fig_spec *spec = &fig_program_view_of(program)->spec;
    const fig_spec_turns turns = fig_spec_layer_rope(spec, layer);
    const int64_t token = spec->kv_dtype == spec->dtype ? spec->head_dim : FIG_LATENT_CODES_BYTES;
    fig_latent_decode_op op = {.size = sizeof op,
                               .page_table = table,
                               .rope = turns.rope,
                               .rope_table = turns.table,
                               .window = fig_spec_layer_window(spec, layer),
                               .norm_epsilon = spec->latent_norm_epsilon};
    fig_program_segment(program, name_of("attn", layer).text);
    op.q = rows(program, "q", layer, spec->q_heads,
                attention->has_q_rope ? spec->latent_dim : spec->head_dim);
    if (attention->has_q_rope)
        op.q_rope = rows(program, "q_rope", layer, spec->q_heads, FIG_LATENT_ROPE_DIM);
    op.latent = rows(program, "latent", layer, spec->head_dim, 0);
    op.out = rows(program, "out", layer, spec->q_heads, spec->latent_dim);
    op.cache =
        layer_tensor(program, "k_cache", layer,
                     (fig_tensor_info){.dtype = spec->kv_dtype,
                                       .dims = {FIG_DIM_PAGES, fig_spec_page_tokens(spec), token}});
    if (spec->latent_norm_epsilon > 0.0f)
        op.norm = vector(program, "latent_norm", layer, spec->dtype, spec->latent_dim);
    if (spec->sinks) op.sinks = vector(program, "sinks", layer, FIG_F32, spec->q_heads);
    fig_latent_decode(program, &op);
}

static void record_step(fig_program *program, const step_attention *attention) {
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
        const fig_tensor own = fig_spec_layer_window(spec, layer) > 0 ? window_table : table;
        if (spec->latent_dim > 0) {
            record_latent(program, layer, own, attention);
        } else {
            record_attention(program, layer, own, attention);
        }
    }
    fig_program_layer(program, -1);
    fig_program_segment(program, NULL);
}

void fig_decode_step_record(fig_program *program, fig_decode_step_attention attention) {
    record_step(program, &(step_attention){.record = attention});
}

void fig_program_decode_step(fig_program *program) {
    fig_decode_step_record(program, fig_decode_attention);
}

void fig_program_decode_step_parts(fig_program *program) {
    if (!fig_program_recording(program)) return;
    if (fig_program_view_of(program)->spec.latent_dim == 0) {
        fig_program_refuse(program, fig_fail(FIG_INVALID, "decode_step: q in two parts, but "
                                                          "latent_dim is 0, it must be 512"));
        return;
    }
    record_step(program, &(step_attention){.record = fig_decode_attention, .has_q_rope = 1});
}

/* Declares the tensor of an array; all layers read it. */
static fig_status declare_array(fig_program *program, const fig_score_array *array) {
    static const char *const dtypes[] = {[FIG_F32] = "f32", [FIG_BF16] = "bf16", [FIG_I32] = "i32"};
    if (array->count == 0)
        return fig_fail(FIG_INVALID,
                        "decode_step: score: array %s has no number of elements: declare it, such "
                        "as %s %s[32];",
                        array->name, dtypes[array->dtype], array->name);
    fig_program_tensor(program,
                       FIG_OPTIONS(fig_tensor_info, .name = array->name, .role = FIG_ROLE_BOUND,
                                   .dtype = array->dtype, .rank = 1, .dims = {array->count}));
    return FIG_OK;
}

void fig_program_decode_step_score(fig_program *program, const fig_score *score) {
    fig_score_parts parts = {.size = sizeof parts};
    if (!fig_program_recording(program)) return;
    const int32_t latent_dim = fig_program_view_of(program)->spec.latent_dim;
    fig_status status = fig_score_read(score, &parts);
    if (status == FIG_OK && latent_dim > 0)
        status = fig_fail(FIG_UNSUPPORTED,
                          "decode_step: a score, but latent_dim is %" PRId32
                          ", and latent attention evaluates no score",
                          latent_dim);
    for (int32_t i = 0; status == FIG_OK && i < parts.array_count; i++)
        status = declare_array(program, &parts.arrays[i]);
    if (fig_program_refuse(program, status) != FIG_OK) return;
    record_step(program, &(step_attention){.record = fig_decode_attention, .score = score});
}
