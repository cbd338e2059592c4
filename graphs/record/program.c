/* program.c: records a step into flat arrays, copies a program, and checks a whole program.
 *
 * operation.c checks the tensors of a node, edges.c derives the order of nodes, segment.c checks
 * segments, and strings.c stores names. Invariant: `view` points to the arrays, and only expose()
 * sets it. */
#include "graphs/record/program.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graphs/operations/operation.h"
#include "graphs/view/score_units.h"
#include "graphs/view/segment.h"
#include "planner/size.h"
#include "planner/spec/spec.h"
#include "planner/status.h"

static_assert(FIG_MULTIPLE_LIMIT == (int)FIG_ROW_TOKENS_LIMIT * (int)FIG_FFN_ROWS_LIMIT,
              "a step's rows of experts");

enum { FIRST_CAPACITY = 64, SENTENCE_BYTES = 512, ATTRIBUTE_UNIT = 8, ATTRIBUTE_WORD = 4 };

typedef struct array {
    const char *name;
    uint32_t item_bytes, limit;
    uint32_t count, capacity;
    void *items; /* [capacity] */
} array;

struct fig_program {
    fig_program_view view;
    array tensors, nodes, operands, attributes, segments, scores;
    fig_edge *edges;
    fig_strings strings;
    fig_strings given;     /* names of segments, including segments without nodes */
    uint32_t next_segment; /* offset in `given` of the segment that the next node begins, or 0 */
    int segment_is_open;   /* 1: the next node joins the last segment, unless it begins another */
    int16_t layer;
    int finished;
    fig_status status; /* the first failure; `sentence` is its message */
    char sentence[SENTENCE_BYTES];
};

static void expose(fig_program *program) {
    fig_program_view *view = &program->view;
    view->tensors = program->tensors.items;
    view->nodes = program->nodes.items;
    view->operands = program->operands.items;
    view->attributes = program->attributes.items;
    view->strings = program->strings.text;
    view->segments = program->segments.items;
    view->scores = program->scores.items;
    view->edges = program->edges;
    view->tensor_count = program->tensors.count;
    view->node_count = program->nodes.count;
    view->operand_count = program->operands.count;
    view->attribute_bytes = program->attributes.count;
    view->string_bytes = program->strings.bytes;
    view->segment_count = program->segments.count;
    view->score_units = program->scores.count;
}

static fig_status append(array *to, const void *items, uint32_t count) {
    if (count == 0) return FIG_OK;
    if (count > to->limit - to->count)
        return fig_fail(FIG_TOO_LARGE, "program: %u %s and %u more, limit %u", to->count, to->name,
                        count, to->limit);
    uint32_t capacity = to->capacity == 0 ? FIRST_CAPACITY : to->capacity;
    while (capacity < to->count + count)
        capacity *= 2;
    if (capacity != to->capacity) {
        void *larger = realloc(to->items, (size_t)capacity * to->item_bytes);
        if (larger == NULL)
            return fig_fail(FIG_NOMEM, "program: %u %s of %u bytes", capacity, to->name,
                            to->item_bytes);
        to->items = larger;
        to->capacity = capacity;
    }
    memcpy((uint8_t *)to->items + (size_t)to->count * to->item_bytes, items,
           (size_t)count * to->item_bytes);
    to->count += count;
    return FIG_OK;
}

/* ---- Tensors --------------------------------------------------------------------------------- */

static fig_status check_dims(const fig_tensor_record *record, const char *name) {
    for (int i = 0; i < 4; i++) {
        int64_t dim = record->dims[i];
        if (i == 0 && record->symbol != FIG_SYMBOL_NONE) {
            if (dim < 1 || dim > FIG_MULTIPLE_LIMIT)
                return fig_fail(FIG_INVALID, "tensor %s: multiple is %" PRId64 ", limits 1 to %d",
                                name, dim, FIG_MULTIPLE_LIMIT);
        } else if (i < record->rank && dim < 1) {
            return fig_fail(FIG_INVALID, "tensor %s: dims[%d] is %" PRId64 ", it must be positive",
                            name, i, dim);
        } else if (i >= record->rank && dim != 1) {
            return fig_fail(FIG_INVALID,
                            "tensor %s: dims[%d] is %" PRId64 " past rank %d, it must be 1", name,
                            i, dim, record->rank);
        }
    }
    return FIG_OK;
}

