/* inspect_print.c: the public call that prints graphs.
 *
 * Leaves words and layout to the file of each format. Invariant: nothing is written
 * before all that could fail has been done. */
#include <inttypes.h>
#include <stdlib.h>

#include "graphs/inspect/inspect_dot.h"
#include "graphs/inspect/inspect_json.h"
#include "graphs/inspect/inspect_page.h"
#include "graphs/inspect/inspect_svg.h"
#include "graphs/inspect/inspect_text.h"
#include "graphs/plan_report.h"
#include "planner/status.h"

enum { DEFAULT_COLUMNS = 80, COLUMNS_LEAST = 40, COLUMNS_MOST = 1000 };

static fig_status prepare_summary(fig_inspect_summary *summary) {
    const fig_graphs *graphs = summary->graphs;
    FIG_TRY(fig_split_classes_find(summary->view, &summary->classes));
    summary->infos = calloc(graphs->bucket_count, sizeof *summary->infos);
    if (summary->infos == NULL)
        return fig_fail(FIG_NOMEM, "print: %" PRIu32 " buckets", graphs->bucket_count);
    for (uint32_t i = 0; i < graphs->bucket_count; i++) {
        summary->infos[i].size = sizeof summary->infos[i];
        FIG_TRY(fig_graphs_bucket(graphs, (int32_t)i + 1, &summary->infos[i]));
        summary->relowered_count += graphs->digests[i] != graphs->made_digests[i];
    }
    return fig_layer_fold_group(summary->view, &summary->groups, &summary->group_count);
}

static void finish_summary(fig_inspect_summary *summary) {
    free(summary->infos);
    free(summary->groups);
}

static fig_status print_summary(fig_print *print, const fig_graphs *graphs,
                                const fig_print_options *options) {
    fig_inspect_summary summary = {.graphs = graphs,
                                   .view = fig_program_view_of(graphs->program),
                                   .all_buckets = options->all_buckets != 0};
    const fig_status status = prepare_summary(&summary);
    if (status == FIG_OK && options->format == FIG_PRINT_JSON)
        fig_inspect_json_summary(print, &summary);
    if (status == FIG_OK && options->format == FIG_PRINT_TEXT)
        fig_inspect_text_summary(print, &summary);
    finish_summary(&summary);
    return status;
}

static fig_status print_page(fig_print *print, const fig_inspect_bucket *bucket,
                             const fig_sketch *sketch, const fig_print_options *options) {
    fig_inspect_page page = {.summary = {.graphs = bucket->graphs, .view = bucket->view},
                             .bucket = bucket,
                             .sketch = sketch,
                             .step = options->step};
    fig_status status = prepare_summary(&page.summary);
    if (status == FIG_OK) status = fig_inspect_page_prepare(&page);
    if (status == FIG_OK) fig_inspect_page_print(print, &page);
    fig_inspect_page_finish(&page);
    finish_summary(&page.summary);
    return status;
}

static fig_status print_drawing(fig_print *print, const fig_inspect_bucket *bucket,
                                const fig_print_options *options) {
    fig_sketch sketch;
    fig_status status = fig_sketch_make(&sketch, bucket);
    if (status == FIG_OK && options->format == FIG_PRINT_DOT)
        fig_inspect_dot_print(print, bucket, &sketch);
    if (status == FIG_OK && options->format == FIG_PRINT_SVG)
        fig_inspect_svg_print(print, bucket, &sketch);
    if (status == FIG_OK && options->format == FIG_PRINT_HTML)
        status = print_page(print, bucket, &sketch, options);
    fig_sketch_finish(&sketch);
    return status;
}

static fig_status print_bucket(fig_print *print, const fig_graphs *graphs, uint32_t index,
                               const fig_print_options *options) {
    fig_inspect_bucket bucket = {.graphs = graphs,
                                 .view = fig_program_view_of(graphs->program),
                                 .index = index,
                                 .info.size = sizeof bucket.info};
    fig_status status = FIG_OK;
    FIG_TRY(fig_graphs_bucket(graphs, (int32_t)index + 1, &bucket.info));
    FIG_TRY(fig_lower_bucket(&graphs->common, &graphs->buckets[index], &bucket.lowered));
    if (options->format == FIG_PRINT_JSON) {
        fig_inspect_json_bucket(print, &bucket);
    } else if (options->format == FIG_PRINT_TEXT) {
        fig_inspect_text_bucket(print, &bucket);
    } else {
        status = print_drawing(print, &bucket, options);
    }
    fig_lower_finish(&bucket.lowered);
    return status;
}

/* The bucket to show where none is given, from 1. */
static fig_status choose_bucket(const fig_graphs *graphs, const fig_step *step, int32_t *bucket) {
    fig_plan_report report = {.size = sizeof report};
    *bucket = (int32_t)graphs->bucket_count;
    if (step == NULL) return FIG_OK;
    FIG_TRY(fig_plan_report_class(graphs, step, 0, &report));
    *bucket = report.bucket;
    return FIG_OK;
}

static fig_status check_options(const fig_graphs *graphs, const fig_print_options *options) {
    if (options->format > FIG_PRINT_DOT)
        return fig_fail(FIG_INVALID, "print: format is %d, limits %d to %d", (int)options->format,
                        FIG_PRINT_TEXT, FIG_PRINT_DOT);
    if (options->columns != 0 &&
        (options->columns < COLUMNS_LEAST || options->columns > COLUMNS_MOST))
        return fig_fail(FIG_INVALID, "print: columns is %" PRId32 ", it must be 0 or %d to %d",
                        options->columns, COLUMNS_LEAST, COLUMNS_MOST);
    /* A negative one is larger than any count. */
    if ((uint32_t)options->bucket > graphs->bucket_count)
        return fig_fail(FIG_INVALID, "print: bucket is %" PRId32 ", there are %" PRIu32,
                        options->bucket, graphs->bucket_count);
    if (options->step != NULL && options->format != FIG_PRINT_HTML)
        return fig_fail(FIG_INVALID, "print: a step's split is shown as HTML alone");
    return FIG_OK;
}

fig_status fig_graphs_print(const fig_graphs *graphs, const fig_print_options *options,
                            fig_write_callback write, void *user) {
    fig_print_options ours;
    fig_print print = {.write = write, .user = user, .columns = DEFAULT_COLUMNS};
    FIG_TRY(fig_status_take_options(&ours, sizeof ours, options, "fig_print_options"));
    if (graphs == NULL) return fig_fail(FIG_INVALID, "print: graphs is NULL");
    if (write == NULL) return fig_fail(FIG_INVALID, "print: write is NULL");
    FIG_TRY(check_options(graphs, &ours));
    if (ours.columns != 0) print.columns = (uint32_t)ours.columns;
    const int is_drawn = ours.format != FIG_PRINT_TEXT && ours.format != FIG_PRINT_JSON;
    if (ours.bucket == 0 && is_drawn) FIG_TRY(choose_bucket(graphs, ours.step, &ours.bucket));
    if (ours.bucket > 0) return print_bucket(&print, graphs, (uint32_t)ours.bucket - 1, &ours);
    return print_summary(&print, graphs, &ours);
}
