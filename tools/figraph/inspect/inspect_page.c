/* inspect_page.c: prints graphs and the launches of one of their buckets as a page for a browser.
 *
 * The page uses only headings, tables and details, which keyboards and screen readers handle. A
 * table or drawing that is too wide scrolls by itself; the whole page never does. Invariant:
 * names consist of [A-Za-z0-9._-], which strings.c and traits.c enforce, so no name is markup. */
#include "tools/figraph/inspect/inspect_page.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <figraph_archive.h>

#include "tools/figraph/inspect/facts.h"
#include "tools/figraph/inspect/failure.h"
#include "tools/figraph/inspect/inspect_svg.h"
#include "tools/figraph/terminal/report.h"

enum { LONG_VALUE = 64 }; /* the characters of a content_id */

/* ---- Plans ----------------------------------------------------------------------------------- */

static fig_status read_plan(const fig_inspect_page *page, int32_t index, fig_plan_report *report) {
    return fig_failure_of_library(
        fig_inspection_plan(page->summary.view, page->options->step, index, report));
}

/* Plans twice: the first call gives the number of workers. */
static fig_status plan_class(fig_inspect_page *page, int32_t index) {
    fig_inspect_split_bars *bars = &page->bars[index];
    bars->step = page->options->step;
    bars->report.size = sizeof bars->report;
    FIG_FAILURE_TRY(read_plan(page, index, &bars->report));
    const int32_t workers = bars->report.workers, rows = bars->step->rows;
    page->tiles[index] = calloc((size_t)workers + (size_t)rows + 1, sizeof *page->tiles[index]);
    if (page->tiles[index] == NULL)
        return fig_failure(FIG_NOMEM, "page: %" PRId32 " workers and %" PRId32 " rows", workers,
                           rows);
    bars->report.worker_tiles = page->tiles[index];
    bars->report.worker_capacity = workers;
    bars->report.row_tiles = page->tiles[index] + workers;
    bars->report.row_capacity = rows;
    return read_plan(page, index, &bars->report);
}

fig_status fig_inspect_page_prepare(fig_inspect_page *page) {
    for (int32_t i = 0; page->options->step != NULL && i < page->summary.view->class_count; i++)
        FIG_FAILURE_TRY(plan_class(page, i));
    FIG_FAILURE_TRY(fig_inspect_map_make(&page->map, page->bucket));
    return fig_facts_of_graphs(page->summary.graphs, &page->facts);
}

void fig_inspect_page_finish(fig_inspect_page *page) {
    for (int32_t i = 0; i < FIG_INSPECT_CLASS_LIMIT; i++)
        free(page->tiles[i]);
    fig_inspect_map_finish(&page->map);
    json_decref(page->facts);
    page->facts = NULL;
}

/* ---- Head ------------------------------------------------------------------------------------ */

static const char style[] =
    "* { box-sizing: border-box; }\n"
    "body { margin: 0 auto; max-width: 1500px; padding: 16px; background: var(--paper);\n"
    "  color: var(--ink); font: 15px/1.5 ui-sans-serif, system-ui, sans-serif; }\n"
    "h1 { font-size: 1.35rem; margin: 0; overflow-wrap: anywhere; }\n"
    "h2 { font-size: 1.1rem; margin: 2rem 0 .4rem; }\n"
    "p { margin: .3rem 0; color: var(--soft); } a { color: var(--link); }\n"
    "nav { display: flex; flex-wrap: wrap; gap: .2rem 1rem; margin: .6rem 0; }\n"
    ":focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }\n"
    ".wide { overflow-x: auto; border: 1px solid var(--line); border-radius: 6px; }\n"
    "table { border-collapse: collapse; width: 100%; font-size: .87rem;\n"
    "  font-variant-numeric: tabular-nums; }\n"
    "th, td { text-align: left; padding: .25rem .7rem; border-top: 1px solid var(--line);\n"
    "  white-space: nowrap; vertical-align: middle; }\n"
    "thead th { border: 0; color: var(--soft); font-weight: 500; }\n"
    "tbody th { font-weight: 600; } tr[aria-current] { background: var(--panel); }\n"
    "dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(250px, 1fr));\n"
    "  gap: 0 1.5rem; margin: .4rem 0; font-size: .87rem; }\n"
    "dl div { display: flex; gap: .8rem; border-top: 1px solid var(--line); padding: .15rem 0; }\n"
    "dt { color: var(--soft); flex: 1 1 auto; } dd { margin: 0; text-align: right;\n"
    "  overflow-wrap: anywhere; } dl .long { grid-column: 1 / -1; }\n"
    "details { border: 1px solid var(--line); border-radius: 6px; margin: .35rem 0;\n"
    "  padding: .3rem .7rem; }\n"
    "summary { cursor: pointer; } summary span { color: var(--soft); }\n"
    "summary b { display: inline-block; min-width: 2.2rem; }\n"
    ".bar { width: 160px; height: 10px; display: block; background: var(--panel); }\n"
    ".bar rect { fill: var(--reads); }\n"
    ".key { display: inline-flex; align-items: center; gap: .4rem; margin-right: 1rem; }\n"
    ".key svg { width: 34px; height: 10px; }\n";

