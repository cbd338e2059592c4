/* inspect_text.c: graphs as text for people.
 *
 * Layers that say the same are shown once: a program's as layer N, a bucket's by the first of them.
 * Counts have their thousands apart; params and dims are numbers as a kernel sees them. Invariant:
 * lines keep to the columns asked for unless one word alone is longer. */
#include "graphs/inspect/inspect_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "graphs/inspect/inspect_buckets.h"
#include "graphs/inspect/inspect_classes.h"
#include "graphs/segment.h"
#include "include/figraph_tune.h"
#include "planner/frequencies.h"
#include "planner/spec.h"

enum {
    INDENT = 2,
    LABEL = 14,    /* column of what a label names */
    OPERATION = 18 /* columns of an operation's name */
};

/* A label at the left, for the caller to go on. */
static void begin_row(fig_print *print, const char *label) {
    fig_print_end_line(print);
    fig_print_text(print, "  %-*s", LABEL - INDENT, label);
}

/* ---- Spec */

static void print_plain(fig_print *print, const fig_spec *spec) {
    int32_t plain = 0;
    for (int32_t layer = 0; layer < spec->layers; layer++)
        plain += !fig_spec_layer_turns(spec, layer);
    if (plain > 0)
        fig_print_words(print, LABEL, ", none in %" PRId32 " of %" PRId32 " layers", plain,
                        spec->layers);
}

/* What terms say of frequencies. */
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
    if (!fig_frequencies_has_table(table)) {
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

/* Layers with the window have a row of their own where they turn in another way. */
static void print_rope(fig_print *print, const fig_spec *spec) {
    begin_row(print, "rope");
    print_turns(print, spec, &spec->rope, &spec->rope_table);
    print_plain(print, spec);
    if (spec->window_rope.theta == 0) return;
    begin_row(print, "in windows");
    print_turns(print, spec, &spec->window_rope, &spec->window_table);
}

/* What a standard step may do and most do not. */
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
    fig_print_text(print, "%s, %s", fig_inspect_dtype(spec->kv_dtype),
                   fig_inspect_layout(spec->kv_layout));
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
    fig_print_text(print, "%" PRId32 " q heads, %" PRId32 " kv heads, head_dim %" PRId32,
                   spec->q_heads, spec->kv_heads, spec->head_dim);
    fig_print_text(print, ", sm_scale %s", fig_print_float(text, spec->sm_scale));
}

static void print_spec(fig_print *print, const fig_spec *spec) {
    char text[FIG_PRINT_NUMBER];
    begin_row(print, "step");
    fig_print_text(print, "%" PRId32 " layer%s, %s, at most %" PRId32 " row%s", spec->layers,
                   spec->layers == 1 ? "" : "s", fig_inspect_dtype(spec->dtype), spec->batch_limit,
                   spec->batch_limit == 1 ? "" : "s");
    if (spec->row_tokens > 1)
        fig_print_text(print, " of %" PRId32 " query tokens", spec->row_tokens);
    print_heads(print, spec);
    begin_row(print, "activation");
    if (spec->ffn_width > 0)
        fig_print_text(print, "%s, width %s", fig_inspect_activation(spec->activation),
                       fig_print_count(text, (uint64_t)spec->ffn_width));
    if (spec->ffn_width > 0 && spec->ffn_rows > 1)
        fig_print_text(print, ", %" PRId32 " rows a token", spec->ffn_rows);
    if (spec->ffn_width == 0) fig_print_text(print, "none");
    print_rope(print, spec);
    print_logits(print, spec);
    print_cache(print, spec);
}

/* Of one rank's share: what all ranks have together. */
static void print_share(fig_print *print, const fig_graphs *graphs) {
    char text[FIG_PRINT_NUMBER];
    if (graphs->ranks == 1) return;
    begin_row(print, "share");
    fig_print_words(print, LABEL, "of one of %" PRId32 " ranks; the model has", graphs->ranks);
    fig_print_words(print, LABEL, " %" PRId32 " q heads, %" PRId32 " kv heads,",
                    graphs->model.q_heads, graphs->model.kv_heads);
    fig_print_words(print, LABEL, " width %s",
                    fig_print_count(text, (uint64_t)graphs->model.ffn_width));
}

/* The host has no SMs: it is given as many blocks at once as if it had. */
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

/* Costs that the file brings along. */
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

