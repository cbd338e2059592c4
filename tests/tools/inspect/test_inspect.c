/* test_inspect.c: tests that inspect shows graphs correctly, and that its JSON is complete. */
#include <jansson.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <cmocka.h>

#include "graphs/graphs.h"
#include "tests/support/files/capture.h"
#include "tests/support/fault.h"
#include "tools/figraph/inspect/failure.h"
#include "tools/figraph/inspect/inspect_print.h"
#include "tools/figraph/inspect/layer_fold.h"

typedef struct sink {
    char *text;
    size_t count, capacity;
} sink;

static void take(void *user, const char *bytes, size_t count) {
    sink *s = user;
    if (s->count + count >= s->capacity) {
        s->capacity = 2 * (s->count + count) + 1024;
        s->text = realloc(s->text, s->capacity);
        assert_non_null(s->text);
    }
    memcpy(s->text + s->count, bytes, count);
    s->count += count;
    s->text[s->count] = '\0';
}

static char *show_as(const fig_graphs *graphs, const fig_print_options *options) {
    sink s = {0};
    if (fig_inspect_print(graphs, options, take, &s) != FIG_OK)
        fail_msg("%s", fig_failure_message());
    return s.text;
}

/* Returns the printed text, which the caller frees. */
static char *show(const fig_graphs *graphs, fig_print_format format, int32_t bucket) {
    return show_as(graphs, &(fig_print_options){.format = format, .bucket = bucket});
}

static char *show_wide(const fig_graphs *graphs, int32_t bucket, int32_t columns) {
    return show_as(graphs, &(fig_print_options){.bucket = bucket, .columns = columns});
}

static json_t *show_json(const fig_graphs *graphs, int32_t bucket) {
    json_error_t error;
    char *text = show(graphs, FIG_PRINT_JSON, bucket);
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL) fail_msg("line %d: %s", error.line, error.text);
    free(text);
    return root;
}

static int64_t integer(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value)) fail_msg("%s is no integer", key);
    return json_integer_value(value);
}

static const char *string(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    if (!json_is_string(value)) fail_msg("%s is no string", key);
    return json_string_value(value);
}

/* ---- JSON */

/* Checks that exactly the node's own attributes are shown; a kernel may have fields for more. */
static void check_attributes(const json_t *attributes, const fig_node *node) {
    const fig_kernel *own = &fig_kernel_table[node->op];
    for (const fig_field *f = own->fields; f < own->fields + own->field_count; f++) {
        if (f->kind != FIG_FIELD_ATTRIBUTE) continue;
        assert_int_equal(json_object_get(attributes, f->name) != NULL,
                         (uint32_t)f->item + f->bytes <= node->attribute_bytes);
    }
}

static void the_summary_holds_all_that_the_graphs_do(void **state) {
    (void)state;
    fig_graphs *graphs = fig_capture_mixed();
    const fig_program_view *view = fig_program_view_of(graphs->program);
    fig_graphs_info info = {.size = sizeof info};
    fig_graphs_read_info(graphs, &info);
    json_t *root = show_json(graphs, 0);
    assert_string_equal(string(root, "content_id"), info.content_id);
    const json_t *spec = json_object_get(root, "spec");
    assert_int_equal(integer(spec, "q_heads"), 8);
    assert_int_equal(integer(spec, "kv_limit"), 128);
    assert_string_equal(string(spec, "dtype"), "bf16");
    assert_string_equal(string(json_object_get(root, "traits"), "name"), "host");
    assert_int_equal(integer(root, "workspace_bytes"), graphs->workspace.bytes);
    const json_t *tensors = json_object_get(root, "tensors");
    assert_int_equal(json_array_size(tensors), view->tensor_count);
    for (uint32_t id = 1; id <= view->tensor_count; id++) {
        const json_t *tensor = json_array_get(tensors, id - 1);
        assert_string_equal(string(tensor, "name"), fig_program_view_tensor_name(view, id));
        assert_int_equal(json_array_size(json_object_get(tensor, "dims")),
                         view->tensors[id - 1].rank);
    }
    const json_t *nodes = json_object_get(root, "nodes");
    size_t edges = 0;
    assert_int_equal(json_array_size(nodes), view->node_count);
    for (uint32_t n = 0; n < view->node_count; n++) {
        const json_t *node = json_array_get(nodes, n);
        const json_t *attributes = json_object_get(node, "attributes"); /* a call has none */
        assert_string_equal(string(node, "op"), fig_table_op_name(view->nodes[n].op));
        assert_int_equal(json_array_size(json_object_get(node, "operands")),
                         view->nodes[n].operand_count);
        edges += json_array_size(json_object_get(node, "after"));
        if (attributes != NULL) check_attributes(attributes, &view->nodes[n]);
    }
    assert_int_equal(edges, view->edge_count);
    const json_t *call = json_array_get(nodes, 0);
    assert_string_equal(string(call, "call"), "gemm");
    assert_string_equal(string(call, "tag"), "0xffffffffffffffff");
    assert_string_equal(string(call, "bytes"), "77656967687473");
    assert_int_equal(json_array_size(json_object_get(root, "buckets")), graphs->bucket_count);
    assert_true(json_is_array(json_object_get(root, "segments")));
    assert_int_equal(json_array_size(json_object_get(root, "segments")), 0);
    json_decref(root);
    fig_graphs_destroy(graphs);
}

