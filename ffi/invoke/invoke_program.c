/* invoke_program.c: binds a caller's arrays to the tensors of a recorded program.
 *
 * The first node that uses a tensor decides its role: a tensor whose rows are written before they
 * are read is not an argument. Every other tensor that is written, such as a cache, keeps old
 * contents where nothing is written, so it is also an argument. Invariant: a call binds each tensor
 * of its segment once. */
#include "ffi/invoke/invoke_program.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "ffi/invoke/invoke.h"
#include "ffi/registry.h"
#include "graphs/graphs.h"
#include "graphs/view/layer_name.h"
#include "planner/status.h"

static const fig_program_view *view_of(const fig_invoke_program *p) {
    return fig_program_view_of(p->graphs->program);
}

/* Every call needs the access of nodes [first, last) to all tensors, so one pass computes them:
 * all[id - 1] is the access to tensor id, with the bit FIXED set if the first node that uses the
 * tensor only writes it and its rows are those of the batch. */
enum { FIXED = 0x80 };
static_assert((FIXED & (FIG_ACCESS_READ | FIG_ACCESS_WRITE)) == 0, "a bit of its own");

static void add_node(const fig_program_view *view, const fig_node *node, uint8_t *all) {
    const uint32_t *operands = view->operands + node->operand;
    for (uint32_t i = 0; i < node->operand_count; i++) {
        const uint32_t id = operands[i];
        uint32_t access = 0;
        if (id == 0) continue;
        for (uint32_t j = 0; j < node->operand_count; j++)
            if (operands[j] == id) access |= fig_program_view_access(view, node, j);
        const int is_rows = fig_program_view_has_rows(&view->tensors[id - 1]);
        if (all[id - 1] == 0 && is_rows && access == FIG_ACCESS_WRITE) access |= FIXED;
        all[id - 1] |= (uint8_t)access;
    }
}

static uint8_t access_of(uint8_t nodes) {
    if ((nodes & FIXED) != 0) return FIG_ACCESS_WRITE;
    return (nodes & FIG_ACCESS_WRITE) != 0 ? FIG_ACCESS_READ | FIG_ACCESS_WRITE : nodes;
}

static fig_status list_tensors(fig_invoke_program *p, uint32_t first, uint32_t last) {
    const fig_program_view *view = view_of(p);
    uint8_t all[FIG_INVOKE_TENSOR_LIMIT] = {0};
    if (view->tensor_count > FIG_INVOKE_TENSOR_LIMIT)
        return fig_fail(FIG_TOO_LARGE, "the program has %u tensors, limit %d", view->tensor_count,
                        FIG_INVOKE_TENSOR_LIMIT);
    for (uint32_t n = first; n < last; n++)
        add_node(view, &view->nodes[n], all);
    for (uint32_t id = 1; id <= view->tensor_count; id++) {
        if (view->tensors[id - 1].role == FIG_ROLE_TEMP) continue;
        p->ids[p->tensor_count] = id;
        p->bindings[p->tensor_count] = (fig_binding){.size = sizeof *p->bindings};
        p->access[p->tensor_count++] = access_of(all[id - 1]);
    }
    return FIG_OK;
}

fig_status fig_invoke_program_begin(fig_invoke_program *p, int64_t content) {
    p->tensor_count = 0;
    p->segment_name = NULL;
    FIG_TRY(fig_registry_find_content(content, &p->graphs));
    const fig_program_view *view = view_of(p);
    uint32_t first = 0, last = view->node_count;
    if (p->segment < 0 || p->segment > view->segment_count)
        return fig_fail(FIG_INVALID, "segment is %" PRId64 ", the program has %u", p->segment,
                        view->segment_count);
    if (p->segment > 0) {
        const fig_segment *segment = &view->segments[p->segment - 1];
        p->segment_name = view->strings + segment->name;
        first = segment->node;
        last = segment->node + segment->node_count;
    }
    return p->loads_only ? FIG_OK : list_tensors(p, first, last);
}

