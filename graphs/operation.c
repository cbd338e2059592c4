/* operation.c: the recorder's call of each operation, and what it demands of its tensors.
 *
 * The kernel table says which operands an operation has; dims and attributes are said here, so the
 * twins and a GPU's kernels need check nothing. Invariant: the recorder stores resolved values
 * alone, and the check refuses any other, so that nothing downstream knows a default. */
#include "graphs/operation.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "planner/spec.h"
#include "planner/status.h"

/* A node as the checks read it. */
typedef struct operation {
    const fig_program_view *view;
    const fig_node *node;
    const fig_operand *operands; /* [operand_count] of the table; NULL for a call */
    uint32_t index;
} operation;

enum { ANY = 0 }; /* an extent that is free */

__attribute__((format(printf, 3, 4))) static fig_status
refuse(const operation *o, fig_status status, const char *format, ...) {
    char text[384];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    const char *name = fig_table_op_name(o->node->op);
    return fig_fail(status, "node %u (%s): %s", o->index, name != NULL ? name : "?", text);
}

static uint32_t id_of(const operation *o, uint32_t operand) {
    return o->view->operands[o->node->operand + operand];
}

/* NULL where absent. */
static const fig_tensor_record *tensor_of(const operation *o, uint32_t operand) {
    uint32_t id = id_of(o, operand);
    return id == 0 ? NULL : &o->view->tensors[id - 1];
}

static int is_activation(uint32_t dtype) {
    return dtype == FIG_F32 || dtype == FIG_F16 || dtype == FIG_BF16;
}

/* ---- What holds for every kernel ------------------------------------------------------------- */

static fig_status check_present(const operation *o) {
    for (uint32_t i = 0; i < o->node->operand_count; i++) {
        uint32_t id = id_of(o, i);
        const char *name = o->operands == NULL ? "tensor" : o->operands[i].name;
        if (id > o->view->tensor_count)
            return refuse(o, FIG_INVALID, "%s is tensor %u, the program has %u", name, id,
                          o->view->tensor_count);
        if (id == 0 && (o->operands == NULL || !o->operands[i].optional))
            return refuse(o, FIG_INVALID, "%s, operand %u, is absent", name, i);
    }
    return FIG_OK;
}

/* A kernel's blocks run in any order, so what one writes no other may read: only RoPE, which reads
 * just what it is about to write, may work in place. */
static int may_share(const operation *o, uint32_t a, uint32_t b) {
    if (o->node->op != FIG_OP_ROPE) return 0;
    return (a == FIG_ROPE_Q && b == FIG_ROPE_Q_OUT) || (a == FIG_ROPE_K && b == FIG_ROPE_K_OUT);
}

static fig_status check_aliases(const operation *o) {
    for (uint32_t b = 0; b < o->node->operand_count; b++) {
        if (id_of(o, b) == 0) continue;
        for (uint32_t a = 0; a < b; a++) {
            uint32_t access = o->operands[a].access | o->operands[b].access;
            if (id_of(o, a) != id_of(o, b) || !(access & FIG_ACCESS_WRITE)) continue;
            if (may_share(o, a, b)) continue;
            return refuse(o, FIG_INVALID, "%s and %s are both %s, one of them is written",
                          o->operands[a].name, o->operands[b].name,
                          fig_program_tensor_name(o->view, id_of(o, a)));
        }
    }
    return FIG_OK;
}

/* ---- Extents --------------------------------------------------------------------------------- */

/* What an operand must be: extents as a recorder would give them, ANY where they are free.
 * FIG_DIM_PAGES also takes a fixed number of pages. */
typedef struct form {
    int32_t rank;
    int64_t dims[4];
} form;