/* Checks every field in the kernel's table by name, and its value where this test knows it. */
static void check_launch(const json_t *launch, const fig_launch *lowered) {
    assert_string_equal(string(launch, "op"), fig_table_op_name(lowered->op));
    if (lowered->op == FIG_OP_CALL) return;
    const fig_kernel *kernel = &fig_kernel_table[lowered->op];
    const json_t *params = json_object_get(launch, "params");
    assert_int_equal(json_object_size(params), kernel->field_count);
    for (uint32_t i = 0; i < kernel->field_count; i++) {
        const fig_field *field = &kernel->fields[i];
        const json_t *value = json_object_get(params, field->name);
        if (value == NULL) fail_msg("%s lacks %s", kernel->name, field->name);
        if (field->type == FIG_TYPE_ADDRESS && !json_is_object(value) && !json_is_null(value))
            fail_msg("%s.%s is no address", kernel->name, field->name);
    }
    const json_t *grid = json_object_get(launch, "grid");
    for (size_t i = 0; i < 3; i++)
        assert_in_range(json_integer_value(json_array_get(grid, i)), 1, 1 << 20);
    const uint32_t last = fig_kernel_table[lowered->op].family_count - 1u;
    assert_true(json_array_size(json_object_get(launch, "refused")) <= last);
    assert_non_null(string(launch, "family"));
}

static void show_every_launch(fig_graphs *graphs) {
    for (uint32_t b = 0; b < graphs->bucket_count; b++) {
        fig_lowered lowered;
        assert_int_equal(fig_lower_bucket(&graphs->common, &graphs->buckets[b], &lowered), FIG_OK);
        json_t *root = show_json(graphs, (int32_t)b + 1);
        const json_t *launches = json_object_get(root, "launches");
        size_t edges = 0;
        assert_int_equal(integer(root, "number"), b + 1);
        assert_int_equal(integer(root, "batch"), graphs->buckets[b].caps.batch);
        assert_int_equal(json_array_size(launches), lowered.launch_count);
        for (uint32_t l = 0; l < lowered.launch_count; l++) {
            const json_t *launch = json_array_get(launches, l);
            check_launch(launch, &lowered.launches[l]);
            edges += json_array_size(json_object_get(launch, "after"));
        }
        assert_int_equal(edges, lowered.edge_count);
        json_decref(root);
        fig_lower_finish(&lowered);
    }
    fig_graphs_destroy(graphs);
}

static void every_launch_shows_every_param(void **state) {
    (void)state;
    show_every_launch(fig_capture_mixed());
    show_every_launch(fig_capture_breadth());
}

