/* inspect.c: puts fields into words and finds repeated layers, for text, JSON and drawings.
 *
 * Invariant: nothing here writes output; inspect_text.c, inspect_json.c and the other formats
 * all call it. */
#include "tools/figraph/inspect/inspect.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tools/figraph/terminal/report.h"

enum { PERIOD_LIMIT = 8 }; /* layers of a repeating pattern: gemma-3's pattern has six */

fig_rope_table fig_inspect_table(const fig_inspect_field *field) {
    fig_rope_table table;
    memcpy(&table, field->bytes, sizeof table);
    return table;
}

fig_inspect_split fig_inspect_split_of(const fig_inspect_field *field) {
    fig_inspect_split split;
    memcpy(&split, field->bytes, sizeof split);
    return split;
}

fig_inspect_plan fig_inspect_plan_of(const fig_inspect_field *field) {
    fig_inspect_plan plan;
    memcpy(&plan, field->bytes, sizeof plan);
    return plan;
}

fig_inspect_strips fig_inspect_strips_of(const fig_inspect_field *field) {
    fig_inspect_strips strips;
    memcpy(&strips, field->bytes, sizeof strips);
    return strips;
}

int fig_inspect_has_table(const fig_rope_table *table) {
    static const fig_rope_table none;
    return memcmp(table, &none, sizeof none) != 0;
}

const char *fig_inspect_value_name(const fig_inspect_field *field) {
    const uint32_t value = (uint32_t)field->integer;
    if (field->kind == FIG_INSPECT_DTYPE) return fig_inspect_names_dtype(value);
    if (field->kind == FIG_INSPECT_ACTIVATION) return fig_inspect_names_activation(value);
    return NULL;
}

void fig_inspect_heads(const fig_inspect_bucket *bucket, char text[FIG_INSPECT_HEADS_BYTES]) {
    const int32_t heads = fig_report_heads(bucket->graphs, &bucket->info);
    if (fig_report_group_heads(bucket->graphs) > 0) {
        snprintf(text, FIG_INSPECT_HEADS_BYTES, "%" PRId32 " q heads", heads);
    } else {
        snprintf(text, FIG_INSPECT_HEADS_BYTES, "%" PRId32 " of %" PRId32 " kv heads", heads,
                 bucket->view->spec->kv_heads);
    }
}

const char *fig_inspect_symbol(const fig_inspect_tensor *tensor) {
    if (tensor->symbol == FIG_DIM_BATCH) return "batch";
    if (tensor->symbol == FIG_DIM_QUERIES) return "queries";
    return tensor->symbol == FIG_DIM_PAGES ? "pages" : NULL;
}

const fig_inspect_segment *fig_inspect_segment_of(const fig_inspection *view, uint32_t node) {
    const int32_t segment = view->nodes[node].segment;
    return segment < 0 ? NULL : &view->segments[segment];
}

static int has_bit(const uint64_t bits[8], int32_t layer) {
    return (int)(bits[layer / 64] >> layer % 64 & 1);
}

/* If no layer's bit is set, all layers have the window. */
int32_t fig_inspect_layer_window(const fig_spec *spec, int32_t layer) {
    static const uint64_t none[8];
    if (spec->window >= spec->kv_limit) return 0;
    if (memcmp(spec->window_layers, none, sizeof none) == 0) return spec->window;
    return has_bit(spec->window_layers, layer) ? spec->window : 0;
}

int fig_inspect_layer_turns(const fig_spec *spec, int32_t layer) {
    return !has_bit(spec->plain_layers, layer);
}

/* ---- Words */

/* Returns words for a value that the engine fills in, given the library's name for it. */
static const char *engine_words(const char *name) {
    static const char *const words[][2] = {
        {"ring_state", "ring's state"}, {"ring_words", "ring's words"},
        {"ring_slots", "ring's slots"}, {"ring_slot_bytes", "bytes of a slot"},
        {"peers", "the other ranks"},   {"ranks", "how many ranks"},
        {"routes", "ways to them"}};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(name, words[i][0]) == 0) return words[i][1];
    return name;
}

static void describe_table(const fig_inspect_field *field, char text[FIG_INSPECT_VALUE_BYTES]) {
    const fig_rope_table table = fig_inspect_table(field);
    char number[FIG_PRINT_NUMBER];
    int count = 0;
    while (count < FIG_INSPECT_FREQUENCY_LIMIT && table.frequencies[count] > 0)
        count++;
    if (count == 0) {
        snprintf(text, FIG_INSPECT_VALUE_BYTES, "none");
        return;
    }
    snprintf(text, FIG_INSPECT_VALUE_BYTES, "of %d pairs, times %s", count,
             fig_print_float(number, (float)table.factor));
}

static void describe_plan(const fig_inspect_field *field, char text[FIG_INSPECT_VALUE_BYTES]) {
    const fig_inspect_plan plan = fig_inspect_plan_of(field);
    snprintf(text, FIG_INSPECT_VALUE_BYTES,
             "%" PRId32 " row%s, %" PRId32 " class%s, %" PRIu32 " bytes", plan.row_limit,
             plan.row_limit == 1 ? "" : "s", plan.class_count, plan.class_count == 1 ? "" : "es",
             plan.bytes);
}

/* Every class of a program with chunks has the same workers. */
static void describe_strips(const fig_inspect_field *field, char text[FIG_INSPECT_VALUE_BYTES]) {
    const int32_t workers = fig_inspect_strips_of(field).of[0].workers;
    if (workers == 0) {
        snprintf(text, FIG_INSPECT_VALUE_BYTES, "none");
    } else {
        snprintf(text, FIG_INSPECT_VALUE_BYTES, "for %" PRId32 " worker%s", workers,
                 workers == 1 ? "" : "s");
    }
}