static fig_status check_layout(const fig_tensor_record *record, const char *name) {
    if (record->layout > FIG_HND)
        return fig_fail(FIG_INVALID, "tensor %s: layout is %d, limits 0 to %d", name,
                        record->layout, FIG_HND);
    if (record->layout == FIG_HND && record->rank != 4)
        return fig_fail(FIG_INVALID, "tensor %s: layout is FIG_HND and rank %d, it must be 4", name,
                        record->rank);
    for (size_t i = 0; i < sizeof record->reserved; i++) {
        if (record->reserved[i] != 0)
            return fig_fail(FIG_FORMAT, "tensor %s: reserved[%zu] is %d, it must be 0", name, i,
                            record->reserved[i]);
    }
    return FIG_OK;
}

static fig_status check_tensor(const fig_tensor_record *record, const fig_spec *spec,
                               const char *name) {
    uint64_t bytes;
    if (record->role > FIG_ROLE_STATE)
        return fig_fail(FIG_INVALID, "tensor %s: role is %d, limits 0 to %d", name, record->role,
                        FIG_ROLE_STATE);
    if (fig_program_view_dtype_bytes(record->dtype) == 0)
        return fig_fail(FIG_INVALID, "tensor %s: dtype is %d, which is not a fig_dtype", name,
                        record->dtype);
    if (record->rank < 1 || record->rank > 4)
        return fig_fail(FIG_INVALID, "tensor %s: rank is %d, limits 1 to 4", name, record->rank);
    if (record->symbol > FIG_SYMBOL_QUERIES)
        return fig_fail(FIG_FORMAT, "tensor %s: symbol is %d, limits 0 to %d", name, record->symbol,
                        FIG_SYMBOL_QUERIES);
    if (record->symbol == FIG_SYMBOL_QUERIES && spec->query_limit == 0)
        return fig_fail(FIG_INVALID,
                        "tensor %s: dims[0] is FIG_DIM_QUERIES, but the spec's query_limit is 0",
                        name);
    if (record->symbol == FIG_SYMBOL_PAGES && record->role == FIG_ROLE_TEMP)
        return fig_fail(FIG_INVALID,
                        "tensor %s: dims[0] is FIG_DIM_PAGES, but a FIG_ROLE_TEMP tensor is not "
                        "bound, so its pages are not known",
                        name);
    FIG_TRY(check_layout(record, name));
    FIG_TRY(check_dims(record, name));
    if (fig_program_view_measure(record, spec, &bytes))
        return fig_fail(FIG_TOO_LARGE, "tensor %s: more than %" PRIu64 " bytes", name,
                        FIG_TENSOR_BYTES_LIMIT);
    return FIG_OK;
}

/* Makes a tensor's record. The caller's fields are checked first, because the record's fields are
 * narrower. */