/* A note may hold any ASCII, and a file may hold any bytes. The browser leaves out bytes that
 * are not characters. */
static void print_escaped(fig_print *print, const char *text) {
    for (; *text != '\0'; text++) {
        switch (*text) {
        case '<': fig_print_raw(print, "&lt;"); break;
        case '>': fig_print_raw(print, "&gt;"); break;
        case '&': fig_print_raw(print, "&amp;"); break;
        default: fig_print_text(print, "%c", *text);
        }
    }
}

/* Returns the name of the preset with the same layers; NULL: no preset has them. */
static const char *preset_of(const fig_spec *spec) {
    const char *name;
    for (int32_t i = 0; (name = fig_spec_preset_name(i)) != NULL; i++) {
        fig_spec of = {.size = sizeof of};
        if (fig_spec_preset(&of, name) != FIG_OK) continue;
        if (of.dtype == spec->dtype && of.q_heads == spec->q_heads &&
            of.kv_heads == spec->kv_heads && of.head_dim == spec->head_dim &&
            of.ffn_width == spec->ffn_width && of.activation == spec->activation &&
            of.window == spec->window && of.rope.theta == spec->rope.theta)
            return name;
    }
    return NULL;
}

/* Prints the model's name, from the note that the maker of the file left or else from its shape,
 * and the properties that distinguish the model from others. */
static void print_heading(fig_print *print, const fig_inspect_page *page) {
    const fig_spec *spec = page->summary.view->spec;
    fig_note note = {.size = sizeof note};
    int named = 0;
    for (int32_t i = 0; fig_graphs_note(page->summary.graphs, i, &note) == FIG_OK; i++) {
        if (strcmp(note.key, "model") != 0) continue;
        print_escaped(print, note.value);
        named = 1;
    }
    const char *preset = named ? NULL : preset_of(spec);
    if (preset != NULL) fig_print_raw(print, preset);
    if (preset == NULL && !named) fig_print_raw(print, "Decode step");
    fig_print_text(print, ": %" PRId32 " layer%s, %" PRId32 "/%" PRId32 " heads of %" PRId32 ", %s",
                   spec->layers, spec->layers == 1 ? "" : "s", spec->q_heads, spec->kv_heads,
                   spec->head_dim, fig_inspect_names_dtype(spec->dtype));
}

static void print_title(fig_print *print, const fig_inspect_page *page) {
    const char *file = page->options->file;
    if (file == NULL) {
        print_heading(print, page);
        return;
    }
    const char *slash = strrchr(file, '/');
    print_escaped(print, slash != NULL ? slash + 1 : file);
}

