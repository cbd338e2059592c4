/* inspect_json.c: graphs as JSON, complete.
 *
 * Says what inspect_text.c says and leaves nothing out. Invariant: numbers that a reader might
 * round (hashes, tags) are strings of hex. */
#include "graphs/inspect/inspect_json.h"

#include <inttypes.h>
#include <stdio.h>

#include "include/figraph_tune.h"
#include "planner/frequencies.h"
#include "planner/spec.h"

/* ---- Parts of the summary */

static void print_version(fig_print *print) {
    char text[FIG_PRINT_NUMBER];
    snprintf(text, sizeof text, "%d.%d.%d", FIG_VERSION / 10000, FIG_VERSION / 100 % 100,
             FIG_VERSION % 100);
    fig_print_string(print, "figraph", text);
}

static void print_rope(fig_print *print, const char *key, const fig_rope_spec *rope) {
    fig_print_open(print, key, '{');
    fig_print_truth(print, "interleaved", rope->interleaved);
    fig_print_integer(print, "rotary_dim", rope->rotary_dim);
    fig_print_real(print, "theta", rope->theta);
    fig_print_real(print, "scale", rope->scale);
    fig_print_real(print, "llama3_factor", rope->llama3_factor);
    fig_print_real(print, "llama3_low", rope->llama3_low);
    fig_print_real(print, "llama3_high", rope->llama3_high);
    fig_print_integer(print, "llama3_context", rope->llama3_context);
    fig_print_close(print, '}');
}

/* null: terms say it all. */
static void print_table(fig_print *print, const char *key, const fig_rope_table *table) {
    if (!fig_frequencies_has_table(table)) {
        fig_print_null(print, key);
        return;
    }
    fig_print_open(print, key, '{');
    fig_print_double(print, "factor", table->factor);
    fig_print_open(print, "frequencies", '[');
    for (int i = 0; i < FIG_FREQUENCY_LIMIT && table->frequencies[i] > 0; i++)
        fig_print_double(print, NULL, table->frequencies[i]);
    fig_print_close(print, ']');
    fig_print_close(print, '}');
}

/* The layers that have the window. */
static void print_window_layers(fig_print *print, const fig_spec *spec) {
    fig_print_open(print, "window_layers", '[');
    for (int32_t layer = 0; layer < spec->layers; layer++) {
        if (fig_spec_layer_window(spec, layer) > 0) fig_print_integer(print, NULL, layer);
    }
    fig_print_close(print, ']');
}

/* The layers that have no RoPE. */
static void print_plain_layers(fig_print *print, const fig_spec *spec) {
    fig_print_open(print, "plain_layers", '[');
    for (int32_t layer = 0; layer < spec->layers; layer++) {
        if (!fig_spec_layer_turns(spec, layer)) fig_print_integer(print, NULL, layer);
    }
    fig_print_close(print, ']');
}

static void print_spec(fig_print *print, const fig_spec *spec) {
    fig_print_open(print, "spec", '{');
    fig_print_string(print, "dtype", fig_inspect_dtype(spec->dtype));
    fig_print_string(print, "kv_dtype", fig_inspect_dtype(spec->kv_dtype));
    fig_print_integer(print, "layers", spec->layers);
    fig_print_integer(print, "q_heads", spec->q_heads);
    fig_print_integer(print, "kv_heads", spec->kv_heads);
    fig_print_integer(print, "head_dim", spec->head_dim);
    fig_print_integer(print, "ffn_width", spec->ffn_width);
    fig_print_integer(print, "ffn_rows", spec->ffn_rows);
    fig_print_string(print, "activation", fig_inspect_activation(spec->activation));
    fig_print_integer(print, "page_size", spec->page_size);
    fig_print_string(print, "kv_layout", fig_inspect_layout(spec->kv_layout));
    fig_print_integer(print, "kv_scales", spec->kv_scales);
    fig_print_integer(print, "batch_limit", spec->batch_limit);
    fig_print_integer(print, "kv_limit", spec->kv_limit);
    fig_print_integer(print, "sequence_limit", spec->sequence_limit);
    fig_print_integer(print, "row_tokens", spec->row_tokens);
    fig_print_real(print, "soft_cap", spec->soft_cap);
    fig_print_integer(print, "window", spec->window);
    print_window_layers(print, spec);
    fig_print_real(print, "sm_scale", spec->sm_scale);
    fig_print_real(print, "qk_norm_epsilon", spec->qk_norm_epsilon);
    fig_print_integer(print, "sinks", spec->sinks);
    print_rope(print, "rope", &spec->rope);
    print_table(print, "rope_table", &spec->rope_table);
    if (spec->window_rope.theta > 0) {
        print_rope(print, "window_rope", &spec->window_rope);
        print_table(print, "window_table", &spec->window_table);
    }
    print_plain_layers(print, spec);
    fig_print_close(print, '}');
}

