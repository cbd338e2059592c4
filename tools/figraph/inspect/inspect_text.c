/* inspect_text.c: prints graphs as text for people.
 *
 * Layers with equal content are shown once: in a program as layer N, in a bucket as the first such
 * layer. Thousands in counts are separated; params and dims are printed plainly, as a kernel gets
 * them. Invariant: lines stay within the requested columns unless a single word is longer. */
#include "tools/figraph/inspect/inspect_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tools/figraph/inspect/inspect_buckets.h"
#include "tools/figraph/inspect/inspect_classes.h"
#include <figraph_archive.h>
#include <figraph_tune.h>

enum {
    INDENT = 2,
    LABEL = 14,       /* the column where the value after a label begins */
    OPERATION = 18,   /* columns of an operation's name */
    NOTE_LIMIT = 4096 /* bytes of a note */
};

/* Prints a label at the left; the caller prints the rest of the line. */
static void begin_row(fig_print *print, const char *label) {
    fig_print_end_line(print);
    fig_print_text(print, "  %-*s", LABEL - INDENT, label);
}

/* ---- Spec */

static void print_plain(fig_print *print, const fig_spec *spec) {
    int32_t plain = 0;
    for (int32_t layer = 0; layer < spec->layers; layer++)
        plain += !fig_inspect_layer_turns(spec, layer);
    if (plain > 0)
        fig_print_words(print, LABEL, ", none in %" PRId32 " of %" PRId32 " layers", plain,
                        spec->layers);
}

/* Prints the frequencies that the RoPE terms give. */
static void print_terms(fig_print *print, const fig_rope_spec *rope) {
    char text[FIG_PRINT_NUMBER];
    fig_print_words(print, LABEL, ", theta %s", fig_print_float(text, rope->theta));
    if (rope->scale != 1.0f)
        fig_print_words(print, LABEL, ", scale %s", fig_print_float(text, rope->scale));
    if (rope->llama3_factor <= 0.0f) return;
    fig_print_words(print, LABEL, ", llama3 factor %s", fig_print_float(text, rope->llama3_factor));
    fig_print_words(print, LABEL, ", low %s", fig_print_float(text, rope->llama3_low));
    fig_print_words(print, LABEL, ", high %s", fig_print_float(text, rope->llama3_high));
    fig_print_words(print, LABEL, ", context %s",
                    fig_print_count(text, (uint64_t)rope->llama3_context));
}

static void print_turns(fig_print *print, const fig_spec *spec, const fig_rope_spec *rope,
                        const fig_rope_table *table) {
    char text[FIG_PRINT_NUMBER];
    fig_print_text(print, "%s", rope->interleaved ? "interleaved" : "NeoX");
    if (rope->rotary_dim != spec->head_dim)
        fig_print_words(print, LABEL, ", %" PRId32 " of head_dim", rope->rotary_dim);
    if (!fig_inspect_has_table(table)) {
        print_terms(print, rope);
        return;
    }
    const int32_t last = rope->rotary_dim / 2 - 1;
    fig_print_words(print, LABEL, ", frequencies %s",
                    fig_print_float(text, (float)table->frequencies[0]));
    fig_print_words(print, LABEL, " to %s", fig_print_float(text, (float)table->frequencies[last]));
    if (table->factor != 1)
        fig_print_words(print, LABEL, ", times %s", fig_print_float(text, (float)table->factor));
}

/* If layers with the window have another RoPE, they get a line of their own. */
static void print_rope(fig_print *print, const fig_spec *spec) {
    begin_row(print, "rope");
    print_turns(print, spec, &spec->rope, &spec->rope_table);
    print_plain(print, spec);
    if (spec->window_rope.theta == 0) return;
    begin_row(print, "in windows");
    print_turns(print, spec, &spec->window_rope, &spec->window_table);
}

