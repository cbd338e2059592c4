/* inspection_fields.c: reports a launch's params and a node's attributes, field by field.
 *
 * The kernel table alone decides how the bytes are read. Invariant: a field that bind fills in is
 * reported by the kind of value that bind will put there, and every other field by its value. */
#include <assert.h>
#include <string.h>

#include "graphs/inspect/inspection.h"
#include "planner/spec/frequencies.h"

static_assert(sizeof(fig_inspect_split) == sizeof(fig_split_shape) &&
                  offsetof(fig_inspect_split, window) == offsetof(fig_split_shape, window) &&
                  offsetof(fig_inspect_split, tile_limit) == offsetof(fig_split_shape, tile_limit),
              "a split is told as it is");
static_assert(sizeof(fig_inspect_plan) == sizeof(fig_plan_shape) &&
                  offsetof(fig_inspect_plan, splits) == offsetof(fig_plan_shape, splits) &&
                  offsetof(fig_inspect_plan, lengths) == offsetof(fig_plan_shape, layout.lengths) &&
                  offsetof(fig_inspect_plan, prefix) == offsetof(fig_plan_shape, layout.prefix) &&
                  offsetof(fig_inspect_plan, bytes) == offsetof(fig_plan_shape, layout.bytes) &&
                  offsetof(fig_inspect_plan, query_limit) == offsetof(fig_plan_shape, query_limit),
              "a plan's shape is told as it is");

static_assert(sizeof(fig_inspect_strips) == sizeof(fig_plan_strips) &&
                  offsetof(fig_inspect_strip_shape, workers) ==
                      offsetof(fig_strips_shape, workers) &&
                  offsetof(fig_inspect_strip_shape, visible) == offsetof(fig_strips_shape, visible),
              "strips are told as they are");