/* What all ranks have together; where there is one, what the spec says. */
static void print_share(fig_print *print, const fig_graphs *graphs) {
    fig_print_open(print, "share", '{');
    fig_print_integer(print, "ranks", graphs->ranks);
    fig_print_integer(print, "q_heads", graphs->model.q_heads);
    fig_print_integer(print, "kv_heads", graphs->model.kv_heads);
    fig_print_integer(print, "ffn_width", graphs->model.ffn_width);
    fig_print_close(print, '}');
}

static void print_traits(fig_print *print, const fig_traits *traits) {
    fig_print_open(print, "traits", '{');
    fig_print_string(print, "name", traits->name);
    fig_print_integer(print, "compute_capability", traits->compute_capability);
    fig_print_integer(print, "sm_count", traits->sm_count);
    fig_print_integer(print, "shared_bytes", traits->shared_bytes);
    fig_print_close(print, '}');
}

static void print_tuning(fig_print *print, const fig_graphs *graphs) {
    fig_tune_info info = {.size = sizeof info};
    fig_graphs_tune_info(graphs, &info);
    fig_print_open(print, "tuning", '{');
    fig_print_integer(print, "used", info.used);
    fig_print_integer(print, "foreign", info.foreign);
    fig_print_integer(print, "stale", info.stale);
    fig_print_close(print, '}');
}

static void print_notes(fig_print *print, const fig_graphs *graphs) {
    fig_note note;
    fig_print_open(print, "notes", '{');
    for (int32_t i = 0; fig_notes_at(&graphs->notes, i, &note); i++)
        fig_print_string(print, note.key, note.value);
    fig_print_close(print, '}');
}

/* What kernels the maker had: "attention/bulk/90" and its SHA-256. */
static void print_images(fig_print *print, const fig_graphs *graphs) {
    fig_image_info info = {.size = sizeof info};
    int32_t own = 0;
    fig_print_open(print, "images", '{');
    for (int32_t i = 0; fig_graphs_image(graphs, i, &info) == FIG_OK; i++) {
        char name[2 * FIG_NAME_LIMIT];
        snprintf(name, sizeof name, "%s/%s/%" PRId32, info.operation, info.family,
                 info.compute_capability);
        fig_print_string(print, name, info.sha256);
        own += info.is_own;
    }
    fig_print_integer(print, "own", own);
    fig_print_truth(print, "embedded", graphs->archive.code != NULL);
    fig_print_close(print, '}');
}

static void print_changes(fig_print *print, const fig_inspect_summary *summary) {
    fig_print_integer(print, "relowered_count", summary->relowered_count);
    fig_print_open(print, "changed_kernels", '[');
    for (uint32_t op = 0; op < FIG_OP_KERNEL_COUNT; op++) {
        if (summary->graphs->changed_kernels >> op & 1)
            fig_print_string(print, NULL, fig_kernel_table[op].name);
    }
    fig_print_close(print, ']');
}

