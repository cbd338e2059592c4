/* inspect_json.c: prints graphs as complete JSON.
 *
 * It prints everything that inspect_text.c prints and leaves nothing out. Invariant: numbers
 * that a JSON reader might round (hashes, tags) are strings of hex digits. */
#include "tools/figraph/inspect/inspect_json.h"

#include <inttypes.h>
#include <stdio.h>

#include <figraph_archive.h>
#include <figraph_tune.h>

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

/* Prints null if the table adds nothing to the spec's RoPE terms. */
static void print_table(fig_print *print, const char *key, const fig_rope_table *table) {
    if (!fig_inspect_has_table(table)) {
        fig_print_null(print, key);
        return;
    }
    fig_print_open(print, key, '{');
    fig_print_double(print, "factor", table->factor);
    fig_print_open(print, "frequencies", '[');
    for (int i = 0; i < FIG_INSPECT_FREQUENCY_LIMIT && table->frequencies[i] > 0; i++)
        fig_print_double(print, NULL, table->frequencies[i]);
    fig_print_close(print, ']');
    fig_print_close(print, '}');
}

/* Prints the layers that have the window. */
static void print_window_layers(fig_print *print, const fig_spec *spec) {
    fig_print_open(print, "window_layers", '[');
    for (int32_t layer = 0; layer < spec->layers; layer++) {
        if (fig_inspect_layer_window(spec, layer) > 0) fig_print_integer(print, NULL, layer);
    }
    fig_print_close(print, ']');
}

/* Prints the layers that have no RoPE. */
static void print_plain_layers(fig_print *print, const fig_spec *spec) {
    fig_print_open(print, "plain_layers", '[');
    for (int32_t layer = 0; layer < spec->layers; layer++) {
        if (!fig_inspect_layer_turns(spec, layer)) fig_print_integer(print, NULL, layer);
    }
    fig_print_close(print, ']');
}

static void print_spec(fig_print *print, const fig_spec *spec) {
    fig_print_open(print, "spec", '{');
    fig_print_string(print, "dtype", fig_inspect_names_dtype(spec->dtype));
    fig_print_string(print, "kv_dtype", fig_inspect_names_dtype(spec->kv_dtype));
    fig_print_integer(print, "layers", spec->layers);
    fig_print_integer(print, "q_heads", spec->q_heads);
    fig_print_integer(print, "kv_heads", spec->kv_heads);
    fig_print_integer(print, "head_dim", spec->head_dim);
    fig_print_integer(print, "ffn_width", spec->ffn_width);
    fig_print_integer(print, "ffn_rows", spec->ffn_rows);
    fig_print_string(print, "activation", fig_inspect_names_activation(spec->activation));
    fig_print_integer(print, "page_size", spec->page_size);
    fig_print_string(print, "kv_layout", fig_inspect_names_layout(spec->kv_layout));
    fig_print_integer(print, "kv_scales", spec->kv_scales);
    fig_print_integer(print, "batch_limit", spec->batch_limit);
    fig_print_integer(print, "kv_limit", spec->kv_limit);
    fig_print_integer(print, "sequence_limit", spec->sequence_limit);
    fig_print_integer(print, "row_tokens", spec->row_tokens);
    if (spec->query_limit > 0) fig_print_integer(print, "query_limit", spec->query_limit);
    fig_print_real(print, "soft_cap", spec->soft_cap);
    fig_print_integer(print, "window", spec->window);
    print_window_layers(print, spec);
    fig_print_real(print, "sm_scale", spec->sm_scale);
    fig_print_real(print, "qk_norm_epsilon", spec->qk_norm_epsilon);
    fig_print_integer(print, "sinks", spec->sinks);
    if (spec->latent_dim > 0 || spec->dense_layers > 0) {
        fig_print_integer(print, "latent_dim", spec->latent_dim);
        fig_print_real(print, "latent_norm_epsilon", spec->latent_norm_epsilon);
        fig_print_integer(print, "dense_layers", spec->dense_layers);
        fig_print_integer(print, "dense_width", spec->dense_width);
    }
    print_rope(print, "rope", &spec->rope);
    print_table(print, "rope_table", &spec->rope_table);
    if (spec->window_rope.theta > 0) {
        print_rope(print, "window_rope", &spec->window_rope);
        print_table(print, "window_table", &spec->window_table);
    }
    print_plain_layers(print, spec);
    fig_print_close(print, '}');
}