/* Prints parts of a standard step that are optional and mostly absent. */
static void print_logits(fig_print *print, const fig_spec *spec) {
    char text[FIG_PRINT_NUMBER];
    if (spec->window == 0 && spec->soft_cap == 0.0f && spec->qk_norm_epsilon == 0.0f &&
        spec->sinks == 0)
        return;
    begin_row(print, "logits");
    const char *before = "";
    if (spec->window > 0) {
        fig_print_text(print, "window %s", fig_print_count(text, (uint64_t)spec->window));
        before = ", ";
    }
    if (spec->soft_cap > 0.0f) {
        fig_print_words(print, LABEL, "%ssoft cap %s", before,
                        fig_print_float(text, spec->soft_cap));
        before = ", ";
    }
    if (spec->qk_norm_epsilon > 0.0f) {
        fig_print_words(print, LABEL, "%sq and k normalised, epsilon %s", before,
                        fig_print_float(text, spec->qk_norm_epsilon));
        before = ", ";
    }
    if (spec->sinks) fig_print_words(print, LABEL, "%ssinks", before);
}

static void print_cache(fig_print *print, const fig_spec *spec) {
    char text[FIG_PRINT_NUMBER];
    begin_row(print, "cache");
    if (spec->page_size > 0)
        fig_print_text(print, "pages of %" PRId32 " tokens, ", spec->page_size);
    if (spec->page_size == 0) fig_print_text(print, "dense, ");
    fig_print_words(print, LABEL, "%s sequence%s of at most ",
                    fig_print_count(text, (uint64_t)spec->sequence_limit),
                    spec->sequence_limit == 1 ? "" : "s");
    fig_print_words(print, LABEL, "%s tokens", fig_print_count(text, (uint64_t)spec->kv_limit));
    if (spec->kv_dtype == spec->dtype && spec->kv_layout == FIG_NHD) return;
    begin_row(print, "stored");
    fig_print_text(print, "%s, %s", fig_inspect_names_dtype(spec->kv_dtype),
                   fig_inspect_names_layout(spec->kv_layout));
    if (spec->kv_dtype != spec->dtype)
        fig_print_text(print, ", a scale for each %s", spec->kv_scales ? "kv head" : "tensor");
}

static void print_heads(fig_print *print, const fig_spec *spec) {
    char text[FIG_PRINT_NUMBER];
    begin_row(print, "attention");
    if (spec->q_heads == 0) {
        fig_print_text(print, "none, the spec has no heads");
        return;
    }
    if (spec->latent_dim > 0) {
        fig_print_text(print, "%" PRId32 " q heads over a latent of %" PRId32 " + %" PRId32,
                       spec->q_heads, spec->latent_dim, spec->head_dim - spec->latent_dim);
    } else {
        fig_print_text(print, "%" PRId32 " q heads, %" PRId32 " kv heads, head_dim %" PRId32,
                       spec->q_heads, spec->kv_heads, spec->head_dim);
    }
    fig_print_text(print, ", sm_scale %s", fig_print_float(text, spec->sm_scale));
}

static void print_spec(fig_print *print, const fig_spec *spec) {
    char text[FIG_PRINT_NUMBER];
    begin_row(print, "step");
    fig_print_text(print, "%" PRId32 " layer%s, %s, at most %" PRId32 " row%s", spec->layers,
                   spec->layers == 1 ? "" : "s", fig_inspect_names_dtype(spec->dtype),
                   spec->batch_limit, spec->batch_limit == 1 ? "" : "s");
    if (spec->row_tokens > 1)
        fig_print_text(print, " of %" PRId32 " query tokens", spec->row_tokens);
    if (spec->query_limit > 0)
        fig_print_text(print, ", packed: at most %" PRId64 " of all rows", spec->query_limit);
    print_heads(print, spec);
    begin_row(print, "activation");
    if (spec->ffn_width > 0)
        fig_print_text(print, "%s, width %s", fig_inspect_names_activation(spec->activation),
                       fig_print_count(text, (uint64_t)spec->ffn_width));
    if (spec->ffn_width > 0 && spec->ffn_rows > 1)
        fig_print_text(print, ", %" PRId32 " rows a token", spec->ffn_rows);
    if (spec->dense_layers > 0)
        fig_print_text(print, "; %" PRId32 " dense layer%s of width %s", spec->dense_layers,
                       spec->dense_layers == 1 ? "" : "s",
                       fig_print_count(text, (uint64_t)spec->dense_width));
    if (spec->ffn_width == 0) fig_print_text(print, "none");
    print_rope(print, spec);
    print_logits(print, spec);
    print_cache(print, spec);
}