static void print_tensors(fig_print *print, const fig_program_view *view) {
    fig_print_open(print, "tensors", '[');
    for (uint32_t id = 1; id <= view->tensor_count; id++) {
        const fig_tensor_record *record = &view->tensors[id - 1];
        const char *symbol = fig_inspect_symbol(record);
        fig_print_open(print, NULL, '{');
        fig_print_string(print, "name", fig_program_view_tensor_name(view, id));
        fig_print_string(print, "role", fig_inspect_role(record->role));
        fig_print_string(print, "dtype", fig_inspect_dtype(record->dtype));
        fig_print_open(print, "dims", '[');
        for (int i = 0; i < record->rank; i++) {
            if (i == 0 && symbol != NULL) {
                fig_print_string(print, NULL, symbol);
            } else {
                fig_print_integer(print, NULL, record->dims[i]);
            }
        }
        fig_print_close(print, ']');
        if (symbol != NULL) fig_print_integer(print, "multiple", record->dims[0]);
        fig_print_string(print, "layout", fig_inspect_layout(record->layout));
        fig_print_close(print, '}');
    }
    fig_print_close(print, ']');
}

/* ---- Nodes */

static void print_operand(fig_print *print, const fig_program_view *view, const fig_node *node,
                          uint32_t i) {
    const uint32_t tensor = view->operands[node->operand + i];
    const uint32_t access = fig_program_view_access(view, node, i);
    fig_print_open(print, NULL, '{');
    if (node->op < FIG_OP_KERNEL_COUNT)
        fig_print_string(print, "name", fig_kernel_table[node->op].operands[i].name);
    if (tensor != 0) {
        fig_print_string(print, "tensor", fig_program_view_tensor_name(view, tensor));
    } else {
        fig_print_null(print, "tensor");
    }
    fig_print_string(print, "access",
                     access == FIG_ACCESS_READ    ? "read"
                     : access == FIG_ACCESS_WRITE ? "write"
                                                  : "both");
    fig_print_close(print, '}');
}

static void print_call(fig_print *print, const fig_program_view *view, const fig_node *node) {
    const fig_call_attributes call = fig_inspect_call(view, node);
    fig_print_string(print, "call", view->strings + call.name);
    fig_print_word64(print, "tag", call.tag);
    fig_print_hex(print, "bytes", call.bytes, call.byte_count);
}

static void print_attributes(fig_print *print, const fig_program_view *view, const fig_node *node) {
    const fig_kernel *kernel = &fig_kernel_table[node->op];
    fig_print_open(print, "attributes", '{');
    for (uint32_t i = 0; i < kernel->field_count; i++) {
        const fig_field *field = &kernel->fields[i];
        if (field->kind != FIG_FIELD_ATTRIBUTE || !fig_launch_has_attribute(node, field)) continue;
        const uint8_t *bytes = view->attributes + node->attribute + field->item;
        const char *name = fig_inspect_value_name(field, bytes);
        if (field->type == FIG_TYPE_F32) {
            fig_print_real(print, field->name, fig_inspect_f32(bytes));
        } else if (name != NULL) {
            fig_print_string(print, field->name, name);
        } else {
            fig_print_integer(print, field->name, fig_inspect_i32(bytes));
        }
    }
    if (kernel->brief_bytes != 0 && node->attribute_bytes > kernel->brief_bytes) {
        const fig_rope_table table = fig_inspect_table(view, node);
        print_table(print, "table", &table);
    }
    fig_print_close(print, '}');
}

/* Edges are sorted by (to, from); *edge is the first that ends at this node or later. */
static void print_node(fig_print *print, const fig_program_view *view, uint32_t n, uint32_t *edge) {
    const fig_node *node = &view->nodes[n];
    fig_print_open(print, NULL, '{');
    fig_print_string(print, "op", fig_table_op_name(node->op));
    fig_print_integer(print, "layer", node->layer);
    fig_print_open(print, "operands", '[');
    for (uint32_t i = 0; i < node->operand_count; i++)
        print_operand(print, view, node, i);
    fig_print_close(print, ']');
    if (node->op == FIG_OP_CALL) {
        print_call(print, view, node);
    } else {
        print_attributes(print, view, node);
    }
    fig_print_open(print, "after", '[');
    for (; *edge < view->edge_count && view->edges[*edge].to == n; ++*edge)
        fig_print_integer(print, NULL, view->edges[*edge].from);
    fig_print_close(print, ']');
    fig_print_close(print, '}');
}

static void print_nodes(fig_print *print, const fig_program_view *view) {
    uint32_t edge = 0;
    fig_print_open(print, "nodes", '[');
    for (uint32_t n = 0; n < view->node_count; n++)
        print_node(print, view, n, &edge);
    fig_print_close(print, ']');
}