static void params_are_named_by_what_they_stand_for(void **state) {
    (void)state;
    fig_graphs *graphs = fig_capture_mixed();
    json_t *root = show_json(graphs, 1);
    const json_t *launches = json_object_get(root, "launches");
    /* Launch 11, layer 1's attention, follows the fetch, 6 nodes of layer 0 and 4 of layer 1. */
    const json_t *params = json_object_get(json_array_get(launches, 11), "params");
    assert_string_equal(string(json_object_get(params, "q"), "address"), "q.1");
    assert_string_equal(string(json_object_get(params, "k_pages"), "extent"), "k_cache.1");
    const json_t *stride = json_object_get(params, "k_cache_strides.head");
    assert_string_equal(string(stride, "stride"), "k_cache.1");
    assert_int_equal(integer(stride, "dimension"), 2);
    assert_int_equal(integer(json_object_get(params, "partials"), "workspace"),
                     graphs->workspace.partials[0]);
    assert_string_equal(string(json_object_get(params, "plan"), "engine"), "plan");
    assert_string_equal(string(params, "dtype"), "bf16");
    assert_int_equal(integer(json_object_get(params, "split"), "row_limit"), 1);
    assert_true(json_number_value(json_object_get(params, "sm_scale")) == 0.125);
    const json_t *fetch = json_object_get(json_array_get(launches, 0), "params");
    assert_string_equal(string(json_object_get(fetch, "slot_count"), "engine"), "ring_slots");
    json_decref(root);
    fig_graphs_destroy(graphs);
}

/* ---- Text */

static void assert_lines(const char *what, const char *text, size_t columns) {
    size_t number = 1;
    for (const char *line = text; *line != '\0'; number++) {
        const size_t length = strcspn(line, "\n");
        if (length > columns) fail_msg("%s: line %zu has %zu columns", what, number, length);
        if (length > 0 && line[length - 1] == ' ')
            fail_msg("%s: line %zu ends with a blank", what, number);
        if (line[length] != '\n') fail_msg("%s: line %zu has no end", what, number);
        line += length + 1;
    }
}

static void assert_shows(const char *text, const char *part) {
    if (strstr(text, part) == NULL) fail_msg("\"%s\" is not in\n%s", part, text);
}

static void text_keeps_to_its_columns(void **state) {
    (void)state;
    static const char *const names[] = {"tutorial", "llama-3.1-8b", "mixed", "breadth"};
    for (int i = 0; i < 4; i++) {
        fig_graphs *graphs = i == 2 ? fig_capture_mixed() : i == 3 ? fig_capture_breadth() : NULL;
        if (graphs == NULL) graphs = fig_capture_preset(names[i], i == 0 ? 1 : 32, "h200");
        for (int32_t bucket = 0; bucket <= (int32_t)graphs->bucket_count; bucket++) {
            for (int32_t columns = 80; columns <= 200; columns += 60) {
                char *text = show_wide(graphs, bucket, columns);
                assert_lines(names[i], text, (size_t)columns);
                free(text);
            }
        }
        fig_graphs_destroy(graphs);
    }
}

static void the_text_says_what_a_step_has_beyond_the_plainest(void **state) {
    (void)state;
    fig_graphs *graphs = fig_capture_breadth();
    char *text = show(graphs, FIG_PRINT_TEXT, 0);
    assert_shows(text, "2 layers, f16, at most 6 rows of 2 query tokens\n");
    assert_shows(text, "gelu_tanh, width 32\n");
    assert_shows(text, "NeoX, 32 of head_dim, theta 10000\n");
    assert_shows(text, "window 40, soft cap 30, q and k normalised, epsilon 1e-05\n");
    assert_shows(text, "stored      e4m3, hnd, a scale for each kv head\n");
    assert_shows(text, "split       deterministic: ");
    assert_shows(text, "  q.0..1             bound  f16   [batch x 2, 8, 64]\n");
    assert_shows(text, "  k_cache.0..1       bound  e4m3  [pages, 16, 2, 64] hnd\n");
    assert_shows(text, "    plan            lengths, positions\n");
    assert_shows(text, "attention classes: 2\n"
                       "  2 kv heads for 8 q heads of 64, window 40, 2 queries a row: layer 0\n"
                       "  2 kv heads for 8 q heads of 64, all tokens, 2 queries a row: layer 1\n");
    free(text);
    text = show(graphs, FIG_PRINT_TEXT, 1);
    assert_shows(text, "split.window              40 ");
    assert_shows(text, "split.fixed               1 ");
    assert_shows(text, "2 rows, 2 classes, ");
    free(text);
    fig_graphs_destroy(graphs);

    graphs = fig_capture_mixed();
    text = show(graphs, FIG_PRINT_TEXT, 0);
    static const char *const plain[] = {"logits", "stored", "split", "query", "hnd", " x 1"};
    for (int i = 0; i < 6; i++) {
        if (strstr(text, plain[i]) != NULL) fail_msg("\"%s\" is in\n%s", plain[i], text);
    }
    free(text);
    fig_graphs_destroy(graphs);
}