static fig_status check_form(const operation *o, uint32_t operand, const form *must) {
    const fig_tensor_record *tensor = tensor_of(o, operand);
    const char *name = o->operands[operand].name;
    if (tensor == NULL) return FIG_OK;
    if (tensor->rank != must->rank)
        return refuse(o, FIG_INVALID, "%s has rank %d, it must be %" PRId32, name, tensor->rank,
                      must->rank);
    if (must->dims[0] == FIG_DIM_BATCH && tensor->symbol != FIG_SYMBOL_BATCH)
        return refuse(o, FIG_INVALID, "%s: dims[0] must be FIG_DIM_BATCH", name);
    if (must->dims[0] == FIG_DIM_PAGES && tensor->symbol == FIG_SYMBOL_BATCH)
        return refuse(o, FIG_INVALID, "%s: dims[0] must be FIG_DIM_PAGES or a number", name);
    if (must->dims[0] >= 0 && tensor->symbol != FIG_SYMBOL_NONE)
        return refuse(o, FIG_INVALID, "%s: dims[0] must be a number", name);
    for (int i = must->dims[0] < 0; i < must->rank; i++) {
        if (must->dims[i] == ANY || must->dims[i] == tensor->dims[i]) continue;
        return refuse(o, FIG_INVALID, "%s: dims[%d] is %" PRId64 ", it must be %" PRId64, name, i,
                      tensor->dims[i], must->dims[i]);
    }
    return FIG_OK;
}

static fig_status check_dtype(const operation *o, uint32_t operand, uint32_t dtype) {
    const fig_tensor_record *tensor = tensor_of(o, operand);
    if (tensor == NULL || tensor->dtype == dtype) return FIG_OK;
    return refuse(o, FIG_INVALID, "%s has dtype %d, it must be %u", o->operands[operand].name,
                  tensor->dtype, dtype);
}

/* An activation decides the dtype of the others. */
static fig_status check_activation(const operation *o, uint32_t operand) {
    const fig_tensor_record *tensor = tensor_of(o, operand);
    if (is_activation(tensor->dtype)) return FIG_OK;
    return refuse(o, FIG_INVALID, "%s has dtype %d, it must be FIG_F32, FIG_F16 or FIG_BF16",
                  o->operands[operand].name, tensor->dtype);
}

/* [rows][heads][head_dim], of heads and a head_dim that kernels have. */
static fig_status check_heads(const operation *o, uint32_t operand) {
    static const form rows = {3, {FIG_DIM_BATCH, ANY, ANY}};
    const fig_tensor_record *tensor = tensor_of(o, operand);
    const char *name = o->operands[operand].name;
    FIG_TRY(check_form(o, operand, &rows));
    if (tensor->dims[1] > FIG_HEAD_LIMIT)
        return refuse(o, FIG_INVALID, "%s has %" PRId64 " heads, limit %d", name, tensor->dims[1],
                      FIG_HEAD_LIMIT);
    if (tensor->dims[2] != 64 && tensor->dims[2] != 128)
        return refuse(o, FIG_UNSUPPORTED,
                      "%s has head_dim %" PRId64 ", this library has 64 and 128", name,
                      tensor->dims[2]);
    return FIG_OK;
}

/* Each sequence must find a row in the table, and each token below kv_limit a page in its row;
 * where there is no table, its own page. */
static fig_status check_pages(const operation *o, uint32_t table, int64_t page_size) {
    static const form rows = {2, {ANY, ANY}};
    const fig_spec *spec = &o->view->spec;
    const fig_tensor_record *tensor = tensor_of(o, table);
    const char *name = o->operands[table].name;
    if (tensor == NULL) {
        if (page_size == spec->kv_limit) return FIG_OK;
        return refuse(o, FIG_INVALID,
                      "%s is absent, so pages must hold kv_limit tokens, %" PRId32
                      ", and hold %" PRId64,
                      name, spec->kv_limit, page_size);
    }
    FIG_TRY(check_form(o, table, &rows));
    FIG_TRY(check_dtype(o, table, FIG_I32));
    if (page_size > FIG_PAGE_SIZE_LIMIT)
        return refuse(o, FIG_INVALID, "a page has %" PRId64 " tokens, limit %d", page_size,
                      FIG_PAGE_SIZE_LIMIT);
    if (tensor->dims[0] < spec->sequence_limit)
        return refuse(o, FIG_INVALID, "%s has %" PRId64 " rows for %" PRId32 " sequences", name,
                      tensor->dims[0], spec->sequence_limit);
    if (tensor->dims[1] < (spec->kv_limit + page_size - 1) / page_size)
        return refuse(o, FIG_INVALID,
                      "%s has %" PRId64 " pages of %" PRId64 " tokens for a kv_limit of %" PRId32,
                      name, tensor->dims[1], page_size, spec->kv_limit);
    return FIG_OK;
}