const char *fig_invoke_program_name(const fig_invoke_program *p, int32_t tensor) {
    return fig_program_view_tensor_name(view_of(p), p->ids[tensor]);
}

static fig_status take_rows(fig_invoke_program *p, const fig_array *array, int64_t multiple) {
    const int64_t rows = array->dims[0] / multiple;
    if (array->dims[0] % multiple != 0)
        return fig_fail(FIG_INVALID, "%s: dim 0 is %" PRId64 ", it must be a multiple of %" PRId64,
                        array->name, array->dims[0], multiple);
    if (p->rows < 0) p->rows = rows;
    if (p->rows == rows) return FIG_OK;
    return fig_fail(FIG_INVALID, "%s is of %" PRId64 " rows, others are of %" PRId64, array->name,
                    rows, p->rows);
}

static fig_status take_tokens(fig_invoke_program *p, const fig_array *array, int64_t multiple) {
    const int64_t tokens = array->dims[0] / multiple;
    if (array->dims[0] % multiple != 0 || tokens == 0)
        return fig_fail(FIG_INVALID,
                        "%s: dim 0 is %" PRId64 ", it must be a multiple of %" PRId64 ", not 0",
                        array->name, array->dims[0], multiple);
    if (p->tokens == 0) p->tokens = tokens;
    if (p->tokens == tokens) return FIG_OK;
    return fig_fail(FIG_INVALID, "%s is of %" PRId64 " query tokens, others are of %" PRId64,
                    array->name, tokens, p->tokens);
}

/* Takes query_starts, which has the end of the last row behind the start of each row. */
static fig_status take_starts(fig_invoke_program *p, const fig_array *array) {
    fig_array starts = *array;
    FIG_TRY(fig_array_check_least(array, 0, 1));
    starts.dims[0]--;
    return take_rows(p, &starts, 1);
}

int fig_invoke_program_wants(const fig_invoke_program *p, int32_t tensor) {
    return p->access[tensor] != 0 && !p->is_bound[tensor];
}

static const fig_tensor_record *record_of(const fig_invoke_program *p, int32_t tensor) {
    return &view_of(p)->tensors[p->ids[tensor] - 1];
}

static fig_status bind_one(fig_invoke_program *p, int32_t tensor, const fig_array *array) {
    const fig_tensor_record *record = record_of(p, tensor);
    int64_t dims[4];
    memcpy(dims, record->dims, sizeof dims);
    if (record->layout == FIG_HND) dims[1] = record->dims[2], dims[2] = record->dims[1];
    FIG_TRY(fig_array_check_rank(array, record->rank));
    FIG_TRY(fig_array_check_dtype(array, record->dtype));
    FIG_TRY(fig_array_check_dense(array));
    const int is_starts = p->ids[tensor] == fig_program_view_query_starts(view_of(p));
    for (int32_t i = record->symbol == FIG_SYMBOL_NONE && !is_starts ? 0 : 1; i < array->rank; i++)
        FIG_TRY(fig_array_check_dim(array, i, dims[i]));
    if (is_starts) FIG_TRY(take_starts(p, array));
    if (record->symbol == FIG_SYMBOL_BATCH) FIG_TRY(take_rows(p, array, record->dims[0]));
    if (record->symbol == FIG_SYMBOL_QUERIES) FIG_TRY(take_tokens(p, array, record->dims[0]));
    p->bindings[tensor].address = array->data;
    p->bindings[tensor].bytes = fig_array_bytes(array);
    p->is_bound[tensor] = 1;
    return FIG_OK;
}

/* ---- Layers ---------------------------------------------------------------------------------- */

/* Tensors whose names differ only in the layer's number. */
typedef struct layers {
    const char *stem; /* [bytes] */
    uint32_t bytes;
    int32_t count;
} layers;