static void json_says_what_a_step_has_beyond_the_plainest(void **state) {
    (void)state;
    fig_graphs *graphs = fig_capture_breadth();
    json_t *root = show_json(graphs, 0);
    const json_t *spec = json_object_get(root, "spec");
    assert_string_equal(string(spec, "kv_dtype"), "e4m3");
    assert_string_equal(string(spec, "activation"), "gelu_tanh");
    assert_string_equal(string(spec, "kv_layout"), "hnd");
    assert_int_equal(integer(spec, "kv_scales"), 1);
    assert_int_equal(integer(spec, "row_tokens"), 2);
    assert_int_equal(integer(spec, "window"), 40);
    assert_int_equal(json_array_size(json_object_get(spec, "window_layers")), 1);
    assert_int_equal(integer(json_object_get(spec, "rope"), "rotary_dim"), 32);
    assert_true(json_is_true(json_object_get(root, "deterministic")));
    const json_t *classes = json_object_get(root, "classes");
    assert_int_equal(json_array_size(classes), 2);
    assert_int_equal(integer(json_array_get(classes, 0), "window"), 40);
    assert_int_equal(json_array_size(json_object_get(json_array_get(classes, 1), "nodes")), 2);
    const json_t *q = json_array_get(json_object_get(root, "tensors"), 6);
    assert_string_equal(string(q, "name"), "q.0");
    assert_int_equal(integer(q, "multiple"), 2);
    assert_string_equal(string(q, "layout"), "nhd");
    json_decref(root);
    root = show_json(graphs, 1);
    const json_t *plan =
        json_object_get(json_array_get(json_object_get(root, "launches"), 1), "params");
    const json_t *shape = json_object_get(plan, "shape");
    assert_int_equal(integer(shape, "row_limit"), 2);
    const json_t *split =
        json_object_get(json_array_get(json_object_get(shape, "classes"), 0), "split");
    assert_int_equal(integer(split, "window"), 40);
    assert_int_equal(integer(split, "fixed"), 1);
    json_decref(root);
    fig_graphs_destroy(graphs);
}

static void json_lists_the_segments(void **state) {
    (void)state;
    fig_graphs *graphs = fig_capture_breadth();
    json_t *root = show_json(graphs, 0);
    const json_t *segments = json_object_get(root, "segments");
    const json_t *last = json_array_get(segments, 3);
    assert_int_equal(json_array_size(segments), 4);
    assert_string_equal(string(json_array_get(segments, 0), "name"), "act.0");
    assert_string_equal(string(last, "name"), "attn.1");
    assert_int_equal(integer(last, "node"), 6);
    assert_int_equal(integer(last, "node_count"), 3);
    json_decref(root);
    fig_graphs_destroy(graphs);
}

/* Makes graphs that contain only calls, for the tutorial's spec with six layers. */
static fig_graphs *capture_calls(const int32_t *layers, const char *const *segments, int count) {
    fig_spec spec = {.size = sizeof spec};
    fig_program *program;
    fig_graphs *graphs;
    assert_int_equal(fig_spec_preset(&spec, "tutorial"), FIG_OK);
    spec.layers = 6;
    assert_int_equal(fig_program_create(&program, &spec), FIG_OK);
    for (int i = 0; i < count; i++) {
        fig_program_layer(program, layers[i]);
        if (strcmp(segments[i], "=") != 0)
            fig_program_segment(program, segments[i][0] != '\0' ? segments[i] : NULL);
        fig_call(program, FIG_OPTIONS(fig_call_op, .call = "work"));
    }
    assert_int_equal(fig_program_finish(program), FIG_OK);
    assert_int_equal(fig_graphs_lower(&graphs, program, NULL), FIG_OK);
    fig_program_destroy(program);
    return graphs;
}