/* Two caches of one form, and their table. */
typedef struct cache_operands {
    uint32_t k, v, table;
    int64_t head_dim;
    uint32_t dtype;
} cache_operands;

static fig_status check_cache(const operation *o, const cache_operands *cache) {
    const form pages = {4, {FIG_DIM_PAGES, ANY, ANY, cache->head_dim}};
    FIG_TRY(check_form(o, cache->k, &pages));
    const fig_tensor_record *k = tensor_of(o, cache->k);
    const form same = {4, {FIG_DIM_PAGES, k->dims[1], k->dims[2], cache->head_dim}};
    FIG_TRY(check_form(o, cache->v, &same));
    FIG_TRY(check_dtype(o, cache->k, cache->dtype));
    FIG_TRY(check_dtype(o, cache->v, cache->dtype));
    return check_pages(o, cache->table, k->dims[1]);
}

/* ---- What each demands ----------------------------------------------------------------------- */

static fig_status check_silu_and_mul(const operation *o) {
    static const form rows = {2, {FIG_DIM_BATCH, ANY}};
    FIG_TRY(check_form(o, FIG_SILU_OUT, &rows));
    const fig_tensor_record *out = tensor_of(o, FIG_SILU_OUT);
    if (out->dims[1] % 8 != 0 || out->dims[1] > FIG_WIDTH_LIMIT)
        return refuse(o, FIG_INVALID,
                      "out has width %" PRId64 ", it must be a multiple of 8, limit %d",
                      out->dims[1], FIG_WIDTH_LIMIT);
    const form twice = {2, {FIG_DIM_BATCH, 2 * out->dims[1]}};
    FIG_TRY(check_form(o, FIG_SILU_IN, &twice));
    FIG_TRY(check_activation(o, FIG_SILU_OUT));
    return check_dtype(o, FIG_SILU_IN, out->dtype);
}

static fig_status check_positions(const operation *o) {
    static const form rows = {1, {FIG_DIM_BATCH}};
    const fig_tensor_record *positions = tensor_of(o, FIG_ROPE_POSITIONS);
    if (positions == NULL) return FIG_OK;
    FIG_TRY(check_form(o, FIG_ROPE_POSITIONS, &rows));
    if (positions->dtype == FIG_I32 || positions->dtype == FIG_I64) return FIG_OK;
    return refuse(o, FIG_INVALID, "positions has dtype %d, it must be FIG_I32 or FIG_I64",
                  positions->dtype);
}

static fig_status check_rope(const operation *o) {
    fig_rope_attributes attributes;
    fig_rope_spec resolved;
    FIG_TRY(check_heads(o, FIG_ROPE_Q));
    FIG_TRY(check_heads(o, FIG_ROPE_K));
    const fig_tensor_record *q = tensor_of(o, FIG_ROPE_Q), *k = tensor_of(o, FIG_ROPE_K);
    const form q_form = {3, {FIG_DIM_BATCH, q->dims[1], q->dims[2]}};
    const form k_form = {3, {FIG_DIM_BATCH, k->dims[1], q->dims[2]}};
    FIG_TRY(check_form(o, FIG_ROPE_K, &k_form));
    FIG_TRY(check_form(o, FIG_ROPE_Q_OUT, &q_form));
    FIG_TRY(check_form(o, FIG_ROPE_K_OUT, &k_form));
    FIG_TRY(check_activation(o, FIG_ROPE_Q));
    FIG_TRY(check_dtype(o, FIG_ROPE_K, q->dtype));
    FIG_TRY(check_dtype(o, FIG_ROPE_Q_OUT, q->dtype));
    FIG_TRY(check_dtype(o, FIG_ROPE_K_OUT, q->dtype));
    FIG_TRY(check_positions(o));
    memcpy(&attributes, o->view->attributes + o->node->attribute, sizeof attributes);
    fig_status status = fig_spec_resolve_rope(&attributes.rope, &resolved);
    if (status != FIG_OK) return refuse(o, status, "%s", fig_message());
    if (memcmp(&attributes.rope, &resolved, sizeof resolved) != 0)
        return refuse(o, FIG_INVALID, "rope holds a default that is not filled in");
    return FIG_OK;
}