/* For one rank's share: prints the model that all ranks have together. */
static void print_share(fig_print *print, const fig_inspection *view) {
    char text[FIG_PRINT_NUMBER];
    if (view->ranks == 1) return;
    begin_row(print, "share");
    fig_print_words(print, LABEL, "of one of %" PRId32 " ranks; the model has", view->ranks);
    fig_print_words(print, LABEL, " %" PRId32 " q heads, %" PRId32 " kv heads,",
                    view->model->q_heads, view->model->kv_heads);
    fig_print_words(print, LABEL, " width %s",
                    fig_print_count(text, (uint64_t)view->model->ffn_width));
}

/* The host has no SMs. Its traits instead give the number of blocks that run at once. */
static void print_machine(fig_print *print, const fig_traits *traits) {
    char text[FIG_PRINT_NUMBER];
    begin_row(print, "machine");
    if (traits->compute_capability == 0) {
        fig_print_words(print, LABEL, "%s: steps are cut for %" PRId32 " blocks at once",
                        traits->name, traits->sm_count);
        return;
    }
    fig_print_words(print, LABEL,
                    "%s: compute capability %" PRId32 ".%" PRId32 ", %" PRId32 " SMs,",
                    traits->name, traits->compute_capability / 10, traits->compute_capability % 10,
                    traits->sm_count);
    fig_print_words(print, LABEL, " %s shared bytes",
                    fig_print_count(text, (uint64_t)traits->shared_bytes));
}

/* Prints the costs that the file contains. */
static void print_tuning(fig_print *print, const fig_graphs *graphs) {
    fig_tune_info info = {.size = sizeof info};
    fig_graphs_tune_info(graphs, &info);
    if (info.used + info.foreign + info.stale == 0) return;
    begin_row(print, "tuned");
    fig_print_words(print, LABEL, "costs of variants measured for this file: %" PRId32, info.used);
    if (info.foreign > 0)
        fig_print_words(print, LABEL, "; of another machine, not used: %" PRId32, info.foreign);
    if (info.stale > 0)
        fig_print_words(print, LABEL, "; of another version, not used: %" PRId32, info.stale);
}

/* The words of a note wrap like all other text. */
static void print_note(fig_print *print, const fig_note *note) {
    char word[NOTE_LIMIT + 2] = "";
    begin_row(print, "note");
    fig_print_raw(print, note->key);
    fig_print_raw(print, ":");
    for (const char *at = note->value; *at != '\0';) {
        const size_t bytes = strcspn(at, " ");
        snprintf(word, sizeof word, " %.*s", (int)bytes, at);
        fig_print_word(print, LABEL, word);
        at += bytes + (at[bytes] == ' ');
    }
}

static void print_carried(fig_print *print, const fig_inspection *view) {
    fig_image_info image = {.size = sizeof image};
    fig_note note = {.size = sizeof note};
    fig_compiled_info score = {.size = sizeof score};
    int32_t count = 0, own = 0, scores = 0;
    for (int32_t i = 0; fig_graphs_note(view->graphs, i, &note) == FIG_OK; i++)
        print_note(print, &note);
    while (fig_graphs_compiled(view->graphs, scores, &score) == FIG_OK)
        scores++;
    if (scores > 0) begin_row(print, "compiled");
    if (scores > 0) fig_print_words(print, LABEL, "scores: the file holds %" PRId32, scores);
    for (; fig_graphs_image(view->graphs, count, &image) == FIG_OK; count++)
        own += image.is_own;
    if (count == 0) return;
    begin_row(print, "images");
    fig_print_words(print, LABEL,
                    "of kernels: %" PRId32 " recorded, %" PRId32 " of them this library's own%s",
                    count, own, view->embeds_images ? "; the file holds them" : "");
}