static void print_head(fig_print *print, const fig_inspect_page *page) {
    const fig_inspection *view = page->summary.view;
    char count[FIG_PRINT_NUMBER];
    fig_print_raw(print, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
                         "<meta name=\"viewport\" content=\"width=device-width\">\n"
                         "<link rel=\"icon\" href=\"data:,\"><title>");
    print_title(print, page);
    fig_print_raw(print, "</title>\n<style>\n");
    fig_inspect_svg_style(print);
    fig_inspect_split_style(print);
    fig_print_raw(print, style);
    fig_print_raw(print, "</style></head>\n<body><header><h1>");
    print_heading(print, page);
    fig_print_raw(print, "</h1>\n<p>");
    if (page->options->file != NULL) {
        fig_print_raw(print, "<b>");
        print_escaped(print, page->options->file);
        fig_print_raw(print, "</b>: ");
    }
    fig_print_text(print, "%" PRIu32 " buckets for ", view->bucket_count);
    fig_print_raw(print, view->traits->name);
    fig_print_text(print, ", %s nodes", fig_print_count(count, view->node_count));
    fig_print_text(print, " over %s tensors</p>\n", fig_print_count(count, view->tensor_count));
    fig_print_raw(print, "<nav aria-label=\"sections\"><a href=\"#step\">step</a>"
                         "<a href=\"#bucket\">bucket</a><a href=\"#launches\">launches</a>");
    if (page->options->step != NULL) fig_print_raw(print, "<a href=\"#split\">split</a>");
    fig_print_raw(print, "<a href=\"#workspace\">workspace</a><a href=\"#tensors\">tensors</a>"
                         "<a href=\"#buckets\">buckets</a></nav></header><main>\n");
}

/* ---- Step ------------------------------------------------------------------------------------ */

/* A value that would take many lines of a column takes the whole width. */
static void print_pair(fig_print *print, const char *name, const char *value) {
    fig_print_raw(print, strlen(value) > LONG_VALUE ? "<div class=\"long\"><dt>" : "<div><dt>");
    fig_print_raw(print, name);
    fig_print_raw(print, "</dt><dd>");
    print_escaped(print, value);
    fig_print_raw(print, "</dd></div>\n");
}

/* before: the prefix of the fields' names. */
static void print_facts(fig_print *print, const fig_inspect_page *page, const char *subject,
                        const char *before) {
    json_t *fields = json_object_get(json_object_get(page->facts, subject), "fields"), *value;
    const char *field;
    json_object_foreach(fields, field, value) {
        char name[2 * FIG_INSPECT_NAME_LIMIT];
        snprintf(name, sizeof name, "%s%s", before, field);
        print_pair(print, name, json_string_value(value));
    }
}

static void print_step(fig_print *print, const fig_inspect_page *page) {
    fig_print_raw(print, "<section id=\"step\"><h2>Step</h2><dl>\n");
    print_facts(print, page, "spec", "");
    fig_print_raw(print, "</dl><h2>Made for</h2><dl>\n");
    print_facts(print, page, "traits", "");
    print_facts(print, page, "share", "share.");
    print_facts(print, page, "tuning", "tuning.");
    print_facts(print, page, "notes", "note ");
    print_facts(print, page, "graphs", "");
    fig_print_raw(print, "</dl></section>\n");
}

/* ---- Bucket and drawing ---------------------------------------------------------------------- */

/* Prints each line style and its meaning. */
static void print_legend(fig_print *print) {
    static const struct {
        const char *class, *words;
    } keys[] = {
        {"plan", "reads the plan"},
        {"reads", "reads what the other writes"},
        {"overwrites", "overwrites what the other has"},
        {"workspace", "partials in the same place"},
        {"rest", "rest of the same node"},
        {"order", "collectives, in one order"},
        {"plan ends", "waits for the other's end"},
    };
    fig_print_raw(print, "<p>");
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        fig_print_text(print,
                       "<span class=\"key\"><svg viewBox=\"0 0 34 10\" aria-hidden=\"true\">"
                       "<path class=\"edge %s\" d=\"M0 5H34\"/></svg>%s</span> ",
                       keys[i].class, keys[i].words);
    fig_print_raw(print, "</p>\n<p>Where no end is waited for, a GPU of compute capability 9.0 may "
                         "hold the later launch before the earlier has ended.</p>\n");
}