static fig_status check_append_kv(const operation *o) {
    FIG_TRY(check_heads(o, FIG_APPEND_K));
    FIG_TRY(check_activation(o, FIG_APPEND_K));
    const fig_tensor_record *k = tensor_of(o, FIG_APPEND_K);
    const form rows = {3, {FIG_DIM_BATCH, k->dims[1], k->dims[2]}};
    FIG_TRY(check_form(o, FIG_APPEND_V, &rows));
    FIG_TRY(check_dtype(o, FIG_APPEND_V, k->dtype));
    const cache_operands cache = {FIG_APPEND_K_CACHE, FIG_APPEND_V_CACHE, FIG_APPEND_TABLE,
                                  k->dims[2], k->dtype};
    FIG_TRY(check_cache(o, &cache));
    int64_t cache_heads = tensor_of(o, FIG_APPEND_K_CACHE)->dims[2];
    if (cache_heads != k->dims[1])
        return refuse(o, FIG_INVALID, "k has %" PRId64 " heads and k_cache %" PRId64, k->dims[1],
                      cache_heads);
    return FIG_OK;
}

static fig_status check_attention(const operation *o) {
    fig_attention_attributes attributes;
    FIG_TRY(check_heads(o, FIG_ATTENTION_Q));
    FIG_TRY(check_activation(o, FIG_ATTENTION_Q));
    const fig_tensor_record *q = tensor_of(o, FIG_ATTENTION_Q);
    const form rows = {3, {FIG_DIM_BATCH, q->dims[1], q->dims[2]}};
    const form lse = {2, {FIG_DIM_BATCH, q->dims[1]}};
    FIG_TRY(check_form(o, FIG_ATTENTION_OUT, &rows));
    FIG_TRY(check_dtype(o, FIG_ATTENTION_OUT, q->dtype));
    FIG_TRY(check_form(o, FIG_ATTENTION_LSE, &lse));
    FIG_TRY(check_dtype(o, FIG_ATTENTION_LSE, FIG_F32));
    const cache_operands cache = {FIG_ATTENTION_K_CACHE, FIG_ATTENTION_V_CACHE, FIG_ATTENTION_TABLE,
                                  q->dims[2], q->dtype};
    FIG_TRY(check_cache(o, &cache));
    int64_t kv_heads = tensor_of(o, FIG_ATTENTION_K_CACHE)->dims[2];
    if (q->dims[1] % kv_heads != 0 || q->dims[1] / kv_heads > FIG_GROUP_LIMIT)
        return refuse(o, FIG_INVALID,
                      "q has %" PRId64 " heads for %" PRId64 " of k_cache, it must be a multiple, "
                      "limit %d",
                      q->dims[1], kv_heads, FIG_GROUP_LIMIT);
    memcpy(&attributes, o->view->attributes + o->node->attribute, sizeof attributes);
    if (!isfinite(attributes.sm_scale) || attributes.sm_scale <= 0.0f)
        return refuse(o, FIG_INVALID, "sm_scale is %g, it must be finite and above 0",
                      (double)attributes.sm_scale);
    return FIG_OK;
}