/* Prints the model that all ranks have together; with one rank this is the spec itself. */
static void print_share(fig_print *print, const fig_inspection *view) {
    fig_print_open(print, "share", '{');
    fig_print_integer(print, "ranks", view->ranks);
    fig_print_integer(print, "q_heads", view->model->q_heads);
    fig_print_integer(print, "kv_heads", view->model->kv_heads);
    fig_print_integer(print, "ffn_width", view->model->ffn_width);
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
    fig_note note = {.size = sizeof note};
    fig_print_open(print, "notes", '{');
    for (int32_t i = 0; fig_graphs_note(graphs, i, &note) == FIG_OK; i++)
        fig_print_string(print, note.key, note.value);
    fig_print_close(print, '}');
}

/* Prints the kernels that the maker of the graphs used: "attention/bulk/90" and its SHA-256. */
static void print_images(fig_print *print, const fig_inspection *view) {
    fig_image_info info = {.size = sizeof info};
    int32_t own = 0;
    fig_print_open(print, "images", '{');
    for (int32_t i = 0; fig_graphs_image(view->graphs, i, &info) == FIG_OK; i++) {
        char name[2 * FIG_INSPECT_NAME_LIMIT];
        snprintf(name, sizeof name, "%s/%s/%" PRId32, info.operation, info.family,
                 info.compute_capability);
        fig_print_string(print, name, info.sha256);
        own += info.is_own;
    }
    fig_print_integer(print, "own", own);
    fig_print_truth(print, "embedded", view->embeds_images);
    fig_print_close(print, '}');
}

/* Prints the compiled scores that the file embeds; nothing for a file without any. */
static void print_compiled(fig_print *print, const fig_inspection *view) {
    fig_compiled_info info = {.size = sizeof info};
    for (int32_t i = 0; fig_graphs_compiled(view->graphs, i, &info) == FIG_OK; i++) {
        if (i == 0) fig_print_open(print, "compiled_scores", '[');
        fig_print_open(print, NULL, '{');
        fig_print_string(print, "family", info.family);
        fig_print_integer(print, "compute_capability", info.compute_capability);
        fig_print_integer(print, "driver", info.driver);
        fig_print_integer(print, "bytes", (int64_t)info.bytes);
        fig_print_string(print, "sha256", info.sha256);
        fig_print_close(print, '}');
    }
    if (fig_graphs_compiled(view->graphs, 0, &info) == FIG_OK) fig_print_close(print, ']');
}

static void print_changes(fig_print *print, const fig_inspect_summary *summary) {
    fig_print_integer(print, "relowered_count", summary->relowered_count);
    fig_print_open(print, "changed_kernels", '[');
    for (uint32_t i = 0; i < summary->view->changed_kernel_count; i++)
        fig_print_string(print, NULL, summary->view->changed_kernels[i]);
    fig_print_close(print, ']');
}

static void print_tensors(fig_print *print, const fig_inspection *view) {
    fig_print_open(print, "tensors", '[');
    for (uint32_t id = 1; id <= view->tensor_count; id++) {
        const fig_inspect_tensor *record = &view->tensors[id - 1];
        const char *symbol = fig_inspect_symbol(record);
        fig_print_open(print, NULL, '{');
        fig_print_string(print, "name", view->tensors[id - 1].name);
        fig_print_string(print, "role", fig_inspect_names_role(record->role));
        fig_print_string(print, "dtype", fig_inspect_names_dtype(record->dtype));
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
        fig_print_string(print, "layout", fig_inspect_names_layout(record->layout));
        fig_print_close(print, '}');
    }
    fig_print_close(print, ']');
}

/* ---- Nodes */

static void print_operand(fig_print *print, const fig_inspection *view,
                          const fig_inspect_operand *operand) {
    fig_print_open(print, NULL, '{');
    if (operand->name != NULL) fig_print_string(print, "name", operand->name);
    if (operand->tensor != 0) {
        fig_print_string(print, "tensor", view->tensors[operand->tensor - 1].name);
    } else {
        fig_print_null(print, "tensor");
    }
    fig_print_string(print, "access",
                     operand->access == FIG_INSPECT_READS    ? "read"
                     : operand->access == FIG_INSPECT_WRITES ? "write"
                                                             : "both");
    fig_print_close(print, '}');
}

static void print_call(fig_print *print, const fig_inspect_node *node) {
    fig_print_string(print, "call", node->call);
    fig_print_word64(print, "tag", node->tag);
    fig_print_hex(print, "bytes", node->call_bytes, node->call_byte_count);
}