/* A segment is named where it begins and in each layer; nodes after it are "of no segment". */
static void segments_stand_above_their_nodes(void **state) {
    (void)state;
    static const int32_t layers[] = {-1, -1, 0, 0, 0, 1, 2, 2, 3, 3, -1};
    static const char *const segments[] = {"",  "in",  "a.0", "=",   "",   "long",
                                           "=", "b.2", "c.3", "d.3", "out"};
    fig_graphs *graphs = capture_calls(layers, segments, 11);
    char *text = show(graphs, FIG_PRINT_TEXT, 0);
    assert_shows(text, "  of no layer\n    call work\n  segment in\n    call work\n"
                       "  layer 0\n  segment a.0\n    call work\n    call work\n"
                       "  of no segment\n    call work\n"
                       "  layer 1\n  segment long\n    call work\n"
                       "  layer 2\n  segment long\n    call work\n"
                       "  segment b.2\n    call work\n"
                       "  layer 3\n  segment c.3\n    call work\n"
                       "  segment d.3\n    call work\n"
                       "  of no layer\n  segment out\n    call work\n");
    free(text);
    text = show(graphs, FIG_PRINT_TEXT, 1);
    assert_lines("segments", text, 80);
    assert_shows(text, "\nof no segment\n    5  call work ");
    assert_shows(text, "\nlayer 2\nsegment long\n    7  call work ");
    free(text);
    fig_graphs_destroy(graphs);
}

static void the_summary_shows_a_layer_once(void **state) {
    (void)state;
    fig_graphs *graphs = fig_capture_preset("llama-3.1-8b", 32, "h200");
    char *text = show(graphs, FIG_PRINT_TEXT, 0);
    assert_shows(text, "32 layers, bf16, at most 256 rows\n");
    assert_shows(text, "\n  q.0..31          bound  bf16  [batch, 32, 128]\n");
    assert_shows(text, "\n  k_cache.0..31    bound  bf16  [pages, 16, 8, 128]\n");
    assert_shows(text, "\n  layer N = 0..31, 32 times\n  segment act.N\n    gated ");
    assert_shows(text, "\n  segment attn.N\n    decode_attention q.N, k_cache.N, v_cache.N, ");
    assert_shows(text, "llama3 factor 8, low 1, high 4, context 8 192");
    assert_null(strstr(text, "q.7"));
    free(text);
    fig_graphs_destroy(graphs);
}

static void a_bucket_shows_layers_until_they_repeat(void **state) {
    (void)state;
    fig_graphs *graphs = fig_capture_preset("llama-3.1-8b", 32, "h200");
    char *text = show(graphs, FIG_PRINT_TEXT, 30), title[64];
    snprintf(title, sizeof title, "bucket 30 of %u, lowered for h200\n", graphs->bucket_count);
    assert_shows(text, title);
    assert_shows(text, "\n       q_strides.row          stride 0 of q.0\n");
    assert_shows(text, "  decode_attention  left out, since launch 3 does all  after 0\n");
    assert_shows(text, "\n       family        turn\n");
    assert_shows(text, "partials                  workspace+0x");
    /* Layer 1 differs from layer 0, since its attention waits for the workspace. */
    assert_shows(text, "\nlayer 1\nsegment act.1\n");
    assert_shows(text, "after 3, 5\n");
    assert_shows(text, "\nlayers 2..31: the same in launches 7..96\n");
    assert_null(strstr(text, "\nlayer 2\n"));
    free(text);
    fig_graphs_destroy(graphs);
}

static void layers_that_alternate_are_shown_once(void **state) {
    (void)state;
    fig_graphs *graphs = fig_capture_preset("gemma-2-9b", 42, "h200");
    char *text = show(graphs, FIG_PRINT_TEXT, 0);
    assert_shows(text, "  layer N = 0, 2, ..., 40, 21 times\n");
    assert_shows(text, "page_table.window, ");
    assert_shows(text, "  layer N = 1, 3, ..., 41, 21 times\n");
    assert_shows(text, "page_table, k.N");
    assert_shows(text, "window 4 096: layers 0, 2, ..., 40\n");
    assert_shows(text, "all tokens: layers 1, 3, ..., 41\n");
    free(text);
    text = show(graphs, FIG_PRINT_TEXT, 3);
    assert_shows(text, "\nlayer 3\n");
    assert_shows(text, "\nlayers 4..41: the same in launches 13..126, in turn\n");
    assert_null(strstr(text, "\nlayer 4\n"));
    free(text);
    fig_graphs_destroy(graphs);
}

