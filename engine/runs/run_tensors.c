/* run_tensors.c: finds the memory of the tensors of one run.
 *
 * places.c computes strides and sizes. Invariant: a run leaves no state here; results go only to
 * out-parameters. */
#include "engine/runs/run_tensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "engine/bind/overlap.h"
#include "graphs/operations/operation.h"
#include "planner/status.h"

/* ---- Kinds of tensors ------------------------------------------------------------------------ */

/* Marks the dense caches of a node. A node's caches are the tensors with an extent field in its
 * kernel's params; they are dense if the node has no page table. */
static void mark_caches(fig_run_tensors *tensors, const fig_node *node) {
    const fig_kernel *kernel = &fig_kernel_table[node->op];
    uint32_t table = 0;
    for (uint32_t i = 0; i < kernel->operand_count; i++)
        if (strcmp(kernel->operands[i].name, "page_table") == 0)
            table = fig_program_view_operand(tensors->view, node, i);
    for (uint32_t i = 0; i < kernel->field_count; i++) {
        if (kernel->fields[i].kind != FIG_FIELD_EXTENT) continue;
        const uint32_t cache =
            fig_launch_operand(tensors->view, node, node->op, kernel->fields[i].operand);
        if (table == 0) {
            tensors->of[cache - 1].is_dense = 1;
        } else {
            tensors->of[table - 1].page_tokens = (int32_t)tensors->view->tensors[cache - 1].dims[1];
        }
    }
}

static void mark_packed(fig_run_tensors *tensors, const fig_node *node) {
    const fig_kernel *kernel = &fig_kernel_table[node->op];
    const uint32_t *operands = tensors->view->operands + node->operand;
    for (uint32_t i = 0; i < kernel->operand_count && i < node->operand_count; i++) {
        const int is_indptr = strcmp(kernel->operands[i].name, "indptr") == 0;
        if (operands[i] == 0) continue;
        if (is_indptr || strcmp(kernel->operands[i].name, "offsets") == 0)
            tensors->of[operands[i] - 1].ends = 1 + is_indptr;
    }
}

fig_status fig_run_tensors_init(fig_run_tensors *tensors, const fig_program_view *view) {
    const size_t count = (size_t)view->tensor_count + 1; /* never 0 */
    fig_run_temp before = {0, 0, 0, 0};
    int32_t bound = 0;
    *tensors = (fig_run_tensors){.view = view, .of = calloc(count, sizeof *tensors->of)};
    if (tensors->of == NULL) return fig_fail(FIG_NOMEM, "runner: %u tensors", view->tensor_count);
    for (uint32_t id = 1; id <= view->tensor_count; id++) {
        const int is_temp = view->tensors[id - 1].role == FIG_ROLE_TEMP;
        tensors->of[id - 1].binding = is_temp ? -1 : bound++;
        tensors->of[id - 1].before = before;
        fig_run_shape_pass_temp(view, id, &before);
    }
    tensors->bound_count = bound;
    for (uint32_t n = 0; n < view->node_count; n++)
        mark_caches(tensors, &view->nodes[n]);
    for (uint32_t n = 0; n < view->node_count; n++)
        mark_packed(tensors, &view->nodes[n]);
    const uint32_t starts = fig_program_view_query_starts(view);
    if (starts != 0) tensors->of[starts - 1].is_starts = 1;
    return FIG_OK;
}

void fig_run_tensors_finish(fig_run_tensors *tensors) {
    free(tensors->of);
    *tensors = (fig_run_tensors){0};
}

/* ---- Bindings -------------------------------------------------------------------------------- */

/* The caller may be compiled with another version of the header, so the first struct gives the size
 * of all. */
static fig_status take_binding(const fig_run_bound *bound, uint32_t tensor, fig_binding *binding) {
    const fig_run *run = bound->run;
    const int32_t number = bound->tensors->of[tensor - 1].binding;
    const char *name = fig_program_view_tensor_name(bound->tensors->view, tensor);
    if (number >= run->binding_count || run->bindings == NULL)
        return fig_fail(FIG_UNBOUND, "run: tensor %s, number %" PRId32 ", is not bound", name,
                        number);
    const uint8_t *theirs = (const uint8_t *)run->bindings;
    theirs += (size_t)number * run->bindings[0].size;
    FIG_TRY(fig_status_take_options(binding, sizeof *binding, theirs, "fig_binding"));
    if (binding->name != NULL && strcmp(binding->name, name) != 0)
        return fig_fail(FIG_INVALID, "run: binding %" PRId32 " is named %s, but that tensor is %s",
                        number, binding->name, name);
    if (binding->address == NULL)
        return fig_fail(FIG_UNBOUND, "run: tensor %s has no address", name);
    return FIG_OK;
}

