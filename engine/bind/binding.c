/* binding.c: checks the tensors and callbacks that a caller binds, and keeps them.
 *
 * This file is cold: it runs when the caller binds tensors or prepares buckets, not in every step.
 * Invariant: a binding is checked in full before the table changes. */
#include "engine/bind/binding.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "engine/bind/overlap.h"
#include "planner/status.h"

/* ---- Uses of tensors by nodes -------------------------------------------------------------- */

/* Marks a node's page table, and sets the least number of pages of each of the node's caches: one
 * page if the node has a page table, otherwise one page for each sequence. A node's caches are the
 * tensors that have an extent field in the kernel's params. */
static void mark_caches(fig_binding_table *table, const fig_node *node) {
    const fig_kernel *kernel = &fig_kernel_table[node->op];
    const fig_program_view *program = table->program;
    int64_t least = 1;
    for (uint32_t i = 0; i < kernel->operand_count; i++) {
        const uint32_t id = fig_program_view_operand(program, node, i);
        if (strcmp(kernel->operands[i].name, "page_table") != 0) continue;
        if (id == 0) least = program->spec.sequence_limit;
        if (id != 0) table->tensors[id - 1].tables = 1;
    }
    for (uint32_t i = 0; i < kernel->field_count; i++) {
        if (kernel->fields[i].kind != FIG_FIELD_EXTENT) continue;
        const uint32_t id = fig_launch_operand(program, node, node->op, kernel->fields[i].operand);
        fig_bound *bound = &table->tensors[id - 1];
        if (bound->pages_least < least) bound->pages_least = least;
    }
}

static void mark_tensors(fig_binding_table *table) {
    const fig_program_view *program = table->program;
    for (uint32_t n = 0; n < program->node_count; n++) {
        const fig_node *node = &program->nodes[n];
        for (uint32_t i = 0; i < node->operand_count; i++) {
            uint32_t id = program->operands[node->operand + i];
            if (id == 0) continue;
            fig_bound *bound = &table->tensors[id - 1];
            bound->needed = 1;
            if (fig_program_view_access(program, node, i) & FIG_ACCESS_WRITE) bound->written = 1;
            if (node->op == FIG_OP_CALL) bound->called = 1;
            if (fig_program_view_meets(node)) bound->sent = 1;
        }
        if (node->op != FIG_OP_CALL) mark_caches(table, node);
    }
}

static const char *call_name(const fig_program_view *program, const fig_node *node) {
    fig_call_attributes attributes;
    memcpy(&attributes, program->attributes + node->attribute, sizeof attributes);
    return program->strings + attributes.name;
}

static void list_calls(fig_binding_table *table) {
    const fig_program_view *program = table->program;
    for (uint32_t n = 0; n < program->node_count; n++) {
        if (program->nodes[n].op != FIG_OP_CALL) continue;
        const char *name = call_name(program, &program->nodes[n]);
        if (fig_binding_call(table, name) != NULL) continue;
        table->calls[table->call_count++] = (fig_bound_call){.name = name};
    }
}

/* ---- Places -------------------------------------------------------------------------------- */

static fig_status measure_place(const fig_binding_table *table, uint32_t tensor,
                                const fig_binding *binding, fig_bound_place *place) {
    const fig_tensor_record *record = &table->program->tensors[tensor - 1];
    const fig_places_wish wish = {.record = record,
                                  .name = fig_program_view_tensor_name(table->program, tensor),
                                  .binding = binding,
                                  .rows = fig_program_view_rows(record, &table->program->spec),
                                  .pages_least = table->tensors[tensor - 1].pages_least};
    FIG_TRY(fig_places_measure(&wish, place));
    const int64_t width = wish.record->dims[1];
    if (!table->tensors[tensor - 1].sent || wish.record->rank == 1 || place->strides[0] == width)
        return FIG_OK;
    return fig_fail(FIG_INVALID,
                    "tensor %s: strides[0] is %" PRId64 ", it must be %" PRId64
                    ": rows that a collective sends must have no gaps",
                    wish.name, place->strides[0], width);
}

/* ---- Binding ------------------------------------------------------------------------------- */