static fig_status make_record(fig_tensor_record *record, const fig_tensor_info *info) {
    if ((uint32_t)info->role > FIG_ROLE_STATE)
        return fig_fail(FIG_INVALID, "tensor %s: role is %u, limits 0 to %d", info->name,
                        (uint32_t)info->role, FIG_ROLE_STATE);
    if (fig_program_view_dtype_bytes((uint32_t)info->dtype) == 0)
        return fig_fail(FIG_INVALID, "tensor %s: dtype is %u, which is not a fig_dtype", info->name,
                        (uint32_t)info->dtype);
    if (info->rank < 1 || info->rank > 4)
        return fig_fail(FIG_INVALID, "tensor %s: rank is %" PRId32 ", limits 1 to 4", info->name,
                        info->rank);
    if ((uint32_t)info->layout > FIG_HND)
        return fig_fail(FIG_INVALID, "tensor %s: layout is %u, limits 0 to %d", info->name,
                        (uint32_t)info->layout, FIG_HND);
    record->role = (uint8_t)info->role;
    record->dtype = (uint8_t)info->dtype;
    record->rank = (uint8_t)info->rank;
    record->layout = (uint8_t)info->layout;
    for (int i = 0; i < 4; i++)
        record->dims[i] = i >= info->rank && info->dims[i] == 0 ? 1 : info->dims[i];
    if (info->dims[0] == FIG_DIM_BATCH) record->symbol = FIG_SYMBOL_BATCH;
    if (info->dims[0] == FIG_DIM_PAGES) record->symbol = FIG_SYMBOL_PAGES;
    if (info->dims[0] == FIG_DIM_QUERIES) record->symbol = FIG_SYMBOL_QUERIES;
    if (record->symbol != FIG_SYMBOL_NONE) {
        record->dims[0] = info->multiple == 0 ? 1 : info->multiple;
    } else if (info->multiple != 0 && info->multiple != 1) {
        return fig_fail(FIG_INVALID,
                        "tensor %s: multiple is %" PRId32 ", but dims[0] is %" PRId64
                        " and not symbolic",
                        info->name, info->multiple, info->dims[0]);
    }
    return FIG_OK;
}

static fig_status add_tensor(fig_program *program, const fig_tensor_info *info, uint32_t *id) {
    fig_tensor_record record;
    fig_string_slot *slot;
    memset(&record, 0, sizeof record);
    FIG_TRY(fig_strings_check_name(info->name, "tensor"));
    FIG_TRY(make_record(&record, info));
    FIG_TRY(check_tensor(&record, &program->view.spec, info->name));
    FIG_TRY(fig_strings_add(&program->strings, info->name, &slot));
    if (slot->owner != 0)
        return fig_fail(FIG_INVALID, "tensor %s: name is taken by tensor %u", info->name,
                        slot->owner);
    record.name = slot->offset;
    FIG_TRY(append(&program->tensors, &record, 1));
    slot->owner = program->tensors.count;
    *id = program->tensors.count;
    return FIG_OK;
}

fig_tensor fig_program_tensor(fig_program *program, const fig_tensor_info *info) {
    fig_tensor_info ours;
    fig_tensor tensor = {0};
    if (!fig_program_recording(program)) return tensor;
    fig_status status = fig_status_take_options(&ours, sizeof ours, info, "fig_tensor_info");
    if (status == FIG_OK) status = add_tensor(program, &ours, &tensor.id);
    expose(program);
    fig_program_refuse(program, status);
    return tensor;
}

fig_tensor fig_program_find(const fig_program *program, const char *name) {
    fig_tensor tensor = {0};
    if (program == NULL || name == NULL) return tensor;
    const fig_string_slot *slot = fig_strings_find(&program->strings, name);
    if (slot != NULL) tensor.id = slot->owner;
    return tensor;
}

/* ---- Nodes ----------------------------------------------------------------------------------- */

/* Puts node `node` into the segment that is about to begin, or into the open segment. */
static fig_status join_segment(fig_program *program, uint32_t node) {
    fig_string_slot *slot;
    if (program->next_segment == 0) {
        fig_segment *segments = program->segments.items;
        if (program->segment_is_open) segments[program->segments.count - 1].node_count++;
        return FIG_OK;
    }
    const char *name = program->given.text + program->next_segment;
    FIG_TRY(fig_strings_add(&program->strings, name, &slot));
    program->next_segment = 0;
    program->segment_is_open = 1;
    return append(&program->segments, &(fig_segment){slot->offset, node, 1}, 1);
}

static fig_status add_node(fig_program *program, const fig_node *node, const uint32_t *operands,
                           const void *attributes) {
    static const uint8_t zeros[ATTRIBUTE_UNIT];
    uint32_t padded = (uint32_t)fig_size_align(node->attribute_bytes, ATTRIBUTE_UNIT);
    FIG_TRY(append(&program->operands, operands, node->operand_count));
    FIG_TRY(append(&program->attributes, attributes, node->attribute_bytes));
    FIG_TRY(append(&program->attributes, zeros, padded - node->attribute_bytes));
    if (!fig_program_view_makes_plan(node)) FIG_TRY(join_segment(program, program->nodes.count));
    return append(&program->nodes, node, 1);
}