void fig_inspect_describe(const fig_inspect_field *field, char text[FIG_INSPECT_VALUE_BYTES]) {
    const size_t bytes = FIG_INSPECT_VALUE_BYTES;
    const char *name = field->word != NULL ? field->word : "workspace";
    char number[FIG_PRINT_NUMBER];
    text[0] = '\0';
    switch (field->kind) {
    case FIG_INSPECT_NONE: snprintf(text, bytes, "none"); break;
    case FIG_INSPECT_INTEGER: snprintf(text, bytes, "%" PRId64, field->integer); break;
    case FIG_INSPECT_REAL: snprintf(text, bytes, "%s", fig_print_float(number, field->real)); break;
    case FIG_INSPECT_DTYPE:
    case FIG_INSPECT_ACTIVATION: snprintf(text, bytes, "%s", fig_inspect_value_name(field)); break;
    case FIG_INSPECT_ADDRESS: snprintf(text, bytes, "%s", name); break;
    case FIG_INSPECT_STRIDE:
        snprintf(text, bytes, "stride %d of %s", (int)field->integer, name);
        break;
    case FIG_INSPECT_EXTENT: snprintf(text, bytes, "extent of %s", name); break;
    case FIG_INSPECT_WORKSPACE:
        snprintf(text, bytes, "%s%sworkspace+0x%" PRIx64, field->word != NULL ? name : "",
                 field->word != NULL ? " at " : "", (uint64_t)field->integer);
        break;
    case FIG_INSPECT_ENGINE: snprintf(text, bytes, "%s", engine_words(field->word)); break;
    case FIG_INSPECT_LATER: snprintf(text, bytes, "made at prepare"); break;
    case FIG_INSPECT_TABLE: describe_table(field, text); break;
    case FIG_INSPECT_PLAN: describe_plan(field, text); break;
    case FIG_INSPECT_STRIPS: describe_strips(field, text); break;
    case FIG_INSPECT_SCORE: snprintf(text, bytes, "%s", field->word); break;
    }
}

void fig_inspect_split_members(const fig_inspect_field *field,
                               fig_inspect_member members[FIG_INSPECT_SPLIT_MEMBERS]) {
    const fig_inspect_split split = fig_inspect_split_of(field);
    members[0] = (fig_inspect_member){"row_limit", split.row_limit};
    members[1] = (fig_inspect_member){"groups", split.groups};
    members[2] = (fig_inspect_member){"tile_tokens", split.tile_tokens};
    members[3] = (fig_inspect_member){"workers", split.workers};
    members[4] = (fig_inspect_member){"window", split.window};
    members[5] = (fig_inspect_member){"row_tokens", split.row_tokens};
    members[6] = (fig_inspect_member){"fixed", split.fixed};
}

void fig_inspect_node_operation(const fig_inspect_node *node,
                                char text[FIG_INSPECT_OPERATION_BYTES]) {
    if (node->call != NULL) {
        snprintf(text, FIG_INSPECT_OPERATION_BYTES, "call %s", node->call);
    } else {
        snprintf(text, FIG_INSPECT_OPERATION_BYTES, "%s", node->operation);
    }
}

void fig_inspect_operation(const fig_inspect_bucket *bucket, const fig_inspect_launch *launch,
                           char text[FIG_INSPECT_OPERATION_BYTES]) {
    if (launch->is_call) {
        fig_inspect_node_operation(&bucket->view->nodes[launch->node], text);
    } else {
        snprintf(text, FIG_INSPECT_OPERATION_BYTES, "%s", launch->operation);
    }
}

/* ---- Edges and repeated layers */

void fig_inspect_edges(const fig_inspection *view, uint32_t launch, uint32_t *first,
                       uint32_t *count) {
    uint32_t low = 0, high = view->edge_count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (view->edges[middle].to < launch) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    *first = low;
    *count = 0;
    while (low + *count < view->edge_count && view->edges[low + *count].to == launch)
        ++*count;
}

/* Returns 1 if the edges that end at a and at b match: each pair of edges begins at the same
 * distance before its end, or at the same launch. */
static int edges_match(const fig_inspection *view, uint32_t a, uint32_t b) {
    uint32_t first_a, count_a, first_b, count_b;
    fig_inspect_edges(view, a, &first_a, &count_a);
    fig_inspect_edges(view, b, &first_b, &count_b);
    if (count_a != count_b) return 0;
    for (uint32_t i = 0; i < count_a; i++) {
        const uint32_t from_a = view->edges[first_a + i].from;
        const uint32_t from_b = view->edges[first_b + i].from;
        if (from_b != from_a && from_b - from_a != b - a) return 0;
    }
    return 1;
}

/* Returns 1 if the launches of the `count` nodes at a and of the `count` nodes right after them
 * differ only in their layers. The caller has already compared the nodes. Params follow from
 * operands and attributes, so only edges are left to compare. */
static int launches_repeat(const fig_inspect_bucket *bucket, uint32_t a, uint32_t count) {
    const fig_inspect_node *nodes = bucket->view->nodes;
    const uint32_t first = nodes[a].launch, behind = nodes[a + count].launch;
    for (uint32_t i = first; i < behind; i++)
        if (!edges_match(bucket->view, i, i + behind - first)) return 0;
    return 1;
}

/* Finds the shortest period that repeats. If a model's layers alternate in a pattern, one pass
 * through the pattern is shown. */
fig_inspect_stretch fig_inspect_stretch_at(const fig_inspection *view,
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