static void place_temps(fig_binding_table *table, uint8_t *workspace) {
    for (uint32_t i = 0; i < table->program->tensor_count; i++) {
        const fig_tensor_record *record = &table->program->tensors[i];
        if (record->role != FIG_ROLE_TEMP || table->graphs->workspace.temps[i] == UINT64_MAX)
            continue;
        fig_bound_place *place = &table->tensors[i].place;
        place->address = workspace + table->graphs->workspace.temps[i];
        place->extent =
            fig_places_extent(record, fig_program_view_rows(record, &table->program->spec));
        fig_places_default_strides(record, place->strides);
    }
}

fig_status fig_binding_init(fig_binding_table *table, const fig_binding_table *on,
                            uint8_t *workspace) {
    const fig_program_view *program = fig_program_view_of(on->graphs->program);
    size_t count = program->tensor_count + 1; /* never 0, because calloc(0) may return NULL */
    *table = (fig_binding_table){.graphs = on->graphs,
                                 .program = program,
                                 .api = on->api,
                                 .dev = on->dev,
                                 .stream = on->stream};
    table->version = table->calls_version = 1;
    table->tensors = calloc(count, sizeof *table->tensors);
    table->ranges = calloc(count, sizeof *table->ranges);
    table->calls = calloc((size_t)program->node_count + 1, sizeof *table->calls);
    if (table->tensors == NULL || table->ranges == NULL || table->calls == NULL)
        return fig_fail(FIG_NOMEM, "engine: bindings of %u tensors", program->tensor_count);
    mark_tensors(table);
    list_calls(table);
    place_temps(table, workspace);
    return FIG_OK;
}

/* Frees `held`, unless `owned` is the same block; `owned` then keeps the block. */
static void release_held(fig_binding_table *table, fig_bound *bound) {
    if (bound->held.device != bound->owned.device) table->api->release(table->dev, &bound->held);
    bound->held = (fig_block){0};
}

void fig_binding_finish(fig_binding_table *table) {
    for (uint32_t i = 0; table->tensors != NULL && i < table->program->tensor_count; i++) {
        release_held(table, &table->tensors[i]);
        table->api->release(table->dev, &table->tensors[i].owned);
    }
    free(table->tensors);
    free(table->ranges);
    free(table->calls);
    *table = (fig_binding_table){0};
}

/* Returns 1 if the memory that the engine allocated for the previous binding can be freed at once,
 * because no launch was prepared with it. */
static int goes_at_once(const fig_bound *bound) {
    return bound->owned.device != NULL && bound->owned.device != bound->held.device;
}

/* Waits for copies of page table entries that may still write to the memory about to be freed. */
static fig_status end_pushes(const fig_binding_table *table, const fig_bound *bound) {
    if (!bound->tables || !goes_at_once(bound)) return FIG_OK;
    return table->api->stream_wait(table->dev, table->stream, -1);
}

/* Makes a checked place the current binding. Memory that cannot be freed at once stays until
 * fig_binding_settle() frees it. */
static void accept(fig_binding_table *table, fig_bound *bound, const fig_bound_place *place,
                   const fig_block *owned) {
    if (goes_at_once(bound)) table->api->release(table->dev, &bound->owned);
    bound->owned = *owned;
    table->version += bound->needed; /* launches use only tensors that some node names */
    if (bound->called && bound->place.address != place->address) table->calls_version++;
    bound->place = *place;
}

static fig_status look_up(const fig_binding_table *table, const char *name, uint32_t *tensor) {
    *tensor = fig_program_find(table->graphs->program, name).id;
    if (*tensor == 0)
        return fig_fail(FIG_INVALID, "the program has no tensor %s", name == NULL ? "NULL" : name);
    if (table->program->tensors[*tensor - 1].role != FIG_ROLE_TEMP) return FIG_OK;
    return fig_fail(FIG_INVALID, "tensor %s: role is FIG_ROLE_TEMP, only steps use it", name);
}