static void print_bucket(fig_print *print, const fig_inspect_page *page) {
    const fig_inspect_bucket *bucket = page->bucket;
    const fig_bucket_info *info = &bucket->info;
    const int is_latent = bucket->view->spec->latent_dim > 0;
    char number[FIG_PRINT_NUMBER];
    fig_print_text(print,
                   "<section id=\"bucket\"><h2>Bucket %" PRIu32 " of %" PRIu32 "</h2>\n<dl>\n",
                   bucket->index + 1, bucket->view->bucket_count);
    print_pair(print, "rows", fig_print_count(number, (uint64_t)info->bucket.batch));
    print_pair(print, "kv of a row", fig_print_count(number, (uint64_t)info->bucket.kv));
    print_pair(print, is_latent ? "q heads at once" : "kv heads at once",
               fig_print_count(number, (uint64_t)fig_report_heads(bucket->graphs, info)));
    print_pair(print, "tokens of a tile", fig_print_count(number, (uint64_t)info->tile_tokens));
    print_pair(print, "workers", fig_print_count(number, (uint64_t)info->workers));
    print_pair(print, "plan at most", fig_print_bytes(number, info->plan_bytes));
    print_pair(print, "workspace", fig_print_bytes(number, info->workspace_bytes));
    fig_print_raw(print, "</dl>\n");
    print_legend(print);
    fig_print_raw(print, "<div class=\"wide\" tabindex=\"0\">\n");
    fig_inspect_svg_draw(print, bucket, page->sketch);
    fig_print_raw(print, "</div></section>\n");
}

/* ---- Launches -------------------------------------------------------------------------------- */

static void print_param(fig_print *print, const fig_inspect_field *field) {
    char text[FIG_INSPECT_VALUE_BYTES];
    if (field->kind == FIG_INSPECT_SCORE) { /* it may be longer than text */
        print_pair(print, field->name, field->word);
        return;
    }
    if (field->kind != FIG_INSPECT_SPLIT) {
        fig_inspect_describe(field, text);
        print_pair(print, field->name, text);
        return;
    }
    fig_inspect_member members[FIG_INSPECT_SPLIT_MEMBERS];
    fig_inspect_split_members(field, members);
    for (int i = 0; i < FIG_INSPECT_SPLIT_MEMBERS; i++) {
        char number[FIG_PRINT_NUMBER];
        snprintf(text, sizeof text, "%s.%s", field->name, members[i].name);
        snprintf(number, sizeof number, "%" PRId32, members[i].value);
        print_pair(print, text, number);
    }
}

/* Prints the family that serves the launch, and the reason why each earlier family does not. */
static void print_family(fig_print *print, const fig_inspect_launch *launch) {
    fig_print_raw(print, "<p>family ");
    fig_print_raw(print, launch->family);
    for (int32_t i = 0; i < launch->refusal_count; i++) {
        fig_print_raw(print, "; ");
        fig_print_raw(print, launch->refused[i]);
        fig_print_raw(print, " would need ");
        fig_print_raw(print, launch->needs[i]);
    }
    fig_print_raw(print, "</p>\n");
}

/* Prints a link to each launch that this launch comes after, with the reason. */
static void print_after(fig_print *print, const fig_inspect_page *page, uint32_t l) {
    const fig_inspect_bucket *bucket = page->bucket;
    uint32_t first, count;
    fig_inspect_edges(bucket->view, l, &first, &count);
    if (count > 0) fig_print_raw(print, "<p>after ");
    for (uint32_t i = first; i < first + count; i++) {
        const fig_sketch_edge edge = fig_sketch_explain(bucket, &bucket->view->edges[i]);
        const uint32_t box = page->sketch->box_of[edge.from_launch];
        fig_print_text(print, "%s<a href=\"#launch-%" PRIu32 "\">%" PRIu32 "</a> (%s",
                       i > first ? ", " : "", page->sketch->boxes[box].launch, edge.from_launch,
                       fig_sketch_reason_name(edge.reason));
        if (edge.tensor != 0) {
            fig_print_raw(print, " ");
            fig_print_raw(print, bucket->view->tensors[edge.tensor - 1].name);
        }
        fig_print_text(print, "%s)", edge.ends ? ", once it has ended" : "");
    }
    if (count > 0) fig_print_raw(print, "</p>\n");
}

