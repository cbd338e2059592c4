/* invoke_program.c: arrays against the tensors of a recorded program.
 *
 * What the first node that names a tensor does with it decides: rows that are written first need
 * not come in. All else that is written keeps what it held, a cache above all, and so is an
 * argument too. Invariant: a call binds tensors of its segment, each once. */
#include "ffi/invoke_program.h"

#include <inttypes.h>
#include <string.h>

#include "ffi/invoke.h"
#include "ffi/registry.h"
#include "graphs/graphs.h"
#include "planner/status.h"

static const fig_program_view *view_of(const fig_invoke_program *p) {
    return fig_program_view_of(p->graphs->program);
}

static fig_status list_tensors(fig_invoke_program *p) {
    const fig_program_view *view = view_of(p);
    for (uint32_t id = 1; id <= view->tensor_count; id++) {
        if (view->tensors[id - 1].role == FIG_ROLE_TEMP) continue;
        if (p->tensor_count == FIG_INVOKE_TENSOR_LIMIT)
            return fig_fail(FIG_TOO_LARGE, "the program has more tensors than %d",
                            FIG_INVOKE_TENSOR_LIMIT);
        p->ids[p->tensor_count++] = id;
    }
    return FIG_OK;
}

/* Of one tensor, in nodes [first, last). */
static uint8_t access_of(const fig_program_view *view, uint32_t id, uint32_t first, uint32_t last) {
    const int is_rows = view->tensors[id - 1].symbol == FIG_SYMBOL_BATCH;
    uint32_t access = 0;
    for (uint32_t n = first; n < last; n++) {
        const fig_node *node = &view->nodes[n];
        uint32_t here = 0;
        for (uint32_t i = 0; i < node->operand_count; i++)
            if (view->operands[node->operand + i] == id)
                here |= fig_program_view_access(view, node, i);
        if (access == 0 && is_rows && here == FIG_ACCESS_WRITE) return FIG_ACCESS_WRITE;
        access |= here;
    }
    return (uint8_t)((access & FIG_ACCESS_WRITE) != 0 ? access | FIG_ACCESS_READ : access);
}

fig_status fig_invoke_program_begin(fig_invoke_program *p, const char *content_id) {
    fig_segment segment;
    p->tensor_count = 0;
    FIG_TRY(fig_registry_find_file(content_id, &p->graphs));
    const fig_program_view *view = view_of(p);
    uint32_t first = 0, last = view->node_count;
    if (p->segment[0] != '\0') {
        if (!fig_program_view_find_segment(view, p->segment, &segment))
            return fig_fail(FIG_INVALID, "the program has no segment \"%s\"", p->segment);
        first = segment.node;
        last = segment.node + segment.node_count;
    }
    FIG_TRY(list_tensors(p));
    for (int32_t i = 0; i < p->tensor_count; i++) {
        p->bindings[i] = (fig_binding){.size = sizeof p->bindings[i]};
        p->access[i] = access_of(view, p->ids[i], first, last);
    }
    return FIG_OK;
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

fig_status fig_invoke_program_bind(fig_invoke_program *p, int32_t tensor, const fig_array *array) {
    const fig_tensor_record *record = &view_of(p)->tensors[p->ids[tensor] - 1];
    int64_t dims[4];
    memcpy(dims, record->dims, sizeof dims);
    if (record->layout == FIG_HND) dims[1] = record->dims[2], dims[2] = record->dims[1];
    FIG_TRY(fig_array_check_rank(array, record->rank));
    FIG_TRY(fig_array_check_dtype(array, record->dtype));
    FIG_TRY(fig_array_check_dense(array));
    for (int32_t i = record->symbol == FIG_SYMBOL_NONE ? 0 : 1; i < array->rank; i++)
        FIG_TRY(fig_array_check_dim(array, i, dims[i]));
    if (record->symbol == FIG_SYMBOL_BATCH) FIG_TRY(take_rows(p, array, record->dims[0]));
    p->bindings[tensor].address = array->data;
    p->bindings[tensor].bytes = fig_array_bytes(array);
    return FIG_OK;
}

fig_status fig_invoke_program_run(const fig_invoke_program *p) {
    fig_invoke invoke = {.rows = p->rows,
                         .kv_length = p->kv_length,
                         .segment = p->segment[0] != '\0' ? p->segment : NULL,
                         .stream = p->stream,
                         .loads_only = p->loads_only};
    if (p->rows < 0) return fig_fail(FIG_INVALID, "rows is not given, and no array has rows");
    invoke.recipe.kind = FIG_RECIPE_PROGRAM;
    invoke.recipe.device = p->device;
    invoke.recipe.ordinal = p->ordinal;
    memcpy(invoke.recipe.content, p->graphs->content_id, sizeof invoke.recipe.content);
    fig_invoke_lend_plan(&invoke, &p->plan);
    FIG_TRY(fig_invoke_lend(&invoke, &p->scratch));
    return fig_invoke_launch(&invoke, p->bindings, p->tensor_count);
}