/* Its words wrap as all others do. */
static void print_note(fig_print *print, const fig_note *note) {
    char word[FIG_NOTE_VALUE_LIMIT + 2] = "";
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

static void print_carried(fig_print *print, const fig_graphs *graphs) {
    const fig_archive *archive = &graphs->archive;
    uint32_t own = 0;
    fig_note note;
    for (int32_t i = 0; fig_notes_at(&graphs->notes, i, &note); i++)
        print_note(print, &note);
    if (archive->image_count == 0) return;
    for (uint32_t i = 0; i < archive->image_count; i++)
        own += (uint32_t)fig_archive_is_own(&archive->images[i], fig_images_of);
    begin_row(print, "images");
    fig_print_words(
        print, LABEL, "of kernels: %" PRIu32 " recorded, %" PRIu32 " of them this library's own%s",
        archive->image_count, own, archive->code != NULL ? "; the file holds them" : "");
}

static void print_made_for(fig_print *print, const fig_inspect_summary *summary) {
    const fig_graphs *graphs = summary->graphs;
    const fig_traits *traits = &graphs->target.traits;
    char workspace[FIG_PRINT_NUMBER], plan[FIG_PRINT_NUMBER];
    print_share(print, graphs);
    print_machine(print, traits);
    if (graphs->target.deterministic) {
        begin_row(print, "split");
        fig_print_words(print, LABEL, "deterministic: a row's bits depend on its own length alone");
    }
    begin_row(print, "memory");
    fig_print_text(print, "workspace %s, plan %s at most",
                   fig_print_bytes(workspace, graphs->workspace.bytes),
                   fig_print_bytes(plan, graphs->plan_bytes));
    print_tuning(print, graphs);
    print_carried(print, graphs);
    if (summary->relowered_count > 0) {
        begin_row(print, "relowered");
        fig_print_words(print, LABEL,
                        "%" PRIu32 " of %" PRIu32 " buckets, marked *: the file's maker "
                        "lowered them otherwise",
                        summary->relowered_count, graphs->bucket_count);
    }
    if (graphs->changed_kernels == 0) return;
    begin_row(print, "changed");
    const char *before = "";
    for (uint32_t op = 0; op < FIG_OP_KERNEL_COUNT; op++) {
        if (!(graphs->changed_kernels >> op & 1)) continue;
        fig_print_words(print, LABEL, "%s%s", before, fig_kernel_table[op].name);
        before = " ";
    }
    fig_print_words(print, LABEL, " since the file was made");
}

/* ---- Tensors */

static void print_group(fig_print *print, const fig_program_view *view,
                        const fig_layer_fold_tensors *group, int width) {
    const fig_tensor_record *record = &view->tensors[group->first - 1];
    const char *name = fig_program_view_tensor_name(view, group->first);
    const char *symbol = fig_inspect_symbol(record);
    char text[FIG_NAME_LIMIT + FIG_PRINT_NUMBER];
    snprintf(text, sizeof text, "%s", name);
    if (group->count > 1)
        snprintf(text, sizeof text, "%s..%" PRId64, name,
                 fig_layer_fold_split(name).number + (int64_t)group->count - 1);
    fig_print_text(print, "  %-*s  %-5s  %-4s  [", width, text, fig_inspect_role(record->role),
                   fig_inspect_dtype(record->dtype));
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
    const fig_program_view *view = summary->view;
    char count[FIG_PRINT_NUMBER];
    int width = LABEL - INDENT;
    for (uint32_t i = 0; i < summary->group_count; i++) {
        const fig_layer_fold_tensors *group = &summary->groups[i];
        int length = (int)strlen(fig_program_view_tensor_name(view, group->first));
        if (group->count > 1) length += 6; /* "..9999" */
        if (length > width) width = length;
    }
    fig_print_text(print, "\ntensors: %s\n", fig_print_count(count, view->tensor_count));
    for (uint32_t i = 0; i < summary->group_count; i++)
        print_group(print, view, &summary->groups[i], width);
}

/* ---- Nodes */

typedef struct node_words {
    const fig_program_view *view;
    uint32_t node;
    int folded; /* 1: say N for the number of the node's own layer */
    uint32_t indent;
} node_words;

/* The name of a tensor or of a segment of the node, as one word. */
static void print_name(fig_print *print, const node_words *words, const char *before,
                       const char *name) {
    const fig_layer_fold_name split = fig_layer_fold_split(name);
    char text[FIG_NAME_LIMIT + FIG_PRINT_NUMBER];
    if (words->folded && split.number != FIG_FOLD_NONE &&
        split.number == words->view->nodes[words->node].layer) {
        snprintf(text, sizeof text, "%s%.*s.N", before, (int)split.stem_bytes, name);
    } else {
        snprintf(text, sizeof text, "%s%s", before, name);
    }
    fig_print_word(print, words->indent, text);
}

/* "q.N, k.N": the operands that a node reads or writes. */
static void print_operands(fig_print *print, const node_words *words, uint32_t access) {
    const fig_program_view *view = words->view;
    const fig_node *node = &view->nodes[words->node];
    const char *before = access == FIG_ACCESS_WRITE ? " -> " : "";
    for (uint32_t i = 0; i < node->operand_count; i++) {
        const uint32_t tensor = view->operands[node->operand + i];
        if (tensor == 0 || !(fig_program_view_access(view, node, i) & access)) continue;
        print_name(print, words, before, fig_program_view_tensor_name(view, tensor));
        before = ", ";
    }
}

static void print_node(fig_print *print, const node_words *words) {
    char name[FIG_INSPECT_OPERATION_BYTES];
    fig_inspect_node_operation(words->view, &words->view->nodes[words->node], name);
    const int length = (int)strlen(name), column = OPERATION - INDENT;
    const int pad = length < column ? column - length : 1;
    fig_print_text(print, "    %s", name);
    if (words->view->nodes[words->node].operand_count > 0) fig_print_text(print, "%*s", pad, "");
    print_operands(print, words, FIG_ACCESS_READ);
    print_operands(print, words, FIG_ACCESS_WRITE);
    fig_print_end_line(print);
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

/* Above the first node of a segment, of a layer, and behind a segment. */
static void print_segment(fig_print *print, const node_words *words, int in_layer) {
    const fig_program_view *view = words->view;
    const uint32_t n = words->node;
    const fig_segment *segment = fig_segment_of(view, n);
    const fig_segment *before = in_layer ? fig_segment_of(view, n - 1) : NULL;
    if (segment == before) return;
    if (segment == NULL) fig_print_word(print, words->indent, "of no segment");
    if (segment != NULL) print_name(print, words, "segment ", view->strings + segment->name);
    fig_print_end_line(print);
}

static void print_program(fig_print *print, const fig_program_view *view) {
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
    fig_print_text(print, "graphs ");
    for (size_t i = 0; i < sizeof summary->graphs->content_id; i++)
        fig_print_text(print, "%02x", summary->graphs->content_id[i]);
    print_spec(print, &summary->view->spec);
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

static void print_after(fig_print *print, const fig_lowered *lowered, uint32_t l) {
    uint32_t first, count;
    fig_inspect_edges(lowered, l, &first, &count);
    for (uint32_t i = 0; i < count; i++) {
        char word[FIG_PRINT_NUMBER];
        snprintf(word, sizeof word, "%s%" PRIu32, i == 0 ? "  after " : ", ",
                 lowered->edges[first + i].from);
        fig_print_word(print, LABEL, word);
    }
    fig_print_end_line(print);
}

/* A cell for each number: a line of all would be too long. */
static void print_split(fig_print *print, uint32_t columns, const char *name,
                        const uint8_t *bytes) {
    fig_inspect_member members[FIG_INSPECT_SPLIT_MEMBERS];
    fig_inspect_split_members(bytes, members);
    for (int i = 0; i < FIG_INSPECT_SPLIT_MEMBERS; i++) {
        char full_name[FIG_INSPECT_VALUE_BYTES], value[FIG_PRINT_NUMBER];
        snprintf(full_name, sizeof full_name, "%s.%s", name, members[i].name);
        snprintf(value, sizeof value, "%" PRId32, members[i].value);
        fig_print_cell(print, columns, full_name, value);
    }
}

static void print_params(fig_print *print, const fig_inspect_bucket *bucket,
                         const fig_launch *launch) {
    const fig_kernel *kernel = &fig_kernel_table[launch->op];
    uint32_t columns = 0;
    for (uint32_t i = 0; i < kernel->field_count; i++) {
        const uint32_t length = (uint32_t)strlen(kernel->fields[i].name);
        if (length > columns) columns = length;
    }
    for (uint32_t i = 0; i < kernel->field_count; i++) {
        const fig_field *field = &kernel->fields[i];
        char text[FIG_INSPECT_VALUE_BYTES];
        if (field->kind == FIG_FIELD_ZERO) continue;
        const fig_inspect_value value = fig_inspect_value_of(bucket, launch, field);
        if (field->type == FIG_TYPE_SPLIT) {
            print_split(print, columns, field->name, value.bytes);
            continue;
        }
        fig_inspect_describe(field, &value, text);
        fig_print_cell(print, columns, field->name, text);
    }
    fig_print_end_line(print);
}

/* Of an operation with one family there is nothing to say. */
static void print_family(fig_print *print, const fig_launch *launch,
                         const fig_family_choice *choice) {
    const fig_op op = (fig_op)launch->op;
    if (fig_families_of(op, 1) == NULL) return;
    fig_print_cell(print, FAMILY, "family", fig_families_of(op, choice->family)->name);
    for (uint32_t i = 0; i < choice->family; i++) {
        char text[FIG_INSPECT_VALUE_BYTES];
        snprintf(text, sizeof text, "needs %s", choice->refusals[i]);
        fig_print_cell(print, FAMILY, fig_families_of(op, i)->name, text);
    }
    fig_print_end_line(print);
}

static void print_launch(fig_print *print, const fig_inspect_bucket *bucket, uint32_t l) {
    const fig_program_view *view = bucket->view;
    const fig_launch *launch = &bucket->lowered.launches[l];
    const fig_node *node = launch->node_count > 0 ? &view->nodes[launch->node] : NULL;
    char name[FIG_INSPECT_OPERATION_BYTES];
    fig_inspect_operation(bucket, launch, name);
    fig_print_text(print, "%5" PRIu32 "  %-*s", l, OPERATION - INDENT, name);
    if (launch->op == FIG_OP_CALL) {
        const fig_call_attributes call = fig_inspect_call(view, node);
        fig_print_text(print, "  tag 0x%" PRIx64 "  %" PRIu32 " bytes", call.tag, call.byte_count);
        print_after(print, &bucket->lowered, l);
        const node_words words = {view, launch->node, 0, FIG_PRINT_INDENT};
        print_operands(print, &words, FIG_ACCESS_READ);
        print_operands(print, &words, FIG_ACCESS_WRITE);
        fig_print_end_line(print);
        return;
    }
    fig_family_choice choice;
    fig_inspect_family(bucket, launch, &choice);
    if (fig_inspect_is_left_out(bucket, l)) {
        fig_print_text(print, "  left out, since launch %" PRIu32 " does all", l + 1);
    } else {
        print_triple(print, "grid", choice.shape.grid);
        print_triple(print, "block", choice.shape.block);
        fig_print_text(print, "  shared %" PRIu32, choice.shape.shared_bytes);
    }
    print_after(print, &bucket->lowered, l);
    print_family(print, launch, &choice);
    print_params(print, bucket, launch);
}

/* Launches of several nodes are shown with the first. */
static void print_node_launches(fig_print *print, const fig_inspect_bucket *bucket, uint32_t node) {
    const fig_launch_range range = bucket->lowered.node_launches[node];
    for (uint32_t l = range.first; l < range.first + range.count; l++)
        if (bucket->lowered.launches[l].node == node) print_launch(print, bucket, l);
}

/* Layers that are shown by the first `count` nodes from n on, and repeated up to node `end`. */
static void print_repeats(fig_print *print, const fig_inspect_bucket *bucket,
                          const fig_inspect_stretch *s) {
    const uint32_t first = s->node + s->count, end = s->node + s->count * s->times;
    const fig_node *nodes = bucket->view->nodes;
    const fig_launch_range *ranges = bucket->lowered.node_launches;
    fig_print_text(print, "\nlayers %d..%d: the same in launches %" PRIu32 "..%" PRIu32 "%s\n",
                   nodes[first - 1].layer + 1, nodes[end - 1].layer, ranges[first].first,
                   ranges[end - 1].first + ranges[end - 1].count - 1,
                   s->period > 1 ? ", in turn" : "");
}

void fig_inspect_text_bucket(fig_print *print, const fig_inspect_bucket *bucket) {
    const fig_program_view *view = bucket->view;
    const fig_bucket_info *info = &bucket->info;
    char plan[FIG_PRINT_NUMBER], workspace[FIG_PRINT_NUMBER];
    fig_print_text(print, "bucket %" PRIu32 " of %" PRIu32 ", lowered for %s\n", bucket->index + 1,
                   bucket->graphs->bucket_count, bucket->graphs->target.traits.name);
    fig_print_text(print, "  serves      batch %" PRId32 ", kv %s: ", info->bucket.batch,
                   fig_print_count(plan, (uint64_t)info->bucket.kv));
    fig_print_text(print, "%s tokens in all\n",
                   fig_print_count(plan, (uint64_t)info->bucket.batch * (uint64_t)info->bucket.kv));
    if (info->workers > 0)
        fig_print_text(print,
                       "  variant     %" PRId32 " of %" PRId32
                       " kv heads at once, tiles of %" PRId32 " tokens, %" PRId32 " workers\n",
                       info->heads, view->spec.kv_heads, info->tile_tokens, info->workers);
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