static void print_call(fig_print *print, const fig_inspect_bucket *bucket,
                       const fig_inspect_node *node) {
    const fig_inspection *view = bucket->view;
    fig_print_text(print, "<p>tag 0x%" PRIx64 ", %" PRIu32 " bytes</p><dl>\n", node->tag,
                   node->call_byte_count);
    for (uint32_t i = 0; i < node->operand_count; i++)
        print_pair(print, i < node->read_count ? "reads" : "writes",
                   view->tensors[view->operands[node->operand + i].tensor - 1].name);
    fig_print_raw(print, "</dl>\n");
}

static void print_triple(fig_print *print, const char *name, const uint32_t triple[3]) {
    fig_print_text(print, "%s %" PRIu32, name, triple[0]);
    if (triple[1] > 1 || triple[2] > 1) fig_print_text(print, " x %" PRIu32, triple[1]);
    if (triple[2] > 1) fig_print_text(print, " x %" PRIu32, triple[2]);
}

static void print_kernel(fig_print *print, const fig_inspect_page *page, uint32_t l) {
    const fig_inspect_launch *launch = &page->bucket->view->launches[l];
    fig_inspect_field fields[FIG_INSPECT_FIELD_LIMIT];
    const int32_t count = fig_inspection_launch_fields(page->bucket->view, l, fields);
    char number[FIG_PRINT_NUMBER];
    fig_print_raw(print, "<span>");
    if (launch->left_out == 2) {
        fig_print_raw(print, "left out, since no step has work for it");
    } else if (launch->left_out) {
        fig_print_text(print, "left out, since launch %" PRIu32 " does all", l + 1);
    } else {
        print_triple(print, "grid", launch->grid);
        fig_print_raw(print, ", ");
        print_triple(print, "block", launch->block);
        fig_print_text(print, ", shared %s", fig_print_bytes(number, launch->shared_bytes));
    }
    fig_print_text(print, "</span></summary><div id=\"launch-%" PRIu32 "\">\n", l);
    print_family(print, launch);
    print_after(print, page, l);
    fig_print_raw(print, "<dl>\n");
    for (int32_t i = 0; i < count; i++)
        if (!fields[i].is_reserved) print_param(print, &fields[i]);
    fig_print_raw(print, "</dl></div></details>\n");
}

static void print_launch(fig_print *print, const fig_inspect_page *page,
                         const fig_sketch_box *box) {
    const fig_inspect_launch *launch = &page->bucket->view->launches[box->launch];
    char name[FIG_INSPECT_OPERATION_BYTES];
    fig_inspect_operation(page->bucket, launch, name);
    fig_print_text(print, "<details><summary><b>%" PRIu32 "</b>", box->launch);
    fig_print_raw(print, name);
    if (box->layer >= 0) fig_print_text(print, " of layer %" PRId32, box->layer);
    fig_print_raw(print, " ");
    if (!launch->is_call) {
        print_kernel(print, page, box->launch);
        return;
    }
    fig_print_text(print, "</summary><div id=\"launch-%" PRIu32 "\">\n", box->launch);
    print_after(print, page, box->launch);
    print_call(print, page->bucket, &page->bucket->view->nodes[launch->node]);
    fig_print_raw(print, "</div></details>\n");
}

static void print_repeats(fig_print *print, const fig_sketch_box *box) {
    const uint32_t layers[2] = {(uint32_t)box->layer, (uint32_t)box->last_layer};
    const uint32_t launches[2] = {box->launch, box->launch + box->launch_count - 1};
    char text[FIG_PRINT_RANGE];
    fig_print_text(print, "<p id=\"launch-%" PRIu32 "\">", box->launch);
    fig_print_raw(print, fig_print_range(text, "Layer", layers, " to "));
    fig_print_raw(print, ": the same in ");
    fig_print_raw(print, fig_print_range(text, "launch", launches, " to "));
    fig_print_raw(print, ".</p>\n");
}