static void print_split(fig_print *print, const char *key, const fig_inspect_split *split) {
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

static void print_plan_shape(fig_print *print, const char *key, const fig_inspect_plan *plan) {
    fig_print_open(print, key, '{');
    fig_print_integer(print, "exec", plan->exec);
    fig_print_integer(print, "row_limit", plan->row_limit);
    fig_print_integer(print, "lengths_offset", plan->lengths);
    fig_print_integer(print, "positions_offset", plan->positions);
    fig_print_integer(print, "sequences_offset", plan->sequences);
    fig_print_integer(print, "tokens_offset", plan->tokens);
    if (plan->query_limit > 0) {
        fig_print_integer(print, "queries_offset", plan->queries);
        fig_print_integer(print, "query_limit", plan->query_limit);
    }
    fig_print_integer(print, "bytes", plan->bytes);
    fig_print_open(print, "classes", '[');
    for (int32_t i = 0; i < plan->class_count; i++) {
        fig_print_open(print, NULL, '{');
        print_split(print, "split", &plan->splits[i]);
        fig_print_integer(print, "once", plan->once[i]);
        fig_print_integer(print, "prefix_offset", plan->prefix[i]);
        fig_print_integer(print, "starts_offset", plan->starts[i]);
        fig_print_close(print, '}');
    }
    fig_print_close(print, ']');
    fig_print_close(print, '}');
}

static void print_strips(fig_print *print, const char *key, const fig_inspect_strips *strips) {
    fig_print_open(print, key, '[');
    for (int32_t i = 0; i < FIG_INSPECT_CLASS_LIMIT && strips->of[i].workers > 0; i++) {
        const fig_inspect_strip_shape *of = &strips->of[i];
        fig_print_open(print, NULL, '{');
        fig_print_integer(print, "ratio", of->ratio);
        fig_print_integer(print, "kv_heads", of->kv_heads);
        fig_print_integer(print, "head_dim", of->head_dim);
        fig_print_integer(print, "tile_tokens", of->tile_tokens);
        fig_print_integer(print, "window", of->window);
        fig_print_integer(print, "workers", of->workers);
        fig_print_integer(print, "whole", of->whole);
        fig_print_integer(print, "visible", of->visible);
        fig_print_close(print, '}');
    }
    fig_print_close(print, ']');
}

/* Prints a value that the engine fills in when a caller binds tensors. */
static void print_reference(fig_print *print, const fig_inspect_field *field) {
    fig_print_open(print, field->name, '{');
    switch (field->kind) {
    case FIG_INSPECT_ADDRESS: fig_print_string(print, "address", field->word); break;
    case FIG_INSPECT_STRIDE:
        fig_print_string(print, "stride", field->word);
        fig_print_integer(print, "dimension", field->integer);
        break;
    case FIG_INSPECT_EXTENT: fig_print_string(print, "extent", field->word); break;
    case FIG_INSPECT_WORKSPACE:
        fig_print_integer(print, "workspace", field->integer);
        if (field->word != NULL) fig_print_string(print, "address", field->word);
        break;
    default: fig_print_string(print, "engine", field->word); break;
    }
    fig_print_close(print, '}');
}

static void print_field(fig_print *print, const fig_inspect_field *field) {
    switch (field->kind) {
    case FIG_INSPECT_INTEGER: fig_print_integer(print, field->name, field->integer); break;
    case FIG_INSPECT_REAL: fig_print_real(print, field->name, field->real); break;
    case FIG_INSPECT_DTYPE:
    case FIG_INSPECT_ACTIVATION:
        fig_print_string(print, field->name, fig_inspect_value_name(field));
        break;
    case FIG_INSPECT_SCORE: fig_print_string(print, field->name, field->word); break;
    case FIG_INSPECT_NONE:
    case FIG_INSPECT_LATER: fig_print_null(print, field->name); break;
    case FIG_INSPECT_TABLE: {
        const fig_rope_table table = fig_inspect_table(field);
        print_table(print, field->name, &table);
        break;
    }
    case FIG_INSPECT_SPLIT: {
        const fig_inspect_split split = fig_inspect_split_of(field);
        print_split(print, field->name, &split);
        break;
    }
    case FIG_INSPECT_PLAN: {
        const fig_inspect_plan plan = fig_inspect_plan_of(field);
        print_plan_shape(print, field->name, &plan);
        break;
    }
    case FIG_INSPECT_STRIPS: {
        const fig_inspect_strips strips = fig_inspect_strips_of(field);
        print_strips(print, field->name, &strips);
        break;
    }
    default: print_reference(print, field); break;
    }
}

static void print_attributes(fig_print *print, const fig_inspection *view, uint32_t node) {
    fig_inspect_field fields[FIG_INSPECT_FIELD_LIMIT];
    const int32_t count = fig_inspection_node_fields(view, node, fields);
    fig_print_open(print, "attributes", '{');
    for (int32_t i = 0; i < count; i++)
        print_field(print, &fields[i]);
    fig_print_close(print, '}');
}

/* Edges are sorted by (to, from). *edge is the first edge that ends at this node or a later one. */
static void print_node(fig_print *print, const fig_inspection *view, uint32_t n, uint32_t *edge) {
    const fig_inspect_node *node = &view->nodes[n];
    fig_print_open(print, NULL, '{');
    fig_print_string(print, "op", node->operation);
    fig_print_integer(print, "layer", node->layer);
    fig_print_open(print, "operands", '[');
    for (uint32_t i = 0; i < node->operand_count; i++)
        print_operand(print, view, &view->operands[node->operand + i]);
    fig_print_close(print, ']');
    if (node->call != NULL) {
        print_call(print, node);
    } else {
        print_attributes(print, view, n);
    }
    fig_print_open(print, "after", '[');
    for (; *edge < view->node_edge_count && view->node_edges[*edge].to == n; ++*edge)
        fig_print_integer(print, NULL, view->node_edges[*edge].from);
    fig_print_close(print, ']');
    fig_print_close(print, '}');
}

static void print_nodes(fig_print *print, const fig_inspection *view) {
    uint32_t edge = 0;
    fig_print_open(print, "nodes", '[');
    for (uint32_t n = 0; n < view->node_count; n++)
        print_node(print, view, n, &edge);
    fig_print_close(print, ']');
}

static void print_segments(fig_print *print, const fig_inspection *view) {
    fig_print_open(print, "segments", '[');
    for (uint32_t i = 0; i < view->segment_count; i++) {
        const fig_inspect_segment *segment = &view->segments[i];
        fig_print_open(print, NULL, '{');
        fig_print_string(print, "name", segment->name);
        fig_print_integer(print, "node", segment->node);
        fig_print_integer(print, "node_count", segment->node_count);
        fig_print_close(print, '}');
    }
    fig_print_close(print, ']');
}

/* ---- Classes */

static void print_class(fig_print *print, const fig_inspect_summary *summary, int32_t index) {
    const fig_inspection *view = summary->view;
    const fig_inspect_class *own = &summary->view->classes[index];
    fig_print_open(print, NULL, '{');
    fig_print_integer(print, "kv_heads", own->kv_heads);
    fig_print_integer(print, "window", own->window);
    fig_print_integer(print, "row_tokens", own->row_tokens);
    fig_print_integer(print, "q_heads", own->q_heads);
    fig_print_integer(print, "head_dim", own->head_dim);
    fig_print_integer(print, "value_bytes", own->value_bytes);
    fig_print_open(print, "nodes", '[');
    for (uint32_t n = 0; n < view->node_count; n++) {
        if (view->nodes[n].split_class == index) fig_print_integer(print, NULL, n);
    }
    fig_print_close(print, ']');
    fig_print_close(print, '}');
}

/* ---- Buckets */

static void print_bucket_fields(fig_print *print, const fig_inspection *view, uint32_t index,
                                const fig_bucket_info *info) {
    fig_print_integer(print, "number", (int64_t)index + 1);
    fig_print_integer(print, "batch", info->bucket.batch);
    fig_print_integer(print, "kv", info->bucket.kv);
    if (info->query_limit > 0) {
        fig_print_integer(print, "query_limit", info->query_limit);
        fig_print_integer(print, "row_queries", info->row_queries);
        fig_print_string(print, "form", fig_inspect_names_form(info->form));
    }
    fig_print_open(print, "variant", '{');
    fig_print_integer(print, "heads", info->heads);
    fig_print_integer(print, "tile_tokens", info->tile_tokens);
    fig_print_close(print, '}');
    fig_print_integer(print, "workers", info->workers);
    fig_print_integer(print, "launch_count", info->launch_count);
    fig_print_integer(print, "plan_bytes_limit", (int64_t)info->plan_bytes);
    fig_print_integer(print, "workspace_bytes", (int64_t)info->workspace_bytes);
    fig_print_word64(print, "digest", view->digests[index]);
    fig_print_word64(print, "made_digest", view->made_digests[index]);
}

void fig_inspect_json_summary(fig_print *print, const fig_inspect_summary *summary) {
    const fig_inspection *view = summary->view;
    fig_print_open(print, NULL, '{');
    print_version(print);
    fig_print_string(print, "content_id", view->content_id);
    print_spec(print, view->spec);
    print_share(print, view);
    print_traits(print, view->traits);
    print_tuning(print, view->graphs);
    print_notes(print, view->graphs);
    print_images(print, view);
    print_compiled(print, view);
    print_changes(print, summary);
    fig_print_truth(print, "deterministic", view->deterministic);
    fig_print_integer(print, "workspace_bytes", (int64_t)view->workspace_bytes);
    fig_print_integer(print, "plan_bytes_limit", (int64_t)view->plan_bytes_limit);
    print_tensors(print, summary->view);
    print_nodes(print, summary->view);
    print_segments(print, summary->view);
    fig_print_open(print, "classes", '[');
    for (int32_t i = 0; i < summary->view->class_count; i++)
        print_class(print, summary, i);
    fig_print_close(print, ']');
    fig_print_open(print, "buckets", '[');
    for (uint32_t i = 0; i < view->bucket_count; i++) {
        fig_print_open(print, NULL, '{');
        print_bucket_fields(print, view, i, &summary->infos[i]);
        fig_print_close(print, '}');
    }
    fig_print_close(print, ']');
    fig_print_close(print, '}');
}

/* ---- Launches of one bucket */

static void print_triple(fig_print *print, const char *key, const uint32_t triple[3]) {
    fig_print_open(print, key, '[');
    for (int i = 0; i < 3; i++)
        fig_print_integer(print, NULL, triple[i]);
    fig_print_close(print, ']');
}

static void print_family(fig_print *print, const fig_inspect_launch *launch) {
    fig_print_string(print, "family", launch->family);
    fig_print_open(print, "refused", '[');
    for (int32_t i = 0; i < launch->refusal_count; i++) {
        fig_print_open(print, NULL, '{');
        fig_print_string(print, "family", launch->refused[i]);
        fig_print_string(print, "needs", launch->needs[i]);
        fig_print_close(print, '}');
    }
    fig_print_close(print, ']');
}

static void print_kernel_launch(fig_print *print, const fig_inspection *view, uint32_t l) {
    const fig_inspect_launch *launch = &view->launches[l];
    fig_inspect_field fields[FIG_INSPECT_FIELD_LIMIT];
    const int32_t count = fig_inspection_launch_fields(view, l, fields);
    print_triple(print, "grid", launch->grid);
    print_triple(print, "block", launch->block);
    fig_print_integer(print, "shared_bytes", launch->shared_bytes);
    fig_print_integer(print, "left_out", launch->left_out);
    print_family(print, launch);
    fig_print_open(print, "params", '{');
    for (int32_t i = 0; i < count; i++)
        print_field(print, &fields[i]);
    fig_print_close(print, '}');
}

static void print_launch(fig_print *print, const fig_inspection *view, uint32_t l) {
    const fig_inspect_launch *launch = &view->launches[l];
    uint32_t first, count;
    fig_print_open(print, NULL, '{');
    fig_print_string(print, "op", launch->operation);
    if (launch->node_count > 0) {
        fig_print_integer(print, "node", launch->node);
        fig_print_integer(print, "node_count", launch->node_count);
        fig_print_integer(print, "layer", view->nodes[launch->node].layer);
    }
    if (launch->is_call) {
        print_call(print, &view->nodes[launch->node]);
    } else {
        print_kernel_launch(print, view, l);
    }
    fig_inspect_edges(view, l, &first, &count);
    fig_print_open(print, "after", '[');
    for (uint32_t i = first; i < first + count; i++)
        fig_print_integer(print, NULL, view->edges[i].from);
    fig_print_close(print, ']');
    fig_print_close(print, '}');
}

void fig_inspect_json_bucket(fig_print *print, const fig_inspect_bucket *bucket) {
    fig_print_open(print, NULL, '{');
    print_bucket_fields(print, bucket->view, bucket->index, &bucket->info);
    fig_print_open(print, "launches", '[');
    for (uint32_t l = 0; l < bucket->view->launch_count; l++)
        print_launch(print, bucket->view, l);
    fig_print_close(print, ']');
    fig_print_close(print, '}');
}