fig_status fig_binding_bind(fig_binding_table *table, const fig_binding *binding) {
    uint32_t tensor;
    fig_bound_place place;
    fig_block owned = {0};
    FIG_TRY(look_up(table, binding->name, &tensor));
    if (table->tensors[tensor - 1].marked)
        return fig_fail(FIG_ORDER, "tensor %s: a graph of yours uses it", binding->name);
    FIG_TRY(measure_place(table, tensor, binding, &place));
    if ((uintptr_t)place.address % FIG_BINDING_ALIGNMENT != 0)
        return fig_fail(FIG_INVALID, "tensor %s: address %p, it must be a multiple of %d",
                        binding->name, (void *)place.address, FIG_BINDING_ALIGNMENT);
    FIG_TRY(end_pushes(table, &table->tensors[tensor - 1]));
    if (place.address == NULL) {
        FIG_TRY(table->api->allocate(table->dev, &owned, FIG_MEMORY_DEVICE, place.bytes));
        place.address = owned.device;
    }
    accept(table, &table->tensors[tensor - 1], &place, &owned);
    return FIG_OK;
}

void fig_binding_mark(fig_binding_table *table, uint32_t first, uint32_t count) {
    for (uint32_t n = first; n < first + count; n++) {
        const fig_node *node = &table->program->nodes[n];
        for (uint32_t i = 0; i < node->operand_count; i++) {
            const uint32_t tensor = table->program->operands[node->operand + i];
            if (tensor != 0) table->tensors[tensor - 1].marked = 1;
        }
    }
    table->marks = 1;
}

void fig_binding_unmark(fig_binding_table *table) {
    for (uint32_t i = 0; table->marks && i < table->program->tensor_count; i++)
        table->tensors[i].marked = 0;
    table->marks = 0;
}

fig_status fig_binding_register(fig_binding_table *table, const char *call, fig_callback callback,
                                void *user) {
    for (uint32_t i = 0; call != NULL && i < table->call_count; i++) {
        if (strcmp(table->calls[i].name, call) != 0) continue;
        if (callback == NULL) return fig_fail(FIG_INVALID, "call %s: callback is NULL", call);
        table->calls[i].callback = callback;
        table->calls[i].user = user;
        table->version++;
        table->calls_version++;
        return FIG_OK;
    }
    return fig_fail(FIG_INVALID, "the program has no call %s", call == NULL ? "NULL" : call);
}

/* Allocates an unbound tensor if it is state and its dims give its size. Returns FIG_UNBOUND for
 * any other unbound tensor. */
static fig_status find_memory(fig_binding_table *table, uint32_t tensor) {
    const fig_tensor_record *record = &table->program->tensors[tensor - 1];
    const char *name = fig_program_view_tensor_name(table->program, tensor);
    if (table->tensors[tensor - 1].place.address != NULL) return FIG_OK;
    if (record->role != FIG_ROLE_STATE || record->symbol == FIG_SYMBOL_PAGES)
        return fig_fail(FIG_UNBOUND, "tensor %s is not bound", name);
    return fig_binding_bind(table, FIG_OPTIONS(fig_binding, .name = name));
}

fig_status fig_binding_find(fig_binding_table *table, const char *name, uint32_t *tensor) {
    FIG_TRY(look_up(table, name, tensor));
    return find_memory(table, *tensor);
}

/* Returns the number of pages of the node's smallest bound cache if the node reads this page table,
 * and INT64_MAX otherwise. */
static int64_t node_page_limit(const fig_binding_table *table, const fig_node *node,
                               uint32_t page_table) {
    const fig_kernel *kernel = &fig_kernel_table[node->op];
    const fig_program_view *program = table->program;
    int64_t limit = INT64_MAX;
    int reads_it = 0;
    for (uint32_t i = 0; i < kernel->operand_count; i++)
        reads_it |= fig_program_view_operand(program, node, i) == page_table;
    for (uint32_t i = 0; reads_it && i < kernel->field_count; i++) {
        if (kernel->fields[i].kind != FIG_FIELD_EXTENT) continue;
        const uint32_t id = fig_launch_operand(program, node, node->op, kernel->fields[i].operand);
        const fig_bound *bound = &table->tensors[id - 1];
        if (bound->place.address != NULL && bound->place.extent < limit)
            limit = bound->place.extent;
    }
    return limit;
}

int64_t fig_binding_page_limit(const fig_binding_table *table, uint32_t page_table) {
    const fig_program_view *program = table->program;
    int64_t limit = INT64_MAX;
    for (uint32_t n = 0; n < program->node_count; n++) {
        if (program->nodes[n].op == FIG_OP_CALL) continue;
        int64_t pages = node_page_limit(table, &program->nodes[n], page_table);
        if (pages < limit) limit = pages;
    }
    return limit;
}