static int32_t read_i32(const uint8_t *bytes) {
    int32_t value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

static void take_i32(fig_inspect_field *to, const fig_field *field, const uint8_t *bytes) {
    to->integer = read_i32(bytes);
    if (field->kind == FIG_FIELD_DTYPE) {
        to->kind = FIG_INSPECT_DTYPE;
    } else {
        const int is_activation = strcmp(field->name, "activation") == 0;
        to->kind = is_activation ? FIG_INSPECT_ACTIVATION : FIG_INSPECT_INTEGER;
    }
}

static void take_value(fig_inspect_field *to, const fig_field *field, const uint8_t *bytes) {
    to->bytes = bytes;
    switch ((fig_field_type)field->type) {
    case FIG_TYPE_ADDRESS: to->kind = FIG_INSPECT_NONE; break;
    case FIG_TYPE_I64:
        to->kind = FIG_INSPECT_INTEGER;
        memcpy(&to->integer, bytes, sizeof to->integer);
        break;
    case FIG_TYPE_I32: take_i32(to, field, bytes); break;
    case FIG_TYPE_U32:
        to->kind = FIG_INSPECT_INTEGER;
        to->integer = (uint32_t)read_i32(bytes);
        break;
    case FIG_TYPE_F32:
        to->kind = FIG_INSPECT_REAL;
        memcpy(&to->real, bytes, sizeof to->real);
        break;
    case FIG_TYPE_SPLIT: to->kind = FIG_INSPECT_SPLIT; break;
    case FIG_TYPE_ANGLES:
        to->kind = FIG_INSPECT_TABLE;
        to->bytes = bytes + offsetof(fig_rope_angles, table);
        break;
    case FIG_TYPE_TENSOR_MAP: to->kind = FIG_INSPECT_LATER; break;
    case FIG_TYPE_PLAN_SHAPE: to->kind = FIG_INSPECT_PLAN; break;
    case FIG_TYPE_STRIPS: to->kind = FIG_INSPECT_STRIPS; break;
    case FIG_TYPE_SCORE: to->kind = FIG_INSPECT_SCORE; break;
    }
}

static void take_reloc(fig_inspect_field *to, const fig_reloc *reloc) {
    static const char *const engines[] = {[FIG_RELOC_PLAN] = "plan",
                                          [FIG_RELOC_RING] = "ring",
                                          [FIG_RELOC_RING_STATE] = "ring_state",
                                          [FIG_RELOC_RING_WORDS] = "ring_words",
                                          [FIG_RELOC_RING_SLOTS] = "ring_slots",
                                          [FIG_RELOC_RING_BYTES] = "ring_slot_bytes",
                                          [FIG_RELOC_PEERS] = "peers",
                                          [FIG_RELOC_RANKS] = "ranks",
                                          [FIG_RELOC_ROUTES] = "routes"};
    switch ((fig_reloc_kind)reloc->kind) {
    case FIG_RELOC_ADDRESS: to->kind = FIG_INSPECT_ADDRESS; break;
    case FIG_RELOC_STRIDE:
        to->kind = FIG_INSPECT_STRIDE;
        to->integer = reloc->item;
        break;
    case FIG_RELOC_EXTENT: to->kind = FIG_INSPECT_EXTENT; break;
    case FIG_RELOC_WORKSPACE:
        to->kind = FIG_INSPECT_WORKSPACE;
        to->integer = (int64_t)reloc->addend;
        break;
    default:
        to->kind = FIG_INSPECT_ENGINE;
        to->word = engines[reloc->kind];
        break;
    }
}

static const char *operand_name(const fig_inspection_own *own, const fig_launch *launch,
                                const fig_field *field) {
    const fig_program_view *view = own->view;
    const int has_operand = field->kind == FIG_FIELD_ADDRESS || field->kind == FIG_FIELD_STRIDE ||
                            field->kind == FIG_FIELD_EXTENT;
    if (!has_operand || launch->node_count == 0) return NULL;
    const fig_node *node = &view->nodes[launch->node];
    const uint32_t tensor = fig_launch_operand(view, node, launch->op, field->operand);
    return tensor != 0 ? fig_program_view_tensor_name(view, tensor) : NULL;
}

/* Returns the text of the node's score, or NULL if it has none. */
static const char *score_of(const fig_inspection_own *own, uint32_t node) {
    const uint32_t number = fig_score_units_of(own->view, &own->view->nodes[node]);
    return number == 0 ? NULL : fig_score_text(&own->scores[number - 1]);
}

int32_t fig_inspection_launch_fields(const fig_inspection *inspection, uint32_t launch,
                                     fig_inspect_field fields[FIG_INSPECT_FIELD_LIMIT]) {
    const fig_inspection_own *own = fig_inspection_own_of(inspection);
    if (launch >= inspection->launch_count || inspection->launches[launch].is_call) return 0;
    const fig_launch *of = &own->lowered.launches[launch];
    const fig_kernel *kernel = &fig_kernel_table[of->op];
    assert(kernel->field_count <= FIG_INSPECT_FIELD_LIMIT);
    for (uint32_t i = 0; i < kernel->field_count; i++) {
        const fig_field *field = &kernel->fields[i];
        const uint32_t offset = of->params + field->offset;
        const fig_reloc *reloc = NULL;
        for (uint32_t r = 0; r < of->reloc_count; r++)
            if (own->lowered.relocs[of->reloc + r].offset == offset)
                reloc = &own->lowered.relocs[of->reloc + r];
        fields[i] = (fig_inspect_field){.name = field->name,
                                        .is_reserved = field->kind == FIG_FIELD_ZERO,
                                        .word = operand_name(own, of, field)};
        if (reloc != NULL) take_reloc(&fields[i], reloc);
        if (reloc == NULL) take_value(&fields[i], field, own->lowered.params + offset);
        if (field->type == FIG_TYPE_SCORE) fields[i].word = score_of(own, of->node);
    }
    return kernel->field_count;
}

/* Returns the RoPE table of a node, or NULL if the node defines its frequencies by terms or applies
 * no RoPE. */
static const uint8_t *find_table(const fig_program_view *view, const fig_node *node) {
    const fig_kernel *kernel = &fig_kernel_table[node->op];
    for (uint32_t i = 0; i < kernel->field_count; i++) {
        const fig_field *field = &kernel->fields[i];
        const uint32_t at = fig_table_rope_table(field->item);
        fig_rope_table table;
        if (field->kind != FIG_FIELD_ANGLES || at + sizeof table > node->attribute_bytes) continue;
        memcpy(&table, view->attributes + node->attribute + at, sizeof table);
        if (fig_frequencies_has_table(&table)) return view->attributes + node->attribute + at;
    }
    return NULL;
}

int32_t fig_inspection_node_fields(const fig_inspection *inspection, uint32_t node,
                                   fig_inspect_field fields[FIG_INSPECT_FIELD_LIMIT]) {
    const fig_inspection_own *own = fig_inspection_own_of(inspection);
    const fig_program_view *view = own->view;
    int32_t count = 0;
    if (node >= view->node_count || view->nodes[node].op >= FIG_OP_KERNEL_COUNT) return 0;
    const fig_node *of = &view->nodes[node];
    const fig_kernel *kernel = &fig_kernel_table[of->op];
    const uint8_t *table = find_table(view, of);
    assert(kernel->field_count < FIG_INSPECT_FIELD_LIMIT);
    for (uint32_t i = 0; i < kernel->field_count; i++) {
        const fig_field *field = &kernel->fields[i];
        uint8_t bytes[8];
        if (field->kind != FIG_FIELD_ATTRIBUTE) continue;
        assert(field->bytes <= sizeof bytes);
        if (!fig_launch_attribute(view, of, of->op, field->item, bytes, field->bytes)) continue;
        fields[count] = (fig_inspect_field){.name = field->name};
        if (field->type == FIG_TYPE_F32) {
            take_value(&fields[count], field, bytes);
        } else {
            take_i32(&fields[count], field, bytes);
        }
        fields[count++].bytes = NULL; /* the field's other members hold its value */
    }
    if (score_of(own, node) != NULL)
        fields[count++] = (fig_inspect_field){
            .name = "score", .kind = FIG_INSPECT_SCORE, .word = score_of(own, node)};
    if (table != NULL)
        fields[count++] =
            (fig_inspect_field){.name = "table", .kind = FIG_INSPECT_TABLE, .bytes = table};
    return count;
}
