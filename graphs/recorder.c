/* recorder.c: the recorder's call of each operation.
 *
 * Turns a caller's options into a node's operands and attributes; what these must be is
 * operation.c's. Invariant: attributes are stored resolved, so that a file says what was meant
 * whatever the defaults of the library that reads it. */
#include <inttypes.h>
#include <string.h>

#include "graphs/program.h"
#include "include/figraph_parallel.h"
#include "planner/frequencies.h"
#include "planner/rope_spec.h"
#include "planner/status.h"

#define NORM_EPSILON 1e-6f

/* 1: the options are in *ours and recording goes on. */
static int take(fig_program *program, void *ours, size_t ours_bytes, const void *theirs,
                const char *name) {
    if (!fig_program_recording(program)) return 0;
    const fig_status status = fig_status_take_options(ours, ours_bytes, theirs, name);
    return fig_program_refuse(program, status) == FIG_OK;
}
#define TAKE(program, ours, theirs, type) take(program, ours, sizeof(type), theirs, #type)

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

void fig_program_read_lengths(fig_program *program, fig_tensor lengths, fig_tensor positions) {
    if (!fig_program_recording(program)) return;
    if (fig_program_view_of(program)->node_count > 0) {
        fig_program_refuse(program, fig_fail(FIG_ORDER, "read_lengths: it comes before every other "
                                                        "node, and once"));
        return;
    }
    const uint32_t operands[] = {
        [FIG_PLAN_IN_LENGTHS] = lengths.id,
        [FIG_PLAN_IN_POSITIONS] = positions.id,
    };
    fig_program_node(program, FIG_OP_PLAN, operands, COUNT(operands), NULL, 0);
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
                                             ", it is for fig_add_rms_norm alone",
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

/* Of q, as far as it has one: the node's check says what else it must be. */
static int32_t head_dim_of(const fig_program_view *view, fig_tensor q) {
    if (q.id == 0 || q.id > view->tensor_count) return view->spec.head_dim;
    const fig_tensor_record *record = &view->tensors[q.id - 1];
    if (record->rank != 3 || record->dims[2] > INT32_MAX) return view->spec.head_dim;
    return (int32_t)record->dims[2];
}

/* What a caller says of turns. */
typedef struct turns {
    fig_tensor q, q_norm;
    float norm_epsilon;
    const fig_rope_spec *rope;
    const fig_rope_table *table;
} turns;

/* The table stays all zero where terms say it all; where it does not, they are gone. */
static fig_status resolve_rope(const fig_program_view *view, const turns *said,
                               fig_rope_attributes *attributes, fig_rope_table *table) {
    const fig_spec *spec = &view->spec;
    fig_rope_spec rope = said->rope != NULL ? *said->rope : spec->rope;
    memset(table, 0, sizeof *table);
    if (said->rope == NULL) *table = spec->rope_table;
    if (said->table != NULL) *table = *said->table;
    /* A spec that turns all of its heads turns all of others too. */
    if (said->rope == NULL && rope.rotary_dim == spec->head_dim) rope.rotary_dim = 0;
    attributes->norm_epsilon = said->norm_epsilon;
    if (said->q_norm.id != 0 && said->norm_epsilon == 0.0f)
        attributes->norm_epsilon =
            spec->qk_norm_epsilon != 0.0f ? spec->qk_norm_epsilon : NORM_EPSILON;
    fig_rope_spec resolved;
    FIG_TRY(fig_rope_spec_resolve(&rope, head_dim_of(view, said->q), &resolved));
    FIG_TRY(fig_frequencies_resolve("rope table", &resolved, table));
    if (fig_frequencies_has_table(table))
        resolved =
            (fig_rope_spec){.interleaved = resolved.interleaved, .rotary_dim = resolved.rotary_dim};
    memcpy(&attributes->rope, &resolved, sizeof attributes->rope);
    return FIG_OK;
}

/* As long as what they say. */
static uint32_t turn_bytes(fig_op op, const fig_rope_table *table) {
    const fig_kernel *kernel = &fig_kernel_table[op];
    return fig_frequencies_has_table(table) ? kernel->attribute_bytes : kernel->brief_bytes;
}

void fig_rope(fig_program *program, const fig_rope_op *op) {
    fig_rope_op ours;
    fig_rope_node_attributes attributes = {.reserved = 0};
    if (!TAKE(program, &ours, op, fig_rope_op)) return;
    const fig_program_view *view = fig_program_view_of(program);
    const turns said = {ours.q, ours.q_norm, ours.norm_epsilon, ours.rope, ours.rope_table};
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
                     turn_bytes(FIG_OP_ROPE, &attributes.table));
}

/* ---- Caches and attention */

/* 1: recording goes on. A cache has no size of its own, so a newer header's fields are these. */
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
    const fig_program_view *view = fig_program_view_of(program);
    const turns said = {ours.q, ours.q_norm, ours.norm_epsilon, ours.rope, ours.rope_table};
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
                     turn_bytes(FIG_OP_DECODE_ATTENTION, &attributes.table));
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

/* What must hold before the arrays are read; the rest is the node's check. */
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