static fig_status check_call_name(const operation *o, uint32_t offset) {
    const fig_program_view *view = o->view;
    if (!fig_strings_begins(view->strings, view->string_bytes, offset))
        return refuse(o, FIG_FORMAT, "no name begins at byte %u of %u", offset, view->string_bytes);
    return FIG_OK;
}

/* A call may name one tensor as read and written: it is one piece of work, and sees both. */
static fig_status check_call(const operation *o) {
    fig_call_attributes call;
    const fig_node *node = o->node;
    if (node->attribute_bytes != sizeof call)
        return refuse(o, FIG_FORMAT, "%u bytes of attributes, it must be %zu",
                      node->attribute_bytes, sizeof call);
    memcpy(&call, o->view->attributes + node->attribute, sizeof call);
    FIG_TRY(check_call_name(o, call.name));
    if (call.read_count > FIG_CALL_TENSOR_LIMIT || call.read_count > node->operand_count)
        return refuse(o, FIG_INVALID, "read_count is %u of %u tensors, limit %d", call.read_count,
                      node->operand_count, FIG_CALL_TENSOR_LIMIT);
    if (node->operand_count - call.read_count > FIG_CALL_TENSOR_LIMIT)
        return refuse(o, FIG_INVALID, "write_count is %u, limit %d",
                      node->operand_count - call.read_count, FIG_CALL_TENSOR_LIMIT);
    if (call.byte_count > FIG_CALL_BYTES_LIMIT)
        return refuse(o, FIG_INVALID, "byte_count is %u, limit %d", call.byte_count,
                      FIG_CALL_BYTES_LIMIT);
    FIG_TRY(check_present(o));
    for (uint32_t b = call.read_count; b < node->operand_count; b++) {
        for (uint32_t a = call.read_count; a < b; a++) {
            if (id_of(o, a) == id_of(o, b))
                return refuse(o, FIG_INVALID, "writes %s twice",
                              fig_program_tensor_name(o->view, id_of(o, a)));
        }
    }
    for (uint32_t i = call.byte_count; i < FIG_CALL_BYTES_LIMIT; i++) {
        if (call.bytes[i] != 0) return refuse(o, FIG_FORMAT, "byte %u is used and not counted", i);
    }
    if (call.reserved != 0) return refuse(o, FIG_FORMAT, "reserved is %u", call.reserved);
    return FIG_OK;
}

static fig_status check_kernel(const operation *o) {
    const fig_kernel *kernel = &fig_kernel_table[o->node->op];
    if (o->node->operand_count != kernel->operand_count)
        return refuse(o, FIG_FORMAT, "%u operands, it must be %d", o->node->operand_count,
                      kernel->operand_count);
    if (o->node->attribute_bytes != kernel->attribute_bytes)
        return refuse(o, FIG_FORMAT, "%u bytes of attributes, it must be %d",
                      o->node->attribute_bytes, kernel->attribute_bytes);
    FIG_TRY(check_present(o));
    return check_aliases(o);
}

fig_status fig_operation_check(const fig_program_view *view, uint32_t node) {
    assert(node < view->node_count);
    operation o = {view, &view->nodes[node], NULL, node};
    if (o.node->op == FIG_OP_CALL) return check_call(&o);
    if (o.node->op == FIG_OP_FETCH || o.node->op >= FIG_OP_KERNEL_COUNT)
        return refuse(&o, FIG_FORMAT, "op is %d, which no node has", o.node->op);
    o.operands = fig_kernel_table[o.node->op].operands;
    FIG_TRY(check_kernel(&o));
    switch (o.node->op) {
    case FIG_OP_SILU_AND_MUL: return check_silu_and_mul(&o);
    case FIG_OP_ROPE: return check_rope(&o);
    case FIG_OP_APPEND_KV: return check_append_kv(&o);
    case FIG_OP_ATTENTION: return check_attention(&o);
    }
    return refuse(&o, FIG_UNSUPPORTED, "nothing checks it");
}

/* ---- Recording ------------------------------------------------------------------------------- */