static void print_launches(fig_print *print, const fig_inspect_page *page) {
    fig_print_text(print, "<section id=\"launches\"><h2>Launches: %" PRIu32 "</h2>\n",
                   page->bucket->view->launch_count);
    for (uint32_t i = 0; i < page->sketch->box_count; i++) {
        const fig_sketch_box *box = &page->sketch->boxes[i];
        if (box->repeats) {
            print_repeats(print, box);
        } else {
            print_launch(print, page, box);
        }
    }
    fig_print_raw(print, "</section>\n");
}

/* ---- Split ----------------------------------------------------------------------------------- */

/* The chunks of prompts are no part of the drawing: another launch divides their strips. */
static void print_chunks(fig_print *print, const fig_plan_report *report) {
    const uint32_t tiles[2] = {(uint32_t)report->strip_tiles_least,
                               (uint32_t)report->strip_tiles_most};
    char number[FIG_PRINT_NUMBER], range[FIG_PRINT_RANGE];
    fig_print_text(print,
                   "<p>%" PRId32 " chunk%s of prompts in %" PRId32 " strips: ", report->chunks,
                   report->chunks == 1 ? "" : "s", report->strips);
    fig_print_text(print, "%s tiles, ", fig_print_count(number, (uint64_t)report->strip_tiles));
    fig_print_raw(print, fig_print_range(range, "", tiles, " to "));
    fig_print_text(print, " for each of %" PRId32 " workers.</p>\n",
                   report->strip_workers - report->readers);
}

static void print_class(fig_print *print, const fig_inspect_page *page, int32_t index) {
    const fig_plan_report *report = &page->bars[index].report;
    const fig_inspect_class *own = &page->summary.view->classes[index];
    const uint32_t tiles[2] = {(uint32_t)report->tiles_least, (uint32_t)report->tiles_most};
    char number[FIG_PRINT_NUMBER], range[FIG_PRINT_RANGE];
    fig_print_text(print, "<p>Class %" PRId32 ", ", index + 1);
    if (page->summary.view->spec->latent_dim > 0) {
        fig_print_text(print, "groups of %" PRId32 " q heads or more",
                       own->q_heads / own->kv_heads);
    } else {
        fig_print_text(print, "%" PRId32 " kv head%s", own->kv_heads,
                       own->kv_heads == 1 ? "" : "s");
    }
    if (own->window > 0)
        fig_print_text(print, " and a window of %s",
                       fig_print_count(number, (uint64_t)own->window));
    fig_print_text(print, ": %s tiles, ", fig_print_count(number, (uint64_t)report->tiles));
    fig_print_raw(print, fig_print_range(range, "", tiles, " to "));
    fig_print_text(print,
                   " for each of %" PRId32 " workers; %" PRId32 " partials of at most %" PRId32
                   ".</p>\n",
                   report->workers, report->partials, report->partial_limit);
    if (report->tiles > 0) fig_inspect_split_draw(print, &page->bars[index]);
    if (report->chunks > 0) print_chunks(print, report);
}

static void print_split(fig_print *print, const fig_inspect_page *page) {
    if (page->options->step == NULL) return;
    fig_print_text(
        print,
        "<section id=\"split\"><h2>Split of a step</h2>\n<p>%" PRId32
        " row%s; the step takes bucket %" PRId32
        ". Each row has one of eight colours; a bar tells its row where the pointer rests.</p>\n",
        page->options->step->rows, page->options->step->rows == 1 ? "" : "s",
        page->bars[0].report.bucket);
    for (int32_t i = 0; i < page->summary.view->class_count; i++)
        print_class(print, page, i);
    fig_print_raw(print, "</section>\n");
}

/* ---- Tensors and buckets --------------------------------------------------------------------- */

