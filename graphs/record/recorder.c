/* recorder.c: the recorder call of each operation.
 *
 * Turns a caller's options into a node's operands and attributes; operation.c checks them.
 * Invariant: attributes are stored with their defaults filled in, so that a file's meaning does not
 * depend on the defaults of the library that reads it. */
#include <inttypes.h>
#include <string.h>

#include "graphs/record/program.h"
#include "graphs/record/scored.h"
#include "include/figraph_parallel.h"
#include "kernels/latent/latent.h"
#include "planner/spec/frequencies.h"
#include "planner/spec/rope_spec.h"
#include "planner/status.h"

#define NORM_EPSILON 1e-6f

/* Returns 1 if the options are copied to *ours and recording goes on. */
static int take(fig_program *program, void *ours, size_t ours_bytes, const void *theirs,
                const char *name) {
    if (!fig_program_recording(program)) return 0;
    const fig_status status = fig_status_take_options(ours, ours_bytes, theirs, name);
    return fig_program_refuse(program, status) == FIG_OK;
}
#define TAKE(program, ours, theirs, type) take(program, ours, sizeof(type), theirs, #type)

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

void fig_program_read_queries(fig_program *program, fig_tensor lengths, fig_tensor positions,
                              fig_tensor query_starts) {
    if (!fig_program_recording(program)) return;
    if (fig_program_view_of(program)->node_count > 0) {
        fig_program_refuse(program, fig_fail(FIG_ORDER, "read_lengths: it must come once, before "
                                                        "every other node"));
        return;
    }
    const uint32_t operands[] = {
        [FIG_PLAN_IN_LENGTHS] = lengths.id,
        [FIG_PLAN_IN_POSITIONS] = positions.id,
        [FIG_PLAN_IN_QUERIES] = query_starts.id,
    };
    fig_program_node(program, FIG_OP_PLAN, operands, COUNT(operands), NULL, 0);
}

void fig_program_read_lengths(fig_program *program, fig_tensor lengths, fig_tensor positions) {
    fig_program_read_queries(program, lengths, positions, (fig_tensor){0});
}

/* ---- Activations and norms */

static void record_gated(fig_program *program, const fig_gated_op *op, fig_activation activation) {
    fig_gated_op ours;
    if (!TAKE(program, &ours, op, fig_gated_op)) return;
    const fig_gated_attributes attributes = {(int32_t)activation};
    const uint32_t operands[] = {[FIG_GATED_IN] = ours.in.id, [FIG_GATED_OUT] = ours.out.id};
    fig_program_node(program, FIG_OP_GATED, operands, COUNT(operands), &attributes,
                     sizeof attributes);
}

void fig_silu_and_mul(fig_program *program, const fig_gated_op *op) {
    record_gated(program, op, FIG_SILU);
}

void fig_gelu_and_mul(fig_program *program, const fig_gated_op *op) {
    record_gated(program, op, FIG_GELU);
}

void fig_gelu_tanh_and_mul(fig_program *program, const fig_gated_op *op) {
    record_gated(program, op, FIG_GELU_TANH);
}

void fig_swiglu_limited(fig_program *program, const fig_gated_op *op) {
    record_gated(program, op, FIG_SWIGLU_LIMITED);
}

static fig_rms_norm_attributes norm_of(const fig_rms_norm_op *op) {
    return (fig_rms_norm_attributes){op->epsilon != 0.0f ? op->epsilon : NORM_EPSILON,
                                     op->weight_offset};
}

static void record_norm(fig_program *program, const fig_rms_norm_op *op) {
    const fig_rms_norm_attributes attributes = norm_of(op);
    const uint32_t operands[] = {
        [FIG_RMS_NORM_IN] = op->in.id,
        [FIG_RMS_NORM_WEIGHT] = op->weight.id,
        [FIG_RMS_NORM_RESIDUAL] = op->residual.id,
        [FIG_RMS_NORM_OUT] = op->out.id,
    };
    fig_program_node(program, FIG_OP_RMS_NORM, operands, COUNT(operands), &attributes,
                     sizeof attributes);
}