static void print_made_for(fig_print *print, const fig_inspect_summary *summary) {
    const fig_inspection *view = summary->view;
    char workspace[FIG_PRINT_NUMBER], plan[FIG_PRINT_NUMBER];
    print_share(print, view);
    print_machine(print, view->traits);
    if (view->deterministic) {
        begin_row(print, "split");
        fig_print_words(print, LABEL, "deterministic: a row's bits depend on its own length alone");
    }
    begin_row(print, "memory");
    fig_print_text(print, "workspace %s, plan %s at most",
                   fig_print_bytes(workspace, view->workspace_bytes),
                   fig_print_bytes(plan, view->plan_bytes_limit));
    print_tuning(print, view->graphs);
    print_carried(print, view);
    if (summary->relowered_count > 0) {
        begin_row(print, "relowered");
        fig_print_words(print, LABEL,
                        "%" PRIu32 " of %" PRIu32 " buckets, marked *: the file's maker "
                        "lowered them otherwise",
                        summary->relowered_count, view->bucket_count);
    }
    if (view->changed_kernel_count == 0) return;
    begin_row(print, "changed");
    for (uint32_t i = 0; i < view->changed_kernel_count; i++)
        fig_print_words(print, LABEL, "%s%s", i > 0 ? " " : "", view->changed_kernels[i]);
    fig_print_words(print, LABEL, " since the file was made");
}

/* ---- Tensors */

static void print_group(fig_print *print, const fig_inspection *view,
                        const fig_layer_fold_tensors *group, int width) {
    const fig_inspect_tensor *record = &view->tensors[group->first - 1];
    const char *name = view->tensors[group->first - 1].name;
    const char *symbol = fig_inspect_symbol(record);
    char text[FIG_INSPECT_NAME_LIMIT + FIG_PRINT_NUMBER];
    snprintf(text, sizeof text, "%s", name);
    if (group->count > 1)
        snprintf(text, sizeof text, "%s..%" PRId64, name,
                 fig_layer_fold_split(name).number + (int64_t)group->count - 1);
    fig_print_text(print, "  %-*s  %-5s  %-4s  [", width, text,
                   fig_inspect_names_role(record->role), fig_inspect_names_dtype(record->dtype));
    for (int i = 0; i < record->rank; i++) {
        if (i > 0) fig_print_text(print, ", ");
        if (i == 0 && symbol != NULL) {
            fig_print_text(print, "%s", symbol);
            if (record->dims[0] > 1) fig_print_text(print, " x %" PRId64, record->dims[0]);
        } else {
            fig_print_text(print, "%" PRId64, record->dims[i]);
        }
    }
    fig_print_text(print, "]%s\n", record->layout == FIG_HND ? " hnd" : "");
}

static void print_tensors(fig_print *print, const fig_inspect_summary *summary) {
    const fig_inspection *view = summary->view;
    char count[FIG_PRINT_NUMBER];
    int width = LABEL - INDENT;
    for (uint32_t i = 0; i < summary->group_count; i++) {
        const fig_layer_fold_tensors *group = &summary->groups[i];
        int length = (int)strlen(view->tensors[group->first - 1].name);
        if (group->count > 1) length += 6; /* "..9999" */
        if (length > width) width = length;
    }
    fig_print_text(print, "\ntensors: %s\n", fig_print_count(count, view->tensor_count));
    for (uint32_t i = 0; i < summary->group_count; i++)
        print_group(print, view, &summary->groups[i], width);
}

/* ---- Nodes */

typedef struct node_words {
    const fig_inspection *view;
    uint32_t node;
    int folded; /* 1: print N in place of the number of the node's own layer */
    uint32_t indent;
} node_words;

/* Prints the name of one of the node's tensors or segments, as one word. */
static void print_name(fig_print *print, const node_words *words, const char *before,
                       const char *name) {
    const fig_layer_fold_name split = fig_layer_fold_split(name);
    char text[FIG_INSPECT_NAME_LIMIT + FIG_PRINT_NUMBER];
    if (words->folded && split.number != FIG_FOLD_NONE &&
        split.number == words->view->nodes[words->node].layer) {
        snprintf(text, sizeof text, "%s%.*s.N", before, (int)split.stem_bytes, name);
    } else {
        snprintf(text, sizeof text, "%s%s", before, name);
    }
    fig_print_word(print, words->indent, text);
}

/* Prints the operands that a node reads or writes, such as "q.N, k.N". */
static void print_operands(fig_print *print, const node_words *words, uint32_t access) {
    const fig_inspection *view = words->view;
    const fig_inspect_node *node = &view->nodes[words->node];
    const char *before = access == FIG_INSPECT_WRITES ? " -> " : "";
    for (uint32_t i = 0; i < node->operand_count; i++) {
        const uint32_t tensor = view->operands[node->operand + i].tensor;
        if (tensor == 0 || !(view->operands[node->operand + i].access & access)) continue;
        print_name(print, words, before, view->tensors[tensor - 1].name);
        before = ", ";
    }
}