/* Shortens a node to the operands and attributes that it uses, but not below the length that format
 * 1 has always written. */
static void trim_node(fig_node *node, const uint32_t *operands, const uint8_t *attributes) {
    if (node->op >= FIG_OP_KERNEL_COUNT) return;
    const fig_kernel *kernel = &fig_kernel_table[node->op];
    while (node->operand_count > kernel->operand_base && operands[node->operand_count - 1] == 0)
        node->operand_count--;
    while (node->attribute_bytes > kernel->attribute_least &&
           attributes[node->attribute_bytes - 1] == 0)
        node->attribute_bytes--;
    /* Attributes are written in whole words. */
    if (node->attribute_bytes > kernel->attribute_least)
        node->attribute_bytes = (uint32_t)fig_size_align(node->attribute_bytes, ATTRIBUTE_WORD);
}

void fig_program_node(fig_program *program, fig_op op, const uint32_t *operands,
                      uint32_t operand_count, const void *attributes, uint32_t attribute_bytes) {
    fig_node node = {
        .op = (uint16_t)op, .operand_count = operand_count, .attribute_bytes = attribute_bytes};
    if (!fig_program_recording(program)) return;
    trim_node(&node, operands, attributes);
    node.layer = program->layer;
    node.operand = program->operands.count;
    node.attribute = program->attributes.count;
    fig_status status = add_node(program, &node, operands, attributes);
    expose(program);
    if (status == FIG_OK) status = fig_operation_check(&program->view, program->nodes.count - 1);
    fig_program_refuse(program, status);
}

uint32_t fig_program_score(fig_program *program, const fig_score *score) {
    fig_score_unit units[FIG_SCORE_UNITS_LONGEST];
    if (!fig_program_recording(program)) return 0;
    const uint32_t count = fig_score_units_write(score, units);
    uint32_t number = fig_score_units_find(&program->view, units, count);
    if (number != 0) return number;
    const fig_status status = append(&program->scores, units, count);
    expose(program);
    if (fig_program_refuse(program, status) != FIG_OK) return 0;
    return fig_score_units_count(&program->view);
}

int16_t fig_program_layer_of(const fig_program *program) {
    return program->layer;
}

uint32_t fig_program_string(fig_program *program, const char *text) {
    fig_string_slot *slot;
    if (!fig_program_recording(program)) return 0;
    fig_status status = fig_strings_check_name(text, "call");
    if (status == FIG_OK) status = fig_strings_add(&program->strings, text, &slot);
    expose(program);
    return fig_program_refuse(program, status) == FIG_OK ? slot->offset : 0;
}

/* ---- Recording ------------------------------------------------------------------------------- */

fig_status fig_program_refuse(fig_program *program, fig_status status) {
    if (program->status != FIG_OK || status == FIG_OK) return program->status;
    program->status = status;
    snprintf(program->sentence, sizeof program->sentence, "%s", fig_message());
    return status;
}

int fig_program_recording(fig_program *program) {
    if (program == NULL || program->status != FIG_OK) return 0;
    if (!program->finished) return 1;
    fig_program_refuse(program, fig_fail(FIG_ORDER, "program: recorded into after finish"));
    return 0;
}

const fig_program_view *fig_program_view_of(const fig_program *program) {
    return &program->view;
}