void fig_rms_norm(fig_program *program, const fig_rms_norm_op *op) {
    fig_rms_norm_op ours;
    if (!TAKE(program, &ours, op, fig_rms_norm_op)) return;
    if (ours.residual.id != 0) {
        fig_program_refuse(program, fig_fail(FIG_INVALID,
                                             "rms_norm: residual is tensor %" PRIu32
                                             ", it is only for fig_add_rms_norm",
                                             ours.residual.id));
        return;
    }
    record_norm(program, &ours);
}

void fig_add_rms_norm(fig_program *program, const fig_rms_norm_op *op) {
    fig_rms_norm_op ours;
    if (!TAKE(program, &ours, op, fig_rms_norm_op)) return;
    if (ours.residual.id == 0) {
        fig_program_refuse(program, fig_fail(FIG_INVALID, "add_rms_norm: residual is absent"));
        return;
    }
    record_norm(program, &ours);
}

/* ---- RoPE */

/* Returns the head_dim of q, or the spec's head_dim if q has no such dim; the node's check then
 * refuses q. */
static int32_t head_dim_of(const fig_program_view *view, fig_tensor q) {
    if (q.id == 0 || q.id > view->tensor_count) return view->spec.head_dim;
    const fig_tensor_record *record = &view->tensors[q.id - 1];
    if (record->rank != 3 || record->dims[2] > INT32_MAX) return view->spec.head_dim;
    return (int32_t)record->dims[2];
}

/* The caller's options that concern RoPE. */
typedef struct turns {
    fig_tensor q, q_norm;
    float norm_epsilon;
    const fig_rope_spec *rope;
    const fig_rope_table *table;
    int32_t plain;
    int32_t head_dim; /* dims of a head that must all be rotated; 0: q's dims, or a part of them */
} turns;

/* Checks that a plain node has no operands or options that only a rotation reads. */
static fig_status check_plain(const fig_decode_attention_op *op) {
    const char *name = NULL;
    if (op->plain != 0 && op->plain != 1)
        return fig_fail(FIG_INVALID, "decode_attention: plain is %" PRId32 ", it must be 0 or 1",
                        op->plain);
    if (op->plain == 0) return FIG_OK;
    if (op->rope != NULL) name = "rope";
    if (op->rope_table != NULL) name = "rope_table";
    if (op->positions.id != 0) name = "positions";
    if (op->cos_sin.id != 0) name = "cos_sin";
    if (name == NULL) return FIG_OK;
    return fig_fail(FIG_INVALID, "decode_attention: plain is 1, but %s is there", name);
}

/* Fills in the RoPE attributes of a node. Either the terms define the angles and *table is all
 * zero, or *table defines the angles and the terms are zero. */
static fig_status resolve_rope(const fig_program_view *view, const turns *said,
                               fig_rope_attributes *attributes, fig_rope_table *table) {
    const fig_spec *spec = &view->spec;
    fig_rope_spec rope = said->rope != NULL ? *said->rope : spec->rope;
    memset(table, 0, sizeof *table);
    if (said->rope == NULL) *table = spec->rope_table;
    if (said->table != NULL) *table = *said->table;
    /* A spec that rotates all dims of its heads also rotates all dims of heads of another size. */
    if (said->rope == NULL && rope.rotary_dim == spec->head_dim) rope.rotary_dim = 0;
    if (said->plain) {
        rope = (fig_rope_spec){0};
        *table = (fig_rope_table){.factor = 0};
    }
    attributes->norm_epsilon = said->norm_epsilon;
    if (said->q_norm.id != 0 && said->norm_epsilon == 0.0f)
        attributes->norm_epsilon =
            spec->qk_norm_epsilon != 0.0f ? spec->qk_norm_epsilon : NORM_EPSILON;
    fig_rope_spec resolved;
    const int32_t head_dim = said->head_dim != 0 ? said->head_dim : head_dim_of(view, said->q);
    FIG_TRY(fig_rope_spec_resolve(&rope, head_dim, &resolved));
    FIG_TRY(fig_frequencies_resolve("rope table", &resolved, table));
    if (said->plain) *table = fig_frequencies_still();
    if (fig_frequencies_has_table(table))
        resolved =
            (fig_rope_spec){.interleaved = resolved.interleaved, .rotary_dim = resolved.rotary_dim};
    memcpy(&attributes->rope, &resolved, sizeof attributes->rope);
    return FIG_OK;
}