static int32_t layer_of(const fig_invoke_program *p, int32_t tensor, const layers *of) {
    const char *name = fig_invoke_program_name(p, tensor);
    if (strncmp(name, of->stem, of->bytes) != 0) return FIG_LAYER_NONE;
    const fig_layer_name split = fig_layer_name_split(name);
    return split.stem_bytes == of->bytes ? split.number : FIG_LAYER_NONE;
}

/* Finds the tensors of all layers whose names have the same stem. Sets the count to 0 unless the
 * layers' numbers are 0, 1 and so on. */
static void find_layers(const fig_invoke_program *p, int32_t tensor, layers *of) {
    const char *name = fig_invoke_program_name(p, tensor);
    int32_t last = FIG_LAYER_NONE;
    *of = (layers){name, fig_layer_name_split(name).stem_bytes, 0};
    for (int32_t i = 0; i < p->tensor_count; i++) {
        const int32_t layer = layer_of(p, i, of);
        of->count += layer != FIG_LAYER_NONE;
        if (layer > last) last = layer;
    }
    if (last + 1 != of->count) of->count = 0;
}

static fig_array part_of(const fig_array *array, int32_t part, const char *name) {
    fig_array one = *array;
    const int64_t bytes = array->strides[0] * array->bits / 8;
    one.name = name;
    if (array->data != NULL) one.data = (uint8_t *)array->data + part * bytes;
    one.rank--;
    memmove(one.dims, one.dims + 1, (size_t)one.rank * sizeof *one.dims);
    memmove(one.strides, one.strides + 1, (size_t)one.rank * sizeof *one.strides);
    return one;
}

static fig_status bind_layers(fig_invoke_program *p, int32_t tensor, const layers *of,
                              const fig_array *array) {
    FIG_TRY(fig_array_check_dim(array, 0, of->count));
    for (int32_t i = 0; i < p->tensor_count; i++) {
        const int32_t layer = layer_of(p, i, of);
        const char *name = fig_invoke_program_name(p, i);
        if (layer == FIG_LAYER_NONE || p->access[i] == 0) continue;
        if (p->is_bound[i] || p->access[i] != p->access[tensor])
            return fig_fail(FIG_INVALID,
                            "%s comes with a dim of layers, and %s is bound already, or is not "
                            "read and written as it is",
                            array->name, name);
        const fig_array part = part_of(array, layer, name);
        FIG_TRY(bind_one(p, i, &part));
    }
    return FIG_OK;
}

fig_status fig_invoke_program_bind(fig_invoke_program *p, int32_t tensor, const fig_array *array) {
    if (array->rank == record_of(p, tensor)->rank + 1) {
        layers of;
        find_layers(p, tensor, &of);
        if (of.count > 0) return bind_layers(p, tensor, &of, array);
    }
    return bind_one(p, tensor, array);
}

fig_status fig_invoke_program_run(const fig_invoke_program *p) {
    fig_invoke invoke = {.rows = p->rows,
                         .kv_length = p->kv_length,
                         .tokens = p->tokens,
                         .segment = p->segment_name,
                         .stream = p->stream,
                         .loads_only = p->loads_only};
    if (p->rows < 0 && !p->loads_only)
        return fig_fail(FIG_INVALID, "rows is not given, and no array has rows");
    invoke.recipe.kind = FIG_RECIPE_PROGRAM;
    invoke.recipe.device = p->device;
    invoke.recipe.ordinal = p->ordinal;
    if (view_of(p)->score_units > 0) invoke.recipe.compiles_scores = fig_registry_compiles_scores();
    memcpy(invoke.recipe.content, p->graphs->content_id, sizeof invoke.recipe.content);
    FIG_TRY(fig_invoke_lend_plan(&invoke, &p->plan));
    FIG_TRY(fig_invoke_lend(&invoke, &p->scratch));
    return fig_invoke_launch(&invoke, p->bindings, p->tensor_count);
}