/* Prints the score of a node that has one. */
static void print_score(fig_print *print, const node_words *words) {
    fig_inspect_field fields[FIG_INSPECT_FIELD_LIMIT];
    const int32_t count = fig_inspection_node_fields(words->view, words->node, fields);
    for (int32_t i = 0; i < count; i++)
        if (fields[i].kind == FIG_INSPECT_SCORE)
            fig_print_text(print, "      score %s\n", fields[i].word);
}

static void print_node(fig_print *print, const node_words *words) {
    char name[FIG_INSPECT_OPERATION_BYTES];
    fig_inspect_node_operation(&words->view->nodes[words->node], name);
    const int length = (int)strlen(name), column = OPERATION - INDENT;
    const int pad = length < column ? column - length : 1;
    fig_print_text(print, "    %s", name);
    if (words->view->nodes[words->node].operand_count > 0) fig_print_text(print, "%*s", pad, "");
    print_operands(print, words, FIG_INSPECT_READS);
    print_operands(print, words, FIG_INSPECT_WRITES);
    fig_print_end_line(print);
    print_score(print, words);
}

static void print_layer(fig_print *print, const fig_inspect_stretch *s, int layer) {
    const uint32_t first = (uint32_t)layer, last = first + (s->times - 1) * s->period;
    if (layer < 0) {
        fig_print_text(print, "  of no layer\n");
    } else if (s->times == 1) {
        fig_print_text(print, "  layer %d\n", layer);
    } else if (s->period == 1) {
        fig_print_text(print, "  layer N = %d..%" PRIu32 ", %" PRIu32 " times\n", layer, last,
                       s->times);
    } else if (s->times == 2) {
        fig_print_text(print, "  layer N = %d, %" PRIu32 "\n", layer, last);
    } else {
        fig_print_text(print, "  layer N = %d, %" PRIu32 ", ..., %" PRIu32 ", %" PRIu32 " times\n",
                       layer, first + s->period, last, s->times);
    }
}

/* Prints a line before the first node of a segment or a layer, and after a segment. */
static void print_segment(fig_print *print, const node_words *words, int in_layer) {
    const fig_inspection *view = words->view;
    const uint32_t n = words->node;
    const fig_inspect_segment *segment = fig_inspect_segment_of(view, n);
    const fig_inspect_segment *before = in_layer ? fig_inspect_segment_of(view, n - 1) : NULL;
    if (segment == before) return;
    if (segment == NULL) fig_print_word(print, words->indent, "of no segment");
    if (segment != NULL) print_name(print, words, "segment ", segment->name);
    fig_print_end_line(print);
}

static void print_program(fig_print *print, const fig_inspection *view) {
    char count[FIG_PRINT_NUMBER];
    fig_print_text(print, "\nnodes: %s\n", fig_print_count(count, view->node_count));
    for (uint32_t n = 0; n < view->node_count;) {
        const fig_inspect_stretch s = fig_inspect_stretch_at(view, NULL, n);
        for (uint32_t i = n; i < n + s.count; i++) {
            const int in_layer = i > n && view->nodes[i].layer == view->nodes[i - 1].layer;
            if (!in_layer) print_layer(print, &s, view->nodes[i].layer);
            print_segment(print, &(node_words){view, i, s.times > 1, INDENT}, in_layer);
            print_node(print, &(node_words){view, i, s.times > 1, INDENT + OPERATION});
        }
        n += s.count * s.times;
    }
}

void fig_inspect_text_summary(fig_print *print, const fig_inspect_summary *summary) {
    fig_print_text(print, "graphs %s", summary->view->content_id);
    print_spec(print, summary->view->spec);
    print_made_for(print, summary);
    fig_print_end_line(print);
    print_tensors(print, summary);
    print_program(print, summary->view);
    fig_inspect_classes_print(print, summary);
    fig_inspect_buckets_print(print, summary);
}

/* ---- Launches of one bucket */

enum { FAMILY = 12 };

static void print_triple(fig_print *print, const char *label, const uint32_t triple[3]) {
    fig_print_text(print, "  %s %" PRIu32, label, triple[0]);
    if (triple[1] > 1 || triple[2] > 1) fig_print_text(print, " x %" PRIu32, triple[1]);
    if (triple[2] > 1) fig_print_text(print, " x %" PRIu32, triple[2]);
}