void fig_rope(fig_program *program, const fig_rope_op *op) {
    fig_rope_op ours;
    fig_rope_node_attributes attributes = {.reserved = 0};
    if (!TAKE(program, &ours, op, fig_rope_op)) return;
    const fig_program_view *view = fig_program_view_of(program);
    const turns said = {.q = ours.q,
                        .q_norm = ours.q_norm,
                        .norm_epsilon = ours.norm_epsilon,
                        .rope = ours.rope,
                        .table = ours.rope_table};
    const fig_status status = resolve_rope(view, &said, &attributes.turn, &attributes.table);
    if (fig_program_refuse(program, status) != FIG_OK) return;
    const uint32_t operands[] = {
        [FIG_ROPE_Q] = ours.q.id,
        [FIG_ROPE_K] = ours.k.id,
        [FIG_ROPE_POSITIONS] = ours.positions.id,
        [FIG_ROPE_INDPTR] = ours.indptr.id,
        [FIG_ROPE_OFFSETS] = ours.offsets.id,
        [FIG_ROPE_COS_SIN] = ours.cos_sin.id,
        [FIG_ROPE_Q_NORM] = ours.q_norm.id,
        [FIG_ROPE_K_NORM] = ours.k_norm.id,
        [FIG_ROPE_Q_OUT] = ours.q_out.id != 0 ? ours.q_out.id : ours.q.id,
        [FIG_ROPE_K_OUT] = ours.k_out.id != 0 ? ours.k_out.id : ours.k.id,
    };
    fig_program_node(program, FIG_OP_ROPE, operands, COUNT(operands), &attributes,
                     sizeof attributes);
}

/* ---- Caches and attention */

/* Returns 1 if recording goes on. fig_cache has no size field; a newer header uses the reserved
 * fields. */
static int take_cache(fig_program *program, const fig_cache *cache, const char *operation) {
    for (size_t i = 0; i < COUNT(cache->reserved); i++) {
        if (cache->reserved[i].id == 0) continue;
        fig_program_refuse(program, fig_fail(FIG_INVALID,
                                             "%s: cache: reserved[%zu] is tensor %" PRIu32
                                             ", it must be absent",
                                             operation, i, cache->reserved[i].id));
        return 0;
    }
    return 1;
}

void fig_append_kv(fig_program *program, const fig_append_kv_op *op) {
    fig_append_kv_op ours;
    if (!TAKE(program, &ours, op, fig_append_kv_op)) return;
    if (!take_cache(program, &ours.cache, "append_kv")) return;
    const uint32_t operands[] = {
        [FIG_APPEND_K] = ours.k.id,
        [FIG_APPEND_V] = ours.v.id,
        [FIG_APPEND_TABLE] = ours.cache.page_table.id,
        [FIG_APPEND_K_SCALE] = ours.cache.k_scale.id,
        [FIG_APPEND_V_SCALE] = ours.cache.v_scale.id,
        [FIG_APPEND_K_CACHE] = ours.cache.k.id,
        [FIG_APPEND_V_CACHE] = ours.cache.v.id,
    };
    fig_program_node(program, FIG_OP_APPEND_KV, operands, COUNT(operands), NULL, 0);
}

