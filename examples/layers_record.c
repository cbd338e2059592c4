/* layers_record.c: records the decode step of a model as a program. For each layer:
 *
 *     normed ──qkv──→ q, k, v ──RoPE, append, attention──→ attended ──output──→ part
 *     residual += the sum of all ranks' part;     normed = RMSNorm(residual)
 *     normed ──gate_up──→ gate_up ──activation──→ act ──down──→ part
 *     residual += the sum of all ranks' part;     normed = RMSNorm(residual)
 *
 * The four arrows that are named after a matrix are calls, in which the caller's callback
 * multiplies by the caller's weights. A rank has some of the heads and some of the ffn's columns.
 * So its products with output and down are only parts of a sum over all ranks. */
#include "examples/layers_record.h"

#include <figraph_parallel.h>
#include <stdio.h>

typedef struct recording {
    fig_program *program;
    const fig_spec *spec;
    fig_tensor page_table, state, residual, normed, q, k, v, attended, part, gate_up, act;
} recording;

static fig_tensor add(const recording *r, const char *name, fig_role role, int64_t heads,
                      int64_t width) {
    return fig_program_tensor(
        r->program,
        FIG_OPTIONS(fig_tensor_info, .name = name, .role = role, .dtype = FIG_BF16,
                    .rank = heads > 0 ? 3 : 2,
                    .dims = {FIG_DIM_BATCH, heads > 0 ? heads : width, heads > 0 ? width : 0}));
}

static fig_tensor add_norm(const recording *r, const char *name, int64_t hidden) {
    return fig_program_tensor(r->program,
                              FIG_OPTIONS(fig_tensor_info, .name = name, .role = FIG_ROLE_BOUND,
                                          .dtype = FIG_BF16, .rank = 1, .dims = {hidden}));
}

static fig_tensor add_cache(const recording *r, const char *name) {
    const fig_spec *spec = r->spec;
    return fig_program_tensor(
        r->program,
        FIG_OPTIONS(fig_tensor_info, .name = name, .role = FIG_ROLE_BOUND, .dtype = FIG_BF16,
                    .rank = 4,
                    .dims = {FIG_DIM_PAGES, spec->page_size, spec->kv_heads, spec->head_dim}));
}

/* Adds the tensors that all layers use one after another. */
static void add_tensors(recording *r, int64_t hidden) {
    const fig_spec *spec = r->spec;
    const int64_t pages = (spec->kv_limit + spec->page_size - 1) / spec->page_size;
    r->state = add(r, "state", FIG_ROLE_BOUND, 0, hidden);
    r->residual = add(r, "residual", FIG_ROLE_TEMP, 0, hidden);
    r->normed = add(r, "normed", FIG_ROLE_TEMP, 0, hidden);
    r->q = add(r, "q", FIG_ROLE_BOUND, spec->q_heads, spec->head_dim);
    r->k = add(r, "k", FIG_ROLE_BOUND, spec->kv_heads, spec->head_dim);
    r->v = add(r, "v", FIG_ROLE_BOUND, spec->kv_heads, spec->head_dim);
    r->attended = add(r, "attended", FIG_ROLE_TEMP, spec->q_heads, spec->head_dim);
    r->part = add(r, "part", FIG_ROLE_TEMP, 0, hidden);
    r->gate_up = add(r, "gate_up", FIG_ROLE_TEMP, 0, 2 * (int64_t)spec->ffn_width);
    r->act = add(r, "act", FIG_ROLE_TEMP, 0, spec->ffn_width);
    r->page_table = fig_program_tensor(
        r->program,
        FIG_OPTIONS(fig_tensor_info, .name = "page_table", .role = FIG_ROLE_STATE, .dtype = FIG_I32,
                    .rank = 2, .dims = {spec->sequence_limit, pages}));
}

static void project(const recording *r, int32_t layer, layers_matrix which, fig_tensor in,
                    const fig_tensor *out, int32_t out_count) {
    fig_call(r->program,
             FIG_OPTIONS(fig_call_op, .call = "project", .reads = &in, .read_count = 1,
                         .writes = out, .write_count = out_count,
                         .tag = (uint64_t)LAYERS_MATRICES * (uint64_t)layer + (uint64_t)which));
}

/* Adds the sum of all ranks' parts to the residual, and normalizes the result. */
static void join(const recording *r, const char *norm, int64_t hidden, fig_tensor out) {
    fig_all_reduce_add_rms_norm(r->program,
                                FIG_OPTIONS(fig_rms_norm_op, .in = r->part, .residual = r->residual,
                                            .weight = add_norm(r, norm, hidden), .out = out));
}

static void attend(const recording *r, int32_t layer) {
    char k_cache[24], v_cache[24];
    snprintf(k_cache, sizeof k_cache, "k_cache.%d", (int)layer);
    snprintf(v_cache, sizeof v_cache, "v_cache.%d", (int)layer);
    const fig_cache cache = {
        .k = add_cache(r, k_cache), .v = add_cache(r, v_cache), .page_table = r->page_table};
    fig_decode_attention(r->program, FIG_OPTIONS(fig_decode_attention_op, .q = r->q, .k = r->k,
                                                 .v = r->v, .out = r->attended, .cache = cache));
}

static void record_layer(const recording *r, int32_t layer, int64_t hidden) {
    const fig_tensor qkv[] = {r->q, r->k, r->v};
    const int is_last = layer == r->spec->layers - 1;
    char post_norm[24], next_norm[24];
    snprintf(post_norm, sizeof post_norm, "post_norm.%d", (int)layer);
    snprintf(next_norm, sizeof next_norm, is_last ? "norm" : "input_norm.%d", (int)layer + 1);
    fig_program_layer(r->program, layer);
    project(r, layer, LAYERS_QKV, r->normed, qkv, 3);
    attend(r, layer);
    project(r, layer, LAYERS_OUTPUT, r->attended, &r->part, 1);
    join(r, post_norm, hidden, r->normed);
    project(r, layer, LAYERS_GATE_UP, r->normed, &r->gate_up, 1);
    fig_silu_and_mul(r->program, FIG_OPTIONS(fig_gated_op, .in = r->gate_up, .out = r->act));
    project(r, layer, LAYERS_DOWN, r->act, &r->part, 1);
    join(r, next_norm, hidden, is_last ? r->state : r->normed);
}

/* A real model samples a token from the state and looks up its row. Here the state itself is that
 * row. */
static void embed(const recording *r) {
    fig_call(r->program, FIG_OPTIONS(fig_call_op, .call = "embed", .reads = &r->state,
                                     .read_count = 1, .writes = &r->residual, .write_count = 1));
}

fig_status layers_record(fig_program **program, const fig_spec *spec, int32_t hidden) {
    const fig_status status = fig_program_create(program, spec);
    if (status != FIG_OK) return status;
    recording r = {.program = *program, .spec = spec};
    add_tensors(&r, hidden);
    embed(&r);
    fig_rms_norm(r.program, FIG_OPTIONS(fig_rms_norm_op, .in = r.residual, .out = r.normed,
                                        .weight = add_norm(&r, "input_norm.0", hidden)));
    for (int32_t layer = 0; layer < spec->layers; layer++)
        record_layer(&r, layer, hidden);
    return fig_program_finish(r.program);
}