static void print_after(fig_print *print, const fig_inspection *view, uint32_t l) {
    uint32_t first, count;
    fig_inspect_edges(view, l, &first, &count);
    for (uint32_t i = 0; i < count; i++) {
        char word[FIG_PRINT_NUMBER];
        snprintf(word, sizeof word, "%s%" PRIu32, i == 0 ? "  after " : ", ",
                 view->edges[first + i].from);
        fig_print_word(print, LABEL, word);
    }
    fig_print_end_line(print);
}

/* Prints each number in its own cell, because one line of all numbers would be too long. */
static void print_split(fig_print *print, uint32_t columns, const fig_inspect_field *field) {
    fig_inspect_member members[FIG_INSPECT_SPLIT_MEMBERS];
    fig_inspect_split_members(field, members);
    for (int i = 0; i < FIG_INSPECT_SPLIT_MEMBERS; i++) {
        char full_name[FIG_INSPECT_VALUE_BYTES], value[FIG_PRINT_NUMBER];
        snprintf(full_name, sizeof full_name, "%s.%s", field->name, members[i].name);
        snprintf(value, sizeof value, "%" PRId32, members[i].value);
        fig_print_cell(print, columns, full_name, value);
    }
}

static void print_params(fig_print *print, const fig_inspection *view, uint32_t l) {
    fig_inspect_field fields[FIG_INSPECT_FIELD_LIMIT];
    const int32_t count = fig_inspection_launch_fields(view, l, fields);
    uint32_t columns = 0;
    for (int32_t i = 0; i < count; i++) {
        const uint32_t length = (uint32_t)strlen(fields[i].name);
        if (length > columns) columns = length;
    }
    for (int32_t i = 0; i < count; i++) {
        char text[FIG_INSPECT_VALUE_BYTES];
        if (fields[i].is_reserved) continue;
        if (fields[i].kind == FIG_INSPECT_SPLIT) {
            print_split(print, columns, &fields[i]);
            continue;
        }
        if (fields[i].kind == FIG_INSPECT_SCORE) { /* it may be longer than text */
            fig_print_cell(print, columns, fields[i].name, fields[i].word);
            continue;
        }
        fig_inspect_describe(&fields[i], text);
        fig_print_cell(print, columns, fields[i].name, text);
    }
    fig_print_end_line(print);
}

/* Prints the family that serves, and for each family before it the condition that is not met.
 * Prints nothing for an operation with one family. */
static void print_family(fig_print *print, const fig_inspect_launch *launch) {
    if (launch->family_count < 2) return;
    fig_print_cell(print, FAMILY, "family", launch->family);
    for (int32_t i = 0; i < launch->refusal_count; i++) {
        char text[FIG_INSPECT_VALUE_BYTES];
        snprintf(text, sizeof text, "needs %s", launch->needs[i]);
        fig_print_cell(print, FAMILY, launch->refused[i], text);
    }
    fig_print_end_line(print);
}

static void print_call(fig_print *print, const fig_inspection *view, uint32_t l) {
    const uint32_t n = view->launches[l].node;
    const fig_inspect_node *node = &view->nodes[n];
    const node_words words = {view, n, 0, FIG_PRINT_INDENT};
    fig_print_text(print, "  tag 0x%" PRIx64 "  %" PRIu32 " bytes", node->tag,
                   node->call_byte_count);
    print_after(print, view, l);
    print_operands(print, &words, FIG_INSPECT_READS);
    print_operands(print, &words, FIG_INSPECT_WRITES);
    fig_print_end_line(print);
}

static void print_launch(fig_print *print, const fig_inspect_bucket *bucket, uint32_t l) {
    const fig_inspection *view = bucket->view;
    const fig_inspect_launch *launch = &view->launches[l];
    char name[FIG_INSPECT_OPERATION_BYTES];
    fig_inspect_operation(bucket, launch, name);
    fig_print_text(print, "%5" PRIu32 "  %-*s", l, OPERATION - INDENT, name);
    if (launch->is_call) {
        print_call(print, view, l);
        return;
    }
    if (launch->left_out == 2) {
        fig_print_raw(print, "  left out, since no step has work for it");
    } else if (launch->left_out) {
        fig_print_text(print, "  left out, since launch %" PRIu32 " does all", l + 1);
    } else {
        print_triple(print, "grid", launch->grid);
        print_triple(print, "block", launch->block);
        fig_print_text(print, "  shared %" PRIu32, launch->shared_bytes);
    }
    print_after(print, view, l);
    print_family(print, launch);
    print_params(print, view, l);
}