void fig_attention(fig_program *program, const fig_attention_op *op) {
    fig_attention_op ours;
    if (!TAKE(program, &ours, op, fig_attention_op)) return;
    if (!take_cache(program, &ours.cache, "attention")) return;
    if (!fig_scored_replace(program, &ours)) return;
    fig_attention_attributes attributes = {ours.sm_scale, ours.soft_cap, ours.window};
    if (ours.sm_scale == 0.0f) attributes.sm_scale = fig_program_view_of(program)->spec.sm_scale;
    const uint32_t operands[] = {
        [FIG_ATTENTION_Q] = ours.q.id,
        [FIG_ATTENTION_K_CACHE] = ours.cache.k.id,
        [FIG_ATTENTION_V_CACHE] = ours.cache.v.id,
        [FIG_ATTENTION_TABLE] = ours.cache.page_table.id,
        [FIG_ATTENTION_K_SCALE] = ours.cache.k_scale.id,
        [FIG_ATTENTION_V_SCALE] = ours.cache.v_scale.id,
        [FIG_ATTENTION_SINKS] = ours.sinks.id,
        [FIG_ATTENTION_ALIBI] = ours.alibi.id,
        [FIG_ATTENTION_OUT] = ours.out.id,
        [FIG_ATTENTION_LSE] = ours.lse.id,
    };
    fig_program_node(program, FIG_OP_ATTENTION, operands, COUNT(operands), &attributes,
                     sizeof attributes);
}

void fig_decode_attention(fig_program *program, const fig_decode_attention_op *op) {
    fig_decode_attention_op ours;
    fig_decode_attention_attributes attributes;
    if (!TAKE(program, &ours, op, fig_decode_attention_op)) return;
    if (!take_cache(program, &ours.cache, "decode_attention")) return;
    if (fig_program_refuse(program, check_plain(&ours)) != FIG_OK) return;
    if (!fig_scored_replace_decode(program, &ours)) return;
    const fig_program_view *view = fig_program_view_of(program);
    const turns said = {.q = ours.q,
                        .q_norm = ours.q_norm,
                        .norm_epsilon = ours.norm_epsilon,
                        .rope = ours.rope,
                        .table = ours.rope_table,
                        .plain = ours.plain};
    const fig_status status = resolve_rope(view, &said, &attributes.rope, &attributes.table);
    if (fig_program_refuse(program, status) != FIG_OK) return;
    attributes.attention = (fig_attention_attributes){ours.sm_scale, ours.soft_cap, ours.window};
    if (ours.sm_scale == 0.0f) attributes.attention.sm_scale = view->spec.sm_scale;
    const uint32_t operands[] = {
        [FIG_ATTENTION_Q] = ours.q.id,
        [FIG_ATTENTION_K_CACHE] = ours.cache.k.id,
        [FIG_ATTENTION_V_CACHE] = ours.cache.v.id,
        [FIG_ATTENTION_TABLE] = ours.cache.page_table.id,
        [FIG_ATTENTION_K_SCALE] = ours.cache.k_scale.id,
        [FIG_ATTENTION_V_SCALE] = ours.cache.v_scale.id,
        [FIG_ATTENTION_SINKS] = ours.sinks.id,
        [FIG_ATTENTION_ALIBI] = ours.alibi.id,
        [FIG_ATTENTION_OUT] = ours.out.id,
        [FIG_ATTENTION_LSE] = ours.lse.id,
        [FIG_DECODE_ATTENTION_K] = ours.k.id,
        [FIG_DECODE_ATTENTION_V] = ours.v.id,
        [FIG_DECODE_ATTENTION_POSITIONS] = ours.positions.id,
        [FIG_DECODE_ATTENTION_COS_SIN] = ours.cos_sin.id,
        [FIG_DECODE_ATTENTION_Q_NORM] = ours.q_norm.id,
        [FIG_DECODE_ATTENTION_K_NORM] = ours.k_norm.id,
    };
    fig_program_node(program, FIG_OP_DECODE_ATTENTION, operands, COUNT(operands), &attributes,
                     sizeof attributes);
}

/* ---- Latent caches */