static void layers_with_gaps_between_them_do_not_count_as_alternating(void **state) {
    (void)state;
    static const int32_t layers[] = {0, 2, 3, 5};
    static const char *const calls[] = {"even", "odd", "even", "odd"};
    fig_spec spec = {.size = sizeof spec};
    fig_program *program;
    fig_graphs *graphs;
    assert_int_equal(fig_spec_preset(&spec, "tutorial"), FIG_OK);
    spec.layers = 6;
    assert_int_equal(fig_program_create(&program, &spec), FIG_OK);
    for (int i = 0; i < 4; i++) {
        fig_program_layer(program, layers[i]);
        fig_call(program, FIG_OPTIONS(fig_call_op, .call = calls[i]));
    }
    assert_int_equal(fig_program_finish(program), FIG_OK);
    assert_int_equal(fig_graphs_lower(&graphs, program, NULL), FIG_OK);
    char *text = show(graphs, FIG_PRINT_TEXT, 0);
    assert_shows(text, "  layer 0\n    call even\n  layer 2\n    call odd\n"
                       "  layer 3\n    call even\n  layer 5\n    call odd\n");
    free(text);
    fig_graphs_destroy(graphs);
    fig_program_destroy(program);
}

/* Clears the fields for early reads in params, since they depend on edges, which may differ. */
static void forget_early_reads(const fig_launch *launch, uint8_t *params) {
    for (uint32_t i = 0; launch->op != FIG_OP_CALL && i < fig_kernel_table[launch->op].field_count;
         i++) {
        const fig_field *field = &fig_kernel_table[launch->op].fields[i];
        if (field->kind == FIG_FIELD_EARLY_READS) memset(params + field->offset, 0, field->bytes);
    }
}

/* Layers that inspect folds into one must be lowered alike, except for their early reads. */
static void layers_that_fold_are_lowered_alike(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        fig_graphs *graphs =
            i == 0 ? fig_capture_preset("llama-3.1-8b", 3, "h200") : fig_capture_mixed();
        const fig_inspection *view;
        assert_int_equal(fig_inspection_open(&view, graphs, 0), FIG_OK);
        const uint32_t count = fig_layer_fold_block(view, 0);
        assert_int_equal(fig_layer_fold_repeats(view, 0, count), 1);
        fig_inspection_close(view);
        for (uint32_t b = 0; b < graphs->bucket_count; b++) {
            fig_lowered lowered;
            assert_int_equal(fig_lower_bucket(&graphs->common, &graphs->buckets[b], &lowered),
                             FIG_OK);
            const uint32_t apart = lowered.node_launches[count].first - 1;
            for (uint32_t n = 1; n <= apart; n++) {
                const fig_launch *x = &lowered.launches[n], *y = &lowered.launches[n + apart];
                assert_int_equal(x->params_bytes, y->params_bytes);
                assert_int_equal(x->reloc_count, y->reloc_count);
                forget_early_reads(x, lowered.params + x->params);
                forget_early_reads(y, lowered.params + y->params);
                if (x->params_bytes > 0)
                    assert_memory_equal(lowered.params + x->params, lowered.params + y->params,
                                        x->params_bytes);
            }
            fig_lower_finish(&lowered);
        }
        fig_graphs_destroy(graphs);
    }
}

static void calls_show_their_name_tag_and_tensors(void **state) {
    (void)state;
    fig_graphs *graphs = fig_capture_mixed();
    char *text = show(graphs, FIG_PRINT_TEXT, 0);
    assert_shows(text, "\n    call gemm       x -> up.N\n");
    assert_shows(text, "\n  of no layer\n    call sample     x\n");
    free(text);
    text = show(graphs, FIG_PRINT_TEXT, 1);
    assert_shows(text, "call gemm         tag 0xffffffffffffffff  7 bytes  after 0\n"
                       "       x -> up.0\n");
    free(text);
    fig_graphs_destroy(graphs);
}