const fig_bound_call *fig_binding_call(const fig_binding_table *table, const char *name) {
    for (uint32_t i = 0; i < table->call_count; i++)
        if (strcmp(table->calls[i].name, name) == 0) return &table->calls[i];
    return NULL;
}

/* ---- All bindings together ----------------------------------------------------------------- */

static int compare_ranges(const void *a, const void *b) {
    const fig_bound_range *left = a, *right = b;
    return (left->begin > right->begin) - (left->begin < right->begin);
}

static uint32_t list_ranges(const fig_binding_table *table) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < table->program->tensor_count; i++) {
        const fig_bound *bound = &table->tensors[i];
        const fig_tensor_record *record = &table->program->tensors[i];
        if (!bound->needed || record->role == FIG_ROLE_TEMP) continue;
        uintptr_t begin = (uintptr_t)bound->place.address;
        uintptr_t end = begin + bound->place.span * fig_program_view_dtype_bytes(record->dtype);
        table->ranges[count++] = (fig_bound_range){begin, end, i + 1, bound->written};
    }
    return count;
}

static fig_overlap_array array_of(const fig_binding_table *table, uint32_t tensor) {
    return fig_places_array(&table->program->tensors[tensor - 1],
                            &table->tensors[tensor - 1].place);
}

/* Returns 1 if the two tensors share a byte and a node writes at least one of the tensors. */
static int ranges_clash(const fig_binding_table *table, const fig_bound_range *a,
                        const fig_bound_range *b) {
    if (!a->written && !b->written) return 0;
    const fig_overlap_array first = array_of(table, a->tensor), second = array_of(table, b->tensor);
    return fig_overlap_meets(&first, &second);
}

/* Refuses tensors that overlap if a node writes one of them. The ranges are sorted by address, so
 * each range is compared only with the later ranges that begin before its end. */
static fig_status check_overlap(fig_binding_table *table) {
    uint32_t count = list_ranges(table);
    qsort(table->ranges, count, sizeof *table->ranges, compare_ranges);
    for (uint32_t i = 0; i < count; i++) {
        const fig_bound_range *first = &table->ranges[i];
        for (uint32_t j = i + 1; j < count && table->ranges[j].begin < first->end; j++) {
            const fig_bound_range *range = &table->ranges[j];
            if (!ranges_clash(table, first, range)) continue;
            return fig_fail(FIG_INVALID, "tensor %s: overlaps tensor %s, and a node writes %s",
                            fig_program_view_tensor_name(table->program, range->tensor),
                            fig_program_view_tensor_name(table->program, first->tensor),
                            range->written ? "the first" : "the second");
        }
    }
    return FIG_OK;
}

fig_status fig_binding_complete(fig_binding_table *table) {
    for (uint32_t i = 0; i < table->program->tensor_count; i++)
        if (table->tensors[i].needed) FIG_TRY(find_memory(table, i + 1));
    for (uint32_t i = 0; i < table->call_count; i++)
        if (table->calls[i].callback == NULL)
            return fig_fail(FIG_UNBOUND, "call %s: no callback is registered",
                            table->calls[i].name);
    return check_overlap(table);
}

int fig_binding_unsettled(const fig_binding_table *table) {
    for (uint32_t i = 0; i < table->program->tensor_count; i++) {
        const fig_bound *bound = &table->tensors[i];
        if (bound->held.device != NULL && bound->held.device != bound->owned.device) return 1;
    }
    return 0;
}

void fig_binding_settle(fig_binding_table *table) {
    for (uint32_t i = 0; i < table->program->tensor_count; i++) {
        release_held(table, &table->tensors[i]);
        table->tensors[i].held = table->tensors[i].owned;
    }
}

uint64_t fig_binding_owned_bytes(const fig_binding_table *table) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < table->program->tensor_count; i++) {
        const fig_bound *bound = &table->tensors[i];
        bytes += bound->owned.bytes;
        if (bound->held.device != bound->owned.device) bytes += bound->held.bytes;
    }
    return bytes;
}