/* Counts the elements that the binding of a packed RoPE array holds, at most the recorded
 * dims[0]. */
static int64_t count_numbers(const fig_binding *binding, const fig_tensor_record *record) {
    const uint64_t count = binding->bytes / fig_program_view_dtype_bytes(record->dtype);
    if (count >= (uint64_t)record->dims[0]) return record->dims[0];
    return count > 0 ? (int64_t)count : 1; /* if 0, fig_places_measure() refuses the size */
}

/* Returns the rows of a tensor, if it has rows. */
static int32_t rows_of(const fig_run_bound *bound, const fig_tensor_record *record) {
    return record->symbol == FIG_SYMBOL_QUERIES ? bound->size.queries : bound->size.rows;
}

/* Describes a tensor with its size in this run: for a dense cache the tokens that the binding
 * holds, for a page table the rows and columns in use, for packed RoPE the segments. If a dense
 * cache has a single sequence, its stride between sequences is never used, so the size of the whole
 * binding replaces that stride. */
static fig_places_wish wish_of(const fig_run_bound *bound, uint32_t tensor, fig_binding *binding,
                               fig_tensor_record *record) {
    const fig_run_tensor *known = &bound->tensors->of[tensor - 1];
    *record = bound->tensors->view->tensors[tensor - 1];
    const fig_places_wish wish = {
        .record = record,
        .name = fig_program_view_tensor_name(bound->tensors->view, tensor),
        .binding = binding,
        .rows = rows_of(bound, record),
        .pages_least = known->is_dense ? bound->run->rows : 1,
    };
    if (known->is_dense && bound->run->rows == 1 && binding->strides[record->rank - 1] != 0)
        binding->strides[0] =
            (int64_t)(binding->bytes / fig_program_view_dtype_bytes(record->dtype));
    if (known->is_dense) record->dims[1] = fig_places_dense_tokens(&wish);
    if (known->ends > 0) record->dims[0] = count_numbers(binding, record);
    if (known->is_starts) record->dims[0] = (int64_t)bound->run->rows + 1;
    if (known->page_tokens > 0) {
        record->dims[1] = fig_places_table_columns(&wish);
        record->dims[0] = bound->run->rows;
        record->symbol = FIG_SYMBOL_NONE;
    }
    return wish;
}

static fig_status check_address(const fig_run_bound *bound, uint32_t tensor,
                                const fig_bound_place *place) {
    const fig_tensor_record *record = &bound->tensors->view->tensors[tensor - 1];
    const uint32_t item = fig_program_view_dtype_bytes(record->dtype);
    if ((uintptr_t)place->address % item == 0) return FIG_OK;
    return fig_fail(FIG_INVALID, "tensor %s: address %p, it must be a multiple of %" PRIu32,
                    fig_program_view_tensor_name(bound->tensors->view, tensor),
                    (void *)place->address, item);
}

static void place_temp(const fig_run_bound *bound, uint32_t tensor, fig_bound_place *place) {
    const fig_tensor_record *record = &bound->tensors->view->tensors[tensor - 1];
    const fig_run_temp *before = &bound->tensors->of[tensor - 1].before;
    *place =
        (fig_bound_place){.address = bound->temps + fig_run_shape_temp_offset(before, &bound->size),
                          .extent = fig_places_extent(record, rows_of(bound, record))};
    fig_places_default_strides(record, place->strides);
}

/* Finds the place of a tensor, and its record with the sizes of this run. */
static fig_status place_as(const fig_run_bound *bound, uint32_t tensor, fig_tensor_record *record,
                           fig_bound_place *place) {
    fig_binding binding;
    *place = (fig_bound_place){0};
    *record = bound->tensors->view->tensors[tensor - 1];
    if (bound->tensors->of[tensor - 1].binding < 0) {
        place_temp(bound, tensor, place);
        return FIG_OK;
    }
    FIG_TRY(take_binding(bound, tensor, &binding));
    const fig_places_wish wish = wish_of(bound, tensor, &binding, record);
    FIG_TRY(fig_places_measure(&wish, place));
    return check_address(bound, tensor, place);
}

fig_status fig_run_tensors_place(const fig_run_bound *bound, uint32_t tensor,
                                 fig_bound_place *place) {
    fig_tensor_record record;
    return place_as(bound, tensor, &record, place);
}

/* ---- Room ------------------------------------------------------------------------------------ */

