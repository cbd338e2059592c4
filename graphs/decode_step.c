/* decode_step.c: the standard step, as any user of the recorder could write it.
 *
 * Owns the names that callers bind by. Invariant: it uses the public recorder alone, but for a look
 * at the spec. */
#include <inttypes.h>
#include <stdio.h>

#include "graphs/program.h"
#include "planner/spec.h"

/* "q", 7: q.7. The caller's, of the spec's dtype and 0 ended dims. */
static fig_tensor layer_tensor(fig_program *program, const char *name, int32_t layer,
                               const int64_t dims[4]) {
    char full_name[FIG_NAME_LIMIT + 1];
    fig_tensor_info info = {.size = sizeof info, .name = full_name, .role = FIG_BOUND};
    snprintf(full_name, sizeof full_name, "%s.%" PRId32, name, layer);
    info.dtype = fig_program_view_of(program)->spec.dtype;
    for (; info.rank < 4 && dims[info.rank] != 0; info.rank++)
        info.dims[info.rank] = dims[info.rank];
    return fig_program_tensor(program, &info);
}

static fig_tensor page_table(fig_program *program, const fig_spec *spec) {
    if (spec->page_size == 0) return (fig_tensor){0};
    return fig_program_tensor(
        program,
        FIG_OPTIONS(fig_tensor_info, .name = "page_table", .role = FIG_STATE, .dtype = FIG_I32,
                    .rank = 2, .dims = {spec->sequence_limit, fig_spec_sequence_pages(spec)}));
}

void fig_program_decode_step(fig_program *program) {
    if (!fig_program_recording(program)) return;
    const fig_spec spec = fig_program_view_of(program)->spec;
    const int64_t gate_up_dims[4] = {FIG_DIM_BATCH, 2 * (int64_t)spec.ffn_width};
    const int64_t act_dims[4] = {FIG_DIM_BATCH, spec.ffn_width};
    const int64_t q_dims[4] = {FIG_DIM_BATCH, spec.q_heads, spec.head_dim};
    const int64_t kv_dims[4] = {FIG_DIM_BATCH, spec.kv_heads, spec.head_dim};
    const int64_t cache_dims[4] = {FIG_DIM_PAGES, fig_spec_page_tokens(&spec), spec.kv_heads,
                                   spec.head_dim};
    fig_cache cache = {.page_table = page_table(program, &spec)};

    for (int32_t layer = 0; layer < spec.layers; layer++) {
        fig_program_layer(program, layer);
        if (spec.ffn_width > 0) {
            fig_tensor gate_up = layer_tensor(program, "gate_up", layer, gate_up_dims);
            fig_tensor act = layer_tensor(program, "act", layer, act_dims);
            fig_silu_and_mul(program, FIG_OPTIONS(fig_silu_and_mul_op, .in = gate_up, .out = act));
        }
        fig_tensor q = layer_tensor(program, "q", layer, q_dims);
        fig_tensor k = layer_tensor(program, "k", layer, kv_dims);
        fig_tensor v = layer_tensor(program, "v", layer, kv_dims);
        fig_tensor out = layer_tensor(program, "out", layer, q_dims);
        cache.k = layer_tensor(program, "k_cache", layer, cache_dims);
        cache.v = layer_tensor(program, "v_cache", layer, cache_dims);
        fig_rope(program, FIG_OPTIONS(fig_rope_op, .q = q, .k = k));
        fig_append_kv(program, FIG_OPTIONS(fig_append_kv_op, .k = k, .v = v, .cache = cache));
        fig_attention(program, FIG_OPTIONS(fig_attention_op, .q = q, .out = out, .cache = cache));
    }
    fig_program_layer(program, -1);
}