void fig_silu_and_mul(fig_program *program, const fig_silu_and_mul_op *op) {
    fig_silu_and_mul_op ours;
    if (!fig_program_recording(program)) return;
    if (fig_program_refuse(program, fig_status_take_options(&ours, sizeof ours, op,
                                                            "fig_silu_and_mul_op")) != FIG_OK)
        return;
    const uint32_t operands[] = {[FIG_SILU_IN] = ours.in.id, [FIG_SILU_OUT] = ours.out.id};
    fig_program_node(program, FIG_OP_SILU_AND_MUL, operands, 2, NULL, 0);
}

void fig_rope(fig_program *program, const fig_rope_op *op) {
    fig_rope_op ours;
    fig_rope_attributes attributes;
    if (!fig_program_recording(program)) return;
    fig_status status = fig_status_take_options(&ours, sizeof ours, op, "fig_rope_op");
    const fig_rope_spec *rope = &fig_program_view_of(program)->spec.rope;
    if (status == FIG_OK && ours.rope != NULL) rope = ours.rope;
    if (status == FIG_OK) status = fig_spec_resolve_rope(rope, &attributes.rope);
    if (fig_program_refuse(program, status) != FIG_OK) return;
    const uint32_t operands[] = {
        [FIG_ROPE_Q] = ours.q.id,
        [FIG_ROPE_K] = ours.k.id,
        [FIG_ROPE_POSITIONS] = ours.positions.id,
        [FIG_ROPE_Q_OUT] = ours.q_out.id != 0 ? ours.q_out.id : ours.q.id,
        [FIG_ROPE_K_OUT] = ours.k_out.id != 0 ? ours.k_out.id : ours.k.id,
    };
    fig_program_node(program, FIG_OP_ROPE, operands, 5, &attributes, sizeof attributes);
}

void fig_append_kv(fig_program *program, const fig_append_kv_op *op) {
    fig_append_kv_op ours;
    if (!fig_program_recording(program)) return;
    if (fig_program_refuse(
            program, fig_status_take_options(&ours, sizeof ours, op, "fig_append_kv_op")) != FIG_OK)
        return;
    const uint32_t operands[] = {
        [FIG_APPEND_K] = ours.k.id,
        [FIG_APPEND_V] = ours.v.id,
        [FIG_APPEND_TABLE] = ours.cache.page_table.id,
        [FIG_APPEND_K_CACHE] = ours.cache.k.id,
        [FIG_APPEND_V_CACHE] = ours.cache.v.id,
    };
    fig_program_node(program, FIG_OP_APPEND_KV, operands, 5, NULL, 0);
}

void fig_attention(fig_program *program, const fig_attention_op *op) {
    fig_attention_op ours;
    fig_attention_attributes attributes;
    if (!fig_program_recording(program)) return;
    if (fig_program_refuse(
            program, fig_status_take_options(&ours, sizeof ours, op, "fig_attention_op")) != FIG_OK)
        return;
    attributes.sm_scale = ours.sm_scale;
    if (ours.sm_scale == 0.0f) attributes.sm_scale = fig_program_view_of(program)->spec.sm_scale;
    const uint32_t operands[] = {
        [FIG_ATTENTION_Q] = ours.q.id,
        [FIG_ATTENTION_K_CACHE] = ours.cache.k.id,
        [FIG_ATTENTION_V_CACHE] = ours.cache.v.id,
        [FIG_ATTENTION_TABLE] = ours.cache.page_table.id,
        [FIG_ATTENTION_OUT] = ours.out.id,
        [FIG_ATTENTION_LSE] = ours.lse.id,
    };
    fig_program_node(program, FIG_OP_ATTENTION, operands, 6, &attributes, sizeof attributes);
}

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
    if (!fig_program_recording(program)) return;
    fig_status status = fig_status_take_options(&ours, sizeof ours, op, "fig_call_op");
    if (status == FIG_OK) status = check_arrays(&ours);
    if (fig_program_refuse(program, status) != FIG_OK) return;
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
