/* inspect.c: what text and JSON have in common when graphs are shown: names for numbers, where a
 * param comes from, and what is shown once.
 *
 * Invariant: nothing here writes; it is read by inspect_text.c, inspect_json.c and the others
 * alike. */
#include "graphs/inspect/inspect.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "planner/frequencies.h"

enum { PERIOD_LIMIT = 8 }; /* layers that take turns: gemma-3's do in sixes */

int32_t fig_inspect_i32(const uint8_t *bytes) {
    int32_t value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

int64_t fig_inspect_i64(const uint8_t *bytes) {
    int64_t value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

float fig_inspect_f32(const uint8_t *bytes) {
    float value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

fig_rope_angles fig_inspect_angles(const uint8_t *bytes) {
    fig_rope_angles angles;
    memcpy(&angles, bytes, sizeof angles);
    return angles;
}

fig_rope_table fig_inspect_table(const fig_program_view *view, const fig_node *node) {
    fig_rope_table table;
    memcpy(&table,
           view->attributes + node->attribute + (node->attribute_bytes - (uint32_t)sizeof table),
           sizeof table);
    return table;
}

fig_split_shape fig_inspect_split(const uint8_t *bytes) {
    fig_split_shape value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

fig_plan_shape fig_inspect_plan(const uint8_t *bytes) {
    fig_plan_shape value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

const char *fig_inspect_dtype(uint32_t dtype) {
    switch (dtype) {
    case 0: return "none";
    case FIG_F32: return "f32";
    case FIG_F16: return "f16";
    case FIG_BF16: return "bf16";
    case FIG_E4M3: return "e4m3";
    case FIG_E5M2: return "e5m2";
    case FIG_I32: return "i32";
    case FIG_I64: return "i64";
    }
    return "unknown";
}

const char *fig_inspect_role(uint32_t role) {
    switch (role) {
    case FIG_ROLE_TEMP: return "temp";
    case FIG_ROLE_BOUND: return "bound";
    case FIG_ROLE_STATE: return "state";
    }
    return "unknown";
}

const char *fig_inspect_activation(uint32_t activation) {
    switch (activation) {
    case FIG_SILU: return "silu";
    case FIG_GELU: return "gelu";
    case FIG_GELU_TANH: return "gelu_tanh";
    case FIG_SWIGLU_LIMITED: return "swiglu_limited";
    }
    return "unknown";
}

const char *fig_inspect_layout(uint32_t layout) {
    return layout == FIG_HND ? "hnd" : "nhd";
}

const char *fig_inspect_value_name(const fig_field *field, const uint8_t *bytes) {
    if (field->type != FIG_TYPE_I32) return NULL;
    const uint32_t value = (uint32_t)fig_inspect_i32(bytes);
    if (field->kind == FIG_FIELD_DTYPE) return fig_inspect_dtype(value);
    return strcmp(field->name, "activation") == 0 ? fig_inspect_activation(value) : NULL;
}

const char *fig_inspect_symbol(const fig_tensor_record *record) {
    if (record->symbol == FIG_SYMBOL_BATCH) return "batch";
    return record->symbol == FIG_SYMBOL_PAGES ? "pages" : NULL;
}

fig_call_attributes fig_inspect_call(const fig_program_view *view, const fig_node *node) {
    fig_call_attributes call;
    memcpy(&call, view->attributes + node->attribute, sizeof call);
    return call;
}

void fig_inspect_edges(const fig_lowered *lowered, uint32_t launch, uint32_t *first,
                       uint32_t *count) {
    uint32_t low = 0, high = lowered->edge_count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (lowered->edges[middle].to < launch) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    *first = low;
    *count = 0;
    while (low + *count < lowered->edge_count && lowered->edges[low + *count].to == launch)
        ++*count;
}

static const char *operand_name(const fig_program_view *view, const fig_launch *launch,
                                const fig_field *field) {
    const int has_operand = field->kind == FIG_FIELD_ADDRESS || field->kind == FIG_FIELD_STRIDE ||
                            field->kind == FIG_FIELD_EXTENT;
    if (!has_operand || launch->node_count == 0) return NULL;
    const fig_node *node = &view->nodes[launch->node];
    if (field->operand >= node->operand_count) return NULL;
    const uint32_t tensor = view->operands[node->operand + field->operand];
    return tensor != 0 ? fig_program_view_tensor_name(view, tensor) : NULL;
}

fig_inspect_value fig_inspect_value_of(const fig_inspect_bucket *bucket, const fig_launch *launch,
                                       const fig_field *field) {
    const fig_lowered *lowered = &bucket->lowered;
    const uint32_t offset = launch->params + field->offset;
    fig_inspect_value value = {.bytes = lowered->params + offset,
                               .operand = operand_name(bucket->view, launch, field)};
    for (uint32_t i = 0; i < launch->reloc_count; i++) {
        const fig_reloc *reloc = &lowered->relocs[launch->reloc + i];
        if (reloc->offset == offset) value.reloc = reloc;
    }
    return value;
}

/* ---- Words */

static void describe_reloc(const fig_inspect_value *value, char text[FIG_INSPECT_VALUE_BYTES]) {
    const fig_reloc *reloc = value->reloc;
    const char *name = value->operand != NULL ? value->operand : "workspace";
    switch ((fig_reloc_kind)reloc->kind) {
    case FIG_RELOC_ADDRESS: snprintf(text, FIG_INSPECT_VALUE_BYTES, "%s", name); break;
    case FIG_RELOC_STRIDE:
        snprintf(text, FIG_INSPECT_VALUE_BYTES, "stride %u of %s", reloc->item, name);
        break;
    case FIG_RELOC_EXTENT: snprintf(text, FIG_INSPECT_VALUE_BYTES, "extent of %s", name); break;
    case FIG_RELOC_WORKSPACE:
        snprintf(text, FIG_INSPECT_VALUE_BYTES, "%s%sworkspace+0x%" PRIx64,
                 value->operand != NULL ? value->operand : "", value->operand != NULL ? " at " : "",
                 reloc->addend);
        break;
    case FIG_RELOC_PLAN: snprintf(text, FIG_INSPECT_VALUE_BYTES, "plan"); break;
    case FIG_RELOC_RING: snprintf(text, FIG_INSPECT_VALUE_BYTES, "ring"); break;
    case FIG_RELOC_RING_STATE: snprintf(text, FIG_INSPECT_VALUE_BYTES, "ring's state"); break;
    case FIG_RELOC_RING_WORDS: snprintf(text, FIG_INSPECT_VALUE_BYTES, "ring's words"); break;
    case FIG_RELOC_RING_SLOTS: snprintf(text, FIG_INSPECT_VALUE_BYTES, "ring's slots"); break;
    case FIG_RELOC_RING_BYTES: snprintf(text, FIG_INSPECT_VALUE_BYTES, "bytes of a slot"); break;
    case FIG_RELOC_PEERS: snprintf(text, FIG_INSPECT_VALUE_BYTES, "the other ranks"); break;
    case FIG_RELOC_RANKS: snprintf(text, FIG_INSPECT_VALUE_BYTES, "how many ranks"); break;
    case FIG_RELOC_ROUTES: snprintf(text, FIG_INSPECT_VALUE_BYTES, "ways to them"); break;
    }
}

static void describe_angles(const uint8_t *bytes, char text[FIG_INSPECT_VALUE_BYTES]) {
    const fig_rope_angles angles = fig_inspect_angles(bytes);
    char number[FIG_PRINT_NUMBER];
    int count = 0;
    while (count < FIG_FREQUENCY_LIMIT && angles.table.frequencies[count] > 0)
        count++;
    if (count == 0) {
        snprintf(text, FIG_INSPECT_VALUE_BYTES, "none");
        return;
    }
    snprintf(text, FIG_INSPECT_VALUE_BYTES, "of %d pairs, times %s", count,
             fig_print_float(number, (float)angles.table.factor));
}

void fig_inspect_describe(const fig_field *field, const fig_inspect_value *value,
                          char text[FIG_INSPECT_VALUE_BYTES]) {
    const uint8_t *bytes = value->bytes;
    char number[FIG_PRINT_NUMBER];
    if (value->reloc != NULL) {
        describe_reloc(value, text);
        return;
    }
    const char *name = fig_inspect_value_name(field, bytes);
    if (name != NULL) {
        snprintf(text, FIG_INSPECT_VALUE_BYTES, "%s", name);
        return;
    }
    switch ((fig_field_type)field->type) {
    case FIG_TYPE_ADDRESS: snprintf(text, FIG_INSPECT_VALUE_BYTES, "none"); break;
    case FIG_TYPE_I64:
        snprintf(text, FIG_INSPECT_VALUE_BYTES, "%" PRId64, fig_inspect_i64(bytes));
        break;
    case FIG_TYPE_I32:
        snprintf(text, FIG_INSPECT_VALUE_BYTES, "%" PRId32, fig_inspect_i32(bytes));
        break;
    case FIG_TYPE_U32:
        snprintf(text, FIG_INSPECT_VALUE_BYTES, "%" PRIu32, (uint32_t)fig_inspect_i32(bytes));
        break;
    case FIG_TYPE_F32:
        snprintf(text, FIG_INSPECT_VALUE_BYTES, "%s",
                 fig_print_float(number, fig_inspect_f32(bytes)));
        break;
    case FIG_TYPE_SPLIT: text[0] = '\0'; break;
    case FIG_TYPE_ANGLES: describe_angles(bytes, text); break;
    case FIG_TYPE_TENSOR_MAP: snprintf(text, FIG_INSPECT_VALUE_BYTES, "made at prepare"); break;
    case FIG_TYPE_PLAN_SHAPE: {
        const fig_plan_shape plan = fig_inspect_plan(bytes);
        snprintf(text, FIG_INSPECT_VALUE_BYTES,
                 "%" PRId32 " row%s, %" PRId32 " class%s, %" PRIu32 " bytes", plan.row_limit,
                 plan.row_limit == 1 ? "" : "s", plan.class_count,
                 plan.class_count == 1 ? "" : "es", plan.layout.bytes);
        break;
    }
    }
}

void fig_inspect_split_members(const uint8_t *bytes,
                               fig_inspect_member members[FIG_INSPECT_SPLIT_MEMBERS]) {
    const fig_split_shape split = fig_inspect_split(bytes);
    members[0] = (fig_inspect_member){"row_limit", split.row_limit};
    members[1] = (fig_inspect_member){"groups", split.groups};
    members[2] = (fig_inspect_member){"tile_tokens", split.tile_tokens};
    members[3] = (fig_inspect_member){"workers", split.workers};
    members[4] = (fig_inspect_member){"window", split.window};
    members[5] = (fig_inspect_member){"row_tokens", split.row_tokens};
    members[6] = (fig_inspect_member){"fixed", split.fixed};
}

void fig_inspect_node_operation(const fig_program_view *view, const fig_node *node,
                                char text[FIG_INSPECT_OPERATION_BYTES]) {
    snprintf(text, FIG_INSPECT_OPERATION_BYTES, "%s", fig_table_op_name(node->op));
    if (node->op == FIG_OP_CALL)
        snprintf(text, FIG_INSPECT_OPERATION_BYTES, "call %s",
                 view->strings + fig_inspect_call(view, node).name);
}

void fig_inspect_operation(const fig_inspect_bucket *bucket, const fig_launch *launch,
                           char text[FIG_INSPECT_OPERATION_BYTES]) {
    snprintf(text, FIG_INSPECT_OPERATION_BYTES, "%s", fig_table_op_name(launch->op));
    if (launch->op == FIG_OP_CALL)
        fig_inspect_node_operation(bucket->view, &bucket->view->nodes[launch->node], text);
}

/* ---- Families and edges */

void fig_inspect_family(const fig_inspect_bucket *bucket, const fig_launch *launch,
                        fig_family_choice *choice) {
    fig_families_choose((fig_op)launch->op, bucket->lowered.params + launch->params,
                        &bucket->graphs->target.traits, choice);
}

int fig_inspect_is_left_out(const fig_inspect_bucket *bucket, uint32_t launch) {
    const fig_launch *of = &bucket->lowered.launches[launch], *next = of + 1;
    fig_family_choice choice;
    if (of->node_count == 0 || launch + 1 == bucket->lowered.launch_count) return 0;
    if (next->node != of->node || next->op == FIG_OP_CALL) return 0;
    fig_inspect_family(bucket, next, &choice);
    return fig_families_of((fig_op)next->op, choice.family)->does_all;
}

/* 1: what b comes after stands to b as what a comes after stands to a, or is the same launch. */
static int edges_match(const fig_lowered *lowered, uint32_t a, uint32_t b) {
    uint32_t first_a, count_a, first_b, count_b;
    fig_inspect_edges(lowered, a, &first_a, &count_a);
    fig_inspect_edges(lowered, b, &first_b, &count_b);
    if (count_a != count_b) return 0;
    for (uint32_t i = 0; i < count_a; i++) {
        const uint32_t from_a = lowered->edges[first_a + i].from;
        const uint32_t from_b = lowered->edges[first_b + i].from;
        if (from_b != from_a && from_b - from_a != b - a) return 0;
    }
    return 1;
}

/* 1: the launches of the `count` nodes at a and of those right behind differ in their layers alone,
 * where the nodes do. Params follow from operands and attributes, so only edges are left to
 * compare. */
static int launches_repeat(const fig_inspect_bucket *bucket, uint32_t a, uint32_t count) {
    const fig_launch_range *ranges = bucket->lowered.node_launches;
    const uint32_t first = ranges[a].first, behind = ranges[a + count].first;
    for (uint32_t i = first; i < behind; i++)
        if (!edges_match(&bucket->lowered, i, i + behind - first)) return 0;
    return 1;
}

/* The shortest period that repeats: of a model whose layers take turns, one turn is shown. */
fig_inspect_stretch fig_inspect_stretch_at(const fig_program_view *view,
                                           const fig_inspect_bucket *bucket, uint32_t node) {
    fig_inspect_stretch s = {.node = node, .times = 1};
    for (uint32_t end = node; s.period < PERIOD_LIMIT && end < view->node_count;) {
        if (s.period > 0 && view->nodes[end].layer != view->nodes[end - 1].layer + 1) break;
        end += fig_layer_fold_block(view, end);
        s.period++;
        s.count = end - node;
        while (fig_layer_fold_repeats(view, end - s.count, s.count) &&
               (bucket == NULL || launches_repeat(bucket, end - s.count, s.count))) {
            end += s.count;
            s.times++;
        }
        if (s.times > 1) return s;
    }
    return (fig_inspect_stretch){node, fig_layer_fold_block(view, node), 1, 1};
}