fig_status fig_program_create(fig_program **out, const fig_spec *spec) {
    fig_status status;
    *out = NULL;
    fig_program *program = calloc(1, sizeof *program);
    if (program == NULL) return fig_fail(FIG_NOMEM, "program: %zu bytes", sizeof *program);
    program->tensors = (array){"tensors", sizeof(fig_tensor_record), FIG_TENSOR_LIMIT, 0, 0, NULL};
    program->nodes = (array){"nodes", sizeof(fig_node), FIG_NODE_LIMIT, 0, 0, NULL};
    program->operands =
        (array){"operands", sizeof(uint32_t), FIG_NODE_LIMIT * FIG_OPERAND_LIMIT, 0, 0, NULL};
    program->attributes = (array){"bytes of attributes", 1, FIG_ATTRIBUTES_LIMIT, 0, 0, NULL};
    program->segments = (array){"segments", sizeof(fig_segment), FIG_SEGMENT_LIMIT, 0, 0, NULL};
    program->scores =
        (array){"units of scores", sizeof(fig_score_unit), FIG_SCORE_UNITS_LIMIT, 0, 0, NULL};
    program->layer = -1;
    if ((status = fig_spec_resolve(spec, &program->view.spec)) != FIG_OK) goto fail;
    if ((status = fig_strings_init(&program->strings)) != FIG_OK) goto fail;
    if ((status = fig_strings_init(&program->given)) != FIG_OK) goto fail;
    expose(program);
    *out = program;
    return FIG_OK;
fail:
    fig_program_destroy(program);
    return status;
}

void fig_program_destroy(fig_program *program) {
    if (program == NULL) return;
    free(program->tensors.items);
    free(program->nodes.items);
    free(program->operands.items);
    free(program->attributes.items);
    free(program->segments.items);
    free(program->scores.items);
    free(program->edges);
    fig_strings_finish(&program->strings);
    fig_strings_finish(&program->given);
    free(program);
}

void fig_program_layer(fig_program *program, int32_t layer) {
    if (!fig_program_recording(program)) return;
    if (layer < -1 || layer >= program->view.spec.layers) {
        fig_program_refuse(program, fig_fail(FIG_INVALID,
                                             "program: layer is %" PRId32 ", limits -1 to %" PRId32,
                                             layer, program->view.spec.layers - 1));
        return;
    }
    program->layer = (int16_t)layer;
}

static fig_status give_segment(fig_program *program, const char *name) {
    const uint32_t bytes = program->given.bytes;
    fig_string_slot *slot;
    FIG_TRY(fig_segment_check_name(name));
    FIG_TRY(fig_strings_add(&program->given, name, &slot));
    if (slot->offset < bytes)
        return fig_fail(FIG_INVALID, "segment %s: the name was given before", name);
    program->next_segment = slot->offset;
    return FIG_OK;
}

void fig_program_segment(fig_program *program, const char *name) {
    if (!fig_program_recording(program)) return;
    program->next_segment = 0;
    program->segment_is_open = 0;
    if (name != NULL) fig_program_refuse(program, give_segment(program, name));
}

fig_status fig_program_ready(const fig_program *program) {
    if (program == NULL) return fig_fail(FIG_INVALID, "program: NULL");
    if (program->status != FIG_OK) return fig_status_relay(program->status, program->sentence);
    if (!program->finished) return fig_fail(FIG_ORDER, "program: not finished");
    return FIG_OK;
}

static fig_status derive_edges(fig_program *program) {
    const fig_program_view *view = &program->view;
    uint32_t count = 0;
    /* An id that no tensor has. All collectives access it, which keeps them in order. */
    const uint32_t token = view->tensor_count + 1;
    const size_t limit = (size_t)view->operand_count + view->node_count;
    fig_edge_access *accesses = calloc(limit + 1, sizeof *accesses);
    if (accesses == NULL)
        return fig_fail(FIG_NOMEM, "program: %zu accesses of %zu bytes", limit, sizeof *accesses);
    for (uint32_t n = 0; n < view->node_count; n++) {
        const fig_node *node = &view->nodes[n];
        /* All ranks must run their collectives in one order, whatever lane each collective is
         * in. */
        if (fig_program_view_meets(node))
            accesses[count++] = (fig_edge_access){n, token, FIG_ACCESS_READ | FIG_ACCESS_WRITE};
        for (uint32_t i = 0; i < node->operand_count; i++) {
            uint32_t tensor = view->operands[node->operand + i];
            if (tensor == 0) continue;
            accesses[count++] =
                (fig_edge_access){n, tensor, fig_program_view_access(view, node, i)};
        }
    }
    fig_status status =
        fig_edges_derive(&program->edges, &program->view.edge_count, accesses, count);
    free(accesses);
    expose(program);
    return status;
}