static void print_segments(fig_print *print, const fig_program_view *view) {
    fig_print_open(print, "segments", '[');
    for (uint32_t i = 0; i < view->segment_count; i++) {
        const fig_segment *segment = &view->segments[i];
        fig_print_open(print, NULL, '{');
        fig_print_string(print, "name", view->strings + segment->name);
        fig_print_integer(print, "node", segment->node);
        fig_print_integer(print, "node_count", segment->node_count);
        fig_print_close(print, '}');
    }
    fig_print_close(print, ']');
}

/* ---- Classes */

static void print_class(fig_print *print, const fig_inspect_summary *summary, int32_t index) {
    const fig_program_view *view = summary->view;
    const fig_split_class *own = &summary->classes.of[index];
    fig_print_open(print, NULL, '{');
    fig_print_integer(print, "kv_heads", own->kv_heads);
    fig_print_integer(print, "window", own->window);
    fig_print_integer(print, "row_tokens", own->row_tokens);
    fig_print_integer(print, "q_heads", own->q_heads);
    fig_print_integer(print, "head_dim", own->head_dim);
    fig_print_integer(print, "value_bytes", own->value_bytes);
    fig_print_open(print, "nodes", '[');
    for (uint32_t n = 0; n < view->node_count; n++) {
        if (fig_split_classes_index(&summary->classes, view, &view->nodes[n]) == (uint32_t)index)
            fig_print_integer(print, NULL, n);
    }
    fig_print_close(print, ']');
    fig_print_close(print, '}');
}

/* ---- Buckets */

static void print_bucket_fields(fig_print *print, const fig_graphs *graphs, uint32_t index,
                                const fig_bucket_info *info) {
    fig_print_integer(print, "number", (int64_t)index + 1);
    fig_print_integer(print, "batch", info->bucket.batch);
    fig_print_integer(print, "kv", info->bucket.kv);
    fig_print_open(print, "variant", '{');
    fig_print_integer(print, "heads", info->heads);
    fig_print_integer(print, "tile_tokens", info->tile_tokens);
    fig_print_close(print, '}');
    fig_print_integer(print, "workers", info->workers);
    fig_print_integer(print, "launch_count", info->launch_count);
    fig_print_integer(print, "plan_bytes_limit", (int64_t)info->plan_bytes);
    fig_print_integer(print, "workspace_bytes", (int64_t)info->workspace_bytes);
    fig_print_word64(print, "digest", graphs->digests[index]);
    fig_print_word64(print, "made_digest", graphs->made_digests[index]);
}

void fig_inspect_json_summary(fig_print *print, const fig_inspect_summary *summary) {
    const fig_graphs *graphs = summary->graphs;
    fig_print_open(print, NULL, '{');
    print_version(print);
    fig_print_hex(print, "content_id", graphs->content_id, sizeof graphs->content_id);
    print_spec(print, &summary->view->spec);
    print_share(print, graphs);
    print_traits(print, &graphs->target.traits);
    print_tuning(print, graphs);
    print_notes(print, graphs);
    print_images(print, graphs);
    print_changes(print, summary);
    fig_print_truth(print, "deterministic", graphs->target.deterministic);
    fig_print_integer(print, "workspace_bytes", (int64_t)graphs->workspace.bytes);
    fig_print_integer(print, "plan_bytes_limit", (int64_t)graphs->plan_bytes);
    print_tensors(print, summary->view);
    print_nodes(print, summary->view);
    print_segments(print, summary->view);
    fig_print_open(print, "classes", '[');
    for (int32_t i = 0; i < summary->classes.count; i++)
        print_class(print, summary, i);
    fig_print_close(print, ']');
    fig_print_open(print, "buckets", '[');
    for (uint32_t i = 0; i < graphs->bucket_count; i++) {
        fig_print_open(print, NULL, '{');
        print_bucket_fields(print, graphs, i, &summary->infos[i]);
        fig_print_close(print, '}');
    }
    fig_print_close(print, ']');
    fig_print_close(print, '}');
}

/* ---- Launches of one bucket */