/* A launch that serves several nodes is shown with the first of them. */
static void print_node_launches(fig_print *print, const fig_inspect_bucket *bucket, uint32_t node) {
    const fig_inspect_node *of = &bucket->view->nodes[node];
    for (uint32_t l = of->launch; l < of->launch + of->launch_count; l++)
        if (bucket->view->launches[l].node == node) print_launch(print, bucket, l);
}

/* Prints which layers repeat the `count` nodes from n on; they end before node `end`. */
static void print_repeats(fig_print *print, const fig_inspect_bucket *bucket,
                          const fig_inspect_stretch *s) {
    const uint32_t first = s->node + s->count, end = s->node + s->count * s->times;
    const fig_inspect_node *nodes = bucket->view->nodes;
    const uint32_t layers[2] = {(uint32_t)nodes[first - 1].layer + 1,
                                (uint32_t)nodes[end - 1].layer};
    const uint32_t launches[2] = {nodes[first].launch,
                                  nodes[end - 1].launch + nodes[end - 1].launch_count - 1};
    char text[FIG_PRINT_RANGE];
    fig_print_raw(print, "\n");
    fig_print_raw(print, fig_print_range(text, "layer", layers, ".."));
    fig_print_raw(print, ": the same in ");
    fig_print_raw(print, fig_print_range(text, "launch", launches, ".."));
    fig_print_raw(print, s->period > 1 ? ", in turn\n" : "\n");
}

void fig_inspect_text_bucket(fig_print *print, const fig_inspect_bucket *bucket) {
    const fig_inspection *view = bucket->view;
    const fig_bucket_info *info = &bucket->info;
    char plan[FIG_PRINT_NUMBER], workspace[FIG_PRINT_NUMBER], heads[FIG_INSPECT_HEADS_BYTES];
    fig_print_text(print, "bucket %" PRIu32 " of %" PRIu32 ", lowered for %s\n", bucket->index + 1,
                   bucket->view->bucket_count, bucket->view->traits->name);
    fig_print_text(print, "  serves      batch %" PRId32 ", kv %s: ", info->bucket.batch,
                   fig_print_count(plan, (uint64_t)info->bucket.kv));
    fig_print_text(print, "%s tokens in all\n",
                   fig_print_count(plan, (uint64_t)info->bucket.batch * (uint64_t)info->bucket.kv));
    if (info->query_limit > 0)
        fig_print_text(print, "  steps       at most %" PRId32 " query tokens%s\n",
                       info->query_limit, fig_inspect_names_demand(info->form));
    fig_inspect_heads(bucket, heads);
    if (info->workers > 0)
        fig_print_text(
            print, "  variant     %s at once, tiles of %" PRId32 " tokens, %" PRId32 " workers\n",
            heads, info->tile_tokens, info->workers);
    fig_print_text(print, "  memory      plan %s at most, workspace %s\n",
                   fig_print_bytes(plan, info->plan_bytes),
                   fig_print_bytes(workspace, info->workspace_bytes));
    fig_print_text(print, "\n");
    print_launch(print, bucket, 0);
    for (uint32_t n = 0; n < view->node_count;) {
        const fig_inspect_stretch s = fig_inspect_stretch_at(view, bucket, n);
        const uint32_t end = n + s.count * s.times;
        for (uint32_t i = n; i < n + s.count; i++) {
            const int layer = view->nodes[i].layer;
            const int in_layer = i > n && layer == view->nodes[i - 1].layer;
            fig_print_text(print, "\n");
            if (!in_layer && layer >= 0) fig_print_text(print, "layer %d\n", layer);
            if (!in_layer && layer < 0) fig_print_text(print, "of no layer\n");
            print_segment(print, &(node_words){view, i, 0, 0}, in_layer);
            print_node_launches(print, bucket, i);
        }
        if (s.times > 1) print_repeats(print, bucket, &s);
        n = end;
    }
}