/* ---- Check ----------------------------------------------------------------------------------- */

static fig_status check_count(const char *name, uint32_t count, uint32_t least, uint32_t most) {
    if (count >= least && count <= most) return FIG_OK;
    return fig_fail(FIG_FORMAT, "program: %u %s, limits %u to %u", count, name, least, most);
}

static fig_status check_counts(const fig_program_view *view) {
    FIG_TRY(check_count("tensors", view->tensor_count, 0, FIG_TENSOR_LIMIT));
    FIG_TRY(check_count("operands", view->operand_count, 0, FIG_NODE_LIMIT * FIG_OPERAND_LIMIT));
    FIG_TRY(check_count("bytes of attributes", view->attribute_bytes, 0, FIG_ATTRIBUTES_LIMIT));
    FIG_TRY(check_count("segments", view->segment_count, 0, FIG_SEGMENT_LIMIT));
    FIG_TRY(check_count("units of scores", view->score_units, 0, FIG_SCORE_UNITS_LIMIT));
    if (view->node_count == 0) return fig_fail(FIG_INVALID, "program: no node was recorded");
    return check_count("nodes", view->node_count, 1, FIG_NODE_LIMIT);
}

static fig_status check_spec(const fig_spec *spec) {
    fig_spec resolved;
    FIG_TRY(fig_spec_resolve(spec, &resolved));
    if (memcmp(spec, &resolved, sizeof resolved) == 0) return FIG_OK;
    return fig_fail(FIG_FORMAT, "program: the spec holds a default that is not filled in");
}

static fig_status check_tensors(const fig_program_view *view, fig_strings *names) {
    for (uint32_t id = 1; id <= view->tensor_count; id++) {
        const fig_tensor_record *record = &view->tensors[id - 1];
        if (!fig_strings_begins(view->strings, view->string_bytes, record->name))
            return fig_fail(FIG_FORMAT, "tensor %u: no name begins at byte %u of %u", id,
                            record->name, view->string_bytes);
        const char *name = view->strings + record->name;
        fig_string_slot *slot = fig_strings_at(names, record->name);
        if (slot->owner != 0)
            return fig_fail(FIG_FORMAT, "tensor %u: name %s is taken by tensor %u", id, name,
                            slot->owner);
        slot->owner = id;
        slot->uses = FIG_STRING_TENSOR;
        FIG_TRY(check_tensor(record, &view->spec, name));
    }
    return FIG_OK;
}

static void use_call_name(const fig_program_view *view, const fig_node *node, fig_strings *names) {
    fig_call_attributes call;
    memcpy(&call, view->attributes + node->attribute, sizeof call);
    fig_strings_at(names, call.name)->uses |= FIG_STRING_CALL;
}

static fig_status check_nodes(const fig_program_view *view, fig_strings *names) {
    static const uint8_t zeros[ATTRIBUTE_UNIT];
    uint32_t operand = 0, attribute = 0;
    for (uint32_t n = 0; n < view->node_count; n++) {
        const fig_node *node = &view->nodes[n];
        if (node->layer < -1 || node->layer >= view->spec.layers)
            return fig_fail(FIG_FORMAT, "node %u: layer is %d, limits -1 to %" PRId32, n,
                            node->layer, view->spec.layers - 1);
        if (node->operand != operand || node->operand_count > view->operand_count - operand)
            return fig_fail(FIG_FORMAT, "node %u: %u operands from %u, expected from %u, limit %u",
                            n, node->operand_count, node->operand, operand, view->operand_count);
        uint64_t padded = fig_size_align(node->attribute_bytes, ATTRIBUTE_UNIT);
        if (node->attribute != attribute || padded > view->attribute_bytes - attribute)
            return fig_fail(
                FIG_FORMAT, "node %u: %u bytes of attributes from %u, expected from %u, limit %u",
                n, node->attribute_bytes, node->attribute, attribute, view->attribute_bytes);
        const uint64_t padding = attribute + node->attribute_bytes;
        if (padded > node->attribute_bytes &&
            memcmp(view->attributes + padding, zeros, (size_t)padded - node->attribute_bytes) != 0)
            return fig_fail(FIG_FORMAT, "node %u: attributes are not followed by zeros", n);
        FIG_TRY(fig_operation_check(view, n));
        if (node->op == FIG_OP_CALL) use_call_name(view, node, names);
        operand += node->operand_count;
        attribute += (uint32_t)padded;
    }
    if (operand != view->operand_count || attribute != view->attribute_bytes)
        return fig_fail(FIG_FORMAT,
                        "program: %u of %u operands and %u of %u bytes of attributes are used",
                        operand, view->operand_count, attribute, view->attribute_bytes);
    return FIG_OK;
}