static void print_reloc(fig_print *print, const char *key, const fig_inspect_value *value) {
    const fig_reloc *reloc = value->reloc;
    fig_print_open(print, key, '{');
    switch ((fig_reloc_kind)reloc->kind) {
    case FIG_RELOC_ADDRESS: fig_print_string(print, "address", value->operand); break;
    case FIG_RELOC_STRIDE:
        fig_print_string(print, "stride", value->operand);
        fig_print_integer(print, "dimension", reloc->item);
        break;
    case FIG_RELOC_EXTENT: fig_print_string(print, "extent", value->operand); break;
    case FIG_RELOC_WORKSPACE:
        fig_print_integer(print, "workspace", (int64_t)reloc->addend);
        if (value->operand != NULL) fig_print_string(print, "address", value->operand);
        break;
    case FIG_RELOC_PLAN: fig_print_string(print, "engine", "plan"); break;
    case FIG_RELOC_RING: fig_print_string(print, "engine", "ring"); break;
    case FIG_RELOC_RING_STATE: fig_print_string(print, "engine", "ring_state"); break;
    case FIG_RELOC_RING_WORDS: fig_print_string(print, "engine", "ring_words"); break;
    case FIG_RELOC_RING_SLOTS: fig_print_string(print, "engine", "ring_slots"); break;
    case FIG_RELOC_RING_BYTES: fig_print_string(print, "engine", "ring_slot_bytes"); break;
    case FIG_RELOC_PEERS: fig_print_string(print, "engine", "peers"); break;
    case FIG_RELOC_RANKS: fig_print_string(print, "engine", "ranks"); break;
    case FIG_RELOC_ROUTES: fig_print_string(print, "engine", "routes"); break;
    }
    fig_print_close(print, '}');
}

static void print_split(fig_print *print, const char *key, const fig_split_shape *split) {
    fig_print_open(print, key, '{');
    fig_print_integer(print, "row_limit", split->row_limit);
    fig_print_integer(print, "groups", split->groups);
    fig_print_integer(print, "tile_tokens", split->tile_tokens);
    fig_print_integer(print, "workers", split->workers);
    fig_print_integer(print, "window", split->window);
    fig_print_integer(print, "row_tokens", split->row_tokens);
    fig_print_integer(print, "fixed", split->fixed);
    fig_print_close(print, '}');
}

static void print_plan_shape(fig_print *print, const char *key, const fig_plan_shape *plan) {
    const fig_plan_layout *layout = &plan->layout;
    fig_print_open(print, key, '{');
    fig_print_integer(print, "exec", plan->exec);
    fig_print_integer(print, "row_limit", plan->row_limit);
    fig_print_integer(print, "lengths_offset", layout->lengths);
    fig_print_integer(print, "positions_offset", layout->positions);
    fig_print_integer(print, "sequences_offset", layout->sequences);
    fig_print_integer(print, "tokens_offset", layout->tokens);
    fig_print_integer(print, "bytes", layout->bytes);
    fig_print_open(print, "classes", '[');
    for (int32_t i = 0; i < plan->class_count; i++) {
        fig_print_open(print, NULL, '{');
        print_split(print, "split", &plan->splits[i]);
        fig_print_integer(print, "prefix_offset", layout->prefix[i]);
        fig_print_integer(print, "starts_offset", layout->starts[i]);
        fig_print_close(print, '}');
    }
    fig_print_close(print, ']');
    fig_print_close(print, '}');
}

static void print_param(fig_print *print, const fig_field *field, const fig_inspect_value *value) {
    if (value->reloc != NULL) {
        print_reloc(print, field->name, value);
        return;
    }
    const char *name = fig_inspect_value_name(field, value->bytes);
    if (name != NULL) {
        fig_print_string(print, field->name, name);
        return;
    }
    switch ((fig_field_type)field->type) {
    case FIG_TYPE_ANGLES: {
        const fig_rope_angles angles = fig_inspect_angles(value->bytes);
        print_table(print, field->name, &angles.table);
        break;
    }
    case FIG_TYPE_TENSOR_MAP:
    case FIG_TYPE_ADDRESS: fig_print_null(print, field->name); break;
    case FIG_TYPE_I64: fig_print_integer(print, field->name, fig_inspect_i64(value->bytes)); break;
    case FIG_TYPE_I32: fig_print_integer(print, field->name, fig_inspect_i32(value->bytes)); break;
    case FIG_TYPE_U32:
        fig_print_integer(print, field->name, (uint32_t)fig_inspect_i32(value->bytes));
        break;
    case FIG_TYPE_F32: fig_print_real(print, field->name, fig_inspect_f32(value->bytes)); break;
    case FIG_TYPE_SPLIT: {
        const fig_split_shape split = fig_inspect_split(value->bytes);
        print_split(print, field->name, &split);
        break;
    }
    case FIG_TYPE_PLAN_SHAPE: {
        const fig_plan_shape plan = fig_inspect_plan(value->bytes);
        print_plan_shape(print, field->name, &plan);
        break;
    }
    }
}