void fig_latent_attention(fig_program *program, const fig_latent_attention_op *op) {
    fig_latent_attention_op ours;
    if (!TAKE(program, &ours, op, fig_latent_attention_op)) return;
    fig_latent_attributes attributes = {ours.sm_scale, ours.window};
    if (ours.sm_scale == 0.0f) attributes.sm_scale = fig_program_view_of(program)->spec.sm_scale;
    const uint32_t operands[] = {
        [FIG_LATENT_ATTENTION_Q] = ours.q.id,
        [FIG_LATENT_ATTENTION_K_CACHE] = ours.cache.id,
        [FIG_LATENT_ATTENTION_TABLE] = ours.page_table.id,
        [FIG_LATENT_ATTENTION_SINKS] = ours.sinks.id,
        [FIG_LATENT_ATTENTION_OUT] = ours.out.id,
        [FIG_LATENT_ATTENTION_LSE] = ours.lse.id,
        [FIG_LATENT_ATTENTION_Q_ROPE] = ours.q_rope.id,
    };
    fig_program_node(program, FIG_OP_LATENT_ATTENTION, operands, COUNT(operands), &attributes,
                     sizeof attributes);
}

void fig_latent_decode(fig_program *program, const fig_latent_decode_op *op) {
    fig_latent_decode_op ours;
    fig_latent_decode_attributes attributes = {.reserved = 0};
    if (!TAKE(program, &ours, op, fig_latent_decode_op)) return;
    const fig_program_view *view = fig_program_view_of(program);
    const turns said = {
        .q = ours.q, .rope = ours.rope, .table = ours.rope_table, .head_dim = FIG_LATENT_ROPE_DIM};
    const fig_status status = resolve_rope(view, &said, &attributes.rope, &attributes.table);
    if (fig_program_refuse(program, status) != FIG_OK) return;
    attributes.rope.norm_epsilon = ours.norm_epsilon;
    if (ours.norm.id != 0 && ours.norm_epsilon == 0.0f) attributes.rope.norm_epsilon = NORM_EPSILON;
    attributes.attention = (fig_latent_attributes){ours.sm_scale, ours.window};
    if (ours.sm_scale == 0.0f) attributes.attention.sm_scale = view->spec.sm_scale;
    const uint32_t operands[] = {
        [FIG_LATENT_ATTENTION_Q] = ours.q.id,
        [FIG_LATENT_ATTENTION_K_CACHE] = ours.cache.id,
        [FIG_LATENT_ATTENTION_TABLE] = ours.page_table.id,
        [FIG_LATENT_ATTENTION_SINKS] = ours.sinks.id,
        [FIG_LATENT_ATTENTION_OUT] = ours.out.id,
        [FIG_LATENT_ATTENTION_LSE] = ours.lse.id,
        [FIG_LATENT_DECODE_LATENT] = ours.latent.id,
        [FIG_LATENT_DECODE_POSITIONS] = ours.positions.id,
        [FIG_LATENT_DECODE_COS_SIN] = ours.cos_sin.id,
        [FIG_LATENT_DECODE_NORM] = ours.norm.id,
        [FIG_LATENT_DECODE_Q_ROPE] = ours.q_rope.id,
    };
    fig_program_node(program, FIG_OP_LATENT_DECODE, operands, COUNT(operands), &attributes,
                     sizeof attributes);
}

void fig_merge_states(fig_program *program, const fig_merge_states_op *op) {
    fig_merge_states_op ours;
    if (!TAKE(program, &ours, op, fig_merge_states_op)) return;
    const uint32_t operands[] = {
        [FIG_MERGE_OUT_A] = ours.out_a.id, [FIG_MERGE_LSE_A] = ours.lse_a.id,
        [FIG_MERGE_OUT_B] = ours.out_b.id, [FIG_MERGE_LSE_B] = ours.lse_b.id,
        [FIG_MERGE_OUT] = ours.out.id,     [FIG_MERGE_LSE] = ours.lse.id,
    };
    fig_program_node(program, FIG_OP_MERGE_STATES, operands, COUNT(operands), NULL, 0);
}

/* ---- Collectives */

