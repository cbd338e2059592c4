/* inspect_print.c: prints graphs in any format.
 *
 * Each format has its own file for words and layout. Invariant: nothing is written before
 * everything that could fail has been done. */
#include "tools/figraph/inspect/inspect_print.h"

#include <inttypes.h>

#include "tools/figraph/inspect/failure.h"
#include "tools/figraph/inspect/inspect_dot.h"
#include "tools/figraph/inspect/inspect_json.h"
#include "tools/figraph/inspect/inspect_page.h"
#include "tools/figraph/inspect/inspect_svg.h"
#include "tools/figraph/inspect/inspect_text.h"
#include "tools/figraph/inspect/scope.h"

enum { DEFAULT_COLUMNS = 80, COLUMNS_LEAST = 40, COLUMNS_MOST = 1000 };

static fig_status print_summary(fig_print *print, const fig_graphs *graphs,
                                const fig_print_options *options) {
    fig_inspect_summary summary;
    const fig_status status = fig_scope_open_summary(&summary, graphs);
    summary.all_buckets = options->all_buckets != 0;
    if (status == FIG_OK && options->format == FIG_PRINT_JSON)
        fig_inspect_json_summary(print, &summary);
    if (status == FIG_OK && options->format == FIG_PRINT_TEXT)
        fig_inspect_text_summary(print, &summary);
    fig_scope_close_summary(&summary);
    return status;
}

static fig_status print_page(fig_print *print, const fig_inspect_bucket *bucket,
                             const fig_sketch *sketch, const fig_print_options *options) {
    fig_inspect_page page = {.bucket = bucket, .sketch = sketch, .options = options};
    fig_status status = fig_scope_open_summary(&page.summary, bucket->graphs);
    if (status == FIG_OK) status = fig_inspect_page_prepare(&page);
    if (status == FIG_OK) fig_inspect_page_print(print, &page);
    fig_inspect_page_finish(&page);
    fig_scope_close_summary(&page.summary);
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
    fig_inspect_bucket bucket;
    fig_status status = fig_scope_open_bucket(&bucket, graphs, index);
    if (status == FIG_OK && options->format == FIG_PRINT_JSON) {
        fig_inspect_json_bucket(print, &bucket);
    } else if (status == FIG_OK && options->format == FIG_PRINT_TEXT) {
        fig_inspect_text_bucket(print, &bucket);
    } else if (status == FIG_OK) {
        status = print_drawing(print, &bucket, options);
    }
    fig_scope_close_bucket(&bucket);
    return status;
}

/* Chooses the bucket to show if the caller gave none; numbers begin at 1. */
static fig_status choose_bucket(const fig_graphs *graphs, const fig_step *step, int32_t *bucket) {
    fig_plan_report report = {.size = sizeof report};
    fig_graphs_info info = {.size = sizeof info};
    fig_graphs_read_info(graphs, &info);
    *bucket = info.bucket_count;
    if (step == NULL) return FIG_OK;
    FIG_FAILURE_TRY(fig_failure_of_library(fig_graphs_plan(graphs, step, &report)));
    *bucket = report.bucket;
    return FIG_OK;
}

static fig_status check_options(const fig_graphs *graphs, const fig_print_options *options) {
    fig_graphs_info info = {.size = sizeof info};
    fig_graphs_read_info(graphs, &info);
    if (options->format > FIG_PRINT_DOT)
        return fig_failure(FIG_INVALID, "print: format is %d, limits %d to %d",
                           (int)options->format, FIG_PRINT_TEXT, FIG_PRINT_DOT);
    if (options->columns != 0 &&
        (options->columns < COLUMNS_LEAST || options->columns > COLUMNS_MOST))
        return fig_failure(FIG_INVALID, "print: columns is %" PRId32 ", it must be 0 or %d to %d",
                           options->columns, COLUMNS_LEAST, COLUMNS_MOST);
    if (options->bucket < 0 || options->bucket > info.bucket_count)
        return fig_failure(FIG_INVALID, "print: bucket is %" PRId32 ", there are %" PRId32,
                           options->bucket, info.bucket_count);
    if (options->step != NULL && options->format != FIG_PRINT_HTML)
        return fig_failure(FIG_INVALID, "print: a step's split is shown as HTML alone");
    return FIG_OK;
}

fig_status fig_inspect_print(const fig_graphs *graphs, const fig_print_options *options,
                             fig_write_callback write, void *user) {
    fig_print_options ours = {.format = FIG_PRINT_TEXT};
    fig_print print = {.write = write, .user = user, .columns = DEFAULT_COLUMNS};
    if (options != NULL) ours = *options;
    if (graphs == NULL) return fig_failure(FIG_INVALID, "print: graphs is NULL");
    if (write == NULL) return fig_failure(FIG_INVALID, "print: write is NULL");
    FIG_FAILURE_TRY(check_options(graphs, &ours));
    if (ours.columns != 0) print.columns = (uint32_t)ours.columns;
    const int is_drawn = ours.format != FIG_PRINT_TEXT && ours.format != FIG_PRINT_JSON;
    if (ours.bucket == 0 && is_drawn)
        FIG_FAILURE_TRY(choose_bucket(graphs, ours.step, &ours.bucket));
    if (ours.bucket > 0) return print_bucket(&print, graphs, (uint32_t)ours.bucket - 1, &ours);
    return print_summary(&print, graphs, &ours);
}