static void changes_since_the_file_was_made_are_marked(void **state) {
    (void)state;
    fig_graphs *graphs = fig_capture_mixed();
    char *text = show(graphs, FIG_PRINT_TEXT, 0);
    assert_null(strstr(text, "relowered"));
    assert_null(strstr(text, "changed"));
    assert_null(strchr(text, '*'));
    free(text);
    graphs->made_digests[1]++;
    graphs->changed_kernels = 1u << FIG_OP_ROPE | 1u << FIG_OP_FETCH;
    text = show(graphs, FIG_PRINT_TEXT, 0);
    assert_shows(text, "relowered   1 of 4 buckets, marked *");
    assert_shows(text, "changed     fetch rope since the file was made");
    assert_shows(text, "\n*     1 to 2     1              128  ");
    free(text);
    json_t *root = show_json(graphs, 0);
    assert_int_equal(integer(root, "relowered_count"), 1);
    assert_int_equal(json_array_size(json_object_get(root, "changed_kernels")), 2);
    json_decref(root);
    fig_graphs_destroy(graphs);
}

/* ---- Faults */

static void wrong_options_are_refused_by_name(void **state) {
    (void)state;
    fig_graphs *graphs = fig_capture_mixed();
    sink s = {0};
    fig_print_options options = {.bucket = 5};
    assert_int_equal(fig_inspect_print(graphs, &options, take, &s), FIG_INVALID);
    assert_string_equal(fig_failure_message(), "print: bucket is 5, there are 4");
    options.bucket = -1;
    assert_int_equal(fig_inspect_print(graphs, &options, take, &s), FIG_INVALID);
    options.bucket = 0;
    options.format = FIG_PRINT_DOT + 1;
    assert_int_equal(fig_inspect_print(graphs, &options, take, &s), FIG_INVALID);
    assert_string_equal(fig_failure_message(), "print: format is 5, limits 0 to 4");
    options.format = FIG_PRINT_TEXT;
    options.columns = 39;
    assert_int_equal(fig_inspect_print(graphs, &options, take, &s), FIG_INVALID);
    assert_string_equal(fig_failure_message(), "print: columns is 39, it must be 0 or 40 to 1000");
    assert_int_equal(fig_inspect_print(NULL, NULL, take, &s), FIG_INVALID);
    assert_int_equal(fig_inspect_print(graphs, NULL, NULL, &s), FIG_INVALID);
    assert_int_equal(s.count, 0);
    assert_int_equal(fig_inspect_print(graphs, NULL, take, &s), FIG_OK);
    free(s.text);
    fig_graphs_destroy(graphs);
}

static void count_bytes(void *user, const char *bytes, size_t count) {
    (void)bytes;
    *(size_t *)user += count;
}

static void a_failed_allocation_prints_nothing(void **state) {
    (void)state;
    fig_graphs *graphs = fig_capture_mixed();
    for (int32_t bucket = 0; bucket < 2; bucket++) {
        for (int64_t n = 1;; n++) {
            size_t printed = 0;
            const fig_print_options options = {.bucket = bucket};
            fig_fault_arm(n);
            const fig_status status = fig_inspect_print(graphs, &options, count_bytes, &printed);
            const int64_t seen = fig_fault_disarm();
            if (seen < n) {
                assert_int_equal(status, FIG_OK);
                assert_true(n > 2);
                break;
            }
            assert_int_equal(status, FIG_NOMEM);
            assert_int_equal(printed, 0);
        }
    }
    fig_graphs_destroy(graphs);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_summary_holds_all_that_the_graphs_do),
        cmocka_unit_test(every_launch_shows_every_param),
        cmocka_unit_test(params_are_named_by_what_they_stand_for),
        cmocka_unit_test(text_keeps_to_its_columns),
        cmocka_unit_test(the_text_says_what_a_step_has_beyond_the_plainest),
        cmocka_unit_test(json_says_what_a_step_has_beyond_the_plainest),
        cmocka_unit_test(json_lists_the_segments),
        cmocka_unit_test(segments_stand_above_their_nodes),
        cmocka_unit_test(the_summary_shows_a_layer_once),
        cmocka_unit_test(a_bucket_shows_layers_until_they_repeat),
        cmocka_unit_test(layers_that_alternate_are_shown_once),
        cmocka_unit_test(layers_with_gaps_between_them_do_not_count_as_alternating),
        cmocka_unit_test(layers_that_fold_are_lowered_alike),
        cmocka_unit_test(calls_show_their_name_tag_and_tensors),
        cmocka_unit_test(changes_since_the_file_was_made_are_marked),
        cmocka_unit_test(wrong_options_are_refused_by_name),
        cmocka_unit_test(a_failed_allocation_prints_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