/* Checks everything except counts and the spec. `names` holds view->strings; the call makes the
 * tensors the owners of their names. */
static fig_status check_arrays(const fig_program_view *view, fig_strings *names) {
    FIG_TRY(check_tensors(view, names));
    FIG_TRY(fig_score_units_check(view));
    FIG_TRY(check_nodes(view, names));
    FIG_TRY(fig_score_units_check_uses(view));
    FIG_TRY(fig_segment_check(view, names));
    return fig_strings_check_uses(names);
}

fig_status fig_program_check(const fig_program_view *view) {
    fig_strings names;
    memset(&names, 0, sizeof names);
    FIG_TRY(check_counts(view));
    FIG_TRY(check_spec(&view->spec));
    fig_status status = fig_strings_load(&names, view->strings, view->string_bytes);
    if (status == FIG_OK) status = check_arrays(view, &names);
    fig_strings_finish(&names);
    FIG_TRY(status);
    return fig_edges_check(view->edges, view->edge_count, view->node_count);
}

fig_status fig_program_finish(fig_program *program) {
    if (!fig_program_recording(program)) return fig_program_ready(program);
    fig_status status = derive_edges(program);
    if (status == FIG_OK) status = fig_program_check(&program->view);
    program->finished = status == FIG_OK;
    return fig_program_refuse(program, status);
}

/* ---- Copies ---------------------------------------------------------------------------------- */

static fig_status fill(fig_program *program, const fig_program_view *view) {
    FIG_TRY(append(&program->tensors, view->tensors, view->tensor_count));
    FIG_TRY(append(&program->nodes, view->nodes, view->node_count));
    FIG_TRY(append(&program->operands, view->operands, view->operand_count));
    FIG_TRY(append(&program->attributes, view->attributes, view->attribute_bytes));
    FIG_TRY(append(&program->segments, view->segments, view->segment_count));
    FIG_TRY(append(&program->scores, view->scores, view->score_units));
    fig_strings_finish(&program->strings);
    FIG_TRY(fig_strings_load(&program->strings, view->strings, view->string_bytes));
    expose(program);
    /* Check the copy instead of the original, so that the names are read only once. */
    FIG_TRY(check_arrays(&program->view, &program->strings));
    FIG_TRY(derive_edges(program));
    program->finished = 1;
    return FIG_OK;
}

static fig_status copy(fig_program **out, const fig_program_view *view) {
    fig_program *program;
    *out = NULL;
    FIG_TRY(check_counts(view));
    FIG_TRY(check_spec(&view->spec));
    FIG_TRY(fig_program_create(&program, &view->spec));
    const fig_status status = fill(program, view);
    if (status == FIG_OK) {
        *out = program;
    } else {
        fig_program_destroy(program);
    }
    return status;
}

fig_status fig_program_restore(fig_program **program, const fig_program_view *view) {
    const fig_status status = copy(program, view);
    /* FIG_INVALID means a caller's error during recording, but a damaged file here. */
    return status == FIG_INVALID ? fig_status_relay(FIG_FORMAT, fig_message()) : status;
}

fig_status fig_program_clone(fig_program **clone, const fig_program *program) {
    *clone = NULL;
    FIG_TRY(fig_program_ready(program));
    return copy(clone, &program->view);
}