static void record_all_reduce(fig_program *program, const fig_rms_norm_op *op,
                              const fig_rms_norm_attributes *attributes) {
    const uint32_t operands[] = {
        [FIG_ALL_REDUCE_IN] = op->in.id,
        [FIG_ALL_REDUCE_WEIGHT] = op->weight.id,
        [FIG_ALL_REDUCE_RESIDUAL] = op->residual.id,
        [FIG_ALL_REDUCE_OUT] = op->out.id,
    };
    fig_program_node(program, FIG_OP_ALL_REDUCE, operands, COUNT(operands), attributes,
                     sizeof *attributes);
}

void fig_all_reduce(fig_program *program, const fig_all_reduce_op *op) {
    fig_all_reduce_op ours;
    if (!TAKE(program, &ours, op, fig_all_reduce_op)) return;
    const fig_rms_norm_op alone = {.in = ours.in, .out = ours.out};
    record_all_reduce(program, &alone, &(fig_rms_norm_attributes){0.0f, 0.0f});
}

void fig_all_reduce_add_rms_norm(fig_program *program, const fig_rms_norm_op *op) {
    fig_rms_norm_op ours;
    if (!TAKE(program, &ours, op, fig_rms_norm_op)) return;
    if (ours.residual.id == 0 || ours.weight.id == 0) {
        fig_program_refuse(program, fig_fail(FIG_INVALID, "all_reduce_add_rms_norm: %s is absent",
                                             ours.residual.id == 0 ? "residual" : "weight"));
        return;
    }
    const fig_rms_norm_attributes attributes = norm_of(&ours);
    record_all_reduce(program, &ours, &attributes);
}

void fig_all_gather(fig_program *program, const fig_all_gather_op *op) {
    fig_all_gather_op ours;
    if (!TAKE(program, &ours, op, fig_all_gather_op)) return;
    const uint32_t operands[] = {
        [FIG_ALL_GATHER_IN] = ours.in.id, [FIG_ALL_GATHER_OUT] = ours.out.id};
    fig_program_node(program, FIG_OP_ALL_GATHER, operands, COUNT(operands), NULL, 0);
}

/* ---- Calls */

static fig_status check_array(const char *field, int32_t count, int32_t limit, const void *array) {
    if (count < 0 || count > limit)
        return fig_fail(FIG_INVALID, "call: %s is %" PRId32 ", limits 0 to %" PRId32, field, count,
                        limit);
    if (count > 0 && array == NULL)
        return fig_fail(FIG_INVALID, "call: %s is %" PRId32 ", but its array is NULL", field,
                        count);
    return FIG_OK;
}

/* Checks the counts and pointers before the arrays are read. The node's check does the rest. */
static fig_status check_arrays(const fig_call_op *op) {
    FIG_TRY(check_array("read_count", op->read_count, FIG_CALL_TENSOR_LIMIT, op->reads));
    FIG_TRY(check_array("write_count", op->write_count, FIG_CALL_TENSOR_LIMIT, op->writes));
    return check_array("byte_count", op->byte_count, FIG_CALL_BYTES_LIMIT, op->bytes);
}

void fig_call(fig_program *program, const fig_call_op *op) {
    fig_call_op ours;
    fig_call_attributes call;
    uint32_t operands[2 * FIG_CALL_TENSOR_LIMIT], operand_count = 0;
    if (!TAKE(program, &ours, op, fig_call_op)) return;
    if (fig_program_refuse(program, check_arrays(&ours)) != FIG_OK) return;
    memset(&call, 0, sizeof call);
    call.tag = ours.tag;
    call.name = fig_program_string(program, ours.call);
    call.read_count = (uint32_t)ours.read_count;
    call.byte_count = (uint32_t)ours.byte_count;
    if (ours.byte_count > 0) memcpy(call.bytes, ours.bytes, call.byte_count);
    for (int32_t i = 0; i < ours.read_count; i++)
        operands[operand_count++] = ours.reads[i].id;
    for (int32_t i = 0; i < ours.write_count; i++)
        operands[operand_count++] = ours.writes[i].id;
    fig_program_node(program, FIG_OP_CALL, operands, operand_count, &call, sizeof call);
}