static void print_tensor(fig_print *print, const fig_inspection *view,
                         const fig_layer_fold_tensors *group) {
    const fig_inspect_tensor *record = &view->tensors[group->first - 1];
    const char *name = view->tensors[group->first - 1].name;
    const char *symbol = fig_inspect_symbol(record);
    fig_print_raw(print, "<tr><th scope=\"row\">");
    fig_print_raw(print, name);
    if (group->count > 1)
        fig_print_text(print, "..%" PRId64,
                       fig_layer_fold_split(name).number + (int64_t)group->count - 1);
    fig_print_text(print, "</th><td>%s</td><td>%s</td><td>", fig_inspect_names_role(record->role),
                   fig_inspect_names_dtype(record->dtype));
    if (symbol != NULL) fig_print_raw(print, symbol);
    for (int i = 0; i < record->rank; i++) {
        if (i == 0 && symbol != NULL && record->dims[0] == 1) continue;
        if (i > 0 || symbol != NULL) fig_print_raw(print, " x ");
        fig_print_text(print, "%" PRId64, record->dims[i]);
    }
    fig_print_text(print, "</td><td>%s</td></tr>\n", fig_inspect_names_layout(record->layout));
}

static void print_tensors(fig_print *print, const fig_inspect_summary *summary) {
    fig_print_raw(print, "<section id=\"tensors\"><h2>Tensors</h2>\n"
                         "<div class=\"wide\" tabindex=\"0\"><table><thead><tr><th>name</th>"
                         "<th>role</th><th>dtype</th><th>dims</th><th>layout</th></tr></thead>"
                         "<tbody>\n");
    for (uint32_t i = 0; i < summary->group_count; i++)
        print_tensor(print, summary->view, &summary->groups[i]);
    fig_print_raw(print, "</tbody></table></div></section>\n");
}

/* unit: the heads of which info->heads counts one. */
static void print_row(fig_print *print, const fig_inspect_page *page, uint32_t index,
                      int32_t unit) {
    const fig_bucket_info *info = &page->summary.infos[index];
    const fig_inspection *view = page->summary.view;
    char bytes[FIG_PRINT_NUMBER];
    fig_print_text(print, "<tr%s><th scope=\"row\">%" PRIu32 "</th>",
                   index == page->bucket->index ? " aria-current=\"true\"" : "", index + 1);
    fig_print_text(print,
                   "<td>%" PRId32 "</td><td>%" PRId32 "</td><td>%" PRId32 " x %" PRId32
                   "</td><td>%" PRId32 "</td>",
                   info->bucket.batch, info->bucket.kv, info->heads * unit, info->tile_tokens,
                   info->workers);
    fig_print_text(print, "<td>%s</td>", fig_print_bytes(bytes, info->plan_bytes));
    fig_print_text(print, "<td>%s</td><td>%s</td></tr>\n",
                   fig_print_bytes(bytes, info->workspace_bytes),
                   view->digests[index] != view->made_digests[index] ? "lowered again" : "");
}

static void print_buckets(fig_print *print, const fig_inspect_page *page) {
    const int32_t group_heads = fig_report_group_heads(page->summary.graphs);
    fig_print_text(print,
                   "<section id=\"buckets\"><h2>Buckets</h2>\n"
                   "<div class=\"wide\" tabindex=\"0\"><table><thead><tr><th>number</th>"
                   "<th>rows</th><th>kv</th><th>%sheads x tile</th><th>workers</th>"
                   "<th>plan</th><th>workspace</th><th></th></tr></thead><tbody>\n",
                   group_heads > 0 ? "q " : "");
    for (uint32_t i = 0; i < page->summary.view->bucket_count; i++)
        print_row(print, page, i, group_heads > 0 ? group_heads : 1);
    fig_print_raw(print, "</tbody></table></div></section>\n");
}

void fig_inspect_page_print(fig_print *print, const fig_inspect_page *page) {
    print_head(print, page);
    print_step(print, page);
    print_bucket(print, page);
    print_launches(print, page);
    print_split(print, page);
    fig_inspect_map_print(print, &page->map, page->bucket);
    print_tensors(print, &page->summary);
    print_buckets(print, page);
    fig_print_raw(print, "</main></body></html>\n");
}