static fig_status look_at(const fig_run_bound *bound, uint32_t tensor, fig_run_room *room) {
    const fig_run_tensor *known = &bound->tensors->of[tensor - 1];
    fig_binding binding;
    fig_tensor_record record;
    if (!known->is_dense && known->page_tokens == 0) return FIG_OK;
    FIG_TRY(take_binding(bound, tensor, &binding));
    wish_of(bound, tensor, &binding, &record);
    if (record.dims[1] == 0)
        return fig_fail(FIG_INVALID,
                        "tensor %s: bytes is %" PRIu64 ", which holds no %s of each sequence",
                        fig_program_view_tensor_name(bound->tensors->view, tensor), binding.bytes,
                        known->is_dense ? "token" : "page");
    const int64_t tokens = record.dims[1] * (known->is_dense ? 1 : known->page_tokens);
    if (known->is_dense && tokens < room->dense_tokens) room->dense_tokens = tokens;
    if (tokens >= room->tokens) return FIG_OK;
    room->tokens = tokens;
    room->shortest = tensor;
    return FIG_OK;
}

fig_status fig_run_tensors_room(const fig_run_bound *bound, fig_run_room *room) {
    const fig_program_view *view = bound->tensors->view;
    *room = (fig_run_room){INT64_MAX, INT64_MAX, 0};
    for (uint32_t n = bound->nodes.first; n < bound->nodes.first + bound->nodes.count; n++) {
        const fig_node *node = &view->nodes[n];
        for (uint32_t i = 0; i < node->operand_count; i++) {
            const uint32_t tensor = view->operands[node->operand + i];
            if (tensor != 0) FIG_TRY(look_at(bound, tensor, room));
        }
    }
    return FIG_OK;
}

/* ---- Overlap --------------------------------------------------------------------------------- */

/* An operand and its memory. */
typedef struct operand {
    uint32_t tensor; /* 0: absent */
    uint32_t access;
    uintptr_t begin, end;
    fig_overlap_array array;
} operand;

static fig_status find_operand(const fig_run_bound *bound, const fig_node *node, uint32_t i,
                               operand *of) {
    const fig_program_view *view = bound->tensors->view;
    fig_tensor_record record;
    fig_bound_place place;
    *of = (operand){.tensor = view->operands[node->operand + i]};
    if (of->tensor == 0) return FIG_OK;
    FIG_TRY(place_as(bound, of->tensor, &record, &place));
    of->access = fig_program_view_access(view, node, i);
    of->array = fig_places_array(&record, &place);
    of->begin = (uintptr_t)place.address;
    of->end = of->begin + place.span * of->array.item_bytes;
    return FIG_OK;
}

/* Returns 1 if the two operands are the same array and the operation may work on that array in
 * place. */
static int share(const fig_node *node, uint32_t a, uint32_t b, const operand *of) {
    const operand *first = &of[a], *second = &of[b];
    return fig_operation_may_share(node->op, a, b) && first->begin == second->begin &&
           memcmp(first->array.dims, second->array.dims, sizeof first->array.dims) == 0 &&
           memcmp(first->array.strides, second->array.strides, sizeof first->array.strides) == 0;
}

static fig_status check_pair(const fig_run_bound *bound, const fig_node *node, uint32_t a,
                             uint32_t b, const operand *of) {
    const operand *first = &of[a], *second = &of[b];
    if (first->tensor == 0 || first->tensor == second->tensor) return FIG_OK;
    if (!((first->access | second->access) & FIG_ACCESS_WRITE)) return FIG_OK;
    if (first->end <= second->begin || second->end <= first->begin) return FIG_OK;
    if (share(node, a, b, of) || !fig_overlap_meets(&first->array, &second->array)) return FIG_OK;
    const fig_program_view *view = bound->tensors->view;
    return fig_fail(FIG_INVALID, "tensor %s: overlaps tensor %s, and %s writes %s",
                    fig_program_view_tensor_name(view, second->tensor),
                    fig_program_view_tensor_name(view, first->tensor), fig_table_op_name(node->op),
                    second->access & FIG_ACCESS_WRITE ? "the first" : "the second");
}

fig_status fig_run_tensors_check(const fig_run_bound *bound, const fig_node *node) {
    operand of[FIG_OPERAND_LIMIT];
    assert(node->operand_count <= FIG_OPERAND_LIMIT);
    for (uint32_t b = 0; b < node->operand_count; b++) {
        FIG_TRY(find_operand(bound, node, b, &of[b]));
        for (uint32_t a = 0; a < b && of[b].tensor != 0; a++)
            FIG_TRY(check_pair(bound, node, a, b, of));
    }
    return FIG_OK;
}