static void print_triple(fig_print *print, const char *key, const uint32_t triple[3]) {
    fig_print_open(print, key, '[');
    for (int i = 0; i < 3; i++)
        fig_print_integer(print, NULL, triple[i]);
    fig_print_close(print, ']');
}

static void print_family(fig_print *print, const fig_launch *launch,
                         const fig_family_choice *choice) {
    const fig_op op = (fig_op)launch->op;
    fig_print_string(print, "family", fig_families_of(op, choice->family)->name);
    fig_print_open(print, "refused", '[');
    for (uint32_t i = 0; i < choice->family; i++) {
        fig_print_open(print, NULL, '{');
        fig_print_string(print, "family", fig_families_of(op, i)->name);
        fig_print_string(print, "needs", choice->refusals[i]);
        fig_print_close(print, '}');
    }
    fig_print_close(print, ']');
}

static void print_kernel_launch(fig_print *print, const fig_inspect_bucket *bucket, uint32_t l) {
    const fig_launch *launch = &bucket->lowered.launches[l];
    const fig_kernel *kernel = &fig_kernel_table[launch->op];
    fig_family_choice choice;
    fig_inspect_family(bucket, launch, &choice);
    print_triple(print, "grid", choice.shape.grid);
    print_triple(print, "block", choice.shape.block);
    fig_print_integer(print, "shared_bytes", choice.shape.shared_bytes);
    fig_print_integer(print, "left_out", fig_inspect_is_left_out(bucket, l));
    print_family(print, launch, &choice);
    fig_print_open(print, "params", '{');
    for (uint32_t i = 0; i < kernel->field_count; i++) {
        const fig_inspect_value value = fig_inspect_value_of(bucket, launch, &kernel->fields[i]);
        print_param(print, &kernel->fields[i], &value);
    }
    fig_print_close(print, '}');
}

static void print_launch(fig_print *print, const fig_inspect_bucket *bucket, uint32_t l) {
    const fig_launch *launch = &bucket->lowered.launches[l];
    const int has_node = launch->node_count > 0;
    uint32_t first, count;
    fig_print_open(print, NULL, '{');
    fig_print_string(print, "op", fig_table_op_name(launch->op));
    if (has_node) {
        fig_print_integer(print, "node", launch->node);
        fig_print_integer(print, "node_count", launch->node_count);
        fig_print_integer(print, "layer", bucket->view->nodes[launch->node].layer);
    }
    if (launch->op == FIG_OP_CALL) {
        print_call(print, bucket->view, &bucket->view->nodes[launch->node]);
    } else {
        print_kernel_launch(print, bucket, l);
    }
    fig_inspect_edges(&bucket->lowered, l, &first, &count);
    fig_print_open(print, "after", '[');
    for (uint32_t i = first; i < first + count; i++)
        fig_print_integer(print, NULL, bucket->lowered.edges[i].from);
    fig_print_close(print, ']');
    fig_print_close(print, '}');
}

void fig_inspect_json_bucket(fig_print *print, const fig_inspect_bucket *bucket) {
    fig_print_open(print, NULL, '{');
    print_bucket_fields(print, bucket->graphs, bucket->index, &bucket->info);
    fig_print_open(print, "launches", '[');
    for (uint32_t l = 0; l < bucket->lowered.launch_count; l++)
        print_launch(print, bucket, l);
    fig_print_close(print, ']');
    fig_print_close(print, '}');
}
